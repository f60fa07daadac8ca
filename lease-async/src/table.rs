//! Who shares with whom: the holds of a front, by generation.
//!
//! # How a release and a re-entry are ordered
//!
//! A grant and the end of its lease may reach this front in either order, since the authority decides in one
//! thread and somebody hears of it in another. Three rules make one of the two first:
//!
//! 1. Whoever is about to release a lease says so here before the authority is called. While that is under
//!    way no grant of that lease becomes a guard: it waits and asks again.
//! 2. A lease that ended is remembered for every request for its resource that was made before the end. A
//!    grant of it that such a request gets was decided before the end, so it is none: ask again.
//! 3. A request that was made after the end, and is granted that very lease, has the authority's word that it
//!    goes on. It is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Change, Code, Detail, Generation, Grant, Holder, Receipt, ResourceKey, Verdict};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::events::Tap;
use crate::hold::Hold;
use crate::incidents::Closed;
use crate::leases::Front;
use crate::standing::Loss;
use crate::telemetry::Observer;

/// The holds of one front.
///
/// A hold stays as long as its lease, with or without guards: what was done under the lease outlives them.
/// The table is locked before a hold, and neither while an authority is called.
pub(crate) struct Table<H: Holder> {
    state: Mutex<TableState<H>>,
    observer: Arc<Observer>,
}

struct TableState<H: Holder> {
    holds: BTreeMap<Generation, Arc<Hold<H>>>,
    by_session: BTreeSet<(u64, Generation)>,
    /// The resources that somebody asks for now.
    asked: BTreeMap<ResourceKey, Asked>,
    /// How many leases have ended.
    ends: u64,
}

/// What the requests for one resource must know.
#[derive(Default)]
struct Asked {
    requests: usize,
    /// The latest lease of the resource that ended while they were on their way, and which end it was.
    over: Option<(Generation, u64)>,
}

/// A request on its way to an authority, or back.
pub(crate) struct Asking<H: Holder> {
    table: Arc<Table<H>>,
    key: ResourceKey,
    /// How many leases had ended before it was made.
    after: u64,
}

/// What became of a grant.
pub(crate) enum Entered<H: Holder> {
    /// One guard more.
    Hold(Arc<Hold<H>>),
    /// The lease ended before its guard was made: ask again.
    Gone,
    /// It is being released: ask again after that.
    Releasing(OwnedNotified),
}

/// What is to be done after a guard went.
pub(crate) enum Left<H: Holder> {
    /// Nothing: there are other guards, or the lease is left as it is.
    Stays,
    /// The lease is to be released, and then this is to be dropped.
    Release(Releasing<H>),
}

/// A release under way. While it is there, nobody becomes a guard of the lease.
///
/// Dropped, it is over: the lease has ended, as far as this front can tell.
pub(crate) struct Releasing<H: Holder>(Arc<Hold<H>>);

impl<H: Holder> Drop for Releasing<H> {
    fn drop(&mut self) {
        self.0.front.table.settle(&self.0, true);
    }
}

