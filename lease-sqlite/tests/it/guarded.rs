//! A connection that takes the lock for what writes, and for nothing else.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::scope;
use std::time::Duration;

use lease_sqlite::rusqlite::{Connection, ffi};
use lease_sqlite::{
    AcquireError, GuardError, Guarded, Happening, LockOptions, OpenError, WaitBudget,
};

#[cfg(feature = "test-util")]
use crate::rig::until;
use crate::rig::{BOUND, Place, Writer, descriptors, now, within};
use crate::sys::{add_sneak, in_child, unfinished_statement};

pub(crate) fn guarded(place: &Place) -> Guarded {
    let connection = Connection::open(place.database()).unwrap();
    LockOptions::new().guard(connection).unwrap()
}

/// A guarded connection with a table of one column, in this journal mode.
pub(crate) fn with_table(place: &Place, mode: &str) -> Guarded {
    let guarded = guarded(place);
    guarded
        .batch(&format!("PRAGMA journal_mode={mode}; CREATE TABLE t (x)"))
        .unwrap();
    guarded
}

pub(crate) fn holds(guarded: &Guarded) -> bool {
    guarded.lock().health().depth > 0
}

pub(crate) fn rows(guarded: &Guarded) -> i64 {
    let count = guarded.query("SELECT count(*) FROM t", [], |row| row.get(0));
    count.unwrap()[0]
}

pub(crate) fn plain_rows(place: &Place) -> i64 {
    let plain = Connection::open(place.database()).unwrap();
    plain
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap()
}

/// The extended result code of the database.
#[track_caller]
pub(crate) fn code(error: &GuardError) -> i32 {
    match error {
        GuardError::Database { source, .. } => source.code,
        other => panic!("{other}"),
    }
}

// C98
#[test]
fn sqlite_says_what_writes_and_only_that_takes_the_lock() {
    let table = [
        // What a list of words at the start would miss, or take for a write.
        ("WITH c AS (SELECT 1) INSERT INTO t SELECT * FROM c", true),
        ("WITH c AS (SELECT 1) UPDATE t SET x = 2", true),
        ("-- a comment\nINSERT INTO t VALUES (1)", true),
        ("/* a comment */ DELETE FROM t", true),
        ("SAVEPOINT s; INSERT INTO t VALUES (1); RELEASE s", true),
        ("BEGIN; INSERT INTO t VALUES (1); END", true),
        ("EXPLAIN INSERT INTO t VALUES (1)", false),
        ("EXPLAIN QUERY PLAN DELETE FROM t", false),
        ("/* INSERT */ SELECT 'UPDATE'", false),
        ("WITH c AS (SELECT 1) SELECT * FROM c", false),
        // Writes.
        ("  \n\tinsert into t values (1)", true),
        ("INSERT INTO t VALUES (1) RETURNING x", true),
        ("REPLACE INTO t VALUES (1)", true),
        ("UPDATE t SET x = 3 WHERE x = 2", true),
        ("CREATE TABLE IF NOT EXISTS t (x)", true),
        ("CREATE INDEX i ON t (x)", true),
        ("ALTER TABLE t ADD COLUMN y", true),
        ("REINDEX", true),
        ("ANALYZE", true),
        ("DROP INDEX i", true),
        ("VACUUM", true),
        ("BEGIN IMMEDIATE; COMMIT", true),
        ("BEGIN EXCLUSIVE; ROLLBACK", true),
        ("ATTACH ':memory:' AS other", true),
        ("DETACH other", true),
        ("ATTACH lower(':MEM' || 'ORY:') AS computed", true),
        ("DETACH lower('COMP' || 'UTED')", true),
        ("PRAGMA user_version = 3", true),
        ("PRAGMA journal_mode = WAL", true),
        ("PRAGMA wal_checkpoint", true),
        ("PRAGMA optimize", true),
        ("PRAGMA incremental_vacuum", true),
        ("CREATE TEMP TABLE own (x)", true),
        ("INSERT INTO own VALUES (1)", true),
        // Reads, and what changes only the connection.
        ("VALUES (1)", false),
        ("SELECT * FROM t", false),
        ("BEGIN; SELECT * FROM t; COMMIT", false),
        ("SAVEPOINT s; SELECT * FROM t; RELEASE s", false),
        ("PRAGMA user_version", false),
        ("SELECT * FROM pragma_user_version", false),
        ("PRAGMA Journal_Mode", false),
        ("PRAGMA table_info(t)", false),
        ("PRAGMA foreign_keys = ON", false),
        ("PRAGMA synchronous = NORMAL", false),
        ("PRAGMA locking_mode", false),
    ];
    let place = Place::new();
    let granted = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&granted);
    let options = LockOptions::new().observer(move |event| {
        if matches!(event.what, Happening::Acquired(_)) {
            *counted.lock().unwrap() += 1;
        }
    });
    let connection = Connection::open(place.database()).unwrap();
    let guarded = options.guard(connection).unwrap();
    guarded.batch("CREATE TABLE t (x)").unwrap();
    for (sql, expected) in table {
        let before = *granted.lock().unwrap();
        guarded.batch(sql).unwrap();
        let taken = *granted.lock().unwrap() - before;
        assert_eq!(taken, i32::from(expected), "{sql}");
        assert!(!holds(&guarded), "{sql}");
    }
    let error = guarded
        .batch("PRAGMA locking_mode = Exclusive")
        .unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_AUTH);
}

