//! The virtual machine room: one authority, its writers, what they write to, and all that goes wrong.

mod calls;
mod time;
mod world;
mod writes;

use std::collections::BTreeMap;

use lease_core::{
    Answer, At, AuthorityId, Code, FenceGate, FencingToken, Grant, LeaseId, LeasePolicy, OpId,
    Provenance, Question, Refusal, ResourceKey, Seen, Turn, Verdict, WaiterId,
};

use self::time::Time;
use super::config::{Config, KEYS, PLACES, SERVER_SESSION_NANOS, Terms};
use super::count::{Count, Counts};
use super::driver::Driver;
use super::holder::SimHolder;
use super::machines::{Incarnation, Machines};
use super::random::Random;
use super::step::Step;
use crate::oracle::{Breach, Deed, Life, Observed, Oracle, ResourceLog};

/// The whole room.
pub(crate) struct Room<D> {
    config: Config,
    policy: LeasePolicy,
    driver: D,
    authority: AuthorityId,
    oracle: Oracle<SimHolder>,
    time: Time,
    machines: Machines,
    /// Processes that are nobody's writer: children, and those whose session is over.
    children: Vec<Incarnation>,
    seats: Vec<Seat>,
    sessions: Sessions,
    /// Answers on their way to those who waited.
    mail: Vec<Letter>,
    /// Connections whose loss the authority has not heard of.
    lost: Vec<SimHolder>,
    open: Vec<Question<SimHolder>>,
    evidence: Vec<Answer>,
    tickets: Vec<Ticket>,
    /// Tokens that nobody should use any more.
    past: Vec<(u8, FencingToken)>,
    keys: Vec<ResourceKey>,
    places: Vec<Place>,
    ids: Random,
    pub(crate) counts: Counts,
    /// What happened, in words, if anybody wants to read it.
    pub(crate) trace: Option<Vec<String>>,
    /// The receipts, in their stored form, if anybody wants to keep them.
    pub(crate) receipts: Option<Vec<serde_json::Value>>,
}

/// A place for a writer.
#[derive(Debug, Default)]
struct Seat {
    holder: Option<SimHolder>,
    process: Option<Incarnation>,
    stalled: bool,
    holds: Vec<Hold>,
    waits: Vec<WaiterId>,
}

/// A lease as its writer knows it. It may be over.
#[derive(Debug)]
struct Hold {
    key: u8,
    at: At,
    provenance: Provenance,
    ops: Vec<OpId>,
}

/// The answer to a request, on its way.
#[derive(Debug)]
struct Letter {
    waiter: Option<WaiterId>,
    seat: usize,
    holder: Option<SimHolder>,
    key: u8,
    outcome: Result<Grant, Refusal<SimHolder>>,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    key: u8,
    token: FencingToken,
    ticket: [u8; 16],
}

/// A guarded resource.
#[derive(Debug)]
struct Place {
    name: &'static str,
    gate: FenceGate,
    log: ResourceLog,
    /// Whose tokens its owner wants.
    owner: Option<AuthorityId>,
    /// The newest token that an operator closed it to; older ones are closed out with it.
    closed: Option<FencingToken>,
}

/// The sessions that a server keeps: when each was last heard of, and whether it is over.
#[derive(Debug, Default)]
struct Sessions {
    next: u32,
    heard: BTreeMap<u32, u64>,
}

impl Sessions {
    fn mint(&mut self, now: u64) -> u32 {
        self.next = self.next.saturating_add(1);
        self.heard.insert(self.next, now);
        self.next
    }

    /// The server ends what it has not heard of for too long, for ever.
    fn end_silent(&mut self, now: u64) {
        self.heard
            .retain(|_, heard| now.saturating_sub(*heard) <= SERVER_SESSION_NANOS);
    }
}

