//! Lanes: who may enter a hold again, and when it ends.

use std::thread::scope;

use lease_core::{Attribution, BusyReason};
use lease_sqlite::{AcquireError, Hold, Lane, Released, WaitBudget};

use crate::rig::{BOUND, Place, Writer, now, within};

// S41, C61, C62, fault B16
#[test]
fn a_hold_ends_with_its_last_entry_in_whatever_order_they_end() {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    for order in orders {
        let mut holds: Vec<Option<Hold>> = (0..3).map(|_| Some(now(&lock).unwrap())).collect();
        let depths: Vec<u32> = holds
            .iter()
            .flatten()
            .map(|hold| hold.granted().depth)
            .collect();
        assert_eq!(depths, [1, 2, 3]);
        for (step, which) in order.into_iter().enumerate() {
            let elsewhere = scope(|scope| scope.spawn(|| now(&lock).is_err()).join().unwrap());
            assert!(elsewhere, "another thread is kept out");
            assert!(
                other.does("acquire 0").starts_with("busy"),
                "{order:?}, step {step}"
            );
            let released = holds[which].take().unwrap().release().unwrap();
            let left = u32::try_from(2 - step).unwrap();
            let expected = if left == 0 {
                Released::Lock
            } else {
                Released::Depth(left)
            };
            assert_eq!(released, expected);
        }
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
}

#[test]
fn an_entry_into_ones_own_hold_waits_for_nothing_and_writes_nothing() {
    let place = Place::new();
    let lock = place.lock();
    let first = now(&lock).unwrap();
    let record = std::fs::read(place.record()).unwrap();
    std::fs::remove_dir_all(&place.directory).unwrap();
    for (budget, depth) in [
        (WaitBudget::NOW, 2),
        (within(BOUND), 3),
        (WaitBudget::Forever, 4),
    ] {
        let hold = Box::leak(Box::new(lock.acquire(budget).unwrap()));
        let granted = hold.granted();
        assert_eq!(granted.depth, depth);
        assert!(granted.waited.is_zero() && !granted.contended);
        assert_eq!(granted.token, first.granted().token);
        assert_eq!((granted.adopted, granted.reopened), (None, 0));
    }
    assert!(!place.record().exists());
    assert!(
        String::from_utf8(record)
            .unwrap()
            .contains(&*first.granted().token)
    );
}

// C64
#[test]
fn threads_of_one_process_exclude_each_other_and_are_named() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let own = lock.last_writer().unwrap().pid;
    scope(|scope| {
        scope.spawn(|| {
            let Err(AcquireError::Busy(busy)) = now(&lock) else {
                panic!("not busy");
            };
            assert_eq!(busy.reason, BusyReason::Kernel(Attribution::Confirmed));
            assert_eq!(busy.holder.unwrap().pid, own);
            assert_eq!(busy.locked_by, None);
        });
    });
    hold.release().unwrap();
    scope(|scope| {
        scope.spawn(|| now(&lock).unwrap().release().unwrap());
    });
}

#[test]
fn a_lane_is_whoever_has_it_and_a_hold_is_proof_enough() {
    let place = Place::new();
    let lock = place.lock();
    let lane = Lane::new();
    let hold = lock.acquire_on(&lane, WaitBudget::NOW).unwrap();
    assert!(now(&lock).is_err(), "this thread is another lane");
    scope(|scope| {
        scope.spawn(|| {
            let second = lock.acquire_on(&lane.clone(), WaitBudget::NOW).unwrap();
            assert_eq!(second.granted().depth, 2);
            let third = hold.again().unwrap();
            assert_eq!(third.granted().depth, 3);
            assert_eq!(third.granted().token, hold.granted().token);
        });
    });
    assert_eq!(hold.release().unwrap(), Released::Lock);
    assert!(now(&lock).is_ok());
}

#[test]
fn a_thread_waits_for_another_one_of_its_process() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
        hold.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_hold_that_moved_is_still_one_of_the_thread_that_took_it() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    scope(|scope| {
        let there = scope.spawn(|| (hold.granted().depth, now(&lock).is_err(), hold));
        let (depth, is_refused, hold) = there.join().unwrap();
        assert!(is_refused, "that thread has a lane of its own");
        assert_eq!((depth, now(&lock).unwrap().granted().depth), (1, 2));
        drop(hold);
    });
    let hold = lock.acquire_on(&Lane::new(), WaitBudget::NOW).unwrap();
    assert!(now(&lock).is_err(), "a lane of its own is nobody's");
    hold.release().unwrap();
}

#[cfg(feature = "legacy-v1")]
#[test]
fn an_entry_tells_nothing_of_what_the_first_one_met() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    now(&lock).unwrap().release().unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let (record, mutex) = (place.record(), place.mutex());
    timing.at(30, move || {
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        std::fs::remove_file(&mutex).unwrap();
        std::fs::remove_file(&record).unwrap();
        // A dead claim of protocol 1: nobody has such a number.
        std::fs::write(&record, "{\"pid\":4194303,\"created_at_ms\":5}").unwrap();
    });
    let hold = lock.acquire(within(BOUND)).unwrap();
    let first = hold.granted();
    assert!(first.contended && !first.waited.is_zero() && first.reopened == 1);
    assert!(first.adopted.is_some() && first.reaped.is_some());
    for entry in [hold.again().unwrap(), now(&lock).unwrap()] {
        let next = entry.granted();
        assert_eq!((next.token, next.depth > 1), (first.token, true));
        assert!(!next.contended && next.waited.is_zero() && next.reopened == 0);
        assert!(next.adopted.is_none() && next.reaped.is_none());
    }
}
