//! Reads what processes use, without an allocation for an entry.
//!
//! A process that exits gives up its memory first, then its descriptors, then its directory. So memory
//! is read last: whoever still has it had the rest, too.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags, RawDir, readlinkat_raw, statat};
use rustix::io::Errno;

use super::kin::Kin;
use super::maps::{find_byte, find_either, shows_file};
use super::occupants::UsedBy;
use super::pass::ScanError;
use super::source::{LIST_BYTES, MOUNTINFO_BYTES, Seen, Source, numbers, open_below, refused};
use super::uses::Uses;
use crate::id::Pid;
use crate::mountinfo::MountTable;
use crate::sys;

/// How far up a directory is followed whose path cannot be shown.
const STEPS: usize = 4_096;

/// A page, which is all that the kernel gives of a link, and one byte to notice more.
const LINK_BYTES: usize = 4_097;

/// The longest line of `maps` that is taken.
const MAPS_BYTES: usize = 32 << 10;

/// Room for `mnt:[4026531841]`.
const NAMESPACE_BYTES: usize = 64;

/// What is read of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Directory and descriptors.
    Links,
    /// Mappings.
    Maps,
    Both,
}

/// The buffers of a reading, used for every process again.
pub(super) struct Reader<'a> {
    root: BorrowedFd<'a>,
    name: Vec<u8>,
    link: Vec<u8>,
    list: Vec<u8>,
    maps: Vec<u8>,
    /// In which of the mount namespaces the process is that is read, once it was looked up.
    space: Option<usize>,
    kin: Option<Kin>,
    /// The last one was a thread of the kernel. They have their numbers in a row.
    after_kernel: bool,
    uses: Uses,
}

/// A process, or one thread of it, that is read.
struct Visited {
    pid: Pid,
    thread: Option<Pid>,
    /// Its list of descriptors. All else is read from beside it: that costs less than to find the
    /// process again for each, and it cannot be another one that has its number by then.
    descriptors: Result<OwnedFd, Seen>,
}

impl<'a> Reader<'a> {
    /// Starts with our own mount namespace and who cannot be read.
    pub(super) fn new(source: &'a Source) -> Self {
        let mut reader = Self::over(source);
        let own = |who: &[u8]| {
            let name = [who, b"/ns/mnt"].concat();
            mount_namespace(source.root.as_fd(), &name)
        };
        let inode = own(b"thread-self").or_else(|_older_kernel| own(b"self"));
        reader.uses.inodes.push(inode.unwrap_or(None));
        reader.uses.spaces.push(Arc::clone(&source.mounts));
        reader.uses.unreadable.extend_from_slice(&source.covered);
        reader.uses.obscured.extend_from_slice(&source.covered);
        reader
    }

    /// Starts where a reading of links ended.
    pub(super) fn after(source: &'a Source, links: &Uses) -> Self {
        let mut reader = Self::over(source);
        reader.uses.inodes.clone_from(&links.inodes);
        reader.uses.spaces.clone_from(&links.spaces);
        reader
    }

    fn over(source: &'a Source) -> Self {
        Self {
            root: source.root.as_fd(),
            name: Vec::new(),
            link: vec![0; LINK_BYTES],
            list: Vec::with_capacity(LIST_BYTES),
            maps: vec![0; MAPS_BYTES],
            space: None,
            kin: source.kin,
            after_kernel: false,
            uses: Uses::default(),
        }
    }

    /// Ends the reading. Whoever `ended` unseen may have left somebody.
    pub(super) fn finish(self, ended: &[Pid]) -> Uses {
        let mut uses = self.uses;
        uses.read.sort_unstable();
        uses.unreadable.extend_from_slice(ended);
        uses.unreadable.sort_unstable();
        uses.unreadable.dedup();
        uses
    }

