//! The memory driver: cells, counters, queue and receipts of one authority, as plain data.

mod ahead;
mod bearer;
mod expiry;
mod handover;
mod line;
mod listing;
mod log;
mod node;
mod owners;
mod queue;
mod request;
mod requests;
mod settled;
mod store;

use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::time::Duration;

use hashbrown::DefaultHashBuilder;

use self::ahead::Ahead;
use self::handover::Cause;
use self::log::Log;
use self::queue::Queue;
use self::settled::Answers;
use self::store::Store;
use crate::action::{Action, Call, Scene, Seen, Wait, WaiterId};
use crate::cell::{Cell, Disposition, Lease, Provenance};
use crate::change::{Change, Detail};
use crate::code::Code;
use crate::decision::{Decision, decide, shown};
use crate::holder::Holder;
use crate::id::{AuthorityId, FencingToken, Generation, LeaseId, OpId, Seq};
use crate::key::ResourceKey;
use crate::liveness::{Locality, Question};
use crate::outcome::Outcome;
use crate::plan::{Fresh, Grant, Plan};
use crate::policy::LeasePolicy;
use crate::receipt::{Note, Receipt};
use crate::refusal::{Counter, Refusal};
use crate::time::Moment;

pub use self::bearer::{Finish, Start};
pub use self::listing::LeaseView;
pub use self::log::Receipts;
pub use self::request::Request;

/// An authority in memory: everything it knows is in this value, and it is gone with it.
///
/// It decides nothing itself. A call fetches the scene, asks [`decide`], commits, and hands what
/// became free to whoever waits. Three kinds of methods:
///
/// - *calls* take the present moment and may change state: [`call`](Self::call), and the same with its parts in
///   hand, [`acquire`](Self::acquire), [`begin`](Self::begin), [`end`](Self::end), [`touch`](Self::touch),
///   [`check`](Self::check) and [`release`](Self::release); [`list`](Self::list), [`advance`](Self::advance),
///   [`cancel`](Self::cancel), [`abandon`](Self::abandon);
/// - *outputs* are taken after a call: [`take_settled`](Self::take_settled) for waiters,
///   [`take_receipts`](Self::take_receipts), and [`next_deadline`](Self::next_deadline), at which a
///   driver with waiters should call [`advance`](Self::advance);
/// - *getters* change nothing: [`peek`](Self::peek), [`questions`](Self::questions) and the rest.
///
/// It owns no timer, no clock and no randomness, and needs none: an expired lease is noticed by the
/// next call. A moment earlier than the latest seen counts as the latest, with a receipt
/// `CLOCK_STEPPED_BACK`. A call that is answered with [`Step::Ask`] changed nothing but what the sweep
/// before it ended; the driver observes the holders, outside any lock, and calls again.
///
/// One `Mutex` around it is its shared form.
///
/// # Examples
///
/// ```
/// # use core::time::Duration;
/// # use lease_core::{Action, AuthorityId, By, Call, LeaseId, LeasePolicy, Moment, Outcome, Registry,
/// #     ResourceKey, Seen, SessionHolder, Step, Turn, Wait};
/// let policy = LeasePolicy::session_ttl(Duration::from_secs(30))?;
/// let mut registry = Registry::<SessionHolder>::new(AuthorityId::from_random([7; 16]), policy);
/// let mut random = 0;
/// let mut lease_id = || { random += 1; LeaseId::from_random([random; 16]) };
///
/// let acquire = |agent| Ok::<_, Box<dyn std::error::Error>>(Call {
///     resource: Some(ResourceKey::new("app/viewport")?),
///     action: Action::Acquire { holder: SessionHolder::new(agent, "s-1")?, ttl: None },
///     wait: Wait::No,
/// });
/// let mut turn = Turn::new(Seen::at(Moment::from_millis(0)), &mut lease_id);
/// let first = registry.call(&acquire("ag-1")?, &mut turn);
/// assert!(matches!(first, Step::Done(Outcome::Granted(..))));
/// let second = registry.call(&acquire("ag-2")?, &mut turn);
/// assert!(matches!(second, Step::Done(Outcome::Refused(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Registry<H, S = DefaultHashBuilder> {
    authority: AuthorityId,
    policy: LeasePolicy,
    store: Store<H, S>,
    queue: Queue<H>,
    settled: Answers<H>,
    /// Room for the causes of a hand-over; empty between calls.
    causes: Vec<Cause<H>>,
    log: Log<H>,
    /// `None` once every generation was given.
    next_generation: Option<Generation>,
    last_major: u64,
    latest: Moment,
    behind: bool,
}

