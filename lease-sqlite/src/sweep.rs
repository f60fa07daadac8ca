//! The boot sweep: takes away the record of a process that is proven gone.
//!
//! It removes only while it has the kernel lock, so that no holder is in the middle of signing; a mutex
//! that is missing is not made, and one that is busy means that somebody lives.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use lease_core::Verdict;
use lease_procfs::{Pid, ProcLiveness};

use crate::busy;
use crate::fault::{FaultPoint, Faults};
use crate::fence;
use crate::files::{self, FileId, Kind};
use crate::path::{Paths, Unique};
use crate::record::{self, Content, LastWriter};
use crate::sys::Number;

/// What a boot sweep did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Swept {
    /// The record named this process, which is gone, and was removed.
    Removed(Pid),
    /// There was none, or somebody else removed it first.
    AlreadyGone,
    /// The process that it names lives, or cannot be judged.
    KeptAlive(Pid),
    /// It names nobody.
    KeptUnattributable,
    /// It was replaced between two looks.
    KeptChanged,
    /// The kernel lock is busy or cannot be had.
    KeptUnlocked,
    /// Removing it failed with this error number.
    Failed(i32),
}

/// A record as it was found. The descriptor keeps the inode number from being used again.
#[derive(Debug)]
pub(crate) struct Found {
    file: FileId,
    writer: LastWriter,
    _descriptor: OwnedFd,
}

/// What the first look came to.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The number of what was opened for it, and is closed by now unless something was found.
    pub(crate) number: Option<Number>,
    pub(crate) outcome: Result<Found, Swept>,
}

/// Looks, without any lock: most records are kept, and that costs nobody anything.
pub(crate) fn look(path: &Path, liveness: &ProcLiveness) -> Looked {
    let opened = files::open_regular(path);
    let number = opened.as_ref().ok().map(Number::of);
    let outcome = match opened {
        Ok(descriptor) => look_at(descriptor, liveness),
        Err(_) => Err(match files::identify(path) {
            Ok(None) => Swept::AlreadyGone,
            Ok(Some(_)) | Err(_) => Swept::KeptUnattributable,
        }),
    };
    Looked { number, outcome }
}

fn look_at(descriptor: OwnedFd, liveness: &ProcLiveness) -> Result<Found, Swept> {
    let Some((file, writer)) = read(&descriptor) else {
        return Err(Swept::KeptUnattributable);
    };
    match busy::judge(liveness, &writer) {
        Verdict::Dead(_) => Ok(Found {
            file,
            writer,
            _descriptor: descriptor,
        }),
        Verdict::Alive(_) | Verdict::Occupied(_) | Verdict::Unknown(_) => {
            Err(Swept::KeptAlive(writer.pid))
        }
    }
}

/// Looks again, under the kernel lock, and removes.
///
/// To look and then to remove by name would remove whatever comes in between, such as a claim of
/// protocol 1 that does not ask for the lock. So the record gets another name first, and is removed
/// only if it is the one that was found.
pub(crate) fn remove(paths: &Paths, unique: Unique, found: &Found, faults: &mut Faults) -> Swept {
    let path = &*paths.record;
    let looked = faults
        .hit(FaultPoint::Look)
        .and_then(|()| files::identify(path));
    match looked {
        Ok(None) => return Swept::AlreadyGone,
        Ok(Some((file, _))) if file == found.file => {}
        Ok(Some(_)) | Err(_) => return Swept::KeptChanged,
    }
    if fence::last_writer(path).as_ref() != Some(&found.writer) {
        return Swept::KeptChanged;
    }
    let aside = paths.unfinished_record(unique);
    let removed = faults
        .hit(FaultPoint::Remove)
        .and_then(|()| take_away(path, &aside, found.file));
    match removed {
        Ok(true) => Swept::Removed(found.writer.pid),
        Ok(false) => Swept::KeptChanged,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Swept::AlreadyGone,
        Err(error) => Swept::Failed(error.raw_os_error().unwrap_or(0)),
    }
}

/// Removes one file and no other; `false` if another one was there, which is put back.
fn take_away(path: &Path, aside: &Path, file: FileId) -> io::Result<bool> {
    files::rename_new(path, aside)?;
    if files::identify(aside)?.is_some_and(|(found, _)| found == file) {
        std::fs::remove_file(aside)?;
        return Ok(true);
    }
    // If somebody was faster again, it stays under that name, and nothing is lost.
    files::rename_new(aside, path)?;
    Ok(false)
}

fn read(descriptor: &OwnedFd) -> Option<(FileId, LastWriter)> {
    let found = files::look_at(descriptor).ok()?;
    if found.kind != Kind::Regular {
        return None;
    }
    let classify = |bytes: &[u8]| record::classify(bytes, found.size);
    match fence::with_bytes(descriptor, found.size, classify).ok()? {
        Content::Current(writer) => Some((found.id, writer?)),
        // Such a claim excludes by itself: where nobody may judge it, nobody may remove it.
        Content::Legacy(writer) => cfg!(feature = "legacy-v1").then_some((found.id, writer)),
        Content::Unrecognised => None,
    }
}
