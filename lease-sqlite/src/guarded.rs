//! A connection to the protected database, which takes the lock for what writes.
//!
//! Whether a statement writes is SQLite's own word: `sqlite3_stmt_readonly`, and its authorizer for
//! what that leaves open. No text is read here. SQLite also asks at each commit, through its commit
//! hook, so that nothing is ever committed without a hold that still keeps others out.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Batch, Connection, FileControl, Params, Row, Statement, TransactionState, ffi};

use crate::error::{AcquireError, GuardError, Lost, OpenError, ReleaseError, SqliteError};
use crate::forbid;
use crate::hold::{Hold, Lane};
use crate::lock::WriteLock;
use crate::options::LockOptions;
use crate::sys::{self, Image, Native};
use crate::wait::WaitBudget;

/// A connection that takes the write lock of its database for whatever writes.
///
/// A statement by itself has the lock while it runs; a transaction from its first write, or from
/// `BEGIN IMMEDIATE`, to its end. Before each write, and again at each commit, it is looked at
/// whether the lock still keeps others out; a lock that does not blocks the write. Reads never take
/// it. What is written to a temporary table counts as a write. An attached database is written under this
/// lock, and not under one of its own: who guards it as their own database is not kept out.
///
/// SQLite does two things by itself, and without the lock: whoever reads first after a crash takes back
/// what was not committed, and the last one to close a database in WAL mode moves its log into it. Neither
/// changes what the database says, and SQLite keeps others out meanwhile, but not who copies the file as
/// it is, or writes it in another way than by SQLite, though they have the lock: copy it by `VACUUM INTO`,
/// or by SQLite's backup.
///
/// Begin what reads first and writes then with [`transaction`](Self::transaction) or
/// `BEGIN IMMEDIATE`: after a plain `BEGIN` somebody else may have written between the read and the
/// first write, and then SQLite refuses the write at once, whatever there is of time.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use lease_sqlite::{LockOptions, WaitBudget, rusqlite::Connection};
///
/// # let directory = std::env::temp_dir().join(format!("lease-sqlite-guarded-{:?}", std::thread::current().id()));
/// # std::fs::create_dir_all(&directory)?;
/// let connection = Connection::open(directory.join("app.db"))?;
/// let mut guarded = LockOptions::new().role("indexer").guard(connection)?;
/// guarded.set_wait(WaitBudget::Within(Duration::from_secs(5)));
/// guarded.execute("CREATE TABLE note (text)", [])?; // the lock, for this statement
///
/// let transaction = guarded.transaction()?; // the lock, until it ends
/// transaction.execute("INSERT INTO note VALUES (?1)", ["hello"])?;
/// transaction.commit()?;
///
/// let notes = guarded.query("SELECT text FROM note", [], |row| row.get::<_, String>(0))?; // no lock
/// assert_eq!(notes, ["hello"]);
/// guarded.close()?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
///
/// Closing it takes it away, so it cannot be closed twice:
///
/// ```compile_fail,E0382
/// fn twice(guarded: lease_sqlite::Guarded) {
///     let _first = guarded.close();
///     let _second = guarded.close();
/// }
/// ```
///
/// # Drop
///
/// Rolls back what is open, closes the connection, and gives the lock back, in this order. In a
/// forked child it does nothing.
#[derive(Debug)]
pub struct Guarded {
    /// There until the end.
    connection: Native<Option<Connection>>,
    image: Image,
    database: PathBuf,
    watch: Arc<Mutex<Watch>>,
    /// What SQLite told of the statement that was prepared last.
    told: Arc<Mutex<Told>>,
    /// How many calls are in progress: one may be made while another hands out its rows.
    running: Cell<u32>,
    budget: WaitBudget,
    lock: WriteLock,
}

/// What the commit hook knows, and says.
#[derive(Debug, Default)]
struct Watch {
    hold: Option<Hold>,
    refused: Option<GuardError>,
    release_error: Option<ReleaseError>,
}

/// What the authorizer saw of a statement beyond what `sqlite3_stmt_readonly` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    /// It asks nobody, so there is nothing to do for it now. There may be by the time it runs, when SQLite
    /// prepares it again.
    #[default]
    Nothing,
    /// It is what SQLite calls it.
    Plain,
    /// It acts on files although SQLite calls it a reader.
    Acts,
    /// It asks although SQLite calls it a writer.
    Asks,
}

