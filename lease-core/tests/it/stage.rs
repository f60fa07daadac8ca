//! A stage: one registry and the people around it, who turn the beats of a history into calls.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lease_core::{
    Action, AdoptProof, Answer, At, By, Call, Change, Code, Detail, FencingToken, Grant, LeaseView,
    Moment, Note, OpId, Outcome, ProcessProof, Provenance, Question, Receipt, Registry,
    ResourceKey, Seen, SessionHolder, Settled, Step, Turn, Wait, WaiterId,
};

use crate::history::{
    AUTHORITY, Beat, Deed, Fate, History, KEYS, Lapse, Patience, Pick, Terms, lease_id, term,
    token, writer,
};
use crate::rig::{T0, key, ms, op};

/// A step with everything that it takes, to be played as often as one likes.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) now: Moment,
    pub(crate) answers: Vec<Answer>,
    pub(crate) act: Act,
}

/// What is called.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Call(Call<SessionHolder>),
    Advance,
    List,
    Cancel(WaiterId),
    /// Gives back the grant at this place of the received ones.
    Abandon {
        place: usize,
        resource: ResourceKey,
        token: FencingToken,
        provenance: Provenance,
    },
    Receive,
}

/// What was answered, as far as it can be foretold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Granted(FencingToken, Provenance, Code),
    Done(Code, Option<FencingToken>),
    Many(Vec<(Code, FencingToken)>),
    /// With one of these codes.
    Refused(BTreeSet<Code>),
    /// About the holders of these leases.
    Asked(BTreeSet<u64>),
    Queued(WaiterId),
    Known(bool),
    Listed(Vec<LeaseView<SessionHolder>>),
    Nothing,
}

/// One receipt, as far as it can be foretold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) code: Code,
    pub(crate) token: Option<FencingToken>,
    pub(crate) resource: Option<ResourceKey>,
    pub(crate) holder: Option<SessionHolder>,
}

/// How a request that waited was answered.
pub(crate) type Answered = Result<(FencingToken, Provenance), Code>;

/// What one scene led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) said: Said,
    pub(crate) receipts: Vec<Receipt<SessionHolder>>,
    /// Which waiting requests were served or left, in this order.
    pub(crate) served: Vec<WaiterId>,
}

impl Shown {
    pub(crate) fn lines(&self) -> Vec<Line> {
        let line = |receipt: &Receipt<SessionHolder>| Line {
            code: receipt.change.code,
            token: receipt.change.token,
            resource: receipt.resource.clone(),
            holder: receipt.holder.clone(),
        };
        self.receipts.iter().map(line).collect()
    }
}

/// A registry, and the people around it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) registry: Registry<SessionHolder>,
    pub(crate) now: Moment,
    /// Every token that somebody got, and for what.
    pub(crate) tokens: Vec<(ResourceKey, At)>,
    grants: Vec<(ResourceKey, Grant)>,
    queued: u64,
    drawn: u64,
    fates: [Fate; 3],
    rumours: Vec<Answer>,
    /// For people only.
    pub(crate) wall_ms: Option<i64>,
    pub(crate) note: Option<Note>,
}

impl Clone for Stage {
    /// A copy of the world. Grants cannot be copied, so nobody in it has any to give back.
    fn clone(&self) -> Self {
        Self {
            registry: self.registry.clone(),
            now: self.now,
            tokens: self.tokens.clone(),
            grants: Vec::new(),
            queued: self.queued,
            drawn: self.drawn,
            fates: self.fates,
            rumours: self.rumours.clone(),
            wall_ms: self.wall_ms,
            note: self.note.clone(),
        }
    }
}

impl Stage {
    pub(crate) fn new(terms: Terms) -> Self {
        Self::with_receipts(terms, 1 << 20)
    }

    pub(crate) fn with_receipts(terms: Terms, most: usize) -> Self {
        Self {
            registry: Registry::new(AUTHORITY, terms.policy()).with_receipts(most),
            now: ms(T0),
            tokens: Vec::new(),
            grants: Vec::new(),
            queued: 0,
            drawn: 0,
            fates: [Fate::Alive; 3],
            rumours: Vec::new(),
            wall_ms: None,
            note: None,
        }
    }

