//! Loss: noticed by the holder's own check before anybody else can be granted, and told.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use lease_async::{LeaseError, LeasePolicy, Leases, Loss, ManualClock, Memory, Moment, Standing};
use lease_core::{
    Action, Call, Code, Disposition, FenceGate, Fenced, OnExpiry, Outcome, PolicyBuilder, Proofs,
    Provenance, ResourceKey, Term, Wait,
};
use tracing::Subscriber;
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

use crate::rig::{KEY, Rig, T0, TTL, ask, conflict, generation};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_lease_is_safe_then_in_jeopardy_then_lost() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    rig.clock.advance(TTL * 2 / 3);
    assert_eq!(guard.standing(), Standing::Safe);
    rig.clock.advance(MS);
    assert_eq!(guard.standing(), Standing::Jeopardy);
    rig.clock.advance(TTL / 3 - MS);
    assert_eq!(guard.standing(), Standing::Jeopardy);
    conflict(ask(&other).await);
    // The same instant at which another can be let in.
    rig.clock.advance(Duration::from_nanos(1));
    assert_eq!(guard.standing(), Standing::Lost(Loss::Expired));
    assert_eq!(generation(&ask(&other).await.unwrap()), 2);
}

#[tokio::test]
async fn a_touch_and_the_end_of_an_operation_make_it_safe_again() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    rig.clock.advance(TTL);
    assert_eq!(guard.standing(), Standing::Jeopardy);
    guard.touch().await.unwrap();
    assert_eq!(guard.standing(), Standing::Safe);
    let operation = guard.begin().await.unwrap();
    rig.clock.advance(TTL * 5);
    assert_eq!(guard.standing(), Standing::Safe);
    drop(operation);
    assert_eq!(guard.standing(), Standing::Safe);
    rig.clock.advance(TTL);
    assert_eq!(guard.standing(), Standing::Jeopardy);
}

#[tokio::test]
async fn what_a_blocked_executor_slept_through_is_noticed_before_the_next_write() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = session.acquire(KEY).renewed().await.unwrap();
    let operation = guard.begin().await.unwrap();
    // Time passes and nothing of this runtime is polled: the operation shields, without any timer.
    rig.clock.advance(TTL * 10);
    assert_eq!(conflict(ask(&other).await).2, 1);
    operation.end().await.unwrap();
    drop(guard);

    let guard = ask(&session).await.unwrap();
    rig.clock.advance(TTL * 10);
    let lost = guard.ensure(Duration::ZERO).await.unwrap_err();
    assert!(matches!(lost, LeaseError::Lost(Loss::Expired)), "{lost:?}");
    assert!(matches!(guard.begin().await, Err(LeaseError::Lost(_))));
    assert!(matches!(guard.touch().await, Err(LeaseError::Lost(_))));
}

// fault B47
#[tokio::test]
async fn after_a_long_sleep_the_loss_is_a_value_and_a_new_lease_is_the_way_back() {
    for contender in [false, true] {
        let rig = Rig::still();
        let (session, other) = (rig.connect("a"), rig.connect("b"));
        let guard = session.acquire(KEY).renewed().await.unwrap();
        rig.clock.advance(TTL * 5);
        assert_eq!(guard.standing(), Standing::Lost(Loss::Expired));
        let theirs = if contender {
            Some(ask(&other).await.unwrap())
        } else {
            None
        };
        assert!(matches!(guard.renew(None).await, Err(LeaseError::Lost(_))));
        drop(theirs);
        let again = ask(&session).await.unwrap();
        assert_ne!(again.token(), guard.token());
        assert_eq!(again.standing(), Standing::Safe);
    }
}

#[tokio::test]
async fn ensure_renews_only_what_would_be_too_short() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    rig.clock.advance(TTL / 2);
    rig.receipts();
    guard.ensure(TTL / 2).await.unwrap();
    assert_eq!(rig.codes(), []);
    guard.ensure(TTL / 2 + MS).await.unwrap();
    assert_eq!(rig.codes(), [(Code::Touched, 1)]);
    let error = guard.ensure(TTL + MS).await.unwrap_err();
    assert!(matches!(error, LeaseError::TermTooShort), "{error:?}");
    assert_eq!(guard.standing(), Standing::Safe);
    // What shields needs no term.
    let operation = guard.begin().await.unwrap();
    rig.clock.advance(TTL * 2);
    rig.receipts();
    guard.ensure(TTL * 2).await.unwrap();
    assert_eq!(rig.codes(), []);
    operation.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_loss_is_told_at_the_end_of_the_term() {
    let rig = Rig::paused();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let token = guard.cancellation_token();
    rig.at(T0 + 20_000).await;
    guard.touch().await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(token.is_cancelled());
    rig.at(T0 + 50_001).await;
}

