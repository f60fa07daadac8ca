//! Who shares with whom: the holds of a front.
//!
//! # How a release and a re-entry are ordered
//!
//! A grant and the end of its lease may reach this front in either order, since the authority decides in one
//! thread and somebody hears of it in another. Three rules make one of the two first:
//!
//! 1. Whoever is about to release a lease says so here before the authority is called. While that is under
//!    way no grant of that lease becomes a guard: it waits and asks again.
//!    The one guard of a lease of which nothing else is known says so at its seat, without the lock.
//! 2. A lease that ended is remembered for every request for its resource that was made before the end. A
//!    grant of it that such a request gets was decided before the end, so it is none: ask again.
//! 3. A request that was made after the end, and is granted that very lease, has the authority's word that it
//!    goes on. It is believed.
//!
//! A lease that is handed over keeps its token, and the front may hear of that late, too. So a grant of a lease that
//! another holder has here is no guard: whoever has the older word of the authority has lost it, and the request
//! asks again.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{
    At, Change, Code, Detail, Generation, Grant, Holder, Provenance, Receipt, ResourceKey, Verdict,
};

use crate::caught::apart;
use crate::events::Tap;
use crate::hold::{GivenUp, Hold};
use crate::incidents::Closed;
use crate::leases::Shared;
pub(crate) use crate::release::Asking;
use crate::release::{Entry, Leave, Order, Ticket};
use crate::standing::Loss;
use crate::telemetry::Observer;

/// The holds of one front.
///
/// A hold stays as long as its lease, with or without guards: what was done under the lease outlives them.
/// The table is locked before a hold, and neither while an authority is called. No hold is dropped while it is
/// locked, since with a hold its session may go, and that comes here.
pub(crate) struct Table<H: Holder> {
    state: Mutex<TableState<H>>,
    observer: Arc<Observer>,
}

struct TableState<H: Holder> {
    order: Order<Arc<Hold<H>>>,
}

/// What a hold that serves again leaves behind, to be dropped outside the lock.
type Rest<H> = (Option<Arc<Shared<H>>>, Option<Arc<Hold<H>>>);

/// What became of a grant.
pub(crate) enum Entered<H: Holder> {
    /// One guard more.
    Hold(Arc<Hold<H>>),
    /// The lease ended before its guard was made: ask again.
    Gone,
    /// It is being released: ask again after that.
    Releasing(Behind<H>),
}

/// What is to be done after a guard went.
pub(crate) enum Left<'a, H: Holder> {
    /// Nothing: there are other guards, or the lease is left as it is.
    Stays,
    /// The lease is to be released, and then this is to be dropped.
    Release(Releasing<'a, H>),
}

/// A release under way. While it is there, nobody becomes a guard of the lease.
///
/// Dropped, it is over: the lease has ended, as far as this front can tell.
pub(crate) struct Releasing<'a, H: Holder>(&'a Arc<Hold<H>>);

impl<H: Holder> Drop for Releasing<'_, H> {
    fn drop(&mut self) {
        if !self.0.seat.is_over_quietly() {
            self.0.front().table.settle(self.0, true);
        }
    }
}

/// Waits until a release is over that another task makes. Dropping it is to wait no more.
pub(crate) struct Behind<H: Holder> {
    session: Arc<Shared<H>>,
    ticket: Ticket,
}

