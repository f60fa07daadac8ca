//! The gate: who waits is woken by the one who lets go, in the order in which they came, and nothing
//! more.
//!
//! Four bytes, far behind the end of the record, that are locked and never written:
//!
//! | byte | who has it |
//! | --- | --- |
//! | left, right | the holder one of them, whoever stands first in line the other one |
//! | middle | the holder |
//! | line | whoever stands first in line |
//!
//! A holder takes the middle and one side by one call. So the first in line has the other side while
//! somebody holds, and whoever has just held, and comes again by the other side, finds it taken and
//! stands in line instead of being faster than the one who is being woken.
//!
//! Such a lock belongs to an open file, so that a bare `clone` that outlives a holder keeps the gate
//! shut. So it is no proof of anything: whatever the gate says, the kernel lock decides, and everybody
//! tries that too.
//!
//! Waiting for such a lock cannot be given up at a deadline, so a thread of its own waits, one per
//! path, and rings a bell.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::limits::DOORMAN_IDLE;
use crate::sys::{self, Bell, Bytes, FileId, Image, Kind, Unshared};

/// By which side a holder came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Left,
    Right,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    const fn with_middle(self) -> Bytes {
        match self {
            Self::Left => bytes(LEFT, 2),
            Self::Right => bytes(MIDDLE, 2),
        }
    }
}

const LEFT: u32 = 0x4000_0000;
const MIDDLE: u32 = 0x4000_0001;
const RIGHT: u32 = 0x4000_0002;
const LINE: u32 = 0x4000_0003;

const fn bytes(start: u32, count: u32) -> Bytes {
    Bytes { start, count }
}

/// How often a side is tried by whoever stands first, while holders come and go.
const MARKS: u32 = 8;

/// An open file of its own on a record.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    file: FileId,
    descriptor: Arc<Unshared>,
}

impl Gate {
    /// Opens the gate at a record's path; `None` if no record is there.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let descriptor = sys::open_to_lock(path).ok()?;
        let found = sys::look_at(&descriptor).ok()?;
        (found.kind == Kind::Regular).then(|| Self {
            file: found.id,
            descriptor: Arc::new(Unshared::new(descriptor)),
        })
    }

    pub(crate) fn is_on(&self, file: FileId) -> bool {
        self.file == file
    }

    /// Closes it behind us, if nobody has it and nobody on this side stands first in line. `None` if
    /// there are no such locks here.
    pub(crate) fn try_close(&self, side: Side) -> Option<bool> {
        sys::try_bytes(&*self.descriptor, side.with_middle())
    }

    /// Opens it, which lets the next one through.
    pub(crate) fn open(&self) {
        sys::free_bytes(&*self.descriptor, bytes(LEFT, 4));
    }

    /// Whoever was let through holds now, as if it had come in by the left: the next one may stand
    /// first in line.
    pub(crate) fn settle(&self) -> Side {
        sys::free_bytes(&*self.descriptor, bytes(RIGHT, 2));
        Side::Left
    }

    /// Waits to be the first in line; `false` if there are no such locks here.
    fn stand(&self) -> bool {
        sys::wait_bytes(&*self.descriptor, bytes(LINE, 1))
    }

    /// Waits, as the first in line, until it is open, and closes it behind us.
    fn pass(&self) -> bool {
        for _again in 0..MARKS {
            let left = sys::try_bytes(&*self.descriptor, bytes(LEFT, 1));
            let right = sys::try_bytes(&*self.descriptor, bytes(RIGHT, 1));
            if left == Some(true) || right == Some(true) {
                break;
            }
        }
        sys::wait_bytes(&*self.descriptor, bytes(LEFT, 3))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.descriptor, &other.descriptor)
    }
}

/// Waits at a gate on behalf of the first waiter of a path.
///
/// # Drop
///
/// Its thread ends at once, or when the gate at which it waits is opened.
#[derive(Debug)]
pub(crate) struct Doorman {
    desk: Arc<Desk>,
    image: Image,
}

