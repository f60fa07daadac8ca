//! Who holds or waits for anything: where the list of a holder's leases begins, and what it waits for.
//!
//! A lease and a request know the place of their holder here, so that a release or a hand-over looks nothing up.
//! Who came or left last is tried first, since a writer mostly comes back for more.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::requests::Requests;
use crate::action::WaiterId;
use crate::holder::Holder;
use crate::limits::HOLDER_WAITERS;
use crate::refusal::{Bounded, Refusal};

/// No place.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Owners<H, S> {
    by_holder: HashTable<u32>,
    owners: Vec<Owner<H>>,
    free: Vec<u32>,
    /// The owner that was asked for last, or that left last. It is the only one that may be kept while it neither
    /// holds nor waits.
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
    /// What it waits for.
    requests: Requests,
}

impl<H> Owner<H> {
    /// Whether it holds or waits for anything.
    fn is_there(&self) -> bool {
        self.first.is_some() || !self.requests.is_empty()
    }
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

    /// How many are kept that neither hold nor wait, but for the one that may be.
    pub(super) fn left_behind(&self) -> usize {
        let there = self.owners.iter().filter(|owner| owner.is_there()).count();
        let recent = self.owner(self.recent).filter(|owner| !owner.is_there());
        let wanted = there.saturating_add(usize::from(recent.is_some()));
        self.by_holder.len().saturating_sub(wanted)
    }

    /// How many places there are, and how many of them are free.
    pub(super) const fn places(&self) -> (usize, usize) {
        (self.owners.len(), self.free.len())
    }

    /// Keeps what a lease that ended said of its holder.
    #[inline]
    pub(super) fn give(&mut self, holder: H) {
        self.spare = Some(holder);
    }

    /// A copy of `holder` for a new lease or request.
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

    /// What is known of `holder`.
    fn known(&self, holder: &H) -> Option<&Owner<H>> {
        let place = if self.is(self.recent, holder) {
            self.recent
        } else {
            self.find(self.hasher.hash_one(holder), holder)?
        };
        self.owner(place)
    }

    /// Where the list of the holder's leases begins.
    pub(super) fn first_of(&self, holder: &H) -> Option<u32> {
        self.known(holder)?.first
    }

    /// The earliest request of `holder` after `after`.
    pub(super) fn next_request(&self, holder: &H, after: Option<WaiterId>) -> Option<WaiterId> {
        self.known(holder)?.requests.next(after)
    }

    /// Puts the lease at `lease` in front of the list of the owner at `place`. Answers which was in front before.
    pub(super) fn join(&mut self, place: u32, lease: u32) -> Option<u32> {
        self.owner_mut(place)?.first.replace(lease)
    }

    /// Says that the list of the owner at `place` begins with `first` now. [Let it go](Self::let_go) then.
    pub(super) fn begin_with(&mut self, place: u32, first: Option<u32>) {
        if let Some(owner) = self.owner_mut(place) {
            owner.first = first;
        }
    }

    /// Notes that the owner at `place` waits for one thing more.
    pub(super) fn add_request(&mut self, place: u32, id: WaiterId) -> Result<(), Refusal<H>> {
        let Some(owner) = self.owner_mut(place) else {
            return Ok(());
        };
        if owner.requests.len() >= HOLDER_WAITERS {
            return Err(Refusal::Limit {
                what: Bounded::HolderWaiters,
                most: HOLDER_WAITERS,
            });
        }
        owner.requests.push(id);
        Ok(())
    }

    /// Forgets that the owner at `place` waits for `id`. Answers whether it waits for more.
    pub(super) fn remove_request(&mut self, place: u32, id: WaiterId) -> bool {
        let Some(owner) = self.owner_mut(place) else {
            return false;
        };
        owner.requests.remove(id);
        let waits_for_more = !owner.requests.is_empty();
        self.let_go(place);
        waits_for_more
    }

    /// Takes over from `old` who holds or waits, and who waits for what. Answers the new place of each old one.
    pub(super) fn take_over(&mut self, old: &mut Self) -> Vec<u32> {
        let owners = core::mem::take(&mut old.owners);
        let places = owners.into_iter().map(|owner| {
            let is_there = owner.is_there();
            let Owner { hash, requests, .. } = owner;
            match owner.holder.filter(|_| is_there) {
                Some(holder) => self.insert(hash, holder, requests),
                None => NONE,
            }
        });
        places.collect()
    }

    /// The place of `holder`, made if missing. Say next what it holds or waits for.
    #[inline]
    pub(super) fn enter(&mut self, holder: &H) -> u32 {
        self.enter_near(self.recent, holder)
    }

    /// The place of `holder`, which may be `hint`, made if missing. Say next what it holds or waits for.
    #[inline]
    pub(super) fn enter_near(&mut self, hint: u32, holder: &H) -> u32 {
        if self.is(hint, holder) {
            return hint;
        }
        self.enter_anew(holder)
    }

    #[inline(never)]
    fn enter_anew(&mut self, holder: &H) -> u32 {
        let hash = self.hasher.hash_one(holder);
        let place = match self.find(hash, holder) {
            Some(place) => place,
            None => self.insert(hash, holder.clone(), Requests::default()),
        };
        self.come(place);
        place
    }

