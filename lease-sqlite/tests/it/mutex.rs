//! The mutex: what it is, what may lie there instead, and that it stays as it was made.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{AcquireError, Lost, NotAMutex, Swept};

use crate::child::told;
use crate::rig::{Place, Writer, descriptors, now};
use crate::sys::{in_child, keep_every_lock, reach_files_by, share_caches};

/// Puts something at a path.
type Plant = fn(&Path);

/// Bytes, inode and time of the last change: what a hold must not move.
fn looks(path: &Path) -> (Vec<u8>, u64, i64, i64) {
    let found = fs::metadata(path).unwrap();
    (
        // A stray read is harmless here: nobody holds.
        fs::read(path).unwrap(),
        found.ino(),
        found.mtime(),
        found.mtime_nsec(),
    )
}

// C2, C4
#[test]
fn a_thousand_holds_leave_the_mutex_as_it_was_made() {
    let place = Place::new();
    let lock = place.lock();
    fs::write(place.database(), "").unwrap();
    now(&lock).unwrap().release().unwrap();
    assert_eq!(lock.mutex_path(), place.mutex());
    assert_eq!(lock.lock_path(), place.record());
    let made = looks(&place.mutex());
    assert_eq!(made.0.len(), 4_096);
    for _hold in 0..1_000 {
        now(&lock).unwrap().release().unwrap();
    }
    assert_eq!(looks(&place.mutex()), made);
    let names = ["app.db", "app.db.write-lock", "app.db.write-lock.mutex"];
    assert_eq!(place.names(), names);
    let databases: Vec<_> = place
        .names()
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "db"))
        .collect();
    assert_eq!(databases, ["app.db"]);
}

// C96
#[test]
fn a_hold_has_no_file_but_record_and_mutex_from_the_first_one_on() {
    let place = Place::new();
    let lock = place.lock();
    let names = ["app.db.write-lock", "app.db.write-lock.mutex"];
    for _hold in 0..100 {
        let hold = now(&lock).unwrap();
        assert_eq!(place.names(), names);
        hold.release().unwrap();
        assert_eq!(place.names(), names);
    }
}

// C16
#[test]
fn what_cannot_be_a_mutex_is_an_error_and_stays_as_it_is() {
    let table: [(&str, Plant, NotAMutex); 7] = [
        (
            "directory",
            |path| fs::create_dir(path).unwrap(),
            NotAMutex::NotARegularFile,
        ),
        (
            "text",
            |path| fs::write(path, "text ".repeat(1_300)).unwrap(),
            NotAMutex::NotADatabase,
        ),
        (
            "one byte",
            |path| fs::write(path, "S").unwrap(),
            NotAMutex::NotADatabase,
        ),
        (
            "the beginning of a header",
            |path| fs::write(path, "SQLite format 3\0").unwrap(),
            NotAMutex::NotADatabase,
        ),
        (
            "link to a file",
            |path| {
                fs::write(path.with_extension("victim"), "").unwrap();
                symlink(path.with_extension("victim"), path).unwrap();
            },
            NotAMutex::NotARegularFile,
        ),
        (
            "link to nothing",
            |path| symlink(path.with_extension("nothing"), path).unwrap(),
            NotAMutex::NotARegularFile,
        ),
        (
            "pipe",
            |path| {
                let made = std::process::Command::new("mkfifo").arg(path).status();
                assert!(made.unwrap().success());
            },
            NotAMutex::NotARegularFile,
        ),
    ];
    for (name, plant, expected) in table {
        let place = Place::new();
        plant(&place.mutex());
        let before = fs::symlink_metadata(place.mutex()).unwrap();
        let error = now(&place.lock()).unwrap_err();
        let AcquireError::NotAMutex { path, why } = error else {
            panic!("{name}: {error}");
        };
        assert_eq!((path, why), (place.mutex(), expected), "{name}");
        let after = fs::symlink_metadata(place.mutex()).unwrap();
        assert_eq!(after.ino(), before.ino(), "{name}");
        assert_eq!(after.len(), before.len(), "{name}");
        assert_eq!(after.mtime_nsec(), before.mtime_nsec(), "{name}");
        assert!(!place.mutex().with_extension("nothing").exists());
    }
}

