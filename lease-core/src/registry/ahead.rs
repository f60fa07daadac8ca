//! What is ahead of a request: leases that keep it out, and those who came earlier.
//!
//! Many may wait and a writer may hold much, so nothing is fetched here that cannot matter, and those who wait
//! are listed once for all who are looked at together.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use super::Registry;
use super::queue::Waiter;
use super::store::Store;
use crate::action::{Seen, WaiterId};
use crate::cell::{Cell, Lease};
use crate::decision::{first_in_front, refused_by, stands};
use crate::holder::Holder;
use crate::key::{ResourceKey, overlap};
use crate::refusal::{Behind, Refusal};

/// What of the queue matters to a request.
pub(super) struct Ahead<'a, H> {
    /// Earlier waiters, the earliest first.
    pub(super) queued: Vec<(WaiterId, &'a ResourceKey, &'a H)>,
    /// What the asking writer holds that may overlap one of them.
    pub(super) own: Vec<(&'a ResourceKey, &'a Cell<H>)>,
}

impl<H> Ahead<'_, H> {
    pub(super) const NOTHING: Self = Self {
        queued: Vec::new(),
        own: Vec::new(),
    };
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Whether the request `id`, for the key at `place`, goes on waiting whatever else there is: a lease of
    /// another keeps it out, or it must let an earlier one go first.
    ///
    /// Most who are looked at go on waiting; for that no scene is fetched. A re-entry does not: the lease of
    /// its writer keeps all others out of what overlaps it, and makes them wait for that very writer.
    pub(super) fn must_go_on_waiting(
        &self,
        place: u32,
        id: WaiterId,
        crowd: &mut Crowd,
        seen: &Seen<'_>,
    ) -> bool {
        self.queue.get(id).is_some_and(|waiter| {
            self.is_barred(place, &waiter.holder, seen)
                || self.stands_behind(place, (id, waiter), crowd)
        })
    }

    /// Whether a lease of another overlaps the key at `place`, and nobody can get past it now: whoever waits,
    /// `holder` gets nothing there but by re-entry.
    pub(super) fn is_barred(&self, place: u32, holder: &H, seen: &Seen<'_>) -> bool {
        let bars = |lease: &Lease<H>| stands(lease, seen) && lease.holder != *holder;
        self.store.overlapping(place).any(|(_, lease)| bars(lease))
    }

    /// What keeps the request `id` waiting: a lease of another, or who must go first.
    pub(super) fn in_the_way(&self, id: WaiterId, seen: &Seen<'_>) -> Option<Refusal<H>> {
        let Waiter { key, holder, .. } = self.queue.get(id)?;
        let place = self.store.place(key, None)?;
        let leases = self.store.overlapping(place);
        let mut of_others = leases.filter(|(_, lease)| lease.holder != *holder);
        let barred = of_others.find_map(|(key, lease)| refused_by(key, lease, seen));
        if barred.is_some() {
            return barred;
        }
        let Ahead { queued, own } = self.ahead(key, Some(id), holder);
        let own: Vec<_> = own.into_iter().map(|(key, _)| key).collect();
        let (waiter, key, by) = first_in_front((key, holder), &own, queued.into_iter())?;
        Some(Refusal::Behind(Behind::new(key, by, waiter)))
    }

    fn stands_behind(
        &self,
        place: u32,
        (id, waiter): (WaiterId, &Waiter<H>),
        crowd: &mut Crowd,
    ) -> bool {
        let Waiter { key, holder, .. } = waiter;
        let root = self.store.outermost_waited_for(key, Some(id));
        let own = self.own_near(holder, root);
        if own.is_empty() {
            // It can pass nobody, so one who came first to this key or one above it is enough.
            let firsts = self.store.firsts_from(place).filter(|first| *first < id);
            let mut firsts = firsts.filter_map(|first| self.queue.get(first));
            if firsts.any(|first| first.holder != *holder) {
                return true;
            }
            if !self.store.is_waited_for_below(place) {
                return self.first_of_another(key, holder, Some(id)).is_some();
            }
        }
        // A lease that is over blocks nobody, and is found out by the decision.
        let own: Vec<_> = own.into_iter().map(|(key, _)| key).collect();
        let earlier = crowd.around(&self.store, key, root).iter();
        let earlier = earlier.take_while(|earlier| **earlier < id);
        let earlier = earlier.filter_map(|earlier| self.queued(*earlier));
        first_in_front((key, holder), &own, earlier).is_some()
    }

    /// Fetches the earlier waiters that matter to a request: those that overlap it, and those that one of these
    /// may wait behind.
    pub(super) fn ahead(
        &self,
        key: &ResourceKey,
        me: Option<WaiterId>,
        holder: &H,
    ) -> Ahead<'_, H> {
        let first = self.store.next_waiter(key, None);
        let Some(first) = first.filter(|&first| is_before(first, me)) else {
            return Ahead::NOTHING;
        };
        let mut queued = Vec::new();
        let root = self.store.outermost_waited_for(key, me);
        let own = self.own_near(holder, root);
        if own.is_empty() {
            // Only a writer that holds something there can pass a waiter of another, so the earliest is enough:
            // not all who wait around here are listed for each of them.
            let first = self.queued(first).filter(|&(.., by)| by != holder);
            queued.extend(first.or_else(|| self.first_of_another(key, holder, me)));
        } else {
            // A waiter for an ancestor can make others wait that do not overlap this request.
            let all = self.store.waiters_around(root).into_iter();
            let earlier = all.take_while(|&id| is_before(id, me));
            queued.extend(earlier.filter_map(|id| self.queued(id)));
        }
        Ahead { queued, own }
    }

    /// The earliest waiter before `me` that overlaps `key` and is not of `holder`.
    fn first_of_another(
        &self,
        key: &ResourceKey,
        holder: &H,
        me: Option<WaiterId>,
    ) -> Option<(WaiterId, &ResourceKey, &H)> {
        let mut candidates = Candidates::of(&self.store, key);
        core::iter::from_fn(|| candidates.next(&self.store, key))
            .take_while(|&id| is_before(id, me))
            .filter_map(|id| self.queued(id))
            .find(|(.., by)| *by != holder)
    }

    /// What `holder` holds that overlaps the key `root`.
    fn own_near(&self, holder: &H, root: &[u8]) -> Vec<(&ResourceKey, &Cell<H>)> {
        let own = self.store.of_holder(holder);
        own.filter(|(key, _)| overlap(key.as_bytes(), root))
            .collect()
    }

    fn queued(&self, id: WaiterId) -> Option<(WaiterId, &ResourceKey, &H)> {
        let waiter = self.queue.get(id)?;
        Some((id, &waiter.key, &waiter.holder))
    }
}

