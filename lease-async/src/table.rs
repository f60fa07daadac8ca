//! Who shares with whom: the holds of a front.
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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{
    At, Change, Code, Detail, Generation, Grant, Holder, Receipt, ResourceKey, Verdict,
};
use tokio::sync::futures::OwnedNotified;

use crate::events::Tap;
use crate::hold::{GivenUp, Hold};
use crate::incidents::Closed;
use crate::leases::Shared;
use crate::rooms::Rooms;
use crate::standing::Loss;
use crate::telemetry::Observer;

/// The holds of one front.
///
/// A hold stays as long as its lease, with or without guards: what was done under the lease outlives them.
/// The table is locked before a hold, and neither while an authority is called. No hold is dropped while it is
/// locked, since with a hold its session may go, and that comes here.
pub(crate) struct Table<H: Holder> {
    state: Mutex<TableState<H>>,
    observer: Arc<Observer>,
}

struct TableState<H: Holder> {
    rooms: Rooms<H>,
    /// How many leases have ended for which somebody asked then.
    ends: u64,
    /// The hold of a lease that was released: mostly the same session asks for the next one.
    spare: Option<Arc<Hold<H>>>,
}

/// A request on its way to an authority, or back. It is to be taken back to the table.
#[derive(Debug)]
#[must_use = "the table counts it until it is back"]
pub(crate) struct Asking {
    /// The room of its resource.
    room: usize,
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
pub(crate) enum Left<'a, H: Holder> {
    /// Nothing: there are other guards, or the lease is left as it is.
    Stays,
    /// The lease is to be released, and then this is to be dropped.
    Release(Releasing<'a, H>),
}

/// A release under way. While it is there, nobody becomes a guard of the lease.
///
/// Dropped, it is over: the lease has ended, as far as this front can tell.
pub(crate) struct Releasing<'a, H: Holder>(&'a Arc<Hold<H>>);

impl<H: Holder> Drop for Releasing<'_, H> {
    fn drop(&mut self) {
        self.0.front().table.settle(self.0, true);
    }
}

