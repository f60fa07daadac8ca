//! Messages as lines of JSON over pipes and sockets, with a bound on every wait and every line.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::{Problem, Tried as _};
use crate::clock::Deadline;

/// The longest line. A list of receipts is the longest message.
const LINE_BYTES: usize = 8 << 20;

/// Bytes that have arrived, and the lines they make.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Reads once, without waiting if something is there. `false` at the end of the stream.
    pub(crate) fn fill(&mut self, from: impl AsFd) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        match rustix::io::read(from, &mut chunk) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.bytes.extend(chunk.iter().take(count));
                if self.bytes.len() > LINE_BYTES {
                    return Err(io::Error::other("a line is too long"));
                }
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the next whole line.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Waits for the next message; `None` at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(
        &mut self,
        from: impl AsFd,
        deadline: Deadline,
    ) -> Result<Option<T>, Problem> {
        loop {
            if let Some(line) = self.pop() {
                return parse(&line).map(Some);
            }
            if !readable(&from, deadline).tried("waiting for a message")? {
                return Err(Problem::broken("no message came in time"));
            }
            if !self.fill(&from).tried("reading a message")? {
                return Ok(None);
            }
        }
    }
}

/// Reads one message, or the problem that a role told in its place.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Problem> {
    if let Ok(Err(problem)) = serde_json::from_slice::<Result<(), Problem>>(line) {
        return Err(problem);
    }
    serde_json::from_slice(line).tried(format_args!(
        "a message is malformed: {}",
        String::from_utf8_lossy(line)
    ))
}

/// Waits until something can be read, or the other side is gone. `false` at the deadline.
pub(crate) fn readable(from: impl AsFd, deadline: Deadline) -> rustix::io::Result<bool> {
    /// How late it may be seen that a deadline was called off.
    const LOOK_UP: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    loop {
        let left = Timespec::try_from(deadline.remaining()).unwrap_or(LOOK_UP);
        let mut fds = [PollFd::new(&from, PollFlags::IN)];
        match poll(&mut fds, Some(&left.min(LOOK_UP))) {
            Err(Errno::INTR) | Ok(0) if !deadline.has_passed() => {}
            Err(errno) => return Err(errno),
            Ok(count) => return Ok(count > 0),
        }
    }
}

/// Sends one message, in one write where it fits.
pub(crate) fn send(to: &mut impl io::Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}
