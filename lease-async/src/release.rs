//! A release and those who come meanwhile: which of the two is first. Plain data, kept under the lock of the table.
//!
//! `orders/` runs it, with the rooms, in every order of threads. The rules are those of [`crate::table`].

use core::task::Waker;
use std::collections::BTreeMap;

use lease_core::{Generation, ResourceKey};

use crate::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::rooms::{Rooms, Sitter};

/// What the table and its rooms know of a hold. Changed only with the table locked, so no order is needed; but for the
/// stage: a guard may leave quietly without the table, a release may be over, and who does more than to hold says so.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    guards: AtomicUsize,
    stage: AtomicU8,
    /// The number of the release under way, once its end is to be told.
    release: AtomicU64,
    /// Where it stands in the row of its session.
    place: AtomicUsize,
}

/// How far a lease is in its life, as its seat knows.
mod stage {
    /// It is held by one guard, and nothing else is known of it: that guard may leave without the table. Only the
    /// parked seat is.
    pub(super) const QUIET: u8 = 0;
    /// It is held, or left as it is.
    pub(super) const HELD: u8 = 1;
    /// Its only guard is being released by hand, and the end of that is to be told.
    pub(super) const ASKED: u8 = 2;
    /// Its last guard has left, so it is lost, and is being released. Who does that may say without the table that it is
    /// over.
    pub(super) const RELEASING: u8 = 3;
    /// The same, and the end of that is to be told.
    pub(super) const WATCHED: u8 = 4;
    /// It is over, and the table has not taken note yet.
    pub(super) const OVER: u8 = 5;
    /// It is over, and the seat may serve another lease.
    pub(super) const VACANT: u8 = 6;
}

/// The holds of one front, and who comes and goes.
pub(crate) struct Order<T> {
    pub(crate) rooms: Rooms<T>,
    /// How many leases have ended for which somebody asked then.
    ends: u64,
    /// The seat, by its room and its lease, that was taken or left last: the only one that may be left quietly, be over
    /// unnoted, or vacant. Mostly the next request is for the same resource, and finds its room and its seat as they
    /// were.
    parked: Option<(usize, Generation)>,
    /// How many releases had an end to tell.
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
pub(crate) enum Leave<T, G> {
    /// It stays as it is. These are to be woken outside the lock.
    Stays(Vec<Waker>),
    /// It is to be released. A hold that has no seat any more is to be dropped outside the lock.
    Release(G, Option<T>),
}

impl Seat {
    /// Has one guard.
    pub(crate) fn new() -> Self {
        let seat = Self::default();
        seat.serve_again();
        seat
    }

    /// Has one guard of another lease, at the same place.
    pub(crate) fn serve_again(&self) {
        self.set_guards(1);
        self.set(stage::HELD);
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

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Acquire)
    }

    fn set(&self, stage: u8) {
        self.stage.store(stage, Ordering::Release);
    }

    /// Changes the stage if it is `from`. Answers whether it was.
    fn turn(&self, from: u8, to: u8) -> bool {
        let turned = self
            .stage
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        turned.is_ok()
    }

    /// Its only guard leaves without the table, and with that the lease is lost. Answers whether it may.
    #[inline]
    pub(crate) fn leaves_quietly(&self) -> bool {
        self.turn(stage::QUIET, stage::RELEASING)
    }

    /// Somebody is about to do more than to hold it, or to look at it: from now on the table is told when the last guard
    /// leaves. Answers whether that has left already, and the lease is lost.
    #[inline]
    pub(crate) fn engage(&self) -> bool {
        if self.stage() == stage::QUIET && self.turn(stage::QUIET, stage::HELD) {
            return false;
        }
        self.stage() >= stage::RELEASING
    }

    pub(crate) fn is_releasing(&self) -> bool {
        (stage::ASKED..stage::OVER).contains(&self.stage())
    }

    /// Whether its lease has not ended, as far as it knows.
    pub(crate) fn is_live(&self) -> bool {
        self.stage() < stage::OVER
    }

    /// Whether its lease has ended, and that was noted.
    pub(crate) fn is_vacant(&self) -> bool {
        self.stage() == stage::VACANT
    }

