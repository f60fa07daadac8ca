//! The authority in memory: the core's registry behind one mutex.
//!
//! A call locks, decides, and unlocks; it holds nothing while a holder is observed, while it waits, and while
//! somebody listens. The steps are those of `docs/decisions/0003-async.md`.

mod places;
mod state;
mod waiting;
mod watching;

use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use lease_core::{
    Action, Answer, At, AuthorityId, Call, Capabilities, Evidence, Holder, HolderLiveness, LeaseId,
    LeasePolicy, LeaseView, Locality, Moment, Note, Order, Outcome, PolicyError, Question,
    Receipts, Registry, Request, ResourceKey, Seen, SessionHolder, Step, Turn, Verdict,
};
use tokio::sync::Notify;
use tracing::Instrument as _;

use self::state::{Stage, State};
use self::waiting::Waiting;
use self::watching::Watches;
use crate::authority::{Authority, AuthorityError, BoxError, BoxFuture, Reply, ShutdownReport};
use crate::caught::{apart, outcome};
use crate::clock::{AlarmClock, Sleep, SystemClock};
use crate::events::{EventSource, Events};
use crate::ids;
use crate::leases::no_margin;
use crate::liveness::{AsyncHolderLiveness, Blocking, DeathSource};
use crate::relayed::relayed;
use crate::telemetry::{self, Cause};

/// What telemetry calls it.
const BACKEND: &str = "memory";

/// How often one call observes holders anew before it gives up.
const ROUNDS: usize = 32;

/// How often holders that cannot be watched are observed while others wait for them.
const BEAT: Duration = Duration::from_secs(1);

/// The idle term, unless another is set.
const TERM: Duration = Duration::from_secs(30);

/// How many receipts are kept for the slowest listener.
const RECEIPTS: usize = 1_024;

/// How many receipts are kept between a call and their publication.
const UNPUBLISHED: usize = 1 << 16;

/// An authority in the memory of this process. A clone is the same authority.
///
/// It is as new as the process: its random id is part of every token, so no token of an earlier one matches.
/// Waiters are served first come, first served among overlapping requests.
#[derive(Clone)]
pub struct Memory<H: Holder = SessionHolder> {
    inner: Arc<Inner<H>>,
}

/// Makes a [`Memory`] out of its parts.
#[must_use = "a builder does nothing until `build`"]
pub struct MemoryBuilder<H: Holder> {
    clock: Arc<dyn AlarmClock>,
    liveness: Option<Arc<dyn AsyncHolderLiveness<H>>>,
    deaths: Option<Box<dyn DeathSource<H>>>,
    beat: Duration,
    receipts: usize,
}

pub(crate) struct Inner<H: Holder> {
    id: AuthorityId,
    clock: Arc<dyn AlarmClock>,
    liveness: Option<Arc<dyn AsyncHolderLiveness<H>>>,
    deaths: Option<Box<dyn DeathSource<H>>>,
    beat: Duration,
    watches: Mutex<Watches>,
    state: Mutex<State<H>>,
    source: EventSource<H>,
    /// Held by the thread that publishes.
    publishing: Mutex<()>,
    /// Something happened that nobody took to publish it.
    unpublished: AtomicBool,
    /// Somebody has asked for all receipts, not only for losses.
    heard: AtomicBool,
    /// Told when nothing is held any more.
    drained: Notify,
}

/// How a call is made.
#[derive(Clone, Default)]
struct How<'a> {
    answers: &'a [Answer],
    note: Option<Note>,
    /// Who calls knows by the answer what it did, so only losses are told if nobody listens.
    spares: bool,
    /// A guard was dropped: the latest moment will do, where nobody waits and nobody is told. What is done depends on
    /// no time.
    timeless: bool,
}

impl<'a> How<'a> {
    fn with(answers: &'a [Answer]) -> Self {
        Self::default().and(answers)
    }

    fn from_front(note: Option<Note>) -> Self {
        let spares = true;
        Self {
            note,
            spares,
            ..Self::default()
        }
    }

    fn and(self, answers: &[Answer]) -> How<'_> {
        How { answers, ..self }
    }
}

/// Receipts on their way, and the right to be the one who publishes.
struct Publication<'a, H> {
    receipts: Receipts<H>,
    turn: MutexGuard<'a, ()>,
}

