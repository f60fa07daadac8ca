//! Rebuilds what is held out of receipts alone.

use std::collections::BTreeMap;

use lease_core::{
    Code, Detail, Disposition, FencingToken, Holder, LeaseView, Moment, OpId, Provenance, Receipt,
    ResourceKey,
};

/// One lease, as far as receipts tell of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replayed<H> {
    holder: H,
    token: FencingToken,
    acquired: Moment,
    touched: Moment,
    expires: Option<Moment>,
    ops: Vec<(OpId, Moment, Provenance)>,
    tainted: bool,
    handovers: u32,
}

/// What is held after all of `receipts`, from an empty authority on.
#[track_caller]
pub(crate) fn replay<H: Holder>(receipts: &[Receipt<H>]) -> BTreeMap<ResourceKey, Replayed<H>> {
    let mut held = BTreeMap::new();
    for receipt in receipts {
        apply(&mut held, receipt);
    }
    held
}

/// The same form of what a registry lists.
pub(crate) fn listed<H: Holder>(views: &[LeaseView<H>]) -> BTreeMap<ResourceKey, Replayed<H>> {
    let one = |view: &LeaseView<H>| Replayed {
        holder: view.holder.clone(),
        token: view.token,
        acquired: view.acquired,
        touched: view.touched,
        expires: view.expires,
        ops: view
            .in_flight
            .iter()
            .map(|op| (op.id, op.since, op.from))
            .collect(),
        tainted: view.tainted,
        handovers: view.handovers,
    };
    views
        .iter()
        .map(|view| (view.resource.clone(), one(view)))
        .collect()
}

#[track_caller]
fn apply<H: Holder>(held: &mut BTreeMap<ResourceKey, Replayed<H>>, receipt: &Receipt<H>) {
    let change = receipt.change;
    let (Some(resource), Some(token)) = (&receipt.resource, change.token) else {
        return;
    };
    match change.code {
        Code::Created | Code::LeaseAcquired | Code::TakenOver => {
            let Detail::Granted { expires, previous } = change.detail else {
                panic!("{receipt:?}")
            };
            let lease = Replayed {
                holder: receipt.holder.clone().unwrap(),
                token,
                acquired: change.at,
                touched: change.at,
                expires,
                ops: Vec::new(),
                tainted: false,
                handovers: 0,
            };
            let before = held
                .insert(resource.clone(), lease)
                .map(|lease| lease.token);
            assert_eq!(before, previous, "{receipt:?}");
        }
        Code::Released
        | Code::LeaseReleased
        | Code::ReleasedAfterFailure
        | Code::Disconnected
        | Code::Reclaimed
        | Code::Revoked
        | Code::SessionEnded
        | Code::Abandoned => {
            let ended = held.remove(resource).map(|lease| lease.token);
            assert_eq!(ended, Some(token), "{receipt:?}");
        }
        _ => {
            let lease = held.get_mut(resource).unwrap();
            assert_eq!(lease.token, token, "{receipt:?}");
            edit(lease, receipt);
        }
    }
}

fn edit<H: Holder>(lease: &mut Replayed<H>, receipt: &Receipt<H>) {
    let at = receipt.change.at;
    match receipt.change.detail {
        Detail::Touched { after, expires, .. } => {
            lease.touched = after;
            lease.expires = expires;
        }
        Detail::Begun {
            op, from, expires, ..
        } => {
            lease.ops.push((op, at, from));
            lease.touched = at;
            lease.expires = expires;
        }
        Detail::Ended {
            op,
            expires,
            failure,
            ..
        } if op != OpId::ACQUISITION => {
            lease.ops.retain(|(id, ..)| *id != op);
            lease.touched = at;
            lease.expires = expires;
            lease.tainted |= failure.is_some_and(|f| f.disposition == Disposition::Unknown);
        }
        Detail::HandedOver { handovers, expires } => {
            lease.holder = receipt.holder.clone().unwrap();
            lease.handovers = handovers;
            lease.touched = at;
            lease.expires = expires;
        }
        _ => {}
    }
}
