//! The one decision: a pure function of terms, scene, action and what was seen.
//!
//! Nothing outside this folder says who gets a lease. The tables are:
//!
//! - `bearer`: what whoever shows a token may do with its lease;
//! - `contend`: what another holder's lease means for a request;
//! - `again`: what a request of the present holder means;
//! - `fate`: what the end of an operation does to its lease.

mod acquire;
mod bearer;
mod fate;
mod handover;
mod release;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use self::acquire::{Opening, bars, first_in_front, refused_by, stands, unopposed};
pub(crate) use self::bearer::{Bearer, Effect, shown};
use crate::action::{Action, By, Scene, Seen};
use crate::cell::{Cell, Lease};
use crate::change::{Detail, ObservedBy};
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{At, FencingToken};
use crate::key::ResourceKey;
use crate::limits::SWEEP_LEASES;
use crate::liveness::{Evidence, Question, Verdict};
use crate::plan::{Ending, Own, Plan};
use crate::policy::{Again, LeasePolicy, ProcessProof};
use crate::refusal::Refusal;

/// What was decided.
#[derive(Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "every driver must handle every answer"
)]
pub enum Decision<H: Holder> {
    /// These changes, to be committed.
    Change(Plan<H>),
    /// No.
    Refuse(Refusal<H>),
    /// Facts are missing; ask, and call again with the answers.
    Ask(Vec<Question<H>>),
}

/// Decides what `action` does to the cells of `scene`. Changes nothing.
///
/// `policy` gives the terms of new leases; a present lease is judged by the terms stored in it.
/// Where a fact is missing that the terms ask for, the answer is [`Decision::Ask`]: the driver
/// gathers evidence outside any lock and calls again. An answer about another grant, or about an
/// earlier holder of this one, is inert.
///
/// A [`Decision::Change`] also ends the leases of `scene.due` that are over (except for
/// `Disconnect`). A refusal changes nothing, so a driver that sweeps commits [`sweep`] first, in the
/// same critical section, and gives no `due` here.
///
/// The same arguments always give the same answer.
pub fn decide<H: Holder>(
    policy: &LeasePolicy,
    scene: &Scene<'_, H>,
    action: &Action<H>,
    seen: &Seen<'_>,
) -> Decision<H> {
    let case = Case {
        policy,
        scene,
        seen,
    };
    match action {
        Action::Sweep => Decision::Change(sweep(policy, scene, action, seen)),
        Action::Disconnect(holder) => Decision::Change(release::disconnect(&case, holder)),
        Action::Acquire { .. }
        | Action::Touch(_)
        | Action::Renew { .. }
        | Action::Begin { .. }
        | Action::End { .. }
        | Action::Release(_)
        | Action::Offer { .. }
        | Action::Adopt { .. }
        | Action::Revoke { .. }
        | Action::Check(_) => match scene.own {
            Some((key, cell)) => at_resource(&case, key, cell, action),
            None => Decision::Refuse(Refusal::Misaddressed),
        },
    }
}

/// Decides which leases of `scene.due` are over, as noticed by `action`.
///
/// The sweep before every call but a disconnect: a lease that is expired and still there when its
/// holder disconnects ends by the disconnect.
pub fn sweep<H: Holder>(
    policy: &LeasePolicy,
    scene: &Scene<'_, H>,
    action: &Action<H>,
    seen: &Seen<'_>,
) -> Plan<H> {
    let observed_by = match action {
        Action::Acquire { .. } => ObservedBy::Request,
        Action::Sweep => ObservedBy::Inspection,
        Action::Touch(_)
        | Action::Renew { .. }
        | Action::Begin { .. }
        | Action::End { .. }
        | Action::Release(_)
        | Action::Offer { .. }
        | Action::Adopt { .. }
        | Action::Revoke { .. }
        | Action::Check(_) => ObservedBy::TokenCall,
        Action::Disconnect(_) => {
            return Plan {
                at: seen.now,
                ended: Vec::new(),
                own: Own::Nothing,
            };
        }
    };
    Case {
        policy,
        scene,
        seen,
    }
    .plan(observed_by, Own::Nothing)
}

