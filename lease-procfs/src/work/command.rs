//! Command lines, as text for people.

use crate::limits::COMMAND_CHARACTERS;

/// Makes text for people out of `/proc/<pid>/cmdline`.
///
/// NUL becomes a blank, bytes that are no UTF-8 are replaced, the ends are trimmed, other control
/// characters are escaped, and the rest is cut at 120 characters. A kernel thread has none: empty.
#[must_use]
pub fn command_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\0', " ");
    text.trim()
        .chars()
        .flat_map(shown)
        .take(COMMAND_CHARACTERS)
        .collect()
}

/// Shows one character without letting it act on a terminal.
fn shown(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// Stands for a command line that cannot be read.
pub(crate) const UNKNOWN_COMMAND: &str = "<unknown>";