    /// Reads a process, and those of its threads that show something else.
    pub(super) fn visit(&mut self, pid: Pid, wanted: Wanted) -> Result<Seen, ScanError> {
        self.space = None;
        if self.after_kernel && self.is_of_kernel(pid) {
            return Ok(Seen::Kernel);
        }
        let visited = self.open(pid, None)?;
        let seen = self.read(&visited, wanted)?;
        self.after_kernel = seen == Seen::Kernel;
        match seen {
            Seen::Kernel => return Ok(seen),
            Seen::Bare if !self.has_more_threads(&visited) => return Ok(seen),
            Seen::Bare | Seen::Ended => self.of_a_thread(&visited, wanted)?,
            Seen::Whole | Seen::Partly => self.of_threads_apart(&visited)?,
        }
        self.uses.read.push((pid, self.space.unwrap_or(0)));
        self.noted(pid, seen)
    }

    /// Reads the mappings of a process whose links were read.
    pub(super) fn visit_again(&mut self, pid: Pid, space: usize) -> Result<Seen, ScanError> {
        self.space = Some(space);
        let visited = Visited {
            pid,
            thread: None,
            descriptors: Err(Seen::Whole),
        };
        let seen = self.read(&visited, Wanted::Maps)?;
        if seen == Seen::Ended {
            self.of_a_thread(&visited, Wanted::Maps)?;
        }
        self.noted(pid, seen)
    }

    fn open(&mut self, pid: Pid, thread: Option<Pid>) -> Result<Visited, ScanError> {
        let name = name_of(&mut self.name, pid, thread, b"fd");
        let descriptors = match open_below(self.root, name, OFlags::DIRECTORY) {
            Ok(descriptors) => Ok(descriptors),
            Err(errno) => Err(refused(errno)?),
        };
        Ok(Visited {
            pid,
            thread,
            descriptors,
        })
    }

    fn read(&mut self, visited: &Visited, wanted: Wanted) -> Result<Seen, ScanError> {
        let links = match wanted {
            Wanted::Links => return self.links_of(visited),
            Wanted::Maps => Seen::Whole,
            Wanted::Both => self.links_of(visited)?,
        };
        if matches!(links, Seen::Ended | Seen::Bare | Seen::Kernel) {
            return Ok(links);
        }
        self.noted(visited.pid, links)?;
        self.maps_of(visited)
    }

    fn noted(&mut self, pid: Pid, seen: Seen) -> Result<Seen, ScanError> {
        if seen == Seen::Partly {
            self.uses.unreadable.push(pid);
        }
        Ok(seen)
    }

    fn push(&mut self, pid: Pid, by: UsedBy, length: usize) {
        let path = self.link.get(..length).unwrap_or_default();
        self.uses.push((pid, self.space.unwrap_or(0)), by, path);
    }

    /// Reads descriptors and then the working directory.
    fn links_of(&mut self, visited: &Visited) -> Result<Seen, ScanError> {
        let descriptors = self.descriptors_of(visited)?;
        let may_be_bare = descriptors == Seen::Whole && self.space.is_none();
        if may_be_bare && visited.thread.is_none() && self.is_of_kernel(visited.pid) {
            return Ok(Seen::Kernel);
        }
        let (beside, name) = place(self.root, &mut self.name, visited, b"cwd");
        let by = UsedBy::WorkingDirectory;
        let directory = match readlinkat_raw(beside, name, self.link.as_mut_slice()) {
            Ok(count) => {
                let is_top = self.link.get(..count) == Some(b"/");
                if may_be_bare && is_top && self.has_no_memory(visited) {
                    self.push(visited.pid, by, count);
                    return Ok(Seen::Bare);
                }
                self.enter(visited)?;
                self.push(visited.pid, by, count);
                Seen::Whole
            }
            Err(Errno::NAMETOOLONG) => {
                let place = open_below(beside, name, OFlags::PATH);
                self.enter(visited)?;
                self.push_deep(visited.pid, by, place)?
            }
            Err(errno) => refused(errno)?,
        };
        Ok(descriptors.max(directory))
    }

    fn descriptors_of(&mut self, visited: &Visited) -> Result<Seen, ScanError> {
        let directory = match &visited.descriptors {
            Ok(directory) => directory.as_fd(),
            Err(seen) => return Ok(*seen),
        };
        let mut list = std::mem::take(&mut self.list);
        let seen = self.each_descriptor(visited, directory, &mut list);
        self.list = list;
        seen
    }

