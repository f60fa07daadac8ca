//! What a process-bound decision leaves: for people, for logs, for whoever is told.

use std::fmt;

use lease_core::{Change, Code, Detail, Evidence, FencingToken, Moment};

use super::allocation::Place;
use super::name::{AllocationId, Role};
use super::record::{Filing, LeaseRecord};
use super::refused::{MetadataFault, Refused};
use super::wall::WallStamp;
use crate::holder::ProcessHolder;
use crate::select::RESOLVER_VERSION;

/// The receipt of a grant: first, renewed or taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GrantReceipt {
    /// What was done: number, code, token, moment.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub change: Change,
    /// That a writer was admitted.
    pub admission: Granted,
    /// Why.
    pub reason: GrantReason,
    /// Repository, allocation, path and owner.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: Place,
    /// Who may write.
    pub holder: ProcessHolder,
    /// Which resolver of selectors was in use.
    pub resolver_version: u32,
    /// The last moment of the term.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub expires: Option<Moment>,
    /// The same as wall time, for people.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub expires_at: Option<WallStamp>,
    /// The version of the lease record.
    #[cfg_attr(feature = "serde", serde(with = "crate::wire::wide"))]
    pub record_version: u64,
    /// Whose lease was taken over.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub previous: Option<Previous>,
}

/// The admission of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Granted {
    /// A writer was admitted.
    #[cfg_attr(feature = "serde", serde(rename = "GRANTED"))]
    Granted,
}

/// Why a writer was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum GrantReason {
    /// Nobody held the lease.
    Free,
    /// The previous holder and its work are proven gone.
    HolderGone,
    /// The holder itself asked again.
    SameHolder,
}

/// A lease that was taken over. Nothing is known of the work that its holder left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Previous {
    /// Which lease.
    pub token: FencingToken,
    /// Who held it.
    pub holder: ProcessHolder,
    /// The last moment of its term.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub expires: Option<Moment>,
    /// On what the takeover rests.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub evidence: Option<Evidence>,
    /// What is known of its work.
    pub work_state: WorkState,
}

/// What is known of the work that a holder left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum WorkState {
    /// Nothing. It may be half done.
    Unknown,
}

/// The answer to a role with a gate of its own: no lease and no token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct NotApplicable {
    /// [`Code::DedicatedRoleGate`].
    pub code: Code,
    /// That writer leases do not apply.
    pub admission: NoAdmission,
    /// Which allocation.
    pub allocation: AllocationId,
    /// Its role.
    pub role: Role,
}

/// The admission of a role with a gate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum NoAdmission {
    /// No writer was admitted, and none was refused.
    #[cfg_attr(feature = "serde", serde(rename = "NOT_APPLICABLE"))]
    NotApplicable,
}

/// The receipt of a release. The allocation, and the work in it, stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReleaseReceipt {
    /// What was done: number, code, token, moment.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub change: Change,
    /// Which allocation.
    pub allocation: AllocationId,
    /// Why the lease is over, or was not there.
    pub reason: ReleaseReason,
    /// Whether the holder had exited, and that was proven.
    pub holder_exited: bool,
    /// On what that rests.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub evidence: Option<Evidence>,
}

/// Why a release left no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ReleaseReason {
    /// The holder has exited, and nobody of its work is left.
    HolderExited,
    /// The holder gave the lease back.
    HolderReleased,
    /// There was no lease.
    NotHeld,
}

impl GrantReceipt {
    /// Makes the receipt of a grant out of what the core did and the record after it.
    #[must_use]
    pub fn new(change: Change, record: &LeaseRecord, previous: Option<Previous>) -> Self {
        let reason = match (change.code, &previous) {
            (Code::Renewed | Code::Reentrant, _) => GrantReason::SameHolder,
            (_, Some(_)) => GrantReason::HolderGone,
            (_, None) => GrantReason::Free,
        };
        Self {
            change,
            admission: Granted::Granted,
            reason,
            place: record.filing.place.clone(),
            holder: record.lease.holder.clone(),
            resolver_version: RESOLVER_VERSION,
            expires: record.lease.expires,
            expires_at: record.expires_at(),
            record_version: record.filing.version,
            previous,
        }
    }
}

