//! Many threads: as if one call came after another.

use core::pin::Pin;
use core::task::Poll;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lease_async::{
    AcquireError, AcquireFuture, LeaseGuard, Leases, ManualClock, Memory, Moment, Operation,
    Session, SessionHolder, Standing,
};
use lease_core::{Code, Disposition, FenceGate, Receipt};
use tokio::runtime::Builder;

use crate::replay::{listed, replay};
use crate::rig::{Random, Rig, T0, poll};

const THREADS: u64 = 8;
const CALLS: u64 = 10_000;
const KEYS: [&str; 12] = [
    "/a", "/a/b", "/a/c", "/d", "/e/f", "/e/g", "/h", "/i", "/j", "/k", "/l", "/m",
];

/// What one thread has in hand.
struct Hand {
    session: Option<Arc<Session>>,
    guards: Vec<LeaseGuard>,
    operations: Vec<Operation>,
    waits: Vec<Pin<Box<AcquireFuture<SessionHolder>>>>,
    random: Random,
}

impl Hand {
    async fn step(&mut self, rig: &Rig<ManualClock>, shared: &[Arc<Session>]) {
        let session = match self.random.below(4) {
            0 => self.random.pick(shared),
            _ => self.session.as_ref().unwrap(),
        };
        match self.random.below(16) {
            0..=3 => {
                let key = *self.random.pick(&KEYS);
                if let Ok(guard) = session.acquire(key).await {
                    self.guards.push(guard);
                }
            }
            4 => rig
                .clock
                .advance(Duration::from_millis(self.random.below(200))),
            5 if self.operations.len() < 8 => {
                if let Some(guard) = self.guards.last()
                    && let Ok(operation) = guard.begin().await
                {
                    self.operations.push(operation);
                }
            }
            6 => self.end().await,
            7 => {
                if let Some(guard) = self.guards.first() {
                    drop(guard.touch().await);
                }
            }
            8 | 9 => drop(self.guards.pop()),
            10 => {
                if !self.guards.is_empty() {
                    drop(self.guards.remove(0).release().await);
                }
            }
            11 | 12 if self.waits.len() < 3 => {
                let span = Duration::from_millis(self.random.below(500));
                let request = session.acquire(*self.random.pick(&KEYS)).within(span);
                self.waits.push(Box::pin(request.into_future()));
                self.look();
            }
            13 => self.look(),
            // Taken back, served or not.
            14 => drop(self.waits.pop()),
            _ => {
                if self.random.below(50) == 0 {
                    self.session = Some(Arc::new(rig.connect("own")));
                }
            }
        }
        if self.guards.len() > 4 {
            self.guards.drain(..3);
        }
    }

    /// Polls what waits.
    fn look(&mut self) {
        let mut guards = Vec::new();
        self.waits
            .retain_mut(|request| match poll(request.as_mut()) {
                Poll::Ready(answer) => {
                    guards.extend(answer);
                    false
                }
                Poll::Pending => true,
            });
        self.guards.extend(guards);
    }

    async fn end(&mut self) {
        let Some(operation) = self.operations.pop() else {
            return;
        };
        match self.random.below(4) {
            0 => drop(operation.fail(Disposition::PreMutation).await),
            1 => drop(operation.fail(Disposition::RolledBack).await),
            2 => drop(operation),
            _ => drop(operation.end().await),
        }
    }
}

// X13
#[test]
fn the_numbered_receipts_of_eight_threads_replay_to_what_is_held() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let mut rig = Rig::keeping(1 << 18, clock, |memory| Leases::new(memory).unwrap());
    let shared = [Arc::new(rig.connect("s")), Arc::new(rig.connect("s"))];
    let left: Vec<Hand> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for seed in 1..=THREADS {
            let (rig, shared) = (&rig, &shared);
            threads.push(scope.spawn(move || {
                let mut hand = Hand {
                    session: Some(Arc::new(rig.connect("own"))),
                    guards: Vec::new(),
                    operations: Vec::new(),
                    waits: Vec::new(),
                    random: Random(seed),
                };
                let runtime = Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    for _ in 0..CALLS {
                        hand.step(rig, shared).await;
                    }
                });
                hand
            }));
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let list = rig.memory.list();
    let receipts: Vec<Receipt<_>> = rig
        .receipts()
        .iter()
        .map(|receipt| Receipt::clone(receipt))
        .collect();
    let numbers = |pair: &[Receipt<_>]| pair[0].change.seq < pair[1].change.seq;
    assert!(receipts.len() > 10_000, "{} receipts", receipts.len());
    assert!(receipts.windows(2).all(numbers));
    assert_eq!(replay(&receipts), listed(&list));
    // All that was meant to happen did.
    for code in [
        Code::Created,
        Code::Reentrant,
        Code::Released,
        Code::ReleasedAfterFailure,
        Code::RetainedAfterFailure,
        Code::Disconnected,
        Code::Reclaimed,
        Code::Queued,
        Code::WaitTimedOut,
        Code::Abandoned,
    ] {
        let times = receipts
            .iter()
            .filter(|receipt| receipt.change.code == code);
        assert!(times.count() > 10, "{code}");
    }
    // What is left in hand frees all of it, and nothing stays behind.
    drop(left);
    drop(shared);
    rig.assert_empty();
}

