//! Renewals are made away from the caller's executors, and made again after one that came to nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_async::{
    Authority, LeaseGuard, LeasePolicy, Leases, ManualClock, Memory, Moment, Reply, Session,
    SessionHolder, Standing, SystemClock,
};
use lease_core::{Call, Clock as _};

use crate::passing_on::passes_on_unanswered;
use crate::rig::{KEY, Rig, SOON, T0, TTL};

/// What the next call comes to.
#[derive(Clone, Copy, Debug)]
enum Next {
    PanicsAtOnce,
    PanicsLater,
    TakesTime,
}

struct Door {
    memory: Memory,
    next: Arc<Mutex<Option<Next>>>,
}

impl Authority for Door {
    type Holder = SessionHolder;

    passes_on_unanswered!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let next = self.next.lock().unwrap().take();
        match next {
            None => self.memory.call(call),
            Some(Next::PanicsAtOnce) => panic!("as planned"),
            Some(Next::PanicsLater) => Reply::Pending(Box::pin(async { panic!("as planned") })),
            Some(Next::TakesTime) => {
                let memory = self.memory.clone();
                Reply::Pending(Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    memory.call(call).answer().await
                }))
            }
        }
    }
}

/// A renewed lease whose first renewal comes to what `next` says, and is over.
async fn renewed_once(next: Next) -> (Rig<ManualClock>, Session, LeaseGuard) {
    let place = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&place);
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        let next = theirs;
        Leases::new(Door { memory, next }).unwrap()
    });
    let session = rig.connect("a");
    let guard = session.acquire(KEY).renewed().await.unwrap();
    *place.lock().unwrap() = Some(next);
    rig.clock.advance(TTL / 3);
    // Another thread may be about it. It is over when the next third is waited for.
    let end = SystemClock::new().now().after(SOON);
    while rig.clock.armed() == 0 {
        assert!(SystemClock::new().now() < end, "nobody renews: {next:?}");
        tokio::task::yield_now().await;
    }
    assert!(place.lock().unwrap().is_none());
    (rig, session, guard)
}

#[tokio::test]
async fn a_renewal_that_panics_is_made_again_at_the_next_third() {
    for next in [Next::PanicsAtOnce, Next::PanicsLater] {
        let (rig, _session, guard) = renewed_once(next).await;
        assert_eq!(rig.only().touched, Moment::from_millis(T0));
        for _third in 0..6 {
            rig.clock.advance(TTL / 3);
            assert_eq!(rig.only().touched, rig.clock.now());
        }
        assert_eq!(guard.standing(), Standing::Safe);
    }
}

#[tokio::test]
async fn a_renewal_may_use_the_timers_of_tokio() {
    let (rig, _session, guard) = renewed_once(Next::TakesTime).await;
    assert_eq!(rig.only().touched, rig.clock.now());
    rig.clock.advance(TTL / 3);
    assert_eq!(guard.standing(), Standing::Safe);
}

#[tokio::test]
async fn a_renewed_lease_leaves_no_alarm_behind() {
    // Nobody listens, so its front hears of the end by itself only.
    let clock = ManualClock::new(Moment::from_millis(T0));
    let memory = Memory::builder().clock(clock.clone()).build().unwrap();
    let leases = Leases::new(memory).unwrap();
    let session = leases.connect("a").unwrap();
    let guard = session.acquire(KEY).renewed().await.unwrap();
    assert_eq!(clock.armed(), 1);
    drop(guard);
    assert_eq!(clock.armed(), 0);
}

#[tokio::test]
async fn a_lease_that_is_kept_is_not_renewed_once_its_guards_have_gone() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    session.acquire(KEY).renewed().await.unwrap().keep();
    rig.receipts();
    rig.clock.advance(TTL / 3);
    assert_eq!(rig.codes(), []);
    assert_eq!(rig.clock.armed(), 0);
}

#[tokio::test]
async fn a_lease_without_a_fixed_term_is_not_renewed() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        Leases::with_policy(memory, LeasePolicy::process_bound()).unwrap()
    });
    let session = rig.connect("a");
    let _guard = session.acquire(KEY).renewed().await.unwrap();
    assert_eq!(rig.clock.armed(), 0);
}
