//! The rules of leases said once more, as plainly as can be: lists, and loops over all of them.
//!
//! It is written from the rules and not from the code that it is compared with. It finds nothing fast,
//! keeps no timers, and looks at everybody after every step. One thing it is told: in which order a
//! call served those who waited. Among requests that do not overlap any order is right, so it checks
//! that each of them could go when it went, and that nobody who could go is left.

mod lease;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lease_core::{
    Action, Again, Answer, By, Call, Code, FencingToken, LeasePolicy, LeaseView, Moment, Operation,
    Provenance, ResourceKey, SessionHolder, Wait, WaiterId,
};

use self::lease::{Seen, no};
use crate::history::token;
use crate::stage::{Act, Answered, Line, Said, Scene};

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    resource: ResourceKey,
    holder: SessionHolder,
    token: FencingToken,
    acquired: Moment,
    touched: Moment,
    expires: Option<Moment>,
    ops: Vec<Operation>,
    tainted: bool,
    handovers: u32,
    /// Somebody besides its maker relies on it.
    shared: bool,
    /// Its maker's operation has begun.
    begun: bool,
    ticket: Option<[u8; 16]>,
}

/// One request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    id: WaiterId,
    resource: ResourceKey,
    holder: SessionHolder,
    ttl: Option<Duration>,
    deadline: Option<Moment>,
}

/// What a request would get now.
enum Ruling {
    /// Its own lease again.
    Again(Option<Moment>),
    /// A new lease, once these are ended; whether one of them is replaced at the same resource.
    Fresh {
        ended: Vec<(FencingToken, Code)>,
        takes_over: bool,
        expires: Option<Moment>,
    },
    /// Nothing, for one of these reasons; whether it can wait.
    No(BTreeSet<Code>, bool),
    /// Nothing before it is known of the holders of these leases whether they are there.
    Ask(BTreeSet<u64>),
}

/// Everything that an authority should know.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    policy: LeasePolicy,
    /// The oldest generation first.
    leases: Vec<Held>,
    /// The earliest first.
    waiters: Vec<Waiting>,
    pub(crate) settled: BTreeMap<WaiterId, Answered>,
    generations: u64,
    queued: u64,
    now: Moment,
    behind: bool,
    answers: Vec<Answer>,
    /// The receipts of the last scene.
    pub(crate) lines: Vec<Line>,
}

impl Reference {
    pub(crate) const fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            leases: Vec::new(),
            waiters: Vec::new(),
            settled: BTreeMap::new(),
            generations: 0,
            queued: 0,
            now: Moment::ZERO,
            behind: false,
            answers: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// What is held, in order of resources.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<_> = self
            .leases
            .iter()
            .map(|lease| Row::of(lease, self))
            .collect();
        rows.sort_by(|a, b| a.resource.cmp(&b.resource));
        rows
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Plays a scene in which those who waited were served in the order `served`.
    #[track_caller]
    pub(crate) fn perform(&mut self, scene: &Scene, served: &[WaiterId]) -> Said {
        let mut served: VecDeque<WaiterId> = served.iter().copied().collect();
        self.lines.clear();
        self.answers.clone_from(&scene.answers);
        if let Act::Receive = scene.act {
            self.settled.clear();
            return Said::Nothing;
        }
        self.observe(scene.now);
        // A call that does not sweep leaves those alone whom only time or an answer let go.
        let swept = !matches!(
            &scene.act,
            Act::Cancel(_)
                | Act::Abandon { .. }
                | Act::Call(Call {
                    action: Action::Disconnect(_),
                    ..
                })
        );
        let mut swept_now = Vec::new();
        let mut patient = BTreeSet::new();
        if !swept {
            patient = self.ready().into_iter().collect();
        }
        while self.end_wait(&mut served, |deadline, now| deadline < now) {}
        if swept {
            swept_now = self.settle_due(&mut served);
        }
        let said = match &scene.act {
            Act::Call(call) => match &call.action {
                Action::Sweep => Said::Many(swept_now),
                Action::Disconnect(holder) => self.disconnect(holder, &mut served),
                action => self.at_resource(call.resource.as_ref().unwrap(), action, call.wait),
            },
            Act::Advance => Said::Many(swept_now),
            Act::List => Said::Listed(Vec::new()),
            Act::Cancel(waiter) => Said::Known(self.cancel(*waiter, &mut served)),
            Act::Abandon {
                resource,
                token,
                provenance,
                ..
            } => {
                self.abandon(resource, *token, *provenance);
                Said::Nothing
            }
            Act::Receive => Said::Nothing,
        };
        self.serve(&mut served, &patient);
        assert!(served.is_empty(), "{served:?} could not go");
        said
    }

