//! The same decisions through a store that compares and sets: every interleaving of its clients
//! between reading and committing.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use lease_core::{Change, Code, Detail, Disposition, FencingToken, WaiterId};
use stateright::{Model, Property};

use super::explore::Budget;
use super::law::{Breach, Judged, Law, properties, require};
use super::queue::{Request, is_in_front};
use super::store::{Ask, Committed, Compare, Fate, Queued, Read, Shared};
use super::world::{Place, STEPS, Setup, TERM};

/// Every interleaving up to a depth.
#[derive(Debug)]
pub(super) struct Interleavings {
    pub(super) setup: Setup,
    pub(super) depth: u32,
    pub(super) compare: Compare,
    pub(super) budget: Budget,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// A client reads.
    Read(Place, Ask),
    /// A client commits, or finds that it must read again.
    Commit(Place),
    /// A request leaves the queue.
    Withdraw(WaiterId),
    /// Time passes.
    Pass(u64),
}

/// A state as the checker keeps it: how to make it, and its canonical form.
#[derive(Clone, Debug)]
pub(super) struct State {
    view: Box<[u8]>,
    broken: Option<Law>,
    depth: u32,
    origin: Option<(Arc<Shared>, Move)>,
    seen: OnceLock<(Arc<Shared>, Option<Law>)>,
}

impl State {
    fn seen(&self, model: &Interleavings) -> &(Arc<Shared>, Option<Law>) {
        self.seen.get_or_init(|| {
            let setup = &model.setup;
            let shared = match &self.origin {
                None => Shared::new(setup),
                Some((parent, step)) => take(setup, model.compare, parent, *step).0,
            };
            let drained = || comes_free(setup, &shared).err().map(|breach| breach.law);
            let broken = self.broken.or_else(drained);
            (Arc::new(shared), broken)
        })
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view && self.broken == other.broken
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.view.hash(state);
        self.broken.hash(state);
    }
}

impl Judged<Interleavings> for State {
    fn broken(&self, model: &Interleavings) -> Option<Law> {
        self.seen(model).1
    }
}

impl Model for Interleavings {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            view: view(&self.setup, &Shared::new(&self.setup)),
            broken: None,
            depth: 0,
            origin: None,
            seen: OnceLock::new(),
        }]
    }

    fn actions(&self, state: &State, moves: &mut Vec<Move>) {
        if state.depth >= self.depth || !self.budget.allows() {
            return;
        }
        if let (shared, None) = state.seen(self) {
            next(&self.setup, shared, moves);
        }
    }

    fn next_state(&self, last: &State, step: Move) -> Option<State> {
        let before = &last.seen(self).0;
        let (after, breach) = take(&self.setup, self.compare, before, step);
        let state = State {
            view: view(&self.setup, &after),
            broken: breach.map(|breach| breach.law),
            depth: last.depth.saturating_add(1),
            origin: Some((Arc::clone(before), step)),
            seen: OnceLock::new(),
        };
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }

    fn format_action(&self, step: &Move) -> String {
        tell(&self.setup, *step)
    }
}

/// Lists what may happen next.
fn next(setup: &Setup, shared: &Shared, moves: &mut Vec<Move>) {
    for who in 0..setup.writers.len() {
        if shared.reading.get(who).is_some_and(Option::is_some) {
            moves.push(Move::Commit(who));
            continue;
        }
        let mut read = |ask| moves.push(Move::Read(who, ask));
        read(Ask::Disconnect);
        for key in 0..setup.keys.len() {
            let waits = shared.queue.len() < setup.most_waits;
            for (wait, dead) in [(false, false), (true, false), (false, true)] {
                let held = shared.leases(setup).next().is_some();
                if (!wait || waits) && (!dead || held) {
                    read(Ask::Acquire { key, wait, dead });
                }
            }
            let Some(known) = shared.known(who, key) else {
                continue;
            };
            read(Ask::Touch(key));
            read(Ask::Release(key));
            // What else an old token cannot do is tried at the registry.
            let present = shared.lease(setup, key);
            let Some(lease) = present.filter(|lease| lease.token == known.token) else {
                continue;
            };
            if lease.ops.is_empty() {
                read(Ask::Begin(key));
            } else {
                read(Ask::End(key, Ok(())));
                read(Ask::End(key, Err(Disposition::PreMutation)));
                read(Ask::End(key, Err(Disposition::Unknown)));
            }
            let others = (0..setup.writers.len()).filter(|to| *to != who);
            others.for_each(|to| read(Ask::Adopt(key, to)));
        }
        for queued in shared.queue.iter().filter(|queued| queued.who == who) {
            read(Ask::Retry(queued.id));
        }
    }
    if let Some(None) = shared.reading.first() {
        moves.push(Move::Read(0, Ask::Sweep));
    }
    moves.extend(shared.queue.iter().map(|queued| Move::Withdraw(queued.id)));
    moves.extend(STEPS.map(Move::Pass));
}

