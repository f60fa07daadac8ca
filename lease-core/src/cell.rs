//! What is stored for one resource, and the questions it answers about itself.

use alloc::vec::Vec;
use core::time::Duration;

use crate::id::{FencingToken, LeaseId, OpId};
use crate::limits::{OPERATIONS, TERM_MAX};
use crate::policy::{LeasePolicy, OnExpiry, Term};
use crate::time::Moment;

/// The stored state of one resource: free, or one lease.
///
/// Only [`Plan::commit`](crate::Plan::commit) changes it. A driver that keeps cells outside memory
/// reads [`Cell::lease`] and restores with [`Cell::load`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell<H> {
    pub(crate) lease: Option<Lease<H>>,
}

/// One lease: who may write, since when, how long, and what is in flight.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "the stored form; drivers restore every field"
)]
pub struct Lease<H> {
    /// Which grant it is.
    pub token: FencingToken,
    /// Who holds it.
    pub holder: H,
    /// The terms it was granted under; contenders are judged by these alone.
    pub terms: LeasePolicy,
    /// When it was granted. Never changes within a generation.
    pub acquired: Moment,
    /// When its holder last showed progress. Never moves back.
    pub touched: Moment,
    /// The last moment within the term; `None` without one.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::wire::required"))]
    pub expires: Option<Moment>,
    /// What is in flight, in order of begin. At most 1,024.
    pub ops: Vec<Operation>,
    /// An operation ended with unknown effect since the grant.
    pub tainted: bool,
    /// Somebody re-entered since the grant, so its creator no longer owns it alone.
    pub shared: bool,
    /// The operation that may call itself the creator has begun.
    pub begun: bool,
    /// How often it was handed over; a verdict about an earlier holder is inert.
    pub handovers: u32,
    /// The one-use ticket of an offered hand-over. `Debug` hides it.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::wire::required"))]
    pub ticket: Option<[u8; 16]>,
}

/// One operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "the stored form; drivers restore every field"
)]
pub struct Operation {
    /// Its random id.
    pub id: OpId,
    /// When it began.
    pub since: Moment,
    /// Whether it created the lease.
    pub from: Provenance,
}

/// Whether a request made the lease it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Provenance {
    /// It made the lease.
    Created,
    /// The lease was there before.
    Reentrant,
}

/// What a failed operation says of its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Disposition {
    /// It failed before it changed anything.
    PreMutation,
    /// It changed something and took all of it back.
    RolledBack,
    /// It may have changed something. What is not claimed is this.
    Unknown,
}

/// Why stored state is no cell.
///
/// State: nothing was granted on it and nothing changed; the stored record is left as it is. Retry: never
/// with this record. A clock that is read too early heals [`FutureStamp`](Self::FutureStamp) by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A stamp lies after the present moment of the same boot.
    #[error("stamp `{field}` lies in the future")]
    FutureStamp {
        /// Which stamp.
        field: &'static str,
    },
    /// The lease was touched, or an operation began, before it was acquired.
    #[error("stamp `{field}` lies before `acquired`")]
    Disordered {
        /// Which stamp.
        field: &'static str,
    },
    /// The term is above what the store allows; it is never shortened.
    #[error("term is longer than the store allows")]
    TermTooLong,
    /// The expiry does not follow from the terms.
    #[error("`expires` does not follow from the terms")]
    ForeignExpiry,
    /// More than 1,024 operations, or one id twice.
    #[error("operations in flight are too many or repeat an id")]
    Operations,
    /// The operations and what is said of their origin do not go together: two creators, a creator that
    /// never began, a re-entry or a hand-over that nobody else knows of.
    #[error("operations in flight and their provenance do not go together")]
    Provenance,
    /// The lease id is the reserved one.
    #[error("lease id is reserved")]
    ReservedLease,
}

impl<H> Cell<H> {
    /// A free resource.
    pub const FREE: Self = Self { lease: None };

    /// Returns the lease, or `None` if the resource is free.
    #[must_use]
    pub const fn lease(&self) -> Option<&Lease<H>> {
        self.lease.as_ref()
    }

