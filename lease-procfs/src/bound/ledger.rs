//! The leases of a process-bound authority in memory, with what is filed beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use lease_core::{
    Action, AdoptProof, At, AuthorityId, By, Call, Change, Detail, FencingToken, Generation, Grant,
    LeasePolicy, Locality, Outcome, Provenance, Question, Receipts, Refusal, Registry, ResourceKey,
    Seen, Step, Turn, Verdict, Wait,
};

use super::admit::{Admission, Admitted, Request, Standing, admit};
use super::allocation::AllocationView;
use super::entitled::{Claim, Confirmed, Entitlement, entitled};
use super::name::AllocationId;
use super::receipt::{GrantReceipt, NotApplicable, Previous, ReleaseReceipt};
use super::record::{Filing, LeaseRecord, Present};
use super::refused::{MetadataFault, Refused};
use super::release::{Release, ReleaseOnBehalf};
use super::roles::RoleClassifier;
use super::wall::WallStamp;
use crate::holder::ProcessHolder;
use crate::id::BootId;

/// Process-bound leases in memory: a [`Registry`] and what is filed beside each of its leases.
///
/// It decides nothing: [`admit`] and [`entitled`] hold the gates, and the core says who gets a lease.
/// Like the registry it is plain data without lock, clock, randomness or `/proc`; one `Mutex` around
/// it is its shared form, and [`observing`](super::observing()) is the loop around that: a call that is
/// answered with [`Asked::Ask`] changed nothing, and is made again with the answers.
///
/// A durable store needs none of this: it calls [`admit`] inside its own transaction.
#[derive(Clone, Debug)]
pub struct Ledger {
    registry: Registry<ProcessHolder>,
    filings: BTreeMap<ResourceKey, Filing>,
    boot_id: BootId,
}

/// How far a call came.
#[derive(Debug)]
#[must_use = "a granted answer holds the only grant of its lease"]
#[expect(
    clippy::exhaustive_enums,
    reason = "every caller must handle every answer"
)]
pub enum Asked<T> {
    /// It is answered.
    Done(T),
    /// It must be known first whether these holders are there; observe, and call again.
    Ask(Vec<Question<ProcessHolder>>),
}

/// The answer to a request that was not refused.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without the grant the lease cannot be released by its bearer"]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Answered {
    /// The lease is granted, renewed or taken over.
    Granted {
        /// The capability.
        grant: Grant,
        /// What happened.
        receipt: Box<GrantReceipt>,
    },
    /// The role writes through a gate of its own. Nothing was granted.
    NotApplicable(NotApplicable),
}

/// How a lease passes to another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Adoption {
    /// Which lease.
    pub token: FencingToken,
    /// By whose will.
    pub proof: AdoptProof<ProcessHolder>,
    /// Who holds it then.
    pub to: ProcessHolder,
}

/// An operator's will that a lease ends.
///
/// A resource without a fence is *not* protected by it: a holder that lives may write on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Revocation {
    /// Which lease; another one is left alone.
    pub expected: Generation,
    /// Who says so.
    pub by: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// Also when nothing proves that the holder is gone.
    pub even_if_alive: bool,
}

impl Ledger {
    /// Makes an empty authority with a new random id, for leases of these terms.
    ///
    /// `boot_id` is filed with the leases: their moments mean something in this boot only.
    /// [`LeasePolicy::process_bound`] is the policy that these rules are written for.
    #[must_use]
    pub fn new(authority: AuthorityId, policy: LeasePolicy, boot_id: BootId) -> Self {
        Self {
            registry: Registry::new(authority, policy),
            filings: BTreeMap::new(),
            boot_id,
        }
    }

    /// Keeps up to `most` receipts of the core until they are taken.
    #[must_use]
    pub fn with_receipts(mut self, most: usize) -> Self {
        self.registry = self.registry.with_receipts(most);
        self
    }

    /// Takes the receipts kept since the last take, in order.
    pub fn take_receipts(&mut self) -> Receipts<ProcessHolder> {
        self.registry.take_receipts()
    }

    /// Returns the record of the lease of this allocation.
    #[must_use]
    pub fn record(&self, allocation: &AllocationId) -> Option<LeaseRecord> {
        self.present(allocation).map(LeaseRecord::from)
    }

