//! Nobody knows what was decided: what is to be written waits until it was read back.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use lease_async::{
    AcquireError, Authority, AuthorityError, LeaseError, LeaseGuard, Leases, Loss, ManualClock,
    Memory, Moment, Reply, Session, SessionHolder, Standing,
};
use lease_core::{Call, Code, LeaseId};

use crate::passing_on::passes_on_unanswered;
use crate::rig::{Rig, T0, TTL, ask, conflict};

const ATTEMPT: LeaseId = LeaseId::from_random([7; 16]);

/// Two ways in which an answer is lost.
#[derive(Default)]
struct Lossy {
    /// It was decided, and the answer is lost.
    after: AtomicBool,
    /// The call is lost: nothing was decided.
    before: AtomicBool,
}

struct Unsure {
    memory: Memory,
    lossy: Arc<Lossy>,
}

impl Authority for Unsure {
    type Holder = SessionHolder;

    passes_on_unanswered!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let lost = Reply::Ready(Err(AuthorityError::Undecided { attempt: ATTEMPT }));
        if self.lossy.before.load(Ordering::SeqCst) {
            return lost;
        }
        let reply = self.memory.call(call);
        if self.lossy.after.load(Ordering::SeqCst) {
            drop(reply);
            return lost;
        }
        reply
    }
}

fn rig() -> (Rig<ManualClock>, Arc<Lossy>) {
    let lossy = Arc::new(Lossy::default());
    let theirs = Arc::clone(&lossy);
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        let lossy = theirs;
        Leases::new(Unsure { memory, lossy }).unwrap()
    });
    (rig, lossy)
}

async fn guard(rig: &Rig<ManualClock>) -> (Session, LeaseGuard) {
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    (session, guard)
}

#[track_caller]
fn assert_undecided<T: core::fmt::Debug>(answer: Result<T, LeaseError<SessionHolder>>) {
    let undecided = matches!(
        answer,
        Err(LeaseError::Authority(AuthorityError::Undecided { attempt })) if attempt == ATTEMPT
    );
    assert!(undecided, "{answer:?}");
}

async fn assert_blocked(guard: &LeaseGuard) {
    assert_undecided(guard.begin().await);
    assert_undecided(guard.touch().await);
    assert_undecided(guard.renew(None).await);
    assert_undecided(guard.ensure(Duration::ZERO).await);
    assert_eq!(guard.standing(), Standing::Jeopardy);
}

#[tokio::test]
async fn what_is_undecided_blocks_every_guard_until_it_is_read_back() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (session, guard) = guard(&rig).await;
        let other = ask(&session).await.unwrap();
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        assert_undecided(guard.touch().await);
        // Nothing comes through, and it is still not known.
        assert_undecided(guard.read_back().await);
        lost.store(false, Ordering::SeqCst);
        // That it would come through now does not matter: it was not read back.
        assert_blocked(&guard).await;
        assert_blocked(&other).await;
        other.read_back().await.unwrap();
        assert_eq!(guard.standing(), Standing::Safe);
        guard.ensure(Duration::ZERO).await.unwrap();
        guard.begin().await.unwrap().end().await.unwrap();
    }
}

#[tokio::test]
async fn a_begin_that_is_undecided_leaves_nothing_in_flight() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (_session, guard) = guard(&rig).await;
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        assert_undecided(guard.begin().await);
        lost.store(false, Ordering::SeqCst);
        assert_eq!(rig.only().in_flight, []);
        guard.read_back().await.unwrap();
        drop(guard);
        rig.assert_empty();
    }
}

#[tokio::test]
async fn an_end_that_is_undecided_is_sent_again_and_read_back_before_the_next_write() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (_session, guard) = guard(&rig).await;
        let operation = guard.begin().await.unwrap();
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        assert_undecided(operation.end().await);
        lost.store(false, Ordering::SeqCst);
        assert_eq!(rig.only().in_flight, []);
        assert_blocked(&guard).await;
        guard.read_back().await.unwrap();
        guard.touch().await.unwrap();
    }
}

#[tokio::test]
async fn a_release_that_is_undecided_gives_the_guard_back_and_can_be_made_again() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (_session, guard) = guard(&rig).await;
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        let guard = match guard.release().await {
            Err(refused) => refused.guard,
            Ok(released) => panic!("{released:?}"),
        };
        lost.store(false, Ordering::SeqCst);
        assert_eq!(rig.memory.held(), usize::from(!decided));
        match (decided, guard.standing()) {
            // Its receipt came all the same.
            (true, Standing::Lost(Loss::Released)) => {}
            (false, Standing::Jeopardy) => {
                assert_blocked(&guard).await;
                assert_eq!(guard.release().await.unwrap().code(), Code::Released);
            }
            (_, standing) => panic!("{standing:?}"),
        }
        rig.assert_empty();
    }
}

#[tokio::test]
async fn no_alarm_is_set_for_the_end_of_a_term_that_is_undecided_until_it_is_read_back() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (_session, guard) = guard(&rig).await;
        let token = guard.cancellation_token();
        rig.clock.advance(TTL / 2);
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        assert_undecided(guard.touch().await);
        lost.store(false, Ordering::SeqCst);
        assert_eq!(rig.clock.armed(), 1);
        // One for what is past would ring again at once, and so on for ever.
        rig.clock.advance(TTL / 2 + Duration::from_millis(1));
        assert_eq!(rig.clock.armed(), 0);
        assert_eq!(guard.standing(), Standing::Jeopardy);
        assert!(!token.is_cancelled());
        let answer = guard.read_back().await;
        if decided {
            answer.unwrap();
            assert!(!token.is_cancelled());
            rig.clock.advance(TTL / 2);
        } else {
            assert!(matches!(answer, Err(LeaseError::Lost(_))), "{answer:?}");
        }
        assert!(token.is_cancelled());
        assert_eq!(rig.clock.armed(), 0);
    }
}

#[tokio::test]
async fn a_renewed_lease_is_read_back_by_itself() {
    let (rig, lossy) = rig();
    let session = rig.connect("a");
    let guard = session.acquire(crate::rig::KEY).renewed().await.unwrap();
    lossy.before.store(true, Ordering::SeqCst);
    rig.clock.advance(TTL / 3);
    assert_blocked(&guard).await;
    lossy.before.store(false, Ordering::SeqCst);
    rig.clock.advance(TTL / 6);
    assert_blocked(&guard).await;
    // The next third reads it back, the one after that renews.
    rig.clock.advance(TTL / 6);
    guard.touch().await.unwrap();
    rig.clock.advance(TTL / 3);
    rig.clock.advance(TTL / 3);
    rig.clock.advance(TTL / 3);
    rig.clock.advance(TTL / 3);
    assert_eq!(guard.standing(), Standing::Safe);
}

#[tokio::test]
async fn a_request_that_is_undecided_is_read_back_by_asking_again() {
    for decided in [false, true] {
        let (rig, lossy) = rig();
        let (session, other) = (rig.connect("a"), rig.connect("b"));
        let lost = if decided { &lossy.after } else { &lossy.before };
        lost.store(true, Ordering::SeqCst);
        let error = ask(&session).await.unwrap_err();
        let undecided = matches!(
            error,
            AcquireError::Authority(AuthorityError::Undecided { .. })
        );
        assert!(undecided, "{error:?}");
        lost.store(false, Ordering::SeqCst);
        if decided {
            conflict(ask(&other).await);
        }
        let guard = ask(&session).await.unwrap();
        assert_eq!(rig.only().token, guard.token());
        drop(guard);
        rig.assert_empty();
    }
}
