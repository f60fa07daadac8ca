//! Names, the short ones without memory of their own.

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};

/// The longest text that lies in the value itself: two words and a half.
const SHORT: usize = 20;

/// A one in each byte.
const ONES: u64 = u64::MAX / 255;

/// A text that never changes. A short one is copied, a clone of a long one shares it.
///
/// Most names are short, and then nothing is allocated, counted or looked at far away.
#[derive(Clone)]
pub(crate) enum Text {
    Short(Short),
    Long(Arc<str>),
}

/// What is not used of `bytes` is zero, so that two texts are compared as they lie there.
///
/// It is written and compared in the same words: a processor waits where it reads at once what it has just
/// written in other pieces.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    len: u8,
    bytes: [u8; SHORT],
}

impl Short {
    /// Takes the text, if it is not too long.
    #[inline(always)]
    pub(crate) fn new(text: &[u8]) -> Option<Self> {
        let len = u8::try_from(text.len()).ok()?;
        let (first, rest) = split_word(text);
        let (second, rest) = split_word(rest);
        let (third, rest) = split_word(rest);
        let third = u32::try_from(third).ok()?;
        let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p], [q, r, s, t]) = (
            first.to_le_bytes(),
            second.to_le_bytes(),
            third.to_le_bytes(),
        );
        let bytes = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t];
        rest.is_empty().then_some(Self { len, bytes })
    }

    /// Whether every byte is visible ASCII other than `.` and `/`, and there is one.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        let (first, second, third) = self.words();
        let len = u32::from(self.len);
        len > 0
            && is_plain_word(first | beyond(len))
            && is_plain_word(second | beyond(len.saturating_sub(8)))
            && is_plain_word(u64::from(third) | beyond(len.saturating_sub(16)))
    }

    #[inline(always)]
    fn words(&self) -> (u64, u64, u32) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = self.bytes;
        (
            u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            u64::from_le_bytes([i, j, k, l, m, n, o, p]),
            u32::from_le_bytes([q, r, s, t]),
        )
    }
}

/// A plain byte for each of a word after the first `len`.
#[inline(always)]
const fn beyond(len: u32) -> u64 {
    let plain = ONES.wrapping_mul(b'a' as u64);
    match plain.checked_shl(len.saturating_mul(8)) {
        Some(beyond) => beyond,
        None => 0,
    }
}

/// Whether each of eight bytes lies between `!` and `~` and is neither `.` nor `/`.
#[inline(always)]
pub(crate) const fn is_plain_word(word: u64) -> bool {
    const HIGHS: u64 = ONES << 7;
    // The high bit of a byte comes up if it is below `!`, above `~`, or one of the two.
    let below = word.wrapping_sub(ONES.wrapping_mul(b'!' as u64)) & !word;
    let above = word.wrapping_add(ONES) | word;
    let other = (word & !ONES) ^ ONES.wrapping_mul(b'.' as u64);
    let either = other.wrapping_sub(ONES) & !other;
    (below | above | either) & HIGHS == 0
}

/// The first eight bytes of `text`, or what there is of them and zeros, and the rest.
#[inline(always)]
fn split_word(text: &[u8]) -> (u64, &[u8]) {
    match text.split_first_chunk::<8>() {
        Some((word, rest)) => (u64::from_le_bytes(*word), rest),
        None => (last_word(text), &[]),
    }
}

/// Fewer than eight bytes, and zeros.
#[inline(always)]
fn last_word(text: &[u8]) -> u64 {
    let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    match (text, text.first_chunk::<4>(), text.last_chunk::<4>()) {
        (_, Some(first), Some(last)) => {
            // Some bytes are in both, and the same there.
            let skipped = text.len().saturating_sub(4).saturating_mul(8);
            half(first) | half(last) << skipped
        }
        (&[a, b, c], ..) => half(&[a, b, c, 0]),
        (&[a, b], ..) => half(&[a, b, 0, 0]),
        (&[a], ..) => half(&[a, 0, 0, 0]),
        _ => 0,
    }
}

impl PartialEq for Short {
    /// Byte for byte. No name has a zero in it, so the length need not be compared.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Text {
    #[inline(always)]
    pub(crate) fn new(text: &str) -> Self {
        match Short::new(text.as_bytes()) {
            Some(short) => Self::Short(short),
            None => Self::Long(Arc::from(text)),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(short) => short
                .bytes
                .get(..usize::from(short.len))
                .unwrap_or_default(),
            Self::Long(text) => text.as_bytes(),
        }
    }

    /// The text. A short one is checked once more, so where bytes will do, ask for those.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Short(_) => core::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }
}

impl PartialEq for Text {
    /// Byte for byte; clones of a long text are known without a look at it.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Short(short), Self::Short(other)) => short == other,
            (Self::Long(text), Self::Long(other)) => Arc::ptr_eq(text, other) || text == other,
            // Each length is kept in one way.
            (Self::Short(_), Self::Long(_)) | (Self::Long(_), Self::Short(_)) => false,
        }
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    /// As texts are ordered.
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Text {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.as_bytes().hash(state);
    }
}