/// How far one attempt at a call came.
enum Attempt<H: Holder> {
    Answered(Result<Outcome<H>, AuthorityError>),
    Ask(Vec<Question<H>>),
    Waits(Waiting<H>),
}

impl<H: Holder> Memory<H> {
    /// Makes an empty authority on the clock of this machine, which observes nobody.
    ///
    /// # Errors
    ///
    /// [`AuthorityError::Unreachable`] if this system has no randomness.
    pub fn new() -> Result<Self, AuthorityError> {
        Self::builder().build()
    }

    /// Makes an authority out of its parts.
    pub fn builder() -> MemoryBuilder<H> {
        MemoryBuilder {
            clock: Arc::new(SystemClock::new()),
            liveness: None,
            deaths: None,
            beat: BEAT,
            receipts: RECEIPTS,
        }
    }

    /// Lists what is held, in order of resources, after a sweep. The list is a copy.
    #[must_use]
    pub fn list(&self) -> Vec<LeaseView<H>> {
        self.inner
            .turn(How::default(), |state, turn| state.registry.list(turn))
    }

    /// Returns how many leases are held, those whose term is over and unnoticed too.
    #[must_use]
    pub fn held(&self) -> usize {
        self.inner.state().registry.held()
    }

    /// Returns how many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.state().registry.waiting()
    }

    /// Returns how many places for keys and for waiters are in use. An authority at rest has none.
    #[must_use]
    pub fn footprint(&self) -> (usize, usize) {
        let state = self.inner.state();
        let (places, _timers) = state.registry.footprint();
        (places, state.waiters())
    }

    /// Takes in what was observed of holders: waiters behind one that is proven dead are served.
    pub fn observed(&self, answers: &[Answer]) {
        self.inner.turn(How::with(answers), |state, turn| {
            drop(state.registry.advance(turn));
        });
    }
}

impl<H: Holder> Memory<H> {
    fn answer(&self, call: Call<H>, how: How<'static>) -> Reply<H> {
        match self.inner.attempt(&call, how.clone()) {
            Attempt::Answered(answer) => Reply::Ready(answer),
            Attempt::Waits(waiting) => Reply::Pending(Box::pin(waiting)),
            Attempt::Ask(questions) => {
                let inner = Arc::clone(&self.inner);
                Reply::Pending(Box::pin(inner.observing(call, questions, how)))
            }
        }
    }

    fn detached(&self, call: &Call<H>, how: How<'_>) {
        if let Action::End { .. } | Action::Release(_) | Action::Disconnect(_) = call.action {
            // These neither ask nor wait. Who sent them is gone, and a refusal says that the lease is, too.
            drop(self.inner.attempt(call, how));
        }
    }
}

