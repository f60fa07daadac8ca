//! Waiting: in order, for as long as it was said, and leaving nothing behind.

use core::task::Waker;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use lease_async::{
    AcquireError, Alarm, AlarmClock, AlarmError, LeaseGuard, ManualClock, Memory, Moment,
};
use lease_core::{Clock, Code, Refusal};
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::rig::{KEY, Random, Rig, SOON, T0, TTL, ask, generation, poll};

// fault B15
#[tokio::test]
async fn waiters_that_are_gone_stand_in_nobodys_way() {
    let rig = Rig::still();
    let sessions = ["a", "b", "c", "d"].map(|agent| rig.connect(agent));
    let held = ask(&sessions[0]).await.unwrap();
    let unpolled = sessions[1].acquire(KEY).forever().into_future();
    let mut polled = Box::pin(sessions[2].acquire(KEY).forever().into_future());
    let mut last = pin!(sessions[3].acquire(KEY).forever().into_future());
    assert!(poll(polled.as_mut()).is_pending());
    assert!(poll(last.as_mut()).is_pending());
    drop(unpolled);
    drop(polled);
    assert_eq!(rig.memory.waiting(), 1);
    assert_eq!(rig.memory.footprint().1, 1);
    drop(held);
    let last = last.await.unwrap();
    assert_eq!(generation(&last), 2);
    drop(last);
    rig.assert_empty();
}

#[tokio::test]
async fn waiters_are_served_in_order() {
    let rig = Rig::still();
    let held = ask(&rig.connect("a")).await.unwrap();
    drop(held);
    let first = rig.connect("a");
    let held = ask(&first).await.unwrap();
    let (told, mut served) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..50 {
        let (session, told) = (rig.connect("b"), told.clone());
        tokio::spawn(async move {
            let guard = session.acquire(KEY).forever().await.unwrap();
            told.send((n, generation(&guard))).unwrap();
        });
        tokio::task::yield_now().await;
    }
    drop(held);
    for n in 0..50 {
        assert_eq!(served.recv().await.unwrap(), (n, n + 3));
    }
}

// fault B56
#[tokio::test]
async fn a_greedy_writer_starves_nobody() {
    let rig = Rig::still();
    let greedy = rig.connect("greedy");
    let held = ask(&greedy).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let session = rig.connect("b");
        let mut request = Box::pin(session.acquire(KEY).forever().into_future());
        assert!(poll(request.as_mut()).is_pending());
        waiting.push((session, request));
    }
    drop(held);
    for (served, (_session, request)) in waiting.into_iter().enumerate() {
        let mut again = Box::pin(greedy.acquire(KEY).forever().into_future());
        assert!(poll(again.as_mut()).is_pending(), "overtook after {served}");
        drop(request.await.unwrap());
    }
    rig.assert_empty();
}

// fault B15
#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_that_leave_at_random_leave_nothing_behind() {
    for round in 0..2 {
        crowd(1_000, &[KEY], round).await;
    }
}

// fault B15
#[tokio::test(start_paused = true)]
async fn waiters_for_overlapping_resources_that_leave_at_random_leave_nothing_behind() {
    let keys = ["/app", KEY, "/app/dialog", "/app/viewport/grid/cell"];
    for round in 0..10 {
        crowd(60, &keys, round).await;
    }
    crowd(1_000, &keys, 10).await;
}

