//! The one place of this crate that reads a clock of the machine. No lease is decided by it.
#![expect(
    clippy::disallowed_methods,
    reason = "this file is where the fault injector reads clocks"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A moment after which nobody should start anything new.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    called_off: Option<&'static AtomicBool>,
}

impl Deadline {
    /// Returns the deadline that lies `span` from now; at most a year.
    #[must_use]
    pub fn within(span: Duration) -> Self {
        let most = Duration::from_secs(365 * 24 * 60 * 60);
        Self {
            at: Instant::now() + span.min(most),
            called_off: None,
        }
    }

    /// Returns the same deadline, which has passed as soon as `called_off` is set. It takes the place of an
    /// earlier such word.
    #[must_use]
    pub const fn unless(self, called_off: &'static AtomicBool) -> Self {
        Self {
            called_off: Some(called_off),
            ..self
        }
    }

    /// Returns a deadline that lies `span` from now, and is called off with this one.
    #[must_use]
    pub fn another(&self, span: Duration) -> Self {
        Self {
            called_off: self.called_off,
            ..Self::within(span)
        }
    }

    /// Returns the time that is left; zero once it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.called_off {
            Some(word) if word.load(Ordering::Relaxed) => Duration::ZERO,
            Some(_) | None => self.at.saturating_duration_since(Instant::now()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_has_passed_once_it_is_called_off() {
        static WORD: AtomicBool = AtomicBool::new(false);
        let plain = Deadline::within(Duration::from_secs(3_600));
        let deadline = plain.unless(&WORD);
        let another = deadline.another(Duration::from_secs(7_200));
        assert!(!deadline.has_passed());
        assert!(another.remaining() > deadline.remaining());
        WORD.store(true, Ordering::Relaxed);
        assert!(deadline.has_passed() && another.has_passed());
        assert!(!plain.has_passed());
    }
}
