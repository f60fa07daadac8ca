//! True time, and what the authority's clock makes of it.

use lease_core::Moment;

/// The time of the room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// True nanoseconds since the first boot.
    pub(super) now: u64,
    /// True time at which the clock read `base`.
    since: u64,
    base: u64,
    /// How many millionths it runs too fast.
    drift: i64,
}

/// What the clock reads when the room opens: not zero, so that it can step back.
const START_NANOS: u64 = 1_000_000_000_000;

impl Time {
    pub(super) const fn new(drift: i64) -> Self {
        Self {
            now: 0,
            since: 0,
            base: START_NANOS,
            drift,
        }
    }

    /// Lets true time pass.
    pub(super) const fn pass(&mut self, nanos: u64) {
        self.now = self.now.saturating_add(nanos);
    }

    /// Makes the clock read less.
    pub(super) fn step_back(&mut self, nanos: u64) {
        self.base = self.read().as_nanos().saturating_sub(nanos);
        self.since = self.now;
    }

    /// A new boot: the clock starts again.
    pub(super) const fn reboot(&mut self) {
        self.base = 0;
        self.since = self.now;
    }

    /// What the clock reads.
    pub(super) fn read(&self) -> Moment {
        let passed = i128::from(self.now.saturating_sub(self.since));
        let read = passed * i128::from(1_000_000 + self.drift) / 1_000_000;
        Moment::from_nanos(
            self.base
                .saturating_add(u64::try_from(read).unwrap_or(u64::MAX)),
        )
    }
}
