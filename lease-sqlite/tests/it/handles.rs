//! Who keeps a lock's files open, and how long.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{AcquireError, LockOptions, OpenError, Released};

use crate::rig::{Place, Writer, descriptors, now};

// C47
#[test]
fn a_hold_outlives_every_lock_that_it_came_from() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    let hold = now(&place.lock()).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    drop(hold);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

// C48
#[test]
fn nothing_is_made_before_the_first_acquire() {
    let place = Place::new();
    let lock = place.lock();
    assert!(lock.last_writer().is_none());
    drop(lock);
    assert_eq!(place.names(), [""; 0]);
}

// C49, C51
#[test]
fn the_last_of_several_locks_closes_the_files_and_a_hold_keeps_them_until_it_ends() {
    let place = Place::new();
    let before = descriptors();
    let (one, two) = (place.lock(), place.lock());
    now(&one).unwrap().release().unwrap();
    let open = descriptors();
    assert!(open > before);
    drop(one);
    assert_eq!(descriptors(), open);
    let hold = now(&two).unwrap();
    drop(two);
    assert_eq!(descriptors(), open);
    hold.release().unwrap();
    assert_eq!(descriptors(), before);
}

// C56
#[test]
fn two_spellings_of_one_database_are_one_lock_and_a_link_that_moved_is_another() {
    let place = Place::new();
    for name in ["data", "data2"] {
        fs::create_dir(place.directory.join(name)).unwrap();
    }
    let link = place.directory.join("link");
    symlink(place.directory.join("data"), &link).unwrap();
    let straight = LockOptions::new()
        .open(place.directory.join("data/app.db"))
        .unwrap();
    let linked = LockOptions::new().open(link.join("app.db")).unwrap();
    assert_eq!(straight.lock_path(), linked.lock_path());
    let hold = now(&straight).unwrap();
    assert_eq!(now(&linked).unwrap().granted().depth, 2);
    fs::remove_file(&link).unwrap();
    symlink(place.directory.join("data2"), &link).unwrap();
    let moved = LockOptions::new().open(link.join("app.db")).unwrap();
    assert_ne!(moved.lock_path(), straight.lock_path());
    assert_eq!(now(&moved).unwrap().granted().depth, 1);
    drop(hold);
}

#[test]
fn a_link_at_the_databases_own_name_is_followed_too() {
    let place = Place::new();
    fs::write(place.database(), "").unwrap();
    let link = place.directory.join("other.db");
    symlink(place.database(), &link).unwrap();
    let lock = LockOptions::new().open(&link).unwrap();
    assert_eq!(lock.lock_path(), place.record());
}

#[test]
fn a_slash_at_the_end_of_a_database_that_is_a_file_is_an_error() {
    let place = Place::new();
    let mut name = place.database().into_os_string();
    name.push("/");
    // Nothing is there yet, so it is a name.
    LockOptions::new().open(&name).unwrap();
    fs::write(place.database(), "").unwrap();
    for end in ["/", "/."] {
        let mut name = place.database().into_os_string();
        name.push(end);
        let opened = LockOptions::new().open(&name);
        assert!(matches!(opened, Err(OpenError::Path { .. })), "{opened:?}");
    }
}

#[test]
fn a_database_with_several_names_is_refused() {
    let place = Place::new();
    fs::write(place.database(), "").unwrap();
    fs::hard_link(place.database(), place.directory.join("twin.db")).unwrap();
    let error = LockOptions::new().open(place.database()).unwrap_err();
    let OpenError::SeveralNames { path, links } = error else {
        panic!("{error}");
    };
    assert_eq!((path, links), (place.database(), 2));
}

#[test]
fn a_file_system_whose_locks_are_not_known_to_work_is_refused_unless_told_otherwise() {
    let error = LockOptions::new().open("/proc/self/app.db").unwrap_err();
    assert!(
        matches!(error, OpenError::FileSystem { kind: 0x9fa0, .. }),
        "{error}"
    );
    let lock = LockOptions::new()
        .any_file_system()
        .open("/proc/self/app.db")
        .unwrap();
    let error = now(&lock).unwrap_err();
    assert_eq!(
        error.code(),
        None,
        "an error of the system, not busy: {error}"
    );
}

