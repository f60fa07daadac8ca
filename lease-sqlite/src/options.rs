//! What a caller says about a lock.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::{SystemTiming, Timing};
use crate::error::OpenError;
use crate::guarded::Guarded;
use crate::health::{Events, LockEvent};
use crate::legacy::Legacy;
use crate::limits::{BEAT, FOREIGN_HOLD, POLL, POLL_FLOOR};
use crate::lock::WriteLock;
use crate::path::{self, Paths};
use crate::record::NO_ROLE;

/// How a lock is used. Every part has a default.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened yet"]
pub struct LockOptions {
    lock_path: Option<PathBuf>,
    any_file_system: bool,
    boot_sweep: bool,
    settings: Settings,
}

/// What counts at each acquire.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) poll: Duration,
    /// How often a waiter looks although nothing wakes it.
    pub(crate) beat: Duration,
    pub(crate) role: String,
    pub(crate) argv0: String,
    pub(crate) purpose: Option<String>,
    pub(crate) label: String,
    pub(crate) legacy: Legacy,
    pub(crate) foreign_hold: Duration,
    pub(crate) hold_budget: Option<Duration>,
    pub(crate) events: Arc<Events>,
    pub(crate) timing: Arc<dyn Timing>,
    /// The clock is a caller's, so nothing but its sleep may wait.
    pub(crate) is_timing_given: bool,
    #[cfg(feature = "test-util")]
    pub(crate) when_in_line: Option<WhenInLine>,
}

/// Hears when a waiter has its place in the line, on the waiter's thread.
#[cfg(feature = "test-util")]
#[derive(Clone)]
pub(crate) struct WhenInLine(Arc<dyn Fn() + Send + Sync>);

#[cfg(feature = "test-util")]
impl WhenInLine {
    pub(crate) fn tell(&self) {
        (self.0)();
    }
}

#[cfg(feature = "test-util")]
impl std::fmt::Debug for WhenInLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WhenInLine")
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LockOptions {
    /// Starts with every default.
    pub fn new() -> Self {
        Self {
            lock_path: None,
            any_file_system: false,
            boot_sweep: true,
            settings: Settings {
                poll: POLL,
                beat: BEAT,
                role: NO_ROLE.to_owned(),
                argv0: program(),
                purpose: None,
                label: String::new(),
                legacy: Legacy::default(),
                foreign_hold: FOREIGN_HOLD,
                hold_budget: None,
                events: Arc::default(),
                timing: Arc::new(SystemTiming),
                is_timing_given: false,
                #[cfg(feature = "test-util")]
                when_in_line: None,
            },
        }
    }

    /// Puts the record here instead of beside the database; the mutex is beside the record. It is a file of the
    /// lock's own, and never the database.
    pub fn lock_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.lock_path = Some(path.into());
        self
    }

    /// Says what this program does in general; `unknown` if nothing is said.
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.settings.role = role.into();
        self
    }

    /// Says what the program is called; the base name of the program if nothing is said.
    pub fn argv0(mut self, argv0: impl Into<String>) -> Self {
        self.settings.argv0 = argv0.into();
        self
    }

    /// Says what the holds are for; the label if nothing is said. Range: the first 80 characters.
    pub fn purpose(mut self, purpose: impl Into<String>) -> Self {
        self.settings.purpose = Some(purpose.into());
        self
    }

    /// Names the holds.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = label.into();
        self
    }

    /// Sets how long to wait between two attempts. Range: at least 1 ms; 25 ms if nothing is said.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.settings.poll = poll.max(POLL_FLOOR);
        self
    }

    /// Tells of a hold that took longer than this, when it ends. It is never ended for that.
    pub const fn hold_budget(mut self, budget: Duration) -> Self {
        self.settings.hold_budget = Some(budget);
        self
    }

    /// Lets somebody hear of every event of the lock. It runs on the thread on which the event happens.
    pub fn observer(mut self, observer: impl Fn(&LockEvent) + Send + Sync + 'static) -> Self {
        self.settings.events = Arc::new(Events::new(Some(Arc::new(observer))));
        self
    }

    /// Sets how often a waiter looks although nothing wakes it.
    #[cfg(feature = "test-util")]
    pub const fn beat(mut self, beat: Duration) -> Self {
        self.settings.beat = beat;
        self
    }

    /// Hears when a waiter has its place in the line, on the waiter's thread.
    #[cfg(feature = "test-util")]
    pub fn when_in_line(mut self, told: impl Fn() + Send + Sync + 'static) -> Self {
        self.settings.when_in_line = Some(WhenInLine(Arc::new(told)));
        self
    }

    /// Uses other clocks and another sleep. Nothing but that sleep waits then, except for a task, which
    /// must not sleep: it only asks these clocks.
    pub fn timing(mut self, timing: Arc<dyn Timing>) -> Self {
        self.settings.timing = timing;
        self.settings.is_timing_given = true;
        self
    }

    /// Uses the lock on any file system, also where locks may do nothing. Then nobody is kept out
    /// for certain.
    pub const fn any_file_system(mut self) -> Self {
        self.any_file_system = true;
        self
    }

    /// Goes without the sweep at [`open`](Self::open), which takes away the record of a process that
    /// is proven gone.
    pub const fn no_boot_sweep(mut self) -> Self {
        self.boot_sweep = false;
        self
    }

    /// Removes claims of protocol 1 that name our own pid and were made before this process started:
    /// only where no other pid namespace uses the directory.
    #[cfg(feature = "legacy-v1")]
    pub const fn reap_own_pid(mut self) -> Self {
        self.settings.legacy.reap_own_pid = true;
        self
    }

    /// Names the lock of a database. No file is made or opened.
    ///
    /// # Errors
    ///
    /// As [`WriteLock::open`].
    pub fn open(mut self, database: impl AsRef<Path>) -> Result<WriteLock, OpenError> {
        let paths = match &self.lock_path {
            Some(lock) => Paths::of_lock(lock, database.as_ref())?,
            None => Paths::of_database(database.as_ref())?,
        };
        if !self.any_file_system {
            path::check_file_system(paths.directory())?;
        }
        // A clone of these options opens a lock with events of its own.
        self.settings.events = Arc::new(self.settings.events.another());
        let lock = WriteLock::new(paths, self.settings);
        if self.boot_sweep {
            // A record that cannot be swept is the fence's business.
            let _swept = lock.sweep();
        }
        Ok(lock)
    }
}

impl LockOptions {
    /// Guards a connection: from now on it takes the lock of its database for whatever writes.
    ///
    /// Functions, collations and the busy timeout are set before; the authorizer and the commit hook
    /// of the connection are replaced. One in the locking mode `EXCLUSIVE`, or opened by the VFS
    /// `unix-excl`, is refused. A connection that is guarded is gone, so it cannot be guarded twice:
    ///
    /// ```compile_fail,E0382
    /// use lease_sqlite::{LockOptions, rusqlite::Connection};
    ///
    /// fn twice(connection: Connection) {
    ///     let _first = LockOptions::new().guard(connection);
    ///     let _second = LockOptions::new().guard(connection);
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WriteLock::open`], and [`OpenError::Database`]. The connection is closed then.
    pub fn guard(self, connection: Connection) -> Result<Guarded, OpenError> {
        Guarded::new(connection, self)
    }
}

impl Settings {
    /// Returns what the holds are for.
    pub(crate) fn purpose(&self) -> &str {
        self.purpose.as_deref().unwrap_or(&self.label)
    }
}

/// The base name of this program.
fn program() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&first).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
