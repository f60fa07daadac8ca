//! What a history drives: an authority with everything that is seen of it.

use std::hash::{BuildHasherDefault, DefaultHasher};

use lease_core::{
    AuthorityId, Call, Change, FenceGate, Fenced, FencingToken, Generation, Grant, LeasePolicy,
    Moment, Question, Receipt, Refusal, Registry, ResourceKey, Step, Turn, WaiterId,
};

use super::holder::SimHolder;
use crate::oracle::{Due, Listed};

/// An authority under test. The shipped one is [`Registry`]; tests put a broken one in its place, to
/// see that the breakage is found.
pub trait Driver: Sized {
    /// Starts an empty authority.
    fn start(authority: AuthorityId, policy: LeasePolicy) -> Self;

    /// Answers one call.
    fn call(&mut self, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder>;

    /// Lets time pass.
    fn advance(&mut self, turn: &mut Turn<'_>) -> Vec<Change>;

    /// Takes a waiting request back.
    fn cancel(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) -> bool;

    /// Gives back a grant whose receiver is gone.
    fn abandon(&mut self, resource: &ResourceKey, grant: Grant, turn: &mut Turn<'_>);

    /// Takes the next request that was answered after waiting.
    fn take_settled(&mut self) -> Option<Answered>;

    /// Takes the receipts since the last take.
    fn take_receipts(&mut self) -> Vec<Receipt<SimHolder>>;

    /// Lists what is held, in order of resources, and changes nothing.
    fn listed(&self, now: Moment) -> Vec<Listed<SimHolder>>;

    /// Makes every later generation larger than `floor`.
    fn raise_floor(&mut self, floor: Generation);

    /// Returns what must be known for those who wait.
    fn questions(&self) -> Vec<Question<SimHolder>>;

    /// Returns the next moment at which something is due.
    fn due(&self) -> Due {
        Due::Unnamed
    }

    /// Returns how many places for keys and timers are in use, if it keeps any.
    fn footprint(&self) -> Option<(usize, usize)> {
        None
    }

    /// Checks a token at a resource.
    ///
    /// # Errors
    ///
    /// What the gate says.
    fn enter(&self, gate: &mut FenceGate, token: &FencingToken) -> Result<(), Fenced> {
        gate.enter(token)
    }
}

/// The answer to a request that waited.
#[derive(Debug)]
#[must_use = "a grant that nobody takes must be abandoned"]
#[expect(clippy::exhaustive_structs, reason = "a driver gives every part")]
pub struct Answered {
    /// Which request.
    pub waiter: WaiterId,
    /// For which resource.
    pub resource: ResourceKey,
    /// The grant, or why there is none.
    pub outcome: Result<Grant, Refusal<SimHolder>>,
}

/// The shipped authority. Its hasher is fixed, so that a history is the same in every run.
pub type Shipped = Registry<SimHolder, BuildHasherDefault<DefaultHasher>>;

impl Driver for Shipped {
    fn start(authority: AuthorityId, policy: LeasePolicy) -> Self {
        Self::with_hasher(authority, policy, BuildHasherDefault::default()).with_receipts(1 << 12)
    }

    fn call(&mut self, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        Self::call(self, call, turn)
    }

    fn advance(&mut self, turn: &mut Turn<'_>) -> Vec<Change> {
        Self::advance(self, turn)
    }

    fn cancel(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) -> bool {
        Self::cancel(self, waiter, turn)
    }

    fn abandon(&mut self, resource: &ResourceKey, grant: Grant, turn: &mut Turn<'_>) {
        Self::abandon(self, resource, grant, turn);
    }

    fn take_settled(&mut self) -> Option<Answered> {
        let settled = Self::take_settled(self)?;
        Some(Answered {
            waiter: settled.waiter,
            resource: settled.resource,
            outcome: settled.outcome.map(|(grant, _)| grant),
        })
    }

    fn take_receipts(&mut self) -> Vec<Receipt<SimHolder>> {
        Self::take_receipts(self).receipts
    }

    fn listed(&self, now: Moment) -> Vec<Listed<SimHolder>> {
        self.peek(now).iter().map(Listed::from).collect()
    }

    fn raise_floor(&mut self, floor: Generation) {
        Self::raise_floor(self, floor);
    }

    fn questions(&self) -> Vec<Question<SimHolder>> {
        Self::questions(self)
    }

    fn due(&self) -> Due {
        self.next_deadline().into()
    }

    fn footprint(&self) -> Option<(usize, usize)> {
        Some(Self::footprint(self))
    }
}
