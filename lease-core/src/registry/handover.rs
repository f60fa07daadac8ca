//! Whoever frees a resource hands it over in the same call.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::BuildHasher;

use super::ahead::{Candidates, Crowd};
use super::queue::Waiter;
use super::request::Grantee;
use super::{Asked, Registry, Request, Settled, Step, Turn, refused};
use crate::action::{Action, Scene, Seen, Wait, WaiterId};
use crate::change::{Change, Detail};
use crate::code::Code;
use crate::decision::{Decision, decide, stands, sweep};
use crate::holder::Holder;
use crate::id::Slot;
use crate::key::ResourceKey;
use crate::liveness::{Question, Verdict};
use crate::plan::Grant;
use crate::receipt::Receipt;
use crate::refusal::Refusal;
use crate::time::Moment;

/// So many causes are kept room for.
const CAUSES: usize = 64;

/// Why somebody who waits may go now.
#[derive(Clone, Debug)]
pub(super) enum Cause<H> {
    /// Something that overlaps this key ended or left the queue.
    Freed(ResourceKey),
    /// This writer became a holder: it re-enters, and passes waiters whom its new lease blocks.
    Holds(H),
    /// A holder is proven gone.
    Proven,
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Sweeps as observed by `action`, serves who can go, and ends waits whose deadline has come.
    ///
    /// Waits whose deadline has passed come first: they get nothing, whatever becomes free. At the
    /// deadline itself there is a last attempt.
    pub(super) fn settle_due(&mut self, action: &Action<H>, turn: &mut Turn<'_>) -> Vec<Change> {
        let mut causes = self.end_overdue(turn.seen.now);
        let swept = self.sweep(action, &mut causes, turn);
        let dead = |verdict: &Verdict| matches!(verdict, Verdict::Dead(_));
        if turn.seen.answers.iter().any(|answer| dead(&answer.verdict)) {
            causes.push(Cause::Proven);
        }
        self.pass_on(causes, turn);
        let mut crowd = Crowd::default();
        while let Some(waiter) = self.queue.timed_out(turn.seen.now) {
            // The last attempt: the bounded sweep may not have come to what is in its way.
            let mut causes = Vec::new();
            self.serve(waiter, &mut causes, &mut crowd, turn);
            self.pass_on(causes, turn);
            let last = self.in_the_way(waiter, &turn.seen);
            if let Some(gone) = self.withdraw(waiter, Code::WaitTimedOut, turn) {
                self.time_out(waiter, gone, last, turn.seen.now);
            }
        }
        swept
    }

    /// Ends the waits whose deadline lies before `now`. Answers who may go because of that.
    pub(super) fn end_overdue(&mut self, now: Moment) -> Vec<Cause<H>> {
        let mut causes = Vec::new();
        while let Some(waiter) = self.queue.overdue(now) {
            let last = self.in_the_way(waiter, &Seen::at(now));
            if let Some(gone) = self.leave(waiter, Code::WaitTimedOut) {
                causes.push(Cause::Freed(gone.key.clone()));
                self.time_out(waiter, gone, last, now);
            }
        }
        causes
    }

    fn time_out(
        &mut self,
        waiter: WaiterId,
        gone: Waiter<H>,
        last: Option<Refusal<H>>,
        now: Moment,
    ) {
        let refusal = Refusal::TimedOut {
            waiter,
            waited: now.since(gone.since),
            last: last.map(Box::new),
        };
        self.settle(waiter, gone.key, Err(refusal));
    }

