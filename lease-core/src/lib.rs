//! The decision core of fenced writer leases: temporary, exclusive, fenced rights to write one
//! resource.
//!
//! It does no I/O, reads no clock, draws no random number, and knows no process, path, database or
//! runtime. Time, evidence and ids come in; decisions, receipts and deadlines go out.
//!
//! # The contract
//!
//! 1. A driver fetches the [`Scene`] and calls [`decide`].
//! 2. [`Decision::Ask`]: it observes the holders with a [`HolderLiveness`], outside any lock, and calls
//!    again. Doubt never grants.
//! 3. [`Decision::Change`]: it calls [`Plan::commit`], in the critical section in which it fetched, with
//!    a [`Fresh`] generation exactly when [`Plan::created`]. That is the only place where cells change.
//! 4. [`Decision::Refuse`]: nothing changed.
//! 5. The holder passes a [`FenceGate`] at the resource before it reads or writes.
//!
//! [`Registry`] is that driver for memory. [`kernel_contention`] is the decision for kernel locks, which
//! have neither token nor term.
//!
//! # What is promised
//!
//! At no instant do two holders have overlapping resources under one authority. Generations only grow.
//! An older token changes nothing. An operation in flight is never ended by a term. A failed operation
//! frees its lease only if it made the lease and left nothing behind. Every change has a [`Receipt`].
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `serde` | stable stored forms of receipts, policies, verdicts and the fence; no behaviour |
//! | `falsify` | a switch that plants one fault in the decisions, for tests of the tests only |
//!
//! # Where to start reading
//!
//! [`Registry`], then [`decide`], then [`LeasePolicy`].
#![no_std]
#![warn(
    clippy::alloc_instead_of_core,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

extern crate alloc;

/// Whether a fault is planted, for tests of the tests: `false` without the feature `falsify`.
#[cfg(not(feature = "falsify"))]
macro_rules! planted {
    ($variant:ident) => {
        false
    };
    (same_agent $one:expr, $other:expr, $variant:ident) => {
        false
    };
}
/// Whether a fault is planted, for tests of the tests.
#[cfg(feature = "falsify")]
macro_rules! planted {
    ($variant:ident) => {
        $crate::falsify::is($crate::falsify::Variant::$variant)
    };
    (same_agent $one:expr, $other:expr, $variant:ident) => {
        planted!($variant) && $crate::falsify::same_agent($one, $other)
    };
}

mod action;
mod cell;
mod change;
mod code;
mod decision;
#[cfg(feature = "falsify")]
pub mod falsify;
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
mod shown;
mod text;
mod time;
#[cfg(feature = "serde")]
mod wire;

pub use action::{Action, AdoptProof, By, Call, Scene, Seen, Wait, WaiterId};
pub use cell::{Cell, Disposition, Lease, Operation, Provenance, RecordError};
pub use change::{Change, Detail, Failure, Kept, ObservedBy};
pub use code::{Code, CodeError};
pub use decision::{Decision, decide, sweep};
pub use fence::{FenceGate, Fenced, GateError};
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
pub use registry::{Finish, LeaseView, Receipts, Registry, Request, Settled, Start, Step, Turn};
pub use time::{Clock, Moment};
