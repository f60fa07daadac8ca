//! What else is used for exclusion by name within a process. None has a term, a fence or a receipt.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::rounds::{Walk, Work};

/// Runs a cycle of give and take over random names.
struct Named<F> {
    names: Vec<String>,
    walk: Walk,
    cycle: F,
}

impl<F: FnMut(&str)> Work for Named<F> {
    fn run(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            (self.cycle)(&self.names[at]);
        }
    }
}

fn named(names: &[String], cycle: impl FnMut(&str) + 'static) -> Box<dyn Work> {
    Box::new(Named {
        names: names.to_vec(),
        walk: Walk::new(),
        cycle,
    })
}

/// A mutexed hash map of names.
pub(crate) fn mutex_map(names: &[String]) -> Box<dyn Work> {
    let map: Mutex<hashbrown::HashMap<String, u64>> = Mutex::default();
    map.lock()
        .extend(names.iter().map(|name| (name.clone(), 0)));
    named(names, move |name| {
        map.lock().remove(name);
        map.lock().insert(name.to_owned(), 1);
    })
}

/// A sharded hash map of names.
pub(crate) fn dashmap(names: &[String]) -> Box<dyn Work> {
    let map: dashmap::DashMap<String, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    named(names, move |name| {
        map.remove(name);
        map.insert(name.to_owned(), 1);
    })
}

/// A lock by name.
pub(crate) fn keyed_lock(names: &[String]) -> Box<dyn Work> {
    let locks: keyed_lock::sync::KeyedLock<String> = keyed_lock::sync::KeyedLock::new();
    named(names, move |name| {
        drop(std::hint::black_box(locks.lock(name.to_owned())))
    })
}

/// A semaphore by name in a mutexed map.
pub(crate) fn semaphores(names: &[String]) -> Box<dyn Work> {
    let map: Mutex<hashbrown::HashMap<String, Arc<tokio::sync::Semaphore>>> = Mutex::default();
    named(names, move |name| {
        let semaphore = Arc::clone(
            map.lock()
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(tokio::sync::Semaphore::new(1))),
        );
        drop(std::hint::black_box(semaphore.try_acquire_owned()));
    })
}
