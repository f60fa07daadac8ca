//! `cargo xtask chaos`: the fault injector, built in release.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use crate::problem::Problem;
use crate::workspace::{Workspace, spoken};

/// Runs the fault injector and passes on its exit code.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Problem> {
    let mut command = command(workspace);
    command.args(arguments).stdin(Stdio::inherit());
    let status = command
        .status()
        .map_err(Problem::caused(spoken(&command)))?;
    Ok(code(status.code()))
}

/// The call without the arguments of the fault injector.
pub(crate) fn command(workspace: &Workspace) -> Command {
    workspace.cargo([
        "run",
        "--release",
        "--package",
        "chaos",
        "--bin",
        "chaos",
        "--",
    ])
}

/// A program that a signal ended has no code: that is a failure.
fn code(code: Option<i32>) -> ExitCode {
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seen: Option<i32>, passed_on: u8) {
        // `ExitCode` has no equality.
        let expected = format!("{:?}", ExitCode::from(passed_on));
        assert_eq!(format!("{:?}", code(seen)), expected);
    }

    #[test]
    fn the_exit_code_is_passed_on_and_a_signal_is_a_failure() {
        check(Some(0), 0);
        check(Some(3), 3);
        check(Some(101), 101);
        check(None, 1);
    }
}
