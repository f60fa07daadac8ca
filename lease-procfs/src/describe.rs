//! Describes a running process, free of races.

use std::io;

use lease_core::Code;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere as system;
#[cfg(target_os = "linux")]
use crate::linux as system;

use crate::id::{BootIdError, Pid};
use crate::identity::ProcessIdentity;
use crate::procfs::ProcFs;
use crate::stat::StatError;

/// Why a process cannot be described. Nothing was changed.
///
/// Retry: as each variant says; a description is never guessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescribeError {
    /// The boot id could not be read. Retry: after `/proc` is mounted in full.
    #[error("boot id cannot be read")]
    BootIdUnreadable {
        /// What the read gave.
        #[source]
        source: io::Error,
    },
    /// What was read is no boot id. Retry: never.
    #[error("the kernel's boot id is unusable")]
    BootId {
        /// What is wrong with it.
        #[source]
        source: BootIdError,
    },
    /// The process runs, and this `/proc` does not show it. Retry: with the rights to see it.
    #[error("process {pid} is hidden")]
    Hidden {
        /// Which.
        pid: Pid,
    },
    /// No running process has this number, as far as can be told. Retry: never.
    #[error("process {pid} is not running")]
    NotRunning {
        /// Which.
        pid: Pid,
    },
    /// `/proc` is missing or unreadable. Retry: after it is mounted.
    #[error("/proc is missing or unreadable")]
    ProcMissing,
    /// `/proc` does not show this process as the process it is. Retry: with the `/proc` of our own
    /// pid namespace.
    #[error("/proc is not the one of this process's pid namespace")]
    ProcNotOurs,
    /// The start lies ahead of this process's clock, so two owners of the number could not be told
    /// apart. Retry: with a kernel that has pidfs.
    #[error("process {pid} started ahead of this process's clock")]
    StartsAhead {
        /// Which.
        pid: Pid,
    },
    /// `/proc/<pid>/stat` is not what a kernel prints. Retry: never.
    #[error("process {pid} has a malformed stat")]
    Stat {
        /// Which.
        pid: Pid,
        /// What is wrong with it.
        #[source]
        source: StatError,
    },
    /// The number names a thread, which ends before its process does. Retry: with the process's.
    #[error("{pid} is a thread, not a process")]
    Thread {
        /// Which.
        pid: Pid,
    },
    /// The process could not be looked at. Retry: after the cause is gone.
    #[error("process {pid} cannot be inspected")]
    Unreadable {
        /// Which.
        pid: Pid,
        /// What the look gave.
        #[source]
        source: io::Error,
    },
    /// This system has no way to describe a process. Retry: never.
    #[error("processes cannot be described on this system")]
    Unsupported,
}

impl DescribeError {
    /// Returns the stable code: always [`Code::InvalidHolder`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidHolder
    }
}

impl ProcessIdentity {
    /// Describes this process, with its launch.
    ///
    /// Without pidfs it waits until the clock is past the tick in which the process started, at most
    /// 10 ms after its start, so that no later owner of the number has the same identity.
    ///
    /// # Errors
    ///
    /// [`DescribeError`], except that this process always runs.
    pub fn own(proc: &ProcFs) -> Result<Self, DescribeError> {
        system::describe_own(proc)
    }

    /// Describes the process that has this number in this process's pid namespace.
    ///
    /// It has a launch only if it is this very process. Without pidfs it waits as
    /// [`own`](Self::own) does.
    ///
    /// # Errors
    ///
    /// [`DescribeError`]: also for a process that has exited and was not reaped, and for a number
    /// that names a thread.
    pub fn of(proc: &ProcFs, pid: Pid) -> Result<Self, DescribeError> {
        system::describe(proc, pid)
    }
}
