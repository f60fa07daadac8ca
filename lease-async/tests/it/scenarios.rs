//! The scenarios of the in-process guard, by sessions and guards on a paused clock.

use std::time::Duration;

use lease_async::{LeaseError, Loss, Standing};
use lease_core::{
    Action, At, AuthorityId, By, Call, Code, Detail, Disposition, FencingToken, Generation, Kept,
    LeaseId, Moment, ObservedBy, OperationKind, Outcome, Provenance, Refusal, ResourceKey, Wait,
};

use crate::rig::{KEY, Rig, T0, ask, conflict, generation};

async fn fails(work: &lease_async::LeaseGuard, after: u64, rig: &Rig<lease_async::TokioClock>) {
    let operation = work.begin().await.unwrap();
    rig.at(after).await;
    operation.fail(Disposition::Unknown).await.unwrap();
}

// S1, A53
#[tokio::test(start_paused = true)]
async fn a_persistent_writer_whose_call_failed_loses_its_lease_by_idle_term() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let held = ask(&mcp).await.unwrap();
    fails(&held, 1_000_500, &rig).await;
    rig.at(1_000_600).await;
    assert_eq!(conflict(ask(&inp).await), (1, 100, 0));
    rig.at(1_030_500).await;
    assert_eq!(conflict(ask(&inp).await), (1, 30_000, 0));
    rig.receipts();
    rig.at(1_030_501).await;
    let next = ask(&inp).await.unwrap();
    assert_eq!(generation(&next), 2);
    assert_eq!(next.token().authority, held.token().authority);
    let receipts = rig.receipts();
    let reclaimed = &receipts[0];
    assert_eq!(reclaimed.change.code, Code::Reclaimed);
    assert_eq!(reclaimed.holder.as_ref(), Some(mcp.holder()));
    let idle = Duration::from_millis(30_001);
    let observed_by = ObservedBy::Request;
    assert_eq!(
        reclaimed.change.detail,
        Detail::Reclaimed { idle, observed_by }
    );
    assert_eq!(receipts[1].change.code, Code::Created);
    assert_eq!(receipts[1].holder.as_ref(), Some(inp.holder()));
    assert_eq!(held.standing(), Standing::Lost(Loss::Expired));
}

// S2
#[tokio::test(start_paused = true)]
async fn a_persistent_writer_that_disconnects_lets_the_next_one_in_at_once() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let held = ask(&mcp).await.unwrap();
    fails(&held, 1_000_500, &rig).await;
    rig.at(1_005_000).await;
    rig.receipts();
    drop(mcp);
    assert_eq!(held.standing(), Standing::Lost(Loss::Disconnected));
    let next = ask(&inp).await.unwrap();
    assert_eq!(generation(&next), 2);
    let receipts = rig.receipts();
    let codes: Vec<Code> = receipts.iter().map(|receipt| receipt.change.code).collect();
    assert_eq!(codes, [Code::Disconnected, Code::Created]);
    let idle = Duration::from_millis(4_500);
    let (in_flight, expired) = (0, false);
    let expected = Detail::Disconnected {
        in_flight,
        idle,
        expired,
    };
    assert_eq!(receipts[0].change.detail, expected);
}

// S3, A31
#[tokio::test(start_paused = true)]
async fn an_operation_awaits_far_beyond_its_term() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let held = ask(&mcp).await.unwrap();
    let operation = held.begin().await.unwrap();
    let work = tokio::spawn(operation.run(async {
        tokio::time::sleep(Duration::from_millis(300_100)).await;
        Ok::<_, std::io::Error>(7)
    }));
    for ms in [1_030_001, 1_150_000, 1_300_099] {
        rig.at(ms).await;
        assert_eq!(conflict(ask(&inp).await).2, 1);
        assert_eq!(held.standing(), Standing::Safe);
    }
    assert_eq!(work.await.unwrap().unwrap(), 7);
    rig.at(1_330_100).await;
    assert_eq!(conflict(ask(&inp).await), (1, 30_000, 0));
    rig.receipts();
    rig.at(1_330_101).await;
    assert_eq!(held.standing(), Standing::Lost(Loss::Expired));
    let next = ask(&inp).await.unwrap();
    assert_eq!(generation(&next), 2);
    assert_eq!(rig.codes(), [(Code::Reclaimed, 1), (Code::Created, 2)]);
}

