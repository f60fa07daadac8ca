//! The allocation behind a lease, and what its keeper saw of it.
//!
//! Nothing here is looked up: the caller reads its own store and its checkout, and hands over what it
//! saw in one snapshot. Every fact has the answer that refuses nothing as its default only where a
//! keeper without that thing has nothing to look at.

use std::sync::Arc;

use super::name::{AllocationId, Lifecycle, OwnerId, RepositoryId, Role};
use crate::holder::TargetPath;

/// What is recorded of an allocation, whoever writes in it.
///
/// No lease ever changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "its keeper gives every part")]
pub struct AllocationRecord {
    /// Which allocation.
    pub allocation: AllocationId,
    /// How often the record was changed. Not the version of a lease.
    pub version: u64,
    /// Where its checkout is.
    pub path: TargetPath,
    /// Who owns it.
    pub owner: OwnerId,
    /// What it is for.
    pub role: Role,
    /// In which state it is.
    pub lifecycle: Lifecycle,
    /// What was noted about uses from outside.
    pub bindings: Vec<Arc<str>>,
}

/// What was seen of an allocation and of the place it lies in.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "its keeper gives every part")]
pub struct AllocationView<'a> {
    /// What stands at the target.
    pub target: Target,
    /// What stands where the lock of the store should be.
    pub lock: StoreLock,
    /// What stands where the policy marker may be.
    pub marker: Marker,
    /// Which repository the store is about; `None` if the store does not say.
    pub repository: Option<&'a RepositoryId>,
    /// What is recorded of the target; `None` if it is not managed.
    pub record: Option<&'a AllocationRecord>,
    /// What is wrong with the checkout.
    pub checkout: Checkout,
}

/// What stands at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a keeper must look at every case")]
pub enum Target {
    /// Something of the requester's repository.
    Ours,
    /// Something of another repository.
    Foreign,
    /// Nothing that can be read.
    Unreadable,
}

/// What stands where the lock of the store should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a keeper must look at every case")]
pub enum StoreLock {
    /// A sound lock, or a store that needs none.
    #[default]
    Sound,
    /// Nothing.
    Missing,
    /// Something that is no regular file.
    NotRegular,
    /// A symbolic link.
    Symlink,
}

/// What stands where the policy marker may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a keeper must look at every case")]
pub enum Marker {
    /// A regular marker, or none.
    #[default]
    Sound,
    /// A symbolic link.
    Symlink,
}

/// What is wrong with a checkout; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a keeper must look at every flag"
)]
pub struct Checkout {
    /// It is on no branch.
    pub detached: bool,
    /// Somebody locked it.
    pub locked: bool,
    /// Its place is gone, and it could be pruned.
    pub prunable: bool,
}

/// Where a lease was granted: what must not change while it is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "the stored form; keepers restore it"
)]
pub struct Place {
    /// The repository.
    pub repository: RepositoryId,
    /// The allocation.
    pub allocation: AllocationId,
    /// The path.
    #[cfg_attr(feature = "serde", serde(with = "super::wire::path"))]
    pub path: TargetPath,
    /// The owner.
    pub owner: OwnerId,
}

/// A part of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacePart {
    /// The repository.
    Repository,
    /// The allocation.
    Allocation,
    /// The path.
    Path,
    /// The owner.
    Owner,
}

impl PlacePart {
    /// Returns the stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repository => "repository",
            Self::Allocation => "allocation",
            Self::Path => "path",
            Self::Owner => "owner",
        }
    }
}

impl Place {
    /// Returns where the lease of `record` would be granted.
    #[must_use]
    pub fn of(repository: &RepositoryId, record: &AllocationRecord) -> Self {
        Self {
            repository: repository.clone(),
            allocation: record.allocation.clone(),
            path: record.path.clone(),
            owner: record.owner.clone(),
        }
    }

    /// Returns the first part that differs: repository, allocation, path, owner.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<PlacePart> {
        if self.repository != other.repository {
            Some(PlacePart::Repository)
        } else if self.allocation != other.allocation {
            Some(PlacePart::Allocation)
        } else if self.path != other.path {
            Some(PlacePart::Path)
        } else if self.owner != other.owner {
            Some(PlacePart::Owner)
        } else {
            None
        }
    }
}
