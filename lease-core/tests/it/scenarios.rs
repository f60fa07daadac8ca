//! The incident and its relatives, as whole histories.
//!
//! The incident: a persistent connection made failing calls, its lease stayed, and a second writer of
//! the same seat was denied until the whole process was reloaded.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use insta::assert_snapshot;
use lease_core::{
    AuthorityId, Change, Code, Detail, Disposition, FencingToken, Kept, LeaseId, ObservedBy,
    Provenance, Refusal, SessionHolder, Verb,
};

use crate::connections::{Login, Transport, login};
use crate::rig::{
    Answered as _, Rig, T0, VIEWPORT, generation, inp, key, mcp, ms, op, oth, session_ttl, who,
};
use crate::scoped::{Scope, Shared, abort_after_first_poll, drive, pause};

/// The writer in the way, its generation and its operations in flight.
#[track_caller]
fn conflict(refusal: Refusal<SessionHolder>) -> (SessionHolder, u64, u32) {
    assert_eq!(refusal.code(), Code::WriteConflict);
    let Refusal::Held(held) = refusal else {
        panic!("not held: {refusal:?}")
    };
    (held.by, held.token.generation.get(), held.in_flight)
}

#[track_caller]
fn assert_stale(refusal: Refusal<SessionHolder>, expected: Verb) {
    let Refusal::StaleToken {
        given,
        present,
        verb,
    } = refusal
    else {
        panic!("not stale: {refusal:?}")
    };
    assert_eq!((given.generation, verb), (generation(1), expected));
    assert_eq!(present, Some(generation(2)));
}

/// A created lease of the persistent connection whose method call failed at 1,000,500.
fn failed_call() -> Rig {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    assert_eq!(grant.provenance, Provenance::Created);
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.at(1_000_500)
        .end(VIEWPORT, grant.at, op(1), Err(Disposition::Unknown))
        .change();
    rig
}

// S1
#[test]
fn idle_expiry_frees_a_persistent_writer() {
    let mut rig = failed_call();
    let authority = rig.registry.authority();
    assert_eq!(
        conflict(rig.at(1_000_600).refused(VIEWPORT, &inp())),
        (mcp(), 1, 0)
    );
    assert_eq!(
        conflict(rig.at(1_030_500).refused(VIEWPORT, &inp())),
        (mcp(), 1, 0)
    );
    let grant = rig.at(1_030_501).granted(VIEWPORT, &inp());
    assert_eq!(grant.provenance, Provenance::Created);
    assert_eq!(grant.at.token.generation, generation(2));
    assert_eq!(grant.at.token.authority, authority);
    let reclaimed = rig.with_code(Code::Reclaimed)[0];
    assert_eq!(reclaimed.holder, Some(mcp()));
    assert_eq!(reclaimed.change.token.unwrap().generation, generation(1));
    let Detail::Reclaimed { idle, .. } = reclaimed.change.detail else {
        panic!()
    };
    assert_eq!(idle.as_millis(), 30_001);
    // No receipt equates the two writers: each names exactly one of them.
    assert!(
        rig.receipts
            .iter()
            .all(|receipt| receipt.previous.is_none())
    );
    assert_snapshot!(rig.transcript);
}

// S2
#[test]
fn disconnect_frees_a_persistent_writer_at_once() {
    let mut rig = failed_call();
    let ended = rig.at(1_005_000).disconnect(&mcp());
    let [
        Change {
            code: Code::Disconnected,
            token: Some(token),
            detail,
            ..
        },
    ] = ended[..]
    else {
        panic!("{ended:?}")
    };
    assert_eq!(token.generation, generation(1));
    let Detail::Disconnected {
        idle,
        in_flight: 0,
        expired: false,
    } = detail
    else {
        panic!()
    };
    assert_eq!(idle.as_millis(), 4_500);
    let grant = rig.granted(VIEWPORT, &inp());
    assert_eq!(
        (grant.provenance, grant.at.token.generation),
        (Provenance::Created, generation(2))
    );
    assert!(rig.with_code(Code::Reclaimed).is_empty());
    assert_snapshot!(rig.transcript);
}

