//! The stable codes of evidence, in one place.

/// Makes the enum, its texts and the list of all from one table.
macro_rules! proofs {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a verdict about a process rests on: the `proof` of its evidence.
        ///
        /// A code changes only with a recorded decision.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Proof {
            $($(#[$doc])* $name,)*
        }

        impl Proof {
            /// Every proof.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the stable text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

proofs! {
    // Alive.
    /// The recorded process, by its pidfd inode, has not exited.
    Running = "running",
    /// A process with the recorded start ticks has not exited. Grain: 10 ms.
    RunningByStartTicks = "running_by_start_ticks",

    // Dead.
    /// It ran in an earlier boot of this machine.
    OtherBoot = "other_boot",
    /// The number now names another process, or a thread.
    PidRecycled = "pid_recycled",
    /// It has exited, reaped or not.
    Exited = "exited",
    /// The number names nothing.
    NoSuchProcess = "no_such_process",
    /// Nobody keeps its presence byte locked any more.
    PresenceReleased = "presence_released",

    // Occupied.
    /// It is gone, and a member of its process group counts.
    GroupAlive = "group_alive",
    /// It is gone, and another process uses the resource's paths.
    PathInUse = "path_in_use",

    // Unknown: the place of the record or of the reader.
    /// Another boot id, and the record may come from another machine.
    AnotherMachine = "another_machine",
    /// A boot id was read where something may be mounted over it.
    BootIdUntrusted = "boot_id_untrusted",
    /// The present boot id could not be read.
    BootIdUnreadable = "boot_id_unreadable",
    /// Another boot id, but somebody still keeps the presence byte locked.
    PresenceHeld = "presence_held",
    /// `/proc` is missing or unreadable.
    ProcMissing = "proc_missing",
    /// `/proc` does not show this process as the process it is.
    ProcNotOurs = "proc_not_ours",
    /// The number is of another pid namespace.
    OtherPidNamespace = "other_pid_namespace",
    /// The pid namespace of the number, or ours, is not known.
    PidNamespaceUnknown = "pid_namespace_unknown",
    /// The ticks were counted in another time namespace, and there is no inode to compare.
    OtherTimeNamespace = "other_time_namespace",
    /// The time namespace of the ticks, or ours, is not known, and there is no inode to compare.
    TimeNamespaceUnknown = "time_namespace_unknown",
    /// This system has no way to tell.
    Unsupported = "unsupported",

    // Unknown: the look at the process.
    /// Something exists that cannot be seen.
    Hidden = "hidden",
    /// Looking was not permitted.
    LookupDenied = "lookup_denied",
    /// No descriptor or memory was left to look with.
    LookupExhausted = "lookup_exhausted",
    /// Looking failed.
    LookupFailed = "lookup_failed",
    /// `/proc/<pid>/stat` was not what a kernel prints.
    StatMalformed = "stat_malformed",
    /// The leader thread has exited, and without pidfd nothing tells whether others run.
    LeaderExited = "leader_exited",
    /// Too little was looked at.
    NotObserved = "not_observed",

    // Unknown: the rest of its work.
    /// It is gone, but whether its group or a user of the resource lives was not looked at.
    OccupancyNotObserved = "occupancy_not_observed",
    /// It is gone, and somebody who may be at its work could not be seen.
    OccupancyHidden = "occupancy_hidden",
    /// It is gone, and whether anybody is at its work could not be read.
    OccupancyFailed = "occupancy_failed",
}