#[test]
fn a_mutex_in_another_journal_mode_is_an_error_and_makes_no_side_files() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    drop(lock);
    let mut bytes = fs::read(place.mutex()).unwrap();
    bytes[18..20].copy_from_slice(&[2, 2]);
    fs::write(place.mutex(), &bytes).unwrap();
    let error = now(&place.lock()).unwrap_err();
    let AcquireError::NotAMutex { why, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(why, NotAMutex::JournalMode);
    assert_eq!(fs::read(place.mutex()).unwrap(), bytes);
    assert_eq!(
        place.names(),
        ["app.db.write-lock", "app.db.write-lock.mutex"]
    );
}

#[test]
fn a_mutex_that_is_switched_to_wal_beside_an_open_handle_is_noticed_by_the_next_hold() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    let connection = Connection::open(place.mutex()).unwrap();
    let mode = |mode: &str| {
        let sql = format!("PRAGMA journal_mode = {mode}");
        connection.query_row(&sql, [], |row| row.get::<_, String>(0))
    };
    assert_eq!(mode("wal").unwrap(), "wal");
    for _again in 0..2 {
        let error = now(&lock).unwrap_err();
        let AcquireError::NotAMutex { why, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(why, NotAMutex::JournalMode);
    }
    assert_eq!(mode("delete").unwrap(), "delete");
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
}

#[test]
fn an_empty_mutex_of_a_peer_is_used_as_it_is() {
    let place = Place::new();
    fs::write(place.mutex(), "").unwrap();
    let inode = fs::metadata(place.mutex()).unwrap().ino();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(fs::metadata(place.mutex()).unwrap().ino(), inode);
}

// S40
#[cfg(feature = "test-util")]
#[test]
fn without_the_look_at_the_mutex_two_would_be_let_in() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    now(&lock).unwrap().release().unwrap();
    fs::remove_dir_all(&place.directory).unwrap();
    fs::create_dir(&place.directory).unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    // The damage: the kernel lets us have the file that is gone.
    lock.run_on_mutex("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(other.does("check"), "Some(Ok(()))");
    lock.run_on_mutex("COMMIT").unwrap();
    // The answer: with the look we are kept out.
    assert!(told(&now(&lock)).starts_with("busy"));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(
        now(&lock).unwrap().granted().reopened,
        0,
        "it was opened anew before"
    );
}

// S40, C15, C57
#[test]
fn a_mutex_that_was_replaced_is_opened_anew_before_anybody_is_let_in() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    now(&lock).unwrap().release().unwrap();
    fs::remove_dir_all(&place.directory).unwrap();
    let hold = now(&lock).unwrap();
    assert_eq!(hold.granted().reopened, 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.check().unwrap();
    hold.release().unwrap();
    // The other one had no handle yet; now both have, and it is done to them again.
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    fs::remove_dir_all(&place.directory).unwrap();
    fs::create_dir(&place.directory).unwrap();
    let hold = now(&lock).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
}

// S40
#[test]
fn a_mutex_that_is_removed_during_a_hold_is_noticed_by_its_holder() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    fs::remove_file(place.mutex()).unwrap();
    assert!(matches!(hold.check(), Err(Lost::Moved)));
    hold.release().unwrap();
    assert_eq!(now(&lock).unwrap().granted().reopened, 1);
}

// fault B05
#[test]
fn a_stray_close_of_the_mutex_drops_the_lock_and_the_holder_notices() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    now(&lock).unwrap().release().unwrap();
    let hold = now(&lock).unwrap();
    fs::metadata(place.mutex()).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.check().unwrap();
    drop(fs::File::open(place.mutex()).unwrap());
    assert!(matches!(hold.check(), Err(Lost::Unlocked)));
    // The damage, not a promise: another one is let in, and leaves, and the release sees nothing.
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert!(matches!(hold.check(), Err(Lost::Unlocked)));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    hold.release().unwrap();
}

