//! Many processes, watched by one epoll.
//!
//! The table is locked whenever the epoll is changed, so that a key that the epoll gives is in the
//! table or was taken out of it. Nothing is waited for under the lock.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{Evidence, Locality, Verdict};
use rustix::io::Errno;

use super::{Found, KeptProcess, WatchError, WatchId};
use crate::clock::Deadline;
use crate::id::{LaunchId, Pid};
use crate::identity::ProcessIdentity;
use crate::limits::WATCHES;
use crate::procfs::ProcFs;
use crate::proof::Proof;
use crate::sys;

/// Watches processes for their end, children or not, without a thread and without polling.
///
/// Each watch takes one file descriptor, two watches of one process two; the watch itself takes two
/// more. All are closed on `exec` and when this is dropped. It may be shared between threads.
///
/// A forked child's copy is inert: every call is refused with [`WatchError::Inherited`], and what
/// the parent watches stays watched.
///
/// For an event loop: [`as_fd`](AsFd::as_fd) is readable as long as there is something to
/// [`wait`](Self::wait) for, and a wait of no time then returns all of it.
#[derive(Debug)]
pub struct DeathWatch {
    proc: ProcFs,
    epoll: OwnedFd,
    bell: OwnedFd,
    owner: Owner,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The last id that was given; zero is the bell's key.
    last: u64,
    watched: BTreeMap<u64, KeptProcess>,
}

/// The key of the bell.
const BELL: u64 = 0;

/// A process that was seen running, and has ended since.
#[derive(Debug)]
pub struct Death {
    id: WatchId,
    kept: KeptProcess,
}

impl DeathWatch {
    /// Makes a watch of nobody, which looks through this `/proc`.
    ///
    /// # Errors
    ///
    /// [`WatchError::Exhausted`], [`WatchError::Failed`] and [`WatchError::Unsupported`].
    pub fn new(proc: &ProcFs) -> Result<Self, WatchError> {
        let epoll = sys::new_epoll().map_err(WatchError::of)?;
        let bell = sys::new_bell().map_err(WatchError::of)?;
        sys::add_to_epoll(epoll.as_fd(), bell.as_fd(), BELL).map_err(WatchError::of)?;
        Ok(Self {
            proc: proc.clone(),
            epoll,
            bell,
            owner: Owner::here(),
            table: Mutex::default(),
        })
    }

    /// Watches a recorded process until it ends or is forgotten.
    ///
    /// The identity is compared after its number was opened, so a later owner of the number is never
    /// watched in its place. A process that is gone already is told at once, and never again.
    ///
    /// # Errors
    ///
    /// [`WatchError`]: nothing is watched that was not before.
    pub fn watch(
        &self,
        process: &ProcessIdentity,
        locality: Locality,
    ) -> Result<Found<WatchId>, WatchError> {
        self.owner.check()?;
        let kept = match KeptProcess::open(&self.proc, process, locality)? {
            Found::Running(kept) => kept,
            Found::Gone(evidence) => return Ok(Found::Gone(evidence)),
        };
        let mut table = self.table();
        if table.watched.len() >= WATCHES {
            return Err(WatchError::Full { most: WATCHES });
        }
        let id = table.last.saturating_add(1);
        sys::add_to_epoll(self.epoll.as_fd(), kept.as_fd(), id).map_err(WatchError::of)?;
        table.last = id;
        table.watched.insert(id, kept);
        Ok(Found::Running(WatchId(id)))
    }

    /// Ends one watch and closes its descriptor. `false` if its death was returned before, or it was
    /// forgotten, or this is a forked child's copy.
    ///
    /// Afterwards no wait returns this death.
    pub fn forget(&self, id: WatchId) -> bool {
        self.owner.check().is_ok() && self.take(&mut self.table(), id.0).is_some()
    }

