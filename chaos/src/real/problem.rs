//! Why a real scenario could not be told to its end.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::story::Rule;

/// What stopped a scenario, other than a rule that did not hold.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Problem {
    /// The machine does not allow it.
    #[error("{need}: {reason}")]
    Missing {
        /// As `cargo xtask test` names it.
        need: Need,
        /// What the machine said.
        reason: String,
    },
    /// A rule did not hold, and the rest of the story rests on it.
    #[error("{}: {what}", rule.name())]
    Violated {
        /// Which.
        rule: Rule,
        /// What was seen instead.
        what: String,
    },
    /// Something that must work did not.
    #[error("{0}")]
    Broken(String),
}

/// What a scenario may need of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Need {
    Descriptors,
    Linux,
    MountNamespaces,
    PidNamespaces,
    Pidfd,
    Pidfs,
    ProcMount,
    Processes,
    Ptrace,
    ScratchFolder,
    SetTid,
    TimeNamespaces,
    UserNamespaces,
}

impl Need {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Linux => "linux",
            Self::MountNamespaces => "mount-namespaces",
            Self::PidNamespaces => "pid-namespaces",
            Self::Pidfd => "pidfd",
            Self::Pidfs => "pidfs",
            Self::ProcMount => "proc-mount",
            Self::Processes => "processes",
            Self::Ptrace => "ptrace",
            Self::ScratchFolder => "scratch-folder",
            Self::SetTid => "set-tid",
            Self::TimeNamespaces => "time-namespaces",
            Self::UserNamespaces => "user-namespaces",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Problem {
    pub(crate) fn missing(need: Need, reason: impl Display) -> Self {
        Self::Missing {
            need,
            reason: reason.to_string(),
        }
    }

    pub(crate) fn violated(rule: Rule, what: impl Display) -> Self {
        Self::Violated {
            rule,
            what: what.to_string(),
        }
    }

    pub(crate) fn broken(what: impl Display) -> Self {
        Self::Broken(what.to_string())
    }
}

/// Says what was tried when it failed.
pub(crate) trait Tried<T> {
    /// Names what was tried.
    fn tried(self, what: impl Display) -> Result<T, Problem>;

    /// Names what the machine must allow for it.
    fn needs(self, need: Need, what: impl Display) -> Result<T, Problem>;
}

impl<T, E: Display> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Display) -> Result<T, Problem> {
        self.map_err(|error| Problem::broken(format_args!("{what}: {error}")))
    }

    fn needs(self, need: Need, what: impl Display) -> Result<T, Problem> {
        self.map_err(|error| Problem::missing(need, format_args!("{what}: {error}")))
    }
}

/// Says what was opened or started when it failed. A machine that has no room for one more file or process
/// lacks something; what is tested did nothing wrong.
pub(crate) fn made<T>(
    result: Result<T, impl Into<io::Error>>,
    what: impl Display,
) -> Result<T, Problem> {
    result.map_err(|error| {
        let error = error.into();
        let told = format_args!("{what}: {error}");
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE) => Problem::missing(Need::Descriptors, told),
            Some(Errno::AGAIN | Errno::NOMEM) => Problem::missing(Need::Processes, told),
            _ => Problem::broken(told),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_for_one_more_is_what_the_machine_lacks() {
        let told = |errno: Errno| {
            made(Err::<(), _>(errno), "starting first")
                .unwrap_err()
                .to_string()
        };
        assert!(told(Errno::MFILE).starts_with("descriptors: starting first: "));
        assert!(told(Errno::NFILE).starts_with("descriptors: starting first: "));
        assert!(told(Errno::AGAIN).starts_with("processes: starting first: "));
        assert!(told(Errno::NOMEM).starts_with("processes: starting first: "));
        assert!(told(Errno::NOENT).starts_with("starting first: "));
    }
}
