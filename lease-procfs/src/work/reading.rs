//! Reads the processes of `/proc`, without an allocation for an entry.
//!
//! A process that ends while it is read may have left its work to a child that was not listed. So
//! when one ended, the list is read again, and whoever is new in it is read, too.

use std::fmt::Display;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, readlinkat_raw, statat};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use super::group::GroupLiveness;
use super::maps::{find_byte, mapped_path};
use super::occupants::UsedBy;
use super::pass::ScanError;
use super::uses::{GroupRow, Groups, Uses};
use crate::id::Pid;
use crate::mountinfo::{MountTable, covered, hides_processes};
use crate::procfs::ProcFs;
use crate::stat::Stat;
use crate::sys;

pub(crate) use crate::sys::own_pid;

/// How often the list is read again because a process ended.
const ROUNDS: usize = 8;

/// How far up a directory is followed whose path cannot be shown.
const STEPS: usize = 4_096;

/// A page, which is all that the kernel gives of a link, and one byte to notice more.
const LINK_BYTES: usize = 4_097;

/// The largest `stat` line that is believed.
const STAT_BYTES: usize = 2_048;

/// The longest line of `maps` that is taken.
const MAPS_BYTES: usize = 32 << 10;

/// The most of a command line that is read.
const COMMAND_BYTES: usize = 4_096;

/// The most of `mountinfo` that is read; mounts beyond it give no names.
const MOUNTINFO_BYTES: usize = 1 << 20;

/// Room for one reading of a directory.
const LIST_BYTES: usize = 32 << 10;

/// Reads the `stat` of one process.
pub(crate) fn stat(proc: &ProcFs, pid: Pid) -> Option<Stat> {
    let file = sys::open(proc.root().join(format!("{pid}/stat"))).ok()?;
    let mut line = [0; STAT_BYTES];
    let count = sys::read(&file, &mut line).ok()?;
    Stat::parse_of(pid, line.get(..count)?).ok()
}

/// Reads the command line of one process.
pub(crate) fn command(proc: &ProcFs, pid: Pid) -> Option<Vec<u8>> {
    let file = sys::open(proc.root().join(format!("{pid}/cmdline"))).ok()?;
    let mut line = vec![0; COMMAND_BYTES];
    let count = sys::read(&file, &mut line).ok()?;
    line.truncate(count);
    Some(line)
}

/// Asks whether a group has a member. The number is not 1.
pub(crate) fn group_liveness(group: Pid) -> GroupLiveness {
    let Some(group) = rustix::process::Pid::from_raw(group.get()) else {
        return GroupLiveness::Undecided;
    };
    match rustix::process::test_kill_process_group(group) {
        Ok(()) | Err(Errno::PERM) => GroupLiveness::Alive,
        Err(Errno::SRCH) => GroupLiveness::Empty,
        Err(_) => GroupLiveness::Undecided,
    }
}

/// An open `/proc` and its list of processes.
#[derive(Debug)]
pub(crate) struct Source {
    root: OwnedFd,
    /// Ascending.
    pids: Vec<Pid>,
    /// Others may not be listed.
    pub(crate) hides: bool,
    /// Our own mounts.
    mounts: MountTable,
    /// Who is listed and covered by a mount: what is read there is not about them.
    covered: Vec<Pid>,
}

impl Source {
    pub(crate) fn open(proc: &ProcFs) -> Result<Self, ScanError> {
        let root = sys::open(proc.root()).map_err(unlisted)?;
        let pids = list(root.as_fd())?;
        let own = |name| open_below(root.as_fd(), name, OFlags::empty());
        let mounts = own(b"thread-self/mountinfo")
            .or_else(|_older_kernel| own(b"self/mountinfo"))
            .and_then(|file| sys::read_whole(&file, MOUNTINFO_BYTES));
        // Without them a target has the name it was given, and no other.
        let mounts = mounts.or_else(|errno| refused(errno).map(|_seen| Vec::new()))?;
        let covered = covered(&mounts, proc.root())
            .filter_map(|name| str::from_utf8(&name).ok()?.parse().ok())
            .filter(|pid| pids.binary_search(pid).is_ok());
        Ok(Self {
            // Who does not see the first process of the pid namespace may miss others, too. To see it
            // proves nothing if one would see it anyway.
            hides: pids.first() != Some(&Pid::INIT)
                || (hides_processes(&mounts, proc.root()) && sees_first_anyway(root.as_fd())),
            covered: covered.collect(),
            mounts: MountTable::parse(&mounts, b""),
            root,
            pids,
        })
    }

