//! Every future, dropped at every await: what its documentation says is what is left.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use lease_async::{
    AcquireError, AsyncHolderLiveness, Authority, AuthorityError, Call, Events, LeaseGuard,
    LeasePolicy, Leases, ManualClock, Memory, Moment, Outcome, Reply, Session, SessionHolder,
    Standing,
};
use lease_core::{Code, Disposition, Evidence, OperationKind, Question, Verdict};
use tokio_util::sync::CancellationToken;

use crate::passing_on::passes_on;
use crate::rig::{KEY, Rig, Slow, T0, TTL, ask, bare_request, generation, poll};

/// More polls than any future here needs.
const POLLS: usize = 20;

type Rig_ = Rig<ManualClock>;

fn slow() -> Rig_ {
    let clock = ManualClock::new(Moment::from_millis(T0));
    Rig::over(clock, |memory| Leases::new(Slow(memory)).unwrap())
}

/// Polls `future` at most `times` times and drops it. Answers whether it was done.
fn drop_after<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    (0..times).find_map(|_| match poll(future.as_mut()) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// Makes a guard through the slow authority.
async fn guard(rig: &Rig_) -> (Session, LeaseGuard) {
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    (session, guard)
}

// Cancel safety: `AcquireFuture`.
#[tokio::test]
async fn a_dropped_request_holds_nothing() {
    let mut done = 0;
    for times in 0..POLLS {
        let rig = slow();
        let session = rig.connect("a");
        let request = session.acquire(KEY).forever().into_future();
        let answer = drop_after(times, request);
        done += usize::from(answer.is_some());
        drop(answer);
        rig.assert_empty();
    }
    assert!(done > 0 && done < POLLS);
}

// Cancel safety: `AcquireFuture`.
#[tokio::test]
async fn a_dropped_request_that_waits_lets_the_next_one_go_first() {
    for times in 0..POLLS {
        let rig = slow();
        let holder = rig.connect("h");
        let held = ask(&holder).await.unwrap();
        let (session, behind) = (rig.connect("a"), rig.connect("b"));
        let mut request = Box::pin(session.acquire(KEY).forever().into_future());
        let mut next = Box::pin(behind.acquire(KEY).forever().into_future());
        for _ in 0..4 {
            assert!(poll(request.as_mut()).is_pending());
            assert!(poll(next.as_mut()).is_pending());
        }
        drop(held);
        // It is granted now, and dropped after so many polls without being done.
        let answer = drop_after(times.min(1), Pin::new(&mut request));
        assert!(answer.is_none());
        drop(request);
        let next = next.await.unwrap();
        assert_eq!(next.standing(), Standing::Safe);
        drop(next);
        rig.assert_empty();
    }
}

// Cancel safety: `AcquireFuture`.
#[tokio::test]
async fn a_request_dropped_after_it_was_served_is_abandoned() {
    let mut rig = Rig::still();
    let sessions = ["a", "b", "c"].map(|agent| rig.connect(agent));
    let held = ask(&sessions[0]).await.unwrap();
    let mut gone = Box::pin(sessions[1].acquire(KEY).forever().into_future());
    let mut next = Box::pin(sessions[2].acquire(KEY).forever().into_future());
    assert!(poll(gone.as_mut()).is_pending());
    assert!(poll(next.as_mut()).is_pending());
    drop(held);
    rig.receipts();
    drop(gone);
    assert_eq!(rig.codes(), [(Code::Abandoned, 2), (Code::Created, 3)]);
    assert_eq!(generation(&next.await.unwrap()), 3);
}

#[tokio::test]
async fn a_request_whose_session_goes_waits_no_more_wherever_it_is() {
    for times in 1..4 {
        let rig = slow();
        let (other, session) = (rig.connect("h"), rig.connect("a"));
        let _held = ask(&other).await.unwrap();
        let mut request = pin!(session.acquire(KEY).forever().into_future());
        for _ in 0..times {
            assert!(poll(request.as_mut()).is_pending());
        }
        drop(session);
        // Its disconnect is decided; the request may not have been sent before.
        let gone = drop_after(POLLS, request);
        assert!(
            matches!(gone, Some(Err(AcquireError::SessionGone))),
            "{gone:?}"
        );
        assert_eq!(rig.memory.waiting(), 0);
    }
}

#[tokio::test]
async fn a_request_that_is_over_says_so_however_it_ended() {
    let rig = slow();
    let session = rig.connect("a");
    let token = CancellationToken::new();
    token.cancel();
    let mut cancelled = pin!(session.acquire(KEY).cancelled_by(token).into_future());
    for _ in 0..2 {
        let over = poll(cancelled.as_mut());
        let over_so = matches!(over, Poll::Ready(Err(AcquireError::Cancelled)));
        assert!(over_so, "{over:?}");
    }
    rig.assert_empty();
}

// Cancel safety: `LeaseGuard::touch`, `renew`, `ensure`.
#[tokio::test]
async fn a_dropped_touch_or_renewal_does_no_harm() {
    for times in 0..POLLS {
        let rig = slow();
        let (_session, guard) = guard(&rig).await;
        drop(drop_after(times, guard.touch()));
        drop(drop_after(times, guard.renew(None)));
        drop(drop_after(times, guard.ensure(TTL)));
        assert_eq!(guard.standing(), Standing::Safe);
        assert_eq!(rig.only().token, guard.token());
        drop(guard);
        rig.assert_empty();
    }
}

// Cancel safety: `LeaseGuard::begin`, `begin_kind`.
#[tokio::test]
async fn a_dropped_begin_leaves_nothing_in_flight_and_no_unknown_effect() {
    for times in 0..POLLS {
        for kind in [None, Some(OperationKind::Undo)] {
            let rig = slow();
            let (_session, guard) = guard(&rig).await;
            let begun = match kind {
                None => drop_after(times, guard.begin()),
                Some(kind) => drop_after(times, guard.begin_kind(kind)),
            };
            if let Some(operation) = begun {
                operation.unwrap().end().await.unwrap();
            }
            assert_eq!(rig.only().in_flight, []);
            drop(guard);
            rig.assert_empty();
        }
    }
}

// Cancel safety: `Operation::end`, `fail`.
#[tokio::test]
async fn a_dropped_end_is_sent_all_the_same() {
    for times in 0..POLLS {
        for result in [Ok(()), Err(Disposition::Unknown)] {
            let rig = slow();
            let (_session, guard) = guard(&rig).await;
            let operation = guard.begin().await.unwrap();
            match result {
                Ok(()) => drop(drop_after(times, operation.end())),
                Err(disposition) => drop(drop_after(times, operation.fail(disposition))),
            }
            let view = rig.only();
            assert_eq!((view.in_flight.len(), view.tainted), (0, result.is_err()));
            drop(guard);
            // What may be half done is not unlocked.
            assert_eq!(rig.memory.held(), usize::from(result.is_err()));
        }
    }
}

// Cancel safety: `Operation::run`, `run_with`.
#[tokio::test]
async fn a_dropped_run_is_of_unknown_effect_unless_its_end_was_on_its_way() {
    for times in 0..POLLS {
        for judged in [false, true] {
            let rig = slow();
            let (_session, guard) = guard(&rig).await;
            let operation = guard.begin().await.unwrap();
            let mut worked = false;
            let work = async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                worked = true;
                if judged { Err(7) } else { Ok(()) }
            };
            if judged {
                // It left nothing behind, as its caller knows once it is done, and made the lease.
                let run = operation.run_with(work, |_seven| Disposition::RolledBack);
                drop(drop_after(times, run));
                assert_eq!(rig.memory.held(), usize::from(!worked));
            } else {
                drop(drop_after(times, operation.run(work)));
                assert_eq!(rig.memory.held(), 1);
            }
            let list = rig.memory.list();
            let in_flight = list.iter().map(|view| view.in_flight.len()).sum::<usize>();
            assert_eq!(in_flight, 0);
            assert_eq!(list.iter().any(|view| view.tainted), !worked);
        }
    }
}

