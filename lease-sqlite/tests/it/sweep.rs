//! The boot sweep: what it takes away, and everything that it leaves.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use lease_sqlite::{LockOptions, Swept, WriteLock};

#[cfg(feature = "test-util")]
use crate::rig::descriptors;
use crate::rig::{Place, Writer, now, until};

fn dead_pid() -> i32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id().try_into().unwrap()
}

/// A lock that was not swept, with a mutex and no record.
fn bare(place: &Place) -> WriteLock {
    let lock = unswept(place);
    now(&lock).unwrap().release().unwrap();
    fs::remove_file(place.record()).unwrap();
    lock
}

fn unswept(place: &Place) -> WriteLock {
    LockOptions::new()
        .no_boot_sweep()
        .open(place.database())
        .unwrap()
}

fn record(protocol: &str, pid: i32) -> String {
    format!(
        "{:<1024}",
        format!("{{{protocol}\"pid\":{pid},\"token\":\"t\"}}")
    )
}

fn looks(path: &Path) -> (u64, u64, i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

// S50, C87, C90, C91
#[test]
fn it_removes_the_record_of_a_process_that_is_proven_gone_and_no_other() {
    let dead = dead_pid();
    let alive = i32::try_from(std::os::unix::process::parent_id()).unwrap();
    let kept = Swept::KeptUnattributable;
    let removed = Swept::Removed(lease_procfs::Pid::new(dead.into()).unwrap());
    let lives = Swept::KeptAlive(lease_procfs::Pid::new(alive.into()).unwrap());
    let legacy = if cfg!(feature = "legacy-v1") {
        removed.clone()
    } else {
        kept.clone()
    };
    let table = [
        ("a dead writer", record("\"protocol\":2,", dead), removed),
        ("a dead claim", record("", dead), legacy),
        ("a live writer", record("\"protocol\":2,", alive), lives),
        ("empty", String::new(), kept.clone()),
        (
            "torn",
            format!("{:<1024}", "{\"protocol\":2,\"pid\":"),
            kept.clone(),
        ),
        ("nameless", "{}".to_owned(), kept),
    ];
    for (name, text, expected) in table {
        let place = Place::new();
        let lock = bare(&place);
        fs::write(place.record(), &text).unwrap();
        let mutex = looks(&place.mutex());
        assert_eq!(lock.sweep(), expected, "{name}");
        let is_removed = matches!(expected, Swept::Removed(_));
        assert_eq!(place.record().exists(), !is_removed, "{name}");
        let again = if is_removed {
            Swept::AlreadyGone
        } else {
            expected
        };
        assert_eq!(lock.sweep(), again, "{name}, once more");
        assert_eq!(looks(&place.mutex()), mutex, "{name}");
        if !is_removed {
            assert_eq!(fs::read_to_string(place.record()).unwrap(), text, "{name}");
        }
    }
    let place = Place::new();
    let lock = bare(&place);
    fs::create_dir(place.record()).unwrap();
    assert_eq!(lock.sweep(), Swept::KeptUnattributable);
    assert!(place.record().is_dir());
}

// C90
#[test]
fn it_makes_no_mutex_and_removes_nothing_without_one() {
    let place = Place::new();
    let text = record("\"protocol\":2,", dead_pid());
    fs::write(place.record(), &text).unwrap();
    let lock = unswept(&place);
    assert_eq!(lock.sweep(), Swept::KeptUnlocked);
    assert_eq!(place.names(), ["app.db.write-lock"]);
    assert_eq!(fs::read_to_string(place.record()).unwrap(), text);
}

#[test]
fn it_leaves_an_empty_mutex_of_a_peer_empty() {
    let place = Place::new();
    fs::write(place.mutex(), "").unwrap();
    fs::write(place.record(), record("\"protocol\":2,", dead_pid())).unwrap();
    let mutex = looks(&place.mutex());
    assert!(matches!(unswept(&place).sweep(), Swept::Removed(_)));
    assert_eq!(looks(&place.mutex()), mutex);
    assert_eq!(place.names(), ["app.db.write-lock.mutex"]);
}

#[test]
fn it_removes_nothing_while_somebody_holds() {
    let place = Place::new();
    let lock = bare(&place);
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    fs::write(place.record(), record("\"protocol\":2,", dead_pid())).unwrap();
    assert_eq!(lock.sweep(), Swept::KeptUnlocked);
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert!(matches!(lock.sweep(), Swept::Removed(_)));
    // In a hold of our own as well.
    let hold = now(&lock).unwrap();
    fs::write(place.record(), record("\"protocol\":2,", dead_pid())).unwrap();
    assert_eq!(lock.sweep(), Swept::KeptUnlocked);
    hold.check().unwrap();
}

#[test]
fn a_killed_writer_is_swept_at_the_next_open_unless_told_otherwise() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    other.kill();
    let lock = unswept(&place);
    assert!(place.record().exists());
    until("the record is swept", || {
        drop(place.lock());
        !place.record().exists()
    });
    assert_eq!(lock.sweep(), Swept::AlreadyGone);
}

// C94
#[test]
fn a_record_that_is_removed_during_a_hold_is_made_again_by_the_next() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    fs::remove_file(place.record()).unwrap();
    let busy = crate::child::told(&now(&lock));
    assert!(busy.starts_with("busy Kernel(None) holder=None"), "{busy}");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(lock.last_writer().unwrap().pid.get(), other.pid());
}

// S50, C89
#[cfg(feature = "legacy-v1")]
#[test]
fn it_does_not_ask_for_the_protocol() {
    for protocol in ["", "\"protocol\":1,", "\"protocol\":2,"] {
        let place = Place::new();
        let lock = bare(&place);
        fs::write(place.record(), record(protocol, dead_pid())).unwrap();
        assert!(matches!(lock.sweep(), Swept::Removed(_)), "{protocol}");
        // A handle that was open on the removed record goes on with a new one.
        assert!(now(&lock).unwrap().granted().adopted.is_some());
    }
}

// C91
#[cfg(feature = "test-util")]
#[test]
fn a_record_that_cannot_be_removed_stays_and_the_lock_is_free() {
    use lease_sqlite::FaultPoint;

    let place = Place::new();
    let lock = bare(&place);
    let dead = record("\"protocol\":2,", dead_pid());
    let mut other = Writer::start(&place);
    for (number, expected) in [(1, Swept::Failed(1)), (2, Swept::AlreadyGone)] {
        fs::write(place.record(), &dead).unwrap();
        lock.inject(FaultPoint::Remove, number);
        assert_eq!(lock.sweep(), expected);
        assert_eq!(fs::read_to_string(place.record()).unwrap(), dead);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
    now(&lock).unwrap().check().unwrap();
}

#[cfg(feature = "test-util")]
#[test]
fn it_leaves_open_what_was_open_and_nothing_else() {
    let place = Place::new();
    drop(bare(&place));
    let dead = record("\"protocol\":2,", dead_pid());
    fs::write(place.record(), &dead).unwrap();
    let before = descriptors();
    let lock = place.lock();
    assert!(!place.record().exists());
    assert_eq!(descriptors(), before);
    now(&lock).unwrap().release().unwrap();
    lock.run_on_mutex("CREATE TEMP TABLE kept (x)").unwrap();
    fs::write(place.record(), &dead).unwrap();
    assert!(matches!(lock.sweep(), Swept::Removed(_)));
    lock.run_on_mutex("SELECT * FROM kept").unwrap();
    now(&lock).unwrap().check().unwrap();
}