/// Takes one step, and judges it.
pub(super) fn take(
    setup: &Setup,
    compare: Compare,
    before: &Shared,
    step: Move,
) -> (Shared, Option<Breach>) {
    let mut after = before.clone();
    match step {
        Move::Read(who, ask) => after.read(setup, who, ask),
        Move::Withdraw(id) => after.queue.retain(|queued| queued.id != id),
        Move::Pass(ticks) => after.now = after.now.saturating_add(ticks),
        Move::Commit(who) => {
            let read = before.reading.get(who).cloned().flatten();
            let committed = after.commit(setup, who, compare);
            let breach = read.and_then(|read| {
                let commit = Commit {
                    setup,
                    before,
                    after: &after,
                    who,
                    read: &read,
                    committed: &committed,
                };
                commit.judge().err()
            });
            return (after, breach);
        }
    }
    (after, None)
}

/// A commit that is judged.
struct Commit<'a> {
    setup: &'a Setup,
    before: &'a Shared,
    after: &'a Shared,
    who: Place,
    read: &'a Read,
    committed: &'a Committed,
}

impl Commit<'_> {
    fn judge(&self) -> Result<(), Breach> {
        self.one_holder()?;
        for change in &self.committed.changes {
            if let Detail::Granted { .. } = change.detail {
                let newest = self.before.revision;
                let grows = change
                    .token
                    .is_some_and(|token| token.generation.get() > newest);
                require(grows, Law::GenerationsGrow, || {
                    format!("{:?} after {newest}", change.token)
                })?;
            }
            if let Some(token) = ended(change) {
                self.may_end(token, change)?;
            }
        }
        self.is_its_turn()?;
        self.past_is_inert()
    }

    fn one_holder(&self) -> Result<(), Breach> {
        for (one, first) in self.after.leases(self.setup) {
            for (other, second) in self.after.leases(self.setup) {
                let apart = one == other
                    || !self.setup.overlap(one, other)
                    || first.holder == second.holder;
                require(apart, Law::OneHolder, || {
                    format!(
                        "{:?} and {:?} hold overlapping resources",
                        first.holder, second.holder
                    )
                })?;
            }
        }
        if let Some((who, key, _)) = self.committed.granted {
            let holder = self.after.lease(self.setup, key);
            let holder = holder.and_then(|lease| self.setup.writer_of(&lease.holder));
            require(holder == Some(who), Law::OneHolder, || {
                format!(
                    "{} was told that it holds {}, and it does not",
                    self.setup.who(who),
                    self.setup.key(key)
                )
            })?;
        }
        Ok(())
    }

    /// A call with a token that is not the present one changes nothing.
    fn past_is_inert(&self) -> Result<(), Breach> {
        let Some(key) = self.read.ask.key().filter(|_| self.read.ask.shows_token()) else {
            return Ok(());
        };
        let present = self.before.lease(self.setup, key).map(|lease| lease.token);
        let shown = self.read.at.map(|at| at.token);
        let inert = present == shown || self.committed.changes.is_empty();
        require(inert, Law::PastCannotAct, || {
            format!("{shown:?} acted, and {present:?} is there")
        })
    }

    fn may_end(&self, token: FencingToken, change: &Change) -> Result<(), Breach> {
        let mut leases = self.before.leases(self.setup);
        let what = || format!("generation {}, {}", token.generation, change.code);
        let Some((key, lease)) = leases.find(|(_, lease)| lease.token == token) else {
            return require(false, Law::EndsHaveCauses, what);
        };
        let idle = lease.ops.is_empty();
        let named = self.read.ask.key() == Some(key);
        match (change.detail, change.code) {
            (Detail::Reclaimed { .. }, _) => {
                let expired = lease
                    .expires
                    .is_some_and(|last| last.as_nanos() < self.read.now);
                require(expired, Law::NoEarlyExpiry, what)?;
                require(idle, Law::InFlightShields, what)
            }
            (Detail::Disconnected { .. }, _) => {
                let own = self.setup.writer_of(&lease.holder) == Some(self.who);
                let disconnects = self.read.ask == Ask::Disconnect;
                require(own && disconnects, Law::EndsHaveCauses, what)
            }
            (Detail::Failed { .. }, _) => {
                let nothing_left = matches!(self.read.ask, Ask::End(_, Err(why))
                    if why != Disposition::Unknown);
                let frees = nothing_left && named && !lease.shared;
                require(frees, Law::FailureFreesItsOwn, what)
            }
            (Detail::Released { exited: false, .. }, Code::Released) => {
                let own = named && matches!(self.read.ask, Ask::Release(_));
                require(own && idle, Law::EndsHaveCauses, what)
            }
            _ => {
                let proven = self
                    .read
                    .answers
                    .iter()
                    .any(|answer| answer.about == token && answer.handovers == lease.handovers);
                require(proven, Law::DoubtNeverGrants, what)
            }
        }
    }

    /// A new lease goes past nobody who waited before.
    fn is_its_turn(&self) -> Result<(), Breach> {
        let Some((who, key, lease_core::Provenance::Created)) = self.committed.granted else {
            return Ok(());
        };
        let queue: Vec<Request> = self.before.queue.iter().map(request).collect();
        let place = match self.read.ask {
            Ask::Retry(id) => queue.iter().position(|request| request.id == id),
            _ => Some(queue.len()),
        };
        let held: Vec<(Place, Place)> = self
            .before
            .leases(self.setup)
            .filter_map(|(key, lease)| Some((key, self.setup.writer_of(&lease.holder)?)))
            .collect();
        let Some(place) = place else {
            return require(false, Law::OnlyWhoAsks, || {
                format!(
                    "{} got {} and does not wait any more",
                    self.setup.who(who),
                    self.setup.key(key)
                )
            });
        };
        let front = is_in_front(self.setup, (&queue, place), &held, (who, key));
        require(front.is_none(), Law::NoOvertaking, || {
            format!(
                "{} got {} past {}",
                self.setup.who(who),
                self.setup.key(key),
                front
                    .map(|front| self.setup.who(front.who))
                    .unwrap_or_default()
            )
        })
    }
}