impl Guarded {
    pub(crate) fn new(mut connection: Connection, options: LockOptions) -> Result<Self, OpenError> {
        let database = path_of(&connection)?;
        let lock = options.open(&database)?;
        let watch = Arc::<Mutex<Watch>>::default();
        let told = Arc::<Mutex<Told>>::default();
        let (watched, heard) = (Arc::clone(&watch), Arc::clone(&told));
        let (path, lock_path) = (database.clone(), lock.lock_path().to_owned());
        connection
            .commit_hook(Some(move || refuses_commit(&watched, &path, &lock_path)))
            .and_then(|()| {
                connection.authorizer(Some(move |asked: AuthContext<'_>| hear(&heard, asked)))
            })
            .map_err(|error| unguarded(&database, error))?;
        Ok(Self {
            connection: Native::new(Some(connection)),
            image: Image::present(),
            database,
            watch,
            told,
            running: Cell::new(0),
            budget: WaitBudget::NOW,
            lock,
        })
    }

    /// Sets how long a write waits for the lock; not at all if nothing is said.
    ///
    /// It has no say in how long SQLite waits for the database itself: that is its busy timeout. So
    /// where waiting is forbidden ([`ForbidBlocking`](crate::ForbidBlocking)) a write that has to take
    /// the lock is refused whatever is set here.
    pub const fn set_wait(&mut self, budget: WaitBudget) {
        self.budget = budget;
    }

    /// Returns the lock: who wrote last, its health, its paths.
    pub const fn lock(&self) -> &WriteLock {
        &self.lock
    }

    /// Prepares a statement, which may be run many times. It takes the lock when it runs, if it
    /// writes.
    ///
    /// # Errors
    ///
    /// [`GuardError::Database`]: SQLite refuses the text; [`GuardError::Lock`] in a forked child.
    pub fn prepare(&self, sql: &str) -> Result<GuardedStatement<'_>, GuardError> {
        let connection = self.connection()?;
        *self.told() = Told::Nothing;
        let prepared = connection.prepare(sql);
        let statement = prepared.map_err(|error| self.failed(error))?;
        Ok(self.statement(statement))
    }

    /// Runs one statement and returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// As [`GuardedStatement::execute`].
    pub fn execute(&self, sql: &str, params: impl Params) -> Result<usize, GuardError> {
        self.prepare(sql)?.execute(params)
    }

    /// Runs one statement and collects its rows.
    ///
    /// # Errors
    ///
    /// As [`GuardedStatement::query`].
    pub fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, GuardError> {
        self.prepare(sql)?.query(params, map)
    }

    /// Runs one statement and returns its first row, or `None` if it has none.
    ///
    /// # Errors
    ///
    /// As [`GuardedStatement::query_row`].
    pub fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Option<T>, GuardError> {
        self.prepare(sql)?.query_row(params, map)
    }

    /// Runs statements one after the other; rows are thrown away. Each takes the lock by itself
    /// unless a transaction has it.
    ///
    /// # Errors
    ///
    /// That of the first statement that fails; those before it are done.
    pub fn batch(&self, sql: &str) -> Result<(), GuardError> {
        let mut batch = Batch::new(self.connection()?, sql);
        loop {
            *self.told() = Told::Nothing;
            let prepared = batch.next().map_err(|error| self.failed(error))?;
            let Some(statement) = prepared else {
                return Ok(());
            };
            self.statement(statement).query([], |_| Ok(()))?;
        }
    }

    /// Takes the lock and begins a transaction that may write at once.
    ///
    /// # Errors
    ///
    /// As [`GuardedStatement::execute`].
    pub fn transaction(&mut self) -> Result<GuardedTransaction<'_>, GuardError> {
        self.execute("BEGIN IMMEDIATE", [])?;
        Ok(GuardedTransaction { guarded: self })
    }

    /// Returns why giving the lock back needed force, if it did since the last call. What was written
    /// before is written, and the lock is free.
    #[must_use]
    pub fn take_release_error(&self) -> Option<ReleaseError> {
        self.watch().release_error.take()
    }

    /// Rolls back what is open, closes the connection and gives the lock back.
    ///
    /// # Errors
    ///
    /// [`GuardError::Database`]: SQLite would not close the connection, for something that was made on
    /// it before it was guarded is still in use; it stays open until the process ends. The lock is
    /// given back all the same.
    pub fn close(mut self) -> Result<(), GuardError> {
        self.finish()
    }

    fn statement<'a>(&'a self, statement: Statement<'a>) -> GuardedStatement<'a> {
        GuardedStatement {
            guarded: self,
            told: *self.told(),
            statement,
        }
    }

