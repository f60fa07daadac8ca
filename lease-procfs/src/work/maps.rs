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
    let (fields, path) = line.split_at_checked(find_byte(line, b'/')?)?;
    shows_file(fields).then_some(path)
}

/// Tells whether these are the fields before the path of a file: address, permissions, offset, device
/// and inode, and then the padding.
pub(crate) fn shows_file(mut fields: &[u8]) -> bool {
    for field in 0..FIELDS {
        let end = find_byte(fields, b' ');
        let Some((word, tail)) = end.and_then(|end| fields.split_at_checked(end)) else {
            return false;
        };
        if word.is_empty() || (field == DEVICE && word == b"00:00") {
            return false;
        }
        let blanks = tail.iter().take_while(|&&byte| byte == b' ').count();
        fields = tail.get(blanks..).unwrap_or_default();
    }
    fields.is_empty()
}

/// How many fields stand before the path.
const FIELDS: usize = 5;

/// Which of them is the device.
const DEVICE: usize = 3;

/// Returns where a byte stands first. It looks at many at once: a pass reads millions.
pub(crate) fn find_byte(bytes: &[u8], wanted: u8) -> Option<usize> {
    find_either(bytes, wanted, wanted)
}

/// Returns where the first of two bytes stands.
pub(crate) fn find_either(bytes: &[u8], one: u8, other: u8) -> Option<usize> {
    let is_wanted = |byte: u8| byte == one || byte == other;
    let (chunks, rest) = bytes.as_chunks::<CHUNK>();
    let mut start = 0_usize;
    for chunk in chunks {
        // Without an early end, so that it can be done in one step.
        if chunk
            .iter()
            .fold(false, |found, &byte| found | is_wanted(byte))
        {
            return Some(start.saturating_add(first_in(chunk, one, other)?));
        }
        start = start.saturating_add(CHUNK);
    }
    let at = rest.iter().position(|&byte| is_wanted(byte))?;
    Some(start.saturating_add(at))
}

fn first_in(chunk: &[u8; CHUNK], one: u8, other: u8) -> Option<usize> {
    let (words, _none) = chunk.as_chunks::<WORD>();
    let mut start = 0_usize;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ repeated(one)) | zeros(word ^ repeated(other));
        if found != 0 {
            let at = usize::try_from(found.trailing_zeros() / u8::BITS).ok()?;
            return Some(start.saturating_add(at));
        }
        start = start.saturating_add(WORD);
    }
    None
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// Marks the bytes that are zero by their highest bit. The lowest mark is right; above it there may be
/// some too many.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(repeated(0x01)) & !word & repeated(0x80)
}

/// What vector instructions take in one or two steps.
const CHUNK: usize = 32;

/// What a register takes.
const WORD: usize = 8;
