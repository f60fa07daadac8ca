//! Answers that arrive after the lease they are about has ended.

use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;
use std::sync::Arc;
use std::time::Duration;

use lease_async::{
    Authority, AuthorityError, Event, EventSource, Events, LeaseError, LeaseGuard, LeasePolicy,
    Leases, Loss, ManualClock, Memory, Moment, Reply, Session, SessionHolder, Standing,
};
use lease_core::{
    Action, AdoptProof, Call, Clock as _, Code, Detail, Disposition, Receipt, Receipts,
    ResourceKey, Wait,
};

use crate::loss::early;
use crate::passing_on::passes_on;
use crate::rig::{KEY, Rig, T0, TTL, ask, conflict, poll};

/// Decides at once. While it is set, what it answers is on its way.
struct Far {
    memory: Memory,
    held_up: Arc<AtomicBool>,
    /// Where its receipts never arrive.
    silence: Option<Arc<EventSource<SessionHolder>>>,
}

impl Authority for Far {
    type Holder = SessionHolder;

    passes_on!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let held_up = Arc::clone(&self.held_up);
        match self.memory.call(call) {
            Reply::Ready(answer) if held_up.load(Ordering::SeqCst) => {
                let mut answer = Some(answer);
                Reply::Pending(Box::pin(core::future::poll_fn(move |_| {
                    match held_up.load(Ordering::SeqCst) {
                        true => Poll::Pending,
                        false => Poll::Ready(answer.take().unwrap()),
                    }
                })))
            }
            reply => reply,
        }
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        self.memory.call_detached(call);
    }

    fn events(&self) -> Events<SessionHolder> {
        match &self.silence {
            Some(silence) => silence.events(),
            None => self.memory.events(),
        }
    }
}

struct Late {
    rig: Rig<ManualClock>,
    held_up: Arc<AtomicBool>,
    session: Session,
    guard: LeaseGuard,
}

impl Late {
    async fn new() -> Self {
        Self::over(None).await
    }

    async fn over(silence: Option<Arc<EventSource<SessionHolder>>>) -> Self {
        Self::under(LeasePolicy::session_ttl(TTL).unwrap(), silence).await
    }

    async fn under(policy: LeasePolicy, silence: Option<Arc<EventSource<SessionHolder>>>) -> Self {
        let held_up = Arc::<AtomicBool>::default();
        let theirs = Arc::clone(&held_up);
        let clock = ManualClock::new(Moment::from_millis(T0));
        let rig = Rig::over(clock, |memory| {
            let held_up = theirs;
            let far = Far {
                memory,
                held_up,
                silence,
            };
            Leases::with_policy(far, policy).unwrap()
        });
        let session = rig.connect("a");
        let guard = ask(&session).await.unwrap();
        Self {
            rig,
            held_up,
            session,
            guard,
        }
    }

    /// An operator retires the lease.
    async fn revoke(&self) {
        let revoke = Call {
            resource: Some(ResourceKey::new(KEY).unwrap()),
            action: Action::Revoke {
                expected: self.guard.token().generation,
                by: "operator".into(),
                reason: "stuck".into(),
                even_if_alive: true,
            },
            wait: Wait::No,
        };
        let revoked = self.rig.memory.call(revoke).answer().await;
        assert!(revoked.is_ok(), "{revoked:?}");
    }

    /// The holder hands the lease over.
    async fn adopted_by(&self, other: &Session) {
        let adopt = Call {
            resource: Some(ResourceKey::new(KEY).unwrap()),
            action: Action::Adopt {
                token: self.guard.token(),
                proof: AdoptProof::Present(self.session.holder().clone()),
                to: other.holder().clone(),
            },
            wait: Wait::No,
        };
        let adopted = self.rig.memory.call(adopt).answer().await;
        assert!(adopted.is_ok(), "{adopted:?}");
    }

