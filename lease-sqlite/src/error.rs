//! Why something was not done.

use std::io;
use std::path::PathBuf;

use lease_core::Code;

use crate::busy::Busy;

/// Why a lock cannot be used at all.
///
/// State: nothing was made or changed. Retry: after the cause is gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// SQLite does not say where the database is, or does not take the hooks, or would keep the database from
    /// others for as long as it is open (`locking_mode = EXCLUSIVE`, or the VFS `unix-excl`). Retry: with another
    /// connection.
    #[error("the connection to {path:?} cannot be guarded")]
    Database {
        /// Where the database is, as far as is known.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: SqliteError,
    },
    /// Locks are not known to work on this file system. Retry: elsewhere, or with
    /// [`any_file_system`](crate::LockOptions::any_file_system).
    #[error("locks are not known to work on the file system of {path:?} (type {kind:#x})")]
    FileSystem {
        /// The directory of the lock.
        path: PathBuf,
        /// What `statfs` says.
        kind: u64,
    },
    /// The database is a file that is mounted there by itself, as into a container. So it has another name
    /// elsewhere, and each would have a lock of its own. Retry: with its directory mounted, or with a
    /// [`lock_path`](crate::LockOptions::lock_path) that is the same file for everybody.
    #[error("database {path:?} is a file mounted by itself")]
    Mounted {
        /// Where it is mounted.
        path: PathBuf,
    },
    /// The path cannot be resolved, or is none of a file, or is a
    /// [`lock_path`](crate::LockOptions::lock_path) that would be written over the database. Retry: with another
    /// path, or after the cause is gone.
    #[error("path {path:?} cannot be used")]
    Path {
        /// Which.
        path: PathBuf,
        /// What the system said, or what is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The database has several names, and each would have a lock of its own. Retry: with one name, or with a
    /// [`lock_path`](crate::LockOptions::lock_path) that is the same file for everybody.
    #[error("database {path:?} has {links} hard links")]
    SeveralNames {
        /// One of them.
        path: PathBuf,
        /// How many there are.
        links: u32,
    },
}

/// Why there is no hold.
///
/// State: nothing is held; the kernel lock was given back. Retry: as each variant says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds the lock or has a claim. Retry: later.
    #[error("{0}")]
    Busy(Box<Busy>),
    /// Waiting for the lock is forbidden on this thread. Retry: as a task, on a thread that may block, or
    /// under an [`AllowBlocking`](crate::AllowBlocking).
    #[error(
        "waiting for write lock {lock_path:?} is forbidden on this thread: \
         await `acquire_async`, go to a thread that may block, or lift it by name with `AllowBlocking`"
    )]
    Forbidden {
        /// Which.
        lock_path: PathBuf,
    },
    /// This is a forked child, and the lock belongs to its parent. Retry: with a lock opened here, unless the
    /// child was forked while another thread was inside SQLite, whose own locks may then be shut for ever.
    #[error("write lock {lock_path:?} was opened by the process that this one was forked from")]
    Forked {
        /// Which.
        lock_path: PathBuf,
    },
    /// A system call failed. Retry: after the cause is gone.
    #[error("write lock: {step} of {path:?} failed")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        step: Step,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A transaction was open although none should be; it was rolled back. Retry: at once.
    #[error("write lock {lock_path:?} was left in a transaction")]
    LockState {
        /// Which.
        lock_path: PathBuf,
    },
    /// What lies at the mutex's path is no mutex. Retry: after somebody has looked at it.
    #[error("{path:?} cannot be a mutex: {why}")]
    NotAMutex {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: NotAMutex,
    },
    /// SQLite failed. Retry: after the cause is gone.
    #[error("write lock: {step} of {path:?} failed in SQLite")]
    Sqlite {
        /// The mutex.
        path: PathBuf,
        /// What was being done.
        step: Step,
        /// What SQLite said.
        #[source]
        source: SqliteError,
    },
}

impl AcquireError {
    /// Returns the stable code, where the catalogue has one; other failures keep the code of the
    /// system or of SQLite.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Busy(_) => Some(Code::WriteLockBusy),
            Self::LockState { .. } => Some(Code::LockState),
            Self::Forbidden { .. }
            | Self::Forked { .. }
            | Self::Io { .. }
            | Self::NotAMutex { .. }
            | Self::Sqlite { .. } => None,
        }
    }
}

