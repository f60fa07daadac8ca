//! The gates before a lease, in their fixed order.

use std::sync::Arc;
use std::time::Duration;

use lease_core::limits::TERM_MAX;
use lease_core::{
    Action, Cell, Decision, LeaseId, LeasePolicy, Question, Refusal, Scene, Seen, decide,
};

use super::allocation::{
    AllocationRecord, AllocationView, Checkout, Marker, Place, StoreLock, Target,
};
use super::name::OwnerId;
use super::receipt::NotApplicable;
use super::record::Present;
use super::refused::{CheckoutFault, HolderFault, MetadataFault, Refused};
use super::roles::{RoleAnswer, RoleClassifier};
use crate::binding::foreign;
use crate::holder::ProcessHolder;

/// A request for the lease of an allocation.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Request<'a> {
    /// Who asks, as described for this decision.
    pub holder: Result<&'a ProcessHolder, HolderFault>,
    /// Who asked when it was described before, if it was.
    pub described: Option<&'a ProcessHolder>,
    /// Who owns the allocation, where the requester knows. A wrong answer is worse than none.
    pub owner: Option<&'a OwnerId>,
    /// At which version the allocation record must be.
    pub expected_version: Option<u64>,
    /// The term; without one the lease never expires, and a renewal leaves the expiry as it is.
    pub ttl: Option<Duration>,
}

impl<'a> Request<'a> {
    /// Asks for `holder`, without a term and without expectations.
    #[must_use]
    pub const fn new(holder: &'a ProcessHolder) -> Self {
        Self {
            holder: Ok(holder),
            described: None,
            owner: None,
            expected_version: None,
            ttl: None,
        }
    }

    /// Asks for this term.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// What the keeper of the leases knows when it decides.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a keeper gives every part")]
pub struct Standing<'a> {
    /// The terms of new leases.
    pub policy: &'a LeasePolicy,
    /// The present lease of the allocation.
    pub present: Option<Present<'a>>,
    /// The time, and what was observed of holders.
    pub seen: Seen<'a>,
}

/// What the gates say to a request that none of them refuses.
#[derive(Clone, Debug)]
#[must_use = "an admission grants nothing; the core decides on its action"]
#[expect(clippy::exhaustive_enums, reason = "a keeper must handle every answer")]
pub enum Admission {
    /// The core decides, at the resource of the allocation.
    Run(Box<Admitted>),
    /// It must be known first whether these holders are there; observe, and ask again.
    Ask(Vec<Question<ProcessHolder>>),
    /// The role has a gate of its own. Nothing is granted.
    NotApplicable(NotApplicable),
}

/// A request that passed every gate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admitted {
    /// What the core is to decide: always [`Action::Acquire`].
    pub action: Action<ProcessHolder>,
    /// Where the lease is granted, to be filed with it.
    pub place: Place,
}

/// Judges a request by everything but who else holds the lease.
///
/// Pure. The checks come in a fixed order and the first failure wins: target, repository, lock of the
/// store, policy marker, repository id, record, its version, checkout, owner, holder, ttl, role,
/// bindings, lifecycle. Then the core decides who gets the lease; only where the present lease was
/// granted for another repository, path or owner it is asked here, because whoever would get it is
/// refused for that, and whoever would not is told who holds it.
///
/// # Errors
///
/// [`Refused`], with the stable code and sub-reason of the first failure.
pub fn admit(
    request: &Request<'_>,
    view: &AllocationView<'_>,
    roles: &dyn RoleClassifier,
    standing: &Standing<'_>,
) -> Result<Admission, Refused> {
    let (place, record) = place(view)?;
    check_record(request, view.checkout, record)?;
    let holder = check_holder(request)?;
    let action = Action::Acquire {
        holder: holder.clone(),
        ttl: request.ttl,
    };
    check_ttl(&action, &place, standing)?;
    match roles.classify(&record.role) {
        RoleAnswer::Required => {}
        RoleAnswer::NotApplicable => {
            return Ok(Admission::NotApplicable(NotApplicable::new(
                record.allocation.clone(),
                record.role.clone(),
            )));
        }
        RoleAnswer::Invalid => {
            return Err(Refused::Role {
                role: record.role.clone(),
            });
        }
    }
    let lease = standing.present.map(|present| present.lease.token.lease);
    check_bindings(&record.bindings, lease, holder)?;
    if !record.lifecycle.is_active() {
        return Err(Refused::Lifecycle {
            state: record.lifecycle.clone(),
        });
    }
    check_drift(action, place, standing)
}