fn is_before(id: WaiterId, me: Option<WaiterId>) -> bool {
    me.is_none_or(|me| id < me)
}

/// Those who wait around one key, listed once for all who are looked at together.
///
/// Who has left since is in the list still; nobody may come.
#[derive(Default)]
pub(super) struct Crowd {
    /// A key that begins with that one, and how much of it that one is.
    root: Option<(ResourceKey, usize)>,
    ids: Vec<WaiterId>,
}

impl Crowd {
    /// All waiters that overlap `root`, with which `key` begins, the earliest first.
    fn around<H: Holder, S: BuildHasher + Clone>(
        &mut self,
        store: &Store<H, S>,
        key: &ResourceKey,
        root: &[u8],
    ) -> &[WaiterId] {
        let known = self.root.as_ref();
        let known = known.and_then(|(key, bytes)| key.as_bytes().get(..*bytes));
        if known != Some(root) {
            self.ids = store.waiters_around(root);
            self.root = Some((key.clone(), root.len()));
        }
        &self.ids
    }
}

/// A walk through waiters, the earliest first.
///
/// Where some wait below a key, they are listed once, since looking for the next one looks at all of them.
#[derive(Default)]
pub(super) struct Candidates {
    listed: Option<alloc::vec::IntoIter<WaiterId>>,
    pub(super) after: Option<WaiterId>,
}

impl Candidates {
    /// Those that wait for keys that overlap `key`.
    pub(super) fn of<H: Holder, S: BuildHasher + Clone>(
        store: &Store<H, S>,
        key: &ResourceKey,
    ) -> Self {
        let below = store
            .place(key, None)
            .is_some_and(|place| store.is_waited_for_below(place));
        let listed = below.then(|| store.waiters_around(key.as_bytes()).into_iter());
        Self {
            listed,
            after: None,
        }
    }

    pub(super) fn next<H: Holder, S: BuildHasher + Clone>(
        &mut self,
        store: &Store<H, S>,
        key: &ResourceKey,
    ) -> Option<WaiterId> {
        let next = match &mut self.listed {
            Some(listed) => listed.next(),
            None => store.next_waiter(key, self.after),
        };
        self.go_on(next)
    }

    pub(super) fn go_on(&mut self, next: Option<WaiterId>) -> Option<WaiterId> {
        self.after = next.or(self.after);
        next
    }
}
