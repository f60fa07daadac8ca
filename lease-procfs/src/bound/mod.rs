//! Process-bound leases: the gates before them, the record behind them, and their receipts.
//!
//! An *allocation* says who owns a task and keeps its unfinished work. The lease of an allocation says
//! which live process may write there now. The two are separate: a lease that is lost, released or
//! taken over changes nothing about who owns what.
//!
//! Three pure functions hold the rules: [`admit()`] before a lease, [`entitled()`] before a write,
//! [`ReleaseOnBehalf::action`] before a release for somebody else. None of them decides who gets a
//! lease: they hand the core an action, or say why there is none. They read no store, no clock and no
//! `/proc`; a keeper hands them what it saw, in the critical section in which it commits.
//!
//! [`Ledger`] is the keeper in memory: the core's registry with what is filed beside each lease.
//! It is public because a controller in memory would otherwise be sixty lines that everybody writes
//! again, three of them easy to get wrong: what a question is aimed at, what a renewal files, and that
//! the gates see the lease that the core decides on. It is no authority of its own: a durable store or
//! an asynchronous front end calls the same three functions in its own transaction.
//!
//! # How to use it
//!
//! A controller acquires for a program that it started, renews for it, and hands the lease to the next
//! one once the first is proven gone:
//!
//! ```
//! use std::process::Command;
//! use std::time::Duration;
//!
//! use lease_core::{AuthorityId, Code, LeaseId, LeasePolicy, Moment, Seen, Turn};
//! use lease_procfs::bound::{
//!     AllocationId, AllocationRecord, AllocationView, Answered, Asked, Checkout, Ledger, Lifecycle,
//!     Marker, OwnerId, Refused, Release, ReleaseOnBehalf, RepositoryId, Request, Role,
//!     RoleAnswer, StoreLock, Target, observing,
//! };
//! use lease_procfs::{Pid, ProcFs, ProcLiveness, ProcessHolder, ProcessIdentity, TargetPath};
//!
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // What the controller's own store says of the allocation, and what it sees of the checkout.
//! let repository = RepositoryId::new("repo-1")?;
//! let record = AllocationRecord {
//!     allocation: AllocationId::new("alloc-7")?,
//!     version: 12,
//!     path: TargetPath::resolve("/nowhere/alloc-7")?,
//!     owner: OwnerId::new("owner-a")?,
//!     role: Role::new("feature")?,
//!     lifecycle: Lifecycle::new("ACTIVE")?,
//!     bindings: Vec::new(),
//! };
//! let view = AllocationView {
//!     target: Target::Ours,
//!     lock: StoreLock::Sound,
//!     marker: Marker::Sound,
//!     repository: Some(&repository),
//!     record: Some(&record),
//!     checkout: Checkout::default(),
//! };
//! let roles = |role: &Role| match role.as_str() {
//!     "feature" => RoleAnswer::Required,
//!     _ => RoleAnswer::Invalid,
//! };
//!
//! // The leases. Ids are random bytes from your system, time is a reading of a clock that counts suspend.
//! let proc = ProcFs::system();
//! let own = ProcessIdentity::own(&proc)?;
//! let authority = AuthorityId::from_random([7; 16]);
//! let mut ledger = Ledger::new(authority, LeasePolicy::process_bound(), own.boot_id);
//! let liveness = ProcLiveness::new(proc.clone());
//! let mut drawn = 0_u128;
//! let mut acquire = |ledger: &mut Ledger, request: &Request<'_>, seconds: u64| {
//!     // Whoever is in the way is looked at between two calls; a shared ledger is locked in each.
//!     observing(&liveness, |answers| {
//!         let mut lease_id = || { drawn += 1; LeaseId::from_random(drawn.to_be_bytes()) };
//!         let mut seen = Seen::at(Moment::from_millis(seconds * 1_000));
//!         seen.answers = answers;
//!         ledger.acquire(request, &view, &roles, &mut Turn::new(seen, &mut lease_id))
//!     })
//! };
//! let code = |asked| match asked {
//!     Ok(Asked::Done(Answered::Granted { receipt, .. })) => receipt.change.code,
//!     Ok(other) => panic!("no grant: {other:?}"),
//!     Err(refused) => Refused::code(&refused),
//! };
//!
//! // A program of its own group, and the lease for it. Renewed without a term, the expiry stays.
//! # use std::os::unix::process::CommandExt as _;
//! let mut program = Command::new("sleep").arg("1000").process_group(0).spawn()?;
//! let process = ProcessIdentity::of(&proc, Pid::new(i64::from(program.id()))?)?;
//! let first = ProcessHolder::new("agent-a", process)?.with_session("s-1")?;
//! let request = Request::new(&first).with_ttl(Duration::from_secs(60));
//! assert_eq!(code(acquire(&mut ledger, &request, 0)), Code::LeaseAcquired);
//! assert_eq!(code(acquire(&mut ledger, &Request::new(&first), 5)), Code::Renewed);
//!
//! // Nobody else gets it while the program runs, not even after the term.
//! let second = ProcessHolder::new("agent-b", own)?;
//! assert_eq!(code(acquire(&mut ledger, &Request::new(&second), 61)), Code::LeaseHeld);
//!
//! // Once it is proven gone, with its group and everybody in the path, the lease is taken over.
//! program.kill()?;
//! program.wait()?;
//! assert_eq!(code(acquire(&mut ledger, &Request::new(&second), 62)), Code::TakenOver);
//!
//! // A release by whoever can state the whole identity. The holder lives, so its word is enough.
//! let release = Release::OnBehalf(ReleaseOnBehalf::of(second));
//! let released = observing(&liveness, |answers| {
//!     let mut no_new_lease = || LeaseId::NIL;
//!     let mut seen = Seen::at(Moment::from_millis(63_000));
//!     seen.answers = answers;
//!     ledger.release(&record.allocation, &release, &mut Turn::new(seen, &mut no_new_lease))
//! })?;
//! assert!(matches!(released, Asked::Done(receipt) if receipt.change.code == Code::LeaseReleased));
//! # Ok(())
//! # }
//! ```

mod admit;
mod allocation;
mod entitled;
mod ledger;
mod name;
mod observing;
mod receipt;
mod record;
mod refused;
mod release;
mod roles;
#[cfg(feature = "serde")]
mod told;
mod wall;
#[cfg(feature = "serde")]
mod wire;

pub use admit::{Admission, Admitted, Request, Standing, admit};
pub use allocation::{
    AllocationRecord, AllocationView, Checkout, Marker, Place, PlacePart, StoreLock, Target,
};
pub use entitled::{Claim, Confirmed, Entitlement, entitled};
pub use ledger::{Adoption, Answered, Asked, Ledger, Revocation};
pub use name::{
    AllocationId, AllocationIdError, Lifecycle, NameError, OwnerId, RepositoryId, Role,
};
pub use observing::observing;
pub use receipt::{
    GrantReason, GrantReceipt, Granted, NoAdmission, NotApplicable, Previous, ReleaseReason,
    ReleaseReceipt, WorkState,
};
pub use record::{Filing, LeaseRecord, Present, RECORD_SCHEMA};
pub use refused::{CheckoutFault, HolderFault, MetadataFault, Refused, Verb};
pub use release::{Release, ReleaseOnBehalf};
pub use roles::{RoleAnswer, RoleClassifier};
pub use wall::{WallStamp, WallStampError};
