//! The clocks read here: the kernel's ticks, and how long a wait has lasted.

use std::time::Duration;

use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::{Timespec, clock_gettime};

use crate::id::StartTicks;

const NANOS: u64 = 1_000_000_000;

/// Waits until the clock is past the tick in which a process started, so that any later owner of its
/// number starts in a later tick. At most two ticks; `false` if that did not help.
///
/// Clock: `CLOCK_BOOTTIME`, which start ticks are counted on, in the same time namespace.
pub(crate) fn wait_until_past(start: StartTicks) -> bool {
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let tick_nanos = NANOS.checked_div(ticks_per_second).unwrap_or(NANOS);
    // A signal may cut a wait short; a clock that stands still ends the loop all the same.
    for _attempt in 0..ATTEMPTS {
        let now_nanos = boottime_nanos();
        let now = now_nanos.checked_div(tick_nanos).unwrap_or(0);
        if now > start.get() {
            return true;
        }
        if now < start.get() {
            // A start in the future was counted on another clock.
            return false;
        }
        let rest = tick_nanos.saturating_sub(now_nanos.checked_rem(tick_nanos).unwrap_or(0));
        let _interrupted = clock_nanosleep_relative(
            ClockId::Boottime,
            &Timespec {
                tv_sec: 0,
                tv_nsec: rest.try_into().unwrap_or(0),
            },
        );
    }
    false
}

/// More wake-ups than a tick can have by anything but a broken clock.
const ATTEMPTS: u32 = 1_000;

/// When a wait ends.
///
/// Clock: `CLOCK_MONOTONIC`, as the kernel's own timeouts, so time asleep is not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(u64);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        let nanos = time.as_nanos().try_into().unwrap_or(u64::MAX);
        Self(nanos_of(ClockId::Monotonic).saturating_add(nanos))
    }

    /// Tells whether nothing is left of it.
    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(nanos_of(ClockId::Monotonic)))
    }

    /// Returns what is left of it, at least nothing and at most a day: before Linux 5.11 no wait takes
    /// more milliseconds than 31 bits count.
    pub(crate) fn rest(self) -> Timespec {
        const DAY: Duration = Duration::from_secs(86_400);
        let rest = self.left().min(DAY);
        Timespec {
            tv_sec: rest.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: rest.subsec_nanos().into(),
        }
    }
}

fn boottime_nanos() -> u64 {
    nanos_of(ClockId::Boottime)
}

fn nanos_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NANOS).saturating_add(nanos)
}
