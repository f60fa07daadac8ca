//! Parses `/proc/<pid>/maps`, as bytes.

/// Returns the path of the file that one line of `maps` shows, as the kernel writes it.
///
/// The path column is padded with blanks, which are no part of the path. A newline in a path is
/// written as `\012`, and a file that was removed has ` (deleted)` at its end; both stay. `None` for
/// a mapping without a file: nothing, `[heap]` and the like, or the device `00:00`.
///
/// Source: `proc_pid_maps(5)`.
#[must_use]
pub fn mapped_path(line: &[u8]) -> Option<&[u8]> {
    // Most lines show no file, and nothing before the path has a slash.
    let path = find_byte(line, b'/')?;
    let (mut fields, path) = line.split_at_checked(path)?;
    // Address, permissions, offset, device and inode, and then the padding.
    for field in 0..FIELDS {
        let end = fields.iter().position(|&byte| byte == b' ')?;
        let (word, tail) = fields.split_at_checked(end)?;
        if word.is_empty() || (field == DEVICE && word == b"00:00") {
            return None;
        }
        fields = tail.trim_ascii_start();
    }
    fields.is_empty().then_some(path)
}

/// How many fields stand before the path.
const FIELDS: usize = 5;

/// Which of them is the device.
const DEVICE: usize = 3;

/// Returns where a byte stands first. It looks at many at once: a pass reads millions.
pub(crate) fn find_byte(bytes: &[u8], wanted: u8) -> Option<usize> {
    let is_wanted = |&byte: &u8| byte == wanted;
    let (chunks, rest) = bytes.as_chunks::<CHUNK>();
    let mut start = 0_usize;
    for chunk in chunks {
        // Without an early end, so that it can be done in one step.
        if chunk
            .iter()
            .fold(false, |found, byte| found | is_wanted(byte))
        {
            return Some(start.saturating_add(chunk.iter().position(is_wanted)?));
        }
        start = start.saturating_add(CHUNK);
    }
    let at = rest.iter().position(is_wanted)?;
    Some(start.saturating_add(at))
}

/// What vector instructions take in one or two steps.
const CHUNK: usize = 32;