    /// Restores a stored lease, read at `now` of the same boot, with terms up to `longest`.
    ///
    /// # Errors
    ///
    /// [`RecordError`] for what no commit could have written: the record is invalid as a whole, it
    /// is neither repaired nor taken for free.
    pub fn load(lease: Lease<H>, now: Moment, longest: Duration) -> Result<Self, RecordError> {
        check_stamps(&lease, now)?;
        check_term(&lease, longest.min(TERM_MAX))?;
        let repeats = |(at, op): (usize, &Operation)| {
            op.id == OpId::ACQUISITION || lease.ops.iter().take(at).any(|other| other.id == op.id)
        };
        if lease.ops.len() > OPERATIONS || lease.ops.iter().enumerate().any(repeats) {
            return Err(RecordError::Operations);
        }
        check_provenance(&lease)?;
        if lease.token.lease == LeaseId::NIL {
            return Err(RecordError::ReservedLease);
        }
        Ok(Self { lease: Some(lease) })
    }
}

fn check_stamps<H>(lease: &Lease<H>, now: Moment) -> Result<(), RecordError> {
    for (field, stamp) in [("acquired", lease.acquired), ("touched", lease.touched)] {
        if stamp > now {
            return Err(RecordError::FutureStamp { field });
        }
    }
    if lease.ops.iter().any(|op| op.since > now) {
        return Err(RecordError::FutureStamp { field: "ops" });
    }
    if lease.touched < lease.acquired {
        return Err(RecordError::Disordered { field: "touched" });
    }
    if lease.ops.iter().any(|op| op.since < lease.acquired) {
        return Err(RecordError::Disordered { field: "ops" });
    }
    if lease
        .expires
        .is_some_and(|expires| expires < lease.acquired)
    {
        return Err(RecordError::Disordered { field: "expires" });
    }
    Ok(())
}

fn check_provenance<H>(lease: &Lease<H>) -> Result<(), RecordError> {
    let from = |origin| lease.ops.iter().filter(move |op| op.from == origin).count();
    let (creators, joined) = (from(Provenance::Created), from(Provenance::Reentrant));
    let sound = creators <= 1
        && (creators == 0 || lease.begun)
        && (joined == 0 || lease.shared)
        && (lease.handovers == 0 || lease.shared)
        && lease.ops.is_sorted_by_key(|op| op.since);
    if sound {
        Ok(())
    } else {
        Err(RecordError::Provenance)
    }
}

fn check_term<H>(lease: &Lease<H>, longest: Duration) -> Result<(), RecordError> {
    match (lease.terms.term(), lease.expires) {
        (Term::None | Term::PerGrant { .. }, None) => Ok(()),
        (Term::None, Some(_)) | (Term::Fixed(_), None) => Err(RecordError::ForeignExpiry),
        (Term::Fixed(term), Some(_)) if term > longest => Err(RecordError::TermTooLong),
        (Term::Fixed(term), Some(expires)) if expires == lease.touched.after(term) => Ok(()),
        (Term::Fixed(_), Some(_)) => Err(RecordError::ForeignExpiry),
        // A renewal sets it from its own moment, which is at most the last touch.
        (Term::PerGrant { max }, Some(expires)) => {
            let longest = max.map_or(longest, |max| max.min(longest));
            if expires > lease.touched.after(longest) {
                Err(RecordError::TermTooLong)
            } else {
                Ok(())
            }
        }
    }
}

impl<H> Lease<H> {
    /// Returns whether the term is over at `now`: strictly later than its last moment.
    ///
    /// It says nothing about the holder's work, and by itself gives nobody anything.
    #[must_use]
    pub fn expired(&self, now: Moment) -> bool {
        self.expires.is_some_and(|expires| {
            now > expires || (planted!(ExpiresAtItsMoment) && now == expires)
        })
    }

    /// Returns whether the lease is over: its term is, that ends it, and nothing is in flight.
    #[must_use]
    pub fn lapsed(&self, now: Moment) -> bool {
        // The term first: mostly it is not over, and then nothing else is looked at.
        self.expired(now)
            && self.terms.on_expiry() == OnExpiry::EndIfIdle
            && (self.ops.is_empty() || planted!(SweepIgnoresInFlight))
    }

    /// Returns whether its holder may not write until it renews.
    #[must_use]
    pub fn suspended(&self, now: Moment) -> bool {
        self.expired(now) && self.terms.on_expiry() == OnExpiry::SuspendHolder
    }

    /// Returns how many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.ops.len()).unwrap_or(u32::MAX)
    }

    /// Returns the last moment of the term after progress at `now`.
    pub(crate) fn expires_after_touch(&self, now: Moment) -> Option<Moment> {
        match self.terms.term() {
            Term::Fixed(term) => Some(now.max(self.touched).after(term)),
            Term::None | Term::PerGrant { .. } => self.expires,
        }
    }
}
