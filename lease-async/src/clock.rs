//! The clocks: the system's, and two that tests move.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::io;

use lease_core::{Clock, Moment};

/// A decision clock that can also ring.
pub trait AlarmClock: Clock + fmt::Debug + Send + Sync + 'static {
    /// Wakes `waker` once, at `at` or later, unless the alarm is dropped before.
    ///
    /// Never inside this call, also when `at` is past: it may be made under a lock that the waker takes.
    ///
    /// # Errors
    ///
    /// [`AlarmError`]: it will not ring.
    fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError>;

    /// Returns milliseconds since the Unix epoch, for people only; `None` where nobody is to be misled.
    fn wall_ms(&self) -> Option<i64> {
        None
    }
}

/// An armed alarm. Dropping it disarms it.
#[must_use = "a dropped alarm does not ring"]
pub struct Alarm {
    disarm: Disarm,
}

/// How an alarm is disarmed.
enum Disarm {
    By(Box<dyn FnOnce() + Send>),
    /// By the thread behind the system's clock.
    #[cfg(target_os = "linux")]
    Keeper(crate::keeper::Armed),
    Done,
}

impl Alarm {
    /// Makes an alarm that is disarmed by `disarm`.
    pub fn new(disarm: impl FnOnce() + Send + 'static) -> Self {
        Self {
            disarm: Disarm::By(Box::new(disarm)),
        }
    }

