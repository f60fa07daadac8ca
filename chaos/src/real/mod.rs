//! Real faults: processes of this machine, in namespaces of their own.
//!
//! Each scenario runs in fresh namespaces that the program makes by starting itself again in roles
//! (`chaos __role ..`). The first process in them tells the story: it starts an authority and
//! holders, does something to them, and checks what the authority and the guarded file then say. The
//! rest of the machine is left as it is.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::scenario::Scenario;

#[cfg(target_os = "linux")]
mod authority;
#[cfg(target_os = "linux")]
mod boot;
#[cfg(target_os = "linux")]
mod chance;
#[cfg(all(target_os = "linux", feature = "sqlite"))]
mod claim;
#[cfg(target_os = "linux")]
mod deaths;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod guarded;
#[cfg(target_os = "linux")]
mod holder;
#[cfg(target_os = "linux")]
mod kill;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod lines;
#[cfg(target_os = "linux")]
mod occupied;
#[cfg(target_os = "linux")]
mod pause;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod problem;
#[cfg(target_os = "linux")]
mod restart;
#[cfg(target_os = "linux")]
mod roles;
#[cfg(target_os = "linux")]
mod shown;
#[cfg(target_os = "linux")]
mod steps;
#[cfg(target_os = "linux")]
mod stop;
#[cfg(target_os = "linux")]
mod storm;
#[cfg(target_os = "linux")]
mod story;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod taken;
#[cfg(target_os = "linux")]
mod tales;
#[cfg(target_os = "linux")]
mod wire;
#[cfg(target_os = "linux")]
mod work;
#[cfg(target_os = "linux")]
mod world;
#[cfg(all(target_os = "linux", feature = "sqlite"))]
mod write_lock;
#[cfg(all(target_os = "linux", feature = "sqlite"))]
mod write_log;

#[cfg(target_os = "linux")]
pub use tales::run_by;

/// Returns the scenarios of the real suite.
///
/// They start the running program again, which therefore must ask [`role`] first.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    #[cfg(target_os = "linux")]
    return tales::scenarios();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Runs this process in a role of a scenario, if its arguments (without the program's name) name one.
///
/// The program asks here before anything else: the scenarios start it again as `chaos __role NAME ..`.
#[must_use]
pub fn role(arguments: &[OsString]) -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    return roles::role(arguments);
    #[cfg(not(target_os = "linux"))]
    {
        let _unused = arguments;
        None
    }
}
