//! An authority far away: what it answers comes late, in another order, as an error or not at all, and so do its
//! receipts. Everything at random, and but for renewals on one thread.
//!
//! `LEASE_REMOTE_SEEDS` and `LEASE_REMOTE_FIRST` say how often and from where on.

use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use lease_async::{
    Authority, AuthorityError, BoxFuture, Event, EventSource, Events, LeaseGuard, Leases,
    ManualClock, Memory, Moment, Reply, Session, SessionHolder, Standing, SystemClock,
};
use lease_core::{
    Action, AdoptProof, Call, Clock as _, Disposition, Generation, LeaseId, Receipt, Receipts,
    ResourceKey, Wait,
};
use tokio_util::sync::CancellationToken;

use crate::passing_on::passes_on;
use crate::rig::{Random, SOON, T0, TTL, Undelivered, ordered, poll};

const KEYS: [&str; 3] = ["a", "a/b", "c"];

/// What the world does to calls and receipts.
struct Net {
    random: Random,
    /// Those who wait for it.
    parked: Vec<Waker>,
    /// Receipts on their way.
    receipts: VecDeque<Receipt<SessionHolder>>,
    listening: Events<SessionHolder>,
    /// From now on all goes well.
    calm: bool,
    errors: bool,
}

struct Far {
    memory: Memory,
    told: EventSource<SessionHolder>,
    net: Mutex<Net>,
}

#[derive(Clone)]
struct Line(Arc<Far>);

impl Far {
    fn chance(&self, one_in: u64) -> bool {
        let mut net = self.net.lock().unwrap();
        !net.calm && net.random.below(one_in) == 0
    }

    fn errs(&self, one_in: u64) -> bool {
        self.net.lock().unwrap().errors && self.chance(one_in)
    }

    /// Names an attempt, each differently.
    fn attempt(&self) -> LeaseId {
        let mut net = self.net.lock().unwrap();
        let drawn = [(); 2].map(|()| net.random.below(u64::MAX).to_be_bytes());
        LeaseId::from_random(drawn.concat().try_into().unwrap())
    }

    fn collect(&self) {
        let mut net = self.net.lock().unwrap();
        while let Some(event) = net.listening.try_next() {
            match event {
                Event::Receipt(receipt) => net.receipts.push_back(Receipt::clone(&receipt)),
                Event::Missed(missed) => panic!("{missed} missed"),
            }
        }
    }

    /// Some receipts arrive.
    fn tell(&self, most: usize) {
        self.collect();
        let mut net = self.net.lock().unwrap();
        let some = most.min(net.receipts.len());
        let receipts: Vec<_> = net.receipts.drain(..some).collect();
        drop(net);
        self.told.publish(Receipts::new(receipts, 0));
    }

