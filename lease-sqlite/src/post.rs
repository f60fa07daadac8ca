//! What the thread at the gate and those who send it know of each other. No system call: whoever
//! changes it has it for itself, and does what comes back before anybody else may look.
//!
//! One thread waits at the gate for all who stand in the line of this process, and cannot be called
//! back from there. So three places are kept apart: the one that is *wanted*, the one *at* which the
//! thread is, wanted or not, and the one that was *passed* and was not taken yet.
//!
//! - `wanted` or `passed` is set as long as somebody waits who has been sent for: it is unset only by
//!   whoever takes what was passed, by the last who leaves, or where there are no such locks.
//! - Whoever sets `passed`, or unsets `wanted` without that, rings afterwards.
//! - Whoever finds nothing passed quiets the bell, and looks once more before it listens again; and whoever
//!   sends the thread has quieted it before. So a ring that comes later is heard.

/// A place in the line at a gate.
pub(crate) trait Spot: Clone {
    /// Whether both are the same one.
    fn is(&self, other: &Self) -> bool;
}

/// See the module.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, PartialOrd, Ord))]
pub(crate) struct Post<S> {
    wanted: Option<S>,
    at: Option<S>,
    passed: Option<S>,
}

/// What the thread has to do when it comes back from the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Back {
    /// Ring: the gate is closed behind us.
    Passed,
    /// Open the gate and ring: there are no such locks here.
    Refused,
    /// Open the gate: nobody wants it any more.
    Unwanted,
}

/// What the last one leaves, and what has to be done with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left<S> {
    Nothing,
    /// Mark the place: the thread is there, and cannot be called back.
    Vacant(S),
    /// Open the gate.
    Gate(S),
}

impl<S> Default for Post<S> {
    fn default() -> Self {
        Self {
            wanted: None,
            at: None,
            passed: None,
        }
    }
}

impl<S: Spot> Post<S> {
    /// Whether somebody has been sent, and has not been asked yet what came of it.
    pub(crate) const fn is_served(&self) -> bool {
        self.wanted.is_some() || self.passed.is_some()
    }

    /// The place in the line, if it was not passed yet.
    pub(crate) const fn wanted(&self) -> Option<&S> {
        self.wanted.as_ref()
    }

    /// Where the thread is, and cannot be called back from.
    pub(crate) const fn at(&self) -> Option<&S> {
        self.at.as_ref()
    }

    /// Sends somebody to a place, which is ours already.
    pub(crate) fn want(&mut self, spot: S) {
        self.wanted = Some(spot);
    }

    /// Takes what was passed.
    pub(crate) const fn take_passed(&mut self) -> Option<S> {
        self.passed.take()
    }

    /// Nobody waits any more.
    pub(crate) fn leave(&mut self) -> Left<S> {
        let is_there = |place: &S| self.at.as_ref().is_some_and(|at| at.is(place));
        match (self.wanted.take(), self.passed.take()) {
            (Some(place), _) if is_there(&place) => Left::Vacant(place),
            (Some(place), _) | (None, Some(place)) => Left::Gate(place),
            (None, None) => Left::Nothing,
        }
    }

    /// The thread goes where it is wanted.
    pub(crate) fn set_off(&mut self) -> Option<S> {
        self.at.clone_from(&self.wanted);
        self.at.clone()
    }

    /// The thread comes back from a place, let through or not.
    pub(crate) fn come_back(&mut self, from: &S, is_passed: bool) -> Back {
        self.at = None;
        match self.wanted.take_if(|wanted| wanted.is(from)) {
            None => Back::Unwanted,
            Some(_) if !is_passed => Back::Refused,
            passed => {
                self.passed = passed;
                Back::Passed
            }
        }
    }
}

#[cfg(test)]
#[path = "post_model.rs"]
mod model;
