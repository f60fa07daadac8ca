//! What the end of an operation does to its lease, and who joins.

use lease_core::{
    Code, Detail, Disposition, Kept, Note, OpId, OperationKind, Provenance, Refusal, Verb,
};

use crate::rig::{Answered as _, Rig, T0, VIEWPORT, generation, inp, mcp, ms, op};

// A47
#[test]
fn a_re_entrant_failure_never_drops_the_earlier_hold() {
    let mut rig = Rig::sessions();
    let first = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, first.at, op(1), first.provenance)
        .change();
    rig.end(VIEWPORT, first.at, op(1), Ok(())).change();
    let again = rig.at(T0 + 100).granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, again.at, op(2), again.provenance)
        .change();
    let failed = rig
        .end(VIEWPORT, again.at, op(2), Err(Disposition::PreMutation))
        .change();
    assert_eq!(failed.code, Code::RetainedAfterFailure);
    assert_eq!(rig.view(VIEWPORT).token.generation, generation(1));
}

// A48, A50
#[test]
fn an_unknown_effect_keeps_unshields_and_is_reported_whole() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.note = Some(Note::new(
        OperationKind::CallMethod.name(),
        "the method threw",
    ));
    rig.at(T0 + 2_000)
        .end(VIEWPORT, grant.at, op(1), Err(Disposition::Unknown))
        .change();
    let view = rig.view(VIEWPORT);
    assert_eq!((view.in_flight.len(), view.tainted), (0, true));
    let [receipt] = rig.with_code(Code::RetainedAfterFailure)[..] else {
        panic!()
    };
    let Detail::Ended {
        op: id,
        took,
        in_flight: 0,
        expires,
        failure: Some(failure),
    } = receipt.change.detail
    else {
        panic!("{receipt:?}")
    };
    assert_eq!((id, took.as_millis()), (op(1), 2_000));
    assert_eq!(failure.from, Provenance::Created);
    assert_eq!(failure.disposition, Disposition::Unknown);
    assert_eq!(failure.kept, Kept::UnknownEffect);
    assert_eq!(receipt.change.token, Some(grant.at.token));
    let note = receipt.note.as_ref().unwrap();
    assert_eq!(
        (&*note.by, &*note.reason),
        ("call_method", "the method threw")
    );
    // Reclaimable after this moment.
    assert_eq!(expires, Some(ms(1_032_000)));
    assert_eq!(
        rig.at(T0 + 32_000).refused(VIEWPORT, &inp()).code(),
        Code::WriteConflict
    );
    assert_eq!(
        rig.at(T0 + 32_001).granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
}

// A51
#[test]
fn a_claim_beyond_what_the_kind_can_know_counts_as_unknown() {
    use Disposition::{PreMutation, RolledBack, Unknown};

    for &kind in OperationKind::ALL {
        for claimed in [None, Some(Unknown), Some(PreMutation), Some(RolledBack)] {
            let claim = kind.claim(claimed);
            let more = matches!(claimed, Some(PreMutation | RolledBack));
            if kind == OperationKind::CallMethod {
                assert_eq!((claim.disposition, claim.overruled), (Unknown, more));
            } else {
                assert_eq!(claim.disposition, claimed.unwrap_or(Unknown), "{kind:?}");
                assert!(!claim.overruled);
            }
        }
    }
}

#[test]
fn only_one_operation_can_call_itself_the_creator() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), Provenance::Created)
        .change();
    let second = rig
        .begin(VIEWPORT, grant.at, op(2), Provenance::Created)
        .change();
    let Detail::Begun {
        from: Provenance::Reentrant,
        in_flight: 2,
        ..
    } = second.detail
    else {
        panic!("{second:?}")
    };
    // Neither may end the lease by a clean failure now: each relies on it.
    for id in [op(2), op(1)] {
        let failed = rig
            .end(VIEWPORT, grant.at, id, Err(Disposition::PreMutation))
            .change();
        assert_eq!(failed.code, Code::RetainedAfterFailure);
    }
}

#[test]
fn an_operation_id_is_good_for_one_operation_at_a_time() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    let before = rig.view(VIEWPORT);
    for id in [op(1), OpId::ACQUISITION] {
        let refusal = rig
            .at(T0 + 5)
            .begin(VIEWPORT, grant.at, id, Provenance::Created)
            .refusal();
        assert_eq!(refusal, Refusal::OperationId { op: id });
        assert_eq!(refusal.code(), Code::OperationIdInUse);
    }
    assert_eq!(rig.view(VIEWPORT), before);
}

#[test]
fn a_repeated_end_changes_nothing() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.begin(VIEWPORT, grant.at, op(2), Provenance::Reentrant)
        .change();
    rig.end(VIEWPORT, grant.at, op(1), Ok(())).change();
    let before = rig.view(VIEWPORT);
    for result in [Ok(()), Err(Disposition::PreMutation)] {
        let refusal = rig
            .at(T0 + 9)
            .end(VIEWPORT, grant.at, op(1), result)
            .refusal();
        let Refusal::StaleToken {
            verb: Verb::End, ..
        } = refusal
        else {
            panic!("{refusal:?}")
        };
    }
    assert_eq!(rig.view(VIEWPORT), before);
}
