//! Systems without `/proc` and pidfd: nothing can be seen, so nothing is known.

use crate::describe::DescribeError;
use crate::facts::{Facts, View};
use crate::id::Pid;
use crate::identity::ProcessIdentity;
use crate::procfs::{Kernel, ProcFs};
use crate::stat::Stat;

pub(crate) const fn detect() -> Option<Kernel> {
    None
}

pub(crate) fn place(_proc: &ProcFs, _process: &ProcessIdentity) -> Facts {
    Facts {
        view: View::Unsupported,
        ..Facts::default()
    }
}

pub(crate) const fn look(_facts: &mut Facts, _proc: &ProcFs, _process: &ProcessIdentity) {}

pub(crate) const fn describe_own(_proc: &ProcFs) -> Result<ProcessIdentity, DescribeError> {
    Err(DescribeError::Unsupported)
}

pub(crate) const fn describe(_proc: &ProcFs, _pid: Pid) -> Result<ProcessIdentity, DescribeError> {
    Err(DescribeError::Unsupported)
}

pub(crate) const fn stat_or_reason(_proc: &ProcFs, _pid: Pid) -> Result<Stat, DescribeError> {
    Err(DescribeError::Unsupported)
}