    fn sweep(
        &mut self,
        action: &Action<H>,
        causes: &mut Vec<Cause<H>>,
        turn: &mut Turn<'_>,
    ) -> Vec<Change> {
        let due = self.store.take_due(turn.seen.now);
        let mut swept = Vec::with_capacity(due.len());
        if due.is_empty() {
            return swept;
        }
        let cells = self.store.at(due.iter().map(|(_, place)| *place));
        let scene = Scene {
            own: None,
            near: &[],
            queued: &[],
            due: &cells,
        };
        let mut plan = sweep(&self.policy, &scene, action, &turn.seen);
        // Both are in ascending generation.
        let mut places = due.iter();
        plan.locate(|token| {
            let (_, place) = places.find(|(generation, _)| *generation == token.generation)?;
            Some(Slot::new(*place))
        });
        if !self.queue.is_empty() {
            causes.extend(plan.freed().cloned().map(Cause::Freed));
        }
        // A sweep creates nothing, so no counter can be exhausted.
        drop(self.commit(plan, None, turn, &mut |change| swept.push(*change)));
        swept
    }

    /// Ends every lease of `holder` that a disconnect ends, and takes back its waiting requests.
    pub(super) fn disconnect(&mut self, holder: &H, turn: &mut Turn<'_>) -> Vec<Change> {
        let mut causes = self.end_overdue(turn.seen.now);
        while let Some(waiter) = self.store.owners.next_request(holder, None) {
            let Some(gone) = self.leave(waiter, Code::Abandoned) else {
                break;
            };
            causes.push(Cause::Freed(gone.key.clone()));
            self.settle(waiter, gone.key, Err(Refusal::Withdrawn { waiter }));
        }
        let mut ended = Vec::new();
        let near: Vec<_> = self.store.of_holder(holder).collect();
        let scene = Scene {
            own: None,
            near: &near,
            queued: &[],
            due: &[],
        };
        let action = Action::Disconnect(holder.clone());
        if let Decision::Change(plan) = decide(&self.policy, &scene, &action, &turn.seen) {
            causes.extend(plan.freed().cloned().map(Cause::Freed));
            // A disconnect creates nothing, so no counter can be exhausted.
            drop(self.commit(plan, None, turn, &mut |change| ended.push(*change)));
        }
        self.pass_on(causes, turn);
        ended
    }

    /// Queues a refused request, if it may wait and waiting can help.
    pub(super) fn wait(
        &mut self,
        key: &ResourceKey,
        action: &Action<H>,
        wait: Wait,
        refusal: Refusal<H>,
    ) -> Step<H> {
        let Action::Acquire { holder, ttl } = action else {
            return refused(refusal);
        };
        if !refusal.waits() || !self.may_wait(wait) {
            return refused(refusal);
        }
        let (place, ttl) = (self.store.prepare(key), *ttl);
        self.enqueue(place, key, Request { holder, ttl, wait })
    }

    /// Whether a request with `wait` has time to wait.
    pub(super) fn may_wait(&self, wait: Wait) -> bool {
        match wait {
            Wait::No => false,
            Wait::Until(deadline) => deadline > self.latest,
            Wait::Forever => true,
        }
    }

    /// Queues a request for `key`, whose place is `place`.
    pub(super) fn enqueue(
        &mut self,
        place: u32,
        key: &ResourceKey,
        request: Request<'_, H>,
    ) -> Step<H> {
        let Request { holder, ttl, wait } = request;
        let id = match self.queue.admit(self.settled.len()) {
            Ok(id) => id,
            Err(refusal) => return refused(refusal),
        };
        let owner = self.store.owners.enter(holder);
        let waiter = Waiter {
            key: key.clone(),
            holder: self.store.owners.copy(holder),
            owner,
            ttl,
            since: self.latest,
            deadline: match wait {
                Wait::Until(deadline) => Some(deadline),
                Wait::No | Wait::Forever => None,
            },
        };
        let named = self.named(holder);
        if let Err(refusal) = self.store.add_waiter(place, owner, id) {
            return refused(refusal);
        }
        self.queue.push(id, waiter);
        self.report(Code::Queued, id, key, named);
        Step::Queued(id)
    }

