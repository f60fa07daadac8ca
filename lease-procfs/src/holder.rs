//! A holder that is one process, and what it is called.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use lease_core::{Code, Holder};

use crate::describe::DescribeError;
use crate::identity::ProcessIdentity;
use crate::limits::{CLIENT_BYTES, LABEL_BYTES};
use crate::procfs::ProcFs;
use crate::work::ProcessGroup;

/// A process that holds leases, under the labels it goes by.
///
/// Equal means equal in every part: a label left out never inherits the rights of one that is
/// there. The labels come on top; the process is what identifies. The process group is evidence
/// about its work and no part of who it is: holders that differ in nothing else are equal.
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProcessHolder {
    client: Arc<str>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    session: Option<Arc<str>>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    run: Option<Arc<str>>,
    process: ProcessIdentity,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    group: Option<ProcessGroup>,
}

/// Why a label of a holder is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The label is empty; to leave it out is something else.
    #[error("{part} is empty")]
    Empty {
        /// `client`, `session` or `run`.
        part: &'static str,
    },
    /// The label is too long.
    #[error("{part} has {bytes} bytes, the most is {most}")]
    TooLong {
        /// `client`, `session` or `run`.
        part: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// A character that the label may not have there.
    #[error("{part} has a character at byte {at} that is not allowed there")]
    Character {
        /// `client`, `session` or `run`.
        part: &'static str,
        /// Where it is.
        at: usize,
    },
}

impl LabelError {
    /// Returns the stable code: always [`Code::InvalidHolder`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidHolder
    }
}

impl ProcessHolder {
    /// Names a holder that is this process, without session and run.
    ///
    /// The client is 1 to 128 ASCII characters: first a letter or digit, then also `.`, `_`, `:` and
    /// `-`.
    ///
    /// # Errors
    ///
    /// [`LabelError`] says what is wrong with the client.
    pub fn new(client: &str, process: ProcessIdentity) -> Result<Self, LabelError> {
        check_client(client)?;
        Ok(Self {
            client: Arc::from(client),
            session: None,
            run: None,
            process,
            group: None,
        })
    }

    /// Adds the session: 1 to 256 bytes without NUL.
    ///
    /// # Errors
    ///
    /// [`LabelError`] says what is wrong with it.
    pub fn with_session(mut self, session: &str) -> Result<Self, LabelError> {
        check_label("session", session)?;
        self.session = Some(Arc::from(session));
        Ok(self)
    }

    /// Adds the run: 1 to 256 bytes without NUL.
    ///
    /// # Errors
    ///
    /// [`LabelError`] says what is wrong with it.
    pub fn with_run(mut self, run: &str) -> Result<Self, LabelError> {
        check_label("run", run)?;
        self.run = Some(Arc::from(run));
        Ok(self)
    }

    /// Adds the process group it was in when it took the lease; see [`ProcessGroup::of`].
    ///
    /// With it the work of a holder that did not lead its group is found after its death.
    #[must_use]
    pub const fn with_group(mut self, group: ProcessGroup) -> Self {
        self.group = Some(group);
        self
    }

    /// Adds the process group that its process is in now; none where the group's number means nothing
    /// in this pid namespace.
    ///
    /// # Errors
    ///
    /// [`DescribeError`] as [`ProcessGroup::of`]: a process that has ended meanwhile gets no lease.
    pub fn with_present_group(mut self, proc: &ProcFs) -> Result<Self, DescribeError> {
        self.group = ProcessGroup::of(proc, &self.process)?;
        Ok(self)
    }

    /// Returns what the program calls itself.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Returns the session, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the run, if there is one.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Returns the process.
    #[must_use]
    pub const fn process(&self) -> &ProcessIdentity {
        &self.process
    }

    /// Returns the recorded process group, if there is one.
    #[must_use]
    pub const fn group(&self) -> Option<ProcessGroup> {
        self.group
    }

    /// What makes two holders one.
    fn identifying(&self) -> (&str, Option<&str>, Option<&str>, &ProcessIdentity) {
        (self.client(), self.session(), self.run(), &self.process)
    }
}

impl PartialEq for ProcessHolder {
    fn eq(&self, other: &Self) -> bool {
        self.identifying() == other.identifying()
    }
}

impl Eq for ProcessHolder {}

impl Hash for ProcessHolder {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.identifying().hash(state);
    }
}

impl Holder for ProcessHolder {
    type Target = TargetPath;
    const KIND: &'static str = "process";
}

