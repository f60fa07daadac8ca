//! Exports spans and measurements over OTLP, and never keeps anybody waiting for it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

/// How often measurements are sent.
const BEAT: Duration = Duration::from_secs(10);

/// How the collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Grpc,
    Http,
}

/// Everything that exports. It has threads of its own.
pub(crate) struct Export {
    tracer: SdkTracerProvider,
    meter: SdkMeterProvider,
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

impl Export {
    /// Starts to export to `endpoint`, for example `http://127.0.0.1:4317`.
    ///
    /// Inside a runtime, which gRPC is spoken on: it must go on until the flush.
    pub(crate) fn start(transport: Transport, endpoint: &str) -> Result<Self, Problem> {
        let (spans, metrics) = match transport {
            Transport::Grpc => (
                SpanExporter::builder()
                    .with_tonic()
                    .with_endpoint(endpoint)
                    .build()?,
                MetricExporter::builder()
                    .with_tonic()
                    .with_endpoint(endpoint)
                    .build()?,
            ),
            Transport::Http => {
                // Here each signal has a path of its own.
                let spans = format!("{endpoint}/v1/traces");
                let metrics = format!("{endpoint}/v1/metrics");
                (
                    SpanExporter::builder()
                        .with_http()
                        .with_endpoint(spans)
                        .build()?,
                    MetricExporter::builder()
                        .with_http()
                        .with_endpoint(metrics)
                        .build()?,
                )
            }
        };
        let who = Resource::builder().with_service_name("traced").build();
        let reader = PeriodicReader::builder(metrics).with_interval(BEAT).build();
        let tracer = SdkTracerProvider::builder().with_resource(who.clone());
        let meter = SdkMeterProvider::builder().with_resource(who);
        Ok(Self {
            tracer: tracer.with_batch_exporter(spans).build(),
            meter: meter.with_reader(reader).build(),
        })
    }

    /// The meter for [`lease_async::Metrics`].
    pub(crate) fn meter(&self) -> Meter {
        self.meter.meter("traced")
    }

    /// What takes the spans. Without the places in the code, which say nothing to who reads a trace of leases.
    pub(crate) fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.tracer("traced"))
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
    }

    /// Sends what is left, for `within` at most, and says whether all of it went.
    ///
    /// A collector that does not answer keeps a flush for half a minute. So it is done on a thread of its own,
    /// which nobody waits for any longer; it ends with the process. Release before this, never after.
    pub(crate) fn finish(self, within: Duration) -> bool {
        let (tell, told) = mpsc::channel();
        let flush = move || {
            let sent = [
                self.tracer.force_flush(),
                self.meter.force_flush(),
                self.tracer.shutdown(),
                self.meter.shutdown(),
            ];
            // Who has waited long enough does not listen any more.
            tell.send(sent.iter().all(Result::is_ok)).unwrap_or(());
        };
        let flushing = thread::Builder::new().name("flush".to_owned()).spawn(flush);
        flushing.is_ok() && told.recv_timeout(within).unwrap_or(false)
    }
}
