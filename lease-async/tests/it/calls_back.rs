//! What others wrote may call the authority whenever it is called itself: nothing is locked then.

use core::cell::Cell;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use lease_async::{
    Alarm, AlarmClock, AlarmError, Authority as _, IncidentPolicy, LeaseGuard, LeasePolicy, Leases,
    ManualClock, Memory, Moment, Session,
};
use lease_core::{Clock, Evidence, HolderLiveness, Question, SessionHolder, Verdict};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

use crate::rig::{KEY, Rig, SOON, Silent, Slow, T0, bare_request, poll};
use crate::sys::telling;

thread_local! {
    /// Set while the authority is called back: that calls nobody back once more.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// Calls whatever has a lock.
fn calls(memory: &Memory, leases: &Leases) {
    if CALLS.replace(true) {
        return;
    }
    let session = leases.connect("caller").unwrap();
    for request in [
        session.acquire("/called/back"),
        session.acquire(KEY).forever(),
    ] {
        // Taken and given back, or asked for and not wanted any more.
        drop(poll(pin!(request.into_future())));
    }
    drop(session);
    drop((memory.list(), leases.list(), leases.health()));
    CALLS.set(false);
}

/// A waker that calls this authority whatever is done to it. Each is another one to whoever compares.
fn calling(rig: &Rig<ManualClock>) -> Waker {
    let (memory, leases) = (rig.memory.clone(), rig.leases.clone());
    telling(Arc::new(move || calls(&memory, &leases)))
}

/// Runs what would stand still for ever if anything was locked.
fn in_time(body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        body();
        drop(done);
    });
    let ended = ended.recv_timeout(SOON);
    assert_eq!(
        ended,
        Err(mpsc::RecvTimeoutError::Disconnected),
        "it stands still"
    );
    thread.join().unwrap();
}

/// Polls with this waker. Answers whether that was the last time.
fn ends<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> bool {
    future.poll(&mut Context::from_waker(waker)).is_ready()
}

/// Polls with one waker, and with another one.
fn waits<F: Future + ?Sized>(mut future: Pin<&mut F>, wakers: [Waker; 2]) {
    for waker in wakers {
        assert!(
            future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
}

/// Takes a lease that is free.
#[track_caller]
fn taken(session: &Session, key: &str) -> LeaseGuard {
    match poll(pin!(session.acquire(key).into_future())) {
        Poll::Ready(Ok(guard)) => guard,
        other => panic!("{other:?}"),
    }
}

fn still() -> Rig<ManualClock> {
    Rig::over(ManualClock::new(Moment::from_millis(T0)), |memory| {
        let second = Duration::from_secs(1);
        let leases = Leases::new(memory).unwrap();
        leases.with_incidents(IncidentPolicy::new(second, second))
    })
}

#[test]
fn a_waker_of_a_request_may_call_the_authority() {
    in_time(|| {
        let rig = still();
        let [a, b, c] = ["a", "b", "c"].map(|agent| rig.connect(agent));
        let held = taken(&a, KEY);
        let mut served = pin!(b.acquire(KEY).forever().into_future());
        waits(served.as_mut(), [calling(&rig), calling(&rig)]);
        let mut leaves = Box::pin(c.acquire(KEY).within(SOON).into_future());
        waits(leaves.as_mut(), [calling(&rig), calling(&rig)]);
        drop(leaves);
        drop(held);
        let waker = calling(&rig);
        let end = served.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(end, Poll::Ready(Ok(_))));
    });
}

#[test]
fn a_waker_of_a_request_that_is_turned_away_may_call_the_authority() {
    in_time(|| {
        let rig = still();
        let [a, b] = ["a", "b"].map(|agent| rig.connect(agent));
        let held = taken(&a, KEY);
        let mut waits_for_it = pin!(b.acquire(KEY).forever().into_future());
        waits(waits_for_it.as_mut(), [calling(&rig), calling(&rig)]);
        let mut shut = rig.memory.shutdown(SOON);
        waits(shut.as_mut(), [calling(&rig), calling(&rig)]);
        assert!(matches!(poll(waits_for_it), Poll::Ready(Err(_))));
        drop(held);
        assert!(poll(shut.as_mut()).is_ready());
    });
}

#[test]
fn a_waker_of_a_request_that_waits_for_a_release_may_call_the_authority() {
    in_time(|| {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let rig = Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap());
        let session = rig.connect("a");
        let mut request = pin!(session.acquire(KEY).into_future());
        let held = loop {
            if let Poll::Ready(held) = poll(request.as_mut()) {
                break held.unwrap();
            }
        };
        let mut release = Box::pin(held.release());
        // The authority has its answer, which is on its way.
        assert!(poll(release.as_mut()).is_pending());
        let mut again = pin!(session.acquire(KEY).within(SOON).into_future());
        let mut leaves = Box::pin(session.acquire(KEY).within(SOON).into_future());
        for _ in 0..3 {
            waits(again.as_mut(), [calling(&rig), calling(&rig)]);
            waits(leaves.as_mut(), [calling(&rig), calling(&rig)]);
        }
        drop(leaves);
        drop(release);
        let waker = calling(&rig);
        assert!((0..3).any(|_| ends(again.as_mut(), &waker)));
    });
}

