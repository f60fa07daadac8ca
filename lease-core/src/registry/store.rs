//! The cells of one registry, as a tree of resource keys.
//!
//! A node stands for one key that is held, waited for, or has such a key below it. It is found by one
//! hash of its text, and knows how much is held and waited for below, so that a request looks at
//! nothing that does not overlap it. An ancestor's text is a slice of the key of a descendant, so
//! nodes cost no text of their own.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::expiry::Expiry;
use super::node::{NONE, Node};
use super::owners::Owners;
use crate::action::WaiterId;
use crate::cell::{Cell, Lease};
use crate::holder::Holder;
use crate::id::{At, Generation, Slot};
use crate::key::{ResourceKey, above};
use crate::limits::SWEEP_LEASES;
use crate::plan::{Cells, Edit, edit_in_place};
use crate::policy::OnExpiry;
use crate::refusal::Refusal;
use crate::time::Moment;

/// As many places are kept whatever happens.
const SMALL: usize = 1_024;

#[derive(Clone, Debug)]
pub(super) struct Store<H, S> {
    nodes: Vec<Node<H>>,
    free: Vec<u32>,
    by_text: HashTable<u32>,
    /// Where a holder's latest lease is; from there a list goes through all of them.
    pub(super) owners: Owners<H, S>,
    expiry: Expiry,
    held: usize,
    hasher: S,
    /// The key that was needed last and is not now. It is kept until there is a later one, since a
    /// resource that was released is mostly acquired next.
    idle: u32,
    /// Where the key was that was asked for last, since what one waits for is asked for by others, too.
    asked: u32,
}

