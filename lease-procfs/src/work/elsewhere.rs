//! Systems without `/proc`: nobody is seen.

use super::group::GroupLiveness;
use super::pass::ScanError;
use super::uses::{Groups, Uses};
use crate::id::Pid;
use crate::procfs::ProcFs;
use crate::stat::Stat;

/// There is none.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) hides: bool,
}

impl Source {
    pub(crate) const fn open(_proc: &ProcFs) -> Result<Self, ScanError> {
        Err(ScanError::Unsupported)
    }
}

pub(crate) const fn read_links(_source: &Source) -> Result<Uses, ScanError> {
    Err(ScanError::Unsupported)
}

pub(crate) const fn read_both(_source: &Source) -> Result<Uses, ScanError> {
    Err(ScanError::Unsupported)
}

pub(crate) const fn read_maps(_source: &Source, _links: &Uses) -> Result<Uses, ScanError> {
    Err(ScanError::Unsupported)
}

pub(crate) const fn read_groups(_source: &Source) -> Result<Groups, ScanError> {
    Err(ScanError::Unsupported)
}

pub(crate) const fn own_pid() -> Option<Pid> {
    None
}

pub(crate) const fn stat(_proc: &ProcFs, _pid: Pid) -> Option<Stat> {
    None
}

pub(crate) const fn command(_proc: &ProcFs, _pid: Pid) -> Option<Vec<u8>> {
    None
}

pub(crate) const fn group_liveness(_group: Pid) -> GroupLiveness {
    GroupLiveness::Undecided
}
