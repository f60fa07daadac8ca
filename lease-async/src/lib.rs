//! Fenced writer leases for tokio: sessions, guards, waiting, and loss that is noticed in time.
//!
//! A long-running service holds leases across await points, waits for them in tasks that may be dropped
//! at any moment, and ends in the middle of things. An [`Authority`] decides who holds what; this crate
//! brings it the call, keeps what must not be lost, and says in time what was.
//!
//! ```
//! use std::time::Duration;
//! use lease_async::{Leases, Memory};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let leases = Leases::new(Memory::new()?)?;
//! let session = leases.connect("ag-1")?;
//! let lease = session.acquire("app/viewport").within(Duration::from_secs(5)).await?;
//!
//! let operation = lease.begin().await?;
//! let seven = operation.run(async { Ok::<_, std::io::Error>(7) }).await?;
//! assert_eq!(seven, 7);
//!
//! lease.release().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - A session is one writer. Its id is minted here; dropping it frees everything it holds, at once.
//! - Every future may be dropped at every await: no lease is left without an owner, no waiter behind one
//!   that is gone.
//! - A guard's own check says lost strictly before anybody else can be granted.
//! - Dropping anything never panics and never blocks, inside, outside and after a runtime.
//!
//! An unfenced resource is not protected from a writer that does not look: pass [`LeaseGuard::token`] to
//! a [`FenceGate`](lease_core::FenceGate) before the first read.
//!
//! A gate that is stored outlives an authority in memory, which is another one at each start. So whoever owns
//! the resource lets the new one succeed, or the gate turns every token away:
//!
//! ```
//! use lease_async::{Leases, Memory};
//! use lease_core::FenceGate;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let mut gate = FenceGate::new(); // the stored one
//! # let before = Leases::new(Memory::new()?)?;
//! # before.connect("ag-1")?.acquire("doc").await?.enter(&mut gate)?;
//! let leases = Leases::new(Memory::new()?)?;
//! gate.succeed(leases.authority().id())?;
//! let session = leases.connect("ag-1")?;
//! session.acquire("doc").await?.enter(&mut gate)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A virtual machine that is copied while it runs, or set back to a snapshot, has the authority twice, or again:
//! the same id, generations and lease ids, which no gate can tell apart. Start the authority anew there, and let
//! it succeed at the gate.
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `metrics` | measurements by a meter of OpenTelemetry; spans and events are always there, by `tracing` |
//! | `procfs` | sessions of processes whose deaths are seen at once |
//! | `test-util` | `TokioClock` and `ManualClock`, clocks that tests move |
//!
//! # Where to start reading
//!
//! [`Leases`], [`Session`], [`LeaseGuard`], [`Operation`]; for a backend [`Authority`], then `memory/mod.rs`.

mod acquire;
mod atomic {
    //! What of the shared memory `orders/` replaces, to see every order of threads.
    pub(crate) use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
}
mod authority;
mod caught;
mod clock;
#[cfg(all(feature = "procfs", target_os = "linux"))]
mod deaths;
mod error;
mod events;
mod guard;
mod health;
mod hold;
mod ids;
mod incidents;
#[cfg(target_os = "linux")]
mod keeper;
mod leases;
mod liveness;
mod memory;
mod operation;
mod relayed;
mod release;
mod rooms;
mod standing;
#[cfg(target_os = "linux")]
mod sys;
mod table;
mod telemetry;

pub use lease_core;
#[cfg(feature = "procfs")]
pub use lease_procfs;

pub use acquire::{Acquire, AcquireFuture, AsResource};
pub use authority::{Authority, AuthorityError, BoxError, BoxFuture, Reply, ShutdownReport};
pub use clock::{Alarm, AlarmClock, AlarmError, SystemClock};
#[cfg(feature = "test-util")]
pub use clock::{ManualClock, TokioClock};
#[cfg(all(feature = "procfs", target_os = "linux"))]
pub use deaths::{DeathsError, ProcDeaths};
pub use error::{AcquireError, LeaseError, ReleaseError, RunError};
pub use events::{Event, EventSource, Events};
pub use guard::{LeaseGuard, Released};
pub use health::{Health, HeldLease, Reach};
pub use incidents::{Closed, InFlight, Incident, IncidentEvent, IncidentPolicy, Incidents, Stuck};
pub use leases::{ConnectError, Leases, Session};
pub use liveness::{AsyncHolderLiveness, Blocking, DeathSource, Watched};
pub use memory::{Memory, MemoryBuilder};
pub use operation::Operation;
pub use standing::{Loss, Standing};
#[cfg(feature = "metrics")]
pub use telemetry::Metrics;

// What most users need besides this crate.
pub use lease_core::{
    Call, Holder, LeasePolicy, Moment, Outcome, ResourceKey, SessionHolder, Wait,
};
