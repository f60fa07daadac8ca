//! Clients: each connection is a session, and each of its lines a request.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lease_async::{
    AcquireError, IncidentEvent, LeaseGuard, Leases, RunError, Session, SessionHolder, Standing,
};
use lease_core::{Disposition, FenceGate, Fenced, OperationKind, Refusal};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::{JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;

use super::files::{Fault, Folder};
use super::lines::line;
use super::program::say;

/// The largest document, and the most clients.
const DOCUMENT: u64 = 64 << 20;
const CLIENTS: usize = 128;

/// How long to wait after the system has no descriptor left for a client.
const PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    leases: Leases,
    folder: Arc<Folder>,
    stop: CancellationToken,
    /// Told by `go`.
    go: Arc<Notify>,
}

impl Desk {
    pub(crate) fn new(leases: Leases, folder: Arc<Folder>, stop: CancellationToken) -> Self {
        Self {
            leases,
            folder,
            stop,
            go: Arc::default(),
        }
    }
}

/// Serves clients until it is told to stop, and then those that are in the middle of something for `grace` more.
pub(crate) async fn serve(listener: UnixListener, desk: Desk, grace: Duration) {
    let mut clients = JoinSet::new();
    let incidents = tokio::spawn(tell_incidents(desk.leases.clone()));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if clients.len() < CLIENTS => {
                    clients.spawn(client(stream, desk.clone()));
                }
                // It sees that it is closed.
                Ok(_one_too_many) => {}
                Err(_none_left) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = clients.join_next() => {}
            () = desk.stop.cancelled() => break,
        }
    }
    drop(listener);
    let all = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        say("ends with clients in the middle of something");
    }
    // Dropping the others drops their sessions, and that frees what they held.
    drop(clients);
    incidents.abort();
}

async fn tell_incidents(leases: Leases) {
    let Some(mut incidents) = leases.incidents() else {
        return;
    };
    while let Some(event) = incidents.next().await {
        match event {
            IncidentEvent::Opened(incident) => {
                say(&format!(
                    "incident {} {:?}",
                    incident.resource, incident.what
                ));
            }
            IncidentEvent::Closed { incident, how, .. } => {
                say(&format!("over {} {how:?}", incident.resource));
            }
            IncidentEvent::Missed(missed) => say(&format!("{missed} incidents missed")),
        }
    }
}

/// One connection. However it ends, dropping the session is the disconnect.
async fn client(stream: UnixStream, desk: Desk) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut client: Option<Client> = None;
    loop {
        let line = tokio::select! {
            line = line(&mut read) => line?,
            () = desk.stop.cancelled() => return Ok(()),
        };
        let Some(line) = line else { return Ok(()) };
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match &mut client {
            Some(client) => client.answer([verb, rest], &mut read).await,
            None if verb == "agent" => match desk.leases.connect(rest) {
                Ok(session) => {
                    let (held, desk) = (BTreeMap::new(), desk.clone());
                    client = Some(Client {
                        session,
                        held,
                        desk,
                    });
                    Answer::from("ok")
                }
                Err(error) => Answer::from(format!("wrong: {error}")),
            },
            None => Answer::from("wrong: say who you are first"),
        };
        write
            .write_all(format!("{}\n", answer.line).as_bytes())
            .await?;
        write.write_all(&answer.bytes).await?;
        if answer.last {
            return Ok(());
        }
    }
}

struct Answer {
    line: String,
    bytes: Vec<u8>,
    last: bool,
}

impl<T: Into<String>> From<T> for Answer {
    fn from(line: T) -> Self {
        let (line, bytes) = (line.into(), Vec::new());
        Self {
            line,
            bytes,
            last: false,
        }
    }
}

struct Client {
    session: Session,
    held: BTreeMap<String, LeaseGuard>,
    desk: Desk,
}

