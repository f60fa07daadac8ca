//! Places of a test's own, and second processes in them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests meet the machine here"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_sqlite::{AcquireError, Hold, LockOptions, Timing, WaitBudget, WriteLock};

pub(crate) use crate::not_run::not_run;
pub(crate) use crate::patience::until;
pub(crate) use crate::place::Place;
pub(crate) use crate::told::{BOUND, answer};
use crate::told::{ORDERLY, Told, stands_for, this_program};

const ORDERS: &str = "LEASE_SQLITE_TEST_DATABASE";

impl Place {
    pub(crate) fn lock(&self) -> WriteLock {
        LockOptions::new()
            .role("test")
            .open(self.database())
            .unwrap()
    }

    /// A lock of which nothing but a sign wakes a waiter within the bound.
    #[cfg(feature = "test-util")]
    pub(crate) fn deaf(&self) -> WriteLock {
        let never = BOUND.saturating_mul(100);
        let options = LockOptions::new().poll(never).beat(never);
        options.open(self.database()).unwrap()
    }

    /// A lock whose clocks only sleep moves.
    pub(crate) fn timed(&self) -> (WriteLock, Arc<ManualTiming>) {
        let (options, timing) = manual();
        (options.open(self.database()).unwrap(), timing)
    }

    /// The names in the directory, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A second process that acquires and releases when told.
#[derive(Debug)]
pub(crate) struct Writer(Told);

impl Writer {
    pub(crate) fn start(place: &Place) -> Self {
        Self(Told::start(this_program().env(ORDERS, place.database())))
    }

    /// Starts one behind a program and its arguments, such as a tracer.
    pub(crate) fn start_with(place: &Place, before: &[&str]) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(own).args(ORDERLY);
        Self(Told::start(command.env(ORDERS, place.database())))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.pid().try_into().unwrap()
    }

    /// Returns what it has answered by now, if anything.
    pub(crate) fn heard(&self) -> Option<String> {
        self.heard_within(Duration::ZERO)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.contains(") T ")
    }

    /// Tells it to end, and waits for that.
    pub(crate) fn ends(&mut self) {
        assert!(self.dismiss().wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        let child = self.dismiss();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

stands_for!(Writer);

/// Returns whether another program can be traced, and says so if not.
pub(crate) fn has_strace(test: &str) -> bool {
    let run = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    let has = run.is_ok_and(|run| run.status.success());
    if !has {
        not_run(test, "strace", "strace is not there or may not trace");
    }
    has
}

/// Says something for people.
pub(crate) fn said(text: &str) {
    eprintln!("{text}");
}

/// The database of a second process; nothing in a test run of its own.
pub(crate) fn orders() -> Option<PathBuf> {
    std::env::var_os(ORDERS).map(PathBuf::from)
}

/// One attempt.
pub(crate) fn now(lock: &WriteLock) -> Result<Hold, AcquireError> {
    lock.acquire(WaitBudget::NOW)
}

pub(crate) fn within(time: Duration) -> WaitBudget {
    WaitBudget::Within(time)
}

/// Takes so long, on purpose.
#[cfg(feature = "test-util")]
pub(crate) fn sleeps(time: Duration) {
    std::thread::sleep(time);
}

/// How many descriptors this process has open.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What happens at a moment of a clock that only sleep moves.
type Event = (Duration, Box<dyn FnMut() + Send>);

/// Clocks that only sleep moves, and what happens meanwhile.
#[derive(Default)]
pub(crate) struct ManualTiming {
    inner: Mutex<Manual>,
}

#[derive(Default)]
struct Manual {
    now: Duration,
    /// What the wall clock is ahead of the other one.
    wall_ms: i64,
    sleeps: Vec<Duration>,
    events: Vec<Event>,
}

/// Options with clocks that only sleep moves.
pub(crate) fn manual() -> (LockOptions, Arc<ManualTiming>) {
    let timing = Arc::new(ManualTiming::default());
    let own = Arc::<ManualTiming>::clone(&timing);
    (LockOptions::new().timing(own), timing)
}

impl ManualTiming {
    /// Lets something happen while somebody sleeps past this moment.
    pub(crate) fn at(&self, at_ms: u64, event: impl FnMut() + Send + 'static) {
        let at = Duration::from_millis(at_ms);
        self.inner
            .lock()
            .unwrap()
            .events
            .push((at, Box::new(event)));
    }

    pub(crate) fn set_wall_ms(&self, wall_ms: i64) {
        self.inner.lock().unwrap().wall_ms = wall_ms;
    }

    pub(crate) fn now_ms(&self) -> u128 {
        self.now().as_millis()
    }

    pub(crate) fn advance(&self, time_ms: u64) {
        self.inner.lock().unwrap().now += Duration::from_millis(time_ms);
    }

    /// Every sleep so far, in milliseconds.
    pub(crate) fn sleeps_ms(&self) -> Vec<u128> {
        let inner = self.inner.lock().unwrap();
        inner.sleeps.iter().map(Duration::as_millis).collect()
    }
}

impl std::fmt::Debug for ManualTiming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManualTiming")
    }
}

impl Timing for ManualTiming {
    fn now(&self) -> Duration {
        self.inner.lock().unwrap().now
    }

    fn wall_ms(&self) -> i64 {
        let inner = self.inner.lock().unwrap();
        inner.wall_ms + i64::try_from(inner.now.as_millis()).unwrap()
    }

    fn sleep(&self, time: Duration) {
        let mut inner = self.inner.lock().unwrap();
        inner.sleeps.push(time);
        inner.now += time;
        let now = inner.now;
        let (due, later) = std::mem::take(&mut inner.events)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        inner.events = later;
        drop(inner);
        let due: Vec<Event> = due;
        for (_, mut event) in due {
            event();
        }
    }
}
