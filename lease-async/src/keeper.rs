//! The one thread of this crate: a small runtime of its own, where the system's clock rings.
//!
//! It starts with the first alarm and stays. Nothing of a caller's runs on it but wakers, looks at holders, and the
//! replies to renewals. These may use descriptors and the timers of tokio, which cost nothing while none is set.

use core::task::Waker;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use lease_core::{Clock as _, Moment};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::caught::apart;
use crate::clock::{Alarm, AlarmError, SystemClock};
use crate::sys::{self, Common};

/// The keeper of this process. A forked child has one of its own: the copy of its parent's has no thread, and its timer
/// is still the parent's.
static KEEPER: Common<Place> = Common::new();

#[derive(Default)]
struct Place {
    /// Once it was needed.
    keeper: OnceLock<Arc<Keeper>>,
    /// Held by who starts it.
    starting: Mutex<()>,
}

struct Keeper {
    runtime: Handle,
    timer: Arc<OwnedFd>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    alarms: BTreeMap<(Moment, u64), Waker>,
    last: u64,
    /// What the timer is set for.
    set: Option<Moment>,
}

/// Wakes `waker` at `at`.
pub(crate) fn arm(at: Moment, waker: Waker) -> Result<Alarm, AlarmError> {
    let keeper = keeper().map_err(AlarmError::Exhausted)?;
    let key = keeper.add(at, waker);
    Ok(Alarm::kept(Armed { keeper, key }))
}

/// An alarm of the keeper.
pub(crate) struct Armed {
    keeper: &'static Keeper,
    key: (Moment, u64),
}

impl Armed {
    pub(crate) fn is_ours(&self) -> bool {
        is_present(self.keeper)
    }

    pub(crate) fn disarm(self) {
        // What a forked child has of its parent's rings nowhere, and its lock may be shut for ever.
        if self.is_ours() {
            self.keeper.remove(self.key);
        }
    }
}

/// The runtime of the keeper, on its own thread.
pub(crate) fn runtime() -> io::Result<Handle> {
    Ok(keeper()?.runtime.clone())
}

fn keeper() -> io::Result<&'static Keeper> {
    let place = KEEPER.of_this_process();
    match place.keeper.get() {
        Some(keeper) => Ok(keeper),
        None => start_once(place),
    }
}

#[cold]
fn start_once(place: &'static Place) -> io::Result<&'static Keeper> {
    let starting = place.starting.lock();
    let starting = starting.unwrap_or_else(PoisonError::into_inner);
    if place.keeper.get().is_none() {
        // Nobody else sets it.
        drop(place.keeper.set(start()?));
    }
    drop(starting);
    let none = || io::Error::other("the keeper was just started");
    place.keeper.get().map(|keeper| &**keeper).ok_or_else(none)
}

/// Tells whether this is the keeper of this process, and not that of one it was forked from.
fn is_present(keeper: &Keeper) -> bool {
    let present = KEEPER.of_this_process().keeper.get();
    present.is_some_and(|present| core::ptr::eq(&raw const **present, keeper))
}

fn start() -> io::Result<Arc<Keeper>> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let unstarted = Unstarted(Some(runtime));
    let keeper = Arc::new(Keeper {
        runtime: handle.clone(),
        timer: Arc::new(timer),
        table: Mutex::default(),
    });
    let inside = handle.enter();
    let readable = sys::readable(Arc::clone(&keeper.timer))?;
    drop(inside);
    let kept = Arc::clone(&keeper);
    thread::Builder::new()
        .name("lease-keeper".to_owned())
        .spawn(move || unstarted.run(ring(kept, readable)))?;
    Ok(keeper)
}

/// The keeper's runtime, until its thread has it.
///
/// Where that never comes it ends inside the runtime of whoever wanted an alarm, which nothing may block.
struct Unstarted(Option<Runtime>);

impl Unstarted {
    fn run(mut self, task: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(task);
        }
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Rings as long as the process runs.
async fn ring(keeper: Arc<Keeper>, timer: AsyncFd<Arc<OwnedFd>>) {
    // An error would come from a runtime that ends, and this one does not.
    while let Ok(mut ready) = timer.readable().await {
        let mut count = [0; 8];
        if rustix::io::read(&keeper.timer, &mut count).is_err() {
            ready.clear_ready();
        }
        for waker in keeper.due() {
            // What a caller's waker does is not the keeper's.
            apart(|| waker.wake());
        }
    }
}

impl Keeper {
    fn add(&self, at: Moment, waker: Waker) -> (Moment, u64) {
        let mut table = self.table();
        table.last = table.last.wrapping_add(1);
        let key = (at, table.last);
        table.alarms.insert(key, waker);
        self.set(&mut table);
        key
    }

    fn remove(&self, key: (Moment, u64)) {
        let mut table = self.table();
        // The timer stays set: to ring once for nobody is cheaper than a system call at each hand-over.
        let disarmed = table.alarms.remove(&key);
        drop(table);
        // A waker may own things that take locks when they go.
        drop(disarmed);
    }

    /// Takes what is due, and sets the timer for the rest.
    fn due(&self) -> Vec<Waker> {
        let now = SystemClock::new().now();
        let mut table = self.table();
        let later = table.alarms.split_off(&(now, u64::MAX));
        let due = core::mem::replace(&mut table.alarms, later);
        table.set = None;
        self.set(&mut table);
        drop(table);
        due.into_values().collect()
    }

    /// Sets the timer for the earliest alarm, unless it rings before that anyway.
    fn set(&self, table: &mut Table) {
        let earliest = table.alarms.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = earliest.filter(|at| table.set.is_none_or(|set| set > *at)) else {
            return;
        };
        table.set = Some(at);
        // All zero would disarm it; the clock's zero is long past.
        let nanos = at.as_nanos().max(1);
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let interval = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let new = Itimerspec {
            it_interval: interval,
            it_value: value,
        };
        // It fails for no descriptor of ours and no such time.
        drop(rustix::time::timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &new,
        ));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
