//! Waiting: one deadline, whatever is in the way, and a last attempt at it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lease_core::BusyReason;

use crate::busy::Busy;
use crate::error::AcquireError;
use crate::gate::{Doorman, Gate};
use crate::health::Happening;
use crate::hold::{Granted, Hold, Lane, Telling};
use crate::limits::{HANDOVERS_IN_A_ROW, IMPATIENCE};
use crate::lock::Shared;
use crate::options::Settings;
use crate::state::{Attempt, InTheWay, Request};
use crate::sys;

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a wait has an end or it has not")]
pub enum WaitBudget {
    /// At most this long; zero means one attempt and no sleep.
    Within(Duration),
    /// Until it is granted.
    Forever,
}

impl WaitBudget {
    /// One attempt.
    pub const NOW: Self = Self::Within(Duration::ZERO);

    /// Returns what is left, or `None` for ever.
    const fn left(self, waited: Duration) -> Option<Duration> {
        match self {
            Self::Within(time) => Some(time.saturating_sub(waited)),
            Self::Forever => None,
        }
    }
}

/// Who of this process waits for one path, in the order in which they came.
///
/// Only the first one waits outside: at the gate, for the end of the holder, and at a slow beat.
#[derive(Debug, Default)]
pub(crate) struct Line {
    queue: Mutex<Queue>,
    moved: Condvar,
    doorman: OnceLock<Option<Doorman>>,
    /// How many were let through by the gate since a poll interval was left free.
    in_a_row: AtomicU32,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<u64>,
}

impl Line {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    fn doorman(&self) -> Option<&Doorman> {
        self.doorman.get_or_init(Doorman::new).as_ref()
    }
}

/// A place in the line, left when it is dropped.
struct Place<'a> {
    line: &'a Line,
    number: u64,
}

impl<'a> Place<'a> {
    fn join(line: &'a Line) -> Self {
        let mut queue = line.queue();
        let number = queue.next;
        queue.next = number.saturating_add(1);
        queue.waiting.push_back(number);
        Self { line, number }
    }

    /// Waits until everybody ahead is gone, or the time is over. Returns whether it is first.
    fn wait_turn(&self, time: Option<Duration>) -> bool {
        let is_later = |queue: &mut Queue| queue.waiting.front() != Some(&self.number);
        let queue = self.line.queue();
        let moved = &self.line.moved;
        let mut queue = match time {
            Some(time) => {
                let outcome = moved.wait_timeout_while(queue, time, is_later);
                outcome.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let outcome = moved.wait_while(queue, is_later);
                outcome.unwrap_or_else(PoisonError::into_inner)
            }
        };
        !is_later(&mut queue)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.line.queue();
        let was_first = queue.waiting.front() == Some(&self.number);
        queue.waiting.retain(|number| *number != self.number);
        let is_empty = queue.waiting.is_empty();
        drop(queue);
        if was_first
            && is_empty
            && let Some(doorman) = self.line.doorman()
        {
            doorman.dismiss();
        }
        self.line.moved.notify_all();
    }
}

/// One caller who waits.
struct Waiter<'a> {
    shared: &'a Arc<Shared>,
    settings: &'a Settings,
    request: Request<'a>,
    budget: WaitBudget,
    started: Duration,
    /// The gate that let us through in vain. It stays shut behind us, so that we stay first.
    passed: Option<Gate>,
    /// How long the next look takes to come while it is.
    patience: Duration,
}

/// Takes the lock, waiting within the budget.
pub(crate) fn acquire(
    shared: &Arc<Shared>,
    settings: &Settings,
    lane: &Lane,
    budget: WaitBudget,
) -> Result<Hold, AcquireError> {
    shared.check_image()?;
    let request = Request {
        paths: &shared.paths,
        settings,
        lane: lane.number(),
    };
    let mut waiter = Waiter {
        shared,
        settings,
        request,
        budget,
        started: settings.timing.now(),
        passed: None,
        patience: IMPATIENCE,
    };
    // Bound first: a guard in the head of a `match` would live to its end, across every wait.
    let first = shared.state().attempt(request)?;
    match first {
        Attempt::Granted(number, granted) => Ok(waiter.hold(number, granted)),
        Attempt::Busy(mut in_the_way) => {
            waiter.tell(&mut in_the_way);
            if settings.is_timing_given {
                waiter.poll(in_the_way)
            } else {
                waiter.stand(in_the_way)
            }
        }
    }
}

