//! Observing holders: outside the lock, off the executor, and doubt never grants.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::thread::ThreadId;
use std::time::Duration;

use async_trait::async_trait;
use lease_async::{
    AcquireError, Alarm, AlarmClock, AlarmError, AsyncHolderLiveness, BoxFuture, DeathSource,
    LeasePolicy, Leases, Loss, ManualClock, Memory, MemoryBuilder, Moment, Session, SessionHolder,
    Standing, SystemClock, Watched,
};
use lease_core::{Clock, Code, Evidence, HolderLiveness, Question, Refusal, Verdict};
use tokio::time::timeout;
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

use crate::rig::{KEY, SOON, T0, ask, poll};

mockall::mock! {
    Observer {}

    #[async_trait]
    impl AsyncHolderLiveness<SessionHolder> for Observer {
        async fn observe(&self, question: &Question<SessionHolder>) -> Verdict;
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

fn open(builder: MemoryBuilder<SessionHolder>) -> (ManualClock, Memory, Leases) {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let memory = builder.clock(clock.clone()).build().unwrap();
    let policy = LeasePolicy::hosted_session(HOUR).unwrap();
    let leases = Leases::with_policy(memory.clone(), policy).unwrap();
    (clock, memory, leases)
}

fn pair(leases: &Leases) -> (Session, Session) {
    (leases.connect("a").unwrap(), leases.connect("b").unwrap())
}

const fn seen(proof: &'static str) -> Evidence {
    Evidence::new(proof)
}

#[tokio::test]
async fn only_a_proof_of_death_grants() {
    let cases = [
        (Verdict::Alive(seen("runs")), Some(Code::LeaseHeld)),
        (Verdict::Occupied(seen("child")), Some(Code::LeaseHeld)),
        (Verdict::Unknown(seen("hidden")), Some(Code::InvalidHolder)),
        (Verdict::Dead(seen("exited")), None),
    ];
    for (verdict, refused) in cases {
        let mut observer = MockObserver::new();
        let expected = verdict.clone();
        observer
            .expect_observe()
            .times(1)
            .returning(move |_| verdict.clone());
        let (_clock, _memory, leases) = open(Memory::builder().async_liveness(observer));
        let (holder, other) = pair(&leases);
        let held = ask(&holder).await.unwrap();
        let answer = ask(&other).await;
        match refused {
            Some(code) => {
                let error = answer.unwrap_err();
                assert_eq!(error.code(), Some(code));
                let (AcquireError::Refused(Refusal::Held(held))
                | AcquireError::Refused(Refusal::Uninspectable(held))) = error
                else {
                    panic!("{error:?}")
                };
                assert_eq!(held.verdict, Some(expected));
            }
            None => {
                assert_eq!(answer.unwrap().token().generation.get(), 2);
                assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
            }
        }
    }
}

#[tokio::test]
async fn without_an_observer_nothing_is_known() {
    let (_clock, _memory, leases) = open(Memory::builder());
    let (holder, other) = pair(&leases);
    let _held = ask(&holder).await.unwrap();
    let refused = ask(&other).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InvalidHolder));
}

/// Waits until the request waits and its holder was looked at: the first look is its own, the second follows since
/// it waits.
async fn looked_twice(memory: &Memory, looks: &mpsc::Receiver<()>) {
    while memory.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..2 {
        looks.recv_timeout(SOON).unwrap();
    }
}

/// Looks at the authority while it looks at a holder, and says in which thread.
struct Looks {
    memory: Arc<Mutex<Option<Memory>>>,
    told: mpsc::Sender<ThreadId>,
}

impl HolderLiveness<SessionHolder> for Looks {
    fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
        let memory = self.memory.lock().unwrap().clone().unwrap();
        assert_eq!(memory.list().len(), 1);
        self.told.send(std::thread::current().id()).unwrap();
        Verdict::Alive(seen("runs"))
    }
}

#[tokio::test]
async fn an_observer_that_blocks_looks_outside_the_lock_and_off_the_executor() {
    let (told, threads) = mpsc::channel();
    let place = Arc::new(Mutex::new(None));
    let looks = Looks {
        memory: Arc::clone(&place),
        told,
    };
    let (_clock, memory, leases) = open(Memory::builder().liveness(looks));
    *place.lock().unwrap() = Some(memory);
    let (holder, other) = pair(&leases);
    let _held = ask(&holder).await.unwrap();
    ask(&other).await.unwrap_err();
    assert_ne!(threads.recv().unwrap(), std::thread::current().id());
    *place.lock().unwrap() = None;
}

