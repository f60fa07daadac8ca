//! One request for a lease, from its first poll to its end.

#[cfg(feature = "metrics")]
use std::sync::Arc;

use lease_core::{Change, Detail, Holder, KeyError, ResourceKey};
use tracing::Span;
use tracing::span::EnteredSpan;

use super::names::{self, Outcome, Reason, Told};
use super::spans;
use crate::error::AcquireError;
use crate::hold::Hold;
use crate::leases::Front;

/// Looks on at one request.
pub(crate) struct Request {
    stage: Stage,
    span: Span,
    #[cfg(feature = "metrics")]
    measured: Option<Measured>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Begun,
    Over,
}

impl Request {
    pub(crate) const fn new() -> Self {
        Self {
            stage: Stage::New,
            span: Span::none(),
            #[cfg(feature = "metrics")]
            measured: None,
        }
    }

    /// Enters the span of the request, which begins with the first poll.
    #[inline]
    pub(crate) fn poll<H: Holder>(
        &mut self,
        front: &Front<H>,
        holder: &H,
        resource: &Result<ResourceKey, KeyError>,
    ) -> EnteredSpan {
        if self.stage == Stage::New {
            self.stage = Stage::Begun;
            let resource = resource.as_ref().ok();
            self.span = spans::acquire(front, holder, resource);
            #[cfg(feature = "metrics")]
            {
                self.measured = Measured::begin(front, resource);
            }
        }
        self.span.clone().entered()
    }

    /// The request waits for somebody else.
    #[inline]
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            clippy::unused_self,
            clippy::needless_pass_by_ref_mut,
            reason = "only measurements count it"
        )
    )]
    pub(crate) fn waits(&mut self) {
        #[cfg(feature = "metrics")]
        if let Some(measured) = &mut self.measured {
            measured.waits();
        }
    }

    /// The request is answered by this change, and `hold` is what it got.
    #[inline]
    pub(crate) fn granted<H: Holder>(&mut self, hold: &Hold<H>, change: &Change) {
        spans::granted(&self.span, hold, change);
        let what = names::change(change).unwrap_or((Outcome::Acquired, None));
        if what.0 == Outcome::TakenOver {
            let previous = match change.detail {
                Detail::Granted { previous, .. } => previous,
                _ => None,
            };
            spans::takeover(hold, change, previous.map(|token| token.generation));
        }
        self.end(what);
    }

    /// The request got nothing.
    pub(crate) fn failed<H: Holder>(&mut self, front: &Front<H>, error: &AcquireError<H>) {
        spans::not_granted(&self.span, error);
        let what = names::acquire(error);
        if let AcquireError::Refused(_) | AcquireError::Authority(_) = error {
            front.observer.decided(what);
        }
        self.end(what);
    }

    #[inline]
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "the span was told already")
    )]
    fn end(&mut self, what: Told) {
        self.stage = Stage::Over;
        #[cfg(feature = "metrics")]
        if let Some(measured) = self.measured.take() {
            measured.end(what);
        }
    }
}

impl Drop for Request {
    /// Whoever asked does not want it any more.
    fn drop(&mut self) {
        if self.stage == Stage::Begun {
            let what = (Outcome::Cancelled, Some(Reason::Dropped));
            spans::told(&self.span, what);
            self.end(what);
        }
    }
}

/// What is measured of a request.
#[cfg(feature = "metrics")]
struct Measured {
    observer: Arc<super::Observer>,
    clock: Arc<dyn crate::clock::AlarmClock>,
    started: lease_core::Moment,
    class: Option<&'static str>,
    waiting: bool,
}

#[cfg(feature = "metrics")]
impl Measured {
    fn begin<H: Holder>(front: &Front<H>, resource: Option<&ResourceKey>) -> Option<Self> {
        let metrics = front.observer.metrics.get()?;
        Some(Self {
            observer: Arc::clone(&front.observer),
            clock: Arc::clone(&front.clock),
            started: front.clock.now(),
            class: resource.and_then(|resource| metrics.class(resource)),
            waiting: false,
        })
    }

    fn waits(&mut self) {
        if !self.waiting {
            self.waiting = true;
            self.wait(1);
        }
    }

    fn wait(&self, more: i64) {
        if let Some(metrics) = self.observer.metrics.get() {
            metrics.waiting(self.observer.backend, self.class, more);
        }
    }

    fn end(self, what: Told) {
        if self.waiting {
            self.wait(-1);
        }
        let took = self.clock.now().since(self.started);
        if let Some(metrics) = self.observer.metrics.get() {
            metrics.asked(self.observer.backend, self.class, took, what);
        }
    }
}