impl<H: Holder> Table<H> {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        let state = TableState {
            rooms: Rooms::new(),
            ends: 0,
            spare: None,
        };
        Self {
            observer,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the row of a new session, to be given up with the session.
    pub(crate) fn add_row(&self) -> usize {
        self.state().rooms.add_row()
    }

    pub(crate) fn remove_row(&self, row: usize) {
        self.state().rooms.remove_row(row);
    }

    /// Says that somebody is about to ask for `key`.
    pub(crate) fn asking(&self, key: &ResourceKey) -> Asking {
        let mut table = self.state();
        let after = table.ends;
        let room = table.rooms.open(key);
        Asking { room, after }
    }

    /// Takes a request back that got nothing.
    pub(crate) fn asked(&self, asking: &Asking) {
        self.state().asked(asking);
    }

    /// Gives the grant that `asking` got its hold: the one of its generation, or a new one.
    #[inline]
    pub(crate) fn enter(
        &self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        asking: &Asking,
        (grant, change): (&Grant, &Change),
    ) -> Entered<H> {
        let generation = grant.at.token.generation;
        let mut table = self.state();
        if let Some(known) = table.rooms.seat(asking.room, generation) {
            let known = Arc::clone(known);
            let granted = (grant.at, change);
            return enter_again(table, (session, key), asking, (known, granted));
        }
        if table.is_over(asking, generation) {
            table.asked(asking);
            return Entered::Gone;
        }
        let hold = table.new_hold(session, key, asking, (grant.at, change));
        table.asked(asking);
        drop(table);
        if let Some(watch) = session.front.watch.get() {
            watch.granted(&hold);
        }
        Entered::Hold(hold)
    }

    /// Takes one guard away.
    pub(crate) fn leave<'a>(&self, hold: &'a Arc<Hold<H>>) -> Left<'a, H> {
        let table = self.state();
        // What has ended is lost, or is about to be.
        if hold.seat.leave() > 0 || !table.rooms.sits(hold) {
            return Left::Stays;
        }
        let given_up = hold.give_up();
        if given_up == GivenUp::Stays {
            // A release that was dropped on its way leaves by here, too.
            hold.seat.set_releasing(false);
            let awaited = hold.seat.take_awaited();
            drop(table);
            if awaited {
                hold.tell_behind();
            }
            return Left::Stays;
        }
        hold.seat.set_releasing(true);
        drop(table);
        if given_up == GivenUp::Awaited || hold.front().watch.get().is_some() {
            hold.tell_loss(Loss::Released);
        }
        Left::Release(Releasing(hold))
    }

    /// Begins to release: fails if this was not the last guard and is gone now.
    pub(crate) fn begin_release(&self, hold: &Hold<H>) -> Result<(), usize> {
        let _table = self.state();
        if hold.seat.guards() > 1 {
            return Err(hold.seat.leave());
        }
        hold.seat.set_releasing(true);
        Ok(())
    }

    /// A release is over: the lease has ended, or it stays with its guard.
    pub(crate) fn settle(&self, hold: &Arc<Hold<H>>, released: bool) {
        let mut table = self.state();
        let mut gone = None;
        hold.seat.set_releasing(false);
        if released {
            hold.seat.set_guards(0);
            gone = table.remove(hold);
            // Where the session is gone nobody would take it away again.
            if gone.is_some() && !hold.session.is_gone() {
                gone = core::mem::replace(&mut table.spare, gone);
            }
        }
        let awaited = hold.seat.take_awaited();
        drop(table);
        drop(gone);
        if awaited {
            hold.tell_behind();
        }
    }

    /// The authority says that the lease of `hold` has ended.
    pub(crate) fn over(&self, hold: &Arc<Hold<H>>, loss: Loss) -> Loss {
        let gone = self.state().remove(hold);
        drop(gone);
        hold.lose(loss)
    }

    /// Ends all of a session.
    pub(crate) fn disconnect(&self, session: &Arc<Shared<H>>) {
        let mut table = self.state();
        let mut gone = Vec::new();
        while let Some((room, generation)) = table.rooms.last_of(session.row) {
            let Some(hold) = table.take(room, generation) else {
                break;
            };
            gone.push(hold);
        }
        let is_theirs = |spare: &mut Arc<Hold<H>>| Arc::ptr_eq(&spare.session, session);
        let spare = table.spare.take_if(is_theirs);
        drop(table);
        drop(spare);
        for hold in gone {
            hold.lose(Loss::Disconnected);
        }
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.state().rooms.len()
    }

    /// Returns the leases that are known, in order of their grants.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold<H>>> {
        let table = self.state();
        let mut holds: Vec<_> = table.rooms.seats().cloned().collect();
        drop(table);
        holds.sort_unstable_by_key(|hold| hold.at.token.generation);
        holds
    }

    /// Returns how many leases are known, the oldest one, and how many requests have no answer yet.
    pub(crate) fn survey(&self) -> (usize, Option<Arc<Hold<H>>>, usize) {
        let table = self.state();
        let oldest = table
            .rooms
            .seats()
            .min_by_key(|hold| hold.at.token.generation);
        (table.rooms.len(), oldest.cloned(), table.rooms.requests())
    }

    fn hold(&self, key: Option<&ResourceKey>, generation: Generation) -> Option<Arc<Hold<H>>> {
        let table = self.state();
        let hold = match key {
            Some(key) => table.rooms.seat(table.rooms.find(key)?, generation),
            None => table.rooms.search(generation),
        };
        hold.cloned()
    }

    /// A receipt says that a lease has ended.
    fn end(&self, key: Option<&ResourceKey>, generation: Generation, loss: Loss) {
        match (self.hold(key, generation), key) {
            (Some(hold), _) => {
                self.over(&hold, loss);
            }
            // Its grant may be on its way.
            (None, Some(key)) => {
                let mut table = self.state();
                if let Some(room) = table.rooms.find(key) {
                    table.ended(room, generation);
                }
            }
            (None, None) => {}
        }
    }
}

impl<H: Holder> TableState<H> {
    /// Seats the hold of a lease that was just granted.
    fn new_hold(
        &mut self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        asking: &Asking,
        granted: (At, &Change),
    ) -> Arc<Hold<H>> {
        let mut spare = self
            .spare
            .take_if(|spare| Arc::ptr_eq(&spare.session, session));
        // Whoever else still knows it knows a lease that has ended. Its session stays, so it may go here.
        let hold = match spare.as_mut().and_then(Arc::get_mut) {
            Some(hold) => {
                hold.serve_again(key, asking.room, granted);
                spare
            }
            None => None,
        };
        let hold = hold.unwrap_or_else(|| Hold::new(session, key, asking.room, granted));
        self.rooms.sit(Arc::clone(&hold));
        hold
    }

