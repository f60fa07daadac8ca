//! What is traced: an editor dies with a lease in its hands, and the next one goes on.

use std::process::{Child, Command};
use std::time::Duration;

use lease_async::lease_core::{Code, FenceGate, FencingToken};
use lease_async::lease_procfs::{ProcFs, ProcessHolder, ProcessIdentity};
use lease_async::{Event, Events, LeasePolicy, Leases, Memory, Metrics, Session};
use opentelemetry::metrics::Meter;
use tracing::{Instrument as _, info_span};

const DOCUMENT: &str = "/documents/plan";
const TERM: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(20);

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// A process that would run for an hour, and does not outlive the story.
pub(crate) struct Editor(Child);

impl Editor {
    pub(crate) fn start() -> std::io::Result<Self> {
        Command::new("sleep").arg("3600").spawn().map(Self)
    }

    fn kill(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(|_status| ())
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // It may be gone already.
        self.kill().unwrap_or(());
    }
}

/// An authority over processes, whose deaths it sees.
pub(crate) fn leases(meter: &Meter) -> Result<Leases<ProcessHolder>, Problem> {
    let memory = Memory::builder().processes(&ProcFs::system())?.build()?;
    let policy = LeasePolicy::hosted_session(TERM)?;
    let metrics = Metrics::new(meter).with_class(|_resource| "document");
    Ok(Leases::with_policy(memory, policy)?.with_metrics(metrics))
}

/// Kills `editor` while it holds the lease and another one waits. Answers what the other one had.
pub(crate) async fn story(
    leases: &Leases<ProcessHolder>,
    mut editor: Editor,
) -> Result<FencingToken, Problem> {
    let number = editor.0.id().to_string().parse()?;
    let first = connect(
        leases,
        "editor-1",
        ProcessIdentity::of(&ProcFs::system(), number)?,
    )?;
    let begin = async {
        let lease = first.acquire(DOCUMENT).await?;
        // Its work is under way, so no term ends its lease.
        let operation = lease.begin().await?;
        Ok::<_, Problem>((lease, operation))
    };
    let (_lease, operation) = begin.instrument(info_span!("edit", editor = 1)).await?;

    let next = connect(leases, "editor-2", ProcessIdentity::own(&ProcFs::system())?)?;
    let mut events = leases.events();
    let work = take_over(&next).instrument(info_span!("edit", editor = 2));
    let death = async {
        queued(&mut events).await;
        editor.kill()?;
        Ok(())
    };
    let (token, ()) = tokio::try_join!(work, death)?;

    // What is left of the first one comes too late.
    let mut gate = FenceGate::new();
    gate.enter(&token)?;
    let late = info_span!("write", editor = 1);
    assert!(late.in_scope(|| operation.enter(&mut gate)).is_err());
    drop(operation);
    Ok(token)
}

async fn take_over(session: &Session<ProcessHolder>) -> Result<FencingToken, Problem> {
    // Held by another is an answer, not an error.
    assert!(session.acquire(DOCUMENT).await.is_err());
    let lease = session.acquire(DOCUMENT).within(PATIENCE).await?;
    lease.renew(None).await?;
    let token = lease.token();
    lease.release().await.map_err(|refused| refused.error)?;
    Ok(token)
}

fn connect(
    leases: &Leases<ProcessHolder>,
    client: &str,
    process: ProcessIdentity,
) -> Result<Session<ProcessHolder>, Problem> {
    leases.connect_with(|session| ProcessHolder::new(client, process)?.with_session(session))
}

/// Waits until somebody waits.
async fn queued(events: &mut Events<ProcessHolder>) {
    while let Some(event) = events.next().await {
        if matches!(event, Event::Receipt(receipt) if receipt.change.code == Code::Queued) {
            return;
        }
    }
}
