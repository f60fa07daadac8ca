//! Which process a lease is for, when somebody else names it: the one resolver.
//!
//! A selector is a decimal pid, or `ancestor:PROGRAM` for the nearest ancestor of the calling
//! process that runs a program. Names and paths are bytes.

use std::fmt;
use std::io;
use std::str::FromStr;

use lease_core::Code;

#[cfg(target_os = "linux")]
mod walk;

use crate::describe::DescribeError;
use crate::holder::{LabelError, ProcessHolder};
use crate::id::{Pid, PidError};
use crate::identity::ProcessIdentity;
use crate::limits::PROGRAM_BYTES;
use crate::procfs::ProcFs;
use crate::stat::StatError;

/// The rules by which a selector finds its process; part of every grant made by one.
pub const RESOLVER_VERSION: u32 = 1;

/// Names a process, by number or by what its ancestor runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Selector {
    /// `ancestor:PROGRAM`: the nearest ancestor of the calling process that runs this program.
    Ancestor(Program),
    /// A decimal number: the process that has it, in the calling process's pid namespace.
    Pid(Pid),
}

/// The bare file name of a program: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program(Box<[u8]>);

/// The labels a resolved process gets.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the three labels of a holder")]
pub struct Labels<'a> {
    /// What the program calls itself.
    pub client: &'a str,
    /// The session, if there is one.
    pub session: Option<&'a str>,
    /// The run, if there is one.
    pub run: Option<&'a str>,
}

/// Why a text is no selector.
///
/// State: nothing was changed. Retry: never with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {reason}")]
#[non_exhaustive]
pub struct SelectorError {
    /// Where the wrong part begins.
    pub at: usize,
    /// What is wrong with it.
    pub reason: SelectorReason,
}

/// What is wrong with a part of a selector. Nothing of the text is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorReason {
    /// It has none of the two forms.
    #[error("selector is neither a decimal pid nor ancestor:PROGRAM")]
    Form,
    /// The program is a path, or a name for a folder.
    #[error("program is a path, a bare file name is needed")]
    Path,
    /// The number is no process number.
    #[error("{0}")]
    Pid(PidError),
    /// There is no program.
    #[error("program is empty")]
    ProgramEmpty,
    /// The program has a NUL, which no file name has.
    #[error("program has a NUL byte")]
    ProgramNul,
    /// The program is longer than a file name can be.
    #[error("program has {bytes} bytes, the most is {PROGRAM_BYTES}")]
    ProgramTooLong {
        /// Its length.
        bytes: usize,
    },
}

impl SelectorError {
    /// Returns the stable code: always [`Code::InvalidHolder`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidHolder
    }
}

/// Why a selector leads to no holder. Nothing is guessed.
///
/// State: nothing was changed. Retry: as each variant says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// An ancestor ended, or another process has its number now. Retry: at once.
    #[error("process {pid}, ancestor {step}, changed while it was looked at")]
    Changed {
        /// Its number.
        pid: Pid,
        /// How many steps up; 1 is the parent.
        step: usize,
    },
    /// The process cannot be described. Retry: as the source says.
    #[error("the selected process cannot be described")]
    Describe {
        /// Why not.
        #[source]
        source: DescribeError,
    },
    /// A label is wrong. Retry: never with the same.
    #[error("a label of the holder is refused")]
    Label {
        /// Which, and what is wrong with it.
        #[source]
        source: LabelError,
    },
    /// No ancestor below the first process runs the program, as far up as is looked. Retry: never
    /// from here.
    #[error("no ancestor runs {program}")]
    NoAncestor {
        /// What was looked for.
        program: Program,
    },
    /// An ancestor's `stat` is not what a kernel prints. Retry: never.
    #[error("process {pid}, ancestor {step}, has a malformed stat")]
    Stat {
        /// Its number.
        pid: Pid,
        /// How many steps up; 0 is the calling process.
        step: usize,
        /// What is wrong with it.
        #[source]
        source: StatError,
    },
    /// An ancestor could not be looked at. Retry: with the rights to see it.
    #[error("{part} of process {pid}, ancestor {step}, cannot be read")]
    Unreadable {
        /// Its number.
        pid: Pid,
        /// How many steps up; 0 is the calling process.
        step: usize,
        /// What could not be read.
        part: AncestorPart,
        /// What the look gave.
        #[source]
        source: io::Error,
    },
}

/// What is read of an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AncestorPart {
    /// Its arguments, of which only argument zero is used.
    Arguments,
    /// The link to its executable.
    Executable,
    /// Its pidfd.
    Pidfd,
    /// Its `stat`.
    Stat,
}

impl fmt::Display for AncestorPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arguments => "argument zero",
            Self::Executable => "the executable",
            Self::Pidfd => "the pidfd",
            Self::Stat => "the stat",
        })
    }
}

impl SelectError {
    /// Returns the stable code: always [`Code::InvalidHolder`].
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::InvalidHolder
    }
}

