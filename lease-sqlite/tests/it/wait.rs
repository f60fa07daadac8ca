//! Waiting: one deadline, its slices, and what a grant says of it.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::{Attribution, BusyReason};
use lease_sqlite::{AcquireError, Hold, WaitBudget};

use crate::rig::{Place, Writer, manual, now};

fn milliseconds(time: u64) -> WaitBudget {
    WaitBudget::Within(Duration::from_millis(time))
}

#[track_caller]
fn busy(outcome: Result<Hold, AcquireError>) -> lease_sqlite::Busy {
    match outcome {
        Err(AcquireError::Busy(busy)) => *busy,
        other => panic!("{other:?}"),
    }
}

// S38, C69, C71, C73
#[test]
fn a_wait_is_sliced_to_its_deadline_and_ends_with_an_attempt() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    let other = Arc::new(Mutex::new(Writer::start(&place)));
    let does = |order: &str| other.lock().unwrap().does(order);
    assert_eq!(does("acquire 0"), "granted depth=1");
    let refused = busy(lock.acquire(milliseconds(60)));
    assert_eq!(timing.sleeps_ms(), [25, 25, 10]);
    assert_eq!((refused.waited.as_millis(), timing.now_ms()), (60, 60));
    // Released at 55 of the next wait, granted at its 60.
    let releaser = Arc::clone(&other);
    timing.at(115, move || {
        assert_eq!(releaser.lock().unwrap().does("release"), "Some(Ok(Lock))");
    });
    let hold = lock.acquire(milliseconds(60)).unwrap();
    assert_eq!(hold.granted().waited.as_millis(), 60);
    assert!(hold.granted().contended);
    hold.release().unwrap();
    let hold = lock.acquire(milliseconds(60)).unwrap();
    assert_eq!(
        (hold.granted().waited.as_millis(), hold.granted().contended),
        (0, false)
    );
    hold.release().unwrap();
    // Shorter than one poll.
    assert_eq!(does("acquire 0"), "granted depth=1");
    let before = timing.sleeps_ms().len();
    busy(lock.acquire(milliseconds(10)));
    assert_eq!(timing.sleeps_ms()[before..], [10]);
    // Released at 30, noticed at the next poll.
    let at_ms = u64::try_from(timing.now_ms()).unwrap() + 30;
    let releaser = Arc::clone(&other);
    timing.at(at_ms, move || {
        assert_eq!(releaser.lock().unwrap().does("release"), "Some(Ok(Lock))");
    });
    let hold = lock.acquire(milliseconds(1_000)).unwrap();
    assert_eq!(hold.granted().waited.as_millis(), 50);
}

// C68
#[test]
fn somebody_without_time_never_sleeps() {
    let half = format!("{:<300}", "{\"protocol\":2,\"pi");
    let plants: [&dyn Fn(&Place); 4] = [
        &|_| {},
        &|place| fs::create_dir(place.record()).unwrap(),
        &|place| fs::write(place.record(), &half).unwrap(),
        &|place| fs::write(place.record(), "{\"pid\":1}").unwrap(),
    ];
    for (number, plant) in plants.into_iter().enumerate() {
        let place = Place::new();
        plant(&place);
        let (lock, timing) = place.timed();
        let outcome = lock.acquire(WaitBudget::NOW);
        assert_eq!(outcome.is_ok(), number == 0);
        assert_eq!(timing.sleeps_ms(), [0_u128; 0]);
    }
    let place = Place::new();
    let (lock, timing) = place.timed();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    busy(lock.acquire(WaitBudget::NOW));
    assert_eq!(timing.sleeps_ms(), [0_u128; 0]);
}

// C70
#[test]
fn one_deadline_counts_whatever_is_in_the_way() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    let other = Arc::new(Mutex::new(Writer::start(&place)));
    assert_eq!(other.lock().unwrap().does("acquire 0"), "granted depth=1");
    let (releaser, record) = (Arc::clone(&other), place.record());
    timing.at(30, move || {
        fs::remove_file(&record).unwrap();
        fs::write(&record, "{\"pid\":1,\"created_at_ms\":5}").unwrap();
        assert_eq!(releaser.lock().unwrap().does("release"), "Some(Ok(Lock))");
    });
    let refused = busy(lock.acquire(milliseconds(60)));
    assert!(
        !matches!(refused.reason, BusyReason::Kernel(_)),
        "{refused:?}"
    );
    assert_eq!(timing.now_ms(), 60);
    assert_eq!(timing.sleeps_ms(), [25, 25, 10]);
}