#[test]
fn a_release_without_the_lock_harms_neither_the_one_who_has_it_nor_the_next_acquire() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    now(&lock).unwrap().release().unwrap();
    let hold = now(&lock).unwrap();
    drop(fs::File::open(place.mutex()).unwrap());
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let error = hold.release().unwrap_err();
    assert_eq!(error.source.code, rusqlite::ffi::SQLITE_IOERR_RDLOCK);
    assert_eq!(other.does("check"), "Some(Ok(()))");
    assert!(told(&now(&lock)).starts_with("busy"));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    now(&lock).unwrap().check().unwrap();
}

#[test]
fn no_call_of_the_library_drops_a_lock_of_this_process() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    let mut check = |what: &str| {
        hold.check().unwrap();
        assert!(other.does("acquire 0").starts_with("busy"), "after {what}");
    };
    check("nothing");
    assert!(lock.last_writer().is_some());
    check("a look at the last writer");
    drop(place.lock());
    check("a second lock that came and went");
    let busy = std::thread::scope(|scope| scope.spawn(|| told(&now(&place.lock()))).join());
    assert!(busy.unwrap().starts_with("busy"));
    check("an attempt of another thread");
    drop(hold.again().unwrap());
    check("an entry that ended");
}

// C3, C9
#[cfg(feature = "test-util")]
#[test]
fn the_mutex_is_an_empty_database_with_a_rollback_journal_and_no_wait() {
    let place = Place::new();
    let lock = place.lock();
    for _hold in 0..1_000 {
        now(&lock).unwrap().release().unwrap();
    }
    let ask = |statement: &str| lock.run_on_mutex(statement).unwrap().join(" ");
    assert_eq!(ask("PRAGMA journal_mode"), "Text(\"delete\")");
    assert_eq!(ask("PRAGMA busy_timeout"), "Integer(0)");
    assert_eq!(ask("SELECT count(*) FROM sqlite_schema"), "Integer(0)");
    assert_eq!(
        place.names(),
        ["app.db.write-lock", "app.db.write-lock.mutex"]
    );
}

// C11
#[cfg(feature = "test-util")]
#[test]
fn a_transaction_that_nobody_should_have_opened_is_rolled_back_and_said_once() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    lock.run_on_mutex("BEGIN").unwrap();
    let error = now(&lock).unwrap_err();
    assert!(matches!(error, AcquireError::LockState { .. }), "{error}");
    assert_eq!(error.code().unwrap().as_str(), "SQLITE_WRITE_LOCK_STATE");
    now(&lock).unwrap().release().unwrap();
}

// C17
#[test]
fn a_reader_of_the_mutex_looks_like_a_holder_that_nobody_confirms() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    // A reader in this very process, through the same SQLite, which is safe.
    let reader = Connection::open(place.mutex()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
        .unwrap();
    let busy = told(&now(&lock));
    assert!(busy.starts_with("busy Kernel(Unconfirmed)"), "{busy}");
    reader.execute_batch("COMMIT").unwrap();
    now(&lock).unwrap().release().unwrap();
}

#[test]
fn everything_is_closed_when_the_last_lock_and_hold_are_gone() {
    let before = descriptors();
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    assert!(descriptors() > before);
    drop(lock);
    hold.release().unwrap();
    assert_eq!(descriptors(), before);
}

#[test]
fn connections_that_share_what_they_read_exclude_each_other_as_others_do() {
    let place = Place::new();
    let panicked = in_child(|| {
        share_caches();
        let lock = place.lock();
        now(&lock).unwrap().release().unwrap();
        // As a second path to the same file has it, by a mount.
        let second = Connection::open(place.mutex()).unwrap();
        second.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let refused = now(&lock).unwrap_err();
        assert!(matches!(refused, AcquireError::Busy(_)), "{refused:?}");
        second.execute_batch("COMMIT").unwrap();
        now(&lock).unwrap().check().unwrap();
    });
    assert!(!panicked);
}

