//! A place, and a second process that tries the lock once.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests meet the machine here"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{AcquireError, LockOptions, WaitBudget, WriteLock};

pub(crate) use crate::place::Place;

const OTHER: &str = "LEASE_SQLITE_TEST_NAIVE";

impl Place {
    pub(crate) fn lock(&self, label: &str) -> WriteLock {
        let options = LockOptions::new().label(label).no_boot_sweep();
        options.open(self.database()).unwrap()
    }

    /// A lock that is `BEGIN EXCLUSIVE` and nothing else.
    pub(crate) fn naive(&self) -> Connection {
        let connection = Connection::open(self.mutex()).unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    }

    /// Empties it, as a directory that is removed and made again.
    pub(crate) fn remake(&self) {
        fs::remove_dir_all(&self.directory).unwrap();
        fs::create_dir(&self.directory).unwrap();
    }

    /// Whether another process is granted the lock at this moment.
    pub(crate) fn lets_another_in(&self) -> bool {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rig::another_process_tries_once", "--nocapture"])
            .env(OTHER, &self.directory)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&run.stdout).into_owned();
        match (told.contains("=> granted"), told.contains("=> busy")) {
            (granted, busy) if granted != busy => granted,
            _ => panic!("{run:?}"),
        }
    }
}

/// Runs in every test run, where it is told of no place and does nothing.
#[test]
fn another_process_tries_once() {
    let Some(directory) = std::env::var_os(OTHER) else {
        return;
    };
    let options = LockOptions::new().role("other").no_boot_sweep();
    let lock = options
        .open(PathBuf::from(directory).join("app.db"))
        .unwrap();
    match lock.acquire(WaitBudget::NOW) {
        Ok(hold) => {
            println!("=> granted");
            hold.release().unwrap();
        }
        Err(AcquireError::Busy(_)) => println!("=> busy"),
        Err(error) => println!("=> error {error}"),
    }
}

pub(crate) fn own_pid() -> i64 {
    std::process::id().into()
}
