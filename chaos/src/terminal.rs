//! Shows progress on the standard error stream: one line that is written over on a terminal, a plain
//! line now and then elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chaos::clock::Stopwatch;
use chaos::scenario::Progress;

/// Where progress is shown.
#[derive(Debug)]
pub(crate) struct Terminal {
    overwrites: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What is going on.
    current: String,
    since: Stopwatch,
    /// When something was shown last.
    shown: Stopwatch,
    /// A line stands there that will be written over.
    dirty: bool,
}

/// The widest line that is written over; a longer one would wrap, and stay.
const COLUMNS: usize = 78;

impl Terminal {
    pub(crate) fn new() -> Self {
        Self {
            overwrites: io::stderr().is_terminal(),
            state: Mutex::new(State {
                current: String::new(),
                since: Stopwatch::start(),
                shown: Stopwatch::start(),
                dirty: false,
            }),
        }
    }

    /// Says what is going on from now on.
    pub(crate) fn begin(&self, what: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        what.clone_into(&mut state.current);
        state.since = Stopwatch::start();
        state.shown = Stopwatch::start();
        if self.overwrites {
            over(&mut state, what);
        }
    }

    /// Writes a line that stays.
    pub(crate) fn line(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let clear = if state.dirty { "\r\x1b[K" } else { "" };
        state.dirty = false;
        // Progress that nobody can see is no reason to stop.
        let _unseen = writeln!(io::stderr(), "{clear}{line}");
    }

    /// Writes what a scenario came to, to the standard output stream.
    pub(crate) fn result(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.dirty) {
            let _unseen = write!(io::stderr(), "\r\x1b[K");
        }
        // The exit code tells of a broken stream, when the summary cannot be written either.
        let mut out = io::stdout();
        let _unseen = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Progress for Terminal {
    fn show(&self, line: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = if self.overwrites {
            Duration::from_millis(100)
        } else {
            Duration::from_secs(5)
        };
        if state.shown.elapsed() < pause {
            return;
        }
        state.shown = Stopwatch::start();
        let text = format!(
            "{} {}s: {line}",
            state.current,
            state.since.elapsed().as_secs()
        );
        if self.overwrites {
            over(&mut state, &text);
        } else {
            let _unseen = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Writes over the present line.
fn over(state: &mut State, text: &str) {
    let text: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(COLUMNS)
        .collect();
    state.dirty = true;
    let mut out = io::stderr();
    let _unseen = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
}