// S3
#[test]
fn an_operation_far_beyond_its_term_keeps_its_lease() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    for now in [1_030_001, 1_150_000, 1_300_099] {
        assert_eq!(
            conflict(rig.at(now).refused(VIEWPORT, &inp())),
            (mcp(), 1, 1)
        );
    }
    rig.at(1_300_100)
        .end(VIEWPORT, grant.at, op(1), Ok(()))
        .change();
    assert_eq!(
        conflict(rig.at(1_330_100).refused(VIEWPORT, &inp())),
        (mcp(), 1, 0)
    );
    let next = rig.at(1_330_101).granted(VIEWPORT, &inp());
    assert_eq!(next.at.token.generation, generation(2));
    assert_eq!(rig.codes()[3..], [Code::Reclaimed, Code::Created]);
    assert_snapshot!(rig.transcript);
}

// S4
#[test]
fn re_entry_refreshes_and_does_not_duplicate() {
    let mut rig = Rig::sessions();
    let first = rig.granted(VIEWPORT, &mcp());
    assert_eq!(
        (first.provenance, first.at.token.generation),
        (Provenance::Created, generation(1))
    );
    for now in [1_020_000, 1_045_000] {
        let again = rig.at(now).granted(VIEWPORT, &mcp());
        assert_eq!(again.provenance, Provenance::Reentrant);
        assert_eq!(again.at.token, first.at.token);
    }
    let listed = rig.list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].acquired, ms(1_000_000));
    assert_eq!(listed[0].touched, ms(1_045_000));
    let refusal = rig.at(1_075_000).refused(VIEWPORT, &inp());
    let Refusal::Held(held) = &refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(held.idle.as_millis(), 30_000);
    assert_eq!(
        rig.at(1_075_001).granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
    assert_eq!(rig.codes()[3..], [Code::Reclaimed, Code::Created]);
    assert_snapshot!(rig.transcript);
}

// S5
#[test]
fn a_stale_holder_cannot_act_on_its_successor() {
    let mut rig = Rig::sessions();
    let old = rig.granted(VIEWPORT, &mcp());
    let new = rig.at(1_030_001).granted(VIEWPORT, &inp());
    rig.begin(VIEWPORT, new.at, op(1), new.provenance).change();
    let before = rig.view(VIEWPORT);
    assert_stale(
        rig.at(1_030_002).touch(VIEWPORT, old.at).refusal(),
        Verb::Touch,
    );
    let begun = rig
        .at(1_030_003)
        .begin(VIEWPORT, old.at, op(2), Provenance::Created);
    assert_stale(begun.refusal(), Verb::Begin);
    let ended = rig.at(1_030_004).end(VIEWPORT, old.at, op(1), Ok(()));
    assert_stale(ended.refusal(), Verb::End);
    assert_stale(
        rig.at(1_030_005).release(VIEWPORT, old.at).refusal(),
        Verb::Release,
    );
    assert_eq!(rig.view(VIEWPORT), before);
    assert_eq!((before.touched, before.in_flight.len()), (ms(1_030_001), 1));
    assert_snapshot!(rig.transcript);
}

/// Runs one way to fail and sees whether the next writer is let in, at once and after the term.
#[track_caller]
fn fails(from: Provenance, disposition: Disposition, expected: Result<(), Kept>) -> String {
    let mut rig = Rig::sessions();
    if from == Provenance::Reentrant {
        rig.at(999_000).holds(VIEWPORT, &mcp());
    }
    let grant = rig.at(1_000_000).granted(VIEWPORT, &mcp());
    assert_eq!(grant.provenance, from);
    rig.begin(VIEWPORT, grant.at, op(1), from).change();
    let change = rig
        .at(1_000_010)
        .end(VIEWPORT, grant.at, op(1), Err(disposition))
        .change();
    let at_once = rig.at(1_000_011).acquire(VIEWPORT, &inp());
    match expected {
        Ok(()) => {
            assert_eq!(change.code, Code::ReleasedAfterFailure);
            assert_eq!(at_once.grant().provenance, Provenance::Created);
        }
        Err(kept) => {
            assert_eq!(change.code, Code::RetainedAfterFailure);
            let Detail::Ended {
                failure: Some(failure),
                expires,
                ..
            } = change.detail
            else {
                panic!("{change:?}")
            };
            assert_eq!((failure.from, failure.disposition), (from, disposition));
            assert_eq!(failure.kept, kept);
            assert_eq!(expires, Some(ms(1_030_010)));
            assert_eq!(conflict(at_once.refusal()), (mcp(), 1, 0));
            assert!(matches!(
                rig.at(1_030_010).refused(VIEWPORT, &inp()),
                Refusal::Held(_)
            ));
            rig.at(1_030_011).holds(VIEWPORT, &inp());
        }
    }
    rig.transcript
}

