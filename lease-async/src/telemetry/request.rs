//! One request for a lease, from its first poll to its end.

#[cfg(feature = "metrics")]
use std::sync::Arc;

use lease_core::{Change, Code, Holder, KeyError, ResourceKey};
use tracing::Span;
use tracing::span::EnteredSpan;

use super::names::{self, Outcome, Reason, Told};
use super::spans;
use crate::caught::apart;
use crate::error::AcquireError;
use crate::hold::Hold;
use crate::leases::Front;

/// Looks on at one request.
pub(crate) struct Request(Stage);

enum Stage {
    New,
    /// Nobody looks on.
    Off,
    On(Box<On>),
    Over,
}

struct On {
    span: Span,
    #[cfg(feature = "metrics")]
    measured: Option<Measured>,
}

impl Request {
    pub(crate) const fn new() -> Self {
        Self(Stage::New)
    }

    /// Enters the span of the request, which begins with the first poll. `None` if nobody looks on.
    #[inline]
    pub(crate) fn poll<H: Holder>(
        &mut self,
        front: &Front<H>,
        holder: &H,
        resource: &Result<ResourceKey, KeyError>,
    ) -> Option<EnteredSpan> {
        if matches!(self.0, Stage::New) {
            let on = On::begin(front, holder, resource.as_ref().ok());
            self.0 = on.map_or(Stage::Off, |on| Stage::On(Box::new(on)));
        }
        match &self.0 {
            Stage::On(on) => Some(on.span.clone().entered()),
            Stage::New | Stage::Off | Stage::Over => None,
        }
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
        if let Stage::On(on) = &mut self.0
            && let Some(measured) = &mut on.measured
        {
            measured.waits();
        }
    }

    /// The request is answered by this change, and `hold` is what it got.
    #[inline]
    pub(crate) fn granted<H: Holder>(&mut self, hold: &Hold<H>, change: &Change) {
        if let Stage::On(on) = &self.0 {
            spans::granted(&on.span, hold, change);
        }
        if change.code == Code::TakenOver {
            spans::takeover(hold, change);
        }
        if let Some(on) = self.end() {
            on.end(names::change(change).unwrap_or((Outcome::Acquired, None)));
        }
    }

    /// The request got nothing.
    pub(crate) fn failed<H: Holder>(&mut self, front: &Front<H>, error: &AcquireError<H>) {
        let what = names::acquire(error);
        if let AcquireError::Refused(_) | AcquireError::Authority(_) = error {
            front.observer.decided(what);
        }
        if let Some(on) = self.end() {
            spans::not_granted(&on.span, error);
            on.end(what);
        }
    }

    #[inline]
    fn end(&mut self) -> Option<Box<On>> {
        if let Stage::On(_) = self.0
            && let Stage::On(on) = core::mem::replace(&mut self.0, Stage::Over)
        {
            return Some(on);
        }
        None
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if let Some(on) = self.end() {
            dropped(*on);
        }
    }
}

/// Whoever asked does not want it any more.
#[inline(never)]
fn dropped(on: On) {
    let what = (Outcome::Cancelled, Some(Reason::Dropped));
    apart(|| spans::told(&on.span, what));
    apart(|| on.end(what));
}

impl On {
    #[inline]
    fn begin<H: Holder>(
        front: &Front<H>,
        holder: &H,
        resource: Option<&ResourceKey>,
    ) -> Option<Self> {
        if spans::is_off() && !front.observer.measures() {
            return None;
        }
        let span = spans::acquire(front, holder, resource);
        #[cfg(feature = "metrics")]
        let measured = Measured::begin(front, resource);
        #[cfg(feature = "metrics")]
        let on = !span.is_disabled() || measured.is_some();
        #[cfg(not(feature = "metrics"))]
        let on = !span.is_disabled();
        on.then_some(Self {
            span,
            #[cfg(feature = "metrics")]
            measured,
        })
    }

    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "the span was told already")
    )]
    fn end(self, what: Told) {
        #[cfg(feature = "metrics")]
        if let Some(measured) = self.measured {
            measured.end(what);
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