/// Decides an action that concerns one resource.
fn at_resource<H: Holder>(
    case: &Case<'_, H>,
    key: &ResourceKey,
    cell: &Cell<H>,
    action: &Action<H>,
) -> Decision<H> {
    let site = Site { case, key, cell };
    match action {
        Action::Acquire { holder, ttl } => acquire::acquire(&site, holder, *ttl),
        Action::Touch(at)
        | Action::Renew { at, .. }
        | Action::Begin { at, .. }
        | Action::End { at, .. }
        | Action::Release(By::Token(at))
        | Action::Offer { at, .. }
        | Action::Check(By::Token(at)) => site.effect(*at, site.bearer(*at).act(action)),
        Action::Release(By::Holder {
            holder,
            lease,
            exited,
        }) => release::by_holder(&site, holder, *lease, *exited),
        Action::Adopt { token, proof, to } => handover::adopt(&site, *token, proof, to),
        Action::Revoke {
            expected,
            even_if_alive,
            ..
        } => release::revoke(&site, *expected, *even_if_alive),
        Action::Check(By::Holder { holder, lease, .. }) => release::entitled(&site, holder, *lease),
        // Answered above: they concern no single resource.
        Action::Disconnect(_) | Action::Sweep => Decision::Refuse(Refusal::Misaddressed),
    }
}

/// What every decision has at hand.
struct Case<'a, H> {
    policy: &'a LeasePolicy,
    scene: &'a Scene<'a, H>,
    seen: &'a Seen<'a>,
}

/// A decision at one resource.
struct Site<'a, H> {
    case: &'a Case<'a, H>,
    key: &'a ResourceKey,
    cell: &'a Cell<H>,
}

impl<'a, H: Holder> Case<'a, H> {
    /// The leases of `due` that are over, in ascending generation.
    fn swept(&self, observed_by: ObservedBy) -> Vec<Ending<H>> {
        let now = self.seen.now;
        if self.scene.due.is_empty() {
            return Vec::new();
        }
        let due = self.scene.due.iter().take(SWEEP_LEASES);
        // An ending is big, and mostly all of them end.
        let mut ended = Vec::with_capacity(due.len());
        ended.extend(
            due.filter_map(|(key, cell)| cell.lease().map(|lease| (*key, lease)))
                .filter(|(_, lease)| lease.lapsed(now))
                .map(|(key, lease)| self.reclaimed(key, lease, observed_by)),
        );
        sort(&mut ended);
        ended
    }

    /// Ends a lease whose term is over.
    fn reclaimed(&self, key: &ResourceKey, lease: &Lease<H>, observed_by: ObservedBy) -> Ending<H> {
        let idle = self.seen.now.since(lease.touched);
        Ending::new(
            key,
            lease,
            Code::Reclaimed,
            Detail::Reclaimed { idle, observed_by },
        )
    }

    /// A plan that does `own` after the sweep.
    fn plan(&self, observed_by: ObservedBy, own: Own<H>) -> Plan<H> {
        Plan {
            at: self.seen.now,
            ended: self.swept(observed_by),
            own,
        }
    }

    fn verdict(&self, lease: &Lease<H>) -> Option<&'a Verdict> {
        verdict(self.seen, lease)
    }

    /// What must be asked about the holder of `lease` before anybody else may have it; `None` if its
    /// terms know no such proof.
    fn question(lease: &Lease<H>) -> Option<Question<H>> {
        let occupancy = occupancy(lease)?;
        Some(Question::new(
            lease.holder.clone(),
            lease.token,
            lease.handovers,
            occupancy,
        ))
    }
}

