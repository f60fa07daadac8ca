//! What is measured adds up with what happened.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lease_async::lease_core::{Call, FenceGate, Receipt, Receipts};
use lease_async::{
    Authority, Event, EventSource, Events, Leases, ManualClock, Memory, Metrics, Moment, Reply,
    SessionHolder,
};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

use crate::passing_on::passes_on;

const SECOND: Duration = Duration::from_secs(1);

/// How much of it there is: the level, the number, or how often and how long together.
fn amount(metric: &Metric) -> (u64, f64) {
    match metric.data() {
        AggregatedMetrics::F64(MetricData::Histogram(data)) => {
            data.data_points().fold((0, 0.0), |all, one| {
                (all.0 + one.count(), all.1 + one.sum())
            })
        }
        AggregatedMetrics::U64(MetricData::Sum(data)) => {
            (data.data_points().map(|one| one.value()).sum(), 0.0)
        }
        AggregatedMetrics::I64(MetricData::Sum(data)) => {
            let level: i64 = data.data_points().map(|one| one.value()).sum();
            (u64::try_from(level).unwrap(), 0.0)
        }
        other => panic!("{} is {other:?}", metric.name()),
    }
}

struct Meters {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Meters {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        Self { provider, exporter }
    }

    #[track_caller]
    fn assert(&self, expected: &[(&str, u64, f64)]) {
        self.provider.force_flush().unwrap();
        let told = self.exporter.get_finished_metrics().unwrap();
        let last = told.last().unwrap().scope_metrics();
        let metrics = last.flat_map(|scope| scope.metrics());
        let told: BTreeMap<_, _> = metrics
            .map(|metric| (metric.name().to_owned(), amount(metric)))
            .collect();
        for (name, number, seconds) in expected {
            let name = format!("writer_lease.{name}");
            let (count, sum) = told.get(&name).copied().unwrap_or_default();
            assert_eq!(count, *number, "{name} of {told:?}");
            assert!((sum - seconds).abs() < 1e-6, "{name} of {told:?}");
        }
    }
}

#[tokio::test]
async fn levels_return_to_zero_and_each_lease_and_request_is_measured_once() {
    let meters = Meters::new();
    let clock = ManualClock::new(Moment::from_millis(1_000_000));
    let memory = Memory::builder().clock(clock.clone()).build().unwrap();
    let metrics = Metrics::new(&meters.provider.meter("counts"));
    let leases = Leases::new(memory).unwrap().with_metrics(metrics);
    let (first, second) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());

    let held = first.acquire("docs").await.unwrap();
    let again = first.acquire("docs").await.unwrap();
    // A request that may not wait does not count as one that does.
    second.acquire("docs").await.unwrap_err();
    meters.assert(&[
        ("active", 1, 0.0),
        ("waiting", 0, 0.0),
        ("acquire.duration", 3, 0.0),
        ("decisions", 3, 0.0),
        ("hold.duration", 0, 0.0),
    ]);

    let mut context = Context::from_waker(Waker::noop());
    let mut waits = pin!(second.acquire("docs").forever().into_future());
    let mut leaves = Box::pin(second.acquire("docs").forever().into_future());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert!(leaves.as_mut().poll(&mut context).is_pending());
    clock.advance(SECOND);
    meters.assert(&[("waiting", 2, 0.0), ("acquire.duration", 3, 0.0)]);
    drop(leaves);
    meters.assert(&[("waiting", 1, 0.0), ("acquire.duration", 4, 1.0)]);

    clock.advance(SECOND);
    drop((held, again));
    let Poll::Ready(Ok(next)) = waits.as_mut().poll(&mut context) else {
        panic!("it is free")
    };
    meters.assert(&[
        ("active", 1, 0.0),
        ("waiting", 0, 0.0),
        ("acquire.duration", 5, 3.0),
        ("hold.duration", 1, 2.0),
    ]);
    clock.advance(SECOND);
    drop(second);
    meters.assert(&[("active", 0, 0.0), ("hold.duration", 2, 3.0)]);
    drop(next);
    meters.assert(&[
        ("active", 0, 0.0),
        ("waiting", 0, 0.0),
        ("hold.duration", 2, 3.0),
        ("acquire.duration", 5, 3.0),
    ]);
}

#[tokio::test]
async fn what_is_refused_or_turned_away_is_counted() {
    let meters = Meters::new();
    let memory = Memory::new().unwrap();
    let metrics = Metrics::new(&meters.provider.meter("counts"));
    let leases = Leases::new(memory).unwrap().with_metrics(metrics);
    let session = leases.connect("a").unwrap();
    let held = session.acquire("docs").await.unwrap();
    let operation = held.begin().await.unwrap();
    let refused = held.release().await.unwrap_err();
    meters.assert(&[("decisions", 2, 0.0), ("fenced_writes", 0, 0.0)]);
    let mut gate = FenceGate::new();
    operation.end().await.unwrap();
    let old = refused.guard.token();
    drop(refused);
    let next = session.acquire("docs").await.unwrap();
    next.enter(&mut gate).unwrap();
    assert_ne!(next.token(), old);
    meters.assert(&[("decisions", 4, 0.0), ("fenced_writes", 0, 0.0)]);
}

/// A memory authority whose receipts the test tells.
struct Told {
    memory: Memory,
    source: Arc<EventSource<SessionHolder>>,
}

impl Authority for Told {
    type Holder = SessionHolder;

    passes_on!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        self.memory.call(call)
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        self.memory.call_detached(call);
    }

    fn events(&self) -> Events<SessionHolder> {
        self.source.events()
    }
}

#[tokio::test]
async fn after_missed_receipts_only_what_is_granted_from_then_on_counts_as_held() {
    let meters = Meters::new();
    let memory = Memory::new().unwrap();
    let mut happened = memory.events();
    let source = Arc::new(EventSource::new(1));
    let told = Told {
        memory,
        source: Arc::clone(&source),
    };
    let metrics = Metrics::new(&meters.provider.meter("counts"));
    let leases = Leases::new(told).unwrap().with_metrics(metrics);
    let mut tell = || {
        let receipts = core::iter::from_fn(|| happened.try_next()).map(|event| match event {
            Event::Receipt(receipt) => Receipt::clone(&receipt),
            Event::Missed(missed) => panic!("{missed} missed"),
        });
        source.publish(Receipts::new(receipts.collect(), 0));
    };
    let session = leases.connect("a").unwrap();
    let held = [
        session.acquire("docs").await.unwrap(),
        session.acquire("more").await.unwrap(),
    ];
    tell();
    meters.assert(&[("active", 2, 0.0)]);
    source.publish(Receipts::new(Vec::new(), 1));
    meters.assert(&[("active", 0, 0.0)]);
    // They end uncounted, as they are not counted any more.
    drop(held);
    tell();
    meters.assert(&[("active", 0, 0.0), ("hold.duration", 0, 0.0)]);
    let _next = session.acquire("docs").await.unwrap();
    tell();
    meters.assert(&[("active", 1, 0.0)]);
}