    /// The release under way is over, and the lease with it. Answers whether that is all; else the table is to be
    /// told. Without the table.
    pub(crate) fn is_over_quietly(&self) -> bool {
        self.turn(stage::RELEASING, stage::OVER)
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
            parked: None,
            releases: 0,
            behind: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// A request for `key` is about to be made.
    pub(crate) fn ask(&mut self, key: &ResourceKey) -> Asking {
        let room = self.rooms.open(key);
        // Before it counts: it is made after that end.
        self.note(room);
        if let Some(room) = self.rooms.room(room) {
            room.requests = room.requests.saturating_add(1);
        }
        let after = self.ends;
        Asking { room, after }
    }

    /// A request is back.
    #[inline]
    pub(crate) fn asked(&mut self, asking: &Asking) {
        if let Some(room) = self.rooms.room(asking.room) {
            room.requests = room.requests.saturating_sub(1);
            if room.requests == 0 {
                room.over = None;
                if room.is_empty() {
                    self.rooms.close(asking.room);
                }
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
        let known = self.rooms.any_seat(asking.room, generation);
        let Some(known) = known.filter(|known| !known.seat().is_vacant()) else {
            return self.enter_new(asking, generation);
        };
        let known = known.clone();
        // If its only guard has not left yet, it is not the only one any more.
        known.seat().engage();
        if let Some(ticket) = self.stand_behind(known.seat()) {
            self.asked(asking);
            return Entry::Behind(ticket);
        }
        // What could be over without the table is over by now.
        self.note(asking.room);
        if known.seat().is_live() && !is_lost(&known) {
            let seat = known.seat();
            seat.set_guards(seat.guards().saturating_add(1));
            self.asked(asking);
            return Entry::Again(known);
        }
        if self.is_over(asking, generation) {
            self.asked(asking);
            return Entry::Gone;
        }
        // What has its seat is not the last of it; the one that is returned is to be dropped outside the lock.
        drop(self.rooms.unseat(asking.room, generation));
        Entry::Anew(known)
    }

    fn enter_new(&mut self, asking: &Asking, generation: Generation) -> Entry<T> {
        self.note(asking.room);
        if self.is_over(asking, generation) {
            self.asked(asking);
            return Entry::Gone;
        }
        Entry::New
    }

    /// Seats the hold of what a request was granted. The request is back. Answers a hold that has no seat any more, to
    /// be dropped outside the lock.
    pub(crate) fn sit(&mut self, asking: &Asking, hold: T) -> Option<T> {
        let gone = self.park(&hold);
        hold.seat().set(stage::QUIET);
        self.rooms.sit(hold);
        self.asked(asking);
        gone
    }

    /// Seats the hold that was left last once more, if there is one and `serve` makes it the hold of what was granted
    /// in this room. The request is back then. Else the hold has no seat any more, and is to be dropped outside the
    /// lock.
    pub(crate) fn sit_again(
        &mut self,
        asking: &Asking,
        serve: impl FnOnce(&mut T) -> bool,
    ) -> Result<T, Option<T>> {
        let Some((room, generation)) = self.parked else {
            return Err(None);
        };
        if room != asking.room {
            // Else it was noted as the grant came.
            self.note(room);
        }
        let Some(hold) = self.rooms.vacant(room, generation) else {
            return Err(None);
        };
        self.parked = None;
        let before = (room, hold.row());
        if !serve(hold) {
            return Err(self.take(room, generation));
        }
        let hold = hold.clone();
        self.parked = Some((hold.room(), hold.generation()));
        hold.seat().set(stage::QUIET);
        self.rooms.moved(&hold, before);
        if room != asking.room {
            self.rooms.close(room);
        }
        self.asked(asking);
        Ok(hold)
    }

    /// A guard goes. After the last one `give_up` says whether the lease is to be released.
    pub(crate) fn leave<G>(
        &mut self,
        hold: &T,
        give_up: impl FnOnce() -> Option<G>,
    ) -> Leave<T, G> {
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
                // One that goes on was dropped on its way, and is made again.
                if !seat.is_releasing() {
                    seat.set(stage::RELEASING);
                }
                Leave::Release(given_up, self.park(hold))
            }
            // A release that was dropped on its way leaves by here, too.
            None => Leave::Stays(self.tell(seat, stage::HELD)),
        }
    }

    /// The only guard is about to be released. Where there are others it goes, and is answered how many are left.
    pub(crate) fn begin_release(&mut self, hold: &T) -> Result<(), usize> {
        let seat = hold.seat();
        if seat.guards() > 1 {
            return Err(seat.leave());
        }
        // One that goes on was dropped on its way, and is made again.
        if !seat.is_releasing() {
            number(seat, &mut self.releases);
            seat.set(stage::ASKED);
        }
        Ok(())
    }

    /// A release is over: the lease has ended, or it stays with its guard. Answers a hold that has no seat any more,
    /// and whom to wake, both outside the lock. Where it `stays` its seat may serve another lease.
    pub(crate) fn settle(
        &mut self,
        hold: &T,
        released: bool,
        stays: bool,
    ) -> (Option<T>, Vec<Waker>) {
        let seat = hold.seat();
        if !released {
            return (None, self.tell(seat, stage::HELD));
        }
        seat.set_guards(0);
        if !self.rooms.sits(hold) {
            return (None, self.tell(seat, stage::VACANT));
        }
        if !stays {
            let (gone, told) = self.remove(hold);
            seat.set(stage::VACANT);
            return (gone, told);
        }
        self.ended(hold.room(), hold.generation());
        let told = self.tell(seat, stage::VACANT);
        (self.park(hold), told)
    }

    /// Takes note of a release that was over without the table.
    fn note(&mut self, room: usize) {
        let Some((_, generation)) = self.parked.filter(|parked| parked.0 == room) else {
            return;
        };
        let Some(hold) = self.rooms.any_seat(room, generation) else {
            return;
        };
        // From there only the table goes on.
        if hold.seat().stage() == stage::OVER {
            hold.seat().set(stage::VACANT);
            self.ended(room, generation);
        }
    }

    /// A seat may be left quietly, be over unnoted, or vacant: the one that might before is cleared. Answers its hold.
    fn park(&mut self, hold: &T) -> Option<T> {
        let parked = (hold.room(), hold.generation());
        let (room, generation) = self.parked.replace(parked).filter(|last| *last != parked)?;
        let seat = self.rooms.any_seat(room, generation)?.seat();
        // The table is told from now on when it is left, or of its end; or that has come.
        seat.engage();
        if watch(seat, &mut self.releases) || seat.is_live() {
            return None;
        }
        self.take(room, generation)
    }

    /// Stands behind the release under way, until that is over, if there is one. What was found is true in this
    /// critical section only: a release that ended before it is not to be waited for.
    fn stand_behind(&mut self, seat: &Seat) -> Option<Ticket> {
        let watched = watch(seat, &mut self.releases) || seat.is_releasing();
        watched.then(|| self.stand(seat))
    }

    /// Stands behind the latest release of this seat.
    pub(crate) fn stand(&mut self, seat: &Seat) -> Ticket {
        self.tickets = self.tickets.saturating_add(1);
        let ticket = Ticket {
            release: seat.release.load(Ordering::Relaxed),
            number: self.tickets,
        };
        self.behind.insert(ticket, None);
        ticket
    }

    /// The release is over, if there is one under way. Answers whom to wake.
    #[inline]
    fn tell(&mut self, seat: &Seat, stage: u8) -> Vec<Waker> {
        let is_releasing = seat.is_releasing();
        if is_releasing || stage != stage::HELD {
            seat.set(stage);
        }
        if is_releasing {
            self.let_go(seat)
        } else {
            Vec::new()
        }
    }

    /// Nobody stands behind the latest release of this seat any more. Answers whom to wake.
    #[inline]
    fn let_go(&mut self, seat: &Seat) -> Vec<Waker> {
        if self.behind.is_empty() {
            return Vec::new();
        }
        let release = seat.release.load(Ordering::Relaxed);
        let number = |number| Ticket { release, number };
        let mut theirs = self.behind.split_off(&number(0));
        self.behind.append(&mut theirs.split_off(&number(u64::MAX)));
        theirs.into_values().flatten().collect()
    }

    /// Whether who stands here may go on. If not, `waker` is woken then. What was there before is to be dropped outside
    /// the lock.
    pub(crate) fn look(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> bool {
        match self.behind.get_mut(&ticket) {
            Some(kept) => {
                core::mem::swap(kept, waker);
                false
            }
            None => true,
        }
    }

    /// Who stood here has gone. Answers a waker to be dropped outside the lock.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> Option<Waker> {
        self.behind.remove(&ticket).flatten()
    }

    /// Takes a hold out that has ended, to be dropped outside the lock. Answers whom to wake, too: a release of it that
    /// is under way is overtaken.
    pub(crate) fn remove(&mut self, hold: &T) -> (Option<T>, Vec<Waker>) {
        if !self.rooms.sits(hold) {
            return (None, Vec::new());
        }
        self.end(hold.room(), hold.generation())
    }

    /// As [`remove`](Self::remove), of the hold that has this seat.
    pub(crate) fn end(&mut self, room: usize, generation: Generation) -> (Option<T>, Vec<Waker>) {
        let gone = self.take(room, generation);
        let told = match &gone {
            Some(hold) => self.let_go(hold.seat()),
            None => Vec::new(),
        };
        (gone, told)
    }

    fn take(&mut self, room: usize, generation: Generation) -> Option<T> {
        let hold = self.rooms.unseat(room, generation)?;
        // What has no seat is not left quietly.
        hold.seat().engage();
        if !hold.seat().is_vacant() {
            self.ended(room, generation);
        }
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

/// Gives a release the next number.
fn number(seat: &Seat, releases: &mut u64) {
    *releases = releases.saturating_add(1);
    seat.release.store(*releases, Ordering::Relaxed);
}

/// Has the end of a release told that could be over without the table. Answers whether it still could.
fn watch(seat: &Seat, releases: &mut u64) -> bool {
    let watched = seat.turn(stage::RELEASING, stage::WATCHED);
    if watched {
        number(seat, releases);
    }
    watched
}