#[test]
fn a_transaction_has_the_lock_from_its_first_write_to_its_end() {
    for mode in ["WAL", "DELETE"] {
        for (begin, end, is_kept) in [
            ("BEGIN", "COMMIT", true),
            ("BEGIN", "END", true),
            ("BEGIN", "ROLLBACK", false),
            ("SAVEPOINT whole", "RELEASE whole", true),
        ] {
            let place = Place::new();
            let guarded = with_table(&place, mode);
            let mut other = Writer::start(&place);
            guarded.execute(begin, []).unwrap();
            assert_eq!(rows(&guarded), 0);
            assert_eq!(other.does("acquire 0"), "granted depth=1", "only read");
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
            assert!(other.does("acquire 0").starts_with("busy"));
            guarded
                .batch(
                    "SAVEPOINT a; INSERT INTO t VALUES (2); SAVEPOINT b; INSERT INTO t VALUES (3); \
                     ROLLBACK TO b; RELEASE b; RELEASE a",
                )
                .unwrap();
            assert_eq!(rows(&guarded), 2);
            // A statement that fails ends no transaction.
            assert!(guarded.execute("INSERT INTO none VALUES (1)", []).is_err());
            assert!(other.does("acquire 0").starts_with("busy"));
            guarded.execute(end, []).unwrap();
            assert_eq!(other.does("acquire 0"), "granted depth=1", "{mode} {end}");
            assert_eq!(plain_rows(&place), if is_kept { 2 } else { 0 });
        }
    }
}

#[test]
fn begin_immediate_has_the_lock_at_once() {
    let place = Place::new();
    let mut guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    let transaction = guarded.transaction().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    transaction
        .execute("INSERT INTO t VALUES (?1)", [7])
        .unwrap();
    transaction.roll_back().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    let transaction = guarded.transaction().unwrap();
    transaction
        .execute("INSERT INTO t VALUES (?1)", [7])
        .unwrap();
    transaction.commit().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(plain_rows(&place), 1);
}

#[test]
fn a_transaction_goes_on_in_another_thread() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    guarded.batch("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let guarded = std::thread::spawn(move || {
        guarded.execute("INSERT INTO t VALUES (2)", []).unwrap();
        guarded
    });
    let guarded = guarded.join().unwrap();
    assert!(holds(&guarded));
    guarded.execute("COMMIT", []).unwrap();
    assert!(!holds(&guarded));
    assert_eq!(plain_rows(&place), 2);
}