impl<H: Holder> Future for Behind<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Cloned before the table is locked, and dropped after: with a waker anything may be called.
        let mut waker = Some(cx.waker().clone());
        let is_over = self.session.front.table.look(self.ticket, &mut waker);
        if is_over {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl<H: Holder> Drop for Behind<H> {
    fn drop(&mut self) {
        let waker = self.session.front.table.state().order.forget(self.ticket);
        drop(waker);
    }
}

impl<H: Holder> Table<H> {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        let state = TableState {
            order: Order::new(),
        };
        Self {
            observer,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the row of a new session, to be given up with the session.
    pub(crate) fn add_row(&self) -> usize {
        self.state().order.rooms.add_row()
    }

    pub(crate) fn remove_row(&self, row: usize) {
        self.state().order.rooms.remove_row(row);
    }

    fn look(&self, ticket: Ticket, waker: &mut Option<Waker>) -> bool {
        self.state().order.look(ticket, waker)
    }

    /// Says that somebody is about to ask for `key`.
    pub(crate) fn asking(&self, key: &ResourceKey) -> Asking {
        self.state().order.ask(key)
    }

    /// Takes a request back that got nothing.
    pub(crate) fn asked(&self, asking: &Asking) {
        self.state().order.asked(asking);
    }

    /// Gives the grant that `asking` got its hold: the one of its generation, or a new one.
    #[inline]
    pub(crate) fn enter(
        &self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        asking: &Asking,
        (grant, change): (&Grant, &Change),
    ) -> Entered<H> {
        let mut table = self.state();
        let generation = grant.at.token.generation;
        if grant.provenance == Provenance::Reentrant
            && let Some(other) = table.anothers(session, asking.room, generation)
        {
            table.order.asked(asking);
            drop(table);
            if other.is_news(change) {
                self.over(&other, Loss::HandedOver);
            }
            return Entered::Gone;
        }
        let is_lost = |hold: &Arc<Hold<H>>| hold.is_lost();
        let before = match table.order.enter(asking, generation, is_lost) {
            Entry::Again(hold) => {
                drop(table);
                hold.learn(change);
                return Entered::Hold(hold);
            }
            Entry::Behind(ticket) => {
                drop(table);
                let session = Arc::clone(session);
                return Entered::Releasing(Behind { session, ticket });
            }
            Entry::Gone => return Entered::Gone,
            Entry::New => None,
            Entry::Anew(before) => Some(before),
        };
        let (hold, (session_before, gone)) =
            table.new_hold(session, key, asking, (grant.at, change));
        if let Some(before) = &before {
            // Its holder had stopped in time, and the authority says that it goes on: its old guards stay lost,
            // and what was done under it stays known.
            hold.inherit(before);
        }
        drop(table);
        drop(before);
        drop(session_before);
        drop(gone);
        if let Some(watch) = session.front.watch.get() {
            watch.granted(&hold);
        }
        Entered::Hold(hold)
    }

    /// Takes one guard away.
    pub(crate) fn leave<'a>(&self, hold: &'a Arc<Hold<H>>) -> Left<'a, H> {
        if hold.front().watch.get().is_none() && hold.seat.leaves_quietly() {
            return Left::Release(Releasing(hold));
        }
        let mut table = self.state();
        let left = table.order.leave(hold, || hold.give_up());
        drop(table);
        match left {
            Leave::Stays(told) => {
                wake(told);
                Left::Stays
            }
            Leave::Release(given_up, gone) => {
                drop(gone);
                if given_up == GivenUp::Awaited || hold.front().watch.get().is_some() {
                    hold.tell_loss(Loss::Released);
                }
                Left::Release(Releasing(hold))
            }
        }
    }

    /// Begins to release: fails if this was not the last guard and is gone now.
    pub(crate) fn begin_release(&self, hold: &Arc<Hold<H>>) -> Result<(), usize> {
        self.state().order.begin_release(hold)
    }

    /// A release is over: the lease has ended, or it stays with its guard.
    pub(crate) fn settle(&self, hold: &Arc<Hold<H>>, released: bool) {
        let mut table = self.state();
        // Where the session is gone nobody would take it away again.
        let stays = !hold.session.is_gone();
        let (gone, told) = table.order.settle(hold, released, stays);
        drop(table);
        drop(gone);
        wake(told);
    }

    /// The authority says that the lease of `hold` has ended.
    pub(crate) fn over(&self, hold: &Arc<Hold<H>>, loss: Loss) -> Loss {
        let (gone, told) = self.state().order.remove(hold);
        drop(gone);
        let loss = hold.lose(loss);
        wake(told);
        loss
    }

    /// Ends all of a session.
    pub(crate) fn disconnect(&self, session: &Arc<Shared<H>>) {
        let mut table = self.state();
        let mut gone = Vec::new();
        while let Some((room, generation)) = table.order.rooms.last_of(session.row) {
            let (Some(hold), told) = table.order.end(room, generation) else {
                break;
            };
            gone.push((hold, told));
        }
        drop(table);
        for (hold, told) in gone {
            hold.lose(Loss::Disconnected);
            wake(told);
        }
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.state().order.rooms.len()
    }

    /// Returns the leases that are known, in order of their grants.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold<H>>> {
        let table = self.state();
        let mut holds: Vec<_> = table.order.rooms.seats().cloned().collect();
        drop(table);
        holds.sort_unstable_by_key(|hold| hold.at.token.generation);
        holds
    }

    /// Returns how many leases are known, the oldest one, and how many requests have no answer yet.
    pub(crate) fn survey(&self) -> (usize, Option<Arc<Hold<H>>>, usize) {
        let table = self.state();
        let oldest = table
            .order
            .rooms
            .seats()
            .min_by_key(|hold| hold.at.token.generation);
        (
            table.order.rooms.len(),
            oldest.cloned(),
            table.order.rooms.requests(),
        )
    }

    fn hold(&self, key: Option<&ResourceKey>, generation: Generation) -> Option<Arc<Hold<H>>> {
        let table = self.state();
        let hold = match key {
            Some(key) => table
                .order
                .rooms
                .seat(table.order.rooms.find(key)?, generation),
            None => table.order.rooms.search(generation),
        };
        hold.cloned()
    }

    /// A receipt says that a lease has ended.
    fn end(&self, key: Option<&ResourceKey>, generation: Generation, loss: Loss) {
        match (self.hold(key, generation), key) {
            (Some(hold), _) => {
                self.over(&hold, loss);
            }
            // Its grant may be on its way.
            (None, Some(key)) => {
                let mut table = self.state();
                if let Some(room) = table.order.rooms.find(key) {
                    table.order.ended(room, generation);
                }
            }
            (None, None) => {}
        }
    }
}