// Cancel safety: `LeaseGuard::release`.
#[tokio::test]
async fn a_dropped_release_releases_all_the_same() {
    for times in 0..POLLS {
        let rig = slow();
        let (session, guard) = guard(&rig).await;
        drop(drop_after(times, guard.release()));
        rig.assert_empty();
        drop(ask(&session).await.unwrap());
        rig.assert_empty();
    }
}

// Cancel safety: `LeaseGuard::release`.
#[tokio::test]
async fn a_re_entry_during_a_release_gets_a_lease_that_lasts() {
    for times in 0..POLLS {
        let rig = slow();
        let (session, guard) = guard(&rig).await;
        let mut release = Box::pin(guard.release());
        let mut again = Box::pin(session.acquire(KEY).into_future());
        for _ in 0..times {
            if poll(release.as_mut()).is_ready() {
                break;
            }
        }
        let mut polls = 0;
        let again = loop {
            if let Poll::Ready(again) = poll(again.as_mut()) {
                break again.unwrap();
            }
            polls += 1;
            assert!(polls < 100);
            if times < POLLS / 2 && !release_is_over(&rig) {
                drop(poll(release.as_mut()));
            }
        };
        drop(release);
        assert_eq!(again.standing(), Standing::Safe);
        assert_eq!(rig.only().token, again.token());
    }
}

