//! System calls: the one file of this crate that meets descriptors, locks of the kernel and forks.
#![expect(
    unsafe_code,
    reason = "descriptors that belong to SQLite, one lock query, and a handler for forks"
)]

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_procfs::Pid;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockOffsetType, FlockType, PidfdFlags};

/// Which file: equal only for one inode of one device.
///
/// An inode number is used again after the file is gone, so it is compared only while a descriptor
/// of the remembered file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: (u32, u32),
    inode: u64,
}

impl FileId {
    pub(crate) const fn inode(self) -> u64 {
        self.inode
    }
}

/// What kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    /// A symlink, pipe, socket or device.
    Other,
}

/// What lies at a path, without following a link there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) id: FileId,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) links: u32,
}

/// Looks for the inode and nothing else: a look at time stamps would make the next write pay for it.
pub(crate) fn identify(path: &Path) -> io::Result<Option<(FileId, Kind)>> {
    let mask = StatxFlags::INO | StatxFlags::TYPE;
    match rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, mask) {
        Ok(found) => Ok(Some((id_of(&found), kind_of(&found)))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks at what lies at a path.
pub(crate) fn look(path: &Path) -> io::Result<Option<Object>> {
    match rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, FULL) {
        Ok(found) => Ok(Some(object(&found))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Looks at an open file.
pub(crate) fn look_at(file: impl AsFd) -> io::Result<Object> {
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, FULL)?;
    Ok(object(&found))
}

const FULL: StatxFlags = StatxFlags::INO
    .union(StatxFlags::TYPE)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::NLINK);

const fn object(found: &rustix::fs::Statx) -> Object {
    Object {
        id: id_of(found),
        kind: kind_of(found),
        size: found.stx_size,
        links: found.stx_nlink,
    }
}

const fn id_of(found: &rustix::fs::Statx) -> FileId {
    FileId {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
    }
}

const fn kind_of(found: &rustix::fs::Statx) -> Kind {
    match FileType::from_raw_mode(found.stx_mode as u32) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

/// How a record is opened. Never for appending: the offset of a write would be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Makes it, and fails if anything is there.
    New,
    /// Reads and writes what is there.
    Existing,
    /// Reads what is there.
    ReadOnly,
}

/// Opens a file that is no mutex; never through a link, never waiting for the other end of a pipe.
pub(crate) fn open(path: &Path, opening: Opening) -> io::Result<OwnedFd> {
    let how = match opening {
        Opening::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        Opening::Existing => OFlags::RDWR,
        Opening::ReadOnly => OFlags::RDONLY,
    };
    let always = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(
        path,
        how | always,
        Mode::RUSR | Mode::WUSR,
    )?)
}

/// Opens a regular file for reading. Anything else is not opened at all: to open a device can do
/// things.
pub(crate) fn open_regular(path: &Path) -> io::Result<OwnedFd> {
    match identify(path)? {
        Some((_, Kind::Regular)) => open(path, Opening::ReadOnly),
        Some((_, Kind::Directory | Kind::Other)) => Err(io::ErrorKind::InvalidInput.into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Tells whether opening failed because a link lies there.
pub(crate) fn is_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Reads from the start, until the buffer is full or the file ends.
pub(crate) fn read_start(file: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let offset = u64::try_from(filled).unwrap_or(u64::MAX);
        match rustix::io::pread(file.as_fd(), rest, offset) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// Writes at the start, in one call, and returns how much was written.
pub(crate) fn write_start(file: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::pwrite(file.as_fd(), bytes, 0) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// Cuts a file.
pub(crate) fn set_size(file: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(file, bytes)?)
}

/// Takes the gate without waiting; `false` if somebody else has it or it cannot be had.
pub(crate) fn try_gate(file: impl AsFd) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Gives the gate back. Whoever waits at it is woken by the kernel.
pub(crate) fn leave_gate(file: impl AsFd) {
    // It cannot fail for an open descriptor, and nothing depends on it: the gate only wakes.
    let _outcome = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// Waits at the gate until it is ours; `false` if there are no such locks here.
pub(crate) fn wait_gate(file: impl AsFd) -> bool {
    loop {
        match rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive) {
            Ok(()) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Something that one thread rings and another one hears while it waits for other things too.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only when it has been rung too often to count, and then it rings.
        let _written = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn quiet(&self) {
        // It fails when it does not ring.
        let _read = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

/// Opens a process, to see when it ends. `None` if it has ended, or the kernel has no such thing.
pub(crate) fn watch(pid: Pid) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.get())?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for a ring, for the end of a process, or until the time is over. It may return early.
pub(crate) fn wait_any(bell: &Bell, process: Option<&OwnedFd>, time: Duration) {
    let timeout = Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut events = vec![PollFd::new(&bell.0, PollFlags::IN)];
    events.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    // A signal ends it early, and whoever waits looks again.
    let _outcome = poll(&mut events, Some(&timeout));
}

/// What a file system is called, by its number.
pub(crate) fn file_system(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statfs(path)?;
    // The type of the field differs between machines; the numbers are small and positive.
    Ok(u64::try_from(found.f_type).unwrap_or(0))
}

/// Returns the number of this process in its own pid namespace.
pub(crate) fn own_pid() -> Option<Pid> {
    Pid::new(rustix::process::getpid().as_raw_nonzero().get().into()).ok()
}

/// Draws eight random bytes.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut bytes, flags)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The number of a descriptor that SQLite opened. It is looked through and never closed by us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SqliteDescriptor {
    number: RawFd,
    file: FileId,
    /// The number of this process, as the kernel gives it to this process.
    owner: libc::pid_t,
}

/// The bytes on which SQLite takes its locks: pending, reserved, and 510 shared ones.
const LOCK_BYTES_START: u64 = 0x4000_0000;
const LOCK_BYTES: u64 = 512;

impl SqliteDescriptor {
    /// Finds the descriptor of a file that SQLite has open in this process.
    ///
    /// Opening the file to look at it would be fatal: closing it again drops every lock of this
    /// process. `None` where `/proc` does not show our descriptors.
    pub(crate) fn find(file: FileId) -> Option<Self> {
        let owner = rustix::process::getpid().as_raw_pid();
        let numbers = fs::read_dir("/proc/self/fd").ok()?;
        numbers
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .map(|number| Self {
                number,
                file,
                owner,
            })
            .find(|found| found.borrow().is_some())
    }

    /// Borrows it if it is still the same file.
    fn borrow(&self) -> Option<BorrowedFd<'_>> {
        if self.number < 0 {
            return None;
        }
        // SAFETY: the number is not -1. Should SQLite have closed it, `fstat` fails or shows another
        // file, and the borrow ends here. The borrow never outlives the call that it is used in.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        let is_same = look_at(fd).is_ok_and(|object| object.id == self.file);
        is_same.then_some(fd)
    }

    /// Reads the start of the file.
    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = self.borrow().ok_or(io::ErrorKind::NotFound)?;
        read_start(fd, buffer)
    }

    /// Tells whether this process has an exclusive POSIX lock on SQLite's lock bytes.
    ///
    /// A query for open-file-description locks conflicts with every POSIX lock, our own too, so
    /// that it shows whether a stray close has dropped it.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        let fd = self.borrow().ok_or(io::ErrorKind::NotFound)?;
        let short = |number: i32| number.try_into().unwrap_or(libc::c_short::MAX);
        // SAFETY: all zeroes is a valid flock.
        let mut query: libc::flock = unsafe { std::mem::zeroed() };
        query.l_type = short(libc::F_RDLCK);
        query.l_whence = short(libc::SEEK_SET);
        query.l_start = LOCK_BYTES_START.cast_signed();
        query.l_len = LOCK_BYTES.cast_signed();
        // SAFETY: the descriptor is open and the pointer is to a flock, as F_OFD_GETLK wants it.
        let answer = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut query) };
        if answer == -1 {
            return Err(io::Error::last_os_error());
        }
        // Somebody else may have got it meanwhile.
        Ok(query.l_type == short(libc::F_WRLCK) && query.l_pid == self.owner)
    }

    /// Asks the kernel which other process has a lock on SQLite's lock bytes.
    ///
    /// `None`: nobody, or somebody whose number means nothing in our pid namespace.
    pub(crate) fn locked_by(&self) -> Option<Pid> {
        let fd = self.borrow()?;
        let query = Flock {
            start: LOCK_BYTES_START,
            length: LOCK_BYTES,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        let found = rustix::process::fcntl_getlk(fd, &query).ok()??;
        Pid::new(found.pid?.as_raw_nonzero().get().into()).ok()
    }
}

/// Counts forks: a value made under another count belongs to an ancestor.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Which process, among the forks of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image(u64);

impl Image {
    /// Returns the present one. One load after the first call.
    pub(crate) fn present() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler adds to one atomic, which is sound in a forked child.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A value that is dropped only by the process that made it; a forked child leaves it alone.
#[derive(Debug)]
pub(crate) struct Native<T> {
    value: ManuallyDrop<T>,
    image: Image,
}

impl<T> Native<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            image: Image::present(),
        }
    }
}

impl<T> Deref for Native<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Native<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        if self.image == Image::present() {
            // SAFETY: it is dropped here and nowhere else, and `self` ends with this call.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileId;

    // C43
    #[test]
    fn one_inode_number_on_two_devices_is_two_files() {
        let file = FileId {
            device: (0, 1),
            inode: 5,
        };
        let other_device = FileId {
            device: (0, 2),
            ..file
        };
        assert_ne!(file, other_device);
        assert_ne!(file, FileId { inode: 6, ..file });
        assert_eq!(file, FileId { ..file });
    }
}
