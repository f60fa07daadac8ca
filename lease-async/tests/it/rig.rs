//! A memory authority on a clock that the test moves.

use std::sync::Arc;

use lease_async::{
    AcquireError, Event, Events, LeaseGuard, Leases, Memory, Moment, Session, SessionHolder,
    TokioClock,
};
use lease_core::{Clock as _, Code, LeaseView, Receipt, Refusal};

pub(crate) const T0: u64 = 1_000_000;
pub(crate) const KEY: &str = "/app/viewport";
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

impl<C: lease_async::AlarmClock + Clone> Rig<C> {
    pub(crate) fn on(clock: C) -> Self {
        let memory = Memory::builder()
            .clock(clock.clone())
            .receipts(1 << 16)
            .build()
            .unwrap();
        let leases = Leases::new(memory.clone()).unwrap();
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
