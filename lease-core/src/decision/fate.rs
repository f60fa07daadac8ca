//! What the end of an operation does to its lease.

use crate::cell::{Disposition, Provenance};
use crate::change::Kept;

/// What becomes of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays; after a failure, for this reason.
    Keep(Option<Kept>),
    /// It is released with the operation.
    Release,
}

/// Decides whether a lease survives the end of one of its operations.
///
/// Releasing needs two proofs: this operation made the lease and nobody joined since, *and* it left
/// nothing behind.
pub(super) const fn fate(from: Provenance, result: Result<(), Disposition>, shared: bool) -> Fate {
    match (from, result, shared) {
        // Held until released: that is the regime.
        (Provenance::Created | Provenance::Reentrant, Ok(()), _) => Fate::Keep(None),
        // The lease was there before this operation and is not its to end.
        (
            Provenance::Reentrant,
            Err(Disposition::PreMutation | Disposition::RolledBack | Disposition::Unknown),
            _,
        ) => Fate::Keep(Some(Kept::PreExisting)),
        // Half a change may be out there; only the term or a disconnect ends this.
        (Provenance::Created, Err(Disposition::Unknown), _) => {
            Fate::Keep(Some(Kept::UnknownEffect))
        }
        // Another operation of the writer relies on the lease, or relied on it.
        (Provenance::Created, Err(Disposition::PreMutation | Disposition::RolledBack), true) => {
            Fate::Keep(Some(Kept::Shared))
        }
        (Provenance::Created, Err(Disposition::PreMutation | Disposition::RolledBack), false) => {
            Fate::Release
        }
    }
}
