//! The decision clock: moments come in, deadlines go out.

use core::fmt;
use core::time::Duration;

/// A reading of the decision clock.
///
/// Unit: nanoseconds. Clock: one that counts suspend and never steps back (on Linux
/// `CLOCK_BOOTTIME`). Boot: a moment means something within one boot only; a record that outlives
/// the process stores the boot id beside it. Never a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Moment(#[cfg_attr(feature = "serde", serde(with = "crate::wire::wide"))] u64);

impl Moment {
    /// The clock's zero.
    pub const ZERO: Self = Self(0);

    /// The last moment that can be written down, 584 years after zero.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes a moment out of nanoseconds since the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Makes a moment out of milliseconds since the clock's zero; too large a number is
    /// [`Moment::MAX`].
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `span` later, or [`Moment::MAX`].
    ///
    /// Saturating is safe for a deadline: a term may seem to end later, never earlier.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let seconds = span.as_secs().saturating_mul(1_000_000_000);
        let nanos = seconds.saturating_add(u64::from(span.subsec_nanos()));
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the time from `earlier` to here, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Moment {
    /// Seconds since the clock's zero, with nine places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration::from_nanos(self.0);
        write!(f, "{}.{:09}", span.as_secs(), span.subsec_nanos())
    }
}

/// Reads the decision clock. Adapters implement it; the core never calls it.
pub trait Clock {
    /// Returns the present moment.
    fn now(&self) -> Moment;
}
