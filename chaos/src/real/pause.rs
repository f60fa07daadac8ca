//! Short waits between looks at a condition, and the decision clock.

use std::time::Duration;

use lease_core::Moment;
use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::{Timespec, clock_gettime};

use super::problem::Problem;
use crate::clock::Deadline;

/// Waits a little; a signal may cut it short.
pub(crate) fn pause(span: Duration) {
    if let Ok(span) = Timespec::try_from(span) {
        let _woken = clock_nanosleep_relative(ClockId::Monotonic, &span);
    }
}

/// Looks at a condition until it holds, at most until the deadline.
pub(crate) fn wait_for(
    what: &str,
    deadline: Deadline,
    mut holds: impl FnMut() -> Result<bool, Problem>,
) -> Result<(), Problem> {
    loop {
        if holds()? {
            return Ok(());
        }
        if deadline.has_passed() {
            return Err(Problem::broken(format_args!(
                "{what} did not happen in time"
            )));
        }
        pause(Duration::from_micros(500));
    }
}

/// Reads the decision clock of this process's time namespace.
pub(crate) fn boottime() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Reads the decision clock in whole seconds.
pub(crate) fn boottime_seconds() -> u64 {
    let second = 1_000_000_000;
    boottime().as_nanos().checked_div(second).unwrap_or(0)
}
