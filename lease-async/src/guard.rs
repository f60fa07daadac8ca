//! A held lease, as its holder has it in hand.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;
use std::sync::Arc;

use lease_core::{
    Action, By, Change, Code, FenceGate, Fenced, FencingToken, Holder, OperationKind, Provenance,
    ResourceKey, SessionHolder,
};
use tokio_util::sync::CancellationToken;

use crate::caught::apart;
use crate::error::{LeaseError, ReleaseError};
use crate::hold::Hold;
use crate::operation::Operation;
use crate::relayed::relayed;
use crate::standing::{Loss, Standing};
use crate::table::Left;
use crate::telemetry;

/// A held lease. Owned: it may move between tasks and threads.
///
/// The guard is not the truth: the authority may have ended the lease. Every use says so.
///
/// # Drop
///
/// Guards of one lease of one session share it: the lease goes with the last of them. It does not go then if
/// an operation is in flight, or one ended with unknown effect: what was begun must not be unlocked half
/// done, so the lease is left to its term or to the disconnect. Nor does it go if it is [kept](Self::keep).
#[must_use = "dropping the last guard releases the lease"]
pub struct LeaseGuard<H: Holder = SessionHolder> {
    hold: Arc<Hold<H>>,
    /// One of `stage`. One small number beside one pointer is moved as two, not as a piece of memory.
    stage: AtomicU8,
}

/// How far a guard is in its life.
mod stage {
    /// The acquire of this guard made the lease, and no operation has claimed that yet.
    pub(super) const CREATED: u8 = 0;
    /// It shares what was made before.
    pub(super) const SHARES: u8 = 1;
    /// Nothing is to be done when it is dropped.
    pub(super) const GONE: u8 = 2;
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Released {
    /// The lease ended.
    Lease(Change),
    /// One guard fewer; the lease stays.
    Depth {
        /// How many guards are left.
        left: usize,
    },
}

impl Released {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Lease(change) => change.code,
            Self::Depth { .. } => Code::DepthReleased,
        }
    }
}

impl<H: Holder> LeaseGuard<H> {
    pub(crate) const fn new(hold: Arc<Hold<H>>, created: bool) -> Self {
        let stage = if created {
            stage::CREATED
        } else {
            stage::SHARES
        };
        Self {
            hold,
            stage: AtomicU8::new(stage),
        }
    }