#[test]
fn a_transaction_that_waits_in_vain_for_the_lock_stays_open_and_can_write_later() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    guarded.execute("BEGIN", []).unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let insert = "INSERT INTO t VALUES (1)";
    assert!(matches!(
        guarded.execute(insert, []),
        Err(GuardError::Lock(AcquireError::Busy(_)))
    ));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    guarded.execute(insert, []).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    guarded.execute("COMMIT", []).unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(plain_rows(&place), 1);
}

#[test]
fn a_database_that_ends_the_transaction_itself_gives_the_lock_back() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    guarded
        .execute("CREATE UNIQUE INDEX i ON t (x)", [])
        .unwrap();
    guarded.batch("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let error = guarded
        .execute("INSERT OR ROLLBACK INTO t VALUES (1)", [])
        .unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_CONSTRAINT_UNIQUE);
    assert!(!holds(&guarded));
    assert_eq!(plain_rows(&place), 0);
}

#[test]
fn two_guarded_connections_in_two_threads_wait_for_each_other() {
    let place = Place::new();
    drop(with_table(&place, "WAL"));
    scope(|scope| {
        for _thread in 0..2 {
            scope.spawn(|| {
                let mut guarded = guarded(&place);
                guarded.set_wait(within(BOUND));
                guarded.execute("PRAGMA synchronous = OFF", []).unwrap();
                for _row in 0..50 {
                    let transaction = guarded.transaction().unwrap();
                    transaction.execute("INSERT INTO t VALUES (1)", []).unwrap();
                    transaction.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(plain_rows(&place), 100);
}

#[test]
fn a_prepared_statement_takes_the_lock_when_it_runs() {
    let place = Place::new();
    let mut guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    guarded.set_wait(WaitBudget::NOW);
    let mut insert = guarded.prepare("INSERT INTO t (x) VALUES (?1)").unwrap();
    let mut select = guarded.prepare("SELECT x FROM t").unwrap();
    assert!(!holds(&guarded));
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let error = insert.execute([1]).unwrap_err();
    assert!(
        matches!(error, GuardError::Lock(AcquireError::Busy(_))),
        "{error}"
    );
    let found = select.query([], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        found, [0; 0],
        "a read needs no lock, and nothing was written"
    );
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    insert.execute([1]).unwrap();
    assert!(!holds(&guarded));
    // SQLite prepares both again, for the table has changed.
    guarded.execute("ALTER TABLE t ADD COLUMN y", []).unwrap();
    insert.execute([2]).unwrap();
    assert_eq!(
        select.query([], |row| row.get::<_, i64>(0)).unwrap(),
        [1, 2]
    );
    assert!(!holds(&guarded));
}

#[test]
fn a_call_within_the_rows_of_another_leaves_the_lock_to_the_outer_one() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    let insert = "INSERT INTO t VALUES (1), (2) RETURNING x";
    let inserted = guarded.query(insert, [], |row| {
        assert!(holds(&guarded));
        guarded.execute("INSERT INTO t VALUES (3)", []).unwrap();
        assert!(holds(&guarded), "the outer one is not committed yet");
        row.get::<_, i64>(0)
    });
    assert_eq!(inserted.unwrap(), [1, 2]);
    assert!(!holds(&guarded));
    assert_eq!(plain_rows(&place), 4);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        guarded.query(insert, [], |_| -> Result<(), _> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    assert!(!holds(&guarded));
    guarded.execute("DELETE FROM t", []).unwrap();
    assert_eq!(plain_rows(&place), 0);
}

/// Looks at each release of the lock whether somebody else can write to the database.
fn watched(place: &Place) -> (Guarded, Arc<Mutex<Vec<bool>>>) {
    let database = place.database();
    let seen = Arc::<Mutex<Vec<bool>>>::default();
    let sees = Arc::clone(&seen);
    let options = LockOptions::new().observer(move |event| {
        if matches!(event.what, Happening::Released { .. }) {
            let plain = Connection::open(&database).unwrap();
            plain.busy_timeout(Duration::ZERO).unwrap();
            let can_write = plain.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok();
            sees.lock().unwrap().push(can_write);
        }
    });
    let connection = Connection::open(place.database()).unwrap();
    let guarded = options.guard(connection).unwrap();
    guarded
        .batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    seen.lock().unwrap().clear();
    (guarded, seen)
}

/// How often this process has a file open.
fn opened(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link == path).count()
}

// C53
#[test]
fn the_database_is_closed_when_the_lock_is_given_back() {
    for is_told in [true, false] {
        let place = Place::new();
        let (database, seen) = (place.database(), Arc::<Mutex<Vec<usize>>>::default());
        let sees = Arc::clone(&seen);
        let options = LockOptions::new().observer(move |event| {
            if matches!(event.what, Happening::Released { .. }) {
                sees.lock().unwrap().push(opened(&database));
            }
        });
        let connection = Connection::open(place.database()).unwrap();
        let guarded = options.guard(connection).unwrap();
        guarded
            .batch("CREATE TABLE t (x); BEGIN IMMEDIATE")
            .unwrap();
        if is_told {
            guarded.close().unwrap();
        } else {
            drop(guarded);
        }
        assert_eq!(*seen.lock().unwrap(), [1, 0]);
    }
}

#[test]
fn whatever_ends_in_the_middle_rolls_back_before_the_lock_is_given_back() {
    type End = fn(Guarded);
    let ends: [End; 5] = [
        drop,
        |guarded| guarded.close().unwrap(),
        |guarded| guarded.batch("ROLLBACK").unwrap(),
        |mut guarded| {
            guarded.batch("ROLLBACK").unwrap();
            let transaction = guarded.transaction().unwrap();
            transaction.execute("DELETE FROM t", []).unwrap();
            drop(transaction);
            assert!(!holds(&guarded));
        },
        |mut guarded| {
            guarded.batch("ROLLBACK").unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let transaction = guarded.transaction().unwrap();
                transaction.execute("DELETE FROM t", []).unwrap();
                panic!("on purpose");
            }));
            assert!(panicked.is_err());
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let place = Place::new();
        let mut other = Writer::start(&place);
        let (guarded, seen) = watched(&place);
        guarded.batch("BEGIN; DELETE FROM t").unwrap();
        assert!(other.does("acquire 0").starts_with("busy"));
        end(guarded);
        let seen = seen.lock().unwrap();
        assert!(
            !seen.is_empty() && seen.iter().all(|can| *can),
            "{number}: {seen:?}"
        );
        assert_eq!(other.does("acquire 0"), "granted depth=1", "{number}");
        assert_eq!(plain_rows(&place), 1, "{number}");
    }
}

// fault B07
#[test]
fn a_lost_lock_blocks_the_next_write_and_the_commit() {
    type Damage = fn(&Place);
    let damages: [(Damage, bool); 3] = [
        (|place| fs::remove_file(place.mutex()).unwrap(), true),
        // The kernel drops the lock of this process.
        (|place| drop(fs::File::open(place.mutex()).unwrap()), true),
        (|place| fs::remove_file(place.record()).unwrap(), false),
    ];
    for (number, (damage, is_lost)) in damages.into_iter().enumerate() {
        let place = Place::new();
        let mut guarded = with_table(&place, "WAL");
        for commits_only in [false, true] {
            let transaction = guarded.transaction().unwrap();
            transaction.execute("INSERT INTO t VALUES (1)", []).unwrap();
            damage(&place);
            if !commits_only {
                let written = transaction.execute("INSERT INTO t VALUES (2)", []);
                assert_eq!(
                    matches!(written, Err(GuardError::Lost { .. })),
                    is_lost,
                    "{number}: {written:?}"
                );
            }
            let committed = transaction.commit();
            assert_eq!(
                matches!(committed, Err(GuardError::Lost { .. })),
                is_lost,
                "{number}: {committed:?}"
            );
            assert!(!holds(&guarded));
        }
        let expected = if is_lost { 0 } else { 3 };
        assert_eq!(plain_rows(&place), expected, "{number}");
        // The next write has a lock that is whole again.
        guarded.execute("INSERT INTO t VALUES (3)", []).unwrap();
        assert_eq!(plain_rows(&place), expected + 1, "{number}");
    }
}

#[test]
fn what_writes_in_the_guise_of_a_read_is_rolled_back() {
    let place = Place::new();
    let connection = Connection::open(place.database()).unwrap();
    add_sneak(&connection);
    let mut guarded = LockOptions::new().guard(connection).unwrap();
    guarded.execute("CREATE TABLE t (x)", []).unwrap();
    let sneak = |guarded: &Guarded| guarded.query("SELECT sneak()", [], |_| Ok(()));
    let error = sneak(&guarded).unwrap_err();
    assert!(matches!(error, GuardError::NotHeld { .. }), "{error}");
    assert_eq!(plain_rows(&place), 0);
    let transaction = guarded.transaction().unwrap();
    sneak(&transaction).unwrap();
    transaction.commit().unwrap();
    assert_eq!(plain_rows(&place), 1);
}

#[test]
fn a_write_waits_for_the_lock_as_long_as_the_caller_said() {
    let place = Place::new();
    let mut guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    for wait in [Duration::ZERO, Duration::from_millis(120)] {
        guarded.set_wait(within(wait));
        let error = guarded.execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        let GuardError::Lock(AcquireError::Busy(busy)) = error else {
            panic!("{error}");
        };
        assert!(busy.waited >= wait, "{:?}", busy.waited);
        assert_eq!(busy.holder.unwrap().pid.get(), other.pid());
    }
    #[cfg(feature = "test-util")]
    {
        guarded.set_wait(within(BOUND));
        scope(|scope| {
            let lock = place.lock();
            scope.spawn(move || {
                until("it waits", || lock.waiting() > 0);
                assert_eq!(other.does("release"), "Some(Ok(Lock))");
            });
            guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
        });
        assert_eq!(plain_rows(&place), 1);
    }
}

// fault B51
#[test]
fn read_then_write_never_meets_busy_when_begun_as_documented() {
    const ROUNDS: i64 = 1_000;
    let place = Place::new();
    let mut own = guarded(&place);
    own.set_wait(within(BOUND));
    own.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE t (x)")
        .unwrap();
    own.execute("INSERT INTO t VALUES (0)", []).unwrap();
    let mut other = Writer::start(&place);
    let (end, is_over) = channel::<()>();
    scope(|scope| {
        // Somebody outside reads and checkpoints all the time.
        let database = place.database();
        scope.spawn(move || {
            let plain = Connection::open(database).unwrap();
            plain.busy_timeout(BOUND).unwrap();
            let pause = Duration::from_millis(1);
            while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                plain
                    .query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0))
                    .unwrap();
                plain
                    .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                    .unwrap();
            }
        });
        other.order(&format!("counts {ROUNDS}"));
        let counted = count(&mut own, ROUNDS);
        let answer = other.answer();
        drop(end);
        counted.unwrap();
        assert_eq!(answer, "counted");
    });
    let total = own.query("SELECT x FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(total.unwrap(), [2 * ROUNDS]);
}

/// Reads a number and writes the next one, so often.
fn count(guarded: &mut Guarded, rounds: i64) -> Result<(), GuardError> {
    for _round in 0..rounds {
        let transaction = guarded.transaction()?;
        let found = transaction.query("SELECT x FROM t", [], |row| row.get::<_, i64>(0))?;
        transaction.execute("UPDATE t SET x = ?1", [found[0] + 1])?;
        transaction.commit()?;
    }
    Ok(())
}

/// Does so in a second process, and says in a word how it went.
pub(crate) fn counts(database: &Path, rounds: &str) -> String {
    let mut guarded = LockOptions::new()
        .guard(Connection::open(database).unwrap())
        .unwrap();
    guarded.set_wait(within(BOUND));
    guarded.batch("PRAGMA synchronous = OFF").unwrap();
    match count(&mut guarded, rounds.parse().unwrap()) {
        Ok(()) => "counted".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

// fault B51
#[test]
fn a_busy_database_is_not_a_busy_lock() {
    let place = Place::new();
    let (mut one, two) = (with_table(&place, "WAL"), guarded(&place));
    one.set_wait(within(BOUND));
    one.execute("BEGIN", []).unwrap();
    assert_eq!(rows(&one), 0);
    two.execute("INSERT INTO t VALUES (1)", []).unwrap();
    // What it read is old: no wait helps, and it is told at once.
    let error = one.execute("INSERT INTO t VALUES (2)", []).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY_SNAPSHOT);
    one.execute("ROLLBACK", []).unwrap();
    assert!(!holds(&one));
    let transaction = one.transaction().unwrap();
    assert_eq!(rows(&transaction), 1);
    transaction.execute("INSERT INTO t VALUES (2)", []).unwrap();
    transaction.commit().unwrap();
    // A writer that does not know the lock.
    let plain = Connection::open(place.database()).unwrap();
    plain.execute_batch("BEGIN IMMEDIATE").unwrap();
    let database = place.database();
    let quick = Connection::open(&database).unwrap();
    quick.busy_timeout(Duration::ZERO).unwrap();
    let quick = LockOptions::new().guard(quick).unwrap();
    let error = quick.execute("INSERT INTO t VALUES (3)", []).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY);
    assert!(error.to_string().contains("app.db"), "{error}");
    assert!(!holds(&quick));
}

#[test]
fn a_commit_that_fails_keeps_the_lock_with_the_transaction() {
    let place = Place::new();
    let connection = Connection::open(place.database()).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let mut guarded = LockOptions::new().guard(connection).unwrap();
    guarded
        .batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    let mut other = Writer::start(&place);
    // Without WAL a reader keeps a commit out.
    let reader = Connection::open(place.database()).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    guarded.batch("BEGIN; INSERT INTO t VALUES (2)").unwrap();
    let error = guarded.execute("COMMIT", []).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY);
    assert!(other.does("acquire 0").starts_with("busy"));
    reader.execute_batch("COMMIT").unwrap();
    guarded.execute("COMMIT", []).unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(plain_rows(&place), 2);
    // The guard of a transaction rolls back instead.
    reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    let transaction = guarded.transaction().unwrap();
    transaction.execute("DELETE FROM t", []).unwrap();
    assert!(transaction.commit().is_err());
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(rows(&guarded), 2);
}