impl Waiter<'_> {
    /// Tries at 0, poll, 2 poll, .. and at the deadline.
    fn poll(&mut self, mut in_the_way: Box<InTheWay>) -> Result<Hold, AcquireError> {
        loop {
            let left = self.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.refused(*in_the_way));
            }
            self.settings
                .timing
                .sleep(at_most(self.settings.poll, left));
            in_the_way = match self.try_again(None)? {
                Ok(hold) => return Ok(hold),
                Err(in_the_way) => in_the_way,
            };
        }
    }

    /// Waits in the line of this process, and as its first one for a sign from outside.
    fn stand(&mut self, mut in_the_way: Box<InTheWay>) -> Result<Hold, AcquireError> {
        if self.left().is_some_and(|left| left.is_zero()) {
            return Err(self.refused(*in_the_way));
        }
        let place = Place::join(&self.shared.line);
        loop {
            let mut passed = None;
            if place.wait_turn(self.left()) {
                passed = self.wait_outside(&in_the_way);
            }
            in_the_way = match self.try_again(passed)? {
                Ok(hold) => return Ok(hold),
                Err(in_the_way) => in_the_way,
            };
            if self.left().is_some_and(|left| left.is_zero()) {
                return Err(self.refused(*in_the_way));
            }
        }
    }

    /// Waits for the gate, the end of the holder, or the next beat.
    fn wait_outside(&mut self, in_the_way: &InTheWay) -> Option<Gate> {
        let line = &self.shared.line;
        let poll = at_most(self.settings.poll, self.left());
        let Some(doorman) = line.doorman() else {
            self.settings.timing.sleep(poll);
            return None;
        };
        let holder = in_the_way.locked_by.and_then(sys::watch);
        if let Some(gate) = self.passed.take() {
            // Somebody came in beside the gate, and will not ring when leaving.
            let time = at_most(self.patience, Some(poll));
            self.patience = self.patience.saturating_mul(2);
            sys::wait_any(doorman.bell(), holder.as_ref(), time);
            return Some(gate);
        }
        let is_kernel = matches!(in_the_way.reason, BusyReason::Kernel(_));
        let has_gate = is_kernel && doorman.go(&self.request.paths.record);
        let time = if has_gate {
            at_most(jittered(self.settings.beat), self.left())
        } else {
            poll
        };
        sys::wait_any(doorman.bell(), holder.as_ref(), time);
        let passed = doorman.passed()?;
        self.patience = IMPATIENCE;
        let in_a_row = line.in_a_row.fetch_add(1, Ordering::Relaxed);
        if in_a_row >= HANDOVERS_IN_A_ROW && self.shared.state().has_seen_peer() {
            line.in_a_row.store(0, Ordering::Relaxed);
            // The others of us stay behind the gate meanwhile.
            self.settings
                .timing
                .sleep(at_most(self.settings.poll, self.left()));
        }
        Some(passed)
    }

    /// Tries once more, perhaps let through by the gate.
    fn try_again(
        &mut self,
        passed: Option<Gate>,
    ) -> Result<Result<Hold, Box<InTheWay>>, AcquireError> {
        let mut state = self.shared.state();
        let outcome = state.attempt(self.request);
        match (passed, &outcome) {
            (Some(gate), Ok(Attempt::Granted(..))) => state.keep_gate(gate),
            (Some(gate), Ok(Attempt::Busy(in_the_way)))
                if matches!(in_the_way.reason, BusyReason::Kernel(_)) =>
            {
                self.passed = Some(gate);
            }
            (Some(gate), _) => gate.open(),
            (None, _) => {}
        }
        drop(state);
        match outcome? {
            Attempt::Granted(number, mut granted) => {
                granted.contended = true;
                granted.waited = self.waited();
                Ok(Ok(self.hold(number, granted)))
            }
            Attempt::Busy(mut in_the_way) => {
                self.tell(&mut in_the_way);
                Ok(Err(in_the_way))
            }
        }
    }

    fn hold(&self, number: u64, granted: Granted) -> Hold {
        let telling = Telling {
            timing: Arc::clone(&self.settings.timing),
            events: Arc::clone(&self.settings.events),
            budget: self.settings.hold_budget,
        };
        Hold::new(Arc::clone(self.shared), number, granted, telling)
    }

    /// Tells of a long foreign hold, outside every lock.
    fn tell(&self, in_the_way: &mut InTheWay) {
        if let Some(incident) = in_the_way.incident.take() {
            self.settings.events.tell(Happening::ForeignHold(incident));
        }
    }

    fn waited(&self) -> Duration {
        self.settings.timing.now().saturating_sub(self.started)
    }

    fn left(&self) -> Option<Duration> {
        self.budget.left(self.waited())
    }

    fn refused(&self, in_the_way: InTheWay) -> AcquireError {
        AcquireError::Busy(Box::new(Busy {
            lock_path: self.shared.paths.record.clone(),
            holder: in_the_way.holder,
            reason: in_the_way.reason,
            size: in_the_way.size,
            locked_by: in_the_way.locked_by,
            waited: self.waited(),
        }))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // Whoever gives up lets the next one through.
        if let Some(gate) = self.passed.take() {
            gate.open();
        }
    }
}

fn at_most(time: Duration, left: Option<Duration>) -> Duration {
    left.map_or(time, |left| left.min(time))
}

/// A time, a quarter of it less or more, so that waiters do not march in step.
fn jittered(time: Duration) -> Duration {
    let random = sys::random().unwrap_or(0) % 100;
    let percent = u32::try_from(random).unwrap_or(0).saturating_add(150);
    time.saturating_mul(percent)
        .checked_div(200)
        .unwrap_or(time)
}
