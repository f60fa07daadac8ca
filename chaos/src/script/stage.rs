//! Where a story is told: a registry, a clock that only the story moves, and the oracle watching.

use std::collections::VecDeque;
use std::fmt::Display;
use std::hash::{BuildHasherDefault, DefaultHasher};

use lease_core::{
    Action, Answer, At, AuthorityId, By, Call, Change, Code, Disposition, FenceGate, FencingToken,
    Grant, Holder, LeaseId, LeasePolicy, Moment, Note, OpId, Outcome, Provenance, Question,
    Registry, ResourceKey, Seen, Step, Turn, Wait,
};

use super::Told;
use crate::oracle::{Breach, Deed, Life, Listed, Observed, Oracle, ResourceLog, Rule, Said};

/// One authority with everything that is told of it.
#[derive(Debug)]
pub(super) struct Stage<H: Holder> {
    registry: Registry<H, BuildHasherDefault<DefaultHasher>>,
    oracle: Oracle<H>,
    now: Moment,
    answers: Vec<Answer>,
    questions: VecDeque<Question<H>>,
    note: Option<Note>,
    random: u128,
    gate: FenceGate,
    log: ResourceLog,
    bytes: Vec<String>,
    told: Told,
}

impl<H: Holder + serde::Serialize> Stage<H> {
    /// Opens the stage at the moment `ms`.
    pub(super) fn new(policy: LeasePolicy, ms: u64) -> Self {
        let authority = AuthorityId::from_bytes([0xA1; 16]);
        let mut log = ResourceLog::new();
        log.succeeded(authority);
        Self {
            registry: Registry::with_hasher(
                authority,
                policy.clone(),
                BuildHasherDefault::default(),
            )
            .with_receipts(1 << 10),
            oracle: Oracle::new(policy),
            now: Moment::from_millis(ms),
            answers: Vec::new(),
            questions: VecDeque::new(),
            note: None,
            random: 0,
            gate: FenceGate::new(),
            log,
            bytes: Vec::new(),
            told: Told::default(),
        }
    }

