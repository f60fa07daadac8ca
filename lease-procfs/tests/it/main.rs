//! Behaviour of the process evidence, through its public face.

#[cfg(target_os = "linux")]
#[cfg(test)]
mod ancestry;
#[cfg(test)]
mod binding;
#[cfg(test)]
mod binding_fuzz;
#[cfg(test)]
mod bound;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod calls;
#[cfg(test)]
mod clear;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod clear_live;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod crew;
#[cfg(test)]
mod errors;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod faults;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod frozen;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod group;
#[cfg(test)]
mod holder;
#[cfg(test)]
mod identity;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod live;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod mounts;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod namespaces;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod obscured;
#[cfg(test)]
mod observing;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod occupancy;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod places;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod recycled;
#[cfg(test)]
mod rig;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod scan;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod select;
#[cfg(test)]
mod selector;
#[cfg(test)]
mod stat;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod sys;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod tricks;
#[cfg(not(target_os = "linux"))]
#[cfg(test)]
mod unsupported;
#[cfg(test)]
mod verdicts;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod watch;
