//! The future of a request that waits.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use lease_core::{Holder, Outcome, WaiterId};

use super::places::Look;
use super::{How, Inner};
use crate::authority::AuthorityError;

/// Waits for the answer to a queued request. Dropping it takes the request back.
pub(super) struct Waiting<H: Holder> {
    inner: Arc<Inner<H>>,
    /// `None` once the answer was taken.
    waiter: Option<WaiterId>,
    /// It was polled, so it is known whom to wake.
    polled: bool,
}

impl<H: Holder> Waiting<H> {
    pub(super) const fn new(inner: Arc<Inner<H>>, waiter: WaiterId) -> Self {
        Self {
            inner,
            waiter: Some(waiter),
            polled: false,
        }
    }
}

impl<H: Holder> Future for Waiting<H> {
    type Output = Result<Outcome<H>, AuthorityError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(waiter) = this.waiter else {
            return Poll::Ready(Err(AuthorityError::ShutDown));
        };
        // Both go after the lock is free, and a waker is cloned before it: with these anything may be called.
        let _cause;
        let mut fresh = (!this.polled).then(|| cx.waker().clone());
        this.polled = true;
        loop {
            let mut state = this.inner.state();
            match state.places.look(waiter, cx.waker(), &mut fresh) {
                Look::Waits => return Poll::Pending,
                Look::Unknown => {
                    drop(state);
                    fresh = Some(cx.waker().clone());
                }
                Look::Answer(settled) => {
                    if let Ok((grant, _)) = &settled.outcome {
                        state.claim(grant);
                    }
                    _cause = state.causes.remove(waiter);
                    this.waiter = None;
                    // Made where it goes, in each case by itself: the copy of an answer is not free.
                    return match settled.outcome {
                        Ok((grant, change)) => Poll::Ready(Ok(Outcome::Granted(grant, change))),
                        Err(refusal) => Poll::Ready(Ok(Outcome::Refused(refusal))),
                    };
                }
                Look::Shut => {
                    _cause = state.causes.remove(waiter);
                    this.waiter = None;
                    return Poll::Ready(Err(AuthorityError::ShutDown));
                }
            }
        }
    }
}

impl<H: Holder> Drop for Waiting<H> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            let cause = self.inner.turn(How::default(), |state, turn| {
                state.forget(waiter, turn);
                state.causes.remove(waiter)
            });
            // The last of its span, maybe, and then its subscriber runs.
            drop(cause);
        }
    }
}
