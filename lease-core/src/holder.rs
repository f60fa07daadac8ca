//! Who a lease is bound to.

use alloc::format;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt::{self, Debug};
use core::hash::{Hash, Hasher};

use crate::limits::NAME_BYTES;

/// The identity a lease is bound to.
///
/// Two requests come from the same holder exactly when the values are equal, in every part. A clone
/// should be cheap: one is kept per lease, operation and receipt.
pub trait Holder: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// What occupancy is asked about (a path, for processes); opaque to the core.
    type Target: Clone + Debug + Send + Sync + 'static;

    /// The kind of identity, in receipts: `session`, `process`.
    const KIND: &'static str;
}

/// A connection of an agent: the holder inside one process.
///
/// Equal agents with different sessions are different writers, always. The session is minted by
/// whoever accepts the connection and is never taken from what a caller sends.
///
/// Range of both names: 1 to 256 bytes of UTF-8 without control characters. They are compared byte
/// for byte; a trailing blank makes another writer.
#[derive(Clone, Eq)]
pub struct SessionHolder {
    // One shared text for both names: a lease, a waiter and a receipt each keep a clone.
    names: Arc<str>,
}

/// Stands between the two names; no name has it.
const BETWEEN: char = '\0';

/// Why a text is no agent or session name.
///
/// State: nothing was made or changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    #[error("{part} is empty")]
    Empty {
        /// `agent` or `session`.
        part: &'static str,
    },
    /// The text is longer than 256 bytes.
    #[error("{part} has {bytes} bytes, the most is {NAME_BYTES}")]
    TooLong {
        /// `agent` or `session`.
        part: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A control character, NUL among them.
    #[error("{part} has a control character at byte {at}")]
    Control {
        /// `agent` or `session`.
        part: &'static str,
        /// Where it is.
        at: usize,
    },
}

impl SessionHolder {
    /// Names a writer.
    ///
    /// # Errors
    ///
    /// [`NameError`] names the part that is wrong, and how.
    pub fn new(agent: &str, session: &str) -> Result<Self, NameError> {
        check("agent", agent)?;
        check("session", session)?;
        Ok(Self {
            names: Arc::from(format!("{agent}{BETWEEN}{session}")),
        })
    }

    fn both(&self) -> (&str, &str) {
        self.names.split_once(BETWEEN).unwrap_or_default()
    }

    /// Returns the agent's name. It is never a writer by itself.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.both().0
    }

    /// Returns the session's name.
    #[must_use]
    pub fn session(&self) -> &str {
        self.both().1
    }
}

fn check(part: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { part });
    }
    if name.len() > NAME_BYTES {
        return Err(NameError::TooLong {
            part,
            bytes: name.len(),
        });
    }
    match name.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(NameError::Control { part, at }),
        None => Ok(()),
    }
}

impl Holder for SessionHolder {
    type Target = ();
    const KIND: &'static str = "session";
}

impl PartialEq for SessionHolder {
    /// Both names, byte for byte; clones of one value are known without a look at them.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names) || self.names == other.names
    }
}

impl Hash for SessionHolder {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.names.hash(state);
    }
}

impl Ord for SessionHolder {
    /// By agent, then by session.
    fn cmp(&self, other: &Self) -> Ordering {
        self.both().cmp(&other.both())
    }
}

impl PartialOrd for SessionHolder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Debug for SessionHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (agent, session) = self.both();
        write!(f, "{agent}/{session}")
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SessionHolder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let mut parts = serializer.serialize_struct("SessionHolder", 2)?;
        parts.serialize_field("agent", self.agent())?;
        parts.serialize_field("session", self.session())?;
        parts.end()
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SessionHolder {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts<'a> {
            agent: alloc::borrow::Cow<'a, str>,
            session: alloc::borrow::Cow<'a, str>,
        }
        let parts: Parts<'_> = crate::wire::legibly(d)?;
        Self::new(&parts.agent, &parts.session).map_err(serde::de::Error::custom)
    }
}
