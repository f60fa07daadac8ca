//! Waiting: one deadline, whatever is in the way, and a last attempt at it.

#[cfg(feature = "async")]
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(feature = "async")]
use std::task::Waker;
use std::time::Duration;

use lease_core::BusyReason;
use lease_procfs::Pid;

use crate::busy::Busy;
use crate::doorman::Doorman;
use crate::error::AcquireError;
use crate::fault::FaultPoint;
use crate::files;
use crate::gate::Stand;
use crate::health::Happening;
use crate::hold::{Granted, Hold, Lane, Telling};
use crate::limits::{HANDOVERS_IN_A_ROW, IMPATIENCE, PATIENCE, POLL};
use crate::lock::Shared;
use crate::options::Settings;
use crate::outlook::Outlook;
use crate::state::{Attempt, InTheWay, Manner, Request};
use crate::sys::{self, KernelLook};

#[cfg(feature = "async")]
#[path = "front.rs"]
pub(crate) mod front;

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
    /// The process that was watched by whoever was let in last.
    spent: Mutex<Option<OwnedFd>>,
    /// How many holds there were since a poll interval was left free.
    in_a_row: AtomicU32,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<u64>,
    /// Of those who wait for their turn and have no thread.
    #[cfg(feature = "async")]
    wakers: BTreeMap<u64, Waker>,
}

#[cfg(feature = "async")]
impl Queue {
    /// Takes the waker of whoever is first.
    fn next_waker(&mut self) -> Option<Waker> {
        let first = self.waiting.front()?;
        self.wakers.remove(first)
    }
}

impl Line {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    fn is_waited_in(&self) -> bool {
        !self.queue().waiting.is_empty()
    }

    /// Asked by one who stands in it.
    fn is_waited_in_by_others(&self) -> bool {
        self.queue().waiting.len() > 1
    }

    fn is_room_due(&self) -> bool {
        self.in_a_row.load(Ordering::Relaxed) >= HANDOVERS_IN_A_ROW
    }

    /// Keeps what is not needed any more, and closes what was kept before: to close the descriptor of a
    /// process is slow, and whoever was let in has better things to do.
    fn put_away(&self, process: Option<OwnedFd>) {
        if let Ok(mut spent) = self.spent.try_lock() {
            *spent = process;
        }
    }

    fn doorman(&self) -> Option<&Doorman> {
        self.doorman.get_or_init(Doorman::new).as_ref()
    }
}

/// A place in the line, left when it is dropped.
struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Place {
    fn join(shared: &Arc<Shared>) -> Self {
        let mut queue = shared.line.queue();
        let number = queue.next;
        queue.next = number.saturating_add(1);
        queue.waiting.push_back(number);
        drop(queue);
        Self {
            shared: Arc::clone(shared),
            number,
        }
    }

    fn line(&self) -> &Line {
        &self.shared.line
    }

    fn is_first(&self) -> bool {
        self.line().queue().waiting.front() == Some(&self.number)
    }

    /// Waits until everybody ahead is gone, or the time is over. Returns whether it is first.
    fn wait_turn(&self, time: Option<Duration>) -> bool {
        let is_later = |queue: &mut Queue| queue.waiting.front() != Some(&self.number);
        let queue = self.line().queue();
        let moved = &self.line().moved;
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

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.line().queue();
        let was_first = queue.waiting.front() == Some(&self.number);
        queue.waiting.retain(|number| *number != self.number);
        if was_first
            && queue.waiting.is_empty()
            && let Some(doorman) = self.line().doorman()
        {
            // Before anybody else can join, and send it out again.
            doorman.dismiss();
        }
        #[cfg(feature = "async")]
        let own = queue.wakers.remove(&self.number);
        #[cfg(feature = "async")]
        let next = queue.next_waker();
        let is_last = queue.waiting.is_empty();
        drop(queue);
        if !is_last {
            self.line().moved.notify_all();
        }
        #[cfg(feature = "async")]
        {
            next.into_iter().for_each(Waker::wake);
            // It may own things that take locks when they go.
            drop(own);
        }
    }
}

/// Why a wait outside ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Nobody tells us when it is our turn.
    Try,
    /// It is our turn.
    Passed,
    /// Something happened, or nothing for a beat. The gate is still shut.
    Look,
}

/// What the first in line waits for, outside of this process.
struct Outside {
    hears_bell: bool,
    /// The process that holds, to see its end.
    holder: Option<OwnedFd>,
    time: Duration,
    /// At the gate, and not only for the next attempt.
    is_at_gate: bool,
    watched: Option<Pid>,
}

