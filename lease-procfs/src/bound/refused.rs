//! Why a process-bound request is refused: what the gates say, and what the core says.

use std::error::Error as StdError;
use std::fmt;

use lease_core::{Code, Evidence, Held, Mismatch, Refusal, TtlFault, Verdict};

use super::allocation::{PlacePart, StoreLock};
use super::name::{Lifecycle, OwnerId, Role};
use crate::binding::BindingListError;
use crate::describe::DescribeError;
use crate::holder::{LabelError, ProcessHolder};
use crate::id::BootIdError;
use crate::proof::Proof;
use crate::select::{SelectError, SelectorError, SelectorReason};

/// Why a request about a process-bound lease was refused.
///
/// State: nothing changed. Retry: as each variant says. [`code`](Self::code) and
/// [`reason`](Self::reason) are stable; the text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The target cannot be read. Retry: when it is there.
    TargetUnreadable,
    /// The target belongs to another repository. Retry: there.
    ForeignTarget,
    /// The lock of the store is no sound lock. Retry: after it is repaired.
    StoreLock(StoreLock),
    /// The policy marker is a symbolic link. Retry: after it is replaced.
    Marker,
    /// The store has no repository id. Retry: after it is initialised.
    NoRepository,
    /// Nothing is recorded of the target. Retry: after it is registered.
    Unmanaged,
    /// The allocation record is at another version. Retry: with the present one.
    RecordVersion {
        /// What the caller expected.
        expected: u64,
        /// What is recorded.
        found: u64,
    },
    /// The checkout is not fit to be written. Retry: after it is repaired.
    Checkout(CheckoutFault),
    /// The declared owner is not the recorded one, which is not told. Retry: with the right one, or
    /// with none.
    Owner {
        /// Who was declared.
        declared: OwnerId,
    },
    /// The holder is not the one that was described before. Retry: with a new description.
    HolderChanged,
    /// The holder cannot be described. Retry: as the fault says.
    Holder(HolderFault),
    /// Nothing is known of this role. Retry: never.
    Role {
        /// Which one.
        role: Role,
    },
    /// A runtime binding is malformed; its content is not told. Retry: after it is repaired.
    Binding(BindingListError),
    /// Somebody else's use is noted. Retry: after it is cleared.
    ForeignBindings {
        /// Their places in the list, from zero.
        positions: Vec<usize>,
    },
    /// The allocation is not active. Retry: after it is resumed.
    Lifecycle {
        /// In which state it is.
        state: Lifecycle,
    },
    /// The present lease was granted for another repository, path or owner. Retry: after that lease
    /// was released.
    Drift(PlacePart),
    /// The lease is not about what the claim is about. Retry: with what matches.
    Place(PlacePart),
    /// No holder was named. Retry: with a complete identity.
    HolderMissing {
        /// For which verb.
        verb: Verb,
    },
    /// The pid beside an identity is not that identity's. Retry: without it.
    PidConflict,
    /// The core ended a lease of which nothing was filed, or a stored record is not sound. Retry:
    /// never; the store is damaged.
    Metadata(MetadataFault),
    /// The holder has exited, and somebody of its work is left. Retry: after that one is gone.
    ExitedOccupied(Evidence),
    /// What the core said. Retry: as that refusal says.
    Core(Refusal<ProcessHolder>),
}

/// For what a holder was not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// To be told whether it may write.
    Check,
    /// To release.
    Release,
}

/// What is wrong with a checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckoutFault {
    /// It is on no branch.
    Detached,
    /// Somebody locked it.
    Locked,
    /// Its place is gone.
    Prunable,
}

/// What is wrong with stored metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataFault {
    /// A lease whose parts do not go together.
    Lease(lease_core::RecordError),
    /// A record that is not what this version writes.
    Malformed {
        /// Which part: `record` for the whole, or `filing` or `lease`.
        part: &'static str,
    },
    /// A form of a later version.
    Schema {
        /// Which one.
        found: u32,
    },
    /// A removal found nothing to remove.
    Vanished,
}