    fn observe(&mut self, read: Moment) {
        if read >= self.now {
            self.now = read;
            self.behind = false;
        } else if !self.behind {
            self.behind = true;
            self.lines.push(Line {
                code: Code::ClockSteppedBack,
                token: None,
                resource: None,
                holder: None,
            });
        }
    }

    /// Sweeps, serves, and ends the waits whose time has come.
    fn settle_due(&mut self, served: &mut VecDeque<WaiterId>) -> Vec<(Code, FencingToken)> {
        let over: Vec<_> = self
            .leases
            .iter()
            .filter(|lease| self.over(lease))
            .collect();
        let over: Vec<_> = over
            .iter()
            .map(|lease| (Code::Reclaimed, lease.token))
            .collect();
        for (code, token) in &over {
            self.end(*token, *code);
        }
        self.serve(served, &BTreeSet::new());
        while self.end_wait(served, |deadline, now| deadline <= now) {
            self.serve(served, &BTreeSet::new());
        }
        over
    }

    /// Ends the first wait that `ends` for its deadline and the present moment, if there is one.
    fn end_wait(
        &mut self,
        served: &mut VecDeque<WaiterId>,
        ends: impl Fn(Moment, Moment) -> bool,
    ) -> bool {
        let due = self.waiters.iter().filter_map(|waiter| {
            let deadline = waiter
                .deadline
                .filter(|deadline| ends(*deadline, self.now))?;
            Some((deadline, waiter.id))
        });
        let Some((_, first)) = due.min() else {
            return false;
        };
        assert_eq!(served.pop_front(), Some(first), "its time has come");
        self.leave(first, Code::WaitTimedOut, Err(Code::WaitTimedOut));
        true
    }

    /// Serves everybody who can go. Those of `patient` may be left out.
    fn serve(&mut self, served: &mut VecDeque<WaiterId>, patient: &BTreeSet<WaiterId>) {
        loop {
            let ready = self.ready();
            let Some(next) = served.front().copied().filter(|next| ready.contains(next)) else {
                let left: Vec<_> = ready.iter().filter(|id| !patient.contains(id)).collect();
                assert!(left.is_empty(), "{left:?} could go, {served:?} went");
                return;
            };
            served.pop_front();
            let waiter = self.waiters.iter().find(|waiter| waiter.id == next);
            let waiter = waiter.cloned().unwrap();
            for earlier in self.waiters.iter().filter(|other| other.id < next) {
                let overtaken = ready.contains(&earlier.id)
                    && earlier.holder != waiter.holder
                    && earlier.resource.overlaps(&waiter.resource);
                assert!(!overtaken, "{waiter:?} overtook {earlier:?}");
            }
            match self.rule(&waiter.resource, &waiter.holder, waiter.ttl, Some(next)) {
                Ruling::No(codes, _) => {
                    let code = codes.into_iter().next().unwrap();
                    self.leave(next, Code::Abandoned, Err(code));
                }
                ruling => {
                    self.waiters.retain(|other| other.id != next);
                    let (token, from, _) = self.give(&waiter.resource, &waiter.holder, ruling);
                    self.settled.insert(next, Ok((token, from)));
                }
            }
        }
    }

