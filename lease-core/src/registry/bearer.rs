//! Who shows a token whose lease is where the token says: the same decisions as for everybody, without a
//! plan, since they concern one cell only.

use core::hash::BuildHasher;

use super::{MAJOR_MAX, Registry, Step, Turn, refused};
use crate::action::{Action, By, Call, Wait};
use crate::change::Change;
use crate::decision::{Bearer, Effect, shown};
use crate::holder::Holder;
use crate::id::At;
use crate::key::ResourceKey;
use crate::outcome::Outcome;
use crate::plan::{Edit, edit_in_place};
use crate::refusal::{Refusal, Verb};

/// A token, and the place where its lease was found.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    at: At,
    place: u32,
}

impl<H: Holder, S: BuildHasher + Clone> Registry<H, S> {
    /// Says whether the bearer of `at` may write now: [`Action::Check`] for who needs no receipt in hand.
    ///
    /// The decision, the number and the kept receipt are those of [`call`](Self::call). With a token that
    /// hints at its place it hashes nothing and allocates nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the call would be answered with.
    pub fn check(
        &mut self,
        resource: &ResourceKey,
        at: At,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal<H>> {
        let Some(place) = self.at_hand(resource, at, turn) else {
            return self.ask(resource, Action::Check(By::Token(at)), turn);
        };
        if let Some(cell) = self.store.cell_at(Some(place)) {
            let now = turn.seen.now;
            Bearer { cell, at, now }.entitled()?;
        }
        self.last_major = self.last_major.saturating_add(1);
        Ok(())
    }

    /// Shows progress: [`Action::Touch`] for who needs no receipt in hand.
    ///
    /// The decision, the number and the kept receipt are those of [`call`](Self::call). With a token that
    /// hints at its place it hashes nothing and allocates nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the call would be answered with.
    pub fn touch(
        &mut self,
        resource: &ResourceKey,
        at: At,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal<H>> {
        let Some(place) = self.at_hand(resource, at, turn) else {
            return self.ask(resource, Action::Touch(at), turn);
        };
        if let Some(cell) = self.store.cell_at(Some(place)) {
            let now = turn.seen.now;
            let (_, expires) = Bearer { cell, at, now }.goes_on(Verb::Touch, None)?;
            let edit = Edit::Touch { expires };
            self.store
                .edit_at(place, |cell| edit_in_place(cell, edit, now));
        }
        self.last_major = self.last_major.saturating_add(1);
        Ok(())
    }

    /// Where the lease of `at` is, if nothing else has to be done first and nobody keeps receipts.
    fn at_hand(&mut self, key: &ResourceKey, at: At, turn: &Turn<'_>) -> Option<u32> {
        if self.log.keeps()
            || turn.seen.now < self.latest
            || self.last_major >= MAJOR_MAX
            || self.anything_due(&turn.seen)
        {
            return None;
        }
        let place = self.store.hinted(key, at)?;
        self.observe(&turn.seen);
        Some(place)
    }

    /// Makes the call of somebody who wants to know yes or no.
    #[cold]
    fn ask(
        &mut self,
        resource: &ResourceKey,
        action: Action<H>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal<H>> {
        let call = Call {
            resource: Some(resource.clone()),
            action,
            wait: Wait::No,
        };
        match self.call(&call, turn) {
            Step::Done(Outcome::Refused(refusal)) => Err(refusal),
            Step::Done(_) | Step::Ask(_) | Step::Queued(_) => Ok(()),
        }
    }

    /// Where `action` can be answered in place: it shows a token, and nobody waits for what it may end.
    pub(super) fn seat(&self, key: &ResourceKey, action: &Action<H>) -> Option<Seat> {
        let at = shown(action)?;
        let may_end = matches!(action, Action::End { .. } | Action::Release(_));
        if may_end && !self.queue.is_empty() {
            return None;
        }
        let place = self.store.hinted(key, at)?;
        Some(Seat { at, place })
    }

    /// Answers the bearer of a token.
    pub(super) fn in_place(
        &mut self,
        key: &ResourceKey,
        seat: Seat,
        action: &Action<H>,
        turn: &Turn<'_>,
    ) -> Step<H> {
        let (Seat { at, place }, now) = (seat, turn.seen.now);
        let Some(cell) = self.store.cell_at(Some(place)) else {
            return refused(Refusal::Required);
        };
        let holder = cell.lease().filter(|_| self.log.keeps());
        let holder = holder.map(|lease| lease.holder.clone());
        let (code, detail) = match (Bearer { cell, at, now }).act(action) {
            Err(refusal) => return refused(refusal),
            Ok(Effect::Report { code, detail }) => (code, detail),
            Ok(Effect::Edit { code, detail, edit }) => {
                self.store
                    .edit_at(place, |cell| edit_in_place(cell, edit, now));
                (code, detail)
            }
            // As `Plan::commit` ends it, where nobody waits for it.
            Ok(Effect::End { code, detail }) => {
                self.store.remove_at(place);
                (code, detail)
            }
        };
        let change = Change {
            token: Some(at.token),
            ..self.number(code, detail)
        };
        if self.log.keeps() {
            self.keep_alone(change, key, holder, turn);
        }
        Step::Done(Outcome::Done(change))
    }
}