    /// Takes a request out of the queue, and serves whom it was in front of.
    pub(super) fn withdraw(
        &mut self,
        waiter: WaiterId,
        code: Code,
        turn: &mut Turn<'_>,
    ) -> Option<Waiter<H>> {
        if planted!(CancelledStillWaits) && code == Code::Abandoned {
            return self.queue.get(waiter).cloned();
        }
        let gone = self.leave(waiter, code)?;
        self.pass_on(alloc::vec![Cause::Freed(gone.key.clone())], turn);
        Some(gone)
    }

    fn leave(&mut self, id: WaiterId, code: Code) -> Option<Waiter<H>> {
        let named = self.named(&self.queue.get(id)?.holder);
        let (waiter, _) = self.take_out(id)?;
        self.store.shrink();
        self.report(code, id, &waiter.key, named);
        Some(waiter)
    }

    /// Takes a request out wherever it is noted. Answers also whether its holder waits for more.
    fn take_out(&mut self, id: WaiterId) -> Option<(Waiter<H>, bool)> {
        let owner = self.owner_of(id)?;
        let waiter = self.queue.remove(id)?;
        let place = self.store.place(&waiter.key, None)?;
        let waits_for_more = self.store.remove_waiter(place, owner, id);
        Some((waiter, waits_for_more))
    }

    /// The place of who waits by the request `id`. It is looked for before anything changes, since a comparison
    /// of holders may panic.
    #[inline]
    fn owner_of(&mut self, id: WaiterId) -> Option<u32> {
        let waiter = self.queue.get(id)?;
        let owners = &mut self.store.owners;
        Some(owners.enter_near(waiter.owner, &waiter.holder))
    }

    /// Numbers and keeps what happened to a waiting request.
    fn report(&mut self, code: Code, id: WaiterId, key: &ResourceKey, holder: Option<H>) {
        let change = self.number(code, None, Detail::Waiting { waiter: id });
        if !self.log.keeps_all() {
            return;
        }
        self.keep(Receipt {
            resource: Some(key.clone()),
            holder,
            ..Receipt::new(change)
        });
    }

    #[inline(always)]
    fn settle(
        &mut self,
        waiter: WaiterId,
        resource: ResourceKey,
        outcome: Result<(Grant, Change), Refusal<H>>,
    ) {
        self.settled.put(waiter, || Settled {
            waiter,
            resource,
            outcome,
        });
    }

    /// Hands on `key`, whose lease at `place` ended.
    #[inline(never)]
    pub(super) fn hand_on(&mut self, key: &ResourceKey, place: u32, turn: &mut Turn<'_>) {
        let mut causes = core::mem::take(&mut self.causes);
        match self.store.next_alone(place, key) {
            Some(id) if !planted!(NobodyIsServed) => {
                self.serve_at(place, id, &mut causes, turn);
            }
            Some(_) | None => causes.push(Cause::Freed(key.clone())),
        }
        if !causes.is_empty() {
            self.serve_all(&mut causes, turn);
            causes.clear();
            causes.shrink_to(CAUSES);
        }
        self.causes = causes;
        // Who was served and left may have been one of a crowd.
        self.store.shrink();
    }

    /// Serves everybody who can go because of `causes`.
    pub(super) fn pass_on(&mut self, mut causes: Vec<Cause<H>>, turn: &mut Turn<'_>) {
        self.serve_all(&mut causes, turn);
        // Who was served and left may have been one of a crowd.
        self.store.shrink();
    }

