//! The decision core of fenced writer leases.
#![no_std]
#![warn(
    clippy::alloc_instead_of_core,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

extern crate alloc;

mod action;
mod cell;
mod change;
mod code;
mod decide;
mod fence;
mod holder;
mod id;
mod kernel;
mod key;
pub mod limits;
mod liveness;
mod operation;
mod outcome;
mod plan;
mod policy;
mod receipt;
mod refusal;
mod registry;
mod time;
#[cfg(feature = "serde")]
mod wire;

pub use action::{Action, AdoptProof, By, Call, Scene, Seen, Wait, WaiterId};
pub use cell::{Cell, Disposition, Lease, Operation, Provenance, RecordError};
pub use change::{Change, Detail, Failure, Kept, ObservedBy};
pub use code::{Code, CodeError};
pub use decide::{Decision, decide, sweep};
pub use fence::{FenceGate, Fenced};
pub use holder::{Holder, NameError, SessionHolder};
pub use id::{At, AuthorityId, FencingToken, Generation, IdError, LeaseId, OpId, Seq, Slot};
pub use kernel::{
    Attribution, BusyReason, Contention, KernelSeen, KernelState, RecordClass, kernel_contention,
};
pub use key::{KeyError, ResourceKey};
pub use liveness::{Answer, Evidence, HolderLiveness, Locality, Question, Verdict};
pub use operation::{Claim, OperationKind};
pub use outcome::Outcome;
pub use plan::{Cells, Fresh, Grant, Plan, Subject};
pub use policy::{
    Again, Capabilities, LeasePolicy, OnExpiry, Order, PolicyBuilder, PolicyError, ProcessProof,
    Proofs, Term,
};
pub use receipt::{Note, RECEIPT_SCHEMA, Receipt};
pub use refusal::{Behind, Bounded, Counter, Held, Mismatch, Refusal, TtlFault, Verb};
pub use registry::{LeaseView, Receipts, Registry, Settled, Step, Turn};
pub use time::{Clock, Moment};