    /// The receipt of a touch, which its front does not see.
    async fn touched(&self) -> Receipt<SessionHolder> {
        let mut theirs = self.rig.memory.events();
        self.guard.touch().await.unwrap();
        match theirs.try_next() {
            Some(Event::Receipt(receipt)) => Receipt::clone(&receipt),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call that is decided, and answered only after the lease has ended.
    async fn overtaken<T>(
        &self,
        call: impl Future<Output = Result<T, LeaseError<SessionHolder>>>,
    ) -> Result<T, LeaseError<SessionHolder>> {
        let mut call = pin!(call);
        self.held_up.store(true, Ordering::SeqCst);
        assert!(poll(call.as_mut()).is_pending());
        self.held_up.store(false, Ordering::SeqCst);
        self.revoke().await;
        assert_eq!(self.guard.standing(), Standing::Lost(Loss::Revoked));
        call.await
    }
}

#[track_caller]
fn assert_lost<T: core::fmt::Debug>(answer: Result<T, LeaseError<SessionHolder>>) {
    let lost = matches!(answer, Err(LeaseError::Lost(Loss::Revoked)));
    assert!(lost, "{answer:?}");
}

#[tokio::test]
async fn what_was_granted_before_the_end_of_the_lease_and_is_answered_after_it_is_lost() {
    let late = Late::new().await;
    assert_lost(late.overtaken(late.guard.begin()).await);
    let late = Late::new().await;
    assert_lost(late.overtaken(late.guard.touch()).await);
    let late = Late::new().await;
    assert_lost(late.overtaken(late.guard.renew(None)).await);
    let late = Late::new().await;
    assert_lost(late.overtaken(late.guard.read_back()).await);
    drop(late.guard);
    drop(late.session);
    late.rig.assert_empty();
}

#[tokio::test]
async fn an_operation_that_began_too_late_for_its_guard_shields_nothing() {
    let late = Late::new().await;
    let mut begin = pin!(late.guard.begin());
    late.held_up.store(true, Ordering::SeqCst);
    assert!(poll(begin.as_mut()).is_pending());
    late.held_up.store(false, Ordering::SeqCst);
    // The authority shields it, and its holder does not know.
    late.rig.clock.advance(TTL * 2);
    assert_eq!(late.guard.standing(), Standing::Lost(Loss::Expired));
    let begun = begin.await;
    let lost = matches!(begun, Err(LeaseError::Lost(Loss::Expired)));
    assert!(lost, "{begun:?}");
    assert_eq!(late.rig.only().in_flight, []);
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn an_operation_shields_no_more_once_its_end_is_on_its_way() {
    for silence in [None, Some(Arc::new(EventSource::new(1)))] {
        let late = Late::over(silence).await;
        let told = late.guard.cancellation_token();
        let operation = late.guard.begin().await.unwrap();
        late.rig.clock.advance(TTL * 3);
        let mut end = pin!(operation.end());
        late.rig.clock.advance(TTL * 3);
        late.held_up.store(true, Ordering::SeqCst);
        assert!(poll(end.as_mut()).is_pending());
        // It has ended, and nobody here has heard of that.
        assert_eq!(late.rig.only().in_flight, []);
        late.rig.clock.advance(TTL);
        assert_eq!(late.guard.standing(), Standing::Jeopardy);
        assert!(!told.is_cancelled());
        late.rig.clock.advance(MS);
        assert!(told.is_cancelled());
        assert_eq!(late.guard.standing(), Standing::Lost(Loss::Expired));
        // Now others may be let in.
        let other = late.rig.connect("b");
        late.held_up.store(false, Ordering::SeqCst);
        drop(ask(&other).await.unwrap());
        assert!(end.await.is_ok());
    }
}

#[tokio::test]
async fn the_term_starts_with_the_end_of_a_dropped_operation_though_no_receipt_says_so() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let operation = late.guard.begin().await.unwrap();
    late.rig.clock.advance(TTL * 3);
    drop(operation);
    late.rig.clock.advance(TTL);
    assert_eq!(late.guard.standing(), Standing::Jeopardy);
    late.guard.touch().await.unwrap();
    late.rig.clock.advance(TTL + MS);
    assert_eq!(late.guard.standing(), Standing::Lost(Loss::Expired));
}

#[tokio::test]
async fn a_receipt_of_an_end_is_believed_whoever_has_ended_it() {
    for (code, loss) in [
        (Code::Released, Loss::Released),
        (Code::LeaseReleased, Loss::Released),
        (Code::ReleasedAfterFailure, Loss::Released),
        (Code::Abandoned, Loss::Released),
        (Code::Disconnected, Loss::Disconnected),
        (Code::Reclaimed, Loss::Expired),
        (Code::Revoked, Loss::Revoked),
        (Code::SessionEnded, Loss::SessionEnded),
    ] {
        let source = Arc::new(EventSource::new(1));
        let late = Late::over(Some(Arc::clone(&source))).await;
        let mut receipt = late.touched().await;
        receipt.change.code = code;
        // One of them does not say what was held.
        receipt.resource = receipt.resource.filter(|_| code != Code::Revoked);
        source.publish(Receipts::new(vec![receipt], 0));
        assert_eq!(late.guard.standing(), Standing::Lost(loss), "{code:?}");
        assert_eq!(late.rig.leases.known(), 0);
    }
}

#[tokio::test]
async fn a_term_that_is_told_to_end_sooner_rings_sooner() {
    let source = Arc::new(EventSource::new(1));
    let late = Late::over(Some(Arc::clone(&source))).await;
    let told = late.guard.cancellation_token();
    let mut receipt = late.touched().await;
    receipt.change.seq.major += 1;
    let Detail::Touched { expires, .. } = &mut receipt.change.detail else {
        panic!("{receipt:?}")
    };
    *expires = Some(late.rig.clock.now().after(TTL / 2));
    source.publish(Receipts::new(vec![receipt], 0));
    late.rig.clock.advance(TTL / 2);
    assert!(!told.is_cancelled());
    late.rig.clock.advance(MS);
    assert!(told.is_cancelled());
}

#[tokio::test]
async fn a_lease_that_somebody_adopts_is_his() {
    for theirs in [false, true] {
        let source = Arc::new(EventSource::new(1));
        let late = Late::over(Some(Arc::clone(&source))).await;
        let mut receipt = late.touched().await;
        receipt.change.code = Code::Adopted;
        if theirs {
            let other = late.rig.connect("b");
            receipt.holder = Some(other.holder().clone());
        }
        source.publish(Receipts::new(vec![receipt], 0));
        let expected = match theirs {
            true => Standing::Lost(Loss::HandedOver),
            false => Standing::Safe,
        };
        assert_eq!(late.guard.standing(), expected);
    }
}

#[tokio::test]
async fn after_missed_receipts_only_what_has_guards_is_known() {
    let source = Arc::new(EventSource::new(1));
    let late = Late::over(Some(Arc::clone(&source))).await;
    late.session.acquire("kept").await.unwrap().keep();
    source.publish(Receipts::new(Vec::new(), 0));
    assert_eq!(late.rig.leases.known(), 2);
    source.publish(Receipts::new(Vec::new(), 3));
    let known = late.rig.leases.list();
    assert_eq!(known.len(), 1, "{known:?}");
    assert_eq!(known[0].token, late.guard.token());
    assert_eq!(late.rig.leases.health().unpublished, 3);
    late.guard.touch().await.unwrap();
}

#[tokio::test]
async fn a_renewal_that_finds_its_lease_ended_is_the_last_one() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let renewed = late.session.acquire(KEY).renewed().await.unwrap();
    late.revoke().await;
    assert_eq!(renewed.standing(), Standing::Safe);
    late.rig.clock.advance(TTL / 3);
    assert_eq!(renewed.standing(), Standing::Lost(Loss::Stale));
    assert_eq!(late.rig.clock.armed(), 0);
}

#[tokio::test]
async fn a_lease_that_is_taken_up_again_while_an_end_is_on_its_way_outlives_its_guard() {
    let late = Late::under(early(), None).await;
    let operation = late.guard.begin().await.unwrap();
    let mut end = pin!(operation.end());
    late.held_up.store(true, Ordering::SeqCst);
    assert!(poll(end.as_mut()).is_pending());
    late.held_up.store(false, Ordering::SeqCst);
    late.rig.clock.advance(TTL * 9 / 10 + MS);
    assert_eq!(late.guard.standing(), Standing::Lost(Loss::Expired));
    let again = ask(&late.session).await.unwrap();
    assert_eq!(again.token(), late.guard.token());
    // As far as is known here the operation may still do something.
    drop(again);
    assert_eq!(late.rig.memory.held(), 1);
}

#[tokio::test]
async fn a_lease_that_was_adopted_is_not_shared_with_who_had_it_though_no_receipt_says_so() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let other = late.rig.connect("b");
    late.adopted_by(&other).await;
    let theirs = ask(&other).await.unwrap();
    assert_eq!(theirs.token(), late.guard.token());
    assert_eq!(late.guard.standing(), Standing::Lost(Loss::HandedOver));
    assert_eq!(theirs.standing(), Standing::Safe);
    let known = late.rig.leases.list();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].holder, *other.holder());
    drop(late.guard);
    theirs.touch().await.unwrap();
    assert_eq!(late.rig.memory.held(), 1);
    theirs.release().await.unwrap();
    drop((late.session, other));
    late.rig.assert_empty();
}