    /// The connection, for the process that made it.
    fn connection(&self) -> Result<&Connection, GuardError> {
        let own = self.connection.as_ref();
        own.filter(|_| self.image == Image::present())
            .ok_or_else(|| {
                GuardError::Lock(AcquireError::Forked {
                    lock_path: self.lock.lock_path().to_owned(),
                })
            })
    }

    fn run<T>(
        &self,
        writes: bool,
        work: impl FnOnce() -> Result<T, rusqlite::Error>,
    ) -> Result<T, GuardError> {
        let connection = self.connection()?;
        let had_written = has_written(connection);
        // Whatever happens, a panic too, what is not needed any more is given back afterwards.
        let _running = Running::start(self);
        if writes {
            self.hold()?;
        }
        let outcome = work();
        if had_written && outcome.is_err() || self.watch().refused.is_some() {
            end_undone(connection);
        }
        outcome.map_err(|error| self.explain(error))
    }

    /// Has the lock, and sees that it keeps others out.
    fn hold(&self) -> Result<(), GuardError> {
        let has_hold = self.watch().hold.is_some();
        if !has_hold {
            // Whatever the budget: a write waits for the disk, and for whoever reads the database.
            forbid::check(self.lock.lock_path()).map_err(GuardError::Lock)?;
            let own = Lane::of_this_thread();
            // Its observer may use this very connection, so nothing of it is locked meanwhile.
            let taken = self.lock.acquire_checked(&own, self.budget);
            let hold = taken.map_err(GuardError::Lock)?;
            self.check_place()?;
            let former = self.watch().hold.replace(hold);
            drop(former);
        }
        let watch = self.watch();
        let checked = watch.hold.as_ref().map_or(Ok(()), Hold::check);
        checked.map_err(|source| lost(self.lock.lock_path(), source))
    }

    /// Refuses a database that has another name by now, and so another lock, or none. SQLite does the same, but not in
    /// WAL mode.
    fn check_place(&self) -> Result<(), GuardError> {
        let mut moved = 0;
        let asked = FileControl::HasMoved(&mut moved);
        // Where SQLite cannot say so, it goes on, too.
        if self
            .connection()?
            .file_control(Some("main"), asked)
            .is_err()
            || moved == 0
        {
            return Ok(());
        }
        let refused = ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED);
        let why = Some("it is not at its path any more".to_owned());
        Err(self.failed(rusqlite::Error::SqliteFailure(refused, why)))
    }

    /// Gives the lock back unless a transaction goes on.
    fn settle(&self) {
        let is_open = self
            .connection()
            .is_ok_and(|connection| !connection.is_autocommit());
        if is_open {
            return;
        }
        let hold = self.watch().hold.take();
        if let Some(Err(error)) = hold.map(Hold::release) {
            self.watch().release_error = Some(error);
        }
    }

    fn finish(&mut self) -> Result<(), GuardError> {
        if self.image != Image::present() {
            return Ok(());
        }
        let Some(connection) = self.connection.take() else {
            return Ok(());
        };
        if !connection.is_autocommit() {
            // If it fails, closing does the same.
            let _rolled_back = connection.execute_batch("ROLLBACK");
        }
        let closed = connection.close().map_err(|(connection, error)| {
            // Somebody still uses it, and dropping it would only fail again.
            let _left_open = ManuallyDrop::new(connection);
            self.explain(error)
        });
        self.settle();
        closed
    }

    /// Says why something that ran has failed: it may be a commit that was refused.
    fn explain(&self, error: rusqlite::Error) -> GuardError {
        let refused = self.watch().refused.take();
        refused.unwrap_or_else(|| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> GuardError {
        GuardError::Database {
            path: self.database.clone(),
            source: SqliteError::from(error),
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        locked(&self.watch)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _closed = self.finish();
    }
}

/// A statement of a guarded connection.
#[derive(Debug)]
pub struct GuardedStatement<'a> {
    guarded: &'a Guarded,
    told: Told,
    statement: Statement<'a>,
}

impl GuardedStatement<'_> {
    /// Runs it and returns how many rows it changed.
    ///
    /// # Errors
    ///
    /// [`GuardError::Lock`] or [`GuardError::Lost`]: it was not run. [`GuardError::NotHeld`]: what it
    /// did was rolled back. [`GuardError::Database`]: what SQLite says, also when the database itself
    /// is busy; and a statement that writes and has rows, which is not run: that is for
    /// [`query`](Self::query).
    pub fn execute(&mut self, params: impl Params) -> Result<usize, GuardError> {
        if self.writes() && self.statement.column_count() > 0 {
            // It would be done, and called failed for its rows.
            return Err(self.guarded.failed(rusqlite::Error::ExecuteReturnedResults));
        }
        self.run(|statement| statement.execute(params))
    }

    /// Runs it to its end and collects its rows.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), and what `map` returns.
    pub fn query<T>(
        &mut self,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, GuardError> {
        self.run(|statement| statement.query_map(params, map)?.collect())
    }

    /// Runs it to its end and returns its first row, or `None` if it has none.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), and what `map` returns.
    pub fn query_row<T>(
        &mut self,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Option<T>, GuardError> {
        self.run(|statement| {
            let mut rows = statement.query(params)?;
            let first = rows.next()?.map(map).transpose()?;
            // A statement that is left half-way says nothing of a commit that fails.
            while rows.next()?.is_some() {}
            Ok(first)
        })
    }

    fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Statement<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, GuardError> {
        let connection = self.guarded.connection()?;
        let writes = self.writes();
        self.guarded.run(writes, || {
            let outcome = work(&mut self.statement)?;
            if self.told == Told::Acts {
                refuse_attached(connection)?;
            }
            Ok(outcome)
        })
    }

    /// Asked anew at each run: SQLite prepares a statement again when the schema has changed.
    fn writes(&self) -> bool {
        let does = match self.told {
            Told::Nothing | Told::Acts => true,
            Told::Asks => false,
            Told::Plain => !self.statement.readonly(),
        };
        does && self.statement.is_explain() == 0
    }
}

/// A transaction that has the lock.
///
/// It is used like the connection itself. Savepoints within it are plain statements.
///
/// # Drop
///
/// Rolls back, and gives the lock back then.
#[derive(Debug)]
#[must_use = "dropping it rolls back"]
pub struct GuardedTransaction<'a> {
    guarded: &'a mut Guarded,
}

impl GuardedTransaction<'_> {
    /// Commits, and gives the lock back.
    ///
    /// # Errors
    ///
    /// As [`GuardedStatement::execute`]; it is rolled back then.
    pub fn commit(self) -> Result<(), GuardError> {
        self.guarded.execute("COMMIT", []).map(drop)
    }

    /// Rolls back, and gives the lock back.
    ///
    /// # Errors
    ///
    /// [`GuardError::Database`]: what SQLite says.
    pub fn roll_back(self) -> Result<(), GuardError> {
        self.guarded.execute("ROLLBACK", []).map(drop)
    }
}

