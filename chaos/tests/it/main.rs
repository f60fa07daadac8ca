//! The tests of the fault injector.

#[cfg(test)]
mod real;
#[cfg(test)]
mod script;
#[cfg(test)]
mod sim;