impl<H: Holder> TableState<H> {
    /// Finds the hold of a lease that goes on if it is not this session's: one of the two has not heard yet that the
    /// lease was handed over.
    fn anothers(
        &self,
        session: &Arc<Shared<H>>,
        room: usize,
        generation: Generation,
    ) -> Option<Arc<Hold<H>>> {
        let hold = self.order.rooms.seat(room, generation)?;
        (*hold.holder() != session.holder).then(|| Arc::clone(hold))
    }

    /// Seats the hold of a lease that was just granted.
    fn new_hold(
        &mut self,
        session: &Arc<Shared<H>>,
        key: &ResourceKey,
        asking: &Asking,
        granted: (At, &Change),
    ) -> (Arc<Hold<H>>, Rest<H>) {
        let mut before = None;
        // Whoever else still knows it knows a lease that has ended.
        let serve = |hold: &mut Arc<Hold<H>>| {
            let Some(hold) = Arc::get_mut(hold) else {
                return false;
            };
            if hold.is_armed() {
                return false;
            }
            before = hold.serve_again(session, key, asking.room, granted);
            true
        };
        match self.order.sit_again(asking, serve) {
            Ok(hold) => (hold, (before, None)),
            Err(gone) => {
                let hold = Hold::new(session, key, asking.room, granted);
                let parked = self.order.sit(asking, Arc::clone(&hold));
                (hold, (before, gone.or(parked)))
            }
        }
    }
}

/// Wakes those who stood behind a release. Not under a lock.
#[inline]
fn wake(told: Vec<Waker>) {
    if told.is_empty() {
        return;
    }
    for waker in told {
        // One that panics is not to cost the next one its turn.
        apart(|| waker.wake());
    }
}

