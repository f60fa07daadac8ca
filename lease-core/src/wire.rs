//! Forms that serde needs and JSON readers agree on.

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use core::fmt::Display;
use core::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

use crate::liveness::printable;

/// The largest integer that every JSON reader keeps: 2^53.
const EXACT: u64 = 1 << 53;

/// Reads a value through its text form.
pub(crate) fn from_text<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Cow::<'de, str>::deserialize(d)?;
    text.parse()
        .map_err(|problem| D::Error::custom(format_args!("{problem}: `{}`", printable(&text))))
}

/// Reads, and says legibly what was wrong: unknown names come from whoever wrote the text.
pub(crate) fn legibly<'de, T, D>(d: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(d).map_err(|error| D::Error::custom(printable(&error.to_string())))
}

/// Reads what may be null and must be there: half a record is none.
pub(crate) fn required<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(d)
}

/// Writes an integer as a number up to 2^53 and as decimal text above.
fn write<S: Serializer>(number: u64, serializer: S) -> Result<S::Ok, S::Error> {
    if number <= EXACT {
        serializer.serialize_u64(number)
    } else {
        serializer.serialize_str(&number.to_string())
    }
}

/// An integer in either form.
#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number from 0 on, above 2^53 as text"
)]
enum Wide<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

impl Wide<'_> {
    fn read<E: Error>(self) -> Result<u64, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => match text.parse::<u64>() {
                Ok(number) if number.to_string() == text => Ok(number),
                Ok(_) => Err(E::custom("integer is not in its one decimal form")),
                Err(problem) => Err(E::custom(problem)),
            },
        }
    }
}

/// `u64`, exact in every reader.
pub(crate) mod wide {
    use super::{Deserialize as _, Deserializer, Serializer, Wide, write};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for this shape"
    )]
    pub(crate) fn serialize<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
        write(*number, s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        Wide::deserialize(d)?.read()
    }
}

/// `Duration` in whole nanoseconds, exact in every reader.
pub(crate) mod nanos {
    use core::time::Duration;

    use super::{Deserialize as _, Deserializer, Serializer, Wide, write};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, s: S) -> Result<S::Ok, S::Error> {
        write(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Wide::deserialize(d)?.read().map(Duration::from_nanos)
    }
}