    /// Whether it was armed in this process: what a forked child has of its parent's rings nowhere.
    pub(crate) fn is_ours(&self) -> bool {
        match &self.disarm {
            #[cfg(target_os = "linux")]
            Disarm::Keeper(armed) => armed.is_ours(),
            Disarm::By(_) | Disarm::Done => true,
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) const fn kept(armed: crate::keeper::Armed) -> Self {
        Self {
            disarm: Disarm::Keeper(armed),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        match core::mem::replace(&mut self.disarm, Disarm::Done) {
            Disarm::By(disarm) => disarm(),
            #[cfg(target_os = "linux")]
            Disarm::Keeper(armed) => armed.disarm(),
            Disarm::Done => {}
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}

/// Waits until a moment of a clock.
#[derive(Debug)]
pub(crate) struct Sleep<'a> {
    clock: &'a dyn AlarmClock,
    until: Moment,
    alarm: Option<Alarm>,
}

impl<'a> Sleep<'a> {
    pub(crate) const fn new(clock: &'a dyn AlarmClock, until: Moment) -> Self {
        Self {
            clock,
            until,
            alarm: None,
        }
    }
}

impl Future for Sleep<'_> {
    type Output = Result<(), AlarmError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.clock.now() >= self.until {
            return Poll::Ready(Ok(()));
        }
        match self.clock.arm(self.until, cx.waker().clone()) {
            Ok(alarm) => {
                self.alarm = Some(alarm);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Why an alarm will not ring.
///
/// State: nothing was changed. Retry: after what is exhausted is free again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlarmError {
    /// No thread, timer or descriptor is left.
    #[error("no thread or timer is left to wait with")]
    Exhausted(#[source] io::Error),
    /// This system has no timer on the clock.
    #[error("this system has no timer on the decision clock")]
    Unsupported,
}

/// The clock of this machine: it counts suspend and never steps back (`CLOCK_BOOTTIME`).
///
/// All of a process ring by one timer on one thread, which starts with the first alarm and sleeps until the
/// earliest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock(());

impl SystemClock {
    /// Makes the clock.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

#[cfg(target_os = "linux")]
impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

#[cfg(target_os = "linux")]
impl AlarmClock for SystemClock {
    fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
        crate::keeper::arm(at, waker)
    }

    fn wall_ms(&self) -> Option<i64> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let ms = now.tv_nsec.checked_div(1_000_000)?;
        now.tv_sec.checked_mul(1_000)?.checked_add(ms)
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use core::task::Waker;
    use std::sync::OnceLock;
    use std::time::Instant;

    use lease_core::{Clock, Moment};

    use super::{Alarm, AlarmClock, AlarmError, SystemClock};

    static START: OnceLock<Instant> = OnceLock::new();

    impl Clock for SystemClock {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        fn now(&self) -> Moment {
            Moment::ZERO.after(START.get_or_init(Instant::now).elapsed())
        }
    }

    impl AlarmClock for SystemClock {
        fn arm(&self, _at: Moment, _waker: Waker) -> Result<Alarm, AlarmError> {
            Err(AlarmError::Unsupported)
        }
    }
}

#[cfg(feature = "test-util")]
pub use for_tests::{ManualClock, TokioClock};

#[cfg(feature = "test-util")]
mod for_tests {
    use core::task::Waker;
    use core::time::Duration;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use lease_core::{Clock, Moment};
    use tokio::runtime::Handle;
    use tokio::time::Instant;

    use super::{Alarm, AlarmClock, AlarmError};

    /// The clock of the tokio runtime it was made in, which tests pause and advance.
    ///
    /// It must not be used where suspend counts, and it rings on the runtime.
    #[derive(Clone, Debug)]
    pub struct TokioClock {
        runtime: Handle,
        start: Instant,
        zero: Moment,
    }

    impl TokioClock {
        /// Makes a clock that reads `zero` now.
        ///
        /// # Panics
        ///
        /// Outside of a runtime.
        #[must_use]
        pub fn new(zero: Moment) -> Self {
            Self {
                runtime: Handle::current(),
                start: Instant::now(),
                zero,
            }
        }
    }

    impl Clock for TokioClock {
        fn now(&self) -> Moment {
            // Else a thread outside would read another clock.
            let _inside = self.runtime.enter();
            self.zero
                .after(Instant::now().saturating_duration_since(self.start))
        }
    }

    impl AlarmClock for TokioClock {
        fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
            let until = self.start.checked_add(at.since(self.zero));
            let ring = self.runtime.spawn(async move {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    // Beyond what the runtime can count to.
                    None => core::future::pending().await,
                }
                waker.wake();
            });
            Ok(Alarm::new(move || ring.abort()))
        }
    }

    /// A clock that moves when it is told to, and rings in the thread that moves it.
    ///
    /// An alarm that is armed for a moment that is past rings with the next move.
    #[derive(Clone, Debug)]
    pub struct ManualClock {
        state: Arc<Mutex<State>>,
    }

    #[derive(Debug)]
    struct State {
        now: Moment,
        alarms: BTreeMap<(Moment, u64), Waker>,
        last: u64,
    }

    impl ManualClock {
        /// Makes a clock that reads `now`.
        #[must_use]
        pub fn new(now: Moment) -> Self {
            let alarms = BTreeMap::new();
            let state = State {
                now,
                alarms,
                last: 0,
            };
            Self {
                state: Arc::new(Mutex::new(state)),
            }
        }

        /// Moves the clock on by `span`.
        pub fn advance(&self, span: Duration) {
            self.ring(|now| now.after(span));
        }

        /// Moves the clock to `now`, back also, and rings what is due.
        pub fn set(&self, now: Moment) {
            self.ring(|_before| now);
        }

        fn ring(&self, next: impl FnOnce(Moment) -> Moment) {
            let mut state = self.state();
            let now = next(state.now);
            state.now = now;
            let later = state.alarms.split_off(&(now, u64::MAX));
            let due = core::mem::replace(&mut state.alarms, later);
            drop(state);
            due.into_values().for_each(Waker::wake);
        }

        /// Returns how many alarms are armed.
        #[must_use]
        pub fn armed(&self) -> usize {
            self.state().alarms.len()
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Moment {
            self.state().now
        }
    }

    impl AlarmClock for ManualClock {
        fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
            let mut state = self.state();
            state.last = state.last.wrapping_add(1);
            let key = (at, state.last);
            state.alarms.insert(key, waker);
            let clock = Arc::clone(&self.state);
            Ok(Alarm::new(move || {
                let mut state = clock.lock().unwrap_or_else(PoisonError::into_inner);
                let disarmed = state.alarms.remove(&key);
                drop(state);
                // A waker may own things that take locks when they go.
                drop(disarmed);
            }))
        }
    }
}