/// The verdict about the holder of `lease`, if there is one that still counts. Of several that do not
/// agree, one that does not prove death counts.
fn verdict<'a, H: Holder>(seen: &Seen<'a>, lease: &Lease<H>) -> Option<&'a Verdict> {
    let mut counting = seen.answers.iter().filter(|answer| {
        let lease_meant = answer.about == lease.token || planted!(LateVerdictEndsSuccessor);
        let holder_meant =
            answer.handovers == lease.handovers || planted!(LateVerdictOutlivesHandOver);
        lease_meant && holder_meant
    });
    let first = &counting.next()?.verdict;
    let stands = |verdict: &&Verdict| !matches!(verdict, Verdict::Dead(_));
    let mut others = counting.map(|answer| &answer.verdict);
    if stands(&first) || planted!(FirstVerdictCounts) {
        Some(first)
    } else {
        others.find(stands).or(Some(first))
    }
}

impl<'a, H: Holder> Site<'a, H> {
    /// Whoever shows the token `at` here.
    fn bearer(&self, at: At) -> Bearer<'a, H> {
        Bearer {
            cell: self.cell,
            at,
            now: self.case.seen.now,
        }
    }

    /// A plan for what a call does to the present lease.
    fn effect(&self, at: At, effect: Result<Effect<H>, Refusal<H>>) -> Decision<H> {
        match (effect, self.cell.lease()) {
            (Err(refusal), _) => Decision::Refuse(refusal),
            (Ok(Effect::Report { code, detail }), _) => self.report(code, Some(at.token), detail),
            (Ok(Effect::Edit { code, detail, edit }), _) => self.change(Own::Edit {
                key: self.key.clone(),
                at,
                code,
                detail,
                edit,
            }),
            (Ok(Effect::End { code, detail }), Some(lease)) => self.end(None, lease, code, detail),
            // Only a present lease can end.
            (Ok(Effect::End { .. }), None) => Decision::Refuse(Refusal::Required),
        }
    }

    /// A plan for a call with a token or in a holder's name.
    fn change(&self, own: Own<H>) -> Decision<H> {
        Decision::Change(self.case.plan(ObservedBy::TokenCall, own))
    }

    /// A receipt without any change.
    fn report(&self, code: Code, token: Option<FencingToken>, detail: Detail) -> Decision<H> {
        self.change(Own::Report {
            key: self.key.clone(),
            code,
            token,
            detail,
        })
    }

    /// Ends the present lease, on what was seen of its holder where that is the reason.
    fn end(
        &self,
        evidence: Option<&Evidence>,
        lease: &Lease<H>,
        code: Code,
        detail: Detail,
    ) -> Decision<H> {
        let ending = Ending {
            evidence: evidence.cloned().map(Box::new),
            ..Ending::new(self.key, lease, code, detail)
        };
        self.change(Own::End(ending))
    }
}

/// What must be gone of the holder of `lease` before anybody else may have it; `None` if its terms know no
/// such proof.
fn occupancy<H>(lease: &Lease<H>) -> Option<ProcessProof> {
    let proofs = lease.terms.ends_on();
    match (proofs.process, proofs.session) {
        (Some(proof), _) => Some(proof),
        (None, true) => Some(ProcessProof::default()),
        (None, false) => None,
    }
}

/// Orders endings as they are committed, and drops what was listed twice.
fn sort<H>(ended: &mut Vec<Ending<H>>) {
    ended.sort_by_key(|ending| ending.token.generation);
    ended.dedup_by_key(|ending| ending.token);
}

/// The code of a new lease under `terms`.
fn acquired_code(terms: &LeasePolicy) -> Code {
    match terms.again() {
        Again::Touch => Code::Created,
        Again::Renew => Code::LeaseAcquired,
    }
}

/// The code of a release under `terms`.
fn released_code(terms: &LeasePolicy) -> Code {
    match terms.again() {
        Again::Touch => Code::Released,
        Again::Renew => Code::LeaseReleased,
    }
}
