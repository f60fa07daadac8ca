//! Where processes are looked at, and what the kernel there can do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere as system;
#[cfg(target_os = "linux")]
use crate::linux as system;

#[cfg(target_os = "linux")]
use crate::id::Pid;
#[cfg(target_os = "linux")]
use crate::own::Own;

/// What the running kernel can do.
///
/// Each of these has a fall-back, which the `without_` methods force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// `pidfd_open` (Linux 5.3), and nothing here forbids it.
    pub pidfd: bool,
    /// The pidfd's inode identifies a process for ever (Linux 6.9).
    pub pidfs: bool,
    /// A namespace can be asked for a number of its own (Linux 6.18).
    pub namespace_ids: bool,
}

impl Kernel {
    /// Asks the running kernel, by looking this process up.
    ///
    /// Where no descriptor is left to look with, no pidfd is relied on.
    #[must_use]
    pub fn detect() -> Self {
        system::detect().unwrap_or(Self::UNSEEN)
    }

    /// What is relied on where nobody could look.
    const UNSEEN: Self = Self {
        pidfd: false,
        pidfs: false,
        namespace_ids: cfg!(target_os = "linux"),
    };

    /// Goes without `pidfd_open`, and so without pidfs.
    #[must_use]
    pub const fn without_pidfd(mut self) -> Self {
        self.pidfd = false;
        self.pidfs = false;
        self
    }

    /// Goes without inodes of pidfds.
    #[must_use]
    pub const fn without_pidfs(mut self) -> Self {
        self.pidfs = false;
        self
    }

    /// Goes without numbers of namespaces.
    #[must_use]
    pub const fn without_namespace_ids(mut self) -> Self {
        self.namespace_ids = false;
        self
    }
}

/// A `/proc`, the kernel behind it, and what this process saw of itself there.
///
/// What a process knows of itself (boot id, namespaces) is read once, when this is made, and again
/// in every forked child, and as long as something of it is in doubt; no death and no description rests on it
/// without a second look, but for a process that is restored from a checkpoint on another machine or in another
/// boot: it makes a new one first. A process that moves itself into another time namespace makes a new one: until
/// then it sees the living as they are, and the dead are unknown to it where only ticks can tell. A clone is
/// cheap.
#[derive(Clone, Debug)]
pub struct ProcFs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// `None` where no descriptor was left to look with. Then it is looked at each time.
    kernel: Option<Kernel>,
    #[cfg(target_os = "linux")]
    own: Own,
}

impl ProcFs {
    /// Looks at `/proc`.
    ///
    /// It cannot fail: what could not be read is doubt in every verdict, and refuses descriptions, until
    /// it can be read.
    #[must_use]
    pub fn system() -> Self {
        Self::of("/proc".into(), system::detect())
    }

    /// Looks at a `/proc` that is mounted elsewhere, or goes without something the kernel has.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>, kernel: Kernel) -> Self {
        Self::of(root.into(), Some(kernel))
    }

    fn of(root: PathBuf, kernel: Option<Kernel>) -> Self {
        // Mount points are listed by their real path.
        let root = root.canonicalize().unwrap_or(root);
        Self {
            inner: Arc::new(Inner {
                #[cfg(target_os = "linux")]
                own: system::read_own(&root, kernel.unwrap_or(Kernel::UNSEEN)),
                root,
                kernel,
            }),
        }
    }

    /// Returns where this `/proc` is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Returns what the kernel can do.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.inner.kernel.unwrap_or_else(Kernel::detect)
    }

    /// Hands what this process knows of itself to `use_it`, and reads it anew in a forked child and where
    /// something could not be seen: there may have been no descriptor left.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_own<T>(&self, use_it: impl FnOnce(&Own) -> T) -> T {
        let kept = &self.inner.own;
        let is_ours = kept.launch.is_some() && kept.launch == system::launch_if_made();
        if is_ours && kept.is_known() {
            use_it(kept)
        } else {
            use_it(&self.read_own())
        }
    }

    /// The same, for a description: also anew in a child that shares our memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_present_own<T>(&self, use_it: impl FnOnce(&Own) -> T) -> T {
        if self.is_of_this_process() {
            self.with_own(use_it)
        } else {
            use_it(&self.read_own())
        }
    }

    /// Tells whether what is kept is about this very process. A child that shares our memory finds it
    /// there, as no forked one does.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_of_this_process(&self) -> bool {
        let kept = self.inner.own.pid;
        // The child may be the first process of a namespace, as we may be.
        kept == system::own_pid() && kept != Some(Pid::INIT)
    }

    /// Reads what this process knows of itself anew.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_own(&self) -> Own {
        system::read_own(&self.inner.root, self.kernel())
    }
}