    /// Plays a beat: one scene, and a second with the answers if the first one asked.
    pub(crate) fn play(&mut self, beat: &Beat, mut each: impl FnMut(&Played<'_>)) {
        self.now = self.after(beat.lapse);
        let Some(mut scene) = self.scene(&beat.deed) else {
            return;
        };
        for _ in 0..2 {
            let before = self.clone();
            let shown = self.perform(&scene);
            each(&Played {
                before: &before,
                after: self,
                scene: &scene,
                shown: &shown,
            });
            let Said::Asked(asked) = shown.said else {
                return;
            };
            scene.answers.extend(self.observe(&asked));
        }
    }

    fn after(&self, lapse: Lapse) -> Moment {
        let near = |moment: Moment, off: i64| {
            let moment = Moment::from_nanos(moment.as_nanos().saturating_add_signed(off));
            moment.max(self.now)
        };
        match lapse {
            Lapse::Stays => self.now,
            Lapse::Nanos(span) => self.now.after(Duration::from_nanos(span)),
            Lapse::Edge(number, off) => {
                let views = self.registry.peek(self.now);
                let terms: Vec<_> = views.iter().filter_map(|view| view.expires).collect();
                match terms.get(number % terms.len().max(1)) {
                    Some(last) => near(*last, off),
                    None => self.now.after(Duration::from_millis(1)),
                }
            }
            Lapse::Deadline(off) => match self.registry.next_deadline() {
                Some(deadline) => near(deadline, off),
                None => self.now,
            },
            Lapse::Back(span) => Moment::from_nanos(self.now.as_nanos().saturating_sub(span)),
        }
    }

    /// What is seen of the holders of these leases.
    fn observe(&self, asked: &BTreeSet<u64>) -> Vec<Answer> {
        let views = self.registry.peek(self.now);
        let asked = views
            .iter()
            .filter(|view| asked.contains(&view.token.generation.get()));
        asked
            .map(|view| {
                let fate = (0..3).find(|&n| writer(n) == view.holder).unwrap();
                self.seen(view, self.fates[fate])
            })
            .collect()
    }

    fn seen(&self, view: &LeaseView<SessionHolder>, fate: Fate) -> Answer {
        let proof = ProcessProof::default();
        let question = Question::new(view.holder.clone(), view.token, view.handovers, proof);
        question.answer(fate.verdict())
    }

    fn pick(&self, pick: Pick) -> (ResourceKey, At) {
        let present = |number: usize| {
            let views = self.registry.peek(self.now);
            let view = views.get(number % views.len().max(1));
            // With the place where it was when it was granted, if that is known.
            let known = |token| {
                let mut known = self.tokens.iter().map(|(_, at)| *at);
                known.find(|at| at.token == token)
            };
            let at = |token| known(token).unwrap_or_else(|| At::from(token));
            let present = view.map(|view| (view.resource.clone(), at(view.token)));
            let newest = || self.tokens.last().cloned();
            let nothing = || (key(KEYS[number]), At::from(token(1_000)));
            present.or_else(newest).unwrap_or_else(nothing)
        };
        match pick {
            Pick::Present(number) => present(number),
            Pick::Old(back) => {
                let mut known = self.tokens.iter().rev();
                known.nth(back).cloned().unwrap_or_else(|| present(0))
            }
            Pick::Forged(number) => {
                let (resource, mut at) = present(number);
                at.token.lease = lease_id(1_001);
                (resource, at)
            }
        }
    }

    fn scene(&mut self, deed: &Deed) -> Option<Scene> {
        let act = match *deed {
            Deed::Becomes(who, fate) => {
                self.fates[who] = fate;
                return None;
            }
            Deed::Rumour(which, handovers, fate) => {
                let (resource, at) = self.pick(which);
                // Nothing is seen of a holder that is yet to come.
                let lease = self.registry.lease(&resource);
                let handovers = handovers.min(lease.map_or(0, |lease| lease.handovers));
                let proof = ProcessProof::default();
                let question = Question::new(writer(0), at.token, handovers, proof);
                let answer = question.answer(fate.verdict());
                self.rumours.retain(|other| other.about != answer.about);
                self.rumours.push(answer);
                return None;
            }
            Deed::Advance | Deed::Watch => Act::Advance,
            Deed::List => Act::List,
            Deed::Receive => Act::Receive,
            Deed::Cancel(back) => {
                let number = self.queued.checked_sub(1 + u64::try_from(back).unwrap())?;
                Act::Cancel(WaiterId::from_order(number))
            }
            Deed::Abandon(back) => {
                let place = self.grants.len().checked_sub(1 + back)?;
                let (resource, grant) = &self.grants[place];
                Act::Abandon {
                    place,
                    resource: resource.clone(),
                    token: grant.at.token,
                    provenance: grant.provenance,
                }
            }
            _ => Act::Call(self.call(deed)),
        };
        let mut answers = core::mem::take(&mut self.rumours);
        if let Deed::Watch = deed {
            let asked = self.registry.questions();
            let asked = asked.iter().map(|question| question.about.generation.get());
            answers = self.observe(&asked.collect());
        }
        Some(Scene {
            now: self.now,
            answers,
            act,
        })
    }

    fn call(&self, deed: &Deed) -> Call<SessionHolder> {
        let wait = match *deed {
            Deed::Acquire { patience, .. } => match patience {
                Patience::None => Wait::No,
                Patience::For(span) => Wait::Until(self.now.after(Duration::from_nanos(span))),
                Patience::Forever => Wait::Forever,
            },
            _ => Wait::No,
        };
        let (resource, action) = self.action(deed);
        Call {
            resource,
            action,
            wait,
        }
    }

    fn action(&self, deed: &Deed) -> (Option<ResourceKey>, Action<SessionHolder>) {
        match *deed {
            Deed::Acquire {
                key: n, who, ttl, ..
            } => {
                let (holder, ttl) = (writer(who), term(ttl));
                (Some(key(KEYS[n])), Action::Acquire { holder, ttl })
            }
            Deed::Disconnect(who) => (None, Action::Disconnect(writer(who))),
            _ => match deed.which() {
                Some(which) => {
                    let (resource, at) = self.pick(which);
                    let lease = self.registry.lease(&resource);
                    let holder = lease.map_or_else(|| writer(0), |lease| lease.holder.clone());
                    let running = lease.and_then(|lease| lease.ops.first());
                    let running = running.map_or_else(|| op(1), |running| running.id);
                    (Some(resource), with_token(deed, at, &holder, running))
                }
                None => (None, Action::Sweep),
            },
        }
    }

    /// Plays a scene.
    pub(crate) fn perform(&mut self, scene: &Scene) -> Shown {
        self.now = scene.now;
        let grants = &mut self.grants;
        let drawn = &mut self.drawn;
        let mut draw = || {
            *drawn += 1;
            lease_id(*drawn)
        };
        let mut seen = Seen::at(scene.now);
        seen.wall_ms = self.wall_ms;
        seen.answers = &scene.answers;
        let mut turn = Turn::new(seen, &mut draw);
        turn.note = self.note.clone();
        let mut received = Vec::new();
        let registry = &mut self.registry;
        let said = match &scene.act {
            Act::Call(call) => said(registry.call(call, &mut turn), call, &mut received),
            Act::Advance => many(&registry.advance(&mut turn)),
            Act::List => Said::Listed(registry.list(&mut turn)),
            Act::Cancel(waiter) => Said::Known(registry.cancel(*waiter, &mut turn)),
            Act::Abandon { place, .. } => {
                if *place < grants.len() {
                    let (resource, grant) = grants.remove(*place);
                    registry.abandon(&resource, grant, &mut turn);
                }
                Said::Nothing
            }
            Act::Receive => {
                while let Some(settled) = registry.take_settled() {
                    if let Ok((grant, _)) = settled.outcome {
                        received.push((settled.resource, grant));
                    }
                }
                Said::Nothing
            }
        };
        if let Said::Queued(waiter) = said {
            self.queued = waiter.order() + 1;
        }
        for (resource, grant) in received {
            self.tokens.push((resource.clone(), grant.at));
            self.grants.push((resource, grant));
        }
        let receipts = self.registry.take_receipts().receipts;
        let served = served(&receipts, &self.settled());
        Shown {
            said,
            receipts,
            served,
        }
    }

    /// The answers to waiting requests that nobody has received.
    pub(crate) fn settled(&self) -> Vec<Settled<SessionHolder>> {
        let mut copy = self.registry.clone();
        core::iter::from_fn(|| copy.take_settled()).collect()
    }

    /// The same, as far as they can be foretold.
    pub(crate) fn answered(&self) -> BTreeMap<WaiterId, Answered> {
        let answered = |settled: Settled<SessionHolder>| {
            let outcome = settled.outcome;
            let answered = outcome.map(|(grant, _)| (grant.at.token, grant.provenance));
            (settled.waiter, answered.map_err(|refusal| refusal.code()))
        };
        self.settled().into_iter().map(answered).collect()
    }
}

/// A scene that was played.
pub(crate) struct Played<'a> {
    pub(crate) before: &'a Stage,
    pub(crate) after: &'a Stage,
    pub(crate) scene: &'a Scene,
    pub(crate) shown: &'a Shown,
}

