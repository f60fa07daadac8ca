//! Tracing of one test at a time, and a collector that runs beside it.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::SdkTracer;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

pub(crate) use crate::not_run::not_run;

/// The bound of every wait for another thread or process.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) type Layer = OpenTelemetryLayer<Registry, SdkTracer>;

type Switch = reload::Handle<Option<Layer>, Registry>;

/// The tracing of this process belongs to one test as long as this is there.
pub(crate) struct Traced {
    _one: MutexGuard<'static, ()>,
}

/// Sends spans to `layer`, also those of threads that are not the test's.
pub(crate) fn traced(layer: Layer) -> Traced {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    switch().reload(Some(layer)).unwrap();
    Traced { _one }
}

fn switch() -> &'static Switch {
    static SWITCH: OnceLock<Switch> = OnceLock::new();
    SWITCH.get_or_init(|| {
        let (layer, switch) = reload::Layer::new(None);
        // The exporters trace too.
        let ours =
            filter_fn(|of| of.target() == "lease_async" || of.target().starts_with("telemetry"));
        let subscriber = tracing_subscriber::registry().with(layer).with(ours);
        subscriber.init();
        switch
    })
}

impl Drop for Traced {
    fn drop(&mut self) {
        switch().reload(None).unwrap();
    }
}

/// How long `work` took.
#[expect(clippy::disallowed_methods, reason = "a test may look at a clock")]
pub(crate) fn took<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// A collector of another project that prints what it is sent.
pub(crate) struct Rotel {
    child: Child,
    printed: Arc<Printed>,
    pub(crate) grpc: String,
    pub(crate) http: String,
}

#[derive(Default)]
struct Printed {
    text: Mutex<String>,
    more: Condvar,
}

impl Rotel {
    /// Starts it on two free ports; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        // Between the look for a free port and its use another may take it.
        for _attempt in 0..5 {
            let rotel = Self::attempt()?;
            if rotel.has("Starting Rotel") && rotel.listens() {
                return Some(rotel);
            }
        }
        panic!("no free port was left to it in five attempts");
    }

    fn attempt() -> Option<Self> {
        let [grpc, http] = free_ports();
        let words = [
            "start",
            "--exporter",
            "blackhole",
            "--debug-log",
            "traces",
            "--debug-log",
            "metrics",
        ];
        let child = Command::new("rotel-agent")
            .args(words)
            .args(["--debug-log-verbosity", "detailed"])
            .args(["--otlp-grpc-endpoint", &grpc, "--otlp-http-endpoint", &http])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.ok()?;
        let printed = Arc::<Printed>::default();
        read(child.stdout.take().unwrap(), Arc::clone(&printed));
        read(child.stderr.take().unwrap(), Arc::clone(&printed));
        let [grpc, http] = [grpc, http].map(|at| format!("http://{at}"));
        Some(Self {
            child,
            printed,
            grpc,
            http,
        })
    }

    /// Whether both ports are open soon. A program that could not have them ends.
    fn listens(&self) -> bool {
        [&self.grpc, &self.http].into_iter().all(|at| {
            let at = at.trim_start_matches("http://");
            (0..200).any(|_| {
                let open = std::net::TcpStream::connect(at).is_ok();
                if !open {
                    pause();
                }
                open
            })
        })
    }

    /// Waits until it has printed `words`, and says whether it has.
    pub(crate) fn has(&self, words: &str) -> bool {
        let text = self.printed.text.lock().unwrap();
        let waits = |text: &mut String| !text.contains(words);
        let (_text, waited) = self
            .printed
            .more
            .wait_timeout_while(text, SOON, waits)
            .unwrap();
        !waited.timed_out()
    }

    /// Everything it has printed.
    pub(crate) fn text(&self) -> String {
        self.printed.text.lock().unwrap().clone()
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a port")]
fn pause() {
    thread::sleep(Duration::from_millis(20));
}

fn read(stream: impl Read + Send + 'static, printed: Arc<Printed>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = printed.text.lock().unwrap();
            text.push_str(line.trim());
            text.push('\n');
            printed.more.notify_all();
        }
    });
}

/// Two ports that nobody had a moment ago.
fn free_ports() -> [String; 2] {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    taken.map(|port| port.local_addr().unwrap().to_string())
}

impl Drop for Rotel {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().unwrap_or(());
        self.child.wait().unwrap();
    }
}
