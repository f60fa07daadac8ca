//! Giving a lease back, by its grant or on somebody's behalf.

use lease_core::{Action, At, By, LeaseId, Mismatch, Question, Refusal, Verdict};

use super::record::Present;
use super::refused::{Refused, Verb};
use crate::holder::ProcessHolder;
use crate::id::Pid;

/// How a lease is given back.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "there are these two ways")]
pub enum Release {
    /// By the grant: its bearer runs, so nothing is asked about it.
    Grant(At),
    /// By whoever can state the full identity of the holder.
    OnBehalf(ReleaseOnBehalf),
}

/// A release on a holder's behalf.
///
/// Knowing the whole identity is the authority: this type makes that visible in code. For a holder
/// that lives nothing more is needed. For one that has exited it takes the lease id, and proof that
/// nobody of its group and no other process in the path is left.
///
/// Owner, lifecycle, bindings, drift and expiry play no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseOnBehalf {
    holder: ProcessHolder,
    lease: Option<LeaseId>,
}

impl ReleaseOnBehalf {
    /// Releases for this holder.
    #[must_use]
    pub const fn of(holder: ProcessHolder) -> Self {
        Self {
            holder,
            lease: None,
        }
    }

    /// Takes what somebody stated of a holder: all of it, or perhaps only a pid.
    ///
    /// # Errors
    ///
    /// [`Refused::HolderMissing`] without a complete identity: a pid alone names nobody.
    /// [`Refused::PidConflict`] if a pid beside it is another one's.
    pub fn stated(holder: Option<ProcessHolder>, pid: Option<Pid>) -> Result<Self, Refused> {
        let holder = holder.ok_or(Refused::HolderMissing {
            verb: Verb::Release,
        })?;
        match pid {
            Some(pid) if pid != holder.process().pid => Err(Refused::PidConflict),
            Some(_) | None => Ok(Self::of(holder)),
        }
    }

    /// Names the lease that is meant. It must be the recorded one.
    #[must_use]
    pub const fn with_lease(mut self, lease: LeaseId) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Returns the action for the core.
    ///
    /// A holder that was seen alive releases by itself; every other one has exited or is in doubt, and
    /// then the core asks for proof.
    #[must_use]
    pub fn action(&self, verdict: Option<&Verdict>) -> Action<ProcessHolder> {
        Action::Release(By::Holder {
            holder: self.holder.clone(),
            lease: self.lease,
            exited: verdict.is_some_and(|verdict| !matches!(verdict, Verdict::Alive(_))),
        })
    }

    /// Says what a refusal of the core means, given what was seen of the holder: who is left of its
    /// work is named.
    #[must_use]
    pub fn refused(refusal: Refusal<ProcessHolder>, verdict: Option<&Verdict>) -> Refused {
        match (refusal, verdict) {
            (Refusal::Mismatch(Mismatch::ExitedOccupied), Some(Verdict::Occupied(evidence))) => {
                Refused::ExitedOccupied(evidence.clone())
            }
            (refusal, _) => Refused::Core(refusal),
        }
    }

    /// Asks whether the holder lives, where its word alone would end the lease.
    ///
    /// Whatever else does not match is told by the core, and nobody need be looked at for it.
    #[must_use]
    pub fn question(&self, present: Present<'_>) -> Option<Question<ProcessHolder>> {
        let lease = present.lease;
        let meant = self.lease.is_none_or(|id| id == lease.token.lease);
        if !meant || lease.holder != self.holder {
            return None;
        }
        let proof = lease.terms.ends_on().process?;
        let mut question = [Question::new(
            lease.holder.clone(),
            lease.token,
            lease.handovers,
            proof,
        )];
        present.aim(&mut question);
        let [question] = question;
        Some(question)
    }
}
