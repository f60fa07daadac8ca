//! A lease that is given back while its own session asks for it again: one of the two is first.
//!
//! Everything runs on one thread, in an order that the test sets: the authority decides at once, but its
//! grants are on their way for as long as the test wants, and its receipts for ever.

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::time::Duration;

use lease_async::{
    AcquireError, AcquireFuture, Authority, EventSource, Events, LeaseGuard, Leases, Loss,
    ManualClock, Memory, Moment, ReleaseError, Released, Reply, Session, SessionHolder, Standing,
};
use lease_core::{Action, By, Call, Disposition, Outcome, Receipts};

use crate::passing_on::{passes_on, passes_on_unanswered};
use crate::rig::{Counts, KEY, Slow, T0, ask, conflict, generation, poll};

type Guarded = Result<LeaseGuard, AcquireError<SessionHolder>>;
type Task = Box<dyn FnOnce() + Send>;

/// The authority, and what the test does to its answers.
struct Late {
    memory: Memory,
    /// Nothing is ever published here.
    told: EventSource<SessionHolder>,
    /// While set, grants that were decided do not arrive.
    held_up: AtomicBool,
    /// While set, detached calls are forgotten.
    deaf: AtomicBool,
    /// Done at the next detached call, before it is made.
    before: Mutex<Option<Task>>,
}

#[derive(Clone)]
struct Door(Arc<Late>);

impl Authority for Door {
    type Holder = SessionHolder;

    passes_on!(self => self.0.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let late = Arc::clone(&self.0);
        match self.0.memory.call(call) {
            Reply::Ready(answer @ Ok(Outcome::Granted(..)))
                if late.held_up.load(Ordering::SeqCst) =>
            {
                let mut answer = Some(answer);
                Reply::Pending(Box::pin(core::future::poll_fn(move |_| {
                    match late.held_up.load(Ordering::SeqCst) {
                        true => Poll::Pending,
                        false => Poll::Ready(answer.take().unwrap()),
                    }
                })))
            }
            reply => reply,
        }
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        let before = self.0.before.lock().unwrap().take();
        if let Some(before) = before {
            before();
        }
        if !self.0.deaf.load(Ordering::SeqCst) {
            self.0.memory.call_detached(call);
        }
    }

    fn events(&self) -> Events<SessionHolder> {
        self.0.told.events()
    }
}

struct Rig {
    late: Arc<Late>,
    leases: Leases,
}

impl Rig {
    fn new() -> Self {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let late = Arc::new(Late {
            memory: Memory::builder().clock(clock).build().unwrap(),
            told: EventSource::new(1),
            held_up: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            before: Mutex::new(None),
        });
        Self {
            leases: Leases::new(Door(Arc::clone(&late))).unwrap(),
            late,
        }
    }

    /// Asks for a lease that `session` has; it is granted, and the grant does not arrive.
    fn asked_again(&self, session: &Session) -> Again {
        let again = Again::new(session);
        self.late.held_up.store(true, Ordering::SeqCst);
        assert!(again.poll().is_none());
        self.late.held_up.store(false, Ordering::SeqCst);
        again
    }

    /// No other session is let in, and `guard` is what is held.
    #[track_caller]
    fn assert_holds(&self, guard: &LeaseGuard) {
        assert_eq!(guard.standing(), Standing::Safe);
        let list = self.late.memory.list();
        assert_eq!(list.len(), 1, "{list:?}");
        assert_eq!(list[0].token, guard.token());
    }
}

/// A request on its way, polled by whoever has a clone of it.
#[derive(Clone)]
struct Again(Arc<Mutex<Request>>);

struct Request {
    future: Option<Pin<Box<AcquireFuture<SessionHolder>>>>,
    result: Option<Guarded>,
}

impl Again {
    fn new(session: &Session) -> Self {
        let future = Box::pin(session.acquire(KEY).into_future());
        Self(Arc::new(Mutex::new(Request {
            future: Some(future),
            result: None,
        })))
    }

