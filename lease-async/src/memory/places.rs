//! Where answers are put for those who wait, and how each is handed over once.
//!
//! It is plain data, to be kept under a lock. Who holds the lock puts an answer into a place, or takes it out,
//! or takes the place away; a waker is woken, and dropped, only after the lock is free again. `orders/` runs
//! it in every order of threads.

use core::hash::Hash;
use core::task::Waker;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// For how many the memory stays while nobody waits.
const SPARE: usize = 64;

/// The places of those who wait.
pub(super) struct Places<K, T> {
    /// In no order; its memory stays for the next ones, so a wait costs none.
    kept: HashMap<K, Place<T>>,
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
    /// Nothing yet. The waker that is not needed any more is to be dropped outside the lock.
    Waits(Option<Waker>),
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
            kept: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Makes an empty place.
    pub(super) fn add(&mut self, who: K) {
        self.kept.insert(who, Place::Empty(None));
    }

    /// Hands an answer over. Answers whom to wake, or the answer if nobody waits for it.
    pub(super) fn deliver(&mut self, who: K, answer: T) -> Result<Option<Waker>, T> {
        match self.kept.get_mut(&who) {
            Some(place @ Place::Empty(_)) => {
                match core::mem::replace(place, Place::Answered(answer)) {
                    Place::Empty(waker) => Ok(waker),
                    Place::Answered(_) | Place::Shut => Ok(None),
                }
            }
            Some(Place::Answered(_) | Place::Shut) | None => Err(answer),
        }
    }

    /// Takes the answer, or remembers whom to wake.
    #[inline]
    pub(super) fn look(&mut self, who: K, waker: &Waker) -> Look<T> {
        let Entry::Occupied(mut place) = self.kept.entry(who) else {
            return Look::Shut;
        };
        match place.get_mut() {
            Place::Empty(Some(kept)) if kept.will_wake(waker) => return Look::Waits(None),
            Place::Empty(kept) => return Look::Waits(kept.replace(waker.clone())),
            Place::Answered(_) | Place::Shut => {}
        }
        let place = place.remove();
        self.shrink();
        match place {
            Place::Answered(answer) => Look::Answer(answer),
            Place::Empty(_) | Place::Shut => Look::Shut,
        }
    }

    /// Takes a place away whose owner is gone.
    pub(super) fn take(&mut self, who: K) -> Left<T> {
        match self.remove(who) {
            Some(Place::Empty(waker)) => Left::Waited(waker),
            Some(Place::Answered(answer)) => Left::Answer(answer),
            Some(Place::Shut) | None => Left::Nothing,
        }
    }

    fn remove(&mut self, who: K) -> Option<Place<T>> {
        let place = self.kept.remove(&who);
        self.shrink();
        place
    }

    fn shrink(&mut self) {
        if self.kept.is_empty() && self.kept.capacity() > SPARE {
            // What a crowd needed is not kept for one.
            self.kept = HashMap::new();
        }
    }

    /// Who waits, in order.
    pub(super) fn waiting(&self) -> Vec<K> {
        let waits =
            |(who, place): (&K, &Place<T>)| matches!(place, Place::Empty(_)).then_some(*who);
        let mut waiting: Vec<_> = self.kept.iter().filter_map(waits).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Says that no answer will come. Answers whom to wake.
    pub(super) fn shut(&mut self, who: K) -> Option<Waker> {
        match self.kept.get_mut(&who) {
            Some(place @ Place::Empty(_)) => match core::mem::replace(place, Place::Shut) {
                Place::Empty(waker) => waker,
                Place::Answered(_) | Place::Shut => None,
            },
            Some(Place::Answered(_) | Place::Shut) | None => None,
        }
    }
}
