//! Prints for a person, without the panic of `println!` when nobody can take the words.

use core::fmt::Display;
use std::io::{Write as _, stdout};

use crate::problem::Problem;

/// Prints one line, or several, on standard output.
pub(crate) fn say(words: impl Display) -> Result<(), Problem> {
    writeln!(stdout(), "{words}").map_err(Problem::caused("standard output"))
}