/// What one call brings along.
#[expect(missing_debug_implementations, reason = "holds a closure")]
#[non_exhaustive]
pub struct Turn<'a> {
    /// The present moment, and what was observed.
    pub seen: Seen<'a>,
    /// Draws a random lease id, once for each new lease.
    pub lease_id: &'a mut dyn FnMut() -> LeaseId,
    /// What people say about this call: the kind of an operation and why it failed, for example. It
    /// goes into the receipts of the action itself and decides nothing.
    pub note: Option<Note>,
}

impl<'a> Turn<'a> {
    /// Brings the time, what was observed, and the source of random lease ids.
    pub fn new(seen: Seen<'a>, lease_id: &'a mut dyn FnMut() -> LeaseId) -> Self {
        Self {
            seen,
            lease_id,
            note: None,
        }
    }

    /// Adds what people say about this call.
    #[must_use]
    pub fn with_note(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }
}

/// How far a call came.
#[derive(Debug)]
#[must_use = "a granted outcome holds the only grant of its lease"]
#[expect(
    clippy::exhaustive_enums,
    reason = "every driver must handle every answer"
)]
pub enum Step<H: Holder> {
    /// It is answered.
    Done(Outcome<H>),
    /// It must be known first whether these holders are there; observe, and call again.
    Ask(Vec<Question<H>>),
    /// It waits; the answer comes by [`Registry::take_settled`].
    Queued(WaiterId),
}

/// The answer to a request that waited.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a settled grant that nobody takes must be abandoned"]
#[non_exhaustive]
pub struct Settled<H> {
    /// Which request.
    pub waiter: WaiterId,
    /// For which resource.
    pub resource: ResourceKey,
    /// The grant, or why there is none.
    pub outcome: Result<(Grant, Change), Refusal<H>>,
}

impl<H: Clone> Clone for Settled<H> {
    /// Copies the state of a whole registry, the grant included, for model checking and forks. The two
    /// registries are two worlds; their grants do not meet.
    fn clone(&self) -> Self {
        let outcome = match &self.outcome {
            Ok((grant, change)) => Ok((
                Grant {
                    at: grant.at,
                    provenance: grant.provenance,
                },
                *change,
            )),
            Err(refusal) => Err(refusal.clone()),
        };
        Self {
            waiter: self.waiter,
            resource: self.resource.clone(),
            outcome,
        }
    }
}

impl<H: Holder> Registry<H> {
    /// Makes an empty authority with a new random id.
    ///
    /// It keeps no receipts; see [`with_receipts`](Self::with_receipts).
    #[must_use]
    pub fn new(authority: AuthorityId, policy: LeasePolicy) -> Self {
        Self::with_hasher(authority, policy, DefaultHashBuilder::default())
    }
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Makes an empty authority that finds resources with `hasher`, which should be randomly keyed
    /// where callers choose the names.
    #[must_use]
    pub fn with_hasher(authority: AuthorityId, policy: LeasePolicy, hasher: S) -> Self {
        Self {
            authority,
            policy,
            store: Store::new(hasher),
            queue: Queue::new(),
            settled: Answers::new(),
            causes: Vec::new(),
            log: Log::new(0),
            next_generation: Some(Generation::FIRST),
            last_major: 0,
            latest: Moment::ZERO,
            behind: false,
        }
    }

