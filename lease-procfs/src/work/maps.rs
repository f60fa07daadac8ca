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
    let mut rest = line;
    let mut device: &[u8] = b"";
    // Address, permissions, offset, device and inode.
    for field in 0..FIELDS {
        let end = rest.iter().position(|&byte| byte == b' ')?;
        let (word, tail) = rest.split_at_checked(end)?;
        if word.is_empty() {
            return None;
        }
        if field == DEVICE {
            device = word;
        }
        rest = tail.trim_ascii_start();
    }
    (rest.starts_with(b"/") && device != b"00:00").then_some(rest)
}

/// How many fields stand before the path.
const FIELDS: usize = 5;

/// Which of them is the device.
const DEVICE: usize = 3;