impl<H: Holder> Tap<H> for Table<H> {
    fn see(&self, receipt: &Receipt<H>) {
        // What it is measured by may panic, and the loss is to be known all the same.
        apart(|| self.observer.see(receipt));
        let change = &receipt.change;
        let key = receipt.resource.as_ref();
        if let Detail::Granted {
            previous: Some(previous),
            ..
        } = change.detail
        {
            self.end(key, previous.generation, Loss::Proven);
        }
        let Some(token) = change.token else { return };
        if let Some(loss) = Loss::of(change) {
            self.end(key, token.generation, loss);
            return;
        }
        let Some(hold) = self.hold(key, token.generation) else {
            return;
        };
        if change.code == Code::Adopted && receipt.holder.as_ref() != Some(hold.holder()) {
            self.over(&hold, Loss::HandedOver);
        } else {
            hold.learn(change);
        }
    }

    fn judged(&self, verdict: &Verdict) {
        self.observer.judged(verdict);
    }

    /// Some ends were not seen: what has no guard is forgotten, the rest notices at its next use.
    fn missed(&self) {
        apart(|| self.observer.missed());
        let mut table = self.state();
        let idle = |hold: &&Arc<Hold<H>>| hold.seat.guards() == 0 && !hold.seat.is_releasing();
        let idle: Vec<_> = table.order.rooms.seats().filter(idle).cloned().collect();
        let gone: Vec<_> = idle.iter().map(|hold| table.order.remove(hold)).collect();
        drop(table);
        for (_hold, told) in gone {
            wake(told);
        }
        for hold in idle {
            if let Some(watch) = hold.front().watch.get() {
                watch.ended(&hold, Closed::Unseen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Waker};
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use crate::{Leases, Loss, Memory, Session, Standing};

    /// Drops a session when it is woken.
    struct Leaves(Mutex<Option<Session>>);

    impl Wake for Leaves {
        fn wake(self: Arc<Self>) {
            let session = self.0.lock().unwrap().take();
            drop(session);
        }
    }

    #[tokio::test]
    async fn who_looks_at_a_hold_that_was_left_without_the_table_finds_it_lost() {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let session = leases.connect("a").unwrap();
        let guard = session.acquire("docs").await.unwrap();
        let hold = Arc::clone(guard.hold());
        drop(guard);
        assert_eq!(hold.standing(), Standing::Lost(Loss::Released));
        // Once more by the table, since somebody looks first.
        let guard = session.acquire("docs").await.unwrap();
        assert_eq!(guard.standing(), Standing::Safe);
        let hold = Arc::clone(guard.hold());
        assert!(!hold.seat.leaves_quietly());
        drop(guard);
        assert_eq!(hold.standing(), Standing::Lost(Loss::Released));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_resources_that_one_after_another_was_held() {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let session = leases.connect("a").unwrap();
        let stays = session.acquire("stays").await.unwrap();
        for resource in 0..100 {
            drop(session.acquire(format!("docs/{resource}")).await.unwrap());
        }
        let named = stays.hold().front().table.state().order.rooms.named();
        assert!(named <= 4, "{named}");
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_session_that_goes_during_a_release() {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let session = leases.connect("a").unwrap();
        let guard = session.acquire("docs").await.unwrap();
        let front = Arc::clone(guard.hold().front());
        let token = guard.cancellation_token();
        let leaves = Waker::from(Arc::new(Leaves(Mutex::new(Some(session)))));
        let mut lost = pin!(token.cancelled());
        let pending = lost.as_mut().poll(&mut Context::from_waker(&leaves));
        assert!(pending.is_pending());
        guard.release().await.unwrap();
        assert_eq!(front.table.add_row(), 0);
    }

    #[tokio::test]
    async fn the_row_of_a_session_that_has_gone_serves_the_next_one() {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let stays = leases.connect("a").unwrap();
        let guard = stays.acquire("docs").await.unwrap();
        for _ in 0..10 {
            let goes = leases.connect("b").unwrap();
            let kept = goes.acquire("more").await.unwrap();
            drop(goes);
            drop(kept);
        }
        let front = guard.hold().front();
        assert_eq!(front.table.add_row(), 1);
    }
}
