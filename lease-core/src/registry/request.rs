//! Who asks for a lease: at once where nothing is in the way, else by a plan.

use core::hash::BuildHasher;
use core::time::Duration;

use super::{Asked, Registry, Step, Turn, refused};
use crate::action::{Action, Call, Wait};
use crate::cell::{Cell, Lease};
use crate::change::{Change, Detail};
use crate::decision::{Opening, bars, unopposed};
use crate::holder::Holder;
use crate::id::FencingToken;
use crate::key::ResourceKey;
use crate::outcome::Outcome;
use crate::plan::Grant;
use crate::refusal::Refusal;

/// Who asks for a lease, for how long, and how long it may wait.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Request<'a, H> {
    /// Who asks.
    pub holder: &'a H,
    /// The term, where the policy lets the request name it.
    pub ttl: Option<Duration>,
    /// How long it may wait.
    pub wait: Wait,
}

/// Who gets a lease, and what it gets.
pub(super) struct Grantee<H> {
    pub(super) owner: u32,
    pub(super) holder: H,
    /// A copy for the receipt, if one is kept.
    pub(super) named: Option<H>,
    pub(super) opening: Opening,
    pub(super) token: FencingToken,
    /// Then nobody has said anything about this grant, but about the call that led to it.
    pub(super) has_waited: bool,
}

impl<H: Holder> Request<'_, H> {
    fn action(&self) -> Action<H> {
        Action::Acquire {
            holder: self.holder.clone(),
            ttl: self.ttl,
        }
    }
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Asks for the lease of `resource`: [`Action::Acquire`] for who has the parts of the call in hand.
    ///
    /// The answer, the number and the kept receipt are those of [`call`](Self::call). With nothing in its
    /// way it copies the holder once, and the key only if another one was released last.
    pub fn acquire(
        &mut self,
        resource: &ResourceKey,
        request: Request<'_, H>,
        turn: &mut Turn<'_>,
    ) -> Step<H> {
        if self.is_pressing(turn) {
            let call = Call {
                resource: Some(resource.clone()),
                action: request.action(),
                wait: request.wait,
            };
            return self.call(&call, turn);
        }
        self.go_on_to(turn.seen.now);
        self.admit(resource, request, turn)
    }

    /// Answers a request.
    pub(super) fn admit(
        &mut self,
        key: &ResourceKey,
        request: Request<'_, H>,
        turn: &mut Turn<'_>,
    ) -> Step<H> {
        let place = self.store.prepare(key);
        let step = if self.queue.is_empty() && self.store.clear(place) {
            match self.grant(place, key, request, turn) {
                Ok((grant, change)) => return Step::Done(Outcome::Granted(grant, change)),
                Err(refusal) => refused(refusal),
            }
        } else if self.must_wait(place, &request) {
            return self.enqueue(place, key, request);
        } else {
            let action = request.action();
            let asked = Asked {
                key,
                place: Some(place),
                action: &action,
                me: None,
            };
            let decision = self.decide(&asked, &turn.seen);
            self.carry_out(&asked, request.wait, decision, turn)
        };
        self.store.prune(place);
        step
    }

    /// Whether a request for the key at `place` waits, whatever else there is: the lease there keeps it out.
    fn must_wait(&self, place: u32, request: &Request<'_, H>) -> bool {
        let lease = self.store.cell_at(Some(place)).and_then(Cell::lease);
        lease.is_some_and(|lease| {
            self.may_wait(request.wait)
                && bars(
                    &self.policy,
                    lease,
                    request.holder,
                    request.ttl,
                    self.latest,
                )
        })
    }

    /// Answers a request in an empty scene: the same decision as always, without a plan.
    #[inline(always)]
    fn grant(
        &mut self,
        place: u32,
        key: &ResourceKey,
        request: Request<'_, H>,
        turn: &mut Turn<'_>,
    ) -> Result<(Grant, Change), Refusal<H>> {
        let (opening, token) = self.open(request.ttl, turn)?;
        let grantee = Grantee {
            owner: self.store.owners.enter(request.holder),
            holder: self.store.owners.copy(request.holder),
            named: self.named(request.holder),
            opening,
            token,
            has_waited: false,
        };
        Ok(self.move_in(place, key, grantee, turn))
    }

    /// Decides a request that has nothing in its way, and draws what its lease gets. Until the lease is stored,
    /// nothing has happened.
    #[inline(always)]
    pub(super) fn open(
        &mut self,
        ttl: Option<Duration>,
        turn: &mut Turn<'_>,
    ) -> Result<(Opening, FencingToken), Refusal<H>> {
        let opening = unopposed(&self.policy, ttl, turn.seen.now)?;
        Ok((opening, self.fresh(turn)?.token()))
    }

    /// A copy of `holder`, if a receipt of a grant names it. Made before anything changes, since it may panic.
    #[inline]
    pub(super) fn named(&self, holder: &H) -> Option<H> {
        self.log.keeps_all().then(|| holder.clone())
    }

    /// Stores the lease that somebody gets of `key`, whose place is `place`. Nothing of the caller's runs here.
    #[inline(always)]
    pub(super) fn move_in(
        &mut self,
        place: u32,
        key: &ResourceKey,
        grantee: Grantee<H>,
        turn: &Turn<'_>,
    ) -> (Grant, Change) {
        let Grantee {
            owner,
            holder,
            named,
            opening,
            token,
            has_waited,
        } = grantee;
        let (Opening { expires, code }, now) = (opening, turn.seen.now);
        let terms = &self.policy;
        let lease = |holder| Lease::new(token, holder, terms.clone(), now, expires);
        let slot = self.store.put_at(place, key, (owner, holder), lease);
        let detail = Detail::Granted {
            expires,
            previous: None,
        };
        let (seq, at) = (self.next_seq(), self.latest);
        // Made where it goes: the copy of one that is kept and answered is not free.
        let change = || Change {
            seq,
            code,
            token: Some(token),
            at,
            detail,
        };
        if self.log.keeps_all() {
            let note = turn.note.as_ref().filter(|_| !has_waited);
            self.keep_alone(change(), (key, named), note, turn.seen.wall_ms);
        }
        (Grant::created(token, slot), change())
    }
}
