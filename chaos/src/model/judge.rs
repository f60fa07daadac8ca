//! The laws of a single step: what may change by what, said without the core's own words.

use lease_core::{
    Code, Detail, Disposition, FencingToken, Lease, Provenance, Receipt, SessionHolder,
};

use super::law::{Breach, Law, require};
use super::queue::{Request, is_in_front};
use super::world::{Act, Answered, Place, Said, Setup, Sight, Sights, World, over};

type Judgement = Result<(), Breach>;

/// A step from one world to the next.
pub(super) struct Stepped<'a> {
    pub(super) setup: &'a Setup,
    pub(super) before: &'a World,
    pub(super) act: Act,
    pub(super) answered: &'a Answered,
    pub(super) after: &'a World,
}

impl Stepped<'_> {
    /// Checks every law of a step.
    pub(super) fn judge(&self) -> Judgement {
        if let Act::Pass(_) = self.act {
            return Ok(());
        }
        one_holder(self.setup, self.after)?;
        self.answer_is_true()?;
        self.receipts()?;
        self.every_end_has_a_receipt()?;
        self.disconnect_is_complete()?;
        self.refusal_changes_nothing()?;
        let counted = self.after.registry.waiting();
        require(
            counted == self.after.waiting.len(),
            Law::WaitersAreCounted,
            || format!("{counted} wait, and {} should", self.after.waiting.len()),
        )?;
        if self.sweeps() {
            self.nothing_is_due()?;
        }
        Ok(())
    }

    /// Whoever is told that he got a lease is its holder.
    fn answer_is_true(&self) -> Judgement {
        let mut told = Vec::new();
        if let (Act::Acquire { who, key, .. }, Said::Granted { at, .. }) =
            (self.act, self.answered.said)
        {
            told.push((who, key, at.token));
        }
        let new = |id| !self.before.granted.iter().any(|known| known.id == id);
        told.extend(
            (self.after.granted.iter())
                .filter(|granted| new(granted.id))
                .map(|granted| (granted.who, granted.key, granted.at.token)),
        );
        for (who, key, token) in told {
            let held = self.after.lease(self.setup, key).is_some_and(|lease| {
                lease.token == token && self.setup.writer_of(&lease.holder) == Some(who)
            });
            require(held, Law::OneHolder, || {
                format!(
                    "{} was told that it holds {}, and it does not",
                    self.setup.who(who),
                    self.setup.key(key)
                )
            })?;
        }
        Ok(())
    }

    /// Goes through the receipts in order, with what is held and who waits at each.
    fn receipts(&self) -> Judgement {
        let mut newest = self.before.newest;
        let mut held: Vec<(Place, Place, FencingToken)> = self
            .before
            .leases(self.setup)
            .filter_map(|(key, lease)| {
                Some((key, self.setup.writer_of(&lease.holder)?, lease.token))
            })
            .collect();
        let mut queue: Vec<Request> = self.before.waiting.iter().map(Request::of).collect();
        for receipt in &self.answered.receipts {
            if let Detail::Waiting { waiter } = receipt.change.detail {
                queue.retain(|request| request.id != waiter);
            }
            if let Some(ended) = ended(receipt) {
                self.may_end(ended, receipt)?;
                held.retain(|(.., token)| *token != ended);
            }
            if let Detail::HandedOver { .. } = receipt.change.detail {
                let to = receipt.holder.as_ref();
                let to = to.and_then(|holder| self.setup.writer_of(holder));
                for (_, who, token) in &mut held {
                    if Some(*token) == receipt.change.token {
                        *who = to.unwrap_or(*who);
                    }
                }
            }
            if let Some((key, who, token)) = self.new_lease(receipt) {
                let generation = token.generation.get();
                require(generation > newest, Law::GenerationsGrow, || {
                    format!("generation {generation} after {newest}")
                })?;
                newest = generation;
                self.is_its_turn((key, who, token), &held, &mut queue)?;
                held.push((key, who, token));
            }
        }
        Ok(())
    }

    fn new_lease(&self, receipt: &Receipt<SessionHolder>) -> Option<(Place, Place, FencingToken)> {
        let Detail::Granted { .. } = receipt.change.detail else {
            return None;
        };
        let key = self.setup.key_of(receipt.resource.as_ref()?)?;
        let who = self.setup.writer_of(receipt.holder.as_ref()?)?;
        Some((key, who, receipt.change.token?))
    }

    /// A new lease goes to who asks or waits, and past nobody who was there before.
    fn is_its_turn(
        &self,
        (key, who, token): (Place, Place, FencingToken),
        held: &[(Place, Place, FencingToken)],
        queue: &mut Vec<Request>,
    ) -> Judgement {
        let asked = matches!(
            (self.act, self.answered.said),
            (
                Act::Acquire { who: asks, key: wanted, .. },
                Said::Granted { at, provenance: Provenance::Created },
            ) if asks == who && wanted == key && at.token == token
        );
        let place = if asked {
            queue.len()
        } else {
            let waits = |request: &Request| request.who == who && request.key == key;
            let Some(place) = queue.iter().position(waits) else {
                return require(false, Law::OnlyWhoAsks, || {
                    format!(
                        "{} got {} and neither asked nor waits",
                        self.setup.who(who),
                        self.setup.key(key)
                    )
                });
            };
            queue.remove(place);
            place
        };
        let held: Vec<_> = held.iter().map(|(key, who, _)| (*key, *who)).collect();
        let front = is_in_front(self.setup, (queue.as_slice(), place), &held, (who, key));
        require(front.is_none(), Law::NoOvertaking, || {
            format!(
                "{} got {} past {}",
                self.setup.who(who),
                self.setup.key(key),
                front
                    .map(|front| self.setup.who(front.who))
                    .unwrap_or_default()
            )
        })
    }

    /// Judges the end of a lease.
    fn may_end(&self, token: FencingToken, receipt: &Receipt<SessionHolder>) -> Judgement {
        let mut before = self.before.leases(self.setup);
        let Some((key, lease)) = before.find(|(_, lease)| lease.token == token) else {
            return require(false, Law::EndsHaveCauses, || {
                format!(
                    "generation {} ended in the call that made it",
                    token.generation
                )
            });
        };
        let idle = lease.ops.is_empty();
        let what = || format!("generation {}, {}", token.generation, receipt.change.code);
        match (receipt.change.detail, receipt.change.code) {
            (Detail::Reclaimed { .. }, _) => {
                let now = self.before.now;
                let expired = lease.expires.is_some_and(|last| last.as_nanos() < now);
                require(expired || !self.doubtful(key), Law::DoubtNeverGrants, what)?;
                require(expired, Law::NoEarlyExpiry, what)?;
                require(idle, Law::InFlightShields, what)
            }
            (Detail::Disconnected { .. }, _) => {
                let gone = self.setup.writer_of(&lease.holder);
                let named = matches!(self.act, Act::Disconnect(who) if Some(who) == gone);
                require(named, Law::EndsHaveCauses, what)
            }
            (Detail::Failed { .. }, _) => {
                let own = match self.act {
                    Act::End {
                        key: at,
                        nth,
                        result: Err(Disposition::PreMutation | Disposition::RolledBack),
                    } if at == key => lease.ops.get(nth).map(|op| op.from),
                    _ => None,
                };
                let frees = own == Some(Provenance::Created) && !lease.shared;
                require(frees, Law::FailureFreesItsOwn, what)
            }
            (Detail::Released { .. }, Code::Abandoned) => {
                let unused = !lease.shared && !lease.begun && idle;
                let frees = unused && self.gives_back(key, lease);
                require(frees, Law::FailureFreesItsOwn, what)
            }
            (Detail::Released { .. }, Code::Revoked) => {
                let named = matches!(
                    self.act,
                    Act::Revoke(at, None | Some(Sight::Dead)) if at == key
                );
                require(named, Law::EndsHaveCauses, what)
            }
            (Detail::Released { exited: false, .. }, _) => {
                let named = matches!(self.act, Act::Release(at) if at == key);
                require(named && idle, Law::EndsHaveCauses, what)
            }
            (Detail::Released { .. } | Detail::Granted { .. }, _) => {
                require(self.proven_dead(key), Law::DoubtNeverGrants, what)
            }
            _ => require(false, Law::EndsHaveCauses, what),
        }
    }

    /// Whether the call gives back a grant of this lease that made it.
    fn gives_back(&self, key: Place, lease: &Lease<SessionHolder>) -> bool {
        let granted = match self.act {
            Act::Abandon(at) => return at == key,
            Act::CancelGranted(nth) => self.before.granted.get(nth),
            Act::GiveBack => self.before.granted.first(),
            _ => None,
        };
        granted.is_some_and(|granted| {
            granted.at.token == lease.token && granted.provenance == Provenance::Created
        })
    }

    /// Whether the call brought the proof that the holder at `key` is gone.
    fn proven_dead(&self, key: Place) -> bool {
        match self.act {
            Act::Acquire { seen, .. } => match seen {
                Sights::All(sight) => sight == Sight::Dead,
                Sights::Of(at, sight) => at == key && sight == Sight::Dead,
                Sights::Disagreeing | Sights::None => false,
            },
            Act::Observe(at, sight)
            | Act::ReleaseExited(at, sight)
            | Act::Revoke(at, Some(sight)) => at == key && sight == Sight::Dead,
            _ => false,
        }
    }

    /// Whether the call brought an observation of the holder at `key` that is no proof.
    fn doubtful(&self, key: Place) -> bool {
        match self.act {
            Act::Acquire { seen, .. } => match seen {
                Sights::All(sight) => sight != Sight::Dead,
                Sights::Of(at, sight) => at == key && sight != Sight::Dead,
                Sights::Disagreeing => true,
                Sights::None => false,
            },
            Act::Observe(at, sight) => at == key && sight != Sight::Dead,
            _ => false,
        }
    }

    fn every_end_has_a_receipt(&self) -> Judgement {
        for (key, lease) in self.before.leases(self.setup) {
            let after = self.after.lease(self.setup, key);
            let there = after.is_some_and(|after| after.token == lease.token);
            let mut receipts = self.answered.receipts.iter();
            let told = there || receipts.any(|receipt| ended(receipt) == Some(lease.token));
            require(told, Law::EndsHaveCauses, || {
                format!(
                    "generation {} is gone without a receipt",
                    lease.token.generation
                )
            })?;
        }
        Ok(())
    }

    fn disconnect_is_complete(&self) -> Judgement {
        let Act::Disconnect(who) = self.act else {
            return Ok(());
        };
        let holds = self.after.leases(self.setup).any(|(_, lease)| {
            lease.terms.ends_on().disconnect && self.setup.writer_of(&lease.holder) == Some(who)
        });
        let waits = self.after.waiting.iter().any(|waiting| waiting.who == who);
        require(!holds && !waits, Law::DisconnectIsComplete, || {
            format!("{} holds: {holds}, waits: {waits}", self.setup.who(who))
        })
    }

    fn refusal_changes_nothing(&self) -> Judgement {
        let refused = matches!(
            self.answered.said,
            Said::Refused | Said::Asked | Said::Queued
        );
        // Whoever the sweep lets in may change leases of its own.
        let only_swept = self.answered.receipts.iter().all(|receipt| {
            matches!(
                receipt.change.detail,
                Detail::Reclaimed { .. } | Detail::Waiting { .. }
            )
        });
        if !refused || !only_swept {
            return Ok(());
        }
        let now = self.before.now;
        for (key, lease) in self.before.leases(self.setup) {
            let same = over(lease, now) || self.after.lease(self.setup, key) == Some(lease);
            require(same, Law::RefusalsChangeNothing, || {
                format!("the lease of {} changed", self.setup.key(key))
            })?;
        }
        Ok(())
    }

    /// Whether the call notices what is due. A disconnect and the taking back of a request do not.
    const fn sweeps(&self) -> bool {
        !matches!(
            self.act,
            Act::Pass(_)
                | Act::Disconnect(_)
                | Act::Cancel(_)
                | Act::CancelGranted(_)
                | Act::Fetch
                | Act::GiveBack
        )
    }

    fn nothing_is_due(&self) -> Judgement {
        let now = self.after.now;
        for (key, lease) in self.after.leases(self.setup) {
            require(!over(lease, now), Law::DueAreReclaimed, || {
                format!(
                    "the lease of {} is over and still there",
                    self.setup.key(key)
                )
            })?;
        }
        for waiting in &self.after.waiting {
            let waits = waiting.deadline.is_none_or(|deadline| deadline > now);
            require(waits, Law::WaitsEnd, || {
                format!("{} waits past its deadline", self.setup.who(waiting.who))
            })?;
        }
        Ok(())
    }
}

/// The lease that a receipt ends.
fn ended(receipt: &Receipt<SessionHolder>) -> Option<FencingToken> {
    match receipt.change.detail {
        Detail::Granted { previous, .. } => previous,
        Detail::Released { .. }
        | Detail::Disconnected { .. }
        | Detail::Reclaimed { .. }
        | Detail::Failed { .. } => receipt.change.token,
        _ => None,
    }
}

/// No two holders at overlapping resources, over or not.
pub(super) fn one_holder(setup: &Setup, world: &World) -> Judgement {
    for (one, first) in world.leases(setup) {
        for (other, second) in world.leases(setup) {
            let apart = one == other || !setup.overlap(one, other) || first.holder == second.holder;
            require(apart, Law::OneHolder, || {
                format!(
                    "{:?} and {:?} hold overlapping resources",
                    first.holder, second.holder
                )
            })?;
        }
    }
    Ok(())
}
