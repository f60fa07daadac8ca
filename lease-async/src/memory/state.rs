//! What is behind the mutex: the registry, who waits for its answers, and the one alarm.

use core::task::Waker;
use std::io;
use std::sync::{Arc, Weak};
use std::task::Wake;

use hashbrown::HashMap;
use lease_core::{
    Action, By, Call, Generation, Grant, Holder, Moment, Outcome, Provenance, Question, Registry,
    ResourceKey, Turn, Wait, WaiterId,
};

use super::places::{Left, Places};
use super::{How, Inner};
use crate::authority::AuthorityError;
use crate::caught::{apart, caught};
use crate::clock::{Alarm, AlarmError};
use crate::telemetry::{Cause, Causes};

pub(super) struct State<H: Holder> {
    pub(super) registry: Registry<H>,
    pub(super) stage: Stage,
    pub(super) places: Places<WaiterId, Answer<H>>,
    /// The leases that were granted to requests, and that none of these has received yet.
    unclaimed: UnclaimedLeases,
    pub(super) causes: Causes,
    /// The spans of those that were just served, or could not wait.
    served: Vec<Cause>,
    alarm: Option<(Moment, Alarm)>,
    /// Alarms that are not needed any more, to drop outside the lock.
    disarmed: Vec<(Moment, Alarm)>,
    /// Who rings it, once it was armed.
    bell: Option<Waker>,
    /// Somebody was queued or served, or left.
    moved: bool,
    /// Wakers to wake, and to drop, outside the lock.
    turned_away: Wakers,
    discarded: Vec<Waker>,
}

/// What is handed over: for which resource, and as the request is answered.
pub(super) type Answer<H> = (ResourceKey, Outcome<H>);

/// For how many unclaimed leases the memory stays while there are none.
const SPARE: usize = 64;

/// How far the authority is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its policy may still be set.
    New,
    /// A policy was set, or something was called: that policy stays.
    Open,
    /// Nothing is granted any more.
    Shut,
}

/// Grants of one lease that are on their way. The lease goes with the last of them, unless one arrives.
struct Unclaimed {
    grants: usize,
    /// More than one request of its holder was granted it.
    shared: bool,
}

/// Mostly there is one, which takes no memory, and is not searched for.
#[derive(Default)]
struct UnclaimedLeases {
    first: Option<(Generation, Unclaimed)>,
    others: HashMap<Generation, Unclaimed>,
}

impl UnclaimedLeases {
    fn insert(&mut self, generation: Generation, unclaimed: Unclaimed) {
        match &self.first {
            None => self.first = Some((generation, unclaimed)),
            Some(_) => drop(self.others.insert(generation, unclaimed)),
        }
    }

    fn get_mut(&mut self, generation: Generation) -> Option<&mut Unclaimed> {
        match &mut self.first {
            Some((first, unclaimed)) if *first == generation => Some(unclaimed),
            Some(_) | None if self.others.is_empty() => None,
            Some(_) | None => self.others.get_mut(&generation),
        }
    }

    fn remove(&mut self, generation: Generation) {
        let first = self.first.take_if(|(first, _)| *first == generation);
        if first.is_none() && !self.others.is_empty() {
            self.others.remove(&generation);
            if self.others.is_empty() && self.others.capacity() > SPARE {
                // What a crowd needed is not kept for one.
                self.others = HashMap::new();
            }
        }
    }
}

/// What is left to do once the lock is free.
#[derive(Default)]
pub(super) struct Parting {
    pub(super) wakers: Wakers,
    pub(super) discarded: Vec<Waker>,
    pub(super) served: Vec<Cause>,
    /// Dropped outside: disarming may drop a waker, and that anything. Mostly there is one at most, which takes no
    /// memory.
    pub(super) alarm: Option<(Moment, Alarm)>,
    pub(super) disarmed: Vec<(Moment, Alarm)>,
    pub(super) drained: bool,
    /// Who waits, or for whom, has changed.
    pub(super) look: bool,
}

/// Who is to be woken, in order: mostly one, which takes no memory.
#[derive(Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn extend(&mut self, waker: Option<Waker>) {
        match &self.first {
            None => self.first = waker,
            Some(_) => self.rest.extend(waker),
        }
    }

    /// Wakes all. Not under a lock.
    pub(super) fn wake(self) {
        // One that panics is not to cost the next one its turn.
        let wake = |waker: Waker| apart(|| waker.wake());
        if let Some(first) = self.first {
            wake(first);
        }
        if !self.rest.is_empty() {
            self.rest.into_iter().for_each(wake);
        }
    }
}

