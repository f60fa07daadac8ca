//! Waiting at a gate on behalf of the first waiter of a path.
//!
//! Waiting for such a lock cannot be given up at a deadline, so a thread of its own waits, one per
//! path, and rings a bell.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::files::{self, FileId};
use crate::gate::{Gate, Stand};
use crate::limits::DOORMAN_IDLE;
use crate::outlook::Outlook;
use crate::post::{Back, Left, Post};
use crate::sys::{Bell, Image};

/// See the module.
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
    book: Mutex<Book>,
    called: Condvar,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Book {
    post: Post<Stand>,
    /// A gate that nobody uses, and that may be used again.
    spare: Option<Gate>,
    /// Where there are no such locks.
    refused: Option<FileId>,
    is_running: bool,
    is_over: bool,
}

impl Doorman {
    /// `None` where the system gives no bell.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            desk: Arc::new(Desk {
                book: Mutex::default(),
                called: Condvar::new(),
                bell: Bell::new().ok()?,
            }),
            image: Image::present(),
        })
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.desk.bell
    }

    /// Takes a place in the line at the gate of this path, if there is none yet, and sends the thread
    /// there; `false` if there is no gate.
    pub(crate) fn go(&self, path: &Path) -> bool {
        let mut book = self.desk.book();
        if book.post.is_served() {
            return true;
        }
        let Some((file, _)) = files::identify(path).ok().flatten() else {
            return false;
        };
        if let Some(at) = book.post.at().filter(|at| at.gate().is_on(file)).cloned() {
            // Still there on behalf of somebody who has given up: a better place than a new one.
            at.occupy();
            self.desk.bell.quiet();
            book.post.want(at);
            return true;
        }
        // The place is taken here, and not when the thread gets to it.
        let Some(stand) = book.gate(path, file).and_then(Gate::line_up) else {
            return false;
        };
        self.desk.bell.quiet();
        if book.is_running {
            book.post.want(stand);
            self.desk.called.notify_one();
            return true;
        }
        let desk = Arc::clone(&self.desk);
        let started = thread::Builder::new()
            .name("write-lock-gate".to_owned())
            .spawn(move || desk.attend());
        if started.is_err() {
            stand.gate().open();
            return false;
        }
        book.is_running = true;
        book.post.want(stand);
        true
    }

    /// Returns the gate that was passed, still closed behind us.
    ///
    /// Whoever is rung for finds it at the first look. The bell is quieted by whoever sends the thread next.
    pub(crate) fn passed(&self) -> Option<Stand> {
        let passed = self.desk.book().post.take_passed();
        passed.or_else(|| {
            self.desk.bell.quiet();
            self.desk.book().post.take_passed()
        })
    }

    /// Returns what is to be expected of those ahead in the line; `None` if it is our turn.
    pub(crate) fn outlook(&self) -> Option<Outlook> {
        let stand = self.desk.book().post.wanted().cloned();
        stand?.outlook()
    }

    /// Keeps an open gate for the next time.
    pub(crate) fn keep(&self, gate: Gate) {
        self.desk.book().spare = Some(gate);
    }

    /// Nobody waits any more. A gate that is passed later is opened at once.
    pub(crate) fn dismiss(&self) {
        let mut book = self.desk.book();
        match book.post.leave() {
            Left::Nothing => {}
            Left::Vacant(place) => place.vacate(),
            Left::Gate(place) => {
                place.gate().open();
                book.spare = Some(place.into_gate());
            }
        }
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        if self.image != Image::present() {
            // The thread is the parent's, and may have had the book when this child was forked.
            return;
        }
        self.dismiss();
        self.desk.book().is_over = true;
        self.desk.called.notify_one();
    }
}

impl Book {
    /// Returns a gate on the record at this path, which is this file.
    fn gate(&mut self, path: &Path, file: FileId) -> Option<Gate> {
        if self.refused == Some(file) {
            return None;
        }
        let spare = self.spare.take().filter(|gate| gate.is_on(file));
        spare.or_else(|| Gate::at(path))
    }
}

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        let mut book = self.book();
        loop {
            let Some(stand) = book.post.set_off() else {
                if book.is_over {
                    book.is_running = false;
                    return;
                }
                let outcome = self.called.wait_timeout(book, DOORMAN_IDLE);
                let (back, time) = outcome.unwrap_or_else(PoisonError::into_inner);
                book = back;
                if time.timed_out() && !book.post.is_served() {
                    book.is_running = false;
                    return;
                }
                continue;
            };
            drop(book);
            let is_passed = stand.pass();
            book = self.book();
            match book.post.come_back(&stand, is_passed) {
                Back::Passed => {
                    // Whoever hears it goes for the book at once.
                    drop(book);
                    self.bell.ring();
                    book = self.book();
                }
                Back::Refused => {
                    // On this file system the poll interval has to do.
                    book.refused = Some(stand.gate().file());
                    stand.gate().open();
                    self.bell.ring();
                }
                Back::Unwanted => {
                    stand.gate().open();
                    book.spare = Some(stand.into_gate());
                }
            }
        }
    }
}
