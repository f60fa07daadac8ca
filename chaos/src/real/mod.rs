//! Real faults: processes of this machine, in namespaces of their own.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::scenario::Scenario;

/// Returns the scenarios of the real suite.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    Vec::new()
}

/// Runs this process in a role of a scenario, if its arguments (without the program's name) name one.
///
/// The program asks here before anything else: the scenarios start it again as `chaos __role NAME ..`.
#[must_use]
pub fn role(_arguments: &[OsString]) -> Option<ExitCode> {
    None
}
