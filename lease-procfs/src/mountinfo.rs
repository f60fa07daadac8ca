//! Reads `/proc/self/mountinfo`, as bytes, for one question: is this file of `/proc` the kernel's?

use std::path::Path;

/// Tells whether `file`, below the mount point `root` of a `/proc`, is what the kernel put there.
///
/// True only if every mount on the way from `root` to the file is a `/proc` showing itself at its
/// own place (as containers do with `/proc/sys`, read-only), and `root` is one.
///
/// Source: `proc_pid_mountinfo(5)`.
pub(crate) fn is_uncovered(mountinfo: &[u8], root: &Path, file: &str) -> bool {
    let root = root.as_os_str().as_encoded_bytes();
    let mut root_is_proc = false;
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let Some(mount) = Mount::parse(line) else {
            continue;
        };
        let Some(below) = mount.point.strip_prefix(root) else {
            continue;
        };
        if !is_on_the_way(below, file.as_bytes()) {
            continue;
        }
        let shown = mount.shown.strip_suffix(b"/").unwrap_or(&mount.shown);
        if mount.kind != b"proc" || shown != below {
            return false;
        }
        root_is_proc |= below.is_empty();
    }
    root_is_proc
}

/// Tells whether `below` is empty, the file, or a directory above it.
fn is_on_the_way(below: &[u8], file: &[u8]) -> bool {
    match file.strip_prefix(below) {
        Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

struct Mount<'a> {
    /// Field 4: which part of the file system is shown.
    shown: Vec<u8>,
    /// Field 5: where.
    point: Vec<u8>,
    /// The type of the file system.
    kind: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let shown = unescape(fields.nth(3)?);
        let point = unescape(fields.next()?);
        // Optional fields end with a lone hyphen.
        let kind = fields.skip_while(|&field| field != b"-").nth(1)?;
        Some(Self { shown, point, kind })
    }
}

/// Undoes the kernel's escapes of blank, tab, newline and backslash: three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => Some((((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'), tail)),
            _ => None,
        };
        let (byte, tail) = escaped.unwrap_or((first, tail));
        out.push(byte);
        rest = tail;
    }
    out
}