impl<H: Holder> Table<H> {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        Self {
            observer,
            state: Mutex::new(TableState {
                holds: BTreeMap::new(),
                by_session: BTreeSet::new(),
                asked: BTreeMap::new(),
                ends: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that somebody is about to ask for `key`. To be kept until the answer is here.
    pub(crate) fn asking(self: &Arc<Self>, key: &ResourceKey) -> Asking<H> {
        let mut table = self.state();
        let after = table.ends;
        let asked = table.asked.entry(key.clone()).or_default();
        asked.requests = asked.requests.saturating_add(1);
        drop(table);
        Asking {
            table: Arc::clone(self),
            key: key.clone(),
            after,
        }
    }

    /// Gives the grant that `asking` got its hold: the one of its generation, or a new one.
    pub(crate) fn enter(
        &self,
        front: &Arc<Front<H>>,
        session: (u64, &H),
        asking: &Asking<H>,
        (grant, change): (&Grant, &Change),
    ) -> Entered<H> {
        let generation = grant.at.token.generation;
        let mut table = self.state();
        let known = table.holds.get(&generation).cloned();
        if let Some(hold) = &known {
            let mut state = hold.state();
            if state.releasing {
                // From now on it is told, also before it is polled.
                let over = Arc::clone(state.behind.get_or_insert_default());
                return Entered::Releasing(over.notified_owned());
            }
            if state.lost.is_none() {
                state.guards = state.guards.saturating_add(1);
                drop(state);
                drop(table);
                hold.learn(change);
                return Entered::Hold(Arc::clone(hold));
            }
        }
        if table.is_over(asking, generation) {
            return Entered::Gone;
        }
        let hold = Hold::new(front, session, &asking.key, (grant.at, change.at));
        if let Some(before) = known {
            // Its holder had stopped in time, and the authority says that it goes on: its old guards stay
            // lost, and what was done under it stays known.
            hold.inherit(&before);
        }
        hold.state().guards = 1;
        table.holds.insert(generation, Arc::clone(&hold));
        table.by_session.insert((session.0, generation));
        drop(table);
        hold.learn(change);
        if let Some(watch) = front.watch.get() {
            watch.granted(&hold);
        }
        Entered::Hold(hold)
    }

    /// Takes one guard away.
    pub(crate) fn leave(&self, hold: &Arc<Hold<H>>) -> Left<H> {
        let table = self.state();
        let mut state = hold.state();
        state.guards = state.guards.saturating_sub(1);
        if state.guards > 0 {
            return Left::Stays;
        }
        // What was lost leaves the table with the receipt of its end.
        if state.lost.is_some() || state.kept || state.tainted || state.operations > 0 {
            // A release that was dropped on its way leaves by here, too.
            let behind = state.reopen();
            drop(state);
            drop(table);
            tell(behind);
            return Left::Stays;
        }
        state.releasing = true;
        drop(state);
        drop(table);
        hold.lose(Loss::Released);
        Left::Release(Releasing(Arc::clone(hold)))
    }

    /// Begins to release: fails if this was not the last guard and is gone now.
    pub(crate) fn begin_release(&self, hold: &Hold<H>) -> Result<(), usize> {
        let _table = self.state();
        let mut state = hold.state();
        if state.guards > 1 {
            state.guards = state.guards.saturating_sub(1);
            return Err(state.guards);
        }
        state.releasing = true;
        Ok(())
    }

    /// A release is over: the lease has ended, or it stays with its guard.
    pub(crate) fn settle(&self, hold: &Arc<Hold<H>>, released: bool) {
        let mut table = self.state();
        if released {
            table.remove(hold);
        }
        let mut state = hold.state();
        if released {
            state.guards = 0;
        }
        let behind = state.reopen();
        drop(state);
        drop(table);
        tell(behind);
    }

    /// The authority says that the lease of `hold` has ended.
    pub(crate) fn over(&self, hold: &Arc<Hold<H>>, loss: Loss) -> Loss {
        self.state().remove(hold);
        hold.lose(loss)
    }

    /// Ends all of a session.
    pub(crate) fn disconnect(&self, session: u64) {
        let mut table = self.state();
        let mut gone = Vec::new();
        loop {
            let mut rest = table.by_session.range((session, Generation::FIRST)..);
            let Some((_, generation)) = rest.next().copied().filter(|(of, _)| *of == session)
            else {
                break;
            };
            table.by_session.remove(&(session, generation));
            if let Some(hold) = table.holds.get(&generation).cloned() {
                table.remove(&hold);
                gone.push(hold);
            }
        }
        drop(table);
        for hold in gone {
            hold.lose(Loss::Disconnected);
        }
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.state().holds.len()
    }

    /// Returns the leases that are known, in order of their grants.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold<H>>> {
        self.state().holds.values().cloned().collect()
    }

    /// Returns how many leases are known, the oldest one, and how many requests have no answer yet.
    pub(crate) fn survey(&self) -> (usize, Option<Arc<Hold<H>>>, usize) {
        let table = self.state();
        let oldest = table.holds.first_key_value();
        let oldest = oldest.map(|(_, hold)| Arc::clone(hold));
        let waiting = table.asked.values().map(|asked| asked.requests).sum();
        (table.holds.len(), oldest, waiting)
    }

    fn hold(&self, generation: Generation) -> Option<Arc<Hold<H>>> {
        self.state().holds.get(&generation).cloned()
    }

    /// A receipt says that a lease has ended.
    fn end(&self, key: Option<&ResourceKey>, generation: Generation, loss: Loss) {
        match (self.hold(generation), key) {
            (Some(hold), _) => {
                self.over(&hold, loss);
            }
            // Its grant may be on its way.
            (None, Some(key)) => self.state().ended(key, generation),
            (None, None) => {}
        }
    }
}

impl<H: Holder> TableState<H> {
    /// Takes a hold out that has ended.
    fn remove(&mut self, hold: &Arc<Hold<H>>) {
        let generation = hold.at.token.generation;
        let current = self.holds.get(&generation);
        if current.is_some_and(|current| Arc::ptr_eq(current, hold)) {
            self.holds.remove(&generation);
            self.by_session.remove(&(hold.session, generation));
            self.ended(&hold.key, generation);
        }
    }