    /// Answers the generation, if it was granted.
    fn poll(&self) -> Option<u64> {
        let mut request = self.0.lock().unwrap();
        if let Some(future) = &mut request.future
            && let Poll::Ready(result) = poll(future.as_mut())
        {
            request.future = None;
            request.result = Some(result);
        }
        match &request.result {
            Some(Ok(guard)) => Some(generation(guard)),
            Some(Err(error)) => panic!("{error}"),
            None => None,
        }
    }

    /// What is left of the request.
    fn rest(&self) -> Pin<Box<AcquireFuture<SessionHolder>>> {
        self.0.lock().unwrap().future.take().unwrap()
    }

    fn take(&self) -> LeaseGuard {
        self.poll().unwrap();
        self.0.lock().unwrap().result.take().unwrap().unwrap()
    }
}

/// Polls a request inside `wake`.
struct PollsInside(Again);

impl Wake for PollsInside {
    fn wake(self: Arc<Self>) {
        self.0.poll();
    }
}

#[tokio::test]
async fn a_grant_that_arrives_while_its_lease_is_released_is_none() {
    let rig = Rig::new();
    let (session, other) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    // The release was decided and its holder is just about to be told; the receipt is not there yet.
    let token = guard.cancellation_token();
    let mut lost = Box::pin(token.cancelled());
    let waker = Waker::from(Arc::new(PollsInside(again.clone())));
    assert!(
        lost.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    guard.release().await.unwrap();
    // It asked again: what it has now is a lease of its own, and nobody else has one.
    assert_eq!(again.poll(), Some(2));
    assert_eq!(conflict(ask(&other).await).0, 2);
    rig.assert_holds(&again.take());
}

#[tokio::test]
async fn a_grant_that_arrives_before_the_release_of_a_dropped_guard_is_none() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    // The last guard is gone, and the authority is not told yet. It must not be asked again and again.
    let inside = again.clone();
    *rig.late.before.lock().unwrap() = Some(Box::new(move || assert_eq!(inside.poll(), None)));
    drop(guard);
    assert_eq!(again.poll(), Some(2));
    rig.assert_holds(&again.take());
}

#[tokio::test]
async fn a_grant_that_arrives_after_a_thousand_other_releases_is_none() {
    let rig = Rig::new();
    let (session, other) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    guard.release().await.unwrap();
    for _ in 0..3_000 {
        ask(&other).await.unwrap().release().await.unwrap();
    }
    let next = ask(&other).await.unwrap();
    let answer = again.rest().await;
    assert_eq!(conflict(answer).0, generation(&next));
    rig.assert_holds(&next);
}

#[tokio::test]
async fn a_grant_of_a_lease_that_the_authority_has_ended_unseen_is_none() {
    let rig = Rig::new();
    let (session, other) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    // Somebody else gives it back; only the next use tells.
    let lease = rig.late.memory.list().remove(0);
    let by = By::Holder {
        holder: lease.holder,
        lease: None,
        exited: false,
    };
    rig.late.memory.call_detached(Call {
        resource: Some(lease.resource),
        action: Action::Release(by),
        wait: lease_async::Wait::No,
    });
    guard.touch().await.unwrap_err();
    let next = ask(&other).await.unwrap();
    let answer = again.rest().await;
    assert_eq!(conflict(answer).0, generation(&next));
    drop(guard);
    rig.assert_holds(&next);
}

#[tokio::test]
async fn a_lease_whose_release_was_forgotten_is_held_by_who_asks_again() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let early = rig.asked_again(&session);
    rig.late.deaf.store(true, Ordering::SeqCst);
    drop(guard);
    // Of the lease that is over nothing is believed, of an answer to a question after that everything.
    let again = ask(&session).await.unwrap();
    assert_eq!(generation(&again), 1);
    assert_eq!(early.poll(), Some(1));
    rig.assert_holds(&again);
    drop(early);
    rig.assert_holds(&again);
}

