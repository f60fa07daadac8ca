//! What writers, hosts and operators ask of the authority, and what the mail brings.

use std::time::Duration;

use lease_core::{
    Action, AdoptProof, By, Call, Code, Disposition, Evidence, FencingToken, Grant, Moment, OpId,
    Outcome, Provenance, Question, Refusal, Step as Answer, Verdict, Wait, WaiterId,
};

use super::{Hold, Letter, Room, Ticket};
use crate::oracle::{Breach, Deed, GaveBack, Said};
use crate::sim::config::Terms;
use crate::sim::count::Count;
use crate::sim::driver::Driver;
use crate::sim::holder::SimHolder;
use crate::sim::plain::by_token;
use crate::sim::step::{How, Step, Waits};

/// What a caller made of an answer.
enum Got {
    Grant(Grant),
    Done(Code),
    Refused(Refusal<SimHolder>),
    Queued(WaiterId),
    Nothing,
}

impl<D: Driver> Room<D> {
    /// Asks the authority for something.
    pub(super) fn ask(&mut self, step: Step) -> Result<(), Breach> {
        match step {
            Step::Acquire {
                seat,
                key,
                ttl_ms,
                wait,
                late,
            } => self.acquire(seat, key, ttl_ms, (wait, late)),
            Step::Cancel { seat, nth } => self.cancel(seat, nth),
            Step::Hear { nth } => self.hear(nth),
            Step::Sweep => self.call(None, Action::Sweep, Wait::No).map(drop),
            Step::Advance => {
                let _changes: Vec<_> = self.turn(|driver, turn| driver.advance(turn));
                self.judge(Deed::Advanced)
            }
            Step::ReleaseAs { seat, key } => match self.awake(seat) {
                Some((_, holder)) => {
                    let by = By::Holder {
                        holder,
                        lease: None,
                        exited: false,
                    };
                    self.call(Some(key), Action::Release(by), Wait::No)
                        .map(drop)
                }
                None => Ok(()),
            },
            Step::CheckAs { seat, key } => match self.awake(seat) {
                Some((_, holder)) => {
                    let by = By::Holder {
                        holder,
                        lease: None,
                        exited: false,
                    };
                    self.call(Some(key), Action::Check(by), Wait::No).map(drop)
                }
                None => Ok(()),
            },
            Step::ReleaseExited { key } => self.release_exited(key),
            Step::Redeem { seat, ticket } => self.redeem(seat, ticket),
            Step::Revoke { key, even_if_alive } => self.revoke(key, even_if_alive),
            Step::Haunt { past, verb } => self.haunt(past, verb),
            held => self.ask_with_token(held),
        }
    }

    /// Asks for something of a lease that a writer knows of.
    fn ask_with_token(&mut self, step: Step) -> Result<(), Breach> {
        let (Step::Touch { seat, hold }
        | Step::Renew { seat, hold, .. }
        | Step::Begin { seat, hold }
        | Step::End { seat, hold, .. }
        | Step::Release { seat, hold }
        | Step::Offer { seat, hold }
        | Step::Check { seat, hold }
        | Step::HandOver { seat, hold, .. }) = step
        else {
            return Ok(());
        };
        let Some((_, known)) = self.hold(seat, hold) else {
            return Ok(());
        };
        let (key, at, provenance) = (known.key, known.at, known.provenance);
        let ops = known.ops.clone();
        let fresh = self.ids.bytes();
        let action = match step {
            Step::Touch { .. } => Action::Touch(at),
            Step::Renew { ttl_ms, .. } => Action::Renew {
                at,
                ttl: ttl_ms.map(Duration::from_millis),
            },
            Step::Begin { .. } => Action::Begin {
                at,
                op: OpId::from_random(fresh),
                from: provenance,
            },
            Step::End { op, how, .. } => {
                let which = usize::from(op).checked_rem(ops.len());
                let op = which.and_then(|which| ops.get(which).copied());
                let op = op.unwrap_or_else(|| OpId::from_random(fresh));
                let result = match how {
                    How::Well => Ok(()),
                    How::Failed(disposition) => Err(disposition),
                };
                Action::End { at, op, result }
            }
            Step::Release { .. } => Action::Release(By::Token(at)),
            Step::Offer { .. } => Action::Offer { at, ticket: fresh },
            Step::Check { .. } => Action::Check(By::Token(at)),
            Step::HandOver { to, .. } => {
                let (Some((_, from)), Some((_, to))) = (self.awake(seat), self.awake(to)) else {
                    return Ok(());
                };
                Action::Adopt {
                    token: at.token,
                    proof: AdoptProof::Present(from),
                    to,
                }
            }
            _ => return Ok(()),
        };
        let got = self.call(Some(key), action.clone(), Wait::No)?;
        self.learn(seat, hold, &action, got);
        Ok(())
    }