    /// Returns what a check needs to see of this allocation's lease. No status is gathered.
    #[must_use]
    pub fn present(&self, allocation: &AllocationId) -> Option<Present<'_>> {
        Some(Present {
            lease: self.registry.lease(allocation.key())?,
            filing: self.filings.get(allocation.key())?,
            locality: Locality::ThisMachine,
        })
    }

    /// Asks for the lease of the allocation that `view` shows: the first one, a renewal, or a takeover
    /// from a holder that is proven gone.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing changed.
    pub fn acquire(
        &mut self,
        request: &Request<'_>,
        view: &AllocationView<'_>,
        roles: &dyn RoleClassifier,
        turn: &mut Turn<'_>,
    ) -> Result<Asked<Answered>, Refused> {
        let allocation = view.record.map(|record| &record.allocation);
        let standing = Standing {
            policy: self.registry.policy(),
            present: allocation.and_then(|allocation| self.present(allocation)),
            seen: self.clamped(turn.seen),
        };
        match admit(request, view, roles, &standing)? {
            Admission::NotApplicable(answer) => Ok(Asked::Done(Answered::NotApplicable(answer))),
            Admission::Ask(questions) => Ok(Asked::Ask(questions)),
            Admission::Run(admitted) => self.run(*admitted, turn),
        }
    }

    /// Says whether a holder may write now. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Refused`] says why not.
    pub fn entitled(&self, claim: &Claim<'_>, seen: Seen<'_>) -> Result<Asked<Confirmed>, Refused> {
        let present = self.present(&claim.place.allocation);
        match entitled(present, claim, &self.clamped(seen))? {
            Entitlement::Confirmed(confirmed) => Ok(Asked::Done(confirmed)),
            Entitlement::Ask(questions) => Ok(Asked::Ask(questions)),
        }
    }

    /// Gives a lease back. Where nothing is held, that is a normal answer.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing changed.
    pub fn release(
        &mut self,
        allocation: &AllocationId,
        release: &Release,
        turn: &mut Turn<'_>,
    ) -> Result<Asked<ReleaseReceipt>, Refused> {
        let present = self.present(allocation);
        let verdict = present.and_then(|present| present.verdict(turn.seen.answers));
        let action = match release {
            Release::Grant(at) => Action::Release(By::Token(*at)),
            Release::OnBehalf(on_behalf) => {
                let unasked = present.filter(|_| verdict.is_none());
                if let Some(question) = unasked.and_then(|present| on_behalf.question(present)) {
                    return Ok(Asked::Ask(vec![question]));
                }
                on_behalf.action(verdict)
            }
        };
        let verdict = verdict.cloned();
        let decided = self.decide(allocation, action, turn);
        let decided = decided.map_err(|refused| match refused {
            Refused::Core(refusal) => ReleaseOnBehalf::refused(refusal, verdict.as_ref()),
            gate => gate,
        })?;
        Ok(match decided {
            Asked::Ask(questions) => Asked::Ask(questions),
            Asked::Done((_, change)) => {
                let removed = self.filings.remove(allocation.key());
                let (allocation, removed) = (allocation.clone(), removed.as_ref());
                let evidence = verdict.as_ref().map(Verdict::evidence).cloned();
                Asked::Done(ReleaseReceipt::new(change, allocation, removed, evidence)?)
            }
        })
    }

    /// Stores a one-use ticket with which another process may adopt the lease: a child, or the same
    /// process after `exec`.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing changed.
    pub fn offer(
        &mut self,
        allocation: &AllocationId,
        at: At,
        ticket: [u8; 16],
        turn: &mut Turn<'_>,
    ) -> Result<Change, Refused> {
        let action = Action::Offer { at, ticket };
        match self.decide(allocation, action, turn)? {
            Asked::Done((_, change)) => Ok(change),
            // The bearer of a token is asked nothing.
            Asked::Ask(_) => Err(Refused::Core(Refusal::Misaddressed)),
        }
    }

    /// Hands the lease to another holder, with the same token: by the ticket that was offered, or by
    /// the present holder's will.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing changed.
    pub fn adopt(
        &mut self,
        allocation: &AllocationId,
        adoption: Adoption,
        turn: &mut Turn<'_>,
    ) -> Result<(Grant, Change), Refused> {
        let Adoption { token, proof, to } = adoption;
        let action = Action::Adopt { token, proof, to };
        match self.decide(allocation, action, turn)? {
            Asked::Done((Some(grant), change)) => {
                if let Some(filing) = self.filings.get_mut(allocation.key()) {
                    filing.hand_over();
                }
                Ok((grant, change))
            }
            // A hand-over needs no evidence and always gives a grant.
            Asked::Done((None, _)) | Asked::Ask(_) => Err(Refused::Core(Refusal::Misaddressed)),
        }
    }

    /// Retires a lease by an operator's will.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing changed.
    pub fn revoke(
        &mut self,
        allocation: &AllocationId,
        revocation: Revocation,
        turn: &mut Turn<'_>,
    ) -> Result<Asked<Change>, Refused> {
        let Revocation {
            expected,
            by,
            reason,
            even_if_alive,
        } = revocation;
        let action = Action::Revoke {
            expected,
            by,
            reason,
            even_if_alive,
        };
        Ok(match self.decide(allocation, action, turn)? {
            Asked::Ask(questions) => Asked::Ask(questions),
            Asked::Done((_, change)) => {
                self.filings.remove(allocation.key());
                Asked::Done(change)
            }
        })
    }

    /// Lets the core decide on an admitted request, and files what it did.
    fn run(&mut self, admitted: Admitted, turn: &mut Turn<'_>) -> Result<Asked<Answered>, Refused> {
        let Admitted { action, place } = admitted;
        let allocation = place.allocation.clone();
        let replaced = self.record(&allocation);
        let (grant, change) = match self.decide(&allocation, action, turn)? {
            Asked::Ask(questions) => return Ok(Asked::Ask(questions)),
            Asked::Done((Some(grant), change)) => (grant, change),
            // An acquire that is not refused always gives a grant.
            Asked::Done((None, _)) => return Err(Refused::Core(Refusal::Misaddressed)),
        };
        let wall = turn
            .seen
            .wall_ms
            .and_then(|ms| WallStamp::from_millis(ms).ok());
        let filing = match (grant.provenance, self.filings.remove(allocation.key())) {
            (Provenance::Reentrant, Some(mut filing)) => {
                filing.renew(change.at, wall);
                filing
            }
            (Provenance::Created | Provenance::Reentrant, _) => {
                Filing::new(place, self.boot_id, change.at, wall)
            }
        };
        self.filings.insert(allocation.key().clone(), filing);
        let taken = match change.detail {
            Detail::Granted { previous, .. } => previous,
            _ => None,
        };
        let previous = replaced
            .filter(|replaced| taken == Some(replaced.lease.token))
            .map(|replaced| {
                let seen = replaced.present(Locality::ThisMachine);
                let evidence = seen.verdict(turn.seen.answers).map(Verdict::evidence);
                Previous::new(&replaced, evidence.cloned())
            });
        let record = self
            .record(&allocation)
            .ok_or(Refused::Metadata(MetadataFault::Vanished))?;
        let receipt = Box::new(GrantReceipt::new(change, &record, previous));
        Ok(Asked::Done(Answered::Granted { grant, receipt }))
    }

    /// Lets the core decide at the resource of an allocation.
    fn decide(
        &mut self,
        allocation: &AllocationId,
        action: Action<ProcessHolder>,
        turn: &mut Turn<'_>,
    ) -> Result<Asked<(Option<Grant>, Change)>, Refused> {
        let call = Call {
            resource: Some(allocation.key().clone()),
            action,
            wait: Wait::No,
        };
        match self.registry.call(&call, turn) {
            Step::Done(Outcome::Granted(grant, change)) => Ok(Asked::Done((Some(grant), change))),
            Step::Done(Outcome::Done(change)) => Ok(Asked::Done((None, change))),
            Step::Done(Outcome::Refused(refusal)) => Err(Refused::Core(refusal)),
            Step::Ask(mut questions) => {
                if let Some(present) = self.present(allocation) {
                    present.aim(&mut questions);
                }
                Ok(Asked::Ask(questions))
            }
            // Only Disconnect and Sweep have many answers, and nobody waits here.
            Step::Done(Outcome::Many(_)) | Step::Queued(_) => {
                Err(Refused::Core(Refusal::Misaddressed))
            }
        }
    }

    /// The same, at no earlier moment than the latest one seen.
    fn clamped<'a>(&self, mut seen: Seen<'a>) -> Seen<'a> {
        seen.now = seen.now.max(self.registry.latest());
        seen
    }
}
