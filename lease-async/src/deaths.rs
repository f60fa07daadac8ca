//! The deaths of processes, as they happen.

use core::task::Waker;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lease_core::Question;
use lease_procfs::{DeathWatch, Found, ProcFs, ProcLiveness, ProcessHolder, WatchError, WatchId};

use crate::caught::apart;
use crate::clock::Alarm;
use crate::keeper;
use crate::liveness::{DeathSource, Watched};
use crate::memory::MemoryBuilder;
use crate::sys;

/// Watches the processes of holders: one descriptor each, no thread and no polling.
#[derive(Debug)]
pub struct ProcDeaths {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    watch: Arc<DeathWatch>,
    /// Locked while a watch is added, so that whoever takes a death finds its waker.
    wakers: Mutex<BTreeMap<WatchId, Waker>>,
}

/// Why deaths cannot be watched.
///
/// State: unchanged. Retry: as the cause says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeathsError {
    /// Processes cannot be watched.
    #[error(transparent)]
    Watch(WatchError),
    /// No thread or descriptor is left.
    #[error("no thread or descriptor is left to watch with")]
    Exhausted(#[source] io::Error),
}

impl ProcDeaths {
    /// Makes a watch of nobody, which looks through this `/proc`.
    ///
    /// # Errors
    ///
    /// [`DeathsError`].
    pub fn new(proc: &ProcFs) -> Result<Self, DeathsError> {
        let watch = Arc::new(DeathWatch::new(proc).map_err(DeathsError::Watch)?);
        let shared = Arc::new(Shared {
            watch: Arc::clone(&watch),
            wakers: Mutex::default(),
        });
        let runtime = keeper::runtime().map_err(DeathsError::Exhausted)?;
        let inside = runtime.enter();
        let readable = sys::deaths(watch).map_err(DeathsError::Exhausted)?;
        drop(inside);
        let weak = Arc::downgrade(&shared);
        drop(runtime.spawn(listen(readable, weak)));
        Ok(Self { shared })
    }
}

/// Tells every death, as long as the watch is there.
async fn listen(readable: tokio::io::unix::AsyncFd<Arc<DeathWatch>>, shared: Weak<Shared>) {
    while let Ok(mut ready) = readable.readable().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Ok(deaths) = shared.watch.wait(Some(Duration::ZERO)) else {
            return;
        };
        if deaths.is_empty() {
            ready.clear_ready();
        }
        for death in deaths {
            let waker = shared.wakers().remove(&death.id());
            if let Some(waker) = waker {
                // One that panics is not to cost the next death its turn.
                apart(|| waker.wake());
            }
        }
    }
}

impl Shared {
    fn wakers(&self) -> MutexGuard<'_, BTreeMap<WatchId, Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // So that the task sees that nobody is left, now that nobody is; a watch that cannot be woken has none.
        drop(self.watch.wake());
    }
}

impl DeathSource<ProcessHolder> for ProcDeaths {
    fn watch(&self, question: &Question<ProcessHolder>, waker: Waker) -> Watched {
        let shared = &self.shared;
        let mut wakers = shared.wakers();
        match shared
            .watch
            .watch(question.holder.process(), question.locality)
        {
            Ok(Found::Running(id)) => {
                wakers.insert(id, waker);
                drop(wakers);
                let shared = Arc::clone(shared);
                Watched::Running(Alarm::new(move || {
                    shared.watch.forget(id);
                    let waker = shared.wakers().remove(&id);
                    drop(waker);
                }))
            }
            Ok(Found::Gone(_)) => Watched::Gone,
            Err(_) => Watched::Unseen,
        }
    }
}

impl MemoryBuilder<ProcessHolder> {
    /// Observes holders that are processes, through this `/proc`, and has their deaths told at once.
    ///
    /// # Errors
    ///
    /// [`DeathsError`] where deaths cannot be watched; [`liveness`](Self::liveness) alone observes them at a
    /// slow beat.
    pub fn processes(self, proc: &ProcFs) -> Result<Self, DeathsError> {
        let deaths = ProcDeaths::new(proc)?;
        Ok(self
            .liveness(ProcLiveness::new(proc.clone()))
            .deaths(deaths))
    }
}
