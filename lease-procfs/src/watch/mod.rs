//! Watches processes until they end: one by a kept pidfd, many by one epoll.

use std::io;

use lease_core::Evidence;

#[cfg(target_os = "linux")]
mod deaths;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod kept;

#[cfg(target_os = "linux")]
pub use deaths::{Death, DeathWatch};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Death, DeathWatch, KeptProcess};
#[cfg(target_os = "linux")]
pub use kept::KeptProcess;

/// What was found of a process that somebody wants to watch.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a process that is gone already is never reported again"]
#[expect(
    clippy::exhaustive_enums,
    reason = "callers must decide both; there is no third"
)]
pub enum Found<T> {
    /// It runs, and this is what watches it.
    Running(T),
    /// It is gone, with the proof. Nothing was kept.
    Gone(Evidence),
}

/// Names one watch of one [`DeathWatch`], which never gives it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(crate) u64);

/// Why a process is not watched, or a watch cannot be asked.
///
/// State: nothing was changed, and nothing is watched that was not before. Retry: as each variant
/// says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// No descriptor or memory is left to watch with: `EMFILE`, `ENFILE` or `ENOMEM`. Retry: after
    /// something was closed.
    #[error("no file descriptor or memory is left to watch with")]
    Exhausted {
        /// Which of them.
        #[source]
        source: io::Error,
    },
    /// The kernel refused something else. Retry: after the cause is gone.
    #[error("the kernel refused to watch")]
    Failed {
        /// With what words.
        #[source]
        source: io::Error,
    },
    /// As many processes are watched as one watch takes. Retry: after one was forgotten or died.
    #[error("{most} processes are watched already")]
    Full {
        /// How many.
        most: usize,
    },
    /// A parent process made this watch, and it is the parent's. Retry: with a watch of one's own.
    #[error("the watch belongs to a parent process")]
    Inherited,
    /// Whether the process runs cannot be seen from here. Retry: as its verdict says.
    #[error("the process cannot be seen: {}", evidence.proof)]
    Unseen {
        /// What stands in the way.
        evidence: Evidence,
    },
    /// This kernel has no pidfds, or something here forbids them. Retry: never.
    #[error("processes cannot be watched on this system")]
    Unsupported,
}

#[cfg(target_os = "linux")]
impl WatchError {
    pub(crate) fn of(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;

        let source = errno.into();
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted { source },
            Errno::NOSYS => Self::Unsupported,
            _ => Self::Failed { source },
        }
    }
}
