//! One operation in flight.

use core::fmt;
use std::sync::Arc;

use lease_core::{
    Action, Change, Detail, Disposition, FenceGate, Fenced, FencingToken, Holder, Note, OpId,
    OperationKind, Provenance, SessionHolder,
};

use crate::caught::apart;
use crate::error::{LeaseError, RunError};
use crate::hold::Hold;
use crate::ids;

/// One operation in flight under a lease. It ends once. While it is in flight the term ends nothing.
///
/// # Drop
///
/// It ends as a failure of unknown effect: code that was cancelled, or unwound, may have changed something.
#[must_use = "dropping an operation is a failure of unknown effect"]
pub struct Operation<H: Holder = SessionHolder> {
    hold: Arc<Hold<H>>,
    id: OpId,
    from: Provenance,
    kind: Option<OperationKind>,
    cause: Option<Box<str>>,
    stage: Stage,
    /// It counts among those that shield.
    shields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The begin is on its way.
    Beginning,
    Flying,
    /// The end is on its way.
    Ending(Result<(), Disposition>),
    Over,
}

impl<H: Holder> Operation<H> {
    pub(crate) async fn begin(
        hold: &Arc<Hold<H>>,
        from: Provenance,
        kind: Option<OperationKind>,
    ) -> Result<Self, LeaseError<H>> {
        let id = ids::operation().map_err(LeaseError::Authority)?;
        hold.state().operations += 1;
        let mut operation = Self {
            hold: Arc::clone(hold),
            id,
            from,
            kind,
            cause: None,
            stage: Stage::Beginning,
            shields: false,
        };
        let at = hold.at;
        let note = kind.map(|kind| Note::new(kind.name(), "begun"));
        let answer = hold.ask(Action::Begin { at, op: id, from }, note).await;
        if matches!(answer, Err(LeaseError::Lost(_) | LeaseError::Refused(_))) {
            // It did not begin. Where that is not known, dropping it ends what may be in flight.
            operation.stage = Stage::Over;
            operation.over();
        }
        let change = answer?;
        if let Detail::Begun { from, .. } = change.detail {
            operation.from = from;
        }
        operation.shield()?;
        operation.stage = Stage::Flying;
        if let Some(watch) = hold.front().watch.get() {
            watch.begun(hold, id, change.at);
        }
        Ok(operation)
    }

    /// From now on it shields, unless the lease has ended since it began: then dropping it ends it, too.
    fn shield(&mut self) -> Result<(), LeaseError<H>> {
        let mut state = self.hold.state();
        if let Some(loss) = state.lost {
            return Err(LeaseError::Lost(loss));
        }
        state.shields += 1;
        self.shields = true;
        Ok(())
    }

    /// Before its end is sent: from then on it may have ended.
    fn unshield(&mut self) {
        if core::mem::take(&mut self.shields) {
            self.hold.unshield();
        }
    }

    fn over(&self) {
        let mut state = self.hold.state();
        state.operations = state.operations.saturating_sub(1);
        drop(state);
        if let Some(watch) = self.hold.front().watch.get() {
            watch.over(&self.hold, self.id);
        }
    }

    /// Returns whether this operation counts as the one that made the lease.
    #[must_use]
    pub const fn provenance(&self) -> Provenance {
        self.from
    }

    /// Returns its random id.
    #[must_use]
    pub const fn id(&self) -> OpId {
        self.id
    }

