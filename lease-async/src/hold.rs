//! What the guards of one lease share.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use lease_core::{
    Action, At, By, Call, Change, Detail, FenceGate, Fenced, Generation, Holder, LeaseId, Moment,
    Note, Outcome, Refusal, ResourceKey, Seq, Wait,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::authority::{AuthorityError, Reply};
use crate::caught::{apart, caught, outcome};
use crate::clock::Alarm;
use crate::error::LeaseError;
use crate::ids;
use crate::incidents::Closed;
use crate::leases::{Front, Shared};
use crate::release::Seat;
use crate::rooms::Sitter;
use crate::standing::{Loss, Standing};
use crate::telemetry;

/// One lease of one session, as far as its holder knows.
pub(crate) struct Hold<H: Holder> {
    pub(crate) session: Arc<Shared<H>>,
    pub(crate) key: ResourceKey,
    /// Its room in the table.
    pub(crate) room: usize,
    pub(crate) at: At,
    /// When it was granted, or found held.
    pub(crate) since: Moment,
    pub(crate) seat: Seat,
    /// The jeopardy of this term was told.
    warned: AtomicBool,
    state: Mutex<HoldState>,
}

#[derive(Default)]
pub(crate) struct HoldState {
    /// Operations that are not known to be over, and those that shield.
    pub(crate) operations: usize,
    pub(crate) shields: usize,
    /// An operation ended with unknown effect since the grant.
    pub(crate) tainted: bool,
    pub(crate) kept: bool,
    pub(crate) lost: Option<Loss>,
    /// An attempt of which it is not known whether it was decided.
    undecided: Option<LeaseId>,
    expires: Option<Moment>,
    /// The latest change that was taken in.
    seen: Option<Seq>,
    token: Option<CancellationToken>,
    alarm: Option<Alarm>,
    renewal: Option<Alarm>,
}

/// How a lease was given up with its last guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It is lost, and nobody waits to hear that.
    Quiet,
    /// It is lost, and that is to be told outside of locks.
    Awaited,
}

impl HoldState {
    /// Is as new. There is no alarm.
    fn serve_again(&mut self) {
        // Every field is named, so that a new one is not forgotten.
        let Self {
            operations,
            shields,
            tainted,
            kept,
            lost,
            undecided,
            expires,
            seen,
            token,
            alarm: _,
            renewal: _,
        } = self;
        (*operations, *shields) = (0, 0);
        (*tainted, *kept) = (false, false);
        (*lost, *undecided) = (None, None);
        (*expires, *seen) = (None, None);
        *token = None;
    }

    /// Takes in the grant.
    #[inline]
    fn begin(&mut self, at: &At, change: &Change) {
        if change.token == Some(at.token) {
            self.learn(change);
        }
    }

    /// Takes in what a change says of the term. Answers whether it was news.
    fn learn(&mut self, change: &Change) -> bool {
        if self.seen.is_some_and(|seen| seen >= change.seq) {
            return false;
        }
        self.seen = Some(change.seq);
        let (Detail::Granted { expires, .. }
        | Detail::Touched { expires, .. }
        | Detail::Begun { expires, .. }
        | Detail::Ended { expires, .. }) = change.detail
        else {
            return false;
        };
        self.expires = expires;
        true
    }
}

