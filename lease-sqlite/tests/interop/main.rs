//! The write lock beside an independent writer of the same protocol, in another language and with an SQLite of its own.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod attribution;
#[cfg(test)]
mod child;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod legacy;
#[cfg(test)]
mod node;
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(test)]
mod oracle;
#[cfg(test)]
#[path = "../it/patience.rs"]
mod patience;
#[cfg(test)]
#[path = "../it/place.rs"]
mod place;
#[cfg(test)]
mod python;
#[cfg(test)]
mod records;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod rounds;
#[cfg(test)]
#[path = "../it/told.rs"]
mod told;
#[cfg(test)]
mod waiting;