    /// Keeps the owner at `place` whatever it does, and the one before it no longer.
    fn come(&mut self, place: u32) {
        let before = core::mem::replace(&mut self.recent, place);
        if before != place {
            self.forget_idle(before);
        }
    }

    /// Says that the owner at `place` may not be needed any more.
    #[inline]
    pub(super) fn let_go(&mut self, place: u32) {
        if place != self.recent && self.owner(place).is_some_and(|owner| !owner.is_there()) {
            self.come(place);
        }
    }

    fn insert(&mut self, hash: u64, holder: H, requests: Requests) -> u32 {
        let owner = Owner {
            holder: Some(holder),
            hash,
            first: None,
            requests,
        };
        let place = if let Some(place) = self.free.pop()
            && let Some(old) = self.owner_mut(place)
        {
            *old = owner;
            place
        } else {
            self.owners.push(owner);
            // There are no more of them than leases and requests, and those fit.
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

    /// Frees the place of an owner that neither holds nor waits.
    fn forget_idle(&mut self, place: u32) {
        let Some(owner) = self.owner_mut(place).filter(|owner| !owner.is_there()) else {
            return;
        };
        owner.holder = None;
        owner.requests = Requests::default();
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

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;
    use core::time::Duration;

    use hashbrown::DefaultHashBuilder;

    use crate::action::{Seen, Wait, WaiterId};
    use crate::holder::SessionHolder;
    use crate::id::{AuthorityId, LeaseId};
    use crate::key::ResourceKey;
    use crate::outcome::Outcome;
    use crate::policy::LeasePolicy;
    use crate::registry::store::Store;
    use crate::registry::{Registry, Request, Step, Turn};
    use crate::time::Moment;

    #[test]
    fn room_for_a_crowd_of_holders_is_given_back() {
        let mut store = Store::new(DefaultHashBuilder::default());
        let key = "k".parse().unwrap();
        let holder = |number: u64| SessionHolder::new("ag", &format!("s-{number}")).unwrap();
        let place = store.prepare(&key);
        for number in 0..3_000 {
            let owner = store.owners.enter(&holder(number));
            let added = store.add_waiter(place, owner, WaiterId(number));
            assert!(added.is_ok());
        }
        for number in 1..3_000 {
            let place = store.place(&key, None).unwrap();
            let owner = store.owners.enter(&holder(number));
            assert!(!store.remove_waiter(place, owner, WaiterId(number)));
            store.shrink();
        }
        assert!(store.owners.owners.len() <= 1_024);
        let kept = store.owners.next_request(&holder(0), None);
        assert_eq!(kept, Some(WaiterId(0)));
    }

    #[test]
    fn who_leaves_as_places_are_given_back_waits_for_nothing() {
        let mut store = Store::new(DefaultHashBuilder::default());
        let key = |number: u64| ResourceKey::new(&format!("a/{number}")).unwrap();
        let holder = |number: u64| SessionHolder::new("ag", &format!("s-{number}")).unwrap();
        for number in 0..2_000 {
            let place = store.prepare(&key(number));
            let owner = store.owners.enter(&holder(number));
            assert!(store.add_waiter(place, owner, WaiterId(number)).is_ok());
        }
        for number in 0..2_000 {
            let place = store.place(&key(number), None).unwrap();
            let owner = store.owners.enter(&holder(number));
            assert!(!store.remove_waiter(place, owner, WaiterId(number)));
            assert_eq!(store.owners.next_request(&holder(number), None), None);
        }
    }

    #[test]
    fn room_for_a_crowd_that_was_served_is_given_back() {
        let authority = AuthorityId::from_random([7; 16]);
        let policy = LeasePolicy::session_ttl(Duration::from_secs(30)).unwrap();
        let mut registry = Registry::new(authority, policy);
        let (key, mut drawn) = ("k".parse().unwrap(), 0_u64);
        let mut lease_id = || {
            drawn += 1;
            LeaseId::from_bytes(u128::from(drawn).to_be_bytes())
        };
        let mut turn = Turn::new(Seen::at(Moment::ZERO), &mut lease_id);
        let mut granted = Vec::new();
        for number in 0..3_000 {
            let holder = SessionHolder::new("ag", &format!("s-{number}")).unwrap();
            let request = Request {
                holder: &holder,
                ttl: None,
                wait: Wait::Forever,
            };
            if let Step::Done(Outcome::Granted(grant, _)) =
                registry.acquire(&key, request, &mut turn)
            {
                granted.push(grant.at);
                // Who came first goes once, so that the key is the idle one before the crowd comes.
                if number == 0 {
                    assert!(registry.release(&key, grant.at, &mut turn).is_ok());
                }
            }
        }
        let mut held = granted.pop();
        while let Some(at) = held {
            assert!(registry.release(&key, at, &mut turn).is_ok());
            let settled = registry.take_settled();
            held = settled.map(|settled| settled.outcome.unwrap().0.at);
        }
        assert_eq!((registry.held(), registry.waiting()), (0, 0));
        assert!(registry.store.owners.places().0 <= 1_024);
    }
}
