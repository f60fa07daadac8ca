//! The write lock of one machine: a kernel lock that names its holder and never steals.
//!
//! One process at a time, and one thread of it, writes a database file or whatever else has a name
//! in a local file system. It protects nothing by itself: every writer has to take it. It decides
//! nothing by age, and it takes the lock from nobody.
//!
//! # How to use it
//!
//! ```
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use lease_sqlite::{LockOptions, WaitBudget};
//!
//! # let directory = std::env::temp_dir().join(format!("lease-sqlite-doc-{:?}", std::thread::current().id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let database = directory.join("app.db");
//! let lock = LockOptions::new().role("indexer").open(&database)?;
//! let hold = lock.acquire(WaitBudget::Within(Duration::from_secs(5)))?;
//! // .. write ..
//! hold.check()?; // still ours? before a write that must not meet another
//! hold.release()?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! A hold ends once; the types know no second end:
//!
//! ```compile_fail,E0382
//! fn twice(hold: lease_sqlite::Hold) {
//!     let _first = hold.release();
//!     let _second = hold.release();
//! }
//! ```
//!
//! `examples/notebook` is a program whose every command is a way to use it: a connection that takes the lock for what
//! writes, a hold for a file that has no transactions, and who is named where it is busy.
//!
//! # What holds
//!
//! `BEGIN EXCLUSIVE` on a database of its own beside the resource, the *mutex*. The system frees it
//! when the process ends, however it ends. Beside it lies the *record* of who held last: it names,
//! and neither grants nor excludes.
//!
//! **Nobody in this process may open the mutex file** but SQLite on behalf of this crate: closing it
//! again drops the lock without a sign. [`Hold::check`] notices it.
//!
//! # Tasks, and threads that serve many
//!
//! A task waits by `WriteLock::acquire_async` (feature `async`), which blocks no thread of its executor,
//! whichever that is. [`ForbidBlocking`] marks a thread on which the other way to wait is refused,
//! and [`AllowBlocking`] lifts that by name:
//!
//! ```
//! # #[cfg(not(all(feature = "async", target_os = "linux")))]
//! # fn main() {}
//! # #[cfg(all(feature = "async", target_os = "linux"))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use lease_sqlite::{AcquireError, AllowBlocking, ForbidBlocking, WaitBudget, WriteLock};
//!
//! # let directory = std::env::temp_dir().join(format!("lease-sqlite-task-{:?}", std::thread::current().id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let database = directory.join("app.db");
//! // This thread runs every task of the program.
//! let _mark = ForbidBlocking::on_this_thread();
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! runtime.block_on(async {
//!     let lock = WriteLock::open(&database)?;
//!     let patience = WaitBudget::Within(Duration::from_secs(5));
//!     let hold = lock.acquire_async(patience).await?; // other tasks go on meanwhile
//!     // .. write, where waiting for the disk hurts nobody ..
//!     hold.release()?;
//!
//!     let refused = lock.acquire(patience);
//!     assert!(matches!(refused, Err(AcquireError::Forbidden { .. })));
//!     let lifted = AllowBlocking::new("settings::save", "once, when the program ends");
//!     lock.acquire(patience)?.release()?;
//!     drop(lifted);
//!     assert_eq!(lock.health().blocking.sites[0].used, 1);
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `async` | [`WriteLock`]`::acquire_async`: the lock for tasks, on whatever executor |
//! | `bundled` (default) | SQLite, compiled in |
//! | `legacy-v1` | claims of protocol 1, files whose existence is the claim of the pid in them, are judged; without it they keep everybody out |
//! | `test-util` | fault points, and the parser of records |
//!
//! Only Linux is supported; elsewhere the crate is empty.
//!
//! # Where to start reading
//!
//! `state.rs`: one attempt, step by step; then `mutex.rs` and `fence.rs`.
#![cfg(target_os = "linux")]

mod busy;
mod clock;
pub mod config;
mod doorman;
mod error;
mod fault;
mod fence;
mod files;
mod forbid;
mod gate;
mod guarded;
mod health;
mod hold;
mod legacy;
pub mod limits;
mod lock;
mod mutex;
mod options;
mod outlook;
mod own;
mod path;
mod plain;
mod post;
mod record;
mod state;
mod sweep;
mod sys;
mod token;
mod wait;

pub use lease_core;
/// The SQLite of the mutex. A process has one, so the protected database is opened through it too.
pub use rusqlite;

pub use busy::{Adopted, AdoptionCause, Busy};
pub use clock::{SystemTiming, Timing};
pub use error::{
    AcquireError, GuardError, Lost, NotAMutex, OpenError, ReleaseError, SqliteError, Step,
};
#[cfg(feature = "test-util")]
pub use fault::FaultPoint;
pub use forbid::{AllowBlocking, AllowedSite, Blocking, ForbidBlocking};
pub use guarded::{Guarded, GuardedStatement, GuardedTransaction};
pub use health::{Happening, Health, Incident, LockEvent};
pub use hold::{BudgetPause, Granted, Hold, Lane, Released};
pub use lock::WriteLock;
#[cfg(feature = "test-util")]
pub use lock::close_all;
pub use options::LockOptions;
pub use record::LastWriter;
#[cfg(feature = "test-util")]
pub use record::testing;
pub use sweep::Swept;
pub use token::HoldToken;
pub use wait::WaitBudget;
