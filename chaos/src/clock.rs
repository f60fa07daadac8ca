//! The one place of this crate that reads a clock of the machine. No lease is decided by it.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is where the fault injector reads clocks"
)]

use std::time::{Duration, Instant, SystemTime};

/// A moment after which nobody should start anything new.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
}

impl Deadline {
    /// Returns the deadline that lies `span` from now; at most a year.
    #[must_use]
    pub fn within(span: Duration) -> Self {
        let most = Duration::from_secs(365 * 24 * 60 * 60);
        Self {
            at: Instant::now() + span.min(most),
        }
    }

    /// Returns the time that is left; zero once it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns whether it has passed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
}

impl Stopwatch {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Returns a number that differs from run to run, for a seed that nobody chose.
#[must_use]
pub fn arbitrary() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