    /// What a writer learns from the answer about one of its leases.
    fn learn(&mut self, seat: u8, hold: u8, action: &Action<SimHolder>, got: Got) {
        let Some((at, known)) = self.hold(seat, hold) else {
            return;
        };
        let (key, token) = (known.key, known.at.token);
        let over = match (&got, action) {
            (Got::Done(Code::OperationBegun), Action::Begin { op, .. }) => {
                known.ops.push(*op);
                known.provenance = Provenance::Reentrant;
                false
            }
            (
                Got::Done(Code::OperationEnded | Code::RetainedAfterFailure),
                Action::End { op, .. },
            ) => {
                known.ops.retain(|known| known != op);
                false
            }
            (Got::Done(Code::ReleasedAfterFailure), _) | (Got::Done(_), Action::Release(_)) => true,
            (Got::Done(_), Action::Offer { ticket, .. }) => {
                let ticket = Ticket {
                    key,
                    token,
                    ticket: *ticket,
                };
                self.tickets.push(ticket);
                false
            }
            (Got::Grant(_), Action::Adopt { .. }) => true,
            (Got::Refused(Refusal::StaleToken { .. }), Action::End { .. }) => {
                // It may have named an operation that never was; the lease itself may be fine.
                false
            }
            (Got::Refused(Refusal::StaleToken { .. }), _) => {
                self.counts.add(Count::Stale, 1);
                true
            }
            _ => false,
        };
        if over && let Some(seat) = self.seats.get_mut(at) {
            seat.holds.retain(|known| known.at.token != token);
            self.outdate(key, token);
        }
        if let (Got::Grant(grant), Action::Adopt { to, .. }) = (got, action) {
            self.receive(*to, key, &grant);
        }
    }

    /// Makes one call and has it judged.
    fn call(
        &mut self,
        key: Option<u8>,
        action: Action<SimHolder>,
        wait: Wait,
    ) -> Result<Got, Breach> {
        let call = Call {
            resource: key.and_then(|key| self.key(key)),
            action,
            wait,
        };
        let step = self.turn(|driver, turn| driver.call(&call, turn));
        let (said, got) = match step {
            Answer::Done(Outcome::Granted(grant, _)) => (
                Said::Granted(grant.at.token, grant.provenance),
                Got::Grant(grant),
            ),
            Answer::Done(Outcome::Done(change)) => (Said::Done(change), Got::Done(change.code)),
            Answer::Done(Outcome::Many(changes)) => (Said::Many(changes), Got::Nothing),
            Answer::Done(Outcome::Refused(refusal)) => {
                self.counts.add(Count::Refused, 1);
                self.tell(|| format!("    refused {}: {refusal}", refusal.code()));
                (Said::Refused(refusal.code()), Got::Refused(refusal))
            }
            Answer::Ask(questions) => {
                self.counts.add(Count::Asked, 1);
                self.tell(|| {
                    format!(
                        "    asks after {:?}",
                        questions
                            .iter()
                            .map(|asked| asked.holder)
                            .collect::<Vec<_>>()
                    )
                });
                self.wonder(questions);
                (Said::Asked, Got::Nothing)
            }
            Answer::Queued(waiter) => (Said::Queued(waiter), Got::Queued(waiter)),
        };
        self.judge(Deed::Called(&call, said))?;
        Ok(got)
    }

    /// Keeps questions until somebody looks, with what the driver knows of the resource.
    fn wonder(&mut self, questions: Vec<Question<SimHolder>>) {
        for mut question in questions {
            let about = question.about;
            question.target = self
                .oracle
                .held()
                .find(|held| held.token == about)
                .map(|held| held.resource);
            self.open.retain(|open| open.about != about);
            self.open.push(question);
        }
        let surplus = self.open.len().saturating_sub(8);
        self.open.drain(..surplus);
    }

    fn acquire(
        &mut self,
        seat: u8,
        key: u8,
        ttl_ms: Option<u64>,
        (wait, late): (Waits, bool),
    ) -> Result<(), Breach> {
        let Some((at, holder)) = self.awake(seat) else {
            return Ok(());
        };
        let wait = match wait {
            Waits::No => Wait::No,
            Waits::For { ms } => Wait::Until(self.latest().after(Duration::from_millis(ms))),
            Waits::Forever => Wait::Forever,
        };
        let action = Action::Acquire {
            holder,
            ttl: ttl_ms.map(Duration::from_millis),
        };
        let number = self.key(key).map_or(0, |key| self.key_number(&key));
        match self.call(Some(key), action, wait)? {
            Got::Grant(grant) if late => {
                let outcome = Ok(grant);
                self.mail.push(Letter {
                    waiter: None,
                    seat: at,
                    holder: Some(holder),
                    key: number,
                    outcome,
                });
            }
            Got::Grant(grant) => {
                self.receive(holder, number, &grant);
            }
            Got::Queued(waiter) => {
                if let Some(seat) = self.seats.get_mut(at) {
                    seat.waits.push(waiter);
                }
            }
            Got::Done(_) | Got::Refused(_) | Got::Nothing => {}
        }
        Ok(())
    }

