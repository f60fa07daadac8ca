//! Who waits: data, in order of arrival.

use alloc::collections::{BTreeMap, BTreeSet};
use core::hash::BuildHasher;
use core::ops::Bound::{self, Excluded, Unbounded};
use core::time::Duration;

use hashbrown::hash_map::HashMap;

use crate::action::{Action, WaiterId};
use crate::holder::Holder;
use crate::key::ResourceKey;
use crate::limits::{HOLDER_WAITERS, WAITERS};
use crate::refusal::{Bounded, Counter, Refusal};
use crate::time::Moment;

/// Room for as many waiting holders is kept.
const FEW: usize = 64;

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter<H> {
    pub(super) key: ResourceKey,
    pub(super) holder: H,
    pub(super) ttl: Option<Duration>,
    pub(super) since: Moment,
    pub(super) deadline: Option<Moment>,
}

impl<H: Holder> Waiter<H> {
    /// What it asks for, each time anew.
    pub(super) fn asks(&self) -> Action<H> {
        Action::Acquire {
            holder: self.holder.clone(),
            ttl: self.ttl,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Queue<H, S> {
    waiters: BTreeMap<WaiterId, Waiter<H>>,
    deadlines: BTreeSet<(Moment, WaiterId)>,
    by_holder: HashMap<H, BTreeSet<WaiterId>, S>,
    next: u64,
}

impl<H: Holder, S: BuildHasher> Queue<H, S> {
    pub(super) const fn new(hasher: S) -> Self {
        Self {
            waiters: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            by_holder: HashMap::with_hasher(hasher),
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<H>> {
        self.waiters.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter<H>)> {
        self.waiters.iter().map(|(id, waiter)| (*id, waiter))
    }

    /// Puts a request at the end. `settled` requests were answered and nobody took the answer yet; they
    /// count too, or nothing would bound them.
    pub(super) fn push(
        &mut self,
        waiter: Waiter<H>,
        settled: usize,
    ) -> Result<WaiterId, Refusal<H>> {
        if self.waiters.len().saturating_add(settled) >= WAITERS {
            return Err(Refusal::Limit {
                what: Bounded::Waiters,
                most: WAITERS,
            });
        }
        let own = self.by_holder.get(&waiter.holder).map_or(0, BTreeSet::len);
        if own >= HOLDER_WAITERS {
            let what = Bounded::HolderWaiters;
            return Err(Refusal::Limit {
                what,
                most: HOLDER_WAITERS,
            });
        }
        let id = WaiterId(self.next);
        let Some(next) = self.next.checked_add(1) else {
            return Err(Refusal::Exhausted {
                counter: Counter::Waiter,
            });
        };
        self.next = next;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, id));
        }
        match self.by_holder.get_mut(&waiter.holder) {
            Some(ids) => {
                ids.insert(id);
            }
            None => {
                let ids = BTreeSet::from([id]);
                self.by_holder.insert(waiter.holder.clone(), ids);
            }
        }
        self.waiters.insert(id, waiter);
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<H>> {
        let waiter = self.waiters.remove(&id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(ids) = self.by_holder.get_mut(&waiter.holder) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_holder.remove(&waiter.holder);
            }
            if self.by_holder.is_empty() {
                self.by_holder.shrink_to(FEW);
            }
        }
        Some(waiter)
    }

    /// The earliest request after `after`.
    pub(super) fn next(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        let mut later = self.waiters.range((from(after), Unbounded));
        later.next().map(|(id, _)| *id)
    }

    /// The earliest request of `holder` after `after`.
    pub(super) fn next_of(&self, holder: &H, after: Option<WaiterId>) -> Option<WaiterId> {
        let ids = self.by_holder.get(holder)?;
        ids.range((from(after), Unbounded)).next().copied()
    }

    pub(super) fn first_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The next request whose deadline has passed.
    pub(super) fn overdue(&self, now: Moment) -> Option<WaiterId> {
        let first = self.deadlines.first();
        first
            .filter(|(deadline, _)| *deadline < now)
            .map(|(_, id)| *id)
    }

    /// The next request whose deadline has come.
    pub(super) fn timed_out(&self, now: Moment) -> Option<WaiterId> {
        self.deadlines
            .first()
            .filter(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| *id)
    }
}

/// Where the search after `after` begins.
fn from(after: Option<WaiterId>) -> Bound<WaiterId> {
    after.map_or(Unbounded, Excluded)
}
