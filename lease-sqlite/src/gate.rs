//! The gate: who waits is woken by the one who lets go, and nothing more.
//!
//! A holder keeps an advisory lock on the record file and drops it after its release. Waiting for
//! such a lock cannot be given up at a deadline, so a thread of its own waits, one per path, and
//! rings a bell. A lock of this kind belongs to an open file, also in a forked child, so that it is
//! no proof of anything: after every ring the kernel lock decides.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::limits::DOORMAN_IDLE;
use crate::sys::{self, Bell, FileId, Kind};

/// An open file of its own on a record.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    file: FileId,
    descriptor: Arc<OwnedFd>,
}

impl Gate {
    /// Opens the gate at a record's path; `None` if no record is there.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let descriptor = sys::open_regular(path).ok()?;
        let found = sys::look_at(&descriptor).ok()?;
        (found.kind == Kind::Regular).then(|| Self {
            file: found.id,
            descriptor: Arc::new(descriptor),
        })
    }

    pub(crate) fn is_on(&self, file: FileId) -> bool {
        self.file == file
    }

    /// Closes it if nobody else has; `true` as well if this very gate is closed already.
    pub(crate) fn try_close(&self) -> bool {
        sys::try_gate(&*self.descriptor)
    }

    /// Opens it, which lets the next one through.
    pub(crate) fn open(&self) {
        sys::leave_gate(&*self.descriptor);
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.descriptor, &other.descriptor)
    }
}

/// Waits at a gate on behalf of the first waiter of a path.
#[derive(Debug)]
pub(crate) struct Doorman {
    desk: Arc<Desk>,
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
    /// The gate that was passed and is closed behind us.
    passed: Option<Gate>,
    is_running: bool,
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
        let Some(gate) = Gate::at(path) else {
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

    /// Nobody waits any more. A gate that is passed later is opened at once.
    pub(crate) fn dismiss(&self) {
        let mut post = self.desk.post();
        post.wanted = None;
        if let Some(gate) = post.passed.take() {
            gate.open();
        }
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
                let outcome = self.called.wait_timeout(post, DOORMAN_IDLE);
                let (back, time) = outcome.unwrap_or_else(PoisonError::into_inner);
                post = back;
                if time.timed_out() && post.wanted.is_none() {
                    post.is_running = false;
                    return;
                }
                continue;
            };
            drop(post);
            let is_passed = sys::wait_gate(&*gate.descriptor);
            post = self.post();
            let is_wanted = post.wanted.as_ref().is_some_and(|wanted| wanted.is(&gate));
            match (is_passed, is_wanted) {
                (true, true) => {
                    post.wanted = None;
                    post.passed = Some(gate);
                    self.bell.ring();
                }
                (true, false) => gate.open(),
                // This file system has no such locks: the slow beat has to do.
                (false, true) => post.wanted = None,
                (false, false) => {}
            }
        }
    }
}
