//! Every system call of acquire, hold and release fails once, by means of strace.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod calls;
#[cfg(test)]
mod child;
#[cfg(test)]
mod rig;
