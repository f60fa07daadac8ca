//! Compares paths as the kernel shows them with the path that is asked about, as bytes.

use std::sync::Arc;

#[cfg(target_os = "linux")]
use super::occupants::UsedBy;
use crate::holder::TargetPath;
use crate::mountinfo::{Found, MountTable};

/// How the kernel writes paths in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has anything to read")
)]
pub(crate) enum Writing {
    /// As a link shows them.
    Link,
    /// As `maps` shows them.
    Maps,
}

impl Writing {
    #[cfg(target_os = "linux")]
    pub(crate) const fn of(by: UsedBy) -> Self {
        match by {
            UsedBy::WorkingDirectory | UsedBy::Descriptor => Self::Link,
            UsedBy::Mapping => Self::Maps,
        }
    }
}

/// A path in the two ways the kernel would write it.
struct Needle {
    /// As a link shows it. Empty for the root, which everything lies below.
    link: Vec<u8>,
    /// As `maps` shows it. The target is written as the kernel would write it, instead of reading
    /// back what the kernel wrote: its writing is not unique, for a file may really be called `\012`.
    map: Vec<u8>,
}

impl Needle {
    fn new(path: Vec<u8>) -> Self {
        Self {
            map: escape(&path),
            link: path,
        }
    }

    /// Tells whether a path is the target or lies below it, by whole segments.
    fn covers(&self, writing: Writing, path: &[u8]) -> bool {
        let needle = match writing {
            Writing::Link => &self.link,
            Writing::Maps => &self.map,
        };
        // The last byte differs for nearly every path.
        let last = needle.len().saturating_sub(1);
        if !needle.is_empty() && path.get(last) != needle.last() {
            return false;
        }
        let Some(rest) = path.strip_prefix(needle.as_slice()) else {
            return false;
        };
        // A removed file below the target begins like every other file below it.
        rest.is_empty() || rest.starts_with(b"/") || rest == DELETED
    }
}

/// A target under every name that processes see it by.
pub(crate) struct Target {
    /// By the mount namespaces of a reading, in the same order; our own is the first.
    names: Vec<Vec<Needle>>,
    /// Our mounts do not tell where it lies, so that it may have other names.
    pub(crate) is_untold: bool,
}

impl Target {
    /// Names a target for processes with these mounts, the first of which are our own.
    pub(crate) fn new(target: &TargetPath, spaces: &[Arc<MountTable>]) -> Self {
        let bytes = target.as_path().as_os_str().as_encoded_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/');
        let path = bytes
            .get(..end.map_or(0, |end| end.saturating_add(1)))
            .unwrap_or_default();
        let found = spaces.first().map_or(Found::NoTable, |own| own.find(path));
        let is_untold = matches!(found, Found::Untold(_));
        let places = match found {
            Found::NoTable => Vec::new(),
            Found::At(place) => vec![place],
            Found::Untold(places) => places,
        };
        let names_in = |space: &Arc<MountTable>| {
            let each = places.iter().flat_map(|place| space.names(place));
            // Ours, and that of processes whose mounts are the same in this place.
            let mut names: Vec<_> = each.chain([path.to_vec()]).collect();
            names.sort_unstable();
            names.dedup();
            names.into_iter().map(Needle::new).collect()
        };
        Self {
            names: spaces.iter().map(names_in).collect(),
            is_untold,
        }
    }

    /// Tells whether this path is the target or lies below it in the mount namespace `space`.
    pub(crate) fn covers(&self, space: usize, writing: Writing, path: &[u8]) -> bool {
        let mut names = self.names.get(space).into_iter().flatten();
        names.any(|needle| needle.covers(writing, path))
    }
}

/// What the kernel puts behind the path of what was removed.
const DELETED: &[u8] = b" (deleted)";

fn escape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'\n' => out.extend_from_slice(b"\\012"),
            byte => out.push(byte),
        }
    }
    out
}