    /// Serves everybody who can go, the earliest first, until nobody can.
    ///
    /// Each grant takes one request out of the queue, so it ends.
    fn serve_all(&mut self, causes: &mut Vec<Cause<H>>, turn: &mut Turn<'_>) {
        if self.queue.is_empty() || planted!(NobodyIsServed) {
            return;
        }
        let mut crowd = Crowd::default();
        while let Some(cause) = causes.pop() {
            // Without this a thousand requests that leave together each try all the others.
            if let Cause::Freed(key) = &cause
                && self.store.covers(key, |lease| stands(lease, &turn.seen))
            {
                continue;
            }
            let mut candidates = match &cause {
                Cause::Freed(key) => Candidates::of(&self.store, key),
                Cause::Holds(_) | Cause::Proven => Candidates::default(),
            };
            let mut first = None;
            while let Some(waiter) = self.next_candidate(&cause, &mut candidates) {
                if self.must_stand_behind(waiter, first.as_ref()) {
                    continue;
                }
                let served = self.serve(waiter, causes, &mut crowd, turn);
                if first.is_none() {
                    first = self.stands_before_all(waiter, &cause);
                }
                // Who got the freed key, or one above it, is in the way of all others that overlap
                // it; its own further requests are a cause of their own.
                if let (Some(key), Cause::Freed(freed)) = (served, &cause)
                    && (key == *freed || key.is_ancestor_of(freed))
                {
                    break;
                }
            }
        }
    }

    /// Who the writer of `waiter` is, if it goes on waiting and all that overlap the freed key overlap it.
    fn stands_before_all(&self, waiter: WaiterId, cause: &Cause<H>) -> Option<H> {
        let Cause::Freed(freed) = cause else {
            return None;
        };
        let waiter = self.queue.get(waiter)?;
        let all = waiter.key == *freed || waiter.key.is_ancestor_of(freed);
        all.then(|| waiter.holder.clone())
    }

    /// Whether `waiter` cannot pass an earlier one of `first`, which it overlaps.
    ///
    /// Only a writer that holds something can pass a waiter of another. Without this everybody who waits
    /// below a key would be decided anew at each hand-over of it.
    fn must_stand_behind(&self, waiter: WaiterId, first: Option<&H>) -> bool {
        let Some((first, waiter)) = first.zip(self.queue.get(waiter)) else {
            return false;
        };
        waiter.holder != *first && !self.store.holds(&waiter.holder)
    }

    fn next_candidate(&self, cause: &Cause<H>, candidates: &mut Candidates) -> Option<WaiterId> {
        match cause {
            Cause::Freed(key) => candidates.next(&self.store, key),
            Cause::Holds(holder) => {
                candidates.go_on(self.store.owners.next_request(holder, candidates.after))
            }
            Cause::Proven => candidates.go_on(self.queue.next(candidates.after)),
        }
    }

    /// Decides once more for a waiting request. Answers what it was for, if it is settled now.
    fn serve(
        &mut self,
        id: WaiterId,
        causes: &mut Vec<Cause<H>>,
        crowd: &mut Crowd,
        turn: &mut Turn<'_>,
    ) -> Option<ResourceKey> {
        let key = self.queue.get(id)?.key.clone();
        let place = self.store.place(&key, None)?;
        if self.is_open_to(place, &key, id) {
            let served = self.serve_at(place, id, causes, turn);
            return served.then_some(key);
        }
        if self.must_go_on_waiting(place, id, crowd, &turn.seen) {
            return None;
        }
        match self.serve_by_plan(id, &key, causes, turn)? {
            Ok(granted) => {
                let (waiter, waits_for_more) = self.take_out(id)?;
                if waits_for_more {
                    causes.push(Cause::Holds(waiter.holder));
                }
                self.settle(id, waiter.key, Ok(granted));
                Some(key)
            }
            Err(refusal) => {
                causes.extend(self.turn_away(id, refusal).map(Cause::Freed));
                None
            }
        }
    }