    /// Remembers an end for whoever has asked before it.
    fn ended(&mut self, key: &ResourceKey, generation: Generation) {
        let Some(asked) = self.asked.get_mut(key) else {
            return;
        };
        self.ends = self.ends.saturating_add(1);
        if asked.over.is_none_or(|(over, _)| over <= generation) {
            asked.over = Some((generation, self.ends));
        }
    }

    /// Whether a grant that `asking` got was decided before its lease ended.
    fn is_over(&self, asking: &Asking<H>, generation: Generation) -> bool {
        let over = self.asked.get(&asking.key).and_then(|asked| asked.over);
        // A later lease of the same resource has come and gone, or this very one has.
        over.is_some_and(|(over, end)| {
            generation < over || (generation == over && asking.after < end)
        })
    }
}

impl<H: Holder> Drop for Asking<H> {
    fn drop(&mut self) {
        let mut table = self.table.state();
        if let Some(asked) = table.asked.get_mut(&self.key) {
            asked.requests = asked.requests.saturating_sub(1);
            if asked.requests == 0 {
                table.asked.remove(&self.key);
            }
        }
    }
}

/// Tells whoever stands behind a release that it is over. Not under a lock: it wakes.
fn tell(behind: Option<Arc<Notify>>) {
    if let Some(behind) = behind {
        // Whoever asks for it from now on finds that it is over.
        behind.notify_waiters();
    }
}

impl<H: Holder> Tap<H> for Table<H> {
    fn see(&self, receipt: &Receipt<H>) {
        self.observer.see(receipt);
        let change = &receipt.change;
        let key = receipt.resource.as_ref();
        if let Detail::Granted {
            previous: Some(previous),
            ..
        } = change.detail
        {
            self.end(key, previous.generation, Loss::Proven);
        }
        let Some(token) = change.token else { return };
        if let Some(loss) = Loss::of(change) {
            self.end(key, token.generation, loss);
            return;
        }
        let Some(hold) = self.hold(token.generation) else {
            return;
        };
        if change.code == Code::Adopted && receipt.holder.as_ref() != Some(&hold.holder) {
            self.over(&hold, Loss::HandedOver);
        } else {
            hold.learn(change);
        }
    }

    fn judged(&self, verdict: &Verdict) {
        self.observer.judged(verdict);
    }

    /// Some ends were not seen: what has no guard is forgotten, the rest notices at its next use.
    fn missed(&self) {
        self.observer.missed();
        let mut table = self.state();
        let idle = |hold: &&Arc<Hold<H>>| {
            let state = hold.state();
            state.guards == 0 && !state.releasing
        };
        let idle: Vec<_> = table.holds.values().filter(idle).cloned().collect();
        idle.iter().for_each(|hold| table.remove(hold));
        drop(table);
        for hold in idle {
            if let Some(watch) = hold.front.watch.get() {
                watch.ended(&hold, Closed::Unseen);
            }
        }
    }
}