    /// Visits the processes in `pids`, and whoever was left by one that ended. Returns who ended when
    /// it had to stop looking, for each of them may have left somebody.
    fn each(
        &self,
        pids: &[Pid],
        mut visit: impl FnMut(Pid, Listed) -> Result<Seen, ScanError>,
    ) -> Result<Vec<Pid>, ScanError> {
        let mut known = pids.to_vec();
        let mut fresh = pids.to_vec();
        let mut ended = Vec::new();
        let mut listed = Listed::Before;
        for _round in 0..ROUNDS {
            ended.clear();
            for &pid in &fresh {
                if visit(pid, listed)? == Seen::Ended {
                    ended.push(pid);
                }
            }
            if ended.is_empty() {
                break;
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
        Ok(ended)
    }
}

/// Tells whether we would see the first process without any right to see others: it is us, or ours.
fn sees_first_anyway(root: BorrowedFd<'_>) -> bool {
    let may_see_all =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE));
    let own = rustix::process::geteuid().as_raw();
    let is_ours = || statat(root, "1", AtFlags::empty()).is_ok_and(|first| first.st_uid == own);
    !may_see_all && (own_pid() == Some(Pid::INIT) || is_ours())
}

/// When a process came into the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    Before,
    Since,
}

/// What a visit gave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// All there was.
    Whole,
    /// Something could not be read.
    Partly,
    /// The process is gone, or its leader thread has exited.
    Ended,
}

/// Reads the working directories and descriptors of all.
pub(crate) fn read_links(source: &Source) -> Result<Uses, ScanError> {
    let mut reader = Reader::new(source);
    let inode = reader.mount_namespace("thread-self");
    let inode = inode.or_else(|_older_kernel| reader.mount_namespace("self"));
    let inode = inode.unwrap_or(None);
    reader.uses.inodes.push(inode);
    reader.uses.spaces.push(source.mounts.clone());
    reader.uses.unreadable.extend_from_slice(&source.covered);
    reader.uses.obscured.extend_from_slice(&source.covered);
    let ended = source.each(&source.pids, |pid, _listed| reader.links(pid))?;
    reader.uses.unreadable.extend(ended);
    Ok(reader.finish())
}

/// Reads the mappings of those whose links were read, and all of whoever comes after them.
pub(crate) fn read_maps(source: &Source, links: &Uses) -> Result<Uses, ScanError> {
    let mut reader = Reader::new(source);
    reader.uses.inodes.clone_from(&links.inodes);
    reader.uses.spaces.clone_from(&links.spaces);
    let pids: Vec<_> = links.read.iter().map(|(pid, _space)| *pid).collect();
    let ended = source.each(&pids, |pid, listed| {
        match listed {
            Listed::Before => reader.space = links.space_of(pid),
            Listed::Since => {
                reader.links(pid)?;
            }
        }
        reader.maps(pid)
    })?;
    reader.uses.unreadable.extend(ended);
    Ok(reader.finish())
}

/// Reads the groups of all.
pub(crate) fn read_groups(source: &Source) -> Result<Groups, ScanError> {
    let mut groups = Groups::default();
    let mut name = Vec::new();
    let mut line = [0; STAT_BYTES];
    let ended = source.each(&source.pids, |pid, _listed| {
        if source.covered.contains(&pid) {
            groups.unreadable = groups.unreadable.saturating_add(1);
            groups.obscured = groups.obscured.saturating_add(1);
            return Ok(Seen::Partly);
        }
        let name = named(&mut name, format_args!("{pid}/stat"));
        let read = open_below(source.root.as_fd(), name, OFlags::empty())
            .and_then(|file| sys::read(&file, &mut line));
        let stat = match read {
            Ok(count) => Stat::parse_of(pid, line.get(..count).unwrap_or_default()).ok(),
            Err(errno) => match refused(errno)? {
                Seen::Ended => return Ok(Seen::Ended),
                Seen::Whole | Seen::Partly => None,
            },
        };
        let Some(stat) = stat else {
            groups.unreadable = groups.unreadable.saturating_add(1);
            return Ok(Seen::Partly);
        };
        groups.rows.push(GroupRow {
            pid,
            group: stat.group,
            start_ticks: stat.start_ticks,
            has_exited: stat.leader_exited(),
        });
        Ok(Seen::Whole)
    })?;
    let ended = u32::try_from(ended.len()).unwrap_or(u32::MAX);
    groups.unreadable = groups.unreadable.saturating_add(ended);
    Ok(groups)
}

