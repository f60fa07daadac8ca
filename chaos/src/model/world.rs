//! The shipped registry with everybody who can call it: what they know, what they may do next.

use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use lease_core::{
    Action, AdoptProof, Answer, At, AuthorityId, By, Call, Disposition, Evidence, Grant, Lease,
    LeaseId, LeasePolicy, Moment, OnExpiry, OpId, Outcome, Provenance, Question, Receipt, Registry,
    ResourceKey, Seen, SessionHolder, Slot, Step, Turn, Verdict, Wait, WaiterId,
};

/// The term of every lease: two ticks, so that a step of one tick stays within it.
pub(super) const TERM: u64 = 2;

/// The steps of the clock: within a term, to its last moment, past it.
pub(super) const STEPS: [u64; 3] = [1, TERM, TERM + 1];

/// A hasher that is the same in every run.
type Plainly = BuildHasherDefault<DefaultHasher>;

/// Which calls are made in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Touch,
    Renew,
    Operate,
    Disconnect,
    Wait,
    WaitUntil,
    Cancel,
    Abandon,
    Offer,
    Adopt,
    Revoke,
    Time,
    Proof,
}

/// Who and what there is in a world, and what may happen in it.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) writers: Vec<SessionHolder>,
    pub(super) keys: Vec<ResourceKey>,
    pub(super) policy: LeasePolicy,
    pub(super) verbs: &'static [Verb],
    /// The most operations in flight under one lease.
    pub(super) most_operations: usize,
    /// The most requests that wait or were answered and not fetched.
    pub(super) most_waits: usize,
}

/// A writer or a resource, by its place in the setup.
pub(super) type Place = usize;

/// What an observation of a holder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Alive,
    Dead,
    Unknown,
}

/// What was observed before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sights {
    None,
    /// The same of every holder.
    All(Sight),
    /// Of the holder at one resource.
    Of(Place, Sight),
    /// Two of every holder: dead, and unknown.
    Disagreeing,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A writer asks, and may wait.
    Acquire {
        who: Place,
        key: Place,
        wait: Patience,
        seen: Sights,
    },
    /// The holder shows progress.
    Touch(Place),
    /// The holder renews for one term.
    Renew(Place),
    /// The holder begins an operation, and may say that it made the lease.
    Begin { key: Place, from: Provenance },
    /// The holder ends the `nth` operation in flight.
    End {
        key: Place,
        nth: usize,
        result: Result<(), Disposition>,
    },
    /// The holder gives the lease back, by token.
    Release(Place),
    /// Somebody says that the holder exited, and an observation comes along.
    ReleaseExited(Place, Sight),
    /// A connection ends.
    Disconnect(Place),
    /// The `nth` waiting request is taken back.
    Cancel(usize),
    /// The `nth` granted and not yet fetched request is taken back.
    CancelGranted(usize),
    /// Every answer is fetched.
    Fetch,
    /// The first granted answer is fetched and given back.
    GiveBack,
    /// A grant that nobody received is given back, by token.
    Abandon(Place),
    /// The holder stores a ticket.
    Offer(Place),
    /// A lease passes on, by the holder's will or by ticket.
    Adopt { key: Place, to: Place, ticket: bool },
    /// An operator retires a lease: whatever is known, or on an observation.
    Revoke(Place, Option<Sight>),
    /// A look at the state.
    Sweep,
    /// An observation of a holder comes in for those who wait.
    Observe(Place, Sight),
    /// Time passes, and nobody calls.
    Pass(u64),
}

/// How long a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Term,
    Endless,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: WaiterId,
    pub(super) who: Place,
    pub(super) key: Place,
    pub(super) deadline: Option<u64>,
}

/// A request that was granted, and its answer not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) id: WaiterId,
    pub(super) who: Place,
    pub(super) key: Place,
    pub(super) at: At,
    pub(super) provenance: Provenance,
}

