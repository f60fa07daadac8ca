//! One reading of `/proc`, for any number of questions.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use lease_core::Code;

use super::ancestry::Exclusion;
use super::command::{UNKNOWN_COMMAND, command_text};
use super::group::{Members, ProcessGroup};
use super::occupants::{Occupants, UsedBy};
use super::system::{self, Source};
use super::uses::{Groups, Uses, occupants};
use crate::holder::TargetPath;
use crate::id::Pid;
use crate::procfs::ProcFs;

/// One reading of `/proc`, made at the first question and then kept.
///
/// It answers for any number of paths and groups; its age is the age of the first question. What
/// it says about a holder's work counts only if the holder was seen dead *before* that question.
///
/// Mappings and groups are read only when a question needs them, and nothing is read twice. Command
/// lines are not read.
///
/// It sees the processes that its `/proc` lists: those of one pid namespace and the ones below it.
/// A path is looked for under every name it has in a process's mount namespace, so a container that
/// works in a bind mount of it is seen.
#[derive(Debug)]
pub struct Pass {
    proc: ProcFs,
    source: OnceCell<Result<Source, ScanError>>,
    links: OnceCell<Result<Uses, ScanError>>,
    /// Links and mappings, if both were wanted from the beginning.
    both: OnceCell<Result<Uses, ScanError>>,
    maps: OnceCell<Result<Uses, ScanError>>,
    groups: OnceCell<Result<Groups, ScanError>>,
}

/// Why there is no reading of `/proc`. Nothing was changed, and nothing is known of anybody.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// No descriptor or memory was left. Retry: with a new pass, when there is.
    #[error("no descriptor or memory is left to read /proc with")]
    Exhausted {
        /// What the system call gave.
        #[source]
        source: Arc<io::Error>,
    },
    /// `/proc` could not be listed. Retry: with a new pass, after it is mounted.
    #[error("/proc cannot be listed")]
    Unlisted {
        /// What the system call gave.
        #[source]
        source: Arc<io::Error>,
    },
    /// This system has no `/proc`. Retry: never.
    #[error("this system has no /proc")]
    Unsupported,
}

impl ScanError {
    /// Returns the stable code: always [`Code::InvalidHolder`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidHolder
    }
}

impl Pass {
    /// Makes a pass that has read nothing yet.
    #[must_use]
    pub fn new(proc: &ProcFs) -> Self {
        Self {
            proc: proc.clone(),
            source: OnceCell::new(),
            links: OnceCell::new(),
            both: OnceCell::new(),
            maps: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    /// Returns who uses the target, or something below it, by working directory, descriptor or
    /// mapping.
    ///
    /// The target is compared as it is; see [`TargetPath::resolve`].
    ///
    /// # Errors
    ///
    /// [`ScanError`] if `/proc` could not be read. A single process that cannot be read is counted,
    /// and one that ended meanwhile is none.
    pub fn users_of(
        &self,
        target: &TargetPath,
        excluded: &Exclusion,
    ) -> Result<Occupants, ScanError> {
        if self.links.get().is_some() {
            let read = [self.links()?, self.maps()?];
            return self.find(target, excluded, &read, |_any| true);
        }
        self.find(target, excluded, &[self.both()?], |_any| true)
    }

    /// Returns who uses the target by working directory or descriptor, which costs less than
    /// half.
    ///
    /// # Errors
    ///
    /// As [`users_of`](Self::users_of).
    pub fn users_by_link(
        &self,
        target: &TargetPath,
        excluded: &Exclusion,
    ) -> Result<Occupants, ScanError> {
        let read = match self.both.get() {
            Some(_read) => self.both()?,
            None => self.links()?,
        };
        self.find(target, excluded, &[read], |by| by != UsedBy::Mapping)
    }

    /// Returns the members of a process group, by the `stat` of every process.
    ///
    /// Nobody is left out: the caller and what exited and was not reaped are members, too.
    ///
    /// # Errors
    ///
    /// As [`users_of`](Self::users_of).
    pub fn group(&self, group: ProcessGroup) -> Result<Members, ScanError> {
        let groups = kept(&self.groups, || system::read_groups(self.source()?))?;
        Ok(groups.members(group, self.source()?.hides))
    }

    /// Returns the command line of a process as text for people, read now. `<unknown>` if it cannot
    /// be read.
    #[must_use]
    pub fn command(&self, pid: Pid) -> String {
        match system::command(&self.proc, pid) {
            Some(bytes) => command_text(&bytes),
            None => UNKNOWN_COMMAND.to_owned(),
        }
    }

    fn source(&self) -> Result<&Source, ScanError> {
        kept(&self.source, || Source::open(&self.proc))
    }

    fn links(&self) -> Result<&Uses, ScanError> {
        kept(&self.links, || system::read_links(self.source()?))
    }

    fn both(&self) -> Result<&Uses, ScanError> {
        kept(&self.both, || system::read_both(self.source()?))
    }

    fn maps(&self) -> Result<&Uses, ScanError> {
        kept(&self.maps, || {
            system::read_maps(self.source()?, self.links()?)
        })
    }

    fn find(
        &self,
        target: &TargetPath,
        excluded: &Exclusion,
        read: &[&Uses],
        counts: fn(UsedBy) -> bool,
    ) -> Result<Occupants, ScanError> {
        let mut found = BTreeMap::new();
        let mut everybody = Vec::new();
        for uses in read {
            if uses.find(target, excluded, counts, &mut found) {
                everybody.extend(uses.read.iter().map(|(pid, _space)| *pid));
            }
        }
        let count = |who: fn(&Uses) -> &Vec<Pid>| {
            let each = read
                .iter()
                .flat_map(|uses| who(uses))
                .chain(&everybody)
                .copied();
            let others = each.filter(|pid| !excluded.contains(*pid) && !found.contains_key(pid));
            let others: BTreeSet<_> = others.collect();
            u32::try_from(others.len()).unwrap_or(u32::MAX)
        };
        Ok(Occupants {
            unreadable: count(|uses| &uses.unreadable),
            obscured: count(|uses| &uses.obscured),
            users: occupants(found),
            hides: self.source()?.hides,
        })
    }
}

/// Makes a value at the first call, and hands out the same one, or the same error, ever after.
fn kept<T>(
    cell: &OnceCell<Result<T, ScanError>>,
    make: impl FnOnce() -> Result<T, ScanError>,
) -> Result<&T, ScanError> {
    cell.get_or_init(make).as_ref().map_err(ScanError::clone)
}
