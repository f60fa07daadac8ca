//! The fence: what lies at the record's path, looked at and acted on under the kernel lock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use lease_core::RecordClass;

use crate::busy::{Adopted, AdoptionCause};
use crate::error::Step;
use crate::fault::{FaultPoint, Faults};
use crate::files::{self, FileId, Kind, Object, Opening};
use crate::gate::{Gate, Side, Stand};
use crate::legacy::Legacy;
use crate::limits::{RECORD_BYTES, RECORD_READ_BYTES};
use crate::record::{self, Content, LastWriter};
use crate::sys::Unshared;

/// The record of this process, if it has one, and the gate on the same file.
#[derive(Debug, Default)]
pub(crate) struct RecordFile {
    own: Option<Own>,
    /// An open file of the record whose lock only wakes. Perhaps the one by which it is written.
    gate: Option<Gate>,
    /// By which side of the gate the next hold comes in: not by that of the last one.
    side: Side,
}

/// The descriptor stays open as long as the file is remembered, so that its inode number cannot be
/// used again. A gate may use it too, here or in the line: to write through it moves no lock.
#[derive(Debug)]
struct Own {
    descriptor: Arc<Unshared>,
    file: FileId,
}

/// What the fence saw.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) class: RecordClass,
    pub(crate) same_file: bool,
    /// Whom it names, where it was read.
    pub(crate) writer: Option<LastWriter>,
    pub(crate) size: Option<u64>,
    /// Where the object is known by its file.
    file: Option<FileId>,
    /// What was opened to be read, and whether it can be written.
    opened: Option<Result<Arc<Unshared>, io::Error>>,
}

impl Look {
    const fn of(class: RecordClass) -> Self {
        Self {
            class,
            same_file: false,
            writer: None,
            size: None,
            file: None,
            opened: None,
        }
    }
}

/// What a record is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) path: &'a Path,
    /// A name that nobody else has, for one in the making, where one is made.
    pub(crate) unique: Option<&'a Path>,
}

/// What came of making the record at the path our own.
#[derive(Debug)]
pub(crate) enum Adoption {
    /// `None` if it is the first one and was made.
    Done(Option<Adopted>),
    /// Somebody else was faster.
    Lost,
}

impl RecordFile {
    /// Looks at the path. On the fast path one look at the inode is all.
    pub(crate) fn look(
        &self,
        path: &Path,
        legacy: Legacy,
        faults: &mut Faults,
    ) -> Result<Look, (Step, io::Error)> {
        let fence = |error| (Step::Fence, error);
        if self.own.is_none()
            && let Some(gate) = &self.gate
        {
            return look_through(gate, path, legacy, faults);
        }
        let Some((file, kind)) = files::identify(path).map_err(fence)? else {
            return Ok(Look::of(RecordClass::Missing));
        };
        if self.is_own(file) {
            return Ok(Look {
                same_file: true,
                ..Look::of(RecordClass::Current)
            });
        }
        match kind {
            Kind::Directory => Ok(Look::of(RecordClass::Directory)),
            Kind::Other => Ok(Look::of(RecordClass::NotARegularFile)),
            Kind::Regular => read(path, file, legacy, faults),
        }
    }

    /// Makes the record at the path our own; `reap` puts a new one in the place of a dead claim, which
    /// is made under the name that nobody else has.
    pub(crate) fn adopt(
        &mut self,
        names: Names<'_>,
        look: Look,
        reap: bool,
        faults: &mut Faults,
    ) -> Result<Adoption, (Step, io::Error)> {
        let Names { path, unique } = names;
        let adopt = |error| (Step::Adopt, error);
        let old = self.own.as_ref().map(|own| own.file.inode());
        let is_first = self.own.is_none();
        let (cause, found) = if reap {
            let both = look.file.zip(unique);
            let (claim, unique) = both.ok_or_else(|| adopt(io::ErrorKind::NotFound.into()))?;
            let made = faults
                .hit(FaultPoint::Adopt)
                .and_then(|()| exchange(path, unique, claim));
            (AdoptionCause::Reaped, made.map_err(adopt)?)
        } else if look.class == RecordClass::Missing {
            let (point, step) = if is_first {
                (FaultPoint::Open, Step::Open)
            } else {
                (FaultPoint::Adopt, Step::Adopt)
            };
            let made = faults
                .hit(point)
                .and_then(|()| files::open(path, Opening::New));
            let made = match made {
                Err(error) if is_occupied(&error) => Ok(None),
                made => made.map(|made| Some(Arc::new(Unshared::new(made)))),
            };
            (AdoptionCause::Missing, made.map_err(|error| (step, error))?)
        } else {
            let opened = look.opened.transpose().map_err(adopt)?;
            (AdoptionCause::Replaced, opened)
        };
        let Some(descriptor) = found else {
            return Ok(Adoption::Lost);
        };
        let record_size = u64::try_from(RECORD_BYTES).unwrap_or(u64::MAX);
        if look.size.is_some_and(|size| size > record_size) {
            // A write in place never shortens a file, and what would be left behind it is no JSON.
            files::set_size(&*descriptor, record_size).map_err(adopt)?;
        }
        // That of a dead claim is another one.
        let known = look.file.filter(|_| cause == AdoptionCause::Replaced);
        self.keep(descriptor, known).map_err(adopt)?;
        let new = self.own.as_ref().map(|own| own.file.inode());
        let is_told = !(is_first && cause == AdoptionCause::Missing);
        let adopted = Adopted { cause, old, new };
        Ok(Adoption::Done(is_told.then_some(adopted)))
    }