    /// The waiting requests that can go now: with a lease, or with a refusal that waiting cannot help.
    fn ready(&self) -> Vec<WaiterId> {
        let ready = |waiter: &&Waiting| {
            let id = Some(waiter.id);
            match self.rule(&waiter.resource, &waiter.holder, waiter.ttl, id) {
                Ruling::Again(_) | Ruling::Fresh { .. } => true,
                Ruling::No(_, waits) => !waits,
                Ruling::Ask(_) => false,
            }
        };
        self.waiters
            .iter()
            .filter(ready)
            .map(|waiter| waiter.id)
            .collect()
    }

    /// What those who wait would like to know.
    pub(crate) fn questions(&mut self) -> BTreeSet<u64> {
        self.answers.clear();
        let asked = self.waiters.iter().filter_map(|waiter| {
            let id = Some(waiter.id);
            match self.rule(&waiter.resource, &waiter.holder, waiter.ttl, id) {
                Ruling::Ask(asked) => Some(asked),
                Ruling::Again(_) | Ruling::Fresh { .. } | Ruling::No(..) => None,
            }
        });
        asked.flatten().collect()
    }

    fn at_resource(
        &mut self,
        resource: &ResourceKey,
        action: &Action<SessionHolder>,
        wait: Wait,
    ) -> Said {
        let done = match action {
            Action::Acquire { holder, ttl } => return self.acquire(resource, holder, *ttl, wait),
            Action::Touch(at) => self.renew(resource, *at, None, Code::Touched),
            Action::Renew { at, ttl } => {
                let code = match self.policy.again() {
                    Again::Touch => Code::Touched,
                    Again::Renew => Code::Renewed,
                };
                self.renew(resource, *at, *ttl, code)
            }
            Action::Begin { at, op, from } => self.begin(resource, *at, *op, *from),
            Action::End { at, op, result } => self.finish(resource, at.token, *op, *result),
            Action::Release(By::Token(at)) => self
                .current(resource, at.token)
                .and_then(|token| self.release(token, false)),
            Action::Release(By::Holder {
                holder,
                lease,
                exited,
            }) => self.release_as(resource, holder, *lease, *exited),
            Action::Offer { at, ticket } => self.current(resource, at.token).map(|token| {
                self.lease(token).ticket = Some(*ticket);
                (Code::Offered, Some(token))
            }),
            Action::Adopt { token, proof, to } => {
                return match self.adopt(resource, *token, proof, to) {
                    Ok(()) => {
                        self.tell(Code::Adopted, Some(*token), resource);
                        Said::Granted(*token, Provenance::Reentrant, Code::Adopted)
                    }
                    Err(no) => no,
                };
            }
            Action::Revoke {
                expected,
                even_if_alive,
                ..
            } => self.revoke(resource, *expected, *even_if_alive),
            Action::Check(By::Token(at)) => self.current(resource, at.token).and_then(|token| {
                if self.suspended(self.find(token)) {
                    return no(Code::LeaseMismatch);
                }
                Ok((Code::Entitled, Some(token)))
            }),
            Action::Check(By::Holder { holder, lease, .. }) => {
                self.check_as(resource, holder, *lease)
            }
            Action::Disconnect(_) | Action::Sweep => no(Code::InvalidHolder),
        };
        match done {
            Err(no) => no,
            Ok((code, token)) => {
                // An end has written its receipt already.
                if token.is_none_or(|token| self.leases.iter().any(|l| l.token == token)) {
                    self.tell(code, token, resource);
                }
                Said::Done(code, token)
            }
        }
    }

    fn acquire(
        &mut self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        ttl: Option<Duration>,
        wait: Wait,
    ) -> Said {
        let deadline = match wait {
            Wait::No => None,
            Wait::Until(deadline) => Some(Some(deadline)).filter(|_| deadline > self.now),
            Wait::Forever => Some(None),
        };
        match (self.rule(resource, holder, ttl, None), deadline) {
            (Ruling::Ask(asked), _) => Said::Asked(asked),
            (Ruling::No(_, true), Some(deadline)) => {
                let id = WaiterId::from_order(self.queued);
                self.queued += 1;
                self.waiters.push(Waiting {
                    id,
                    resource: resource.clone(),
                    holder: holder.clone(),
                    ttl,
                    deadline,
                });
                self.write(Code::Queued, None, resource, holder);
                Said::Queued(id)
            }
            (Ruling::No(codes, _), _) => Said::Refused(codes),
            (ruling, _) => {
                let (token, from, code) = self.give(resource, holder, ruling);
                Said::Granted(token, from, code)
            }
        }
    }

