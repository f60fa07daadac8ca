//! Who shares with whom: the holds of a front, by generation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Change, Code, Detail, Generation, Grant, Holder, Receipt, ResourceKey, Seq};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::events::Tap;
use crate::hold::Hold;
use crate::leases::Front;
use crate::standing::Loss;

/// How many ends are remembered, for grants that are still on their way to their guard.
const RECENT: usize = 1_024;

/// The holds of one front.
///
/// A hold stays as long as its lease, with or without guards: what was done under the lease outlives them.
/// The table is locked before a hold, and neither while an authority is called.
pub(crate) struct Table<H: Holder> {
    state: Mutex<TableState<H>>,
}

struct TableState<H: Holder> {
    holds: BTreeMap<Generation, Arc<Hold<H>>>,
    by_session: BTreeSet<(u64, Generation)>,
    /// When each ended; `None` as soon as its holder wanted it.
    recent: BTreeMap<Generation, Option<Seq>>,
    in_order: VecDeque<Generation>,
    /// The latest end that is not remembered any more.
    forgotten: Option<Seq>,
}

/// What became of a grant.
pub(crate) enum Entered<H: Holder> {
    /// One guard more.
    Hold(Arc<Hold<H>>),
    /// The lease ended before its guard was made, or nobody knows: ask again.
    Gone,
    /// Its last guard is being released: ask again after that.
    Releasing(OwnedNotified),
}

/// What is to be done after the last guard went.
pub(crate) enum Left {
    /// Nothing: there are other guards, or the lease is left as it is.
    Stays,
    /// The lease is to be released.
    Release,
}

