//! The text form of an identity: `key=value` parts in one order, one blank between them.

use core::fmt;
use core::str::FromStr;

use crate::id::{Namespace, NamespaceInode, StartTicks, plain_number};
use crate::identity::ProcessIdentity;

/// Why a text is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {reason}")]
#[non_exhaustive]
pub struct IdentityError {
    /// Where the wrong part begins.
    pub at: usize,
    /// What is wrong with it.
    pub reason: IdentityReason,
}

/// What is wrong with a part of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityReason {
    /// Another part should stand here.
    #[error("{key}= is missing")]
    Missing {
        /// Its key.
        key: &'static str,
    },
    /// Something stands here that is no part, or a part in the wrong place.
    #[error("nothing more should stand here")]
    Unexpected,
    /// The boot id is wrong.
    #[error("{0}")]
    BootId(crate::BootIdError),
    /// The trust is neither `yes` nor `no`.
    #[error("trust is neither yes nor no")]
    Trust,
    /// The process number is wrong.
    #[error("{0}")]
    Pid(crate::PidError),
    /// The start ticks are wrong.
    #[error("{0}")]
    StartTicks(crate::StartTicksError),
    /// The pidfd inode is wrong.
    #[error("pidfd inode is not a plain decimal number of 64 bits")]
    PidfdInode,
    /// A namespace is wrong.
    #[error("namespace is neither id.N nor inode.N nor inode.N.TICKS")]
    Namespace,
    /// The launch id is wrong.
    #[error("{0}")]
    Launch(crate::LaunchIdError),
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trust = if self.boot_trusted { "yes" } else { "no" };
        write!(f, "boot={} trust={trust}", self.boot_id)?;
        write!(f, " pid={} start={}", self.pid, self.start_ticks)?;
        if let Some(inode) = self.pidfd_inode {
            write!(f, " pidfd={inode}")?;
        }
        if let Some(namespace) = self.pid_namespace {
            write!(f, " pidns={namespace}")?;
        }
        if let Some(namespace) = self.time_namespace {
            write!(f, " timens={namespace}")?;
        }
        if let Some(launch) = self.launch {
            write!(f, " launch={launch}")?;
        }
        Ok(())
    }
}

impl FromStr for ProcessIdentity {
    type Err = IdentityError;

    /// Reads exactly what `Display` writes.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let mut parts = Parts { text, at: 0 };
        let identity = Self {
            boot_id: parts.required("boot", |v| v.parse().map_err(IdentityReason::BootId))?,
            boot_trusted: parts.required("trust", trust)?,
            pid: parts.required("pid", |v| v.parse().map_err(IdentityReason::Pid))?,
            start_ticks: parts
                .required("start", |v| v.parse().map_err(IdentityReason::StartTicks))?,
            pidfd_inode: parts.optional("pidfd", |v| {
                plain_number(v).ok_or(IdentityReason::PidfdInode)
            })?,
            pid_namespace: parts.optional("pidns", namespace)?,
            time_namespace: parts.optional("timens", namespace)?,
            launch: parts.optional("launch", |v| v.parse().map_err(IdentityReason::Launch))?,
        };
        parts.end()?;
        Ok(identity)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "id.{id}"),
            Self::Inode(NamespaceInode { inode, init_start }) => {
                write!(f, "inode.{inode}")?;
                match init_start {
                    Some(start) => write!(f, ".{start}"),
                    None => Ok(()),
                }
            }
        }
    }
}

fn trust(value: &str) -> Result<bool, IdentityReason> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(IdentityReason::Trust),
    }
}

fn namespace(value: &str) -> Result<Namespace, IdentityReason> {
    parse_namespace(value).ok_or(IdentityReason::Namespace)
}

fn parse_namespace(value: &str) -> Option<Namespace> {
    if let Some(id) = value.strip_prefix("id.") {
        return plain_number(id).map(Namespace::Id);
    }
    let rest = value.strip_prefix("inode.")?;
    let (inode, init_start) = match rest.split_once('.') {
        Some((inode, ticks)) => (inode, Some(StartTicks::new(plain_number(ticks)?))),
        None => (rest, None),
    };
    Some(Namespace::Inode(NamespaceInode {
        inode: plain_number(inode)?,
        init_start,
    }))
}

/// The parts that are still to be read.
struct Parts<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parts<'a> {
    /// Takes the next part if it has this key, and returns where its value begins.
    fn take(&mut self, key: &str) -> Option<(usize, &'a str)> {
        let rest = self.text.get(self.at..)?;
        // Every part but the first comes after exactly one blank.
        let blank = usize::from(self.at > 0);
        let part = if blank == 1 {
            rest.strip_prefix(' ')?
        } else {
            rest
        };
        let value = part.strip_prefix(key)?.strip_prefix('=')?;
        let value = value.split_once(' ').map_or(value, |(value, _)| value);
        let begins = self.at + blank + key.len() + 1;
        self.at = begins + value.len();
        Some((begins, value))
    }

    fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, IdentityReason>,
    ) -> Result<T, IdentityError> {
        let at = self.at;
        match self.optional(key, read)? {
            Some(value) => Ok(value),
            None => Err(IdentityError {
                at,
                reason: IdentityReason::Missing { key },
            }),
        }
    }

    fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, IdentityReason>,
    ) -> Result<Option<T>, IdentityError> {
        let Some((at, value)) = self.take(key) else {
            return Ok(None);
        };
        match read(value) {
            Ok(value) => Ok(Some(value)),
            Err(reason) => Err(IdentityError { at, reason }),
        }
    }

    const fn end(&self) -> Result<(), IdentityError> {
        if self.at == self.text.len() {
            return Ok(());
        }
        Err(IdentityError {
            at: self.at,
            reason: IdentityReason::Unexpected,
        })
    }
}