const fn request(queued: &Queued) -> Request {
    Request {
        id: queued.id,
        who: queued.who,
        key: queued.key,
    }
}

/// The lease that a change ends.
const fn ended(change: &Change) -> Option<FencingToken> {
    match change.detail {
        Detail::Granted { previous, .. } => previous,
        Detail::Released { .. }
        | Detail::Disconnected { .. }
        | Detail::Reclaimed { .. }
        | Detail::Failed { .. } => change.token,
        _ => None,
    }
}

/// Clients that were reading are gone. Then disconnects, or silence and retries, free everything.
fn comes_free(setup: &Setup, shared: &Shared) -> Result<(), Breach> {
    let mut idle = shared.clone();
    idle.reading.iter_mut().for_each(|reading| *reading = None);
    let mut disconnected = idle.clone();
    for who in 0..setup.writers.len() {
        at_once(setup, &mut disconnected, who, Ask::Disconnect);
    }
    is_free(&disconnected, "everybody disconnected")?;
    let rounds = idle.queue.len().saturating_add(setup.keys.len());
    for _ in 0..rounds.saturating_add(2) {
        for key in 0..setup.keys.len() {
            let holder = idle.lease(setup, key).map(|lease| lease.holder.clone());
            let Some(who) = holder.and_then(|holder| setup.writer_of(&holder)) else {
                continue;
            };
            // Whoever got the lease passed on to it knows its token by now.
            at_once(
                setup,
                &mut idle,
                who,
                Ask::Acquire {
                    key,
                    wait: false,
                    dead: false,
                },
            );
            at_once(setup, &mut idle, who, Ask::End(key, Ok(())));
        }
        idle.now = idle.now.saturating_add(TERM).saturating_add(1);
        at_once(setup, &mut idle, 0, Ask::Sweep);
        for queued in idle.queue.clone() {
            at_once(setup, &mut idle, queued.who, Ask::Retry(queued.id));
        }
    }
    is_free(&idle, "everybody fell silent and the waiting tried again")
}

