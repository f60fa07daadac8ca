//! Gathers the facts about a holder and asks for the verdict.

use lease_core::{HolderLiveness, Locality, ProcessProof, Question, Verdict};

#[cfg(not(target_os = "linux"))]
use crate::elsewhere as system;
#[cfg(target_os = "linux")]
use crate::linux as system;

use crate::facts::{Facts, Grain, Occupancy, Presence};
use crate::holder::ProcessHolder;
use crate::identity::ProcessIdentity;
use crate::procfs::ProcFs;
use crate::verdict::{may_probe, verdict};

/// Observes processes.
///
/// With pidfs a verdict takes four system calls and no allocation. A clone is cheap.
#[derive(Clone, Debug)]
pub struct ProcLiveness {
    proc: ProcFs,
}

impl ProcLiveness {
    /// Observes through this `/proc`.
    #[must_use]
    pub const fn new(proc: ProcFs) -> Self {
        Self { proc }
    }

    /// Observes through `/proc`.
    #[must_use]
    pub fn system() -> Self {
        Self::new(ProcFs::system())
    }

    /// Returns where it looks.
    #[must_use]
    pub const fn proc(&self) -> &ProcFs {
        &self.proc
    }

    /// Judges one process, whatever holder it is part of; nothing else of its work matters.
    #[must_use]
    pub fn judge(&self, process: &ProcessIdentity, locality: Locality) -> Verdict {
        self.judge_with(process, locality, Presence::None, ProcessProof::default())
    }

    /// Judges one process, with what the caller knows of its presence, and with what else must be
    /// gone.
    #[must_use]
    pub fn judge_with(
        &self,
        process: &ProcessIdentity,
        locality: Locality,
        presence: Presence,
        occupancy: ProcessProof,
    ) -> Verdict {
        verdict(&self.gather(process, locality, presence, occupancy))
    }

    /// Gathers what [`verdict`] looks at.
    ///
    /// The process is looked up only where its number means something: in the same boot and the
    /// same pid namespace.
    #[must_use]
    pub fn gather(
        &self,
        process: &ProcessIdentity,
        locality: Locality,
        presence: Presence,
        occupancy: ProcessProof,
    ) -> Facts {
        let mut facts = placed(&self.proc, process, locality);
        facts.presence = presence;
        facts.occupancy = match occupancy {
            ProcessProof {
                group: false,
                paths: false,
            } => Occupancy::NotAsked,
            ProcessProof { .. } => Occupancy::Unobserved,
        };
        if may_probe(&facts) {
            system::look(&mut facts, &self.proc, process);
        }
        facts
    }
}

/// Gathers where the record comes from, where it is read, and by what it is compared.
pub(crate) fn placed(proc: &ProcFs, process: &ProcessIdentity, locality: Locality) -> Facts {
    let mut facts = system::place(proc, process);
    facts.locality = locality;
    facts.grain = if proc.kernel().pidfs && process.pidfd_inode.is_some() {
        Grain::Inode
    } else {
        Grain::Ticks
    };
    facts
}

impl HolderLiveness<ProcessHolder> for ProcLiveness {
    fn observe(&self, question: &Question<ProcessHolder>) -> Verdict {
        self.judge_with(
            question.holder.process(),
            question.locality,
            Presence::None,
            question.occupancy,
        )
    }
}