// S44
#[test]
fn a_directory_at_the_record_is_waited_for_and_never_removed() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    fs::create_dir(place.record()).unwrap();
    let record = place.record();
    timing.at(30, move || fs::remove_dir(&record).unwrap());
    let hold = lock.acquire(milliseconds(60)).unwrap();
    assert_eq!(
        (hold.granted().waited.as_millis(), hold.granted().contended),
        (50, true)
    );
    hold.release().unwrap();
    fs::remove_file(place.record()).unwrap();
    fs::create_dir(place.record()).unwrap();
    let refused = busy(lock.acquire(milliseconds(60)));
    assert_eq!(
        (refused.reason, refused.holder),
        (BusyReason::Directory, None)
    );
    assert_eq!(refused.waited.as_millis(), 60);
    fs::remove_dir(place.record()).unwrap();
    assert_eq!(Writer::start(&place).does("acquire 0"), "granted depth=1");
}

// C22
#[test]
fn the_stamp_is_the_moment_of_the_grant() {
    let place = Place::new();
    let (options, timing) = manual();
    timing.set_wall_ms(1_000_000);
    let options = options.poll(Duration::from_millis(40));
    let lock = options.open(place.database()).unwrap();
    let other = Arc::new(Mutex::new(Writer::start(&place)));
    assert_eq!(other.lock().unwrap().does("acquire 0"), "granted depth=1");
    let releaser = Arc::clone(&other);
    timing.at(78, move || {
        assert_eq!(releaser.lock().unwrap().does("release"), "Some(Ok(Lock))");
    });
    let _hold = lock.acquire(milliseconds(80)).unwrap();
    assert_eq!(lock.last_writer().unwrap().acquired_at_ms, Some(1_000_080));
    let text = fs::read_to_string(place.record()).unwrap();
    assert!(
        text.contains("\"created_at_ms\":1000080,\"acquiredAt\":1000080,"),
        "{text}"
    );
}

// C74
#[test]
fn a_wall_clock_that_steps_neither_stretches_nor_ends_a_wait() {
    for step_ms in [-3_600_000, 3_600_000] {
        let place = Place::new();
        let (lock, timing) = place.timed();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        let clock = Arc::clone(&timing);
        timing.at(20, move || clock.set_wall_ms(step_ms));
        assert_eq!(busy(lock.acquire(milliseconds(60))).waited.as_millis(), 60);
    }
}

// C72
#[test]
fn a_refusal_names_the_holder_as_it_is_read_then() {
    let place = Place::new();
    let (lock, _timing) = place.timed();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let refused = busy(now(&lock));
    assert_eq!(refused.lock_path, place.record());
    let holder = refused.holder.unwrap();
    assert_eq!(holder.pid.get(), other.pid());
    let texts = [holder.role, holder.purpose].map(Option::unwrap);
    assert_eq!(texts, ["child", "obey"]);
    assert!(holder.acquired_at_ms.unwrap() > 0);
    fs::remove_file(place.record()).unwrap();
    assert_eq!(busy(now(&lock)).holder, None);
}

// C82
#[test]
fn a_holder_is_confirmed_by_two_looks_at_least_a_poll_apart() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let unconfirmed = BusyReason::Kernel(Attribution::Unconfirmed);
    let confirmed = BusyReason::Kernel(Attribution::Confirmed);
    assert_eq!(busy(now(&lock)).reason, unconfirmed);
    timing.advance(24);
    assert_eq!(busy(now(&lock)).reason, unconfirmed);
    timing.advance(1);
    assert_eq!(busy(now(&lock)).reason, confirmed);
    // Another hold of the same process is another one.
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(busy(now(&lock)).reason, unconfirmed);
    timing.advance(25);
    assert_eq!(busy(now(&lock)).reason, confirmed);
    // What was seen before a grant of our own says nothing, also if the same lies there again.
    let plate = fs::read(place.record()).unwrap();
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    now(&lock).unwrap().release().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    fs::write(place.record(), plate).unwrap();
    assert_eq!(busy(now(&lock)).reason, unconfirmed);
    // A name plate of somebody else than the one whom the kernel names.
    let mut third = Writer::start(&place);
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert_eq!(third.does("acquire 0"), "granted depth=1");
    let plate = fs::read_to_string(place.record()).unwrap();
    other.kill();
    let forged = plate.replace(
        &format!("\"pid\":{},", third.pid()),
        &format!("\"pid\":{},", std::os::unix::process::parent_id()),
    );
    let unsummed = forged.split(",\"identity\"").next().unwrap();
    fs::write(place.record(), format!("{:<1024}", format!("{unsummed}}}"))).unwrap();
    for _look in 0..2 {
        let refused = busy(now(&lock));
        assert_eq!(refused.reason, unconfirmed);
        assert_eq!(refused.locked_by.map(|pid| pid.get()), Some(third.pid()));
        timing.advance(25);
    }
}

// C84, C95
#[test]
fn a_hold_of_a_day_is_not_broken() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    for _hour in 0..24 {
        timing.advance(3_600_000);
        busy(now(&lock));
    }
    assert_eq!(other.does("check"), "Some(Ok(()))");
}