impl<H: Holder> Hold<H> {
    /// Makes the hold of a lease that was just granted, with one guard.
    pub(crate) fn new(
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        room: usize,
        (at, change): (At, &Change),
    ) -> Arc<Self> {
        let mut state = HoldState::default();
        state.begin(&at, change);
        Arc::new(Self {
            session: Arc::clone(session),
            key: key.clone(),
            room,
            at,
            since: change.at,
            seat: Seat::new(),
            warned: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Whether it has an alarm, of a lease that was lost just as that rang: it is not to be dropped under a lock.
    pub(crate) fn is_armed(&mut self) -> bool {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.alarm.is_some() || state.renewal.is_some()
    }

    /// Becomes the hold of another lease. Nobody else has it, and it has no alarm. Answers the session of the last one,
    /// if that is another, to be dropped outside of locks.
    pub(crate) fn serve_again(
        &mut self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        room: usize,
        (at, change): (At, &Change),
    ) -> Option<Arc<Shared<H>>> {
        let before = (!Arc::ptr_eq(&self.session, session))
            .then(|| core::mem::replace(&mut self.session, Arc::clone(session)));
        if self.room != room {
            // It sits in the room, so as long as that is the same its resource is.
            self.room = room;
            self.key = key.clone();
        }
        self.at = at;
        self.since = change.at;
        self.seat.serve_again();
        self.warned = AtomicBool::new(false);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.serve_again();
        state.begin(&at, change);
        before
    }

    pub(crate) fn front(&self) -> &Arc<Front<H>> {
        &self.session.front
    }

    pub(crate) fn holder(&self) -> &H {
        &self.session.holder
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost.is_some()
    }

    /// The last guard has gone. Marks the lease lost, if it is to be released now.
    ///
    /// What was lost before leaves the table with the receipt of its end.
    pub(crate) fn give_up(&self) -> Option<GivenUp> {
        let mut state = self.state();
        if state.lost.is_some() || state.kept || state.tainted || state.operations > 0 {
            return None;
        }
        state.lost = Some(Loss::Released);
        let is_awaited = state.alarm.is_some() || state.renewal.is_some() || state.token.is_some();
        Some(if is_awaited {
            GivenUp::Awaited
        } else {
            GivenUp::Quiet
        })
    }

    /// What its holder knows, to be looked at or changed: from now on its last guard does not leave quietly.
    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
        let is_left = self.seat.engage();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_left {
            state.lost.get_or_insert(Loss::Released);
        }
        state
    }

    /// Takes over what was done under the same lease before.
    pub(crate) fn inherit(&self, before: &Self) {
        let (tainted, kept) = {
            let before = before.state();
            // An operation that is still in flight there may end with unknown effect.
            (before.tainted || before.operations > 0, before.kept)
        };
        let mut state = self.state();
        state.tainted = tainted;
        state.kept = kept;
    }

    /// Makes a call about this lease.
    pub(crate) fn call(&self, action: Action<H>) -> Call<H> {
        Call {
            resource: Some(self.key.clone()),
            action,
            wait: Wait::No,
        }
    }

    /// Asks the authority, and takes in what it says.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        action: Action<H>,
        note: Option<Note>,
    ) -> Result<Change, LeaseError<H>> {
        let before = self.state().undecided;
        let span = telemetry::asks(self, &action);
        let releases = matches!(action, Action::Release(_));
        let goes_on = matches!(
            action,
            Action::Touch(_) | Action::Renew { .. } | Action::Check(_)
        );
        let call = self.call(action);
        let reply = {
            let _inside = span.enter();
            self.front().authority.call_from_front(call, note)
        };
        match reply {
            // Looked at where it is: the copy of an answer is not free.
            Reply::Ready(Ok(Outcome::Granted(_, ref change) | Outcome::Done(ref change))) => {
                self.front().heard.answers();
                self.take_in_change(change, releases, before, &span);
                Ok(*change)
            }
            Reply::Ready(answer) => self.take_in(answer, releases, before, &span),
            Reply::Pending(answer) => {
                let answer = answer.instrument(span.clone()).await;
                let change = self.take_in(answer, releases, before, &span)?;
                // It may have ended since that was decided.
                match self.state().lost.filter(|_| goes_on) {
                    Some(loss) => Err(LeaseError::Lost(loss)),
                    None => Ok(change),
                }
            }
        }
    }

    /// Shows the token to a gate.
    pub(crate) fn enter(&self, gate: &mut FenceGate) -> Result<(), Fenced> {
        let entered = gate.enter(&self.at.token);
        if let Err(why) = &entered {
            telemetry::fenced(self, why);
        }
        entered
    }

    /// Takes an answer in. `before` is what was undecided when it was asked for: any answer reads that back. Who
    /// `releases` tells the table itself what became of that.
    fn take_in(
        self: &Arc<Self>,
        answer: Result<Outcome<H>, AuthorityError>,
        releases: bool,
        before: Option<LeaseId>,
        span: &Span,
    ) -> Result<Change, LeaseError<H>> {
        self.front().heard.answered(&answer);
        let error = match answer {
            Ok(Outcome::Granted(_, change) | Outcome::Done(change)) => {
                self.take_in_change(&change, releases, before, span);
                return Ok(change);
            }
            Ok(refused) => {
                let is_read_back = self.is_read_back(before);
                let error = self.understand(refused);
                self.count_on_if(is_read_back);
                error
            }
            Err(error) => {
                if let AuthorityError::Undecided { attempt } = error {
                    self.state().undecided = Some(attempt);
                }
                LeaseError::Authority(error)
            }
        };
        telemetry::refused(self, span, &error);
        Err(error)
    }

    /// Takes in what the authority did.
    fn take_in_change(
        self: &Arc<Self>,
        change: &Change,
        releases: bool,
        before: Option<LeaseId>,
        span: &Span,
    ) {
        let is_read_back = self.is_read_back(before);
        match Loss::of(change).filter(|_| releases) {
            Some(loss) => drop(self.lose(loss)),
            None => self.learn(change),
        }
        telemetry::changed(span, change);
        self.count_on_if(is_read_back);
    }

    /// What the authority says that did nothing.
    fn understand(self: &Arc<Self>, outcome: Outcome<H>) -> LeaseError<H> {
        match outcome {
            Outcome::Refused(Refusal::StaleToken { .. }) => {
                LeaseError::Lost(self.front().table.over(self, Loss::Stale))
            }
            Outcome::Refused(refusal) => LeaseError::Refused(refusal),
            Outcome::Granted(..) | Outcome::Done(_) | Outcome::Many(_) => {
                LeaseError::Authority(AuthorityError::Unsupported("one answer to one call"))
            }
        }
    }

    /// What was just sent may have ended the lease, and nobody is told. What is asked from now on reads that back.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        if state.lost.is_none() {
            state.undecided = Some(ids::lease());
        }
    }

    /// Whether an answer reads back what was undecided when it was asked for.
    fn is_read_back(&self, before: Option<LeaseId>) -> bool {
        if before.is_none() {
            return false;
        }
        let mut state = self.state();
        let is_read_back = state.undecided == before;
        if is_read_back {
            state.undecided = None;
        }
        is_read_back
    }

    /// What was undecided is read back, so the term counts again, as the answer has it.
    fn count_on_if(self: &Arc<Self>, is_read_back: bool) {
        if is_read_back {
            self.count_on(self.state());
        }
    }

    /// Takes in what a change says of this lease. An older one than the latest says nothing new.
    pub(crate) fn learn(self: &Arc<Self>, change: &Change) {
        if change.token != Some(self.at.token) {
            return;
        }
        if let Some(loss) = Loss::of(change) {
            self.front().table.over(self, loss);
            return;
        }
        let mut state = self.state();
        let before = state.expires;
        if !state.learn(change) {
            return;
        }
        self.warned.store(false, Ordering::Relaxed);
        if state.expires < before {
            self.count_on(state);
        }
    }

    /// Whether a change is later than all that was taken in.
    pub(crate) fn is_news(&self, change: &Change) -> bool {
        self.state().seen.is_none_or(|seen| seen < change.seq)
    }

    /// Marks the lease lost, unless it is already. Answers why it is lost.
    ///
    /// What the authority has ended is to be lost by the table, which remembers it.
    pub(crate) fn lose(&self, loss: Loss) -> Loss {
        let mut state = self.state();
        let news = state.lost.is_none();
        let loss = *state.lost.get_or_insert(loss);
        drop(state);
        if news {
            self.tell_loss(loss);
        }
        loss
    }

    /// Tells of a loss that is marked. It wakes whoever waits for it, so not under a lock.
    pub(crate) fn tell_loss(&self, loss: Loss) {
        let mut state = self.state();
        let alarms = (state.alarm.take(), state.renewal.take());
        let token = state.token.clone();
        drop(state);
        drop(alarms);
        telemetry::lost(self, loss);
        if let Some(watch) = self.front().watch.get() {
            watch.ended(self, Closed::Lease(loss));
        }
        if let Some(token) = token {
            // It wakes whoever waits for the loss, and what follows a loss is to follow all the same.
            apart(|| token.cancel());
        }
    }

    /// Says how the lease stands now. A loss that is noticed here is final.
    pub(crate) fn standing(&self) -> Standing {
        self.look().0
    }

    /// Says how the lease stands now, and what is undecided about it.
    fn look(&self) -> (Standing, Option<LeaseId>) {
        let now = self.front().clock.now();
        let state = self.state();
        let (standing, undecided) = (self.judge(&state, now), state.undecided);
        drop(state);
        if standing == Standing::Jeopardy && !self.warned.swap(true, Ordering::Relaxed) {
            telemetry::jeopardy(self);
        }
        match standing {
            Standing::Lost(loss) => (Standing::Lost(self.lose(loss)), undecided),
            Standing::Safe | Standing::Jeopardy => (standing, undecided),
        }
    }

    /// Whether it is lost, or its term is over. Only a use of the lease, or its end, makes that final.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        matches!(self.judge(&self.state(), now), Standing::Lost(_))
    }

    /// How it stands, without a use of it.
    pub(crate) fn peek(&self, now: Moment) -> Standing {
        self.judge(&self.state(), now)
    }

    /// The first moment at which it would be lost by its term.
    pub(crate) fn lost_at(&self) -> Option<Moment> {
        self.front().terms.lost_at(self.state().expires)
    }

    fn judge(&self, state: &HoldState, now: Moment) -> Standing {
        match state.lost {
            Some(loss) => Standing::Lost(loss),
            None if state.undecided.is_some() => Standing::Jeopardy,
            None if state.shields > 0 && self.front().shields => Standing::Safe,
            None => self.front().terms.judge(state.expires, now),
        }
    }

    /// Whether the lease is not lost, and nothing about it is undecided.
    pub(crate) fn usable(&self) -> Result<(), LeaseError<H>> {
        match self.look() {
            (Standing::Lost(loss), _) => Err(LeaseError::Lost(loss)),
            (_, Some(attempt)) => Err(LeaseError::Authority(AuthorityError::Undecided { attempt })),
            (Standing::Safe | Standing::Jeopardy, None) => Ok(()),
        }
    }

    /// Whether the lease is not lost.
    pub(crate) fn not_lost(&self) -> Result<(), LeaseError<H>> {
        match self.standing() {
            Standing::Lost(loss) => Err(LeaseError::Lost(loss)),
            Standing::Safe | Standing::Jeopardy => Ok(()),
        }
    }

    /// Whether the lease, not lost, holds for `remaining` more without a renewal.
    pub(crate) fn lasts(&self, remaining: core::time::Duration) -> bool {
        let now = self.front().clock.now();
        let state = self.state();
        let shielded = state.shields > 0 && self.front().shields;
        shielded || self.front().terms.lasts(state.expires, now, remaining)
    }

    /// Returns a token that is cancelled when the lease is lost.
    pub(crate) fn token(self: &Arc<Self>) -> CancellationToken {
        let mut state = self.state();
        if let Some(token) = &state.token {
            return token.clone();
        }
        let token = CancellationToken::new();
        state.token = Some(token.clone());
        let old = if state.lost.is_some() {
            token.cancel();
            None
        } else {
            self.arm(&mut state)
        };
        drop(state);
        drop(old);
        token
    }

    /// Sets the alarm for the moment at which the term would be over. Answers the alarm before it.
    fn arm(self: &Arc<Self>, state: &mut HoldState) -> Option<Alarm> {
        let at = self.front().terms.lost_at(state.expires);
        let bell = || Waker::from(Arc::new(Bell(Arc::downgrade(self))));
        // Where nothing can ring, the next use of the lease notices.
        let alarm = at.and_then(|at| self.front().clock.arm(at, bell()).ok());
        core::mem::replace(&mut state.alarm, alarm)
    }

    /// Rings at the end of a term: lost, or the term has moved on meanwhile.
    fn ring(self: &Arc<Self>) {
        if matches!(self.standing(), Standing::Lost(_)) {
            return;
        }
        let mut state = self.state();
        // While an operation shields, its end sets the term anew. What is undecided counts from when it is read back.
        let old = if state.shields > 0 || state.undecided.is_some() {
            state.alarm.take()
        } else {
            self.arm(&mut state)
        };
        drop(state);
        drop(old);
    }

    /// One operation is about to be ended, and may shield no more as soon as that is sent. The term starts with its end:
    /// the answer says when that was, and until then it is counted from now on.
    pub(crate) fn unshield(self: &Arc<Self>) {
        let front = self.front();
        let mut state = self.state();
        state.shields = state.shields.saturating_sub(1);
        if state.shields == 0 {
            state.expires = state
                .expires
                .max(front.terms.ended_after(|| front.clock.now()));
            self.count_on(state);
        }
    }

    /// The term counts again, or ends earlier: if somebody waits for the loss, that rings.
    fn count_on(self: &Arc<Self>, mut state: MutexGuard<'_, HoldState>) {
        if state.token.is_some() && state.lost.is_none() {
            let old = self.arm(&mut state);
            drop(state);
            drop(old);
        }
    }

    /// Renews at each third of the term, from now on and as long as there are guards.
    pub(crate) fn renew(self: &Arc<Self>) {
        let mut state = self.state();
        if state.lost.is_some() || self.seat.guards() == 0 || self.front().terms.third.is_zero() {
            return;
        }
        let at = self.front().clock.now().after(self.front().terms.third);
        let bell = Waker::from(Arc::new(Renewal(Arc::downgrade(self), at)));
        // Where nothing can ring, the lease is one that is not renewed; its holder sees the jeopardy.
        let old = core::mem::replace(&mut state.renewal, self.front().clock.arm(at, bell).ok());
        drop(state);
        drop(old);
    }

    fn renew_now(self: &Arc<Self>, due: Moment) {
        if self.not_lost().is_err() || self.seat.guards() == 0 {
            return;
        }
        let before = self.state().undecided;
        let action = match before {
            // It is read back first; the next third renews.
            Some(_) => Action::Check(By::Token(self.at)),
            None => Action::Touch(self.at),
        };
        let next = Next(Arc::clone(self));
        let span = telemetry::renew(self);
        let call = || {
            let authority = &self.front().authority;
            authority.call_from_front(self.call(action), None)
        };
        match telemetry::inside(&span, || caught(call)) {
            Some(Reply::Ready(answer)) => self.came_through(&span, due, (answer, before)),
            None => self.came_through(&span, due, (Err(broke_off()), before)),
            Some(Reply::Pending(answer)) => spawn(async move {
                let answer = outcome(answer.instrument(span.clone())).await;
                let answer = answer.unwrap_or_else(|| Err(broke_off()));
                next.0.came_through(&span, due, (answer, before));
            }),
        }
    }

    /// A refusal marks the loss.
    fn came_through(
        self: &Arc<Self>,
        span: &Span,
        due: Moment,
        (answer, before): (Result<Outcome<H>, AuthorityError>, Option<LeaseId>),
    ) {
        let ended = telemetry::inside(span, || self.take_in(answer, false, before, span));
        telemetry::lagged(self, due, &ended);
    }
}

