//! The takeover of a lease, exported over OTLP.
//!
//! ```console
//! $ cargo run -p lease-async --features metrics,procfs --example traced -- http://127.0.0.1:4317
//! $ cargo run -p lease-async --features metrics,procfs --example traced -- --http http://127.0.0.1:4318
//! ```

#[path = "../shared/end.rs"]
mod end;
mod export;
mod story;

use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::export::{Export, Transport};
use crate::story::Editor;

/// How long the end of the program may be kept by a collector that does not answer.
const FLUSH: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> ExitCode {
    end::end("traced", run().await)
}

#[expect(clippy::print_stdout, reason = "an example tells what it did")]
async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut endpoint = "http://127.0.0.1:4317".to_owned();
    let mut transport = Transport::Grpc;
    for argument in std::env::args_os().skip(1) {
        if argument == "--http" {
            transport = Transport::Http;
        } else if argument.as_encoded_bytes().starts_with(b"-") {
            return Err("usage: traced [--http] [ADDRESS]".into());
        } else {
            let word = argument.into_string();
            endpoint = word.map_err(|word| format!("no address: {}", word.display()))?;
        }
    }

    let export = Export::start(transport, &endpoint)?;
    // The exporter's own spans would be exported, which would make spans.
    let filter =
        EnvFilter::new("info,h2=off,hyper=off,hyper_util=off,tonic=off,tower=off,reqwest=off");
    tracing_subscriber::registry()
        .with(filter)
        .with(export.layer())
        .init();

    let leases = story::leases(&export.meter())?;
    let token = story::story(&leases, Editor::start()?).await?;
    println!("generation {} took over and was released", token.generation);

    // Everything is released. Off the runtime, since the exporters may need it.
    let sent = tokio::task::spawn_blocking(move || export.finish(FLUSH)).await?;
    println!(
        "{}",
        if sent {
            "exported"
        } else {
            "not all of it was exported in time: does a collector listen there?"
        }
    );
    Ok(())
}
