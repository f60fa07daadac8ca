//! Those who wait, in the order in which they came, in one piece of memory.

use alloc::collections::VecDeque;

use crate::action::WaiterId;

/// So much room is kept whoever leaves.
const ROOM: usize = 64;

/// What is kept of each who waits. They come at the end, and leave mostly from the front.
#[derive(Clone, Debug)]
pub(super) struct Line<T> {
    /// In ascending order. The place of one who left from the middle is empty for a while; the first never is.
    places: VecDeque<(WaiterId, Option<T>)>,
    len: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn place(&self, id: WaiterId) -> Option<usize> {
        let first = self.places.front().map(|(first, _)| *first);
        if first == Some(id) {
            return Some(0);
        }
        self.places.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&T> {
        self.places.get(self.place(id)?)?.1.as_ref()
    }

    /// Puts `id` at the end; it came later than all others.
    pub(super) fn push(&mut self, id: WaiterId, value: T) {
        self.places.push_back((id, Some(value)));
        self.len = self.len.saturating_add(1);
    }

    /// Takes out the first.
    pub(super) fn pop(&mut self) -> Option<WaiterId> {
        let first = self.places.front()?.0;
        self.remove(first).map(|_| first)
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<T> {
        let gone = match self.place(id)? {
            0 => self.places.pop_front()?.1,
            place => self.places.get_mut(place)?.1.take(),
        }?;
        self.len = self.len.saturating_sub(1);
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
        }
        if self.places.capacity() > ROOM.max(self.len.saturating_mul(4)) {
            self.close_up();
        }
        Some(gone)
    }

    /// Gives up empty places, and room for many more than there are.
    #[cold]
    fn close_up(&mut self) {
        self.places.retain(|(_, value)| value.is_some());
        self.places.shrink_to(ROOM.max(self.len.saturating_mul(2)));
    }

    /// The first after `after`.
    pub(super) fn next(&self, after: Option<WaiterId>) -> Option<WaiterId> {
        let passed = after.map_or(0, |after| {
            self.places.partition_point(|(id, _)| *id <= after)
        });
        let mut later = self.places.range(passed..);
        later.find(|(_, value)| value.is_some()).map(|(id, _)| *id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WaiterId, &T)> {
        let places = self.places.iter();
        places.filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, ROOM};
    use crate::action::WaiterId;

    #[test]
    fn the_places_of_those_who_left_from_between_are_given_up() {
        let mut line = Line::new();
        (0..40).for_each(|id| line.push(WaiterId(id), 'a'));
        (1..40).for_each(|id| assert_eq!(line.remove(WaiterId(id)), Some('a')));
        for id in 40..1_000 {
            line.push(WaiterId(id), 'b');
            assert_eq!(line.remove(WaiterId(id)), Some('b'));
        }
        assert_eq!((line.len(), line.next(None)), (1, Some(WaiterId(0))));
        assert!(line.places.capacity() <= 2 * ROOM);
    }

    #[test]
    fn room_for_many_is_given_back() {
        let mut line = Line::new();
        (0..10_000).for_each(|id| line.push(WaiterId(id), id));
        for id in 0..9_999 {
            assert_eq!(line.remove(WaiterId(id)), Some(id));
        }
        assert_eq!((line.len(), line.get(WaiterId(9_999))), (1, Some(&9_999)));
        assert!(line.places.capacity() <= 2 * ROOM);
    }
}
