//! What a connection brings along when it is guarded, and who may use it meanwhile.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;
use std::time::Duration;

use lease_sqlite::rusqlite::{Connection, OpenFlags, ffi};
use lease_sqlite::{GuardError, Guarded, Happening, LockOptions, OpenError};

use crate::guarded::code;
use crate::rig::{Place, Writer, now};

fn plain(place: &Place) -> Connection {
    let connection = Connection::open(place.database()).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection
}

/// Which database it is about, and what SQLite said.
fn told(error: &OpenError) -> (&str, i32) {
    match error {
        OpenError::Database { path, source } => {
            let name = path.file_name().and_then(|name| name.to_str());
            (name.unwrap(), source.code)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_would_keep_the_database_after_the_release_cannot_be_guarded() {
    let place = Place::new();
    plain(&place).execute_batch("CREATE TABLE t (x)").unwrap();
    let second = place.directory.join("second.db");
    let attached = format!("ATTACH '{}' AS \"a b\"", second.display());
    let table = [
        ("", "PRAGMA locking_mode = EXCLUSIVE", true),
        ("", "PRAGMA main.locking_mode = EXCLUSIVE", true),
        (&attached, "PRAGMA \"a b\".locking_mode = EXCLUSIVE", true),
        ("", "PRAGMA temp.locking_mode = EXCLUSIVE", false),
        (
            "ATTACH ':memory:' AS m",
            "PRAGMA m.locking_mode = EXCLUSIVE",
            false,
        ),
        (
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA locking_mode = NORMAL",
            false,
        ),
    ];
    for (before, mode, is_refused) in table {
        let connection = plain(&place);
        connection.execute_batch(before).unwrap();
        connection.execute_batch(mode).unwrap();
        match LockOptions::new().guard(connection) {
            Err(error) => {
                assert!(is_refused, "{mode}: {error:?}");
                let database = if before.is_empty() {
                    "app.db"
                } else {
                    "second.db"
                };
                assert_eq!(told(&error), (database, ffi::SQLITE_AUTH), "{mode}");
            }
            Ok(guarded) => {
                assert!(!is_refused, "{mode}");
                guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
                let other = LockOptions::new().guard(plain(&place)).unwrap();
                other.execute("INSERT INTO t VALUES (2)", []).unwrap();
            }
        }
    }
}

#[test]
fn a_connection_that_locks_files_for_its_process_alone_cannot_be_guarded() {
    let place = Place::new();
    plain(&place).execute_batch("CREATE TABLE t (x)").unwrap();
    let open = |way: &CStr| {
        let flags = OpenFlags::default();
        Connection::open_with_flags_and_vfs(place.database(), flags, way).unwrap()
    };
    let refused = LockOptions::new().guard(open(c"unix-excl")).unwrap_err();
    assert_eq!(told(&refused), ("app.db", ffi::SQLITE_AUTH));
    let second = place.directory.join("second.db");
    let attach = format!("ATTACH 'file:{}?vfs=unix-excl' AS b", second.display());
    let connection = open(c"unix");
    connection.execute_batch(&attach).unwrap();
    let refused = LockOptions::new().guard(connection).unwrap_err();
    assert_eq!(told(&refused), ("second.db", ffi::SQLITE_AUTH));
    LockOptions::new().guard(open(c"unix")).unwrap();
}

#[test]
fn a_database_that_is_attached_later_in_such_a_way_is_detached_at_once() {
    let place = Place::new();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    guarded.batch("CREATE TABLE t (x)").unwrap();
    let second = place.directory.join("second.db");
    let other = Connection::open(&second).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    other.execute_batch("CREATE TABLE u (x)").unwrap();
    let name = format!("file:{}?vfs=unix-excl", second.display());
    let attached = || {
        let names = guarded.query("PRAGMA database_list", [], |row| row.get::<_, String>(1));
        names.unwrap()
    };
    for begin in ["", "BEGIN; INSERT INTO t VALUES (1)"] {
        guarded.batch(begin).unwrap();
        for name_there in ["b", "\"a 'b' \"\"c\"\"\""] {
            let attach = format!("ATTACH ?1 AS {name_there}");
            let refused = guarded.execute(&attach, [&name]).unwrap_err();
            assert_eq!(code(&refused), ffi::SQLITE_AUTH);
            assert_eq!(attached(), ["main"], "{begin}");
            other.execute_batch("INSERT INTO u VALUES (1)").unwrap();
        }
        let attach = format!("ATTACH '{}' AS b", second.display());
        guarded.batch(&attach).unwrap();
        assert_eq!(attached(), ["main", "b"], "{begin}");
        guarded.batch("DETACH b").unwrap();
    }
    guarded.batch("COMMIT").unwrap();
}

#[test]
fn a_connection_is_guarded_while_somebody_else_has_the_database() {
    let place = Place::new();
    let other = plain(&place);
    other
        .execute_batch("CREATE TABLE t (x); BEGIN EXCLUSIVE")
        .unwrap();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    other.execute_batch("COMMIT").unwrap();
    guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
}

#[test]
fn what_is_only_explained_takes_no_lock() {
    let place = Place::new();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    guarded.execute("CREATE TABLE t (x)", []).unwrap();
    let (lock, done) = (place.lock(), Cell::new(0));
    std::thread::scope(|scope| {
        // Of another lane.
        let hold = scope.spawn(|| now(&lock).unwrap()).join().unwrap();
        for text in [
            "EXPLAIN PRAGMA optimize",
            "EXPLAIN ATTACH ':memory:' AS m",
            "EXPLAIN QUERY PLAN INSERT INTO t VALUES (1)",
        ] {
            guarded.query(text, [], |_row| Ok(())).unwrap();
            done.set(done.get() + 1);
        }
        let refused = guarded.query("PRAGMA optimize", [], |_row| Ok(()));
        assert!(matches!(refused, Err(GuardError::Lock(_))));
        hold.release().unwrap();
    });
    assert_eq!(done.get(), 3);
}

thread_local! {
    static OWN: RefCell<Option<Rc<Guarded>>> = const { RefCell::new(None) };
    static SEEN: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn an_observer_may_use_the_connection_of_which_it_hears() {
    let place = Place::new();
    let options = LockOptions::new().observer(|event| {
        let own = OWN.with_borrow(Clone::clone);
        let Some(own) = own.filter(|_| !matches!(event.what, Happening::DepthReleased { .. }))
        else {
            return;
        };
        assert!(own.take_release_error().is_none());
        let count = own.query("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
        SEEN.with_borrow_mut(|seen| seen.extend(count.unwrap()));
    });
    let guarded = Rc::new(options.guard(plain(&place)).unwrap());
    guarded.execute("CREATE TABLE t (x)", []).unwrap();
    OWN.set(Some(Rc::clone(&guarded)));
    guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
    assert_eq!(
        SEEN.take(),
        [0, 1],
        "when it was taken, and when it was given back"
    );
    OWN.take();
}

#[test]
fn one_row_is_asked_for_and_what_writes_for_it_is_done_whole_and_under_the_lock() {
    let place = Place::new();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    guarded
        .batch(
            "PRAGMA foreign_keys = ON; CREATE TABLE t (x PRIMARY KEY);
             CREATE TABLE u (x REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    let one = |sql| guarded.query_row(sql, [], |row| row.get::<_, i64>(0));
    assert_eq!(one("SELECT x FROM t").unwrap(), None);
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let insert = "INSERT INTO t VALUES (1), (2) RETURNING x";
    assert!(matches!(one(insert), Err(GuardError::Lock(_))));
    assert_eq!(one("SELECT count(*) FROM t").unwrap(), Some(0));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(one(insert).unwrap(), Some(1));
    assert_eq!(one("SELECT count(*) FROM t").unwrap(), Some(2));
    // It fails at its end, after the row was there.
    let dangling = one("INSERT INTO u VALUES (7) RETURNING x");
    assert!(matches!(dangling, Err(GuardError::Database { .. })));
    assert_eq!(one("SELECT count(*) FROM u").unwrap(), Some(0));
}

#[test]
fn what_writes_and_has_rows_is_not_run_where_nobody_asks_for_them() {
    let place = Place::new();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    guarded.batch("CREATE TABLE t (x)").unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    for sql in [
        "INSERT INTO t VALUES (1) RETURNING x",
        "PRAGMA journal_mode = WAL",
    ] {
        let refused = guarded.execute(sql, []).unwrap_err();
        assert_eq!(code(&refused), 0, "{sql}: {refused}");
    }
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    let one = |sql| guarded.query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(one("SELECT count(*) || '' FROM t").unwrap().unwrap(), "0");
    assert_eq!(one("PRAGMA journal_mode").unwrap().unwrap(), "delete");
}

#[test]
fn what_has_nothing_to_do_until_it_runs_has_the_lock_then() {
    let place = Place::new();
    let guarded = LockOptions::new().guard(plain(&place)).unwrap();
    guarded
        .batch("CREATE TABLE t (x); CREATE TRIGGER old AFTER INSERT ON t BEGIN SELECT 1; END")
        .unwrap();
    let table = [
        (
            "DROP TRIGGER IF EXISTS new",
            "CREATE TRIGGER new AFTER INSERT ON t BEGIN SELECT 1; END",
        ),
        ("DROP INDEX IF EXISTS i", "CREATE INDEX i ON t (x)"),
        ("REINDEX nocase", "CREATE INDEX j ON t (x COLLATE nocase)"),
        (
            "CREATE TRIGGER IF NOT EXISTS old AFTER INSERT ON t BEGIN SELECT 2; END",
            "DROP TRIGGER old",
        ),
    ];
    let mut other = Writer::start(&place);
    for begin in ["SELECT 1", "BEGIN"] {
        for (sql, meanwhile) in table {
            let mut statement = guarded.prepare(sql).unwrap();
            plain(&place).execute_batch(meanwhile).unwrap();
            guarded.batch(begin).unwrap();
            assert_eq!(other.does("acquire 0"), "granted depth=1");
            let refused = statement.execute([]).unwrap_err();
            assert!(matches!(refused, GuardError::Lock(_)), "{sql}: {refused}");
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            statement.execute([]).unwrap();
            if begin == "BEGIN" {
                guarded.batch("COMMIT").unwrap();
            }
        }
        plain(&place)
            .execute_batch("DROP INDEX IF EXISTS j")
            .unwrap();
    }
}
