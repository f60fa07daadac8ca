//! Gathers the facts about a holder and asks for the verdict.

use lease_core::{HolderLiveness, Locality, ProcessProof, Question, Verdict};

#[cfg(not(target_os = "linux"))]
use crate::elsewhere as system;
#[cfg(target_os = "linux")]
use crate::linux as system;

use crate::facts::{Facts, Grain, Occupancy, Presence};
use crate::holder::{ProcessHolder, TargetPath};
use crate::identity::ProcessIdentity;
use crate::procfs::ProcFs;
use crate::verdict::{death, may_probe, verdict};
use crate::work::{Commands, OccupancyExclusion, Pass, RecordedGroups, Rules, Visibility, Work};

/// Observes processes.
///
/// With pidfs a verdict about a process takes four system calls and no allocation. What is left of
/// a holder's work is looked at only where a question asks for it and the holder was seen dead: the
/// group by one system call, the paths by one pass over `/proc`. A clone is cheap.
#[derive(Clone, Debug)]
pub struct ProcLiveness {
    proc: ProcFs,
    rules: Rules,
}

impl ProcLiveness {
    /// Observes through this `/proc`.
    #[must_use]
    pub const fn new(proc: ProcFs) -> Self {
        Self {
            proc,
            rules: Rules {
                groups: RecordedGroups::Count,
                visibility: Visibility::Any,
                exclusion: OccupancyExclusion::Caller,
                commands: Commands::Leave,
            },
        }
    }

    /// Observes through `/proc`.
    #[must_use]
    pub fn system() -> Self {
        Self::new(ProcFs::system())
    }

    /// Takes "nobody found, and some could not be looked into" for doubt instead of for nobody.
    ///
    /// Off by default, for other users' processes can be looked into only by root.
    #[must_use]
    pub const fn require_full_visibility(mut self) -> Self {
        self.rules.visibility = Visibility::Full;
        self
    }

    /// Leaves out the process groups that were recorded with holders, as programs do that record
    /// none: the work of a dead holder that did not lead its group is then found by its paths only.
    #[must_use]
    pub const fn ignore_recorded_groups(mut self) -> Self {
        self.rules.groups = RecordedGroups::Ignore;
        self
    }

    /// Says whose use of a path does not count; [`OccupancyExclusion::Caller`] by default.
    #[must_use]
    pub const fn exclude(mut self, exclusion: OccupancyExclusion) -> Self {
        self.rules.exclusion = exclusion;
        self
    }

    /// Adds the command lines of occupants that evidence names. They may hold secrets, so none is
    /// read by default.
    #[must_use]
    pub const fn show_commands(mut self) -> Self {
        self.rules.commands = Commands::Show;
        self
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
    /// gone. That is not looked at here, so the dead are unknown where something else must be gone.
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

impl ProcLiveness {
    /// Answers a question with what the caller knows of the holder's presence.
    #[must_use]
    pub fn observe_with(&self, question: &Question<ProcessHolder>, presence: Presence) -> Verdict {
        let facts = self.facts_of(question, presence);
        self.conclude(&Whole::of(question), facts, &Pass::new(&self.proc))
    }

    /// Answers many questions with one pass over `/proc`, made after every death was seen.
    #[must_use]
    pub fn observe_all(&self, questions: &[Question<ProcessHolder>]) -> Vec<Verdict> {
        let facts: Vec<_> = questions
            .iter()
            .map(|question| self.facts_of(question, Presence::None))
            .collect();
        let pass = Pass::new(&self.proc);
        let each = questions.iter().zip(facts);
        each.map(|(question, facts)| self.conclude(&Whole::of(question), facts, &pass))
            .collect()
    }

    /// Judges holders and their process groups. The pass was made after every death was seen.
    pub(crate) fn judge_groups(
        &self,
        holders: &[ProcessHolder],
        locality: Locality,
    ) -> (Vec<(Facts, Verdict)>, Pass) {
        let asked = ProcessProof {
            group: true,
            paths: false,
        };
        let facts: Vec<_> = holders
            .iter()
            .map(|holder| self.gather(holder.process(), locality, Presence::None, asked))
            .collect();
        let pass = Pass::new(&self.proc);
        let each = holders.iter().zip(facts);
        let judged = each.map(|(holder, facts)| {
            let whole = Whole {
                holder,
                asked,
                target: None,
            };
            (facts, self.conclude(&whole, facts, &pass))
        });
        (judged.collect(), pass)
    }

    /// Tells whether processes that cannot be looked into are doubt.
    pub(crate) fn requires_full_visibility(&self) -> bool {
        self.rules.visibility == Visibility::Full
    }

    fn facts_of(&self, question: &Question<ProcessHolder>, presence: Presence) -> Facts {
        self.gather(
            question.holder.process(),
            question.locality,
            presence,
            question.occupancy,
        )
    }

    /// Looks at the rest of a holder's work if the holder is dead and somebody asks. The pass has
    /// read nothing before the facts were gathered.
    fn conclude(&self, whole: &Whole<'_>, mut facts: Facts, pass: &Pass) -> Verdict {
        let death = match facts.occupancy {
            Occupancy::NotAsked => None,
            _ => death(&facts),
        };
        let Some(death) = death else {
            return verdict(&facts);
        };
        let work = Work {
            holder: whole.holder,
            facts: &facts,
            death,
            asked: whole.asked,
            target: whole.target,
        };
        let rest = work.look(&self.proc, &self.rules, pass);
        facts.occupancy = rest.occupancy;
        rest.describe(verdict(&facts))
    }
}

/// A holder with all that matters of its work.
struct Whole<'a> {
    holder: &'a ProcessHolder,
    asked: ProcessProof,
    target: Option<&'a TargetPath>,
}

impl<'a> Whole<'a> {
    const fn of(question: &'a Question<ProcessHolder>) -> Self {
        Self {
            holder: &question.holder,
            asked: question.occupancy,
            target: question.target.as_ref(),
        }
    }
}

impl HolderLiveness<ProcessHolder> for ProcLiveness {
    fn observe(&self, question: &Question<ProcessHolder>) -> Verdict {
        self.observe_with(question, Presence::None)
    }
}
