//! The names of what is protected.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use crate::limits::{KEY_BYTES, KEY_SEGMENTS};

/// Names one resource: segments joined by `/`, an ancestor before its descendants.
///
/// Two keys overlap when they are equal or one is an ancestor of the other, by whole segments. A
/// clone shares the text.
///
/// Range: 1 to 512 bytes of UTF-8, 1 to 32 segments. One leading `/` is ignored, so `/app/view` and
/// `app/view` are equal. What is out of range is refused, never normalised.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey(Arc<str>);

/// Why a text names no resource.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is empty, or only `/`.
    #[error("resource key is empty")]
    Empty,
    /// The text is longer than 512 bytes.
    #[error("resource key has {bytes} bytes, the most is {KEY_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text has more than 32 segments.
    #[error("resource key has more than {KEY_SEGMENTS} segments")]
    TooDeep,
    /// A segment is empty: `//` inside, or `/` at the end.
    #[error("segment of the resource key at byte {at} is empty")]
    EmptySegment {
        /// Where it begins.
        at: usize,
    },
    /// A segment is `.` or `..`.
    #[error("segment of the resource key at byte {at} is `.` or `..`")]
    DotSegment {
        /// Where it begins.
        at: usize,
    },
    /// A control character, NUL among them.
    #[error("resource key has a control character at byte {at}")]
    Control {
        /// Where it is.
        at: usize,
    },
}

impl ResourceKey {
    /// Reads a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] names what is wrong and where; nothing is repaired.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let name = text.strip_prefix('/').unwrap_or(text);
        let skipped = text.len().saturating_sub(name.len());
        if name.is_empty() {
            return Err(KeyError::Empty);
        }
        if name.len() > KEY_BYTES {
            return Err(KeyError::TooLong { bytes: name.len() });
        }
        if is_plain(name.as_bytes()) {
            return Ok(Self(Arc::from(name)));
        }
        if let Some((at, _)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(KeyError::Control {
                at: at.saturating_add(skipped),
            });
        }
        check_segments(name, skipped)?;
        Ok(Self(Arc::from(name)))
    }

    /// Returns the text, without a leading `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.split('/').count()
    }

    /// Returns whether `self` is an ancestor of `other`, by whole segments. No key is its own.
    #[must_use]
    pub fn is_ancestor_of(&self, other: &Self) -> bool {
        other
            .0
            .strip_prefix(&*self.0)
            .is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns whether the two are equal or one is an ancestor of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self == other || self.is_ancestor_of(other) || other.is_ancestor_of(self)
    }

    /// Returns the texts of all ancestors, the outermost first: `a` and `a/b` for `a/b/c`.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0
            .match_indices('/')
            .filter_map(|(at, _)| self.0.get(..at))
    }

    /// Returns the half-open range of texts that holds exactly the descendants: from `a/` up to
    /// `a0`, since `0` follows `/`.
    ///
    /// For drivers that keep keys in byte order.
    #[must_use]
    pub fn descendants(&self) -> (alloc::string::String, alloc::string::String) {
        (alloc::format!("{self}/"), alloc::format!("{self}0"))
    }
}

/// Whether nothing in the name needs a closer look: segments of letters, digits and other plain ASCII,
/// as most names are.
fn is_plain(name: &[u8]) -> bool {
    let mut begin = 0_usize;
    let mut segments = 1_usize;
    for (at, &byte) in name.iter().enumerate() {
        if PLAIN.get(usize::from(byte)) == Some(&true) {
            continue;
        }
        if byte != b'/' || at == begin {
            return false;
        }
        begin = at.saturating_add(1);
        segments = segments.saturating_add(1);
    }
    begin < name.len() && segments <= KEY_SEGMENTS
}

/// The bytes that cannot make a segment wrong.
#[expect(
    clippy::indexing_slicing,
    reason = "a byte is below 256, and this runs when compiling"
)]
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b'/' | b'.');
        byte += 1;
    }
    plain
};

/// Checks depth and form of the segments of `name`, which begins at byte `skipped`.
fn check_segments(name: &str, skipped: usize) -> Result<(), KeyError> {
    let mut at = skipped;
    for (count, segment) in name.split('/').enumerate() {
        if count >= KEY_SEGMENTS {
            return Err(KeyError::TooDeep);
        }
        match segment {
            "" => return Err(KeyError::EmptySegment { at }),
            "." | ".." => return Err(KeyError::DotSegment { at }),
            _ => at = at.saturating_add(segment.len()).saturating_add(1),
        }
    }
    Ok(())
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceKey({})", self.0)
    }
}

impl FromStr for ResourceKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ResourceKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ResourceKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        crate::wire::from_text(d)
    }
}
