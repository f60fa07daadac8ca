//! Linux evidence for fenced writer leases: who a process is, and whether it lives.
//!
//! It decides no lease. It says what is known of a holder, with the proof, and says "unknown" about
//! everything else; a pid alone, an age or a failed look is never a proof of death.
//!
//! # How to use it
//!
//! A process describes itself once and hands the [`ProcessIdentity`] to whoever keeps the lease. A
//! contender asks [`ProcLiveness`] about the recorded identity and gets a
//! [`Verdict`](lease_core::Verdict): alive, dead, occupied, or unknown, each with a stable code of
//! [`Proof`].
//!
//! ```
//! use lease_core::{Locality, Verdict};
//! use lease_procfs::{ProcFs, ProcLiveness, ProcessHolder, ProcessIdentity};
//!
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let proc = ProcFs::system();
//! let own = ProcessIdentity::own(&proc)?;
//! let holder = ProcessHolder::new("editor", own)?.with_session("window-1")?;
//!
//! // The record of a lease keeps the identity as text, or in the form of the `serde` feature.
//! let recorded: ProcessIdentity = holder.process().to_string().parse()?;
//! assert_eq!(recorded, own);
//!
//! // Some other process, later:
//! let verdict = ProcLiveness::new(proc).judge(&recorded, Locality::ThisMachine);
//! assert!(!matches!(verdict, Verdict::Dead(_)), "the holder runs: it is this very program");
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! # What is proof
//!
//! The table is [`verdict()`], one function over [`facts`]. In short: a pidfd inode is never used
//! again in a boot, so it tells the recorded process from every later owner of its number. Before
//! Linux 6.9 start ticks take its place, and no process is described until the clock is past the
//! tick in which it started. From another pid namespace, through a `/proc` that is not ours, or
//! where the boot id may be covered by a mount, nothing is looked up at all.
//!
//! One boot id means one running kernel. A virtual machine that is copied while it runs breaks that: the copy has
//! the same boot id and the same numbers, and takes records of the first for its own, whatever
//! [`Locality`](lease_core::Locality) is said. Boot the copy before it meets the records of the first, or give it
//! others. A process that CRIU restores has a new start and a new inode: to others the holder is dead, so the
//! program must take its leases anew, and make a new [`ProcFs`]. See `docs/hazards.md`.
//!
//! # Waiting for an end
//!
//! A [`DeathWatch`] tells of deaths as they happen, of strangers as well as of children, without a
//! thread and without asking again and again. One descriptor a process; an event loop polls the
//! watch itself. A [`KeptProcess`] answers about one process with one system call.
//!
//! ```
//! use lease_core::Locality::ThisMachine;
//! use lease_procfs::{DeathWatch, Found, ProcFs, ProcessIdentity};
//!
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !lease_procfs::Kernel::detect().pidfd { return Ok(()) }
//! let proc = ProcFs::system();
//! let mut child = std::process::Command::new("sleep").arg("1000").spawn()?;
//! let process = ProcessIdentity::of(&proc, child.id().to_string().parse()?)?;
//!
//! let deaths = DeathWatch::new(&proc)?;
//! match deaths.watch(&process, ThisMachine)? {
//!     Found::Running(_id) => child.kill()?,
//!     Found::Gone(proof) => panic!("it was just started: {proof:?}"),
//! }
//! for death in deaths.wait(None)? {
//!     assert_eq!(death.process(), &process);
//! }
//! child.wait()?; // It is still there to be reaped.
//! # Ok(())
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! # What is left of its work
//!
//! A launcher may be gone although its child is still at work. Where the policy asks, a holder that
//! was seen dead is looked at once more: a member of its recorded process group, or a process whose
//! working directory, descriptor or mapping lies in the resource's path, makes it occupied. Groups
//! take one system call when they are empty; paths take one [`Pass`] over `/proc` for any number of
//! questions, and know the path by every name it is mounted under, in other mount namespaces as
//! well. What it cannot see: a process outside of this pid namespace, one in another group that uses
//! nothing in the path, and, unless root looks, other users' processes, which are counted. Nor does
//! `/proc` show what is on its way between two processes, what only `io_uring` or the kernel itself
//! has open, as for a loop device, and where a file lies that was opened through a mount that was
//! taken away since or is another namespace's. An overlay is a file system of its own: who writes
//! through one is in the path of the overlay, and not in that of its upper directory.
//!
//! # What is where
//!
//! | module | answers |
//! | --- | --- |
//! | [`binding`] | which texts say that a process uses a place, and whose they are |
//! | [`bound`] | what must hold before a process may have a lease, and what a lease lets it do |
//! | [`clear`] | whether anything of an execution is left |
//! | [`facts`] | what a verdict looks at |
//! | [`select`] | which process a lease is for, when somebody else names it |
//! | [`work`] | who is still at the work of a dead holder |
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `serde` | forms of [`ProcessIdentity`], of [`ProcessHolder`], and of what [`bound`] files and tells; integers above 2^53 are text |
//!
//! On other systems the crate builds, describes nothing and knows nothing.
//!
//! # Where to start reading
//!
//! `verdict.rs`, then `facts.rs`, then `identity.rs`; `linux.rs` gathers the facts, and
//! `watch/deaths.rs` waits.

pub mod binding;
pub mod bound;
pub mod clear;
#[cfg(target_os = "linux")]
mod clock;
mod describe;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
pub mod facts;
mod holder;
mod id;
mod identity;
pub mod limits;
#[cfg(target_os = "linux")]
mod linux;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nobody reads mounts there")
)]
mod mountinfo;
#[cfg(target_os = "linux")]
mod own;
mod probe;
mod procfs;
mod proof;
pub mod select;
mod stat;
#[cfg(target_os = "linux")]
mod sys;
mod text;
mod verdict;
mod watch;
#[cfg(feature = "serde")]
mod wire;
pub mod work;

pub use lease_core;

pub use describe::DescribeError;
pub use holder::{LabelError, ProcessHolder, TargetPath, TargetPathError};
pub use id::{
    BootId, BootIdError, LaunchId, LaunchIdError, Namespace, NamespaceInode, Pid, PidError,
    Sameness, StartTicks, StartTicksError,
};
pub use identity::{Matching, Part, ProcessIdentity};
pub use probe::ProcLiveness;
pub use procfs::{Kernel, ProcFs};
pub use proof::Proof;
pub use stat::{Stat, StatError};
pub use text::{IdentityError, IdentityReason};
pub use verdict::verdict;
pub use watch::{Death, DeathWatch, Found, KeptProcess, WatchError, WatchId};
pub use work::{Exclusion, OccupancyExclusion, Occupant, Occupants, Pass, ProcessGroup, ScanError};