/// Plays a history, and gives back the stage at its end.
pub(crate) fn play(history: &History, mut each: impl FnMut(&Played<'_>)) -> Stage {
    let mut stage = Stage::new(history.terms);
    for beat in &history.beats {
        stage.play(beat, &mut each);
    }
    stage
}

pub(crate) fn said(
    step: Step<SessionHolder>,
    call: &Call<SessionHolder>,
    received: &mut Vec<(ResourceKey, Grant)>,
) -> Said {
    match step {
        Step::Done(Outcome::Granted(grant, change)) => {
            let said = Said::Granted(grant.at.token, grant.provenance, change.code);
            received.push((call.resource.clone().unwrap(), grant));
            said
        }
        Step::Done(Outcome::Done(change)) => Said::Done(change.code, change.token),
        Step::Done(Outcome::Many(changes)) => many(&changes),
        Step::Done(Outcome::Refused(refusal)) => Said::Refused([refusal.code()].into()),
        Step::Ask(questions) => {
            let about = questions.iter().map(|asked| asked.about.generation.get());
            Said::Asked(about.collect())
        }
        Step::Queued(waiter) => Said::Queued(waiter),
    }
}

fn many(changes: &[Change]) -> Said {
    let one = |change: &Change| (change.code, change.token.unwrap());
    Said::Many(changes.iter().map(one).collect())
}

/// Which waiting requests were served or left, in the order of the receipts.
fn served(
    receipts: &[Receipt<SessionHolder>],
    settled: &[Settled<SessionHolder>],
) -> Vec<WaiterId> {
    let one = |receipt: &Receipt<SessionHolder>| match receipt.change.detail {
        Detail::Waiting { .. } if receipt.change.code == Code::Queued => None,
        Detail::Waiting { waiter } => Some(waiter),
        _ => {
            let granted = |settled: &&Settled<SessionHolder>| {
                let granted = settled.outcome.as_ref();
                granted.is_ok_and(|(_, change)| change.seq == receipt.change.seq)
            };
            settled.iter().find(granted).map(|settled| settled.waiter)
        }
    };
    receipts.iter().filter_map(one).collect()
}

/// What is done with the token of a lease that `holder` holds, with this operation in flight.
fn with_token(deed: &Deed, at: At, holder: &SessionHolder, running: OpId) -> Action<SessionHolder> {
    let by = |who, named, exited| By::Holder {
        holder: if who < 3 { writer(who) } else { holder.clone() },
        lease: Some(at.token.lease).filter(|_| named),
        exited,
    };
    let ticket = |number: u8| [number + 1; 16];
    match *deed {
        Deed::Touch(_) => Action::Touch(at),
        Deed::Renew(_, ttl) => Action::Renew { at, ttl: term(ttl) },
        Deed::Begin(_, number, from) => {
            let op = op(number);
            Action::Begin { at, op, from }
        }
        Deed::End(_, number, result) => {
            let op = if number < 3 { op(number) } else { running };
            Action::End { at, op, result }
        }
        Deed::Release(_) => Action::Release(By::Token(at)),
        Deed::ReleaseAs {
            who, named, exited, ..
        } => Action::Release(by(who, named, exited)),
        Deed::Check(_) => Action::Check(By::Token(at)),
        Deed::CheckAs { who, named, .. } => Action::Check(by(who, named, false)),
        Deed::Offer(_, number) => {
            let ticket = ticket(number);
            Action::Offer { at, ticket }
        }
        Deed::Adopt {
            by,
            ticket: number,
            to,
            ..
        } => {
            let (token, to) = (at.token, writer(to));
            let by = if by < 3 { writer(by) } else { holder.clone() };
            let present = AdoptProof::Present(by);
            let proof = number.map_or(present, |number| AdoptProof::Ticket(ticket(number)));
            Action::Adopt { token, proof, to }
        }
        Deed::Revoke { even_if_alive, .. } => Action::Revoke {
            expected: at.token.generation,
            by: "operator".into(),
            reason: "stuck".into(),
            even_if_alive,
        },
        _ => Action::Sweep,
    }
}
