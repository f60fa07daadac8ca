//! The tests of the fault injector.

#[cfg(test)]
mod real;