#[tokio::test(start_paused = true)]
async fn a_term_that_was_shielded_is_watched_again_after_the_operation() {
    let rig = Rig::paused();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let token = guard.cancellation_token();
    let operation = guard.begin().await.unwrap();
    rig.at(T0 + 100_000).await;
    assert!(!token.is_cancelled());
    operation.end().await.unwrap();
    token.cancelled().await;
    rig.at(T0 + 130_001).await;
}

// fault B20
#[tokio::test]
async fn a_writer_that_wakes_after_its_successor_is_turned_away_at_the_resource() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let mut gate = FenceGate::default();
    let guard = ask(&session).await.unwrap();
    gate.enter(&guard.token()).unwrap();
    rig.clock.advance(TTL * 3);
    let next = ask(&other).await.unwrap();
    gate.enter(&next.token()).unwrap();
    let fenced = gate.enter(&guard.token()).unwrap_err();
    assert!(matches!(fenced, Fenced::Older { .. }), "{fenced:?}");
    let lost = guard.renew(None).await.unwrap_err();
    assert!(matches!(lost, LeaseError::Lost(Loss::Expired)), "{lost:?}");
    assert_eq!(rig.only().token, next.token());
}

#[tokio::test]
async fn a_revoked_lease_is_lost_at_once() {
    let rig = Rig::still();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let lost = tokio::spawn({
        let token = guard.cancellation_token();
        async move { token.cancelled().await }
    });
    let call = Call {
        resource: Some(ResourceKey::new(KEY).unwrap()),
        action: Action::Revoke {
            expected: guard.token().generation,
            by: "operator".into(),
            reason: "it hangs".into(),
            even_if_alive: true,
        },
        wait: Wait::No,
    };
    let answer = rig.leases.authority().call(call).answer().await.unwrap();
    assert!(matches!(answer, Outcome::Done(change) if change.code == Code::Revoked));
    lost.await.unwrap();
    assert_eq!(guard.standing(), Standing::Lost(Loss::Revoked));
    let next = ask(&other).await.unwrap();
    drop(guard);
    assert_eq!(rig.only().token, next.token());
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_lasts_until_its_last_guard_is_gone() {
    let rig = Rig::paused();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = session.acquire(KEY).renewed().await.unwrap();
    rig.at(T0 + 300_000).await;
    assert_eq!(guard.standing(), Standing::Safe);
    assert_eq!(conflict(ask(&other).await).0, 1);
    assert!(rig.only().touched > Moment::from_millis(T0 + 280_000));
    drop(guard);
    assert_eq!(generation(&ask(&other).await.unwrap()), 2);
}

// fault B49
#[tokio::test(start_paused = true)]
async fn a_writer_behind_a_dead_connection_loses_its_lease_by_idle_term_only() {
    let rig = Rig::paused();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    // Nobody drops the session: no end of the connection is ever seen.
    let idle = ask(&session).await.unwrap();
    let next = other.acquire(KEY).within(TTL * 3).await.unwrap();
    rig.at(T0 + 30_001).await;
    assert!(matches!(idle.touch().await, Err(LeaseError::Lost(_))));
    drop(next);

    let busy = ask(&session).await.unwrap();
    let operation = busy.begin().await.unwrap();
    let request = tokio::spawn(other.acquire(KEY).within(TTL * 9).into_future());
    rig.at(T0 + 150_000).await;
    assert!(!request.is_finished());
    operation.end().await.unwrap();
    rig.at(T0 + 180_000).await;
    assert!(!request.is_finished());
    let next = request.await.unwrap().unwrap();
    rig.at(T0 + 180_001).await;
    assert!(matches!(busy.touch().await, Err(LeaseError::Lost(_))));
    assert_eq!(rig.only().token, next.token());
}

/// Holders stop a tenth of the term before others are let in.
pub(crate) fn early() -> LeasePolicy {
    let ends_on = Proofs {
        disconnect: true,
        ..Proofs::default()
    };
    PolicyBuilder::new()
        .term(Term::Fixed(TTL))
        .on_expiry(OnExpiry::EndIfIdle)
        .ends_on(ends_on)
        .self_stop_margin(TTL / 10)
        .build()
        .unwrap()
}

fn stops_early() -> Rig<ManualClock> {
    let clock = ManualClock::new(Moment::from_millis(T0));
    Rig::over(clock, |memory| {
        Leases::with_policy(memory, early()).unwrap()
    })
}

#[tokio::test]
async fn a_holder_that_has_stopped_does_nothing_more_though_its_lease_goes_on() {
    let mut rig = stops_early();
    let session = rig.connect("a");
    let old = ask(&session).await.unwrap();
    rig.clock.advance(TTL * 9 / 10 + MS);
    rig.receipts();
    assert!(matches!(old.begin().await, Err(LeaseError::Lost(_))));
    assert!(matches!(old.touch().await, Err(LeaseError::Lost(_))));
    assert!(matches!(old.read_back().await, Err(LeaseError::Lost(_))));
    let refused = old.release().await.unwrap_err();
    assert!(matches!(refused.error, LeaseError::Lost(Loss::Expired)));
    let new = ask(&session).await.unwrap();
    drop(refused.guard);
    assert_eq!(rig.codes(), [(Code::Reentrant, 1)]);
    // Nothing was done under it.
    drop(new);
    assert_eq!(rig.codes(), [(Code::Released, 1)]);
    rig.assert_empty();
}

/// Counts the events that tell of a jeopardy.
struct Warnings(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        if event.metadata().name() == "writer_lease.jeopardy" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn a_jeopardy_is_told_once_for_each_term() {
    let warnings = Arc::<AtomicUsize>::default();
    let told = tracing_subscriber::registry().with(Warnings(Arc::clone(&warnings)));
    let _told = tracing::subscriber::set_default(told);
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    for terms in 0..3 {
        assert_eq!(guard.standing(), Standing::Safe);
        assert_eq!(warnings.load(Ordering::SeqCst), terms);
        rig.clock.advance(TTL);
        for _ in 0..2 {
            assert_eq!(guard.standing(), Standing::Jeopardy);
            assert_eq!(warnings.load(Ordering::SeqCst), terms + 1);
        }
        guard.touch().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_stops_in_time_and_may_come_back_with_a_new_guard() {
    let rig = stops_early();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let old = ask(&session).await.unwrap();
    let unknown = old.begin().await.unwrap();
    unknown.fail(Disposition::Unknown).await.unwrap();
    rig.clock.advance(TTL * 9 / 10 + MS);
    assert_eq!(old.standing(), Standing::Lost(Loss::Expired));
    // Nobody else is let in yet, and the session itself re-enters.
    conflict(ask(&other).await);
    let new = ask(&session).await.unwrap();
    assert_eq!(new.token(), old.token());
    assert_eq!(new.standing(), Standing::Safe);
    assert_eq!(old.standing(), Standing::Lost(Loss::Expired));
    drop(old);
    assert_eq!(rig.memory.held(), 1);
    // What was done under the old guard is not forgotten.
    drop(new);
    assert_eq!(rig.memory.held(), 1);
    drop(ask(&session).await.unwrap());
    assert_eq!(rig.memory.held(), 1);
    drop(session);
    rig.assert_empty();
}

#[tokio::test]
async fn only_the_first_operation_of_the_creating_guard_may_call_itself_the_creator() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let creating = ask(&session).await.unwrap();
    let again = ask(&session).await.unwrap();
    for (guard, from) in [
        (&again, Provenance::Reentrant),
        (&creating, Provenance::Created),
        (&creating, Provenance::Reentrant),
    ] {
        let operation = guard.begin().await.unwrap();
        assert_eq!(operation.provenance(), from);
        operation.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_term_that_only_suspends_is_kept_then_in_jeopardy_and_never_lost() {
    let mut rig = Rig::still();
    let memory = Memory::builder().clock(rig.clock.clone()).build().unwrap();
    rig.leases = Leases::with_policy(memory, LeasePolicy::process_bound()).unwrap();
    let session = rig.connect("a");
    let guard = session.acquire(KEY).ttl(TTL).await.unwrap();
    let told = guard.cancellation_token();
    rig.clock.advance(TTL);
    assert_eq!(guard.standing(), Standing::Safe);
    rig.clock.advance(Duration::from_nanos(1));
    assert_eq!(guard.standing(), Standing::Jeopardy);
    rig.clock.advance(TTL * 10);
    assert_eq!(guard.standing(), Standing::Jeopardy);
    assert!(!told.is_cancelled());
}