    pub(crate) const fn hold(&self) -> &Arc<Hold<H>> {
        &self.hold
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

    /// Returns what is held.
    #[must_use]
    pub fn resource(&self) -> &ResourceKey {
        &self.hold.key
    }

    /// Returns whether the acquire of this guard made the lease, until an operation has claimed that.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        if self.stage.load(Ordering::Relaxed) == stage::CREATED {
            Provenance::Created
        } else {
            Provenance::Reentrant
        }
    }

    /// Says how the lease stands now, by the clock and by what the authority told.
    ///
    /// Lost comes strictly before anybody else can be granted, as far as a term is concerned; what others
    /// decide is told as soon as it happens.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.hold.standing()
    }

    /// Shows progress: the term starts anew.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] and what the authority says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the touch may have happened.
    pub async fn touch(&self) -> Result<Change, LeaseError<H>> {
        self.hold.usable()?;
        self.hold.ask(Action::Touch(self.hold.at), None).await
    }

    /// Renews, with an explicit term where the policy lets the request name it.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] and what the authority says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the renewal may have happened.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<Change, LeaseError<H>> {
        self.hold.usable()?;
        let at = self.hold.at;
        self.hold.ask(Action::Renew { at, ttl }, None).await
    }

    /// Reads back what became of an attempt that the authority left undecided.
    ///
    /// Until then the guard blocks what is to be written under it: `begin`, `touch`, `renew` and `ensure` fail
    /// with [`Undecided`](crate::AuthorityError::Undecided), and the lease is in jeopardy. Where nothing is undecided
    /// it only asks whether the lease is still there.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if it is not, and what the authority says, which may be that it still does not know.
    ///
    /// # Cancel safety
    ///
    /// Dropped, what was undecided stays so.
    pub async fn read_back(&self) -> Result<(), LeaseError<H>> {
        self.hold.not_lost()?;
        let check = Action::Check(By::Token(self.hold.at));
        self.hold.ask(check, None).await?;
        Ok(())
    }

    /// Makes sure that the lease holds for `remaining` more, renewing it if it must be.
    ///
    /// To be called before each write that begins no operation. It looks at the clock, so it notices what
    /// a blocked executor has slept through.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`], [`LeaseError::TermTooShort`], and what the authority says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the renewal may have happened.
    pub async fn ensure(&self, remaining: Duration) -> Result<(), LeaseError<H>> {
        self.hold.usable()?;
        if self.hold.lasts(remaining) {
            return Ok(());
        }
        self.touch().await?;
        self.hold.usable()?;
        if self.hold.lasts(remaining) {
            Ok(())
        } else {
            Err(LeaseError::TermTooShort)
        }
    }

    /// Puts an operation of arbitrary code in flight. While it is, the term ends nothing.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] and what the authority says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, an operation that had begun is ended as one that changed nothing.
    pub async fn begin(&self) -> Result<Operation<H>, LeaseError<H>> {
        self.start(None).await
    }

    /// Puts an operation of this kind in flight. What its failure may claim depends on the kind.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    ///
    /// As [`begin`](Self::begin).
    pub async fn begin_kind(&self, kind: OperationKind) -> Result<Operation<H>, LeaseError<H>> {
        self.start(Some(kind)).await
    }

    async fn start(&self, kind: Option<OperationKind>) -> Result<Operation<H>, LeaseError<H>> {
        self.hold.usable()?;
        let from = if self.stage.swap(stage::SHARES, Ordering::Relaxed) == stage::CREATED {
            Provenance::Created
        } else {
            Provenance::Reentrant
        };
        Operation::begin(&self.hold, from, kind).await
    }

    /// Waits until the lease is lost, and says why.
    ///
    /// # Cancel safety
    ///
    /// Dropping it changes nothing.
    pub async fn lost(&self) -> Loss {
        relayed(self.hold.token().cancelled()).await;
        match self.hold.standing() {
            Standing::Lost(loss) => loss,
            // Only a loss cancels this token: what callers have are children of it.
            Standing::Safe | Standing::Jeopardy => Loss::Stale,
        }
    }

    /// Returns a token that is cancelled when the lease is lost, also by its release.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.hold.token().child_token()
    }

    /// Leaves the lease held until the session ends, though its guards go. A later guard of it can still
    /// [`release`](Self::release) it.
    pub fn keep(self) {
        self.hold.state().kept = true;
    }

    /// Gives the lease back, or one guard of it if there are others.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] with the guard: while an operation is in flight, or when the authority gave no
    /// answer. A lost lease cannot be released; the guard comes back all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lease is released as by dropping the guard. One that outlives that is undecided until it is
    /// [read back](Self::read_back).
    pub async fn release(mut self) -> Result<Released, ReleaseError<H>> {
        let hold = Arc::clone(&self.hold);
        let table = &hold.front().table;
        if let Err(error) = hold.not_lost() {
            return Err(ReleaseError { error, guard: self });
        }
        if let Err(left) = table.begin_release(&hold) {
            *self.stage.get_mut() = stage::GONE;
            telemetry::left(&hold);
            return Ok(Released::Depth { left });
        }
        let mut sent = Sent(Some(&hold));
        let answer = hold.ask(Action::Release(By::Token(hold.at)), None).await;
        sent.0 = None;
        table.settle(&hold, answer.is_ok());
        match answer {
            Ok(change) => {
                *self.stage.get_mut() = stage::GONE;
                Ok(Released::Lease(change))
            }
            Err(error) => Err(ReleaseError { error, guard: self }),
        }
    }
}

/// A release on its way. Dropped, nobody hears what became of it: where the lease does not go with its guard, since it
/// is kept or something was left half done, it may have gone all the same.
struct Sent<'a, H: Holder>(Option<&'a Hold<H>>);

impl<H: Holder> Drop for Sent<'_, H> {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.doubt();
        }
    }
}

impl<H: Holder> Drop for LeaseGuard<H> {
    fn drop(&mut self) {
        if *self.stage.get_mut() == stage::GONE {
            return;
        }
        let front = self.hold.front();
        match front.table.leave(&self.hold) {
            Left::Stays => {}
            Left::Release(releasing) => {
                let (key, at) = (&self.hold.key, self.hold.at);
                let release = || apart(|| front.authority.release_from_front(key, at));
                if telemetry::is_off() {
                    release();
                } else {
                    telemetry::dropped(&self.hold, release);
                }
                // Whoever asked meanwhile asks again, and that is decided after the release.
                drop(releasing);
            }
        }
    }
}

impl<H: Holder> fmt::Debug for LeaseGuard<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard")
            .field("resource", &self.hold.key)
            .field("holder", self.hold.holder())
            .field("generation", &self.token().generation)
            .finish_non_exhaustive()
    }
}
