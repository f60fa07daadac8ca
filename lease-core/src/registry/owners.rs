//! Who holds anything, and where the list of a holder's leases begins.
//!
//! A lease knows the place of its holder here, so that a release looks nothing up, and the holder of the
//! last lease is tried first, since a writer mostly comes back for more.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::HashTable;

use crate::holder::Holder;

/// No place.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Owners<H, S> {
    by_holder: HashTable<u32>,
    owners: Vec<Owner<H>>,
    free: Vec<u32>,
    /// The owner asked for last. It is the only one that may be kept without a lease.
    recent: u32,
    /// The holder in the lease that ended last. Who comes back gets it again, since a new copy is counted
    /// where other threads may count too.
    spare: Option<H>,
    hasher: S,
}

#[derive(Clone, Debug)]
struct Owner<H> {
    /// `None` if the place is free.
    holder: Option<H>,
    hash: u64,
    /// The latest lease.
    first: Option<u32>,
}

impl<H: Holder, S: BuildHasher> Owners<H, S> {
    pub(super) const fn new(hasher: S) -> Self {
        Self {
            by_holder: HashTable::new(),
            owners: Vec::new(),
            free: Vec::new(),
            recent: NONE,
            spare: None,
            hasher,
        }
    }

    /// How many holders without a lease are kept, but for the one that may be.
    pub(super) fn left_behind(&self) -> usize {
        let holds = |owner: &&Owner<H>| owner.first.is_some();
        let holding = self.owners.iter().filter(holds).count();
        let recent = self.owner(self.recent).filter(|owner| !holds(owner));
        let wanted = holding.saturating_add(usize::from(recent.is_some()));
        self.by_holder.len().saturating_sub(wanted)
    }

    /// Keeps what a lease that ended said of its holder.
    #[inline]
    pub(super) fn give(&mut self, holder: H) {
        self.spare = Some(holder);
    }

    /// A copy of `holder` for a new lease.
    #[inline]
    pub(super) fn copy(&mut self, holder: &H) -> H {
        match self.spare.take_if(|spare| spare == holder) {
            Some(spare) => spare,
            None => copy(holder),
        }
    }

    fn owner(&self, place: u32) -> Option<&Owner<H>> {
        self.owners.get(usize::try_from(place).ok()?)
    }

    fn owner_mut(&mut self, place: u32) -> Option<&mut Owner<H>> {
        self.owners.get_mut(usize::try_from(place).ok()?)
    }

    fn is(&self, place: u32, holder: &H) -> bool {
        self.owner(place)
            .is_some_and(|owner| owner.holder.as_ref() == Some(holder))
    }

    fn find(&self, hash: u64, holder: &H) -> Option<u32> {
        self.by_holder
            .find(hash, |&place| self.is(place, holder))
            .copied()
    }

    /// Where the list of the holder's leases begins.
    pub(super) fn first_of(&self, holder: &H) -> Option<u32> {
        let place = if self.is(self.recent, holder) {
            self.recent
        } else {
            self.find(self.hasher.hash_one(holder), holder)?
        };
        self.owner(place)?.first
    }

    /// Puts the lease at `lease` in front of the holder's list. Answers the holder's place, and which
    /// lease was in front before.
    #[inline]
    pub(super) fn join(&mut self, holder: &H, lease: u32) -> (u32, Option<u32>) {
        let place = self.enter(holder);
        let before = self
            .owner_mut(place)
            .and_then(|owner| owner.first.replace(lease));
        (place, before)
    }

    /// Says that the list of the holder at `place` begins with `first` now.
    pub(super) fn begin_with(&mut self, place: u32, first: Option<u32>) {
        if let Some(owner) = self.owner_mut(place) {
            owner.first = first;
        }
        if place != self.recent {
            self.forget_idle(place);
        }
    }

    /// The place of `holder`, made if missing. It is the recent one from now on.
    #[inline]
    fn enter(&mut self, holder: &H) -> u32 {
        if self.is(self.recent, holder) {
            return self.recent;
        }
        self.enter_anew(holder)
    }

    #[inline(never)]
    fn enter_anew(&mut self, holder: &H) -> u32 {
        let hash = self.hasher.hash_one(holder);
        let place = match self.find(hash, holder) {
            Some(place) => place,
            None => self.insert(hash, holder.clone()),
        };
        let before = core::mem::replace(&mut self.recent, place);
        self.forget_idle(before);
        place
    }

    fn insert(&mut self, hash: u64, holder: H) -> u32 {
        let owner = Owner {
            holder: Some(holder),
            hash,
            first: None,
        };
        let place = if let Some(place) = self.free.pop()
            && let Some(old) = self.owner_mut(place)
        {
            *old = owner;
            place
        } else {
            self.owners.push(owner);
            // There are no more holders than leases, and those fit.
            u32::try_from(self.owners.len().saturating_sub(1)).unwrap_or(NONE)
        };
        let owners = &self.owners;
        let rehash = |&place: &u32| {
            let owner = usize::try_from(place).ok().and_then(|at| owners.get(at));
            owner.map_or(0, |owner| owner.hash)
        };
        self.by_holder.insert_unique(hash, place, rehash);
        place
    }

    /// Frees the place of a holder without leases.
    fn forget_idle(&mut self, place: u32) {
        let Some(owner) = self.owner_mut(place).filter(|owner| owner.first.is_none()) else {
            return;
        };
        owner.holder = None;
        let hash = owner.hash;
        if let Ok(entry) = self.by_holder.find_entry(hash, |&other| other == place) {
            entry.remove();
        }
        self.free.push(place);
    }
}

/// Not inlined, so that a copy at hand is moved in one piece.
#[inline(never)]
fn copy<H: Clone>(holder: &H) -> H {
    holder.clone()
}