#[tokio::test]
async fn a_grant_that_was_overtaken_by_a_hand_over_is_none() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let other = late.rig.connect("b");
    // It goes on, and the answer that says so is on its way.
    let mut again = pin!(late.session.acquire(KEY).into_future());
    late.held_up.store(true, Ordering::SeqCst);
    assert!(poll(again.as_mut()).is_pending());
    late.held_up.store(false, Ordering::SeqCst);
    late.adopted_by(&other).await;
    let theirs = ask(&other).await.unwrap();
    assert_eq!(late.guard.standing(), Standing::Lost(Loss::HandedOver));
    conflict(again.await);
    assert_eq!(theirs.standing(), Standing::Safe);
}

#[tokio::test]
async fn a_failure_that_may_have_taken_the_lease_along_unheard_is_read_back_before_the_next_write()
{
    for joined in [false, true] {
        let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
        let operation = late.guard.begin().await.unwrap();
        if joined {
            drop(ask(&late.session).await.unwrap());
        }
        drop(operation.fail(Disposition::PreMutation));
        assert_eq!(late.guard.standing(), Standing::Jeopardy);
        let begun = late.guard.begin().await;
        let undecided = matches!(
            begun,
            Err(LeaseError::Authority(AuthorityError::Undecided { .. }))
        );
        assert!(undecided, "{begun:?}");
        let (told, standing) = match joined {
            true => (late.guard.read_back().await.is_ok(), Standing::Safe),
            false => (
                late.guard.read_back().await.is_err(),
                Standing::Lost(Loss::Stale),
            ),
        };
        assert!(told);
        assert_eq!(late.guard.standing(), standing);
        assert_eq!(late.rig.memory.held(), usize::from(joined));
    }
}