// S4
#[tokio::test(start_paused = true)]
async fn re_entry_refreshes_and_does_not_duplicate() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let first = ask(&mcp).await.unwrap();
    assert_eq!(first.provenance(), Provenance::Created);
    for ms in [1_020_000, 1_045_000] {
        rig.at(ms).await;
        let again = ask(&mcp).await.unwrap();
        assert_eq!(again.provenance(), Provenance::Reentrant);
        assert_eq!(again.token(), first.token());
    }
    let view = rig.only();
    assert_eq!(view.acquired, Moment::from_millis(T0));
    assert_eq!(view.touched, Moment::from_millis(1_045_000));
    rig.at(1_075_000).await;
    assert_eq!(conflict(ask(&inp).await), (1, 30_000, 0));
    rig.receipts();
    rig.at(1_075_001).await;
    let next = ask(&inp).await.unwrap();
    assert_eq!(generation(&next), 2);
    assert_eq!(rig.codes(), [(Code::Reclaimed, 1), (Code::Created, 2)]);
}

// S5, fault B02
#[tokio::test(start_paused = true)]
async fn a_stale_holder_changes_nothing_of_its_successor() {
    let rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let old = ask(&mcp).await.unwrap();
    rig.at(1_030_001).await;
    let next = ask(&inp).await.unwrap();
    let operation = next.begin().await.unwrap();
    let before = rig.only();
    rig.at(1_030_002).await;
    assert!(matches!(old.touch().await, Err(LeaseError::Lost(_))));
    rig.at(1_030_003).await;
    assert!(matches!(old.begin().await, Err(LeaseError::Lost(_))));
    rig.at(1_030_004).await;
    // By the bare token too, as somebody would who kept it.
    for action in [
        Action::Touch(At::from(old.token())),
        Action::Release(By::Token(At::from(old.token()))),
        Action::End {
            at: At::from(old.token()),
            op: operation.id(),
            result: Ok(()),
        },
    ] {
        assert_stale(&rig, action).await;
    }
    rig.at(1_030_005).await;
    let kept = old.release().await.unwrap_err().guard;
    let kept = kept.release().await.unwrap_err().guard;
    drop(kept);
    assert_eq!(rig.only(), before);
    operation.end().await.unwrap();
}

async fn assert_stale<C: lease_async::AlarmClock + Clone>(
    rig: &Rig<C>,
    action: Action<lease_async::SessionHolder>,
) {
    let resource = Some(ResourceKey::new(KEY).unwrap());
    let wait = Wait::No;
    let call = Call {
        resource,
        action,
        wait,
    };
    let answer = rig.leases.authority().call(call).answer().await.unwrap();
    let stale = matches!(answer, Outcome::Refused(Refusal::StaleToken { .. }));
    assert!(stale, "{answer:?}");
}

/// Fails an operation that created its lease, or re-entered it, and says whether the next writer is let in
/// at once. Else it must be let in at the end of the term.
async fn six_ways(from: Provenance, disposition: Disposition) -> (Code, Option<Kept>, bool) {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let mut guards = Vec::new();
    if from == Provenance::Reentrant {
        guards.push(ask(&mcp).await.unwrap());
    }
    guards.push(ask(&mcp).await.unwrap());
    let operation = guards.last().unwrap().begin().await.unwrap();
    assert_eq!(operation.provenance(), from);
    rig.at(1_000_010).await;
    operation.fail(disposition).await.unwrap();
    let receipt = rig.receipts().pop().unwrap();
    let kept = match receipt.change.detail {
        Detail::Ended {
            failure: Some(failure),
            expires,
            ..
        } => {
            assert_eq!(expires, Some(Moment::from_millis(1_030_010)));
            Some(failure.kept)
        }
        _ => None,
    };
    rig.at(1_000_011).await;
    let at_once = ask(&inp).await.is_ok();
    if !at_once {
        rig.at(1_030_010).await;
        conflict(ask(&inp).await);
        rig.at(1_030_011).await;
        assert!(ask(&inp).await.is_ok());
    }
    let lost = matches!(guards.last().unwrap().standing(), Standing::Lost(_));
    assert!(lost);
    (receipt.change.code, kept, at_once)
}

