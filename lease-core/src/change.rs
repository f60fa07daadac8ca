//! What one commit did: small, `Copy`, without text.

use core::time::Duration;

use crate::action::WaiterId;
use crate::cell::{Disposition, Provenance};
use crate::code::Code;
use crate::id::{FencingToken, OpId, Seq};
use crate::time::Moment;

/// One thing that one commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Change {
    /// Its number, strictly growing per issuer.
    pub seq: Seq,
    /// What it was.
    pub code: Code,
    /// The lease it concerns; `None` where there is none.
    pub token: Option<FencingToken>,
    /// When, on the decision clock.
    pub at: Moment,
    /// The rest, by kind.
    pub detail: Detail,
}

impl Change {
    /// Returns whether the code claims anything about the holder's work: an end by term or by proof
    /// says that it is unknown.
    #[must_use]
    pub const fn work_state_unknown(&self) -> bool {
        let ended = matches!(
            self.code,
            Code::Reclaimed | Code::TakenOver | Code::SessionEnded
        );
        ended || matches!(self.detail, Detail::Released { exited: true, .. })
    }
}

/// Whether a lease ended or went to another holder by a change like this, otherwise than by the release of its
/// bearer.
pub(crate) const fn is_loss(code: Code, detail: &Detail, token: Option<FencingToken>) -> bool {
    let quiet = matches!(
        code,
        Code::Touched
            | Code::Entitled
            | Code::NotHeld
            | Code::Offered
            | Code::OperationBegun
            | Code::OperationEnded
            | Code::RetainedAfterFailure
            | Code::Queued
            | Code::WaitTimedOut
    );
    let granted = matches!(
        code,
        Code::Created | Code::LeaseAcquired | Code::Reentrant | Code::Renewed
    );
    let released = matches!(code, Code::Released | Code::LeaseReleased);
    if quiet {
        false
    } else if granted {
        matches!(detail, Detail::Granted { previous, .. } if previous.is_some())
    } else if released {
        matches!(detail, Detail::Released { exited: true, .. })
    } else {
        // A request that was taken back has no token.
        !matches!(code, Code::Abandoned) || token.is_some()
    }
}

/// The fields of a change beyond its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Detail {
    /// Nothing more.
    Plain,
    /// A new lease.
    Granted {
        /// The last moment of its term.
        expires: Option<Moment>,
        /// The lease that it replaced on proof, at the same resource.
        previous: Option<FencingToken>,
    },
    /// Progress or renewal.
    Touched {
        /// The last progress before.
        before: Moment,
        /// The last progress now.
        after: Moment,
        /// The last moment of the term before.
        expired_at: Option<Moment>,
        /// The last moment of the term now.
        expires: Option<Moment>,
    },
    /// An operation is in flight.
    Begun {
        /// Which one.
        op: OpId,
        /// Whether it counts as the lease's creator.
        from: Provenance,
        /// How many are in flight now.
        in_flight: u32,
        /// The last moment of the term now.
        expires: Option<Moment>,
    },
    /// An operation ended and the lease stays.
    Ended {
        /// Which one.
        op: OpId,
        /// How long it was in flight.
        #[cfg_attr(
            feature = "serde",
            serde(with = "crate::wire::nanos", rename = "took_ns")
        )]
        took: Duration,
        /// How many are in flight now.
        in_flight: u32,
        /// The last moment of the term now.
        expires: Option<Moment>,
        /// How it failed, if it did.
        failure: Option<Failure>,
    },
    /// An operation failed and the lease went with it.
    Failed {
        /// Which one.
        op: OpId,
        /// What it said of its effect.
        disposition: Disposition,
    },
    /// A lease was released.
    Released {
        /// How long it was held.
        #[cfg_attr(
            feature = "serde",
            serde(with = "crate::wire::nanos", rename = "held_ns")
        )]
        held: Duration,
        /// The holder had exited, and that is proven.
        exited: bool,
    },
    /// A lease ended with its holder's connection.
    Disconnected {
        /// How many operations were in flight.
        in_flight: u32,
        /// The time since the last progress.
        #[cfg_attr(
            feature = "serde",
            serde(with = "crate::wire::nanos", rename = "idle_ns")
        )]
        idle: Duration,
        /// The term was over already.
        expired: bool,
    },
    /// A lease ended with its term.
    Reclaimed {
        /// The time since the last progress.
        #[cfg_attr(
            feature = "serde",
            serde(with = "crate::wire::nanos", rename = "idle_ns")
        )]
        idle: Duration,
        /// What noticed it.
        observed_by: ObservedBy,
    },
    /// A lease has a new holder.
    HandedOver {
        /// How often it was handed over, this time included.
        handovers: u32,
        /// The last moment of the term now.
        expires: Option<Moment>,
    },
    /// A request waits, or left the queue.
    Waiting {
        /// Which one.
        waiter: WaiterId,
    },
    /// The clock was read earlier than before.
    Clock {
        /// What it said.
        read: Moment,
    },
}

/// How an operation failed whose lease stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Failure {
    /// Whether it counted as the lease's creator.
    pub from: Provenance,
    /// What it said of its effect.
    pub disposition: Disposition,
    /// Why the lease stays.
    pub kept: Kept,
}

/// Why a lease stays after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Kept {
    /// State may be half changed.
    UnknownEffect,
    /// The lease was there before the operation.
    PreExisting,
    /// Others of the same writer have joined since.
    Shared,
}

/// What noticed that a term was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "every call is one of these")]
pub enum ObservedBy {
    /// A request for a lease.
    Request,
    /// A look at the state.
    Inspection,
    /// A call made with a token or in a holder's name.
    TokenCall,
}

impl Failure {
    pub(crate) const fn new(from: Provenance, disposition: Disposition, kept: Kept) -> Self {
        Self {
            from,
            disposition,
            kept,
        }
    }
}
