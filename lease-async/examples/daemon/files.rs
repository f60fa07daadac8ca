//! Documents in a folder, each behind a fence whose state is its first line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{AuthorityId, FenceGate, Fenced, Generation, LeaseId};

/// What the name of a file that is not a document yet begins with.
const NEW: &str = ".new-";

/// How many succeeded authorities are kept. Each was in the memory of a process that is gone, and its tokens went
/// with it, so even the last one would do.
const RETIRED: usize = 8;

/// The longest first line.
const LINE: u64 = 1_024;

/// The documents, and whose tokens count.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    authority: AuthorityId,
    gates: Mutex<BTreeMap<String, Arc<Mutex<FenceGate>>>>,
    last: AtomicU64,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Fenced(Fenced),
    #[error("the fence of the document is unsound: {0}")]
    Unsound(&'static str),
    #[error("the document is no regular file")]
    Irregular,
    #[error("{0}")]
    Before(#[from] io::Error),
    /// The new document may be there, and gone again after a crash of the machine.
    #[error("not known to be written: {0}")]
    Unknown(io::Error),
    #[error("the client has gone")]
    Cut,
}

/// A document on its way. Dropped, it is none.
#[derive(Debug)]
pub(crate) struct Staged {
    path: PathBuf,
    file: File,
}

impl Staged {
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.file.write_all(bytes)?)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After the rename there is none of this name, and what is left is removed by the next start.
        drop(fs::remove_file(&self.path));
    }
}

impl Folder {
    /// Opens a folder for the tokens of `authority`. What was not finished before is removed.
    pub(crate) fn open(path: &Path, authority: AuthorityId) -> io::Result<Self> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(NEW.as_bytes())
            {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            path: path.to_owned(),
            authority,
            gates: Mutex::default(),
            last: AtomicU64::new(0),
        })
    }

    /// Whether a document may have this name: one segment that is no hidden file.
    pub(crate) fn admits(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
    }

    /// Shows the fence to a writer before it writes anything, and begins a new document of its own.
    pub(crate) fn stage(
        &self,
        name: &str,
        enter: impl Fn(&mut FenceGate) -> Result<(), Fenced>,
    ) -> Result<Staged, Fault> {
        let gate = self.gate(name)?;
        let mut gate = lock(&gate);
        enter(&mut gate).map_err(Fault::Fenced)?;
        // The state that it has once this document is there.
        let line = shown(&gate);
        drop(gate);
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{NEW}{number}"));
        let file = File::create_new(&path)?;
        let mut staged = Staged { path, file };
        staged.add(line.as_bytes())?;
        Ok(staged)
    }

    /// Puts the new document in place, unless a newer writer has come since.
    ///
    /// The fence is locked all the while, so no other writer is between its check and its rename.
    pub(crate) fn commit(
        &self,
        name: &str,
        staged: &Staged,
        enter: impl Fn(&mut FenceGate) -> Result<(), Fenced>,
    ) -> Result<(), Fault> {
        staged.file.sync_all()?;
        let gate = self.gate(name)?;
        let mut gate = lock(&gate);
        enter(&mut gate).map_err(Fault::Fenced)?;
        fs::rename(&staged.path, self.path.join(name))?;
        let folder = File::open(&self.path).and_then(|folder| folder.sync_all());
        drop(gate);
        folder.map_err(Fault::Unknown)
    }

    /// Reads a document: the generation of its writer, and what it wrote. Nobody has written it: `None`.
    pub(crate) fn read(&self, name: &str) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        let Some((gate, mut rest)) = open(&self.path.join(name))? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        rest.read_to_end(&mut text)?;
        let generation = gate.current().map_or(0, |token| token.generation.get());
        Ok(Some((generation, text)))
    }

    /// The fence of a document: the one in its file, with the present authority in place of the one before.
    fn gate(&self, name: &str) -> Result<Arc<Mutex<FenceGate>>, Fault> {
        let mut gates = lock(&self.gates);
        if let Some(gate) = gates.get(name) {
            return Ok(Arc::clone(gate));
        }
        let stored = open(&self.path.join(name))?.map(|(gate, _)| gate);
        let mut gate = stored.unwrap_or_default();
        gate.succeed(self.authority).map_err(Fault::Fenced)?;
        let gate = Arc::new(Mutex::new(gate));
        gates.insert(name.to_owned(), Arc::clone(&gate));
        Ok(gate)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a document after its first line.
fn open(path: &Path) -> Result<Option<(FenceGate, BufReader<File>)>, Fault> {
    // Without blocking: a FIFO would have its reader wait until somebody writes.
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(Fault::Irregular),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(Fault::Irregular);
    }
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    file.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    let line = str::from_utf8(&line).map_err(|_bytes| Fault::Unsound("it is no text"))?;
    Ok(Some((parsed(line)?, file)))
}

/// The first line of a document: `fence 1 AUTHORITY GENERATION LEASE RETIRED,..`, where `-` is none.
fn shown(gate: &FenceGate) -> String {
    let Some(token) = gate.current() else {
        // It was entered before.
        return String::new();
    };
    let retired = gate.retired();
    let recent = retired.get(retired.len().saturating_sub(RETIRED)..);
    let recent: Vec<_> = recent
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let retired = if recent.is_empty() {
        "-".to_owned()
    } else {
        recent.join(",")
    };
    let (authority, generation, lease) = (token.authority, token.generation, token.lease);
    format!("fence 1 {authority} {generation} {lease} {retired}\n")
}

/// Reads a first line. Whatever is not sound keeps everybody out: it is not known who wrote last.
pub(crate) fn parsed(line: &str) -> Result<FenceGate, Fault> {
    let line = line.strip_suffix('\n');
    let line = line.ok_or(Fault::Unsound("it has no end"))?;
    let words: Vec<_> = line.split(' ').collect();
    let ["fence", "1", current, generation, lease, retired] = words[..] else {
        return Err(Fault::Unsound("it is not of version 1"));
    };
    let authority = |text: &str| {
        let id = text.parse::<AuthorityId>();
        id.map_err(|_none| Fault::Unsound("it has no authority"))
    };
    let generation = generation.parse().ok().and_then(Generation::new);
    let generation = generation.ok_or(Fault::Unsound("it has no generation"))?;
    let lease = lease.parse::<LeaseId>();
    let lease = lease.map_err(|_none| Fault::Unsound("it has no lease"))?;
    let retired = match retired {
        "-" => Vec::new(),
        some => some.split(',').map(authority).collect::<Result<_, _>>()?,
    };
    FenceGate::restore(
        Some(authority(current)?),
        Some((generation, lease)),
        retired,
    )
    .map_err(|_unsound| Fault::Unsound("its parts do not go together"))
}