#[derive(Debug)]
struct Desk {
    post: Mutex<Post>,
    called: Condvar,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Post {
    /// Where to wait.
    wanted: Option<Gate>,
    /// Where the thread waits, wanted or not.
    at: Option<Gate>,
    /// The gate that was passed and is closed behind us.
    passed: Option<Gate>,
    /// A gate that nobody uses, and that may be used again.
    spare: Option<Gate>,
    is_running: bool,
    is_over: bool,
}

impl Doorman {
    /// `None` where the system gives no bell.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            desk: Arc::new(Desk {
                post: Mutex::default(),
                called: Condvar::new(),
                bell: Bell::new().ok()?,
            }),
            image: Image::present(),
        })
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.desk.bell
    }

    /// Goes to the gate of this path, if not already there; `false` if there is no gate.
    pub(crate) fn go(&self, path: &Path) -> bool {
        let mut post = self.desk.post();
        if post.wanted.is_some() || post.passed.is_some() {
            return true;
        }
        if let Some(gate) = post.at.clone() {
            // Still there on behalf of somebody who has given up: a better place than a new one.
            post.wanted = Some(gate);
            return true;
        }
        let Some(gate) = post.gate(path) else {
            return false;
        };
        self.desk.bell.quiet();
        post.wanted = Some(gate);
        if post.is_running {
            self.desk.called.notify_one();
            return true;
        }
        let desk = Arc::clone(&self.desk);
        let started = thread::Builder::new()
            .name("write-lock-gate".to_owned())
            .spawn(move || desk.attend());
        post.is_running = started.is_ok();
        if !post.is_running {
            post.wanted = None;
        }
        post.is_running
    }

    /// Returns the gate that was passed, still closed behind us.
    pub(crate) fn passed(&self) -> Option<Gate> {
        self.desk.bell.quiet();
        self.desk.post().passed.take()
    }

    /// Keeps an open gate for the next time.
    pub(crate) fn keep(&self, gate: Gate) {
        self.desk.post().spare = Some(gate);
    }

    /// Nobody waits any more. A gate that is passed later is opened at once.
    pub(crate) fn dismiss(&self) {
        let mut post = self.desk.post();
        post.wanted = None;
        if let Some(gate) = post.passed.take() {
            gate.open();
        }
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        if self.image != Image::present() {
            // The thread is the parent's, and may have had the post when this child was forked.
            return;
        }
        self.dismiss();
        self.desk.post().is_over = true;
        self.desk.called.notify_one();
    }
}

impl Post {
    fn gate(&mut self, path: &Path) -> Option<Gate> {
        let found = sys::identify(path).ok().flatten();
        let spare = self.spare.take();
        spare
            .filter(|spare| found.is_some_and(|(file, _)| spare.is_on(file)))
            .or_else(|| Gate::at(path))
    }
}

impl Desk {
    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        let mut post = self.post();
        loop {
            let Some(gate) = post.wanted.clone() else {
                if post.is_over {
                    post.is_running = false;
                    return;
                }
                let outcome = self.called.wait_timeout(post, DOORMAN_IDLE);
                let (back, time) = outcome.unwrap_or_else(PoisonError::into_inner);
                post = back;
                if time.timed_out() && post.wanted.is_none() {
                    post.is_running = false;
                    return;
                }
                continue;
            };
            post.at = Some(gate.clone());
            drop(post);
            let stands = gate.stand();
            // Whoever is not wanted any more need not go on to the gate.
            let is_passed = stands && self.post().wants(&gate) && gate.pass();
            post = self.post();
            post.at = None;
            match (is_passed, post.wants(&gate)) {
                (true, true) => {
                    post.wanted = None;
                    post.passed = Some(gate);
                    self.bell.ring();
                }
                // Without such locks on this file system the slow beat has to do.
                (false, true) if !stands => post.wanted = None,
                // Wanted again just now: from the start.
                (false, true) => gate.open(),
                (_, false) => {
                    gate.open();
                    post.spare = Some(gate);
                }
            }
        }
    }
}

impl Post {
    fn wants(&self, gate: &Gate) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.is(gate))
    }
}