/// The registry, the time, and what its callers know.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) registry: Registry<SessionHolder, Plainly>,
    pub(super) now: u64,
    pub(super) waiting: Vec<Waiting>,
    pub(super) granted: Vec<Granted>,
    /// The largest generation ever given.
    pub(super) newest: u64,
    /// Where each resource's lease was last.
    slots: Vec<Slot>,
    draws: u64,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Granted { at: At, provenance: Provenance },
    Done,
    Refused,
    Asked,
    Queued,
}

/// A call's answer with everything it changed.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) said: Said,
    pub(super) receipts: Vec<Receipt<SessionHolder>>,
}

impl Setup {
    /// The writers of a world: the first two are sessions of one agent.
    pub(super) fn writers(count: usize) -> Vec<SessionHolder> {
        [("a", "1"), ("a", "2"), ("b", "1")]
            .into_iter()
            .take(count)
            .filter_map(|(agent, session)| SessionHolder::new(agent, session).ok())
            .collect()
    }

    /// Resources by their names.
    pub(super) fn keys(names: &[&str]) -> Vec<ResourceKey> {
        names
            .iter()
            .filter_map(|name| ResourceKey::new(name).ok())
            .collect()
    }

    pub(super) fn overlap(&self, one: Place, other: Place) -> bool {
        match (self.keys.get(one), self.keys.get(other)) {
            (Some(one), Some(other)) => one.overlaps(other),
            _ => false,
        }
    }

    pub(super) fn key_of(&self, key: &ResourceKey) -> Option<Place> {
        self.keys.iter().position(|known| known == key)
    }

    pub(super) fn writer_of(&self, writer: &SessionHolder) -> Option<Place> {
        self.writers.iter().position(|known| known == writer)
    }

    /// A writer's name.
    pub(super) fn who(&self, place: Place) -> String {
        let name = self.writers.get(place).map(|writer| format!("{writer:?}"));
        name.unwrap_or_default()
    }

    /// A resource's name.
    pub(super) fn key(&self, place: Place) -> &str {
        self.keys.get(place).map_or("", |key| key.as_str())
    }

    pub(super) fn may(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The term that a request names, where the policy lets it.
    pub(super) fn ttl(&self) -> Option<Duration> {
        (self.policy.on_expiry() == OnExpiry::SuspendHolder).then(|| Duration::from_nanos(TERM))
    }
}

/// Whether the term of `lease` ended it. Said once more here, so that the core is not its own judge.
pub(super) fn over(lease: &Lease<SessionHolder>, now: u64) -> bool {
    lease.terms.on_expiry() == OnExpiry::EndIfIdle
        && lease.ops.is_empty()
        && lease.expires.is_some_and(|last| last.as_nanos() < now)
}

/// An answer about a lease as it is now.
pub(super) fn answer(lease: &Lease<SessionHolder>, sight: Sight) -> Answer {
    let proof = lease.terms.ends_on().process.unwrap_or_default();
    let question = Question::new(lease.holder.clone(), lease.token, lease.handovers, proof);
    let evidence = Evidence::new("model");
    question.answer(match sight {
        Sight::Alive => Verdict::Alive(evidence),
        Sight::Dead => Verdict::Dead(evidence),
        Sight::Unknown => Verdict::Unknown(evidence),
    })
}

/// The ticket of every offer.
const TICKET: [u8; 16] = [7; 16];

impl World {
    /// Nothing is held, nobody waits.
    pub(super) fn new(setup: &Setup) -> Self {
        let authority = AuthorityId::from_bytes([0xA1; 16]);
        let registry = Registry::with_hasher(authority, setup.policy.clone(), Plainly::default())
            .with_receipts(64);
        Self {
            registry,
            // Not at the clock's zero, so that nothing is hidden by arithmetic at its edge.
            now: 100,
            waiting: Vec::new(),
            granted: Vec::new(),
            newest: 0,
            slots: vec![Slot::NONE; setup.keys.len()],
            draws: 0,
        }
    }

