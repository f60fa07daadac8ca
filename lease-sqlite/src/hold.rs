//! A hold, and the lanes within which it may be entered again.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::busy::Adopted;
use crate::clock::Timing;
use crate::error::{AcquireError, Lost, ReleaseError};
use crate::health::{Events, Happening};
use crate::lock::Shared;
use crate::record::LastWriter;
use crate::state::Left;
use crate::token::HoldToken;

/// Who may enter a hold again without waiting: a thread, unless a lane is passed on explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane(u64);

impl Lane {
    /// Makes a lane that nobody else has; a clone of it is the same lane.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the lane of this thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        thread_local! {
            static OWN: Cell<u64> = const { Cell::new(0) };
        }
        OWN.with(|own| {
            if own.get() == 0 {
                own.set(Self::new().0);
            }
            Self(own.get())
        })
    }

    pub(crate) const fn number(&self) -> u64 {
        self.0
    }
}

/// How a hold was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Names the hold in the record. The same for every entry into it.
    pub token: HoldToken,
    /// How many entries there are, this one included.
    pub depth: u32,
    /// How long was waited; 0 for a re-entry.
    pub waited: Duration,
    /// Whether somebody was in the way at first.
    pub contended: bool,
    /// The record that was made our own, if that was needed.
    pub adopted: Option<Adopted>,
    /// The dead claim of protocol 1 that was removed.
    pub reaped: Option<Box<LastWriter>>,
    /// How often the mutex had to be opened anew.
    pub reopened: u32,
}

/// What the end of an entry did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "an entry ends in one of these ways"
)]
pub enum Released {
    /// The kernel lock is free.
    Lock,
    /// Others of the same lane are still inside.
    Depth(u32),
    /// This is a forked child; the hold is its parent's and was left alone.
    Inherited,
}

/// The right to write, and the proof of it. It may go to other threads; who may enter it without it is said by
/// its [`Lane`], which stays the same.
///
/// # Drop
///
/// Ends this entry, and with the last one the hold; what [`release`](Self::release) would report is
/// lost. In a forked child it does nothing.
#[derive(Debug)]
#[must_use = "dropping it gives the lock back"]
pub struct Hold {
    shared: Arc<Shared>,
    /// Which hold of the path it is an entry into.
    number: u64,
    granted: Granted,
    telling: Telling,
    is_over: bool,
}

/// What a hold needs to tell of itself.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    pub(crate) timing: Arc<dyn Timing>,
    pub(crate) events: Arc<Events>,
    pub(crate) budget: Option<Duration>,
}

impl Hold {
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: u64,
        granted: Granted,
        telling: Telling,
    ) -> Self {
        if granted.reopened > 0 {
            let times = granted.reopened;
            telling.events.tell(Happening::MutexReopened { times });
        }
        if let Some(claim) = &granted.reaped {
            let claim = claim.clone();
            telling.events.tell(Happening::LegacyClaimReaped(claim));
        }
        if let Some(adopted) = granted.adopted {
            telling.events.tell(Happening::RecordAdopted(adopted));
        }
        telling.events.tell(Happening::Acquired(granted.clone()));
        Self {
            shared,
            number,
            granted,
            telling,
            is_over: false,
        }
    }

    /// Returns how it was granted.
    #[must_use]
    pub const fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Enters again, from whatever thread or task: this hold is the proof. No system call.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Forked`] in a forked child.
    pub fn again(&self) -> Result<Self, AcquireError> {
        self.shared.check_image()?;
        let mut state = self.shared.state();
        let depth = state.enter(self.number);
        drop(state);
        let granted = Granted {
            depth,
            waited: Duration::ZERO,
            contended: false,
            adopted: None,
            reaped: None,
            reopened: 0,
            ..self.granted.clone()
        };
        let telling = self.telling.clone();
        Ok(Self::new(
            Arc::clone(&self.shared),
            self.number,
            granted,
            telling,
        ))
    }

    /// Looks whether this hold still keeps others out. For the moment before a write that must not
    /// meet another: three system calls.
    ///
    /// # Errors
    ///
    /// [`Lost`] says why it does not, or that it cannot be seen.
    pub fn check(&self) -> Result<(), Lost> {
        if self.shared.check_image().is_err() {
            return Err(Lost::Forked);
        }
        let state = self.shared.state();
        let Some(mutex) = state.mutex() else {
            return Err(Lost::Unlocked);
        };
        let unseen = |source| Lost::Unseen { source };
        if mutex.has_moved().map_err(unseen)? {
            return Err(Lost::Moved);
        }
        match mutex.is_locked() {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(Lost::Unlocked),
            Some(Err(source)) => Err(unseen(source)),
            None => Err(unseen(io::ErrorKind::NotFound.into())),
        }
    }

    /// Ends this entry, and with the last one the hold.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`]: the lock is free all the same.
    pub fn release(mut self) -> Result<Released, ReleaseError> {
        self.is_over = true;
        self.leave()
    }

    /// Suspends the budget of this hold until the pause is dropped: for work whose length is not the
    /// holder's, such as a backup.
    pub fn pause_budget(&self) -> BudgetPause<'_> {
        if self.shared.check_image().is_ok() {
            let now = self.telling.timing.now();
            self.shared.state().pause(self.number, now);
        }
        BudgetPause { hold: self }
    }

    fn leave(&self) -> Result<Released, ReleaseError> {
        if self.shared.check_image().is_err() {
            return Ok(Released::Inherited);
        }
        let now = self.telling.timing.now();
        let left = self.shared.state().leave(self.number, now);
        self.tell(&left);
        match left.outcome {
            Ok(()) if left.depth > 0 => Ok(Released::Depth(left.depth)),
            Ok(()) => Ok(Released::Lock),
            Err((step, source)) => Err(ReleaseError {
                lock_path: self.shared.paths.record.clone(),
                step,
                source,
            }),
        }
    }

    fn tell(&self, left: &Left) {
        let events = &self.telling.events;
        if left.depth > 0 {
            events.tell(Happening::DepthReleased { depth: left.depth });
            return;
        }
        events.tell(Happening::Released {
            token: self.granted.token,
            held_for: left.held_for,
        });
        let held_for = left.held_for.saturating_sub(left.suspended_for);
        if let Some(budget) = self.telling.budget.filter(|budget| held_for > *budget) {
            events.tell(Happening::HoldBudget {
                budget,
                held_for,
                suspended_for: left.suspended_for,
            });
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_over {
            // Nobody is left to be told; the lock is free in every case.
            let _outcome = self.leave();
        }
    }
}

/// The budget of a hold is suspended while this lives.
#[derive(Debug)]
#[must_use = "dropping it ends the pause"]
pub struct BudgetPause<'a> {
    hold: &'a Hold,
}

impl Drop for BudgetPause<'_> {
    fn drop(&mut self) {
        let hold = self.hold;
        if hold.shared.check_image().is_ok() {
            let now = hold.telling.timing.now();
            hold.shared.state().resume(hold.number, now);
        }
    }
}
