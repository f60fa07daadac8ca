//! What becomes of a lease when its guards, operations and session go, row by row.

use core::task::Poll;
use std::pin::pin;
use std::sync::Arc;

use lease_async::{Authority, LeaseError, Leases, Loss, Memory, Released, SessionHolder, Standing};
use lease_core::{Code, Disposition, Provenance, Refusal};

use crate::rig::{KEY, Rig, TTL, ask, conflict, generation, poll};

#[tokio::test]
async fn a_guard_that_is_not_the_last_changes_nothing() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let (one, two) = (ask(&session).await.unwrap(), ask(&session).await.unwrap());
    rig.receipts();
    drop(one);
    assert_eq!(rig.codes(), []);
    assert_eq!(two.standing(), Standing::Safe);
    drop(two);
    assert_eq!(rig.codes(), [(Code::Released, 1)]);
    rig.assert_empty();
}

// fault B16
#[tokio::test]
async fn only_the_session_re_enters_and_the_last_release_of_any_order_frees() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("a"));
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(Some(ask(&session).await.unwrap()));
        }
        // Same task, same thread, same agent: another writer.
        conflict(ask(&other).await);
        let mut codes = Vec::new();
        for guard in order {
            let released = guards[guard].take().unwrap().release().await.unwrap();
            codes.push(released.code());
        }
        assert_eq!(
            codes,
            [Code::DepthReleased, Code::DepthReleased, Code::Released]
        );
        rig.assert_empty();
    }
}

// C65
#[tokio::test]
async fn a_task_writes_under_the_lease_of_another_only_with_its_guard() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("a"));
    let guard = ask(&session).await.unwrap();
    // Both run on this one thread.
    let stranger = tokio::spawn(async move { conflict(ask(&other).await) });
    assert_eq!(stranger.await.unwrap().0, 1);
    let heir = tokio::spawn(async move {
        guard.begin().await.unwrap().end().await.unwrap();
        guard
    });
    assert_eq!(generation(&heir.await.unwrap()), 1);
}

#[tokio::test]
async fn an_idle_lease_goes_with_its_last_guard() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    guard.begin().await.unwrap().end().await.unwrap();
    // A failure that left nothing behind, in somebody who had not made the lease.
    let clean = guard.begin().await.unwrap();
    clean.fail(Disposition::RolledBack).await.unwrap();
    rig.receipts();
    drop(guard);
    assert_eq!(rig.codes(), [(Code::Released, 1)]);
    rig.assert_empty();
}

#[tokio::test]
async fn a_lease_with_an_operation_in_flight_outlives_its_guards() {
    let mut rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    rig.receipts();
    drop(guard);
    assert_eq!(rig.codes(), []);
    let known = rig.leases.list();
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!((known[0].guards, known[0].operations), (0, 1));
    rig.clock.advance(TTL * 3);
    assert_eq!(rig.leases.list()[0].standing, Standing::Safe);
    assert_eq!(conflict(ask(&other).await).2, 1);
    operation.end().await.unwrap();
    rig.clock.advance(TTL);
    conflict(ask(&other).await);
    rig.clock.advance(TTL / 30_000);
    assert_eq!(generation(&ask(&other).await.unwrap()), 2);
}

#[tokio::test]
async fn a_lease_with_an_unknown_effect_outlives_its_guards() {
    let mut rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    operation.fail(Disposition::Unknown).await.unwrap();
    rig.receipts();
    drop(guard);
    assert_eq!(rig.codes(), []);
    conflict(ask(&other).await);
    // A new guard of the same lease knows of it, too.
    drop(ask(&session).await.unwrap());
    conflict(ask(&other).await);
    drop(session);
    assert_eq!(generation(&ask(&other).await.unwrap()), 2);
}

#[tokio::test]
async fn a_dropped_operation_is_of_unknown_effect() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    drop(guard.begin().await.unwrap());
    assert_eq!(rig.codes().pop(), Some((Code::RetainedAfterFailure, 1)));
    drop(guard);
    assert_eq!(rig.only().in_flight, []);
    assert!(rig.only().tainted);
}

#[tokio::test]
async fn a_kept_lease_stays_until_its_session_ends() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    ask(&session).await.unwrap().keep();
    drop(ask(&session).await.unwrap());
    assert_eq!(rig.only().token.generation.get(), 1);
    rig.receipts();
    drop(session);
    assert_eq!(rig.codes(), [(Code::Disconnected, 1)]);
    rig.assert_empty();
}

#[tokio::test]
async fn a_lost_guard_and_its_operation_go_without_a_trace() {
    let mut rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    drop(session);
    let next = ask(&other).await.unwrap();
    rig.receipts();
    drop(guard);
    drop(operation);
    assert_eq!(rig.codes(), []);
    assert_eq!(next.standing(), Standing::Safe);
    assert_eq!(rig.only().token, next.token());
}

#[tokio::test]
async fn a_clean_failure_of_the_creator_loses_all_guards_as_released() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    operation.fail(Disposition::PreMutation).await.unwrap();
    assert_eq!(guard.standing(), Standing::Lost(Loss::Released));
    assert!(guard.cancellation_token().is_cancelled());
    rig.assert_empty();
    // Asking again gives a new lease, and the old guard goes without touching it.
    let again = ask(&session).await.unwrap();
    drop(guard);
    assert_eq!(rig.only().token, again.token());
}

