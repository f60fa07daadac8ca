//! Faults that lock programs make in the field, each as it was reported.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lease_core::BusyReason;
use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{AcquireError, AdoptionCause, LockOptions, Lost, NotAMutex};

use crate::rig::{Place, Writer, has_strace, now};

const GRANTED: &str = "granted depth=1";
const RELEASED: &str = "Some(Ok(Lock))";

// fault B07
#[test]
fn a_name_that_is_removed_during_a_hold_is_noticed_and_nothing_is_locked_under_a_dead_one() {
    type Damage = fn(&Place);
    let table: [(&str, Damage, bool); 4] = [
        (
            "mutex",
            |place| fs::remove_file(place.mutex()).unwrap(),
            true,
        ),
        (
            "record",
            |place| fs::remove_file(place.record()).unwrap(),
            false,
        ),
        (
            "directory",
            |place| fs::remove_dir_all(&place.directory).unwrap(),
            true,
        ),
        (
            "directory, exchanged",
            |place| {
                fs::rename(&place.directory, away(place)).unwrap();
                fs::create_dir(&place.directory).unwrap();
            },
            true,
        ),
    ];
    for (name, damage, is_lost) in table {
        let place = Place::new();
        let lock = place.lock();
        now(&lock).unwrap().release().unwrap();
        let mut other = Writer::start(&place);
        let hold = now(&lock).unwrap();
        damage(&place);
        let told = other.does("acquire 0");
        assert_eq!(told == GRANTED, is_lost, "{name}: {told}");
        assert_eq!(matches!(hold.check(), Err(Lost::Moved)), is_lost, "{name}");
        assert_eq!(hold.check().is_ok(), !is_lost, "{name}");
        let _released = hold.release();
        assert!(place.mutex().exists(), "{name}: a release removes no mutex");
        if is_lost {
            assert!(matches!(now(&lock), Err(AcquireError::Busy(_))), "{name}");
            assert_eq!(other.does("check"), "Some(Ok(()))", "{name}");
            assert_eq!(other.does("release"), RELEASED, "{name}");
        }
        let hold = now(&lock).unwrap();
        hold.check().unwrap();
        assert!(other.does("acquire 0").starts_with("busy"), "{name}");
        let adopted = hold.granted().adopted.map(|adopted| adopted.cause);
        let expected = match name {
            "mutex" => None,
            "record" => Some(AdoptionCause::Missing),
            // The other one was let in and made a record.
            _ => Some(AdoptionCause::Replaced),
        };
        assert_eq!(adopted, expected, "{name}");
        let token = lock.last_writer().unwrap().token;
        assert_eq!(token.as_deref(), Some(&*hold.granted().token), "{name}");
        drop(hold);
        let _removed = fs::remove_dir_all(away(&place));
    }
}

fn away(place: &Place) -> PathBuf {
    place.directory.with_extension("away")
}

// fault B23
#[test]
fn a_release_without_the_journal_that_sqlite_made_frees_the_lock() {
    let place = Place::new();
    // The fresh mutex of a peer: the first hold makes its first page, by way of a journal.
    fs::write(place.mutex(), "").unwrap();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    let mut journal = place.mutex().into_os_string();
    journal.push("-journal");
    fs::remove_file(&journal).unwrap();
    let _released = hold.release();
    assert_eq!(other.does("acquire 0"), GRANTED);
    assert_eq!(other.does("release"), RELEASED);
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    assert!(!Path::new(&journal).exists());
}

/// What SQLite leaves beside a database.
fn beside(place: &Place, suffix: &str, bytes: &[u8]) {
    let mut name = place.mutex().into_os_string();
    name.push(suffix);
    fs::write(name, bytes).unwrap();
}

fn on_mutex(place: &Place, sql: &str) {
    let connection = Connection::open(place.mutex()).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.raw_query();
    while rows.next().unwrap().is_some() {}
}

type Harm = fn(&Place);

