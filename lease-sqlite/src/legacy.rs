//! Claims of protocol 1: files whose existence is the claim. Only honoured; none is ever made.

use lease_core::RecordClass;

use crate::record::LastWriter;

/// What to do about claims of protocol 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Legacy {
    /// A claim with our own pid from before our start is dead: only for directories that no other
    /// pid namespace uses.
    pub(crate) reap_own_pid: bool,
}

impl Legacy {
    /// Judges a claim. Without the feature nobody judges, and it keeps everybody out.
    #[cfg(not(feature = "legacy-v1"))]
    #[expect(
        clippy::unused_self,
        reason = "the same shape with and without the feature"
    )]
    pub(crate) const fn class(self, _claim: &LastWriter) -> RecordClass {
        RecordClass::Unrecognised
    }

    /// Judges a claim by whether its process lives.
    #[cfg(feature = "legacy-v1")]
    pub(crate) fn class(self, claim: &LastWriter) -> RecordClass {
        use lease_procfs::{DescribeError, ProcFs, ProcessIdentity};

        let proc = ProcFs::system();
        let Ok(own) = ProcessIdentity::own(&proc) else {
            return RecordClass::LegacyAlive;
        };
        if claim.pid == own.pid {
            return self.own_pid(claim);
        }
        match ProcessIdentity::of(&proc, claim.pid) {
            Err(DescribeError::NotRunning { .. }) => RecordClass::LegacyDead,
            // What cannot be looked at may live.
            Ok(_) | Err(_) => RecordClass::LegacyAlive,
        }
    }

    /// A wall clock stamp proves nothing by itself, so the caller has to have said that it may.
    #[cfg(feature = "legacy-v1")]
    fn own_pid(self, claim: &LastWriter) -> RecordClass {
        let started = crate::clock::own_start_ms();
        let is_earlier = claim
            .acquired_at_ms
            .zip(started)
            .is_some_and(|(claimed, started)| claimed < started);
        if self.reap_own_pid && is_earlier {
            RecordClass::LegacyDead
        } else {
            RecordClass::LegacyOwnPid
        }
    }
}