impl<D: Driver> Room<D> {
    /// An empty room.
    pub(crate) fn new(config: Config, policy: LeasePolicy, seed: u64) -> Self {
        let mut ids = Random::new(seed ^ 0x1D5);
        let authority = AuthorityId::from_random(ids.bytes());
        let keys = KEYS.iter().take(usize::from(config.keys));
        let place = |name: &&'static str| {
            let mut log = ResourceLog::new();
            log.succeeded(authority);
            Place {
                name,
                gate: FenceGate::new(),
                log,
                owner: None,
                closed: None,
            }
        };
        Self {
            config,
            policy: policy.clone(),
            driver: D::start(authority, policy.clone()),
            authority,
            oracle: Oracle::new(policy),
            time: Time::new(config.drift),
            machines: Machines::new(config.pidfs),
            children: Vec::new(),
            seats: (0..config.seats).map(|_| Seat::default()).collect(),
            sessions: Sessions::default(),
            mail: Vec::new(),
            lost: Vec::new(),
            open: Vec::new(),
            evidence: Vec::new(),
            tickets: Vec::new(),
            past: Vec::new(),
            keys: keys
                .filter_map(|name| ResourceKey::new(name).ok())
                .collect(),
            places: PLACES.iter().map(place).collect(),
            ids,
            counts: Counts::default(),
            trace: None,
            receipts: None,
        }
    }

    /// Plays one step and lets the oracle judge it.
    pub(crate) fn play(&mut self, step: Step) -> Result<(), Breach> {
        self.counts.add(Count::Steps, 1);
        self.tell(|| step.to_string());
        match step {
            Step::Pass { .. }
            | Step::ClockBack { .. }
            | Step::Suspend { .. }
            | Step::Arrive { .. }
            | Step::Exit { .. }
            | Step::Reap { .. }
            | Step::Fork { .. }
            | Step::EndChild { .. }
            | Step::Stall { .. }
            | Step::Wake { .. }
            | Step::Unplug { .. }
            | Step::Reboot { .. }
            | Step::Blind { .. }
            | Step::Restart
            | Step::Restore
            | Step::RaiseFloor => {
                self.happen(step);
                Ok(())
            }
            Step::Write { .. } | Step::WriteLate { .. } | Step::Succeed { .. } => self.write(step),
            Step::Deliver { .. } | Step::Lose { .. } | Step::Watch | Step::Probe { .. } => {
                self.post(step)
            }
            calls => self.ask(calls),
        }
    }

    /// Notes what happened, if anybody reads it.
    fn tell(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(words());
        }
    }

    /// Has something done to the authority, at the present moment and with what is known of holders.
    fn turn<T>(&mut self, work: impl FnOnce(&mut D, &mut Turn<'_>) -> T) -> T {
        let ids = &mut self.ids;
        let mut lease_id = || LeaseId::from_random(ids.bytes());
        let seen = Seen {
            now: self.time.read(),
            wall_ms: None,
            answers: &self.evidence,
        };
        work(&mut self.driver, &mut Turn::new(seen, &mut lease_id))
    }

    /// Takes in what a call left, and has it judged.
    fn judge(&mut self, deed: Deed<'_, SimHolder>) -> Result<(), Breach> {
        self.counts.add(Count::Calls, 1);
        let read = self.time.read();
        let receipts = self.driver.take_receipts();
        for receipt in &receipts {
            self.tell(|| format!("    {receipt}"));
            self.counted(receipt.change.code, receipt.evidence.as_ref());
            if let Some(kept) = &mut self.receipts {
                kept.extend(serde_json::to_value(receipt));
            }
        }
        let settled = self.collect();
        let listed = self.driver.listed(read);
        let observed = Observed {
            read,
            deed,
            answers: &self.evidence,
            receipts: &receipts,
            settled: &settled,
            listed: &listed,
            due: self.driver.due(),
            footprint: self.driver.footprint(),
        };
        let (terms, machines, sessions) = (self.config.terms, &self.machines, &self.sessions);
        let life = |holder: &SimHolder, _| life(terms, machines, sessions, holder);
        let judged = self.oracle.judge(&observed, &life);
        // What was seen of a live holder is asked anew next time; that one is dead stays true.
        self.evidence
            .retain(|answer| matches!(answer.verdict, Verdict::Dead(_)));
        judged
    }

    /// Takes the answers to those who waited and puts them into the mail.
    fn collect(&mut self) -> Vec<(WaiterId, Option<FencingToken>)> {
        let mut settled = Vec::new();
        while let Some(answered) = self.driver.take_settled() {
            let waiter = answered.waiter;
            let granted = answered.outcome.as_ref().ok().map(|grant| grant.at.token);
            settled.push((waiter, granted));
            match &answered.outcome {
                Ok(_) => self.counts.add(Count::HandedOver, 1),
                Err(Refusal::TimedOut { .. }) => self.counts.add(Count::TimedOut, 1),
                Err(_) => {}
            }
            self.tell(|| match granted {
                Some(token) => format!("    request {waiter} gets generation {}", token.generation),
                None => format!("    request {waiter} ends without a grant"),
            });
            let seat = self
                .seats
                .iter()
                .position(|seat| seat.waits.contains(&waiter));
            self.mail.push(Letter {
                waiter: Some(waiter),
                seat: seat.unwrap_or(usize::MAX),
                holder: seat.and_then(|at| self.seats.get(at)?.holder),
                key: self.key_number(&answered.resource),
                outcome: answered.outcome,
            });
        }
        settled
    }

    fn counted(&mut self, code: Code, evidence: Option<&lease_core::Evidence>) {
        let count = match code {
            Code::Created | Code::LeaseAcquired => Count::Granted,
            Code::Reentrant => Count::Reentered,
            Code::TakenOver => {
                self.counts.add(Count::Granted, 1);
                Count::TakenOver
            }
            Code::SessionEnded => Count::TakenOver,
            Code::Reclaimed => Count::Reclaimed,
            Code::Disconnected => Count::Disconnected,
            Code::Revoked => Count::Revoked,
            Code::Adopted => Count::Adopted,
            Code::Abandoned => Count::Abandoned,
            Code::ReleasedAfterFailure => Count::FailedWhole,
            Code::RetainedAfterFailure => Count::FailedPart,
            Code::ClockSteppedBack => Count::SteppedBack,
            Code::Queued => Count::Queued,
            _ => return,
        };
        self.counts.add(count, 1);
        if evidence.is_some_and(|evidence| evidence.proof == "pid_recycled") {
            self.counts.add(Count::Recycled, 1);
        }
    }

    /// The number of a key of this room.
    fn key_number(&self, key: &ResourceKey) -> u8 {
        let at = self.keys.iter().position(|known| known == key).unwrap_or(0);
        u8::try_from(at).unwrap_or(0)
    }

    fn key(&self, number: u8) -> Option<ResourceKey> {
        self.keys
            .get(usize::from(number).checked_rem(self.keys.len())?)
            .cloned()
    }

    /// The writer in a seat who is awake.
    fn awake(&self, seat: u8) -> Option<(usize, SimHolder)> {
        let at = usize::from(seat).checked_rem(self.seats.len())?;
        let seat = self.seats.get(at).filter(|seat| !seat.stalled)?;
        Some((at, seat.holder?))
    }

    /// A lease that an awake writer knows of.
    fn hold(&mut self, seat: u8, hold: u8) -> Option<(usize, &mut Hold)> {
        let (at, _) = self.awake(seat)?;
        let holds = &mut self.seats.get_mut(at)?.holds;
        let which = usize::from(hold).checked_rem(holds.len())?;
        Some((at, holds.get_mut(which)?))
    }

    /// Remembers a token that nobody should use any more.
    fn outdate(&mut self, key: u8, token: FencingToken) {
        if self.past.len() >= 8 {
            self.past.remove(0);
        }
        if !self.past.contains(&(key, token)) {
            self.past.push((key, token));
        }
    }

    /// What a generator may look at.
    pub(crate) const fn oracle(&self) -> &Oracle<SimHolder> {
        &self.oracle
    }

    /// The present reading of the authority's clock.
    pub(crate) fn read(&self) -> lease_core::Moment {
        self.time.read()
    }

    /// How much there is of what a generator may use: letters, lost connections, open questions,
    /// tokens of the past, tickets.
    pub(crate) const fn piles(&self) -> [usize; 5] {
        [
            self.mail.len(),
            self.lost.len(),
            self.open.len(),
            self.past.len(),
            self.tickets.len(),
        ]
    }

    /// Whether a machine has processes that nobody has asked for their status.
    pub(crate) fn has_zombies(&self, machine: u8) -> bool {
        self.machines.has_zombies(machine)
    }

    /// The keys whose holders are known to be gone: whoever asks for one of them gets it on proof.
    pub(crate) fn proven(&self) -> Vec<u8> {
        let dead = |answer: &&Answer| matches!(answer.verdict, Verdict::Dead(_));
        let of = |answer: &Answer| self.oracle.held().find(|held| held.token == answer.about);
        let held = self.evidence.iter().filter(dead).filter_map(of);
        held.map(|held| self.key_number(&held.resource)).collect()
    }

    /// Whether a seat has a writer, whether that one is stalled, holds something and waits.
    pub(crate) fn seat(&self, seat: u8) -> Seated {
        let seat = usize::from(seat)
            .checked_rem(self.seats.len())
            .and_then(|at| self.seats.get(at));
        Seated {
            taken: seat.is_some_and(|seat| seat.holder.is_some()),
            stalled: seat.is_some_and(|seat| seat.stalled),
            holds: seat.map_or(0, |seat| seat.holds.len()),
            ops: seat.map_or(0, |seat| seat.holds.iter().map(|hold| hold.ops.len()).sum()),
            waits: seat.map_or(0, |seat| seat.waits.len()),
        }
    }
}

/// What a generator may know of a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seated {
    pub(crate) taken: bool,
    pub(crate) stalled: bool,
    pub(crate) holds: usize,
    pub(crate) ops: usize,
    pub(crate) waits: usize,
}

/// The truth about a holder, as its terms count it.
fn life(terms: Terms, machines: &Machines, sessions: &Sessions, holder: &SimHolder) -> Life {
    match (terms, &holder.process, holder.session) {
        (Terms::HostedSessions, Some(process), _) => machines.life(process, false),
        (Terms::Processes, Some(process), _) => machines.life(process, true),
        (Terms::ServerSessions, _, Some(session)) if !sessions.heard.contains_key(&session) => {
            Life::Gone
        }
        _ => Life::Living,
    }
}
