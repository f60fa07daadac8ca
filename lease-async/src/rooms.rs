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
    /// Those that nobody needs.
    free: Vec<usize>,
    /// One that nobody needs and that may still be found: mostly the next request is for the same resource.
    idle: Option<usize>,
    by_key: HashTable<usize>,
    hasher: DefaultHashBuilder,
    rows: Vec<Row>,
    free_rows: Vec<usize>,
    /// How many holds there are.
    seats: usize,
}

/// What a session holds, in no order: the room and the lease.
type Row = Vec<(usize, Generation)>;

/// One resource.
pub(crate) struct Room<T> {
    key: ResourceKey,
    hash: u64,
    /// How many requests for it are on their way.
    pub(crate) requests: usize,
    /// The latest lease of it that ended while they were, and which end it was.
    pub(crate) over: Option<(Generation, u64)>,
    /// Mostly one: a lease that ended may stand beside its successor for a moment.
    seats: Vec<T>,
}

impl<T: Sitter> Rooms<T> {
    pub(crate) fn new() -> Self {
        Self {
            rooms: Vec::new(),
            free: Vec::new(),
            idle: None,
            by_key: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            rows: Vec::new(),
            free_rows: Vec::new(),
            seats: 0,
        }
    }

    /// How many holds there are.
    pub(crate) const fn len(&self) -> usize {
        self.seats
    }

    /// How many requests are on their way.
    pub(crate) fn requests(&self) -> usize {
        self.rooms.iter().map(|room| room.requests).sum()
    }

    /// All holds, in no order.
    pub(crate) fn seats(&self) -> impl Iterator<Item = &T> {
        self.rooms.iter().flat_map(|room| &room.seats)
    }

    /// Finds the room of `key`, or makes one, for a request more. Answers its number.
    pub(crate) fn open(&mut self, key: &ResourceKey) -> usize {
        let hash = self.hasher.hash_one(key);
        let at = match self.find_hashed(key, hash) {
            Some(at) => at,
            None => self.make(key, hash),
        };
        if let Some(room) = self.rooms.get_mut(at) {
            room.requests = room.requests.saturating_add(1);
        }
        at
    }

    pub(crate) fn find(&self, key: &ResourceKey) -> Option<usize> {
        self.find_hashed(key, self.hasher.hash_one(key))
    }

    fn find_hashed(&self, key: &ResourceKey, hash: u64) -> Option<usize> {
        let is_it = |at: &usize| self.rooms.get(*at).is_some_and(|room| room.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    fn make(&mut self, key: &ResourceKey, hash: u64) -> usize {
        let at = match self.free.pop() {
            Some(at) => at,
            None => self.rooms.len(),
        };
        match self.rooms.get_mut(at) {
            Some(room) => {
                room.key = key.clone();
                room.hash = hash;
                room.over = None;
            }
            None => self.rooms.push(Room {
                key: key.clone(),
                hash,
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
        let room = self.rooms.get(at);
        room.is_some_and(|room| room.requests == 0 && room.seats.is_empty())
    }

    fn forget(&mut self, at: usize) {
        let Some(hash) = self.rooms.get(at).map(|room| room.hash) else {
            return;
        };
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == at) {
            entry.remove();
            self.free.push(at);
        }
        // Only the idle one is left, and what many once needed is not kept for it.
        if self.by_key.len() <= 1 && self.rooms.len() > SPARE {
            (self.rooms, self.free, self.by_key) = (Vec::new(), Vec::new(), HashTable::new());
            self.idle = None;
        }
    }

    /// Finds the hold of a lease.
    pub(crate) fn seat(&self, at: usize, generation: Generation) -> Option<&T> {
        self.rooms.get(at)?.seat(generation)
    }

    /// Finds the hold of a lease of which the resource is not known.
    pub(crate) fn search(&self, generation: Generation) -> Option<&T> {
        self.seats().find(|seat| seat.generation() == generation)
    }

    /// Whether `hold` still has its seat.
    pub(crate) fn sits(&self, hold: &T) -> bool {
        let seats = self.rooms.get(hold.room()).map(|room| &room.seats);
        seats.is_some_and(|seats| seats.iter().any(|seat| seat.is(hold)))
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
        self.seats = self.seats.saturating_add(1);
    }

    /// Takes the hold of a lease out of its room, which may be empty then. To be dropped outside the lock.
    pub(crate) fn unseat(&mut self, at: usize, generation: Generation) -> Option<T> {
        let room = self.rooms.get_mut(at)?;
        let mut seats = room.seats.iter();
        let index = seats.position(|seat| seat.generation() == generation)?;
        let hold = room.seats.swap_remove(index);
        self.seats = self.seats.saturating_sub(1);
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
            && let Some(moved) = self.seat(at, generation)
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

impl<T: Sitter> Room<T> {
    fn seat(&self, generation: Generation) -> Option<&T> {
        let mut seats = self.seats.iter();
        seats.find(|seat| seat.generation() == generation)
    }
}