impl<H: Holder> MemoryBuilder<H> {
    /// Sets the clock.
    pub fn clock(mut self, clock: impl AlarmClock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets who observes holders, on blocking threads, where the policy asks for proof.
    pub fn liveness(self, liveness: impl HolderLiveness<H> + Send + Sync + 'static) -> Self {
        self.async_liveness(Blocking::new(liveness))
    }

    /// Sets who observes holders where the policy asks for proof.
    pub fn async_liveness(mut self, liveness: impl AsyncHolderLiveness<H>) -> Self {
        self.liveness = Some(Arc::new(liveness));
        self
    }

    /// Sets who tells that a holder has died, so that those who wait for it are served at once.
    ///
    /// What it tells is observed by the liveness, which must be set too.
    pub fn deaths(mut self, deaths: impl DeathSource<H>) -> Self {
        self.deaths = Some(Box::new(deaths));
        self
    }

    /// Observes holders that cannot be watched every `beat` while others wait for them; a second, if not set.
    pub const fn observe_every(mut self, beat: Duration) -> Self {
        self.beat = beat;
        self
    }

    /// Keeps up to `most` receipts for the slowest listener.
    pub const fn receipts(mut self, most: usize) -> Self {
        self.receipts = most;
        self
    }

    /// Makes the authority.
    ///
    /// # Errors
    ///
    /// [`AuthorityError::Unreachable`] if this system has no randomness.
    pub fn build(self) -> Result<Memory<H>, AuthorityError> {
        let id = ids::authority()?;
        let state = State::new(registry(id, default_policy()));
        Ok(Memory {
            inner: Arc::new(Inner {
                id,
                clock: self.clock,
                liveness: self.liveness,
                deaths: self.deaths,
                beat: self.beat,
                watches: Mutex::default(),
                state: Mutex::new(state),
                source: EventSource::new(self.receipts),
                publishing: Mutex::default(),
                unpublished: AtomicBool::new(false),
                heard: AtomicBool::new(false),
                drained: Notify::new(),
            }),
        })
    }
}

fn registry<H: Holder>(id: AuthorityId, policy: LeasePolicy) -> Registry<H> {
    Registry::new(id, policy).with_receipts(UNPUBLISHED)
}

/// What is seen of a holder by somebody who panics.
const fn unseen() -> Verdict {
    Verdict::Unknown(Evidence::new("observer_ended"))
}

fn default_policy() -> LeasePolicy {
    // The term is neither zero nor absurd; if it were, the process-bound terms lose nobody's lease.
    LeasePolicy::session_ttl(TERM).unwrap_or_else(|_impossible| LeasePolicy::process_bound())
}

impl<H: Holder> Inner<H> {
    fn state(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the state at the present moment, and everything that follows from it.
    fn turn<T>(
        self: &Arc<Self>,
        mut how: How<'_>,
        act: impl FnOnce(&mut State<H>, &mut Turn<'_>) -> T,
    ) -> T {
        let mut state = self.state();
        let mut draw = ids::lease;
        let mut turn = self.begin(&mut state, &mut how, &mut draw);
        let result = act(&mut state, &mut turn);
        self.end(state, &mut turn, how.timeless);
        result
    }

    /// Looks at the clock, before anything is done to the state.
    #[inline(always)]
    fn begin<'a, 'b: 'a>(
        &self,
        state: &mut State<H>,
        how: &mut How<'b>,
        draw: &'a mut dyn FnMut() -> LeaseId,
    ) -> Turn<'a> {
        let spares = how.spares && !self.heard.load(Ordering::SeqCst);
        state.registry.keep_losses_only(spares);
        let now = if spares && how.timeless && state.registry.waiting() == 0 {
            state.registry.latest()
        } else {
            // Under the lock, or two threads would seem to step the clock back.
            self.clock.now()
        };
        let seen = Seen {
            now,
            // For people, of whom none looks.
            wall_ms: if spares { None } else { self.clock.wall_ms() },
            answers: how.answers,
        };
        let mut turn = Turn::new(seen, draw);
        if how.note.is_some() {
            turn.note = how.note.take();
        }
        turn
    }

    /// Does what follows from what was done, and unlocks.
    #[inline(always)]
    fn end(
        self: &Arc<Self>,
        state: MutexGuard<'_, State<H>>,
        turn: &mut Turn<'_>,
        passes_on: bool,
    ) {
        if !state.is_at_rest() || state.registry.has_receipts() {
            self.part(state, turn, passes_on);
        }
    }

    /// Does what follows from whatever was done, and unlocks.
    #[inline(never)]
    fn part(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<H>>,
        turn: &mut Turn<'_>,
        passes_on: bool,
    ) {
        turn.note = None;
        let mut parting = state.part(self, turn, passes_on);
        let mine = if state.registry.has_receipts() {
            self.unpublished.store(true, Ordering::SeqCst);
            self.take_receipts(&mut state)
        } else {
            None
        };
        drop(state);
        if parting.look {
            self.look();
        }
        // First, so that who has lost a lease knows before its successor runs. Told in the span of that one.
        if let Some(mine) = mine {
            let cause = parting.rest.as_ref().and_then(|rest| rest.served.first());
            match cause {
                Some(cause) => cause.inside(|| self.publish(mine)),
                None => self.publish(mine),
            }
        }
        if let Some(rest) = &mut parting.rest {
            rest.served.clear();
        }
        parting.wakers.wake();
        if parting.drained {
            apart(|| self.drained.notify_waiters());
        }
        // Last: with a waker anything may go.
        if let Some(alarm) = parting.alarm {
            apart(|| drop(alarm));
        }
        if let Some(rest) = parting.rest {
            rest.go();
        }
    }

    /// Takes what is to be published, unless another thread publishes: that one looks again after it is done.
    fn take_receipts(&self, state: &mut State<H>) -> Option<Publication<'_, H>> {
        let turn = match self.publishing.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.unpublished.store(false, Ordering::SeqCst);
        let receipts = state.registry.take_receipts();
        Some(Publication { receipts, turn })
    }