    /// Writes the record in one call. A part of it is an error.
    pub(crate) fn write(&self, bytes: &[u8], faults: &mut Faults) -> io::Result<()> {
        let own = self.own.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut given = bytes;
        if faults.hit(FaultPoint::ShortWrite).is_err() {
            (given, _) = bytes.split_at(bytes.len() / 2);
        }
        if files::write_start(&*own.descriptor, given)? < bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    /// Closes the gate behind us if that is possible at once. Returns whether it was; `None` if there
    /// is no gate.
    pub(crate) fn close_gate(&mut self, path: &Path) -> Option<bool> {
        match &self.own {
            Some(own) if self.gate.is_none() => {
                self.gate = Gate::at(path).filter(|gate| gate.is_on(own.file));
            }
            Some(_) => {}
            // Nobody says which file it is, so it is the one that is there now.
            None => self.gate = Gate::at(path),
        }
        let is_closed = self.gate.as_ref()?.try_close(self.side)?;
        if is_closed {
            self.side = self.side.other();
        }
        Some(is_closed)
    }

    /// Tells whether there is a gate on our record.
    pub(crate) const fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    /// Keeps a gate that let us through and is closed behind us, if it is one on our record. Returns
    /// one that is open now, and not needed.
    pub(crate) fn keep_gate(&mut self, passed: Stand) -> Option<Gate> {
        let is_ours = self.is_own(passed.gate().file());
        if !is_ours {
            passed.gate().open();
            return Some(passed.into_gate());
        }
        self.side = passed.side();
        // It is open: two of one process cannot be closed at once.
        self.gate.replace(passed.into_gate())
    }

    /// Tells whether a file is our record.
    pub(crate) fn is_own(&self, file: FileId) -> bool {
        self.own.as_ref().is_some_and(|own| own.file == file)
    }

    /// Opens the gate again, which wakes whoever waits at it.
    pub(crate) fn open_gate(&self) {
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    fn keep(&mut self, descriptor: Arc<Unshared>, known: Option<FileId>) -> io::Result<()> {
        let file = match known {
            Some(file) => file,
            None => files::look_at(&*descriptor)?.id,
        };
        self.own = Some(Own { descriptor, file });
        // A gate on another file wakes nobody who looks at this one.
        self.gate.take_if(|gate| !gate.is_on(file));
        Ok(())
    }
}

/// Reads whom the record at a path names. Never fails.
pub(crate) fn last_writer(path: &Path) -> Option<LastWriter> {
    let file = files::open_regular(path).ok()?;
    let found = files::look_at(&file).ok()?;
    if found.kind != Kind::Regular {
        return None;
    }
    with_bytes(&file, found.size, record::named).ok()?
}

/// Looks at the path while the record is not ours yet, and the gate is a file that was opened there.
fn look_through(
    gate: &Gate,
    path: &Path,
    legacy: Legacy,
    faults: &mut Faults,
) -> Result<Look, (Step, io::Error)> {
    let found = files::look(path).map_err(|error| (Step::Fence, error))?;
    let Some(found) = found else {
        return Ok(Look::of(RecordClass::Missing));
    };
    match found.kind {
        Kind::Directory => Ok(Look::of(RecordClass::Directory)),
        Kind::Other => Ok(Look::of(RecordClass::NotARegularFile)),
        Kind::Regular if gate.is_on(found.id) => {
            let descriptor = Arc::clone(gate.descriptor());
            Ok(content(Ok(descriptor), found, legacy, faults))
        }
        Kind::Regular => read(path, found.id, legacy, faults),
    }
}

fn read(
    path: &Path,
    file: FileId,
    legacy: Legacy,
    faults: &mut Faults,
) -> Result<Look, (Step, io::Error)> {
    let opened = match files::open_to_write(path) {
        Ok(descriptor) => Ok(descriptor),
        Err(error) if is_denied(&error) => match files::open_regular(path) {
            Ok(descriptor) => Err((error, descriptor)),
            Err(error) if is_denied(&error) => return Ok(Look::of(RecordClass::Unreadable)),
            Err(error) => return failed(error),
        },
        Err(error) => return failed(error),
    };
    let opened = match opened {
        Ok(descriptor) => Ok(Arc::new(Unshared::new(descriptor))),
        Err((error, descriptor)) => Err((error, descriptor)),
    };
    let found = match &opened {
        Ok(descriptor) => files::look_at(&**descriptor),
        Err((_, descriptor)) => files::look_at(descriptor),
    };
    let Ok(found) = found else {
        return Ok(Look::of(RecordClass::Unreadable));
    };
    if found.id != file || found.kind != Kind::Regular {
        return Ok(Look::of(RecordClass::Changing));
    }
    Ok(content(opened, found, legacy, faults))
}

/// Reads what was opened, for writing or, with the reason, only for reading.
fn content(
    opened: Result<Arc<Unshared>, (io::Error, OwnedFd)>,
    found: Object,
    legacy: Legacy,
    faults: &mut Faults,
) -> Look {
    let classify = |bytes: &[u8]| record::classify(bytes, found.size);
    let read = faults.hit(FaultPoint::Read).and_then(|()| match &opened {
        Ok(descriptor) => with_bytes(&**descriptor, found.size, classify),
        Err((_, descriptor)) => with_bytes(descriptor, found.size, classify),
    });
    let Ok(content) = read else {
        return Look::of(RecordClass::Unreadable);
    };
    let (class, writer) = match content {
        Content::Current(writer) => (RecordClass::Current, writer),
        Content::Legacy(claim) => (legacy.class(&claim), Some(claim)),
        Content::Unrecognised => (RecordClass::Unrecognised, None),
    };
    Look {
        class,
        same_file: false,
        writer,
        size: Some(found.size),
        file: Some(found.id),
        opened: Some(opened.map_err(|(error, _)| error)),
    }
}

/// It vanished or became something else: the next look will see it. Other errors are the caller's.
fn failed(error: io::Error) -> Result<Look, (Step, io::Error)> {
    let is_change = files::is_link(&error)
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
        );
    if is_change {
        Ok(Look::of(RecordClass::Changing))
    } else if error.kind() == io::ErrorKind::InvalidInput {
        // Nothing that may be opened.
        Ok(Look::of(RecordClass::Unrecognised))
    } else {
        Err((Step::Adopt, error))
    }
}

/// Reads a file of which this is the size, and makes something of its bytes.
pub(crate) fn with_bytes<T>(
    file: impl AsFd,
    size: u64,
    make: impl FnOnce(&[u8]) -> T,
) -> io::Result<T> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let size = size.min(RECORD_READ_BYTES);
    // A record of ours needs no memory.
    let (mut near, mut far) = ([0; RECORD_BYTES], Vec::new());
    let bytes = match near.get_mut(..size) {
        Some(bytes) => bytes,
        None => {
            far.resize(size, 0);
            far.as_mut_slice()
        }
    };
    let read = files::read_start(file, bytes)?;
    Ok(make(bytes.get(..read).unwrap_or_default()))
}

/// Puts a new record in the place of a dead claim, and removes the claim. `None` if something else
/// lies there by now, which stays there.
///
/// To look and then to remove by name would remove whatever comes in between: a claim of somebody
/// who lives. So both change places in one step, and only then it is seen what came out. Nobody finds
/// the path empty meanwhile.
fn exchange(path: &Path, unique: &Path, claim: FileId) -> io::Result<Option<Arc<Unshared>>> {
    let made = files::open(unique, Opening::New)?;
    let own = files::look_at(&made)?.id;
    let is_out =
        |file| files::identify(unique).map(|found| found.is_some_and(|(it, _)| it == file));
    let exchanged = files::exchange(unique, path);
    let is_claim = match &exchanged {
        Ok(()) => is_out(claim)?,
        Err(_) => false,
    };
    if exchanged.is_ok() && !is_claim {
        files::exchange(unique, path)?;
    }
    // If neither came out, somebody was faster twice: it stays under that name, and nothing is lost.
    if is_claim || is_out(own)? {
        // If it stays, it is a file too many, and nothing more.
        let _removed = std::fs::remove_file(unique);
    }
    match exchanged {
        Ok(()) => Ok(is_claim.then(|| Arc::new(Unshared::new(made)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_occupied(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory
    )
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
