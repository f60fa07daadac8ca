//! Which requests wait: those of one holder, or those for one key.

use alloc::boxed::Box;

use super::line::Line;
use crate::action::WaiterId;

/// Requests in the order in which they came. Mostly it is one, and that lies at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// The earliest of all; if there is none, there are no others.
    first: Option<WaiterId>,
    others: Option<Box<Line<()>>>,
}

impl Requests {
    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        let others = self.others.as_ref().map_or(0, |others| others.len());
        others.saturating_add(usize::from(!self.is_empty()))
    }

    /// Puts `id` at the end; it came later than all others.
    pub(super) fn push(&mut self, id: WaiterId) {
        if self.is_empty() {
            self.first = Some(id);
        } else {
            self.others.get_or_insert_default().push(id, ());
        }
    }

    /// Takes `id` out. Answers whether it was there.
    pub(super) fn remove(&mut self, id: WaiterId) -> bool {
        let others = self.others.as_deref_mut();
        if self.first == Some(id) {
            self.first = others.and_then(Line::pop);
            return true;
        }
        others.is_some_and(|others| others.remove(id).is_some())
    }

    /// The earliest after `after`.
    pub(super) fn next(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        let first = self.first?;
        if after.is_none_or(|after| after < first) {
            return Some(first);
        }
        self.others.as_ref()?.next(after)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = WaiterId> {
        let others = self.others.iter().flat_map(|others| others.iter());
        self.first.into_iter().chain(others.map(|(id, ())| id))
    }
}
