//! What is said of a statement that fails on a guarded connection.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use lease_sqlite::rusqlite::{Connection, ffi};
use lease_sqlite::{GuardError, Guarded, LockOptions, Lost};

use crate::guarded::{code, guarded, holds, plain_rows, rows, with_table};
use crate::rig::{Place, Writer};
use crate::sys::add_sneak;

#[test]
fn what_sqlite_cannot_read_has_a_code_too() {
    let place = Place::new();
    let guarded = guarded(&place);
    for sql in ["SELEC 1", "SELECT nothing", "INSERT INTO none VALUES (1)"] {
        let errors = [
            guarded.prepare(sql).map(drop).unwrap_err(),
            guarded.execute(sql, []).unwrap_err(),
            guarded.batch(sql).unwrap_err(),
        ];
        assert_eq!(errors.map(|error| code(&error)), [ffi::SQLITE_ERROR; 3]);
    }
    let own = guarded.query("SELECT 1", [], |row| row.get::<_, String>(0));
    assert_eq!(code(&own.unwrap_err()), 0, "of the caller's closure");
}

#[test]
fn a_commit_that_was_refused_is_no_reason_for_what_fails_later() {
    for fails_later in ["SELECT nothing", "SELECT abs(-9223372036854775808)"] {
        let place = Place::new();
        let guarded = with_table(&place, "WAL");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let insert = "INSERT INTO t VALUES (1) RETURNING x";
            guarded.query(insert, [], |_| -> Result<(), _> {
                fs::remove_file(place.mutex()).unwrap();
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        let error = guarded.query(fails_later, [], |_| Ok(())).unwrap_err();
        assert_eq!(code(&error), ffi::SQLITE_ERROR, "{fails_later}");
        assert_eq!(plain_rows(&place), 0);
    }
}

#[test]
fn a_transaction_that_the_database_has_ended_cannot_be_rolled_back_again() {
    let place = Place::new();
    let mut guarded = with_table(&place, "WAL");
    let index = "CREATE UNIQUE INDEX i ON t (x)";
    guarded.execute(index, []).unwrap();
    let transaction = guarded.transaction().unwrap();
    let twice = "INSERT OR ROLLBACK INTO t VALUES (1), (1)";
    transaction.execute(twice, []).unwrap_err();
    let error = transaction.roll_back().unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_ERROR);
    assert!(!holds(&guarded));
}

#[test]
fn a_release_that_was_to_commit_and_failed_leaves_no_transaction_to_what_is_written_next() {
    type Damage = fn(&Place);
    let table: [(&str, &str, Damage); 4] = [
        ("SAVEPOINT whole; SELECT sneak()", "RELEASE whole", |_| {}),
        (
            "SELECT 1",
            "SELECT sneak('SAVEPOINT s; INSERT INTO t VALUES (1); RELEASE s')",
            |_| {},
        ),
        (
            "SAVEPOINT whole; INSERT INTO t VALUES (1)",
            "RELEASE whole",
            |place| fs::remove_file(place.mutex()).unwrap(),
        ),
        ("BEGIN; SELECT sneak()", "COMMIT", |_| {}),
    ];
    for (before, fails, damage) in table {
        let place = Place::new();
        let connection = Connection::open(place.database()).unwrap();
        add_sneak(&connection);
        let guarded = LockOptions::new().guard(connection).unwrap();
        guarded.batch("CREATE TABLE t (x)").unwrap();
        guarded.batch(before).unwrap();
        damage(&place);
        let error = guarded.batch(fails).unwrap_err();
        let is_refused = matches!(error, GuardError::NotHeld { .. } | GuardError::Lost { .. });
        assert!(is_refused, "{fails}: {error}");
        assert!(!holds(&guarded), "{fails}");
        guarded.execute("INSERT INTO t VALUES (2)", []).unwrap();
        assert!(!holds(&guarded), "{fails}");
        assert_eq!(plain_rows(&place), 1, "{fails}");
        assert!(guarded.batch("RELEASE whole").is_err(), "{fails}");
    }
}

/// Gives the database another name, with what belongs to it.
fn rename(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let [from, to] = [from, to].map(|path| format!("{}{suffix}", path.display()));
        if Path::new(&from).exists() {
            fs::rename(from, to).unwrap();
        }
    }
}

