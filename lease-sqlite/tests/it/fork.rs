//! Forked children: they inherit descriptors and no hold.

use lease_sqlite::{AcquireError, Lost, Released};

use crate::child::told;
use crate::rig::{Place, Writer, now, until, within};
use crate::sys::{in_child, is_running, kill};

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
        let waiter = scope.spawn(|| lock.acquire(within(crate::rig::BOUND)).map(drop));
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
