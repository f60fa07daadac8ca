//! Looks at what is left of a dead holder's work.

use lease_core::{Evidence, ProcessProof, Verdict};

use super::ancestry::{Exclusion, OccupancyExclusion};
use super::group::{GroupLiveness, Member, ProcessGroup};
use super::occupants::Occupants;
use super::pass::{Pass, ScanError};
use super::system;
use crate::facts::{Boot, Exit, Facts, Lookup, Occupancy, View};
use crate::holder::{ProcessHolder, TargetPath};
use crate::id::{Pid, Sameness, StartTicks};
use crate::procfs::ProcFs;
use crate::proof::Proof;

/// What counts as somebody at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) groups: RecordedGroups,
    pub(crate) visibility: Visibility,
    pub(crate) exclusion: OccupancyExclusion,
    pub(crate) commands: Commands,
}

/// Whether the group recorded with a holder is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedGroups {
    Count,
    Ignore,
}

/// What somebody who cannot be seen means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Nobody; they are counted.
    Any,
    /// Doubt.
    Full,
}

/// Whether command lines are read, of who is named only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commands {
    Leave,
    Show,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) occupancy: Occupancy,
    detail: Option<String>,
    occupants: Vec<String>,
    unreadable: u32,
}

impl Rest {
    const fn of(occupancy: Occupancy) -> Self {
        Self {
            occupancy,
            detail: None,
            occupants: Vec::new(),
            unreadable: 0,
        }
    }

    fn doubt(occupancy: Occupancy, why: &str) -> Self {
        Self {
            detail: Some(why.to_owned()),
            ..Self::of(occupancy)
        }
    }

    fn failed(error: &ScanError) -> Self {
        Self::doubt(Occupancy::Failed, &error.to_string())
    }

    /// Adds to a verdict's evidence who was found.
    pub(crate) fn describe(&self, verdict: Verdict) -> Verdict {
        let add = |evidence: Evidence| {
            let evidence = evidence
                .with_unreadable(self.unreadable)
                .with_occupants(self.occupants.iter().map(String::as_str));
            match &self.detail {
                Some(detail) => evidence.with_detail(detail),
                None => evidence,
            }
        };
        match verdict {
            Verdict::Alive(evidence) => Verdict::Alive(evidence),
            Verdict::Dead(evidence) => Verdict::Dead(add(evidence)),
            Verdict::Occupied(evidence) => Verdict::Occupied(add(evidence)),
            Verdict::Unknown(evidence) => Verdict::Unknown(add(evidence)),
        }
    }
}

/// A holder that was seen dead, and what else must be gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) holder: &'a ProcessHolder,
    pub(crate) facts: &'a Facts,
    /// What proves the death.
    pub(crate) death: Proof,
    pub(crate) asked: ProcessProof,
    pub(crate) target: Option<&'a TargetPath>,
}

