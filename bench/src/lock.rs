//! The write lock alone: a pair, a re-entry, the first time on a path, and a cold start.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lease_sqlite::{LockOptions, WaitBudget};

use crate::calls::{calls, calls_by_name};
use crate::report::{Calls, Item, Row};
use crate::rounds::{Work, allocations, least};
use crate::ways::{self, Folder, Ours, WAYS, Way as _};

/// A unit of work, done so many times.
type Job = Box<dyn FnMut(u64)>;

/// What the calls of a pair are for. Any other call is one too many.
const PURPOSES: [(&str, &str); 8] = [
    (
        "fcntl",
        "SQLite's locks: a shared one by way of the pending byte (3), reserved, pending and exclusive (3); \
         COMMIT goes back to shared, drops pending and reserved, drops all (3); the gate, shut and opened (2)",
    ),
    (
        "flock",
        "the gate, shut at the grant and opened at the release, which wakes the next one",
    ),
    ("fstat", "SQLite reads the size of the mutex"),
    (
        "newfstatat",
        "SQLite looks for a hot journal and for a write-ahead log, and at the size of the mutex",
    ),
    (
        "stat",
        "SQLite looks for a hot journal and for a write-ahead log",
    ),
    ("pread64", "SQLite reads the change counter of the mutex"),
    ("pwrite64", "the record of who holds, in one call"),
    (
        "statx",
        "under the lock: the mutex and the record are still the files that we have",
    ),
];

/// Does one named work, for who counts its system calls.
pub(crate) fn work(name: &str, units: u64) -> Result<(), String> {
    let folder = Folder::new();
    let mut job = job(name, &folder.0).ok_or_else(|| format!("unknown work lock/{name}"))?;
    job(units);
    Ok(())
}

fn job(name: &str, folder: &Path) -> Option<Job> {
    let folder = folder.to_owned();
    Some(match name {
        "re-entry" => re_entry(&folder),
        "first-ours" => first(folder, open_pair),
        "first-sqlite" => first(folder, open_floor),
        "cold-ours" => cold(folder.join("cold"), open_pair),
        "cold-sqlite" => cold(folder.join("cold-floor"), open_floor),
        _ => {
            let mut way = (ways::way(name)?.open)(&folder);
            Box::new(move |count| (0..count).for_each(|_| way.through(&mut || ())))
        }
    })
}

/// Enters a hold again and leaves it.
fn re_entry(folder: &Path) -> Job {
    let lock = Ours::open(folder).0;
    let hold = lock.acquire(WaitBudget::NOW).expect("a hold");
    Box::new(move |count| {
        for _ in 0..count {
            let again = lock.acquire(WaitBudget::NOW).expect("it is ours");
            again.release().expect("it is ours");
        }
        std::hint::black_box(&hold);
    })
}

/// Each time on a path where nothing is.
fn first(folder: PathBuf, open: fn(&Path)) -> Job {
    let mut number = 0;
    Box::new(move |count| {
        for _ in 0..count {
            number += 1;
            open(&folder.join(format!("first-{number}")));
        }
    })
}

/// Each time on the same path, from opening to closing.
fn cold(path: PathBuf, open: fn(&Path)) -> Job {
    open(&path);
    Box::new(move |count| (0..count).for_each(|_| open(&path)))
}

fn open_pair(path: &Path) {
    let lock = LockOptions::new().role("bench").open(path).expect("a lock");
    let hold = lock.acquire(WaitBudget::NOW).expect("a hold");
    hold.release().expect("it is free");
}

fn open_floor(path: &Path) {
    let connection = ways::connect(path);
    for statement in ["BEGIN EXCLUSIVE", "COMMIT"] {
        let prepared = connection.prepare_cached(statement);
        prepared.and_then(|mut it| it.execute([])).expect(statement);
    }
}

fn figures(names: &[&str], total: u64) -> Vec<f64> {
    let folder = Folder::new();
    let jobs = names.iter().map(|name| job(name, &folder.0));
    let mut jobs: Vec<_> = jobs.map(|job| job.expect("a known work")).collect();
    let mut works: Vec<&mut dyn Work> = jobs.iter_mut().map(|job| job as &mut dyn Work).collect();
    least(total, &mut works)
}

fn allocated(name: &str, units: u64) -> Option<f64> {
    let folder = Folder::new();
    let mut job = job(name, &folder.0)?;
    Some(allocations(units, &mut job))
}

fn counted(ours: &str, floor: &str, units: u64) -> Calls {
    match (
        calls(&format!("lock/{ours}"), units),
        calls(&format!("lock/{floor}"), units),
    ) {
        (Ok(ours), Ok(floor)) => Calls::Counted { ours, floor },
        (Err(reason), _) | (_, Err(reason)) => Calls::NotRun(reason),
    }
}

