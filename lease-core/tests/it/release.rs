//! Stale tokens, release and disconnect.

use lease_core::{Action, Code, Detail, Provenance, Refusal};

use crate::rig::{Answered as _, Rig, T0, VIEWPORT, inp, mcp, ms, op, oth};

const DIALOG: &str = "/app/dialog";

/// Generation 1 was reclaimed, generation 2 is the successor's.
fn succeeded() -> (Rig, lease_core::Grant, lease_core::Grant) {
    let mut rig = Rig::sessions();
    let old = rig.granted(VIEWPORT, &mcp());
    let new = rig.at(T0 + 30_001).granted(VIEWPORT, &inp());
    rig.at(T0 + 30_002);
    (rig, old, new)
}

// A37
#[test]
fn a_stale_token_cannot_touch() {
    let (mut rig, old, _) = succeeded();
    assert_eq!(
        rig.touch(VIEWPORT, old.at).refusal().code(),
        Code::StaleToken
    );
    assert_eq!(rig.view(VIEWPORT).touched, ms(1_030_001));
}

// A38, fault B02
#[test]
fn a_stale_token_cannot_release() {
    let (mut rig, old, new) = succeeded();
    let before = rig.view(VIEWPORT);
    let renew = Action::Renew {
        at: old.at,
        ttl: None,
    };
    for refusal in [
        rig.release(VIEWPORT, old.at).refusal(),
        rig.call(VIEWPORT, renew).refusal(),
        rig.release(VIEWPORT, old.at).refusal(),
    ] {
        assert_eq!(refusal.code(), Code::StaleToken);
        assert_eq!(rig.refused(VIEWPORT, &oth()).code(), Code::WriteConflict);
    }
    assert_eq!(rig.view(VIEWPORT), before);
    assert_eq!((before.holder, before.token), (inp(), new.at.token));
}

// A40
#[test]
fn release_is_immediate_and_good_once() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let released = rig.at(T0 + 5).release(VIEWPORT, grant.at).change();
    let Detail::Released {
        held,
        exited: false,
    } = released.detail
    else {
        panic!()
    };
    assert_eq!((released.code, held.as_millis()), (Code::Released, 5));
    assert_eq!(
        rig.granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
    assert_eq!(
        rig.release(VIEWPORT, grant.at).refusal().code(),
        Code::StaleToken
    );
    assert_eq!(rig.view(VIEWPORT).holder, inp());
    // Releasing what is expired and idle: its own receipt first, then no.
    let mut late = Rig::sessions();
    let grant = late.granted(VIEWPORT, &mcp());
    let refusal = late.at(1_030_001).release(VIEWPORT, grant.at).refusal();
    assert_eq!(refusal.code(), Code::StaleToken);
    assert_eq!(late.codes(), [Code::Created, Code::Reclaimed]);
}

// A41
#[test]
fn release_waits_for_running_operations() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    let refusal = rig.at(T0 + 1).release(VIEWPORT, grant.at).refusal();
    assert_eq!(
        refusal,
        Refusal::OperationInFlight {
            count: 1,
            oldest: ms(T0)
        }
    );
    assert_eq!(refusal.code(), Code::OperationInFlight);
    rig.at(T0 + 2)
        .end(VIEWPORT, grant.at, op(1), Ok(()))
        .change();
    assert_eq!(
        rig.at(T0 + 3).release(VIEWPORT, grant.at).change().code,
        Code::Released
    );
}

// A42
#[test]
fn a_disconnect_frees_everything_of_one_writer_at_once() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let busy = rig.granted(DIALOG, &mcp());
    rig.begin(DIALOG, busy.at, op(1), busy.provenance).change();
    let ended = rig.at(T0 + 50).disconnect(&mcp());
    let in_flight: Vec<_> = ended
        .iter()
        .map(|change| match change.detail {
            Detail::Disconnected { in_flight, .. } => in_flight,
            detail => panic!("{detail:?}"),
        })
        .collect();
    assert_eq!(in_flight, [0, 1]);
    for resource in [VIEWPORT, DIALOG] {
        assert_eq!(
            rig.granted(resource, &inp()).provenance,
            Provenance::Created
        );
    }
}

// A43
#[test]
fn a_disconnect_is_exact() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp()).holds(DIALOG, &inp());
    assert_eq!(rig.disconnect(&mcp()).len(), 1);
    assert_eq!(rig.view(DIALOG).holder, inp());
}

// A44
#[test]
fn what_runs_on_after_a_disconnect_is_stale() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.disconnect(&mcp());
    for refusal in [
        rig.touch(VIEWPORT, grant.at).refusal(),
        rig.end(VIEWPORT, grant.at, op(1), Ok(())).refusal(),
        rig.release(VIEWPORT, grant.at).refusal(),
    ] {
        assert_eq!(refusal.code(), Code::StaleToken);
    }
    assert!(rig.list().is_empty());
}

// A45
#[test]
fn a_second_disconnect_does_nothing() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    assert_eq!(rig.disconnect(&mcp()).len(), 1);
    let before = rig.receipts.len();
    assert_eq!(rig.disconnect(&mcp()), []);
    assert_eq!(rig.receipts.len(), before);
}
