//! A scoped operation over the core, as an adapter would make one: begin on entry, end on exit, and
//! what is dropped without an end has an unknown effect.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lease_core::{At, Change, Disposition, Grant, Note, OpId};

use crate::rig::{Answered as _, Rig, VIEWPORT};

pub(crate) type Shared = Rc<RefCell<Rig>>;

/// One operation in flight.
pub(crate) struct Scope {
    rig: Shared,
    at: At,
    op: OpId,
    ended: bool,
}

impl Scope {
    pub(crate) fn begin(rig: &Shared, grant: &Grant, op: OpId) -> Self {
        rig.borrow_mut()
            .begin(VIEWPORT, grant.at, op, grant.provenance)
            .change();
        Self {
            rig: Rc::clone(rig),
            at: grant.at,
            op,
            ended: false,
        }
    }

    pub(crate) fn end(mut self, result: Result<(), Disposition>) -> Change {
        self.ended = true;
        self.rig
            .borrow_mut()
            .end(VIEWPORT, self.at, self.op, result)
            .change()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let cause = if std::thread::panicking() {
            "panic"
        } else {
            "dropped"
        };
        let mut rig = self.rig.borrow_mut();
        rig.note = Some(Note::new("call_method", cause));
        drop(rig.end(VIEWPORT, self.at, self.op, Err(Disposition::Unknown)));
    }
}

/// A future that is ready after some polls; between them a test moves the clock.
pub(crate) async fn pause(polls: u32) {
    let mut left = polls;
    std::future::poll_fn(|_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

/// Polls `work` to its end, letting `between` run at each wait.
pub(crate) fn drive<T>(work: impl Future<Output = T>, mut between: impl FnMut()) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => between(),
        }
    }
}

/// Polls `work` once and drops it where it waits.
pub(crate) fn abort_after_first_poll<T>(work: impl Future<Output = T>) {
    let mut work = Box::pin(work);
    assert!(
        work.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}
