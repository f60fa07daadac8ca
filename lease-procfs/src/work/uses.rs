//! Everything that was read of all processes, in one piece of memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use super::ancestry::Exclusion;
use super::group::{Member, Members, ProcessGroup};
use super::occupants::{Occupant, PathUse, UsedBy};
use super::paths::Target;
use crate::holder::TargetPath;
use crate::id::{Pid, StartTicks};
use crate::limits::USES;
use crate::mountinfo::MountTable;

/// Uses of paths, of any number of processes.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// All paths, one after the other.
    bytes: Vec<u8>,
    /// The uses in the same order, so that each path begins where the one before it ends.
    uses: Vec<Use>,
    /// The mounts of the mount namespaces of those who were read, our own first.
    pub(crate) spaces: Vec<MountTable>,
    /// Who was read and in which of the mount namespaces, ascending.
    #[cfg(target_os = "linux")]
    pub(crate) read: Vec<(Pid, usize)>,
    /// The inodes of the mount namespaces.
    #[cfg(target_os = "linux")]
    pub(crate) inodes: Vec<Option<u64>>,
    /// Who could not be read in full, ascending.
    pub(crate) unreadable: Vec<Pid>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    pid: Pid,
    by: UsedBy,
    /// In which of the mount namespaces.
    space: usize,
    end: usize,
}

impl Uses {
    /// Adds a use, unless it is no path or the one before it: the parts of one mapped file follow
    /// each other.
    #[cfg(target_os = "linux")]
    pub(crate) fn push(&mut self, (pid, space): (Pid, usize), by: UsedBy, path: &[u8]) {
        if !path.starts_with(b"/") {
            return;
        }
        let start = match self.uses.len().checked_sub(2) {
            Some(at) => self.uses.get(at).map_or(0, |before| before.end),
            None => 0,
        };
        if let Some(last) = self.uses.last()
            && (last.pid, last.by) == (pid, by)
            && self.bytes.get(start..last.end) == Some(path)
        {
            return;
        }
        self.bytes.extend_from_slice(path);
        self.uses.push(Use {
            pid,
            by,
            space,
            end: self.bytes.len(),
        });
    }

    /// Returns in which of the mount namespaces a process was read.
    #[cfg(target_os = "linux")]
    pub(crate) fn space_of(&self, pid: Pid) -> usize {
        let found = self.read.binary_search_by_key(&pid, |(pid, _space)| *pid);
        let found = found.ok().and_then(|at| self.read.get(at));
        found.map_or(0, |(_pid, space)| *space)
    }

    /// Adds who uses the target to `found`.
    pub(crate) fn find(
        &self,
        target: &TargetPath,
        excluded: &Exclusion,
        found: &mut BTreeMap<Pid, Vec<PathUse>>,
    ) {
        let target = Target::new(target, &self.spaces);
        let mut start = 0;
        for one in &self.uses {
            let path = self.bytes.get(start..one.end).unwrap_or_default();
            start = one.end;
            if target.covers(one.space, one.by, path) && !excluded.contains(one.pid) {
                let uses = found.entry(one.pid).or_default();
                if uses.len() < USES || one.by == UsedBy::WorkingDirectory {
                    uses.push(PathUse {
                        by: one.by,
                        path: path_of(path),
                    });
                }
            }
        }
    }
}

/// Lists who was found, each with its working directory first.
pub(crate) fn occupants(found: BTreeMap<Pid, Vec<PathUse>>) -> Vec<Occupant> {
    let one = |(pid, mut uses): (Pid, Vec<PathUse>)| {
        uses.sort_by_key(|one| one.by);
        uses.truncate(USES);
        Occupant { pid, uses }
    };
    found.into_iter().map(one).collect()
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::new(&*String::from_utf8_lossy(bytes)))
}

/// What the `stat` of every process says of groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// By number.
    pub(crate) rows: Vec<GroupRow>,
    /// How many could not be read.
    pub(crate) unreadable: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRow {
    pub(crate) pid: Pid,
    pub(crate) group: Option<Pid>,
    pub(crate) start_ticks: StartTicks,
    pub(crate) has_exited: bool,
}

impl Groups {
    pub(crate) fn members(&self, group: ProcessGroup, hides: bool) -> Members {
        let of_group = |row: &&GroupRow| row.group == Some(group.get());
        let member = |row: &GroupRow| Member {
            pid: row.pid,
            start_ticks: row.start_ticks,
            has_exited: row.has_exited,
        };
        let mut members: Vec<_> = self.rows.iter().filter(of_group).map(member).collect();
        members.sort_unstable_by_key(|member| member.pid);
        Members {
            members,
            unreadable: self.unreadable,
            hides,
        }
    }
}