impl Work<'_> {
    /// Looks at group and paths, in this order, until somebody counts.
    pub(crate) fn look(&self, proc: &ProcFs, rules: &Rules, pass: &Pass) -> Rest {
        if self.facts.boot != Boot::Other && self.facts.pid_namespace != Sameness::Same {
            return Rest::doubt(
                Occupancy::Unobserved,
                "the holder ran in another pid namespace",
            );
        }
        let group = if self.asked.group {
            self.look_at_group(proc, rules, pass)
        } else {
            Rest::of(Occupancy::Empty)
        };
        if group.occupancy == Occupancy::Group || !self.asked.paths {
            return group;
        }
        let paths = self.look_at_paths(proc, rules, pass);
        if paths.occupancy == Occupancy::Paths || group.occupancy == Occupancy::Empty {
            return Rest {
                unreadable: paths.unreadable.max(group.unreadable),
                ..paths
            };
        }
        group
    }

    fn look_at_group(&self, proc: &ProcFs, rules: &Rules, pass: &Pass) -> Rest {
        let Some(question) = self.group_question(proc, rules) else {
            return Rest::of(Occupancy::Empty);
        };
        if question.group.liveness() == GroupLiveness::Empty {
            return Rest::of(Occupancy::Empty);
        }
        let members = match pass.group(question.group) {
            Ok(members) => members,
            Err(error) => return Rest::failed(&error),
        };
        let counting: Vec<_> = members
            .members
            .iter()
            .filter(|member| !self.is_holder(member) && question.counts(member))
            .collect();
        let mut rest = Rest {
            unreadable: members.unreadable,
            ..Rest::of(Occupancy::Empty)
        };
        if !counting.is_empty() {
            rest.occupancy = Occupancy::Group;
            rest.detail = Some(counted(counting.len(), "in process group", question.group));
            let named = counting.iter().take(lease_core::limits::OCCUPANTS);
            rest.occupants = named
                .map(|member| {
                    let state = if member.has_exited { ", exited" } else { "" };
                    occupant(rules, pass, member.pid, &format!("group{state}"))
                })
                .collect();
            return rest;
        }
        if members.unreadable == 0 && !members.hides && !members.members.is_empty() {
            return rest;
        }
        // Who made the group live has gone since, or cannot be seen.
        if question.group.liveness() == GroupLiveness::Empty {
            return rest;
        }
        let explained = !members.members.is_empty();
        rest.occupancy = match (explained, self.death, question.since) {
            (true, _, _) if rules.visibility == Visibility::Any && members.obscured == 0 => {
                Occupancy::Empty
            }
            // The holder was reaped, so the kernel speaks of somebody else.
            (false, Proof::NoSuchProcess, None) => Occupancy::Group,
            (_, _, _) => Occupancy::Hidden,
        };
        if rest.occupancy != Occupancy::Empty {
            rest.detail = Some(format!(
                "process group {} has a member that is not shown",
                question.group
            ));
        }
        rest
    }

    /// Tells which group is to be looked at; `None` if there can be none.
    fn group_question(&self, proc: &ProcFs, rules: &Rules) -> Option<GroupQuestion> {
        // Nobody of another boot is left.
        if self.facts.boot == Boot::Other {
            return None;
        }
        let process = self.holder.process();
        let own = ProcessGroup::new(process.pid);
        let recorded = match rules.groups {
            RecordedGroups::Count => self.holder.group(),
            RecordedGroups::Ignore => None,
        };
        let group = recorded
            .or_else(|| self.group_of_unreaped(proc))
            .unwrap_or(own);
        if group == own {
            // The kernel gives no number out that a group still carries, so where the number has a
            // new owner the old group has no member left, and the new one's says nothing.
            return (self.death != Proof::PidRecycled)
                .then_some(GroupQuestion { group, since: None });
        }
        Some(GroupQuestion {
            group,
            // Ticks of another time namespace cannot be compared. Then everybody counts.
            since: (self.facts.time_namespace == Sameness::Same).then_some(process.start_ticks),
        })
    }

    /// Reads the group of a holder that has exited and was not reaped.
    fn group_of_unreaped(&self, proc: &ProcFs) -> Option<ProcessGroup> {
        if self.facts.lookup != Lookup::Opened || self.facts.exit != Exit::Exited {
            return None;
        }
        let stat = system::stat(proc, self.holder.process().pid)?;
        let is_holder = stat.leader_exited() && self.started_with_holder(stat.start_ticks);
        stat.group
            .filter(|_number| is_holder)
            .map(ProcessGroup::new)
    }

    /// The exited holder itself is no occupant of what it held.
    fn is_holder(&self, member: &Member) -> bool {
        member.pid == self.holder.process().pid
            && self.death != Proof::PidRecycled
            && self.started_with_holder(member.start_ticks)
    }

    fn started_with_holder(&self, start: StartTicks) -> bool {
        self.facts.time_namespace != Sameness::Same || start == self.holder.process().start_ticks
    }

    fn look_at_paths(&self, proc: &ProcFs, rules: &Rules, pass: &Pass) -> Rest {
        let Some(target) = self.target else {
            return Rest::doubt(Occupancy::Unobserved, "no target path was given");
        };
        if self.facts.view != View::Ours {
            return Rest::doubt(Occupancy::Unobserved, "/proc is not our own");
        }
        // Processes are seen under resolved paths. The path as it was recorded is asked about, too:
        // what it once named may have been replaced by a link.
        let resolved = match TargetPath::resolve(target.as_path()) {
            Ok(resolved) => resolved,
            Err(error) => return Rest::doubt(Occupancy::Failed, &error.to_string()),
        };
        let mut places = vec![&resolved];
        places.extend((resolved != *target).then_some(target));
        let excluded = Exclusion::of(proc, rules.exclusion);
        match first_found(pass, &places, &excluded) {
            Ok(found) => path_rest(&found, rules, pass),
            Err(error) => Rest::failed(&error),
        }
    }
}

/// Mappings cost most of a pass, and somebody found without them is enough.
fn first_found(
    pass: &Pass,
    places: &[&TargetPath],
    excluded: &Exclusion,
) -> Result<Occupants, ScanError> {
    let mut found = Occupants::default();
    for place in places {
        found = pass.users_by_link(place, excluded)?;
        if !found.users.is_empty() {
            return Ok(found);
        }
    }
    for place in places {
        found = pass.users_of(place, excluded)?;
        if !found.users.is_empty() {
            break;
        }
    }
    Ok(found)
}

struct GroupQuestion {
    group: ProcessGroup,
    /// Who started earlier does not count.
    since: Option<StartTicks>,
}

impl GroupQuestion {
    fn counts(&self, member: &Member) -> bool {
        // Both were counted in our own time namespace.
        self.since
            .is_none_or(|since| since.get() <= member.start_ticks.get())
    }
}

fn path_rest(found: &Occupants, rules: &Rules, pass: &Pass) -> Rest {
    let mut rest = Rest {
        unreadable: found.unreadable,
        ..Rest::of(Occupancy::Empty)
    };
    if found.users.is_empty() {
        if found.obscured > 0 {
            rest.occupancy = Occupancy::Hidden;
            rest.detail = Some("a process cannot be shown in full to anybody".to_owned());
        } else if rules.visibility == Visibility::Full && !found.is_proven_empty() {
            rest.occupancy = Occupancy::Hidden;
            rest.detail = Some("not every process could be looked into".to_owned());
        }
        return rest;
    }
    rest.occupancy = Occupancy::Paths;
    rest.detail = Some(counted(found.users.len(), "in", "the path"));
    let named = found.users.iter().take(lease_core::limits::OCCUPANTS);
    rest.occupants = named
        .map(|user| {
            let by = user.uses.first().map_or("", |one| one.by.as_str());
            occupant(rules, pass, user.pid, by)
        })
        .collect();
    rest
}

fn counted(count: usize, place: &str, what: impl std::fmt::Display) -> String {
    let noun = if count == 1 { "process" } else { "processes" };
    format!("{count} {noun} {place} {what}")
}

fn occupant(rules: &Rules, pass: &Pass, pid: Pid, by: &str) -> String {
    match rules.commands {
        Commands::Leave => format!("{pid} ({by})"),
        Commands::Show => format!("{pid} {} ({by})", pass.command(pid)),
    }
}