// fault B23
#[test]
fn a_program_whose_connections_keep_their_locks_gives_this_one_back() {
    let place = Place::new();
    let panicked = in_child(|| {
        let second = Connection::open(place.mutex()).unwrap();
        second.busy_timeout(Duration::ZERO).unwrap();
        keep_every_lock();
        let lock = place.lock();
        for _hold in 0..2 {
            let hold = now(&lock).unwrap();
            hold.check().unwrap();
            second.execute_batch("BEGIN EXCLUSIVE").unwrap_err();
            hold.release().unwrap();
            second.execute_batch("BEGIN EXCLUSIVE; COMMIT").unwrap();
        }
    });
    assert!(!panicked);
}

#[test]
fn what_has_the_name_of_an_unfinished_mutex_but_for_its_end_is_in_nobodys_way() {
    let place = Place::new();
    let beginning = place.mutex().with_extension("mutex.new-");
    fs::create_dir(&beginning).unwrap();
    now(&place.lock()).unwrap().release().unwrap();
    assert!(place.mutex().is_file() && beginning.is_dir());
    assert_eq!(place.names().len(), 3);
}

#[test]
fn a_program_that_locks_files_in_a_way_of_its_own_locks_the_mutex_as_others_do() {
    for way in [c"unix-excl", c"unix-dotfile", c"unix-none"] {
        let place = Place::new();
        let panicked = in_child(|| {
            reach_files_by(way);
            let lock = place.lock();
            let mut other = Writer::start(&place);
            for _hold in 0..2 {
                let hold = now(&lock).unwrap();
                hold.check().unwrap();
                assert!(other.does("acquire 0").starts_with("busy"));
                hold.release().unwrap();
                assert_eq!(other.does("acquire 0"), "granted depth=1");
                assert!(matches!(now(&lock), Err(AcquireError::Busy(_))));
                assert_eq!(other.does("release"), "Some(Ok(Lock))");
            }
        });
        assert!(!panicked, "{way:?}");
    }
}

#[test]
fn a_record_that_is_another_name_of_the_mutex_is_never_opened() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    fs::remove_file(place.record()).unwrap();
    fs::hard_link(place.mutex(), place.record()).unwrap();
    assert!(place.lock().last_writer().is_none());
    assert!(!matches!(lock.sweep(), Swept::Removed(_)));
    let another = std::thread::scope(|scope| scope.spawn(|| told(&now(&lock))).join());
    assert!(another.unwrap().starts_with("busy"));
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy Kernel"));
    hold.release().unwrap();
    // Whoever had another record, or none, or has just come.
    let refused = [told(&now(&lock)), other.does("acquire 0"), {
        drop(lock);
        told(&now(&place.lock()))
    }];
    for refused in refused {
        assert!(refused.starts_with("busy Unrecognised"), "{refused}");
    }
    fs::remove_file(place.record()).unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

#[test]
fn a_record_that_has_a_second_name_elsewhere_is_one_like_any_other() {
    let place = Place::new();
    now(&place.lock()).unwrap().release().unwrap();
    fs::hard_link(place.record(), place.directory.join("copy")).unwrap();
    let lock = place.lock();
    assert!(lock.last_writer().is_some());
    now(&lock).unwrap().release().unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let busy = told(&now(&lock));
    assert!(
        busy.contains(&format!("holder=Some({})", other.pid())),
        "{busy}"
    );
}

#[test]
fn mutexes_that_became_one_file_exclude_each_other_and_nobody_is_let_in_twice() {
    let [one, two] = [Place::new(), Place::new()];
    let locks = [one.lock(), two.lock()];
    for lock in &locks {
        now(lock).unwrap().release().unwrap();
    }
    fs::remove_file(two.mutex()).unwrap();
    fs::hard_link(one.mutex(), two.mutex()).unwrap();
    let mut others = [Writer::start(&one), Writer::start(&two)];
    for held in [0, 1] {
        let hold = now(&locks[held]).unwrap();
        assert!(told(&now(&locks[1 - held])).starts_with("busy"));
        for other in &mut others {
            assert!(other.does("acquire 0").starts_with("busy"));
        }
        hold.check().unwrap();
        hold.release().unwrap();
    }
    for other in &mut others {
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
}
