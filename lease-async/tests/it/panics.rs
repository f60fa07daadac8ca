//! What others wrote that panics: whose it is may suffer, and nobody else.

use core::pin::{Pin, pin};
use core::task::{Context, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use lease_async::{
    AcquireError, Authority, AuthorityError, Call, Events, LeaseGuard, Leases, ManualClock, Memory,
    Moment, Reply, Session, SessionHolder, Standing,
};
use tokio_util::sync::CancellationToken;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

use crate::passing_on::passes_on;
use crate::rig::{Counts, KEY, Rig, Silent, T0, ask, bare_request, generation};

/// Panics when it is woken.
struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        panic!("as planned");
    }
}

/// Panics when it is dropped.
struct Dropped;

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Dropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as planned");
    }
}

/// Begins to wait. The waker given is dropped, so what is waited for has the only one.
#[track_caller]
fn waits<F: Future>(future: Pin<&mut F>, waker: impl Wake + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(waker));
    assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
}

#[tokio::test]
async fn a_waker_that_panics_when_it_is_dropped_costs_nobody_a_turn() {
    let rig = Rig::still();
    let [a, b, c] = ["a", "b", "c"].map(|agent| rig.connect(agent));
    let _held = a.acquire("app/viewport").await.unwrap();
    // One waits for all of it, and one for a part that only the first one is in front of.
    let mut first = Box::pin(b.acquire("app").forever().into_future());
    let mut second = pin!(c.acquire("app/docs").forever().into_future());
    waits(first.as_mut(), Dropped);
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut context = Context::from_waker(&waker);
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(first);
    assert_eq!(counts.get(), 1);
    assert!(second.as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn a_listener_that_panics_costs_nobody_a_turn() {
    let mut rig = Rig::still();
    let (a, b) = (rig.connect("a"), rig.connect("b"));
    let held = ask(&a).await.unwrap();
    let mut request = pin!(b.acquire(KEY).forever().into_future());
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut context = Context::from_waker(&waker);
    assert!(request.as_mut().poll(&mut context).is_pending());
    rig.receipts();
    let mut next = Box::pin(rig.events.next());
    waits(next.as_mut(), Woken);
    drop(held);
    assert_eq!(counts.get(), 1);
    assert!(request.as_mut().poll(&mut context).is_ready());
}

/// A lease, and somebody who waits for its loss and panics then.
async fn lost_loudly(session: &Session, key: &str) -> (LeaseGuard, CancellationToken) {
    let guard = session.acquire(key).await.unwrap();
    let token = guard.cancellation_token();
    (guard, token)
}

#[tokio::test]
async fn who_panics_at_a_loss_keeps_no_lease_from_being_released() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let (guard, token) = lost_loudly(&session, KEY).await;
    let mut lost = pin!(token.cancelled());
    waits(lost.as_mut(), Woken);
    drop(guard);
    assert!(token.is_cancelled());
    assert_eq!(rig.memory.held(), 0);
    let again = ask(&session).await.unwrap();
    assert_eq!(generation(&again), 2);
    assert_eq!(again.standing(), Standing::Safe);
}

#[tokio::test]
async fn who_panics_at_a_loss_keeps_no_session_from_ending() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let (_one, first) = lost_loudly(&session, "one").await;
    let (_two, second) = lost_loudly(&session, "two").await;
    let (mut lost, mut other) = (pin!(first.cancelled()), pin!(second.cancelled()));
    waits(lost.as_mut(), Woken);
    waits(other.as_mut(), Woken);
    drop(session);
    assert!(first.is_cancelled() && second.is_cancelled());
    assert_eq!(rig.memory.held(), 0);
}

/// An authority that panics where nobody waits for its answer.
struct Loud(Memory);

impl Authority for Loud {
    type Holder = SessionHolder;

    passes_on!(self => self.0);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        self.0.call(call)
    }

    fn call_detached(&self, _call: Call<SessionHolder>) {
        panic!("as planned");
    }

    fn events(&self) -> Events<SessionHolder> {
        self.0.events()
    }
}

#[tokio::test]
async fn an_authority_that_panics_makes_no_destructor_panic() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| Leases::new(Loud(memory)).unwrap());
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let kept = session.acquire("kept").await.unwrap();
    drop(guard.begin().await.unwrap());
    drop(guard);
    drop(session.acquire("other").await.unwrap());
    drop(session);
    assert!(matches!(kept.standing(), Standing::Lost(_)));
    assert_eq!(rig.leases.known(), 0);
}

