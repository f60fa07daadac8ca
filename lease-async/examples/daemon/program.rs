//! The life of the daemon: one for each folder, from its start to its end.

use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lease_async::{IncidentPolicy, Leases, Memory};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::files::Folder;
use super::serve::{Desk, serve};

/// How long clients may take to come to an end, and then what still runs.
const GRACE: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(1);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs until it is told to end.
pub(crate) fn run(socket: &Path, folder: &Path) -> Result<(), Error> {
    let only = Only::of(folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(life(socket, folder));
    runtime.shutdown_timeout(REST);
    drop(only);
    say("ended");
    ended
}

async fn life(socket: &Path, folder: &Path) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let memory = Memory::new()?;
    let leases = Leases::new(memory)?.with_incidents(IncidentPolicy::default());
    let folder = Folder::open(folder, leases.authority().id())?;
    let listener = listen(socket)
        .map_err(|error| format!("cannot listen at {}: {error}", socket.display()))?;
    end_with_input(stop.clone());
    say("ready");
    let desk = Desk::new(leases.clone(), Arc::new(folder), stop.clone());
    let serving = serve(listener, desk, GRACE);
    let told = async {
        tokio::select! {
            _ = terminate.recv() => stop.cancel(),
            () = stop.cancelled() => {}
        }
        core::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = told => {}
    }
    let left = leases.authority().shutdown(REST).await;
    // Where somebody has removed it already, it is gone.
    drop(std::fs::remove_file(socket));
    say(&format!("stops with {} held", left.held));
    Ok(())
}

/// Binds the socket, in place of one that a killed daemon has left.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    let kind = std::fs::symlink_metadata(socket).map(|found| found.file_type());
    if kind.is_ok_and(|kind| kind.is_socket()) && net::UnixStream::connect(socket).is_err() {
        std::fs::remove_file(socket)?;
    }
    UnixListener::bind(socket)
}

/// Whoever has this is the only daemon of a folder, on this network namespace. It goes with the process.
///
/// Two daemons would have an authority each, and succeed each other's in turn.
#[derive(Debug)]
struct Only {
    _name: net::UnixListener,
}

impl Only {
    fn of(folder: &Path) -> Result<Self, Error> {
        let found = std::fs::metadata(folder)
            .map_err(|error| format!("cannot use {}: {error}", folder.display()))?;
        let name = format!("lease-daemon/{}/{}", found.dev(), found.ino());
        let address = net::SocketAddr::from_abstract_name(name)?;
        let _name = net::UnixListener::bind_addr(&address)
            .map_err(|error| format!("another daemon writes this folder: {error}"))?;
        Ok(Self { _name })
    }
}

/// Stops when the input ends, as it does with whoever has started the daemon.
fn end_with_input(stop: CancellationToken) {
    std::thread::spawn(move || {
        // An error is an end, too.
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        stop.cancel();
    });
}

/// Tells what happened. Nobody reading any more is no reason to end.
pub(crate) fn say(what: &str) {
    let mut output = io::stdout().lock();
    drop(writeln!(output, "daemon: {what}").and_then(|()| output.flush()));
}
