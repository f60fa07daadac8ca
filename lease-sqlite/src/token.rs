//! The name of one hold.

use std::fmt;
use std::io::Write as _;
use std::ops::Deref;

/// Room for a launch of at most 45 bytes, a colon, and any number.
const ROOM: usize = 72;

/// Names one hold: the token of its record.
///
/// Text that is unique for each hold; nothing should be read out of it. It is kept in place, so that
/// to take a lock needs no memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HoldToken {
    bytes: [u8; ROOM],
    length: usize,
}

impl HoldToken {
    pub(crate) fn new(launch: &str, number: u64) -> Self {
        let mut bytes = [0; ROOM];
        let mut rest = bytes.as_mut_slice();
        let mut digits = itoa::Buffer::new();
        for part in [launch, ":", digits.format(number)] {
            // What does not fit is cut; a launch of ours always fits.
            let _written = rest.write(part.as_bytes());
        }
        let left = rest.len();
        Self {
            bytes,
            length: ROOM.saturating_sub(left),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.length).map(str::from_utf8);
        text.and_then(Result::ok).unwrap_or_default()
    }
}

impl Deref for HoldToken {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for HoldToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for HoldToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::HoldToken;

    #[test]
    fn the_longest_launch_and_number_fit() {
        let launch = format!("{}:{}:{:016x}", 4_194_303, u64::MAX, u64::MAX);
        let token = HoldToken::new(&launch, u64::MAX);
        assert_eq!(*token, format!("{launch}:{}", u64::MAX));
        assert_eq!(
            format!("{token} {token:?}"),
            format!("{0} {0:?}", token.as_str())
        );
    }
}