// S6, A46
#[test]
fn six_ways_to_fail() {
    use Disposition::{PreMutation, RolledBack, Unknown};
    use Provenance::{Created, Reentrant};

    let transcripts = [
        fails(Created, PreMutation, Ok(())),
        fails(Created, RolledBack, Ok(())),
        fails(Created, Unknown, Err(Kept::UnknownEffect)),
        fails(Reentrant, PreMutation, Err(Kept::PreExisting)),
        fails(Reentrant, RolledBack, Err(Kept::PreExisting)),
        fails(Reentrant, Unknown, Err(Kept::PreExisting)),
    ];
    assert_snapshot!(transcripts.join("\n"));
}

// S7, A49
#[test]
fn a_creator_that_fails_does_not_unlock_its_colleague() {
    let mut rig = Rig::sessions();
    let creator = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, creator.at, op(1), creator.provenance)
        .change();
    let colleague = rig.at(1_000_001).granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, colleague.at, op(2), colleague.provenance)
        .change();
    let failed = rig
        .at(1_000_002)
        .end(VIEWPORT, creator.at, op(1), Err(Disposition::PreMutation))
        .change();
    let Detail::Ended {
        failure: Some(failure),
        in_flight: 1,
        ..
    } = failed.detail
    else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (failed.code, failure.kept),
        (Code::RetainedAfterFailure, Kept::Shared)
    );
    assert_eq!(
        conflict(rig.at(1_000_003).refused(VIEWPORT, &inp())),
        (mcp(), 1, 1)
    );
    rig.at(1_000_100)
        .end(VIEWPORT, colleague.at, op(2), Ok(()))
        .change();
    let view = rig.view(VIEWPORT);
    assert_eq!((view.holder, view.token.generation), (mcp(), generation(1)));
    assert_snapshot!(rig.transcript);
}

// S8
#[test]
fn one_identity_through_two_connections_is_two_writers() {
    let mut rig = Rig::sessions();
    let mut transport = Transport::new(100);
    let (first, second) = (
        transport.accept(&login("ag-1")),
        transport.accept(&login("ag-1")),
    );
    assert_eq!((first.session(), second.session()), ("s-100", "s-200"));
    rig.holds(VIEWPORT, &first);
    rig.holds("/app/dialog", &second);
    assert_eq!(conflict(rig.refused("/app/dialog", &first)).0, second);
    assert_eq!(conflict(rig.refused(VIEWPORT, &second)).0, first);
    let ended = rig.disconnect(&first);
    assert_eq!(
        ended.iter().map(|change| change.code).collect::<Vec<_>>(),
        [Code::Disconnected]
    );
    assert_eq!(rig.receipts.last().unwrap().resource, Some(key(VIEWPORT)));
    assert_eq!(rig.view("/app/dialog").holder, second);
    assert_eq!(
        rig.granted(VIEWPORT, &second).provenance,
        Provenance::Created
    );
    assert_snapshot!(rig.transcript);
}

