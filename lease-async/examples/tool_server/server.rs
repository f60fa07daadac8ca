//! Accepts connections, and answers their lines.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lease_async::{AcquireError, LeaseError, LeaseGuard, Leases, RunError, Session, SessionHolder};
use lease_core::{Disposition, FenceGate, OperationKind, Refusal};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::lines::line;

/// How long to wait after the system has no descriptor left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The application: a text for each part, each behind its fence.
#[derive(Debug, Default)]
pub(crate) struct Document {
    parts: Mutex<BTreeMap<String, (FenceGate, String)>>,
}

/// How a call of the application fails.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Before anything was changed.
    Invalid,
    /// In the middle.
    Half,
    /// A successor has written already.
    Fenced,
}

impl Document {
    fn read(&self, part: &str) -> String {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts
            .get(part)
            .map(|(_, text)| text.clone())
            .unwrap_or_default()
    }

    /// Writes under a lease: the fence stands before the first write, in the same lock.
    fn write(&self, lease: &LeaseGuard, part: &str, text: &str) -> Result<(), Fault> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, kept) = parts.entry(part.to_owned()).or_default();
        gate.enter(&lease.token()).map_err(|_older| Fault::Fenced)?;
        text.clone_into(kept);
        Ok(())
    }
}

/// Accepts connections.
pub(crate) async fn serve(listener: UnixListener, leases: Leases, document: Arc<Document>) {
    loop {
        let Ok((stream, _from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (leases, document) = (leases.clone(), Arc::clone(&document));
        tokio::spawn(async move {
            // A connection that fails has ended, and everything it held is free.
            drop(converse(stream, &leases, &document).await);
        });
    }
}

/// One connection: one session. However this ends, dropping the session is the disconnect.
async fn converse(stream: UnixStream, leases: &Leases, document: &Document) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut session: Option<Session> = None;
    let mut held = BTreeMap::new();
    while let Some(line) = line(&mut read).await? {
        let mut words = line.splitn(4, ' ');
        let (Some(agent), Some(verb), Some(part)) = (words.next(), words.next(), words.next())
        else {
            write.write_all(b"wrong: AGENT VERB PART [TEXT]\n").await?;
            continue;
        };
        if session.is_none() {
            session = leases.connect(agent).ok();
        }
        let answer = match &session {
            Some(session) => {
                let text = words.next().unwrap_or_default();
                answer(session, &mut held, document, [verb, part, text]).await
            }
            None => "wrong: no such agent".to_owned(),
        };
        write.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(
    session: &Session,
    held: &mut BTreeMap<String, LeaseGuard>,
    document: &Document,
    [verb, part, text]: [&str; 3],
) -> String {
    // As the lease has it, or one part would have two texts and two fences.
    let part = part.strip_prefix('/').unwrap_or(part);
    match verb {
        "get" => format!("ok {}", document.read(part)),
        "release" => match held.remove(part) {
            Some(lease) => match lease.release().await {
                Ok(released) => format!("ok {}", released.code()),
                Err(failed) => lost(&failed.error),
            },
            None => "wrong: not held".to_owned(),
        },
        "set" | "call" => {
            // Each call asks anew: it is re-entry while the part is held, and a new lease after it was lost.
            let lease = match session.acquire(part).await {
                Ok(lease) => lease,
                Err(refused) => return busy(&refused),
            };
            let answer = run(&lease, document, [verb, part, text]).await;
            held.insert(part.to_owned(), lease);
            answer
        }
        _ => "wrong: no such verb".to_owned(),
    }
}

async fn run(lease: &LeaseGuard, document: &Document, [verb, part, text]: [&str; 3]) -> String {
    let kind = match verb {
        "set" => OperationKind::SetProperty,
        _ => OperationKind::CallMethod,
    };
    let operation = match lease.begin_kind(kind).await {
        Ok(operation) => operation,
        Err(error) => return lost(&error),
    };
    let work = async {
        if verb == "set" && text.is_empty() {
            return Err(Fault::Invalid);
        }
        document.write(lease, part, text)?;
        if verb == "call" && text == "crash" {
            return Err(Fault::Half);
        }
        Ok(())
    };
    let effect = |fault: &Fault| match fault {
        Fault::Invalid | Fault::Fenced => Disposition::PreMutation,
        Fault::Half => Disposition::Unknown,
    };
    match operation.run_with(work, effect).await {
        Ok(()) => format!("ok {}", lease.token().generation),
        Err(RunError::Failed(fault)) => format!("failed {fault:?}"),
        Err(error) => format!("lost: {error:?}"),
    }
}

fn busy(error: &AcquireError<SessionHolder>) -> String {
    let AcquireError::Refused(Refusal::Held(held)) = error else {
        return format!("wrong: {error}");
    };
    let agent = held.by.agent();
    match held.expires_in {
        Some(left) => format!(
            "busy {agent}, at most {} s if it stays idle",
            left.as_secs()
        ),
        None => format!("busy {agent}"),
    }
}

fn lost(error: &LeaseError<SessionHolder>) -> String {
    format!("lost: {error}")
}
