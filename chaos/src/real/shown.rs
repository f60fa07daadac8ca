//! What the kernel shows of processes, read by the scenario itself: the oracle about who is at work.
//!
//! Nothing here is asked of `lease-procfs`, which is what the scenario is about.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process_group};

use super::problem::{Problem, Tried as _, made};
use super::taken::is_full;

/// One process as `/proc` shows it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) number: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// The paths of its directory, its descriptors and its mappings, as the kernel writes them.
    uses: Vec<PathBuf>,
    /// Where its working directory is, whatever it is called.
    directory: Option<(u64, u64)>,
}

/// Reads everybody in this pid namespace, by number.
pub(crate) fn everybody() -> Result<Vec<Shown>, Problem> {
    let entries = made(fs::read_dir("/proc"), "/proc")?;
    let mut shown = Vec::new();
    for entry in entries {
        let name = entry.tried("/proc")?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
            shown.extend(made(read(number), "looking at a process")?);
        }
    }
    shown.sort_by_key(|one| one.number);
    Ok(shown)
}

/// Lists the members of a process group.
pub(crate) fn members(group: i32) -> Result<Vec<i32>, Problem> {
    let everybody = everybody()?.into_iter();
    let of_group = everybody.filter(|one| one.group == group);
    Ok(of_group.map(|one| one.number).collect())
}

/// Tells whether the kernel knows a process group of this number.
pub(crate) fn is_group(group: i32) -> bool {
    Pid::from_raw(group).is_some_and(|group| test_kill_process_group(group).is_ok())
}

/// Lists who uses a directory, or something below it.
pub(crate) fn users(tree: &Path) -> Result<Vec<i32>, Problem> {
    let top = id(tree);
    let below = made(fs::read_dir(tree), "the tree")?;
    let below = below.filter_map(|entry| id(&entry.ok()?.path()));
    let places: Vec<_> = below.chain(top).collect();
    let uses_it = |one: &Shown| {
        let is_there = one.directory.is_some_and(|place| places.contains(&place));
        is_there || one.uses.iter().any(|path| path.starts_with(tree))
    };
    let users = everybody()?.into_iter().filter(uses_it);
    Ok(users.map(|one| one.number).collect())
}

fn id(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// What could be read, if anything: who ends meanwhile shows nothing. Without a descriptor left it is not that.
fn seen<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_full(&error) => Err(error),
        result => Ok(result.ok()),
    }
}

fn read(number: i32) -> io::Result<Option<Shown>> {
    let place = PathBuf::from(format!("/proc/{number}"));
    let stat = seen(fs::read_to_string(place.join("stat")))?;
    let Some(group) = stat.as_deref().and_then(group_of) else {
        return Ok(None);
    };
    let mut uses: Vec<_> = fs::read_link(place.join("cwd")).into_iter().collect();
    let descriptors = seen(fs::read_dir(place.join("fd")))?.into_iter().flatten();
    uses.extend(descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()));
    let maps = seen(fs::read_to_string(place.join("maps")))?.unwrap_or_default();
    // Five words, and then a path that begins with a slash, if there is one.
    let paths = maps.lines().filter_map(|line| line.get(line.find('/')?..));
    uses.extend(paths.map(PathBuf::from));
    Ok(Some(Shown {
        number,
        group,
        uses,
        directory: id(&place.join("cwd")),
    }))
}

/// A name is in parentheses and may have any in it: state, parent and group come after the last.
fn group_of(stat: &str) -> Option<i32> {
    let after = stat.rsplit(')').next()?;
    after.split_ascii_whitespace().nth(2)?.parse().ok()
}
