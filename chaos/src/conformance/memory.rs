//! The memory authority as a subject.

use std::time::Duration;

use lease_core::{
    Answer, AuthorityId, Call, Capabilities, Evidence, Grant, LeaseId, LeasePolicy, Locality,
    Moment, Order, Outcome, PolicyError, Question, Receipt, Refusal, Registry, ResourceKey, Seen,
    SessionHolder, Step, Turn, Verdict, WaiterId,
};

use super::{Heard, Subject};
use crate::oracle::Listed;

/// A registry with a clock that only the test moves.
#[derive(Debug)]
pub struct Memory {
    registry: Registry<SessionHolder>,
    now: Moment,
    verdicts: Vec<(SessionHolder, Verdict)>,
    answers: Vec<Answer>,
    random: u64,
}

impl Memory {
    /// An authority that has not been started.
    #[must_use]
    pub fn new() -> Self {
        Self {
            registry: Self::registry(1, LeasePolicy::server_session()),
            now: Moment::from_millis(1_000_000),
            verdicts: Vec::new(),
            answers: Vec::new(),
            random: 1,
        }
    }

    fn registry(number: u64, policy: LeasePolicy) -> Registry<SessionHolder> {
        let authority = AuthorityId::from_random((u128::from(number) << 64).to_be_bytes());
        Registry::new(authority, policy).with_receipts(1 << 12)
    }

    fn turn<T>(
        &mut self,
        work: impl FnOnce(&mut Registry<SessionHolder>, &mut Turn<'_>) -> T,
    ) -> T {
        let random = &mut self.random;
        let mut lease_id = || {
            *random = random.wrapping_add(1);
            LeaseId::from_random(u128::from(*random).to_be_bytes())
        };
        let seen = Seen {
            now: self.now,
            wall_ms: None,
            answers: &self.answers,
        };
        work(&mut self.registry, &mut Turn::new(seen, &mut lease_id))
    }

    fn answer(&self, question: &Question<SessionHolder>) -> Answer {
        let verdict = self
            .verdicts
            .iter()
            .find(|(holder, _)| *holder == question.holder);
        let alive = || Verdict::Alive(Evidence::new("running"));
        question.answer(verdict.map_or_else(alive, |(_, verdict)| verdict.clone()))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Memory {
    fn start(&mut self, policy: LeasePolicy) -> Result<(), PolicyError> {
        policy.fits(&self.capabilities())?;
        self.random = self.random.wrapping_add(1);
        self.registry = Self::registry(self.random, policy);
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable: false,
            shields: true,
            sweeps_all: true,
            order: Order::Fifo,
            locality: Locality::ThisMachine,
            self_stop_margin: |_| Duration::ZERO,
        }
    }

    fn now(&self) -> Moment {
        self.now
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        // Nobody is obliged to call a registry whose terms are over; one with waiters is.
        if self.registry.waiting() > 0 {
            let _changes: Vec<_> = self.turn(|registry, turn| registry.advance(turn));
        }
    }

    fn observe(&mut self, holder: &SessionHolder, verdict: Verdict) {
        self.verdicts.retain(|(known, _)| known != holder);
        self.verdicts.push((holder.clone(), verdict));
    }

    fn call(&mut self, call: &Call<SessionHolder>) -> Heard {
        self.answers.clear();
        loop {
            match self.turn(|registry, turn| registry.call(call, turn)) {
                Step::Done(Outcome::Granted(grant, _)) => return Heard::Granted(grant),
                Step::Done(Outcome::Done(change)) => return Heard::Done(change),
                Step::Done(Outcome::Many(changes)) => return Heard::Many(changes),
                Step::Done(Outcome::Refused(refusal)) => return Heard::Refused(refusal),
                Step::Queued(waiter) => return Heard::Waiting(waiter),
                Step::Ask(questions) => {
                    let answers = questions.iter().map(|question| self.answer(question));
                    self.answers = answers.collect();
                }
            }
        }
    }

    fn settled(&mut self) -> Vec<(WaiterId, Result<Grant, Refusal<SessionHolder>>)> {
        std::iter::from_fn(|| self.registry.take_settled())
            .map(|settled| (settled.waiter, settled.outcome.map(|(grant, _)| grant)))
            .collect()
    }

    fn cancel(&mut self, waiter: WaiterId) {
        self.turn(|registry, turn| registry.cancel(waiter, turn));
    }

    fn abandon(&mut self, resource: &ResourceKey, grant: Grant) {
        self.turn(|registry, turn| registry.abandon(resource, grant, turn));
    }

    fn listed(&mut self) -> Vec<Listed<SessionHolder>> {
        let views = self.turn(|registry, turn| registry.list(turn));
        views.iter().map(Listed::from).collect()
    }

    fn receipts(&mut self) -> Vec<Receipt<SessionHolder>> {
        self.registry.take_receipts().receipts
    }

    fn restart(&mut self) {
        self.random = self.random.wrapping_add(1);
        let policy = self.registry.policy().clone();
        self.registry = Self::registry(self.random, policy);
    }
}
