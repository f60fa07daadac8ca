//! Places of a test's own, and writers in them: ours and peers, who obey the same orders.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests meet the machine here"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than many rounds take, shorter than the runner's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

use crate::not_run::not_run;
pub(crate) use crate::patience::until;
pub(crate) use crate::place::Place;
pub(crate) use crate::told::answer;
use crate::told::{Told, stands_for, this_program};

const ORDERS: &str = "LEASE_SQLITE_INTEROP_DATABASE";

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
pub(crate) struct Writer(Told);

impl Writer {
    pub(crate) fn start(side: Side, place: &Place) -> Self {
        Self(match side {
            Side::Ours => Told::start(this_program().env(ORDERS, place.database())),
            Side::Peer(language) => Told::start(language.command().arg(place.record())),
        })
    }

    /// The answer to an order that takes long.
    #[track_caller]
    pub(crate) fn late_answer(&self) -> String {
        self.heard_within(PATIENCE).expect("an answer in time")
    }

    /// The answer, if it is there.
    pub(crate) fn early_answer(&self) -> Option<String> {
        self.heard_within(Duration::ZERO)
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
        let child = self.dismiss();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

stands_for!(Writer);

/// The database of a writer of ours; nothing in a test run of its own.
pub(crate) fn orders() -> Option<PathBuf> {
    std::env::var_os(ORDERS).map(PathBuf::from)
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