    fn each_descriptor(
        &mut self,
        visited: &Visited,
        directory: BorrowedFd<'_>,
        list: &mut Vec<u8>,
    ) -> Result<Seen, ScanError> {
        let mut seen = Seen::Whole;
        let mut entries = RawDir::new(directory, list.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return refused(errno),
            };
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            self.enter(visited)?;
            let one = match readlinkat_raw(directory, name, self.link.as_mut_slice()) {
                Ok(count) => {
                    self.push(visited.pid, UsedBy::Descriptor, count);
                    continue;
                }
                // Who may not see where one of them leads may not for any other.
                Err(Errno::ACCESS | Errno::PERM) => return Ok(Seen::Partly),
                Err(Errno::NAMETOOLONG) => {
                    let place = open_below(directory, name.to_bytes(), OFlags::PATH);
                    self.push_deep(visited.pid, UsedBy::Descriptor, place)?
                }
                Err(errno) => refused(errno)?,
            };
            // Or it was closed since it was listed.
            if one == Seen::Partly {
                seen = one;
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
                    self.push(pid, by, count);
                    return Ok(Seen::Whole);
                }
                Err(Errno::NAMETOOLONG) => {}
                Err(errno) => return refused(errno),
            }
        }
        Ok(Seen::Partly)
    }

    /// Reads the mappings. Who has none, not even the kernel's own, has no memory any more.
    fn maps_of(&mut self, visited: &Visited) -> Result<Seen, ScanError> {
        let (beside, name) = place(self.root, &mut self.name, visited, b"maps");
        let file = match open_below(beside, name, OFlags::empty()) {
            Ok(file) => file,
            Err(errno) => return refused(errno),
        };
        let mut seen = Seen::Ended;
        let mut filled = 0_usize;
        loop {
            let room = self.maps.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                return Ok(Seen::Partly);
            }
            match rustix::io::read(&file, room) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(Errno::INTR) => continue,
                Err(errno) => return refused(errno),
            }
            seen = Seen::Whole;
            self.enter(visited)?;
            filled = self.take_lines(visited.pid, filled);
        }
        let line = self.maps.get(..filled).unwrap_or_default();
        if let Some(at) = find_byte(line, b'/') {
            self.take_line(visited.pid, 0, at, filled);
        }
        Ok(seen)
    }

    /// Takes the whole lines out of what was read, and returns how much of a line is left.
    fn take_lines(&mut self, pid: Pid, filled: usize) -> usize {
        let mut start = 0_usize;
        while let Some(found) = self
            .maps
            .get(start..filled)
            .and_then(|rest| find_either(rest, b'/', b'\n'))
        {
            let at = start.saturating_add(found);
            let rest = self.maps.get(at..filled).unwrap_or_default();
            let end = match find_byte(rest, b'\n') {
                // Most lines show no file, and nothing before the path has a slash.
                Some(0) => at,
                Some(length) => {
                    let end = at.saturating_add(length);
                    self.take_line(pid, start, at, end);
                    end
                }
                None => break,
            };
            start = end.saturating_add(1);
        }
        self.maps.copy_within(start..filled, 0);
        filled.saturating_sub(start)
    }

    /// Takes a line whose first slash stands `at` this place.
    fn take_line(&mut self, pid: Pid, start: usize, at: usize, end: usize) {
        let path = self.maps.get(at..end).unwrap_or_default();
        // The parts of one file follow each other.
        if self.uses.is_last(pid, UsedBy::Mapping, path) {
            return;
        }
        if self.maps.get(start..at).is_some_and(shows_file) {
            let user = (pid, self.space.unwrap_or(0));
            self.uses.push(user, UsedBy::Mapping, path);
        }
    }

    /// Finds out how a process names paths, if that was not done.
    fn enter(&mut self, visited: &Visited) -> Result<(), ScanError> {
        if self.space.is_none() {
            self.space = Some(self.find_space(visited)?);
        }
        Ok(())
    }

    fn find_space(&mut self, visited: &Visited) -> Result<usize, ScanError> {
        let (beside, name) = place(self.root, &mut self.name, visited, b"ns/mnt");
        // If it cannot be told, its paths cannot be read either, which is what counts.
        let Some(inode) = mount_namespace(beside, name).unwrap_or(None) else {
            return Ok(0);
        };
        // Links show paths of our own namespace from our root, whatever the root of a process.
        if self.uses.inodes.first() == Some(&Some(inode)) {
            return Ok(0);
        }
        let mounts = match self.root_of(visited) {
            Ok(root) => {
                let mut known = self.uses.inodes.iter().zip(&self.uses.spaces);
                let is_its_own = |(one, space): (&Option<u64>, &Arc<MountTable>)| {
                    *one == Some(inode) && space.is_seen_from(&root)
                };
                if let Some(known) = known.position(is_its_own) {
                    return Ok(known);
                }
                self.mount_table(visited, &root)
            }
            Err(errno) => Err(errno),
        };
        match mounts {
            Ok(mounts) => {
                self.uses.inodes.push(Some(inode));
                self.uses.spaces.push(Arc::new(mounts));
                Ok(self.uses.spaces.len().saturating_sub(1))
            }
            Err(errno) => {
                if errno == Errno::FBIG {
                    self.uses.obscured.push(visited.pid);
                }
                let seen = refused(errno)?;
                self.noted(visited.pid, seen)?;
                Ok(0)
            }
        }
    }

    fn root_of(&mut self, visited: &Visited) -> Result<Vec<u8>, Errno> {
        // The other buffer may hold a path that is to be added.
        let mut root = vec![0; LINK_BYTES];
        let (beside, name) = place(self.root, &mut self.name, visited, b"root");
        let count = readlinkat_raw(beside, name, root.as_mut_slice())?;
        root.truncate(count);
        Ok(root)
    }

    fn mount_table(&mut self, visited: &Visited, root: &[u8]) -> Result<MountTable, Errno> {
        let (beside, name) = place(self.root, &mut self.name, visited, b"mountinfo");
        let file = open_below(beside, name, OFlags::empty())?;
        let text = sys::read_whole(&file, MOUNTINFO_BYTES)?;
        if text.len() >= MOUNTINFO_BYTES {
            // Where it uses what cannot be told.
            return Err(Errno::FBIG);
        }
        Ok(MountTable::parse(&text, root))
    }

    fn is_of_kernel(&self, pid: Pid) -> bool {
        self.kin.as_ref().is_some_and(|kin| kin.is_of_kernel(pid))
    }

    /// Tells whether somebody without descriptors has no program either: what is left of its memory
    /// would have one.
    fn has_no_memory(&mut self, visited: &Visited) -> bool {
        let (beside, name) = place(self.root, &mut self.name, visited, b"exe");
        let mut beginning = [0; 1];
        readlinkat_raw(beside, name, beginning.as_mut_slice()) == Err(Errno::NOENT)
    }

    /// Tells whether a process has more threads than its first.
    fn has_more_threads(&mut self, visited: &Visited) -> bool {
        let (beside, name) = place(self.root, &mut self.name, visited, b"task");
        // A directory has two links, and one more for each directory in it.
        statat(beside, name, AtFlags::empty()).is_ok_and(|task| task.st_nlink > 3)
    }

    /// Lists the threads but for the first.
    fn other_threads(&mut self, visited: &Visited) -> Result<Vec<Pid>, Errno> {
        let (beside, name) = place(self.root, &mut self.name, visited, b"task");
        let directory = open_below(beside, name, OFlags::DIRECTORY)?;
        let mut threads = numbers(directory.as_fd(), &mut self.list)?;
        threads.retain(|&thread| thread != visited.pid);
        Ok(threads)
    }

    /// Reads the threads that have a directory or descriptors of their own, as `unshare` makes them.
    ///
    /// Where the kernel does not compare them nothing else tells for sure who has, and each thread is read.
    fn of_threads_apart(&mut self, visited: &Visited) -> Result<(), ScanError> {
        if !self.has_more_threads(visited) {
            return Ok(());
        }
        match self.other_threads(visited) {
            Ok(threads) => self.of_those_apart(visited.pid, visited.pid, threads),
            Err(errno) => refused(errno).map(|_seen| ()),
        }
    }

    /// Reads those of the threads that may have another directory or other descriptors than the one that was read.
    fn of_those_apart(
        &mut self,
        pid: Pid,
        read: Pid,
        threads: impl IntoIterator<Item = Pid>,
    ) -> Result<(), ScanError> {
        for thread in threads {
            let kin = self.kin.as_ref();
            let compared = kin.and_then(|kin| kin.are_apart(read, thread));
            let seen = match compared {
                Some(false) => continue,
                None if self.is_closed_to_us(pid, thread) => Seen::Partly,
                Some(true) | None => self.links_of_thread(pid, thread)?,
            };
            self.noted(pid, seen)?;
        }
        Ok(())
    }

    fn links_of_thread(&mut self, pid: Pid, thread: Pid) -> Result<Seen, ScanError> {
        let space = self.space.take();
        let thread = self.open(pid, Some(thread))?;
        let seen = self.links_of(&thread)?;
        self.space = space;
        Ok(seen)
    }

    /// Tells whether a thread may not be looked into. To list its descriptors costs more, and then none of them may be.
    fn is_closed_to_us(&mut self, pid: Pid, thread: Pid) -> bool {
        let name = name_of(&mut self.name, pid, Some(thread), b"cwd");
        let directory = readlinkat_raw(self.root, name, self.link.as_mut_slice());
        matches!(directory, Err(Errno::ACCESS | Errno::PERM))
    }

    /// Reads through another thread, for a leader that exited shows nothing of what the process uses, and then
    /// those that differ from that one.
    fn of_a_thread(&mut self, visited: &Visited, wanted: Wanted) -> Result<(), ScanError> {
        let pid = visited.pid;
        let threads = match self.other_threads(visited) {
            Ok(threads) => threads,
            Err(errno) => {
                let seen = refused(errno)?;
                return self.noted(pid, seen).map(|_seen| ());
            }
        };
        let mut threads = threads.into_iter();
        while let Some(thread) = threads.next() {
            self.space = None;
            let opened = self.open(pid, Some(thread))?;
            let seen = self.read(&opened, wanted)?;
            if matches!(seen, Seen::Whole | Seen::Partly) {
                self.noted(pid, seen)?;
                // All threads have one memory.
                if wanted == Wanted::Maps {
                    return Ok(());
                }
                return self.of_those_apart(pid, thread, threads);
            }
        }
        Ok(())
    }
}

