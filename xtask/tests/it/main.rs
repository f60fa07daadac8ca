//! The program as a person runs it.

#[cfg(test)]
mod output;
#[cfg(test)]
mod signal;
