//! Systems without pidfd: nothing can be watched, so nothing of this can be made.

use std::convert::Infallible;
use std::process::ExitStatus;
use std::time::Duration;

use lease_core::{Locality, Verdict};

use super::{Found, WatchError, WatchId};
use crate::identity::ProcessIdentity;
use crate::procfs::ProcFs;

/// A process that was seen running. There is none on this system.
#[derive(Debug)]
pub struct KeptProcess(Infallible);

/// Watches processes for their end. There is none on this system.
#[derive(Debug)]
pub struct DeathWatch(Infallible);

/// A process that has ended. There is none on this system.
#[derive(Debug)]
pub struct Death(Infallible);

impl KeptProcess {
    /// Keeps nothing.
    ///
    /// # Errors
    ///
    /// [`WatchError::Unsupported`], always.
    pub const fn open(
        _proc: &ProcFs,
        _process: &ProcessIdentity,
        _locality: Locality,
    ) -> Result<Found<Self>, WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Returns what was asked for.
    #[must_use]
    pub const fn process(&self) -> &ProcessIdentity {
        match self.0 {}
    }

    /// Judges the process.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.0 {}
    }

    /// Tells how the process ended.
    #[must_use]
    pub const fn ending(&self) -> Option<ExitStatus> {
        match self.0 {}
    }
}

impl DeathWatch {
    /// Makes no watch.
    ///
    /// # Errors
    ///
    /// [`WatchError::Unsupported`], always.
    pub const fn new(_proc: &ProcFs) -> Result<Self, WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Watches a process.
    ///
    /// # Errors
    ///
    /// None: there is nothing to call this on.
    pub const fn watch(
        &self,
        _process: &ProcessIdentity,
        _locality: Locality,
    ) -> Result<Found<WatchId>, WatchError> {
        match self.0 {}
    }

    /// Ends one watch.
    pub const fn forget(&self, _id: WatchId) -> bool {
        match self.0 {}
    }

    /// Waits until a process ends.
    ///
    /// # Errors
    ///
    /// None: there is nothing to call this on.
    pub const fn wait(&self, _timeout: Option<Duration>) -> Result<Vec<Death>, WatchError> {
        match self.0 {}
    }

    /// Ends a wait.
    ///
    /// # Errors
    ///
    /// None: there is nothing to call this on.
    pub const fn wake(&self) -> Result<(), WatchError> {
        match self.0 {}
    }

    /// Returns how many processes are watched.
    #[must_use]
    pub const fn watched(&self) -> usize {
        match self.0 {}
    }
}

impl Death {
    /// Returns which watch it ends.
    #[must_use]
    pub const fn id(&self) -> WatchId {
        match self.0 {}
    }

    /// Returns who died.
    #[must_use]
    pub const fn process(&self) -> &ProcessIdentity {
        match self.0 {}
    }

    /// Returns the verdict.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.0 {}
    }

    /// Tells how it ended.
    #[must_use]
    pub const fn ending(&self) -> Option<ExitStatus> {
        match self.0 {}
    }
}