// fault B23
#[cfg(feature = "test-util")]
#[test]
fn a_release_that_needs_force_does_not_undo_what_was_written() {
    use lease_sqlite::FaultPoint;

    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    assert!(guarded.take_release_error().is_none());
    guarded.lock().inject(FaultPoint::Commit, 5);
    guarded.execute("INSERT INTO t VALUES (1)", []).unwrap();
    let error = guarded.take_release_error().unwrap();
    assert_eq!(error.lock_path, place.record());
    assert!(guarded.take_release_error().is_none());
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    guarded.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!(plain_rows(&place), 2);
}

// S51, C52, C55
#[test]
fn each_guarded_connection_counts_once_and_a_hold_outlives_them() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    drop(Connection::open(place.database()).unwrap());
    let before = descriptors();
    let kept = Arc::new(Mutex::new(0));
    let told = Arc::clone(&kept);
    let options = LockOptions::new().observer(move |event| {
        if matches!(event.what, Happening::HandleKept { .. }) {
            *told.lock().unwrap() += 1;
        }
    });
    let connect = || Connection::open(place.database()).unwrap();
    let a = options.clone().guard(connect()).unwrap();
    let b = options.guard(connect()).unwrap();
    assert!(!place.record().exists() && !place.mutex().exists());
    assert_eq!(a.lock().health().locks, 2);
    let hold = now(a.lock()).unwrap();
    b.close().unwrap();
    assert_eq!(a.lock().health().locks, 1);
    // It enters the hold of its own thread again.
    a.execute("CREATE TABLE t (x)", []).unwrap();
    assert_eq!(a.lock().health().depth, 1);
    assert_eq!(*kept.lock().unwrap(), 0);
    a.close().unwrap();
    assert_eq!(*kept.lock().unwrap(), 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    drop(hold);
    assert_eq!(*kept.lock().unwrap(), 1);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(descriptors(), before);
}

