//! What a process knows of itself: read once, and again in a forked child.

use crate::facts::{Boot, Facts, Trust, View};
use crate::id::{BootId, BootIdError, LaunchId, Namespace, Pid, Sameness};
use crate::identity::ProcessIdentity;

/// The side of the reader in every comparison.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// The launch at the time of reading. Another one now means that this is a forked child, whose
    /// namespaces may be others.
    pub(crate) launch: Option<LaunchId>,
    pub(crate) pid: Option<Pid>,
    pub(crate) boot_id: Result<BootId, NoBootId>,
    pub(crate) boot_trusted: bool,
    pub(crate) view: View,
    pub(crate) pid_namespace: OwnNamespace,
    pub(crate) time_namespace: OwnNamespace,
}

impl LaunchId {
    /// Returns the launch of this program image, and makes it at the first call after start or fork.
    ///
    /// Whoever keeps what a forked child must not touch keeps this beside it: another one now means
    /// that this is such a child, however it was forked. A few loads after the first call, so that it
    /// may be asked for every time. A child that shares our memory (`vfork`) shows ours.
    ///
    /// `None` where the kernel gives no memory that it wipes in a child, or no random numbers.
    #[must_use]
    pub fn current() -> Option<Self> {
        crate::sys::launch()
    }
}

/// Why there is no present boot id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoBootId {
    /// Its file could not be read, with this error number.
    Unread(i32),
    /// Its file holds something else.
    Malformed(BootIdError),
}

/// A namespace of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnNamespace {
    Known(Namespace),
    /// The kernel has no such kind.
    Absent,
    Unreadable,
}

impl Own {
    /// Tells whether all of it was seen and nothing is in doubt.
    pub(crate) const fn is_known(&self) -> bool {
        self.boot_id.is_ok()
            && self.boot_trusted
            && matches!(self.view, View::Ours)
            && !matches!(self.pid_namespace, OwnNamespace::Unreadable)
            && !matches!(self.time_namespace, OwnNamespace::Unreadable)
    }

    /// Compares where a record comes from with where it is read.
    pub(crate) fn place(&self, process: &ProcessIdentity) -> Facts {
        let mut facts = Facts {
            view: self.view,
            ..Facts::default()
        };
        facts.boot = match self.boot_id {
            Ok(present) if present == process.boot_id => Boot::Same,
            Ok(_) => Boot::Other,
            Err(_) => Boot::Unreadable,
        };
        facts.trust = match (self.boot_trusted, process.boot_trusted) {
            (true, true) => Trust::Both,
            (true, false) => Trust::OursOnly,
            (false, true) => Trust::RecordOnly,
            (false, false) => Trust::Neither,
        };
        facts.pid_namespace = self.pid_namespace.compare(process.pid_namespace);
        facts.time_namespace = self.time_namespace.compare(process.time_namespace);
        facts
    }
}

impl OwnNamespace {
    /// Returns what goes into a record.
    pub(crate) const fn recorded(self) -> Option<Namespace> {
        match self {
            Self::Known(namespace) => Some(namespace),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// Compares with a record of the same boot.
    pub(crate) fn compare(self, recorded: Option<Namespace>) -> Sameness {
        match (self, recorded) {
            (Self::Known(ours), Some(theirs)) => ours.compare(theirs),
            // One kernel, and it has only one.
            (Self::Absent, None) => Sameness::Same,
            (Self::Known(_) | Self::Unreadable, None)
            | (Self::Absent | Self::Unreadable, Some(_)) => Sameness::Undecided,
        }
    }
}