// S6
#[tokio::test(start_paused = true)]
async fn a_failure_releases_only_what_its_operation_made_and_left_clean() {
    use Disposition::{PreMutation, RolledBack, Unknown};
    use Provenance::{Created, Reentrant};

    let freed = (Code::ReleasedAfterFailure, None, true);
    let kept = |kept| (Code::RetainedAfterFailure, Some(kept), false);
    assert_eq!(six_ways(Created, PreMutation).await, freed);
    assert_eq!(six_ways(Created, RolledBack).await, freed);
    assert_eq!(six_ways(Created, Unknown).await, kept(Kept::UnknownEffect));
    for disposition in [PreMutation, RolledBack, Unknown] {
        let pre_existing = kept(Kept::PreExisting);
        assert_eq!(six_ways(Reentrant, disposition).await, pre_existing);
    }
}

// S7
#[tokio::test(start_paused = true)]
async fn a_creator_that_fails_leaves_the_lease_to_its_colleague() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let one = ask(&mcp).await.unwrap();
    let first = one.begin().await.unwrap();
    rig.at(1_000_001).await;
    let two = ask(&mcp).await.unwrap();
    let second = two.begin().await.unwrap();
    rig.at(1_000_002).await;
    let change = first.fail(Disposition::PreMutation).await.unwrap();
    assert_eq!(change.code, Code::RetainedAfterFailure);
    let shared = matches!(
        change.detail,
        Detail::Ended { failure: Some(failure), in_flight: 1, .. } if failure.kept == Kept::Shared
    );
    assert!(shared, "{change:?}");
    rig.at(1_000_003).await;
    assert_eq!(conflict(ask(&inp).await), (1, 1, 1));
    rig.at(1_000_100).await;
    second.end().await.unwrap();
    assert_eq!(rig.only().token, one.token());
    assert_eq!(one.standing(), Standing::Safe);
    rig.receipts();
}

// S8, A2, fault B17
#[tokio::test(start_paused = true)]
async fn one_agent_with_two_connections_is_two_writers() {
    let mut rig = Rig::paused();
    let (first, second) = (rig.connect("ag-1"), rig.connect("ag-1"));
    assert_ne!(first.holder(), second.holder());
    let viewport = ask(&first).await.unwrap();
    let dialog = second.acquire("/app/dialog").await.unwrap();
    conflict(ask(&second).await);
    conflict(first.acquire("/app/dialog").await);
    // Another agent, too, and none of them was made read-only by its refusal.
    let other = rig.connect("ag-2");
    conflict(ask(&other).await);
    rig.receipts();
    drop(first);
    assert_eq!(rig.codes(), [(Code::Disconnected, 1)]);
    assert_eq!(viewport.standing(), Standing::Lost(Loss::Disconnected));
    assert_eq!(dialog.standing(), Standing::Safe);
    assert_eq!(generation(&ask(&second).await.unwrap()), 3);
}

