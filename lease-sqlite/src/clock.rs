//! Clocks and sleep: the only ones read here, behind a trait so that a test can give its own.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the file that reads clocks"
)]

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The clocks of a lock, and its sleep.
pub trait Timing: Debug + Send + Sync {
    /// Returns the time since some fixed moment. It never steps back and counts suspend.
    ///
    /// Deadlines are measured on it. Clock: `CLOCK_BOOTTIME` for [`SystemTiming`].
    fn now(&self) -> Duration;

    /// Returns the milliseconds since 1970, for stamps in records; decides nothing.
    fn wall_ms(&self) -> i64;

    /// Waits; may return early.
    fn sleep(&self, time: Duration);
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemTiming;

impl Timing for SystemTiming {
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn wall_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Returns when this process started, in milliseconds since 1970 by the present wall clock.
#[cfg(feature = "legacy-v1")]
pub(crate) fn own_start_ms() -> Option<i64> {
    let proc = lease_procfs::ProcFs::system();
    let own = lease_procfs::ProcessIdentity::own(&proc).ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let started_ms = own
        .start_ticks
        .get()
        .saturating_mul(1_000)
        .checked_div(ticks_per_second)?;
    let up_ms = u64::try_from(SystemTiming.now().as_millis()).ok()?;
    let age_ms = i64::try_from(up_ms.saturating_sub(started_ms)).ok()?;
    Some(SystemTiming.wall_ms().saturating_sub(age_ms))
}