    /// Grants a waiting request that has nothing in its way, at the place of its key. Answers whether it did.
    fn serve_at(
        &mut self,
        place: u32,
        id: WaiterId,
        causes: &mut Vec<Cause<H>>,
        turn: &mut Turn<'_>,
    ) -> bool {
        // The holder and the id source are the caller's and may panic: until they have answered the request waits.
        let Some(waiter) = self.queue.get(id) else {
            return false;
        };
        let named = self.named(&waiter.holder);
        let owners = &mut self.store.owners;
        let owner = owners.enter_near(waiter.owner, &waiter.holder);
        let (opening, token) = match self.open(waiter.ttl, turn) {
            Ok(opened) => opened,
            Err(refusal) => {
                causes.extend(self.turn_away(id, refusal).map(Cause::Freed));
                return false;
            }
        };
        let Some(Waiter { key, holder, .. }) = self.queue.remove(id) else {
            return false;
        };
        let grantee = Grantee {
            owner,
            holder,
            named,
            opening,
            token,
            has_waited: true,
        };
        let granted = self.move_in(place, &key, grantee, turn);
        self.settle(id, key, Ok(granted));
        if self.store.remove_waiter(place, owner, id) {
            causes.extend(self.store.holder_at(place).map(Cause::Holds));
        }
        true
    }

    /// Answers a waiting request with a refusal. Says where it waited: who leaves with nothing lets others go.
    #[cold]
    fn turn_away(&mut self, id: WaiterId, refusal: Refusal<H>) -> Option<ResourceKey> {
        let (waiter, _) = self.take_out(id)?;
        self.settle(id, waiter.key.clone(), Err(refusal));
        Some(waiter.key)
    }

    /// Whether nothing is in the way of the waiting request `id` for `key`, whose place is `place`: nothing that
    /// overlaps is held, and nobody waits in front.
    fn is_open_to(&self, place: u32, key: &ResourceKey, id: WaiterId) -> bool {
        self.store.clear(place) && self.store.next_waiter(key, None) == Some(id)
    }

    /// Decides for a waiting request that has something in its way. Answers nothing if it goes on waiting, or
    /// left the queue.
    fn serve_by_plan(
        &mut self,
        id: WaiterId,
        key: &ResourceKey,
        causes: &mut Vec<Cause<H>>,
        turn: &mut Turn<'_>,
    ) -> Option<Result<(Grant, Change), Refusal<H>>> {
        let action = self.queue.get(id)?.asks();
        let place = self.store.place(key, None);
        let asked = Asked {
            key,
            place,
            action: &action,
            me: Some(id),
        };
        let plan = match self.decide(&asked, &turn.seen) {
            Decision::Change(plan) => plan,
            Decision::Refuse(refusal) if !refusal.waits() => {
                // It became a re-entry, and waiting cannot help that.
                drop(self.leave(id, Code::Abandoned));
                causes.push(Cause::Freed(key.clone()));
                self.settle(id, key.clone(), Err(refusal));
                return None;
            }
            Decision::Refuse(_) | Decision::Ask(_) => return None,
        };
        causes.extend(plan.freed().cloned().map(Cause::Freed));
        let mut last = None;
        let committed = self.commit(plan, None, turn, &mut |change| last = Some(*change));
        match committed {
            Ok(grant) => grant.zip(last).map(Ok),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    /// What must be known about holders for those who wait: a driver watches them, and calls
    /// [`advance`](Self::advance) with the answers.
    #[must_use]
    pub fn questions(&self) -> Vec<Question<H>> {
        let seen = Seen::at(self.latest);
        let mut questions: Vec<Question<H>> = Vec::new();
        let mut known = BTreeSet::new();
        let mut asking: BTreeMap<Option<u32>, Vec<&H>> = BTreeMap::new();
        for (id, waiter) in self.queue.iter() {
            let place = self.store.place(&waiter.key, None);
            // A writer does not ask about its own leases, so two of them ask all there is to ask at a key.
            let asking = asking.entry(place).or_default();
            if asking.len() == 2 || asking.contains(&&waiter.holder) {
                continue;
            }
            asking.push(&waiter.holder);
            let action = waiter.asks();
            let asked = Asked {
                key: &waiter.key,
                place,
                action: &action,
                me: Some(id),
            };
            if let Decision::Ask(asked) = self.decide(&asked, &seen) {
                let new = |question: &Question<H>| known.insert(question.about.generation);
                questions.extend(asked.into_iter().filter(new));
            }
        }
        questions
    }
}
