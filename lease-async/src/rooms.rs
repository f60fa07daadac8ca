//! Where a front keeps its holds: by resource, and by session. Plain data, kept under the lock of the table.
//!
//! A resource has a room while somebody asks for it or holds it. Its number is known to each request and to each
//! hold, so only the first of them looks it up by name. A session has a row: the list of what it holds.

use core::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use lease_core::{Generation, ResourceKey};

use crate::release::Seat;

/// What has a seat in a room: the hold of one lease.
pub(crate) trait Sitter: Clone {
    fn room(&self) -> usize;

    /// The row of its session.
    fn row(&self) -> usize;

    fn generation(&self) -> Generation;

    fn seat(&self) -> &Seat;

    /// Whether it is the very same hold.
    fn is(&self, other: &Self) -> bool;
}

/// How many rooms, and rows, may stay for the next ones while none is in use.
const SPARE: usize = 64;

/// The holds of one front.
pub(crate) struct Rooms<T> {
    rooms: Vec<Room<T>>,
    /// Those that nobody needs. Some may have been given up since, and made anew.
    free: Vec<usize>,
    /// One that nobody needs and that may still be found: mostly the next request is for the same resource.
    idle: Option<usize>,
    by_key: HashTable<usize>,
    /// The one that was asked for last.
    last: usize,
    hasher: DefaultHashBuilder,
    rows: Vec<Row>,
    free_rows: Vec<usize>,
}

/// What a session holds, in no order: the room and the lease.
type Row = Vec<(usize, Generation)>;

/// One resource.
pub(crate) struct Room<T> {
    key: ResourceKey,
    hash: u64,
    /// It is found by its key.
    named: bool,
    /// How many requests for it are on their way.
    pub(crate) requests: usize,
    /// The latest lease of it that ended while they were, and which end it was.
    pub(crate) over: Option<(Generation, u64)>,
    /// Mostly one: a lease that ended may stand beside its successor for a moment.
    seats: Vec<T>,
}

impl<T> Room<T> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.requests == 0 && self.seats.is_empty()
    }
}

impl<T: Sitter> Rooms<T> {
    pub(crate) fn new() -> Self {
        Self {
            rooms: Vec::new(),
            free: Vec::new(),
            idle: None,
            by_key: HashTable::new(),
            last: 0,
            hasher: DefaultHashBuilder::default(),
            rows: Vec::new(),
            free_rows: Vec::new(),
        }
    }

    /// How many holds there are.
    pub(crate) fn len(&self) -> usize {
        self.seats().count()
    }

    /// How many rooms have a name.
    #[cfg(test)]
    pub(crate) fn named(&self) -> usize {
        self.by_key.len()
    }

    /// How many requests are on their way.
    pub(crate) fn requests(&self) -> usize {
        self.rooms.iter().map(|room| room.requests).sum()
    }

    /// All holds, in no order.
    pub(crate) fn seats(&self) -> impl Iterator<Item = &T> {
        let seats = self.rooms.iter().flat_map(|room| &room.seats);
        seats.filter(|seat| seat.seat().is_live())
    }

    /// Finds the room of `key`, or makes one, for a request more. Answers its number.
    #[inline]
    pub(crate) fn open(&mut self, key: &ResourceKey) -> usize {
        let last = self.rooms.get(self.last);
        if last.is_some_and(|room| room.named && room.key == *key) {
            return self.last;
        }
        self.last = self.look_up(key);
        self.last
    }

    fn look_up(&mut self, key: &ResourceKey) -> usize {
        let hash = self.hasher.hash_one(key);
        match self.find_hashed(key, hash) {
            Some(at) => at,
            None => self.make(key, hash),
        }
    }

    pub(crate) fn find(&self, key: &ResourceKey) -> Option<usize> {
        self.find_hashed(key, self.hasher.hash_one(key))
    }