impl Outside {
    const fn for_a_time(time: Duration) -> Self {
        Self {
            hears_bell: false,
            holder: None,
            time,
            is_at_gate: false,
            watched: None,
        }
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
    passed: Option<Stand>,
    /// How long the next look takes to come while it is.
    patience: Duration,
    /// Since then nobody held at any look, and this was the last hold.
    free_after: Option<(String, Duration)>,
    /// It has ended, and is not watched again.
    ended: Option<Pid>,
    /// It has been told that it has its place.
    #[cfg(feature = "test-util")]
    is_told: bool,
}

/// Takes the lock, waiting within the budget.
pub(crate) fn acquire(
    shared: &Arc<Shared>,
    settings: &Settings,
    lane: &Lane,
    budget: WaitBudget,
) -> Result<Hold, AcquireError> {
    shared.check_image()?;
    let mut waiter = Waiter::new(shared, settings, lane, budget);
    match waiter.first()? {
        Ok(hold) => Ok(hold),
        Err(Some(in_the_way)) if settings.is_timing_given => waiter.poll(in_the_way),
        Err(seen) => waiter.stand(seen),
    }
}

/// Whether a caller first closes the gate and leaves a poll interval free.
fn gives_room(shared: &Shared) -> bool {
    if !shared.line.is_room_due() {
        return false;
    }
    let is_due = shared.state().expects_peers();
    if !is_due {
        // It is asked once in so many holds.
        shared.line.in_a_row.store(0, Ordering::Relaxed);
    }
    is_due
}

/// What came of the first attempt: a hold, or what is in the way. Where others wait there was none, and
/// nothing was looked at.
type First = Result<Hold, Option<Box<InTheWay>>>;

impl<'a> Waiter<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        settings: &'a Settings,
        lane: &Lane,
        budget: WaitBudget,
    ) -> Self {
        Self {
            shared,
            settings,
            request: Request {
                paths: &shared.paths,
                settings,
                lane: lane.number(),
            },
            budget,
            started: settings.timing.now(),
            passed: None,
            patience: IMPATIENCE,
            free_after: None,
            ended: None,
            #[cfg(feature = "test-util")]
            is_told: false,
        }
    }

    /// Tries once, unless others wait; enters its own hold in any case. Never waits.
    fn first(&self) -> Result<First, AcquireError> {
        let (shared, request) = (self.shared, self.request);
        let has_turns = !self.settings.is_timing_given && self.budget != WaitBudget::NOW;
        // Bound first: a guard in the head of a condition would live to its end, across every wait.
        let first = if has_turns && (shared.line.is_waited_in() || gives_room(shared)) {
            let again = shared.state().enter_again(request.lane);
            again.map(|(number, granted)| Attempt::Granted(number, granted))
        } else {
            let manner = if has_turns {
                Manner::InTurn
            } else {
                Manner::Now
            };
            Some(shared.state().attempt(request, manner)?)
        };
        match first {
            Some(Attempt::Granted(number, granted)) => Ok(Ok(self.hold(number, granted))),
            Some(Attempt::Busy(mut in_the_way)) => {
                self.tell(&mut in_the_way);
                if self.is_over() {
                    return Err(self.refused(*in_the_way));
                }
                Ok(Err(Some(in_the_way)))
            }
            None => Ok(Err(None)),
        }
    }
}