#[test]
fn a_waker_of_a_listener_may_call_the_authority() {
    in_time(|| {
        let rig = still();
        let session = rig.connect("a");
        let mut events = rig.leases.events();
        let mut incidents = rig.leases.incidents().unwrap();
        // What is cloned calls, and so there is something to be told of.
        let waker = calling(&rig);
        let mut told = Box::pin(events.next());
        assert!(ends(told.as_mut(), &waker) || ends(told.as_mut(), &waker));
        drop(told);
        let mut incident = Box::pin(incidents.next());
        waits(incident.as_mut(), [waker, calling(&rig)]);
        let _held = taken(&session, "/a/lease");
        rig.clock.advance(Duration::from_secs(2));
        assert!(poll(incident.as_mut()).is_ready());
    });
}

#[test]
fn a_waker_of_a_loss_may_call_the_authority() {
    in_time(|| {
        let rig = still();
        let session = rig.connect("a");
        let guard = taken(&session, "/a/lease");
        let token = guard.cancellation_token();
        let mut lost = Box::pin(guard.lost());
        let mut cancelled = Box::pin(token.cancelled());
        waits(lost.as_mut(), [calling(&rig), calling(&rig)]);
        waits(cancelled.as_mut(), [calling(&rig), calling(&rig)]);
        rig.clock.advance(Duration::from_secs(100));
        assert!(poll(lost.as_mut()).is_ready());
        assert!(poll(cancelled.as_mut()).is_ready());
    });
}

/// A waker that ends this session as soon as anything is done to it.
fn ending(session: Session) -> Waker {
    let session = Mutex::new(Some(session));
    telling(Arc::new(move || {
        let session = session.lock().unwrap().take();
        drop(session);
    }))
}

#[test]
fn a_waker_that_ends_what_it_waits_for_as_it_is_cloned_stands_in_nobodys_way() {
    in_time(|| {
        // The loss itself.
        let rig = still();
        let session = rig.connect("a");
        let guard = taken(&session, KEY);
        let mut lost = pin!(guard.lost());
        assert!(poll(lost.as_mut()).is_pending());
        let waker = ending(session);
        assert!(ends(lost.as_mut(), &waker) || poll(lost.as_mut()).is_ready());

        // A request that goes with the loss of another lease.
        let [session, other] = ["b", "c"].map(|agent| rig.connect(agent));
        let guard = taken(&session, KEY);
        let request = other.acquire(KEY).forever();
        let mut request = pin!(
            request
                .cancelled_by(guard.cancellation_token())
                .into_future()
        );
        assert!(poll(request.as_mut()).is_pending());
        let waker = ending(session);
        assert!(ends(request.as_mut(), &waker) || poll(request.as_mut()).is_ready());

        // The last lease of an authority that is shut.
        let session = rig.connect("d");
        let _guard = taken(&session, KEY);
        let mut shut = rig.memory.shutdown(SOON);
        assert!(poll(shut.as_mut()).is_pending());
        let waker = ending(session);
        assert!(ends(shut.as_mut(), &waker) || poll(shut.as_mut()).is_ready());
    });
}

/// A subscriber that calls an authority, once it has one, whatever it is asked or told.
struct Caller {
    spans: tracing_subscriber::Registry,
    calls: Arc<OnceLock<(Memory, Leases)>>,
}

impl Caller {
    fn new() -> (Self, Arc<OnceLock<(Memory, Leases)>>) {
        let spans = tracing_subscriber::registry();
        let calls = Arc::default();
        let caller = Self {
            spans,
            calls: Arc::clone(&calls),
        };
        (caller, calls)
    }

    fn calls(&self) {
        if let Some((memory, leases)) = self.calls.get() {
            calls(memory, leases);
        }
    }
}

impl Subscriber for Caller {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.calls();
        self.spans.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.calls();
        self.spans.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.calls();
        self.spans.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.calls();
        self.spans.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.calls();
        self.spans.event(event);
    }

    fn enter(&self, span: &Id) {
        self.calls();
        self.spans.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.calls();
        self.spans.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.calls();
        self.spans.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.calls();
        self.spans.try_close(id)
    }

    fn current_span(&self) -> Current {
        self.calls();
        self.spans.current_span()
    }
}

