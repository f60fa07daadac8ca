//! What is behind the mutex: the registry, who waits for its answers, and the one alarm.

use core::task::Waker;
use std::io;
use std::sync::{Arc, Weak};
use std::task::Wake;

use hashbrown::HashMap;
use lease_core::{
    Action, By, Call, Generation, Grant, Holder, Moment, Outcome, Provenance, Question, Registry,
    ResourceKey, Settled, Turn, Wait, WaiterId,
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
    pub(super) places: Places<WaiterId, Settled<H>>,
    /// The leases that were granted to requests, and that none of these has received yet.
    unclaimed: UnclaimedLeases,
    pub(super) causes: Causes,
    alarm: Option<(Moment, Alarm)>,
    /// Who rings it, once it was armed.
    bell: Option<Waker>,
    /// Somebody was queued or served, or left.
    moved: bool,
    /// Wakers to wake outside the lock.
    turned_away: Wakers,
    /// What is to be dropped there.
    rest: Option<Box<Rest>>,
}

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
            if self.others.is_empty() {
                // What a crowd needed is not kept for one.
                self.others.shrink_to(SPARE);
            }
        }
    }
}

/// What is left to do once the lock is free.
#[derive(Default)]
pub(super) struct Parting {
    pub(super) wakers: Wakers,
    /// Dropped outside: disarming may drop a waker, and that anything.
    pub(super) alarm: Option<(Moment, Alarm)>,
    pub(super) rest: Option<Box<Rest>>,
    pub(super) drained: bool,
    /// Who waits, or for whom, has changed.
    pub(super) look: bool,
}

/// What is to be dropped outside the lock. Mostly there is nothing.
#[derive(Default)]
pub(super) struct Rest {
    /// Alarms that are not needed any more.
    disarmed: Vec<(Moment, Alarm)>,
    discarded: Vec<Waker>,
    /// The spans of those that were just served, or could not wait.
    pub(super) served: Vec<Cause>,
}

impl Rest {
    /// Drops the alarms and wakers, one by one: with a waker anything may go.
    #[inline(never)]
    pub(super) fn go(self) {
        for alarm in self.disarmed {
            apart(|| drop(alarm));
        }
        for waker in self.discarded {
            apart(|| drop(waker));
        }
    }
}

/// Who is to be woken, in order: mostly one, which takes no memory.
#[derive(Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    #[inline]
    fn extend(&mut self, waker: Option<Waker>) {
        match &self.first {
            None => self.first = waker,
            Some(_) => self.rest.extend(waker),
        }
    }

    /// Wakes all. Not under a lock.
    #[inline]
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
            alarm: None,
            bell: None,
            moved: false,
            turned_away: Wakers::default(),
            rest: None,
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
        self.disarm(before);
        Ok(())
    }

    /// Takes a request back that could not be queued.
    pub(super) fn turn_away(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) {
        self.forget(waiter, turn);
        self.answer_cause(waiter);
    }

    /// A request waits no more: its span is told of that, and may end.
    #[inline]
    fn answer_cause(&mut self, waiter: WaiterId) {
        if let Some(cause) = self.causes.remove(waiter) {
            self.rest().served.push(cause);
        }
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    #[inline]
    fn disarm(&mut self, alarm: Option<(Moment, Alarm)>) {
        if let Some(alarm) = alarm {
            self.rest().disarmed.push(alarm);
        }
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
                if let Some(waker) = waker {
                    self.rest().discarded.push(waker);
                }
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
    fn give_back(&mut self, settled: Settled<H>, turn: &mut Turn<'_>) {
        let Settled {
            resource, outcome, ..
        } = settled;
        let Ok((grant, _)) = outcome else {
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
            alarm,
            rest: self.rest.take(),
            drained: self.stage == Stage::Shut && self.registry.held() == 0,
            look: moved && proof,
        }
    }

    /// Whether nobody waits, and nothing is left of anybody who did.
    pub(super) fn is_at_rest(&self) -> bool {
        self.stage == Stage::Open
            && !self.moved
            && self.rest.is_none()
            && self.places.len() == 0
            && self.alarm.is_none()
            && self.registry.waiting() == 0
    }

    /// Answers whether there was anybody.
    fn hand_out(&mut self, wakers: &mut Wakers, turn: &mut Turn<'_>) -> bool {
        let mut served = false;
        while let Some(settled) = self.registry.take_settled() {
            served = true;
            self.answer_cause(settled.waiter);
            if let Ok((grant, _)) = &settled.outcome {
                self.send(grant);
            }
            // As it is: it is large, and each copy is felt.
            match self.places.deliver(settled.waiter, settled) {
                Ok(waker) => wakers.extend(waker),
                // Nobody is there to take it.
                Err(settled) => self.give_back(settled, turn),
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
        let rung = self.alarm.take();
        self.disarm(rung);
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Waker};

    use hashbrown::HashMap;
    use lease_core::Generation;

    use super::{SPARE, Unclaimed, UnclaimedLeases};
    use crate::{Leases, Memory};

    #[tokio::test]
    async fn nothing_is_kept_of_a_grant_once_it_was_received_or_given_back() {
        for receives in [true, false] {
            let memory = Memory::new().unwrap();
            let leases = Leases::new(memory.clone()).unwrap();
            let (first, next) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
            let held = first.acquire("docs").await.unwrap();
            let mut waits = Box::pin(next.acquire("docs").forever().into_future());
            let mut context = Context::from_waker(Waker::noop());
            assert!(pin!(&mut waits).poll(&mut context).is_pending());
            drop(held);
            assert!(memory.inner.state().unclaimed.first.is_some());
            let guard = if receives {
                Some(waits.await.unwrap())
            } else {
                drop(waits);
                None
            };
            assert!(memory.inner.state().unclaimed.first.is_none());
            assert_eq!(memory.held(), usize::from(receives));
            drop(guard);
        }
    }

    #[test]
    fn an_unclaimed_lease_is_found_until_it_is_removed_and_nothing_is_left() {
        let generation = |n| Generation::new(n).unwrap();
        for backwards in [false, true] {
            let mut leases = UnclaimedLeases::default();
            for grants in 1..=200 {
                let shared = false;
                let unclaimed = Unclaimed { grants, shared };
                leases.insert(generation(u64::try_from(grants).unwrap()), unclaimed);
            }
            let mut order: Vec<u64> = (1..=200).collect();
            if backwards {
                order.reverse();
            }
            for n in order {
                let found = leases.get_mut(generation(n)).map(|lease| lease.grants);
                assert_eq!(found, usize::try_from(n).ok());
                leases.remove(generation(n));
                assert!(leases.get_mut(generation(n)).is_none());
            }
            assert!(leases.first.is_none());
            // The capacity of a map does not count what was removed in the middle of it: it may say little of much.
            let spare = HashMap::<Generation, Unclaimed>::with_capacity(SPARE);
            assert!(leases.others.allocation_size() <= spare.allocation_size());
        }
    }
}