#[tokio::test]
async fn a_holder_that_cannot_be_watched_is_observed_at_a_beat_while_others_wait() {
    let (told, looks) = mpsc::channel();
    let mut observer = MockObserver::new();
    let mut alive = 3;
    observer.expect_observe().returning(move |_| {
        told.send(()).unwrap();
        alive -= 1;
        if alive > 0 {
            Verdict::Alive(seen("runs"))
        } else {
            Verdict::Dead(seen("exited"))
        }
    });
    let beat = Duration::from_secs(5);
    let builder = Memory::builder()
        .async_liveness(observer)
        .observe_every(beat);
    let (clock, memory, leases) = open(builder);
    let (holder, other) = pair(&leases);
    let held = ask(&holder).await.unwrap();
    let request = tokio::spawn(other.acquire(KEY).forever().into_future());
    looked_twice(&memory, &looks).await;
    // One alarm is for the term, and one for the beat.
    while clock.armed() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!request.is_finished());
    clock.advance(beat);
    let guard = timeout(SOON, request).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.token().generation.get(), 2);
    assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
    assert!(looks.try_recv().is_ok());
    // Nobody waits any more, so nobody looks.
    while clock.armed() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Looks as the test says, and counts.
struct Looking {
    count: AtomicUsize,
    look: fn(usize) -> BoxFuture<Verdict>,
    told: mpsc::Sender<()>,
}

#[async_trait]
impl AsyncHolderLiveness<SessionHolder> for Looking {
    async fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
        self.told.send(()).unwrap();
        (self.look)(self.count.fetch_add(1, Ordering::SeqCst)).await
    }
}

/// At the first two looks it runs, at the third it is dead.
fn dies(look: usize) -> Verdict {
    if look < 2 {
        Verdict::Alive(seen("runs"))
    } else {
        Verdict::Dead(seen("exited"))
    }
}

/// Somebody waits for a holder who is looked at twice, and then at the beat. Answers whether the one who waits is
/// served.
async fn served_at_the_beat(
    builder: MemoryBuilder<SessionHolder>,
    look: fn(usize) -> BoxFuture<Verdict>,
) -> bool {
    let (told, looks) = mpsc::channel();
    let observer = Looking {
        count: AtomicUsize::new(0),
        look,
        told,
    };
    let beat = Duration::from_secs(5);
    let builder = builder.async_liveness(observer).observe_every(beat);
    let (clock, memory, leases) = open(builder);
    let (holder, other) = pair(&leases);
    let _held = ask(&holder).await.unwrap();
    let request = tokio::spawn(other.acquire(KEY).forever().into_future());
    looked_twice(&memory, &looks).await;
    // One alarm is for the term, and one for the beat. Where none comes, nobody will look again.
    let end = SystemClock::new().now().after(SOON);
    while clock.armed() < 2 && SystemClock::new().now() < end {
        tokio::task::yield_now().await;
    }
    clock.advance(beat);
    timeout(SOON, request)
        .await
        .is_ok_and(|answer| answer.unwrap().is_ok())
}

#[tokio::test]
async fn a_look_that_panics_is_made_again_at_the_beat() {
    fn look(count: usize) -> BoxFuture<Verdict> {
        assert_ne!(count, 1, "as planned");
        Box::pin(async move { dies(count) })
    }
    assert!(served_at_the_beat(Memory::builder(), look).await);
}

/// Panics where it is to ring for the first time away from the test's thread.
#[derive(Clone, Debug)]
struct Breaks {
    clock: ManualClock,
    home: ThreadId,
    arms: Arc<AtomicUsize>,
}

impl Clock for Breaks {
    fn now(&self) -> Moment {
        self.clock.now()
    }
}

impl AlarmClock for Breaks {
    fn arm(&self, at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
        let is_home = std::thread::current().id() == self.home;
        if !is_home {
            assert_ne!(self.arms.fetch_add(1, Ordering::SeqCst), 0, "as planned");
        }
        self.clock.arm(at, waker)
    }
}

#[tokio::test]
async fn a_look_that_breaks_off_is_made_again_when_somebody_else_comes_to_wait() {
    let home = std::thread::current().id();
    let arms = Arc::<AtomicUsize>::default();
    let clock = Breaks {
        clock: ManualClock::new(Moment::from_millis(T0)),
        home,
        arms: Arc::clone(&arms),
    };
    let broken = Arc::clone(&arms);
    let mut observer = MockObserver::new();
    observer.expect_observe().returning(move |question| {
        let is_home = std::thread::current().id() == home;
        let is_next = question.about.generation.get() > 1;
        if is_home || is_next || broken.load(Ordering::SeqCst) == 0 {
            Verdict::Alive(seen("runs"))
        } else {
            Verdict::Dead(seen("exited"))
        }
    });
    let builder = Memory::builder().async_liveness(observer).clock(clock);
    let policy = LeasePolicy::hosted_session(HOUR).unwrap();
    let memory = builder.build().unwrap();
    let leases = Leases::with_policy(memory.clone(), policy).unwrap();
    let (holder, other) = pair(&leases);
    let third = leases.connect("c").unwrap();
    let held = ask(&holder).await.unwrap();
    let request = tokio::spawn(other.acquire(KEY).forever().into_future());
    while memory.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let end = SystemClock::new().now().after(SOON);
    while !request.is_finished() {
        assert!(SystemClock::new().now() < end, "nobody looks again");
        // Whoever comes has the holder looked at, unless a look is under way.
        let mut more = Box::pin(third.acquire(KEY).forever().into_future());
        for _ in 0..10 {
            drop(poll(more.as_mut()));
            tokio::task::yield_now().await;
        }
    }
    let next = request.await.unwrap().unwrap();
    assert_eq!(next.token().generation.get(), 2);
    assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
    assert!(arms.load(Ordering::SeqCst) > 0);
}

