//! The decision core of fenced writer leases.
#![no_std]
#![warn(
    clippy::alloc_instead_of_core,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

extern crate alloc;

mod code;
mod holder;
mod id;
mod key;
pub mod limits;
mod liveness;
mod policy;
mod time;
#[cfg(feature = "serde")]
mod wire;

pub use code::{Code, CodeError};
pub use holder::{Holder, NameError, SessionHolder};
pub use id::{At, AuthorityId, FencingToken, Generation, IdError, LeaseId, OpId, Seq, Slot};
pub use key::{KeyError, ResourceKey};
pub use liveness::{Answer, Evidence, HolderLiveness, Locality, Question, Verdict};
pub use policy::{
    Again, Capabilities, LeasePolicy, OnExpiry, Order, PolicyBuilder, PolicyError, ProcessProof,
    Proofs, Term,
};
pub use time::{Clock, Moment};
