//! Who waits: data, in order of arrival.

use alloc::collections::BTreeSet;
use core::time::Duration;

use super::line::Line;
use crate::action::{Action, WaiterId};
use crate::holder::Holder;
use crate::key::ResourceKey;
use crate::limits::WAITERS;
use crate::refusal::{Bounded, Counter, Refusal};
use crate::time::Moment;

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter<H> {
    pub(super) key: ResourceKey,
    pub(super) holder: H,
    /// The holder's place, if it is there still.
    pub(super) owner: u32,
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
pub(super) struct Queue<H> {
    waiters: Line<Waiter<H>>,
    deadlines: BTreeSet<(Moment, WaiterId)>,
    next: u64,
}

impl<H: Holder> Queue<H> {
    pub(super) const fn new() -> Self {
        Self {
            waiters: Line::new(),
            deadlines: BTreeSet::new(),
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

    /// Which number the next request gets. `settled` requests were answered and nobody took the answer yet; they
    /// count too, or nothing would bound them.
    pub(super) fn admit(&self, settled: usize) -> Result<WaiterId, Refusal<H>> {
        if self.waiters.len().saturating_add(settled) >= WAITERS {
            return Err(Refusal::Limit {
                what: Bounded::Waiters,
                most: WAITERS,
            });
        }
        match self.next {
            u64::MAX => Err(Refusal::Exhausted {
                counter: Counter::Waiter,
            }),
            next => Ok(WaiterId(next)),
        }
    }

    /// Puts the request that was [admitted](Self::admit) last at the end.
    pub(super) fn push(&mut self, id: WaiterId, waiter: Waiter<H>) {
        self.next = id.0.saturating_add(1);
        let deadline = waiter.deadline;
        self.waiters.push(id, waiter);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }

    /// Takes a request out.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<H>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(waiter)
    }

    /// The earliest request after `after`.
    pub(super) fn next(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        self.waiters.next(after)
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
