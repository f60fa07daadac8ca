//! Reads the processes of `/proc`.

use std::os::fd::AsFd as _;

use rustix::io::Errno;

use super::group::GroupLiveness;
use super::pass::ScanError;
use super::reader::{Reader, Wanted};
use super::source::{Listed, Seen, refused, stat_below};
use super::uses::{GroupRow, Groups, Uses};
use crate::id::Pid;
use crate::linux::{NoStat, read_stat};
use crate::procfs::ProcFs;
use crate::stat::Stat;
use crate::sys;

pub(crate) use super::source::Source;
pub(crate) use crate::sys::own_pid;

/// The most of a command line that is read.
const COMMAND_BYTES: usize = 4_096;

/// Reads the `stat` of one process.
pub(crate) fn stat(proc: &ProcFs, pid: Pid) -> Option<Stat> {
    read_stat(proc.root(), pid).ok()
}

/// Reads the command line of one process.
pub(crate) fn command(proc: &ProcFs, pid: Pid) -> Option<Vec<u8>> {
    let file = sys::open(proc.root().join(format!("{pid}/cmdline"))).ok()?;
    let mut line = vec![0; COMMAND_BYTES];
    let count = sys::read(&file, &mut line).ok()?;
    line.truncate(count);
    Some(line)
}

/// Asks whether a group has a member. The number is not 1.
pub(crate) fn group_liveness(group: Pid) -> GroupLiveness {
    let Some(group) = rustix::process::Pid::from_raw(group.get()) else {
        return GroupLiveness::Undecided;
    };
    match rustix::process::test_kill_process_group(group) {
        Ok(()) | Err(Errno::PERM) => GroupLiveness::Alive,
        Err(Errno::SRCH) => GroupLiveness::Empty,
        Err(_) => GroupLiveness::Undecided,
    }
}

/// Reads the working directories and descriptors of all.
pub(crate) fn read_links(source: &Source) -> Result<Uses, ScanError> {
    read_all(source, Wanted::Links)
}

/// Reads the working directories, descriptors and mappings of all.
pub(crate) fn read_both(source: &Source) -> Result<Uses, ScanError> {
    read_all(source, Wanted::Both)
}

fn read_all(source: &Source, wanted: Wanted) -> Result<Uses, ScanError> {
    let mut reader = Reader::new(source);
    let known = source.pids.clone();
    let ended = source.each(&source.pids, known, |pid, _listed| {
        reader.visit(pid, wanted)
    })?;
    Ok(reader.finish(&ended))
}

/// Reads the mappings of those whose links were read, and all of whoever comes after them.
pub(crate) fn read_maps(source: &Source, links: &Uses) -> Result<Uses, ScanError> {
    let mut reader = Reader::after(source, links);
    let pids: Vec<_> = links.read.iter().map(|(pid, _space)| *pid).collect();
    let mut known = [source.pids.as_slice(), &pids].concat();
    known.sort_unstable();
    let ended = source.each(&pids, known, |pid, listed| match listed {
        Listed::Before => reader.visit_again(pid, links.space_of(pid)),
        Listed::Since => reader.visit(pid, Wanted::Both),
    })?;
    Ok(reader.finish(&ended))
}

/// Reads the groups of all.
pub(crate) fn read_groups(source: &Source) -> Result<Groups, ScanError> {
    let mut groups = Groups::default();
    let known = source.pids.clone();
    let ended = source.each(&source.pids, known, |pid, _listed| {
        if source.covered.contains(&pid) {
            groups.unreadable = groups.unreadable.saturating_add(1);
            groups.obscured = groups.obscured.saturating_add(1);
            return Ok(Seen::Partly);
        }
        let stat = match stat_below(source.root.as_fd(), pid) {
            Ok(stat) => Some(stat),
            Err(NoStat::Malformed(_)) => None,
            Err(NoStat::Unread(errno)) => match refused(errno)? {
                Seen::Ended => return Ok(Seen::Ended),
                Seen::Whole | Seen::Partly | Seen::Bare | Seen::Kernel => None,
            },
        };
        let Some(stat) = stat else {
            groups.unreadable = groups.unreadable.saturating_add(1);
            return Ok(Seen::Partly);
        };
        groups.rows.push(GroupRow {
            pid,
            group: stat.group,
            start_ticks: stat.start_ticks,
            has_exited: stat.leader_exited(),
        });
        Ok(Seen::Whole)
    })?;
    let ended = u32::try_from(ended.len()).unwrap_or(u32::MAX);
    groups.unreadable = groups.unreadable.saturating_add(ended);
    Ok(groups)
}
