//! Guards in a process: taken and dropped by one task, and passed from task to task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lease_async::{LeaseGuard, Leases, Memory, ResourceKey, Session};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

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

/// A permit of one name. The name goes with its last user, as a released lease leaves none.
struct Passing<'a> {
    map: &'a Semaphores,
    permit: Option<OwnedSemaphorePermit>,
}

impl<'a> Passing<'a> {
    async fn acquire(map: &'a Semaphores) -> Self {
        let permit = semaphore(map).acquire_owned().await;
        Self {
            map,
            permit: Some(permit.expect("it is open")),
        }
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut map = self.map.lock();
        if let hashbrown::hash_map::EntryRef::Occupied(entry) = map.entry_ref(NAME)
            && Arc::strong_count(entry.get()) == 1
        {
            entry.remove();
        }
    }
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
    let mut rows = Vec::from(taken_and_dropped());
    rows.extend(held());
    rows
}

fn taken_and_dropped() -> [Row; 2] {
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
    let freed = Semaphores::default();
    let mut passing = |count| again(&runtime, count, || Passing::acquire(&freed));
    let mut works: [&mut dyn Work; 6] = [
        &mut floor,
        &mut ours,
        &mut passing,
        &mut mutexes,
        &mut keyed,
        &mut sharded,
    ];
    let figures = least(60_000, &mut works);
    let counted = allocations(10_000, &mut ours);
    let name = "a4 guard taken and dropped, floor: tokio semaphores in a mutexed map";
    let named = |name: &str, floor| Row {
        allocations: Some(counted),
        ..row(name, figures[1], Some(floor), Some(1.5))
    };
    [
        Row {
            peers: vec![
                ("one tokio mutex", figures[3]),
                ("keyed-lock, async", figures[4]),
                ("tokio mutexes in a dashmap", figures[5]),
            ],
            ..named(&format!("{name}, kept for ever"), figures[0])
        },
        named(&format!("{name}, freed by their last user"), figures[2]),
    ]
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

/// From one to the next, who waits already.
pub(crate) fn handed_over() -> Vec<Row> {
    let two = Builder::new_multi_thread().worker_threads(2).build();
    let two = two.expect("a runtime");
    [
        ("task to task, one thread", Stage::Tasks(runtime())),
        ("task to task, two workers", Stage::Tasks(two)),
        ("thread to thread", Stage::Threads),
    ]
    .into_iter()
    .map(|(about, stage)| handed_over_on(about, &stage))
    .collect()
}

fn handed_over_on(about: &str, stage: &Stage) -> Row {
    let mutex = Arc::new(Mutex::new(()));
    let mut floor = |count: u64| {
        let turns = Arc::new(Turns::new(count));
        stage.play(|| {
            let (mutex, turns) = (Arc::clone(&mutex), Arc::clone(&turns));
            async move {
                for _ in 0..count / 2 {
                    let guard = turns.wait(mutex.lock()).await;
                    turns.hold_until_asked_for().await;
                    drop(guard);
                }
            }
        });
    };
    let (leases, key) = (leases(), key());
    let mut ours = |count: u64| {
        let turns = Arc::new(Turns::new(count));
        stage.play(|| {
            let (session, key) = (connect(&leases), key.clone());
            let turns = Arc::clone(&turns);
            async move {
                for _ in 0..count / 2 {
                    let guard = turns.wait(session.acquire(&key).forever()).await;
                    let guard = guard.expect("its turn comes");
                    turns.hold_until_asked_for().await;
                    drop(guard);
                }
            }
        });
    };
    let figures = least(60_000, &mut [&mut floor, &mut ours]);
    let name = format!("a4 hand-over {about}, floor: tokio mutex");
    Row {
        allocations: Some(allocations(10_000, &mut ours)),
        ..row(&name, figures[1], Some(figures[0]), Some(2.0))
    }
}

/// Sees to it that every turn but the last is passed on: whoever is alone passes nothing on.
struct Turns {
    total: u64,
    asked: AtomicU64,
    granted: AtomicU64,
}

impl Turns {
    /// `total` is even: two have half of them each.
    fn new(total: u64) -> Self {
        Self {
            total: total / 2 * 2,
            asked: AtomicU64::new(0),
            granted: AtomicU64::new(0),
        }
    }

    /// Waits, and tells as soon as it stands in line.
    async fn wait<T: IntoFuture>(&self, turn: T) -> T::Output {
        let mut turn = std::pin::pin!(turn.into_future());
        let mut has_asked = false;
        std::future::poll_fn(|context| {
            let polled = turn.as_mut().poll(context);
            if !std::mem::replace(&mut has_asked, true) {
                self.asked.fetch_add(1, Ordering::Relaxed);
            }
            polled
        })
        .await
    }

    async fn hold_until_asked_for(&self) {
        let granted = self.granted.fetch_add(1, Ordering::Relaxed) + 1;
        let enough = self.total.min(granted + 1);
        loop {
            tokio::task::yield_now().await;
            if self.asked.load(Ordering::Relaxed) >= enough {
                return;
            }
        }
    }
}

/// Where the two are that pass something on.
enum Stage {
    /// Two tasks of a runtime.
    Tasks(Runtime),
    /// A thread for each, with a runtime of its own.
    Threads,
}

impl Stage {
    fn play<F: Future<Output = ()> + Send + 'static>(&self, turns: impl Fn() -> F + Sync) {
        match self {
            Self::Tasks(runtime) => runtime.block_on(async {
                for task in [turns(), turns()].map(tokio::spawn) {
                    task.await.expect("it does not panic");
                }
            }),
            Self::Threads => std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| runtime().block_on(turns()));
                }
            }),
        }
    }
}
