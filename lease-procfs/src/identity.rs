//! Who a process is.

use crate::id::{BootId, LaunchId, Namespace, Pid, Sameness, StartTicks};

/// Names one process, for ever.
///
/// `==` compares every part. [`matches`](Self::matches) compares what both sides have, which is what
/// tells whether two descriptions mean the same process.
///
/// The number and the ticks are read by somebody, in that reader's namespaces, and those are the
/// ones recorded: the pid namespace in which `pid` is a number and the time namespace in which
/// `start_ticks` are counted. They need not be the described process's own.
///
/// It survives `exec`: same process, other program, and then another `launch`. It does not survive a restore from
/// a checkpoint, which makes another process with the same number, and it tells nothing apart between a virtual
/// machine and its running copy, which count on from the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessIdentity {
    /// The boot it runs in.
    pub boot_id: BootId,
    /// Whether the describer saw that nothing is mounted over the boot id's file.
    pub boot_trusted: bool,
    /// Its number in `pid_namespace`.
    pub pid: Pid,
    /// When it started, as counted in `time_namespace`.
    pub start_ticks: StartTicks,
    /// The inode of its pidfd: never used again in a boot and the same for every reader. `None`
    /// before Linux 6.9.
    #[cfg_attr(
        feature = "serde",
        serde(
            skip_serializing_if = "Option::is_none",
            serialize_with = "crate::wire::wide_option::serialize"
        )
    )]
    pub pidfd_inode: Option<u64>,
    /// The namespace of `pid`. `None` where it could not be read or the kernel has none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub pid_namespace: Option<Namespace>,
    /// The namespace of `start_ticks`. `None` where it could not be read or the kernel has none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub time_namespace: Option<Namespace>,
    /// The run of the program that described itself. `None` when somebody else described it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub launch: Option<LaunchId>,
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ProcessIdentity {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            boot_id: BootId,
            #[serde(deserialize_with = "crate::wire::flag")]
            boot_trusted: bool,
            pid: Pid,
            start_ticks: StartTicks,
            #[serde(default, deserialize_with = "crate::wire::wide_option::deserialize")]
            pidfd_inode: Option<u64>,
            pid_namespace: Option<Namespace>,
            time_namespace: Option<Namespace>,
            launch: Option<LaunchId>,
        }
        let parts: Parts = crate::wire::legibly(d)?;
        Ok(Self {
            boot_id: parts.boot_id,
            boot_trusted: parts.boot_trusted,
            pid: parts.pid,
            start_ticks: parts.start_ticks,
            pidfd_inode: parts.pidfd_inode,
            pid_namespace: parts.pid_namespace,
            time_namespace: parts.time_namespace,
            launch: parts.launch,
        })
    }
}

/// Whether two descriptions mean the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "callers must decide every case; doubt is one of them"
)]
pub enum Matching {
    /// They do.
    Same,
    /// They do not, because of this part.
    Different(Part),
    /// It cannot be told, because of this part.
    Undecided(Part),
}

/// A part of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The boot id, or the trust in it.
    BootId,
    /// The run of the program.
    Launch,
    /// The process number.
    Pid,
    /// The namespace of the process number.
    PidNamespace,
    /// The inode of the pidfd.
    PidfdInode,
    /// The start time.
    StartTicks,
    /// The namespace of the start time.
    TimeNamespace,
}

impl ProcessIdentity {
    /// Makes an identity out of the three parts every reader of `/proc` can give.
    ///
    /// The boot id is not trusted, and nothing else is known: for records of others that carry no
    /// more. The remaining parts are fields.
    #[must_use]
    pub const fn from_triple(boot_id: BootId, pid: Pid, start_ticks: StartTicks) -> Self {
        Self {
            boot_id,
            boot_trusted: false,
            pid,
            start_ticks,
            pidfd_inode: None,
            pid_namespace: None,
            time_namespace: None,
            launch: None,
        }
    }

    /// Compares what both sides have.
    ///
    /// Without a pidfd inode on both sides, [`Matching::Same`] has a grain: two processes that had
    /// the number one after the other and started within the same 10 ms are not told apart. The
    /// one-tick guard of [`of`](Self::of) keeps such identities from being made.
    #[must_use]
    pub fn matches(&self, other: &Self) -> Matching {
        match (self.launch, other.launch) {
            // Random, and shown by one image of one process only: no other part can say more.
            (Some(ours), Some(theirs)) if ours == theirs => Matching::Same,
            (Some(_), Some(_)) => match self.matches_described(other) {
                // The same process after `exec`, or a child of which nothing else is known.
                Matching::Same | Matching::Undecided(_) => Matching::Different(Part::Launch),
                Matching::Different(part) => Matching::Different(part),
            },
            (None, _) | (_, None) => self.matches_described(other),
        }
    }

    /// Compares what anybody can see of a process.
    fn matches_described(&self, other: &Self) -> Matching {
        if !(self.boot_trusted && other.boot_trusted) {
            return Matching::Undecided(Part::BootId);
        }
        if self.boot_id != other.boot_id {
            return Matching::Different(Part::BootId);
        }
        if let (Some(ours), Some(theirs)) = (self.pidfd_inode, other.pidfd_inode) {
            return self.matches_by_inode(other, ours == theirs);
        }
        self.matches_by_ticks(other)
    }

    /// The inode is the same in every namespace; a number that contradicts it is a forged record.
    fn matches_by_inode(&self, other: &Self, same_inode: bool) -> Matching {
        if !same_inode {
            return Matching::Different(Part::PidfdInode);
        }
        let same_namespace = compare(self.pid_namespace, other.pid_namespace) == Sameness::Same;
        if same_namespace && self.pid != other.pid {
            return Matching::Different(Part::Pid);
        }
        Matching::Same
    }

    fn matches_by_ticks(&self, other: &Self) -> Matching {
        // The same process has another number in another namespace, so neither equal nor different
        // numbers say anything across them.
        if compare(self.pid_namespace, other.pid_namespace) != Sameness::Same {
            return Matching::Undecided(Part::PidNamespace);
        }
        if self.pid != other.pid {
            return Matching::Different(Part::Pid);
        }
        if compare(self.time_namespace, other.time_namespace) != Sameness::Same {
            return Matching::Undecided(Part::TimeNamespace);
        }
        if self.start_ticks != other.start_ticks {
            return Matching::Different(Part::StartTicks);
        }
        Matching::Same
    }
}

/// Compares two recorded namespaces of one boot. Two records without one come from readers that
/// could not tell.
fn compare(ours: Option<Namespace>, theirs: Option<Namespace>) -> Sameness {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours.compare(theirs),
        (None, _) | (_, None) => Sameness::Undecided,
    }
}
