//! The memory authority of `lease-async` as a subject: what a front end of tokio sees of it.
//!
//! No runtime is needed: the clock is moved by hand, and what is pending is polled here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lease_async::{
    AsyncHolderLiveness, Authority as _, AuthorityError, BoxFuture, Event, Events, ManualClock,
    Memory as Backend, Reply,
};
use lease_core::{
    Action, Call, Capabilities, Clock as _, Disposition, Evidence, Grant, LeasePolicy, Moment,
    OpId, Outcome, PolicyError, Provenance, Question, Receipt, Refusal, ResourceKey, SessionHolder,
    Verdict, Wait, WaiterId,
};

use super::{Heard, Subject};
use crate::oracle::Listed;

type Answer = Result<Outcome<SessionHolder>, AuthorityError>;

/// The authority that tokio programs have in their memory, with a clock that only the test moves.
#[derive(Debug)]
pub struct TokioMemory {
    clock: ManualClock,
    verdicts: Verdicts,
    policy: LeasePolicy,
    running: Running,
}

/// One life of the authority.
struct Running {
    authority: Backend,
    events: Events<SessionHolder>,
    pending: BTreeMap<WaiterId, BoxFuture<Answer>>,
    /// The names of requests never leave the authority; these are ours.
    requests: u64,
}

/// What observations say; everybody else lives.
#[derive(Clone, Debug, Default)]
struct Verdicts(Arc<Mutex<Vec<(SessionHolder, Verdict)>>>);

impl TokioMemory {
    /// An authority that has not been started.
    ///
    /// # Errors
    ///
    /// [`AuthorityError`] if this system has no randomness.
    pub fn new() -> Result<Self, AuthorityError> {
        let clock = ManualClock::new(Moment::from_millis(1_000_000));
        let verdicts = Verdicts::default();
        let running = Running::new(&clock, &verdicts)?;
        Ok(Self {
            policy: running.authority.default_policy(),
            clock,
            verdicts,
            running,
        })
    }

    /// Begins another life. Without randomness, which there was before, the old one goes on.
    fn renew(&mut self) {
        if let Ok(running) = Running::new(&self.clock, &self.verdicts) {
            self.running = running;
        }
    }
}

impl Running {
    fn new(clock: &ManualClock, verdicts: &Verdicts) -> Result<Self, AuthorityError> {
        let builder = Backend::builder().clock(clock.clone());
        let authority = builder.async_liveness(verdicts.clone()).build()?;
        Ok(Self {
            events: authority.events(),
            authority,
            pending: BTreeMap::new(),
            requests: 0,
        })
    }

    /// Polls what is pending once, and takes those answered out.
    fn poll(&mut self) -> Vec<(WaiterId, Answer)> {
        let mut answered = Vec::new();
        self.pending.retain(|waiter, future| match poll(future) {
            Poll::Ready(answer) => {
                answered.push((*waiter, answer));
                false
            }
            Poll::Pending => true,
        });
        answered
    }
}

/// Nobody has to be woken: the test asks again.
fn poll(future: &mut BoxFuture<Answer>) -> Poll<Answer> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

impl Verdicts {
    fn all(&self) -> MutexGuard<'_, Vec<(SessionHolder, Verdict)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl AsyncHolderLiveness<SessionHolder> for Verdicts {
    async fn observe(&self, question: &Question<SessionHolder>) -> Verdict {
        let all = self.all();
        let known = all.iter().find(|(holder, _)| *holder == question.holder);
        known.map_or_else(
            || Verdict::Alive(Evidence::new("running")),
            |(_, verdict)| verdict.clone(),
        )
    }
}

impl Subject for TokioMemory {
    fn start(&mut self, policy: LeasePolicy) -> Result<(), PolicyError> {
        self.policy = policy.clone();
        self.renew();
        self.running.authority.set_policy(policy)
    }

    fn capabilities(&self) -> Capabilities {
        self.running.authority.capabilities()
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn pass(&mut self, span: Duration) {
        self.clock.advance(span);
    }

    fn observe(&mut self, holder: &SessionHolder, verdict: Verdict) {
        let mut all = self.verdicts.all();
        all.retain(|(known, _)| known != holder);
        all.push((holder.clone(), verdict));
    }

    fn call(&mut self, call: &Call<SessionHolder>) -> Heard {
        let answer = match self.running.authority.call(call.clone()) {
            Reply::Ready(answer) => answer,
            Reply::Pending(mut future) => match poll(&mut future) {
                Poll::Ready(answer) => answer,
                Poll::Pending => {
                    self.running.requests = self.running.requests.saturating_add(1);
                    let waiter = WaiterId::from_order(self.running.requests);
                    self.running.pending.insert(waiter, future);
                    return Heard::Waiting(waiter);
                }
            },
        };
        match answer {
            Ok(Outcome::Granted(grant, _)) => Heard::Granted(grant),
            Ok(Outcome::Done(change)) => Heard::Done(change),
            Ok(Outcome::Many(changes)) => Heard::Many(changes),
            Ok(Outcome::Refused(refusal)) => Heard::Refused(refusal),
            Err(silent) => Heard::Silent(silent.to_string()),
        }
    }

    fn settled(&mut self) -> Vec<(WaiterId, Result<Grant, Refusal<SessionHolder>>)> {
        let answered = self.running.poll().into_iter();
        let outcome = |answer| match answer {
            Ok(Outcome::Granted(grant, _)) => Some(Ok(grant)),
            Ok(Outcome::Refused(refusal)) => Some(Err(refusal)),
            Ok(Outcome::Done(_) | Outcome::Many(_)) | Err(_) => None,
        };
        answered
            .filter_map(|(waiter, answer)| Some((waiter, outcome(answer)?)))
            .collect()
    }

    fn cancel(&mut self, waiter: WaiterId) {
        drop(self.running.pending.remove(&waiter));
    }

    fn abandon(&mut self, resource: &ResourceKey, grant: Grant) {
        if grant.provenance == Provenance::Created {
            let at = grant.at;
            let (op, result) = (OpId::ACQUISITION, Err(Disposition::PreMutation));
            self.running.authority.call_detached(Call {
                resource: Some(resource.clone()),
                action: Action::End { at, op, result },
                wait: Wait::No,
            });
        }
    }

    fn listed(&mut self) -> Vec<Listed<SessionHolder>> {
        let views = self.running.authority.list();
        views.iter().map(Listed::from).collect()
    }

    fn receipts(&mut self) -> Vec<Receipt<SessionHolder>> {
        let events = &mut self.running.events;
        std::iter::from_fn(|| events.try_next())
            .filter_map(|event| match event {
                Event::Receipt(receipt) => Some(Receipt::clone(&receipt)),
                Event::Missed(_) => None,
            })
            .collect()
    }

    fn restart(&mut self) {
        // The policy was in force before, so it fits.
        let again = self.start(self.policy.clone());
        debug_assert_eq!(again, Ok(()), "the same policy fits once more");
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("authority", &self.authority)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}
