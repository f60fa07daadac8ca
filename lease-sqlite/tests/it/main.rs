//! Behaviour of the write lock, through its public face, with real files and real processes.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod calls;
#[cfg(test)]
mod child;
#[cfg(all(feature = "test-util", feature = "legacy-v1"))]
#[cfg(test)]
mod codes;
#[cfg(test)]
mod config;
#[cfg(test)]
mod failing;
#[cfg(feature = "test-util")]
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod forbid;
#[cfg(test)]
mod fork;
#[cfg(all(feature = "async", feature = "test-util"))]
#[cfg(test)]
mod front;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod guarded;
#[cfg(test)]
mod guarding;
#[cfg(test)]
mod handles;
#[cfg(test)]
mod hazards;
#[cfg(test)]
mod health;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod mutex;
#[cfg(test)]
mod nobody;
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(test)]
mod notebook;
#[cfg(test)]
#[path = "../../examples/notebook/notes.rs"]
mod notes;
#[cfg(test)]
mod pair;
#[cfg(test)]
mod patience;
#[cfg(test)]
mod place;
#[cfg(test)]
mod places;
#[cfg(test)]
mod record;
#[cfg(test)]
mod reentry;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod sys;
#[cfg(test)]
mod told;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod wait;
