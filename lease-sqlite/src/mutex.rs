//! The mutex: the one connection to it, and how it comes into being.
//!
//! A hold is an open `BEGIN EXCLUSIVE`; a release is `COMMIT`. Nothing in this process may open the
//! file but SQLite, and nothing may close it while a hold is on: POSIX locks belong to the process,
//! and any close of the file drops them all. So there is one connection per process and path.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::error::{AcquireError, NotAMutex, SqliteError, Step};
use crate::fault::{FaultPoint, Faults};
use crate::files::{self, FileId, Kind};
use crate::own;
use crate::path::{self, Paths, Unique};
use crate::sys::{self, KernelLook, Number, Seen, SqliteDescriptor, Taker};

/// The way in which SQLite reaches the mutex, and locks it as every other program does, whatever way the program
/// has for its own connections.
const VFS: &CStr = c"unix";

/// An open mutex.
#[derive(Debug)]
pub(crate) struct MutexFile {
    connection: Taker,
    path: PathBuf,
    file: FileId,
    descriptor: Option<SqliteDescriptor>,
    /// What SQLite said of the file's version after the last hold, or nothing yet.
    version: Cell<Option<u32>>,
    /// An unlock failed without SQLite saying so, and the kernel still has a lock of ours.
    is_deaf: Cell<bool>,
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Taken,
    Busy,
}

impl MutexFile {
    /// Opens the mutex, and makes it first if there is none, with every directory on the way. `unique`
    /// names no other mutex in the making. `likely` is the descriptor that SQLite most likely gets.
    pub(crate) fn open(
        paths: &Paths,
        unique: Unique,
        likely: Option<Number>,
    ) -> Result<Self, AcquireError> {
        for _again in 0..crate::limits::REOPENINGS {
            let found = files::look(&paths.mutex).map_err(|e| io(&paths.mutex, Step::Open, e))?;
            match found {
                None => {
                    // If that fails, what follows says why.
                    let _made = std::fs::create_dir_all(paths.directory());
                    create(paths, unique)?;
                }
                Some(object) if object.kind != Kind::Regular => {
                    return Err(not_a_mutex(&paths.mutex, NotAMutex::NotARegularFile));
                }
                Some(object) => {
                    if let Some(opened) = Self::open_existing(&paths.mutex, object.id, likely)? {
                        return Ok(opened);
                    }
                }
            }
        }
        Err(not_a_mutex(&paths.mutex, NotAMutex::Replaced))
    }