/// Checks what stands at the target, up to its record.
fn place<'a>(view: &AllocationView<'a>) -> Result<(Place, &'a AllocationRecord), Refused> {
    match view.target {
        Target::Ours => {}
        Target::Foreign => return Err(Refused::ForeignTarget),
        Target::Unreadable => return Err(Refused::TargetUnreadable),
    }
    match view.lock {
        StoreLock::Sound => {}
        fault @ (StoreLock::Missing | StoreLock::NotRegular | StoreLock::Symlink) => {
            return Err(Refused::StoreLock(fault));
        }
    }
    match view.marker {
        Marker::Sound => {}
        Marker::Symlink => return Err(Refused::Marker),
    }
    let repository = view.repository.ok_or(Refused::NoRepository)?;
    let record = view.record.ok_or(Refused::Unmanaged)?;
    Ok((Place::of(repository, record), record))
}

/// Checks the record's version, the checkout and the owner.
fn check_record(
    request: &Request<'_>,
    checkout: Checkout,
    record: &AllocationRecord,
) -> Result<(), Refused> {
    let found = record.version;
    if let Some(expected) = request
        .expected_version
        .filter(|&expected| expected != found)
    {
        return Err(Refused::RecordVersion { expected, found });
    }
    if checkout.detached {
        return Err(Refused::Checkout(CheckoutFault::Detached));
    }
    if checkout.locked {
        return Err(Refused::Checkout(CheckoutFault::Locked));
    }
    if checkout.prunable {
        return Err(Refused::Checkout(CheckoutFault::Prunable));
    }
    match request.owner {
        Some(declared) if *declared != record.owner => Err(Refused::Owner {
            declared: declared.clone(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Checks that the holder is described, and is the one that was described before.
fn check_holder<'a>(request: &Request<'a>) -> Result<&'a ProcessHolder, Refused> {
    let holder = request.holder.map_err(Refused::Holder)?;
    match request.described {
        Some(described) if described != holder => Err(Refused::HolderChanged),
        Some(_) | None => Ok(holder),
    }
}

/// Asks the core whether it would grant this term at all, were the resource free.
fn check_ttl(
    action: &Action<ProcessHolder>,
    place: &Place,
    standing: &Standing<'_>,
) -> Result<(), Refused> {
    match at_place(standing.policy, place, &Cell::FREE, action, &standing.seen) {
        Decision::Refuse(refusal @ Refusal::Ttl(_)) => Err(Refused::Core(refusal)),
        Decision::Change(_) | Decision::Refuse(_) | Decision::Ask(_) => Ok(()),
    }
}

/// Refuses if one binding is malformed, else if one is not the requester's own under `lease`.
pub(super) fn check_bindings(
    bindings: &[Arc<str>],
    lease: Option<LeaseId>,
    holder: &ProcessHolder,
) -> Result<(), Refused> {
    let bindings = bindings.iter().map(|binding| binding.as_bytes());
    let foreign = foreign(bindings, lease, holder).map_err(Refused::Binding)?;
    if foreign.is_empty() {
        Ok(())
    } else {
        Err(Refused::ForeignBindings { positions: foreign })
    }
}

/// Refuses whoever would get or renew a lease that is about something else by now.
fn check_drift(
    action: Action<ProcessHolder>,
    place: Place,
    standing: &Standing<'_>,
) -> Result<Admission, Refused> {
    let drift = |present: Present<'_>| present.filing.place.difference(&place);
    let Some((present, part)) = standing
        .present
        .and_then(|present| Some((present, drift(present)?)))
    else {
        return Ok(Admission::Run(Box::new(Admitted { action, place })));
    };
    let cell = cell_of(present, &standing.seen)?;
    match at_place(standing.policy, &place, &cell, &action, &standing.seen) {
        Decision::Ask(mut questions) => {
            present.aim(&mut questions);
            Ok(Admission::Ask(questions))
        }
        // Another holder stands, or nobody can tell.
        Decision::Refuse(refusal @ (Refusal::Held(_) | Refusal::Uninspectable(_))) => {
            Err(Refused::Core(refusal))
        }
        Decision::Change(_) | Decision::Refuse(_) => Err(Refused::Drift(part)),
    }
}

/// Restores the cell of a lease that a snapshot shows.
pub(super) fn cell_of(
    present: Present<'_>,
    seen: &Seen<'_>,
) -> Result<Cell<ProcessHolder>, Refused> {
    Cell::load(present.lease.clone(), seen.now, TERM_MAX)
        .map_err(|error| Refused::Metadata(MetadataFault::Lease(error)))
}

/// Asks the core about one cell by itself. An allocation lies in no other, so it has no neighbours.
pub(super) fn at_place(
    policy: &LeasePolicy,
    place: &Place,
    cell: &Cell<ProcessHolder>,
    action: &Action<ProcessHolder>,
    seen: &Seen<'_>,
) -> Decision<ProcessHolder> {
    let scene = Scene {
        own: Some((place.allocation.key(), cell)),
        near: &[],
        queued: &[],
        due: &[],
    };
    decide(policy, &scene, action, seen)
}
