//! What whoever started a program is told of its end.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

/// Says why it failed, if it did.
pub(crate) fn end(program: &str, ended: Result<(), impl Display>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // Where nobody listens, the exit code says it.
            let _told = writeln!(std::io::stderr(), "{program}: {problem}");
            ExitCode::FAILURE
        }
    }
}