    /// Waits until a watched process ends and returns all that have; each death is returned once, to
    /// one caller.
    ///
    /// `None` waits without end. Nothing is returned when the time is over, and when
    /// [`wake`](Self::wake) was called.
    ///
    /// # Errors
    ///
    /// [`WatchError::Inherited`] in a forked child, and [`WatchError::Failed`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Vec<Death>, WatchError> {
        self.owner.check()?;
        let deadline = timeout.map(Deadline::after);
        let mut keys = [BELL; sys::EPOLL_KEYS];
        loop {
            let rest = deadline.map(Deadline::rest);
            let keys = match sys::wait_for_epoll(self.epoll.as_fd(), &mut keys, rest.as_ref()) {
                Ok(keys) => keys,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(WatchError::of(errno)),
            };
            let is_woken = keys.contains(&BELL) && sys::silence(self.bell.as_fd());
            let mut deaths = self.deaths(keys);
            if keys.len() == sys::EPOLL_KEYS {
                // There may be more than one look has room for.
                deaths.extend(self.wait(Some(Duration::ZERO))?);
            }
            let is_over = keys.is_empty() && deadline.is_some_and(Deadline::is_over);
            // Else another thread was quicker, or a part of a long time is over.
            if is_woken || !deaths.is_empty() || is_over {
                return Ok(deaths);
            }
        }
    }

    /// Ends a wait of another thread, or the next one: at least one, whether or not anybody died.
    ///
    /// # Errors
    ///
    /// [`WatchError::Inherited`] in a forked child, and [`WatchError::Failed`].
    pub fn wake(&self) -> Result<(), WatchError> {
        self.owner.check()?;
        sys::ring(self.bell.as_fd()).map_err(WatchError::of)
    }

    /// Returns how many processes are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        match self.owner.check() {
            Ok(()) => self.table().watched.len(),
            Err(_) => 0,
        }
    }

    fn deaths(&self, keys: &[u64]) -> Vec<Death> {
        let mut table = self.table();
        keys.iter()
            .filter_map(|&key| {
                let kept = self.take(&mut table, key)?;
                Some(Death {
                    id: WatchId(key),
                    kept,
                })
            })
            .collect()
    }

    /// Takes a process out of the table, and out of the epoll.
    fn take(&self, table: &mut Table, key: u64) -> Option<KeptProcess> {
        let kept = table.watched.remove(&key)?;
        // It was added and never taken out, so this cannot fail.
        let _removed = sys::remove_from_epoll(self.epoll.as_fd(), kept.as_fd());
        Some(kept)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked here left a table that is good: each change is one call.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for DeathWatch {
    /// Is readable as long as there is something to wait for. Only to poll: the watch owns it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for DeathWatch {
    /// The same descriptor.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl Death {
    /// Returns which watch it ends.
    #[must_use]
    pub const fn id(&self) -> WatchId {
        self.id
    }

    /// Returns who died.
    #[must_use]
    pub const fn process(&self) -> &ProcessIdentity {
        self.kept.process()
    }

    /// Returns the verdict: always dead.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        Verdict::Dead(Evidence::new(Proof::Exited.as_str()))
    }

    /// Tells how it ended, as [`KeptProcess::ending`] does. It may be asked again later, as long as
    /// this is kept: often a process is told dead before it was reaped.
    #[must_use]
    pub fn ending(&self) -> Option<ExitStatus> {
        self.kept.ending()
    }
}

/// The process that a watch belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Launch(LaunchId),
    /// Where the kernel wipes no page for a forked child. A child may have the same number in a pid
    /// namespace of its own.
    Pid(Option<Pid>),
}

impl Owner {
    fn here() -> Self {
        sys::launch().map_or_else(|| Self::Pid(sys::own_pid()), Self::Launch)
    }

    fn check(self) -> Result<(), WatchError> {
        let is_here = match self {
            Self::Launch(launch) => sys::launch_if_made() == Some(launch),
            Self::Pid(pid) => sys::own_pid() == pid,
        };
        if is_here {
            Ok(())
        } else {
            Err(WatchError::Inherited)
        }
    }
}
