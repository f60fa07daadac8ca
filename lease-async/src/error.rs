//! What can go wrong for a caller.

use core::fmt;

use lease_core::{Code, KeyError, Refusal};

use crate::authority::AuthorityError;
use crate::guard::LeaseGuard;
use crate::standing::Loss;

/// Why [`Session::acquire`](crate::Session::acquire) gave no guard.
///
/// State: nothing is held that was not held before, unless the authority does not know what it decided: then the
/// lease may be held without a guard, and asking again gives one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError<H: fmt::Debug> {
    /// The text names no resource. Retry: never with it.
    #[error("not a resource")]
    Resource(#[source] KeyError),
    /// The authority said no. Retry: as the refusal says.
    #[error("{0}")]
    Refused(Refusal<H>),
    /// The authority gave no answer. Retry: as the error says.
    #[error(transparent)]
    Authority(AuthorityError),
    /// The caller's token was cancelled. Retry: at will.
    #[error("the request was cancelled")]
    Cancelled,
    /// The session was dropped. Retry: with another one.
    #[error("the session is gone")]
    SessionGone,
    /// The session is giving this very lease back, and that took longer than the request may wait. Retry:
    /// at will.
    #[error("the session is still giving the lease back")]
    Releasing,
}

impl<H: fmt::Debug> AcquireError<H> {
    /// Returns the stable code of a refusal.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code()),
            Self::Resource(_)
            | Self::Authority(_)
            | Self::Cancelled
            | Self::SessionGone
            | Self::Releasing => None,
        }
    }
}

/// Why something could not be done under a lease.
///
/// State: the lease is as it was, or lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError<H: fmt::Debug> {
    /// The lease is lost. Retry: never; acquire again.
    #[error("the lease is lost: {0}")]
    Lost(Loss),
    /// The authority said no. Retry: as the refusal says.
    #[error("{0}")]
    Refused(Refusal<H>),
    /// The authority gave no answer. Retry: as the error says.
    #[error(transparent)]
    Authority(AuthorityError),
    /// A renewed lease does not last as long as was asked. Retry: with less, or with an explicit ttl.
    #[error("the term is shorter than was asked for")]
    TermTooShort,
}

/// Why a guard was not released, and the guard.
///
/// State: the lease is as it was, or lost. Retry: with the guard.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReleaseError<H: lease_core::Holder> {
    /// What went wrong.
    pub error: LeaseError<H>,
    /// The guard, given back.
    pub guard: LeaseGuard<H>,
}

impl<H: lease_core::Holder> fmt::Display for ReleaseError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not released")
    }
}

impl<H: lease_core::Holder> core::error::Error for ReleaseError<H> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// How work that ran as an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T, E, H: fmt::Debug> {
    /// The work failed, and its operation was ended with that.
    ///
    /// State: as the failure rule says. Retry: as the work says.
    ///
    /// It reads as the error of the work, and need not be an error for that: whoever wants its sources takes it
    /// out of here.
    #[error("{0}")]
    Failed(E),
    /// The work is done or failed, and the end of its operation was not accepted: the lease was lost
    /// meanwhile, or it is not known.
    ///
    /// State: what the work did is done, and may have been done beside a successor's. Retry: never under
    /// this lease.
    #[error("the operation was not ended")]
    NotEnded {
        /// What came of the work.
        result: Result<T, E>,
        /// Why the end was not accepted.
        #[source]
        error: LeaseError<H>,
    },
}