/// Who is inside, as the resource itself sees it.
#[derive(Default)]
struct Inside {
    gate: FenceGate,
    /// Which session, and how many of its guards.
    who: Option<(usize, usize)>,
}

/// Enters with a guard, and leaves when dropped: before the guard.
struct Visit<'a> {
    inside: &'a Mutex<Inside>,
    session: usize,
}

impl<'a> Visit<'a> {
    fn new(inside: &'a Mutex<Inside>, session: usize, guard: &LeaseGuard) -> Self {
        let mut now = inside.lock().unwrap();
        now.gate.enter(&guard.token()).unwrap();
        let (who, count) = now.who.unwrap_or((session, 0));
        assert_eq!(who, session, "two sessions are inside");
        now.who = Some((session, count + 1));
        drop(now);
        Self { inside, session }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut now = self.inside.lock().unwrap();
        now.who = match now.who {
            Some((who, 1)) if who == self.session => None,
            Some((who, count)) => Some((who, count - 1)),
            None => None,
        };
    }
}

/// One task: it waits, enters, works, and goes in one of several ways.
async fn visit(sessions: &[Session], resources: &[Mutex<Inside>], mut random: Random) {
    for _ in 0..500 {
        let session = usize::try_from(random.below(4)).unwrap();
        let resource = usize::try_from(random.below(2)).unwrap();
        let key = ["/x", "/y"][resource];
        let request = sessions[session].acquire(key).forever().into_future();
        let guard = if random.below(4) == 0 {
            // Dropped in the middle of its wait, or served.
            let mut request = Box::pin(request);
            let once = core::future::poll_fn(|cx| match request.as_mut().poll(cx) {
                Poll::Ready(guard) => Poll::Ready(Some(guard)),
                Poll::Pending => Poll::Ready(None),
            });
            match once.await {
                Some(guard) => guard.unwrap(),
                None => continue,
            }
        } else {
            request.await.unwrap()
        };
        let visit = Visit::new(&resources[resource], session, &guard);
        assert_eq!(guard.standing(), Standing::Safe);
        if random.below(2) == 0 {
            tokio::task::yield_now().await;
        }
        if random.below(2) == 0 {
            let operation = guard.begin().await.unwrap();
            tokio::task::yield_now().await;
            operation.end().await.unwrap();
        }
        drop(visit);
        match random.below(2) {
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
}

// X1
#[test]
fn tasks_on_several_threads_that_come_and_go_never_meet() {
    for listened in [false, true] {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let memory = Memory::builder().clock(clock).build().unwrap();
        let leases = Leases::new(memory.clone()).unwrap();
        let events = listened.then(|| leases.events());
        let connect = |_| leases.connect("s").unwrap();
        let sessions: Arc<[Session]> = (0..4).map(connect).collect();
        come_and_go(&sessions);
        drop((sessions, events));
        assert_eq!(memory.list(), []);
        assert_eq!((memory.footprint(), leases.known()), ((0, 0), 0));
    }
}

/// Sixteen tasks on four threads.
fn come_and_go(sessions: &Arc<[Session]>) {
    let resources: Arc<[Mutex<Inside>]> = (0..2).map(|_| Mutex::default()).collect();
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for seed in 1..=16 {
            let (sessions, resources) = (Arc::clone(sessions), Arc::clone(&resources));
            tasks.push(tokio::spawn(async move {
                visit(&sessions, &resources, Random(seed)).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// One connection after another, each with two tasks that ask, and gone in the middle of it.
async fn connect_and_go(leases: &Leases, gate: &Arc<Mutex<FenceGate>>, mut random: Random) {
    for _ in 0..200 {
        let session = leases.connect("s").unwrap();
        let tasks = [(), ()].map(|()| {
            let request = session.acquire("/x").forever().into_future();
            let gate = Arc::clone(gate);
            tokio::spawn(async move {
                let guard = match request.await {
                    Ok(guard) => guard,
                    Err(AcquireError::SessionGone) => return,
                    Err(error) => panic!("{error}"),
                };
                let turned_away = gate.lock().unwrap().enter(&guard.token()).is_err();
                // Its successor was there before, so it is known.
                assert!(!turned_away || matches!(guard.standing(), Standing::Lost(_)));
                tokio::task::yield_now().await;
            })
        });
        for _ in 0..random.below(4) {
            tokio::task::yield_now().await;
        }
        drop(session);
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[test]
fn whoever_is_turned_away_after_its_disconnect_knows_that_it_has_lost() {
    let memory = Memory::new().unwrap();
    let leases = Leases::new(memory.clone()).unwrap();
    let gate = Arc::new(Mutex::new(FenceGate::default()));
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for seed in 1..=8 {
            let (leases, gate) = (leases.clone(), Arc::clone(&gate));
            tasks.push(tokio::spawn(async move {
                connect_and_go(&leases, &gate, Random(seed)).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(memory.list(), []);
    assert_eq!((memory.footprint(), leases.known()), ((0, 0), 0));
}
