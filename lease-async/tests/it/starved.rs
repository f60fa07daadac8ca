//! Work that blocks the thread on which everything else of its program runs.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lease_async::{
    LeaseError, LeaseGuard, LeasePolicy, Leases, Memory, Moment, Operation, Session, SystemClock,
};
use lease_core::{Clock as _, FenceGate};
use tokio::runtime::{Builder, Runtime};

use crate::rig::{KEY, SOON, ask, conflict, generation};

const TERM: Duration = Duration::from_millis(200);

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Asks again and again until a moment, and is refused each time by an operation in flight.
fn refused_until(other: &Session, end: Moment) {
    runtime().block_on(async {
        while SystemClock::new().now() < end {
            assert_eq!(conflict(ask(other).await).2, 1);
            thread::yield_now();
        }
    });
}

/// A lease with an operation in flight. On a slow machine its term may be over before that has begun.
async fn begun_under(session: &Session) -> (LeaseGuard, Operation) {
    let end = SystemClock::new().now().after(SOON);
    loop {
        let guard = ask(session).await.unwrap();
        match guard.begin().await {
            Ok(operation) => return (guard, operation),
            Err(error) => assert!(SystemClock::new().now() < end, "{error}"),
        }
    }
}

// fault B14
#[test]
fn work_that_blocks_its_thread_is_swept_only_when_nothing_is_in_flight_and_is_told_before_it_writes()
 {
    let policy = LeasePolicy::session_ttl(TERM).unwrap();
    let leases = Leases::with_policy(Memory::new().unwrap(), policy).unwrap();
    let (session, other) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
    let ((begun, is_begun), (tried, is_tried)) = (channel(), channel());
    let ((idle, is_idle), (granted, is_granted)) = (channel(), channel());
    let rival = thread::spawn(move || {
        let end: Moment = is_begun.recv().unwrap();
        refused_until(&other, end);
        tried.send(()).unwrap();
        is_idle.recv().unwrap();
        let next = runtime().block_on(async { other.acquire(KEY).within(SOON).await.unwrap() });
        granted.send(next).unwrap();
        other
    });
    // One thread runs all of this program, and it stands still in the middle of a task.
    runtime().block_on(async {
        let mut gate = FenceGate::new();
        let (guard, operation) = begun_under(&session).await;
        let first = generation(&guard);
        begun
            .send(SystemClock::new().now().after(TERM * 5))
            .unwrap();
        is_tried.recv_timeout(SOON).unwrap();
        guard.enter(&mut gate).unwrap();
        operation.end().await.unwrap();
        // The same without anything in flight.
        idle.send(()).unwrap();
        let next = is_granted.recv_timeout(SOON).unwrap();
        assert_eq!(generation(&next), first + 1);
        assert!(matches!(guard.begin().await, Err(LeaseError::Lost(_))));
        let ensured = guard.ensure(Duration::ZERO).await;
        assert!(matches!(ensured, Err(LeaseError::Lost(_))));
        next.enter(&mut gate).unwrap();
        assert!(guard.enter(&mut gate).is_err());
    });
    drop(rival.join().unwrap());
}
