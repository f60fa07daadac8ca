//! Which leases may be over: a heap that is corrected when its top comes due, not at every touch.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::time::Moment;

/// The earliest possible ends of terms: at most one for each place, no later than when the term of the
/// lease there can be over.
///
/// A touch moves only the lease's own stamp; the timer stays early and is set anew when it comes due. A
/// lease that goes leaves its timer to the next one at its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiry {
    timers: BinaryHeap<Reverse<(Moment, u32)>>,
}

impl Expiry {
    /// Sets the timer of `place`.
    pub(super) fn push(&mut self, expires: Moment, place: u32) {
        self.timers.push(Reverse((expires, place)));
    }

    /// Takes the earliest timer, if it lies strictly before `now`, and says whose it is.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<u32> {
        let Reverse((expires, _)) = self.timers.peek()?;
        if now > *expires {
            self.timers.pop().map(|Reverse((_, place))| place)
        } else {
            None
        }
    }

    /// The last moment at which no term can be over.
    pub(super) fn earliest(&self) -> Option<Moment> {
        self.timers.peek().map(|Reverse((expires, _))| *expires)
    }

    /// How many timers are kept.
    pub(super) fn len(&self) -> usize {
        self.timers.len()
    }
}
