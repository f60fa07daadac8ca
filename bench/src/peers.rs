//! What else is used for exclusion by name within a process. None has a term, a fence or a receipt.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::rounds::{Walk, Work};

/// A cycle of give and take over random names.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    names: Vec<String>,
    walk: Walk,
    cycle: Box<dyn Fn(&str) + Send + Sync>,
}

impl Work for Peer {
    fn run(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            (self.cycle)(&self.names[at]);
        }
    }
}

impl Peer {
    fn new(
        name: &'static str,
        names: &[String],
        cycle: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            names: names.to_vec(),
            walk: Walk::new(),
            cycle: Box::new(cycle),
        }
    }

    /// Does `count` cycles in two threads.
    pub(crate) fn run_in_two(&self, count: u64) {
        let half = || {
            let mut walk = Walk::new();
            for _ in 0..count / 2 {
                (self.cycle)(&self.names[walk.next(self.names.len())]);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(half);
            }
        });
    }
}

/// Every peer, over these names.
pub(crate) fn all(names: &[String]) -> Vec<Peer> {
    vec![
        mutex_map(names),
        dashmap(names),
        keyed_lock(names),
        semaphores(names),
    ]
}

/// A mutexed hash map of names.
fn mutex_map(names: &[String]) -> Peer {
    let map: Mutex<hashbrown::HashMap<String, u64>> = Mutex::default();
    map.lock()
        .extend(names.iter().map(|name| (name.clone(), 0)));
    Peer::new("parking_lot mutex, hashbrown map", names, move |name| {
        map.lock().remove(name);
        map.lock().insert(name.to_owned(), 1);
    })
}

/// A sharded hash map of names.
fn dashmap(names: &[String]) -> Peer {
    let map: dashmap::DashMap<String, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    Peer::new("dashmap", names, move |name| {
        map.remove(name);
        map.insert(name.to_owned(), 1);
    })
}

/// A lock by name.
fn keyed_lock(names: &[String]) -> Peer {
    let locks: keyed_lock::sync::KeyedLock<String> = keyed_lock::sync::KeyedLock::new();
    Peer::new("keyed-lock", names, move |name| {
        drop(std::hint::black_box(locks.lock(name.to_owned())))
    })
}

/// A semaphore by name in a mutexed map.
fn semaphores(names: &[String]) -> Peer {
    let map: Mutex<hashbrown::HashMap<String, Arc<tokio::sync::Semaphore>>> = Mutex::default();
    Peer::new("tokio semaphores in a mutexed map", names, move |name| {
        let semaphore = Arc::clone(
            map.lock()
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(tokio::sync::Semaphore::new(1))),
        );
        drop(std::hint::black_box(semaphore.try_acquire_owned()));
    })
}