impl Waiter<'_> {
    /// Tries at 0, poll, 2 poll, .. and at the deadline.
    fn poll(&mut self, in_the_way: Box<InTheWay>) -> Result<Hold, AcquireError> {
        if self.is_over() {
            return Err(self.refused(*in_the_way));
        }
        loop {
            self.settings.timing.sleep(self.until_next_poll());
            if let Ok(hold) = self.follow(Sign::Try)? {
                return Ok(hold);
            }
        }
    }

    fn until_next_poll(&self) -> Duration {
        at_most(self.settings.poll, self.left())
    }

    /// Waits in the line of this process, and as its first one for a sign from outside.
    fn stand(&mut self, mut seen: Option<Box<InTheWay>>) -> Result<Hold, AcquireError> {
        self.note(seen.as_deref());
        let place = Place::join(self.shared);
        loop {
            self.line_up(&place, &mut seen);
            let sign = if place.wait_turn(self.left()) {
                let in_the_way = seen.take().unwrap_or_else(|| self.look());
                self.wait_outside(&in_the_way)
            } else {
                Sign::Try
            };
            match self.follow(sign)? {
                Ok(hold) => return Ok(hold),
                Err(in_the_way) => seen = Some(in_the_way),
            }
        }
    }

    /// Remembers what was in the way at the first attempt.
    fn note(&mut self, seen: Option<&InTheWay>) {
        if let Some(in_the_way) = seen {
            let _noted = self.is_stuck(in_the_way);
        }
    }

    /// Before each wait for the turn: what was seen is old by the time of it, unless it has come.
    fn line_up(&mut self, place: &Place, seen: &mut Option<Box<InTheWay>>) {
        if !place.is_first() {
            *seen = None;
            self.has_place();
        }
    }

    /// Says what a sign comes to, for threads and tasks alike: the hold, or what is in the way, and has to
    /// be waited for. The end of the time is an error, after an attempt.
    fn follow(&mut self, sign: Sign) -> Result<Result<Hold, Box<InTheWay>>, AcquireError> {
        if sign == Sign::Look && !self.is_over() {
            let in_the_way = self.look();
            if !self.is_stuck(&in_the_way) {
                return Ok(Err(in_the_way));
            }
        }
        match self.try_again()? {
            Err(in_the_way) if self.is_over() => Err(self.refused(*in_the_way)),
            outcome => Ok(outcome),
        }
    }

    /// Tells whether the gate is shut although nobody holds, and will stay so.
    ///
    /// A look at a free kernel lock may fall between a release and the next grant, and whoever tried then
    /// would overtake. So it is asked who is ahead: as long as one of them will move, it is theirs.
    /// Where the kernel cannot be asked, trying is the only look.
    fn is_stuck(&mut self, in_the_way: &InTheWay) -> bool {
        match in_the_way.kernel {
            KernelLook::Unseen => return true,
            KernelLook::Held(_) => {
                self.free_after = None;
                return false;
            }
            KernelLook::Free => {}
        }
        let last = in_the_way.holder.as_ref();
        let token = last.and_then(|last| last.token.clone());
        let token = token.unwrap_or_default();
        let now = self.settings.timing.now();
        let since = match self.free_after.take() {
            Some((before, since)) if before == token => since,
            Some(_) | None => now,
        };
        self.free_after = Some((token, since));
        let free_for = now.saturating_sub(since);
        let beat = self.settings.beat;
        let doorman = self.shared.line.doorman();
        match doorman.and_then(Doorman::outlook) {
            Some(Outlook::Gone) => true,
            Some(Outlook::Doubtful) => free_for >= beat / 2,
            // If it is nobody, then our own thread is just being woken.
            Some(Outlook::Good) | None => free_for >= beat.saturating_mul(PATIENCE),
        }
    }

    /// Looks who is in the way, and tries nothing.
    fn look(&self) -> Box<InTheWay> {
        let mut in_the_way = self.shared.state().busy(self.request);
        self.tell(&mut in_the_way);
        in_the_way
    }

    /// Waits for the gate, the end of the holder, or the next beat.
    fn wait_outside(&mut self, in_the_way: &InTheWay) -> Sign {
        let outside = self.go_outside(in_the_way);
        let doorman = self.shared.line.doorman();
        let bell = doorman.filter(|_| outside.hears_bell).map(Doorman::bell);
        if !outside.time.is_zero() {
            sys::wait_any(bell, outside.holder.as_ref(), outside.time);
        }
        let (sign, room) = self.come_back(outside);
        if let Some(time) = room {
            self.settings.timing.sleep(time);
            self.after_room();
        }
        sign
    }

    /// Says what has to be waited for.
    fn go_outside(&mut self, in_the_way: &InTheWay) -> Outside {
        let poll = self.until_next_poll();
        let Some(doorman) = self.shared.line.doorman() else {
            return Outside::for_a_time(poll);
        };
        self.shared.line.put_away(None);
        if self.passed.is_some() || in_the_way.reason == BusyReason::LostRace {
            // Somebody came in beside the gate, and will not ring when leaving.
            let time = at_most(self.patience.min(POLL), Some(poll));
            self.patience = self.patience.saturating_mul(2);
            return Outside::for_a_time(time);
        }
        let watched = in_the_way.locked_by.filter(|pid| self.ended != Some(*pid));
        let holder = watched.and_then(|pid| sys::watch(pid).ok());
        let is_kernel = matches!(in_the_way.reason, BusyReason::Kernel(_));
        if !is_kernel || !doorman.go(&self.request.paths.record) {
            return Outside {
                hears_bell: true,
                holder,
                ..Outside::for_a_time(poll)
            };
        }
        self.has_place();
        // Its number was read before it was opened, and may be another one's by now.
        let is_watched = self.shared.state().kernel_look() == in_the_way.kernel;
        let time = if is_watched {
            at_most(jittered(self.settings.beat), self.left())
        } else {
            Duration::ZERO
        };
        Outside {
            hears_bell: true,
            holder,
            time,
            is_at_gate: true,
            watched,
        }
    }

    /// Sees what came of a wait outside, and how long peers are to have the lock for themselves before it
    /// is followed.
    fn come_back(&mut self, outside: Outside) -> (Sign, Option<Duration>) {
        let doorman = self.shared.line.doorman();
        let Some(doorman) = doorman.filter(|_| outside.hears_bell) else {
            return (Sign::Try, None);
        };
        self.passed = doorman.passed();
        if self.passed.is_none() {
            if !outside.is_at_gate {
                return (Sign::Try, None);
            }
            // Whoever shares its files may still have the lock.
            let has_ended = outside.holder.as_ref().is_some_and(sys::has_ended);
            self.ended = outside.watched.filter(|_| has_ended);
            return (Sign::Look, None);
        }
        self.patience = IMPATIENCE;
        // Nobody fails here; a test may be slow.
        let _slow = self.shared.state().faults.hit(FaultPoint::Passed);
        self.shared.line.put_away(outside.holder);
        (Sign::Passed, self.room())
    }

    /// Sees who came while the lock was left to peers.
    fn after_room(&self) {
        self.shared.state().look_for_peers(self.request.paths);
    }

    /// Tells, once, that nobody who comes from now on should be let in before.
    #[cfg(feature = "test-util")]
    fn has_place(&mut self) {
        if !std::mem::replace(&mut self.is_told, true)
            && let Some(told) = &self.settings.when_in_line
        {
            told.tell();
        }
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(
        clippy::needless_pass_by_ref_mut,
        clippy::unused_self,
        reason = "the shape of the other one"
    )]
    const fn has_place(&mut self) {}

    /// Says how long to wait after the gate, so that peers get in now and then, where there are any. The
    /// others of us stay behind the gate meanwhile.
    fn room(&self) -> Option<Duration> {
        if !self.shared.line.is_room_due() || !self.shared.state().expects_peers() {
            return None;
        }
        self.shared.line.in_a_row.store(0, Ordering::Relaxed);
        // A peer's poll interval, and what its timer and its attempt add.
        let poll = self.settings.poll;
        Some(at_most(poll.saturating_add(poll / 4), self.left()))
    }

    /// Tries once more, perhaps let through by the gate.
    fn try_again(&mut self) -> Result<Result<Hold, Box<InTheWay>>, AcquireError> {
        let manner = if self.passed.is_some() {
            Manner::Passed
        } else {
            Manner::Now
        };
        let mut state = self.shared.state();
        match state.attempt(self.request, manner)? {
            Attempt::Granted(number, mut granted) => {
                let spare = self
                    .passed
                    .take()
                    .and_then(|passed| state.keep_gate(passed));
                drop(state);
                if let Some(doorman) = self.shared.line.doorman() {
                    if let Some(spare) = spare {
                        doorman.keep(spare);
                    }
                    if self.shared.line.is_waited_in_by_others() {
                        // The next one of this process takes its place now, and not when it is woken.
                        doorman.go(&self.request.paths.record);
                    }
                }
                granted.contended = true;
                granted.waited = self.waited();
                Ok(Ok(self.hold(number, granted)))
            }
            Attempt::Busy(mut in_the_way) => {
                drop(state);
                let is_short = matches!(
                    in_the_way.reason,
                    BusyReason::Kernel(_) | BusyReason::LostRace
                );
                if !is_short || !self.is_current() {
                    self.give_up_gate();
                }
                self.tell(&mut in_the_way);
                Ok(Err(in_the_way))
            }
        }
    }

    /// Whether the gate that let us through is one on the record that lies there now.
    fn is_current(&self) -> bool {
        self.passed.as_ref().is_none_or(|passed| {
            let found = files::identify(&self.request.paths.record);
            found.is_ok_and(|found| found.is_some_and(|(file, _)| passed.gate().is_on(file)))
        })
    }

    /// Lets the next one through.
    fn give_up_gate(&mut self) {
        if let Some(passed) = self.passed.take() {
            passed.gate().open();
        }
    }

    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    fn hold(&self, number: u64, granted: Granted) -> Hold {
        if granted.depth == 1 {
            self.shared.line.in_a_row.fetch_add(1, Ordering::Relaxed);
        }
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
        self.give_up_gate();
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