    /// Keeps up to `most` receipts until they are taken; of more, the oldest fall out and are counted.
    #[must_use]
    pub fn with_receipts(mut self, most: usize) -> Self {
        self.log = Log::new(most);
        self
    }

    /// Returns which authority this is.
    #[must_use]
    pub const fn authority(&self) -> AuthorityId {
        self.authority
    }

    /// Returns the terms of new leases.
    #[must_use]
    pub const fn policy(&self) -> &LeasePolicy {
        &self.policy
    }

    /// Returns how many resources are held; those whose term is over and unnoticed count.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.store.held()
    }

    /// Returns how many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of the latest commit.
    #[must_use]
    pub const fn last_major(&self) -> u64 {
        self.last_major
    }

    /// Returns the latest moment seen; an earlier reading counts as this one.
    #[must_use]
    pub const fn latest(&self) -> Moment {
        self.latest
    }

    /// Makes every later generation larger than `floor`.
    ///
    /// The remedy where a resource has seen larger ones than this authority gave. It never lowers.
    pub fn raise_floor(&mut self, floor: Generation) {
        self.next_generation = match self.next_generation {
            Some(next) if next > floor => Some(next),
            Some(_) => floor.next(),
            None => None,
        };
    }

    /// Takes the next request that was answered after waiting.
    pub fn take_settled(&mut self) -> Option<Settled<H>> {
        self.settled.take_first()
    }

    /// Keeps receipts, from now on, only of leases that end or go to another holder otherwise than by the
    /// release of their bearer; or of everything again.
    ///
    /// For a driver that knows by the answers what its callers did, while nobody else listens.
    pub const fn keep_losses_only(&mut self, only: bool) {
        self.log.keep_losses_only(only);
    }

    /// Returns whether receipts are kept that nobody has taken yet.
    #[must_use]
    pub fn has_receipts(&self) -> bool {
        !self.log.is_empty()
    }

    /// Takes the receipts kept since the last take, in order.
    pub fn take_receipts(&mut self) -> Receipts<H> {
        self.log.take()
    }

    /// Returns the earliest moment at which something may be due: a term or a waiter's deadline.
    ///
    /// Early is possible, since a touch does not move a timer; late is not.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let expiry = self.store.expiry().earliest();
        let over = expiry.map(|last| last.after(Duration::from_nanos(1)));
        match (over, self.queue.first_deadline()) {
            (Some(over), Some(deadline)) => Some(over.min(deadline)),
            (over, deadline) => over.or(deadline),
        }
    }

    /// Answers one call.
    ///
    /// In order: time is observed, expired leases are swept (at most 64), waiters get what became
    /// free or leave at their deadline, and then the action is decided. A refused call changes none of
    /// the leases.
    pub fn call(&mut self, call: &Call<H>, turn: &mut Turn<'_>) -> Step<H> {
        if self.last_major >= MAJOR_MAX {
            return refused(Refusal::Exhausted {
                counter: Counter::Seq,
            });
        }
        turn.seen.now = self.observe(&turn.seen);
        match (&call.resource, &call.action) {
            (None, Action::Sweep) => Step::Done(Outcome::Many(self.inspect(turn))),
            (None, Action::Disconnect(holder)) => {
                Step::Done(Outcome::Many(self.disconnect(holder, turn)))
            }
            (None, _) | (Some(_), Action::Sweep | Action::Disconnect(_)) => {
                refused(Refusal::Misaddressed)
            }
            (Some(key), action) => {
                if self.anything_due(&turn.seen) {
                    self.settle_due(action, turn);
                } else if let Some(seat) = self.seat(key, action) {
                    return self.in_place(key, seat, action, turn);
                }
                self.at_resource(key, action, call.wait, turn)
            }
        }
    }

    /// Whether time or an answer may have changed anything: a term, a wait, or who is dead.
    fn anything_due(&self, seen: &Seen<'_>) -> bool {
        let answered = !seen.answers.is_empty() && !self.queue.is_empty();
        let wait = self.queue.first_deadline();
        answered || self.store.expiry().due(seen.now) || wait.is_some_and(|at| seen.now >= at)
    }

    /// Whether a call must do more than what it asks for: the clock went back, something is due, or the
    /// numbers are used up.
    #[inline]
    fn is_pressing(&self, turn: &Turn<'_>) -> bool {
        turn.seen.now < self.latest || self.last_major >= MAJOR_MAX || self.anything_due(&turn.seen)
    }

    /// Notes a reading of the clock that is no step back.
    #[inline]
    const fn go_on_to(&mut self, now: Moment) {
        self.latest = now;
        self.behind = false;
    }

    /// Lets time pass: sweeps, serves waiters, and ends waits at their deadline.
    ///
    /// With answers that prove a holder dead, the waiters behind it are served. Answers what the sweep
    /// ended; grants and ended waits come by [`take_settled`](Self::take_settled).
    pub fn advance(&mut self, turn: &mut Turn<'_>) -> Vec<Change> {
        if self.last_major >= MAJOR_MAX {
            return Vec::new();
        }
        turn.seen.now = self.observe(&turn.seen);
        self.inspect(turn)
    }

    /// Sweeps, serves and ends waits, at a moment that was observed.
    fn inspect(&mut self, turn: &mut Turn<'_>) -> Vec<Change> {
        if self.anything_due(&turn.seen) {
            self.settle_due(&Action::Sweep, turn)
        } else {
            Vec::new()
        }
    }

    /// Takes a waiting request back. Answers whether it was still known.
    ///
    /// One that was granted in the meantime, and not taken yet, is given back by the failure rule: the
    /// lease goes on to the next waiter only if nobody re-entered since. Two requests of one writer that
    /// were both granted share the lease: taking both back leaves it held until its term, its holder's
    /// end or a release, since nobody can tell whether it was used in between. Who takes the last one
    /// back should release by token.
    pub fn cancel(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) -> bool {
        turn.seen.now = self.observe(&turn.seen);
        let overdue = self.end_overdue(turn.seen.now);
        let known = match self.settled.take(waiter) {
            Some(settled) => {
                if let Ok((grant, _)) = settled.outcome {
                    self.give_back(&settled.resource, &grant, turn);
                }
                true
            }
            None => self.withdraw(waiter, Code::Abandoned, turn).is_some(),
        };
        // Only now, or this very request could be served.
        self.pass_on(overdue, turn);
        known
    }

    /// Gives back a grant whose receiver is gone.
    ///
    /// A re-entrant one has nothing to give back. A created one ends the lease, unless somebody
    /// re-entered or began an operation since.
    pub fn abandon(&mut self, resource: &ResourceKey, grant: Grant, turn: &mut Turn<'_>) {
        turn.seen.now = self.observe(&turn.seen);
        let overdue = self.end_overdue(turn.seen.now);
        self.give_back(resource, &grant, turn);
        self.pass_on(overdue, turn);
    }

    fn give_back(&mut self, resource: &ResourceKey, grant: &Grant, turn: &mut Turn<'_>) {
        match grant.provenance {
            Provenance::Reentrant => {}
            Provenance::Created => {
                let result = Err(Disposition::PreMutation);
                let action = Action::End {
                    at: grant.at,
                    op: OpId::ACQUISITION,
                    result,
                };
                // A refusal says that the lease is gone already.
                drop(self.at_resource(resource, &action, Wait::No, turn));
            }
        }
    }

    /// Clamps the clock to the latest moment seen.
    fn observe(&mut self, seen: &Seen<'_>) -> Moment {
        if seen.now >= self.latest {
            self.go_on_to(seen.now);
        } else if !self.behind {
            // One receipt per step back, not one per call until the clock has caught up.
            self.behind = true;
            let detail = Detail::Clock { read: seen.now };
            let change = self.number(Code::ClockSteppedBack, None, detail);
            self.keep(Receipt {
                wall_ms: seen.wall_ms,
                ..Receipt::new(change)
            });
        }
        self.latest
    }

    /// Numbers a change that is no commit.
    #[inline]
    fn number(&mut self, code: Code, token: Option<FencingToken>, detail: Detail) -> Change {
        Change {
            seq: self.next_seq(),
            code,
            token,
            at: self.latest,
            detail,
        }
    }

    fn next_seq(&mut self) -> Seq {
        self.last_major = self.last_major.saturating_add(1);
        Seq {
            major: self.last_major,
            minor: 0,
        }
    }

    fn keep(&mut self, receipt: Receipt<H>) {
        let change = &receipt.change;
        if self.log.wants(change.code, &change.detail, change.token) {
            self.log.push(receipt);
        }
    }

    /// Decides and commits an action that concerns one resource.
    fn at_resource(
        &mut self,
        key: &ResourceKey,
        action: &Action<H>,
        wait: Wait,
        turn: &mut Turn<'_>,
    ) -> Step<H> {
        if let Action::Acquire { holder, ttl } = action {
            let ttl = *ttl;
            return self.admit(key, Request { holder, ttl, wait }, turn);
        }
        let place = self.store.place(key, shown(action));
        let asked = Asked {
            key,
            place,
            action,
            me: None,
        };
        let decision = self.decide(&asked, &turn.seen);
        self.carry_out(&asked, wait, decision, turn)
    }

    /// Keeps the receipt of a change that was made without a plan.
    #[inline(never)]
    fn keep_alone(
        &mut self,
        change: Change,
        (key, holder): (&ResourceKey, Option<H>),
        note: Option<&Note>,
        wall_ms: Option<i64>,
    ) {
        self.keep(Receipt {
            resource: Some(key.clone()),
            holder,
            note: note.cloned(),
            wall_ms,
            ..Receipt::new(change)
        });
    }

    /// Commits, queues or passes on what was decided.
    fn carry_out(
        &mut self,
        asked: &Asked<'_, H>,
        wait: Wait,
        decision: Decision<H>,
        turn: &mut Turn<'_>,
    ) -> Step<H> {
        match decision {
            Decision::Ask(questions) => Step::Ask(questions),
            Decision::Refuse(refusal) => self.wait(asked.key, asked.action, wait, refusal),
            Decision::Change(plan) => {
                let causes = self.causes(&plan, asked.action);
                let note = Note::of(asked.action).or_else(|| turn.note.clone());
                let mut last = None;
                match self.commit(plan, note, turn, &mut |change| last = Some(*change)) {
                    Err(refusal) => refused(refusal),
                    Ok(grant) => {
                        self.pass_on(causes, turn);
                        Step::Done(match (grant, last) {
                            (Some(grant), Some(change)) => Outcome::Granted(grant, change),
                            (None, Some(change)) => Outcome::Done(change),
                            (_, None) => Outcome::Many(Vec::new()),
                        })
                    }
                }
            }
        }
    }

    /// Why somebody who waits may go after `plan`, which `action` led to.
    fn causes(&self, plan: &Plan<H>, action: &Action<H>) -> Vec<Cause<H>> {
        if self.queue.is_empty() {
            return Vec::new();
        }
        let mut causes: Vec<_> = plan.freed().cloned().map(Cause::Freed).collect();
        if let Action::Acquire { holder, .. } | Action::Adopt { to: holder, .. } = action {
            causes.push(Cause::Holds(holder.clone()));
        }
        causes
    }

    /// Fetches the scene and decides.
    fn decide(&self, asked: &Asked<'_, H>, seen: &Seen<'_>) -> Decision<H> {
        let &Asked {
            key,
            place,
            action,
            me,
        } = asked;
        let free = Cell::FREE;
        let cell = self.store.cell_at(place).unwrap_or(&free);
        let mut near = Vec::new();
        let mut ahead = Ahead::NOTHING;
        if let (Action::Acquire { .. } | Action::Adopt { .. }, Some(place)) = (action, place) {
            self.store.near(place, &mut near);
        }
        // Who is refused whoever waits is not told of those who wait.
        if let (Action::Acquire { holder, .. }, Some(place)) = (action, place)
            && !self.queue.is_empty()
            && !is_re_entry(cell, holder, seen.now)
            && !self.is_barred(place, holder, seen)
        {
            ahead = self.ahead(key, me, holder);
            near.extend(&ahead.own);
        }
        let scene = Scene {
            own: Some((key, cell)),
            near: &near,
            queued: &ahead.queued,
            due: &[],
        };
        let mut decision = decide(&self.policy, &scene, action, seen);
        if let Decision::Ask(questions) = &mut decision {
            // The records of a memory authority are written by this machine only.
            questions
                .iter_mut()
                .for_each(|asked| asked.locality = Locality::ThisMachine);
        }
        decision
    }

    /// Commits a plan, keeps its receipts and shows each change to `out`.
    fn commit(
        &mut self,
        plan: Plan<H>,
        note: Option<Note>,
        turn: &mut Turn<'_>,
        out: &mut dyn FnMut(&Change),
    ) -> Result<Option<Grant>, Refusal<H>> {
        let fresh = if plan.created() {
            Some(self.fresh(turn)?)
        } else {
            None
        };
        let mut subjects: Vec<Receipt<H>> = Vec::new();
        if self.log.keeps_all() || self.log.keeps() && plan.may_lose() {
            let blank = Change {
                seq: Seq { major: 0, minor: 0 },
                code: Code::Touched,
                token: None,
                at: turn.seen.now,
                detail: Detail::Plain,
            };
            // Now, since a holder's copy may panic; who is not named goes on holding.
            subjects.extend(plan.subjects().map(|subject| {
                let key = subject.key;
                let mut receipt = Receipt::of(blank, subject);
                if receipt.holder.is_none() {
                    receipt.holder = self.holder_of(key);
                }
                receipt
            }));
        }
        let seq = Seq {
            major: self.last_major.saturating_add(1),
            minor: 0,
        };
        let mut changed = subjects.iter_mut();
        let last_major = &mut self.last_major;
        let grant = plan.commit(&mut self.store, fresh, seq, &mut |change| {
            *last_major = change.seq.major;
            out(&change);
            if let Some(receipt) = changed.next() {
                receipt.change = change;
            }
        });
        for mut receipt in subjects {
            receipt.wall_ms = turn.seen.wall_ms;
            receipt.note = note.clone();
            self.keep(receipt);
        }
        Ok(grant)
    }

    fn holder_of(&self, key: &ResourceKey) -> Option<H> {
        let lease = self.store.cell(key)?.lease()?;
        Some(lease.holder.clone())
    }

    /// What a new lease gets.
    fn fresh(&mut self, turn: &mut Turn<'_>) -> Result<Fresh, Refusal<H>> {
        let Some(generation) = self.next_generation else {
            return Err(Refusal::Exhausted {
                counter: Counter::Generation,
            });
        };
        let lease = (turn.lease_id)();
        if lease == LeaseId::NIL {
            return Err(Refusal::ReservedLease);
        }
        if !planted!(GenerationRepeats) {
            self.next_generation = generation.next();
        }
        Ok(Fresh {
            authority: self.authority,
            generation,
            lease,
        })
    }
}

/// An action at one resource.
struct Asked<'a, H> {
    key: &'a ResourceKey,
    /// Where its cell is, if anything is kept for it.
    place: Option<u32>,
    action: &'a Action<H>,
    /// The waiting request that asks; those from it on are not in front.
    me: Option<WaiterId>,
}

/// Whether a request of `holder` is a re-entry, which never looks at who waits.
fn is_re_entry<H: Holder>(cell: &Cell<H>, holder: &H, now: Moment) -> bool {
    let own = |lease: &Lease<H>| lease.holder == *holder && !lease.lapsed(now);
    cell.lease().is_some_and(own)
}

/// The largest number of a commit; far below the end, so that one commit can run on past it.
const MAJOR_MAX: u64 = u64::MAX - (1 << 32);

const fn refused<H: Holder>(refusal: Refusal<H>) -> Step<H> {
    Step::Done(Outcome::Refused(refusal))
}
