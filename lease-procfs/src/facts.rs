//! What was seen of a holder and of the place it was looked at from: every fact with every answer.

use lease_core::Locality;

use crate::id::Sameness;

/// Everything a verdict looks at.
///
/// Every field starts at the answer that proves nothing, so what was not gathered is doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Where the record can be written from.
    pub locality: Locality,
    /// The holder's byte in the store's presence file.
    pub presence: Presence,
    /// The recorded boot id against the present one.
    pub boot: Boot,
    /// Whether both sides saw that their boot id is the kernel's.
    pub trust: Trust,
    /// Whether our `/proc` is ours.
    pub view: View,
    /// The pid namespace of the record against ours.
    pub pid_namespace: Sameness,
    /// The time namespace of the record against ours.
    pub time_namespace: Sameness,
    /// By what the recorded process and the present one can be compared.
    pub grain: Grain,
    /// What opening a pidfd for the number gave.
    pub lookup: Lookup,
    /// The pidfd's inode against the recorded one.
    pub inode: Inode,
    /// Whether the process behind the pidfd has exited.
    pub exit: Exit,
    /// The start ticks against the recorded ones.
    pub ticks: Ticks,
    /// The state of the leader thread.
    pub leader: Leader,
    /// What the number stands for, by `Tgid:` in `/proc/<pid>/status`.
    pub number: Number,
    /// What signal 0 to the number gave.
    pub signal: Signal,
    /// Whether a live group or a user of the resource's paths matters to who asks.
    pub occupancy: Occupancy,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            locality: Locality::ManyMachines,
            presence: Presence::None,
            boot: Boot::Unreadable,
            trust: Trust::Neither,
            view: View::Missing,
            pid_namespace: Sameness::Undecided,
            time_namespace: Sameness::Undecided,
            grain: Grain::Ticks,
            lookup: Lookup::NotAsked,
            inode: Inode::NotAsked,
            exit: Exit::NotAsked,
            ticks: Ticks::NotAsked,
            leader: Leader::NotAsked,
            number: Number::NotAsked,
            signal: Signal::NotAsked,
            occupancy: Occupancy::Unobserved,
        }
    }
}

/// Makes a fact: an enum, and the list of its answers for tables over all of them.
macro_rules! fact {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every answer.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

fact! {
    /// The holder's presence: a byte that a process keeps locked for as long as it runs.
    ///
    /// Handed in by whoever owns the presence file. Only [`Free`](Presence::Free) proves anything by
    /// itself.
    Presence {
        /// None was recorded, it was recorded by this very process, or the file is another one.
        None,
        /// Some process holds the lock: the one that recorded it, or a forked child.
        Held,
        /// Nobody holds the lock, on the same file: every process that had it is gone.
        Free,
    }
}

fact! {
    /// The recorded boot id against the present one.
    Boot {
        /// They are equal.
        Same,
        /// They differ.
        Other,
        /// The present one could not be read, or is not one.
        Unreadable,
    }
}

fact! {
    /// Who saw that nothing is mounted over the boot id's file.
    Trust {
        /// The describer of the record and we.
        Both,
        /// Not the describer of the record.
        OursOnly,
        /// Not we.
        RecordOnly,
        /// Nobody.
        Neither,
    }
}

fact! {
    /// Whether `/proc` shows this process as the process it is.
    View {
        /// It does, and looking processes up finds this one.
        Ours,
        /// It is the `/proc` of another pid namespace, or something else.
        NotOurs,
        /// It is missing or unreadable.
        Missing,
        /// This system has no such thing.
        Unsupported,
    }
}

fact! {
    /// By what a recorded process is compared with the present owner of its number.
    Grain {
        /// By the pidfd inode, which is never used again in a boot.
        Inode,
        /// By start ticks, 10 ms wide: no inode was recorded, or this kernel gives none.
        Ticks,
    }
}

fact! {
    /// What `pidfd_open` gave.
    Lookup {
        /// Not asked.
        NotAsked,
        /// A pidfd.
        Opened,
        /// `ESRCH`: the number names nothing.
        NoSuchProcess,
        /// `ENOENT`: the number names a thread, and no process.
        NotAProcess,
        /// `EINVAL`: an older kernel's answer to a thread, and to a number that only a group keeps.
        NotALeader,
        /// There is no such system call here, or it is forbidden.
        Unavailable,
        /// `EPERM` or `EACCES`.
        Denied,
        /// `EMFILE`, `ENFILE` or `ENOMEM`.
        Exhausted,
        /// Anything else, `EIO` and `EINTR` among it.
        Failed,
    }
}

fact! {
    /// The pidfd's inode against the recorded one.
    Inode {
        /// Not asked.
        NotAsked,
        /// They are equal.
        Same,
        /// They differ.
        Different,
        /// It could not be read.
        Failed,
    }
}

fact! {
    /// Whether the process behind the pidfd has exited: all its threads, reaped or not.
    Exit {
        /// Not asked.
        NotAsked,
        /// The pidfd is not readable.
        Running,
        /// The pidfd is readable.
        Exited,
        /// It could not be polled.
        Failed,
    }
}

fact! {
    /// The start ticks that `/proc/<pid>/stat` shows, against the recorded ones.
    Ticks {
        /// Not asked.
        NotAsked,
        /// They are equal.
        Same,
        /// They differ.
        Different,
        /// `ENOENT` or `ESRCH`: gone, or hidden from us.
        NotFound,
        /// `EPERM` or `EACCES`.
        Denied,
        /// `EMFILE`, `ENFILE` or `ENOMEM`.
        Exhausted,
        /// Anything else, `EIO` and `EINTR` among it.
        Failed,
        /// It was read and is no `stat` line.
        Malformed,
    }
}

fact! {
    /// The state of the leader thread, where only `stat` can tell.
    Leader {
        /// Not asked.
        NotAsked,
        /// It has not exited.
        Runs,
        /// It has exited. Other threads may still run.
        Exited,
    }
}

fact! {
    /// What a number stands for.
    Number {
        /// Not asked.
        NotAsked,
        /// A process.
        Process,
        /// A thread of another process.
        Thread,
        /// It could not be read.
        Unreadable,
    }
}

fact! {
    /// What signal 0 gave. It is not sent to anybody.
    Signal {
        /// Not asked.
        NotAsked,
        /// The number names something.
        Exists,
        /// `EPERM`: the number names something of another user.
        NotPermitted,
        /// `ESRCH`: the number names nothing.
        NoSuchProcess,
        /// Anything else.
        Failed,
    }
}

fact! {
    /// Whether something besides the holder's process must be gone, and is.
    ///
    /// Looked at only after the holder was seen dead, so what it started before is among what is
    /// seen.
    Occupancy {
        /// Nothing else matters to who asks.
        NotAsked,
        /// Something else matters, and was not looked at.
        Unobserved,
        /// Everything that matters was looked at, and nobody counts.
        Empty,
        /// A member of the holder's process group counts.
        Group,
        /// Another process uses the resource's paths.
        Paths,
        /// Nobody was found, and somebody who may count could not be seen.
        Hidden,
        /// `/proc` could not be read.
        Failed,
    }
}
