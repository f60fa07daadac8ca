//! An authority that does not answer: who does not want to wait any more gives up, and nothing stays.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::pin::pin;
use std::sync::Arc;

use lease_async::{
    AcquireError, Authority, LeaseError, Leases, Loss, ManualClock, Memory, Moment, Reply,
    SessionHolder, Standing,
};
use lease_core::Call;
use tokio_util::sync::CancellationToken;

use crate::passing_on::passes_on_unanswered;
use crate::rig::{KEY, Rig, T0, TTL, ask, bare_request, poll};

struct Mute {
    memory: Memory,
    mute: Arc<AtomicBool>,
}

impl Authority for Mute {
    type Holder = SessionHolder;

    passes_on_unanswered!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        match self.mute.load(Ordering::SeqCst) {
            true => Reply::Pending(Box::pin(core::future::pending())),
            false => self.memory.call(call),
        }
    }
}

fn rig() -> (Rig<ManualClock>, Arc<AtomicBool>) {
    let mute = Arc::<AtomicBool>::default();
    let theirs = Arc::clone(&mute);
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        let mute = theirs;
        Leases::new(Mute { memory, mute }).unwrap()
    });
    (rig, mute)
}

#[tokio::test]
async fn an_authority_need_not_say_what_it_is_made_of() {
    let (rig, mute) = rig();
    mute.store(true, Ordering::SeqCst);
    let authority = rig.leases.authority();
    assert_eq!(authority.backend(), "other");
    let reply = authority.call(bare_request("a"));
    assert_eq!(format!("{reply:?}"), "Pending");
}

#[tokio::test]
async fn a_request_is_given_up_by_its_token_and_by_who_drops_it() {
    let (rig, mute) = rig();
    let session = rig.connect("a");
    mute.store(true, Ordering::SeqCst);
    let token = CancellationToken::new();
    let request = session.acquire(KEY).forever().cancelled_by(token.clone());
    let mut request = pin!(request.into_future());
    let mut other = Box::pin(session.acquire(KEY).into_future());
    assert!(poll(request.as_mut()).is_pending());
    assert!(poll(other.as_mut()).is_pending());
    assert_eq!(rig.leases.health().waiting, 2);
    token.cancel();
    assert!(matches!(request.await, Err(AcquireError::Cancelled)));
    drop(other);
    assert_eq!(rig.leases.health().waiting, 0);
    mute.store(false, Ordering::SeqCst);
    drop(ask(&session).await.unwrap());
    rig.assert_empty();
}

#[tokio::test]
async fn what_is_given_up_under_a_lease_leaves_it_usable() {
    let (rig, mute) = rig();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    mute.store(true, Ordering::SeqCst);
    {
        let mut touch = pin!(guard.touch());
        assert!(poll(touch.as_mut()).is_pending());
        let mut renew = pin!(guard.renew(None));
        assert!(poll(renew.as_mut()).is_pending());
        let mut back = pin!(guard.read_back());
        assert!(poll(back.as_mut()).is_pending());
        let mut begin = pin!(guard.begin());
        assert!(poll(begin.as_mut()).is_pending());
    }
    mute.store(false, Ordering::SeqCst);
    assert_eq!(guard.standing(), Standing::Safe);
    let operation = guard.begin().await.unwrap();
    mute.store(true, Ordering::SeqCst);
    {
        let mut end = Box::pin(operation.end());
        assert!(poll(end.as_mut()).is_pending());
        drop(end);
    }
    assert_eq!(rig.only().in_flight, []);
    let mut release = Box::pin(guard.release());
    assert!(poll(release.as_mut()).is_pending());
    // As long as it is on its way, who asks again stands behind it.
    let mut again = Box::pin(session.acquire(KEY).within(TTL).into_future());
    assert!(poll(again.as_mut()).is_pending());
    drop(release);
    mute.store(false, Ordering::SeqCst);
    drop(again);
    rig.assert_empty();
}

#[tokio::test]
async fn a_term_ends_in_time_though_nothing_is_answered() {
    let (rig, mute) = rig();
    let session = rig.connect("a");
    let guard = session.acquire(KEY).renewed().await.unwrap();
    let told = guard.cancellation_token();
    let operation = guard.begin().await.unwrap();
    rig.clock.advance(TTL * 2);
    mute.store(true, Ordering::SeqCst);
    let mut end = Box::pin(operation.end());
    assert!(poll(end.as_mut()).is_pending());
    rig.clock.advance(TTL / 2);
    rig.clock.advance(TTL / 2);
    assert!(!told.is_cancelled());
    rig.clock.advance(Duration::from_millis(1));
    assert!(told.is_cancelled());
    assert_eq!(guard.standing(), Standing::Lost(Loss::Expired));
    assert!(matches!(
        guard.begin().await,
        Err(LeaseError::Lost(Loss::Expired))
    ));
    mute.store(false, Ordering::SeqCst);
    drop(end);
    drop(guard);
    let other = rig.connect("b");
    rig.clock.advance(TTL + Duration::from_millis(1));
    drop(ask(&other).await.unwrap());
    rig.assert_empty();
}