impl<H: Holder> Table<H> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(TableState {
                holds: BTreeMap::new(),
                by_session: BTreeSet::new(),
                recent: BTreeMap::new(),
                in_order: VecDeque::new(),
                forgotten: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a grant its hold: the one of its generation, or a new one.
    pub(crate) fn enter(
        &self,
        front: &Arc<Front<H>>,
        session: (u64, &H),
        key: &ResourceKey,
        (grant, change): (&Grant, &Change),
    ) -> Entered<H> {
        let generation = grant.at.token.generation;
        let mut table = self.state();
        if table.may_be_over(generation, change.seq) {
            return Entered::Gone;
        }
        let known = table.holds.get(&generation).cloned();
        let hold = match known {
            Some(hold) if !hold.is_lost() => hold,
            // Its holder had stopped in time, and the authority says that it goes on: its old guards stay
            // lost, and what was done under it stays known.
            known => {
                let hold = Hold::new(front, session, key, grant.at);
                if let Some(before) = known {
                    hold.inherit(&before);
                }
                table.holds.insert(generation, Arc::clone(&hold));
                table.by_session.insert((session.0, generation));
                hold
            }
        };
        let mut state = hold.state();
        if let Some(over) = &state.releasing {
            // From now on it is told, also before it is polled.
            return Entered::Releasing(Arc::clone(over).notified_owned());
        }
        state.guards = state.guards.saturating_add(1);
        drop(state);
        drop(table);
        hold.learn(change);
        Entered::Hold(hold)
    }

    /// Takes one guard away.
    pub(crate) fn leave(&self, hold: &Arc<Hold<H>>) -> Left {
        let mut table = self.state();
        let mut state = hold.state();
        // A release that is dropped on its way leaves by here, too.
        if let Some(waiting) = state.releasing.take() {
            waiting.notify_waiters();
        }
        state.guards = state.guards.saturating_sub(1);
        if state.guards > 0 {
            return Left::Stays;
        }
        // What was lost leaves the table with the receipt of its end.
        if state.lost.is_some() || state.kept || state.tainted || state.operations > 0 {
            return Left::Stays;
        }
        drop(state);
        table.remove(hold, None);
        drop(table);
        hold.lose(Loss::Released);
        Left::Release
    }

    /// Begins to release: `None` if this was not the last guard and is gone now.
    pub(crate) fn begin_release(&self, hold: &Hold<H>) -> Result<(), usize> {
        let _table = self.state();
        let mut state = hold.state();
        if state.guards > 1 {
            state.guards = state.guards.saturating_sub(1);
            return Err(state.guards);
        }
        state.releasing = Some(Arc::new(Notify::new()));
        Ok(())
    }

    /// The release came through, or it failed and the guard lives on.
    pub(crate) fn end_release(&self, hold: &Arc<Hold<H>>, released: bool) {
        let mut table = self.state();
        let mut state = hold.state();
        let waiting = state.releasing.take();
        if released {
            state.guards = 0;
            drop(state);
            table.remove(hold, None);
        } else {
            drop(state);
        }
        drop(table);
        if let Some(waiting) = waiting {
            // Whoever asks for it from now on finds that it is over.
            waiting.notify_waiters();
        }
    }

    /// Ends all of a session.
    pub(crate) fn disconnect(&self, session: u64) {
        let mut table = self.state();
        let mut gone = Vec::new();
        loop {
            let mut rest = table.by_session.range((session, Generation::FIRST)..);
            let Some((_, generation)) = rest.next().copied().filter(|(of, _)| *of == session)
            else {
                break;
            };
            table.by_session.remove(&(session, generation));
            if let Some(hold) = table.holds.remove(&generation) {
                table.remember(generation, None);
                gone.push(hold);
            }
        }
        drop(table);
        for hold in gone {
            hold.lose(Loss::Disconnected);
        }
    }

    /// How many leases are known.
    pub(crate) fn len(&self) -> usize {
        self.state().holds.len()
    }

    fn end(&self, generation: Generation, seq: Seq, loss: Loss) {
        let mut table = self.state();
        let hold = table.holds.get(&generation).cloned();
        match &hold {
            Some(hold) => table.remove(hold, Some(seq)),
            None => table.remember(generation, Some(seq)),
        }
        drop(table);
        if let Some(hold) = hold {
            hold.lose(loss);
        }
    }
}

impl<H: Holder> TableState<H> {
    /// Takes a hold out that has ended.
    fn remove(&mut self, hold: &Arc<Hold<H>>, seq: Option<Seq>) {
        let generation = hold.at.token.generation;
        let current = self.holds.get(&generation);
        if current.is_some_and(|current| Arc::ptr_eq(current, hold)) {
            self.holds.remove(&generation);
        }
        self.by_session.remove(&(hold.session, generation));
        self.remember(generation, seq);
    }

    fn remember(&mut self, generation: Generation, seq: Option<Seq>) {
        if self.in_order.len() >= RECENT
            && let Some(old) = self.in_order.pop_front()
        {
            let seq = self.recent.remove(&old).flatten();
            self.forgotten = self.forgotten.max(seq);
        }
        if self.recent.insert(generation, seq).is_none() {
            self.in_order.push_back(generation);
        }
    }

    /// Whether the lease may have ended since `seq`.
    fn may_be_over(&self, generation: Generation, seq: Seq) -> bool {
        match self.recent.get(&generation) {
            Some(over) => over.is_none_or(|over| over > seq),
            None => self.forgotten.is_some_and(|forgotten| forgotten > seq),
        }
    }
}

impl<H: Holder> Tap<H> for Table<H> {
    fn see(&self, receipt: &Receipt<H>) {
        let change = &receipt.change;
        if let Detail::Granted {
            previous: Some(previous),
            ..
        } = change.detail
        {
            self.end(previous.generation, change.seq, Loss::Proven);
        }
        let Some(token) = change.token else { return };
        if let Some(loss) = Loss::of(change) {
            self.end(token.generation, change.seq, loss);
            return;
        }
        let hold = self.state().holds.get(&token.generation).cloned();
        let Some(hold) = hold else { return };
        if change.code == Code::Adopted && receipt.holder.as_ref() != Some(&hold.holder) {
            self.end(token.generation, change.seq, Loss::HandedOver);
        } else {
            hold.learn(change);
        }
    }

    /// Some ends were not seen: what has no guard is forgotten, the rest notices at its next use.
    fn missed(&self) {
        let mut table = self.state();
        let idle = |hold: &&Arc<Hold<H>>| hold.state().guards == 0;
        let idle: Vec<_> = table.holds.values().filter(idle).cloned().collect();
        idle.iter().for_each(|hold| table.remove(hold, None));
    }
}
