//! A directory with a database's name in it, for every test program of this crate.
#![expect(clippy::disallowed_methods, reason = "tests meet the machine here")]

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with a database's name in it, removed at the end.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir().canonicalize().unwrap();
        // A killed test leaves its directory, and its number comes again.
        let directory = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("lease-sqlite-{}-{number}", std::process::id());
            let directory = base.join(name);
            match fs::create_dir(&directory) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.unwrap();
                    break directory;
                }
            }
        };
        Self { directory }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.directory.join("app.db")
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.directory.join("app.db.write-lock")
    }

    pub(crate) fn mutex(&self) -> PathBuf {
        self.directory.join("app.db.write-lock.mutex")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that fails leaves what it can.
        let _removed = fs::remove_dir_all(&self.directory);
    }
}
