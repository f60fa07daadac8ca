//! A takeover, as it arrives over OTLP.

use std::net::TcpListener;
use std::time::Duration;

use lease_async::lease_procfs::Kernel;
use lease_async::{Leases, Memory, Metrics};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::runtime::{Builder, Runtime};

use crate::export::{Export, Transport};
use crate::receiver::listen;
use crate::rig::{SOON, not_run, took, traced};
use crate::story::{Editor, leases, story};

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Says that this machine cannot watch deaths.
pub(crate) fn no_deaths(test: &str) -> bool {
    let able = Kernel::detect().pidfs;
    if !able {
        not_run(test, "pidfs", "this kernel has none");
    }
    !able
}

/// Plays the story and sends it. Says whether all of it went.
pub(crate) fn play(runtime: &Runtime, transport: Transport, endpoint: &str) -> bool {
    let inside = runtime.enter();
    let export = Export::start(transport, endpoint).unwrap();
    drop(inside);
    let tracing = traced(export.layer());
    let leases = leases(&export.meter()).unwrap();
    let token = runtime
        .block_on(story(&leases, Editor::start().unwrap()))
        .unwrap();
    assert_eq!(token.generation.get(), 2);
    drop(tracing);
    export.finish(SOON)
}

fn arrives(transport: Transport) {
    let runtime = runtime();
    let (arrived, endpoint) = listen(transport, &runtime);
    assert!(play(&runtime, transport, &endpoint));
    let (spans, metrics) = arrived.take();
    check_spans(&spans);
    check_metrics(&metrics);
}

#[test]
fn a_takeover_arrives_over_grpc() {
    if !no_deaths("otlp::a_takeover_arrives_over_grpc") {
        arrives(Transport::Grpc);
    }
}

#[test]
fn a_takeover_arrives_over_http() {
    if !no_deaths("otlp::a_takeover_arrives_over_http") {
        arrives(Transport::Http);
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

#[track_caller]
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

#[track_caller]
fn int(attributes: &[KeyValue], key: &str) -> i64 {
    match value(attributes, key) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{key} is {other:?}"),
    }
}

fn children<'a>(spans: &'a [Span], parent: &Span, name: &str) -> Vec<&'a Span> {
    let mut children: Vec<&Span> = spans.iter().collect();
    children.retain(|span| span.parent_span_id == parent.span_id && span.name == name);
    children.sort_by_key(|span| span.start_time_unix_nano);
    children
}

#[track_caller]
fn root<'a>(spans: &'a [Span], name: &str, editor: i64) -> &'a Span {
    let is_it = |span: &&Span| span.name == name && int(&span.attributes, "editor") == editor;
    let root = spans.iter().find(is_it).unwrap();
    assert_eq!(root.parent_span_id, []);
    root
}

#[track_caller]
fn one<'a>(spans: &'a [Span], parent: &Span, name: &str) -> &'a Span {
    let children = children(spans, parent, name);
    assert_eq!(children.len(), 1, "{name}: {children:?}");
    children[0]
}

fn check_spans(spans: &[Span]) {
    // No failure is told, least of all that another held the lease.
    for span in spans {
        assert_eq!(
            span.status.as_ref().map_or(0, |status| status.code),
            0,
            "{span:?}"
        );
        assert_eq!(span.kind, 1, "{span:?}");
        assert_eq!(value(&span.attributes, "error.type"), None);
    }
    let first = root(spans, "edit", 1);
    let granted = one(spans, first, "acquire writer_lease");
    assert_eq!(
        text(&granted.attributes, "writer_lease.outcome"),
        "acquired"
    );
    assert_eq!(int(&granted.attributes, "writer_lease.generation"), 1);
    let dead = int(&granted.attributes, "process.pid");

    let second = root(spans, "edit", 2);
    let asked = children(spans, second, "acquire writer_lease");
    let [held, waited] = asked[..] else {
        panic!("{asked:?}")
    };
    let attributes = &held.attributes;
    assert_eq!(text(attributes, "writer_lease.outcome"), "held");
    assert_eq!(text(attributes, "writer_lease.code"), "WRITER_LEASE_HELD");
    assert_eq!(text(attributes, "writer_lease.held_by"), "editor-1");
    assert_eq!(int(attributes, "writer_lease.held_by.pid"), dead);
    let look = one(spans, held, "verify writer_lease");
    assert_eq!(text(&look.attributes, "writer_lease.verdict"), "alive");

    check_takeover(spans, waited, dead);
    for name in ["renew writer_lease", "release writer_lease"] {
        let span = one(spans, second, name);
        assert_eq!(int(&span.attributes, "writer_lease.generation"), 2);
        assert_eq!(
            text(&span.attributes, "writer_lease.resource"),
            "documents/plan"
        );
    }
    let late = &root(spans, "write", 1).events[..];
    let [fenced] = late else { panic!("{late:?}") };
    assert_eq!(fenced.name, "writer_lease.fenced");
    assert_eq!(
        text(&fenced.attributes, "writer_lease.reason"),
        "older_token"
    );
}

