//! Compares paths as the kernel shows them with the path that is asked about, as bytes.

use super::occupants::UsedBy;
use crate::holder::TargetPath;

/// A target in the two ways the kernel would write it.
pub(crate) struct Needle {
    /// As a link shows it. Empty for the root, which everything lies below.
    link: Vec<u8>,
    /// As `maps` shows it. The target is written as the kernel would write it, instead of reading
    /// back what the kernel wrote: its writing is not unique, for a file may really be called `\012`.
    map: Vec<u8>,
}

impl Needle {
    pub(crate) fn new(target: &TargetPath) -> Self {
        let bytes = target.as_path().as_os_str().as_encoded_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/');
        let link = bytes
            .get(..end.map_or(0, |end| end.saturating_add(1)))
            .unwrap_or_default()
            .to_vec();
        Self {
            map: escape(&link),
            link,
        }
    }

    /// Tells whether a path is the target or lies below it, by whole segments.
    pub(crate) fn covers(&self, by: UsedBy, path: &[u8]) -> bool {
        let needle = match by {
            UsedBy::WorkingDirectory | UsedBy::Descriptor => &self.link,
            UsedBy::Mapping => &self.map,
        };
        let Some(rest) = path.strip_prefix(needle.as_slice()) else {
            return false;
        };
        // A removed file below the target begins like every other file below it.
        rest.is_empty() || rest.starts_with(b"/") || rest == DELETED
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