#[tokio::test]
async fn a_request_behind_a_release_that_stands_still_leaves_at_its_deadline() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = crate::rig::Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap());
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let mut release = Box::pin(guard.release());
    assert!(poll(release.as_mut()).is_pending());
    let within = Duration::from_secs(1);
    let mut again = Box::pin(session.acquire(KEY).within(within).into_future());
    for _ in 0..10 {
        assert!(poll(again.as_mut()).is_pending());
    }
    assert_eq!(rig.clock.armed(), 1);
    rig.clock.advance(within);
    let answer = again.await.unwrap_err();
    assert!(matches!(answer, AcquireError::Releasing), "{answer:?}");
    assert_eq!(rig.clock.armed(), 0);
    drop(release);
    rig.assert_empty();
}

#[tokio::test]
async fn a_request_behind_a_release_that_is_dropped_gets_a_lease_that_lasts() {
    for polls in 1..4 {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let rig = crate::rig::Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap());
        let session = rig.connect("a");
        let guard = ask(&session).await.unwrap();
        let mut again = Box::pin(session.acquire(KEY).into_future());
        // The re-entry is decided before the release, and arrives after it began.
        for _ in 0..2 {
            assert!(poll(again.as_mut()).is_pending());
        }
        let mut release = Box::pin(guard.release());
        for _ in 0..polls {
            drop(poll(release.as_mut()));
        }
        assert!(poll(again.as_mut()).is_pending());
        drop(release);
        let again = again.await.unwrap();
        assert_eq!(generation(&again), 2);
        assert_eq!(again.standing(), Standing::Safe);
        assert_eq!(rig.only().token, again.token());
    }
}

/// A release that was not sent yet, and a request that stands behind it.
struct StoodBehind<R> {
    rig: crate::rig::Rig<ManualClock>,
    session: Session,
    release: Pin<Box<R>>,
    again: Pin<Box<AcquireFuture<SessionHolder>>>,
    /// How often the request was woken since it stands there.
    counts: Arc<Counts>,
}

async fn stood_behind()
-> StoodBehind<impl Future<Output = Result<Released, ReleaseError<SessionHolder>>>> {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = crate::rig::Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap());
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let mut again = Box::pin(session.acquire(KEY).forever().into_future());
    for _ in 0..2 {
        assert!(poll(again.as_mut()).is_pending());
    }
    let mut release = Box::pin(guard.release());
    assert!(poll(release.as_mut()).is_pending());
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut context = Context::from_waker(&waker);
    assert!(again.as_mut().poll(&mut context).is_pending());
    assert_eq!(counts.get(), 0);
    StoodBehind {
        rig,
        session,
        release,
        again,
        counts,
    }
}

#[tokio::test]
async fn who_stands_behind_a_release_that_is_dropped_is_woken() {
    // The release was not sent yet; or it was decided and its receipt was heard, but not its answer.
    for (sent, session_goes) in [(false, false), (true, false), (false, true), (true, true)] {
        let StoodBehind {
            rig,
            session,
            mut release,
            again,
            counts,
        } = stood_behind().await;
        let mut session = Some(session);
        if sent {
            assert!(poll(release.as_mut()).is_pending());
        }
        if session_goes {
            session = None;
        }
        drop(release);
        assert!(counts.get() > 0, "{sent} {session_goes}");
        match again.await {
            Ok(guard) => assert_eq!((generation(&guard), session_goes), (2, false)),
            Err(error) => assert!(
                session_goes && matches!(error, AcquireError::SessionGone),
                "{error:?}"
            ),
        }
        drop(session);
        rig.assert_empty();
    }
}