/// Makes the enum of what can be wrong with a holder, and its texts, from one table.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a holder is not described: the sub-reasons of `INVALID_HOLDER`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum HolderFault {
            $($(#[$doc])* $name,)*
        }

        impl HolderFault {
            /// Every fault.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the stable text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

faults! {
    /// An ancestor changed during the look.
    AncestorChanged = "ancestor_changed",
    /// The program of an `ancestor:` selector is no bare file name.
    AncestorName = "ancestor_name",
    /// An ancestor could not be read.
    AncestorUnavailable = "ancestor_unavailable",
    /// The stat line is malformed.
    BadStat = "bad_stat",
    /// The boot id could not be read.
    BootIdUnavailable = "boot_id_unavailable",
    /// The boot id stands for no known boot.
    BootIdUnknown = "boot_id_unknown",
    /// The client id is malformed.
    ClientId = "client_id",
    /// The process is hidden from this reader.
    Hidden = "hidden",
    /// A session or run is malformed.
    Label = "label",
    /// The process cannot be described from this namespace.
    Namespace = "namespace",
    /// No ancestor matches.
    NoAncestor = "no_ancestor",
    /// No such process runs.
    NotRunning = "not_running",
    /// The pid is malformed.
    Pid = "pid",
    /// The selector has neither of its forms.
    Selector = "selector",
    /// The number names a thread.
    ThreadId = "thread_id",
    /// The process could not be looked at.
    Uninspectable = "uninspectable",
}

impl From<&DescribeError> for HolderFault {
    fn from(error: &DescribeError) -> Self {
        match error {
            DescribeError::BootIdUnreadable { .. } | DescribeError::ProcMissing => {
                Self::BootIdUnavailable
            }
            DescribeError::BootId { source } => match source {
                BootIdError::Empty => Self::BootIdUnavailable,
                BootIdError::Sentinel | BootIdError::NotCanonical => Self::BootIdUnknown,
            },
            DescribeError::Hidden { .. } => Self::Hidden,
            DescribeError::NotRunning { .. } => Self::NotRunning,
            DescribeError::ProcNotOurs | DescribeError::StartsAhead { .. } => Self::Namespace,
            DescribeError::Stat { .. } => Self::BadStat,
            DescribeError::Thread { .. } => Self::ThreadId,
            DescribeError::Unreadable { .. } | DescribeError::Unsupported => Self::Uninspectable,
        }
    }
}

impl From<&LabelError> for HolderFault {
    fn from(error: &LabelError) -> Self {
        let (LabelError::Empty { part }
        | LabelError::TooLong { part, .. }
        | LabelError::Character { part, .. }) = error;
        if *part == "client" {
            Self::ClientId
        } else {
            Self::Label
        }
    }
}

impl From<&SelectorError> for HolderFault {
    fn from(error: &SelectorError) -> Self {
        match error.reason {
            SelectorReason::Form => Self::Selector,
            SelectorReason::Pid(_) => Self::Pid,
            SelectorReason::Path
            | SelectorReason::ProgramEmpty
            | SelectorReason::ProgramNul
            | SelectorReason::ProgramTooLong { .. } => Self::AncestorName,
        }
    }
}

impl From<&SelectError> for HolderFault {
    fn from(error: &SelectError) -> Self {
        match error {
            SelectError::Changed { .. } => Self::AncestorChanged,
            SelectError::Describe { source } => source.into(),
            SelectError::Label { source } => source.into(),
            SelectError::NoAncestor { .. } => Self::NoAncestor,
            SelectError::Stat { .. } => Self::BadStat,
            SelectError::Unreadable { .. } => Self::AncestorUnavailable,
        }
    }
}

impl From<Refusal<ProcessHolder>> for Refused {
    fn from(refusal: Refusal<ProcessHolder>) -> Self {
        Self::Core(refusal)
    }
}

impl Refused {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::TargetUnreadable | Self::Checkout(_) => Code::InvalidTarget,
            Self::ForeignTarget | Self::Unmanaged => Code::UnregisteredWorktree,
            Self::StoreLock(_) | Self::NoRepository | Self::Metadata(_) => Code::InvalidMetadata,
            Self::Marker => Code::InvalidPolicy,
            Self::RecordVersion { .. } => Code::RecordVersionConflict,
            Self::Owner { .. } => Code::OwnerMismatch,
            Self::HolderChanged
            | Self::Drift(_)
            | Self::Place(_)
            | Self::PidConflict
            | Self::ExitedOccupied(_) => Code::LeaseMismatch,
            Self::HolderMissing { verb: Verb::Check } => Code::LeaseRequired,
            Self::HolderMissing {
                verb: Verb::Release,
            } => Code::LeaseMismatch,
            Self::Holder(_) => Code::InvalidHolder,
            Self::Role { .. } => Code::InvalidRole,
            Self::Binding(_) => Code::InvalidRuntimeBinding,
            Self::ForeignBindings { .. } => Code::ExternalBinding,
            Self::Lifecycle { .. } => Code::InvalidLifecycle,
            Self::Core(refusal) => refusal.code(),
        }
    }

    /// Returns the stable sub-reason, where the code has some.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::TargetUnreadable => "unavailable",
            Self::Checkout(fault) => fault.as_str(),
            Self::StoreLock(_) => "lock_file",
            Self::NoRepository => "repository_id",
            Self::Metadata(fault) => fault.as_str(),
            Self::HolderChanged => "holder_changed",
            Self::Drift(_) => "identity_drift",
            Self::Place(part) => part.as_str(),
            Self::HolderMissing { verb: Verb::Check } => "holder",
            Self::HolderMissing {
                verb: Verb::Release,
            } => "holder_missing",
            Self::PidConflict => "pid_conflict",
            Self::Holder(fault) => fault.as_str(),
            Self::ExitedOccupied(evidence) => match left(evidence) {
                Some(Left::Group) => "exited_group_alive",
                Some(Left::Paths) => "exited_path_in_use",
                None => "exited_occupied",
            },
            Self::Core(refusal) => return reason(refusal),
            Self::ForeignTarget
            | Self::Unmanaged
            | Self::Marker
            | Self::RecordVersion { .. }
            | Self::Owner { .. }
            | Self::Role { .. }
            | Self::Binding(_)
            | Self::ForeignBindings { .. }
            | Self::Lifecycle { .. } => return None,
        })
    }

    /// Turns it into a refusal of the core; what a gate said becomes [`Refusal::Gate`].
    #[must_use]
    pub fn into_refusal(self) -> Refusal<ProcessHolder> {
        match self {
            Self::Core(refusal) => refusal,
            Self::ExitedOccupied(_) => Refusal::Mismatch(Mismatch::ExitedOccupied),
            gate => Refusal::Gate(gate.code()),
        }
    }
}