// S9, A3
#[tokio::test(start_paused = true)]
async fn a_session_named_by_its_client_is_minted_all_the_same() {
    let mut rig = Rig::paused();
    let mcp = rig.connect("ag-1");
    let held = ask(&mcp).await.unwrap();
    // All that a client can send is its agent's name.
    let spoof = rig.connect("ag-1");
    assert_ne!(spoof.holder().session(), mcp.holder().session());
    assert_eq!(spoof.holder().session().len(), 32);
    conflict(ask(&spoof).await);
    let guessed = FencingToken {
        authority: AuthorityId::from_random([1; 16]),
        generation: Generation::FIRST,
        lease: LeaseId::from_random([2; 16]),
    };
    assert_stale(&rig, Action::Touch(At::from(guessed))).await;
    let before = rig.only();
    rig.receipts();
    drop(spoof);
    assert_eq!(rig.codes(), []);
    assert_eq!(rig.only(), before);
    assert_eq!(held.standing(), Standing::Safe);
}

// S10
#[tokio::test(start_paused = true)]
async fn lists_are_copies_and_overlap_is_by_ancestry() {
    let rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let held = ask(&mcp).await.unwrap();
    let mut list = rig.memory.list();
    list[0].touched = Moment::ZERO;
    list.clear();
    assert_eq!(rig.only().touched, Moment::from_millis(T0));
    conflict(inp.acquire("/app").await);
    conflict(inp.acquire("/app/viewport/grid").await);
    let view = inp.acquire("/app/view").await.unwrap();
    let dialog = inp.acquire("/app/dialog").await.unwrap();
    let provenances = [&held, &view, &dialog].map(|guard| guard.provenance());
    assert_eq!(provenances, [Provenance::Created; 3]);
}

/// An application in which something can be made, set, called, undone, redone and destroyed.
#[derive(Debug, Default, PartialEq)]
struct Model {
    value: Option<i32>,
    before: Option<i32>,
}

// S11
#[tokio::test(start_paused = true)]
async fn every_kind_of_work_runs_under_one_lease() {
    use OperationKind::{CallMethod, Create, Destroy, Redo, SetProperty, Undo};

    let mut rig = Rig::paused();
    let mcp = rig.connect("mcp");
    let hold = ask(&mcp).await.unwrap();
    let mut model = Model::default();
    let mut provenances = Vec::new();
    let clean = Err(Disposition::PreMutation);
    let steps: [(OperationKind, Result<i32, Disposition>); 7] = [
        (Create, Ok(1)),
        (SetProperty, Ok(2)),
        (SetProperty, clean),
        (CallMethod, clean),
        (Undo, Ok(1)),
        (Redo, Ok(2)),
        (Destroy, Err(Disposition::RolledBack)),
    ];
    for (step, (kind, result)) in (1..).zip(steps) {
        rig.at(T0 + 100 * step).await;
        let operation = hold.begin_kind(kind).await.unwrap();
        provenances.push(operation.provenance());
        match result {
            Ok(value) => {
                model.before = model.value.replace(value);
                operation.end().await.unwrap();
            }
            Err(claimed) => drop(operation.fail(claimed).await.unwrap()),
        }
        assert_eq!(rig.only().token, hold.token());
    }
    let mut expected = [Provenance::Reentrant; 7];
    expected[0] = Provenance::Created;
    assert_eq!(provenances, expected);
    let failures: Vec<_> = rig
        .receipts()
        .iter()
        .filter_map(|receipt| match receipt.change.detail {
            Detail::Ended {
                failure: Some(failure),
                ..
            } => Some((failure.disposition, failure.kept)),
            _ => None,
        })
        .collect();
    let kept = Kept::PreExisting;
    assert_eq!(
        failures,
        [
            (Disposition::PreMutation, kept),
            // A method call runs arbitrary code, whatever it claims.
            (Disposition::Unknown, kept),
            (Disposition::RolledBack, kept),
        ]
    );
    let (value, before) = (Some(2), Some(1));
    assert_eq!(model, Model { value, before });
    drop(mcp);
    drop(hold);
    rig.assert_empty();
}