    /// The lease at `key`, over or not.
    pub(super) fn lease(&self, setup: &Setup, key: Place) -> Option<&Lease<SessionHolder>> {
        self.registry.lease(setup.keys.get(key)?)
    }

    /// Every lease with its place.
    pub(super) fn leases<'a>(
        &'a self,
        setup: &'a Setup,
    ) -> impl Iterator<Item = (Place, &'a Lease<SessionHolder>)> {
        let lease = |(place, key)| Some((place, self.registry.lease(key)?));
        setup.keys.iter().enumerate().filter_map(lease)
    }

    /// Whether the registry says that something is due by now.
    pub(super) fn due(&self) -> bool {
        let deadline = self.registry.next_deadline();
        deadline.is_some_and(|deadline| deadline.as_nanos() <= self.now)
    }

    /// Makes the call of `act`, with or without a hint where the lease is.
    ///
    /// `None` if there is nothing it could be about.
    pub(super) fn perform(&mut self, setup: &Setup, act: Act, hint: bool) -> Option<Answered> {
        let said = match act {
            Act::Pass(ticks) => {
                self.now = self.now.saturating_add(ticks);
                Said::Done
            }
            Act::Sweep => self.advance(&[]),
            Act::Observe(key, sight) => {
                let answers = [answer(self.lease(setup, key)?, sight)];
                self.advance(&answers)
            }
            Act::Cancel(nth) => {
                let id = self.waiting.get(nth)?.id;
                let known = self.turn(&[], |registry, turn| registry.cancel(id, turn));
                self.waiting.retain(|waiting| waiting.id != id);
                if known { Said::Done } else { Said::Refused }
            }
            Act::CancelGranted(nth) => {
                let id = self.granted.get(nth)?.id;
                let known = self.turn(&[], |registry, turn| registry.cancel(id, turn));
                self.granted.retain(|granted| granted.id != id);
                if known { Said::Done } else { Said::Refused }
            }
            Act::Fetch => {
                while self.registry.take_settled().is_some() {}
                self.granted.clear();
                Said::Done
            }
            Act::GiveBack => {
                let (resource, grant) = self.fetch_granted()?;
                self.turn(&[], |registry, turn| {
                    registry.abandon(&resource, grant, turn);
                });
                Said::Done
            }
            act => {
                let (call, answers) = self.call(setup, act, hint)?;
                self.make(&call, &answers, act)
            }
        };
        self.learn(setup);
        let receipts = self.registry.take_receipts().receipts;
        for receipt in &receipts {
            if let Some(token) = receipt.change.token {
                self.newest = self.newest.max(token.generation.get());
            }
        }
        Some(Answered { said, receipts })
    }

    /// Makes any call, and says how it was answered.
    pub(super) fn make(
        &mut self,
        call: &Call<SessionHolder>,
        answers: &[Answer],
        act: Act,
    ) -> Said {
        let step = self.turn(answers, |registry, turn| registry.call(call, turn));
        match step {
            Step::Ask(_) => Said::Asked,
            Step::Done(Outcome::Refused(_)) => Said::Refused,
            Step::Done(Outcome::Granted(Grant { at, provenance, .. }, _)) => {
                if let Act::Acquire { key, .. } = act
                    && let Some(slot) = self.slots.get_mut(key)
                {
                    *slot = at.slot;
                }
                Said::Granted { at, provenance }
            }
            Step::Done(Outcome::Done(_) | Outcome::Many(_)) => Said::Done,
            Step::Queued(id) => {
                if let Act::Acquire { who, key, wait, .. } = act {
                    let deadline = (wait == Patience::Term).then(|| self.now.saturating_add(TERM));
                    self.waiting.push(Waiting {
                        id,
                        who,
                        key,
                        deadline,
                    });
                }
                Said::Queued
            }
        }
    }

    /// Lets the registry notice what is due, with observations.
    pub(super) fn advance(&mut self, answers: &[Answer]) -> Said {
        drop(self.turn(answers, |registry, turn| registry.advance(turn)));
        Said::Done
    }

