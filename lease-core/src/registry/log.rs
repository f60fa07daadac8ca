//! The bounded ring of receipts: filled under the lock, emptied and handed to sinks outside it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::change::{Detail, is_loss};
use crate::code::Code;
use crate::id::FencingToken;
use crate::receipt::Receipt;

/// For how many the memory stays.
const SPARE: usize = 64;

/// Keeps the latest receipts until somebody takes them.
#[derive(Clone, Debug)]
pub(super) struct Log<H> {
    kept: VecDeque<Receipt<H>>,
    most: usize,
    missed: u64,
    losses_only: bool,
}

/// Receipts taken out of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipts<H> {
    /// In the order of their numbers.
    pub receipts: Vec<Receipt<H>>,
    /// How many older ones fell out of the ring since the last take.
    pub missed: u64,
}

impl<H> Receipts<H> {
    /// What a driver of its own tells whoever listens.
    #[must_use]
    pub const fn new(receipts: Vec<Receipt<H>>, missed: u64) -> Self {
        Self { receipts, missed }
    }
}

impl<H> Log<H> {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            most,
            missed: 0,
            losses_only: false,
        }
    }

    /// Whether anybody keeps receipts; building one for nobody is wasted.
    pub(super) const fn keeps(&self) -> bool {
        self.most > 0
    }

    /// Whether every receipt is kept.
    pub(super) const fn keeps_all(&self) -> bool {
        self.keeps() && !self.losses_only
    }

    /// Whether the receipt of a change like this is kept.
    pub(super) const fn wants(
        &self,
        code: Code,
        detail: &Detail,
        token: Option<FencingToken>,
    ) -> bool {
        self.keeps_all() || self.keeps() && is_loss(code, detail, token)
    }

    pub(super) const fn keep_losses_only(&mut self, only: bool) {
        self.losses_only = only;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.missed == 0
    }

    pub(super) fn push(&mut self, receipt: Receipt<H>) {
        if self.kept.len() >= self.most && self.kept.pop_front().is_some() {
            self.missed = self.missed.saturating_add(1);
        }
        if self.keeps() {
            self.kept.push_back(receipt);
        }
    }

    pub(super) fn take(&mut self) -> Receipts<H> {
        let missed = core::mem::take(&mut self.missed);
        let receipts = if self.kept.capacity() > SPARE {
            // What much at once needed goes with it.
            core::mem::take(&mut self.kept).into()
        } else {
            self.kept.drain(..).collect()
        };
        Receipts::new(receipts, missed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, SPARE};
    use crate::change::{Change, Detail};
    use crate::code::Code;
    use crate::id::Seq;
    use crate::receipt::Receipt;
    use crate::time::Moment;

    fn receipt() -> Receipt<()> {
        Receipt::new(Change {
            seq: Seq { major: 1, minor: 0 },
            code: Code::Touched,
            token: None,
            at: Moment::ZERO,
            detail: Detail::Plain,
        })
    }

    #[test]
    fn room_for_the_receipts_of_a_crowd_is_given_back() {
        let mut log = Log::new(10_000);
        for many in [1_000, 3, 1_000] {
            (0..many).for_each(|_| log.push(receipt()));
            assert_eq!(log.take().receipts.len(), many);
            assert!(log.kept.capacity() <= SPARE);
        }
    }
}
