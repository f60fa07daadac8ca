//! Places of a test's own, and second processes in them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests meet the machine here"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use lease_sqlite::{AcquireError, Hold, LockOptions, Timing, WaitBudget, WriteLock};

/// Longer than anything here takes, shorter than the runner's patience.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

pub(crate) use crate::place::Place;

const ORDERS: &str = "LEASE_SQLITE_TEST_DATABASE";
const MARK: &str = "=> ";

impl Place {
    pub(crate) fn lock(&self) -> WriteLock {
        LockOptions::new()
            .role("test")
            .open(self.database())
            .unwrap()
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
pub(crate) struct Writer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Writer {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    /// Starts one behind a program and its arguments, such as a tracer.
    pub(crate) fn start_with(place: &Place, before: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut line: Vec<_> = before.iter().map(Into::into).collect();
        line.push(program.into_os_string());
        let mut child = Command::new(&line[0])
            .args(&line[1..])
            .args(["--exact", "child::obeys_orders", "--nocapture"])
            .env(ORDERS, place.database())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, answers) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The runner's own words may stand before the mark on the same line.
                if let Some((_, answer)) = line.split_once(MARK)
                    && sender.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let writer = Self {
            orders: child.stdin.take(),
            child,
            answers,
        };
        assert_eq!(writer.answer(), "ready");
        writer
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
    }

    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(BOUND).expect("an answer in time")
    }

    /// Returns what it has answered by now, if anything.
    pub(crate) fn heard(&self) -> Option<String> {
        self.answers.try_recv().ok()
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

    pub(crate) fn does(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Tells it to end, and waits for that.
    pub(crate) fn ends(&mut self) {
        self.orders = None;
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.orders = None;
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Says that this machine does not allow a check. It is counted, and never passes for a success.
pub(crate) fn not_run(test: &str, need: &str, reason: &str) {
    let line = format!("NOT RUN: {test}: {need}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("LEASE_NOT_RUN_FILE") {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

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

pub(crate) fn answer(text: &str) {
    println!("{MARK}{text}");
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

/// Looks until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
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
