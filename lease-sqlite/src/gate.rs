//! The gate: who waits is woken by the one who lets go, in the order in which they came, and nothing
//! more.
//!
//! Bytes far behind the end of the record are locked, and never written: a *middle*, and to both
//! sides of it *slots*, numbered away from it. Whoever waits has a slot, the next one outwards, and
//! waits for the middle and every slot on the way to it. So they are let in in their order, whomever
//! the kernel wakes first.
//!
//! A holder that did not wait has the middle and one whole side, by one call. So those who wait take
//! slots on the other side, and whoever has just held, and comes again by that side, finds them there
//! and takes a slot too, instead of being faster than the one that is being woken.
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

use crate::limits::{DOORMAN_IDLE, SLOT_TRIES};
use crate::sys::{self, Bell, Bytes, FileId, Image, Kind, Offset, Unshared};

const MIDDLE: Offset = Offset::MAX / 2;
const AFTER_MIDDLE: Offset = MIDDLE + 1;

/// A side of the middle.
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
            Self::Left => bytes(0, AFTER_MIDDLE),
            Self::Right => from(MIDDLE),
        }
    }

    /// Every slot from this one on, outwards.
    const fn outwards(self, slot: Offset) -> Bytes {
        match self {
            Self::Left => bytes(0, slot.saturating_add(1)),
            Self::Right => from(slot),
        }
    }

    const fn first_slot(self) -> Offset {
        match self {
            Self::Left => MIDDLE - 1,
            Self::Right => AFTER_MIDDLE,
        }
    }

    /// The next slot outwards of a lock on this side; `None` if it is that of a holder, who has all.
    const fn after(self, lock: Bytes) -> Option<Offset> {
        match (self, lock.end) {
            (Self::Left, _) if lock.start > 0 => Some(lock.start.saturating_sub(1)),
            (Self::Right, Some(end)) => Some(end),
            (Self::Left, _) | (Self::Right, None) => None,
        }
    }

    /// The middle, and every slot on the way to it.
    const fn inwards(self, slot: Offset) -> Bytes {
        match self {
            Self::Left => bytes(slot.saturating_add(1), AFTER_MIDDLE),
            Self::Right => bytes(MIDDLE, slot),
        }
    }
}

const fn bytes(start: Offset, end: Offset) -> Bytes {
    Bytes {
        start,
        end: Some(end),
    }
}

const fn from(start: Offset) -> Bytes {
    Bytes { start, end: None }
}

/// Where a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    side: Side,
    at: Offset,
}

/// The end of the line on one side.
struct End {
    slot: Slot,
    is_waited_at: bool,
}

/// An open file of its own on a record.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    file: FileId,
    descriptor: Arc<Unshared>,
    /// Where we wait, or have waited.
    slot: Option<Slot>,
}

impl Gate {
    /// Opens the gate at a record's path; `None` if no record is there.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let descriptor = sys::open_to_lock(path).ok()?;
        let found = sys::look_at(&descriptor).ok()?;
        (found.kind == Kind::Regular).then(|| Self {
            file: found.id,
            descriptor: Arc::new(Unshared::new(descriptor)),
            slot: None,
        })
    }

    pub(crate) fn is_on(&self, file: FileId) -> bool {
        self.file == file
    }

    /// Closes it behind us, if nobody has it and nobody waits on this side. `None` if there are no
    /// such locks here.
    pub(crate) fn try_close(&self, side: Side) -> Option<bool> {
        sys::try_bytes(&*self.descriptor, side.with_middle())
    }

    /// Opens it, which lets the next one through.
    pub(crate) fn open(&self) {
        sys::free_bytes(&*self.descriptor, from(0));
    }

    /// Whoever was let through holds now, and keeps the middle alone. Returns the side on which
    /// others may wait.
    pub(crate) fn settle(&self) -> Side {
        let side = self.slot.map_or(Side::Left, |slot| slot.side);
        sys::free_bytes(&*self.descriptor, side.outwards(side.first_slot()));
        side
    }

    fn lined_up(mut self) -> Option<Self> {
        self.line_up().then_some(self)
    }

    /// Takes the next slot, behind everybody who waits; `false` if there is none.
    fn line_up(&mut self) -> bool {
        for _again in 0..SLOT_TRIES {
            let Some(slot) = self.end_of_line() else {
                return false;
            };
            match sys::try_bytes(&*self.descriptor, slot_bytes(slot)) {
                Some(true) => {
                    self.slot = Some(slot);
                    return true;
                }
                // Somebody was faster.
                Some(false) => {}
                None => return false,
            }
        }
        false
    }

    /// Finds the slot behind everybody who waits. Where nobody does, it is on the side that the
    /// holder does not have.
    fn end_of_line(&self) -> Option<Slot> {
        let right = self.end_of(Side::Right);
        if let Some(end) = &right
            && end.is_waited_at
        {
            return Some(end.slot);
        }
        let left = self.end_of(Side::Left);
        match (left, right) {
            (Some(left), _) if left.is_waited_at => Some(left.slot),
            (_, Some(right)) => Some(right.slot),
            (Some(left), None) => Some(left.slot),
            (None, None) => None,
        }
    }

    /// `None` if a holder has this side.
    fn end_of(&self, side: Side) -> Option<End> {
        let mut at = side.first_slot();
        let mut is_waited_at = false;
        for _again in 0..SLOT_TRIES {
            let found = sys::find_lock(&*self.descriptor, side.outwards(at)).ok()?;
            let Some(lock) = found else {
                return Some(End {
                    slot: Slot { side, at },
                    is_waited_at,
                });
            };
            at = side.after(lock)?;
            is_waited_at = true;
        }
        None
    }

    /// Waits until it is open and our turn, and closes it behind us; `false` if there are no such
    /// locks here.
    fn pass(&self) -> bool {
        self.slot
            .is_some_and(|slot| sys::wait_bytes(&*self.descriptor, slot.side.inwards(slot.at)))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.descriptor, &other.descriptor)
    }
}

const fn slot_bytes(slot: Slot) -> Bytes {
    bytes(slot.at, slot.at.saturating_add(1))
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
        // The slot is taken here, and not when the thread gets to it.
        let Some(gate) = post.gate(path).and_then(Gate::lined_up) else {
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
        if !post.is_running
            && let Some(gate) = post.wanted.take()
        {
            gate.open();
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
            let is_passed = gate.pass();
            post = self.post();
            post.at = None;
            match (is_passed, post.wants(&gate)) {
                (true, true) => {
                    post.wanted = None;
                    post.passed = Some(gate);
                    self.bell.ring();
                }
                // On this file system the slow beat has to do.
                (false, true) => {
                    post.wanted = None;
                    gate.open();
                }
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
