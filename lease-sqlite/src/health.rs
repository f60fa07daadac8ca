//! What is told about a lock: numbered events, one incident per long foreign hold, and a view of it all.
//!
//! Nothing here moves a lock. Observers run outside every lock of this crate, and one that panics is
//! passed over.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{BusyReason, Code};
use lease_procfs::Pid;

use crate::busy::{Adopted, Signed};
use crate::forbid::Blocking;
use crate::hold::Granted;
use crate::record::LastWriter;
use crate::sweep::Swept;
use crate::token::HoldToken;

/// Something that happened at a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEvent {
    /// Counts the events of one [`WriteLock`](crate::WriteLock) from 1.
    pub number: u64,
    /// What.
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// The lock was taken, or entered again.
    Acquired(Granted),
    /// The record at the path was made our own, on the way to the grant that is told of next.
    RecordAdopted(Adopted),
    /// A dead claim of protocol 1 was removed, and the grant is told of next.
    LegacyClaimReaped(Box<LastWriter>),
    /// The mutex had to be opened anew, and the grant is told of next.
    MutexReopened {
        /// How often.
        times: u32,
    },
    /// An entry ended and others are left.
    DepthReleased {
        /// How many.
        depth: u32,
    },
    /// The hold ended.
    Released {
        /// Which.
        token: HoldToken,
        /// How long it lasted.
        held_for: Duration,
    },
    /// The last lock of a path went during a hold, which keeps the files open.
    HandleKept {
        /// How many entries there are.
        depth: u32,
    },
    /// Another process has held for long.
    ForeignHold(Box<Incident>),
    /// A hold took longer than its budget. It was not ended.
    HoldBudget {
        /// The budget.
        budget: Duration,
        /// How long it lasted, without the time in which the budget was suspended.
        held_for: Duration,
        /// For how long the budget was suspended.
        suspended_for: Duration,
    },
    /// A sweep removed the record of a process that is gone.
    Swept {
        /// Which process.
        pid: Pid,
    },
}

impl LockEvent {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match &self.what {
            Happening::Acquired(granted) if granted.depth > 1 => Code::Reentrant,
            Happening::Acquired(_) => Code::LockAcquired,
            Happening::RecordAdopted(_) => Code::RecordAdopted,
            Happening::LegacyClaimReaped(_) => Code::LegacyClaimReaped,
            Happening::MutexReopened { .. } => Code::MutexReopened,
            Happening::DepthReleased { .. } => Code::DepthReleased,
            Happening::Released { .. } => Code::Released,
            Happening::HandleKept { .. } => Code::HandleKept,
            Happening::ForeignHold(_) => Code::ForeignHold,
            Happening::HoldBudget { .. } => Code::HoldBudget,
            Happening::Swept { .. } => Code::BootSweep,
        }
    }
}

/// A hold of another process that is long, seen twice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident {
    /// Who holds.
    pub holder: LastWriter,
    /// How old the hold is, by its own stamp and the wall clock here: a report, never a ground.
    pub age_ms: i64,
    /// From which age on it is told.
    pub threshold_ms: i64,
    /// What is in the way.
    pub reason: BusyReason,
}

/// What is known of a lock. Reading it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How many long foreign holds this process has told of at this path.
    pub incidents: u64,
    /// The last one.
    pub last_incident: Option<Box<Incident>>,
    /// Who held last. That is a name plate: it does not say that anybody holds.
    pub last_writer: Option<LastWriter>,
    /// The last event of this lock.
    pub last_event: Option<LockEvent>,
    /// How many locks of this path are open in this process.
    pub locks: usize,
    /// How many entries the present hold of this process has; 0 if it does not hold.
    pub depth: u32,
    /// Who waited, or wanted to wait, where that is forbidden; of this process, at whatever lock.
    pub blocking: Blocking,
}

/// Told of every event.
type Observer = Arc<dyn Fn(&LockEvent) + Send + Sync>;

/// The events of one lock.
#[derive(Default)]
pub(crate) struct Events {
    last: Mutex<(u64, Option<LockEvent>)>,
    observer: Option<Observer>,
}

impl Events {
    pub(crate) fn new(observer: Option<Observer>) -> Self {
        Self {
            last: Mutex::default(),
            observer,
        }
    }

    /// Numbers from 1 again, for the same observer.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.observer.clone())
    }

    pub(crate) fn tell(&self, what: Happening) {
        let mut last = self.last();
        let number = last.0.saturating_add(1);
        let event = LockEvent { number, what };
        let told = self
            .observer
            .as_ref()
            .map(|observer| (observer, event.clone()));
        *last = (number, Some(event));
        drop(last);
        if let Some((observer, event)) = told {
            // What an observer breaks is its own.
            let _panicked = catch_unwind(AssertUnwindSafe(|| observer(&event)));
        }
    }

    pub(crate) fn last_event(&self) -> Option<LockEvent> {
        self.last().1.clone()
    }

    pub(crate) fn tell_sweep(&self, swept: &Swept) {
        if let Swept::Removed(pid) = swept {
            self.tell(Happening::Swept { pid: *pid });
        }
    }

    fn last(&self) -> MutexGuard<'_, (u64, Option<LockEvent>)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The long foreign holds of one path, as this process saw them.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    pub(crate) count: u64,
    pub(crate) last: Option<Box<Incident>>,
    told: Option<Signed>,
}

impl Incidents {
    /// Tells of a confirmed foreign hold once, when it is at least as old as the threshold.
    pub(crate) fn look(
        &mut self,
        holder: &LastWriter,
        reason: BusyReason,
        wall_ms: i64,
        threshold: Duration,
    ) -> Option<Box<Incident>> {
        let age_ms = wall_ms.saturating_sub(holder.acquired_at_ms?);
        let threshold_ms = i64::try_from(threshold.as_millis()).unwrap_or(i64::MAX);
        let signed = Signed::of(holder);
        if age_ms < threshold_ms || self.told.as_ref() == Some(&signed) {
            return None;
        }
        let incident = Box::new(Incident {
            holder: holder.clone(),
            age_ms,
            threshold_ms,
            reason,
        });
        self.told = Some(signed);
        self.count = self.count.saturating_add(1);
        self.last = Some(incident.clone());
        Some(incident)
    }
}
