//! Everything that can be told, once at least, on a clock that stands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use lease_async::lease_core::{
    Call, Code, Evidence, FenceGate, HolderLiveness, LeasePolicy, Question, Verdict,
};
use lease_async::lease_procfs::{ProcFs, ProcessHolder, ProcessIdentity};
use lease_async::{
    Alarm, Authority, AuthorityError, DeathSource, Event, Events, IncidentPolicy, LeaseGuard,
    Leases, Loss, ManualClock, Memory, Metrics, Moment, Reply, Session, Standing, Watched,
};
use opentelemetry::metrics::Meter;
use tokio::time::timeout;
use tracing::{Instrument as _, info_span};

use crate::passing_on::passes_on_unanswered;
use crate::rig::SOON;

const TERM: Duration = Duration::from_secs(30);

/// Says of every holder what the test says.
#[derive(Clone)]
struct Judge(Arc<Mutex<Verdict>>);

impl HolderLiveness<ProcessHolder> for Judge {
    fn observe(&self, _question: &Question<ProcessHolder>) -> Verdict {
        self.0.lock().unwrap().clone()
    }
}

/// Keeps whom to wake when a holder dies.
#[derive(Clone, Default)]
struct Deaths(Arc<Mutex<Vec<Waker>>>);

impl DeathSource<ProcessHolder> for Deaths {
    fn watch(&self, _question: &Question<ProcessHolder>, waker: Waker) -> Watched {
        self.0.lock().unwrap().push(waker);
        Watched::Running(Alarm::new(|| {}))
    }
}

/// A memory authority that cannot be reached while it is down.
struct Flaky {
    memory: Memory<ProcessHolder>,
    down: Arc<AtomicBool>,
}

impl Authority for Flaky {
    type Holder = ProcessHolder;

    passes_on_unanswered!(self => self.memory);

    fn backend(&self) -> &'static str {
        self.memory.backend()
    }

    fn call(&self, call: Call<ProcessHolder>) -> Reply<ProcessHolder> {
        if self.down.load(Ordering::SeqCst) {
            return Reply::Ready(Err(AuthorityError::Unreachable("it is down".into())));
        }
        self.memory.call(call)
    }
}

struct Rig {
    clock: ManualClock,
    leases: Leases<ProcessHolder>,
    judge: Judge,
    deaths: Deaths,
    down: Arc<AtomicBool>,
}

impl Rig {
    fn new(meter: &Meter) -> Self {
        let clock = ManualClock::new(Moment::from_millis(1_000_000));
        let judge = Judge(Arc::new(Mutex::new(Verdict::Alive(Evidence::new(
            "running",
        )))));
        let deaths = Deaths::default();
        let down = Arc::<AtomicBool>::default();
        let builder = Memory::builder()
            .clock(clock.clone())
            .liveness(judge.clone());
        let memory = builder.deaths(deaths.clone()).build().unwrap();
        let flaky = Flaky {
            memory,
            down: Arc::clone(&down),
        };
        let policy = LeasePolicy::hosted_session(TERM).unwrap();
        let metrics = Metrics::new(meter).with_class(|resource| {
            if resource.as_str().starts_with('a') {
                "first"
            } else {
                "rest"
            }
        });
        let leases = Leases::with_policy(flaky, policy)
            .unwrap()
            .with_metrics(metrics)
            .with_incidents(IncidentPolicy::default());
        Self {
            clock,
            leases,
            judge,
            deaths,
            down,
        }
    }

    fn connect(&self, client: &str) -> Session<ProcessHolder> {
        let own = ProcessIdentity::own(&ProcFs::system()).unwrap();
        let holder = |session: &str| ProcessHolder::new(client, own)?.with_session(session);
        self.leases.connect_with(holder).unwrap()
    }
}

pub(crate) async fn everything(meter: &Meter) {
    let rig = Rig::new(meter);
    let first = rig.connect("editor-1");
    let second = rig.connect("editor-2");
    let held = first.acquire("a").renewed().await.unwrap();
    renewals(&rig, &held).await;
    let again = first.acquire("a").await.unwrap();
    again.release().await.unwrap();
    second.acquire("a").await.unwrap_err();
    takeover(&rig, &held, &second).await;
    losses(&rig).await;
    incidents(&rig).await;
    failures(&rig, &first).await;
}

async fn renewals(rig: &Rig, held: &LeaseGuard<ProcessHolder>) {
    // At a third of the term, by itself.
    rig.clock.advance(TERM / 3);
    held.renew(None).await.unwrap();
    held.touch().await.unwrap();
}

async fn takeover(rig: &Rig, held: &LeaseGuard<ProcessHolder>, second: &Session<ProcessHolder>) {
    let operation = held.begin().await.unwrap();
    let mut events = rig.leases.events();
    let request = second.acquire("a").forever().into_future();
    let request = tokio::spawn(request.instrument(info_span!("waits")));
    queued(&mut events).await;
    let bells = || std::mem::take(&mut *rig.deaths.0.lock().unwrap());
    let mut watched = bells();
    while watched.is_empty() {
        tokio::task::yield_now().await;
        watched = bells();
    }
    *rig.judge.0.lock().unwrap() = Verdict::Dead(Evidence::new("exited"));
    info_span!("death").in_scope(|| watched.into_iter().for_each(Waker::wake));
    let next = timeout(SOON, request).await.unwrap().unwrap().unwrap();
    assert_eq!(held.standing(), Standing::Lost(Loss::Proven));

    let mut gate = FenceGate::new();
    next.enter(&mut gate).unwrap();
    let late = info_span!("late");
    late.in_scope(|| held.enter(&mut gate)).unwrap_err();
    late.in_scope(|| operation.enter(&mut gate)).unwrap_err();
    drop(operation);
    next.release().await.unwrap();
}

async fn queued(events: &mut Events<ProcessHolder>) {
    while let Some(event) = events.next().await {
        if matches!(event, Event::Receipt(receipt) if receipt.change.code == Code::Queued) {
            return;
        }
    }
}

async fn losses(rig: &Rig) {
    let session = rig.connect("editor-3");
    let idle = session.acquire("b").await.unwrap();
    rig.clock.advance(TERM * 5 / 6);
    let noticed = info_span!("noticed");
    let look = || noticed.in_scope(|| idle.standing());
    assert_eq!(look(), Standing::Jeopardy);
    rig.clock.advance(TERM);
    assert_eq!(look(), Standing::Lost(Loss::Expired));
    // Its term is over, and now the authority notices too.
    let other = session.acquire("b").await.unwrap();
    drop(other);
    let kept = session.acquire("c").await.unwrap();
    info_span!("goodbye").in_scope(|| drop(session));
    assert_eq!(kept.standing(), Standing::Lost(Loss::Disconnected));
}

/// An operation that does not end, and the lease that it keeps.
async fn incidents(rig: &Rig) {
    let session = rig.connect("editor-4");
    let held = session.acquire("f").await.unwrap();
    let operation = held.begin().await.unwrap();
    info_span!("slow").in_scope(|| rig.clock.advance(TERM * 10));
    assert_eq!(rig.leases.health().open.len(), 2);
    operation
        .end()
        .instrument(info_span!("ended"))
        .await
        .unwrap();
    info_span!("goodbye").in_scope(|| drop(session));
    assert_eq!(rig.leases.health().open, []);
}

async fn failures(rig: &Rig, session: &Session<ProcessHolder>) {
    let held = session.acquire("d").await.unwrap();
    rig.down.store(true, Ordering::SeqCst);
    session.acquire("e").await.unwrap_err();
    held.renew(None).await.unwrap_err();
    held.release().await.unwrap_err();
}
