//! The lock of one path in this process.
//!
//! One state per process and path, behind a mutex in memory; the kernel lock is only ever taken and
//! given back under it. Order: table of paths, then state; neither is held while anybody sleeps.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{AcquireError, OpenError};
#[cfg(feature = "test-util")]
use crate::fault::FaultPoint;
use crate::fence;
use crate::forbid::{self, Blocking};
#[cfg(feature = "test-util")]
use crate::health::Incidents;
use crate::health::{Happening, Health};
use crate::hold::{Hold, Lane};
use crate::options::{LockOptions, Settings};
use crate::path::Paths;
use crate::record::LastWriter;
use crate::state::State;
use crate::sweep::Swept;
use crate::sys::{Common, Image};
use crate::wait::{self, Line, WaitBudget};

/// A lock that may be taken. It is no hold.
///
/// Every one counts: the connection and the descriptors of a path are closed when the last
/// `WriteLock` and the last [`Hold`] of it are gone.
#[derive(Debug)]
pub struct WriteLock {
    shared: Arc<Shared>,
    settings: Settings,
}

impl WriteLock {
    /// Names the lock of a database. No file is made or opened.
    ///
    /// The path is resolved now, with every link on the way; the database need not exist yet.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the path cannot be resolved, has several names, or lies where locks are not
    /// known to work.
    pub fn open(database: impl AsRef<Path>) -> Result<Self, OpenError> {
        LockOptions::new().open(database)
    }

    pub(crate) fn new(paths: Paths, settings: Settings) -> Self {
        let shared = Shared::of(paths);
        let mut state = shared.state();
        state.locks = state.locks.saturating_add(1);
        drop(state);
        Self { shared, settings }
    }

    /// Takes the lock for this thread, or enters its hold again.
    ///
    /// A hold that goes to another thread stays one of this thread, which enters it again and waits for nobody.
    /// So where a hold moves, as in tasks, or on a thread that serves many, take it for a lane of its own:
    /// [`acquire_on`](Self::acquire_on) with [`Lane::new`].
    ///
    /// No order among those who wait is promised.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Busy`] at the end of the budget; every other variant at once.
    /// [`AcquireError::Forbidden`] where waiting is forbidden ([`ForbidBlocking`](crate::ForbidBlocking)),
    /// unless the budget is [`WaitBudget::NOW`].
    pub fn acquire(&self, budget: WaitBudget) -> Result<Hold, AcquireError> {
        self.acquire_on(&Lane::of_this_thread(), budget)
    }

