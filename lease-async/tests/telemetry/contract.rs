//! `docs/telemetry.md` against what is really told, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::runtime::Builder;

use crate::everything::everything;
use crate::rig::traced;

const CONTRACT: &str = include_str!("../../../docs/telemetry.md");

/// What the bridge adds to every span or event.
const BRIDGE: [&str; 2] = ["level", "target"];

/// The rows below a heading, without the marks of code.
fn table(heading: &str) -> Vec<Vec<String>> {
    let (_, section) = CONTRACT.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    rows.map(cells).collect()
}

type Pairs = BTreeSet<(String, String)>;

fn pairs(rows: &[Vec<String>]) -> Pairs {
    rows.iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect()
}

fn list(cell: &str) -> impl Iterator<Item = String> {
    cell.split(", ").map(str::to_owned)
}

/// What was told: the signals with their levels, the attributes with their types and what they are on.
#[derive(Default)]
struct Told {
    spans: Pairs,
    events: Pairs,
    attributes: BTreeMap<(String, String), Pairs>,
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Told {
    fn of(spans: &[SpanData]) -> Self {
        let mut told = Self::default();
        for span in spans {
            if let Some((verb, _)) = span.name.split_once(" writer_lease") {
                let level = told.attributes(verb, &span.attributes);
                told.spans.insert((span.name.to_string(), level));
            }
            for event in &span.events.events {
                let (_, word) = event.name.rsplit_once('.').unwrap();
                let level = told.attributes(word, &event.attributes);
                told.events.insert((event.name.to_string(), level));
            }
        }
        told
    }

    /// Takes attributes down, and answers the level.
    fn attributes(&mut self, on: &str, attributes: &[KeyValue]) -> String {
        for attribute in attributes {
            let key = attribute.key.as_str();
            if BRIDGE.contains(&key) {
                continue;
            }
            let kind = match attribute.value {
                Value::I64(_) => "int",
                Value::String(_) => "string",
                ref other => panic!("{on} has {key} = {other:?}"),
            };
            let key = (key.to_owned(), kind.to_owned());
            let (name, what) = (key.0.clone(), attribute.value.to_string());
            self.values.entry(name.clone()).or_default().insert(what);
            self.attributes
                .entry(key)
                .or_default()
                .insert((name, on.to_owned()));
        }
        let level = attributes
            .iter()
            .find(|attribute| attribute.key.as_str() == "level");
        level.unwrap().value.to_string()
    }
}

struct Measured {
    kind: &'static str,
    unit: String,
    with: Vec<KeyValue>,
}

fn measured(metric: &Metric) -> Measured {
    let (kind, with) = match metric.data() {
        AggregatedMetrics::F64(MetricData::Histogram(data)) => (
            "histogram",
            data.data_points()
                .flat_map(|point| point.attributes().cloned())
                .collect(),
        ),
        AggregatedMetrics::U64(MetricData::Sum(data)) => {
            assert!(data.is_monotonic());
            (
                "counter",
                data.data_points()
                    .flat_map(|point| point.attributes().cloned())
                    .collect(),
            )
        }
        AggregatedMetrics::I64(MetricData::Sum(data)) => {
            assert!(!data.is_monotonic());
            (
                "updowncounter",
                data.data_points()
                    .flat_map(|point| point.attributes().cloned())
                    .collect(),
            )
        }
        other => panic!("{} is {other:?}", metric.name()),
    };
    Measured {
        kind,
        unit: metric.unit().to_owned(),
        with,
    }
}

/// Runs everything that can be told. Answers the spans, and the measurements by name.
fn run() -> (Vec<SpanData>, BTreeMap<String, Measured>) {
    let spans = InMemorySpanExporter::default();
    let tracer = SdkTracerProvider::builder()
        .with_simple_exporter(spans.clone())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer.tracer("contract"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_level(true);
    let metrics = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(metrics.clone()).build();
    let meter = SdkMeterProvider::builder().with_reader(reader).build();

    let tracing = traced(layer);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(everything(&meter.meter("contract")));
    drop(runtime);
    drop(tracing);
    tracer.force_flush().unwrap();
    meter.force_flush().unwrap();
    let metrics = metrics.get_finished_metrics().unwrap();
    let metrics = metrics.iter().flat_map(|all| all.scope_metrics());
    let metrics = metrics.flat_map(|scope| scope.metrics());
    let metrics = metrics.map(|metric| (metric.name().to_owned(), measured(metric)));
    (spans.get_finished_spans().unwrap(), metrics.collect())
}

#[test]
fn what_is_told_is_what_the_contract_says() {
    let (spans, metrics) = run();
    let told = Told::of(&spans);
    assert_eq!(told.spans, pairs(&table("Spans")));
    assert_eq!(told.events, pairs(&table("Events")));
    check_attributes(&told);
    check_status(&spans);
    check_outcomes(&spans);
    check_metrics(&metrics);
    let values = |key: &str| told.values[&format!("writer_lease.{key}")].clone();
    check_values(&values("outcome"), "Outcomes");
    check_values(&values("reason"), "Reasons");
    // Numbers are those of what happened, and no others.
    let numbers = |of: &[u64]| of.iter().map(u64::to_string).collect::<BTreeSet<_>>();
    let generations: Vec<u64> = (1..=7).collect();
    assert_eq!(values("generation"), numbers(&generations));
    assert_eq!(values("incident.number"), numbers(&[1, 2]));
}

/// How often each of them came to what, and why. How often a holder is looked at is chance.
fn check_outcomes(spans: &[SpanData]) {
    let value = |span: &SpanData, key: &str| {
        let mut attributes = span.attributes.iter();
        let found = attributes.find(|attribute| attribute.key.as_str() == key);
        found.map_or_else(String::new, |attribute| attribute.value.to_string())
    };
    let mut told = BTreeMap::<_, usize>::new();
    for span in spans {
        if let Some((verb, _)) = span.name.split_once(" writer_lease")
            && verb != "verify"
        {
            let [outcome, reason] = ["writer_lease.outcome", "writer_lease.reason"];
            let how = format!("{verb} {} {}", value(span, outcome), value(span, reason));
            *told.entry(how.trim().to_owned()).or_default() += 1;
        }
    }
    let expected = [
        ("acquire acquired", 6),
        ("acquire failed unreachable", 1),
        ("acquire held conflict", 1),
        ("acquire reentered", 1),
        ("acquire taken_over proven_dead", 1),
        ("release depth_released", 1),
        ("release failed unreachable", 1),
        ("release released", 1),
        ("release released dropped", 2),
        ("renew failed unreachable", 1),
        ("renew renewed", 3),
        ("takeover taken_over proven_dead", 1),
    ];
    let expected = expected.map(|(how, times)| (how.to_owned(), times));
    assert_eq!(told, BTreeMap::from(expected));
}

fn check_attributes(told: &Told) {
    let documented = table("Attributes of spans and events");
    let mut expected = BTreeMap::<_, Pairs>::new();
    for row in &documented {
        let on = list(&row[2]).map(|on| (row[0].clone(), on));
        expected.insert((row[0].clone(), row[1].clone()), on.collect());
    }
    assert_eq!(told.attributes, expected);
}

fn check_status(spans: &[SpanData]) {
    let has = |span: &SpanData, key: &str| {
        span.attributes
            .iter()
            .any(|attribute| attribute.key.as_str() == key)
    };
    for span in spans {
        let failed = matches!(span.status, Status::Error { .. });
        assert_eq!(failed, has(span, "error.type"), "{span:?}");
    }
    assert!(spans.iter().any(|span| has(span, "error.type")));
}

fn check_metrics(metrics: &BTreeMap<String, Measured>) {
    let documented = table("Measurements");
    let names: BTreeSet<&String> = documented.iter().map(|row| &row[0]).collect();
    assert_eq!(metrics.keys().collect::<BTreeSet<_>>(), names);
    for row in &documented {
        let metric = &metrics[&row[0]];
        assert_eq!(
            (metric.kind, &metric.unit),
            (&*row[1], &row[2]),
            "{}",
            row[0]
        );
        let keys: BTreeSet<String> = metric
            .with
            .iter()
            .map(|with| with.key.to_string())
            .collect();
        let expected = list(&row[3])
            .map(|key| format!("writer_lease.{key}"))
            .collect();
        assert_eq!(keys, expected, "{}", row[0]);
        let values = |key: &str| {
            let with = metric.with.iter().filter(|with| with.key.as_str() == key);
            with.map(|with| with.value.to_string()).collect()
        };
        check_values(&values("writer_lease.outcome"), "Outcomes");
        check_values(&values("writer_lease.reason"), "Reasons");
    }
}

#[track_caller]
fn check_values(values: &BTreeSet<String>, heading: &str) {
    let documented: BTreeSet<String> = table(heading)
        .into_iter()
        .map(|mut row| row.swap_remove(0))
        .collect();
    assert_eq!(values.difference(&documented).count(), 0, "{values:?}");
}
