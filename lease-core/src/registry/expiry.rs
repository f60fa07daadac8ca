//! Which leases may be over: a heap that is corrected when its top comes due, not at every touch.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::id::Generation;
use crate::time::Moment;

/// One timed lease: no later than when its term can be over, where it is, which it is.
pub(super) type Timer = (Moment, u32, Generation);

/// The earliest possible ends of terms.
///
/// A touch moves only the lease's own stamp; the timer stays early and is set anew when it comes due.
/// A lease that goes leaves its timer behind; those are dropped when they come due, or all at once
/// when they outnumber the live ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiry {
    timers: BinaryHeap<Reverse<Timer>>,
}

impl Expiry {
    /// Sets a timer. `live` is how many leases there are.
    pub(super) fn push(&mut self, timer: Timer, live: usize, valid: impl Fn(&Timer) -> bool) {
        let most = live.saturating_mul(2).saturating_add(64);
        if self.timers.len() > most {
            self.timers.retain(|Reverse(timer)| valid(timer));
        }
        self.timers.push(Reverse(timer));
    }

    /// Takes the earliest timer, if it lies strictly before `now`.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<Timer> {
        let Reverse((expires, ..)) = self.timers.peek()?;
        if now > *expires {
            self.timers.pop().map(|Reverse(timer)| timer)
        } else {
            None
        }
    }

    /// The last moment at which no term can be over.
    pub(super) fn earliest(&self) -> Option<Moment> {
        self.timers.peek().map(|Reverse((expires, ..))| *expires)
    }

    /// How many timers are kept, dead ones included.
    pub(super) fn len(&self) -> usize {
        self.timers.len()
    }
}