    fn latest(&self) -> Moment {
        self.oracle.latest().max(self.time.read())
    }

    /// A writer gets a grant. Answers whether it is there.
    fn receive(&mut self, holder: SimHolder, key: u8, grant: &Grant) -> bool {
        let Some(seat) = self
            .seats
            .iter_mut()
            .find(|seat| seat.holder == Some(holder))
        else {
            return false;
        };
        match seat
            .holds
            .iter_mut()
            .find(|hold| hold.at.token == grant.at.token)
        {
            Some(known) => known.at = grant.at,
            None => seat.holds.push(Hold {
                key,
                at: grant.at,
                provenance: grant.provenance,
                ops: Vec::new(),
            }),
        }
        true
    }

    fn cancel(&mut self, seat: u8, nth: u8) -> Result<(), Breach> {
        let Some((at, _)) = self.awake(seat) else {
            return Ok(());
        };
        let Some(seat) = self.seats.get_mut(at) else {
            return Ok(());
        };
        let Some(which) = usize::from(nth).checked_rem(seat.waits.len()) else {
            return Ok(());
        };
        let waiter = seat.waits.remove(which);
        if let Some(letter) = self
            .mail
            .iter()
            .position(|letter| letter.waiter == Some(waiter))
        {
            let letter = self.mail.remove(letter);
            return self.lose(letter);
        }
        self.turn(|driver, turn| driver.cancel(waiter, turn));
        self.judge(Deed::GaveBack(GaveBack::Request(waiter)))
    }

    fn hear(&mut self, nth: u8) -> Result<(), Breach> {
        let Some(at) = usize::from(nth).checked_rem(self.lost.len()) else {
            return Ok(());
        };
        let holder = self.lost.remove(at);
        self.call(None, Action::Disconnect(holder), Wait::No)
            .map(drop)
    }

    /// A host says that the holder of a key has exited.
    fn release_exited(&mut self, key: u8) -> Result<(), Breach> {
        let wanted = self.key(key);
        let held = self
            .oracle
            .held()
            .find(|held| Some(&held.resource) == wanted.as_ref());
        let Some(held) = held else { return Ok(()) };
        let by = By::Holder {
            holder: held.holder,
            lease: Some(held.token.lease),
            exited: true,
        };
        self.call(Some(key), Action::Release(by), Wait::No)
            .map(drop)
    }

    fn redeem(&mut self, seat: u8, ticket: u8) -> Result<(), Breach> {
        let at = usize::from(ticket).checked_rem(self.tickets.len());
        let ticket = at.and_then(|at| self.tickets.get(at).copied());
        let (Some((_, to)), Some(ticket)) = (self.awake(seat), ticket) else {
            return Ok(());
        };
        let proof = AdoptProof::Ticket(ticket.ticket);
        let action = Action::Adopt {
            token: ticket.token,
            proof,
            to,
        };
        if let Got::Grant(grant) = self.call(Some(ticket.key), action, Wait::No)? {
            self.receive(to, ticket.key, &grant);
        }
        Ok(())
    }

    /// An operator retires a lease, and closes the gates to it.
    fn revoke(&mut self, key: u8, even_if_alive: bool) -> Result<(), Breach> {
        let wanted = self.key(key);
        let held = self
            .oracle
            .held()
            .find(|held| Some(&held.resource) == wanted.as_ref());
        let Some(held) = held else { return Ok(()) };
        let action = Action::Revoke {
            expected: held.token.generation,
            by: "operator".into(),
            reason: "a drill".into(),
            even_if_alive,
        };
        if let Got::Done(Code::Revoked) = self.call(Some(key), action, Wait::No)? {
            for at in self.below(key) {
                if let Some(place) = self.places.get_mut(at) {
                    place.gate.revoke(&held.token);
                    place.owner.get_or_insert(held.token.authority);
                    let newer = |closed: &FencingToken| {
                        closed.authority == held.token.authority
                            && closed.generation > held.token.generation
                    };
                    if !place.closed.as_ref().is_some_and(newer) {
                        place.closed = Some(held.token);
                    }
                }
            }
            self.outdate(key, held.token);
        }
        Ok(())
    }

    /// A token of the past is used once more.
    fn haunt(&mut self, past: u8, verb: u8) -> Result<(), Breach> {
        let which = usize::from(past).checked_rem(self.past.len());
        let Some((key, token)) = which.and_then(|which| self.past.get(which).copied()) else {
            return Ok(());
        };
        let op = OpId::from_random(self.ids.bytes());
        let action = haunting(token, verb, op);
        if let Got::Refused(Refusal::StaleToken { .. }) = self.call(Some(key), action, Wait::No)? {
            self.counts.add(Count::Stale, 1);
        }
        Ok(())
    }

