//! A fault at each step of acquire and release: nothing stays held, and the next attempt works.

use std::fs;
use std::io;

use lease_core::BusyReason;
use lease_sqlite::{AcquireError, AdoptionCause, FaultPoint, Step};

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