// C53, C54
#[test]
fn a_connection_that_does_not_close_gives_the_lock_back_all_the_same() {
    for is_told in [true, false] {
        let place = Place::new();
        let mut other = Writer::start(&place);
        let lock = place.lock();
        let connection = Connection::open(place.database()).unwrap();
        unfinished_statement(&connection);
        let guarded = LockOptions::new().guard(connection).unwrap();
        guarded
            .batch("CREATE TABLE t (x); BEGIN; DELETE FROM t")
            .unwrap();
        assert_eq!(lock.health().locks, 2);
        assert!(other.does("acquire 0").starts_with("busy"));
        if is_told {
            let error = guarded.close().unwrap_err();
            assert_eq!(code(&error), ffi::SQLITE_BUSY);
        } else {
            drop(guarded);
        }
        assert_eq!((lock.health().locks, lock.health().depth), (1, 0));
        drop(lock);
        // SQLite keeps the database open, and nobody anything of the lock.
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let kept = links.filter(|link| link.starts_with(&place.directory));
        assert!(kept.into_iter().all(|link| link == place.database()));
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        let plain = Connection::open(place.database()).unwrap();
        plain.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
    }
}

#[test]
fn a_forked_child_can_use_nothing_and_ends_nothing() {
    let place = Place::new();
    let guarded = with_table(&place, "DELETE");
    guarded.batch("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    let mut cell = Some(guarded);
    let panicked = in_child(|| {
        let guarded = cell.take().unwrap();
        for sql in ["SELECT 1", "INSERT INTO t VALUES (2)", "ROLLBACK"] {
            let error = guarded.batch(sql).unwrap_err();
            assert!(
                matches!(error, GuardError::Lock(AcquireError::Forked { .. })),
                "{error}"
            );
        }
        drop(guarded);
    });
    assert!(!panicked);
    let guarded = cell.unwrap();
    assert!(holds(&guarded));
    guarded.execute("COMMIT", []).unwrap();
    assert_eq!(plain_rows(&place), 1);
}

#[test]
fn a_database_without_a_file_cannot_be_guarded_and_one_of_any_name_can() {
    let error = LockOptions::new()
        .guard(Connection::open_in_memory().unwrap())
        .unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error}");
    for name in [&b"\xff\xfe.db"[..], b"new\nline", &[b'x'; 200]] {
        let place = Place::new();
        let database = place.directory.join(std::ffi::OsStr::from_bytes(name));
        let connection = Connection::open(&database).unwrap();
        let guarded = LockOptions::new().guard(connection).unwrap();
        guarded.execute("CREATE TABLE t (x)", []).unwrap();
        let mut record = database.into_os_string();
        record.push(".write-lock");
        assert_eq!(guarded.lock().lock_path().as_os_str(), record);
        assert!(guarded.lock().last_writer().is_some());
    }
}

#[test]
fn an_attached_database_is_written_under_the_same_lock() {
    let place = Place::new();
    let guarded = with_table(&place, "WAL");
    let mut other = Writer::start(&place);
    let second = place.directory.join("second.db");
    guarded
        .execute("ATTACH ?1 AS second", [second.to_str().unwrap()])
        .unwrap();
    assert!(!holds(&guarded));
    guarded
        .batch("CREATE TABLE second.u (x); BEGIN; INSERT INTO second.u VALUES (1)")
        .unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    guarded
        .batch("INSERT INTO t SELECT x FROM second.u; COMMIT")
        .unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(plain_rows(&place), 1);
}
