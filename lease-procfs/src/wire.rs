//! Forms that serde needs and JSON readers agree on.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::id::{
    BootId, LaunchId, Namespace, NamespaceInode, Pid, PidError, StartTicks, plain_number,
};

/// The largest integer that every JSON reader keeps: 2^53.
const EXACT: u64 = 1 << 53;

/// `u64`: a number up to 2^53, decimal text above.
pub(crate) mod wide {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Wide};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for this shape"
    )]
    pub(crate) fn serialize<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
        Wide(*number).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        Wide::deserialize(d).map(|wide| wide.0)
    }
}

/// The same for what may be missing.
pub(crate) mod wide_option {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Wide};

    #[expect(clippy::ref_option, reason = "serde asks for this shape")]
    pub(crate) fn serialize<S: Serializer>(number: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        number.map(Wide).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Wide>::deserialize(d)?.map(|wide| wide.0))
    }
}

/// Reads a value, and says what should stand there without repeating what does: readers put that
/// into their errors, and errors end up in logs.
fn quietly<'de, T, D>(d: D, wanted: impl Display) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(d).map_err(|_repeats_it| D::Error::custom(wanted))
}

/// Reads a value of named parts, and shows what its reader says of them as text that cannot hurt: of a
/// name that is no part's, readers repeat every byte.
pub(crate) fn legibly<'de, T, D>(d: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(d).map_err(|error| {
        let said = error.to_string();
        let shown: String = said
            .chars()
            .take(SAID)
            .flat_map(|c| {
                let escaped = c.is_control().then(|| c.escape_default());
                let plain = escaped.is_none().then_some(c);
                escaped.into_iter().flatten().chain(plain)
            })
            .collect();
        D::Error::custom(shown)
    })
}

/// The most of what a reader says that is shown, in characters.
const SAID: usize = 256;

/// Reads `true` or `false`.
pub(crate) fn flag<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    quietly(d, "neither true nor false")
}

/// Reads the version of a stored form.
pub(crate) fn schema<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    quietly(d, "schema is not a number of 32 bits")
}

/// An integer that every reader keeps exactly.
struct Wide(u64);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0 <= EXACT {
            s.serialize_u64(self.0)
        } else {
            s.collect_str(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Either<'a> {
            Number(u64),
            Text(Cow<'a, str>),
        }
        let wanted = "not a plain decimal number of 64 bits";
        match quietly(d, wanted)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => plain_number(&text)
                .map(Self)
                .ok_or_else(|| D::Error::custom(wanted)),
        }
    }
}

impl Serialize for StartTicks {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Wide(self.get()).serialize(s)
    }
}

impl<'de> Deserialize<'de> for StartTicks {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Wide::deserialize(d).map(|wide| Self::new(wide.0))
    }
}

impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_i32(self.get())
    }
}

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number: i64 = quietly(d, PidError::NotANumber)?;
        Self::new(number).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Form {
            Id(Wide),
            Inode(NamespaceInode),
        }
        let form = quietly(d, "namespace is neither an id nor an inode of a namespace")?;
        Ok(match form {
            Form::Id(Wide(id)) => Self::Id(id),
            Form::Inode(inode) => Self::Inode(inode),
        })
    }
}

impl<'de> Deserialize<'de> for NamespaceInode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            inode: Wide,
            init_start: Option<StartTicks>,
        }
        let parts: Parts = legibly(d)?;
        Ok(Self {
            inode: parts.inode.0,
            init_start: parts.init_start,
        })
    }
}

impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

impl Serialize for LaunchId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LaunchId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

/// Reads a value through its text form.
fn from_text<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text: Cow<'de, str> = quietly(d, "not a text")?;
    text.parse().map_err(D::Error::custom)
}
