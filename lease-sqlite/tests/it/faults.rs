//! A fault at each step of acquire and release: nothing stays held, and the next attempt works.

use std::fs;
use std::io;

use lease_core::BusyReason;
use lease_sqlite::{AcquireError, AdoptionCause, FaultPoint, Step, Swept, WaitBudget};

use crate::rig::{Place, Writer, now};

const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

// S52, C14, C30, C42, C59
#[test]
fn a_fault_between_lock_and_grant_frees_the_lock_and_says_where() {
    let table = [
        (FaultPoint::Open, EMFILE, Step::Open),
        (FaultPoint::Moved, EACCES, Step::Fence),
        (FaultPoint::Fence, EACCES, Step::Fence),
        (FaultPoint::Adopt, EMFILE, Step::Adopt),
        (FaultPoint::Write, ENOSPC, Step::Write),
        (FaultPoint::ShortWrite, 0, Step::Write),
    ];
    for (point, number, expected) in table {
        let place = Place::new();
        let mut other = Writer::start(&place);
        let lock = place.lock();
        if point != FaultPoint::Open {
            now(&lock).unwrap().release().unwrap();
        }
        if point == FaultPoint::Adopt {
            fs::remove_file(place.record()).unwrap();
        }
        lock.inject(point, number);
        let error = now(&lock).unwrap_err();
        let AcquireError::Io { step, source, .. } = error else {
            panic!("{point:?}: {error}");
        };
        assert_eq!(step, expected, "{point:?}");
        let short = io::ErrorKind::WriteZero;
        let is_it = source.raw_os_error() == Some(number) || source.kind() == short;
        assert!(is_it, "{point:?}: {source}");
        assert_eq!(other.does("acquire 0"), "granted depth=1", "{point:?}");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        now(&lock).unwrap().release().unwrap();
        now(&lock).unwrap().release().unwrap();
    }
}

// S52, C13
#[test]
fn a_commit_that_fails_frees_the_lock_by_force() {
    for faults in [
        &[FaultPoint::Commit][..],
        &[FaultPoint::Commit, FaultPoint::Rollback],
    ] {
        let place = Place::new();
        let lock = place.lock();
        let mut other = Writer::start(&place);
        let hold = now(&lock).unwrap();
        assert!(other.does("acquire 0").starts_with("busy"));
        for fault in faults {
            lock.inject(*fault, EIO);
        }
        let error = hold.release().unwrap_err();
        assert_eq!(error.lock_path, place.record());
        assert_eq!(other.does("acquire 0"), "granted depth=1", "{faults:?}");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        let hold = now(&lock).unwrap();
        hold.check().unwrap();
        hold.release().unwrap();
    }
}

// C32
#[test]
fn who_loses_the_race_for_a_new_record_is_kept_out_without_an_error() {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    fs::remove_file(place.record()).unwrap();
    lock.inject(FaultPoint::Adopt, EEXIST);
    let Err(AcquireError::Busy(busy)) = now(&lock) else {
        panic!("not busy");
    };
    assert_eq!(busy.reason, BusyReason::LostRace);
    let hold = now(&lock).unwrap();
    let adopted = hold.granted().adopted.unwrap();
    assert_eq!(adopted.cause, AdoptionCause::Missing);
}

// C10
#[test]
fn only_plain_busy_is_contention() {
    use rusqlite::ffi;

    let errors = [
        ffi::SQLITE_IOERR,
        ffi::SQLITE_CANTOPEN,
        ffi::SQLITE_NOTADB,
        ffi::SQLITE_BUSY_SNAPSHOT,
        ffi::SQLITE_BUSY_RECOVERY,
        ffi::SQLITE_LOCKED,
    ];
    let place = Place::new();
    let lock = place.lock();
    for expected in errors {
        lock.inject(FaultPoint::Begin, expected);
        // With all the time there is: an error does not wait.
        let error = lock.acquire(WaitBudget::Forever).unwrap_err();
        let AcquireError::Sqlite { step, source, .. } = error else {
            panic!("{expected}: {error}");
        };
        assert_eq!((step, source.code), (Step::Begin, expected));
    }
    lock.inject(FaultPoint::Begin, ffi::SQLITE_BUSY);
    // Refused once, and nobody holds: two who tried at once. It tries again.
    assert!(now(&lock).is_ok());
    now(&lock).unwrap().release().unwrap();
}

// S50, C88
#[test]
fn a_record_that_is_swapped_between_the_looks_of_a_sweep_is_kept() {
    let dead = {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let own = std::os::unix::process::parent_id();
    let record = |pid, token| format!("{{\"protocol\":2,\"pid\":{pid},\"token\":\"{token}\"}}");
    let old = record(dead, 1);
    // Another file, the same file with another process, and with another hold of the same process.
    for (text, is_new_file) in [
        (record(own, 1), true),
        (record(own, 1), false),
        (record(dead, 2), false),
    ] {
        let place = Place::new();
        let lock = place.lock();
        now(&lock).unwrap().release().unwrap();
        fs::write(place.record(), &old).unwrap();
        let (path, new) = (place.record(), text.clone());
        lock.meanwhile(FaultPoint::Look, move || {
            if is_new_file {
                fs::remove_file(&path).unwrap();
            }
            fs::write(&path, new).unwrap();
        });
        assert_eq!(lock.sweep(), Swept::KeptChanged);
        assert_eq!(fs::read_to_string(place.record()).unwrap(), text);
    }
}

// C39
#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_a_torn_one() {
    let place = Place::new();
    fs::write(place.record(), " ".repeat(1_024)).unwrap();
    let lock = place.lock();
    lock.inject(FaultPoint::Read, EIO);
    let Err(AcquireError::Busy(busy)) = now(&lock) else {
        panic!("not busy");
    };
    assert_eq!(busy.reason, BusyReason::Unreadable);
    assert_eq!(Writer::start(&place).does("acquire 0"), "granted depth=1");
}

// C15, C57
#[test]
fn a_directory_that_goes_between_the_lock_and_the_first_record_is_made_again() {
    let place = Place::new();
    let lock = place.lock();
    let directory = place.directory.clone();
    lock.meanwhile(FaultPoint::Open, move || {
        fs::remove_dir_all(&directory).unwrap();
    });
    let hold = now(&lock).unwrap();
    assert_eq!(hold.granted().reopened, 1);
    hold.check().unwrap();
    let named = lock.last_writer().unwrap().token;
    assert_eq!(named.as_deref(), Some(&*hold.granted().token));
}