    fn find_hashed(&self, key: &ResourceKey, hash: u64) -> Option<usize> {
        let is_it = |at: &usize| self.rooms.get(*at).is_some_and(|room| room.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    fn make(&mut self, key: &ResourceKey, hash: u64) -> usize {
        let at = self.take_free().unwrap_or(self.rooms.len());
        match self.rooms.get_mut(at) {
            Some(room) => {
                room.key = key.clone();
                room.hash = hash;
                room.named = true;
                room.over = None;
            }
            None => self.rooms.push(Room {
                key: key.clone(),
                hash,
                named: true,
                requests: 0,
                over: None,
                seats: Vec::new(),
            }),
        }
        let rooms = &self.rooms;
        let hash_of = |at: &usize| rooms.get(*at).map_or(0, |room| room.hash);
        self.by_key.insert_unique(hash, at, hash_of);
        at
    }

    /// Takes a room that nobody needs.
    fn take_free(&mut self) -> Option<usize> {
        while let Some(at) = self.free.pop() {
            if self.rooms.get(at).is_some_and(|room| !room.named) {
                return Some(at);
            }
        }
        None
    }

    pub(crate) fn room(&mut self, at: usize) -> Option<&mut Room<T>> {
        self.rooms.get_mut(at)
    }

    /// Gives a room up if nobody needs it any more: it stays until the next one does so.
    pub(crate) fn close(&mut self, at: usize) {
        if self.idle == Some(at) || !self.is_empty(at) {
            return;
        }
        let before = self.idle.replace(at);
        if let Some(before) = before.filter(|before| self.is_empty(*before)) {
            self.forget(before);
        }
    }

    fn is_empty(&self, at: usize) -> bool {
        self.rooms.get(at).is_some_and(Room::is_empty)
    }

    fn forget(&mut self, at: usize) {
        let Some(hash) = self.rooms.get(at).map(|room| room.hash) else {
            return;
        };
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == at) {
            entry.remove();
            self.free.push(at);
            if let Some(room) = self.rooms.get_mut(at) {
                room.named = false;
            }
        }
        // Only the idle one is left, and what many once needed is not kept for it.
        if self.by_key.len() <= 1 && self.rooms.len() > SPARE {
            (self.rooms, self.free, self.by_key) = (Vec::new(), Vec::new(), HashTable::new());
            self.idle = None;
        } else if self.rooms.len() > SPARE {
            self.trim(at);
        }
    }

    /// Gives up what a crowd needed beside those who stay: a name, and the rooms behind the last one in use.
    fn trim(&mut self, at: usize) {
        if let (Some(room), Ok(nobodys)) = (self.rooms.get_mut(at), ResourceKey::new("nobodys")) {
            room.key = nobodys;
        }
        while self.rooms.last().is_some_and(|room| !room.named) {
            self.rooms.pop();
        }
        let room_for = |used: usize| used.saturating_mul(2).saturating_add(SPARE);
        let used = self.rooms.len();
        if self.rooms.capacity() > room_for(room_for(used)) {
            self.rooms.shrink_to(room_for(used));
        }
        if self.free.len() > room_for(used) {
            let free = self
                .rooms
                .iter()
                .enumerate()
                .filter(|(_, room)| !room.named);
            self.free = free.map(|(at, _)| at).collect();
        }
        let named = self.by_key.len();
        // Not its capacity, which does not count what was removed in the middle of it.
        if self.by_key.num_buckets() > room_for(room_for(named)) {
            let rooms = &self.rooms;
            let hash_of = |at: &usize| rooms.get(*at).map_or(0, |room| room.hash);
            self.by_key.shrink_to(room_for(named), hash_of);
        }
    }

    /// Finds the hold of a lease.
    pub(crate) fn seat(&self, at: usize, generation: Generation) -> Option<&T> {
        let seat = self.any_seat(at, generation);
        seat.filter(|seat| seat.seat().is_live())
    }

    /// Finds the hold of a lease of which the resource is not known.
    pub(crate) fn search(&self, generation: Generation) -> Option<&T> {
        self.seats().find(|seat| seat.generation() == generation)
    }

    /// Finds the hold of a lease, also of one that has ended.
    pub(crate) fn any_seat(&self, at: usize, generation: Generation) -> Option<&T> {
        let mut seats = self.rooms.get(at)?.seats.iter();
        seats.find(|seat| seat.generation() == generation)
    }

    /// Finds the hold of a lease that has ended, if that was noted, to be that of another one.
    pub(crate) fn vacant(&mut self, at: usize, generation: Generation) -> Option<&mut T> {
        let mut seats = self.rooms.get_mut(at)?.seats.iter_mut();
        seats.find(|seat| seat.generation() == generation && seat.seat().is_vacant())
    }

    /// A hold, which sits where it sat before, is that of another lease, and maybe of another session or resource.
    pub(crate) fn moved(&mut self, hold: &T, before: (usize, usize)) {
        let (at, row) = before;
        if hold.room() != at {
            if let Some(room) = self.rooms.get_mut(at)
                && let Some(index) = room.seats.iter().position(|seat| seat.is(hold))
            {
                drop(room.seats.swap_remove(index));
            }
            if let Some(room) = self.rooms.get_mut(hold.room()) {
                room.seats.push(hold.clone());
            }
        }
        let place = hold.seat().place();
        let entry = (hold.room(), hold.generation());
        if hold.row() != row {
            self.strike(row, place);
            self.push(hold, entry);
        } else if let Some(kept) = self.rows.get_mut(row).and_then(|row| row.get_mut(place)) {
            *kept = entry;
        }
    }

    fn push(&mut self, hold: &T, entry: (usize, Generation)) {
        if let Some(row) = self.rows.get_mut(hold.row()) {
            hold.seat().set_place(row.len());
            row.push(entry);
        }
    }

    /// Whether `hold` still has its seat.
    pub(crate) fn sits(&self, hold: &T) -> bool {
        let seats = self.rooms.get(hold.room()).map(|room| &room.seats);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.is(hold))) && hold.seat().is_live()
    }

    /// Seats a hold in its room, where none of its lease sits.
    pub(crate) fn sit(&mut self, hold: T) {
        let (at, row) = (hold.room(), hold.row());
        let generation = hold.generation();
        let (Some(room), Some(row)) = (self.rooms.get_mut(at), self.rows.get_mut(row)) else {
            return;
        };
        hold.seat().set_place(row.len());
        row.push((at, generation));
        room.seats.push(hold);
    }

    /// Takes the hold of a lease out of its room, which may be empty then. To be dropped outside the lock.
    pub(crate) fn unseat(&mut self, at: usize, generation: Generation) -> Option<T> {
        let room = self.rooms.get_mut(at)?;
        let mut seats = room.seats.iter();
        let index = seats.position(|seat| seat.generation() == generation)?;
        let hold = room.seats.swap_remove(index);
        self.strike(hold.row(), hold.seat().place());
        Some(hold)
    }

    /// Takes one entry out of a row; the last one takes its place.
    fn strike(&mut self, row: usize, place: usize) {
        let Some(row) = self.rows.get_mut(row).filter(|row| place < row.len()) else {
            return;
        };
        row.swap_remove(place);
        if let Some((at, generation)) = row.get(place).copied()
            && let Some(moved) = self.any_seat(at, generation)
        {
            moved.seat().set_place(place);
        }
    }

    /// Makes the row of a new session.
    pub(crate) fn add_row(&mut self) -> usize {
        match self.free_rows.pop() {
            Some(row) => row,
            None => {
                self.rows.push(Row::new());
                self.rows.len().saturating_sub(1)
            }
        }
    }

    /// Gives a row up whose session, with all its holds, is gone.
    pub(crate) fn remove_row(&mut self, at: usize) {
        if let Some(row) = self.rows.get_mut(at) {
            *row = Row::new();
            self.free_rows.push(at);
        }
        if self.free_rows.len() == self.rows.len() && self.rows.len() > SPARE {
            (self.rows, self.free_rows) = (Vec::new(), Vec::new());
        }
    }

    /// Returns any of what a session holds.
    pub(crate) fn last_of(&self, row: usize) -> Option<(usize, Generation)> {
        self.rows.get(row)?.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use lease_core::{Generation, ResourceKey};

    use super::{Rooms, SPARE, Sitter};
    use crate::release::Seat;

    /// Nobody ever sits here.
    #[derive(Clone)]
    enum Nobody {}

    impl Sitter for Nobody {
        fn room(&self) -> usize {
            match *self {}
        }

        fn row(&self) -> usize {
            match *self {}
        }

        fn generation(&self) -> Generation {
            match *self {}
        }

        fn seat(&self) -> &Seat {
            match *self {}
        }

        fn is(&self, _other: &Self) -> bool {
            match *self {}
        }
    }

    fn asked(rooms: &mut Rooms<Nobody>, name: &str) -> usize {
        let at = rooms.open(&ResourceKey::new(name).unwrap());
        rooms.room(at).unwrap().requests += 1;
        at
    }

    fn answered(rooms: &mut Rooms<Nobody>, at: usize) {
        rooms.room(at).unwrap().requests -= 1;
        rooms.close(at);
    }

    #[test]
    fn a_room_that_nobody_needs_serves_the_next_one_and_the_last_one_is_kept() {
        let mut rooms = Rooms::new();
        let _stays = asked(&mut rooms, "stays");
        for n in 0..20 {
            for _again in 0..2 {
                let name = format!("{n}");
                let at = asked(&mut rooms, &name);
                answered(&mut rooms, at);
                assert_eq!(rooms.find(&ResourceKey::new(&name).unwrap()), Some(at));
            }
            assert!(rooms.rooms.len() <= 3, "{n}");
        }
    }

    #[test]
    fn what_a_crowd_needed_is_given_up_beside_those_who_stay() {
        const CROWD: usize = 5_000;
        let long = "x".repeat(200);
        for (stays, backwards) in [(0, false), (0, true), (2_500, false), (CROWD - 1, true)] {
            let mut rooms = Rooms::new();
            let names = (0..CROWD).map(|n| format!("{long}{n}"));
            let names: Vec<_> = names.collect();
            let mut crowd: Vec<_> = names.iter().map(|name| asked(&mut rooms, name)).collect();
            let stayed = crowd.remove(stays);
            if backwards {
                crowd.reverse();
            }
            for at in crowd {
                answered(&mut rooms, at);
            }
            // A few rooms stay as they were.
            let named = rooms
                .rooms
                .iter()
                .filter(|room| room.key.as_str().len() > 200);
            assert!(named.count() <= SPARE + 2, "{stays}");
            if (stays, backwards) == (0, true) {
                assert!(rooms.rooms.len() <= SPARE + 2);
                assert!(rooms.rooms.capacity() < CROWD / 10);
            }
            assert!(rooms.free.len() <= 2 * rooms.rooms.len() + SPARE, "{stays}");
            assert!(rooms.by_key.num_buckets() < CROWD / 10, "{stays}");
            // Who stays is found, and whoever is new has a room of its own.
            let name = ResourceKey::new(&names[stays]).unwrap();
            assert_eq!(rooms.find(&name), Some(stayed), "{stays}");
            let mut again: Vec<_> = (0..CROWD)
                .map(|n| asked(&mut rooms, &format!("new{n}")))
                .collect();
            for (n, at) in again.iter().enumerate() {
                let name = ResourceKey::new(&format!("new{n}")).unwrap();
                assert_eq!(rooms.find(&name), Some(*at), "{stays}");
            }
            again.push(stayed);
            again.sort_unstable();
            again.dedup();
            assert_eq!(again.len(), CROWD + 1, "{stays}");
        }
    }
}