    /// What a request gets. Only requests before `me` are in front of it.
    fn rule(
        &self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        ttl: Option<Duration>,
        me: Option<WaiterId>,
    ) -> Ruling {
        let own = self
            .present(resource)
            .filter(|lease| lease.holder == *holder);
        if let Some(lease) = own {
            return match self.term_again(lease, ttl) {
                Ok(expires) => Ruling::Again(expires),
                Err(code) => Ruling::No([code].into(), false),
            };
        }
        let Ok(expires) = self.first_term(ttl) else {
            return Ruling::No([Code::InvalidHolder].into(), false);
        };
        let (mut ended, mut codes, mut asked) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for lease in self
            .leases
            .iter()
            .filter(|lease| lease.resource.overlaps(resource))
        {
            let same = lease.resource == *resource;
            if self.over(lease) {
                if lease.holder != *holder || same {
                    ended.push((lease.token, Code::Reclaimed));
                }
                continue;
            }
            if lease.holder == *holder {
                continue;
            }
            match self.seen(lease) {
                Seen::Nothing => drop(codes.insert(self.held())),
                Seen::Unasked => drop(asked.insert(lease.token.generation.get())),
                Seen::There => drop(codes.insert(self.held())),
                Seen::Doubt => drop(codes.insert(Code::InvalidHolder)),
                Seen::Gone => ended.push((lease.token, self.gone(same))),
            }
        }
        if !codes.is_empty() {
            return Ruling::No(codes, true);
        }
        if !asked.is_empty() {
            return Ruling::Ask(asked);
        }
        if self.must_wait(resource, holder, me) {
            return Ruling::No([Code::WriteConflict].into(), true);
        }
        let takes_over = ended.iter().any(|(_, code)| *code == Code::TakenOver);
        Ruling::Fresh {
            ended,
            takes_over,
            expires,
        }
    }

    /// Whether an earlier request must go first: any overlapping one of another writer, unless it
    /// waits for this very writer.
    fn must_wait(
        &self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        me: Option<WaiterId>,
    ) -> bool {
        let earlier = |waiter: &&Waiting| me.is_none_or(|me| waiter.id < me);
        self.waiters.iter().filter(earlier).any(|waiter| {
            waiter.holder != *holder
                && waiter.resource.overlaps(resource)
                && !self.waits_for(waiter, holder)
        })
    }

    /// Whether `waiter` waits for a lease of `writer`, or behind a request that does.
    fn waits_for(&self, waiter: &Waiting, writer: &SessionHolder) -> bool {
        let lease = self.leases.iter().any(|lease| {
            lease.holder == *writer
                && lease.resource.overlaps(&waiter.resource)
                && !self.over(lease)
        });
        let behind = |other: &Waiting| {
            other.id < waiter.id
                && other.holder != waiter.holder
                && other.holder != *writer
                && other.resource.overlaps(&waiter.resource)
        };
        lease
            || self
                .waiters
                .iter()
                .any(|other| behind(other) && self.waits_for(other, writer))
    }