/// Whether the first lease has ended, so that its release must not be polled again.
fn release_is_over(rig: &Rig_) -> bool {
    let list = rig.memory.list();
    list.first()
        .is_none_or(|view| view.token.generation.get() > 1)
}

// Cancel safety: `LeaseGuard::lost`, `Events::next`.
#[tokio::test]
async fn a_dropped_wait_for_the_loss_or_for_an_event_changes_nothing() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    for times in 0..3 {
        assert!(drop_after(times, guard.lost()).is_none());
        let mut events = rig.leases.events();
        assert!(drop_after(times, events.next()).is_none());
        guard.touch().await.unwrap();
        assert!(drop_after(1, events.next()).is_some());
    }
    assert_eq!(guard.standing(), Standing::Safe);
}

/// The session goes while its request is on its way to the authority.
struct Parting(Memory, Arc<Mutex<Option<Session>>>);

impl Authority for Parting {
    type Holder = SessionHolder;

    passes_on!(self => self.0);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let session = self.1.lock().unwrap().take();
        drop(session);
        self.0.call(call)
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        self.0.call_detached(call);
    }

    fn events(&self) -> Events<SessionHolder> {
        self.0.events()
    }
}

#[tokio::test]
async fn a_grant_that_comes_after_the_disconnect_is_given_back() {
    let leaves = Arc::new(Mutex::new(None));
    let clock = ManualClock::new(Moment::from_millis(T0));
    let parting = |memory| Leases::new(Parting(memory, Arc::clone(&leaves))).unwrap();
    let mut rig = Rig::over(clock, parting);
    let session = rig.connect("a");
    let request = session.acquire(KEY).forever();
    *leaves.lock().unwrap() = Some(session);
    let gone = request.await.unwrap_err();
    assert!(matches!(gone, AcquireError::SessionGone), "{gone:?}");
    assert_eq!(rig.codes(), [(Code::Created, 1), (Code::Released, 1)]);
    rig.assert_empty();
}

// Cancel safety: `Reply::answer`.
#[tokio::test]
async fn a_dropped_reply_takes_the_call_back() {
    for times in 0..3 {
        for served in [false, true] {
            let rig = Rig::still();
            let holder = rig.connect("h");
            let held = ask(&holder).await.unwrap();
            let mut answer = Box::pin(rig.memory.call(bare_request("a")).answer());
            let mut next = Box::pin(rig.memory.call(bare_request("b")).answer());
            assert!(poll(next.as_mut()).is_pending());
            for _ in 0..times {
                assert!(poll(answer.as_mut()).is_pending());
            }
            let mut held = Some(held);
            if served {
                drop(held.take());
            }
            drop(answer);
            assert_eq!(rig.memory.waiting(), usize::from(!served));
            drop(held);
            let granted = next.await.unwrap();
            assert!(matches!(granted, Outcome::Granted(..)), "{granted:?}");
            assert_eq!(rig.memory.footprint().1, 0);
        }
    }
}

