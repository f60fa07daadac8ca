//! Guards in a process: taken and dropped by one task, and passed from task to task.

use std::sync::Arc;

use lease_async::{LeaseGuard, Leases, Memory, ResourceKey, Session};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Semaphore};

use crate::report::{Calls, Row};
use crate::rounds::{Work, allocations, least};

type Semaphores = parking_lot::Mutex<hashbrown::HashMap<String, Arc<Semaphore>>>;

const NAME: &str = "app/viewport";

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn key() -> ResourceKey {
    ResourceKey::new(NAME).expect("a sound key")
}

fn leases() -> Leases {
    Leases::new(Memory::new().expect("randomness")).expect("a sound policy")
}

fn connect(leases: &Leases) -> Session {
    leases.connect("agent").expect("a sound name")
}

/// The semaphore of one name, as a program keeps it that locks by name.
fn semaphore(map: &Semaphores) -> Arc<Semaphore> {
    let mut map = map.lock();
    let new = || Arc::new(Semaphore::new(1));
    Arc::clone(map.entry(NAME.to_owned()).or_insert_with(new))
}

/// Does something so many times in a runtime.
fn again<F: Future>(runtime: &Runtime, count: u64, work: impl Fn() -> F) {
    runtime.block_on(async {
        for _ in 0..count {
            drop(std::hint::black_box(work().await));
        }
    });
}

fn row(name: &str, ours: f64, floor: Option<f64>, goal: Option<f64>) -> Row {
    Row {
        name: name.to_owned(),
        ours,
        floor,
        goal,
        unit: "ns",
        allocations: None,
        calls: Calls::NotCounted,
        peers: Vec::new(),
    }
}

/// A guard of a free resource, and what its holder does with it.
pub(crate) fn alone() -> Vec<Row> {
    let mut rows = vec![taken_and_dropped()];
    rows.extend(held());
    rows
}

fn taken_and_dropped() -> Row {
    let runtime = runtime();
    let (leases, key, map) = (leases(), key(), Semaphores::default());
    let session = connect(&leases);
    let mut floor = |count| {
        again(&runtime, count, || async {
            semaphore(&map).acquire_owned().await.expect("it is open")
        });
    };
    let mut ours = |count| {
        again(&runtime, count, || async {
            session.acquire(&key).await.expect("it is free")
        });
    };
    let mutex = Mutex::new(());
    let mut mutexes = |count| again(&runtime, count, || mutex.lock());
    let locks: keyed_lock::r#async::KeyedLock<String> = keyed_lock::r#async::KeyedLock::new();
    let mut keyed = |count| again(&runtime, count, || locks.lock(NAME.to_owned()));
    let map_of_mutexes: dashmap::DashMap<String, Arc<Mutex<()>>> = dashmap::DashMap::new();
    let mut sharded = |count| {
        again(&runtime, count, || async {
            let mutex = Arc::clone(&map_of_mutexes.entry(NAME.to_owned()).or_default());
            mutex.lock_owned().await
        });
    };
    let mut works: [&mut dyn Work; 5] = [
        &mut floor,
        &mut ours,
        &mut mutexes,
        &mut keyed,
        &mut sharded,
    ];
    let figures = least(60_000, &mut works);
    Row {
        allocations: Some(allocations(10_000, &mut ours)),
        peers: vec![
            ("one tokio mutex", figures[2]),
            ("keyed-lock, async", figures[3]),
            ("tokio mutexes in a dashmap", figures[4]),
        ],
        ..row(
            "a4 guard taken and dropped, floor: tokio semaphores in a mutexed map",
            figures[1],
            Some(figures[0]),
            Some(1.5),
        )
    }
}

fn held() -> Vec<Row> {
    let runtime = runtime();
    let leases = leases();
    let session = connect(&leases);
    let guard = runtime
        .block_on(session.acquire(key()).into_future())
        .expect("it is free");
    let guard: &LeaseGuard = &guard;
    let mut touch = |count| again(&runtime, count, || guard.touch());
    let mut operation = |count| {
        again(&runtime, count, || async {
            let operation = guard.begin().await.expect("it is held");
            operation.end().await.expect("it is held")
        });
    };
    let mut standing = |count| again(&runtime, count, || async { guard.standing() });
    let mut works: [&mut dyn Work; 3] = [&mut touch, &mut operation, &mut standing];
    let figures = least(60_000, &mut works);
    let counted = [
        allocations(10_000, &mut touch),
        allocations(10_000, &mut operation),
        allocations(10_000, &mut standing),
    ];
    ["touch", "begin + end", "standing"]
        .iter()
        .zip(figures)
        .zip(counted)
        .map(|((verb, figure), counted)| Row {
            allocations: Some(counted),
            ..row(&format!("a4 guard, {verb}"), figure, None, None)
        })
        .collect()
}

/// From one task to the next, which waits already.
pub(crate) fn handed_over() -> Vec<Row> {
    let two = || {
        Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .expect("a runtime")
    };
    let mut rows = Vec::new();
    for (about, runtime) in [("one thread", runtime()), ("two workers", two())] {
        let mutex = Arc::new(Mutex::new(()));
        let mut floor = |count: u64| {
            let turns = |_: u64| {
                let mutex = Arc::clone(&mutex);
                async move {
                    for _ in 0..count / 2 {
                        let guard = mutex.lock().await;
                        tokio::task::yield_now().await;
                        drop(guard);
                    }
                }
            };
            in_two_tasks(&runtime, turns);
        };
        let (leases, key) = (leases(), key());
        let mut ours = |count: u64| {
            let turns = |_: u64| {
                let (session, key) = (connect(&leases), key.clone());
                async move {
                    for _ in 0..count / 2 {
                        let guard = session.acquire(&key).forever().await;
                        let guard = guard.expect("its turn comes");
                        tokio::task::yield_now().await;
                        drop(guard);
                    }
                }
            };
            in_two_tasks(&runtime, turns);
        };
        let figures = least(60_000, &mut [&mut floor, &mut ours]);
        let name = format!("a4 hand-over task to task, {about}, floor: tokio mutex");
        rows.push(Row {
            allocations: Some(allocations(10_000, &mut ours)),
            ..row(&name, figures[1], Some(figures[0]), Some(2.0))
        });
    }
    rows
}

fn in_two_tasks<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    turns: impl Fn(u64) -> F,
) {
    runtime.block_on(async {
        for task in [0, 1].map(|which| tokio::spawn(turns(which))) {
            task.await.expect("it does not panic");
        }
    });
}
