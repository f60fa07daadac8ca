//! What is held, as owned copies.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use super::{Registry, Turn};
use crate::action::Action;
use crate::cell::{Lease, Operation};
use crate::holder::Holder;
use crate::id::FencingToken;
use crate::key::ResourceKey;
use crate::time::Moment;

/// One held lease, as it was when it was listed. Changing it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LeaseView<H> {
    /// What is held.
    pub resource: ResourceKey,
    /// Who holds it.
    pub holder: H,
    /// Which grant.
    pub token: FencingToken,
    /// When it was granted.
    pub acquired: Moment,
    /// The last progress.
    pub touched: Moment,
    /// The last moment of its term.
    pub expires: Option<Moment>,
    /// Its term was over. It may be there all the same: a sweep is lazy, and what suspends or shields
    /// ends nothing.
    pub expired: bool,
    /// What is in flight, in order of begin; a stuck operation shows by its age.
    pub in_flight: Vec<Operation>,
    /// An operation ended with unknown effect since the grant.
    pub tainted: bool,
    /// How often it was handed over.
    pub handovers: u32,
}

impl<H: Holder> LeaseView<H> {
    pub(crate) fn of(resource: &ResourceKey, lease: &Lease<H>, now: Moment) -> Self {
        Self {
            resource: resource.clone(),
            holder: lease.holder.clone(),
            token: lease.token,
            acquired: lease.acquired,
            touched: lease.touched,
            expires: lease.expires,
            expired: lease.expired(now),
            in_flight: lease.ops.clone(),
            tainted: lease.tainted,
            handovers: lease.handovers,
        }
    }
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Lists what is held, in order of resources, after a sweep that is observed by inspection.
    ///
    /// Of more than 64 expired leases the rest is listed as expired.
    pub fn list(&mut self, turn: &mut Turn<'_>) -> Vec<LeaseView<H>> {
        turn.seen.now = self.observe(&turn.seen);
        self.settle_due(&Action::Sweep, turn);
        self.peek(turn.seen.now)
    }

    /// Lists what is stored at `now`, in order of resources, and changes nothing.
    #[must_use]
    pub fn peek(&self, now: Moment) -> Vec<LeaseView<H>> {
        let now = now.max(self.latest);
        let mut views: Vec<_> = self
            .store
            .all()
            .map(|(key, lease)| LeaseView::of(key, lease, now))
            .collect();
        views.sort_by(|a, b| a.resource.cmp(&b.resource));
        views
    }

    /// Returns the stored lease of one resource, and changes nothing.
    #[must_use]
    pub fn lease(&self, key: &ResourceKey) -> Option<&Lease<H>> {
        self.store.cell(key).and_then(|cell| cell.lease())
    }

    /// Returns how many places and timers are in use: what is held or waited for, and what is left behind
    /// until it is cleaned up. Looks at every holder.
    #[must_use]
    pub fn footprint(&self) -> (usize, usize) {
        self.store.footprint()
    }
}
