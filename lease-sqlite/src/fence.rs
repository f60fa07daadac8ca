//! The fence: what lies at the record's path, looked at and acted on under the kernel lock.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use lease_core::RecordClass;

use crate::busy::{Adopted, AdoptionCause};
use crate::error::Step;
use crate::fault::{FaultPoint, Faults};
use crate::gate::{Gate, Side};
use crate::legacy::Legacy;
use crate::limits::{RECORD_BYTES, RECORD_READ_BYTES};
use crate::record::{self, Content, LastWriter};
use crate::sys::{self, FileId, Kind, Opening};

/// The record of this process, if it has one, and the gate on the same file.
#[derive(Debug, Default)]
pub(crate) struct RecordFile {
    own: Option<Own>,
    /// By which side of the gate the next hold comes in: not by that of the last one.
    side: Side,
}

/// The descriptor stays open as long as the file is remembered, so that its inode number cannot be
/// used again.
#[derive(Debug)]
struct Own {
    descriptor: OwnedFd,
    file: FileId,
    /// A second description of the same file, whose lock only wakes.
    gate: Option<Gate>,
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
    opened: Option<Result<OwnedFd, io::Error>>,
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

/// What came of making the record at the path our own.
#[derive(Debug)]
pub(crate) enum Adoption {
    Done(Adopted),
    /// Somebody else was faster.
    Lost,
}

impl RecordFile {
    /// Makes the record if there is nothing at the path. Whatever is there is the fence's business.
    pub(crate) fn prepare(
        &mut self,
        path: &Path,
        faults: &mut Faults,
    ) -> Result<(), (Step, io::Error)> {
        if self.own.is_some() {
            return Ok(());
        }
        faults
            .hit(FaultPoint::Open)
            .map_err(|error| (Step::Open, error))?;
        match sys::open(path, Opening::New) {
            Ok(descriptor) => self.keep(descriptor).map_err(|error| (Step::Open, error)),
            Err(error) if is_occupied(&error) => Ok(()),
            Err(error) => Err((Step::Open, error)),
        }
    }