#[tokio::test]
async fn a_clock_that_panics_leaves_no_request_behind() {
    let rig = Rig::on(Silent(|| panic!("as planned")));
    let (a, b) = (rig.connect("a"), rig.connect("b"));
    let held = ask(&a).await.unwrap();
    let request = b.acquire(KEY).forever().await;
    assert!(
        matches!(
            request,
            Err(AcquireError::Authority(AuthorityError::Unreachable(_)))
        ),
        "{request:?}"
    );
    assert_eq!(rig.memory.waiting(), 0);
    drop(held);
    rig.assert_empty();
}

/// Panics, once it is to, at one of the things that it is told.
#[derive(Clone)]
struct Onlooker {
    at: &'static str,
    armed: Arc<AtomicBool>,
}

impl Onlooker {
    fn told(&self, what: &str) {
        let panics = what == self.at && self.armed.load(Ordering::SeqCst);
        assert!(!panics || std::thread::panicking(), "as planned");
    }
}

impl<S: Subscriber> Layer<S> for Onlooker {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: layer::Context<'_, S>) {
        self.told("new");
    }

    fn on_record(&self, _: &Id, _: &Record<'_>, _: layer::Context<'_, S>) {
        self.told("record");
    }

    fn on_event(&self, _: &Event<'_>, _: layer::Context<'_, S>) {
        self.told("event");
    }

    fn on_enter(&self, _: &Id, _: layer::Context<'_, S>) {
        self.told("enter");
    }

    fn on_exit(&self, _: &Id, _: layer::Context<'_, S>) {
        self.told("exit");
    }

    fn on_close(&self, _: Id, _: layer::Context<'_, S>) {
        self.told("close");
    }
}

#[tokio::test]
async fn a_subscriber_that_panics_keeps_no_lease_from_being_freed_and_costs_nobody_a_turn() {
    for at in ["new", "record", "event", "enter", "exit", "close"] {
        for session_goes in [false, true] {
            let armed = Arc::new(AtomicBool::new(false));
            let onlooker = Onlooker { at, armed };
            let told = tracing_subscriber::registry().with(onlooker.clone());
            let _told = tracing::subscriber::set_default(told);
            let rig = Rig::still();
            let sessions = ["a", "b", "c"].map(|agent| rig.connect(agent));
            let [first, second, third] = sessions;
            let held = ask(&first).await.unwrap();
            let mut dropped = Box::pin(third.acquire(KEY).forever().into_future());
            let mut waits = pin!(second.acquire(KEY).forever().into_future());
            let counts = Arc::new(Counts::default());
            let waker = Waker::from(Arc::clone(&counts));
            let mut context = Context::from_waker(&waker);
            assert!(dropped.as_mut().poll(&mut context).is_pending());
            assert!(waits.as_mut().poll(&mut context).is_pending());
            onlooker.armed.store(true, Ordering::SeqCst);
            drop(dropped);
            if session_goes {
                drop(first);
                drop(held);
            } else {
                drop(held);
            }
            onlooker.armed.store(false, Ordering::SeqCst);
            assert_eq!(counts.get(), 1, "{at} {session_goes}");
            assert_eq!(generation(&waits.await.unwrap()), 2);
        }
    }
}

#[tokio::test]
async fn a_subscriber_that_panics_at_the_end_of_a_span_makes_no_destructor_panic() {
    let armed = Arc::new(AtomicBool::new(false));
    let onlooker = Onlooker { at: "close", armed };
    let told = tracing_subscriber::registry().with(onlooker.clone());
    let _told = tracing::subscriber::set_default(told);
    let rig = Rig::still();
    let holder = rig.connect("a");
    let _held = ask(&holder).await.unwrap();
    // Who waits has the last of the span.
    let asks = tracing::info_span!("asks");
    let waits = asks
        .in_scope(|| rig.memory.call(bare_request("b")))
        .answer();
    drop(asks);
    assert_eq!(rig.memory.waiting(), 1);
    onlooker.armed.store(true, Ordering::SeqCst);
    drop(waits);
    onlooker.armed.store(false, Ordering::SeqCst);
    assert_eq!(rig.memory.waiting(), 0);
}