    /// What the mail and the prober bring.
    pub(super) fn post(&mut self, step: Step) -> Result<(), Breach> {
        match step {
            Step::Deliver { nth } => match self.letter(nth) {
                Some(letter) => self.deliver(letter),
                None => Ok(()),
            },
            Step::Lose { nth } => match self.letter(nth) {
                Some(letter) => self.lose(letter),
                None => Ok(()),
            },
            Step::Watch => {
                let questions = self.driver.questions();
                self.wonder(questions);
                Ok(())
            }
            Step::Probe { nth } => {
                self.probe(nth);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn letter(&mut self, nth: u8) -> Option<Letter> {
        let at = usize::from(nth).checked_rem(self.mail.len())?;
        Some(self.mail.remove(at))
    }

    fn deliver(&mut self, letter: Letter) -> Result<(), Breach> {
        let seat = self.seats.get_mut(letter.seat);
        let there = seat.filter(|seat| seat.holder.is_some() && seat.holder == letter.holder);
        let (Some(seat), Some(holder)) = (there, letter.holder) else {
            return self.lose(letter);
        };
        seat.waits.retain(|waiter| Some(*waiter) != letter.waiter);
        if let Ok(grant) = &letter.outcome {
            self.receive(holder, letter.key, grant);
        }
        Ok(())
    }

    /// A letter finds nobody: a grant in it is given back.
    fn lose(&mut self, letter: Letter) -> Result<(), Breach> {
        if let Some(seat) = self.seats.get_mut(letter.seat) {
            seat.waits.retain(|waiter| Some(*waiter) != letter.waiter);
        }
        let (Ok(grant), Some(key)) = (letter.outcome, self.key(letter.key)) else {
            return Ok(());
        };
        let token = grant.at.token;
        self.turn(|driver, turn| driver.abandon(&key, grant, turn));
        self.judge(Deed::GaveBack(GaveBack::Grant(token)))
    }

    /// Looks at one holder, now, and keeps what was seen until somebody uses it.
    fn probe(&mut self, nth: u8) {
        let Some(at) = usize::from(nth).checked_rem(self.open.len()) else {
            return;
        };
        let question = self.open.remove(at);
        let verdict = self.look(&question);
        if let Verdict::Unknown(_) = verdict {
            self.counts.add(Count::Unknown, 1);
        }
        self.tell(|| {
            format!(
                "    {:?} is {}: {}",
                question.holder,
                verdict.name(),
                verdict.evidence().proof
            )
        });
        let current = |held: &crate::oracle::Listed<SimHolder>| {
            held.token == question.about && held.handovers == question.handovers
        };
        if !self.oracle.held().any(|held| current(&held)) {
            self.counts.add(Count::StaleEvidence, 1);
        }
        self.evidence
            .retain(|answer| answer.about != question.about);
        self.evidence.push(question.answer(verdict));
        let surplus = self.evidence.len().saturating_sub(8);
        self.evidence.drain(..surplus);
    }

    fn look(&self, question: &Question<SimHolder>) -> Verdict {
        match (
            self.config.terms,
            &question.holder.process,
            question.holder.session,
        ) {
            (Terms::HostedSessions | Terms::Processes, Some(process), _) => {
                self.machines.observe(process, question)
            }
            (Terms::ServerSessions, _, Some(_)) if self.machines.blind => {
                Verdict::Unknown(Evidence::new("server_unreachable"))
            }
            (Terms::ServerSessions, _, Some(session)) => {
                if self.sessions.heard.contains_key(&session) {
                    Verdict::Alive(Evidence::new("session_kept"))
                } else {
                    Verdict::Dead(Evidence::new("session_ended"))
                }
            }
            _ => Verdict::Unknown(Evidence::new("nobody_can_look")),
        }
    }
}

/// What a token of the past may try.
const fn haunting(token: FencingToken, verb: u8, op: OpId) -> Action<SimHolder> {
    let at = lease_core::At {
        token,
        slot: lease_core::Slot::NONE,
    };
    match verb % 8 {
        0 => Action::Touch(at),
        1 => Action::Renew { at, ttl: None },
        2 => Action::Begin {
            at,
            op,
            from: Provenance::Created,
        },
        3 => Action::End {
            at,
            op,
            result: Ok(()),
        },
        4 => Action::Offer {
            at,
            ticket: [7; 16],
        },
        5 => Action::Check(by_token(token)),
        6 => Action::End {
            at,
            op: OpId::ACQUISITION,
            result: Err(Disposition::PreMutation),
        },
        _ => Action::Release(by_token(token)),
    }
}