    /// Gives what was ruled.
    fn give(
        &mut self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        ruling: Ruling,
    ) -> (FencingToken, Provenance, Code) {
        match ruling {
            Ruling::Fresh {
                ended,
                takes_over,
                expires,
            } => {
                let code = match (takes_over, self.policy.again()) {
                    (true, _) => Code::TakenOver,
                    (false, Again::Touch) => Code::Created,
                    (false, Again::Renew) => Code::LeaseAcquired,
                };
                for (token, code) in ended {
                    if code == Code::TakenOver {
                        // Its end is the same change as the new grant.
                        self.leases.retain(|lease| lease.token != token);
                    } else {
                        self.end(token, code);
                    }
                }
                self.generations += 1;
                let token = token(self.generations);
                self.leases.push(Held {
                    resource: resource.clone(),
                    holder: holder.clone(),
                    token,
                    acquired: self.now,
                    touched: self.now,
                    expires,
                    ops: Vec::new(),
                    tainted: false,
                    handovers: 0,
                    shared: false,
                    begun: false,
                    ticket: None,
                });
                self.tell(code, Some(token), resource);
                (token, Provenance::Created, code)
            }
            Ruling::Again(expires) => {
                let code = match self.policy.again() {
                    Again::Touch => Code::Reentrant,
                    Again::Renew => Code::Renewed,
                };
                let token = self.present(resource).unwrap().token;
                let lease = self.touch(token, expires);
                lease.shared = true;
                self.tell(code, Some(token), resource);
                (token, Provenance::Reentrant, code)
            }
            Ruling::No(..) | Ruling::Ask(_) => panic!("nothing was granted"),
        }
    }

    /// Ends all of one writer: its requests, then its leases.
    fn disconnect(&mut self, holder: &SessionHolder, served: &mut VecDeque<WaiterId>) -> Said {
        let mine = self
            .waiters
            .iter()
            .filter(|waiter| waiter.holder == *holder);
        let mine: Vec<_> = mine.map(|waiter| waiter.id).collect();
        for id in mine {
            assert_eq!(served.pop_front(), Some(id), "its writer is gone");
            self.leave(id, Code::Abandoned, Err(Code::Abandoned));
        }
        if !self.policy.ends_on().disconnect {
            return Said::Many(Vec::new());
        }
        let held = self.leases.iter().filter(|lease| lease.holder == *holder);
        let held: Vec<_> = held.map(|lease| lease.token).collect();
        let ended = held.iter().map(|token| (Code::Disconnected, *token));
        let ended: Vec<_> = ended.collect();
        for (code, token) in &ended {
            self.end(*token, *code);
        }
        Said::Many(ended)
    }

    fn cancel(&mut self, waiter: WaiterId, served: &mut VecDeque<WaiterId>) -> bool {
        if let Some(answered) = self.settled.remove(&waiter) {
            if let Ok((token, provenance)) = answered {
                let lease = self.leases.iter().find(|lease| lease.token == token);
                if let Some(resource) = lease.map(|lease| lease.resource.clone()) {
                    self.abandon(&resource, token, provenance);
                }
            }
            return true;
        }
        if self.waiters.iter().any(|other| other.id == waiter) {
            assert_eq!(served.pop_front(), Some(waiter), "it was taken back");
            self.leave(waiter, Code::Abandoned, Err(Code::Abandoned));
            // Who takes a request back gets no answer to it.
            self.settled.remove(&waiter);
            return true;
        }
        false
    }
}

/// One lease as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    resource: ResourceKey,
    holder: SessionHolder,
    token: FencingToken,
    stamps: (Moment, Moment, Option<Moment>),
    expired: bool,
    ops: Vec<Operation>,
    tainted: bool,
    handovers: u32,
}

impl Row {
    fn of(lease: &Held, reference: &Reference) -> Self {
        Self {
            resource: lease.resource.clone(),
            holder: lease.holder.clone(),
            token: lease.token,
            stamps: (lease.acquired, lease.touched, lease.expires),
            expired: reference.expired(lease),
            ops: lease.ops.clone(),
            tainted: lease.tainted,
            handovers: lease.handovers,
        }
    }
}

/// The same of what a registry lists.
pub(crate) fn rows(views: &[LeaseView<SessionHolder>]) -> Vec<Row> {
    let row = |view: &LeaseView<SessionHolder>| Row {
        resource: view.resource.clone(),
        holder: view.holder.clone(),
        token: view.token,
        stamps: (view.acquired, view.touched, view.expires),
        expired: view.expired,
        ops: view.in_flight.clone(),
        tainted: view.tainted,
        handovers: view.handovers,
    };
    views.iter().map(row).collect()
}
