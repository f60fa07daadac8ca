//! Forked children: they inherit descriptors and no hold.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use lease_sqlite::{AcquireError, LockOptions, Lost, Released, WriteLock};

use crate::child::told;
use crate::rig::{BOUND, Place, Writer, now, until, within};
use crate::sys::{in_child, in_cloned_child, is_running, kill};

/// What a process has open under a path's name.
fn open_there(pid: i32, path: &std::path::Path) -> Vec<PathBuf> {
    let numbers = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = numbers.filter_map(|number| fs::read_link(number.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(path)).collect()
}

/// A lock whose waiters wait for a sign, and no time that ends within the bound.
fn deaf(place: &Place) -> WriteLock {
    let never = BOUND.saturating_mul(100);
    let options = LockOptions::new().poll(never);
    options.open(place.database()).unwrap()
}

#[test]
fn a_forked_child_closes_gate_and_record_and_a_program_has_nothing_at_all() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    // Its own record, and the gate.
    assert_eq!(open_there(other.pid(), &place.record()).len(), 2);
    let child: i32 = other.does("fork").parse().unwrap();
    let program: i32 = other.does("spawn").parse().unwrap();
    until("the child has closed both", || {
        open_there(child, &place.record()).is_empty()
    });
    until("the program runs", || {
        fs::read_to_string(format!("/proc/{program}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    assert!(open_there(program, &place.directory).is_empty());
    // Whoever waits is woken by the death, and whoever comes then need not wait.
    let lock = deaf(&place);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
        until("it is seen", || lock.last_writer().is_some());
        other.kill();
        waiter.join().unwrap().unwrap();
    });
    let hold = deaf(&place).acquire(within(BOUND)).unwrap();
    assert!(!hold.granted().contended);
    assert!(is_running(child) && is_running(program));
    kill(child);
    kill(program);
}

#[test]
fn a_cloned_child_keeps_the_gate_and_nobody_out() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let child: i32 = other.does("clone").parse().unwrap();
    assert_eq!(open_there(child, &place.record()).len(), 2);
    other.kill();
    for lock in [place.lock(), place.lock()] {
        let hold = lock.acquire(within(BOUND)).unwrap();
        hold.check().unwrap();
        hold.release().unwrap();
        now(&lock).unwrap().release().unwrap();
    }
    assert!(is_running(child));
    kill(child);
}

#[test]
fn what_a_cloned_child_inherits_is_inert_and_the_parent_holds_on() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let mut inherited = Some(now(&lock).unwrap());
    let failed = in_cloned_child(|| {
        assert!(matches!(hold.check(), Err(Lost::Forked)));
        assert!(matches!(now(&lock), Err(AcquireError::Forked { .. })));
        let released = inherited.take().unwrap().release().unwrap();
        assert_eq!(released, Released::Inherited);
    });
    assert!(!failed);
    // Only now: no other thread may be in the heap when the heap is not made sound for a child.
    let mut other = Writer::start(&place);
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    drop((hold, inherited));
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

// S36, C7
#[test]
fn a_child_that_outlives_a_killed_holder_keeps_nobody_out() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let child: i32 = other.does("fork").parse().unwrap();
    let busy = told(&now(&lock));
    let named = format!("holder=Some({0}) locked_by=Some({0})", other.pid());
    assert!(busy.starts_with("busy") && busy.ends_with(&named), "{busy}");
    let last = lock.last_writer();
    other.kill();
    until("the lock is free", || now(&lock).is_ok());
    assert!(is_running(child));
    assert_eq!(last.unwrap().pid.get(), other.pid());
    let hold = now(&lock).unwrap();
    let granted = hold.granted();
    assert!(granted.waited.is_zero() && !granted.contended);
    assert_ne!(lock.last_writer().unwrap().pid.get(), other.pid());
    hold.release().unwrap();
    let health = lock.health();
    assert!(
        health.last_writer.is_some() && health.depth == 0,
        "a name plate is no hold"
    );
    kill(child);
}

#[test]
fn a_release_takes_effect_while_a_forked_child_lives() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let child: i32 = other.does("fork").parse().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        waiter.join().unwrap().unwrap();
    });
    assert!(is_running(child));
    kill(child);
}

#[test]
fn what_a_child_inherits_is_inert_and_the_parent_holds_on() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    let mut inherited = Some(now(&lock).unwrap());
    let failed = in_child(|| {
        assert!(matches!(hold.check(), Err(Lost::Forked)));
        assert!(matches!(now(&lock), Err(AcquireError::Forked { .. })));
        assert!(hold.again().is_err());
        let released = inherited.take().unwrap().release().unwrap();
        assert_eq!(released, Released::Inherited);
        // What the child opens itself is its own, and the parent holds.
        let own = place.lock();
        assert!(matches!(now(&own), Err(AcquireError::Busy(_))));
    });
    assert!(!failed);
    hold.check().unwrap();
    assert_eq!(hold.granted().depth, 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    drop(inherited);
    assert_eq!(hold.release().unwrap(), Released::Lock);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

#[test]
fn a_child_that_is_forked_while_others_open_can_open() {
    let place = Place::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _thread in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(place.lock());
                }
            });
        }
        // A child that waits for a lock of a thread that it does not have is ended by the runner.
        for _child in 0..50 {
            assert!(!in_child(|| drop(place.lock())));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_child_that_ends_takes_nothing_of_its_parents_with_it() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    for _child in 0..10 {
        assert!(!in_child(|| ()));
    }
    hold.check().unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    now(&lock).unwrap().check().unwrap();
}

#[test]
fn a_child_that_is_forked_while_others_tell_can_ask() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _thread in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(hold.again().unwrap());
                }
            });
        }
        // A child that waits for a lock of a thread that it does not have is ended by the runner.
        let panics = (0..200).any(|_child| {
            in_child(|| {
                let health = lock.health();
                assert_eq!((health.locks, health.depth), (0, 0));
                assert!(health.last_writer.is_some());
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(!panics);
    });
}