impl Deref for GuardedTransaction<'_> {
    type Target = Guarded;

    fn deref(&self) -> &Guarded {
        self.guarded
    }
}

impl Drop for GuardedTransaction<'_> {
    fn drop(&mut self) {
        let is_open = self
            .guarded
            .connection()
            .is_ok_and(|connection| !connection.is_autocommit());
        if is_open {
            // If it fails, the lock stays until the connection is closed.
            let _rolled_back = self.guarded.execute("ROLLBACK", []);
        }
    }
}

/// A call is in progress while this lives; the last one to end gives the lock back.
struct Running<'a>(&'a Guarded);

impl<'a> Running<'a> {
    fn start(guarded: &'a Guarded) -> Self {
        let before = guarded.running.get();
        guarded.running.set(before.saturating_add(1));
        if before == 0 {
            guarded.watch().refused = None;
        }
        Self(guarded)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let left = self.0.running.get().saturating_sub(1);
        self.0.running.set(left);
        if left == 0 {
            self.0.settle();
        }
    }
}

/// SQLite asks before each commit of something that was written.
fn refuses_commit(watch: &Mutex<Watch>, path: &Path, lock_path: &Path) -> bool {
    let mut watch = locked(watch);
    let checked = match &watch.hold {
        Some(hold) => hold.check().map_err(|source| lost(lock_path, source)),
        None => Err(GuardError::NotHeld {
            path: path.to_owned(),
        }),
    };
    watch.refused = checked.err();
    watch.refused.is_some()
}

fn lost(lock_path: &Path, source: Lost) -> GuardError {
    GuardError::Lost {
        lock_path: lock_path.to_owned(),
        source,
    }
}

/// SQLite tells what a statement is about to do, while it is prepared.
fn hear(told: &Mutex<Told>, asked: AuthContext<'_>) -> Authorization {
    let heard = match asked.action {
        // SQLite calls them readers, for they change no page. But they make and close files.
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Told::Acts,
        // The same, where the name is not known yet.
        AuthAction::Unknown {
            code: ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH,
            ..
        } => Told::Acts,
        AuthAction::Pragma {
            pragma_name: name,
            pragma_value: value,
        } => match hear_pragma(name, value) {
            Some(heard) => heard,
            None => return Authorization::Deny,
        },
        _ => Told::Plain,
    };
    let mut told = locked(told);
    if heard != Told::Plain || *told == Told::Nothing {
        *told = heard;
    }
    Authorization::Allow
}