#[test]
fn a_database_that_has_another_name_by_now_is_written_under_that_ones_lock_alone() {
    for mode in ["WAL", "DELETE"] {
        let place = Place::new();
        let mut guarded = with_table(&place, mode);
        guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
        let (database, moved) = (place.database(), place.directory.join("moved.db"));
        rename(&database, &moved);
        let connection = Connection::open(&moved).unwrap();
        let mut other = LockOptions::new().guard(connection).unwrap();
        let refused = [
            guarded.execute("INSERT INTO t VALUES (2)", []).unwrap_err(),
            guarded.transaction().map(drop).unwrap_err(),
            guarded
                .batch("BEGIN; SELECT x FROM t; DELETE FROM t")
                .unwrap_err(),
        ];
        assert_eq!(
            refused.map(|error| code(&error)),
            [ffi::SQLITE_READONLY_DBMOVED; 3],
            "{mode}"
        );
        assert!(!holds(&guarded));
        let read = guarded.query("SELECT x FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!(read.unwrap(), [1]);
        guarded.execute("COMMIT", []).unwrap();
        let transaction = other.transaction().unwrap();
        transaction.execute("INSERT INTO t VALUES (3)", []).unwrap();
        transaction.commit().unwrap();
        other.close().unwrap();
        rename(&moved, &database);
        guarded.execute("INSERT INTO t VALUES (4)", []).unwrap();
        assert_eq!(plain_rows(&place), 3, "{mode}");
    }
}

#[test]
fn who_closes_last_moves_the_log_while_another_has_the_lock_and_nothing_that_was_written_is_lost() {
    for is_renamed in [false, true] {
        let place = Place::new();
        let (database, moved) = (place.database(), place.directory.join("moved.db"));
        let last = with_table(&place, "WAL");
        last.execute("INSERT INTO t VALUES (1)", []).unwrap();
        if is_renamed {
            rename(&database, &moved);
        }
        let next = with_table_or_more(&place);
        next.execute("INSERT INTO t VALUES (2), (3)", []).unwrap();
        next.close().unwrap();
        let mut holder = Writer::start(&place);
        assert_eq!(holder.does("acquire 0"), "granted depth=1");
        last.close().unwrap();
        let log = format!("{}-wal", database.display());
        assert!(!Path::new(&log).exists(), "{is_renamed}");
        let there = if is_renamed { 2 } else { 3 };
        assert_eq!(plain_rows(&place), there, "{is_renamed}");
        if is_renamed {
            // Its log went with it, and is read by whoever opens it there.
            rename(&moved, &database);
            assert_eq!(plain_rows(&place), 1);
        }
    }
}

/// A guarded connection in WAL mode, with the table made if it is not there.
fn with_table_or_more(place: &Place) -> Guarded {
    let guarded = guarded(place);
    guarded
        .batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (x)")
        .unwrap();
    guarded
}

#[test]
fn whatever_fails_says_of_which_file_it_is() {
    let place = Place::new();
    let connection = Connection::open(place.database()).unwrap();
    add_sneak(&connection);
    let guarded = LockOptions::new().guard(connection).unwrap();
    guarded.execute("CREATE TABLE t (x)", []).unwrap();
    let not_held = guarded.batch("SELECT sneak()").unwrap_err();
    guarded.batch("BEGIN IMMEDIATE").unwrap();
    fs::remove_file(place.mutex()).unwrap();
    let lost = guarded.batch("DELETE FROM t").unwrap_err();
    let lost_at_end = guarded.batch("COMMIT").unwrap_err();
    fs::create_dir(place.mutex()).unwrap();
    let not_taken = guarded.batch("DELETE FROM t").unwrap_err();
    let unread = guarded.batch("SELEC").unwrap_err();
    let told = [not_held, lost, lost_at_end, not_taken, unread].map(|error| error.to_string());
    let name = format!("{:?}", place.database());
    let name = name.trim_end_matches('"');
    assert!(told.iter().all(|told| told.contains(name)), "{told:#?}");
}

#[test]
fn a_read_goes_on_when_the_lock_is_lost_and_a_rollback_ends_it() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    guarded.batch("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    fs::remove_file(place.mutex()).unwrap();
    let is_lost = |error: &_| {
        matches!(
            error,
            GuardError::Lost {
                source: Lost::Moved,
                ..
            }
        )
    };
    let error = guarded.execute("DELETE FROM t", []).unwrap_err();
    assert!(is_lost(&error), "{error}");
    assert_eq!(rows(&guarded), 1);
    let error = guarded.execute("COMMIT", []).unwrap_err();
    assert!(is_lost(&error), "{error}");
    assert!(!holds(&guarded));
    assert_eq!(plain_rows(&place), 0);
}
