//! Who uses a path, and by what.

use std::path::PathBuf;

use crate::id::Pid;

/// By what a process uses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UsedBy {
    /// Its working directory.
    WorkingDirectory,
    /// An open file or directory.
    Descriptor,
    /// A mapped file.
    Mapping,
}

impl UsedBy {
    /// Returns the word for people: `cwd`, `fd` or `map`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkingDirectory => "cwd",
            Self::Descriptor => "fd",
            Self::Mapping => "map",
        }
    }
}

/// One use of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathUse {
    /// By what.
    pub by: UsedBy,
    /// The path as the kernel shows it: possibly with ` (deleted)` at its end, and with newlines as
    /// `\012` in a mapping.
    pub path: PathBuf,
}

/// A process that uses a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupant {
    /// Which, as a number of the `/proc` that was read.
    pub pid: Pid,
    /// Its uses, at most 16.
    pub uses: Vec<PathUse>,
}

/// Who uses a path, and how much could not be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupants {
    /// Every user, by number.
    pub users: Vec<Occupant>,
    /// How many other processes could not be looked into in full. None of their unseen uses is
    /// among `users`.
    pub unreadable: u32,
    /// How many of them somebody mounted something over, or have more mounts than are read, which no right
    /// to look can help. All of them, if our own mounts do not tell where the path lies, as in a root that
    /// is not itself a mount.
    pub obscured: u32,
    /// Whether this `/proc` leaves processes out of its list, so that nobody can count them.
    pub hides: bool,
}

impl Occupants {
    /// Tells whether nobody uses the path and everybody was looked into.
    #[must_use]
    pub const fn is_proven_empty(&self) -> bool {
        self.users.is_empty() && self.unreadable == 0 && !self.hides
    }
}