#[tokio::test]
async fn a_release_that_is_refused_gives_the_guard_back() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    let refused = guard.release().await.unwrap_err();
    let in_flight = Refusal::OperationInFlight {
        count: 1,
        oldest: rig.only().in_flight[0].since,
    };
    assert!(matches!(refused.error, LeaseError::Refused(refusal) if refusal == in_flight));
    operation.end().await.unwrap();
    let released = refused.guard.release().await.unwrap();
    assert!(matches!(released, Released::Lease(change) if change.code == Code::Released));
    rig.assert_empty();
}

// fault B17
#[tokio::test]
async fn a_dropped_session_frees_everything_and_answers_its_requests() {
    let mut rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let more = session.acquire("/app/dialog").await.unwrap();
    let held = other.acquire("/app/menu").await.unwrap();
    let waits = tokio::spawn(session.acquire("/app/menu").forever().into_future());
    tokio::task::yield_now().await;
    assert_eq!(rig.memory.waiting(), 1);
    rig.receipts();
    let late = session.acquire("/app/late").into_future();
    drop(session);
    let gone = waits.await.unwrap().unwrap_err();
    assert!(
        matches!(gone, lease_async::AcquireError::SessionGone),
        "{gone:?}"
    );
    let gone = late.await.unwrap_err();
    assert!(
        matches!(gone, lease_async::AcquireError::SessionGone),
        "{gone:?}"
    );
    let disconnected = |generation| (Code::Disconnected, generation);
    assert_eq!(rig.codes()[1..], [disconnected(1), disconnected(2)]);
    for lost in [&guard, &more] {
        assert_eq!(lost.standing(), Standing::Lost(Loss::Disconnected));
    }
    assert_eq!(rig.only().token, held.token());
    assert_eq!(generation(&ask(&other).await.unwrap()), 4);
}

#[tokio::test]
async fn the_next_lease_of_a_session_has_nothing_of_the_last_one() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let first = ask(&session).await.unwrap();
    let (old, lost) = (first.token(), first.cancellation_token());
    first.begin().await.unwrap().end().await.unwrap();
    drop(first);
    assert!(lost.is_cancelled());
    for resource in [KEY, "/app/menu"] {
        let next = session.acquire(resource).await.unwrap();
        assert_ne!(next.token(), old);
        assert_eq!(next.resource().to_string(), resource[1..]);
        assert_eq!(next.provenance(), Provenance::Created);
        assert_eq!(next.standing(), Standing::Safe);
        assert!(!next.cancellation_token().is_cancelled());
        assert_eq!(rig.only().token, next.token());
    }
    rig.assert_empty();
}

#[test]
fn an_authority_goes_with_its_last_front_session_and_guard() {
    let memory = Memory::new().unwrap();
    let policy = memory.default_policy();
    let authority: Arc<dyn Authority<Holder = SessionHolder>> = Arc::new(memory);
    let weak = Arc::downgrade(&authority);
    let leases = Leases::open(authority, policy).unwrap();
    let session = leases.connect("a").unwrap();
    for _ in 0..2 {
        drop(poll(pin!(ask(&session))));
    }
    let Poll::Ready(Ok(kept)) = poll(pin!(ask(&session))) else {
        panic!("it is free");
    };
    let [other, last] = ["b", "c"].map(|agent| leases.connect(agent).unwrap());
    for session in [&other, &last] {
        drop(poll(pin!(session.acquire("/app/menu").into_future())));
    }
    drop((leases, session, other, last));
    assert!(weak.upgrade().is_some());
    drop(kept);
    assert!(weak.upgrade().is_none());
}

#[tokio::test]
async fn a_lease_that_has_ended_is_not_known_and_keeps_nothing_of_its_session() {
    let memory = Memory::new().unwrap();
    let policy = memory.default_policy();
    let authority: Arc<dyn Authority<Holder = SessionHolder>> = Arc::new(memory);
    let weak = Arc::downgrade(&authority);
    let leases = Leases::open(authority, policy).unwrap();
    let sessions = ["a", "b"].map(|agent| leases.connect(agent).unwrap());
    for round in 0..300 {
        let [one, two] = [round % 2, round % 3 % 2].map(|which| &sessions[which]);
        let here = one.acquire(format!("/app/{}", round % 7)).await.unwrap();
        let there = two.acquire(format!("/tool/{round}")).await.unwrap();
        assert_eq!((leases.known(), leases.list().len()), (2, 2));
        if round % 5 == 0 {
            here.release().await.unwrap();
        } else {
            drop(here);
        }
        let listed: Vec<_> = leases.list().into_iter().map(|held| held.token).collect();
        assert_eq!((leases.known(), listed), (1, vec![there.token()]));
        drop(there);
        assert_eq!((leases.known(), leases.list().len()), (0, 0));
    }
    let health = leases.health();
    assert!(health.oldest.is_none(), "{health:?}");
    drop((leases, sessions));
    assert!(weak.upgrade().is_none());
}
