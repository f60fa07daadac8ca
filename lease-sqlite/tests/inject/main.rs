//! Every system call of acquire, hold and release fails once, by means of strace.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod calls;
#[cfg(test)]
mod child;
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(test)]
#[path = "../it/place.rs"]
mod place;
#[cfg(test)]
mod rig;
#[cfg(test)]
#[path = "../it/told.rs"]
mod told;
