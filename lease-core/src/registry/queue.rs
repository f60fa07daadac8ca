//! Who waits: data, in order of arrival.

use alloc::collections::BTreeSet;
use core::hash::BuildHasher;
use core::time::Duration;

use hashbrown::HashTable;

use super::line::Line;
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
    waiters: Line<Waiter<H>>,
    deadlines: BTreeSet<(Moment, WaiterId)>,
    by_holder: HashTable<Own<H>>,
    hasher: S,
    next: u64,
}

/// The requests of one holder.
#[derive(Clone, Debug)]
struct Own<H> {
    holder: H,
    hash: u64,
    first: WaiterId,
    others: Line<()>,
}

impl<H: Holder, S: BuildHasher> Queue<H, S> {
    pub(super) const fn new(hasher: S) -> Self {
        Self {
            waiters: Line::new(),
            deadlines: BTreeSet::new(),
            by_holder: HashTable::new(),
            hasher,
            next: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<H>> {
        self.waiters.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter<H>)> {
        self.waiters.iter()
    }

    /// Puts a request at the end. `settled` requests were answered and nobody took the answer yet; they
    /// count too, or nothing would bound them.
    pub(super) fn push(
        &mut self,
        waiter: Waiter<H>,
        settled: usize,
    ) -> Result<WaiterId, Refusal<H>> {
        let full = |what, most| Err(Refusal::Limit { what, most });
        if self.waiters.len().saturating_add(settled) >= WAITERS {
            return full(Bounded::Waiters, WAITERS);
        }
        let hash = self.hasher.hash_one(&waiter.holder);
        let is = |own: &Own<H>| own.holder == waiter.holder;
        let own = self.by_holder.find_mut(hash, is);
        let waiting = |own: &&mut Own<H>| own.others.len().saturating_add(1);
        if own.as_ref().map_or(0, waiting) >= HOLDER_WAITERS {
            return full(Bounded::HolderWaiters, HOLDER_WAITERS);
        }
        let id = WaiterId(self.next);
        let Some(next) = self.next.checked_add(1) else {
            return Err(Refusal::Exhausted {
                counter: Counter::Waiter,
            });
        };
        self.next = next;
        if let Some(own) = own {
            own.others.push(id, ());
        } else {
            let own = Own {
                holder: waiter.holder.clone(),
                hash,
                first: id,
                others: Line::new(),
            };
            self.by_holder.insert_unique(hash, own, |own| own.hash);
        }
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.waiters.push(id, waiter);
        Ok(id)
    }

    /// Takes a request out, and says whether its holder waits for more.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<(Waiter<H>, bool)> {
        let waiter = self.waiters.remove(id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        let hash = self.hasher.hash_one(&waiter.holder);
        let is = |own: &Own<H>| own.holder == waiter.holder;
        let mut more = false;
        if let Ok(mut entry) = self.by_holder.find_entry(hash, is) {
            more = true;
            let own = entry.get_mut();
            if own.first != id {
                own.others.remove(id);
            } else if let Some(next) = own.others.next(None) {
                own.others.remove(next);
                own.first = next;
            } else {
                more = false;
                entry.remove();
            }
        }
        if self.by_holder.is_empty() {
            self.by_holder.shrink_to(FEW, |own| own.hash);
        }
        Some((waiter, more))
    }

    /// The earliest request after `after`.
    pub(super) fn next(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        self.waiters.next(after)
    }

    /// The earliest request of `holder` after `after`.
    pub(super) fn next_of(&self, holder: &H, after: Option<WaiterId>) -> Option<WaiterId> {
        let hash = self.hasher.hash_one(holder);
        let own = self.by_holder.find(hash, |own| own.holder == *holder)?;
        if after.is_none_or(|after| after < own.first) {
            Some(own.first)
        } else {
            own.others.next(after)
        }
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
