//! Where answers are put for those who wait, and how each is handed over once.
//!
//! It is plain data, to be kept under a lock. Who holds the lock puts an answer into a place, or takes it out,
//! or takes the place away; a waker is woken, and dropped, only after the lock is free again. `orders/` runs
//! it in every order of threads.

use core::hash::Hash;
use core::task::Waker;

use hashbrown::HashMap;

/// For how many the memory stays while nobody waits.
const SPARE: usize = 64;

/// The places of those who wait, in no order.
pub(super) struct Places<K, T> {
    /// Mostly there are two at most, one of them served: these are not searched for.
    few: [Option<(K, Place<T>)>; 2],
    /// The memory of the others stays for the next ones, so a wait costs none.
    others: HashMap<K, Place<T>>,
    /// How many there are.
    len: usize,
}

enum Place<T> {
    /// Nothing is there yet; this one is to be woken.
    Empty(Option<Waker>),
    Answered(T),
    /// Nothing will come.
    Shut,
}

/// What somebody who looked at its place found.
pub(super) enum Look<T> {
    /// Nothing yet, and it is known whom to wake.
    Waits,
    /// Nothing yet, and whom to wake is to be said by a waker that was cloned outside the lock.
    Unknown,
    /// The answer; its place is gone.
    Answer(T),
    /// No answer will come.
    Shut,
}

/// What was at a place that was taken away.
pub(super) enum Left<T> {
    /// Its owner waited. The waker is to be dropped outside the lock.
    Waited(Option<Waker>),
    /// An answer that nobody has received.
    Answer(T),
    /// Nothing to take care of.
    Nothing,
}

impl<K: Copy + Hash + Ord, T> Places<K, T> {
    pub(super) fn new() -> Self {
        Self {
            few: [None, None],
            others: HashMap::new(),
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Makes an empty place.
    pub(super) fn add(&mut self, who: K) {
        let place = Place::Empty(None);
        self.len = self.len.saturating_add(1);
        match self.few.iter_mut().find(|one| one.is_none()) {
            Some(free) => *free = Some((who, place)),
            None => drop(self.others.insert(who, place)),
        }
    }

    fn get_mut(&mut self, who: K) -> Option<&mut Place<T>> {
        let mut few = self.few.iter_mut().flatten();
        match few.find(|(one, _)| *one == who) {
            Some((_, place)) => Some(place),
            None if self.others.is_empty() => None,
            None => self.others.get_mut(&who),
        }
    }

    /// Hands an answer over. Answers whom to wake, or the answer if nobody waits for it.
    #[inline]
    pub(super) fn deliver(&mut self, who: K, answer: T) -> Result<Option<Waker>, T> {
        let Some(place) = self.get_mut(who) else {
            return Err(answer);
        };
        let Place::Empty(waker) = place else {
            return Err(answer);
        };
        let waker = waker.take();
        *place = Place::Answered(answer);
        Ok(waker)
    }

    /// Takes the answer, or remembers whom to wake: `fresh`, a clone of `waker`. What is left in `fresh` is to be
    /// dropped outside the lock.
    #[inline]
    pub(super) fn look(&mut self, who: K, waker: &Waker, fresh: &mut Option<Waker>) -> Look<T> {
        match self.get_mut(who) {
            Some(Place::Empty(Some(kept))) if kept.will_wake(waker) => return Look::Waits,
            Some(Place::Empty(_)) if fresh.is_none() => return Look::Unknown,
            Some(Place::Empty(kept)) => {
                core::mem::swap(kept, fresh);
                return Look::Waits;
            }
            Some(Place::Answered(_) | Place::Shut) => {}
            None => return Look::Shut,
        }
        match self.remove(who) {
            Some(Place::Answered(answer)) => Look::Answer(answer),
            Some(Place::Empty(_) | Place::Shut) | None => Look::Shut,
        }
    }

    /// Takes a place away whose owner is gone.
    #[inline]
    pub(super) fn take(&mut self, who: K) -> Left<T> {
        match self.remove(who) {
            Some(Place::Empty(waker)) => Left::Waited(waker),
            Some(Place::Answered(answer)) => Left::Answer(answer),
            Some(Place::Shut) | None => Left::Nothing,
        }
    }

    #[inline]
    fn remove(&mut self, who: K) -> Option<Place<T>> {
        let is_it = |one: &Option<(K, _)>| one.as_ref().is_some_and(|(one, _)| *one == who);
        let place = match self.few.iter_mut().find(|one| is_it(one)) {
            Some(one) => one.take().map(|(_, place)| place),
            None => self.remove_of_many(who),
        };
        if place.is_some() {
            self.len = self.len.saturating_sub(1);
        }
        place
    }

    #[inline(never)]
    fn remove_of_many(&mut self, who: K) -> Option<Place<T>> {
        let place = self.others.remove(&who);
        if self.others.is_empty() {
            // What a crowd needed is not kept for one.
            self.others.shrink_to(SPARE);
        }
        place
    }

    /// Who waits, in order.
    pub(super) fn waiting(&self) -> Vec<K> {
        let few = self.few.iter().flatten().map(|(who, place)| (who, place));
        let waits = |(who, place): (&K, &Place<T>)| {
            let waits = matches!(place, Place::Empty(_));
            waits.then_some(*who)
        };
        let mut waiting: Vec<_> = few.chain(&self.others).filter_map(waits).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Says that no answer will come. Answers whom to wake.
    pub(super) fn shut(&mut self, who: K) -> Option<Waker> {
        let place = self.get_mut(who)?;
        let Place::Empty(waker) = place else {
            return None;
        };
        let waker = waker.take();
        *place = Place::Shut;
        waker
    }
}