#[tokio::test]
async fn a_failure_that_leaves_the_lease_leaves_no_doubt() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let operation = late.guard.begin().await.unwrap();
    drop(operation.fail(Disposition::Unknown));
    assert_eq!(late.guard.standing(), Standing::Safe);
    // What was left as it is once stays, whatever fails then; and so does what somebody else has, too.
    let operation = late.guard.begin().await.unwrap();
    drop(operation.fail(Disposition::PreMutation));
    assert_eq!(late.guard.standing(), Standing::Safe);
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    let operation = late.guard.begin().await.unwrap();
    let _other = ask(&late.session).await.unwrap();
    drop(operation.fail(Disposition::PreMutation));
    assert_eq!(late.guard.standing(), Standing::Safe);
    late.guard.begin().await.unwrap().end().await.unwrap();
}

#[tokio::test]
async fn a_kept_lease_whose_release_is_dropped_on_its_way_is_in_doubt() {
    let late = Late::over(Some(Arc::new(EventSource::new(1)))).await;
    ask(&late.session).await.unwrap().keep();
    let mut again = pin!(late.session.acquire(KEY).into_future());
    late.held_up.store(true, Ordering::SeqCst);
    assert!(poll(again.as_mut()).is_pending());
    let mut release = Box::pin(late.guard.release());
    assert!(poll(release.as_mut()).is_pending());
    drop(release);
    late.held_up.store(false, Ordering::SeqCst);
    // It was released, and nobody here has heard of that.
    let theirs = ask(&late.rig.connect("b")).await;
    assert!(theirs.is_ok(), "{theirs:?}");
    let again = again.await.unwrap();
    assert_eq!(again.standing(), Standing::Jeopardy);
    let read = again.read_back().await;
    assert!(
        matches!(read, Err(LeaseError::Lost(Loss::Stale))),
        "{read:?}"
    );
}
