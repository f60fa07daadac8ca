//! An authority to which nobody listens but the front: it spares receipts, and no loss is missed.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use lease_async::{Authority as _, Leases, Loss, ManualClock, Memory, Moment, Outcome, Standing};
use lease_core::{
    Action, At, By, Call, Clock as _, Code, Disposition, ResourceKey, SessionHolder, Wait,
};

use crate::rig::{Counts, KEY, Rig, T0, TTL, ask, generation, poll};

struct Quiet {
    clock: ManualClock,
    memory: Memory,
    leases: Leases,
}

fn quiet() -> Quiet {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let memory = Memory::builder().clock(clock.clone()).build().unwrap();
    Quiet {
        leases: Leases::new(memory.clone()).unwrap(),
        clock,
        memory,
    }
}

impl Quiet {
    /// As somebody does it who has no front.
    async fn by_hand(&self, action: Action<SessionHolder>) {
        let call = Call {
            resource: Some(ResourceKey::new(KEY).unwrap()),
            action,
            wait: Wait::No,
        };
        let answer = self.memory.call(call).answer().await.unwrap();
        assert!(matches!(answer, Outcome::Done(_)), "{answer:?}");
    }
}

#[tokio::test]
async fn what_others_end_is_known_at_once_though_nobody_listens() {
    let quiet = quiet();
    let session = quiet.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let revoke = Action::Revoke {
        expected: guard.token().generation,
        by: "operator".into(),
        reason: "stuck".into(),
        even_if_alive: true,
    };
    quiet.by_hand(revoke).await;
    assert_eq!(guard.standing(), Standing::Lost(Loss::Revoked));
    let guard = ask(&session).await.unwrap();
    let at = At::from(guard.token());
    quiet.by_hand(Action::Release(By::Token(at))).await;
    assert_eq!(guard.standing(), Standing::Lost(Loss::Released));
    let guard = ask(&session).await.unwrap();
    let told = guard.cancellation_token();
    let operation = guard.begin().await.unwrap();
    operation.fail(Disposition::PreMutation).await.unwrap();
    assert!(told.is_cancelled());
    assert_eq!(quiet.leases.known(), 0);
}

#[tokio::test]
async fn a_lease_that_ends_in_the_call_of_another_is_lost_though_nobody_listens() {
    let quiet = quiet();
    let (session, other) = (
        quiet.leases.connect("a").unwrap(),
        quiet.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    guard.keep();
    assert_eq!(quiet.leases.known(), 1);
    quiet.clock.advance(TTL * 2);
    let next = ask(&other).await.unwrap();
    assert_eq!((quiet.leases.known(), generation(&next)), (1, 2));
    drop(next);
    assert_eq!(quiet.leases.known(), 0);
}

#[tokio::test]
async fn what_a_dropped_operation_or_somebody_else_renews_is_known_though_nobody_listens() {
    let quiet = quiet();
    let session = quiet.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    quiet.clock.advance(TTL / 2);
    drop(operation);
    quiet.clock.advance(TTL);
    guard.touch().await.unwrap();
    quiet.clock.advance(TTL / 2);
    let touch = Action::Touch(At::from(guard.token()));
    quiet.by_hand(touch).await;
    quiet.clock.advance(TTL);
    guard.touch().await.unwrap();
}

#[tokio::test]
async fn whoever_begins_to_listen_sees_everything_from_then_on() {
    let quiet = quiet();
    let session = quiet.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let mut rig = Rig {
        events: quiet.leases.events(),
        clock: quiet.clock,
        memory: quiet.memory,
        leases: quiet.leases,
    };
    guard.touch().await.unwrap();
    guard.begin().await.unwrap().end().await.unwrap();
    drop(guard);
    drop(ask(&session).await.unwrap());
    assert_eq!(
        rig.codes(),
        [
            (Code::Touched, 1),
            (Code::OperationBegun, 1),
            (Code::OperationEnded, 1),
            (Code::Released, 1),
            (Code::Created, 2),
            (Code::Released, 2),
        ]
    );
}

#[tokio::test]
async fn a_lease_that_is_handed_over_has_its_whole_term_though_nobody_listens() {
    let quiet = quiet();
    let (session, other) = (
        quiet.leases.connect("a").unwrap(),
        quiet.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    let mut next = pin!(other.acquire(KEY).forever().into_future());
    assert!(poll(next.as_mut()).is_pending());
    quiet.clock.advance(TTL / 2);
    drop(guard);
    let next = next.await.unwrap();
    let list = quiet.memory.list();
    assert_eq!(list[0].token, next.token());
    assert_eq!(list[0].touched, quiet.clock.now());
}

#[tokio::test]
async fn a_shutdown_hears_of_the_last_release_though_nobody_listens() {
    let quiet = quiet();
    let session = quiet.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let mut shut = quiet.memory.shutdown(TTL * 2);
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut context = Context::from_waker(&waker);
    assert!(shut.as_mut().poll(&mut context).is_pending());
    drop(guard);
    assert!(counts.get() > 0);
    let Poll::Ready(report) = shut.as_mut().poll(&mut context) else {
        panic!("nothing is held")
    };
    assert_eq!(report.held, 0);
}