/// The buffers of a reading, used for every process again.
struct Reader<'a> {
    root: BorrowedFd<'a>,
    name: Vec<u8>,
    link: Vec<u8>,
    list: Vec<u8>,
    maps: Vec<u8>,
    /// In which of the mount namespaces the process is that is read.
    space: usize,
    uses: Uses,
}

impl<'a> Reader<'a> {
    fn new(source: &'a Source) -> Self {
        Self {
            root: source.root.as_fd(),
            name: Vec::new(),
            link: vec![0; LINK_BYTES],
            list: Vec::with_capacity(LIST_BYTES),
            maps: vec![0; MAPS_BYTES],
            space: 0,
            uses: Uses::default(),
        }
    }

    fn finish(self) -> Uses {
        let mut uses = self.uses;
        uses.read.sort_unstable();
        uses.unreadable.sort_unstable();
        uses.unreadable.dedup();
        uses
    }

    /// Finds out how a process names paths, before they are read.
    fn enter(&mut self, pid: Pid) -> Result<(), ScanError> {
        self.space = self.find_space(pid)?;
        self.uses.read.push((pid, self.space));
        Ok(())
    }

    fn find_space(&mut self, pid: Pid) -> Result<usize, ScanError> {
        // If it cannot be told, its paths cannot be read either, which is what counts.
        let Some(inode) = self.mount_namespace(pid).unwrap_or(None) else {
            return Ok(0);
        };
        // Links show paths of our own namespace from our root, whatever the root of a process.
        if self.uses.inodes.first() == Some(&Some(inode)) {
            return Ok(0);
        }
        let name = named(&mut self.name, format_args!("{pid}/root"));
        let root = readlinkat_raw(self.root, name, self.link.as_mut_slice());
        let root = root.map(|count| self.link.get(..count).unwrap_or_default().to_vec());
        let root = match root {
            Ok(root) => root,
            Err(errno) => {
                let seen = refused(errno)?;
                self.noted(pid, seen)?;
                return Ok(0);
            }
        };
        let mut known = self.uses.inodes.iter().zip(&self.uses.spaces);
        let is_its_own = |(one, space): (&Option<u64>, &MountTable)| {
            *one == Some(inode) && space.is_seen_from(&root)
        };
        if let Some(known) = known.position(is_its_own) {
            return Ok(known);
        }
        match self.mount_table(pid, &root) {
            Ok(mounts) => {
                self.uses.inodes.push(Some(inode));
                self.uses.spaces.push(mounts);
                Ok(self.uses.spaces.len().saturating_sub(1))
            }
            Err(errno) => {
                let seen = refused(errno)?;
                self.noted(pid, seen)?;
                Ok(0)
            }
        }
    }

    fn mount_namespace(&mut self, who: impl Display) -> Result<Option<u64>, Errno> {
        let name = named(&mut self.name, format_args!("{who}/ns/mnt"));
        let count = readlinkat_raw(self.root, name, self.link.as_mut_slice())?;
        let text = self.link.get(..count).unwrap_or_default();
        let number = text
            .strip_prefix(b"mnt:[")
            .and_then(|text| text.strip_suffix(b"]"));
        Ok(number.and_then(|number| str::from_utf8(number).ok()?.parse().ok()))
    }

    fn mount_table(&mut self, pid: Pid, root: &[u8]) -> Result<MountTable, Errno> {
        let name = named(&mut self.name, format_args!("{pid}/mountinfo"));
        let file = open_below(self.root, name, OFlags::empty())?;
        let text = sys::read_whole(&file, MOUNTINFO_BYTES)?;
        Ok(MountTable::parse(&text, root))
    }

    fn links(&mut self, pid: Pid) -> Result<Seen, ScanError> {
        self.enter(pid)?;
        let seen = self.links_of(pid, None)?;
        if seen == Seen::Ended {
            self.of_a_thread(pid, Self::links_of)?;
        } else {
            self.of_threads_apart(pid)?;
        }
        self.noted(pid, seen)
    }

    /// Reads the threads that have a directory or descriptors of their own, as `unshare` makes them.
    ///
    /// To read every thread would cost a pass over each, so one counts as apart if its directory
    /// differs from the process's, or its number of descriptors (Linux 6.2).
    fn of_threads_apart(&mut self, pid: Pid) -> Result<(), ScanError> {
        let name = named(&mut self.name, format_args!("{pid}/task"));
        // A directory has two links, and one more for each directory in it.
        if !statat(self.root, name, AtFlags::empty()).is_ok_and(|task| task.st_nlink > 3) {
            return Ok(());
        }
        let threads = open_below(self.root, name, OFlags::DIRECTORY)
            .and_then(|directory| numbers(directory.as_fd(), &mut self.list));
        let threads = match threads {
            Ok(threads) => threads,
            Err(errno) => return refused(errno).map(|_seen| ()),
        };
        let shared = self.outline(pid, None);
        for thread in threads.into_iter().filter(|&thread| thread != pid) {
            if self.outline(pid, Some(thread)) != shared {
                let space = self.space;
                self.space = self.find_space(thread)?;
                let seen = self.links_of(pid, Some(thread));
                self.space = space;
                self.noted(pid, seen?)?;
            }
        }
        Ok(())
    }

