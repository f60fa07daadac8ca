//! Walks from the calling process to its nearest ancestor that runs a program.
//!
//! Every process on the way is held by a pidfd while it is looked at, so nothing that was read of it
//! is about a later owner of its number. A kernel without pidfd leaves start ticks.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use rustix::io::Errno;

use super::{AncestorPart, Program, SelectError};
use crate::describe::DescribeError;
use crate::id::{Pid, StartTicks};
use crate::identity::ProcessIdentity;
use crate::limits::ANCESTOR_STEPS;
use crate::linux::{NoStat, read_into, read_stat, require_ours};
use crate::procfs::ProcFs;
use crate::stat::Stat;
use crate::sys;

/// The most of the arguments that is read. An argument zero that is longer is no path of a program.
const ARGUMENTS_BYTES: usize = 4_096;

pub(super) fn nearest_ancestor(
    proc: &ProcFs,
    program: &Program,
) -> Result<ProcessIdentity, SelectError> {
    let own = proc.with_present_own(|own| require_ours(own.view).map(|()| own.pid))?;
    let own = own.ok_or(DescribeError::Unsupported)?;
    let mut child = Kin::hold(proc, own, 0)?;
    while child.step < ANCESTOR_STEPS {
        let Some(parent) = child.parent()? else {
            break;
        };
        if parent.runs(program)? {
            return parent.describe();
        }
        child = parent;
    }
    Err(SelectError::NoAncestor {
        program: program.clone(),
    })
}

/// The calling process or one of its ancestors.
struct Kin<'a> {
    proc: &'a ProcFs,
    pid: Pid,
    /// How many steps up; 0 is the calling process.
    step: usize,
    /// Keeps what was opened apart from any later owner of the number. `None` on kernels without.
    pidfd: Option<OwnedFd>,
    /// As first read.
    start_ticks: StartTicks,
}

impl<'a> Kin<'a> {
    fn hold(proc: &'a ProcFs, pid: Pid, step: usize) -> Result<Self, SelectError> {
        let mut kin = Self {
            proc,
            pid,
            step,
            pidfd: None,
            start_ticks: StartTicks::new(0),
        };
        if proc.kernel().pidfd {
            kin.pidfd = Some(sys::open_pidfd(pid).map_err(|errno| match errno {
                Errno::SRCH => kin.changed(),
                errno => kin.unreadable(AncestorPart::Pidfd, errno.into()),
            })?);
        }
        kin.start_ticks = kin.stat()?.start_ticks;
        Ok(kin)
    }

    /// Holds the parent. `None` for the first process of the namespace and for one outside.
    fn parent(&self) -> Result<Option<Self>, SelectError> {
        let number = self.stat()?.parent;
        let Some(pid) = number.filter(|&pid| pid != Pid::INIT) else {
            return Ok(None);
        };
        let parent = Self::hold(self.proc, pid, self.step.saturating_add(1))?;
        // A parent that exits gives its child to another, and never gets it back. So what was held
        // in between is the parent, if the child has it still.
        if self.unchanged()?.parent != number {
            return Err(parent.changed());
        }
        Ok(Some(parent))
    }

    fn runs(&self, program: &Program) -> Result<bool, SelectError> {
        let mut buffer = [0; ARGUMENTS_BYTES];
        let name = format_args!("{}/cmdline", self.pid);
        let arguments = read_into(self.proc.root(), name, &mut buffer)
            .map_err(|errno| self.unreadable(AncestorPart::Arguments, errno.into()))?;
        let link = self.proc.root().join(format!("{}/exe", self.pid));
        let link = std::fs::read_link(link)
            .map_err(|source| self.unreadable(AncestorPart::Executable, source))?;
        self.unchanged()?;
        let link = link.into_os_string().into_vec();
        Ok(program.is_run_by(argument_zero(arguments), &link))
    }

    fn describe(&self) -> Result<ProcessIdentity, SelectError> {
        let identity = ProcessIdentity::of(self.proc, self.pid)?;
        if identity.start_ticks != self.start_ticks {
            return Err(self.changed());
        }
        self.unchanged()?;
        Ok(identity)
    }

    /// Makes sure that the number still names the process that was first looked at.
    fn unchanged(&self) -> Result<Stat, SelectError> {
        let stat = self.stat()?;
        // Last: while it runs, all that was read before is about this process.
        let exited = match &self.pidfd {
            Some(pidfd) => sys::has_exited(pidfd.as_fd())
                .map_err(|errno| self.unreadable(AncestorPart::Pidfd, errno.into()))?,
            None => false,
        };
        if exited || stat.start_ticks != self.start_ticks {
            return Err(self.changed());
        }
        Ok(stat)
    }

    fn stat(&self) -> Result<Stat, SelectError> {
        read_stat(self.proc.root(), self.pid).map_err(|no_stat| match no_stat {
            NoStat::Malformed(source) => SelectError::Stat {
                pid: self.pid,
                step: self.step,
                source,
            },
            NoStat::Unread(errno) => self.unreadable(AncestorPart::Stat, errno.into()),
        })
    }

    const fn changed(&self) -> SelectError {
        SelectError::Changed {
            pid: self.pid,
            step: self.step,
        }
    }

    const fn unreadable(&self, part: AncestorPart, source: io::Error) -> SelectError {
        SelectError::Unreadable {
            pid: self.pid,
            step: self.step,
            part,
            source,
        }
    }
}

/// Returns what stands before the first NUL, or nothing if there is none as far as was read.
fn argument_zero(arguments: &[u8]) -> &[u8] {
    let is_cut = arguments.len() == ARGUMENTS_BYTES && !arguments.contains(&0);
    let mut parts = arguments.split(|&byte| byte == 0);
    parts.next().filter(|_| !is_cut).unwrap_or_default()
}
