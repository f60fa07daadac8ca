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

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Change, Code, Detail, Generation, Grant, Holder, Receipt, ResourceKey, Verdict};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::events::Tap;
use crate::hold::Hold;
use crate::incidents::Closed;
use crate::leases::Shared;
use crate::rooms::{Rooms, Seat};
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
}

/// How many guards a hold has. Changed only with the table locked.
#[derive(Debug)]
pub(crate) struct Guards(AtomicUsize);

impl Guards {
    pub(crate) const fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, guards: usize) {
        self.0.store(guards, Ordering::Relaxed);
    }

    fn enter(&self) {
        self.set(self.count().saturating_add(1));
    }

    /// Answers how many are left.
    fn leave(&self) -> usize {
        let left = self.count().saturating_sub(1);
        self.set(left);
        left
    }
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
        let (rooms, ends) = (Rooms::new(), 0);
        Self {
            observer,
            state: Mutex::new(TableState { rooms, ends }),
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
    pub(crate) fn enter(
        &self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        asking: &Asking,
        (grant, change): (&Grant, &Change),
    ) -> Entered<H> {
        let generation = grant.at.token.generation;
        let mut table = self.state();
        let known = match table.rooms.seat(asking.room, generation) {
            None => None,
            Some(seat) if seat.releasing => {
                // From now on it is told, also before it is polled.
                let over = Arc::clone(seat.behind.get_or_insert_default());
                table.asked(asking);
                return Entered::Releasing(over.notified_owned());
            }
            Some(seat) => Some(Arc::clone(&seat.hold)),
        };
        if let Some(hold) = known.as_ref().filter(|hold| !hold.is_lost()) {
            hold.guards.enter();
            table.asked(asking);
            drop(table);
            hold.learn(change);
            return Entered::Hold(Arc::clone(hold));
        }
        if table.is_over(asking, generation) {
            table.asked(asking);
            // Before what was known.
            drop(table);
            return Entered::Gone;
        }
        let hold = Hold::new(session, key, asking.room, (grant.at, change));
        let before = table.rooms.unseat(asking.room, generation);
        if let Some(before) = &known {
            // Its holder had stopped in time, and the authority says that it goes on: its old guards stay
            // lost, and what was done under it stays known.
            hold.inherit(before);
        }
        table.rooms.sit(Arc::clone(&hold));
        table.asked(asking);
        drop(table);
        drop(before);
        if let Some(watch) = session.front.watch.get() {
            watch.granted(&hold);
        }
        Entered::Hold(hold)
    }

    /// Takes one guard away.
    pub(crate) fn leave<'a>(&self, hold: &'a Arc<Hold<H>>) -> Left<'a, H> {
        let mut table = self.state();
        if hold.guards.leave() > 0 {
            return Left::Stays;
        }
        // What has ended is lost, or is about to be.
        let Some(seat) = table.rooms.seat_of(hold) else {
            return Left::Stays;
        };
        let Some(lost) = hold.give_up() else {
            // A release that was dropped on its way leaves by here, too.
            let behind = seat.reopen();
            drop(table);
            tell(behind);
            return Left::Stays;
        };
        seat.releasing = true;
        drop(table);
        hold.tell_loss(lost);
        Left::Release(Releasing(hold))
    }

    /// Begins to release: fails if this was not the last guard and is gone now.
    pub(crate) fn begin_release(&self, hold: &Arc<Hold<H>>) -> Result<(), usize> {
        let mut table = self.state();
        if hold.guards.count() > 1 {
            return Err(hold.guards.leave());
        }
        if let Some(seat) = table.rooms.seat_of(hold) {
            seat.releasing = true;
        }
        Ok(())
    }

    /// A release is over: the lease has ended, or it stays with its guard.
    pub(crate) fn settle(&self, hold: &Arc<Hold<H>>, released: bool) {
        let mut table = self.state();
        if released {
            hold.guards.set(0);
            let gone = table.remove(hold);
            drop(table);
            close(gone);
        } else {
            let behind = table.rooms.seat_of(hold).and_then(Seat::reopen);
            drop(table);
            tell(behind);
        }
    }

    /// The authority says that the lease of `hold` has ended.
    pub(crate) fn over(&self, hold: &Arc<Hold<H>>, loss: Loss) -> Loss {
        let gone = self.state().remove(hold);
        close(gone);
        hold.lose(loss)
    }

    /// Ends all of a session.
    pub(crate) fn disconnect(&self, session: &Shared<H>) {
        let mut table = self.state();
        let mut gone = Vec::new();
        while let Some((room, generation)) = table.rooms.last_of(session.row) {
            let Some(seat) = table.take(room, generation) else {
                break;
            };
            gone.push(seat);
        }
        drop(table);
        for seat in gone {
            seat.hold.lose(Loss::Disconnected);
            tell(seat.behind);
        }
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.state().rooms.len()
    }

    /// Returns the leases that are known, in order of their grants.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold<H>>> {
        let table = self.state();
        let holds = table.rooms.seats().map(|seat| Arc::clone(&seat.hold));
        let mut holds: Vec<_> = holds.collect();
        drop(table);
        holds.sort_unstable_by_key(|hold| hold.at.token.generation);
        holds
    }

    /// Returns how many leases are known, the oldest one, and how many requests have no answer yet.
    pub(crate) fn survey(&self) -> (usize, Option<Arc<Hold<H>>>, usize) {
        let table = self.state();
        let holds = table.rooms.seats().map(|seat| &seat.hold);
        let oldest = holds.min_by_key(|hold| hold.at.token.generation);
        (table.rooms.len(), oldest.cloned(), table.rooms.requests())
    }

    fn hold(&self, key: Option<&ResourceKey>, generation: Generation) -> Option<Arc<Hold<H>>> {
        let mut table = self.state();
        let seat = match key {
            Some(key) => {
                let room = table.rooms.find(key)?;
                table.rooms.seat(room, generation).map(|seat| &*seat)
            }
            None => table.rooms.search(generation),
        };
        seat.map(|seat| Arc::clone(&seat.hold))
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
    /// Takes a hold out that has ended. What is answered is to be closed outside the lock.
    fn remove(&mut self, hold: &Arc<Hold<H>>) -> Option<Seat<H>> {
        self.rooms.seat_of(hold)?;
        self.take(hold.room, hold.at.token.generation)
    }

    fn take(&mut self, room: usize, generation: Generation) -> Option<Seat<H>> {
        let seat = self.rooms.unseat(room, generation)?;
        self.ended(room, generation);
        self.rooms.close(room);
        Some(seat)
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

/// Lets go of what was in a seat that is taken away. Not under a lock.
fn close<H: Holder>(seat: Option<Seat<H>>) {
    tell(seat.and_then(|seat| seat.behind));
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
        let idle = |seat: &&Seat<H>| seat.hold.guards.count() == 0 && !seat.releasing;
        let idle: Vec<_> = table.rooms.seats().filter(idle).collect();
        let idle: Vec<_> = idle.iter().map(|seat| Arc::clone(&seat.hold)).collect();
        let gone: Vec<_> = idle.iter().map(|hold| table.remove(hold)).collect();
        drop(table);
        gone.into_iter().for_each(close);
        for hold in idle {
            if let Some(watch) = hold.front().watch.get() {
                watch.ended(&hold, Closed::Unseen);
            }
        }
    }
}