impl<H: Holder> Sitter for Arc<Hold<H>> {
    fn room(&self) -> usize {
        self.room
    }

    fn row(&self) -> usize {
        self.session.row
    }

    fn generation(&self) -> Generation {
        self.at.token.generation
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

/// A renewal on its way. However it ends, also where it breaks off, the next third comes.
struct Next<H: Holder>(Arc<Hold<H>>);

impl<H: Holder> Drop for Next<H> {
    fn drop(&mut self) {
        self.0.renew();
    }
}

/// What a renewal is answered that panicked. Whether it was decided does not matter: the next one says.
fn broke_off() -> AuthorityError {
    AuthorityError::Unreachable("the authority panicked".into())
}

/// Runs what is left of a renewal away from the caller's executors.
#[cfg(target_os = "linux")]
fn spawn(renewal: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = crate::keeper::runtime() {
        drop(runtime.spawn(renewal));
    }
}

#[cfg(not(target_os = "linux"))]
fn spawn(renewal: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(renewal));
    }
}

struct Bell<H: Holder>(Weak<Hold<H>>);

impl<H: Holder> Wake for Bell<H> {
    fn wake(self: Arc<Self>) {
        if let Some(hold) = self.0.upgrade() {
            hold.ring();
        }
    }
}

struct Renewal<H: Holder>(Weak<Hold<H>>, Moment);

impl<H: Holder> Wake for Renewal<H> {
    fn wake(self: Arc<Self>) {
        if let Some(hold) = self.0.upgrade() {
            hold.renew_now(self.1);
        }
    }
}