impl Previous {
    /// Describes the lease that a takeover replaced, and on what the takeover rests.
    #[must_use]
    pub fn new(replaced: &LeaseRecord, evidence: Option<Evidence>) -> Self {
        Self {
            token: replaced.lease.token,
            holder: replaced.lease.holder.clone(),
            expires: replaced.lease.expires,
            evidence,
            work_state: WorkState::Unknown,
        }
    }
}

impl NotApplicable {
    pub(super) const fn new(allocation: AllocationId, role: Role) -> Self {
        Self {
            code: Code::DedicatedRoleGate,
            admission: NoAdmission::NotApplicable,
            allocation,
            role,
        }
    }
}

impl ReleaseReceipt {
    /// Makes the receipt of a release out of what the core did and of what was filed beside the lease
    /// and is removed by now.
    ///
    /// # Errors
    ///
    /// [`MetadataFault::Vanished`] if a lease ended of which nothing was filed: that is damage, and no
    /// release.
    pub fn new(
        change: Change,
        allocation: AllocationId,
        removed: Option<&Filing>,
        evidence: Option<Evidence>,
    ) -> Result<Self, Refused> {
        let holder_exited = matches!(change.detail, Detail::Released { exited: true, .. });
        let reason = match (change.code, removed) {
            (Code::NotHeld, _) => ReleaseReason::NotHeld,
            (_, None) => return Err(Refused::Metadata(MetadataFault::Vanished)),
            (_, Some(_)) if holder_exited => ReleaseReason::HolderExited,
            (_, Some(_)) => ReleaseReason::HolderReleased,
        };
        Ok(Self {
            change,
            allocation,
            reason,
            holder_exited,
            evidence: evidence.filter(|_| holder_exited),
        })
    }
}

impl fmt::Display for GrantReceipt {
    /// One line for people, without random ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, place, .. } = self;
        write!(
            f,
            "#{} {} GRANTED {}",
            change.seq, change.code, place.allocation
        )?;
        if let Some(token) = change.token {
            write!(f, " generation {}", token.generation)?;
        }
        write!(f, " to {:?}, owner {}", self.holder, place.owner)?;
        write!(f, ", record version {}", self.record_version)?;
        write!(f, ", resolver {}", self.resolver_version)?;
        match (self.expires_at, self.expires) {
            (Some(wall), _) => write!(f, ", until {wall}")?,
            (None, Some(moment)) => write!(f, ", until {moment}")?,
            (None, None) => {}
        }
        if let Detail::Touched {
            expired_at,
            expires,
            ..
        } = change.detail
        {
            let moved = if expired_at == expires {
                "unmoved"
            } else {
                "moved"
            };
            write!(f, ", term {moved}")?;
        }
        let Some(previous) = &self.previous else {
            return Ok(());
        };
        write!(
            f,
            ", from {:?} generation {}",
            previous.holder, previous.token.generation
        )?;
        if let Some(evidence) = &previous.evidence {
            write!(f, ", proof {}", evidence.proof)?;
        }
        f.write_str(", work state unknown")
    }
}

impl fmt::Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            allocation,
            role,
            ..
        } = self;
        write!(f, "{code} NOT_APPLICABLE {allocation}, role {role}")
    }
}

impl fmt::Display for ReleaseReceipt {
    /// One line for people, without random ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, .. } = self;
        write!(f, "#{} {} {}", change.seq, change.code, self.allocation)?;
        if let Some(token) = change.token {
            write!(f, " generation {}", token.generation)?;
        }
        write!(f, ", holder exited {}", self.holder_exited)?;
        if let Some(evidence) = &self.evidence {
            write!(f, ", proof {}", evidence.proof)?;
        }
        Ok(())
    }
}
