//! Waiting for what is to come, in tests.
#![expect(clippy::disallowed_methods, reason = "tests meet the machine here")]

use std::time::{Duration, Instant};

use crate::told::BOUND;

/// Looks until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
