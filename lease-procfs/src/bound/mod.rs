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
mod wall;
#[cfg(feature = "serde")]
mod wire;

pub use admit::{Admission, Admitted, Request, Standing, admit};
pub use allocation::{
    AllocationRecord, AllocationView, Checkout, Marker, Place, PlacePart, StoreLock, Target,
};
pub use entitled::{Claim, Confirmed, Entitlement, entitled};
pub use ledger::{Adoption, Answered, Asked, Ledger};
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