/// The stable sub-reason of what the core said.
fn reason(refusal: &Refusal<ProcessHolder>) -> Option<&'static str> {
    match refusal {
        Refusal::Held(held) => cause(held),
        Refusal::Uninspectable(_) => Some("uninspectable"),
        Refusal::Ttl(TtlFault::Zero | TtlFault::TooLong { .. } | TtlFault::NotNegotiable) => {
            Some("ttl")
        }
        Refusal::Required => Some("lease"),
        Refusal::Mismatch(mismatch) => Some(match mismatch {
            Mismatch::ExitedWithoutId => "exited_without_id",
            Mismatch::ExitedOccupied => "exited_occupied",
            Mismatch::ExitUnprovable => "exit_unprovable",
            Mismatch::Expired => "expired",
            Mismatch::Generation { .. } => "generation",
            Mismatch::Holder => "holder",
            Mismatch::LeaseId => "lease_id",
            Mismatch::NotExited => "not_exited",
            Mismatch::NotLive => "not_live",
            Mismatch::Ticket => "ticket",
            _ => return None,
        }),
        _ => None,
    }
}

/// Why another holder's lease stands.
fn cause(held: &Held<ProcessHolder>) -> Option<&'static str> {
    match held.verdict.as_ref()? {
        Verdict::Alive(_) => Some("alive"),
        Verdict::Occupied(evidence) => Some(match left(evidence) {
            Some(Left::Group) => "group",
            Some(Left::Paths) => "paths",
            None => "occupied",
        }),
        Verdict::Dead(_) | Verdict::Unknown(_) => None,
    }
}