/// `None` for what is refused.
fn hear_pragma(name: &str, value: Option<&str>) -> Option<Told> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("locking_mode") && value.is_some_and(|value| value.eq_ignore_ascii_case("exclusive")) {
        // SQLite would keep the database from others when the lock has long been given back.
        return None;
    }
    Some(if is("optimize") {
        Told::Acts
    } else if is("journal_mode") && value.is_none() {
        Told::Asks
    } else {
        Told::Plain
    })
}

/// Ends a transaction that SQLite has undone and calls open all the same, as it does where a `RELEASE`
/// was to commit it and failed: what is written next would be in it, and be lost.
fn end_undone(connection: &Connection) {
    if !connection.is_autocommit() && !has_written(connection) {
        // Nothing is left to be undone, so that nothing can fail.
        let _ended = connection.execute_batch("ROLLBACK");
    }
}

/// Whether the transaction that is open has written anything.
fn has_written(connection: &Connection) -> bool {
    let state = connection.transaction_state::<&str>(None);
    state.is_ok_and(|state| state == TransactionState::Write)
}

/// Which file the lock is for. Where it cannot be guarded, why.
///
/// It is not read: somebody else may just be writing it.
fn path_of(connection: &Connection) -> Result<PathBuf, OpenError> {
    let files = files_of(connection).map_err(|error| unguarded(Path::new(""), error))?;
    let Some((_, database)) = files.iter().find(|(name, _)| name == "main") else {
        // In memory or temporary: nobody else can have it.
        return Err(OpenError::Path {
            path: PathBuf::new(),
            source: io::ErrorKind::InvalidInput.into(),
        });
    };
    // What is attached later has the mode that was set without a name.
    refuse_exclusive(connection, None).map_err(|error| unguarded(database, error))?;
    for (name, file) in &files {
        refuse_exclusive(connection, Some(name))
            .and_then(|()| refuse_lonely(connection, name))
            .map_err(|error| unguarded(file, error))?;
    }
    Ok(database.clone())
}

/// The files of a connection as SQLite has them, in whatever bytes, each with its name there.
fn files_of(connection: &Connection) -> Result<Vec<(String, PathBuf)>, rusqlite::Error> {
    let mut files = Vec::new();
    connection.pragma_query(None, "database_list", |row| {
        let file = row.get_ref(2)?.as_bytes_or_null()?;
        if let Some(file) = file.filter(|file| !file.is_empty()) {
            files.push((row.get(1)?, PathBuf::from(OsStr::from_bytes(file))));
        }
        Ok(())
    })?;
    Ok(files)
}

/// Refuses what would keep a database from others when the lock has long been given back.
fn refuse_exclusive(connection: &Connection, name: Option<&str>) -> Result<(), rusqlite::Error> {
    let mode: String = connection.pragma_query_one(name, "locking_mode")?;
    if mode.eq_ignore_ascii_case("exclusive") {
        return Err(refusal("it is in the locking mode EXCLUSIVE"));
    }
    Ok(())
}

/// Refuses what locks a file for its process alone, and so keeps it from others until it is closed.
fn refuse_lonely(connection: &Connection, name: &str) -> Result<(), rusqlite::Error> {
    // Other layers may be in front of it.
    if sys::vfs(connection, name).is_some_and(|vfs| vfs.ends_with("unix-excl")) {
        return Err(refusal("it is opened by the VFS unix-excl"));
    }
    Ok(())
}

/// The same for what has just been attached, which goes again.
fn refuse_attached(connection: &Connection) -> Result<(), rusqlite::Error> {
    for (name, _) in files_of(connection)? {
        if let Err(refused) = refuse_lonely(connection, &name) {
            connection.execute("DETACH ?1", [&name])?;
            return Err(refused);
        }
    }
    Ok(())
}

/// As SQLite says where the same is asked of a guarded connection.
fn refusal(why: &str) -> rusqlite::Error {
    let refused = ffi::Error::new(ffi::SQLITE_AUTH);
    rusqlite::Error::SqliteFailure(refused, Some(why.to_owned()))
}

fn unguarded(path: &Path, error: rusqlite::Error) -> OpenError {
    OpenError::Database {
        path: path.to_owned(),
        source: SqliteError::from(error),
    }
}

/// Whoever panicked in between left a whole value.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