/// So many waiters, of whom a third give up in time and a third are aborted.
async fn crowd(most: usize, keys: &[&str], seed: u64) {
    let rig = Rig::paused();
    let mut random = Random(0x9e37_79b9 + seed);
    let holder = rig.connect("holder");
    let held = ask(&holder).await.unwrap();
    let mut also = Vec::new();
    for key in keys {
        also.extend(holder.acquire(*key).await);
    }
    let waiters: Vec<_> = (0..most)
        .map(|n| {
            let session = rig.connect("waiter");
            let request = session.acquire(keys[n % keys.len()]);
            let request = match random.below(3) {
                0 => request.within(Duration::from_millis(1 + random.below(100))),
                _ => request.forever(),
            };
            tokio::spawn(async move {
                let guard = request.await;
                tokio::task::yield_now().await;
                drop(guard);
                drop(session);
            })
        })
        .collect();
    // Time stands still as long as this task is busy.
    while rig.memory.waiting() < most {
        tokio::task::yield_now().await;
    }
    for waiter in &waiters {
        if random.below(3) == 0 {
            waiter.abort();
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop((held, also));
    for waiter in waiters {
        assert!(
            waiter
                .await
                .map_or_else(|end| end.is_cancelled(), |()| true)
        );
    }
    drop(holder);
    rig.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_leaves_at_its_deadline_and_not_before() {
    let mut rig = Rig::paused();
    let (holder, waiter) = (rig.connect("a"), rig.connect("b"));
    let _held = ask(&holder).await.unwrap();
    let at = Moment::from_millis(T0 + 20_000);
    let answer = waiter.acquire(KEY).deadline(at).await.unwrap_err();
    rig.at(T0 + 20_000).await;
    let AcquireError::Refused(Refusal::TimedOut { waited, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(waited, Duration::from_secs(20));
    let codes: Vec<Code> = rig.codes().iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Code::Created, Code::Queued, Code::WaitTimedOut]);
    assert_eq!(rig.memory.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_when_an_idle_term_ends_though_nobody_calls() {
    let rig = Rig::paused();
    let (holder, waiter) = (rig.connect("a"), rig.connect("b"));
    let _held = ask(&holder).await.unwrap();
    let guard = waiter.acquire(KEY).forever().await.unwrap();
    assert_eq!(generation(&guard), 2);
    let late = Duration::from_millis(1);
    let expired = Moment::from_millis(T0).after(TTL);
    let granted = rig.only().acquired;
    assert!(
        granted > expired && granted <= expired.after(late),
        "{granted}"
    );
}

#[tokio::test(start_paused = true)]
async fn more_terms_than_one_sweep_takes_end_while_somebody_waits() {
    let rig = Rig::paused();
    let holder = rig.connect("a");
    for n in 0..200 {
        holder.acquire(format!("/many/{n}")).await.unwrap().keep();
    }
    let waiter = rig.connect("b");
    let guard = waiter.acquire("/many").within(TTL * 2).await.unwrap();
    assert_eq!(generation(&guard), 201);
    assert_eq!(rig.memory.held(), 1);
}

// fault B15
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_never_polled_again_loses_what_it_was_granted_to_the_next() {
    let rig = Rig::paused();
    let sessions = ["a", "b", "c"].map(|agent| rig.connect(agent));
    let held = ask(&sessions[0]).await.unwrap();
    let mut idle = pin!(sessions[1].acquire(KEY).forever().into_future());
    assert!(poll(idle.as_mut()).is_pending());
    let mut next = pin!(sessions[2].acquire(KEY).forever().into_future());
    assert!(poll(next.as_mut()).is_pending());
    drop(held);
    let next = next.await.unwrap();
    assert_eq!(generation(&next), 3);
    // Polled at last, it finds its lease over and waits again.
    assert!(poll(idle.as_mut()).is_pending());
    drop(next);
    assert_eq!(generation(&idle.await.unwrap()), 4);
}

#[tokio::test]
async fn a_cancelled_request_gets_nothing_even_when_the_resource_is_free() {
    let rig = Rig::still();
    let session = rig.connect("a");
    let token = CancellationToken::new();
    token.cancel();
    let answer = session.acquire(KEY).cancelled_by(token).await.unwrap_err();
    assert!(matches!(answer, AcquireError::Cancelled), "{answer:?}");
    rig.assert_empty();
}

#[tokio::test]
async fn a_request_that_has_its_answer_waits_no_more_though_its_future_is_kept() {
    let rig = Rig::still();
    let sessions = ["a", "b", "c"].map(|agent| rig.connect(agent));
    let _held = ask(&sessions[0]).await.unwrap();
    let mut refused = pin!(sessions[1].acquire(KEY).into_future());
    assert!(refused.as_mut().await.is_err());
    assert_eq!(rig.leases.health().waiting, 0);
    let token = CancellationToken::new();
    let request = sessions[2].acquire(KEY).forever();
    let mut cancelled = pin!(request.cancelled_by(token.clone()).into_future());
    assert!(poll(cancelled.as_mut()).is_pending());
    assert_eq!(rig.leases.health().waiting, 1);
    token.cancel();
    assert!(cancelled.as_mut().await.is_err());
    assert_eq!(rig.leases.health().waiting, 0);
    assert_eq!(rig.memory.waiting(), 0);
}

#[tokio::test]
async fn a_waiting_request_is_cancelled_by_its_token() {
    let rig = Rig::still();
    let (holder, waiter) = (rig.connect("a"), rig.connect("b"));
    let held: LeaseGuard = ask(&holder).await.unwrap();
    let token = CancellationToken::new();
    let request = waiter.acquire(KEY).forever().cancelled_by(token.clone());
    let request = tokio::spawn(request.into_future());
    tokio::task::yield_now().await;
    assert_eq!(rig.memory.waiting(), 1);
    token.cancel();
    let answer = request.await.unwrap().unwrap_err();
    assert!(matches!(answer, AcquireError::Cancelled), "{answer:?}");
    assert_eq!(rig.memory.waiting(), 0);
    drop(held);
    rig.assert_empty();
}

#[tokio::test]
async fn only_a_wait_with_an_end_takes_an_alarm_and_only_one() {
    let rig = Rig::still();
    let holder = rig.connect("a");
    let held = ask(&holder).await.unwrap();
    assert_eq!(rig.clock.armed(), 0);
    let waiter = rig.connect("b");
    let mut requests: Vec<_> = (0..100)
        .map(|n| Box::pin(waiter.acquire(KEY).within(TTL * (n + 1)).into_future()))
        .collect();
    for request in &mut requests {
        assert!(poll(request.as_mut()).is_pending());
        assert_eq!(rig.clock.armed(), 1);
    }
    drop(requests);
    assert_eq!(rig.clock.armed(), 0);
    drop(held);
}

/// A clock that looks at the authority whenever it disarms.
#[derive(Clone, Debug)]
struct Curious {
    clock: ManualClock,
    memory: Arc<Mutex<Option<Memory>>>,
    /// How often it saw it.
    looks: Arc<AtomicUsize>,
}

impl Clock for Curious {
    fn now(&self) -> Moment {
        self.clock.now()
    }
}

impl AlarmClock for Curious {
    fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
        let (alarm, this) = (self.clock.arm(at, waker)?, self.clone());
        Ok(Alarm::new(move || {
            drop(alarm);
            let Some(memory) = this.memory.lock().unwrap().clone() else {
                return;
            };
            // In another thread: this one would wait for itself, and nothing would bound that.
            let (told, seen) = mpsc::channel();
            thread::spawn(move || told.send(memory.waiting()));
            seen.recv_timeout(SOON)
                .expect("the authority is not locked");
            this.looks.fetch_add(1, Ordering::SeqCst);
        }))
    }
}

#[tokio::test]
async fn an_alarm_is_disarmed_while_the_authority_is_not_locked() {
    let clock = Curious {
        clock: ManualClock::new(Moment::from_millis(T0)),
        memory: Arc::default(),
        looks: Arc::default(),
    };
    let looks = || clock.looks.load(Ordering::SeqCst);
    let rig = Rig::on(clock.clone());
    *clock.memory.lock().unwrap() = Some(rig.memory.clone());
    let (one, other) = (rig.connect("a"), rig.connect("b"));
    let held = ask(&one).await.unwrap();
    let mut last = Box::pin(other.acquire(KEY).within(TTL / 2).into_future());
    assert!(poll(last.as_mut()).is_pending());
    assert_eq!(looks(), 0);
    // It is to ring earlier now.
    let mut first = Box::pin(other.acquire(KEY).within(TTL / 4).into_future());
    assert!(poll(first.as_mut()).is_pending());
    assert_eq!(looks(), 1);
    // It rings, and another one is armed.
    clock.clock.advance(TTL / 4);
    assert!(poll(first.as_mut()).is_ready());
    assert_eq!((looks(), clock.clock.armed()), (2, 1));
    // Nobody waits any more.
    drop(last);
    assert_eq!((looks(), clock.clock.armed()), (3, 0));
    drop(held);
    *clock.memory.lock().unwrap() = None;
}

#[tokio::test]
async fn the_alarm_of_the_last_who_was_served_stays_for_who_waits_next() {
    let rig = Rig::still();
    let (one, other) = (rig.connect("a"), rig.connect("b"));
    let mut held = ask(&one).await.unwrap();
    for session in [&other, &one, &other] {
        let mut next = Box::pin(session.acquire(KEY).forever().into_future());
        assert!(poll(next.as_mut()).is_pending());
        assert_eq!(rig.clock.armed(), 1);
        drop(held);
        assert_eq!((rig.memory.waiting(), rig.clock.armed()), (0, 1));
        held = next.await.unwrap();
    }
    // It goes with the next call that nobody waits behind.
    drop(held);
    assert_eq!(rig.clock.armed(), 0);
    rig.assert_empty();
}

#[tokio::test]
async fn an_alarm_that_nobody_waits_for_any_more_rings_once_and_ends_nothing() {
    let rig = Rig::still();
    let (one, other) = (rig.connect("a"), rig.connect("b"));
    let held = ask(&one).await.unwrap();
    let mut next = Box::pin(other.acquire(KEY).forever().into_future());
    assert!(poll(next.as_mut()).is_pending());
    drop(held);
    let held = next.await.unwrap();
    rig.clock.advance(TTL * 2);
    assert_eq!((rig.memory.held(), rig.clock.armed()), (1, 0));
    let mut last = Box::pin(one.acquire(KEY).forever().into_future());
    let last = poll(last.as_mut());
    assert!(last.is_ready(), "its term is over");
    drop((held, last));
    rig.assert_empty();
}

// fault B15
#[tokio::test]
async fn two_requests_of_one_session_that_are_served_and_dropped_leave_nothing_behind() {
    for order in [[0, 1], [1, 0]] {
        let rig = Rig::still();
        let sessions = ["a", "b", "c"].map(|agent| rig.connect(agent));
        let held = ask(&sessions[0]).await.unwrap();
        let request = || Some(Box::pin(sessions[1].acquire(KEY).forever().into_future()));
        let mut both = [request(), request()];
        for request in both.iter_mut().flatten() {
            assert!(poll(request.as_mut()).is_pending());
        }
        let mut next = pin!(sessions[2].acquire(KEY).forever().into_future());
        assert!(poll(next.as_mut()).is_pending());
        drop(held);
        for which in order {
            assert!(poll(next.as_mut()).is_pending());
            drop(both[which].take());
        }
        let next = next.await.unwrap();
        assert_eq!(generation(&next), 3);
        drop(next);
        rig.assert_empty();
    }
}

#[tokio::test]
async fn a_request_whose_twin_is_dropped_after_both_were_served_has_the_lease() {
    for gone in [0, 1] {
        let rig = Rig::still();
        let sessions = ["a", "b"].map(|agent| rig.connect(agent));
        let held = ask(&sessions[0]).await.unwrap();
        let request = || Box::pin(sessions[1].acquire(KEY).forever().into_future());
        let mut both = vec![request(), request()];
        for request in &mut both {
            assert!(poll(request.as_mut()).is_pending());
        }
        drop(held);
        drop(both.remove(gone));
        let guard = both.remove(0).await.unwrap();
        assert_eq!(generation(&guard), 2);
        assert_eq!(rig.only().token, guard.token());
        drop(guard);
        rig.assert_empty();
    }
}

#[tokio::test]
async fn who_waits_is_served_at_the_end_of_a_term_however_many_others_end_then() {
    let rig = Rig::still();
    let (holder, other) = (rig.connect("a"), rig.connect("b"));
    for key in 0..500 {
        holder.acquire(format!("{key}")).await.unwrap().keep();
    }
    let mut waits = pin!(other.acquire("499").forever().into_future());
    assert!(poll(waits.as_mut()).is_pending());
    rig.clock.advance(TTL + Duration::from_millis(1));
    assert!(poll(waits.as_mut()).is_ready());
}

/// Counts the spans that are open.
struct Open(Arc<AtomicUsize>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Open {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: layer::Context<'_, S>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn on_close(&self, _: Id, _: layer::Context<'_, S>) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn the_span_of_a_request_that_has_waited_ends_with_it() {
    let open = Arc::<AtomicUsize>::default();
    let told = tracing_subscriber::registry().with(Open(Arc::clone(&open)));
    let _told = tracing::subscriber::set_default(told);
    let rig = Rig::still();
    let (one, other) = (rig.connect("a"), rig.connect("b"));
    let mut held = ask(&one).await.unwrap();
    let waits = || {
        let mut waits = Box::pin(other.acquire(KEY).within(TTL / 2).into_future());
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(open.load(Ordering::SeqCst), 1);
        waits
    };
    // Given up, too late, served, and turned away.
    drop(waits());
    assert_eq!(open.load(Ordering::SeqCst), 0);
    let late = waits();
    rig.clock.advance(TTL / 2);
    assert!(late.await.is_err());
    assert_eq!(open.load(Ordering::SeqCst), 0);
    let served = waits();
    drop(held);
    held = served.await.unwrap();
    assert_eq!(open.load(Ordering::SeqCst), 0);
    held.release().await.unwrap();
    held = ask(&one).await.unwrap();
    let turned_away = waits();
    drop(rig.leases.authority().shutdown(Duration::ZERO));
    assert!(turned_away.await.is_err());
    assert_eq!(open.load(Ordering::SeqCst), 0);
    drop(held);
}