    /// Looks at the path. On the fast path one look at the inode is all.
    pub(crate) fn look(
        &self,
        path: &Path,
        legacy: Legacy,
        faults: &mut Faults,
    ) -> Result<Look, (Step, io::Error)> {
        let fence = |error| (Step::Fence, error);
        let Some((file, kind)) = sys::identify(path).map_err(fence)? else {
            return Ok(Look::of(RecordClass::Missing));
        };
        if self.own.as_ref().is_some_and(|own| own.file == file) {
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

    /// Makes the record at the path our own; `reap` removes a dead claim first.
    pub(crate) fn adopt(
        &mut self,
        path: &Path,
        look: Look,
        reap: bool,
        faults: &mut Faults,
    ) -> Result<Adoption, (Step, io::Error)> {
        let adopt = |error| (Step::Adopt, error);
        let old = self.own.as_ref().map(|own| own.file.inode());
        let cause = if reap {
            if !is_still(path, look.file) {
                return Ok(Adoption::Lost);
            }
            // Whether it worked shows when the new one is made.
            let _removed = std::fs::remove_file(path);
            AdoptionCause::Reaped
        } else if look.class == RecordClass::Missing {
            AdoptionCause::Missing
        } else {
            AdoptionCause::Replaced
        };
        let descriptor = match (cause, look.opened) {
            (AdoptionCause::Replaced, Some(opened)) => opened.map_err(adopt)?,
            (AdoptionCause::Replaced, None) => return Ok(Adoption::Lost),
            (AdoptionCause::Missing | AdoptionCause::Reaped, _) => {
                let made = faults
                    .hit(FaultPoint::Adopt)
                    .and_then(|()| sys::open(path, Opening::New));
                match made {
                    Ok(descriptor) => descriptor,
                    Err(error) if is_occupied(&error) => return Ok(Adoption::Lost),
                    Err(error) => return Err(adopt(error)),
                }
            }
        };
        let record_size = u64::try_from(RECORD_BYTES).unwrap_or(u64::MAX);
        if look.size.is_some_and(|size| size > record_size) {
            // A write in place never shortens a file, and what would be left behind it is no JSON.
            sys::set_size(&descriptor, record_size).map_err(adopt)?;
        }
        self.keep(descriptor).map_err(adopt)?;
        let new = self.own.as_ref().map(|own| own.file.inode());
        Ok(Adoption::Done(Adopted { cause, old, new }))
    }

    /// Writes the record in one call. A part of it is an error.
    pub(crate) fn write(&self, bytes: &[u8], faults: &mut Faults) -> io::Result<()> {
        let own = self.own.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut given = bytes;
        if faults.hit(FaultPoint::ShortWrite).is_err() {
            (given, _) = bytes.split_at(bytes.len() / 2);
        }
        if sys::write_start(&own.descriptor, given)? < bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    /// Closes the gate behind us if that is possible at once. Returns whether it was; `None` if there
    /// is no gate.
    pub(crate) fn close_gate(&mut self, path: &Path) -> Option<bool> {
        let own = self.own.as_mut()?;
        if own.gate.is_none() {
            own.gate = Gate::at(path).filter(|gate| gate.is_on(own.file));
        }
        let is_closed = own.gate.as_ref()?.try_close(self.side)?;
        if is_closed {
            self.side = self.side.other();
        }
        Some(is_closed)
    }

    /// Tells whether there is a gate on our record.
    pub(crate) fn has_gate(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.gate.is_some())
    }

    /// Keeps a gate that let us through and is closed behind us, if it is one on our record. Returns
    /// one that is open now, and not needed.
    pub(crate) fn keep_gate(&mut self, gate: Gate) -> Option<Gate> {
        match &mut self.own {
            Some(own) if gate.is_on(own.file) => {
                self.side = gate.settle();
                own.gate.replace(gate)
            }
            Some(_) | None => {
                gate.open();
                Some(gate)
            }
        }
    }

    /// Opens the gate again, which wakes whoever waits at it.
    pub(crate) fn open_gate(&self) {
        if let Some(gate) = self.own.as_ref().and_then(|own| own.gate.as_ref()) {
            gate.open();
        }
    }

    fn keep(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        let file = sys::look_at(&descriptor)?.id;
        self.own = Some(Own {
            descriptor,
            file,
            gate: None,
        });
        Ok(())
    }
}

/// Reads whom the record at a path names. Never fails.
pub(crate) fn last_writer(path: &Path) -> Option<LastWriter> {
    let file = sys::open_regular(path).ok()?;
    if sys::look_at(&file).ok()?.kind != Kind::Regular {
        return None;
    }
    let bytes = bytes_of(&file).ok()?;
    record::named(&bytes)
}

fn read(
    path: &Path,
    file: FileId,
    legacy: Legacy,
    faults: &mut Faults,
) -> Result<Look, (Step, io::Error)> {
    let opened = match sys::open(path, Opening::Existing) {
        Ok(descriptor) => Ok(descriptor),
        Err(error) if is_denied(&error) => match sys::open(path, Opening::ReadOnly) {
            Ok(descriptor) => Err((error, descriptor)),
            Err(error) if is_denied(&error) => return Ok(Look::of(RecordClass::Unreadable)),
            Err(error) => return failed(error),
        },
        Err(error) => return failed(error),
    };
    let (Ok(descriptor) | Err((_, descriptor))) = &opened;
    let Ok(found) = sys::look_at(descriptor) else {
        return Ok(Look::of(RecordClass::Unreadable));
    };
    if found.id != file || found.kind != Kind::Regular {
        return Ok(Look::of(RecordClass::Changing));
    }
    let bytes = faults
        .hit(FaultPoint::Read)
        .and_then(|()| bytes_of(descriptor));
    let Ok(bytes) = bytes else {
        return Ok(Look::of(RecordClass::Unreadable));
    };
    let (class, writer) = match record::classify(&bytes, found.size) {
        Content::Current(writer) => (RecordClass::Current, writer),
        Content::Legacy(claim) => (legacy.class(&claim), Some(claim)),
        Content::Unrecognised => (RecordClass::Unrecognised, None),
    };
    Ok(Look {
        class,
        same_file: false,
        writer,
        size: Some(found.size),
        file: Some(file),
        opened: Some(opened.map_err(|(error, _)| error)),
    })
}

/// It vanished or became something else: the next look will see it. Other errors are the caller's.
fn failed(error: io::Error) -> Result<Look, (Step, io::Error)> {
    let is_change = sys::is_link(&error)
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
        );
    if is_change {
        Ok(Look::of(RecordClass::Changing))
    } else {
        Err((Step::Adopt, error))
    }
}

fn bytes_of(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; RECORD_READ_BYTES];
    let read = sys::read_start(file, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn is_still(path: &Path, file: Option<FileId>) -> bool {
    let found = sys::identify(path).ok().flatten();
    file.is_some() && found.map(|(found, _)| found) == file
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
