//! What was answered after waiting and is not taken yet.

use alloc::collections::BTreeMap;

use super::Settled;
use crate::action::WaiterId;

/// Answers in the order of their requests. Mostly there is one, and it is taken at once.
#[derive(Clone, Debug)]
pub(super) struct Answers<H> {
    /// The earliest of all; if there is none, there are no others.
    first: Option<Settled<H>>,
    others: BTreeMap<WaiterId, Settled<H>>,
}

impl<H> Answers<H> {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            others: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.others
            .len()
            .saturating_add(usize::from(self.first.is_some()))
    }

    /// Keeps the answer to `waiter`, which is made where it is kept.
    #[inline]
    pub(super) fn put(&mut self, waiter: WaiterId, settled: impl FnOnce() -> Settled<H>) {
        if self.first.is_none() {
            self.first = Some(settled());
        } else {
            self.put_beside(waiter, settled());
        }
    }

    #[inline(never)]
    fn put_beside(&mut self, waiter: WaiterId, settled: Settled<H>) {
        let before = self.first.take_if(|first| waiter < first.waiter);
        if let Some(before) = before {
            self.others.insert(before.waiter, before);
            self.first = Some(settled);
        } else {
            self.others.insert(waiter, settled);
        }
    }

    pub(super) fn take_first(&mut self) -> Option<Settled<H>> {
        // Who asks when there is no answer, or no second one, moves nothing.
        self.first.as_ref()?;
        if self.others.is_empty() {
            return self.first.take();
        }
        self.take_of_many()
    }

    #[inline(never)]
    fn take_of_many(&mut self) -> Option<Settled<H>> {
        let next = self.others.pop_first().map(|(_, settled)| settled);
        core::mem::replace(&mut self.first, next)
    }

    pub(super) fn take(&mut self, id: WaiterId) -> Option<Settled<H>> {
        match &self.first {
            Some(first) if first.waiter == id => self.take_first(),
            Some(_) | None => self.others.remove(&id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answers;
    use crate::action::WaiterId;
    use crate::refusal::Refusal;
    use crate::registry::Settled;

    #[test]
    fn every_answer_counts_until_it_is_taken() {
        let mut answers = Answers::<()>::new();
        for (count, id) in [3, 1, 4, 2].into_iter().enumerate() {
            assert_eq!(answers.len(), count);
            answers.put(WaiterId(id), || Settled {
                waiter: WaiterId(id),
                resource: "k".parse().unwrap(),
                outcome: Err(Refusal::Required),
            });
        }
        assert!(answers.take(WaiterId(3)).is_some() && answers.take(WaiterId(3)).is_none());
        assert_eq!(answers.len(), 3);
        let taken = core::iter::from_fn(|| answers.take_first());
        assert!(taken.map(|one| one.waiter.order()).eq([1, 2, 4]));
        assert_eq!(answers.len(), 0);
    }
}
