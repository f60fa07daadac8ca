//! A release and those who come meanwhile: which of the two is first. Plain data, kept under the lock of the table.
//!
//! `orders/` runs it, with the rooms, in every order of threads. The rules are those of [`crate::table`].

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;
use std::collections::BTreeMap;

use lease_core::{Generation, ResourceKey};

use crate::rooms::{Rooms, Sitter};

/// What the table and its rooms know of a hold. Changed only with the table locked, so no order is needed.
#[derive(Debug)]
pub(crate) struct Seat {
    guards: AtomicUsize,
    /// The number of the release under way, or none.
    release: AtomicU64,
    /// Where it stands in the row of its session.
    place: AtomicUsize,
}

/// The number of no release.
const NONE: u64 = 0;

/// The holds of one front, and who comes and goes.
pub(crate) struct Order<T> {
    pub(crate) rooms: Rooms<T>,
    /// How many leases have ended for which somebody asked then.
    ends: u64,
    /// How many releases were begun.
    releases: u64,
    /// Those who stand behind releases that are not over, in the order in which they came.
    behind: BTreeMap<Ticket, Option<Waker>>,
    /// How many ever stood there.
    tickets: u64,
}

/// A place behind a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    release: u64,
    number: u64,
}

/// A request on its way to an authority, or back. It is to be taken back to the table.
#[derive(Debug)]
#[must_use = "the table counts it until it is back"]
pub(crate) struct Asking {
    /// The room of its resource.
    pub(crate) room: usize,
    /// How many leases had ended before it was made.
    after: u64,
}

/// What a grant finds. Where it is to be seated, its request is not back yet.
pub(crate) enum Entry<T> {
    /// Its lease has a hold, which has one guard more now.
    Again(T),
    /// The lease is being released. Who asked stands behind that from now on.
    Behind(Ticket),
    /// The lease ended before its guard was made.
    Gone,
    /// Its lease has no hold yet: one is to be seated.
    New,
    /// The hold of its lease is lost, and has no seat any more: another one is to be seated.
    Anew(T),
}

/// What became of a lease when a guard of it went.
pub(crate) enum Leave<G> {
    /// It stays as it is. These are to be woken outside the lock.
    Stays(Vec<Waker>),
    /// It is to be released.
    Release(G),
}

impl Seat {
    /// Has one guard.
    pub(crate) const fn new() -> Self {
        Self {
            guards: AtomicUsize::new(1),
            release: AtomicU64::new(NONE),
            place: AtomicUsize::new(0),
        }
    }

    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Relaxed)
    }

    fn set_guards(&self, guards: usize) {
        self.guards.store(guards, Ordering::Relaxed);
    }

    /// One guard fewer. Answers how many are left.
    fn leave(&self) -> usize {
        let left = self.guards().saturating_sub(1);
        self.set_guards(left);
        left
    }

    fn release(&self) -> u64 {
        self.release.load(Ordering::Relaxed)
    }

    pub(crate) fn is_releasing(&self) -> bool {
        self.release() != NONE
    }

    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }
}