    /// Moves the clock.
    pub(super) fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Moment::from_millis(ms);
        self
    }

    /// Tells a line.
    pub(super) fn tell(&mut self, line: impl Into<String>) {
        self.told.lines.push(line.into());
    }

    /// Adds what people say about the next call.
    pub(super) fn note(&mut self, by: &str, reason: &str) -> &mut Self {
        self.note = Some(Note::new(by, reason));
        self
    }

    /// Makes one call. Everything about it is told and judged.
    pub(super) fn call(&mut self, resource: Option<&str>, action: Action<H>) -> Answered {
        let resource = match resource.map(ResourceKey::new).transpose() {
            Ok(resource) => resource,
            Err(error) => {
                self.demand(false, Rule::EffectsAreSeen, format!("{error}"));
                return Answered::Nothing;
            }
        };
        self.tell(format!("{} {}", self.now, asks(resource.as_ref(), &action)));
        let call = Call {
            resource,
            action,
            wait: Wait::No,
        };
        let random = &mut self.random;
        let mut lease_id = || {
            *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            LeaseId::from_random(random.wrapping_mul(0xD1B5_4A32_D192_ED03).to_be_bytes())
        };
        let seen = Seen {
            now: self.now,
            wall_ms: None,
            answers: &self.answers,
        };
        let mut turn = Turn::new(seen, &mut lease_id);
        turn.note = self.note.take();
        let step = self.registry.call(&call, &mut turn);
        self.answered(&call, step)
    }

    fn answered(&mut self, call: &Call<H>, step: Step<H>) -> Answered {
        let (said, answered, line) = match step {
            Step::Done(Outcome::Granted(grant, _)) => (
                Said::Granted(grant.at.token, grant.provenance),
                Answered::Grant(grant),
                None,
            ),
            Step::Done(Outcome::Done(change)) => (Said::Done(change), Answered::Done(change), None),
            Step::Done(Outcome::Many(changes)) => (Said::Many(changes), Answered::Nothing, None),
            Step::Done(Outcome::Refused(refusal)) => {
                let line = format!("  refused {}: {refusal}", refusal.code());
                (
                    Said::Refused(refusal.code()),
                    Answered::Refused(refusal.code()),
                    Some(line),
                )
            }
            Step::Queued(waiter) => (Said::Queued(waiter), Answered::Nothing, None),
            Step::Ask(questions) => {
                let whom: Vec<_> = questions.iter().map(|question| &question.holder).collect();
                let line = format!("  asks after {whom:?}");
                self.questions.extend(questions);
                (Said::Asked, Answered::Nothing, Some(line))
            }
        };
        self.judge(call, said);
        self.told.lines.extend(line);
        answered
    }

    fn judge(&mut self, call: &Call<H>, said: Said) {
        let receipts = self.registry.take_receipts().receipts;
        for receipt in &receipts {
            self.told.lines.push(format!("  {receipt}"));
            self.told.receipts.extend(serde_json::to_value(receipt));
        }
        let listed: Vec<_> = self
            .registry
            .peek(self.now)
            .iter()
            .map(Listed::from)
            .collect();
        let observed = Observed {
            read: self.now,
            deed: Deed::Called(call, said),
            answers: &self.answers,
            receipts: &receipts,
            settled: &[],
            listed: &listed,
            due: self.registry.next_deadline().into(),
            footprint: Some(self.registry.footprint()),
        };
        // Who is gone is gone: the story answers only what it made true.
        let judged = self.oracle.judge(&observed, &|_, _| Life::Gone);
        self.told.breaches.extend(judged.err());
    }

    /// Asks for a lease.
    pub(super) fn ask(&mut self, resource: &str, holder: &H) -> Option<Grant> {
        let action = Action::Acquire {
            holder: holder.clone(),
            ttl: None,
        };
        match self.call(Some(resource), action) {
            Answered::Grant(grant) => Some(grant),
            _ => None,
        }
    }

    /// Puts an operation in flight.
    pub(super) fn begin(&mut self, resource: &str, at: At, op: OpId, from: Provenance) -> Answered {
        self.call(Some(resource), Action::Begin { at, op, from })
    }

    /// Ends an operation.
    pub(super) fn end(
        &mut self,
        resource: &str,
        at: At,
        op: OpId,
        result: Result<(), Disposition>,
    ) -> Answered {
        self.call(Some(resource), Action::End { at, op, result })
    }

    /// Says that a connection is lost.
    pub(super) fn disconnect(&mut self, holder: &H) {
        let _nothing = self.call(None, Action::Disconnect(holder.clone()));
    }

    /// Takes the oldest question that nobody answered.
    pub(super) fn question(&mut self) -> Option<Question<H>> {
        self.questions.pop_front()
    }

    /// Gives an answer, in place of earlier ones.
    pub(super) fn know(&mut self, answer: Answer) {
        let (name, proof) = (answer.verdict.name(), &answer.verdict.evidence().proof);
        self.told.lines.push(format!("  {name}: {proof}"));
        self.answers = vec![answer];
    }

    /// Forgets the answers.
    pub(super) fn forget(&mut self) {
        self.answers.clear();
    }

    /// Writes at the guarded resource, through the gate or not at all.
    pub(super) fn write(&mut self, token: &FencingToken, text: &str) {
        let generation = token.generation;
        self.tell(format!(
            "{} generation {generation} writes {text:?}",
            self.now
        ));
        match self.gate.enter(token) {
            Ok(()) => {
                self.told.breaches.extend(self.log.accepted(token).err());
                self.bytes.push(text.to_owned());
            }
            Err(fenced) => self.tell(format!("  turned away: {fenced}")),
        }
    }

    /// Returns what was written.
    pub(super) fn written(&self) -> &[String] {
        &self.bytes
    }

    /// Returns what is held, as it is listed.
    pub(super) fn listed(&self) -> Vec<Listed<H>> {
        self.registry
            .peek(self.now)
            .iter()
            .map(Listed::from)
            .collect()
    }

    /// Says that the story fails unless something is so.
    pub(super) fn demand(&mut self, is_so: bool, rule: Rule, what: impl Display) {
        if !is_so {
            self.told.breaches.push(Breach::new(rule, what.to_string()));
        }
    }

    /// Ends the story.
    pub(super) fn told(self) -> Told {
        self.told
    }
}

/// What a story makes of an answer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a grant that is dropped is a lease that nobody can release"]
pub(super) enum Answered {
    /// A grant.
    Grant(Grant),
    /// Done.
    Done(Change),
    /// No.
    Refused(Code),
    /// Anything else.
    Nothing,
}

/// A call in words, without random ids.
fn asks<H: Holder>(resource: Option<&ResourceKey>, action: &Action<H>) -> String {
    let of = |at: &At| format!("generation {}", at.token.generation);
    let what = match action {
        Action::Acquire { holder, .. } => format!("{holder:?} asks for"),
        Action::Touch(at) => format!("{} touches", of(at)),
        Action::Renew { at, .. } => format!("{} renews", of(at)),
        Action::Begin { at, .. } => format!("{} begins at", of(at)),
        Action::End { at, result, .. } => match result {
            Ok(()) => format!("{} ends well at", of(at)),
            Err(disposition) => format!("{} fails with {disposition:?} at", of(at)),
        },
        Action::Release(By::Token(at)) => format!("{} releases", of(at)),
        Action::Release(By::Holder { holder, .. }) => format!("{holder:?} releases"),
        Action::Disconnect(holder) => format!("{holder:?} disconnects"),
        Action::Check(By::Token(at)) => format!("{} checks", of(at)),
        Action::Check(By::Holder { holder, .. }) => format!("{holder:?} checks"),
        Action::Offer { at, .. } => format!("{} is offered at", of(at)),
        Action::Adopt { to, .. } => format!("{to:?} adopts"),
        Action::Revoke { expected, .. } => format!("an operator revokes generation {expected} of"),
        Action::Sweep => "somebody sweeps".to_owned(),
    };
    match resource {
        Some(resource) => format!("{what} {resource}"),
        None => what,
    }
}