    /// Some answers get a step further.
    fn wake(&self, all: bool) {
        let mut net = self.net.lock().unwrap();
        let mut woken = Vec::new();
        let mut parked = core::mem::take(&mut net.parked);
        while !parked.is_empty() {
            let at = net.random.below(u64::try_from(parked.len()).unwrap());
            let waker = parked.swap_remove(usize::try_from(at).unwrap());
            if all || net.random.below(2) == 0 {
                woken.push(waker);
            } else {
                net.parked.push(waker);
            }
        }
        drop(net);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Waits until the world goes on.
async fn step(far: &Far) {
    let mut parked = false;
    core::future::poll_fn(|cx| {
        if core::mem::replace(&mut parked, true) {
            return Poll::Ready(());
        }
        let mut net = far.net.lock().unwrap();
        net.parked.push(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

impl Authority for Line {
    type Holder = SessionHolder;

    passes_on!(self => self.0.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let far = Arc::clone(&self.0);
        if far.chance(4) {
            return far.memory.call(call);
        }
        Reply::Pending(Box::pin(async move {
            while far.chance(2) {
                step(&far).await;
            }
            if far.errs(12) {
                return Err(AuthorityError::Unreachable("no line".into()));
            }
            let resource = call.resource.clone();
            let answer = far.memory.call(call).answer().await;
            let mut undelivered = Undelivered {
                memory: far.memory.clone(),
                resource,
                answer: Some(answer),
            };
            while far.chance(2) {
                step(&far).await;
            }
            let answer = undelivered.answer.take().unwrap();
            if far.errs(12) {
                let attempt = far.attempt();
                drop(answer);
                return Err(AuthorityError::Undecided { attempt });
            }
            answer
        }))
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        // An end that is forgotten would shield its lease for ever.
        if !matches!(call.action, Action::Release(_)) || !self.0.errs(12) {
            self.0.memory.call_detached(call);
        }
    }

    fn events(&self) -> Events<SessionHolder> {
        self.0.told.events()
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task, which is polled only once it was woken.
struct Task {
    future: BoxFuture<()>,
    woken: Arc<Flag>,
}

struct World {
    far: Arc<Far>,
    leases: Leases,
    clock: ManualClock,
    places: Vec<Place>,
    /// Leases that were handed over, of which their first holder may hear late.
    given: Mutex<BTreeSet<Generation>>,
}

type Place = Arc<Mutex<Option<Session>>>;

impl World {
    /// Gives the lease to somebody else, as an operator does it: no front is asked.
    fn hand_over(&self, guard: &LeaseGuard, key: &str, from: &Place, random: &mut Random) {
        let holder = |place: &Place| {
            let session = place.lock().unwrap();
            session.as_ref().map(|session| session.holder().clone())
        };
        let (Some(from), Some(to)) = (holder(from), holder(random.pick(&self.places))) else {
            return;
        };
        let adopt = Call {
            resource: Some(ResourceKey::new(key).unwrap()),
            action: Action::Adopt {
                token: guard.token(),
                proof: AdoptProof::Present(from),
                to,
            },
            wait: Wait::No,
        };
        self.given.lock().unwrap().insert(guard.token().generation);
        drop(self.far.memory.call(adopt));
    }

    /// Whoever may write is the one who may.
    fn looks(&self, guard: &LeaseGuard, key: &str) {
        let given = self.given.lock().unwrap();
        if guard.standing() != Standing::Safe || given.contains(&guard.token().generation) {
            return;
        }
        drop(given);
        let list = self.far.memory.list();
        // The look itself may have ended what was over.
        if guard.standing() != Standing::Safe {
            return;
        }
        let within = |outer: &str, inner: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for lease in list {
            let other = lease.resource.as_str();
            let overlaps = within(other, key) || within(key, other);
            let generation = guard.token().generation;
            let successor = lease.token.generation > generation && overlaps;
            let session = format!("{:?}", lease.holder);
            let theirs = !format!("{guard:?}").contains(&session);
            assert!(!(successor && theirs), "{guard:?} beside {lease:?}");
        }
    }
}

async fn life(world: Arc<World>, place: Place, seed: u64) {
    let mut random = Random(seed | 1);
    let key = *random.pick(&KEYS);
    let token = CancellationToken::new();
    let request = {
        let session = place.lock().unwrap();
        let Some(session) = &*session else { return };
        let request = session.acquire(key);
        match random.below(6) {
            0 => request,
            1 => request.renewed(),
            2 => request.within(TTL / 7),
            3 => request.forever().cancelled_by(token.clone()),
            4 => request.forever().renewed(),
            _ => request.forever(),
        }
    };
    let Ok(mut guard) = request.await else { return };
    for _ in 0..random.below(6) {
        world.looks(&guard, key);
        match random.below(10) {
            0 => drop(guard.touch().await),
            1 => drop(guard.ensure(TTL / 2).await),
            2 => drop(guard.read_back().await),
            3 => {
                if let Ok(operation) = guard.begin().await {
                    world.looks(&guard, key);
                    step(&world.far).await;
                    world.looks(&guard, key);
                    match random.below(4) {
                        0 => drop(operation),
                        1 => drop(operation.fail(Disposition::PreMutation).await),
                        _ => drop(operation.end().await),
                    }
                }
            }
            4 => match guard.release().await {
                Ok(_) => return,
                Err(error) => guard = error.guard,
            },
            5 => token.cancel(),
            6 => drop(guard.cancellation_token()),
            7 => {
                let mut lost = pin!(guard.lost());
                assert!(
                    poll(lost.as_mut()).is_pending() || guard.standing() != Standing::Safe,
                    "{guard:?}"
                );
                step(&world.far).await;
            }
            8 => world.hand_over(&guard, key, &place, &mut random),
            _ => step(&world.far).await,
        }
    }
    if random.below(6) == 0 {
        guard.keep();
    }
}

struct Run {
    world: Arc<World>,
    random: Random,
    tasks: Vec<Task>,
    places: Vec<Place>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new(Moment::from_millis(T0));
        let memory = Memory::builder()
            .clock(clock.clone())
            .receipts(1 << 16)
            .build()
            .unwrap();
        let mut random = Random(seed);
        let net = Net {
            listening: memory.events(),
            random: Random(random.below(1 << 60) | 1),
            parked: Vec::new(),
            receipts: VecDeque::new(),
            calm: false,
            errors: random.below(2) == 0,
        };
        let far = Arc::new(Far {
            memory,
            told: EventSource::new(1),
            net: Mutex::new(net),
        });
        let leases = Leases::new(Line(Arc::clone(&far))).unwrap();
        let places: Vec<_> = (0..3).map(|_| Place::default()).collect();
        let world = World {
            far,
            leases,
            clock,
            places: places.clone(),
            given: Mutex::default(),
        };
        Self {
            world: Arc::new(world),
            random,
            tasks: Vec::new(),
            places,
        }
    }

    fn poll(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        if !task.woken.0.swap(false, Ordering::SeqCst) {
            return;
        }
        let waker = Waker::from(Arc::clone(&task.woken));
        let mut context = Context::from_waker(&waker);
        if Pin::new(&mut task.future).poll(&mut context).is_ready() {
            drop(self.tasks.swap_remove(at));
        }
    }

    fn act(&mut self) {
        let some = u64::try_from(self.tasks.len()).unwrap();
        match self.random.below(20) {
            0..=2 => {
                let place = Arc::clone(self.random.pick(&self.places));
                let mut session = place.lock().unwrap();
                if session.is_none() {
                    *session = Some(self.world.leases.connect("a").unwrap());
                }
                drop(session);
                let seed = self.random.below(1 << 60);
                let future = Box::pin(life(Arc::clone(&self.world), place, seed));
                let woken = Arc::new(Flag(AtomicBool::new(true)));
                self.tasks.push(Task { future, woken });
            }
            3..=10 if some > 0 => {
                let at = usize::try_from(self.random.below(some)).unwrap();
                self.poll(at);
            }
            11 if some > 0 && self.random.below(3) == 0 => {
                let at = usize::try_from(self.random.below(some)).unwrap();
                drop(self.tasks.swap_remove(at));
            }
            12 if self.random.below(8) == 0 => {
                let place = Arc::clone(self.random.pick(&self.places));
                let session = place.lock().unwrap().take();
                drop(session);
            }
            13 => {
                let span = TTL / u32::try_from(1 + self.random.below(30)).unwrap();
                self.world.clock.advance(span);
            }
            14 => {
                let most = usize::try_from(self.random.below(4)).unwrap();
                self.world.far.tell(most);
            }
            _ => self.world.far.wake(false),
        }
    }

    /// Everything arrives. Answers whether anybody is left who waits.
    fn calm(&mut self) {
        self.world.far.net.lock().unwrap().calm = true;
        for _ in 0..200 {
            self.arrive();
        }
    }

    fn arrive(&mut self) {
        self.world.far.tell(usize::MAX);
        self.world.far.wake(true);
        for at in (0..self.tasks.len()).rev() {
            self.poll(at);
        }
        // What was forgotten ends with its term.
        self.world.clock.advance(TTL / 3);
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed * 7_919);
    for _ in 0..400 {
        run.act();
    }
    if seed.is_multiple_of(2) {
        // Nobody is cancelled any more, so each comes to an end, and what it kept goes with its session.
        run.calm();
        run.places
            .iter()
            .for_each(|place| drop(place.lock().unwrap().take()));
        // What a renewal of another thread has freed is told there.
        let end = SystemClock::new().now().after(SOON);
        while !run.tasks.is_empty() {
            assert!(SystemClock::new().now() < end, "somebody waits for ever");
            run.arrive();
        }
    }
    run.tasks.clear();
    run.places.clear();
    run.world.far.net.lock().unwrap().calm = true;
    run.world.clock.advance(TTL * 3);
    assert_eq!(run.world.far.memory.list(), []);
    run.world.far.tell(usize::MAX);
    let leases = &run.world.leases;
    // A renewal may be on its way in the thread that makes it.
    let end = SystemClock::new().now().after(SOON);
    while run.world.clock.armed() > 0 && SystemClock::new().now() < end {
        run.world.far.wake(true);
        std::thread::yield_now();
    }
    assert_eq!(run.world.far.memory.footprint(), (0, 0));
    assert_eq!((leases.known(), leases.health().waiting), (0, 0));
    assert_eq!(run.world.clock.armed(), 0);
}

fn number(name: &str, otherwise: u64) -> u64 {
    let said = ordered(name).and_then(|text| text.to_str()?.parse().ok());
    said.unwrap_or(otherwise)
}

#[expect(clippy::print_stdout, reason = "a failure is looked for by its seed")]
#[test]
fn nothing_is_left_and_nobody_waits_for_ever_however_late_the_answers_are() {
    let first = number("LEASE_REMOTE_FIRST", 1);
    for seed in first..first + number("LEASE_REMOTE_SEEDS", 60) {
        println!("seed {seed}");
        run(seed);
    }
}