impl<H: Holder, S: BuildHasher + Clone> Store<H, S> {
    pub(super) fn new(hasher: S) -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            by_text: HashTable::new(),
            owners: Owners::new(hasher.clone()),
            expiry: Expiry::default(),
            held: 0,
            hasher,
            idle: NONE,
            asked: NONE,
        }
    }

    /// How many resources are held.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// How many places and timers are kept, for the test that nothing is left behind. The one idle key
    /// that may stay does not count, nor do the keys above that only it keeps.
    pub(super) fn footprint(&self) -> (usize, usize) {
        let nodes = self.nodes.len().saturating_sub(self.free.len());
        let places = nodes
            .max(self.by_text.len())
            .saturating_sub(self.kept_idle())
            .saturating_add(self.owners.left_behind());
        (places, self.expiry.len())
    }

    /// How many nodes would go with the idle one.
    fn kept_idle(&self) -> usize {
        let (mut place, mut below, mut count) = (self.idle, NONE, 0_usize);
        while let Some(node) = self.node(place).filter(|node| node.idle_but_for(below)) {
            // The node below must be an only child.
            if self
                .node(below)
                .is_some_and(|node| node.next_sibling != NONE)
            {
                break;
            }
            count = count.saturating_add(1);
            below = place;
            place = node.parent;
        }
        count
    }

    pub(super) const fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    fn node(&self, place: u32) -> Option<&Node<H>> {
        self.nodes.get(usize::try_from(place).ok()?)
    }

    fn node_mut(&mut self, place: u32) -> Option<&mut Node<H>> {
        self.nodes.get_mut(usize::try_from(place).ok()?)
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        self.find_hashed(self.hasher.hash_one(text), text)
    }

    fn find_hashed(&self, hash: u64, text: &[u8]) -> Option<u32> {
        let is = |&place: &u32| self.node(place).is_some_and(|node| node.is(text));
        self.by_text.find(hash, is).copied()
    }

    /// The held cell at `place`.
    #[inline]
    fn held_at(&self, place: u32) -> Option<(&ResourceKey, &Cell<H>)> {
        let node = self.node(place)?;
        node.cell.lease.as_ref()?;
        Some((node.key.as_ref()?, &node.cell))
    }

    /// The cell at `place`.
    pub(super) fn cell_at(&self, place: Option<u32>) -> Option<&Cell<H>> {
        Some(&self.node(place?)?.cell)
    }

    /// Who holds the key at `place`.
    pub(super) fn holder_at(&self, place: u32) -> Option<H> {
        let lease = self.node(place)?.cell.lease()?;
        Some(lease.holder.clone())
    }

    /// The cell of `key`.
    pub(super) fn cell(&self, key: &ResourceKey) -> Option<&Cell<H>> {
        self.cell_at(self.find(key.as_bytes()))
    }

    /// Makes a place for `key`, where a lease may be stored next. Give it back with
    /// [`prune`](Self::prune) when none was.
    pub(super) fn prepare(&mut self, key: &ResourceKey) -> u32 {
        match self.node(self.idle) {
            Some(node) if node.is_of(key) => self.idle,
            Some(_) | None => self.prepare_asked(key),
        }
    }

    #[inline(never)]
    fn prepare_asked(&mut self, key: &ResourceKey) -> u32 {
        if !self.node(self.asked).is_some_and(|node| node.is_of(key)) {
            // A call that panicked in the caller's code may have left nothing there.
            self.prune(self.asked);
            self.asked = self.ensure(key);
        }
        self.asked
    }

    /// The place of `key`: the hinted one if the token is there.
    pub(super) fn place(&self, key: &ResourceKey, hint: Option<At>) -> Option<u32> {
        let hinted = hint.and_then(|at| self.hinted(key, at));
        hinted.or_else(|| self.find(key.as_bytes()))
    }

    /// The place that `at` hints at, if `key` is held there under that token.
    #[inline]
    pub(super) fn hinted(&self, key: &ResourceKey, at: At) -> Option<u32> {
        // Without a hint nothing is found there.
        let place = at.slot.get().unwrap_or(NONE);
        let node = self.node(place)?;
        let same = node.cell.lease()?.token == at.token && node.is_held(key);
        same.then_some(place)
    }

    /// The place of `key`: the hinted one if `key` is held there.
    fn place_of(&self, key: &ResourceKey, hint: Slot) -> Option<u32> {
        let is_held = |&place: &u32| self.node(place).is_some_and(|node| node.is_held(key));
        let hinted = hint.get().filter(is_held);
        hinted.or_else(|| self.find(key.as_bytes()))
    }

    /// Stores the lease that the owner at `owner` gets of `key`, whose place is `place` and free. Nothing of the
    /// caller's runs here.
    // Inlined, and the lease is made when nothing can go wrong any more, so that it is made in place.
    #[inline(always)]
    pub(super) fn put_at<P>(
        &mut self,
        place: u32,
        key: &ResourceKey,
        (owner, parts): (u32, P),
        lease: impl FnOnce(P) -> Lease<H>,
    ) -> Slot {
        self.held = self.held.saturating_add(1);
        self.climb(place, |above| &mut above.held_below, u32::saturating_add);
        let next = self.owners.join(owner, place);
        let next = next.unwrap_or(NONE);
        if let Some(next) = self.node_mut(next) {
            next.prev_of_holder = place;
        }
        if let Some(node) = self.node_mut(place) {
            // The key of a lease is its own, and keeps no longer one alive.
            if !node.is_whole() {
                node.key = Some(key.clone());
            }
            node.owner = owner;
            node.next_of_holder = next;
            node.prev_of_holder = NONE;
            if node.cell.lease.is_some() {
                node.cell.lease = None;
            }
            node.cell.lease = Some(lease(parts));
        }
        self.time(place);
        Slot::new(place)
    }

    /// Changes the lease at `place`, but never its holder or its end.
    #[inline(always)]
    pub(super) fn edit_at(&mut self, place: u32, edit: Edit<H>, now: Moment) {
        if let Some(node) = self.node_mut(place) {
            edit_in_place(&mut node.cell, edit, now);
            self.time(place);
        }
    }

    /// Makes the key at `place` free.
    pub(super) fn remove_at(&mut self, place: u32) {
        if let Some(owner) = self.clear_out(place) {
            self.owners.let_go(owner);
        }
        self.prune(place);
    }

    /// Takes the lease at `place` out, if there is one. Answers whose it was: the owner to let go.
    #[inline]
    fn clear_out(&mut self, place: u32) -> Option<u32> {
        let node = self.node_mut(place)?;
        let lease = node.cell.lease.take()?;
        let owner = node.owner;
        self.held = self.held.saturating_sub(1);
        self.belonged(place);
        self.climb(place, |above| &mut above.held_below, u32::saturating_sub);
        self.owners.give(lease.holder);
        Some(owner)
    }

    /// Every held cell, in no promised order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ResourceKey, &Lease<H>)> {
        self.nodes
            .iter()
            .filter_map(|node| Some((node.key.as_ref()?, node.cell.lease.as_ref()?)))
    }

    /// Whether `holder` holds anything.
    pub(super) fn holds(&self, holder: &H) -> bool {
        self.owners.first_of(holder).is_some()
    }

    /// Every held cell of `holder`.
    pub(super) fn of_holder(&self, holder: &H) -> impl Iterator<Item = (&ResourceKey, &Cell<H>)> {
        let first = self.owners.first_of(holder).unwrap_or(NONE);
        let places = core::iter::successors(self.node(first).map(|_| first), |&place| {
            let next = self.node(place)?.next_of_holder;
            self.node(next).map(|_| next)
        });
        places.filter_map(|place| self.held_at(place))
    }

    /// The held cells that overlap the key at `place`, without its own.
    pub(super) fn near<'a>(&'a self, place: u32, out: &mut Vec<(&'a ResourceKey, &'a Cell<H>)>) {
        let Some(node) = self.node(place) else { return };
        let mut above = node.parent;
        while let Some(node) = self.node(above) {
            out.extend(self.held_at(above));
            above = node.parent;
        }
        out.extend(
            self.below(place, |node| node.held_below)
                .filter_map(|place| self.held_at(place)),
        );
    }

    /// The leases at `place`, above it and below it, each with its key.
    pub(super) fn overlapping(
        &self,
        place: u32,
    ) -> impl Iterator<Item = (&ResourceKey, &Lease<H>)> {
        let at = self.node(place).into_iter().chain(self.above(place));
        let below = self.below(place, |node| node.held_below);
        let below = below.filter_map(|place| self.node(place));
        at.chain(below)
            .filter_map(|node| Some((node.key.as_ref()?, node.cell.lease()?)))
    }

    /// Whether nothing is held at `place`, above it or below it.
    pub(super) fn clear(&self, place: u32) -> bool {
        let free = |node: &Node<H>| node.cell.lease.is_none();
        let Some(node) = self.node(place) else {
            return false;
        };
        node.held_below == 0 && free(node) && self.above(place).all(free)
    }

    /// Who is the first to wait for `key`, if it lies free at `place`, nothing that overlaps it is held, and
    /// nobody waits for anything else that does.
    pub(super) fn next_alone(&self, place: u32, key: &ResourceKey) -> Option<WaiterId> {
        let node = self.node(place)?;
        let first = node.next_waiter(None)?;
        let alone = node.is_of(key)
            && node.waiting_below == 0
            && self.clear(place)
            && !self.above(place).any(Node::is_waited_for);
        alone.then_some(first)
    }

    /// The nodes above `place`, the nearest first.
    fn above(&self, place: u32) -> impl Iterator<Item = &Node<H>> {
        let parent = |node: &Node<H>| self.node(node.parent);
        let first = self.node(place).and_then(parent);
        core::iter::successors(first, move |node| self.node(node.parent))
    }

    /// Whether a lease at `key` or above it passes `test`; it is then in the way of all that overlaps
    /// `key`.
    pub(super) fn covers(&self, key: &ResourceKey, test: impl Fn(&Lease<H>) -> bool) -> bool {
        key.above()
            .chain(core::iter::once(key.as_bytes()))
            .filter_map(|text| self.held_at(self.find(text)?)?.1.lease())
            .any(test)
    }

    /// What lies strictly below `place`, where `count` says that there is something.
    fn below(&self, place: u32, count: impl Fn(&Node<H>) -> u32) -> impl Iterator<Item = u32> {
        let first = move |place: u32| {
            let node = self.node(place).filter(|node| count(node) > 0);
            node.map_or(NONE, |node| node.first_child)
        };
        let mut open = Vec::new();
        let mut next = first(place);
        core::iter::from_fn(move || {
            while self.node(next).is_none() {
                next = open.pop()?;
            }
            let place = next;
            let sibling = self.node(place).map_or(NONE, |node| node.next_sibling);
            open.push(sibling);
            next = first(place);
            Some(place)
        })
    }

    /// The earliest waiter after `after` for a key that overlaps `key`.
    pub(super) fn next_waiter(
        &self,
        key: &ResourceKey,
        after: Option<WaiterId>,
    ) -> Option<WaiterId> {
        let around = self.around(key.as_bytes());
        around.filter_map(|node| node.next_waiter(after)).min()
    }

    /// The first who wait for the key at `place`, and for each above it, the nearest first.
    pub(super) fn firsts_from(&self, place: u32) -> impl Iterator<Item = WaiterId> {
        let at = self.node(place).into_iter().chain(self.above(place));
        at.filter_map(|node| node.next_waiter(None))
    }

    /// All waiters for keys that overlap the key `text`, the earliest first.
    pub(super) fn waiters_around(&self, text: &[u8]) -> Vec<WaiterId> {
        let mut all: Vec<_> = self.around(text).flat_map(Node::waiting).collect();
        all.sort_unstable();
        all
    }

    /// The nodes above, at and below the key `text` at which somebody may wait.
    fn around(&self, text: &[u8]) -> impl Iterator<Item = &Node<H>> {
        let place = self.find(text);
        let below = place.map(|place| self.below(place, |node| node.waiting_below));
        let above = above(text).filter_map(|text| self.find(text));
        let places = above.chain(place).chain(below.into_iter().flatten());
        places.filter_map(|place| self.node(place))
    }

    /// Whether somebody waits for a key below the one at `place`.
    pub(super) fn is_waited_for_below(&self, place: u32) -> bool {
        self.node(place).is_some_and(|node| node.waiting_below > 0)
    }

    /// The outermost key above `key` for which somebody waited before `me`, or else `key` itself.
    pub(super) fn outermost_waited_for<'a>(
        &self,
        key: &'a ResourceKey,
        me: Option<WaiterId>,
    ) -> &'a [u8] {
        let waited_for = |text: &&[u8]| {
            let node = self.find(text).and_then(|place| self.node(place));
            let first = node.and_then(|node| node.next_waiter(None));
            first.is_some_and(|first| me.is_none_or(|me| first < me))
        };
        key.above().find(waited_for).unwrap_or(key.as_bytes())
    }

    /// Notes that the owner at `owner` waits for the key at `place` by the request `waiter`.
    pub(super) fn add_waiter(
        &mut self,
        place: u32,
        owner: u32,
        waiter: WaiterId,
    ) -> Result<(), Refusal<H>> {
        self.owners.add_request(owner, waiter)?;
        self.line_up(place, waiter);
        Ok(())
    }

    fn line_up(&mut self, place: u32, waiter: WaiterId) {
        if let Some(node) = self.node_mut(place) {
            node.waiters.get_or_insert_default().push(waiter);
        }
        self.climb(place, |above| &mut above.waiting_below, u32::saturating_add);
    }

    /// Forgets that the owner at `owner` waits for the key at `place`. Answers whether it waits for more.
    pub(super) fn remove_waiter(&mut self, place: u32, owner: u32, waiter: WaiterId) -> bool {
        // First, since the places of owners change where memory is given back.
        let waits_for_more = self.owners.remove_request(owner, waiter);
        let waiters = self.node_mut(place).and_then(|node| node.waiters.as_mut());
        if waiters.is_some_and(|waiters| waiters.remove(waiter)) {
            self.climb(place, |above| &mut above.waiting_below, u32::saturating_sub);
            self.prune(place);
        }
        waits_for_more
    }

    /// Counts one up or down in every node above `place`.
    fn climb(
        &mut self,
        place: u32,
        count: impl Fn(&mut Node<H>) -> &mut u32,
        step: impl Fn(u32, u32) -> u32,
    ) {
        let mut above = self.node(place).map_or(NONE, |node| node.parent);
        while let Some(node) = self.node_mut(above) {
            let count = count(node);
            *count = step(*count, 1);
            above = node.parent;
        }
    }

    /// The node of `key`, made with its ancestors where missing.
    #[inline]
    fn ensure(&mut self, key: &ResourceKey) -> u32 {
        self.ensure_up_to(key, key.as_bytes())
    }

    /// The node of `text`, with which `key` begins.
    #[inline]
    fn ensure_up_to(&mut self, key: &ResourceKey, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        match self.find_hashed(hash, text) {
            Some(place) => place,
            None => self.enter(key, text, hash),
        }
    }

    /// Makes the node of `text`, with which `key` begins.
    #[inline(never)]
    fn enter(&mut self, key: &ResourceKey, text: &[u8], hash: u64) -> u32 {
        let end = text.iter().rposition(|&byte| byte == b'/');
        let parent = match end.and_then(|end| text.get(..end)) {
            Some(above) => self.ensure_up_to(key, above),
            None => NONE,
        };
        self.insert(key, text, hash, parent)
    }

    fn insert(&mut self, key: &ResourceKey, text: &[u8], hash: u64, parent: u32) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::BLANK);
            // 2^32 - 1 nodes would fill a machine's memory first.
            u32::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(NONE)
        });
        let next = match self.node_mut(parent) {
            Some(above) => core::mem::replace(&mut above.first_child, place),
            None => NONE,
        };
        if let Some(next) = self.node_mut(next) {
            next.prev_sibling = place;
        }
        // What is not set here is blank: nothing was left at a free place but its timer.
        if let Some(node) = self.node_mut(place) {
            node.key = Some(key.clone());
            node.bytes = u16::try_from(text.len()).unwrap_or(u16::MAX);
            node.hash = hash;
            node.parent = parent;
            node.next_sibling = next;
            node.prev_sibling = NONE;
        }
        let nodes = &self.nodes;
        let rehash = |&place: &u32| {
            let node = usize::try_from(place).ok().and_then(|at| nodes.get(at));
            node.map_or(0, |node| node.hash)
        };
        self.by_text.insert_unique(hash, place, rehash);
        place
    }

    /// Takes the node at `place` out of its parent's list.
    fn unlink(&mut self, place: u32) {
        let Some(node) = self.node(place) else { return };
        let (parent, next, prev) = (node.parent, node.next_sibling, node.prev_sibling);
        if let Some(next) = self.node_mut(next) {
            next.prev_sibling = prev;
        }
        if let Some(prev) = self.node_mut(prev) {
            prev.next_sibling = next;
        } else if let Some(above) = self.node_mut(parent) {
            above.first_child = next;
        }
    }

    /// Says that the node at `place` may not be needed any more. If so it is the idle one now, and the
    /// idle one before it goes.
    pub(super) fn prune(&mut self, place: u32) {
        if self.idle != place && self.node(place).is_some_and(Node::idle) {
            let before = core::mem::replace(&mut self.idle, place);
            self.forget(before);
        }
    }

    /// Frees the node at `place` and those above it, as far as nothing needs them.
    fn forget(&mut self, mut place: u32) {
        while let Some(node) = self.node(place).filter(|node| node.idle()) {
            let (hash, parent) = (node.hash, node.parent);
            if let Ok(entry) = self.by_text.find_entry(hash, |&other| other == place) {
                entry.remove();
            }
            self.unlink(place);
            if let Some(node) = self.node_mut(place) {
                node.key = None;
                node.waiters = None;
            }
            self.free.push(place);
            place = parent;
        }
        self.shrink();
    }

    /// Gives memory back once seven eighths of the places are free, or of those of holders where these are more.
    pub(super) fn shrink(&mut self) {
        let (nodes, owners) = ((self.nodes.len(), self.free.len()), self.owners.places());
        let keeps_owners = owners.0 <= nodes.0 || is_dense(owners);
        if !(keeps_owners && is_dense(nodes)) {
            self.build_anew();
        }
    }

    /// Builds everything anew, with no room to spare.
    ///
    /// Places change; a hint that is out of date is found out by its token, or by its holder. Nothing of the
    /// caller's runs here: what panicked half-way would leave half.
    #[cold]
    #[inline(never)]
    fn build_anew(&mut self) {
        let live = self.nodes.len().saturating_sub(self.free.len());
        let anew = Self {
            nodes: Vec::with_capacity(live),
            by_text: HashTable::with_capacity(live),
            ..Self::new(self.hasher.clone())
        };
        let mut old = core::mem::replace(self, anew);
        let owners = self.owners.take_over(&mut old.owners);
        let mut places: Vec<u32> = old.by_text.iter().copied().collect();
        // What was made together lies together again.
        places.sort_unstable();
        for place in places {
            let Some(node) = old.node_mut(place) else {
                continue;
            };
            if node.is_waited_for()
                && let Ok(key) = ResourceKey::new(node.text())
            {
                let place = self.ensure(&key);
                for waiter in node.waiting() {
                    self.line_up(place, waiter);
                }
            }
            let cell = core::mem::replace(&mut node.cell, Cell::FREE);
            let owner = usize::try_from(node.owner).ok();
            if let (Some(key), Some(lease)) = (&node.key, cell.lease)
                && let Some(&owner) = owner.and_then(|at| owners.get(at))
            {
                let place = self.ensure(key);
                self.put_at(place, key, (owner, lease), |lease| lease);
            }
        }
    }

    /// Takes out up to 64 cells whose term is over, in ascending generation.
    ///
    /// Looks at no more than twice as many timers a call; a touched lease only gets its timer set
    /// anew, and one with operations in flight gets none until the last one ends.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<(Generation, u32)> {
        let mut due = Vec::with_capacity(SWEEP_LEASES);
        for _ in 0..SWEEP_LEASES.saturating_mul(2) {
            if due.len() >= SWEEP_LEASES {
                break;
            }
            let Some(place) = self.expiry.pop_due(now) else {
                break;
            };
            let Some(node) = self.node_mut(place) else {
                continue;
            };
            node.timed = false;
            match &node.cell.lease {
                Some(lease) if lease.lapsed(now) => {
                    due.push((lease.token.generation, place));
                }
                Some(_) => self.time(place),
                None => {}
            }
        }
        due.sort_unstable();
        self.fetch(due.iter().map(|(_, place)| *place));
        due
    }

    /// Looks up what will be removed next. The lookups do not wait for each other, so that memory far away
    /// comes for many at a time.
    fn fetch(&self, places: impl Iterator<Item = u32>) {
        let find = |place| {
            let hash = self.node(place)?.hash;
            self.by_text.find(hash, |&other| other == place)
        };
        core::hint::black_box(places.filter_map(find).count());
    }

    /// The cells at `places`.
    pub(super) fn at(&self, places: impl Iterator<Item = u32>) -> Vec<(&ResourceKey, &Cell<H>)> {
        let mut held = Vec::with_capacity(SWEEP_LEASES);
        held.extend(places.filter_map(|place| self.held_at(place)));
        held
    }

    /// Stores a lease by its key.
    fn put_anew(&mut self, key: &ResourceKey, lease: Lease<H>) -> Slot {
        let place = self.ensure(key);
        // First, since what is the caller's may panic: until then the lease before stands.
        let owner = self.owners.enter(&lease.holder);
        let before = self.clear_out(place);
        let slot = self.put_at(place, key, (owner, lease), |lease| lease);
        if let Some(before) = before {
            self.owners.let_go(before);
        }
        slot
    }

    /// Sets a timer for the lease at `place`, if it needs one and none is set.
    #[inline]
    fn time(&mut self, place: u32) {
        let Some(node) = self.node_mut(place).filter(|node| !node.timed) else {
            return;
        };
        let Some(lease) = node.cell.lease.as_ref() else {
            return;
        };
        let Some(expires) = lease.expires else { return };
        if lease.terms.on_expiry() == OnExpiry::EndIfIdle && lease.ops.is_empty() {
            node.timed = true;
            self.expiry.push(expires, place);
        }
    }

    /// Takes the lease at `place` out of the list of its holder's.
    fn belonged(&mut self, place: u32) {
        let Some(node) = self.node(place) else { return };
        let (owner, next, prev) = (node.owner, node.next_of_holder, node.prev_of_holder);
        let mut first = None;
        if let Some(node) = self.node_mut(next) {
            node.prev_of_holder = prev;
            first = Some(next);
        }
        if let Some(prev) = self.node_mut(prev) {
            prev.next_of_holder = next;
        } else {
            self.owners.begin_with(owner, first);
        }
    }
}

/// Whether there are few places, or an eighth of them is in use.
const fn is_dense((all, free): (usize, usize)) -> bool {
    all <= SMALL || all.saturating_sub(free).saturating_mul(8) >= all
}

impl<H: Holder, S: BuildHasher + Clone> Cells<H> for Store<H, S> {
    fn put(&mut self, key: &ResourceKey, cell: Cell<H>) -> Slot {
        match cell.lease {
            Some(lease) => self.put_anew(key, lease),
            None => Slot::NONE,
        }
    }

    fn edit(&mut self, key: &ResourceKey, hint: Slot, edit: &mut dyn FnMut(&mut Cell<H>)) -> Slot {
        let Some(place) = self.place_of(key, hint) else {
            return Slot::NONE;
        };
        let Some(node) = self.node_mut(place) else {
            return Slot::NONE;
        };
        edit(&mut node.cell);
        self.time(place);
        Slot::new(place)
    }

    fn remove(&mut self, key: &ResourceKey, hint: Slot) {
        if let Some(place) = self.place_of(key, hint) {
            self.remove_at(place);
        }
    }
}