    /// Takes the lock for a lane, or enters that lane's hold again.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_on(&self, lane: &Lane, budget: WaitBudget) -> Result<Hold, AcquireError> {
        if budget != WaitBudget::NOW {
            forbid::check(self.lock_path())?;
        }
        self.acquire_checked(lane, budget)
    }

    /// Takes the lock where it is known that this thread may wait for it.
    pub(crate) fn acquire_checked(
        &self,
        lane: &Lane,
        budget: WaitBudget,
    ) -> Result<Hold, AcquireError> {
        wait::acquire(&self.shared, &self.settings, lane, budget)
    }

    /// Takes the lock for this call, waiting as a task does: no thread of the executor is blocked, and
    /// any executor will do.
    ///
    /// Each call is a [`Lane`] of its own. So it waits for every other hold of this process too, also
    /// one of the same task or thread: whoever has a hold enters it with [`Hold::again`]. The hold may
    /// go to any thread, and dropping it does not wait.
    ///
    /// The budget counts from the first poll. A task stands in the line of its process from the poll
    /// that finds the lock taken. Observers may hear of what happens on a thread of this crate, which
    /// they must not block.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`AcquireError::Io`] at [`Step::Wait`](crate::Step::Wait) if
    /// the thread that waits for tasks cannot be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the request back; a grant that comes all the same is given back. It
    /// may take a moment until nothing is left of it, and nobody has to wait for that.
    #[cfg(feature = "async")]
    pub async fn acquire_async(&self, budget: WaitBudget) -> Result<Hold, AcquireError> {
        self.acquire_async_on(&Lane::new(), budget).await
    }

    /// Takes the lock for a lane as [`acquire_async`](Self::acquire_async) does, or enters that lane's
    /// hold again.
    ///
    /// # Errors
    ///
    /// As [`acquire_async`](Self::acquire_async).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_async`](Self::acquire_async).
    #[cfg(feature = "async")]
    pub async fn acquire_async_on(
        &self,
        lane: &Lane,
        budget: WaitBudget,
    ) -> Result<Hold, AcquireError> {
        wait::front::acquire(&self.shared, &self.settings, lane, budget).await
    }

    /// Reads who held the lock last. That is a name plate: it does not say that anybody holds it.
    ///
    /// `None` if nothing readable says so.
    #[must_use]
    pub fn last_writer(&self) -> Option<LastWriter> {
        fence::last_writer(&self.shared.paths.record)
    }

    /// Removes the record if the process that it names is proven gone and nobody holds the lock. Makes
    /// nothing, waits for nothing, and is done at every [`open`](Self::open) unless told otherwise.
    ///
    /// It tidies up for people who look at the directory; no acquire needs it.
    pub fn sweep(&self) -> Swept {
        if self.shared.check_image().is_err() {
            return Swept::KeptUnlocked;
        }
        let swept = self.shared.state().sweep(&self.shared.paths);
        self.settings.events.tell_sweep(&swept);
        swept
    }

    /// Returns what is known of the lock; in a forked child only who held last.
    #[must_use]
    pub fn health(&self) -> Health {
        let last_writer = self.last_writer();
        if self.shared.check_image().is_err() {
            // What threads of the parent may have had locked is left alone.
            return Health {
                incidents: 0,
                last_incident: None,
                last_writer,
                last_event: None,
                locks: 0,
                depth: 0,
                blocking: Blocking::of_this_process(),
            };
        }
        let state = self.shared.state();
        Health {
            incidents: state.incidents.count,
            last_incident: state.incidents.last.clone(),
            last_writer,
            last_event: self.settings.events.last_event(),
            locks: state.locks,
            depth: state.depth(),
            blocking: Blocking::of_this_process(),
        }
    }

    /// Forgets every incident.
    #[cfg(feature = "test-util")]
    pub fn reset_health(&self) {
        self.shared.state().incidents = Incidents::default();
    }

    /// Returns the record's path, which is the lock's name.
    #[must_use]
    pub fn lock_path(&self) -> &Path {
        &self.shared.paths.record
    }

    /// Returns the mutex's path. Nobody but SQLite may open it.
    #[must_use]
    pub fn mutex_path(&self) -> &Path {
        &self.shared.paths.mutex
    }

    /// Makes the next pass through a point fail once.
    #[cfg(feature = "test-util")]
    pub fn inject(&self, point: FaultPoint, error_number: i32) {
        let fails = move || Err(std::io::Error::from_raw_os_error(error_number));
        self.shared.state().faults.arm(point, Box::new(fails));
    }

    /// Lets something happen at the next pass through a point.
    #[cfg(feature = "test-util")]
    pub fn meanwhile(&self, point: FaultPoint, event: impl FnOnce() + Send + 'static) {
        let goes_on = move || {
            event();
            Ok(())
        };
        self.shared.state().faults.arm(point, Box::new(goes_on));
    }

    /// Returns how often a point was passed on this path, whether or not anything was armed there.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn passes(&self, point: FaultPoint) -> u64 {
        self.shared.state().faults.passes(point)
    }

    /// Returns how many threads of this process stand in line.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.line.waiting()
    }

    /// Runs a statement on the mutex's connection, behind the lock's back.
    ///
    /// # Errors
    ///
    /// What SQLite says.
    #[cfg(feature = "test-util")]
    pub fn run_on_mutex(&self, statement: &str) -> Result<Vec<String>, String> {
        let state = self.shared.state();
        let mutex = state.mutex().ok_or("no connection")?;
        let mut statement = mutex
            .connection()
            .prepare(statement)
            .map_err(|e| e.to_string())?;
        let rows = statement
            .query_map([], |row| row.get::<_, rusqlite::types::Value>(0))
            .map_err(|e| e.to_string())?;
        rows.map(|row| {
            row.map(|value| format!("{value:?}"))
                .map_err(|e| e.to_string())
        })
        .collect()
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        if self.shared.check_image().is_err() {
            return;
        }
        let mut state = self.shared.state();
        state.locks = state.locks.saturating_sub(1);
        let depth = state.depth();
        let is_kept = state.locks == 0 && depth > 0;
        drop(state);
        if is_kept {
            self.settings.events.tell(Happening::HandleKept { depth });
        }
    }
}

/// What this process knows of one path.
pub(crate) struct Shared {
    pub(crate) paths: Paths,
    image: Image,
    state: Mutex<State>,
    /// Who of this process waits.
    pub(crate) line: Line,
}

/// Closes the files of every path that this process has open; they are opened again when needed.
///
/// # Errors
///
/// The lock path of a hold that is on. Then nothing was closed.
#[cfg(feature = "test-util")]
pub fn close_all() -> Result<(), PathBuf> {
    let table = TABLE.of_this_process().lock();
    let table = table.unwrap_or_else(PoisonError::into_inner);
    let open: Vec<Arc<Shared>> = table.values().filter_map(Weak::upgrade).collect();
    let mut states: Vec<MutexGuard<'_, State>> = open.iter().map(|shared| shared.state()).collect();
    if let Some((held, _)) = open
        .iter()
        .zip(&states)
        .find(|(_, state)| state.depth() > 0)
    {
        return Err(held.paths.record.clone());
    }
    states.iter_mut().for_each(|state| state.close());
    Ok(())
}

/// Every path in use.
static TABLE: Common<Mutex<BTreeMap<PathBuf, Weak<Shared>>>> = Common::new();

impl Shared {
    fn of(paths: Paths) -> Arc<Self> {
        let table = TABLE.of_this_process().lock();
        let mut table = table.unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = table.get(&paths.record).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Arc::new(Self {
            paths,
            image: Image::present(),
            state: Mutex::default(),
            line: Line::default(),
        });
        table.insert(shared.paths.record.clone(), Arc::downgrade(&shared));
        shared
    }

    /// Refuses a forked child, before anything of the parent is touched.
    pub(crate) fn check_image(&self) -> Result<(), AcquireError> {
        if self.image == Image::present() {
            return Ok(());
        }
        Err(AcquireError::Forked {
            lock_path: self.paths.record.clone(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked in between left nothing half done that the next attempt does not see.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}
