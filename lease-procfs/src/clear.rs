//! Whether anything of an execution is left, so that its place can be cleared.
//!
//! [`check`] is one function over what was seen; [`observe`] looks. Whatever is in doubt blocks.

use std::fmt;

use lease_core::{Code, Locality, Verdict};

use crate::facts::{Boot, Facts, Trust};
use crate::holder::{ProcessHolder, TargetPath};
use crate::id::{Pid, Sameness, StartTicks};
use crate::identity::ProcessIdentity;
use crate::limits::SHOWN_BLOCKERS;
use crate::probe::ProcLiveness;
use crate::work::{Exclusion, Pass, ScanError};

/// What a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it is one or the other")]
pub enum Purpose {
    /// Cleanup of the allocation itself: every process that uses the place counts.
    Allocation,
    /// Clearing an execution: a process that is older than all of it does not count.
    Runtime,
}

/// A holder that was declared for the execution, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "facts that callers may gather")]
pub struct DeclaredHolder {
    /// Its number.
    pub pid: Pid,
    /// Whether it lives, or its process group does.
    pub verdict: Verdict,
    /// When it started, if that can be compared: in the present boot, counted on the clock on which
    /// references are counted. `None` in any doubt of it.
    pub started: Option<StartTicks>,
}

/// A process that was seen to use the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "facts that callers may gather")]
pub struct Reference {
    /// Its number.
    pub pid: Pid,
    /// When it started, by a second look. `None` if it was gone by then or could not be seen.
    pub started: Option<StartTicks>,
}

/// Everything a check looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "facts that callers may gather")]
pub struct Seen {
    /// Who was declared.
    pub holders: Vec<DeclaredHolder>,
    /// Who uses the place.
    pub references: Vec<Reference>,
    /// How many references are managed by somebody else, who says so.
    pub managed: usize,
    /// How many of those could not be told.
    pub managed_doubts: usize,
    /// How many times the look at processes was in doubt.
    pub scan_doubts: usize,
}

/// Nothing of the execution is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clear {
    /// Who uses the place and is older than every declared holder.
    pub predating: Vec<Pid>,
}

impl Clear {
    /// Returns the stable code: always [`Code::RuntimeClear`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::RuntimeClear
    }
}

/// Why something does not count as cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockedBy {
    /// The process group of a declared holder lives.
    GroupAlive,
    /// A declared holder lives.
    HolderAlive,
    /// A managed reference.
    Managed,
    /// A process uses the place.
    Observed,
    /// Something could not be seen.
    Uncertain,
}

impl BlockedBy {
    /// Returns the stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GroupAlive => "group_alive",
            Self::HolderAlive => "holder_alive",
            Self::Managed => "managed",
            Self::Observed => "observed",
            Self::Uncertain => "uncertain",
        }
    }
}

/// One thing that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Blocker {
    /// What it is.
    pub by: BlockedBy,
    /// The process it is about, if it is about one.
    pub pid: Option<Pid>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.by.as_str())?;
        match self.pid {
            Some(pid) => write!(f, " {pid}"),
            None => Ok(()),
        }
    }
}

/// Something of the execution is left, or may be.
///
/// State: nothing was changed. Retry: after it is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("runtime is occupied: {}", Shown(blockers))]
#[non_exhaustive]
pub struct RuntimeOccupied {
    /// Everything that is in the way: holders first, then references, then the rest. Never empty.
    pub blockers: Vec<Blocker>,
}

impl RuntimeOccupied {
    /// Returns the stable code: always [`Code::RuntimeOccupied`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::RuntimeOccupied
    }
}

struct Shown<'a>(&'a [Blocker]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, blocker) in self.0.iter().take(SHOWN_BLOCKERS).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{blocker}")?;
        }
        match self.0.len().saturating_sub(SHOWN_BLOCKERS) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Judges by what was seen, and by nothing else, whether the place is clear.
///
/// A process older than every declared holder cannot descend from the execution, so it is left out
/// where that is what matters. It needs at least one holder, and a start of each that can be
/// compared; an equal tick is not older.
///
/// # Errors
///
/// [`RuntimeOccupied`] names everything that is in the way.
pub fn check(purpose: Purpose, seen: &Seen) -> Result<Clear, RuntimeOccupied> {
    let mut blockers: Vec<_> = seen.holders.iter().filter_map(of_holder).collect();
    let oldest = match purpose {
        Purpose::Allocation => None,
        Purpose::Runtime => oldest_start(&seen.holders),
    };
    let mut predating = Vec::new();
    for reference in &seen.references {
        if is_older(reference.started, oldest) {
            predating.push(reference.pid);
        } else {
            blockers.push(Blocker {
                by: BlockedBy::Observed,
                pid: Some(reference.pid),
            });
        }
    }
    for (count, by) in [
        (seen.managed, BlockedBy::Managed),
        (seen.managed_doubts, BlockedBy::Uncertain),
        (seen.scan_doubts, BlockedBy::Uncertain),
    ] {
        let blocker = Blocker { by, pid: None };
        if count > 0 && !blockers.contains(&blocker) {
            blockers.push(blocker);
        }
    }
    if blockers.is_empty() {
        Ok(Clear { predating })
    } else {
        Err(RuntimeOccupied { blockers })
    }
}

