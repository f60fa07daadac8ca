//! A daemon that writes documents for many clients: one writer for each document, and no late write ever.
//!
//! ```console
//! $ cargo run -p lease-async --example daemon -- /tmp/desk.sock /tmp/documents
//! $ socat - UNIX-CONNECT:/tmp/desk.sock
//! agent ag-1
//! ok
//! write notes the first line
//! ok 1
//! ```
//!
//! A client is a connection to a Unix socket, and a session. It says who it is by `agent NAME` and then, a line each:
//!
//! | line | does |
//! | --- | --- |
//! | `write NAME TEXT` | takes the lease of `docs/NAME`, keeps it, and writes the document |
//! | `put NAME LENGTH` | the same with as many bytes as follow the line |
//! | `read NAME` | answers `ok GENERATION LENGTH`, and that many bytes |
//! | `close NAME` | gives the lease back |
//! | `health` | tells what is held, for how long, and what takes too long |
//! | `later NAME TEXT` | a slow writer: it begins, and goes on when somebody says `go` |
//! | `stall NAME TEXT` | the same, and it is stopped at the worst moment: after its last look at the lease |
//!
//! Answers begin with `ok`, `busy`, `lost`, `fenced`, `failed` or `wrong`.
//!
//! Each document is a file. Its first line is the state of its fence: the newest writer, and the authorities that were
//! succeeded. It is written anew and renamed, while the fence is locked, so whatever kills the daemon leaves a
//! whole document with its own fence. The authority is in memory, so each start has a new one, which the daemon, as
//! the owner of the folder, puts in the place of the one before.
//!
//! It ends with SIGTERM or when its input does, and takes some seconds for that at most.

#[cfg(target_os = "linux")]
#[path = "../shared/end.rs"]
mod end;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
#[path = "../shared/lines.rs"]
mod lines;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod serve;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    end::end("daemon", run())
}

#[cfg(target_os = "linux")]
fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args_os().skip(1);
    let arguments = (arguments.next(), arguments.next(), arguments.next());
    let (Some(socket), Some(folder), None) = arguments else {
        return Err("usage: daemon SOCKET FOLDER".into());
    };
    program::run(socket.as_ref(), folder.as_ref())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