impl<H: Holder> State<H> {
    pub(super) fn new(registry: Registry<H>) -> Self {
        Self {
            registry,
            stage: Stage::New,
            places: Places::new(),
            unclaimed: UnclaimedLeases::default(),
            causes: Causes::new(),
            served: Vec::new(),
            alarm: None,
            disarmed: Vec::new(),
            bell: None,
            moved: false,
            turned_away: Wakers::default(),
            discarded: Vec::new(),
        }
    }

    /// The span of the first request that waits for what is asked about.
    pub(super) fn cause(&self, question: &Question<H>) -> Cause {
        let generation = question.about.generation;
        self.causes.of(generation, |key| self.registry.lease(key))
    }

    pub(super) fn waiters(&self) -> usize {
        self.places.len()
    }

    /// Makes a place for the answer to a request that was just queued, and sees to it that its time comes.
    pub(super) fn queued(
        &mut self,
        inner: &Arc<Inner<H>>,
        waiter: WaiterId,
        (resource, cause): (Option<&ResourceKey>, &mut Cause),
    ) -> Result<(), AuthorityError> {
        self.places.add(waiter);
        self.moved = true;
        self.causes.add(waiter, resource, cause);
        let armed = self.arm(inner);
        let before = armed.map_err(|error| AuthorityError::Unreachable(error.into()))?;
        self.disarmed.extend(before);
        Ok(())
    }

    /// Takes a request back that could not be queued.
    pub(super) fn turn_away(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) {
        self.forget(waiter, turn);
        self.served.extend(self.causes.remove(waiter));
    }

    /// An answer is received.
    pub(super) fn answered(&mut self, outcome: &Outcome<H>) {
        if let Outcome::Granted(grant, _) = outcome {
            self.claim(grant);
        }
    }

    /// Takes a request back whose receiver is gone; what it was granted is given back.
    pub(super) fn forget(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) {
        match self.places.take(waiter) {
            Left::Answer(answer) => self.give_back(answer, turn),
            Left::Waited(waker) => {
                self.moved = true;
                self.discarded.extend(waker);
                self.registry.cancel(waiter, turn);
            }
            Left::Nothing => {}
        }
    }

    /// Somebody has received a grant: its lease is theirs to give back.
    pub(super) fn claim(&mut self, grant: &Grant) {
        self.unclaimed.remove(grant.at.token.generation);
    }

    /// Counts a grant that is on its way.
    fn send(&mut self, grant: &Grant) {
        let generation = grant.at.token.generation;
        match (grant.provenance, self.unclaimed.get_mut(generation)) {
            (_, Some(unclaimed)) => {
                unclaimed.grants = unclaimed.grants.saturating_add(1);
                unclaimed.shared = true;
            }
            (Provenance::Created, None) => {
                let (grants, shared) = (1, false);
                let unclaimed = Unclaimed { grants, shared };
                self.unclaimed.insert(generation, unclaimed);
            }
            // Its holder has had it before.
            (Provenance::Reentrant, None) => {}
        }
    }

    /// Gives a grant back that nobody received.
    fn give_back(&mut self, (resource, outcome): Answer<H>, turn: &mut Turn<'_>) {
        let Outcome::Granted(grant, _) = outcome else {
            return;
        };
        let at = grant.at;
        self.registry.abandon(&resource, grant, turn);
        let generation = at.token.generation;
        let Some(unclaimed) = self.unclaimed.get_mut(generation) else {
            return;
        };
        unclaimed.grants = unclaimed.grants.saturating_sub(1);
        if unclaimed.grants > 0 {
            return;
        }
        let shared = unclaimed.shared;
        self.unclaimed.remove(generation);
        if shared {
            // The core keeps what was shared, since it cannot tell that none of them had it in hand.
            let release = Call {
                resource: Some(resource),
                action: Action::Release(By::Token(at)),
                wait: Wait::No,
            };
            drop(self.registry.call(&release, turn));
        }
    }

    /// Turns away who waits. Nothing is granted from now on.
    pub(super) fn shut_down(&mut self, turn: &mut Turn<'_>) -> usize {
        self.stage = Stage::Shut;
        let waiting = self.places.waiting();
        for id in &waiting {
            // In this order the cancel cannot grant to one that is turned away next.
            self.turned_away.extend(self.places.shut(*id));
            self.registry.cancel(*id, turn);
        }
        waiting.len()
    }

