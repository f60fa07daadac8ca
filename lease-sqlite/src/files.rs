//! Files that are no mutex: what lies at a path, and how it is opened, read, written and named.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use crate::path;

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
    /// Something is mounted there, which has its own name elsewhere.
    pub(crate) is_mounted: bool,
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

/// Whether this process has the right to write to a file.
pub(crate) fn may_write(path: &Path) -> bool {
    let (here, how) = (rustix::fs::CWD, AtFlags::EACCESS);
    rustix::fs::accessat(here, path, Access::WRITE_OK, how).is_ok()
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

fn object(found: &rustix::fs::Statx) -> Object {
    Object {
        id: id_of(found),
        kind: kind_of(found),
        size: found.stx_size,
        links: found.stx_nlink,
        // Not set where the system does not tell.
        is_mounted: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
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

/// Opens the regular file at a record's path for reading. Anything else is not opened at all: to open a device
/// can do things.
pub(crate) fn open_regular(path: &Path) -> io::Result<OwnedFd> {
    open_if_regular(path, Opening::ReadOnly)
}

/// The same to write, or to lock bytes of it, which only a writer may.
pub(crate) fn open_to_write(path: &Path) -> io::Result<OwnedFd> {
    open_if_regular(path, Opening::Existing)
}

fn open_if_regular(path: &Path, opening: Opening) -> io::Result<OwnedFd> {
    match look(path)? {
        Some(found) if found.kind == Kind::Regular && !is_mutex(path, found) => open(path, opening),
        Some(_) => Err(io::ErrorKind::InvalidInput.into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Tells whether what lies at a record's path is its mutex by another name. To open that here, and to close it,
/// would drop the lock of this process.
fn is_mutex(record: &Path, found: Object) -> bool {
    let is_it = |mutex: &Path| matches!(identify(mutex), Ok(Some((file, _))) if file == found.id);
    found.links > 1 && is_it(&path::mutex_of(record))
}

/// Tells whether opening failed because a link lies there.
pub(crate) fn is_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Reads from the start, until the buffer is full or the file ends. A buffer as long as the file costs
/// one call: nobody asks for the end.
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

/// Lets two names change places in one step.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let here = rustix::fs::CWD;
    let how = RenameFlags::EXCHANGE;
    Ok(rustix::fs::renameat_with(here, one, here, other, how)?)
}

/// Gives a file another name, unless something has that name.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let here = rustix::fs::CWD;
    let how = RenameFlags::NOREPLACE;
    Ok(rustix::fs::renameat_with(here, from, here, to, how)?)
}

/// What a file system is called, by its number.
pub(crate) fn file_system(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statfs(path)?;
    // The type of the field differs between machines; the numbers are small and positive.
    Ok(u64::try_from(found.f_type).unwrap_or(0))
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
