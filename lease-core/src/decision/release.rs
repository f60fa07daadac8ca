//! How a lease ends by somebody's word: its holder's, its transport's, a host's, an operator's.

use super::{Case, Decision, Site, bearer, released_code, sort};
use crate::cell::Lease;
use crate::change::Detail;
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{At, Generation, LeaseId};
use crate::liveness::{Evidence, Verdict};
use crate::plan::{Ending, Own, Plan};
use crate::refusal::{Held, Mismatch, Refusal};

/// Ends every lease of `holder` that a disconnect ends, whatever its state.
///
/// The scene is every cell of that holder. There is no sweep: a lease that is expired but still there
/// ends by the disconnect.
pub(super) fn disconnect<H: Holder>(case: &Case<'_, H>, holder: &H) -> Plan<H> {
    let now = case.seen.now;
    let ours = |other: &H| other == holder || planted!(same_agent other, holder, DisconnectByAgent);
    let ends = |lease: &&Lease<H>| ours(&lease.holder) && lease.terms.ends_on().disconnect;
    let mut ended: alloc::vec::Vec<_> = case
        .scene
        .near
        .iter()
        .filter_map(|(key, cell)| Some((*key, cell.lease().filter(ends)?)))
        .map(|(key, lease)| {
            let detail = Detail::Disconnected {
                in_flight: lease.in_flight(),
                idle: now.since(lease.touched),
                expired: lease.expired(now),
            };
            Ending::new(key, lease, Code::Disconnected, detail)
        })
        .collect();
    sort(&mut ended);
    Plan {
        at: now,
        ended,
        own: Own::Nothing,
    }
}

/// Releases by the full identity of the holder.
pub(super) fn by_holder<H: Holder>(
    site: &Site<'_, H>,
    holder: &H,
    id: Option<LeaseId>,
    exited: bool,
) -> Decision<H> {
    let Some(lease) = present(site) else {
        return site.report(Code::NotHeld, None, Detail::Plain);
    };
    if let Err(mismatch) = same(lease, holder, id) {
        return Decision::Refuse(Refusal::Mismatch(mismatch));
    }
    if exited {
        release_exited(site, lease, id)
    } else {
        site.effect(
            At::from(lease.token),
            bearer::release(lease, site.case.seen.now),
        )
    }
}

/// Releases for a holder that is said to have exited: takes the lease id and proof that the holder
/// and all its work are gone. Operations in flight shield from nothing here: they are gone too.
fn release_exited<H: Holder>(
    site: &Site<'_, H>,
    lease: &Lease<H>,
    id: Option<LeaseId>,
) -> Decision<H> {
    if id.is_none() {
        return Decision::Refuse(Refusal::Mismatch(Mismatch::ExitedWithoutId));
    }
    let Some(question) = Case::question(lease) else {
        return Decision::Refuse(Refusal::Mismatch(Mismatch::ExitUnprovable));
    };
    match site.case.verdict(lease) {
        None => Decision::Ask(alloc::vec![question]),
        Some(Verdict::Dead(evidence)) => {
            let held = site.case.seen.now.since(lease.acquired);
            let detail = Detail::Released { held, exited: true };
            site.end(Some(evidence), lease, released_code(&lease.terms), detail)
        }
        Some(Verdict::Alive(_)) => Decision::Refuse(Refusal::Mismatch(Mismatch::NotExited)),
        Some(Verdict::Occupied(_)) => Decision::Refuse(Refusal::Mismatch(Mismatch::ExitedOccupied)),
        Some(verdict @ Verdict::Unknown(_)) => uninspectable(site, lease, verdict),
    }
}

/// Says whether `holder` may write now.
pub(super) fn entitled<H: Holder>(
    site: &Site<'_, H>,
    holder: &H,
    id: Option<LeaseId>,
) -> Decision<H> {
    let now = site.case.seen.now;
    let Some(lease) = present(site) else {
        return Decision::Refuse(Refusal::Required);
    };
    if let Err(mismatch) = same(lease, holder, id) {
        return Decision::Refuse(Refusal::Mismatch(mismatch));
    }
    if lease.suspended(now) {
        return Decision::Refuse(Refusal::Mismatch(Mismatch::Expired));
    }
    let entitled = || site.report(Code::Entitled, Some(lease.token), Detail::Plain);
    let Some(question) = Case::question(lease) else {
        return entitled();
    };
    match site.case.verdict(lease) {
        None => Decision::Ask(alloc::vec![question]),
        Some(Verdict::Alive(_)) => entitled(),
        Some(Verdict::Dead(_) | Verdict::Occupied(_)) => {
            Decision::Refuse(Refusal::Mismatch(Mismatch::NotLive))
        }
        Some(verdict @ Verdict::Unknown(_)) => uninspectable(site, lease, verdict),
    }
}

/// Retires the lease of an expected generation.
///
/// It needs proof that the holder is gone, or the operator's word that it may be alive; what cannot
/// be proven counts as alive.
pub(super) fn revoke<H: Holder>(
    site: &Site<'_, H>,
    expected: Generation,
    even_if_alive: bool,
) -> Decision<H> {
    let now = site.case.seen.now;
    let lease = match present(site) {
        Some(lease) if lease.token.generation == expected => lease,
        other => {
            let present = other.map(|lease| lease.token.generation);
            return Decision::Refuse(Refusal::Mismatch(Mismatch::Generation { present }));
        }
    };
    let revoked = |evidence: Option<&Evidence>| {
        let (held, exited) = (now.since(lease.acquired), evidence.is_some());
        site.end(
            evidence,
            lease,
            Code::Revoked,
            Detail::Released { held, exited },
        )
    };
    if even_if_alive {
        return revoked(None);
    }
    let held = |verdict| Decision::Refuse(Refusal::Held(Held::new(site.key, lease, now, verdict)));
    let Some(question) = Case::question(lease) else {
        return held(None);
    };
    match site.case.verdict(lease) {
        None => Decision::Ask(alloc::vec![question]),
        Some(Verdict::Dead(evidence)) => revoked(Some(evidence)),
        Some(verdict @ (Verdict::Alive(_) | Verdict::Occupied(_))) => held(Some(verdict.clone())),
        Some(verdict @ Verdict::Unknown(_)) => uninspectable(site, lease, verdict),
    }
}

/// The lease that is there and not over.
fn present<'a, H: Holder>(site: &Site<'a, H>) -> Option<&'a Lease<H>> {
    site.cell
        .lease()
        .filter(|lease| !lease.lapsed(site.case.seen.now))
}

/// Compares the lease id first, then the holder in every part.
fn same<H: Holder>(lease: &Lease<H>, holder: &H, id: Option<LeaseId>) -> Result<(), Mismatch> {
    if id.is_some_and(|id| id != lease.token.lease) {
        Err(Mismatch::LeaseId)
    } else if lease.holder != *holder {
        Err(Mismatch::Holder)
    } else {
        Ok(())
    }
}

fn uninspectable<H: Holder>(
    site: &Site<'_, H>,
    lease: &Lease<H>,
    verdict: &Verdict,
) -> Decision<H> {
    let held = Held::new(site.key, lease, site.case.seen.now, Some(verdict.clone()));
    Decision::Refuse(Refusal::Uninspectable(held))
}