/// Looks for two polls, and has then seen that the holder runs.
struct Looks;

#[async_trait::async_trait]
impl AsyncHolderLiveness<SessionHolder> for Looks {
    async fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        Verdict::Alive(Evidence::new("runs"))
    }
}

// Cancel safety: `AsyncHolderLiveness::observe`.
#[tokio::test]
async fn a_dropped_observation_leaves_nothing_behind() {
    let mut done = 0;
    for times in 0..POLLS {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let memory = Memory::builder().clock(clock).async_liveness(Looks);
        let memory = memory.build().unwrap();
        let policy = LeasePolicy::hosted_session(TTL).unwrap();
        let leases = Leases::with_policy(memory.clone(), policy).unwrap();
        let (holder, other) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
        let held = ask(&holder).await.unwrap();
        let answer = drop_after(times, other.acquire(KEY).into_future());
        done += usize::from(answer.is_some());
        assert!(answer.is_none_or(|answer| answer.is_err()));
        assert_eq!((memory.held(), memory.waiting()), (1, 0));
        drop(held);
        drop(ask(&other).await.unwrap());
        assert_eq!(memory.footprint(), (0, 0));
    }
    assert!(done > 0 && done < POLLS);
}

// Cancel safety: `Authority::shutdown`.
#[tokio::test]
async fn an_authority_stays_shut_though_nobody_waits_for_it() {
    for times in 0..3 {
        let rig = Rig::still();
        let (holder, waiter) = (rig.connect("a"), rig.connect("b"));
        let held = ask(&holder).await.unwrap();
        let mut waits = Box::pin(waiter.acquire(KEY).forever().into_future());
        assert!(poll(waits.as_mut()).is_pending());
        let shutdown = rig.memory.shutdown(TTL);
        assert!(drop_after(times, shutdown).is_none());
        assert_eq!(rig.clock.armed(), 0);
        let turned_away = waits.await.unwrap_err();
        let shut = matches!(
            turned_away,
            AcquireError::Authority(AuthorityError::ShutDown)
        );
        assert!(shut, "{turned_away:?}");
        held.begin().await.unwrap().end().await.unwrap();
        drop(held);
        assert!(ask(&holder).await.is_err());
        assert_eq!(rig.memory.held(), 0);
        // Whoever shuts it again hears how it ended.
        assert_eq!(rig.memory.shutdown(TTL).await.held, 0);
    }
}

/// The session goes while a holder is looked at for its request.
struct LooksAway(Arc<Mutex<Option<Session>>>);

#[async_trait::async_trait]
impl AsyncHolderLiveness<SessionHolder> for LooksAway {
    async fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
        let session = self.0.lock().unwrap().take();
        drop(session);
        Verdict::Alive(Evidence::new("runs"))
    }
}

#[tokio::test]
async fn a_request_whose_session_goes_while_a_holder_is_looked_at_waits_no_more() {
    let leaves = Arc::new(Mutex::new(None));
    let clock = ManualClock::new(Moment::from_millis(T0));
    let liveness = LooksAway(Arc::clone(&leaves));
    let memory = Memory::builder().clock(clock).async_liveness(liveness);
    let memory = memory.build().unwrap();
    let policy = LeasePolicy::hosted_session(TTL).unwrap();
    let leases = Leases::with_policy(memory.clone(), policy).unwrap();
    let (holder, other) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
    let _held = ask(&holder).await.unwrap();
    let mut request = pin!(other.acquire(KEY).forever().into_future());
    *leaves.lock().unwrap() = Some(other);
    // The poll that sends it is the last one: nobody wakes it again.
    let gone = poll(request.as_mut());
    assert!(
        matches!(gone, Poll::Ready(Err(AcquireError::SessionGone))),
        "{gone:?}"
    );
    assert_eq!(memory.waiting(), 0);
}
