//! Sessions, guards and waiting, seen through tokio.

#[cfg(test)]
mod rig;
#[cfg(test)]
mod scenarios;