    fn turn<T>(
        &mut self,
        answers: &[Answer],
        call: impl FnOnce(&mut Registry<SessionHolder, Plainly>, &mut Turn<'_>) -> T,
    ) -> T {
        let draws = &mut self.draws;
        let mut lease_id = || {
            *draws = draws.saturating_add(1);
            LeaseId::from_bytes(u128::from(*draws).to_be_bytes())
        };
        let seen = Seen {
            now: Moment::from_nanos(self.now),
            wall_ms: None,
            answers,
        };
        call(&mut self.registry, &mut Turn::new(seen, &mut lease_id))
    }

    /// Fetches answers up to the first granted one.
    fn fetch_granted(&mut self) -> Option<(ResourceKey, Grant)> {
        while let Some(settled) = self.registry.take_settled() {
            if let Ok((grant, _)) = settled.outcome {
                self.granted.retain(|granted| granted.id != settled.waiter);
                return Some((settled.resource, grant));
            }
        }
        None
    }

    /// Notes who does not wait any more.
    fn learn(&mut self, setup: &Setup) {
        if self.registry.waiting() == self.waiting.len() {
            return;
        }
        // The registry has no getter for this, so a copy of it is asked.
        let mut copy = self.registry.clone();
        while let Some(settled) = copy.take_settled() {
            let Some(at) = self
                .waiting
                .iter()
                .position(|waiting| waiting.id == settled.waiter)
            else {
                continue;
            };
            let waiting = self.waiting.remove(at);
            if let Ok((grant, _)) = settled.outcome {
                let key = setup.key_of(&settled.resource).unwrap_or(waiting.key);
                if let Some(slot) = self.slots.get_mut(key) {
                    *slot = grant.at.slot;
                }
                self.granted.push(Granted {
                    id: waiting.id,
                    who: waiting.who,
                    key,
                    at: grant.at,
                    provenance: grant.provenance,
                });
            }
        }
        // In the order in which they will be fetched.
        self.granted.sort_by_key(|granted| granted.id);
    }

    /// The token of the lease at `key`, with or without a hint.
    pub(super) fn at(&self, setup: &Setup, key: Place, hint: bool) -> Option<At> {
        let token = self.lease(setup, key)?.token;
        let slot = self.slots.get(key).copied().filter(|_| hint);
        Some(At {
            token,
            slot: slot.unwrap_or(Slot::NONE),
        })
    }

    /// Where the lease at `key` was last.
    pub(super) fn slot(&self, key: Place) -> Slot {
        self.slots.get(key).copied().unwrap_or(Slot::NONE)
    }

    /// The call of `act`, and what was observed for it.
    fn call(
        &self,
        setup: &Setup,
        act: Act,
        hint: bool,
    ) -> Option<(Call<SessionHolder>, Vec<Answer>)> {
        let mut answers = Vec::new();
        let mut wait = Wait::No;
        let (key, action) = match act {
            Act::Disconnect(who) => {
                let action = Action::Disconnect(setup.writers.get(who)?.clone());
                (None, action)
            }
            Act::Acquire {
                who,
                key,
                wait: patience,
                seen,
            } => {
                answers = self.answers(setup, seen);
                wait = match patience {
                    Patience::None => Wait::No,
                    Patience::Term => {
                        Wait::Until(Moment::from_nanos(self.now.saturating_add(TERM)))
                    }
                    Patience::Endless => Wait::Forever,
                };
                let holder = setup.writers.get(who)?.clone();
                let ttl = setup.ttl();
                (Some(key), Action::Acquire { holder, ttl })
            }
            act => {
                let (key, action) = self
                    .by_token(setup, act, hint)
                    .or_else(|| self.by_name(setup, act, &mut answers))?;
                (Some(key), action)
            }
        };
        let resource = match key {
            Some(key) => Some(setup.keys.get(key)?.clone()),
            None => None,
        };
        let call = Call {
            resource,
            action,
            wait,
        };
        Some((call, answers))
    }

    /// The calls of a bearer.
    fn by_token(
        &self,
        setup: &Setup,
        act: Act,
        hint: bool,
    ) -> Option<(Place, Action<SessionHolder>)> {
        let at = |key| self.at(setup, key, hint);
        Some(match act {
            Act::Touch(key) => (key, Action::Touch(at(key)?)),
            Act::Renew(key) => {
                let ttl = Some(Duration::from_nanos(TERM));
                (key, Action::Renew { at: at(key)?, ttl })
            }
            Act::Begin { key, from } => {
                let op = self.unused_operation(setup, key)?;
                let at = at(key)?;
                (key, Action::Begin { at, op, from })
            }
            Act::End { key, nth, result } => {
                let op = self.lease(setup, key)?.ops.get(nth)?.id;
                let at = at(key)?;
                (key, Action::End { at, op, result })
            }
            Act::Release(key) => (key, Action::Release(By::Token(at(key)?))),
            Act::Abandon(key) => {
                let (at, op) = (at(key)?, OpId::ACQUISITION);
                let result = Err(Disposition::PreMutation);
                (key, Action::End { at, op, result })
            }
            Act::Offer(key) => {
                let (at, ticket) = (at(key)?, TICKET);
                (key, Action::Offer { at, ticket })
            }
            _ => return None,
        })
    }

    /// The calls that name a lease in other ways than by a bearer's token.
    fn by_name(
        &self,
        setup: &Setup,
        act: Act,
        answers: &mut Vec<Answer>,
    ) -> Option<(Place, Action<SessionHolder>)> {
        Some(match act {
            Act::ReleaseExited(key, sight) => {
                let lease = self.lease(setup, key)?;
                answers.push(answer(lease, sight));
                let by = By::Holder {
                    holder: lease.holder.clone(),
                    lease: Some(lease.token.lease),
                    exited: true,
                };
                (key, Action::Release(by))
            }
            Act::Adopt { key, to, ticket } => {
                let lease = self.lease(setup, key)?;
                let proof = if ticket {
                    AdoptProof::Ticket(TICKET)
                } else {
                    AdoptProof::Present(lease.holder.clone())
                };
                let (token, to) = (lease.token, setup.writers.get(to)?.clone());
                (key, Action::Adopt { token, proof, to })
            }
            Act::Revoke(key, sight) => {
                let lease = self.lease(setup, key)?;
                answers.extend(sight.map(|sight| answer(lease, sight)));
                let action = Action::Revoke {
                    expected: lease.token.generation,
                    by: "operator".into(),
                    reason: "model".into(),
                    even_if_alive: sight.is_none(),
                };
                (key, action)
            }
            _ => return None,
        })
    }

    fn unused_operation(&self, setup: &Setup, key: Place) -> Option<OpId> {
        let ops = &self.lease(setup, key)?.ops;
        (1..=u8::MAX)
            .map(|number| OpId::from_bytes([number; 16]))
            .find(|id| !ops.iter().any(|op| op.id == *id))
    }

    pub(super) fn answers(&self, setup: &Setup, seen: Sights) -> Vec<Answer> {
        self.leases(setup)
            .flat_map(|(key, lease)| {
                let sights = match seen {
                    Sights::All(sight) => [Some(sight), None],
                    Sights::Of(place, sight) => [(place == key).then_some(sight), None],
                    Sights::Disagreeing if key == 0 => [Some(Sight::Dead), Some(Sight::Unknown)],
                    Sights::Disagreeing => [Some(Sight::Unknown), Some(Sight::Dead)],
                    Sights::None => [None, None],
                };
                sights
                    .into_iter()
                    .flatten()
                    .map(|sight| answer(lease, sight))
            })
            .collect()
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Granted { .. } => "granted",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Asked => "asked for evidence",
            Self::Queued => "queued",
        })
    }
}
