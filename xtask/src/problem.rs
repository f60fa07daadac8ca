//! Why a job could not be done at all, as against a check that failed.

use core::fmt;
use std::io::{Write as _, stderr};

/// One sentence for the person at the terminal.
#[derive(Debug)]
pub(crate) struct Problem(String);

impl Problem {
    /// A problem with nothing behind it.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// A problem that something else caused; for `map_err`.
    pub(crate) fn caused<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |cause| Self(format!("{what}: {cause}"))
    }

    /// Prints it on standard error. Whoever closed that does not want to know.
    pub(crate) fn tell(&self) {
        writeln!(stderr(), "xtask: {self}").unwrap_or_default();
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