// S9, A3
#[test]
fn a_claimed_session_id_is_nobodys() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let before = rig.view(VIEWPORT);
    let spoof = Transport::new(300).accept(&Login {
        agent: "ag-1",
        claims: ["s-100"; 3],
    });
    assert_ne!(spoof.session(), "s-100");
    assert_eq!(
        conflict(rig.at(T0 + 1).refused(VIEWPORT, &spoof)),
        (mcp(), 1, 0)
    );
    let guessed = FencingToken {
        authority: AuthorityId::from_bytes([0xEE; 16]),
        generation: generation(1),
        lease: LeaseId::from_bytes([0xEE; 16]),
    };
    let touched = rig.touch(VIEWPORT, guessed.into()).refusal();
    assert_eq!(touched.code(), Code::StaleToken);
    assert_eq!(rig.disconnect(&spoof), []);
    assert_eq!(rig.view(VIEWPORT), before);
    assert_eq!(
        (before.holder, before.token.generation),
        (mcp(), generation(1))
    );
    assert_snapshot!(rig.transcript);
}

// S10
#[test]
fn copies_are_defensive_and_overlap_is_by_segments() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let mut copy = rig.list();
    copy[0].touched = ms(0);
    copy.clear();
    assert_eq!(rig.list()[0].touched, ms(T0));
    assert_eq!(conflict(rig.refused("/app", &inp())).0, mcp());
    assert_eq!(conflict(rig.refused("/app/viewport/grid", &inp())).0, mcp());
    assert_eq!(
        rig.granted("/app/view", &inp()).provenance,
        Provenance::Created
    );
    assert_eq!(
        rig.granted("/app/dialog", &inp()).provenance,
        Provenance::Created
    );
    assert_snapshot!(rig.transcript);
}

/// What a writer finds after its own term, with or without somebody looking in between.
fn own_expired_lease(look: bool) -> Rig {
    let mut rig = Rig::sessions();
    let old = rig.granted(VIEWPORT, &mcp());
    rig.at(1_030_001);
    if look {
        assert!(rig.list().is_empty());
    }
    let new = rig.granted(VIEWPORT, &mcp());
    assert_eq!(
        (new.provenance, new.at.token.generation),
        (Provenance::Created, generation(2))
    );
    assert_eq!(rig.codes(), [Code::Created, Code::Reclaimed, Code::Created]);
    assert_stale(rig.touch(VIEWPORT, old.at).refusal(), Verb::Touch);
    rig
}

// S12, A24
#[test]
fn a_writers_own_expired_lease_is_not_revived() {
    let (asked, looked) = (own_expired_lease(false), own_expired_lease(true));
    let observed = |rig: &Rig| match rig.receipts[1].change.detail {
        Detail::Reclaimed { observed_by, .. } => observed_by,
        detail => panic!("{detail:?}"),
    };
    assert_eq!(observed(&asked), ObservedBy::Request);
    assert_eq!(observed(&looked), ObservedBy::Inspection);
    assert_eq!(
        asked.transcript.replace("Request", "Inspection"),
        looked.transcript
    );
    assert_snapshot!(looked.transcript);
}

// S13, A39
#[test]
fn a_disconnect_in_the_middle_makes_the_operation_stale() {
    let mut rig = Rig::sessions();
    let old = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, old.at, op(1), old.provenance).change();
    let ended = rig.at(1_000_050).disconnect(&mcp());
    let Detail::Disconnected { in_flight: 1, .. } = ended[0].detail else {
        panic!("{ended:?}")
    };
    let new = rig.at(1_000_051).granted(VIEWPORT, &inp());
    assert_eq!(new.at.token.generation, generation(2));
    rig.begin(VIEWPORT, new.at, op(2), new.provenance).change();
    let late = rig.at(1_000_090).end(VIEWPORT, old.at, op(1), Ok(()));
    assert_stale(late.refusal(), Verb::End);
    assert_eq!(rig.view(VIEWPORT).in_flight.len(), 1);
    assert_snapshot!(rig.transcript);
}

