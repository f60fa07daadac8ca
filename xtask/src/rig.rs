//! How a test says that this machine does not allow a check.
//!
//! The test programs of all crates have this file by its path, so that each says it as `cargo xtask test` reads it.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the runner names the file by the environment, and people read it"
)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// Says that this machine does not allow a check. It is counted, and never passes for a success.
pub(crate) fn not_run(test: &str, need: &str, reason: &str) {
    let line = line(test, need, reason);
    eprint!("{line}");
    if let Some(file) = std::env::var_os("LEASE_NOT_RUN_FILE") {
        append(Path::new(&file), &line);
    }
}

pub(crate) fn line(test: &str, need: &str, reason: &str) -> String {
    format!("NOT RUN: {test}: {need}: {reason}\n")
}

/// In one write, so that the lines of several programs do not mix.
pub(crate) fn append(file: &Path, line: &str) {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
