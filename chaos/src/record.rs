//! The record of a run, for machines.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use chaos::clock;
use chaos::scenario::{Judgement, Suite, Violation};

use crate::options::Plan;
use crate::run::Run;
use crate::summary::Tally;

/// The version of the record's form. It grows when a field changes its meaning.
const SCHEMA: u32 = 1;

/// A file that will be there as a whole, or not at all.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    /// Where it is written first. It is there only while that takes place.
    partial: PathBuf,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", path.display())]
pub(crate) struct RecordError {
    path: PathBuf,
    why: io::Error,
}

#[derive(serde::Serialize)]
struct Written<'a> {
    schema: u32,
    version: &'static str,
    /// A number, or text above 2^53, so that every reader keeps it.
    seed: serde_json::Value,
    command: &'a str,
    passed: usize,
    failed: usize,
    not_run: usize,
    scenarios: Vec<Entry<'a>>,
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    name: &'static str,
    suite: Suite,
    about: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    violations: &'a [Violation],
    took_ms: u128,
    counters: &'a BTreeMap<&'static str, u64>,
    notes: &'a [String],
    receipts: &'a [serde_json::Value],
}

impl Record {
    /// Makes sure that the file can be written, before anything is run, and leaves nothing there.
    ///
    /// A record never takes the place of a device, a pipe or a symbolic link.
    pub(crate) fn create(path: &Path) -> Result<Self, RecordError> {
        let fail = |why| RecordError {
            path: path.to_owned(),
            why,
        };
        replaceable(path).map_err(fail)?;
        let Some(name) = path.file_name() else {
            return Err(fail(io::Error::from(io::ErrorKind::InvalidFilename)));
        };
        let mut partial = name.to_owned();
        partial.push(format!(".partial-{}", clock::arbitrary()));
        let partial = path.with_file_name(partial);
        // Only a try: a run that is killed must leave nothing behind.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&partial)
            .and_then(|_opened| fs::remove_file(&partial))
            .map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            partial,
        })
    }

    /// Writes the record of a run and puts it in its place.
    pub(crate) fn write(self, plan: &Plan, runs: &[Run]) -> Result<(), RecordError> {
        self.put(text(plan, runs))
    }

    /// Writes `text` and puts it in its place.
    pub(crate) fn put(self, text: io::Result<String>) -> Result<(), RecordError> {
        let written = text.and_then(|text| self.place(&text));
        written.map_err(|why| RecordError {
            path: self.path,
            why,
        })
    }

    fn place(&self, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.partial)?;
        let placed = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            // Somebody may have put something else there meanwhile.
            .and_then(|()| replaceable(&self.path))
            .and_then(|()| fs::rename(&self.partial, &self.path));
        if placed.is_err() {
            // The first error says more than that this failed, too.
            let _removed = fs::remove_file(&self.partial);
        }
        placed
    }
}

/// Makes sure that a file here, if there is one, is one that a record may take the place of.
fn replaceable(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if kind.is_file() {
        Ok(())
    } else if kind.is_dir() {
        Err(io::Error::from(io::ErrorKind::IsADirectory))
    } else if kind.is_symlink() {
        let why = "it is a symbolic link, and a record replaces only a regular file";
        Err(io::Error::other(why))
    } else {
        let why = "it is there, and a record replaces only a regular file";
        Err(io::Error::other(why))
    }
}

fn text(plan: &Plan, runs: &[Run]) -> io::Result<String> {
    let Tally {
        passed,
        failed,
        not_run,
    } = Tally::of(runs);
    let written = Written {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        seed: wide(plan.seed),
        command: &plan.command,
        passed,
        failed,
        not_run,
        scenarios: runs.iter().map(entry).collect(),
    };
    let mut text = serde_json::to_string_pretty(&written)?;
    text.push('\n');
    Ok(text)
}

fn entry(run: &Run) -> Entry<'_> {
    let report = &run.report;
    let (result, reason, need, violations): (_, _, _, &[Violation]) = match &report.result {
        Judgement::Passed => ("passed", None, None, &[]),
        Judgement::Failed { violations } => {
            let reason = violations.first().map(ToString::to_string);
            ("failed", reason, None, violations)
        }
        Judgement::NotRun { need, reason } => ("not_run", Some(reason.clone()), Some(*need), &[]),
    };
    Entry {
        name: run.scenario.name,
        suite: run.scenario.suite,
        about: run.scenario.about,
        result,
        reason,
        need,
        violations,
        took_ms: run.took.as_millis(),
        counters: &report.counters,
        notes: &report.notes,
        receipts: &report.receipts,
    }
}

fn wide(number: u64) -> serde_json::Value {
    if number <= 1 << 53 {
        number.into()
    } else {
        number.to_string().into()
    }
}