    /// Opens the mutex if there is one; none is made.
    pub(crate) fn open_if_there(
        paths: &Paths,
        likely: Option<Number>,
    ) -> Result<Option<Self>, AcquireError> {
        let found = files::look(&paths.mutex).map_err(|e| io(&paths.mutex, Step::Open, e))?;
        match found {
            Some(object) if object.kind == Kind::Regular => {
                Self::open_existing(&paths.mutex, object.id, likely)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// `None` if it was replaced meanwhile.
    fn open_existing(
        path: &Path,
        file: FileId,
        likely: Option<Number>,
    ) -> Result<Option<Self>, AcquireError> {
        // SQLite opens it if it is there, and would wait for the other end of a pipe, for ever.
        let journal = files::identify(&path::journal(path));
        if let Ok(Some((_, Kind::Directory | Kind::Other))) = journal {
            return Err(not_a_mutex(path, NotAMutex::Journal));
        }
        let connection = match connect(path, OpenFlags::empty()) {
            Ok(connection) => connection,
            Err(error) => {
                if files::look(path).is_ok_and(|found| found.is_none()) {
                    return Ok(None);
                }
                return Err(sqlite(path, Step::Open, error));
            }
        };
        let mutex = Self {
            connection: Taker::new(connection).map_err(|e| sqlite(path, Step::Open, e))?,
            path: path.to_owned(),
            file,
            descriptor: SqliteDescriptor::find(file, own::pid(), likely)
                .map_err(|e| io(Path::new(sys::OWN_DESCRIPTORS), Step::Open, e))?,
            version: Cell::new(None),
            is_deaf: Cell::new(false),
        };
        // An open descriptor of that file says that it was opened. Whether it still lies there is looked
        // at under the lock, and not before.
        if mutex.descriptor.is_none() && mutex.has_moved().map_err(|e| io(path, Step::Open, e))? {
            return Ok(None);
        }
        match mutex.connection.is_readonly("main") {
            Ok(false) => {}
            // SQLite reads what it could not open for writing, also if only descriptors were missing.
            Ok(true) if files::may_write(path) => {
                let only = "opened for reading alone, although it may be written";
                return Err(io(path, Step::Open, io::Error::other(only)));
            }
            Ok(true) => return Err(not_a_mutex(path, NotAMutex::ReadOnly)),
            Err(error) => return Err(sqlite(path, Step::Open, error)),
        }
        let found = mutex.descriptor.as_ref();
        mutex.check_header(found.map(SqliteDescriptor::just_found))?;
        Ok(Some(mutex))
    }

    /// Refuses a mutex that has become something else since the last hold: under the kernel lock, and
    /// without a system call as long as nobody has written to it.
    pub(crate) fn check_changed(&self) -> Result<(), AcquireError> {
        let version = sys::data_version(&self.connection);
        if version.is_some() && version == self.version.get() {
            return Ok(());
        }
        let seen = self.descriptor.as_ref().map(SqliteDescriptor::seen);
        let seen = self.check_header(seen)?;
        // Files beside it can make SQLite lock something else than what others lock.
        if let Some(Ok(false)) = seen.map(Seen::is_locked) {
            return Err(not_a_mutex(&self.path, NotAMutex::JournalMode));
        }
        Ok(())
    }

    /// Refuses what SQLite would read as something else than a plain database. A file of 0 bytes is
    /// the fresh mutex of a peer.
    fn check_header<'a>(
        &self,
        seen: Option<io::Result<Seen<'a>>>,
    ) -> Result<Option<Seen<'a>>, AcquireError> {
        const MAGIC: &[u8] = b"SQLite format 3\0";
        const ROLLBACK: [u8; 2] = [1, 1];
        let failed = |error| io(&self.path, Step::Open, error);
        let Some(seen) = seen.transpose().map_err(failed)? else {
            return Ok(None);
        };
        let mut header = [0; 20];
        let read = seen.peek(&mut header).map_err(failed)?;
        if read == 0 {
            return Ok(Some(seen));
        }
        if read < header.len() || !header.starts_with(MAGIC) {
            return Err(not_a_mutex(&self.path, NotAMutex::NotADatabase));
        }
        if !header.ends_with(&ROLLBACK) {
            return Err(not_a_mutex(&self.path, NotAMutex::JournalMode));
        }
        Ok(Some(seen))
    }

    /// Tries the kernel lock once.
    pub(crate) fn begin(
        &self,
        lock_path: &Path,
        faults: &mut Faults,
    ) -> Result<Begun, AcquireError> {
        let begun = match faults.hit(FaultPoint::Begin) {
            Ok(()) => self.connection.take(),
            Err(error) => Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(error.raw_os_error().unwrap_or(0)),
                None,
            )),
        };
        let Err(error) = begun else {
            return Ok(Begun::Taken);
        };
        if !self.connection.is_autocommit() {
            // Not understood, so not kept: going on would mean to fail here for ever.
            run(&self.connection, "ROLLBACK").map_err(|e| sqlite(&self.path, Step::Begin, e))?;
            return Err(AcquireError::LockState {
                lock_path: lock_path.to_owned(),
            });
        }
        let code = error.sqlite_error().map(|error| error.extended_code);
        if code == Some(ffi::SQLITE_BUSY) {
            // It had a part of the lock, and gave it back.
            let given = self.check_unlocked();
            given.map_err(|error| sqlite(&self.path, Step::Unlock, error))?;
            return Ok(Begun::Busy);
        }
        Err(sqlite(&self.path, Step::Begin, error))
    }

    /// Sees whether what SQLite says that it has given back is free.
    ///
    /// SQLite lets an unlock fail in silence: but it keeps the error of the system, and that costs no
    /// call to look at. Only then the kernel is asked. A lock that is left ends with the connection.
    fn check_unlocked(&self) -> Result<(), rusqlite::Error> {
        let number = sys::last_error(&self.connection);
        if number == 0 {
            return Ok(());
        }
        // In both cases it is closed: the number stays for as long as it is open.
        self.is_deaf.set(true);
        let looked = self.descriptor.as_ref().map(SqliteDescriptor::look);
        if let Some(Ok(KernelLook::Free)) = looked {
            return Ok(());
        }
        let why = io::Error::from_raw_os_error(number).to_string();
        let code = ffi::Error::new(ffi::SQLITE_IOERR_UNLOCK);
        Err(rusqlite::Error::SqliteFailure(code, Some(why)))
    }

    /// Gives the kernel lock back. After an error it is free only if [`is_free`](Self::is_free);
    /// else the mutex has to be dropped.
    pub(crate) fn commit(&self, faults: &mut Faults) -> Result<(), (Step, rusqlite::Error)> {
        let committed = match faults.hit(FaultPoint::Commit) {
            Ok(()) => self.connection.give(),
            Err(error) => Err(rusqlite::Error::ToSqlConversionFailure(error.into())),
        };
        if committed.is_err() && faults.hit(FaultPoint::Rollback).is_ok() {
            // A second failure shows in `is_free`.
            let _rolled_back = run(&self.connection, "ROLLBACK");
        }
        if committed.is_ok() {
            self.version.set(sys::data_version(&self.connection));
        }
        let unlocked = self.check_unlocked();
        committed.map_err(|error| (Step::Commit, error))?;
        unlocked.map_err(|error| (Step::Unlock, error))
    }

    /// Gives the kernel lock back and leaves even an empty mutex as it is. What `commit` says of
    /// errors holds here too.
    pub(crate) fn roll_back(&self) -> Result<(), rusqlite::Error> {
        let outcome = run(&self.connection, "ROLLBACK");
        let unlocked = self.check_unlocked();
        outcome.and(unlocked)
    }

    /// Tells whether no transaction is open, and no lock was left.
    pub(crate) fn is_free(&self) -> bool {
        self.connection.is_autocommit() && !self.is_deaf.get()
    }

    /// Where SQLite has it.
    pub(crate) fn number(&self) -> Option<Number> {
        self.descriptor.as_ref().map(SqliteDescriptor::number)
    }

    /// Tells whether the file at the path is another one than the one behind the connection.
    pub(crate) fn has_moved(&self) -> io::Result<bool> {
        let found = files::identify(&self.path)?;
        Ok(found.is_none_or(|(file, _)| file != self.file))
    }

    /// Tells whether the kernel still has a lock of this process; `None` where that cannot be seen.
    pub(crate) fn is_locked(&self) -> Option<io::Result<bool>> {
        self.descriptor.as_ref().map(SqliteDescriptor::is_locked)
    }

    /// Asks the kernel whether another process has the lock.
    pub(crate) fn kernel_look(&self) -> Result<KernelLook, AcquireError> {
        let looked = self.descriptor.as_ref().map(SqliteDescriptor::look);
        looked.map_or(Ok(KernelLook::Unseen), |looked| {
            looked.map_err(|error| io(&self.path, Step::Begin, error))
        })
    }

    /// The connection, for tests that go behind our back.
    #[cfg(feature = "test-util")]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Makes a mutex complete under another name and gives it its own only then, so that no hold ever