impl From<DescribeError> for SelectError {
    fn from(source: DescribeError) -> Self {
        Self::Describe { source }
    }
}

impl Selector {
    /// Reads a selector; a program may be any bytes.
    ///
    /// # Errors
    ///
    /// [`SelectorError`] says where it is no selector.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &T) -> Result<Self, SelectorError> {
        let bytes = text.as_ref();
        if let Some(program) = bytes.strip_prefix(ANCESTOR) {
            return match Program::new(program) {
                Ok(program) => Ok(Self::Ancestor(program)),
                Err(reason) => Err(SelectorError {
                    at: ANCESTOR.len(),
                    reason,
                }),
            };
        }
        let error = |reason| SelectorError { at: 0, reason };
        let text = str::from_utf8(bytes).map_err(|_not_text| error(SelectorReason::Form))?;
        match text.parse() {
            Ok(pid) => Ok(Self::Pid(pid)),
            Err(PidError::NotANumber) => Err(error(SelectorReason::Form)),
            Err(reason) => Err(error(SelectorReason::Pid(reason))),
        }
    }
}

/// What an ancestor's program stands behind.
const ANCESTOR: &[u8] = b"ancestor:";

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ancestor(program) => write!(f, "ancestor:{program}"),
            Self::Pid(pid) => pid.fmt(f),
        }
    }
}

impl Program {
    /// Takes a bare file name.
    ///
    /// # Errors
    ///
    /// [`SelectorReason`] says what else it is.
    pub fn new<T: AsRef<[u8]> + ?Sized>(name: &T) -> Result<Self, SelectorReason> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(SelectorReason::ProgramEmpty);
        }
        if name.contains(&b'/') || matches!(name, b"." | b"..") {
            return Err(SelectorReason::Path);
        }
        if name.contains(&0) {
            return Err(SelectorReason::ProgramNul);
        }
        if name.len() > PROGRAM_BYTES {
            let bytes = name.len();
            return Err(SelectorReason::ProgramTooLong { bytes });
        }
        Ok(Self(Box::from(name)))
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Tells whether a process runs this program, by the base name of argument zero or of the
    /// executable.
    ///
    /// `link` is the executable's link as the kernel shows it: a replaced program ends in
    /// ` (deleted)`.
    #[must_use]
    pub fn is_run_by(&self, argument_zero: &[u8], link: &[u8]) -> bool {
        let is_named = |path: &[u8]| base_name(path) == self.as_bytes();
        is_named(argument_zero)
            || is_named(link)
            || link.strip_suffix(b" (deleted)").is_some_and(is_named)
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Shows the name in quotes, escaped.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for chunk in self.0.utf8_chunks() {
            write!(f, "{}", chunk.valid().escape_debug())?;
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        f.write_str("\"")
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Finds the process a selector means and names it.
///
/// The identity is another process's, so it has no launch, unless the number given is the calling
/// process's own. An `ancestor:` selector never means the calling process, takes at most
/// [`ANCESTOR_STEPS`](crate::limits::ANCESTOR_STEPS) steps, stops below the first process of the pid
/// namespace, and refuses as soon as something on the way cannot be read or changes.
///
/// The holder has no process group yet; see [`ProcessHolder::with_present_group`].
///
/// # Errors
///
/// [`SelectError`]; a process that cannot be seen is never passed over.
///
/// # Examples
///
/// ```
/// use lease_procfs::select::{Labels, SelectError, Selector, resolve};
/// use lease_procfs::{ProcFs, ProcessHolder};
///
/// /// Names the program that started this one, with the group that its work is found by.
/// fn launcher(proc: &ProcFs, program: &Selector) -> Result<ProcessHolder, SelectError> {
///     let labels = Labels { client: "launcher", session: Some("s-1"), run: None };
///     Ok(resolve(proc, program, labels)?.with_present_group(proc)?)
/// }
/// ```
pub fn resolve(
    proc: &ProcFs,
    selector: &Selector,
    labels: Labels<'_>,
) -> Result<ProcessHolder, SelectError> {
    let process = match selector {
        Selector::Ancestor(program) => nearest_ancestor(proc, program)?,
        Selector::Pid(pid) => ProcessIdentity::of(proc, *pid)?,
    };
    labels
        .name(process)
        .map_err(|source| SelectError::Label { source })
}

#[cfg(target_os = "linux")]
use walk::nearest_ancestor;

#[cfg(not(target_os = "linux"))]
const fn nearest_ancestor(_: &ProcFs, _: &Program) -> Result<ProcessIdentity, SelectError> {
    Err(SelectError::Describe {
        source: DescribeError::Unsupported,
    })
}

impl Labels<'_> {
    fn name(&self, process: ProcessIdentity) -> Result<ProcessHolder, LabelError> {
        let mut holder = ProcessHolder::new(self.client, process)?;
        if let Some(session) = self.session {
            holder = holder.with_session(session)?;
        }
        if let Some(run) = self.run {
            holder = holder.with_run(run)?;
        }
        Ok(holder)
    }
}
