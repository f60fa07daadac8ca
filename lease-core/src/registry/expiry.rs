//! Which leases may be over: timers that are corrected when they come due, not at every touch.

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

use crate::time::Moment;

/// The earliest possible ends of terms: at most one for each place, no later than when the term of the
/// lease there can be over.
///
/// A touch moves only the lease's own stamp; the timer stays early and is set anew when it comes due. A
/// lease that goes leaves its timer to the next one at its place.
#[derive(Clone, Debug)]
pub(super) struct Expiry {
    /// The earliest of all, or [`Moment::MAX`]: nothing is ever due then.
    first: Moment,
    /// In order. With one term for all every timer is later than those before it, so all of them are here.
    line: VecDeque<Timer>,
    /// Those that came out of order.
    heap: BinaryHeap<Reverse<Timer>>,
}

/// When, and for which place.
type Timer = (Moment, u32);

impl Default for Expiry {
    fn default() -> Self {
        Self {
            first: Moment::MAX,
            line: VecDeque::new(),
            heap: BinaryHeap::new(),
        }
    }
}

impl Expiry {
    /// Sets the timer of `place`.
    pub(super) fn push(&mut self, expires: Moment, place: u32) {
        self.first = self.first.min(expires);
        if self.line.back().is_none_or(|(last, _)| *last <= expires) {
            self.line.push_back((expires, place));
        } else {
            self.heap.push(Reverse((expires, place)));
        }
    }

    /// Takes the earliest timer, if it lies strictly before `now`, and says whose it is.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<u32> {
        if !self.due(now) {
            return None;
        }
        let aside = self
            .heap
            .peek()
            .is_some_and(|Reverse((at, _))| *at == self.first);
        let timer = if aside {
            self.heap.pop().map(|Reverse(timer)| timer)
        } else {
            self.line.pop_front()
        };
        let in_line = self.line.front().map_or(Moment::MAX, |(at, _)| *at);
        let aside = self.heap.peek().map_or(Moment::MAX, |Reverse((at, _))| *at);
        self.first = in_line.min(aside);
        timer.map(|(_, place)| place)
    }

    /// Whether a timer lies strictly before `now`.
    #[inline]
    pub(super) fn due(&self, now: Moment) -> bool {
        now > self.first
    }

    /// The last moment at which no term can be over.
    pub(super) fn earliest(&self) -> Option<Moment> {
        (self.len() > 0).then_some(self.first)
    }

    /// How many timers are kept.
    pub(super) fn len(&self) -> usize {
        self.line.len().saturating_add(self.heap.len())
    }
}
