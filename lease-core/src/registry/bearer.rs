//! Who shows a token whose lease is where the token says: the same decisions as for everybody, without a
//! plan, since they concern one cell only.

use core::hash::BuildHasher;

use super::{Registry, Step, Turn, refused};
use crate::action::{Action, By, Call, Wait};
use crate::cell::{Disposition, Provenance};
use crate::change::Change;
use crate::decision::{Bearer, Effect, shown};
use crate::holder::Holder;
use crate::id::{At, OpId};
use crate::key::ResourceKey;
use crate::outcome::Outcome;
use crate::plan::Edit;
use crate::refusal::{Refusal, Verb};

/// An operation that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Start {
    /// Its random id.
    pub op: OpId,
    /// Whether its own acquire created the lease.
    pub from: Provenance,
}

/// An operation that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Finish {
    /// Which one.
    pub op: OpId,
    /// How it ended; a failure says what it may have changed.
    pub result: Result<(), Disposition>,
}

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
        let seat = self.at_hand(resource, at, turn);
        let Some(seat) = seat.filter(|_| !self.log.keeps_all()) else {
            return self
                .ask(resource, Action::Check(By::Token(at)), turn)
                .map(drop);
        };
        self.bearer(seat, turn)?.entitled()?;
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
        let seat = self.at_hand(resource, at, turn);
        let Some(seat) = seat.filter(|_| !self.log.keeps_all()) else {
            return self.ask(resource, Action::Touch(at), turn).map(drop);
        };
        let (_, expires) = self.bearer(seat, turn)?.goes_on(Verb::Touch, None)?;
        let edit = Edit::Touch { expires };
        self.store.edit_at(seat.place, edit, turn.seen.now);
        self.last_major = self.last_major.saturating_add(1);
        Ok(())
    }

    /// Puts an operation in flight: [`Action::Begin`] for who has the parts of the call in hand.
    ///
    /// The decision, the number and the kept receipt are those of [`call`](Self::call). With a token that
    /// hints at its place it hashes nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the call would be answered with.
    pub fn begin(
        &mut self,
        resource: &ResourceKey,
        at: At,
        Start { op, from }: Start,
        turn: &mut Turn<'_>,
    ) -> Result<Change, Refusal<H>> {
        match self.at_hand(resource, at, turn) {
            Some(seat) => {
                let effect = self.bearer(seat, turn)?.begin(op, from)?;
                Ok(self.take_effect(resource, seat, effect, turn))
            }
            None => self.ask(resource, Action::Begin { at, op, from }, turn),
        }
    }

    /// Ends an operation: [`Action::End`] for who has the parts of the call in hand.
    ///
    /// The decision, the number and the kept receipt are those of [`call`](Self::call). With a token that
    /// hints at its place it hashes nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the call would be answered with.
    pub fn end(
        &mut self,
        resource: &ResourceKey,
        at: At,
        Finish { op, result }: Finish,
        turn: &mut Turn<'_>,
    ) -> Result<Change, Refusal<H>> {
        match self.at_hand(resource, at, turn) {
            Some(seat) => {
                let effect = self.bearer(seat, turn)?.end(op, result)?;
                Ok(self.take_effect(resource, seat, effect, turn))
            }
            None => self.ask(resource, Action::End { at, op, result }, turn),
        }
    }

    /// Gives a lease back: [`Action::Release`] for who has the parts of the call in hand.
    ///
    /// The decision, the number and the kept receipt are those of [`call`](Self::call). With a token that
    /// hints at its place it hashes nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that the call would be answered with.
    pub fn release(
        &mut self,
        resource: &ResourceKey,
        at: At,
        turn: &mut Turn<'_>,
    ) -> Result<Change, Refusal<H>> {
        match self.at_hand(resource, at, turn) {
            Some(seat) => {
                let effect = self.bearer(seat, turn)?.release()?;
                Ok(self.take_effect(resource, seat, effect, turn))
            }
            None => self.ask(resource, Action::Release(By::Token(at)), turn),
        }
    }

    /// Where the lease of `at` is, if nothing else has to be done first.
    #[inline(always)]
    fn at_hand(&mut self, key: &ResourceKey, at: At, turn: &Turn<'_>) -> Option<Seat> {
        if self.is_pressing(turn) {
            return None;
        }
        let place = self.store.hinted(key, at)?;
        self.go_on_to(turn.seen.now);
        Some(Seat { at, place })
    }

    /// Who shows the token of `seat`.
    #[inline(always)]
    fn bearer(&self, seat: Seat, turn: &Turn<'_>) -> Result<Bearer<'_, H>, Refusal<H>> {
        // No refusal is made before there is one: to drop it again costs a call.
        let Some(cell) = self.store.cell_at(Some(seat.place)) else {
            return Err(Refusal::Required);
        };
        Ok(Bearer {
            cell,
            at: seat.at,
            now: turn.seen.now,
        })
    }

    /// Makes the call, for an answer that is one change or none.
    #[cold]
    fn ask(
        &mut self,
        resource: &ResourceKey,
        action: Action<H>,
        turn: &mut Turn<'_>,
    ) -> Result<Change, Refusal<H>> {
        let call = Call {
            resource: Some(resource.clone()),
            action,
            wait: Wait::No,
        };
        match self.call(&call, turn) {
            Step::Done(Outcome::Refused(refusal)) => Err(refusal),
            Step::Done(Outcome::Done(change)) => Ok(change),
            // No bearer's call is answered so.
            Step::Done(_) | Step::Ask(_) | Step::Queued(_) => Err(Refusal::Misaddressed),
        }
    }

    /// Where `action` can be answered in place: it shows a token.
    pub(super) fn seat(&self, key: &ResourceKey, action: &Action<H>) -> Option<Seat> {
        let at = shown(action)?;
        let place = self.store.hinted(key, at)?;
        Some(Seat { at, place })
    }

    /// Answers the bearer of a token.
    pub(super) fn in_place(
        &mut self,
        key: &ResourceKey,
        seat: Seat,
        action: &Action<H>,
        turn: &mut Turn<'_>,
    ) -> Step<H> {
        let effect = self
            .bearer(seat, turn)
            .and_then(|bearer| bearer.act(action));
        match effect {
            Err(refusal) => refused(refusal),
            Ok(effect) => Step::Done(Outcome::Done(self.take_effect(key, seat, effect, turn))),
        }
    }

    /// Does what was decided about the lease at `seat`, as [`Plan::commit`](crate::Plan::commit) does it, and
    /// hands on what became free.
    #[inline(always)]
    fn take_effect(
        &mut self,
        key: &ResourceKey,
        seat: Seat,
        effect: Effect<H>,
        turn: &mut Turn<'_>,
    ) -> Change {
        let (Seat { at, place }, now) = (seat, turn.seen.now);
        let kept = match &effect {
            Effect::Report { code, detail }
            | Effect::Edit { code, detail, .. }
            | Effect::End { code, detail } => self.log.wants(*code, detail, Some(at.token)),
        };
        // Before the lease may be gone.
        let holder = if kept {
            self.store.holder_at(place)
        } else {
            None
        };
        let mut ends = false;
        let (code, detail) = match effect {
            Effect::Report { code, detail } => (code, detail),
            Effect::Edit { code, detail, edit } => {
                self.store.edit_at(place, edit, now);
                (code, detail)
            }
            Effect::End { code, detail } => {
                ends = true;
                self.store.remove_at(place);
                (code, detail)
            }
        };
        let change = self.number(code, Some(at.token), detail);
        if kept {
            self.keep_alone(change, (key, holder), turn.note.as_ref(), turn.seen.wall_ms);
        }
        if ends && !self.queue.is_empty() {
            self.hand_on(key, place, turn);
        }
        change
    }
}