/// What is wrong with what lies at a mutex's path. It is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAMutex {
    /// It is a directory, link, pipe, socket or device.
    #[error("not a regular file")]
    NotARegularFile,
    /// Its first bytes are not those of a database.
    #[error("not a database")]
    NotADatabase,
    /// It is in another journal mode than the rollback journal, so a hold would keep nobody out.
    #[error("not in rollback journal mode")]
    JournalMode,
    /// It may only be read, and a reader cannot take the lock.
    #[error("read-only")]
    ReadOnly,
    /// What lies where SQLite has its journal is a directory, link, pipe, socket or device.
    #[error("its journal is not a regular file")]
    Journal,
    /// It keeps being replaced.
    #[error("replaced again and again")]
    Replaced,
}

/// What was being done when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A new mutex was being made.
    Create,
    /// The mutex or the record was being opened.
    Open,
    /// The kernel lock was being taken.
    Begin,
    /// The files were being looked at under the lock.
    Fence,
    /// The record at the path was being made our own.
    Adopt,
    /// The record was being written.
    Write,
    /// The kernel lock was being given back.
    Commit,
    /// SQLite said that the kernel lock was given back, and the kernel had it still.
    Unlock,
    /// The thread that waits for tasks was being started.
    Wait,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Begin => "begin",
            Self::Fence => "fence",
            Self::Adopt => "adopt",
            Self::Write => "write",
            Self::Commit => "commit",
            Self::Unlock => "unlock",
            Self::Wait => "wait",
        })
    }
}

/// What SQLite said, with its extended result code.
#[derive(Debug, thiserror::Error)]
#[error("extended result code {code}")]
pub struct SqliteError {
    /// The extended result code; 0 if the error is none of SQLite's, as one that a caller's closure returned.
    pub code: i32,
    #[source]
    source: Box<rusqlite::Error>,
}

impl From<rusqlite::Error> for SqliteError {
    fn from(source: rusqlite::Error) -> Self {
        let code = match &source {
            rusqlite::Error::SqliteFailure(error, _)
            | rusqlite::Error::SqlInputError { error, .. } => error.extended_code,
            _ => 0,
        };
        Self {
            code,
            source: Box::new(source),
        }
    }
}

/// A hold ended, and giving the lock back failed on the way.
///
/// State: the kernel lock is free all the same: the transaction was rolled back, or the connection
/// closed. Retry: nothing is left to release.
#[derive(Debug, thiserror::Error)]
#[error("write lock {lock_path:?} was given back by force, as its {step} failed")]
#[non_exhaustive]
pub struct ReleaseError {
    /// Which.
    pub lock_path: PathBuf,
    /// [`Step::Commit`], or [`Step::Unlock`] if SQLite took a failed unlock for a success.
    pub step: Step,
    /// What SQLite said of COMMIT, or `SQLITE_IOERR_UNLOCK` with the words of the system.
    #[source]
    pub source: SqliteError,
}

/// The hold excludes nobody any more. What is written now is not protected.
///
/// State: nothing was changed. Retry: release, and acquire anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// This is a forked child; the hold is its parent's.
    #[error("the hold belongs to the process that this one was forked from")]
    Forked,
    /// The mutex is no longer the file at its path, so others lock another one.
    #[error("the mutex was moved, removed or replaced")]
    Moved,
    /// The kernel has dropped the lock: somebody in this process opened and closed the mutex.
    #[error("the kernel lock is gone")]
    Unlocked,
    /// It cannot be seen whether the lock is still there.
    #[error("the kernel lock cannot be looked at")]
    Unseen {
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a guarded connection did not do what it was told.
///
/// State: as each variant says; a transaction that was open still is, unless SQLite ended it.
/// Retry: as each variant says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// SQLite failed, on the database itself; that it is busy has nothing to do with the write lock. One that has been
    /// renamed or removed is not written (`SQLITE_READONLY_DBMOVED`), for its lock is another one by now.
    /// State: what SQLite leaves. Retry: after the cause is gone.
    #[error("database {path:?} failed")]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: SqliteError,
    },
    /// The write lock was not to be had. State: nothing was run. Retry: as the cause says.
    #[error(transparent)]
    Lock(AcquireError),
    /// The write lock keeps nobody out any more. State: nothing was written; a commit was rolled
    /// back. Retry: after a rollback, from the start of the transaction.
    #[error("write lock {lock_path:?} was lost before a write")]
    Lost {
        /// Which.
        lock_path: PathBuf,
        /// How.
        #[source]
        source: Lost,
    },
    /// A statement that SQLite calls a reader wrote without the lock, such as by a function of the
    /// program. State: it was rolled back. Retry: within a transaction that has the lock.
    #[error("database {path:?} was written without its write lock")]
    NotHeld {
        /// The database.
        path: PathBuf,
    },
}