    /// Takes a hold out that has ended, to be dropped outside the lock.
    fn remove(&mut self, hold: &Arc<Hold<H>>) -> Option<Arc<Hold<H>>> {
        if !self.rooms.sits(hold) {
            return None;
        }
        self.take(hold.room, hold.at.token.generation)
    }

    fn take(&mut self, room: usize, generation: Generation) -> Option<Arc<Hold<H>>> {
        let hold = self.rooms.unseat(room, generation)?;
        self.ended(room, generation);
        self.rooms.close(room);
        Some(hold)
    }

    /// A request is back.
    fn asked(&mut self, asking: &Asking) {
        if let Some(room) = self.rooms.room(asking.room) {
            room.requests = room.requests.saturating_sub(1);
            if room.requests == 0 {
                room.over = None;
                self.rooms.close(asking.room);
            }
        }
    }

    /// Remembers an end for whoever has asked before it.
    fn ended(&mut self, room: usize, generation: Generation) {
        let asked = self.rooms.room(room);
        let Some(room) = asked.filter(|room| room.requests > 0) else {
            return;
        };
        self.ends = self.ends.saturating_add(1);
        if room.over.is_none_or(|(over, _)| over <= generation) {
            room.over = Some((generation, self.ends));
        }
    }

    /// Whether a grant that `asking` got was decided before its lease ended.
    fn is_over(&mut self, asking: &Asking, generation: Generation) -> bool {
        let over = self.rooms.room(asking.room).and_then(|room| room.over);
        // A later lease of the same resource has come and gone, or this very one has.
        over.is_some_and(|(over, end)| {
            generation < over || (generation == over && asking.after < end)
        })
    }
}

/// Gives a grant the hold of its generation, unless that is being released or lost.
fn enter_again<H: Holder>(
    mut table: MutexGuard<'_, TableState<H>>,
    (session, key): (&Arc<Shared<H>>, &ResourceKey),
    asking: &Asking,
    (known, granted): (Arc<Hold<H>>, (At, &Change)),
) -> Entered<H> {
    let generation = known.at.token.generation;
    if known.seat.is_releasing() {
        known.seat.set_awaited();
        let over = Arc::clone(known.state().behind.get_or_insert_default());
        // With the table locked: from now on it is told, also before it is polled.
        let over = over.notified_owned();
        table.asked(asking);
        drop(table);
        return Entered::Releasing(over);
    }
    if !known.is_lost() {
        known.seat.set_guards(known.seat.guards().saturating_add(1));
        table.asked(asking);
        drop(table);
        known.learn(granted.1);
        return Entered::Hold(known);
    }
    if table.is_over(asking, generation) {
        table.asked(asking);
        drop(table);
        return Entered::Gone;
    }
    // Its holder had stopped in time, and the authority says that it goes on: its old guards stay lost, and
    // what was done under it stays known.
    let before = table.rooms.unseat(asking.room, generation);
    let hold = table.new_hold(session, key, asking, granted);
    hold.inherit(&known);
    table.asked(asking);
    drop(table);
    drop(before);
    if let Some(watch) = session.front.watch.get() {
        watch.granted(&hold);
    }
    Entered::Hold(hold)
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
        let Some(hold) = self.hold(key, token.generation) else {
            return;
        };
        if change.code == Code::Adopted && receipt.holder.as_ref() != Some(hold.holder()) {
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
        let idle = |hold: &&Arc<Hold<H>>| hold.seat.guards() == 0 && !hold.seat.is_releasing();
        let idle: Vec<_> = table.rooms.seats().filter(idle).cloned().collect();
        let gone: Vec<_> = idle.iter().map(|hold| table.remove(hold)).collect();
        drop(table);
        drop(gone);
        for hold in idle {
            if let Some(watch) = hold.front().watch.get() {
                watch.ended(&hold, Closed::Unseen);
            }
        }
    }
}