impl fmt::Debug for ProcessHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.client)?;
        for label in [&self.session, &self.run].into_iter().flatten() {
            write!(f, "/{label:?}")?;
        }
        write!(f, " [{}]", self.process)?;
        match self.group {
            Some(group) => write!(f, " group={group}"),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ProcessHolder {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            client: String,
            session: Option<String>,
            run: Option<String>,
            process: ProcessIdentity,
            // Records made before groups were recorded have none.
            group: Option<ProcessGroup>,
        }
        let parts: Parts = crate::wire::legibly(d)?;
        let build = || {
            let mut holder = Self::new(&parts.client, parts.process)?;
            if let Some(session) = &parts.session {
                holder = holder.with_session(session)?;
            }
            if let Some(run) = &parts.run {
                holder = holder.with_run(run)?;
            }
            if let Some(group) = parts.group {
                holder = holder.with_group(group);
            }
            Ok::<_, LabelError>(holder)
        };
        build().map_err(serde::de::Error::custom)
    }
}

/// A path whose users count as occupants of a resource.
///
/// Any bytes a file system takes; absolute, so that it means one place to every reader. Processes are
/// seen under the resolved path, so one with a symbolic link in it is used by nobody: make it with
/// [`resolve`](Self::resolve).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetPath(Arc<Path>);

/// Why a path is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetPathError {
    /// It depends on somebody's working directory.
    #[error("target path is not absolute")]
    NotAbsolute,
    /// It goes through `..`, which means another place after a symbolic link.
    #[error("target path leads through its parent directory")]
    NotResolved,
    /// It has a NUL, which no path has.
    #[error("target path has a NUL byte")]
    Nul,
    /// It could not be resolved.
    #[error("target path cannot be resolved: {kind}")]
    Unresolvable {
        /// What looking at it gave.
        kind: io::ErrorKind,
    },
}

impl TargetPathError {
    /// Returns the stable code: always [`Code::InvalidTarget`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidTarget
    }
}

impl TargetPath {
    /// Takes an absolute path that is resolved already. Nothing is looked up.
    ///
    /// # Errors
    ///
    /// [`TargetPathError`] but for [`Unresolvable`](TargetPathError::Unresolvable).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, TargetPathError> {
        let path = path.into();
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(TargetPathError::Nul);
        }
        if !path.is_absolute() {
            return Err(TargetPathError::NotAbsolute);
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(TargetPathError::NotResolved);
        }
        // As the kernel writes it: without empty parts and those that stay where they are.
        let path: PathBuf = path.components().collect();
        Ok(Self(Arc::from(path)))
    }

    /// Takes an absolute path and follows the symbolic links in it.
    ///
    /// What does not exist (a directory that was removed) stays as it is below what does.
    ///
    /// # Errors
    ///
    /// [`TargetPathError`] says what is wrong with it.
    pub fn resolve(path: impl Into<PathBuf>) -> Result<Self, TargetPathError> {
        let path = path.into();
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(TargetPathError::Nul);
        }
        if !path.is_absolute() {
            return Err(TargetPathError::NotAbsolute);
        }
        for existing in path.ancestors() {
            match existing.canonicalize() {
                Ok(resolved) => {
                    let missing = path.strip_prefix(existing).into_iter();
                    let missing = missing.flat_map(Path::components);
                    return Self::new(missing.fold(resolved, |path, part| path.join(part)));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(TargetPathError::Unresolvable { kind: error.kind() }),
            }
        }
        Self::new(path)
    }

    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

pub(crate) fn check_client(client: &str) -> Result<(), LabelError> {
    let part = "client";
    check_length(part, client, CLIENT_BYTES)?;
    let allowed = |at: usize, byte: u8| {
        byte.is_ascii_alphanumeric() || (at > 0 && matches!(byte, b'.' | b'_' | b':' | b'-'))
    };
    match client
        .bytes()
        .enumerate()
        .find(|&(at, byte)| !allowed(at, byte))
    {
        Some((at, _)) => Err(LabelError::Character { part, at }),
        None => Ok(()),
    }
}

pub(crate) fn check_label(part: &'static str, label: &str) -> Result<(), LabelError> {
    check_length(part, label, LABEL_BYTES)?;
    match label.bytes().position(|byte| byte == 0) {
        Some(at) => Err(LabelError::Character { part, at }),
        None => Ok(()),
    }
}

const fn check_length(part: &'static str, label: &str, most: usize) -> Result<(), LabelError> {
    if label.is_empty() {
        return Err(LabelError::Empty { part });
    }
    if label.len() > most {
        return Err(LabelError::TooLong {
            part,
            bytes: label.len(),
            most,
        });
    }
    Ok(())
}