#[tokio::test]
async fn who_stands_behind_a_release_goes_on_when_the_lease_ends_without_its_answer() {
    // Its receipt was heard, or the session goes.
    for session_goes in [false, true] {
        let StoodBehind {
            rig,
            session,
            mut release,
            again,
            counts,
        } = stood_behind().await;
        let mut session = Some(session);
        if session_goes {
            session = None;
        } else {
            assert!(poll(release.as_mut()).is_pending());
        }
        assert_eq!(counts.get(), 1);
        let again = again.await;
        match &again {
            Ok(guard) => assert_eq!((generation(guard), session_goes), (2, false)),
            Err(error) => assert!(
                session_goes && matches!(error, AcquireError::SessionGone),
                "{error:?}"
            ),
        }
        // It comes to an end at last, and changes nothing of the next lease.
        assert_eq!(release.await.is_ok(), !session_goes);
        assert_eq!(rig.memory.held(), usize::from(!session_goes));
        drop((again, session));
        rig.assert_empty();
    }
}

#[tokio::test]
async fn a_request_behind_a_release_that_is_dropped_goes_on_where_the_lease_has_ended_meanwhile() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = crate::rig::Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap());
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let mut again = Box::pin(session.acquire(KEY).into_future());
    for _ in 0..2 {
        assert!(poll(again.as_mut()).is_pending());
    }
    let mut release = Box::pin(guard.release());
    assert!(poll(release.as_mut()).is_pending());
    assert!(poll(again.as_mut()).is_pending());
    // Somebody else ends the lease before the release is sent, and it never is.
    let lease = rig.only();
    rig.memory.call_detached(Call {
        resource: Some(lease.resource),
        action: Action::Release(By::Holder {
            holder: lease.holder,
            lease: None,
            exited: false,
        }),
        wait: lease_async::Wait::No,
    });
    drop(release);
    let mut polls = core::iter::repeat_with(|| poll(again.as_mut())).take(10);
    let Some(Poll::Ready(again)) = polls.find(Poll::is_ready) else {
        panic!("it stands behind a release that nobody makes");
    };
    assert_eq!(generation(&again.unwrap()), 2);
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_session_went_is_none() {
    let rig = Rig::new();
    let (session, other) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    let request = rig.asked_again(&session);
    assert_eq!(rig.late.memory.held(), 1);
    drop(session);
    let next = ask(&other).await.unwrap();
    let gone = request.rest().await.unwrap_err();
    assert!(matches!(gone, AcquireError::SessionGone), "{gone:?}");
    rig.assert_holds(&next);
    drop(next);
    assert_eq!(rig.leases.known(), 0);
}

#[tokio::test]
async fn an_operation_outlives_the_last_guard_and_a_re_entry_shares_its_lease() {
    let rig = Rig::new();
    let (session, other) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    let operation = guard.begin().await.unwrap();
    drop(guard);
    assert_eq!(again.poll(), Some(1));
    operation.end().await.unwrap();
    let again = again.take();
    rig.assert_holds(&again);
    assert_eq!(conflict(ask(&other).await).0, 1);
    drop(again);
    assert_eq!(generation(&ask(&other).await.unwrap()), 2);
}

#[tokio::test]
async fn a_failure_that_would_free_the_lease_leaves_it_to_a_re_entry_on_its_way() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    let again = rig.asked_again(&session);
    operation.fail(Disposition::PreMutation).await.unwrap();
    assert_eq!(guard.standing(), Standing::Safe);
    drop(guard);
    // The guard was the last one here, so the lease went with it, and the request asked again.
    assert_eq!(again.poll(), Some(2));
    rig.assert_holds(&again.take());
}

#[tokio::test]
async fn a_kept_lease_is_shared_by_a_re_entry_on_its_way() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let again = rig.asked_again(&session);
    guard.keep();
    assert_eq!(again.poll(), Some(1));
    let again = again.take();
    rig.assert_holds(&again);
    again.release().await.unwrap();
    assert_eq!(rig.late.memory.held(), 0);
}

/// An authority that loses what it knew, as one does that is set up from a copy of yesterday.
struct Restored {
    memory: Memory,
    copy: Memory,
    is_restored: Arc<AtomicBool>,
}

impl Authority for Restored {
    type Holder = SessionHolder;