    /// Returns the token, for the [`FenceGate`] at the resource.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.at.token
    }

    /// Shows the token to the gate at the resource, and tells telemetry where it is turned away.
    ///
    /// # Errors
    ///
    /// As [`FenceGate::enter`].
    pub fn enter(&self, gate: &mut FenceGate) -> Result<(), Fenced> {
        self.hold.enter(gate)
    }

    /// Says why it fails, or what it was for. The words go into the receipt of its end and decide nothing.
    pub fn because(mut self, why: &str) -> Self {
        self.cause = Some(why.into());
        self
    }

    /// Ends it well.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease was lost meanwhile: the work was done, and may have been done beside
    /// a successor's. Else what the authority says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the same end is sent again; the second one finds nothing.
    pub fn end(self) -> impl Future<Output = Result<Change, LeaseError<H>>> + Send {
        self.finish(Ok(()))
    }

    /// Ends it as failed, and says of what effect.
    ///
    /// If this operation made the lease, nobody joined, and nothing is left behind, the lease goes with it,
    /// and all its guards are lost. Where no answer says whether it went, it is undecided until it is
    /// [read back](crate::LeaseGuard::read_back).
    ///
    /// # Errors
    ///
    /// As [`end`](Self::end).
    ///
    /// # Cancel safety
    ///
    /// As [`end`](Self::end).
    pub fn fail(
        self,
        disposition: Disposition,
    ) -> impl Future<Output = Result<Change, LeaseError<H>>> + Send {
        let claim = |kind: OperationKind| kind.claim(Some(disposition)).disposition;
        let counted = self.kind.map_or(disposition, claim);
        self.finish(Err(counted))
    }

    /// From here on it is said how it ended, also if the future is dropped before its first poll.
    fn finish(
        mut self,
        result: Result<(), Disposition>,
    ) -> impl Future<Output = Result<Change, LeaseError<H>>> + Send {
        self.stage = Stage::Ending(result);
        self.taint(result);
        self.send(result)
    }

    async fn send(mut self, result: Result<(), Disposition>) -> Result<Change, LeaseError<H>> {
        let (at, op) = (self.hold.at, self.id);
        let note = self.note(result);
        self.unshield();
        let answer = self.hold.ask(Action::End { at, op, result }, note).await;
        if matches!(answer, Err(LeaseError::Authority(_))) {
            // Not known to be over: dropping it sends the end again.
            return answer;
        }
        self.stage = Stage::Over;
        self.over();
        answer
    }

    /// What is said about its end, if anybody has given words.
    fn note(&self, result: Result<(), Disposition>) -> Option<Note> {
        let how = if result.is_ok() { "done" } else { "failed" };
        let why = self.cause.as_deref();
        (self.kind.is_some() || why.is_some()).then(|| self.words(why.unwrap_or(how)))
    }

    fn words(&self, why: &str) -> Note {
        Note::new(self.kind.map_or("operation", OperationKind::name), why)
    }

    fn taint(&self, result: Result<(), Disposition>) {
        if result == Err(Disposition::Unknown) {
            self.hold.state().tainted = true;
        }
    }

    /// Whether the lease may go with an end like this, and a guard would not know. Where there are two, or another
    /// operation has left something half done, somebody has joined.
    fn may_take_along(&self, result: Result<(), Disposition>) -> bool {
        let nothing_left = matches!(
            result,
            Err(Disposition::PreMutation | Disposition::RolledBack)
        );
        let may_go = nothing_left && self.from == Provenance::Created;
        may_go && self.hold.seat.guards() == 1 && !self.hold.state().tainted
    }

    /// Runs `work` as this operation: success ends it well, an error is a failure of unknown effect.
    ///
    /// # Errors
    ///
    /// [`RunError::Failed`] with the error of the work, [`RunError::NotEnded`] with what came of the work.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the work is dropped and the operation ends as a failure of unknown effect.
    pub async fn run<T, E>(
        self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RunError<T, E, H>> {
        self.run_with(work, |_error| Disposition::Unknown).await
    }

    /// Runs `work` as this operation: success ends it well, and `judge` says of what effect an error is.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_with<T, E>(
        self,
        work: impl Future<Output = Result<T, E>>,
        judge: impl FnOnce(&E) -> Disposition,
    ) -> Result<T, RunError<T, E, H>> {
        let result = work.await;
        let ended = match &result {
            Ok(_) => self.end().await,
            Err(error) => self.fail(judge(error)).await,
        };
        match (ended, result) {
            (Ok(_), Ok(value)) => Ok(value),
            (Ok(_), Err(error)) => Err(RunError::Failed(error)),
            (Err(error), result) => Err(RunError::NotEnded { result, error }),
        }
    }
}

impl<H: Holder> Drop for Operation<H> {
    fn drop(&mut self) {
        let (result, note) = match self.stage {
            Stage::Over => return,
            Stage::Beginning => (Ok(()), None),
            Stage::Flying => {
                let panics = std::thread::panicking();
                let how = if panics { "panic" } else { "dropped" };
                (Err(Disposition::Unknown), Some(self.words(how)))
            }
            Stage::Ending(result) => (result, self.note(result)),
        };
        self.taint(result);
        self.unshield();
        let (at, op) = (self.hold.at, self.id);
        let end = self.hold.call(Action::End { at, op, result });
        let authority = &self.hold.front().authority;
        apart(|| authority.call_detached_from_front(end, note));
        if self.may_take_along(result) {
            self.hold.doubt();
        }
        self.over();
    }
}

impl<H: Holder> fmt::Debug for Operation<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("resource", &self.hold.key)
            .field("from", &self.from)
            .field("kind", &self.kind)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