/// Panics in a thread of the library, where a span is entered for the second time.
struct Onlooker {
    home: ThreadId,
    entered: AtomicUsize,
}

impl<S: Subscriber> Layer<S> for Onlooker {
    fn on_enter(&self, _: &Id, _: layer::Context<'_, S>) {
        let is_home = std::thread::current().id() == self.home;
        if !is_home {
            assert_ne!(self.entered.fetch_add(1, Ordering::SeqCst), 1, "as planned");
        }
    }
}

#[tokio::test]
async fn a_subscriber_that_panics_after_a_look_costs_nobody_the_next_one() {
    let onlooker = Onlooker {
        home: std::thread::current().id(),
        entered: AtomicUsize::new(0),
    };
    let told = tracing_subscriber::registry().with(onlooker);
    let _told = tracing::subscriber::set_default(told);
    // The first one to enter is the look, and the second one what goes with its end.
    let look = |count| -> BoxFuture<Verdict> { Box::pin(async move { dies(count) }) };
    assert!(served_at_the_beat(Memory::builder(), look).await);
}

#[tokio::test]
async fn an_observer_may_use_the_timers_of_tokio() {
    fn look(count: usize) -> BoxFuture<Verdict> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            dies(count)
        })
    }
    assert!(served_at_the_beat(Memory::builder(), look).await);
}

#[tokio::test]
async fn a_source_of_deaths_that_panics_watches_nobody() {
    struct Panics;
    impl DeathSource<SessionHolder> for Panics {
        fn watch(&self, _question: &Question<SessionHolder>, _waker: Waker) -> Watched {
            panic!("as planned")
        }
    }
    let builder = Memory::builder().deaths(Panics);
    assert!(served_at_the_beat(builder, |count| Box::pin(async move { dies(count) })).await);
}

#[tokio::test]
async fn an_observer_that_panics_has_seen_nothing() {
    struct Panics;
    impl HolderLiveness<SessionHolder> for Panics {
        fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
            panic!("as planned")
        }
    }
    let (_clock, _memory, leases) = open(Memory::builder().liveness(Panics));
    let (holder, other) = pair(&leases);
    let held = ask(&holder).await.unwrap();
    let refused = ask(&other).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InvalidHolder));
    assert_eq!(held.standing(), Standing::Safe);
}

/// The front sorts resources by what panics, once its holder was looked at.
#[cfg(feature = "metrics")]
#[tokio::test]
async fn a_class_that_panics_hides_no_loss() {
    let mut observer = MockObserver::new();
    let panics = Arc::new(AtomicUsize::new(0));
    let armed = Arc::clone(&panics);
    observer.expect_observe().returning(move |_| {
        armed.store(1, Ordering::SeqCst);
        Verdict::Dead(seen("exited"))
    });
    let (_clock, _memory, leases) = open(Memory::builder().async_liveness(observer));
    let meter = opentelemetry::global::meter("test");
    let metrics = lease_async::Metrics::new(&meter).with_class(move |_resource| {
        assert_eq!(panics.load(Ordering::SeqCst), 0, "as planned");
        "all"
    });
    let leases = leases.with_metrics(metrics);
    let (holder, other) = pair(&leases);
    let held = ask(&holder).await.unwrap();
    let next = ask(&other).await.unwrap();
    assert_eq!(next.token().generation.get(), 2);
    assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
}

#[tokio::test]
async fn who_waits_is_served_by_what_somebody_else_has_observed() {
    let mut observer = MockObserver::new();
    let asked = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&asked);
    observer.expect_observe().returning(move |question| {
        *theirs.lock().unwrap() = Some(question.clone());
        Verdict::Alive(seen("runs"))
    });
    let (_clock, memory, leases) = open(Memory::builder().async_liveness(observer));
    let (holder, other) = pair(&leases);
    let held = ask(&holder).await.unwrap();
    let request = other.acquire(KEY).forever().into_future();
    let request = tokio::spawn(request);
    while memory.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let question = asked.lock().unwrap().clone().unwrap();
    memory.observed(&[question.answer(Verdict::Alive(seen("runs")))]);
    assert_eq!(memory.waiting(), 1);
    memory.observed(&[question.answer(Verdict::Dead(seen("exited")))]);
    let next = timeout(SOON, request).await.unwrap().unwrap().unwrap();
    assert_eq!(next.token().generation.get(), 2);
    assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
}