    passes_on_unanswered!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        if self.is_restored.load(Ordering::SeqCst) {
            self.copy.call(call)
        } else {
            self.memory.call(call)
        }
    }
}

#[tokio::test]
async fn an_authority_that_grants_what_has_ended_holds_nobody_else_up() {
    let is_restored = Arc::new(AtomicBool::new(false));
    let restored = Restored {
        memory: Memory::new().unwrap(),
        copy: Memory::new().unwrap(),
        is_restored: Arc::clone(&is_restored),
    };
    let leases = Leases::new(restored).unwrap();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|agent| leases.connect(agent).unwrap());
    drop(ask(&a).await.unwrap());
    let held = ask(&b).await.unwrap();
    let mut next = Box::pin(c.acquire(KEY).forever().into_future());
    // As long as somebody asks, the front remembers what has ended.
    let mut last = Box::pin(d.acquire(KEY).forever().into_future());
    assert!(poll(next.as_mut()).is_pending());
    assert!(poll(last.as_mut()).is_pending());
    drop(held);
    let _next = next.await.unwrap();
    is_restored.store(true, Ordering::SeqCst);
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut request = Box::pin(a.acquire(KEY).into_future());
    let answer = request.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(answer.is_pending());
    assert_eq!(counts.get(), 1);
}

#[tokio::test]
async fn a_lease_that_takes_the_place_of_the_last_one_is_its_own_sessions() {
    let rig = Rig::new();
    let (first, next) = (
        rig.leases.connect("a").unwrap(),
        rig.leases.connect("b").unwrap(),
    );
    drop(ask(&first).await.unwrap());
    let guard = ask(&next).await.unwrap();
    let list = rig.leases.list();
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(&list[0].holder, next.holder());
    drop(first);
    rig.assert_holds(&guard);
    drop(next);
    assert_eq!(guard.standing(), Standing::Lost(Loss::Disconnected));
}

#[tokio::test]
async fn who_stands_behind_a_release_stays_there_though_receipts_were_missed() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let again = Again::new(&session);
    let (late, theirs) = (Arc::clone(&rig.late), again.clone());
    *rig.late.before.lock().unwrap() = Some(Box::new(move || {
        late.told.publish(Receipts::new(Vec::new(), 1));
        theirs.poll();
    }));
    drop(guard);
    assert_eq!(again.poll(), Some(2));
    rig.assert_holds(&again.take());
}

#[tokio::test]
async fn a_lease_that_was_given_back_twice_has_ended_for_who_asked_in_between() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let oldest = rig.asked_again(&session);
    rig.late.deaf.store(true, Ordering::SeqCst);
    drop(guard);
    rig.late.deaf.store(false, Ordering::SeqCst);
    let guard = ask(&session).await.unwrap();
    assert_eq!(generation(&guard), 1);
    let between = rig.asked_again(&session);
    drop(guard);
    assert_eq!(between.poll(), Some(2));
    assert_eq!(oldest.poll(), Some(2));
}

#[tokio::test]
async fn a_release_that_somebody_stands_behind_is_not_over_with_the_next_one() {
    let rig = Rig::new();
    let session = rig.leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let other = session.acquire("/app/other").await.unwrap();
    let requests = [Again::new(&session), Again::new(&session)];
    let [first, second] = requests.clone();
    *rig.late.before.lock().unwrap() = Some(Box::new(move || {
        first.poll();
        drop(other);
        second.poll();
    }));
    drop(guard);
    // The second lease was the other one.
    for again in &requests {
        assert_eq!(again.poll(), Some(3));
    }
}

#[tokio::test]
async fn nothing_is_kept_of_who_stands_behind_a_release_no_more() {
    let stood = stood_behind().await;
    assert!(Arc::strong_count(&stood.counts) > 1);
    drop(stood.again);
    assert_eq!(Arc::strong_count(&stood.counts), 1);
    stood.release.await.unwrap();
}
