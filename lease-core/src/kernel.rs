//! The decision for kernel locks: exclusion is the kernel's, so there is no token and no term.

use crate::liveness::Verdict;

/// What a driver saw when it tried a kernel lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a driver gives every part")]
pub struct KernelSeen {
    /// What is known about the process that the record names; `None` if no record names one.
    pub verdict: Option<Verdict>,
    /// The kernel's answer.
    pub lock: KernelState,
    /// What lies at the record's path.
    pub record: RecordClass,
    /// It is the file whose descriptor this process keeps.
    pub same_file: bool,
    /// An earlier busy look, at least one poll interval ago and with no grant between, saw the same
    /// signature. A single look may see the predecessor's: a holder signs after it has the lock.
    pub steady: bool,
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum KernelState {
    /// The lock was free and is ours now.
    Taken,
    /// The lock is ours, on a file that is no longer the one at the path.
    TakenElsewhere,
    /// Somebody has it.
    Busy,
}

/// What lies at the path of the identity record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum RecordClass {
    /// Nothing.
    Missing,
    /// A record of the present protocol, also an empty or a torn one.
    Current,
    /// A claim of the earlier protocol whose process lives.
    LegacyAlive,
    /// A claim of the earlier protocol whose process is gone.
    LegacyDead,
    /// A claim of the earlier protocol with our own pid.
    LegacyOwnPid,
    /// A directory.
    Directory,
    /// A symlink, pipe, socket or device.
    NotARegularFile,
    /// Something whose bytes cannot be read.
    Unreadable,
    /// Something that is no record.
    Unrecognised,
    /// Something that was made, removed or replaced between two looks.
    Changing,
}

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum Contention {
    /// Goes on with the lock.
    Grant {
        /// Makes the record at the path its own first, or creates one.
        adopt: bool,
        /// Removes the dead claim before that.
        reap: bool,
    },
    /// Gives the lock back, if it has it, and waits.
    Busy(BusyReason),
}

/// Why the lock is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum BusyReason {
    /// The kernel says so.
    Kernel(Attribution),
    /// A live claim of the earlier protocol.
    LegacyAlive,
    /// A claim of the earlier protocol with our own pid, which proves nothing.
    LegacyOwnPid,
    /// A directory is at the record's path.
    Directory,
    /// Something other than a regular file is at the record's path.
    NotARegularFile,
    /// The record cannot be read.
    Unreadable,
    /// What is at the record's path is no record.
    Unrecognised,
    /// The lock file was replaced: a lock on the old one excludes nobody.
    MutexMoved,
    /// Somebody else changed what is at the record's path at the same time.
    LostRace,
}

/// How sure it is that the process in the record is the one that has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Attribution {
    /// It lives, and two looks saw its signature.
    Confirmed,
    /// It was seen once only, is gone or cannot be judged: somebody may be inside who has not signed
    /// yet, or a reader.
    Unconfirmed,
    /// No record names anybody.
    None,
}

/// Decides what a kernel lock and the record beside it mean. Changes nothing.
///
/// The kernel lock alone excludes. The record neither grants nor blocks, but for claims of the earlier
/// protocol, which take no kernel lock: those are honoured unless proven dead, and what cannot be
/// recognised may be one. A term or an age never matters, and the verdict only names the holder.
///
/// ```
/// # use lease_core::{Contention, KernelSeen, KernelState, RecordClass, kernel_contention};
/// let seen = KernelSeen {
///     verdict: None,
///     lock: KernelState::Taken,
///     record: RecordClass::Current,
///     same_file: true,
///     steady: false,
/// };
/// assert_eq!(kernel_contention(&seen), Contention::Grant { adopt: false, reap: false });
/// ```
#[must_use]
pub fn kernel_contention(seen: &KernelSeen) -> Contention {
    match (seen.lock, seen.record) {
        (KernelState::Busy, _) => Contention::Busy(BusyReason::Kernel(attribution(seen))),
        (KernelState::TakenElsewhere, _) => Contention::Busy(BusyReason::MutexMoved),
        (KernelState::Taken, RecordClass::Current) => Contention::Grant {
            adopt: !seen.same_file,
            reap: false,
        },
        (KernelState::Taken, RecordClass::Missing) => Contention::Grant {
            adopt: true,
            reap: false,
        },
        (KernelState::Taken, RecordClass::LegacyDead) => Contention::Grant {
            adopt: true,
            reap: true,
        },
        (KernelState::Taken, RecordClass::LegacyAlive) => Contention::Busy(BusyReason::LegacyAlive),
        (KernelState::Taken, RecordClass::LegacyOwnPid) => {
            Contention::Busy(BusyReason::LegacyOwnPid)
        }
        (KernelState::Taken, RecordClass::Directory) => Contention::Busy(BusyReason::Directory),
        (KernelState::Taken, RecordClass::NotARegularFile) => {
            Contention::Busy(BusyReason::NotARegularFile)
        }
        (KernelState::Taken, RecordClass::Unreadable) => Contention::Busy(BusyReason::Unreadable),
        (KernelState::Taken, RecordClass::Unrecognised) => {
            Contention::Busy(BusyReason::Unrecognised)
        }
        (KernelState::Taken, RecordClass::Changing) => Contention::Busy(BusyReason::LostRace),
    }
}

const fn attribution(seen: &KernelSeen) -> Attribution {
    match &seen.verdict {
        Some(Verdict::Alive(_)) if seen.steady => Attribution::Confirmed,
        Some(_) => Attribution::Unconfirmed,
        None => Attribution::None,
    }
}
