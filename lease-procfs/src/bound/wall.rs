//! Wall time, for people.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

/// A moment of the wall clock. It is shown and stored, and decides nothing.
///
/// Unit: milliseconds since the Unix epoch, in UTC. Range: the years 0 to 9999. Shown as RFC 3339 with
/// three places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallStamp(i64);

/// The number or text is no wall time that RFC 3339 can show.
///
/// State: nothing was made or changed. Retry: never with the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a wall time of the years 0 to 9999 with its offset")]
#[non_exhaustive]
pub struct WallStampError;

impl WallStamp {
    /// Takes milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// [`WallStampError`] out of range.
    pub fn from_millis(ms: i64) -> Result<Self, WallStampError> {
        if ms < YEAR_ZERO || Timestamp::from_millisecond(ms).is_err() {
            return Err(WallStampError);
        }
        Ok(Self(ms))
    }

    /// Returns milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the wall time `span` later, cut to whole milliseconds, or `None` out of range.
    #[must_use]
    pub fn after(self, span: Duration) -> Option<Self> {
        let ms = i64::try_from(span.as_millis()).ok()?;
        Self::from_millis(self.0.checked_add(ms)?).ok()
    }
}

impl fmt::Display for WallStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(stamp) => write!(f, "{stamp:.3}"),
            // Every value was checked when it was made.
            Err(_out_of_range) => Err(fmt::Error),
        }
    }
}

impl FromStr for WallStamp {
    type Err = WallStampError;

    /// Reads RFC 3339 with whole seconds or a fraction, and with any offset. What is finer than a
    /// millisecond is cut off.
    fn from_str(text: &str) -> Result<Self, WallStampError> {
        let stamp: Timestamp = text.parse().map_err(|_not_a_stamp| WallStampError)?;
        Self::from_millis(stamp.as_millisecond())
    }
}

/// The start of the year 0; RFC 3339 has no earlier one.
const YEAR_ZERO: i64 = -62_167_219_200_000;

#[cfg(feature = "serde")]
impl serde::Serialize for WallStamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for WallStamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(D::Error::custom)
    }
}