#[test]
fn any_bytes_that_a_file_system_takes_name_a_database() {
    let names: [&[u8]; 9] = [
        b"\xff\xfe.db",
        b"new\nline",
        b"app.db?mode=ro",
        b"file:app.db",
        b":memory:",
        b"%41 .db ",
        b"'; DROP TABLE x; --",
        b"-journal",
        &[b'x'; 200],
    ];
    for name in names {
        let place = Place::new();
        let name = OsStr::from_bytes(name);
        let database = place.directory.join(name);
        let lock = LockOptions::new().open(&database).unwrap();
        let hold = now(&lock).unwrap();
        hold.check().unwrap();
        let mut expected = name.to_owned();
        expected.push(".write-lock.mutex");
        assert_eq!(lock.mutex_path(), place.directory.join(expected));
        assert!(
            lock.mutex_path().exists() && lock.lock_path().exists(),
            "{name:?}"
        );
        assert_eq!(
            fs::read_dir(&place.directory).unwrap().count(),
            2,
            "{name:?}"
        );
        hold.release().unwrap();
        assert!(lock.last_writer().is_some());
    }
}

#[test]
fn a_name_that_is_too_long_is_an_error_with_its_path_and_leaves_nothing() {
    for bytes in [236, 243, 255] {
        let place = Place::new();
        let database = place.directory.join("x".repeat(bytes));
        let lock = LockOptions::new().open(&database).unwrap();
        let error = now(&lock).unwrap_err();
        assert!(!matches!(error, AcquireError::Busy(_)), "{bytes}: {error}");
        assert!(
            error.to_string().contains("xxx.write-lock"),
            "{bytes}: {error}"
        );
        assert_eq!(place.names(), [""; 0], "{bytes}");
    }
}

#[test]
fn a_lock_path_that_is_the_database_is_refused_and_the_database_stays_as_it_is() {
    // What may be a record that is fresh, or torn.
    for size in [0, 1_024] {
        let place = Place::new();
        let content = vec![b'x'; size];
        fs::write(place.database(), &content).unwrap();
        symlink(place.database(), place.directory.join("link")).unwrap();
        fs::write(place.directory.join("own.mutex"), "").unwrap();
        for (lock_path, database) in [
            ("app.db", "app.db"),
            ("app.db", "link"),
            ("own", "own.mutex"),
        ] {
            let options = LockOptions::new().lock_path(place.directory.join(lock_path));
            let error = options.open(place.directory.join(database)).unwrap_err();
            assert!(matches!(error, OpenError::Path { .. }), "{error}");
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let expected = "its record or its mutex would be the database";
            assert_eq!(why.as_deref(), Some(expected));
        }
        assert_eq!(fs::read(place.database()).unwrap(), content);
        assert_eq!(place.names(), ["app.db", "link", "own.mutex"]);
    }
}

#[test]
fn a_lock_is_seen_although_the_descriptor_through_which_it_was_seen_is_gone() {
    let place = Place::new();
    now(&place.lock()).unwrap().release().unwrap();
    // As a second path to the same file has it, by a mount: SQLite opened it first, and closes it first.
    let first = Connection::open(place.mutex()).unwrap();
    let reads = "SELECT count(*) FROM sqlite_schema";
    first.query_row(reads, [], |_row| Ok(())).unwrap();
    let lock = LockOptions::new()
        .no_boot_sweep()
        .open(place.database())
        .unwrap();
    now(&lock).unwrap().check().unwrap();
    drop(first);
    for _again in 0..2 {
        let hold = now(&lock).unwrap();
        hold.check().unwrap();
        assert_eq!(hold.release().unwrap(), Released::Lock);
    }
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let refused = now(&lock).unwrap_err();
    let AcquireError::Busy(busy) = refused else {
        panic!("{refused}");
    };
    assert_eq!(busy.locked_by.map(|pid| pid.get()), Some(other.pid()));
}

// C58
#[cfg(feature = "test-util")]
#[test]
fn closing_everything_is_refused_during_a_hold_and_changes_nothing() {
    let place = Place::new();
    let second = Place::new();
    let (lock, idle) = (place.lock(), second.lock());
    now(&idle).unwrap().release().unwrap();
    let hold = now(&lock).unwrap();
    let open = descriptors();
    assert_eq!(lease_sqlite::close_all(), Err(place.record()));
    assert_eq!(descriptors(), open);
    hold.check().unwrap();
    assert!(Writer::start(&place).does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    assert_eq!(lease_sqlite::close_all(), Ok(()));
    assert!(descriptors() < open);
    now(&lock).unwrap().check().unwrap();
    now(&idle).unwrap().check().unwrap();
}