impl<T: Sitter> Order<T> {
    pub(crate) fn new() -> Self {
        Self {
            rooms: Rooms::new(),
            ends: 0,
            releases: 0,
            behind: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// A request for `key` is about to be made.
    pub(crate) fn ask(&mut self, key: &ResourceKey) -> Asking {
        let after = self.ends;
        let room = self.rooms.open(key);
        Asking { room, after }
    }

    /// A request is back.
    pub(crate) fn asked(&mut self, asking: &Asking) {
        if let Some(room) = self.rooms.room(asking.room) {
            room.requests = room.requests.saturating_sub(1);
            if room.requests == 0 {
                room.over = None;
                self.rooms.close(asking.room);
            }
        }
    }

    /// A request is granted a lease.
    pub(crate) fn enter(
        &mut self,
        asking: &Asking,
        generation: Generation,
        is_lost: impl FnOnce(&T) -> bool,
    ) -> Entry<T> {
        let known = self.rooms.seat(asking.room, generation).cloned();
        match known {
            Some(known) if known.seat().is_releasing() => {
                let ticket = self.stand_behind(known.seat());
                self.asked(asking);
                Entry::Behind(ticket)
            }
            Some(known) if !is_lost(&known) => {
                let seat = known.seat();
                seat.set_guards(seat.guards().saturating_add(1));
                self.asked(asking);
                Entry::Again(known)
            }
            _ if self.is_over(asking, generation) => {
                self.asked(asking);
                Entry::Gone
            }
            Some(known) => {
                // With its seat; the one that is returned is to be dropped outside the lock.
                drop(self.rooms.unseat(asking.room, generation));
                Entry::Anew(known)
            }
            None => Entry::New,
        }
    }

    /// Seats the hold of what a request was granted. The request is back.
    pub(crate) fn sit(&mut self, asking: &Asking, hold: T) {
        self.rooms.sit(hold);
        self.asked(asking);
    }

    /// A guard goes. After the last one `give_up` says whether the lease is to be released.
    pub(crate) fn leave<G>(&mut self, hold: &T, give_up: impl FnOnce() -> Option<G>) -> Leave<G> {
        let seat = hold.seat();
        if seat.leave() > 0 {
            return Leave::Stays(Vec::new());
        }
        // What has no seat has ended: it is lost, or is about to be.
        let given_up = if self.rooms.sits(hold) {
            give_up()
        } else {
            None
        };
        match given_up {
            Some(given_up) => {
                self.begin(seat);
                Leave::Release(given_up)
            }
            // A release that was dropped on its way leaves by here, too.
            None => Leave::Stays(self.tell(seat)),
        }
    }

    /// The only guard is about to be released. Where there are others it goes, and is answered how many are left.
    pub(crate) fn begin_release(&mut self, hold: &T) -> Result<(), usize> {
        let seat = hold.seat();
        if seat.guards() > 1 {
            return Err(seat.leave());
        }
        self.begin(seat);
        Ok(())
    }

    /// A release is over: the lease has ended, or it stays with its guard. Answers a hold that has no seat any more,
    /// and whom to wake, both outside the lock.
    pub(crate) fn settle(&mut self, hold: &T, released: bool) -> (Option<T>, Vec<Waker>) {
        let seat = hold.seat();
        let mut gone = None;
        if released {
            seat.set_guards(0);
            gone = self.remove(hold);
        }
        (gone, self.tell(seat))
    }

    fn begin(&mut self, seat: &Seat) {
        // One that goes on was dropped on its way, and is made again.
        if seat.release() == NONE {
            self.releases = self.releases.saturating_add(1);
            seat.release.store(self.releases, Ordering::Relaxed);
        }
    }

    /// Stands behind the release under way, until that is over. Not to be begun in another critical section than
    /// the look at it: a release that ends in between would tell nobody.
    pub(crate) fn stand_behind(&mut self, seat: &Seat) -> Ticket {
        self.tickets = self.tickets.saturating_add(1);
        let ticket = Ticket {
            release: seat.release(),
            number: self.tickets,
        };
        self.behind.insert(ticket, None);
        ticket
    }

    /// The release is over. Answers whom to wake.
    fn tell(&mut self, seat: &Seat) -> Vec<Waker> {
        let release = seat.release();
        if release == NONE {
            return Vec::new();
        }
        seat.release.store(NONE, Ordering::Relaxed);
        if self.behind.is_empty() {
            return Vec::new();
        }
        let number = |number| Ticket { release, number };
        let mut theirs = self.behind.split_off(&number(0));
        self.behind.append(&mut theirs.split_off(&number(u64::MAX)));
        theirs.into_values().flatten().collect()
    }

    /// Whether who stands here may go on. If not, `waker` is woken then. Answers a waker that is not needed any
    /// more too, to be dropped outside the lock.
    pub(crate) fn look(&mut self, ticket: Ticket, waker: &Waker) -> (bool, Option<Waker>) {
        match self.behind.get_mut(&ticket) {
            Some(Some(kept)) if kept.will_wake(waker) => (false, None),
            Some(kept) => (false, kept.replace(waker.clone())),
            None => (true, None),
        }
    }

    /// Who stood here has gone. Answers a waker to be dropped outside the lock.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Waker> {
        self.behind.remove(&ticket).flatten()
    }

    /// Takes a hold out that has ended, to be dropped outside the lock.
    pub(crate) fn remove(&mut self, hold: &T) -> Option<T> {
        if !self.rooms.sits(hold) {
            return None;
        }
        self.take(hold.room(), hold.generation())
    }

    pub(crate) fn take(&mut self, room: usize, generation: Generation) -> Option<T> {
        let hold = self.rooms.unseat(room, generation)?;
        self.ended(room, generation);
        self.rooms.close(room);
        Some(hold)
    }

    /// Remembers an end for whoever has asked before it.
    pub(crate) fn ended(&mut self, room: usize, generation: Generation) {
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