    /// Publishes what happened, in order: one thread at a time does it for all.
    fn publish<'a>(&'a self, mine: Publication<'a, H>) {
        let mut next = Some(mine);
        while let Some(Publication { receipts, turn }) = next {
            self.source.publish(receipts);
            drop(turn);
            // Whoever found this thread publishing has said so before.
            if !self.unpublished.load(Ordering::SeqCst) {
                return;
            }
            next = self.take_receipts(&mut self.state());
        }
    }

    fn attempt(self: &Arc<Self>, call: &Call<H>, how: How<'_>) -> Attempt<H> {
        let resource = call.resource.as_ref();
        let mut cause = Cause::of(call.wait);
        self.turn(how, |state, turn| {
            if state.stage == Stage::Shut && matches!(call.action, Action::Acquire { .. }) {
                return Attempt::Answered(Err(AuthorityError::ShutDown));
            }
            match state.registry.call(call, turn) {
                Step::Done(outcome) => {
                    state.answered(&outcome);
                    Attempt::Answered(Ok(outcome))
                }
                Step::Ask(questions) => Attempt::Ask(questions),
                Step::Queued(waiter) => match state.queued(self, waiter, (resource, &mut cause)) {
                    Ok(()) => Attempt::Waits(Waiting::new(Arc::clone(self), waiter)),
                    Err(error) => {
                        state.turn_away(waiter, turn);
                        Attempt::Answered(Err(error))
                    }
                },
            }
        })
    }

    /// Observes the holders that stand in the way of `call`, and makes it again.
    async fn observing(
        self: Arc<Self>,
        call: Call<H>,
        mut questions: Vec<Question<H>>,
        how: How<'static>,
    ) -> Result<Outcome<H>, AuthorityError> {
        let mut answers = Vec::new();
        for _round in 0..ROUNDS {
            for question in &questions {
                let verdict = self.observe(question).await;
                answers.push(question.answer(verdict));
            }
            match self.attempt(&call, how.clone().and(&answers)) {
                Attempt::Answered(answer) => return answer,
                Attempt::Waits(waiting) => return waiting.await,
                Attempt::Ask(others) => questions = others,
            }
        }
        let why = BoxError::from("holders change faster than they are observed");
        Err(AuthorityError::Unreachable(why))
    }

    async fn observe(&self, question: &Question<H>) -> Verdict {
        match &self.liveness {
            Some(liveness) => {
                let span = telemetry::verify(BACKEND, question);
                let look = async { liveness.observe(question).await };
                // One that panics has seen nothing, and others are looked at all the same.
                let verdict = outcome(look.instrument(span.clone()))
                    .await
                    .unwrap_or_else(unseen);
                telemetry::verified(&span, &verdict);
                self.source.judged(&verdict);
                verdict
            }
            None => Verdict::Unknown(Evidence::new("no_observer")),
        }
    }

    async fn drain(self: Arc<Self>, until: Moment, turned_away: usize) -> ShutdownReport {
        let mut is_over = false;
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            // Nobody is granted anything any more, so nobody else notices the end of a term.
            let (held, next) = self.turn(How::default(), |state, turn| {
                let next = sweep(&mut state.registry, turn);
                (state.registry.held(), next)
            });
            if held == 0 || is_over {
                return ShutdownReport::new(held, turned_away);
            }
            let next = next.map_or(until, |next| next.min(until));
            let mut rung = pin!(Sleep::new(&*self.clock, next));
            let rings = poll_fn(|cx| match drained.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => rung.as_mut().poll(cx),
            });
            is_over = rings.await.is_err() || self.clock.now() >= until;
        }
    }
}

/// Ends what is over by its term. Answers when more may be.
fn sweep<H: Holder>(registry: &mut Registry<H>, turn: &mut Turn<'_>) -> Option<Moment> {
    loop {
        let before = registry.next_deadline();
        let swept = registry.advance(turn);
        let next = registry.next_deadline()?;
        if next > registry.latest() {
            return Some(next);
        }
        if swept.is_empty() && before == Some(next) {
            // It ends nothing any more.
            return None;
        }
    }
}

impl<H: Holder> Authority for Memory<H> {
    type Holder = H;

