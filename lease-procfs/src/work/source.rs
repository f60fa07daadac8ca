//! An open `/proc` and who is listed in it.
//!
//! A process may leave its work to a child that was not listed, and end or go elsewhere before it is
//! read. So the list is read again, until nobody new is in it.

use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use super::kin::Kin;
use super::pass::ScanError;
use crate::id::Pid;
use crate::linux::{NoStat, STAT_BYTES, shows_our_numbers};
use crate::mountinfo::{MountTable, covered, hides_processes};
use crate::procfs::ProcFs;
use crate::stat::Stat;
use crate::sys;

/// How often the list is read again. A busy machine has somebody new most times; to read those takes little, and to stop
/// is doubt about a holder that is gone.
const ROUNDS: usize = 64;

/// The most of `mountinfo` that is read. It is doubt if there is more.
pub(super) const MOUNTINFO_BYTES: usize = 16 << 20;

/// Room for the name of a file of one process.
const NAME_BYTES: usize = 32;

/// Room for one reading of a directory.
pub(super) const LIST_BYTES: usize = 32 << 10;

/// An open `/proc` and its list of processes.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) root: OwnedFd,
    /// Ascending.
    pub(super) pids: Vec<Pid>,
    /// Others may not be listed.
    pub(crate) hides: bool,
    /// Our own mounts.
    pub(super) mounts: Arc<MountTable>,
    /// Who is listed and covered by a mount: what is read there is not about them.
    pub(super) covered: Vec<Pid>,
    /// What tasks have in common, where it can be asked.
    pub(super) kin: Option<Kin>,
}

impl Source {
    pub(crate) fn open(proc: &ProcFs) -> Result<Self, ScanError> {
        let root = sys::open(proc.root()).map_err(unlisted)?;
        let pids = list(root.as_fd())?;
        let own = |name| open_below(root.as_fd(), name, OFlags::empty());
        let mounts = own(b"thread-self/mountinfo")
            .or_else(|_older_kernel| own(b"self/mountinfo"))
            .and_then(|file| sys::read_whole(&file, MOUNTINFO_BYTES));
        let (mounts, is_cut) = match mounts {
            Ok(mounts) => {
                let is_cut = mounts.len() >= MOUNTINFO_BYTES;
                (mounts, is_cut)
            }
            // Where we are not shown a target has the name it was given, and no other that could be known.
            Err(errno) => (Vec::new(), refused(errno)? == Seen::Partly),
        };
        let covered = covered(&mounts, proc.root())
            .filter_map(|name| str::from_utf8(&name).ok()?.parse().ok())
            .filter(|pid| pids.binary_search(pid).is_ok());
        Ok(Self {
            // Who does not see the first process of the pid namespace may miss others, too. To see it
            // proves nothing if one would see it anyway.
            hides: pids.first() != Some(&Pid::INIT)
                || (hides_processes(&mounts, proc.root()) && sees_first_anyway(root.as_fd())),
            covered: covered.collect(),
            mounts: Arc::new(MountTable::parse(&mounts, b"").or_more(is_cut)),
            kin: Kin::of(root.as_fd(), || shows_our_numbers(proc)),
            root,
            pids,
        })
    }

    /// Visits the processes in `pids`, and whoever came since and is not among the `known`. Returns who
    /// came or ended when it had to stop looking, for each of them may have left somebody.
    pub(super) fn each(
        &self,
        pids: &[Pid],
        mut known: Vec<Pid>,
        mut visit: impl FnMut(Pid, Listed) -> Result<Seen, ScanError>,
    ) -> Result<Vec<Pid>, ScanError> {
        let mut fresh = pids.to_vec();
        let mut ended = Vec::new();
        let mut listed = Listed::Before;
        for _round in 0..ROUNDS {
            ended.clear();
            for &pid in &fresh {
                if matches!(visit(pid, listed)?, Seen::Ended | Seen::Bare) {
                    ended.push(pid);
                }
            }
            listed = Listed::Since;
            fresh = list(self.root.as_fd())?;
            fresh.retain(|pid| known.binary_search(pid).is_err());
            if fresh.is_empty() {
                return Ok(Vec::new());
            }
            known.extend_from_slice(&fresh);
            known.sort_unstable();
        }
        ended.append(&mut fresh);
        Ok(ended)
    }
}

/// Tells whether we would see the first process without any right to see others: it is us, or ours.
fn sees_first_anyway(root: BorrowedFd<'_>) -> bool {
    let may_see_all =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    let own = rustix::process::geteuid().as_raw();
    let is_ours = || statat(root, "1", AtFlags::empty()).is_ok_and(|first| first.st_uid == own);
    !may_see_all && (sys::own_pid() == Some(Pid::INIT) || is_ours())
}

/// When a process came into the list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    Before,
    Since,
}

/// What a visit gave, the better first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    /// All there was.
    Whole,
    /// Something could not be read.
    Partly,
    /// The process is gone, or its leader thread has exited.
    Ended,
    /// It has neither memory nor descriptors: it is a thread of the kernel, or ends.
    Bare,
    /// It is a thread of the kernel, which uses nothing and leaves nobody.
    Kernel,
}

/// Says what an error means for the process that was looked at, or that nobody can be looked at.
pub(super) fn refused(errno: Errno) -> Result<Seen, ScanError> {
    match errno {
        Errno::NOENT | Errno::SRCH => Ok(Seen::Ended),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Err(ScanError::Exhausted {
            source: Arc::new(errno.into()),
        }),
        _ => Ok(Seen::Partly),
    }
}

fn unlisted(errno: Errno) -> ScanError {
    match refused(errno) {
        Err(exhausted) => exhausted,
        Ok(_) => ScanError::Unlisted {
            source: Arc::new(errno.into()),
        },
    }
}

/// Lists the processes, ascending.
fn list(root: BorrowedFd<'_>) -> Result<Vec<Pid>, ScanError> {
    let directory = open_below(root, b".", OFlags::DIRECTORY).map_err(unlisted)?;
    let mut buffer = Vec::with_capacity(LIST_BYTES);
    let mut pids = numbers(directory.as_fd(), &mut buffer).map_err(unlisted)?;
    pids.sort_unstable();
    Ok(pids)
}

/// Reads the entries of a directory that are numbers.
pub(super) fn numbers(directory: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<Vec<Pid>, Errno> {
    let mut found = Vec::new();
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        found.extend(name.and_then(|name| name.parse::<Pid>().ok()));
    }
    Ok(found)
}

/// Opens something below `/proc` for reading.
pub(super) fn open_below(
    root: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    openat(root.as_fd(), name, flags | sys::READ, Mode::empty())
}

/// Reads the `stat` of a process that is listed in an open `/proc`.
pub(super) fn stat_below(root: BorrowedFd<'_>, pid: Pid) -> Result<Stat, NoStat> {
    let mut name = [0; NAME_BYTES];
    let mut rest = name.as_mut_slice();
    // A number and this word fit.
    let _written = write!(rest, "{pid}/stat");
    let used = NAME_BYTES.saturating_sub(rest.len());
    let name = name.get(..used).unwrap_or_default();
    let mut line = [0; STAT_BYTES];
    let count = open_below(root, name, OFlags::empty())
        .and_then(|file| sys::read_piece(&file, &mut line))
        .map_err(NoStat::Unread)?;
    Stat::parse_of(pid, line.get(..count).unwrap_or_default()).map_err(NoStat::Malformed)
}