// S12
#[tokio::test(start_paused = true)]
async fn an_own_expired_lease_is_not_revived() {
    for look in [false, true] {
        let mut rig = Rig::paused();
        let mcp = rig.connect("mcp");
        let old = ask(&mcp).await.unwrap();
        rig.at(1_030_001).await;
        if look {
            assert_eq!(rig.memory.list(), []);
        }
        rig.at(1_030_001).await;
        let new = ask(&mcp).await.unwrap();
        assert_eq!((generation(&old), generation(&new)), (1, 2));
        assert_eq!(new.provenance(), Provenance::Created);
        assert!(matches!(old.touch().await, Err(LeaseError::Lost(_))));
        let codes = rig.codes();
        let ends = [(Code::Created, 1), (Code::Reclaimed, 1), (Code::Created, 2)];
        assert_eq!(codes, ends);
        drop(old);
        assert_eq!(rig.only().token, new.token());
    }
}

// S13
#[tokio::test(start_paused = true)]
async fn what_runs_on_after_a_disconnect_is_stale() {
    let mut rig = Rig::paused();
    let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
    let held = ask(&mcp).await.unwrap();
    let late = held.begin().await.unwrap();
    rig.at(1_000_050).await;
    rig.receipts();
    drop(mcp);
    let in_flight = match rig.receipts()[0].change.detail {
        Detail::Disconnected { in_flight, .. } => in_flight,
        other => panic!("{other:?}"),
    };
    assert_eq!(in_flight, 1);
    rig.at(1_000_051).await;
    let next = ask(&inp).await.unwrap();
    let operation = next.begin().await.unwrap();
    rig.at(1_000_090).await;
    let error = late.end().await.unwrap_err();
    assert!(
        matches!(error, LeaseError::Lost(Loss::Disconnected)),
        "{error:?}"
    );
    assert_eq!((generation(&next), rig.only().in_flight.len()), (2, 1));
    operation.end().await.unwrap();
}

// S14, A35
#[tokio::test(start_paused = true)]
async fn a_cancelled_or_unwound_operation_is_a_failure_of_unknown_effect() {
    for panics in [false, true] {
        let mut rig = Rig::paused();
        let (mcp, inp) = (rig.connect("mcp"), rig.connect("inp"));
        let held = ask(&mcp).await.unwrap();
        let operation = held.begin().await.unwrap();
        let work = tokio::spawn(operation.run(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if panics {
                panic!("as planned");
            }
            core::future::pending::<Result<(), std::io::Error>>().await
        }));
        rig.at(1_000_100).await;
        if !panics {
            work.abort();
        }
        assert_eq!(work.await.unwrap_err().is_panic(), panics);
        assert_eq!(rig.only().in_flight, []);
        let receipt = rig.receipts().pop().unwrap();
        assert_eq!(receipt.change.code, Code::RetainedAfterFailure);
        let unknown = matches!(
            receipt.change.detail,
            Detail::Ended { failure: Some(failure), in_flight: 0, .. }
                if failure.disposition == Disposition::Unknown
                    && failure.kept == Kept::UnknownEffect
        );
        assert!(unknown, "{receipt:?}");
        let cause = if panics { "panic" } else { "dropped" };
        assert_eq!(&*receipt.note.as_ref().unwrap().reason, cause);
        rig.at(1_030_100).await;
        conflict(ask(&inp).await);
        rig.at(1_030_101).await;
        assert_eq!(generation(&ask(&inp).await.unwrap()), 2);
    }
}

// S15
#[tokio::test(start_paused = true)]
async fn a_token_of_an_authority_that_is_gone_matches_nothing() {
    let old = Rig::paused();
    let token = ask(&old.connect("mcp")).await.unwrap().token();
    drop(old);
    let rig = Rig::paused();
    let inp = rig.connect("inp");
    let held = ask(&inp).await.unwrap();
    assert_eq!(held.token().generation, token.generation);
    let release = Action::Release(By::Token(At::from(token)));
    assert_stale(&rig, release).await;
    assert_eq!(rig.only().token, held.token());
}
