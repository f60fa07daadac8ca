//! Drops inside, outside and after a runtime, and while one ends.

use std::cell::RefCell;
use std::thread;

use lease_async::{LeaseGuard, Operation, Session};
use lease_core::{Clock as _, Code};
use tokio::runtime::{Builder, Runtime};

use crate::rig::{KEY, Rig, SOON, TTL, ask, conflict, generation};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A session, a guard and an operation of it.
fn held<C: lease_async::AlarmClock + Clone>(rig: &Rig<C>) -> (Session, LeaseGuard, Operation) {
    runtime().block_on(async {
        let session = rig.connect("a");
        let guard = ask(&session).await.unwrap();
        let operation = guard.begin().await.unwrap();
        (session, guard, operation)
    })
}

// fault B48
#[test]
fn drops_after_and_outside_a_runtime_free_at_once() {
    let mut rig = Rig::still();
    let (session, guard, operation) = held(&rig);
    drop(operation);
    drop(guard);
    assert_eq!(rig.codes().pop(), Some((Code::RetainedAfterFailure, 1)));
    assert_eq!(rig.memory.held(), 1);
    drop(session);
    rig.assert_empty();
}

// fault B48
#[test]
fn drops_in_a_runtime_that_is_shut_down_free_at_once() {
    let rig = Rig::still();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let session = rig.connect("a");
    let waiter = rig.connect("b");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let held = runtime.block_on(async { ask(&session).await.unwrap() });
    runtime.spawn(async move {
        let mut request = Box::pin(waiter.acquire(KEY).forever().into_future());
        let waits = core::future::poll_fn(|cx| {
            core::task::Poll::Ready(request.as_mut().poll(cx).is_pending())
        });
        ready.send(waits.await).unwrap();
        let guard = request.await.unwrap();
        core::future::pending::<()>().await;
        drop(guard);
    });
    assert_eq!(is_ready.recv_timeout(SOON), Ok(true));
    runtime.spawn(async move {
        core::future::pending::<()>().await;
        drop(held);
    });
    runtime.shutdown_timeout(SOON);
    drop(session);
    rig.assert_empty();
}

thread_local! {
    static LATE: RefCell<Option<LeaseGuard>> = const { RefCell::new(None) };
}

// fault B48
#[test]
fn a_guard_dropped_by_the_end_of_its_thread_frees_at_once() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = runtime().block_on(async { ask(&session).await.unwrap() });
    let thread = thread::spawn(move || LATE.with(|late| *late.borrow_mut() = Some(guard)));
    thread.join().unwrap();
    drop(session);
    rig.assert_empty();
}

// fault B48
#[test]
fn a_drop_while_unwinding_does_not_abort() {
    let rig = Rig::still();
    let held = held(&rig);
    let thread = thread::spawn(move || {
        let _held = held;
        panic!("as planned");
    });
    assert!(thread.join().is_err());
    rig.assert_empty();
}

// fault B48
#[tokio::test(start_paused = true)]
async fn a_shut_authority_grants_nothing_and_says_what_is_held() {
    let rig = Rig::paused();
    let (session, other) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&session).await.unwrap();
    let waits = tokio::spawn(other.acquire(KEY).forever().into_future());
    tokio::task::yield_now().await;
    let report = rig.leases.authority().shutdown(TTL).await;
    assert_eq!((report.held, report.turned_away), (1, 1));
    assert!(waits.await.unwrap().is_err());
    assert!(ask(&other).await.is_err());
    // What is held can still be given back, and the shutdown waits for that.
    let drained = tokio::spawn(rig.leases.authority().shutdown(TTL));
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    drop(session);
    assert_eq!(drained.await.unwrap().held, 0);
}

// fault B48
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_no_longer_than_the_terms_of_what_is_held() {
    let rig = Rig::paused();
    let session = rig.connect("a");
    // More than one sweep ends.
    let mut guards = Vec::new();
    for n in 0..200 {
        guards.push(session.acquire(format!("key/{n}")).await.unwrap());
    }
    let start = rig.clock.now();
    tokio::time::advance(TTL / 2).await;
    guards[7].touch().await.unwrap();
    let report = rig.leases.authority().shutdown(10 * TTL).await;
    assert_eq!(report.held, 0);
    let took = rig.clock.now().since(start);
    assert!(took > TTL && took < 2 * TTL, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_at_a_shutdown_is_waited_for_as_long_as_was_said() {
    let rig = Rig::paused();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let _operation = guard.begin().await.unwrap();
    let start = rig.clock.now();
    let report = rig.leases.authority().shutdown(10 * TTL).await;
    assert_eq!(report.held, 1);
    let took = rig.clock.now().since(start);
    assert!(took >= 10 * TTL && took < 11 * TTL, "{took:?}");
}

#[test]
fn one_authority_serves_several_runtimes() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let held = runtime().block_on(async { ask(&session).await.unwrap() });
    let waiter = rig.connect("b");
    let request = waiter.acquire(KEY).forever().into_future();
    let thread = thread::spawn(move || runtime().block_on(request).unwrap());
    while rig.memory.waiting() == 0 {
        thread::yield_now();
    }
    runtime().block_on(async { conflict(ask(&rig.connect("c")).await) });
    drop(held);
    assert_eq!(generation(&thread.join().unwrap()), 2);
}
