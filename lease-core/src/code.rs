//! The catalogue of stable codes.

/// Makes the enum, its texts and the list of all from one table.
macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The stable code of a receipt, refusal or error.
        ///
        /// Texts for people may change; a code changes only with a recorded decision.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the catalogue.
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

catalogue! {
    // Grants.
    /// A new lease, under touching terms.
    Created = "CREATED",
    /// A new lease, under renewing terms.
    LeaseAcquired = "WRITER_LEASE_ACQUIRED",
    /// A kernel lock was taken.
    LockAcquired = "LOCK_ACQUIRED",
    /// The present holder asked again; no second lease.
    Reentrant = "REENTRANT",
    /// A lease was renewed.
    Renewed = "WRITER_LEASE_RENEWED",
    /// A new lease replaced one whose holder is proven gone.
    TakenOver = "WRITER_LEASE_TAKEN_OVER",
    /// The role writes through a gate of its own; nothing was granted.
    DedicatedRoleGate = "DEDICATED_ROLE_GATE",
    /// The holder may write now.
    Entitled = "ENTITLED",

    // Changes during a hold.
    /// The term started anew.
    Touched = "TOUCHED",
    /// An operation is in flight.
    OperationBegun = "OPERATION_BEGUN",
    /// An operation ended well.
    OperationEnded = "OPERATION_ENDED",
    /// An operation failed and the lease stays.
    RetainedAfterFailure = "RETAINED_AFTER_FAILURE",
    /// An operation failed and the lease is free.
    ReleasedAfterFailure = "RELEASED_AFTER_FAILURE",
    /// A hand-over was offered.
    Offered = "OFFERED",
    /// The lease has a new holder, with the same token.
    Adopted = "ADOPTED",
    /// The identity record at the path was made one's own.
    RecordAdopted = "RECORD_ADOPTED",
    /// A dead claim of the earlier protocol was removed.
    LegacyClaimReaped = "LEGACY_CLAIM_REAPED",
    /// The mutex was opened anew.
    MutexReopened = "MUTEX_REOPENED",

    // Ends of a hold.
    /// The holder released, under touching terms.
    Released = "RELEASED",
    /// The holder, or a host for an exited one, released under renewing terms.
    LeaseReleased = "WRITER_LEASE_RELEASED",
    /// One of several guards went; the lease stays.
    DepthReleased = "DEPTH_RELEASED",
    /// There was nothing to release.
    NotHeld = "NO_WRITER_LEASE",
    /// The holder's connection ended.
    Disconnected = "DISCONNECTED",
    /// The term was over and no operation in flight.
    Reclaimed = "RECLAIMED",
    /// An operator retired the lease.
    Revoked = "REVOKED",
    /// The server ended the holder's session.
    SessionEnded = "SESSION_ENDED",
    /// A grant that nobody received was given back.
    Abandoned = "ABANDONED",

    // Waiting.
    /// A request waits in the queue.
    Queued = "QUEUED",
    /// A request left the queue at its deadline.
    WaitTimedOut = "WAIT_TIMED_OUT",

    // Reports.
    /// The lease will be lost unless a renewal comes through.
    Jeopardy = "JEOPARDY",
    /// The lease is lost.
    Lost = "LOST",
    /// The resource refused an older token.
    Fenced = "FENCED",
    /// The floor file was ahead of the table.
    FloorStepped = "FLOOR_STEPPED",
    /// A new authority stands at the resource.
    AuthoritySucceeded = "AUTHORITY_SUCCEEDED",
    /// The clock was read earlier than before.
    ClockSteppedBack = "CLOCK_STEPPED_BACK",
    /// Something happened at a kernel lock.
    LockEvent = "LOCK_EVENT",
    /// Somebody else has held the kernel lock for long.
    ForeignHold = "FOREIGN_HOLD",
    /// What the boot sweep did.
    BootSweep = "BOOT_SWEEP",
    /// A handle was closed during a hold and is kept.
    HandleKept = "HANDLE_KEPT",
    /// A hold took longer than its budget.
    HoldBudget = "HOLD_BUDGET",
    /// The runtime is clear.
    RuntimeClear = "RUNTIME_CLEAR",

    // Refusals.
    /// Another holder is in the way, under terms without process proof.
    WriteConflict = "WRITE_CONFLICT",
    /// Another holder is in the way, under terms with process proof.
    LeaseHeld = "WRITER_LEASE_HELD",
    /// The kernel lock is busy.
    WriteLockBusy = "WRITE_LOCK_BUSY",
    /// The token is not the present one.
    StaleToken = "STALE_TOKEN",
    /// Operations are in flight.
    OperationInFlight = "OPERATION_IN_FLIGHT",
    /// The operation id is in use or reserved.
    OperationIdInUse = "OPERATION_ID_IN_USE",
    /// Too much of something bounded.
    LimitReached = "LIMIT_REACHED",
    /// The holder's own term is over.
    LeaseExpired = "WRITER_LEASE_EXPIRED",
    /// The lease is not the one that was meant.
    LeaseMismatch = "WRITER_LEASE_MISMATCH",
    /// There is no lease, or no holder was named.
    LeaseRequired = "WRITER_LEASE_REQUIRED",
    /// The holder cannot be judged, or its request is not sound.
    InvalidHolder = "INVALID_HOLDER",
    /// A runtime binding is malformed.
    InvalidRuntimeBinding = "INVALID_RUNTIME_BINDING",
    /// Somebody else declared a use.
    ExternalBinding = "EXTERNAL_BINDING",
    /// Somebody still runs.
    RuntimeOccupied = "RUNTIME_OCCUPIED",
    /// The declared owner is wrong.
    OwnerMismatch = "OWNER_MISMATCH",
    /// The allocation is not active.
    InvalidLifecycle = "INVALID_LIFECYCLE",
    /// The role is unknown.
    InvalidRole = "INVALID_ROLE",
    /// The target is not fit to be written.
    InvalidTarget = "INVALID_TARGET",
    /// The target belongs elsewhere.
    UnregisteredWorktree = "UNREGISTERED_WORKTREE",
    /// Stored metadata is not sound.
    InvalidMetadata = "INVALID_METADATA",
    /// A policy marker is not sound.
    InvalidPolicy = "INVALID_POLICY",
    /// A record is at another version.
    RecordVersionConflict = "RECORD_VERSION_CONFLICT",
    /// The kernel lock is in no state to be used.
    LockState = "SQLITE_WRITE_LOCK_STATE",
    /// The parts of a policy clash.
    PolicyRefused = "POLICY_REFUSED",
    /// A counter is at its maximum.
    CounterExhausted = "COUNTER_EXHAUSTED",
}

impl core::fmt::Display for Code {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::str::FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == text)
            .ok_or(CodeError)
    }
}

/// The text is no code of this version.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a code of this catalogue")]
#[non_exhaustive]
pub struct CodeError;

#[cfg(feature = "serde")]
impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        crate::wire::from_text(d)
    }
}