/// A lease created at T0 with an operation that will be interrupted at T0 + 100.
fn interrupted(interrupt: impl FnOnce(&Shared, Scope)) -> String {
    let rig: Shared = Rc::new(RefCell::new(Rig::sessions()));
    let grant = rig.borrow_mut().granted(VIEWPORT, &mcp());
    let scope = Scope::begin(&rig, &grant, op(1));
    rig.borrow_mut().at(1_000_100);
    interrupt(&rig, scope);
    let mut rig = rig.borrow_mut();
    assert_eq!(rig.view(VIEWPORT).in_flight.len(), 0);
    let failed = rig.with_code(Code::RetainedAfterFailure)[0];
    let Detail::Ended {
        failure: Some(failure),
        ..
    } = failed.change.detail
    else {
        panic!()
    };
    assert_eq!(
        (failure.disposition, failure.kept),
        (Disposition::Unknown, Kept::UnknownEffect)
    );
    let cause = failed.note.as_ref().unwrap().reason.to_string();
    assert_eq!(
        conflict(rig.at(1_030_100).refused(VIEWPORT, &inp())),
        (mcp(), 1, 0)
    );
    rig.at(1_030_101).holds(VIEWPORT, &inp());
    cause
}

// S14, A35
#[test]
fn a_dropped_or_panicking_operation_is_a_failure_of_unknown_effect() {
    let aborted = interrupted(|_, scope| {
        abort_after_first_poll(async move {
            pause(1).await;
            scope.end(Ok(()))
        });
    });
    assert_eq!(aborted, "dropped");
    let panicked = interrupted(|_, scope| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _scope = scope;
            std::panic::resume_unwind(Box::new("the application failed"));
        }));
        assert!(outcome.is_err());
    });
    assert_eq!(panicked, "panic");
}

// A31
#[test]
fn sync_and_async_operations_are_shielded_alike() {
    let rig: Shared = Rc::new(RefCell::new(Rig::sessions()));
    let grant = rig.borrow_mut().granted(VIEWPORT, &mcp());
    let scope = Scope::begin(&rig, &grant, op(1));
    // Ten terms pass while the future waits; nobody gets in.
    let mut now = T0;
    let change = drive(
        async move {
            pause(10).await;
            scope.end(Ok(()))
        },
        || {
            now += 30_000;
            assert_eq!(
                conflict(rig.borrow_mut().at(now).refused(VIEWPORT, &inp())),
                (mcp(), 1, 1)
            );
        },
    );
    assert_eq!(change.code, Code::OperationEnded);
    // The same without a future.
    let scope = Scope::begin(&rig, &grant, op(2));
    rig.borrow_mut().at(now + 300_000);
    assert_eq!(
        conflict(rig.borrow_mut().refused(VIEWPORT, &inp())),
        (mcp(), 1, 1)
    );
    assert_eq!(scope.end(Ok(())).code, Code::OperationEnded);
}

// S15, A5
#[test]
fn a_token_of_an_earlier_authority_matches_nothing() {
    let mut first = Rig::of(AuthorityId::from_bytes([1; 16]), session_ttl());
    let old = first.granted(VIEWPORT, &mcp());
    assert_eq!(old.at.token.generation, generation(1));
    drop(first);
    let mut second = Rig::of(AuthorityId::from_bytes([2; 16]), session_ttl());
    assert!(second.list().is_empty());
    let new = second.granted(VIEWPORT, &inp());
    assert_eq!(new.at.token.generation, generation(1));
    let Refusal::StaleToken { given, present, .. } = second.release(VIEWPORT, old.at).refusal()
    else {
        panic!()
    };
    assert_eq!((given, present), (old.at.token, Some(generation(1))));
    assert_eq!(second.view(VIEWPORT).holder, inp());
}

// fault B17
#[test]
fn the_loser_of_the_first_race_is_admitted_later_without_a_restart() {
    let mut rig = Rig::sessions();
    let (s1, s2, other) = (who("X", "s1"), who("X", "s2"), who("Y", "s1"));
    rig.holds(VIEWPORT, &s1);
    assert_eq!(conflict(rig.refused(VIEWPORT, &s2)).0, s1);
    assert_eq!(conflict(rig.refused(VIEWPORT, &other)).0, s1);
    rig.disconnect(&s1);
    assert_eq!(rig.granted(VIEWPORT, &s2).provenance, Provenance::Created);
    assert_eq!(conflict(rig.refused(VIEWPORT, &oth())).0, s2);
}