fn at_once(setup: &Setup, shared: &mut Shared, who: Place, ask: Ask) {
    shared.read(setup, who, ask);
    shared.commit(setup, who, Compare::Scene);
}

fn is_free(shared: &Shared, after: &str) -> Result<(), Breach> {
    let (held, waiting) = (shared.cells.len(), shared.queue.len());
    require(held == 0 && waiting == 0, Law::EverythingComesFree, || {
        format!("{after}: {held} held, {waiting} wait")
    })
}

/// The canonical form. Readings that can never be committed are alike whatever they read.
fn view(setup: &Setup, shared: &Shared) -> Box<[u8]> {
    let mut view = Vec::with_capacity(96);
    let away = |moment: u64| {
        // Exact both ways: a reading may be older than a term.
        let ahead = moment.saturating_sub(shared.now).min(120);
        let behind = shared.now.saturating_sub(moment).min(120);
        u8::try_from(120_u64.saturating_add(ahead).saturating_sub(behind)).unwrap_or(0)
    };
    let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let generations: BTreeSet<u64> = shared
        .leases(setup)
        .map(|(_, lease)| lease.token.generation.get())
        .collect();
    for key in 0..setup.keys.len() {
        let Some(lease) = shared.lease(setup, key) else {
            view.push(u8::MAX);
            continue;
        };
        let rank = generations.range(..lease.token.generation.get()).count();
        let flags = [lease.shared, lease.begun];
        view.push(setup.writer_of(&lease.holder).map_or(u8::MAX, small));
        view.push(small(rank));
        view.push(lease.expires.map_or(0, |last| away(last.as_nanos())));
        view.push(flags.iter().fold(0, |all, flag| all << 1 | u8::from(*flag)));
        let own = |op: &lease_core::Operation| op.from == lease_core::Provenance::Created;
        view.push(lease.ops.first().map_or(0, |op| 1 + u8::from(own(op))));
    }
    view.push(small(shared.queue.len()));
    for queued in &shared.queue {
        view.extend([small(queued.who), small(queued.key)]);
    }
    for who in 0..setup.writers.len() {
        for key in 0..setup.keys.len() {
            let known = shared.known(who, key).map(|at| at.token);
            let present = shared.lease(setup, key).map(|lease| lease.token);
            view.push(known.map_or(0, |token| 1 + u8::from(Some(token) == present)));
        }
        match shared.reading.get(who).and_then(Option::as_ref) {
            None => view.push(u8::MAX),
            Some(read) => reading(setup, shared, (who, read), &mut view, &away),
        }
    }
    view.into_boxed_slice()
}