/// has to write the first page.
fn create(paths: &Paths, unique: Unique) -> Result<(), AcquireError> {
    let unfinished = paths.unfinished_mutex(unique);
    let made = initialise(&unfinished)
        .map_err(|error| sqlite(&unfinished, Step::Create, error))
        .and_then(|()| match std::fs::hard_link(&unfinished, &paths.mutex) {
            // Somebody was faster, and whatever it is, it is used as it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome.map_err(|error| io(&paths.mutex, Step::Create, error)),
        });
    // The name is ours alone. If it stays, it is a file too many, and nothing more.
    let _removed = std::fs::remove_file(&unfinished);
    made
}

fn initialise(path: &Path) -> Result<(), rusqlite::Error> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    run(&connection, "BEGIN EXCLUSIVE")?;
    run(&connection, "COMMIT")?;
    connection.close().map_err(|(_, error)| error)
}

fn connect(path: &Path, also: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        // Whatever the program lets its own connections share: two that share one do not find each other busy.
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE
        | also;
    let connection = Connection::open_with_flags_and_vfs(path, flags, VFS)?;
    connection.busy_timeout(Duration::ZERO)?;
    // Whatever the program, or its SQLite, has for every connection: a lock that is kept outlives its hold.
    connection.execute_batch("PRAGMA locking_mode = NORMAL")?;
    // Whatever it is that we refuse stays as it is when it is closed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn run(connection: &Connection, statement: &str) -> Result<(), rusqlite::Error> {
    connection.execute(statement, []).map(drop)
}

fn io(path: &Path, step: Step, source: io::Error) -> AcquireError {
    AcquireError::Io {
        path: path.to_owned(),
        step,
        source,
    }
}

fn sqlite(path: &Path, step: Step, error: rusqlite::Error) -> AcquireError {
    AcquireError::Sqlite {
        path: path.to_owned(),
        step,
        source: SqliteError::from(error),
    }
}

fn not_a_mutex(path: &Path, why: NotAMutex) -> AcquireError {
    AcquireError::NotAMutex {
        path: path.to_owned(),
        why,
    }
}
