//! A tool server: many connections over a Unix socket, one writer for each part of a document.
//!
//! ```text
//! cargo run -p lease-async --example tool_server -- /tmp/tools.sock
//! ```
//!
//! One line is one call: `AGENT VERB PART [TEXT]`. The first line of a connection names its agent; the session is
//! minted here, whatever a client sends. A part stays locked after a call, so that several calls are one edit:
//! until `release`, until the connection ends, or until its writer was idle for the term.
//!
//! | verb | does |
//! | --- | --- |
//! | `set` | writes the text; an empty one fails before anything was changed |
//! | `call` | runs a method of the application, which may fail after it has changed something |
//! | `get` | reads, without a lease |
//! | `release` | gives the part back |
//!
//! Answers begin with `ok`, `busy` (who and how long), `failed`, `lost` or `wrong`.

use std::process::ExitCode;
use std::sync::Arc;

use lease_async::{Leases, Memory};
use tokio::net::UnixListener;

#[path = "../shared/end.rs"]
mod end;
#[path = "../shared/lines.rs"]
mod lines;
mod server;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end::end("tool_server", run().await)
}

async fn run() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1);
    let path = match (arguments.next(), arguments.next()) {
        (Some(path), None) if !path.as_encoded_bytes().starts_with(b"-") => path,
        _ => return Err("usage: tool_server SOCKET".into()),
    };
    let leases = Leases::new(Memory::new()?)?;
    let listener = UnixListener::bind(&path)
        .map_err(|error| format!("cannot listen at {}: {error}", path.display()))?;
    server::serve(listener, leases, Arc::default()).await;
    Ok(())
}
