//! One key of the tree: held, waited for, or above such a key.

use alloc::boxed::Box;

use super::requests::Requests;
use crate::action::WaiterId;
use crate::cell::Cell;
use crate::key::ResourceKey;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Node<H> {
    /// The key itself, or one below it whose first `bytes` bytes are this node's text.
    pub(super) key: Option<ResourceKey>,
    pub(super) cell: Cell<H>,
    /// Made when somebody waits here, and kept until the key is forgotten.
    pub(super) waiters: Option<Box<Requests>>,
    pub(super) hash: u64,
    pub(super) parent: u32,
    /// The children are a doubly linked list, so that one of a million leaves at once.
    pub(super) first_child: u32,
    pub(super) next_sibling: u32,
    pub(super) prev_sibling: u32,
    /// The holder's place, and the neighbours in the list of its leases, of which there may be a million.
    pub(super) owner: u32,
    pub(super) next_of_holder: u32,
    pub(super) prev_of_holder: u32,
    /// Held keys and waiters strictly below.
    pub(super) held_below: u32,
    pub(super) waiting_below: u32,
    pub(super) bytes: u16,
    /// Whether a timer is set for this place. It outlives a lease, and then serves the next one here:
    /// with one term for all and a clock that never goes back it is never too late.
    pub(super) timed: bool,
}

impl<H> Node<H> {
    /// A place that nothing was kept at yet.
    pub(super) const BLANK: Self = Self {
        key: None,
        bytes: 0,
        hash: 0,
        parent: NONE,
        first_child: NONE,
        next_sibling: NONE,
        prev_sibling: NONE,
        cell: Cell::FREE,
        owner: NONE,
        next_of_holder: NONE,
        prev_of_holder: NONE,
        timed: false,
        waiters: None,
        held_below: 0,
        waiting_below: 0,
    };

    pub(super) fn text(&self) -> &str {
        self.key
            .as_ref()
            .and_then(|key| key.as_str().get(..usize::from(self.bytes)))
            .unwrap_or_default()
    }

    /// Whether this is the node of `text`.
    #[inline]
    pub(super) fn is(&self, text: &[u8]) -> bool {
        let bytes = usize::from(self.bytes);
        let key = self.key.as_ref().map(ResourceKey::as_bytes);
        bytes == text.len() && key.and_then(|key| key.get(..bytes)) == Some(text)
    }

    /// Whether the kept key is this node's, and not one below it.
    pub(super) fn is_whole(&self) -> bool {
        let bytes = self.key.as_ref().map(|key| key.as_bytes().len());
        bytes == Some(usize::from(self.bytes))
    }

    /// Whether this is the node of `key`, and that is kept.
    #[inline]
    pub(super) fn is_of(&self, key: &ResourceKey) -> bool {
        self.is_whole() && self.key.as_ref() == Some(key)
    }

    /// Whether `key` is held here.
    #[inline]
    pub(super) fn is_held(&self, key: &ResourceKey) -> bool {
        self.cell.lease.is_some() && self.key.as_ref() == Some(key)
    }

    /// Whether somebody waits for this very key.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiters
            .as_ref()
            .is_some_and(|waiters| !waiters.is_empty())
    }

    /// The first after `after` who waits for this very key.
    pub(super) fn next_waiter(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        self.waiters.as_ref()?.next(after)
    }

    /// Who waits for this very key, the earliest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = WaiterId> {
        self.waiters.iter().flat_map(|waiters| waiters.iter())
    }

    /// Whether nothing needs this node any more. A place that is free already is not given twice.
    pub(super) fn idle(&self) -> bool {
        self.idle_but_for(NONE)
    }

    /// Whether nothing needs this node but the list of its children, which begins with `first_child`.
    pub(super) fn idle_but_for(&self, first_child: u32) -> bool {
        self.key.is_some()
            && self.cell.lease.is_none()
            && !self.is_waited_for()
            && self.first_child == first_child
    }
}
