//! The floors: a table with one hash and one boxed name, a slot by index.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::rounds::{Walk, Work};

struct Entry {
    name: Box<str>,
    generation: u64,
    touched: u64,
}

/// Takes and gives back by name, with a generation and a stamp, and nothing else.
pub(crate) struct Table {
    names: Vec<String>,
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
    next: u64,
    walk: Walk,
    /// For each name whether its partner is held instead.
    swapped: Vec<bool>,
}

impl Table {
    pub(crate) fn new(names: Vec<String>) -> Self {
        let mut table = Self {
            swapped: vec![false; names.len()],
            names,
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            next: 0,
            walk: Walk::new(),
        };
        for at in 0..table.names.len() {
            table.take(at);
        }
        table
    }

    fn take(&mut self, at: usize) {
        self.next += 1;
        let name = &self.names[at];
        let hash = self.hasher.hash_one(name.as_str());
        let hasher = &self.hasher;
        let entry = Entry {
            name: name.as_str().into(),
            generation: self.next,
            touched: self.next,
        };
        self.table
            .entry(
                hash,
                |entry| *entry.name == **name,
                |entry| hasher.hash_one(&*entry.name),
            )
            .or_insert(entry);
    }

    fn give(&mut self, at: usize) {
        let name = &self.names[at];
        let hash = self.hasher.hash_one(name.as_str());
        if let Ok(found) = self.table.find_entry(hash, |entry| *entry.name == **name) {
            let (entry, _) = found.remove();
            std::hint::black_box((entry.generation, entry.touched));
        }
    }
}

impl Table {
    /// Lets only the first half of the names be held, for [`others`](Self::others).
    pub(crate) fn halve(&mut self) {
        (self.names.len() / 2..self.names.len()).for_each(|at| self.give(at));
    }

    /// Gives back one name and takes its partner in the other half.
    pub(crate) fn others(&mut self, count: u64) {
        for _ in 0..count {
            let (from, to) = self.walk.swap(&mut self.swapped);
            self.give(from);
            self.take(to);
        }
    }
}

impl Work for Table {
    fn run(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.give(at);
            self.take(at);
        }
    }
}

/// Compares a generation at a known place and writes a stamp there.
pub(crate) struct Slots {
    slots: Vec<(u64, u64)>,
    walk: Walk,
}

impl Slots {
    pub(crate) fn new(n: usize) -> Self {
        Self {
            slots: (0..n as u64).map(|at| (at, 0)).collect(),
            walk: Walk::new(),
        }
    }
}

impl Work for Slots {
    fn run(&mut self, count: u64) {
        for now in 0..count {
            let at = self.walk.next(self.slots.len());
            let slot = &mut self.slots[at];
            if slot.0 == std::hint::black_box(at as u64) {
                slot.1 = now;
            }
        }
        std::hint::black_box(&self.slots);
    }
}
