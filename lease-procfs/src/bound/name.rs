//! Names that people give: of repositories, owners, roles, states and allocations.

use std::fmt;
use std::sync::Arc;

use lease_core::{KeyError, ResourceKey};

use crate::limits::NAME_BYTES;

/// Why a text is no name.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    #[error("name is empty")]
    Empty,
    /// The text is too long.
    #[error("name has {bytes} bytes, the most is {NAME_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A control character, NUL among them.
    #[error("name has a control character at byte {at}")]
    Control {
        /// Where it is.
        at: usize,
    },
}

/// Makes a type for one kind of name.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Range: 1 to 256 bytes of UTF-8 without control characters. Compared as it is.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the name.
            ///
            /// # Errors
            ///
            /// [`NameError`] says what is wrong with it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &self.0)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                use serde::de::Error as _;

                Self::new(&String::deserialize(d)?).map_err(D::Error::custom)
            }
        }
    };
}

name! {
    /// Names a repository: everything that one metadata store is about.
    RepositoryId
}
name! {
    /// Names who owns an allocation, and so the work in it. Losing a lease changes no owner.
    OwnerId
}
name! {
    /// Names what an allocation is for. What a role needs is said by a
    /// [`RoleClassifier`](super::RoleClassifier).
    Role
}
name! {
    /// Names the state of an allocation. One state is known here: `ACTIVE`.
    Lifecycle
}

impl Lifecycle {
    /// Returns whether writers may be admitted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        &*self.0 == "ACTIVE"
    }
}

/// Names an allocation, and the resource that its lease protects.
///
/// Range: a [`ResourceKey`] of one segment, so that no allocation lies in another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct AllocationId(ResourceKey);

/// Why a text names no allocation.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationIdError {
    /// It is no resource key.
    #[error("not a resource key")]
    Key(#[source] KeyError),
    /// It has several segments.
    #[error("allocation id has {segments} segments instead of one")]
    Nested {
        /// How many.
        segments: usize,
    },
}

impl AllocationId {
    /// Reads the id.
    ///
    /// # Errors
    ///
    /// [`AllocationIdError`] says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, AllocationIdError> {
        Self::try_from(ResourceKey::new(text).map_err(AllocationIdError::Key)?)
    }

    /// Returns the resource that the lease of this allocation protects.
    #[must_use]
    pub const fn key(&self) -> &ResourceKey {
        &self.0
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<ResourceKey> for AllocationId {
    type Error = AllocationIdError;

    fn try_from(key: ResourceKey) -> Result<Self, AllocationIdError> {
        match key.as_str().split('/').count() {
            1 => Ok(Self(key)),
            segments => Err(AllocationIdError::Nested { segments }),
        }
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for AllocationId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        Self::try_from(ResourceKey::deserialize(d)?).map_err(D::Error::custom)
    }
}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES {
        return Err(NameError::TooLong { bytes: text.len() });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(NameError::Control { at }),
        None => Ok(()),
    }
}