/// What a mutex may have become, and what is wrong with it then.
const HARMS: [(&str, Harm, Option<NotAMutex>); 13] = [
    ("as it was made", |_| {}, None),
    (
        "a table",
        |place| on_mutex(place, "CREATE TABLE t (x)"),
        None,
    ),
    ("vacuumed", |place| on_mutex(place, "VACUUM"), None),
    (
        "WAL",
        |place| on_mutex(place, "PRAGMA journal_mode = WAL"),
        Some(NotAMutex::JournalMode),
    ),
    ("empty", |place| fs::write(place.mutex(), "").unwrap(), None),
    (
        "one byte",
        |place| fs::write(place.mutex(), "S").unwrap(),
        Some(NotAMutex::NotADatabase),
    ),
    (
        "other bytes",
        |place| fs::write(place.mutex(), [0xa5; 4_096]).unwrap(),
        Some(NotAMutex::NotADatabase),
    ),
    (
        "no journal left",
        |place| beside(place, "-journal", b""),
        None,
    ),
    (
        "journal of zeroes",
        |place| beside(place, "-journal", &[0; 512]),
        None,
    ),
    (
        "journal of other bytes",
        |place| beside(place, "-journal", &[0xa5; 512]),
        None,
    ),
    (
        "shared memory",
        |place| beside(place, "-shm", &[0xa5; 512]),
        None,
    ),
    ("no WAL left", |place| beside(place, "-wal", b""), None),
    (
        "WAL of other bytes",
        |place| beside(place, "-wal", &[0xa5; 512]),
        Some(NotAMutex::JournalMode),
    ),
];

// fault B43
#[test]
fn whatever_the_mutex_became_a_grant_excludes_and_the_rest_is_an_error() {
    for (name, harm, expected) in HARMS {
        let place = Place::new();
        now(&place.lock()).unwrap().release().unwrap();
        harm(&place);
        let before = fs::read(place.mutex()).unwrap();
        let lock = place.lock();
        let outcome = now(&lock);
        if let Some(expected) = expected {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, AcquireError::NotAMutex { why, .. } if why == expected),
                "{name}: {error}"
            );
            assert_eq!(fs::read(place.mutex()).unwrap(), before, "{name}");
            continue;
        }
        let hold = outcome.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        hold.check().unwrap_or_else(|lost| panic!("{name}: {lost}"));
        let mut other = Writer::start(&place);
        let told = other.does("acquire 0");
        assert!(told.starts_with("busy"), "{name}: {told}");
        // Somebody looks at it with a shell meanwhile.
        let shell = Connection::open(place.mutex()).unwrap();
        shell.busy_timeout(std::time::Duration::ZERO).unwrap();
        for sql in [
            "SELECT * FROM sqlite_schema",
            "PRAGMA journal_mode = WAL",
            "VACUUM",
        ] {
            assert!(shell.execute_batch(sql).is_err(), "{name}: {sql}");
        }
        drop(shell);
        hold.check().unwrap_or_else(|lost| panic!("{name}: {lost}"));
        hold.release().unwrap();
        assert_eq!(other.does("acquire 0"), GRANTED, "{name}");
    }
}

#[test]
fn a_log_that_appears_beside_an_open_mutex_keeps_everybody_out_until_it_is_gone() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    beside(&place, "-wal", &[0xa5; 512]);
    let mut other = Writer::start(&place);
    for outcome in [now(&lock).map(drop), now(&place.lock()).map(drop)] {
        assert!(
            matches!(&outcome, Err(AcquireError::NotAMutex { why, .. }) if *why == NotAMutex::JournalMode),
            "{outcome:?}"
        );
    }
    assert!(other.does("acquire 0").starts_with("error"));
    // Nothing was repaired by taking it away. When somebody did, the same lock works again.
    let mut log = place.mutex().into_os_string();
    log.push("-wal");
    assert_eq!(fs::read(&log).unwrap(), [0xa5; 512]);
    fs::remove_file(&log).unwrap();
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
}