    /// Returns a thread's directory and number of descriptors, as far as they can be read.
    fn outline(&mut self, pid: Pid, thread: Option<Pid>) -> (Option<Vec<u8>>, Option<i64>) {
        let name = name_of(&mut self.name, pid, thread, "cwd");
        let count = readlinkat_raw(self.root, name, self.link.as_mut_slice());
        let directory = count
            .ok()
            .and_then(|count| self.link.get(..count))
            .map(<[u8]>::to_vec);
        let name = name_of(&mut self.name, pid, thread, "fd");
        let descriptors = statat(self.root, name, AtFlags::empty());
        (directory, descriptors.ok().map(|found| found.st_size))
    }

    fn maps(&mut self, pid: Pid) -> Result<Seen, ScanError> {
        let seen = self.maps_of(pid, None)?;
        if seen == Seen::Ended {
            self.of_a_thread(pid, Self::maps_of)?;
        }
        self.noted(pid, seen)
    }

    fn noted(&mut self, pid: Pid, seen: Seen) -> Result<Seen, ScanError> {
        if seen == Seen::Partly {
            self.uses.unreadable.push(pid);
        }
        Ok(seen)
    }

    /// Reads through another thread, for a leader that exited shows nothing of what the process uses.
    fn of_a_thread(
        &mut self,
        pid: Pid,
        read: impl Fn(&mut Self, Pid, Option<Pid>) -> Result<Seen, ScanError>,
    ) -> Result<(), ScanError> {
        let name = named(&mut self.name, format_args!("{pid}/task"));
        let threads = match open_below(self.root, name, OFlags::DIRECTORY) {
            Ok(directory) => numbers(directory.as_fd(), &mut self.list),
            Err(errno) => Err(errno),
        };
        let threads = match threads {
            Ok(threads) => threads,
            Err(errno) => {
                let seen = refused(errno)?;
                self.noted(pid, seen)?;
                return Ok(());
            }
        };
        for thread in threads.into_iter().filter(|&thread| thread != pid) {
            match read(self, pid, Some(thread))? {
                Seen::Whole => break,
                Seen::Partly => {
                    self.noted(pid, Seen::Partly)?;
                    break;
                }
                Seen::Ended => {}
            }
        }
        Ok(())
    }

    /// Reads descriptors and then the working directory. An exiting process gives up its descriptors
    /// first, so while the directory is there, the descriptors were, too.
    fn links_of(&mut self, pid: Pid, thread: Option<Pid>) -> Result<Seen, ScanError> {
        let descriptors = self.descriptors_of(pid, thread)?;
        let name = name_of(&mut self.name, pid, thread, "cwd");
        let directory = match readlinkat_raw(self.root, name, self.link.as_mut_slice()) {
            Ok(count) => {
                let path = self.link.get(..count).unwrap_or_default();
                self.uses
                    .push((pid, self.space), UsedBy::WorkingDirectory, path);
                Seen::Whole
            }
            Err(Errno::NAMETOOLONG) => {
                let place = open_below(self.root, name, OFlags::PATH);
                self.push_deep(pid, UsedBy::WorkingDirectory, place)?
            }
            Err(errno) => refused(errno)?,
        };
        Ok(match (descriptors, directory) {
            (Seen::Ended, _) | (_, Seen::Ended) => Seen::Ended,
            (Seen::Partly, _) | (_, Seen::Partly) => Seen::Partly,
            (Seen::Whole, Seen::Whole) => Seen::Whole,
        })
    }