/// Returns where something about who is visited is, and its name there.
fn place<'b>(
    root: BorrowedFd<'b>,
    name: &'b mut Vec<u8>,
    visited: &'b Visited,
    what: &[u8],
) -> (BorrowedFd<'b>, &'b [u8]) {
    let Ok(descriptors) = &visited.descriptors else {
        return (root, name_of(name, visited.pid, visited.thread, what));
    };
    name.clear();
    name.extend_from_slice(b"../");
    name.extend_from_slice(what);
    (descriptors.as_fd(), name)
}

fn mount_namespace(beside: BorrowedFd<'_>, name: &[u8]) -> Result<Option<u64>, Errno> {
    let mut text = [0; NAMESPACE_BYTES];
    let count = readlinkat_raw(beside, name, text.as_mut_slice())?;
    let number = text
        .get(..count)
        .and_then(|text| text.strip_prefix(b"mnt:["))
        .and_then(|text| text.strip_suffix(b"]"));
    Ok(number.and_then(|number| str::from_utf8(number).ok()?.parse().ok()))
}

fn name_of<'a>(buffer: &'a mut Vec<u8>, pid: Pid, thread: Option<Pid>, what: &[u8]) -> &'a [u8] {
    match thread {
        None => named(buffer, format_args!("{pid}/")),
        Some(thread) => named(buffer, format_args!("{pid}/task/{thread}/")),
    };
    buffer.extend_from_slice(what);
    buffer
}

pub(super) fn named<'a>(buffer: &'a mut Vec<u8>, name: std::fmt::Arguments<'_>) -> &'a [u8] {
    buffer.clear();
    // Memory takes all there is.
    let _written = buffer.write_fmt(name);
    buffer
}
