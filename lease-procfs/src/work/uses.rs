//! Everything that was read of all processes, in one piece of memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use super::ancestry::Exclusion;
use super::group::{Member, Members, ProcessGroup};
use super::occupants::{Occupant, PathUse, UsedBy};
use super::paths::{Target, Writing};
use crate::holder::TargetPath;
use crate::id::{Pid, StartTicks};
use crate::limits::USES;
use crate::mountinfo::MountTable;

/// Uses of paths, of any number of processes.
///
/// Most processes use the same few files, so each path is kept, and later compared, once.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    paths: Vec<Path>,
    /// Where the path is that was added last.
    #[cfg(target_os = "linux")]
    last: usize,
    /// Where a path is in `paths`, by mount namespace and writing.
    #[cfg(target_os = "linux")]
    known: BTreeMap<(usize, Writing), Places>,
    /// In the order in which they were read.
    uses: Vec<Use>,
    /// The mounts of the mount namespaces of those who were read, our own first.
    pub(crate) spaces: Vec<Arc<MountTable>>,
    /// Who was read and in which of the mount namespaces, ascending.
    pub(crate) read: Vec<(Pid, usize)>,
    /// The inodes of the mount namespaces.
    #[cfg(target_os = "linux")]
    pub(crate) inodes: Vec<Option<u64>>,
    /// Who could not be read in full, ascending.
    pub(crate) unreadable: Vec<Pid>,
    /// Who of them uses something by a name that cannot be shown.
    pub(crate) obscured: Vec<Pid>,
}

#[cfg(target_os = "linux")]
type Places = BTreeMap<Box<[u8]>, usize>;

/// A path as somebody's kernel shows it.
#[derive(Debug)]
struct Path {
    /// In which of the mount namespaces.
    space: usize,
    writing: Writing,
    bytes: Box<[u8]>,
    /// Where the path is that came after it the last time. Processes of one program use the same files
    /// in the same order.
    #[cfg(target_os = "linux")]
    next: usize,
}

impl Path {
    #[cfg(target_os = "linux")]
    fn is(&self, space: usize, writing: Writing, bytes: &[u8]) -> bool {
        *self.bytes == *bytes && self.space == space && self.writing == writing
    }
}

#[derive(Clone, Copy, Debug)]
struct Use {
    pid: Pid,
    by: UsedBy,
    /// Where its path is.
    path: usize,
}

impl Uses {
    /// Adds a use, unless it is no path or the one before it: the parts of one mapped file follow
    /// each other.
    #[cfg(target_os = "linux")]
    pub(crate) fn push(&mut self, (pid, space): (Pid, usize), by: UsedBy, path: &[u8]) {
        if !path.starts_with(b"/") {
            return;
        }
        let path = self.path(space, Writing::of(by), path);
        let again = |last: &Use| (last.pid, last.by, last.path) == (pid, by, path);
        if !self.uses.last().is_some_and(again) {
            self.uses.push(Use { pid, by, path });
        }
    }

    /// Tells whether this is the use that was added last.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_last(&self, pid: Pid, by: UsedBy, path: &[u8]) -> bool {
        let is_it = |last: &Use| {
            let kept = self.paths.get(last.path);
            last.pid == pid && last.by == by && kept.is_some_and(|kept| *kept.bytes == *path)
        };
        self.uses.last().is_some_and(is_it)
    }

    /// Returns where a path is, kept from now on.
    #[cfg(target_os = "linux")]
    fn path(&mut self, space: usize, writing: Writing, bytes: &[u8]) -> usize {
        let expected = self.paths.get(self.last).map_or(0, |last| last.next);
        let kept = self.paths.get(expected);
        let at = if kept.is_some_and(|kept| kept.is(space, writing, bytes)) {
            expected
        } else {
            self.find_or_keep(space, writing, bytes)
        };
        if let Some(last) = self.paths.get_mut(self.last) {
            last.next = at;
        }
        self.last = at;
        at
    }

    #[cfg(target_os = "linux")]
    fn find_or_keep(&mut self, space: usize, writing: Writing, bytes: &[u8]) -> usize {
        let known = self.known.entry((space, writing)).or_default();
        if let Some(&at) = known.get(bytes) {
            return at;
        }
        let at = self.paths.len();
        known.insert(bytes.into(), at);
        self.paths.push(Path {
            space,
            writing,
            bytes: bytes.into(),
            next: 0,
        });
        at
    }

    /// Returns in which of the mount namespaces a process was read.
    #[cfg(target_os = "linux")]
    pub(crate) fn space_of(&self, pid: Pid) -> usize {
        let found = self.read.binary_search_by_key(&pid, |(pid, _space)| *pid);
        let found = found.ok().and_then(|at| self.read.get(at));
        found.map_or(0, |(_pid, space)| *space)
    }

    /// Adds who uses the target by something that `counts` to `found`. Returns whether it may have other
    /// names than are known, by which anybody may use it.
    pub(crate) fn find(
        &self,
        target: &TargetPath,
        excluded: &Exclusion,
        counts: fn(UsedBy) -> bool,
        found: &mut BTreeMap<Pid, Vec<PathUse>>,
    ) -> bool {
        let target = Target::new(target, &self.spaces);
        let covered = |path: &Path| target.covers(path.space, path.writing, &path.bytes);
        let covered: Vec<bool> = self.paths.iter().map(covered).collect();
        if !covered.contains(&true) {
            return target.is_untold;
        }
        for one in &self.uses {
            let Some(path) = self.paths.get(one.path) else {
                continue;
            };
            if covered.get(one.path) == Some(&true) && counts(one.by) && !excluded.contains(one.pid)
            {
                let uses = found.entry(one.pid).or_default();
                let one = PathUse {
                    by: one.by,
                    path: path_of(&path.bytes),
                };
                let is_kept = uses.len() < USES || one.by == UsedBy::WorkingDirectory;
                // Each thread that is read shows what it shares with the others.
                if is_kept && !uses.contains(&one) {
                    uses.push(one);
                }
            }
        }
        target.is_untold
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
    /// How many of them have something mounted over them.
    pub(crate) obscured: u32,
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
            obscured: self.obscured,
            hides,
        }
    }
}
