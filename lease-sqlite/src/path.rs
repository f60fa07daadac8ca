//! Which files belong to a database, and whether locks work where they lie.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::files::{self, Object};

/// What comes after a database's path in that of its record.
const RECORD: &str = ".write-lock";

/// What comes after a record's path in that of its mutex. Never `.db`: tools that list databases
/// would take it for one.
const MUTEX: &str = ".mutex";

/// The two files of one lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Paths {
    /// The record; also the lock's name.
    pub(crate) record: PathBuf,
    pub(crate) mutex: PathBuf,
}

impl Paths {
    /// Derives the files from a database, following every link on the way to it.
    pub(crate) fn of_database(database: &Path) -> Result<Self, OpenError> {
        let (resolved, found) = resolve(database)?;
        if let Some(file) = found.filter(|file| file.kind == files::Kind::Regular) {
            // Each name would have a lock of its own.
            if file.links > 1 {
                return Err(OpenError::SeveralNames {
                    path: resolved,
                    links: file.links,
                });
            }
            if file.is_mounted {
                return Err(OpenError::Mounted { path: resolved });
            }
        }
        Self::of_record(with_suffix(&resolved, RECORD))
    }

    /// Derives the mutex from a lock path that the caller chose, which may not be the database itself: it is
    /// written to.
    pub(crate) fn of_lock(lock: &Path, database: &Path) -> Result<Self, OpenError> {
        let directory = parent(lock)?;
        let name = lock.file_name().ok_or_else(|| no_name(lock))?;
        let paths = Self::of_record(canonical(directory)?.join(name))?;
        match resolve(database) {
            Ok((database, _)) if database == paths.record || database == paths.mutex => {
                let why = io::Error::new(io::ErrorKind::InvalidInput, IS_DATABASE);
                Err(unusable(lock, why))
            }
            // What cannot be resolved is none of ours.
            Ok(_) | Err(_) => Ok(paths),
        }
    }

    fn of_record(record: PathBuf) -> Result<Self, OpenError> {
        let bytes = record.as_os_str().as_encoded_bytes();
        if bytes.contains(&0) {
            return Err(no_name(&record));
        }
        let mutex = mutex_of(&record);
        Ok(Self { record, mutex })
    }

    /// Returns a name beside the mutex for one in the making.
    pub(crate) fn unfinished_mutex(&self, unique: Unique) -> PathBuf {
        with_suffix(&self.mutex, &format!(".new-{unique}"))
    }

    /// Returns a name beside the record for one in the making, or for one that is taken away.
    pub(crate) fn unfinished_record(&self, unique: Unique) -> PathBuf {
        with_suffix(&self.record, &format!(".new-{unique}"))
    }

    /// Returns the directory of both.
    pub(crate) fn directory(&self) -> &Path {
        self.record.parent().unwrap_or_else(|| Path::new("/"))
    }
}

/// What is wrong with a lock path whose files would be written over the database.
const IS_DATABASE: &str = "its record or its mutex would be the database";

/// Returns where the mutex of a record is.
pub(crate) fn mutex_of(record: &Path) -> PathBuf {
    with_suffix(record, MUTEX)
}

/// Returns where SQLite has the journal of a mutex.
pub(crate) fn journal(mutex: &Path) -> PathBuf {
    with_suffix(mutex, "-journal")
}

/// The last part of a name that no other file has. As short as it can be: it comes on top of a name that may be
/// long already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unique {
    pub(crate) random: u64,
    pub(crate) number: u64,
}

impl fmt::Display for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.random, self.number)
    }
}

/// File systems whose locks are known to work between the processes of one machine.
const WORKING: [(u64, &str); 12] = [
    (0xef53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0x794c_7630, "overlayfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x3434, "nilfs"),
];

/// Refuses a directory on a file system whose locks are not known to work. It was there a moment ago, as its path
/// was resolved.
pub(crate) fn check_file_system(directory: &Path) -> Result<(), OpenError> {
    let kind = files::file_system(directory).map_err(|source| unusable(directory, source))?;
    if WORKING.iter().any(|(known, _)| *known == kind) {
        return Ok(());
    }
    Err(OpenError::FileSystem {
        path: directory.to_owned(),
        kind,
    })
}

/// Resolves a path in full, and looks at what is there; its last part need not exist.
fn resolve(path: &Path) -> Result<(PathBuf, Option<Object>), OpenError> {
    if let Some(resolved) = resolve_directory(path) {
        return Ok(resolved);
    }
    let resolved = resolve_fully(path)?;
    let found = files::look(&resolved).map_err(|source| unusable(&resolved, source))?;
    Ok((resolved, found))
}

/// Resolves all but the last part. That is enough where it is no link, and what it is has to be looked at
/// anyhow. `None` if it may be one, or if anything fails.
fn resolve_directory(path: &Path) -> Option<(PathBuf, Option<Object>)> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        // It says that the last part is a directory.
        return None;
    }
    let resolved = canonical(path.parent()?).ok()?.join(path.file_name()?);
    let found = files::look(&resolved).ok()?;
    let may_be_link = found.is_some_and(|object| object.kind == files::Kind::Other);
    (!may_be_link).then_some((resolved, found))
}

fn resolve_fully(path: &Path) -> Result<PathBuf, OpenError> {
    match path.canonicalize() {
        Ok(resolved) => Ok(resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if files::look(path).is_ok_and(|found| found.is_some()) {
                // A link to nothing: where the database will be is not known.
                return Err(unusable(path, error));
            }
            let name = path.file_name().ok_or_else(|| no_name(path))?;
            Ok(canonical(parent(path)?)?.join(name))
        }
        Err(source) => Err(unusable(path, source)),
    }
}

fn canonical(directory: &Path) -> Result<PathBuf, OpenError> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    directory
        .canonicalize()
        .map_err(|source| unusable(directory, source))
}

fn parent(path: &Path) -> Result<&Path, OpenError> {
    path.parent().ok_or_else(|| no_name(path))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn unusable(path: &Path, source: io::Error) -> OpenError {
    OpenError::Path {
        path: path.to_owned(),
        source,
    }
}

fn no_name(path: &Path) -> OpenError {
    unusable(path, io::ErrorKind::InvalidInput.into())
}
