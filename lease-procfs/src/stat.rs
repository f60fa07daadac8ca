//! Parses `/proc/<pid>/stat`, as bytes.

use crate::id::{Pid, StartTicks};

/// What is needed from one `stat` line.
///
/// Source: `proc_pid_stat(5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Field 1: whose line it is. `None` where it is no process number.
    pub pid: Option<Pid>,
    /// Field 3: the state of the *leader thread*. `Z` is not death: other threads may still run.
    pub state: u8,
    /// Field 4: the parent. `None` where the kernel prints 0, for it is outside the pid namespace.
    pub parent: Option<Pid>,
    /// Field 5: the process group. `None` where the kernel prints 0, as for its own threads.
    pub group: Option<Pid>,
    /// Field 22.
    pub start_ticks: StartTicks,
}

/// Why bytes are no `stat` line. It never means that the process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatError {
    /// There is no `)`, so no end of the process name.
    #[error("stat has no end of the process name")]
    NoName,
    /// The line is another process's: something is mounted over this one's.
    #[error("stat is about another process")]
    OtherProcess,
    /// The line ends too early.
    #[error("stat has {found} fields after the process name, at least 20 are needed")]
    TooFewFields {
        /// How many there are.
        found: usize,
    },
    /// The state is not one letter.
    #[error("stat field 3 is not a state letter")]
    NotAState,
    /// A field is not a whole number of 64 bits.
    #[error("stat field {field} is not a whole number")]
    NotANumber {
        /// Which field, counted as the manual page does.
        field: usize,
    },
}

impl Stat {
    /// Reads one line.
    ///
    /// The name may hold any bytes, blanks, parentheses and newlines among them, and what comes
    /// after it holds none, so fields are counted from the last `)`.
    ///
    /// # Errors
    ///
    /// [`StatError`] if the line is not one the kernel prints.
    pub fn parse(line: &[u8]) -> Result<Self, StatError> {
        let close = line
            .iter()
            .rposition(|&byte| byte == b')')
            .ok_or(StatError::NoName)?;
        let rest = line.get(close.saturating_add(1)..).unwrap_or_default();
        let mut fields = rest
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty());
        let count = fields.clone().count();
        if count <= START_INDEX {
            return Err(StatError::TooFewFields { found: count });
        }
        let state = match fields.next() {
            Some(&[letter]) if letter.is_ascii_alphabetic() => letter,
            Some(_) | None => return Err(StatError::NotAState),
        };
        let parent = fields.next().and_then(pid);
        let group = fields.next().and_then(pid);
        // Three fields were taken, so the index is that much less.
        let start = fields
            .nth(START_INDEX.saturating_sub(3))
            .unwrap_or_default();
        let name = line.iter().position(|&byte| byte == b'(').unwrap_or(0);
        Ok(Self {
            pid: pid(line.get(..name).unwrap_or_default().trim_ascii()),
            state,
            parent,
            group,
            start_ticks: number(start)
                .map(StartTicks::new)
                .ok_or(StatError::NotANumber { field: 22 })?,
        })
    }

    /// Reads one line that is to be this process's.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and [`StatError::OtherProcess`].
    pub fn parse_of(owner: Pid, line: &[u8]) -> Result<Self, StatError> {
        let stat = Self::parse(line)?;
        if stat.pid == Some(owner) {
            Ok(stat)
        } else {
            Err(StatError::OtherProcess)
        }
    }

    /// Tells whether the leader thread has exited. The process may still run.
    #[must_use]
    pub const fn leader_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Where `starttime` stands after the name: `state` is field 3 and index 0.
const START_INDEX: usize = 19;

fn pid(field: &[u8]) -> Option<Pid> {
    str::from_utf8(field).ok()?.parse().ok()
}

fn number(field: &[u8]) -> Option<u64> {
    // `parse` alone would take a plus sign.
    if !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(field).ok()?.parse().ok()
}
