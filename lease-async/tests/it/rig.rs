//! A memory authority on a clock that the test moves.

use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use lease_async::{
    AcquireError, Alarm, AlarmClock, AlarmError, Authority, AuthorityError, Event, Events,
    LeaseGuard, Leases, ManualClock, Memory, Moment, Reply, Session, SessionHolder, TokioClock,
};
use lease_core::{
    Action, Call, Clock, Code, Disposition, LeaseView, OpId, Outcome, Provenance, Receipt, Refusal,
    ResourceKey, Wait,
};

#[cfg(target_os = "linux")]
pub(crate) use crate::not_run::not_run;
use crate::passing_on::passes_on;

pub(crate) const T0: u64 = 1_000_000;
pub(crate) const KEY: &str = "/app/viewport";
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// The bound of every wait for another thread.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) struct Rig<C> {
    pub(crate) clock: C,
    pub(crate) memory: Memory,
    pub(crate) leases: Leases,
    pub(crate) events: Events<SessionHolder>,
}

impl Rig<TokioClock> {
    /// On the paused clock of the test's runtime, at `T0`.
    pub(crate) fn paused() -> Self {
        Self::on(TokioClock::new(Moment::from_millis(T0)))
    }

    /// Sleeps until `ms`.
    pub(crate) async fn at(&self, ms: u64) {
        let until = Moment::from_millis(ms);
        tokio::time::sleep(until.since(self.clock.now())).await;
        assert_eq!(self.clock.now(), until);
    }
}

impl Rig<ManualClock> {
    /// On a clock that stands at `T0`.
    pub(crate) fn still() -> Self {
        Self::on(ManualClock::new(Moment::from_millis(T0)))
    }
}

impl<C: AlarmClock + Clone> Rig<C> {
    pub(crate) fn on(clock: C) -> Self {
        Self::keeping(1 << 10, clock, |memory| Leases::new(memory).unwrap())
    }

    /// With a front of its own over the memory authority.
    pub(crate) fn over(clock: C, front: impl FnOnce(Memory) -> Leases) -> Self {
        Self::keeping(1 << 10, clock, front)
    }

    /// With so many receipts until a look.
    pub(crate) fn keeping(receipts: usize, clock: C, front: impl FnOnce(Memory) -> Leases) -> Self {
        let memory = Memory::builder()
            .clock(clock.clone())
            .receipts(receipts)
            .build()
            .unwrap();
        let leases = front(memory.clone());
        let events = leases.events();
        Self {
            clock,
            memory,
            leases,
            events,
        }
    }

    pub(crate) fn connect(&self, agent: &str) -> Session {
        self.leases.connect(agent).unwrap()
    }

    pub(crate) fn receipts(&mut self) -> Vec<Arc<Receipt<SessionHolder>>> {
        core::iter::from_fn(|| self.events.try_next())
            .map(|event| match event {
                Event::Receipt(receipt) => receipt,
                Event::Missed(missed) => panic!("{missed} receipts missed"),
            })
            .collect()
    }

    /// The codes since the last look, with their generations.
    pub(crate) fn codes(&mut self) -> Vec<(Code, u64)> {
        let generation = |receipt: &Receipt<SessionHolder>| {
            let token = receipt.change.token;
            token.map_or(0, |token| token.generation.get())
        };
        let receipts = self.receipts();
        let code =
            |receipt: &Arc<Receipt<SessionHolder>>| (receipt.change.code, generation(receipt));
        receipts.iter().map(code).collect()
    }

    pub(crate) fn only(&self) -> LeaseView<SessionHolder> {
        let mut list = self.memory.list();
        assert_eq!(list.len(), 1, "{list:?}");
        list.remove(0)
    }

    /// Nothing is held, nobody waits, and no place is in use.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.memory.list(), []);
        assert_eq!(self.memory.footprint(), (0, 0));
        assert_eq!(self.leases.known(), 0);
    }
}

/// Asks for [`KEY`] at once.
pub(crate) async fn ask(session: &Session) -> Result<LeaseGuard, AcquireError<SessionHolder>> {
    session.acquire(KEY).await
}

/// A request for [`KEY`], as a caller makes it who has no front.
pub(crate) fn bare_request(agent: &str) -> Call<SessionHolder> {
    Call {
        resource: Some(ResourceKey::new(KEY).unwrap()),
        action: Action::Acquire {
            holder: SessionHolder::new(agent, agent).unwrap(),
            ttl: None,
        },
        wait: Wait::Forever,
    }
}

/// Asks for [`KEY`] and is told that another is in the way, with its generation, idle ms and operations in
/// flight.
#[track_caller]
pub(crate) fn conflict(
    answer: Result<LeaseGuard, AcquireError<SessionHolder>>,
) -> (u64, u128, u32) {
    match answer {
        Err(AcquireError::Refused(Refusal::Held(held))) => {
            let generation = held.token.generation.get();
            (generation, held.idle.as_millis(), held.in_flight)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn generation(guard: &LeaseGuard) -> u64 {
    guard.token().generation.get()
}

/// What a test has told its child by the environment.
#[cfg(target_os = "linux")]
#[expect(
    clippy::disallowed_methods,
    reason = "so a test tells its child what it is"
)]
pub(crate) fn ordered(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Between two looks at what another process does.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "nothing tells when it is done")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub(crate) struct Counts(AtomicUsize);

impl Counts {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A small source of random numbers, the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let most = u64::try_from(of.len()).unwrap();
        &of[usize::try_from(self.below(most)).unwrap()]
    }
}

/// An authority whose answers are on their way for a while: each call is sent at the second poll, and
/// answered at the third.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) Memory);

impl Authority for Slow {
    type Holder = SessionHolder;

    passes_on!(self => self.0);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        let memory = self.0.clone();
        Reply::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            let resource = call.resource.clone();
            let answer = memory.call(call).answer().await;
            let mut undelivered = Undelivered {
                memory,
                resource,
                answer: Some(answer),
            };
            tokio::task::yield_now().await;
            undelivered.answer.take().unwrap()
        }))
    }

    fn call_detached(&self, call: Call<SessionHolder>) {
        self.0.call_detached(call);
    }

    fn events(&self) -> Events<SessionHolder> {
        self.0.events()
    }
}

/// An answer whose receiver may go: then a new lease is given back.
pub(crate) struct Undelivered {
    pub(crate) memory: Memory,
    pub(crate) resource: Option<ResourceKey>,
    pub(crate) answer: Option<Result<Outcome<SessionHolder>, AuthorityError>>,
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(Ok(Outcome::Granted(grant, _))) = self.answer.take()
            && grant.provenance == Provenance::Created
        {
            self.memory.call_detached(Call {
                resource: self.resource.take(),
                action: Action::End {
                    at: grant.at,
                    op: OpId::ACQUISITION,
                    result: Err(Disposition::PreMutation),
                },
                wait: Wait::No,
            });
        }
    }
}

/// A clock that stands still and does not ring, and what it does where it should.
#[derive(Clone, Debug)]
pub(crate) struct Silent(pub(crate) fn() -> Result<Alarm, AlarmError>);

impl Clock for Silent {
    fn now(&self) -> Moment {
        Moment::from_millis(T0)
    }
}

impl AlarmClock for Silent {
    fn arm(&self, _at: Moment, _waker: Waker) -> Result<Alarm, AlarmError> {
        (self.0)()
    }
}
