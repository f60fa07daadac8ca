//! What an authority answers.

use alloc::vec::Vec;

use crate::change::Change;
use crate::plan::Grant;
use crate::refusal::Refusal;

/// The answer to one call: the state is known.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a granted outcome holds the only grant of its lease"]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Outcome<H> {
    /// The lease is granted, or was held already.
    Granted(Grant, Change),
    /// Done.
    Done(Change),
    /// Any number of leases ended: the answer to Disconnect and Sweep.
    Many(Vec<Change>),
    /// No. Nothing changed.
    Refused(Refusal<H>),
}
