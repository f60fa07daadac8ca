//! Identifiers and counters: who granted, which grant, in which order.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use crate::limits::GENERATION_MAX;

/// Sixteen bytes, in two numbers that keep their order, so that they are handed on and compared in two
/// registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Halves(u64, u64);

impl Halves {
    const fn split([a, b, c, d, e, f, g, h, rest @ ..]: [u8; 16]) -> Self {
        Self(
            u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            u64::from_be_bytes(rest),
        )
    }

    const fn join(self) -> [u8; 16] {
        let [a, b, c, d, e, f, g, h] = self.0.to_be_bytes();
        let [i, j, k, l, m, n, o, p] = self.1.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

/// Makes a 16-byte identifier that is shown as a UUID.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Halves);

        impl $name {
            /// Makes the identifier out of exactly these bytes.
            #[must_use]
            #[inline]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Halves::split(bytes))
            }

            /// Makes a version 4 UUID out of 16 random bytes; the six version bits are set.
            #[must_use]
            pub const fn from_random(bytes: [u8; 16]) -> Self {
                Self::from_bytes(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
            }

            /// Returns the bytes.
            #[must_use]
            #[inline]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.join()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                uuid::Uuid::from_bytes(self.to_bytes()).hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            /// Reads the canonical form: 36 characters, lower case, with hyphens.
            fn from_str(text: &str) -> Result<Self, IdError> {
                let id = uuid::Uuid::try_parse(text).map_err(|_not_a_uuid| IdError)?;
                let mut canonical = [0; uuid::fmt::Hyphenated::LENGTH];
                // One id in two spellings would differ from itself where text is compared.
                if id.hyphenated().encode_lower(&mut canonical) == text {
                    Ok(Self::from_bytes(id.into_bytes()))
                } else {
                    Err(IdError)
                }
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                crate::wire::from_text(d)
            }
        }
    };
}

identifier! {
    /// Names one authority: one counter of generations.
    ///
    /// Random. A memory authority has a new one at each start, so a token that outlived its
    /// authority matches nothing.
    AuthorityId
}
identifier! {
    /// Names one lease. Random, and drawn outside the core.
    LeaseId
}
identifier! {
    /// Names one operation in flight. Random, and drawn by the caller, so an end that is repeated
    /// or arrives late names its own operation only.
    OpId
}

impl LeaseId {
    /// No lease: the mark of a revoked generation in a [`FenceGate`](crate::FenceGate).
    pub const NIL: Self = Self::from_bytes([0; 16]);
}

impl OpId {
    /// The acquisition itself, for an end that gives back a grant nobody received.
    ///
    /// It is never in flight; `Begin` refuses it.
    pub const ACQUISITION: Self = Self::from_bytes([0; 16]);
}

/// The text is not a UUID in canonical form.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID in its canonical form of 36 lower-case characters")]
#[non_exhaustive]
pub struct IdError;

/// The place of a grant in its authority's order.
///
/// Every new lease of an authority has a larger one than all before it, on whichever resource. Only
/// growth is promised, not density.
///
/// Range: `1..=2^53 - 1`, which JSON readers and SQLite keep exactly. It never wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(NonZeroU64);

impl Generation {
    /// The first generation.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Makes a generation, or `None` out of range.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= GENERATION_MAX => Some(Self(number)),
            Some(_) | None => None,
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the next generation, or `None` after the largest.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Self::new(number.get()),
            None => None,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one lease of one authority, and its place in that authority's order.
///
/// Two tokens compare within one authority only, hence no `Ord`. A token identifies, it does not
/// authorise: it may be shown, logged and stored beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "a token is exactly these three parts"
)]
pub struct FencingToken {
    /// Who granted.
    pub authority: AuthorityId,
    /// When, in that authority's order.
    pub generation: Generation,
    /// Which lease; tells two grants apart that a restored authority gave the same generation.
    pub lease: LeaseId,
}

/// All three parts, for logs: `AUTHORITY/GENERATION/LEASE`.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.authority, self.generation, self.lease)
    }
}

/// Where a driver may find the cell at once.
///
/// A hint: it is checked against the token, and [`Slot::NONE`] is always right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// No hint.
    pub const NONE: Self = Self(u32::MAX);

    /// Makes a hint.
    #[must_use]
    pub const fn new(place: u32) -> Self {
        Self(place)
    }

    /// Returns the place, or `None` without a hint.
    #[must_use]
    pub const fn get(self) -> Option<u32> {
        if self.0 == Self::NONE.0 {
            None
        } else {
            Some(self.0)
        }
    }
}

/// A token with a hint where its cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a token and a hint, nothing else"
)]
pub struct At {
    /// Which lease.
    pub token: FencingToken,
    /// Where it may be found.
    pub slot: Slot,
}

impl From<FencingToken> for At {
    fn from(token: FencingToken) -> Self {
        Self {
            token,
            slot: Slot::NONE,
        }
    }
}

/// The number of a change, strictly growing per issuer.
///
/// Memory and SQLite count `major` by commits, and `minor` is the place within one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "an order of two parts, nothing else"
)]
pub struct Seq {
    /// Which commit.
    #[cfg_attr(feature = "serde", serde(with = "crate::wire::wide"))]
    pub major: u64,
    /// Which change within it.
    pub minor: u16,
}

impl Seq {
    /// Returns the next number within the same commit.
    ///
    /// A commit with more than 65,536 changes runs on into the next `major`; a driver takes the
    /// last number it was given as its counter.
    #[must_use]
    pub const fn following(self) -> Self {
        match self.minor.checked_add(1) {
            Some(minor) => Self {
                major: self.major,
                minor,
            },
            None => Self {
                major: self.major.saturating_add(1),
                minor: 0,
            },
        }
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Generation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Generation {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number = <u64 as serde::Deserialize>::deserialize(d)?;
        Self::new(number).ok_or_else(|| {
            let range = format_args!("1..={GENERATION_MAX}");
            serde::de::Error::custom(format_args!("generation {number} is out of range {range}"))
        })
    }
}
