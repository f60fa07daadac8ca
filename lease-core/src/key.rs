//! The names of what is protected.

use core::fmt;
use core::str::FromStr;

use crate::limits::{KEY_BYTES, KEY_SEGMENTS};
use crate::text::{Short, Text, is_plain_word};

/// Names one resource: segments joined by `/`, an ancestor before its descendants.
///
/// Two keys overlap when they are equal or one is an ancestor of the other, by whole segments. A
/// clone is cheap: one of a long name shares the text.
///
/// Range: 1 to 512 bytes of UTF-8, 1 to 32 segments. One leading `/` is ignored, so `/app/view` and
/// `app/view` are equal. What is out of range is refused, never normalised.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey(Text);

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
    #[inline]
    pub fn new(text: &str) -> Result<Self, KeyError> {
        match Short::new(text.as_bytes()) {
            Some(short) if short.is_plain() => Ok(Self(Text::Short(short))),
            Some(_) | None => Self::read(text),
        }
    }

    /// Reads what is not short and plain.
    fn read(text: &str) -> Result<Self, KeyError> {
        let name = text.strip_prefix('/').unwrap_or(text);
        let skipped = text.len().saturating_sub(name.len());
        if name.is_empty() {
            return Err(KeyError::Empty);
        }
        if name.len() > KEY_BYTES {
            return Err(KeyError::TooLong { bytes: name.len() });
        }
        if is_plain(name.as_bytes()) {
            return Ok(Self(Text::new(name)));
        }
        if let Some((at, _)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(KeyError::Control {
                at: at.saturating_add(skipped),
            });
        }
        check_segments(name, skipped)?;
        Ok(Self(Text::new(name)))
    }

    /// Returns the text, without a leading `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text, for who compares only.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the number of segments.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.as_str().split('/').count()
    }

    /// Returns whether `self` is an ancestor of `other`, by whole segments. No key is its own.
    #[must_use]
    pub fn is_ancestor_of(&self, other: &Self) -> bool {
        let rest = other.as_bytes().strip_prefix(self.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    /// Returns whether the two are equal or one is an ancestor of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        overlap(self.as_bytes(), other.as_bytes())
    }

    /// Returns the texts of all ancestors, the outermost first: `a` and `a/b` for `a/b/c`.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = &str> {
        let text = self.as_str();
        text.match_indices('/').filter_map(|(at, _)| text.get(..at))
    }

    /// The texts of all ancestors, for who compares only.
    pub(crate) fn above(&self) -> impl Iterator<Item = &[u8]> {
        above(self.as_bytes())
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

/// The texts of all ancestors of a key, the outermost first.
pub(crate) fn above(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = text.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.filter_map(|(at, _)| text.get(..at))
}

/// Whether the keys of these texts are equal, or one is an ancestor of the other.
pub(crate) fn overlap(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let rest = long.strip_prefix(short);
    rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/'))
}

/// Whether nothing in the name needs a closer look: letters, digits and other plain ASCII in segments, as
/// most names are.
fn is_plain(name: &[u8]) -> bool {
    let mut segments = name.split(|&byte| byte == b'/');
    let plain = |segment: &[u8]| !segment.is_empty() && is_plain_segment(segment);
    is_plain_segment(name)
        || (segments.by_ref().take(KEY_SEGMENTS).all(plain) && segments.next().is_none())
}

/// Whether every byte is visible ASCII other than `.` and `/`. Eight bytes are looked at in one go.
fn is_plain_segment(name: &[u8]) -> bool {
    let (words, rest) = name.as_chunks::<8>();
    let rest_is_plain = match name.last_chunk::<8>() {
        // Some bytes are looked at twice.
        Some(last) => is_plain_word(u64::from_ne_bytes(*last)),
        None => rest
            .iter()
            .all(|&byte| is_plain_word(u64::from_ne_bytes([byte; 8]))),
    };
    rest_is_plain
        && words
            .iter()
            .all(|word| is_plain_word(u64::from_ne_bytes(*word)))
}

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
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceKey({self})")
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
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ResourceKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        crate::wire::from_text(d)
    }
}
