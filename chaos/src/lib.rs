//! The fault injector of fenced writer leases.
//!
//! It runs scenarios against the shipped code: *sim* ones in a virtual machine room, where one seed
//! is one history, and *real* ones with processes of this machine. What a scenario may claim is
//! narrow: a fault counts only when its effect was seen, and what the machine does not allow is *not
//! run*, never passed.
//!
//! Start reading at [`scenario`].

pub mod clock;
pub mod conformance;
#[cfg(feature = "model")]
pub mod model;
mod named;
pub mod oracle;
pub mod real;
pub mod scenario;
pub mod script;
pub mod sim;

/// Returns every scenario: the stories first, then the real ones, then those that go on for as long as
/// they may.
#[must_use]
pub fn scenarios() -> Vec<scenario::Scenario> {
    let mut all = script::scenarios();
    all.extend(real::scenarios());
    all.extend(sim::scenarios());
    all
}

/// The examples of the README, as tests. They are here because this crate is on top of all others.
#[cfg(all(doctest, feature = "async", feature = "sqlite", target_os = "linux"))]
#[doc = include_str!("../../README.md")]
struct Readme;
