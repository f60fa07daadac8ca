//! What a hold costs in memory.

mod sys;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lease_core::Code;
use lease_sqlite::LockOptions;

use crate::rig::{Place, now};

#[test]
fn a_hold_on_a_warm_handle_allocates_nothing() {
    let place = Place::new();
    let heard = Arc::new(AtomicU64::new(0));
    let ear = Arc::clone(&heard);
    let options = LockOptions::new().role("writer").label("a \"label\"");
    let observed = options.observer(move |event| {
        if event.code() == Code::Released {
            ear.fetch_add(1, Ordering::Relaxed);
        }
    });
    let lock = observed.open(place.database()).unwrap();
    for _warm in 0..3 {
        now(&lock).unwrap().release().unwrap();
    }
    let before = sys::allocations();
    for _pair in 0..100 {
        let hold = now(&lock).unwrap();
        hold.check().unwrap();
        hold.release().unwrap();
    }
    assert_eq!(sys::allocations() - before, 0, "for 100 pairs");
    assert_eq!(heard.load(Ordering::Relaxed), 103);
}

#[test]
fn an_entry_into_ones_own_hold_allocates_nothing() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let before = sys::allocations();
    for _entry in 0..100 {
        now(&lock).unwrap().release().unwrap();
        hold.again().unwrap().release().unwrap();
    }
    assert_eq!(sys::allocations() - before, 0, "for 200 entries");
    drop(hold);
}
