//! Places of a test's own, and writers in them: ours and peers, who obey the same orders.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests meet the machine here"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything here takes but many rounds.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

/// Longer than many rounds take, shorter than the runner's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) use crate::place::Place;

const ORDERS: &str = "LEASE_SQLITE_INTEROP_DATABASE";
const MARK: &str = "=> ";

/// What a peer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
}

impl Language {
    /// Runs a test where this machine has the language and its SQLite, and says so where not.
    pub(crate) fn run(self, test: &str, body: fn(Self)) {
        let (need, program, look) = match self {
            Self::Python => ("python-sqlite", "python3", "import sqlite3"),
            Self::Node => ("node-better-sqlite3", "node", "require('better-sqlite3')"),
        };
        let option = if self == Self::Python { "-c" } else { "-e" };
        let run = Command::new(program)
            .args([option, look])
            .current_dir(scripts())
            .stdin(Stdio::null())
            .output();
        match run {
            Ok(run) if run.status.success() => body(self),
            Ok(run) => {
                let words = String::from_utf8_lossy(&run.stderr);
                let why = words.lines().find(|line| line.contains("Error"));
                not_run(test, need, why.unwrap_or("refused"));
            }
            Err(error) => not_run(test, need, &format!("{program}: {error}")),
        }
    }

    fn command(self) -> Command {
        let (program, script) = match self {
            Self::Python => ("python3", "peer.py"),
            Self::Node => ("node", "peer.js"),
        };
        let mut command = Command::new(program);
        command.arg(scripts().join(script));
        command
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

impl Place {
    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.join("app.db.write-lock.mutex-journal")
    }

    /// Where everybody who is inside says so.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("app.db.write-lock.log")
    }

    /// Whether somebody was inside by now.
    pub(crate) fn says(&self, name: &str) -> bool {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.contains(&format!("enter {name} "))
    }
}

/// Whose writer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Peer(Language),
}

/// A process that acquires and releases when told.
#[derive(Debug)]
pub(crate) struct Writer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Writer {
    pub(crate) fn start(side: Side, place: &Place) -> Self {
        let mut command = match side {
            Side::Ours => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "child::obeys_orders", "--nocapture"]);
                command.env(ORDERS, place.database());
                command
            }
            Side::Peer(language) => {
                let mut command = language.command();
                command.arg(place.record());
                command
            }
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, answers) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The words of a test runner stand before the mark, or without one.
                let answer = match (side, line.split_once(MARK)) {
                    (_, Some((_, answer))) => answer,
                    (Side::Peer(_), None) => &line,
                    (Side::Ours, None) => continue,
                };
                if sender.send(answer.to_owned()).is_err() {
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
    }

    #[track_caller]
    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(BOUND).expect("an answer in time")
    }

    /// The answer to an order that takes long.
    #[track_caller]
    pub(crate) fn late_answer(&self) -> String {
        self.answers
            .recv_timeout(PATIENCE)
            .expect("an answer in time")
    }

    /// The answer, if it is there.
    pub(crate) fn early_answer(&self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    #[track_caller]
    pub(crate) fn acquires(&mut self) {
        assert_eq!(self.does("acquire 0"), "granted");
    }

    #[track_caller]
    pub(crate) fn releases(&mut self) {
        assert_eq!(self.does("release"), "released");
    }

    /// Ends it by SIGKILL, and waits until it is gone.
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
fn not_run(test: &str, need: &str, reason: &str) {
    let line = format!("NOT RUN: {test}: {need}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("LEASE_NOT_RUN_FILE") {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// The database of a writer of ours; nothing in a test run of its own.
pub(crate) fn orders() -> Option<PathBuf> {
    std::env::var_os(ORDERS).map(PathBuf::from)
}

pub(crate) fn answer(text: &str) {
    println!("{MARK}{text}");
}

/// A figure for a person who reads the output.
pub(crate) fn tell(text: &str) {
    println!("{text}");
}

pub(crate) fn rest(micros: u64) {
    if micros > 0 {
        std::thread::sleep(Duration::from_micros(micros));
    }
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
