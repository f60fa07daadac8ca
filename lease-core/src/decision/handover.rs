//! How a lease passes to another holder without a new generation.

use alloc::vec::Vec;

use super::{Decision, Site, sort};
use crate::action::AdoptProof;
use crate::change::{Detail, ObservedBy};
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{At, FencingToken};
use crate::plan::{Edit, Own};
use crate::refusal::{Counter, Held, Mismatch, Refusal, Verb};

/// Hands the lease to `to`.
pub(super) fn adopt<H: Holder>(
    site: &Site<'_, H>,
    token: FencingToken,
    proof: &AdoptProof<H>,
    to: &H,
) -> Decision<H> {
    let now = site.case.seen.now;
    let at = At::from(token);
    let lease = match site.bearer(at).current(Verb::Adopt) {
        Ok(lease) => lease,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    let proven = match proof {
        AdoptProof::Present(holder) if lease.holder == *holder => Ok(()),
        AdoptProof::Present(_) => Err(Mismatch::Holder),
        AdoptProof::Ticket(ticket) if lease.ticket.as_ref() == Some(ticket) => Ok(()),
        AdoptProof::Ticket(_) => Err(Mismatch::Ticket),
    };
    if let Err(mismatch) = proven {
        return Decision::Refuse(Refusal::Mismatch(mismatch));
    }
    // The giver may hold overlapping leases of its own. They were no conflict for it; for another
    // holder they would be two holders at once.
    let mut over = Vec::new();
    for (key, cell) in site
        .case
        .scene
        .near
        .iter()
        .filter(|(key, _)| key.overlaps(site.key))
    {
        match cell.lease() {
            Some(other) if other.holder == *to || planted!(HandOverOverlaps) => {}
            Some(other) if other.lapsed(now) => {
                over.push(site.case.reclaimed(key, other, ObservedBy::TokenCall));
            }
            Some(other) => {
                return Decision::Refuse(Refusal::Held(Held::new(key, other, now, None)));
            }
            None => {}
        }
    }
    let Some(handovers) = lease.handovers.checked_add(1) else {
        return Decision::Refuse(Refusal::Exhausted {
            counter: Counter::Handovers,
        });
    };
    let expires = lease.expires_after_touch(now);
    let detail = Detail::HandedOver { handovers, expires };
    let edit = Edit::Adopt {
        from: lease.holder.clone(),
        to: to.clone(),
        expires,
    };
    let own = Own::Edit {
        key: site.key.clone(),
        at,
        code: Code::Adopted,
        detail,
        edit,
    };
    let mut plan = site.case.plan(ObservedBy::TokenCall, own);
    plan.ended.append(&mut over);
    sort(&mut plan.ended);
    Decision::Change(plan)
}