/// What a client read and may commit. One that can never be committed as it is only says what it asks.
fn reading(
    setup: &Setup,
    shared: &Shared,
    (who, read): (Place, &Read),
    view: &mut Vec<u8>,
    away: &impl Fn(u64) -> u8,
) {
    view.extend(asked(shared, read.ask));
    for (_, lease) in shared.leases(setup) {
        let answered = read
            .answers
            .iter()
            .any(|answer| answer.about == lease.token && answer.handovers == lease.handovers);
        let shown = read.at.is_some_and(|at| at.token == lease.token);
        view.push(u8::from(answered) | u8::from(shown) << 1);
    }
    let fates: Vec<Fate> = shared.fates(setup, who, read).collect();
    if fates.contains(&Fate::Gone) {
        view.push(u8::MAX);
        return;
    }
    view.push(away(read.now));
    view.extend(fates.iter().map(|fate| u8::from(*fate == Fate::Same)));
    // By place among those that are left; who left cannot come back.
    view.push(u8::try_from(read.queue.len()).unwrap_or(u8::MAX));
    for queued in &read.queue {
        let place = shared.queue.iter().position(|other| other.id == queued.id);
        view.push(
            place
                .and_then(|place| u8::try_from(place).ok())
                .unwrap_or(u8::MAX),
        );
    }
}

fn asked(shared: &Shared, ask: Ask) -> [u8; 3] {
    let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    match ask {
        Ask::Acquire { key, wait, dead } => [0, small(key), u8::from(wait) | u8::from(dead) << 1],
        Ask::Retry(id) => {
            let place = shared.queue.iter().position(|queued| queued.id == id);
            [1, place.map_or(u8::MAX, small), 0]
        }
        Ask::Touch(key) => [2, small(key), 0],
        Ask::Begin(key) => [3, small(key), 0],
        Ask::End(key, result) => {
            let result = match result {
                Ok(()) => 0,
                Err(Disposition::PreMutation) => 1,
                Err(Disposition::RolledBack) => 2,
                Err(Disposition::Unknown) => 3,
            };
            [4, small(key), result]
        }
        Ask::Release(key) => [5, small(key), 0],
        Ask::Adopt(key, to) => [6, small(key), small(to)],
        Ask::Disconnect => [7, 0, 0],
        Ask::Sweep => [8, 0, 0],
    }
}

/// Tells what happens, in plain words.
fn tell(setup: &Setup, step: Move) -> String {
    let name = |place| setup.who(place);
    let key = |place| setup.key(place);
    match step {
        Move::Read(who, ask) => {
            let who = name(who);
            match ask {
                Ask::Acquire {
                    key: at,
                    wait,
                    dead,
                } => {
                    let wait = if wait { " and would wait" } else { "" };
                    let dead = if dead {
                        ", and finds every holder dead"
                    } else {
                        ""
                    };
                    format!("{who} reads to ask for {}{wait}{dead}", key(at))
                }
                Ask::Retry(id) => format!("{who} reads to try request {id} again"),
                Ask::Touch(at) => format!("{who} reads to show progress at {}", key(at)),
                Ask::Begin(at) => format!("{who} reads to begin an operation at {}", key(at)),
                Ask::End(at, result) => {
                    format!(
                        "{who} reads to end its operation at {}: {result:?}",
                        key(at)
                    )
                }
                Ask::Release(at) => format!("{who} reads to release {}", key(at)),
                Ask::Adopt(at, to) => format!("{who} reads to pass {} on to {}", key(at), name(to)),
                Ask::Disconnect => format!("{who} reads to disconnect"),
                Ask::Sweep => format!("{who} reads to sweep"),
            }
        }
        Move::Commit(who) => format!("{} commits", name(who)),
        Move::Withdraw(id) => format!("request {id} is taken back"),
        Move::Pass(ticks) => format!("{ticks} ticks pass"),
    }
}

/// Tells a history step by step, and what is wrong at its end.
pub(super) fn retell(setup: &Setup, compare: Compare, moves: &[Move]) -> (Vec<String>, String) {
    let mut shared = Shared::new(setup);
    let mut told = Vec::new();
    for step in moves {
        told.push(tell(setup, *step));
        let (next, breach) = take(setup, compare, &shared, *step);
        if let Some(breach) = breach {
            return (told, breach.what);
        }
        shared = next;
    }
    let what = comes_free(setup, &shared).err();
    (told, what.map(|breach| breach.what).unwrap_or_default())
}
