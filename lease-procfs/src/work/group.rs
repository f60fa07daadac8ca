//! Process groups: recorded with a holder, asked with one system call, and named by a scan.

use core::fmt;
use core::str::FromStr;

use super::system;
use crate::describe::DescribeError;
#[cfg(not(target_os = "linux"))]
use crate::elsewhere::stat_or_reason;
use crate::id::{Pid, PidError, StartTicks};
use crate::identity::ProcessIdentity;
#[cfg(target_os = "linux")]
use crate::linux::stat_or_reason;
use crate::procfs::ProcFs;

/// The number of a process group.
///
/// The kernel does not hand a number out again while a group carries it, so the group with a dead
/// leader's number is the leader's own.
///
/// Range: that of [`Pid`]. Group 1 can be recorded and scanned for; no signal is ever asked of it,
/// for the kernel takes its negative for "everybody".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ProcessGroup(Pid);

/// Whether a process group has a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "callers must decide every case; doubt is one of them"
)]
pub enum GroupLiveness {
    /// It has none.
    Empty,
    /// It has one at least, which may be a process that exited and was not reaped.
    Alive,
    /// It cannot be told.
    Undecided,
}

/// A member of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Which.
    pub pid: Pid,
    /// When it started, as the reader counts.
    pub start_ticks: StartTicks,
    /// Whether its leader thread has exited. It counts all the same.
    pub has_exited: bool,
}

/// The members of a process group that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// All of them, by number.
    pub members: Vec<Member>,
    /// How many processes could not be looked at, so that they may be members.
    pub unreadable: u32,
    /// How many of them somebody mounted something over, which no right to look can help.
    pub obscured: u32,
    /// Whether this `/proc` leaves processes out of its list.
    pub hides: bool,
}

impl ProcessGroup {
    /// Takes the number of a group.
    #[must_use]
    pub const fn new(number: Pid) -> Self {
        Self(number)
    }

    /// Reads which group a process is in now, for the record of its lease.
    ///
    /// `None` if the group's number means nothing in this pid namespace.
    ///
    /// # Errors
    ///
    /// [`DescribeError`] if the process is not the identified one any more, or cannot be seen.
    pub fn of(proc: &ProcFs, process: &ProcessIdentity) -> Result<Option<Self>, DescribeError> {
        let pid = process.pid;
        let stat = stat_or_reason(proc, pid)?;
        if stat.start_ticks != process.start_ticks {
            return Err(DescribeError::NotRunning { pid });
        }
        Ok(stat.group.map(Self))
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> Pid {
        self.0
    }

    /// Asks the kernel whether the group of this number in our own pid namespace has a member.
    ///
    /// One system call; nothing is sent to anybody. A member that may not be signalled is one, too.
    /// Zombies count.
    #[must_use]
    pub fn liveness(self) -> GroupLiveness {
        // The negative of 1 would address everybody.
        if self.0 == Pid::INIT {
            return GroupLiveness::Undecided;
        }
        system::group_liveness(self.0)
    }
}

impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProcessGroup {
    type Err = PidError;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, PidError> {
        text.parse().map(Self)
    }
}
