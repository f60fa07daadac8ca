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
}

impl<H: Holder> Waiting<H> {
    pub(super) const fn new(inner: Arc<Inner<H>>, waiter: WaiterId) -> Self {
        Self {
            inner,
            waiter: Some(waiter),
        }
    }
}

impl<H: Holder> Future for Waiting<H> {
    type Output = Result<Outcome<H>, AuthorityError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiter) = self.waiter else {
            return Poll::Ready(Err(AuthorityError::ShutDown));
        };
        let mut state = self.inner.state();
        let settled = match state.look(waiter, cx.waker()) {
            Look::Waits(replaced) => {
                drop(state);
                // With a waker a task may go, and with that another request.
                drop(replaced);
                return Poll::Pending;
            }
            Look::Answer(settled) => Some(settled),
            Look::Shut => None,
        };
        let cause = state.causes.remove(waiter);
        drop(state);
        drop(cause);
        self.waiter = None;
        Poll::Ready(match settled {
            Some(settled) => Ok(match settled.outcome {
                Ok((grant, change)) => Outcome::Granted(grant, change),
                Err(refusal) => Outcome::Refused(refusal),
            }),
            None => Err(AuthorityError::ShutDown),
        })
    }
}

impl<H: Holder> Drop for Waiting<H> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            let cause = self.inner.turn(How::default(), |state, turn| {
                state.forget(waiter, turn);
                state.causes.remove(waiter)
            });
            drop(cause);
        }
    }
}