#[test]
fn a_subscriber_may_call_the_authority() {
    in_time(|| {
        let (caller, place) = Caller::new();
        let _told = tracing::subscriber::set_default(caller);
        let rig = still();
        drop(place.set((rig.memory.clone(), rig.leases.clone())));
        let [a, b, c] = ["a", "b", "c"].map(|agent| rig.connect(agent));
        let held = taken(&a, KEY);
        let mut served = pin!(b.acquire(KEY).forever().into_future());
        assert!(poll(served.as_mut()).is_pending());
        let mut leaves = Box::pin(c.acquire(KEY).within(SOON).into_future());
        assert!(poll(leaves.as_mut()).is_pending());
        drop(leaves);
        let asks = tracing::info_span!("asks");
        let bare = asks
            .in_scope(|| rig.memory.call(bare_request("d")))
            .answer();
        drop(asks);
        drop(held);
        assert!(poll(served.as_mut()).is_ready());
        drop(bare);
        let guard = taken(&a, "/a/lease");
        let operation = poll(pin!(guard.begin()));
        rig.clock.advance(Duration::from_secs(100));
        drop(operation);
        rig.clock.advance(Duration::from_secs(100));
        drop(a);
    });
}

/// A clock that calls an authority, once it has one, whenever it disarms.
#[derive(Clone, Debug)]
struct Disarming(ManualClock, Arc<OnceLock<(Memory, Leases)>>);

impl Clock for Disarming {
    fn now(&self) -> Moment {
        self.0.now()
    }
}

impl AlarmClock for Disarming {
    fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
        let alarm = self.0.arm(at, waker)?;
        let place = Arc::clone(&self.1);
        Ok(Alarm::new(move || {
            drop(alarm);
            if let Some((memory, leases)) = place.get() {
                calls(memory, leases);
            }
        }))
    }
}

#[test]
fn a_clock_may_call_the_authority_where_it_disarms() {
    in_time(|| {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let place = Arc::default();
        let disarming = Disarming(clock.clone(), Arc::clone(&place));
        let rig = Rig::over(disarming, |memory| {
            let second = Duration::from_secs(1);
            let leases = Leases::new(memory).unwrap();
            leases.with_incidents(IncidentPolicy::new(second * 2, second))
        });
        drop(place.set((rig.memory.clone(), rig.leases.clone())));
        let [a, b] = ["a", "b"].map(|agent| rig.connect(agent));
        let guard = taken(&a, KEY);
        let _lost = guard.cancellation_token();
        // It may be an incident before the lease is one.
        let operation = poll(pin!(guard.begin()));
        let mut served = pin!(b.acquire(KEY).within(SOON).into_future());
        assert!(poll(served.as_mut()).is_pending());
        clock.advance(Duration::from_secs(5));
        drop(operation);
        drop(a);
        assert!(poll(served.as_mut()).is_ready());
    });
}

#[test]
fn a_subscriber_may_call_the_authority_where_a_request_cannot_wait() {
    in_time(|| {
        let (caller, place) = Caller::new();
        let _told = tracing::subscriber::set_default(caller);
        let rig = Rig::on(Silent(|| Err(AlarmError::Unsupported)));
        drop(place.set((rig.memory.clone(), rig.leases.clone())));
        let [a, b] = ["a", "b"].map(|agent| rig.connect(agent));
        let _held = taken(&a, KEY);
        let request = poll(pin!(b.acquire(KEY).within(SOON).into_future()));
        assert!(matches!(request, Poll::Ready(Err(_))));
        let asks = tracing::info_span!("asks");
        let reply = asks.in_scope(|| rig.memory.call(bare_request("c")));
        drop(reply);
        assert_eq!(rig.memory.waiting(), 0);
    });
}

/// Runs, and says that it was looked at.
struct Runs(mpsc::Sender<()>);

impl HolderLiveness<SessionHolder> for Runs {
    fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
        self.0.send(()).unwrap();
        Verdict::Alive(Evidence::new("runs"))
    }
}

#[test]
fn a_subscriber_may_call_the_authority_while_a_holder_is_looked_at() {
    in_time(|| {
        let (caller, place) = Caller::new();
        let _told = tracing::subscriber::set_default(caller);
        let (told, looks) = mpsc::channel();
        let clock = ManualClock::new(Moment::from_millis(T0));
        let builder = Memory::builder().clock(clock).liveness(Runs(told));
        let memory = builder.build().unwrap();
        let policy = LeasePolicy::hosted_session(SOON).unwrap();
        let leases = Leases::with_policy(memory.clone(), policy).unwrap();
        drop(place.set((memory.clone(), leases.clone())));
        let [a, b] = ["a", "b"].map(|agent| leases.connect(agent).unwrap());
        let _held = taken(&a, KEY);
        let mut request = Box::pin(b.acquire(KEY).forever().into_future());
        assert!(poll(request.as_mut()).is_pending());
        for _ in 0..2 {
            looks.recv_timeout(SOON).unwrap();
        }
        drop(request);
        // The keeper's thread may still be in the subscriber, which asks and gives up.
        while memory.waiting() > 0 {
            std::thread::yield_now();
        }
    });
}
