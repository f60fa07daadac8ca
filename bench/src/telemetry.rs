//! What it costs to be looked at: a lease taken and given back through a session, with nobody looking on, with a
//! subscriber that keeps nothing, and with measurements.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lease_async::{Leases, Memory, Metrics, ResourceKey, Session};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::report::{Calls, Row};
use crate::rounds::{Work, allocations, least};

const UNITS: u64 = 150_000;

/// Takes everything and keeps nothing.
struct Nobody;

impl Subscriber for Nobody {
    fn register_callsite(&self, _of: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn enabled(&self, _of: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _with: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _from: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// A session, and what it takes.
struct Door {
    session: Session,
    key: ResourceKey,
}

impl Door {
    fn new(metrics: Option<Metrics>) -> Self {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let leases = match metrics {
            Some(metrics) => leases.with_metrics(metrics),
            None => leases,
        };
        let session = leases.connect("agent").unwrap();
        let key = ResourceKey::new("app/viewport").unwrap();
        Self { session, key }
    }

    fn pair(&self) {
        let lease = now(self.session.acquire(&self.key).into_future()).unwrap();
        now(lease.release()).unwrap();
    }
}

/// The answer of what is answered at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("nobody is in the way"),
    }
}

/// Lease by lease, in three ways.
pub(crate) fn looked_at() -> Vec<Row> {
    let door = Door::new(None);
    let mut off = |count| (0..count).for_each(|_| door.pair());
    // Alone: once there is a subscriber anywhere, nothing is as quick as without.
    let unseen = row("with nobody looking on", None, &mut off);
    let floor = unseen.ours;

    let reader = ManualReader::builder().build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let metrics = Metrics::new(&provider.meter("bench")).with_class(|_resource| "bench");
    let measured = Door::new(Some(metrics));
    let mut counted = |count| (0..count).for_each(|_| measured.pair());
    let counted = row("with measurements", Some((floor, 4.0)), &mut counted);

    let nobody = Dispatch::new(Nobody);
    let mut traced = |count| {
        tracing::dispatcher::with_default(&nobody, || (0..count).for_each(|_| door.pair()));
    };
    let traced = row(
        "with a subscriber that keeps nothing",
        Some((floor, 2.0)),
        &mut traced,
    );
    vec![unseen, traced, counted]
}

/// With the floor and the goal, if it has one.
fn row(how: &str, beside: Option<(f64, f64)>, work: &mut dyn Work) -> Row {
    Row {
        name: format!("t1 acquire + release through a session, {how}"),
        ours: least(UNITS, &mut [&mut *work])[0],
        floor: beside.map(|(floor, _)| floor),
        goal: beside.map(|(_, goal)| goal),
        unit: "ns",
        allocations: Some(allocations(10_000, work)),
        calls: Calls::NotCounted,
        peers: Vec::new(),
    }
}
