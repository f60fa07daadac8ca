//! The caller's own processes, which do not count as users of a path.

use super::system;
use crate::id::Pid;
use crate::limits::ANCESTORS;
use crate::procfs::ProcFs;

/// Which processes never count as users of a path.
///
/// With [`Caller`](Self::Caller) a takeover asked for from a shell inside the path is refused: the
/// shell uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it is one or the other")]
pub enum OccupancyExclusion {
    /// The process that looks: for a takeover.
    #[default]
    Caller,
    /// It and its ancestors: for releasing on behalf of a holder that has exited. To ask for that
    /// from inside is no use of the path.
    CallerAncestry,
}

/// A set of processes that do not count as users of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    /// Ascending, each once.
    pids: Vec<Pid>,
}

impl Exclusion {
    /// Leaves nobody out.
    #[must_use]
    pub const fn nobody() -> Self {
        Self { pids: Vec::new() }
    }

    /// Leaves out this process, or it and its ancestors as `proc` shows them now.
    #[must_use]
    pub fn of(proc: &ProcFs, who: OccupancyExclusion) -> Self {
        let own = system::own_pid();
        match who {
            OccupancyExclusion::Caller => own.into_iter().collect(),
            OccupancyExclusion::CallerAncestry => own
                .map(|own| ancestry(proc, own))
                .unwrap_or_default()
                .into_iter()
                .collect(),
        }
    }

    /// Tells whether a process is left out.
    #[must_use]
    pub fn contains(&self, pid: Pid) -> bool {
        self.pids.binary_search(&pid).is_ok()
    }

    /// Returns who is left out, ascending.
    #[must_use]
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }
}

impl FromIterator<Pid> for Exclusion {
    fn from_iter<I: IntoIterator<Item = Pid>>(pids: I) -> Self {
        let mut pids: Vec<_> = pids.into_iter().collect();
        pids.sort_unstable();
        pids.dedup();
        Self { pids }
    }
}

/// Returns a process and its ancestors, nearest first, without the first process of the pid
/// namespace.
///
/// It ends at a repeat, at a process whose `stat` cannot be read (which is still among them), and
/// before one that started later than its child, for that number has a new owner.
#[must_use]
pub fn ancestry(proc: &ProcFs, from: Pid) -> Vec<Pid> {
    let mut chain: Vec<Pid> = Vec::new();
    let mut next = Some(from);
    let mut child_start = None;
    while let Some(pid) = next {
        if pid == Pid::INIT || chain.contains(&pid) || chain.len() >= ANCESTORS {
            break;
        }
        let Some(stat) = system::stat(proc, pid) else {
            chain.push(pid);
            break;
        };
        if child_start.is_some_and(|start| start < stat.start_ticks.get()) {
            break;
        }
        chain.push(pid);
        child_start = Some(stat.start_ticks.get());
        next = stat.parent;
    }
    chain
}