/// Who is left of a holder's work.
enum Left {
    Group,
    Paths,
}

/// Tells who is left, where the evidence is of this crate.
fn left(evidence: &Evidence) -> Option<Left> {
    if evidence.proof == Proof::GroupAlive.as_str() {
        Some(Left::Group)
    } else if evidence.proof == Proof::PathInUse.as_str() {
        Some(Left::Paths)
    } else {
        None
    }
}

impl CheckoutFault {
    /// Returns the stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Locked => "locked",
            Self::Prunable => "prunable",
        }
    }
}

impl MetadataFault {
    /// Returns the stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lease(_) => "lease",
            Self::Malformed { .. } => "malformed",
            Self::Schema { .. } => "schema_version",
            Self::Vanished => "vanished",
        }
    }
}

impl fmt::Display for MetadataFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(_) => f.write_str("the stored lease is invalid"),
            Self::Malformed { part } => write!(f, "the stored {part} is malformed"),
            Self::Schema { found } => write!(f, "the record has the unknown schema {found}"),
            Self::Vanished => f.write_str("the record to remove was not there"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetUnreadable => f.write_str("the target cannot be read"),
            Self::ForeignTarget => f.write_str("the target belongs to another repository"),
            Self::StoreLock(StoreLock::Sound) => f.write_str("the lock of the store is in doubt"),
            Self::StoreLock(StoreLock::Missing) => f.write_str("the lock of the store is missing"),
            Self::StoreLock(StoreLock::NotRegular) => {
                f.write_str("the lock of the store is no regular file")
            }
            Self::StoreLock(StoreLock::Symlink) => {
                f.write_str("the lock of the store is a symbolic link")
            }
            Self::Marker => f.write_str("the policy marker is a symbolic link"),
            Self::NoRepository => f.write_str("the store has no repository id"),
            Self::Unmanaged => f.write_str("nothing is recorded of the target"),
            Self::RecordVersion { expected, found } => {
                write!(f, "the record is at version {found}, not {expected}")
            }
            Self::Checkout(fault) => write!(f, "the checkout is {}", fault.as_str()),
            Self::Owner { declared } => write!(f, "{declared} is not the recorded owner"),
            Self::HolderChanged => f.write_str("the holder is not the one described before"),
            Self::Holder(fault) => write!(f, "the holder cannot be described: {}", fault.as_str()),
            Self::Role { role } => write!(f, "nothing is known of the role {role}"),
            Self::Binding(error) => write!(f, "{error}"),
            Self::ForeignBindings { positions } => {
                write!(f, "bindings of somebody else at {positions:?}")
            }
            Self::Lifecycle { state } => write!(f, "the allocation is {state}, not ACTIVE"),
            Self::Drift(part) => {
                write!(f, "the {} has moved away from the lease", part.as_str())
            }
            Self::Place(part) => write!(f, "the lease is about another {}", part.as_str()),
            Self::HolderMissing { .. } => f.write_str("no complete holder was named"),
            Self::PidConflict => f.write_str("the pid is not that of the named holder"),
            Self::Metadata(fault) => write!(f, "{fault}"),
            Self::ExitedOccupied(evidence) => {
                write!(
                    f,
                    "the holder has exited, and is survived by {:?}",
                    evidence.occupants
                )
            }
            Self::Core(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl StdError for Refused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Metadata(MetadataFault::Lease(error)) => Some(error),
            Self::Binding(error) => error.source(),
            _ => None,
        }
    }
}