    fn descriptors_of(&mut self, pid: Pid, thread: Option<Pid>) -> Result<Seen, ScanError> {
        let name = name_of(&mut self.name, pid, thread, "fd");
        let directory = match open_below(self.root, name, OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(errno) => return refused(errno),
        };
        let mut seen = Seen::Whole;
        let mut deep = Vec::new();
        let mut entries = RawDir::new(&directory, self.list.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return refused(errno),
            };
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            match readlinkat_raw(&directory, name, self.link.as_mut_slice()) {
                Ok(count) => {
                    let path = self.link.get(..count).unwrap_or_default();
                    self.uses.push((pid, self.space), UsedBy::Descriptor, path);
                }
                Err(Errno::NAMETOOLONG) => {
                    deep.push(open_below(directory.as_fd(), name.to_bytes(), OFlags::PATH));
                }
                Err(errno) => match refused(errno)? {
                    // Closed since it was listed.
                    Seen::Ended | Seen::Whole => {}
                    Seen::Partly => seen = Seen::Partly,
                },
            }
        }
        for place in deep {
            if self.push_deep(pid, UsedBy::Descriptor, place)? == Seen::Partly {
                seen = Seen::Partly;
            }
        }
        Ok(seen)
    }

    /// Adds a directory whose path is too long to be shown under the nearest one above it that can be.
    /// A file leads nowhere.
    fn push_deep(
        &mut self,
        pid: Pid,
        by: UsedBy,
        place: Result<OwnedFd, Errno>,
    ) -> Result<Seen, ScanError> {
        let mut place = match place {
            Ok(place) => place,
            Err(errno) => return refused(errno),
        };
        for _step in 0..STEPS {
            place = match open_below(place.as_fd(), b"..", OFlags::PATH) {
                Ok(above) => above,
                Err(errno) => return refused(errno),
            };
            let name = named(
                &mut self.name,
                format_args!("self/fd/{}", place.as_raw_fd()),
            );
            match readlinkat_raw(self.root, name, self.link.as_mut_slice()) {
                Ok(count) => {
                    let path = self.link.get(..count).unwrap_or_default();
                    self.uses.push((pid, self.space), by, path);
                    return Ok(Seen::Whole);
                }
                Err(Errno::NAMETOOLONG) => {}
                Err(errno) => return refused(errno),
            }
        }
        Ok(Seen::Partly)
    }

    fn maps_of(&mut self, pid: Pid, thread: Option<Pid>) -> Result<Seen, ScanError> {
        let name = name_of(&mut self.name, pid, thread, "maps");
        let file = match open_below(self.root, name, OFlags::empty()) {
            Ok(file) => file,
            Err(errno) => return refused(errno),
        };
        let mut is_empty = true;
        let mut filled = 0_usize;
        loop {
            let room = self.maps.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                return Ok(Seen::Partly);
            }
            match rustix::io::read(&file, room) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(Errno::INTR) => {}
                Err(errno) => return refused(errno),
            }
            is_empty = false;
            filled = self.take_lines(pid, filled);
        }
        if filled > 0 {
            self.take_line(pid, 0, filled);
        }
        if !is_empty {
            return Ok(Seen::Whole);
        }
        // A kernel thread has no mappings; neither has a process that is ending, nor its directory.
        let name = name_of(&mut self.name, pid, thread, "cwd");
        match readlinkat_raw(self.root, name, self.link.as_mut_slice()) {
            Ok(_count) => Ok(Seen::Whole),
            Err(errno) => refused(errno),
        }
    }

    /// Takes the whole lines out of what was read, and returns how much of a line is left.
    fn take_lines(&mut self, pid: Pid, filled: usize) -> usize {
        let mut start = 0;
        while let Some(length) = self
            .maps
            .get(start..filled)
            .and_then(|rest| find_byte(rest, b'\n'))
        {
            let end = start.saturating_add(length);
            self.take_line(pid, start, end);
            start = end.saturating_add(1);
        }
        self.maps.copy_within(start..filled, 0);
        filled.saturating_sub(start)
    }

    fn take_line(&mut self, pid: Pid, start: usize, end: usize) {
        if let Some(path) = self.maps.get(start..end).and_then(mapped_path) {
            self.uses.push((pid, self.space), UsedBy::Mapping, path);
        }
    }
}

/// Says what an error means for the process that was looked at, or that nobody can be looked at.
fn refused(errno: Errno) -> Result<Seen, ScanError> {
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
fn numbers(directory: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<Vec<Pid>, Errno> {
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
fn open_below(root: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(root.as_fd(), name, flags, Mode::empty())
}

fn name_of<'a>(buffer: &'a mut Vec<u8>, pid: Pid, thread: Option<Pid>, what: &str) -> &'a [u8] {
    match thread {
        None => named(buffer, format_args!("{pid}/{what}")),
        Some(thread) => named(buffer, format_args!("{pid}/task/{thread}/{what}")),
    }
}

fn named<'a>(buffer: &'a mut Vec<u8>, name: std::fmt::Arguments<'_>) -> &'a [u8] {
    buffer.clear();
    // Memory takes all there is.
    let _written = buffer.write_fmt(name);
    buffer
}