    fn id(&self) -> AuthorityId {
        self.inner.id
    }

    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable: false,
            shields: true,
            sweeps_all: true,
            order: Order::Fifo,
            locality: Locality::ThisMachine,
            self_stop_margin: no_margin,
        }
    }

    fn default_policy(&self) -> LeasePolicy {
        default_policy()
    }

    fn set_policy(&self, policy: LeasePolicy) -> Result<(), PolicyError> {
        policy.fits(&self.capabilities())?;
        let mut state = self.inner.state();
        if state.stage != Stage::New {
            return Err(PolicyError::AlreadySet);
        }
        state.stage = Stage::Open;
        // Nothing has happened yet, so a new registry is the same authority.
        state.registry = registry(self.inner.id, policy);
        Ok(())
    }

    fn call(&self, call: Call<H>) -> Reply<H> {
        self.answer(call, How::default())
    }

    fn call_from_front(&self, call: Call<H>, note: Option<Note>) -> Reply<H> {
        self.answer(call, How::from_front(note))
    }

    fn call_detached(&self, call: Call<H>) {
        self.detached(&call, How::default());
    }

    fn call_detached_from_front(&self, call: Call<H>, note: Option<Note>) {
        let mut how = How::from_front(note);
        // Of nothing else it knows without the answer what it did.
        how.spares = matches!(call.action, Action::Release(_));
        self.detached(&call, how);
    }

    fn request_from_front(
        &self,
        resource: &ResourceKey,
        request: Request<'_, H>,
        note: Option<&Note>,
    ) -> Reply<H> {
        let inner = &self.inner;
        let mut cause = Cause::of(request.wait);
        let mut state = inner.state();
        if state.stage == Stage::Shut {
            return Reply::Ready(Err(AuthorityError::ShutDown));
        }
        let Request { holder, ttl, wait } = request;
        let mut draw = ids::lease;
        let mut how = How::from_front(note.cloned());
        let mut turn = inner.begin(&mut state, &mut how, &mut draw);
        let step = state.registry.acquire(resource, request, &mut turn);
        let (mut waiting, mut failed) = (None, None);
        match &step {
            Step::Done(outcome) => state.answered(outcome),
            Step::Ask(_) => {}
            Step::Queued(waiter) => {
                match state.queued(inner, *waiter, (Some(resource), &mut cause)) {
                    // Here, so that it is taken back if anything panics.
                    Ok(()) => waiting = Some(Waiting::new(Arc::clone(inner), *waiter)),
                    Err(error) => {
                        state.turn_away(*waiter, &mut turn);
                        failed = Some(error);
                    }
                }
            }
        }
        inner.end(state, &mut turn, false);
        if let Some(error) = failed {
            return Reply::Ready(Err(error));
        }
        // The answer is copied once, and when the lock is free: a processor waits where it reads at once, in other
        // pieces, what it has just written.
        match step {
            Step::Done(outcome) => Reply::Ready(Ok(outcome)),
            Step::Ask(questions) => {
                let action = Action::Acquire {
                    holder: holder.clone(),
                    ttl,
                };
                let call = Call {
                    resource: Some(resource.clone()),
                    action,
                    wait,
                };
                let how = How::from_front(note.cloned());
                let again = Arc::clone(inner).observing(call, questions, how);
                Reply::Pending(Box::pin(again))
            }
            Step::Queued(waiter) => {
                let new = || Waiting::new(Arc::clone(inner), waiter);
                Reply::Pending(Box::pin(waiting.unwrap_or_else(new)))
            }
        }
    }

    fn release_from_front(&self, resource: &ResourceKey, at: At) {
        let mut how = How::from_front(None);
        how.timeless = true;
        self.inner.turn(how, |state, turn| {
            // A refusal says that the lease is gone already.
            drop(state.registry.release(resource, at, turn));
        });
    }

    fn losses(&self) -> Events<H> {
        self.inner.source.events()
    }

    fn events(&self) -> Events<H> {
        self.inner.heard.store(true, Ordering::SeqCst);
        self.inner.source.events()
    }

    fn shutdown(&self, within: Duration) -> BoxFuture<ShutdownReport> {
        let turned_away = self.inner.turn(How::default(), State::shut_down);
        let until = self.inner.clock.now().after(within);
        Box::pin(relayed(Arc::clone(&self.inner).drain(until, turned_away)))
    }

    fn clock(&self) -> Arc<dyn AlarmClock> {
        Arc::clone(&self.inner.clock)
    }
}

impl<H: Holder> fmt::Debug for Memory<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}

impl<H: Holder> fmt::Debug for MemoryBuilder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBuilder")
            .field("clock", &self.clock)
            .field("receipts", &self.receipts)
            .finish_non_exhaustive()
    }
}