fn check_takeover(spans: &[Span], waited: &Span, dead: i64) {
    let attributes = &waited.attributes;
    assert_eq!(text(attributes, "writer_lease.outcome"), "taken_over");
    assert_eq!(
        text(attributes, "writer_lease.code"),
        "WRITER_LEASE_TAKEN_OVER"
    );
    assert_eq!(int(attributes, "writer_lease.generation"), 2);
    let looks = children(spans, waited, "verify writer_lease");
    let proof = looks.last().unwrap();
    assert_eq!(text(&proof.attributes, "writer_lease.verdict"), "dead");
    assert_eq!(int(&proof.attributes, "process.pid"), dead);
    let lost = waited
        .events
        .iter()
        .find(|event| event.name == "writer_lease.lost");
    let lost = &lost.unwrap().attributes;
    assert_eq!(text(lost, "writer_lease.reason"), "proven_dead");
    assert_eq!(int(lost, "writer_lease.generation"), 1);

    let takeover = one(spans, waited, "takeover writer_lease");
    let [event] = &takeover.events[..] else {
        panic!("{takeover:?}")
    };
    assert_eq!(event.name, "writer_lease.taken_over");
    for attributes in [&takeover.attributes, &event.attributes] {
        assert_eq!(int(attributes, "writer_lease.generation"), 2);
        assert_eq!(int(attributes, "writer_lease.previous.generation"), 1);
        assert_eq!(int(attributes, "writer_lease.previous.pid"), dead);
        assert_eq!(text(attributes, "writer_lease.previous.holder"), "editor-1");
        let proven = text(&proof.attributes, "writer_lease.proof");
        assert_eq!(text(attributes, "writer_lease.proof"), proven);
    }
}

/// The sum of the points whose attribute has this value.
fn sum(metrics: &[Metric], name: &str, (key, of): (&str, &str)) -> i64 {
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
    let Some(Data::Sum(sum)) = &metric.data else {
        panic!("{metric:?}")
    };
    let number = |point: &NumberDataPoint| match point.value {
        Some(Number::AsInt(number)) => number,
        other => panic!("{other:?}"),
    };
    let points = sum.data_points.iter();
    points
        .filter(|point| text(&point.attributes, key) == of)
        .map(number)
        .sum()
}

fn samples(metrics: &[Metric], name: &str) -> u64 {
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
    let Some(Data::Histogram(histogram)) = &metric.data else {
        panic!("{metric:?}")
    };
    assert_eq!(metric.unit, "s");
    histogram.data_points.iter().map(|point| point.count).sum()
}

fn check_metrics(metrics: &[Metric]) {
    let memory = ("writer_lease.backend", "memory");
    let outcome = |outcome| ("writer_lease.outcome", outcome);
    let verdict = |verdict| ("writer_lease.verdict", verdict);
    assert_eq!(sum(metrics, "writer_lease.active", memory), 0);
    assert_eq!(
        sum(
            metrics,
            "writer_lease.active",
            ("writer_lease.class", "document")
        ),
        0
    );
    assert_eq!(sum(metrics, "writer_lease.waiting", memory), 0);
    assert_eq!(sum(metrics, "writer_lease.fenced_writes", memory), 1);
    for (what, times) in [
        ("acquired", 1),
        ("held", 1),
        ("taken_over", 1),
        ("renewed", 1),
        ("released", 1),
    ] {
        let counted = sum(metrics, "writer_lease.decisions", outcome(what));
        assert_eq!(counted, times, "{what}");
    }
    assert!(sum(metrics, "writer_lease.liveness.verdicts", verdict("alive")) >= 2);
    assert!(sum(metrics, "writer_lease.liveness.verdicts", verdict("dead")) >= 1);
    assert_eq!(samples(metrics, "writer_lease.acquire.duration"), 3);
    assert_eq!(samples(metrics, "writer_lease.hold.duration"), 2);
    let all = format!("{metrics:?}");
    for secret in [
        "documents/plan",
        "editor-",
        "process.pid",
        "generation",
        "session.id",
    ] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[test]
fn a_collector_that_never_answers_delays_no_release_and_not_the_end() {
    // It takes connections, and that is all it does.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", deaf.local_addr().unwrap());
    for transport in [Transport::Grpc, Transport::Http] {
        let runtime = runtime();
        let inside = runtime.enter();
        let export = Export::start(transport, &endpoint).unwrap();
        drop(inside);
        let tracing = traced(export.layer());
        let memory = Memory::new().unwrap();
        let metrics = Metrics::new(&export.meter());
        let leases = Leases::new(memory.clone()).unwrap().with_metrics(metrics);
        let session = leases.connect("agent").unwrap();
        // More than the exporter's queue takes, while its first batch is on its way to nobody.
        let many = || {
            runtime.block_on(async {
                for _ in 0..1_500 {
                    session.acquire("a").await.unwrap().release().await.unwrap();
                }
            });
        };
        let ((), released) = took(many);
        assert_eq!(memory.held(), 0);
        drop(tracing);
        let deadline = Duration::from_millis(200);
        let (sent, ended) = took(|| export.finish(deadline));
        assert!(!sent);
        assert!(ended >= deadline && ended < SOON, "{ended:?}");
        assert!(released < SOON, "{released:?}");
        runtime.shutdown_background();
    }
}