fn of_holder(holder: &DeclaredHolder) -> Option<Blocker> {
    let by = match holder.verdict {
        Verdict::Dead(_) => return None,
        Verdict::Alive(_) => BlockedBy::HolderAlive,
        Verdict::Occupied(_) => BlockedBy::GroupAlive,
        Verdict::Unknown(_) => BlockedBy::Uncertain,
    };
    Some(Blocker {
        by,
        pid: Some(holder.pid),
    })
}

/// Returns the start of the oldest holder, if there is one and every start can be compared.
fn oldest_start(holders: &[DeclaredHolder]) -> Option<StartTicks> {
    let mut oldest: Option<StartTicks> = None;
    for holder in holders {
        let started = holder.started?;
        if oldest.is_none_or(|oldest| started.get() < oldest.get()) {
            oldest = Some(started);
        }
    }
    oldest
}

/// The kernel starts processes in order, so what starts in an earlier tick came before.
fn is_older(started: Option<StartTicks>, than: Option<StartTicks>) -> bool {
    match (started, than) {
        (Some(started), Some(than)) => started.get() < than.get(),
        (None, _) | (_, None) => false,
    }
}

/// Looks at the declared holders and their groups, and then at who uses the place, also where the links in its
/// path lead now. A path that cannot be followed is doubt.
///
/// Managed references are not looked at: whoever manages them adds them. Processes that could not
/// be looked into are doubts where `liveness` [requires full
/// visibility](ProcLiveness::require_full_visibility).
///
/// Without pidfs it may wait as [`ProcessIdentity::of`] does.
#[must_use]
pub fn observe(
    liveness: &ProcLiveness,
    locality: Locality,
    declared: &[ProcessHolder],
    place: &TargetPath,
    excluded: &Exclusion,
) -> Seen {
    let (judged, pass) = liveness.judge_groups(declared, locality);
    let holders = declared.iter().zip(judged);
    let mut seen = Seen {
        holders: holders
            .map(|(holder, (facts, verdict))| DeclaredHolder {
                pid: holder.process().pid,
                verdict,
                started: comparable_start(&facts, holder.process()),
            })
            .collect(),
        ..Seen::default()
    };
    seen.look_at_users(liveness, &pass, place, excluded);
    seen
}

impl Seen {
    fn look_at_users(
        &mut self,
        liveness: &ProcLiveness,
        pass: &Pass,
        place: &TargetPath,
        excluded: &Exclusion,
    ) {
        // Processes are seen under the resolved path. The one that was given may be a link by now.
        let resolved = TargetPath::resolve(place.as_path()).ok();
        let found = resolved.map(|resolved| {
            let mut found = pass.users_of(&resolved, excluded)?;
            if resolved != *place {
                found.users.extend(pass.users_of(place, excluded)?.users);
                found.users.sort_by_key(|user| user.pid);
                found.users.dedup_by_key(|user| user.pid);
            }
            Ok::<_, ScanError>(found)
        });
        let Some(Ok(occupants)) = found else {
            self.scan_doubts = self.scan_doubts.saturating_add(1);
            return;
        };
        let (unseen, hides) = if liveness.requires_full_visibility() {
            (occupants.unreadable, occupants.hides)
        } else {
            (occupants.obscured, false)
        };
        let unseen = usize::try_from(unseen).unwrap_or(usize::MAX);
        let doubts = unseen.saturating_add(usize::from(hides));
        self.scan_doubts = self.scan_doubts.saturating_add(doubts);
        for user in &occupants.users {
            // If the number has another owner by now, that one is younger than who was seen.
            let again = ProcessIdentity::of(liveness.proc(), user.pid);
            self.references.push(Reference {
                pid: user.pid,
                started: again.ok().map(|process| process.start_ticks),
            });
        }
    }
}

/// Returns a holder's start if it counts ticks of the present boot as we do.
fn comparable_start(facts: &Facts, process: &ProcessIdentity) -> Option<StartTicks> {
    let is_comparable = facts.boot == Boot::Same
        && facts.trust == Trust::Both
        && facts.time_namespace == Sameness::Same;
    is_comparable.then_some(process.start_ticks)
}
