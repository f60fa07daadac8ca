//! Two processes and one lock.

use std::fs;

use lease_core::{Attribution, BusyReason};
use lease_sqlite::{AcquireError, Released};

use crate::child::told;
use crate::rig::{BOUND, Place, Writer, now, until, within};

// C1, C67
#[test]
fn one_process_at_a_time_holds_whatever_the_record_says() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    fs::remove_file(place.record()).unwrap();
    let AcquireError::Busy(busy) = now(&lock).unwrap_err() else {
        panic!("not busy");
    };
    assert_eq!(busy.reason, BusyReason::Kernel(Attribution::None));
    assert_eq!(busy.locked_by.map(|pid| pid.get()), Some(other.pid()));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    let hold = now(&lock).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    assert_eq!(hold.release().unwrap(), Released::Lock);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

// C5, C26, C27
#[test]
fn a_killed_holder_frees_the_lock_and_stays_the_last_writer_until_the_next() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let busy = told(&now(&lock));
    assert!(
        busy.contains(&format!(
            "holder=Some({0}) locked_by=Some({0})",
            other.pid()
        )),
        "{busy}"
    );
    other.kill();
    let last = lock.last_writer().unwrap();
    assert_eq!(last.pid.get(), other.pid());
    assert_eq!(last.purpose.as_deref(), Some("obey"));
    until("the killed holder's lock is free", || now(&lock).is_ok());
    let hold = now(&lock).unwrap();
    assert!(!hold.granted().contended);
    assert_eq!(
        lock.last_writer().unwrap().token.as_deref(),
        Some(&*hold.granted().token)
    );
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    other.order(&format!("acquire {}", BOUND.as_millis()));
    hold.check().unwrap();
    assert_eq!(hold.release().unwrap(), Released::Lock);
    assert_eq!(other.answer(), "granted depth=1");
    other.order("release");
    let hold = lock.acquire(within(BOUND)).unwrap();
    hold.check().unwrap();
}

#[test]
fn a_peer_killed_in_the_very_first_hold_of_a_mutex_is_no_obstacle() {
    let place = Place::new();
    fs::write(place.mutex(), "").unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("peer"), "held");
    let lock = place.lock();
    assert!(told(&now(&lock)).starts_with("busy"));
    other.kill();
    until("the lock is free", || now(&lock).is_ok());
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    hold.release().unwrap();
    assert_eq!(
        place.names(),
        ["app.db.write-lock", "app.db.write-lock.mutex"]
    );
}

#[test]
fn holders_that_are_killed_at_any_moment_leave_a_lock_that_works() {
    let place = Place::new();
    let lock = place.lock();
    for round in 0..6_u64 {
        let mut writers = [Writer::start(&place), Writer::start(&place)];
        for writer in &mut writers {
            writer.order("pairs 1000000");
        }
        // Wherever they are by now.
        let mark = lock.last_writer().and_then(|last| last.token);
        until("somebody signs", || {
            lock.last_writer().and_then(|last| last.token) != mark
        });
        for _look in 0..round * 15 {
            let _last = lock.last_writer();
        }
        for writer in &mut writers {
            writer.kill();
        }
        let hold = lock.acquire(within(BOUND)).unwrap();
        hold.check().unwrap();
        hold.release().unwrap();
    }
    assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
    assert_eq!(fs::metadata(place.mutex()).unwrap().len(), 4_096);
}
