//! What a decision is asked, and everything it may look at.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::cell::{Cell, Disposition, Provenance};
use crate::id::{At, FencingToken, Generation, LeaseId, OpId};
use crate::key::ResourceKey;
use crate::liveness::Answer;
use crate::time::Moment;

/// What somebody asks of one resource, or of all resources of one holder.
#[derive(Clone, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "every backend must handle every action"
)]
pub enum Action<H> {
    /// Asks for the lease; of a present holder, re-entry or renewal.
    Acquire {
        /// Who asks.
        holder: H,
        /// The term, where the policy lets the request name it.
        ttl: Option<Duration>,
    },
    /// Shows progress.
    Touch(At),
    /// Renews, with an explicit term or with the old one.
    Renew {
        /// Which lease.
        at: At,
        /// The new term, from now on.
        ttl: Option<Duration>,
    },
    /// Puts an operation in flight.
    Begin {
        /// Which lease.
        at: At,
        /// Random id of the operation.
        op: OpId,
        /// Whether this operation's own acquire created the lease.
        from: Provenance,
    },
    /// Ends an operation.
    ///
    /// With [`OpId::ACQUISITION`] it gives back a grant that nobody received.
    End {
        /// Which lease.
        at: At,
        /// Which operation.
        op: OpId,
        /// How it ended; a failure says what it may have changed.
        result: Result<(), Disposition>,
    },
    /// Gives the lease back.
    Release(By<H>),
    /// Says that the holder's connection ended. Concerns all its leases.
    Disconnect(H),
    /// Stores a one-use ticket for [`Action::Adopt`].
    Offer {
        /// Which lease.
        at: At,
        /// Random bytes that the adopter must show. `Debug` hides them.
        ticket: [u8; 16],
    },
    /// Hands the lease to another holder, with the same token.
    Adopt {
        /// Which lease.
        token: FencingToken,
        /// By whose will.
        proof: AdoptProof<H>,
        /// Who holds it then.
        to: H,
    },
    /// Retires a lease by an operator's will. An unfenced resource is *not* protected by it.
    Revoke {
        /// Which lease; another one is left alone.
        expected: Generation,
        /// Who says so.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
        /// Also when nothing proves that the holder is gone.
        even_if_alive: bool,
    },
    /// Asks whether the holder may write now. Changes nothing.
    Check(By<H>),
    /// Ends leases whose term is over. Never refused.
    Sweep,
}

/// How a lease is named by whoever wants to end or check it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "every backend must handle every way"
)]
pub enum By<H> {
    /// By its token: the bearer runs, so nothing is asked about it.
    Token(At),
    /// By the full identity of its holder.
    Holder {
        /// The identity, equal in every part.
        holder: H,
        /// The lease that is meant, if known.
        lease: Option<LeaseId>,
        /// Somebody says this *for* a holder that has exited; that takes proof and the lease id.
        exited: bool,
    },
}

/// By whose will a lease is handed over.
#[derive(Clone, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "every backend must handle every proof"
)]
pub enum AdoptProof<H> {
    /// The present holder's own.
    Present(H),
    /// The ticket that was offered. Good once.
    Ticket([u8; 16]),
}

/// Names one waiting request within its registry. Later requests have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct WaiterId(
    #[cfg_attr(feature = "serde", serde(with = "crate::wire::wide"))] pub(crate) u64,
);

impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl WaiterId {
    /// Makes an id out of a driver's own order of waiters.
    #[must_use]
    pub const fn from_order(number: u64) -> Self {
        Self(number)
    }

    /// Returns the place in the order.
    #[must_use]
    pub const fn order(self) -> u64 {
        self.0
    }
}

/// Everything outside the core that one decision may look at.
///
/// The driver fetches it in the same critical section in which it commits.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a driver gives every part")]
pub struct Scene<'a, H> {
    /// The cell asked for, free or held. `None` for Disconnect and Sweep.
    pub own: Option<(&'a ResourceKey, &'a Cell<H>)>,
    /// Overlapping cells that are held, and those of the asking holder that overlap a waiter of
    /// `queued`. For Disconnect every cell of that holder.
    pub near: &'a [(&'a ResourceKey, &'a Cell<H>)],
    /// Earlier waiters, the earliest first: those that overlap, and those that overlap one of these.
    pub queued: &'a [(WaiterId, &'a ResourceKey, &'a H)],
    /// Cells whose term may be over: at most 64, oldest generation first.
    pub due: &'a [(&'a ResourceKey, &'a Cell<H>)],
}

impl<H> Clone for Scene<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Scene<'_, H> {}

/// What was seen besides the cells.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a driver gives every part")]
pub struct Seen<'a> {
    /// The present moment of the decision clock.
    ///
    /// It is believed: an authority never goes back behind the latest one it was given, so a reading in
    /// the wrong unit, far in the future, makes every later term endless.
    pub now: Moment,
    /// Milliseconds since the Unix epoch, for people only. Decides nothing.
    pub wall_ms: Option<i64>,
    /// What was observed about holders.
    pub answers: &'a [Answer],
}

impl Seen<'_> {
    /// Only the time.
    #[must_use]
    pub const fn at(now: Moment) -> Self {
        Self {
            now,
            wall_ms: None,
            answers: &[],
        }
    }
}

/// How long a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "every backend must handle every case"
)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this moment; the last attempt is made at it.
    Until(Moment),
    /// Without end.
    Forever,
}

/// One request to an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Call<H> {
    /// Which resource; `None` for Disconnect and Sweep.
    pub resource: Option<ResourceKey>,
    /// What is asked.
    pub action: Action<H>,
    /// How long it may wait; only Acquire waits.
    pub wait: Wait,
}