impl Client {
    async fn answer(
        &mut self,
        [verb, rest]: [&str; 2],
        read: &mut (impl AsyncBufRead + Unpin),
    ) -> Answer {
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "health" => self.health().into(),
            "go" => {
                self.desk.go.notify_waiters();
                "ok".into()
            }
            _ if !Folder::admits(name) => "wrong: no such name".into(),
            "read" => self.read(name),
            "close" => self.close(name).await.into(),
            "write" => match self.lease(name).await {
                Ok(lease) => {
                    let mut source = text.as_bytes();
                    let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
                    write(&self.desk.folder, &lease, name, (&mut source, size))
                        .await
                        .into()
                }
                Err(answer) => answer.into(),
            },
            "put" => self.put([name, text], read).await,
            "later" | "stall" => match self.lease(name).await {
                Ok(lease) => {
                    self.slow(lease, [verb, name, text]);
                    "ok".into()
                }
                Err(answer) => answer.into(),
            },
            _ => "wrong: no such verb".into(),
        }
    }

    /// Takes a lease, or one guard more of it, and keeps it.
    async fn lease(&mut self, name: &str) -> Result<LeaseGuard, String> {
        let lease = self.session.acquire(format!("docs/{name}")).await;
        let lease = lease.map_err(|error| busy(&error))?;
        if !self
            .held
            .get(name)
            .is_some_and(|held| held.token() == lease.token())
        {
            let kept = self.session.acquire(format!("docs/{name}")).await;
            let kept = kept.map_err(|error| busy(&error))?;
            self.held.insert(name.to_owned(), kept);
        }
        Ok(lease)
    }

    async fn close(&mut self, name: &str) -> String {
        match self.held.remove(name) {
            Some(lease) => match lease.release().await {
                Ok(released) => format!("ok {}", released.code()),
                Err(failed) => format!("lost: {}", failed.error),
            },
            None => "wrong: it is not yours".to_owned(),
        }
    }

    fn read(&self, name: &str) -> Answer {
        match block_in_place(|| self.desk.folder.read(name)) {
            Ok(Some((generation, bytes))) => Answer {
                line: format!("ok {generation} {}", bytes.len()),
                bytes,
                last: false,
            },
            Ok(None) => "failed: nobody has written it".into(),
            Err(fault) => told(&fault).into(),
        }
    }

    /// Writes what follows the line. After a refusal the bytes are not read, so the connection ends.
    async fn put(
        &mut self,
        [name, size]: [&str; 2],
        read: &mut (impl AsyncBufRead + Unpin),
    ) -> Answer {
        let size = size.parse().ok().filter(|size| *size <= DOCUMENT);
        let answer = match (size, self.lease(name).await) {
            (None, _) => "wrong: no such length".to_owned(),
            (Some(_), Err(answer)) => answer,
            (Some(size), Ok(lease)) => write(&self.desk.folder, &lease, name, (read, size)).await,
        };
        let last = !answer.starts_with("ok");
        let bytes = Vec::new();
        Answer {
            line: answer,
            bytes,
            last,
        }
    }

    /// Writes when somebody says `go`, whatever becomes of this connection until then.
    fn slow(&self, lease: LeaseGuard, [verb, name, text]: [&str; 3]) {
        let go = Arc::clone(&self.desk.go).notified_owned();
        let (desk, name, text) = (self.desk.clone(), name.to_owned(), text.to_owned());
        let is_lost = |lease: &LeaseGuard| matches!(lease.standing(), Standing::Lost(_));
        let looks_before = verb == "stall";
        // Here, since a task may begin after the connection has ended.
        let before = looks_before && is_lost(&lease);
        tokio::spawn(async move {
            tokio::select! {
                () = go => {}
                () = desk.stop.cancelled() => return,
            }
            let token = lease.token().generation;
            let answer = if before || (!looks_before && is_lost(&lease)) {
                "lost".to_owned()
            } else {
                let enter = |gate: &mut FenceGate| lease.enter(gate);
                let written = block_in_place(|| {
                    let mut staged = desk.folder.stage(&name, enter)?;
                    staged.add(text.as_bytes())?;
                    desk.folder.commit(&name, &staged, enter)
                });
                written.map_or_else(|fault| told(&fault), |()| "ok".to_owned())
            };
            say(&format!("slow {name} {token} {answer}"));
        });
    }

    fn health(&self) -> String {
        let health = self.desk.leases.health();
        let oldest = health.oldest.map_or_else(
            || "nothing".to_owned(),
            |lease| format!("{} for {} s", lease.resource, lease.age.as_secs()),
        );
        let (held, open) = (health.held, health.open.len());
        format!("ok {held} held, {open} take too long, the oldest is {oldest}")
    }
}

/// Writes a document out of `source`, as one operation.
async fn write(
    folder: &Folder,
    lease: &LeaseGuard,
    name: &str,
    (source, size): (&mut (impl AsyncBufRead + Unpin), u64),
) -> String {
    let operation = match lease.begin_kind(OperationKind::SetProperty).await {
        Ok(operation) => operation,
        Err(error) => return format!("lost: {error}"),
    };
    let enter = |gate: &mut FenceGate| -> Result<(), Fenced> { lease.enter(gate) };
    let work = async {
        let mut staged = block_in_place(|| folder.stage(name, enter))?;
        let mut left = size;
        while left > 0 {
            let bytes = source.fill_buf().await?;
            let some = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = bytes.get(..some).unwrap_or_default();
            if part.is_empty() {
                return Err(Fault::Cut);
            }
            block_in_place(|| staged.add(part))?;
            source.consume(some);
            left = left.saturating_sub(u64::try_from(some).unwrap_or(u64::MAX));
        }
        block_in_place(|| folder.commit(name, &staged, enter))
    };
    let effect = |fault: &Fault| match fault {
        Fault::Unknown(_) => Disposition::Unknown,
        _ => Disposition::PreMutation,
    };
    match operation.run_with(work, effect).await {
        Ok(()) => format!("ok {}", lease.token().generation),
        Err(RunError::Failed(fault)) => told(&fault),
        Err(error) => format!("lost: {error}"),
    }
}

fn told(fault: &Fault) -> String {
    match fault {
        Fault::Fenced(why) => format!("fenced {}: {why}", why.code()),
        _ => format!("failed: {fault}"),
    }
}

fn busy(error: &AcquireError<SessionHolder>) -> String {
    match error {
        AcquireError::Refused(Refusal::Held(held)) => format!("busy {}", held.by.agent()),
        _ => format!("failed: {error}"),
    }
}