/// Every call of a pair of ours, with its purpose.
fn itemised(exactly: f64, ours: &str, floor: f64, units: u64) -> Calls {
    match calls_by_name(&format!("lock/{ours}"), units) {
        Err(reason) => Calls::NotRun(reason),
        Ok(found) => Calls::Itemised {
            exactly,
            floor,
            items: found.into_iter().map(item).collect(),
        },
    }
}

fn item((call, count): (String, f64)) -> Item {
    let known = PURPOSES.iter().find(|(name, _)| *name == call);
    Item {
        purpose: known.map_or("nothing: it is one too many", |(_, purpose)| purpose),
        call,
        count,
    }
}

/// Taken and given back on a warm handle, nobody else there.
pub(crate) fn pairs() -> Vec<Row> {
    let names: Vec<_> = WAYS.iter().map(|way| way.name).collect();
    let figures = figures(&names, 30_000);
    let peers = WAYS.iter().zip(&figures).skip(2);
    let floor_calls = calls("lock/sqlite", 2_000).unwrap_or(f64::NAN);
    let re_entry = self::figures(&["re-entry"], 300_000)[0];
    vec![
        Row {
            name: "b1 acquire + release, warm".to_owned(),
            ours: figures[0],
            floor: Some(figures[1]),
            goal: Some(1.1),
            unit: "ns",
            allocations: allocated("ours", 1_000),
            calls: itemised(18.0, "ours", floor_calls, 2_000),
            peers: peers.map(|(way, nanos)| (way.about, *nanos)).collect(),
        },
        Row {
            name: "b1' re-entry and its end".to_owned(),
            ours: re_entry,
            floor: None,
            goal: None,
            unit: "ns",
            allocations: allocated("re-entry", 1_000),
            calls: itemised(0.0, "re-entry", 0.0, 2_000),
            peers: Vec::new(),
        },
    ]
}

/// The first hold on a path, and what many holds do to the mutex.
pub(crate) fn first_ever() -> Vec<Row> {
    let figures = figures(&["first-ours", "first-sqlite"], 300);
    vec![
        Row {
            name: "b3 first acquire ever on a path".to_owned(),
            ours: figures[0] / 1_000.0,
            floor: Some(figures[1] / 1_000.0),
            goal: None,
            unit: "us",
            allocations: None,
            calls: counted("first-ours", "first-sqlite", 20),
            peers: Vec::new(),
        },
        unchanged(),
    ]
}

/// Bytes, inode and time stamps of the mutex. A look at the bytes is harmless when nobody holds.
fn looks(mutex: &Path) -> (Vec<u8>, u64, i64, i64) {
    let found = std::fs::metadata(mutex).expect("a mutex");
    let bytes = std::fs::read(mutex).expect("a mutex");
    (bytes, found.ino(), found.mtime(), found.mtime_nsec())
}

fn unchanged() -> Row {
    let folder = Folder::new();
    let mut ours = Ours::open(&folder.0);
    ours.through(&mut || ());
    let mutex = ours.0.mutex_path().to_owned();
    let made = looks(&mutex);
    let mut changes = 0;
    for _hundred in 0..100 {
        (0..1_000).for_each(|_| ours.through(&mut || ()));
        changes += u32::from(looks(&mutex) != made);
    }
    Row {
        name: "b3' changes of the mutex in 100,000 holds".to_owned(),
        ours: changes.into(),
        floor: None,
        goal: Some(0.0),
        unit: "changes",
        allocations: None,
        calls: Calls::NotCounted,
        peers: Vec::new(),
    }
}

/// Opened, taken, given back and closed.
pub(crate) fn cold_starts() -> Vec<Row> {
    let figures = figures(&["cold-ours", "cold-sqlite"], 3_000);
    vec![Row {
        name: "b4 open, acquire, release, close".to_owned(),
        ours: figures[0] / 1_000.0,
        floor: Some(figures[1] / 1_000.0),
        goal: Some(1.3),
        unit: "us",
        allocations: allocated("cold-ours", 100),
        calls: counted("cold-ours", "cold-sqlite", 200),
        peers: Vec::new(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_does_what_its_name_says() {
        let more = [
            "re-entry",
            "first-ours",
            "first-sqlite",
            "cold-ours",
            "cold-sqlite",
        ];
        for name in WAYS.iter().map(|way| way.name).chain(more) {
            work(name, 3).unwrap();
        }
        assert!(work("luck", 1).is_err());
    }

    #[test]
    fn the_mutex_is_as_it_was_after_many_holds() {
        assert_eq!(unchanged().ours, 0.0);
    }
}
