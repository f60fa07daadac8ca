//! Who waits, and the naive answer to who could go.

use std::collections::BTreeMap;

use lease_core::{
    Action, Answer, Call, Code, Detail, FencingToken, Holder, LeasePolicy, Moment, Receipt,
    ResourceKey, Wait, WaiterId,
};

use super::leases::{Lease, Leases};
use super::overlap;
use super::rule::{Breach, Rule, require};

/// A receipt about a request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting(WaiterId);

/// One request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter<H> {
    pub(super) holder: H,
    key: ResourceKey,
    deadline: Option<Moment>,
}

/// What counts when it is asked who could go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) answers: &'a [Answer],
    pub(super) policy: &'a LeasePolicy,
    pub(super) now: Moment,
}

/// Who waits, in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Queue<H>(BTreeMap<WaiterId, Waiter<H>>);

impl Waiting {
    pub(super) fn of<H>(receipt: &Receipt<H>) -> Option<Self> {
        match receipt.change.detail {
            Detail::Waiting { waiter } => Some(Self(waiter)),
            _ => None,
        }
    }
}

impl<H: Holder> Queue<H> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.0.values().map(|waiter| &waiter.key)
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = Moment> {
        self.0.values().filter_map(|waiter| waiter.deadline)
    }

    pub(super) fn waits_any(&self, holder: &H) -> bool {
        self.0.values().any(|waiter| waiter.holder == *holder)
    }

    /// Whoever is said to leave the queue was in it, and whoever enters was not.
    pub(super) fn receipt(&mut self, waiting: &Waiting, code: Code) -> Result<(), Breach> {
        let known = self.0.contains_key(&waiting.0);
        require(
            known == (code != Code::Queued),
            Rule::ReceiptsReplay,
            || {
                format!(
                    "{code} of request {} while it was known: {known}",
                    waiting.0
                )
            },
        )?;
        // Whoever leaves is in nobody's way for the rest of the call.
        self.0.remove(&waiting.0);
        Ok(())
    }

    /// Takes down a request that waits from now on.
    pub(super) fn push(&mut self, id: WaiterId, call: &Call<H>) -> Result<(), Breach> {
        let (Some(key), Action::Acquire { holder, .. }) = (&call.resource, &call.action) else {
            return Err(Breach::new(
                Rule::NoLostHandOver,
                "something waits that asks for nothing",
            ));
        };
        let deadline = match call.wait {
            Wait::Until(deadline) => Some(deadline),
            Wait::Forever | Wait::No => None,
        };
        let last = self.0.last_key_value().map(|(last, _)| *last);
        require(
            last.is_none_or(|last| last < id),
            Rule::NoOvertaking,
            || format!("request {id} got a place before {last:?}"),
        )?;
        let waiter = Waiter {
            holder: holder.clone(),
            key: key.clone(),
            deadline,
        };
        self.0.insert(id, waiter);
        Ok(())
    }

    /// Forgets a request that was answered.
    pub(super) fn settle(&mut self, id: WaiterId) -> Option<Waiter<H>> {
        self.0.remove(&id)
    }

    /// Nobody waits past the deadline.
    pub(super) fn none_is_late(&self, now: Moment) -> Result<(), Breach> {
        let late = self
            .0
            .iter()
            .find(|(_, waiter)| waiter.deadline.is_some_and(|deadline| deadline <= now));
        require(late.is_none(), Rule::WaitsEnd, || {
            let (id, deadline) = late.map(|(id, waiter)| (id, waiter.deadline)).unzip();
            format!("request {id:?} waits at {now}, its deadline was {deadline:?}")
        })
    }

    /// A new lease passed nobody who still waits, unless its writer blocks that one.
    ///
    /// The new lease is known already; it does not count as what blocks.
    pub(super) fn overtaken(
        &self,
        receipt: &Receipt<H>,
        settled: &[(WaiterId, Option<FencingToken>)],
        leases: &Leases<H>,
    ) -> Result<(), Breach> {
        let (Some(token), Some(holder), Some(key)) =
            (receipt.change.token, &receipt.holder, &receipt.resource)
        else {
            return Ok(());
        };
        let place = settled
            .iter()
            .find(|(_, granted)| *granted == Some(token))
            .map(|(waiter, _)| *waiter);
        let before = |lease: &Lease<H>| lease.token != token;
        let ours = |key: &ResourceKey| leases.holds(holder, key, &before);
        let passed = self
            .0
            .iter()
            .take_while(|(id, _)| place.is_none_or(|place| **id < place))
            .filter(|(id, _)| !settled.iter().any(|(settled, _)| settled == *id))
            .find(|(id, front)| {
                front.holder != *holder
                    && overlap(&front.key, key)
                    && !self.waits_for(**id, front, holder, &ours)
            });
        require(passed.is_none(), Rule::NoOvertaking, || {
            let passed = passed.map(|(id, front)| (id, &front.holder));
            format!("{receipt} passed {passed:?}")
        })
    }

    /// Nobody waits who could go.
    pub(super) fn nobody_could_go(
        &self,
        leases: &Leases<H>,
        scene: &Scene<'_>,
    ) -> Result<(), Breach> {
        for (id, waiter) in &self.0 {
            let could = self.could_go(*id, waiter, leases, scene);
            require(!could, Rule::NoLostHandOver, || {
                format!(
                    "request {id} of {:?} for {} could go and waits",
                    waiter.holder, waiter.key
                )
            })?;
        }
        Ok(())
    }

    fn could_go(
        &self,
        id: WaiterId,
        waiter: &Waiter<H>,
        leases: &Leases<H>,
        scene: &Scene<'_>,
    ) -> bool {
        let own = leases.at(&waiter.key);
        if own.is_some_and(|own| own.holder == waiter.holder) {
            // It would be a re-entry, which never waits.
            return true;
        }
        let asks = scene.policy.ends_on().process.is_some() || scene.policy.ends_on().session;
        let gone = |lease: &Lease<H>| asks && lease.proven(scene.answers);
        let in_the_way = leases
            .near(&waiter.key)
            .any(|lease| lease.holder != waiter.holder && !gone(lease));
        let counts = |lease: &Lease<H>| !lease.lapsed(scene.policy, scene.now);
        let ours = |key: &ResourceKey| leases.holds(&waiter.holder, key, &counts);
        let behind = self.0.range(..id).any(|(front_id, front)| {
            front.holder != waiter.holder
                && overlap(&front.key, &waiter.key)
                && !self.waits_for(*front_id, front, &waiter.holder, &ours)
        });
        !in_the_way && !behind
    }

    /// Whether a request waits for a lease of `holder`, or behind another that does. Whoever waits
    /// behind such a one would wait for itself.
    fn waits_for(
        &self,
        id: WaiterId,
        waiter: &Waiter<H>,
        holder: &H,
        ours: &dyn Fn(&ResourceKey) -> bool,
    ) -> bool {
        ours(&waiter.key)
            || self.0.range(..id).any(|(front_id, front)| {
                front.holder != waiter.holder
                    && front.holder != *holder
                    && overlap(&front.key, &waiter.key)
                    && self.waits_for(*front_id, front, holder, ours)
            })
    }
}
