//! One process, watched by a pidfd that is kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;

use lease_core::{Evidence, Locality, Verdict};

use super::{Found, WatchError};
use crate::facts::{Facts, Grain, Lookup, Occupancy};
use crate::identity::ProcessIdentity;
use crate::linux as system;
use crate::probe::placed;
use crate::procfs::ProcFs;
use crate::proof::Proof;
use crate::sys;
use crate::verdict::{may_probe, verdict};

/// A process that was seen running, with a pidfd that is its own whoever gets its number later.
///
/// A verdict is one system call. It takes one file descriptor, closed on `exec` and when this is
/// dropped. A forked child may ask its copy: it means the same process.
#[derive(Debug)]
pub struct KeptProcess {
    process: ProcessIdentity,
    pidfd: OwnedFd,
    /// What an unfinished process is proven by: the grain of its identity.
    running: Proof,
}

impl KeptProcess {
    /// Looks the process up and keeps what was opened for it.
    ///
    /// The identity is compared after the opening, and the process is seen running after that, so a
    /// later owner of its number is never kept in its place.
    ///
    /// # Errors
    ///
    /// [`WatchError::Exhausted`], [`WatchError::Unseen`] where the verdict would be unknown, and
    /// [`WatchError::Unsupported`].
    pub fn open(
        proc: &ProcFs,
        process: &ProcessIdentity,
        locality: Locality,
    ) -> Result<Found<Self>, WatchError> {
        let mut facts = placed(proc, process, locality);
        facts.occupancy = Occupancy::NotAsked;
        let opened = may_probe(&facts).then(|| system::look_and_keep(&mut facts, proc, process));
        match (verdict(&facts), opened) {
            (Verdict::Alive(_), Some(Ok(pidfd))) => Ok(Found::Running(Self {
                process: *process,
                pidfd,
                running: running(&facts),
            })),
            (Verdict::Dead(evidence), _) => Ok(Found::Gone(evidence)),
            (_, Some(Err(errno))) if unavailable(&facts) => Err(WatchError::of(errno)),
            (verdict, _) => Err(WatchError::Unseen {
                evidence: verdict.evidence().clone(),
            }),
        }
    }

    /// Returns what was asked for.
    #[must_use]
    pub const fn process(&self) -> &ProcessIdentity {
        &self.process
    }

    /// Judges the process by one system call; what else is left of its work is not looked at.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let evidence = |proof: Proof| Evidence::new(proof.as_str());
        match sys::has_exited(self.pidfd.as_fd()) {
            Ok(false) => Verdict::Alive(evidence(self.running)),
            Ok(true) => Verdict::Dead(evidence(Proof::Exited)),
            Err(_) => Verdict::Unknown(evidence(Proof::LookupFailed)),
        }
    }

    /// Tells how the process ended, where the kernel says so.
    ///
    /// To its parent the kernel says it as soon as the process has exited, to anybody else once it
    /// was reaped (Linux 6.15); `None` until then. Nothing is reaped.
    #[must_use]
    pub fn ending(&self) -> Option<ExitStatus> {
        sys::ending(self.pidfd.as_fd())
    }
}

impl AsFd for KeptProcess {
    /// Becomes readable when the process has exited, for good.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

const fn running(facts: &Facts) -> Proof {
    match facts.grain {
        Grain::Inode => Proof::Running,
        Grain::Ticks => Proof::RunningByStartTicks,
    }
}

/// Tells whether only the pidfd was missing.
const fn unavailable(facts: &Facts) -> bool {
    matches!(facts.lookup, Lookup::Exhausted | Lookup::Unavailable)
}