// fault B41
#[test]
fn a_file_system_without_locks_is_an_error_and_not_busy() {
    if !has_strace("hazards::a_file_system_without_locks_is_an_error_and_not_busy") {
        return;
    }
    let errors = ["ENOLCK", "ENOSYS", "EINVAL", "EOPNOTSUPP", "EIO"];
    for (error, has_mutex) in errors
        .into_iter()
        .flat_map(|error| [(error, false), (error, true)])
    {
        let place = Place::new();
        if has_mutex {
            now(&place.lock()).unwrap().release().unwrap();
        }
        let inject = format!("inject=fcntl:error={error}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
        let mut other = Writer::start_with(&place, &strace);
        let told = other.does("acquire 1000");
        assert!(told.starts_with("error"), "{error}: {told}");
    }
}

// fault B44
#[test]
fn a_link_at_any_path_of_ours_is_an_error_and_its_target_stays_as_it_is() {
    for (number, suffix) in ["", ".mutex", ".mutex-journal", ".mutex-wal"]
        .into_iter()
        .enumerate()
    {
        for is_there in [true, false] {
            for is_fresh in [true, false] {
                let place = Place::new();
                let victim = place.directory.with_extension("victim");
                if !is_fresh {
                    now(&place.lock()).unwrap().release().unwrap();
                }
                let mut path = place.record().into_os_string();
                path.push(suffix);
                let _removed = fs::remove_file(&path);
                if is_there {
                    fs::write(&victim, "of somebody else").unwrap();
                }
                symlink(&victim, &path).unwrap();
                let lock = LockOptions::new().open(place.database()).unwrap();
                let outcome = now(&lock);
                match number {
                    0 => assert!(
                        matches!(&outcome, Err(AcquireError::Busy(busy))
                            if busy.reason == BusyReason::NotARegularFile),
                        "{outcome:?}"
                    ),
                    1 => assert!(
                        matches!(
                            outcome,
                            Err(AcquireError::NotAMutex {
                                why: NotAMutex::NotARegularFile,
                                ..
                            })
                        ),
                        "{outcome:?}"
                    ),
                    // SQLite's own side files: whatever it makes of them, not the target.
                    _ => {}
                }
                drop(outcome);
                lock.sweep();
                if number == 0 {
                    assert_eq!(lock.last_writer(), None);
                }
                assert_eq!(victim.exists(), is_there, "{suffix}");
                if is_there {
                    assert_eq!(
                        fs::read_to_string(&victim).unwrap(),
                        "of somebody else",
                        "{suffix}"
                    );
                    fs::remove_file(&victim).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_pipe_at_any_path_of_ours_is_waited_for_by_nobody() {
    for suffix in ["", ".mutex", ".mutex-journal", ".mutex-wal"] {
        for is_fresh in [true, false] {
            let place = Place::new();
            if !is_fresh {
                now(&place.lock()).unwrap().release().unwrap();
            }
            let mut path = place.record().into_os_string();
            path.push(suffix);
            let _removed = fs::remove_file(&path);
            assert!(
                Command::new("mkfifo")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
            // A process of its own: one that hangs is ended by the test.
            let mut writer = Writer::start(&place);
            let told = writer.does("acquire 0");
            assert!(!told.starts_with("granted"), "{suffix}: {told}");
            if suffix.ends_with("journal") {
                let expected = ".mutex\" cannot be a mutex: its journal is not a regular file";
                assert!(told.ends_with(expected), "{told}");
            }
            fs::remove_file(path).unwrap();
            assert_eq!(writer.does("acquire 0"), "granted depth=1", "{suffix}");
        }
    }
}

// fault B45
#[test]
fn a_newer_or_ambiguous_record_keeps_everybody_out_and_its_bytes() {
    let own = std::os::unix::process::parent_id();
    let wide = |text: &str| format!("{text:<1024}");
    let deep = format!(
        "{{\"protocol\":2,\"pid\":1,\"x\":{}{}}}",
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let long = format!(
        "{{\"protocol\":2,\"pid\":1,\"x\":\"{}\"}}",
        "x".repeat(1 << 20)
    );
    let refused = [
        format!("{{\"protocol\":99,\"pid\":{own},\"new\":[1]}}"),
        wide(&format!("{{\"protocol\":99,\"pid\":{own},\"new\":[1]}}")),
        wide(&format!("{{\"protocol\":3,\"pid\":{own}}}")),
        wide(&format!("{{\"protocol\":2,\"pid\":1,\"pid\":{own}}}")),
        wide(&format!(
            "{{\"protocol\":2,\"pid\":{own},\"token\":\"a\",\"t\\u006fken\":\"b\"}}"
        )),
        wide(&format!(
            "{{\"protocol\":2,\"pid\":{own},\"more\":{{\"a\":1,\"a\":2}}}}"
        )),
        // JSON to other readers, in a file as long as a torn record of ours.
        wide(&format!(
            "{{\"protocol\":3,\"pid\":{own},\"x\":{}{}}}",
            "[".repeat(200),
            "]".repeat(200)
        )),
        wide(&format!("{{\"protocol\":3,\"pid\":{own},\"x\":1e999}}")),
        wide(&format!(
            "{{\"protocol\":3,\"pid\":{own},\"label\":\"\\ud83d\"}}"
        )),
        wide(&format!("{{\"protocol\":2,\"pid\":{own},\"x\":1e999}}")),
        wide(&format!(
            "{{\"protocol\":2,\"pid\":{own},\"\\ud83d\":1,\"\\ud83e\":1}}"
        )),
        format!("{{\"pid\":\"{own}\"}}"),
        deep,
        long,
    ];
    for text in refused {
        let place = Place::new();
        fs::write(place.record(), &text).unwrap();
        let shown: String = text.chars().take(80).collect();
        let lock = place.lock();
        lock.sweep();
        let outcome = now(&lock);
        let Err(AcquireError::Busy(busy)) = outcome else {
            panic!("{shown}: {outcome:?}");
        };
        assert_eq!(busy.reason, BusyReason::Unrecognised, "{shown}");
        assert_eq!(fs::read_to_string(place.record()).unwrap(), text, "{shown}");
    }
    // A field more is nobody's business.
    let place = Place::new();
    fs::write(
        place.record(),
        wide(&format!("{{\"protocol\":2,\"pid\":{own},\"extra\":[1]}}")),
    )
    .unwrap();
    assert_eq!(
        place
            .lock()
            .last_writer()
            .map(|who| u32::try_from(who.pid.get())),
        Some(Ok(own))
    );
    assert!(now(&place.lock()).unwrap().granted().adopted.is_some());
}

// fault B50
#[test]
fn a_spawned_child_delays_nothing_and_has_none_of_our_files() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    let (end, is_over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let status = Command::new("true").status();
                assert!(status.unwrap().success());
            }
        });
        for _pair in 0..10_000 {
            let hold = now(&lock).unwrap();
            hold.release().unwrap();
        }
        drop(end);
    });
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    let mut child = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let ours: Vec<PathBuf> = links
        .filter(|link| link.starts_with(&place.directory))
        .collect();
    hold.release().unwrap();
    let told = other.does("acquire 0");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ours.is_empty(), "{ours:?}");
    assert_eq!(told, GRANTED);
}

// fault B58
#[test]
fn a_thousand_holds_in_turn_leave_one_record_of_the_last_holder() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let own = {
        let _hold = now(&lock).unwrap();
        lock.last_writer().unwrap().pid
    };
    for _turn in 0..500 {
        assert_eq!(other.does("acquire 0"), GRANTED);
        assert_eq!(other.does("release"), RELEASED);
        assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
        assert_eq!(lock.last_writer().unwrap().pid.get(), other.pid());
        now(&lock).unwrap().release().unwrap();
        assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
        assert_eq!(lock.last_writer().unwrap().pid, own);
    }
}

// S48
#[test]
fn a_record_fits_whatever_the_label_and_append_mode_would_not() {
    for unit in ["x", "\u{1f980}", "\u{1}", "\"\\"] {
        let place = Place::new();
        let options = LockOptions::new().label(unit.repeat(5_000));
        let lock = options.open(place.database()).unwrap();
        for number in 1..=100 {
            let hold = now(&lock).unwrap();
            assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
            let last = lock.last_writer().unwrap();
            assert_eq!(last.token.as_deref(), Some(&*hold.granted().token));
            assert!(hold.granted().token.ends_with(&format!(":{number}")));
            hold.release().unwrap();
        }
    }
    // The falsifier: the same writes through a descriptor that appends.
    let place = Place::new();
    let mut options = fs::OpenOptions::new();
    let appends = options
        .create(true)
        .append(true)
        .open(place.record())
        .unwrap();
    for _hold in 0..100 {
        assert_eq!(appends.write_at(&[b' '; 1_024], 0).unwrap(), 1_024);
    }
    assert_eq!(fs::metadata(place.record()).unwrap().len(), 102_400);
}

// C63
#[test]
fn an_entry_ends_once_whether_released_or_dropped() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let (outer, inner) = (now(&lock).unwrap(), now(&lock).unwrap());
    // Released, and then dropped by the call itself.
    inner.release().unwrap();
    assert_eq!(lock.health().depth, 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    drop(now(&lock).unwrap());
    assert_eq!(lock.health().depth, 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    drop(outer);
    assert_eq!(other.does("acquire 0"), GRANTED);
}

#[cfg(feature = "test-util")]
mod attempts {
    use std::time::Duration;

    use lease_sqlite::{FaultPoint, WaitBudget};

    use super::*;
    use crate::rig::{BOUND, within};

    // S37
    #[test]
    fn somebody_without_time_makes_one_attempt_whatever_is_in_the_way() {
        let half = format!("{:<300}", "{\"protocol\":2,\"pi");
        let plants: [&dyn Fn(&Place); 5] = [
            &|_| {},
            &|_| {},
            &|place| fs::write(place.record(), "{\"pid\":1}").unwrap(),
            &|place| fs::create_dir(place.record()).unwrap(),
            &|place| fs::write(place.record(), &half).unwrap(),
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            let place = Place::new();
            let (lock, timing) = place.timed();
            let mut other = Writer::start(&place);
            if number == 1 {
                assert_eq!(other.does("acquire 0"), GRANTED);
            }
            plant(&place);
            let before = lock.passes(FaultPoint::Begin);
            let outcome = lock.acquire(WaitBudget::NOW);
            assert_eq!(outcome.is_ok(), number == 0, "{number}: {outcome:?}");
            assert_eq!(lock.passes(FaultPoint::Begin) - before, 1, "{number}");
            assert_eq!(timing.sleeps_ms(), [0_u128; 0], "{number}");
        }
    }

    // C31
    #[test]
    fn the_fence_is_asked_once_per_kernel_lock_and_never_without_it() {
        let place = Place::new();
        let (lock, _timing) = place.timed();
        for number in 1..=3 {
            let hold = now(&lock).unwrap();
            let _entry = now(&lock).unwrap();
            hold.check().unwrap();
            assert_eq!(lock.passes(FaultPoint::Fence), number);
        }
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), GRANTED);
        let before = lock.passes(FaultPoint::Begin);
        assert!(lock.acquire(within(Duration::from_millis(60))).is_err());
        assert_eq!(lock.passes(FaultPoint::Begin) - before, 4);
        assert_eq!(lock.passes(FaultPoint::Fence), 3);
        assert_eq!(other.does("release"), RELEASED);
        drop(lock.acquire(within(BOUND)).unwrap());
        assert_eq!(lock.passes(FaultPoint::Fence), 4);
    }
}