    /// After anything happened: answers go to their places, the alarm is set for what comes next. Answers what is
    /// left to do. A holder that `passes_on` what it had leaves the alarm to who waits next.
    pub(super) fn part(
        &mut self,
        inner: &Arc<Inner<H>>,
        turn: &mut Turn<'_>,
        passes_on: bool,
    ) -> Parting {
        if self.stage == Stage::New {
            self.stage = Stage::Open;
        }
        let mut wakers = core::mem::take(&mut self.turned_away);
        let served = self.hand_out(&mut wakers, turn);
        self.catch_up(&mut wakers, turn);
        let moved = core::mem::take(&mut self.moved);
        let proof = self.registry.policy().ends_on().process.is_some();
        let alarm = if served && passes_on && self.registry.waiting() == 0 {
            // Mostly that comes soon. If not, it goes with the next call, or rings once for nobody.
            None
        } else {
            // Without an alarm those who wait are served by the next call; the first one was told.
            self.arm(inner).unwrap_or_default()
        };
        Parting {
            wakers,
            discarded: core::mem::take(&mut self.discarded),
            served: core::mem::take(&mut self.served),
            alarm,
            disarmed: core::mem::take(&mut self.disarmed),
            drained: self.stage == Stage::Shut && self.registry.held() == 0,
            look: moved && proof,
        }
    }

    /// Whether nobody waits, and nothing is left of anybody who did.
    pub(super) fn is_at_rest(&self) -> bool {
        self.stage == Stage::Open
            && self.places.len() == 0
            && !self.moved
            && self.alarm.is_none()
            && self.disarmed.is_empty()
            && self.turned_away.is_empty()
            && self.discarded.is_empty()
            && self.registry.waiting() == 0
    }

    /// Answers whether there was anybody.
    fn hand_out(&mut self, wakers: &mut Wakers, turn: &mut Turn<'_>) -> bool {
        let mut served = false;
        while let Some(settled) = self.registry.take_settled() {
            served = true;
            self.served.extend(self.causes.remove(settled.waiter));
            let outcome = match settled.outcome {
                Ok((grant, change)) => {
                    self.send(&grant);
                    Outcome::Granted(grant, change)
                }
                Err(refusal) => Outcome::Refused(refusal),
            };
            let answer = (settled.resource, outcome);
            match self.places.deliver(settled.waiter, answer) {
                Ok(waker) => wakers.extend(waker),
                // Nobody is there to take it.
                Err(answer) => self.give_back(answer, turn),
            }
        }
        self.moved |= served;
        served
    }

    /// One sweep is bounded; while somebody waits, the rest of what is due is swept too.
    fn catch_up(&mut self, wakers: &mut Wakers, turn: &mut Turn<'_>) {
        let is_due = |registry: &Registry<H>| {
            let next = registry.next_deadline();
            registry.waiting() > 0 && next.is_some_and(|next| next <= registry.latest())
        };
        while is_due(&self.registry) {
            let before = self.registry.next_deadline();
            let swept = self.registry.advance(turn);
            self.hand_out(wakers, turn);
            if swept.is_empty() && self.registry.next_deadline() == before {
                return;
            }
        }
    }

    /// Sets the alarm for the next deadline if anybody waits. Answers the alarm before it.
    pub(super) fn arm(
        &mut self,
        inner: &Arc<Inner<H>>,
    ) -> Result<Option<(Moment, Alarm)>, AlarmError> {
        let due = if self.registry.waiting() > 0 {
            self.registry.next_deadline()
        } else {
            None
        };
        let Some(due) = due else {
            return Ok(self.alarm.take());
        };
        let rings = |(armed, alarm): &(Moment, Alarm)| *armed <= due && alarm.is_ours();
        if self.alarm.as_ref().is_some_and(rings) {
            return Ok(None);
        }
        let bell = || Waker::from(Arc::new(Bell(Arc::downgrade(inner))));
        let bell = self.bell.get_or_insert_with(bell).clone();
        // One that panics is not to leave a request behind that nobody has.
        let alarm = caught(|| inner.clock.arm(due, bell)).unwrap_or_else(|| Err(broke_off()))?;
        Ok(self.alarm.replace((due, alarm)))
    }
}

/// What a clock is that panics.
fn broke_off() -> AlarmError {
    AlarmError::Exhausted(io::Error::other("the clock panicked"))
}

/// Rings when something is due that somebody waits for.
struct Bell<H: Holder>(Weak<Inner<H>>);

impl<H: Holder> Wake for Bell<H> {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.0.upgrade() {
            inner.turn(How::default(), |state, turn| {
                state.rung();
                if state.registry.waiting() > 0 {
                    drop(state.registry.advance(turn));
                }
            });
        }
    }
}

impl<H: Holder> State<H> {
    /// The alarm has rung; a new one is set for what comes next.
    fn rung(&mut self) {
        self.disarmed.extend(self.alarm.take());
    }
}
