//! Spans and events.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use lease_core::{
    Action, Change, Detail, Fenced, Generation, Holder, Lease, Question, Refusal, ResourceKey,
    SessionHolder, Verdict, Wait, WaiterId,
};
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::names::{self, Outcome, Reason, TARGET, Told, attribute as a, event, span};
use crate::caught::{apart, caught};
use crate::error::{AcquireError, LeaseError};
use crate::hold::Hold;
use crate::incidents::{Closed, Incident};
use crate::leases::Front;
use crate::standing::Loss;

/// Whether nobody looks on at anything. One look at a flag.
#[inline]
pub(crate) fn is_off() -> bool {
    LevelFilter::current() == LevelFilter::OFF
}

/// Whether anybody may be looking on.
pub(super) fn enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::WARN)
}

/// Makes a span; none where the subscriber panics.
fn made(span: impl FnOnce() -> Span) -> Span {
    if is_off() {
        return Span::none();
    }
    caught(span).unwrap_or_else(Span::none)
}

/// Does something in a span. A subscriber that panics does not keep it from being done.
#[inline]
pub(crate) fn inside<T>(span: &Span, act: impl FnOnce() -> T) -> T {
    let entered = caught(|| span.enter());
    let done = act();
    apart(|| drop(entered));
    done
}

/// What is known of a holder beyond its kind.
#[derive(Default)]
pub(super) struct Parts<'a> {
    name: Option<&'a str>,
    session: Option<&'a str>,
    pub(super) pid: Option<i64>,
}

pub(super) fn parts<H: Holder>(holder: &H) -> Parts<'_> {
    let holder: &dyn Any = holder;
    if let Some(holder) = holder.downcast_ref::<SessionHolder>() {
        return Parts {
            name: Some(holder.agent()),
            session: Some(holder.session()),
            pid: None,
        };
    }
    #[cfg(feature = "procfs")]
    if let Some(holder) = holder.downcast_ref::<lease_procfs::ProcessHolder>() {
        return Parts {
            name: Some(holder.client()),
            session: holder.session(),
            pid: Some(i64::from(holder.process().pid.get())),
        };
    }
    Parts::default()
}

/// The name of a holder for people.
pub(super) struct Name<'a, H>(pub(super) &'a H);

impl<H: Holder> fmt::Display for Name<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match parts(self.0).name {
            Some(name) => f.write_str(name),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Viewers compare numbers; an unsigned one would reach them as text.
fn number(generation: Generation) -> i64 {
    i64::try_from(generation.get()).unwrap_or(i64::MAX)
}

pub(super) fn acquire<H: Holder>(
    front: &Front<H>,
    holder: &H,
    resource: Option<&ResourceKey>,
) -> Span {
    tracing::span!(
        target: TARGET, Level::INFO, span::ACQUIRE,
        { a::BACKEND } = front.observer.backend,
        { a::RESOURCE } = resource.map(ResourceKey::as_str),
        { a::HOLDER } = display(Name(holder)),
        { a::KIND } = H::KIND,
        { a::SESSION } = parts(holder).session,
        { a::PID } = parts(holder).pid,
        { a::OUTCOME } = Empty,
        { a::REASON } = Empty,
        { a::CODE } = Empty,
        { a::GENERATION } = Empty,
        { a::LEASE } = Empty,
        { a::RECEIPT } = Empty,
        { a::HELD_BY } = Empty,
        { a::HELD_BY_PID } = Empty,
        { a::ERROR } = Empty,
        { a::STATUS } = Empty,
    )
}

/// A span about a lease that is held.
macro_rules! about {
    ($level:expr, $name:expr, $hold:expr $(, $field:tt = $value:expr)* $(,)?) => {
        tracing::span!(
            target: TARGET, $level, $name,
            { a::BACKEND } = $hold.front().observer.backend,
            { a::RESOURCE } = $hold.key.as_str(),
            { a::HOLDER } = display(Name($hold.holder())),
            { a::KIND } = H::KIND,
            { a::SESSION } = parts($hold.holder()).session,
            { a::PID } = parts($hold.holder()).pid,
            { a::GENERATION } = number($hold.at.token.generation),
            { a::LEASE } = display($hold.at.token.lease),
            { a::OUTCOME } = Empty,
            { a::REASON } = Empty,
            { a::CODE } = Empty,
            { a::RECEIPT } = Empty,
            { a::ERROR } = Empty,
            { a::STATUS } = Empty,
            $($field = $value,)*
        )
    };
}

/// The span of what is asked about a lease; none for what has none.
#[inline]
pub(crate) fn asks<H: Holder>(hold: &Hold<H>, action: &Action<H>) -> Span {
    match action {
        // Where it shows progress it may be one of many.
        Action::Touch(_) => made(|| about!(Level::DEBUG, span::RENEW, hold)),
        Action::Renew { .. } => renew(hold),
        Action::Release(_) => release(hold),
        _ => Span::none(),
    }
}

/// The span of a release.
#[inline]
pub(crate) fn release<H: Holder>(hold: &Hold<H>) -> Span {
    made(|| about!(Level::INFO, span::RELEASE, hold))
}

/// The span of a renewal.
#[inline]
pub(crate) fn renew<H: Holder>(hold: &Hold<H>) -> Span {
    made(|| about!(Level::INFO, span::RENEW, hold))
}

/// One guard fewer, and the lease stays.
#[inline]
pub(crate) fn left<H: Holder>(hold: &Hold<H>) {
    told(&release(hold), (Outcome::DepthReleased, None));
}

/// What a takeover rests on.
#[derive(Default)]
pub(super) struct Proof {
    pub(super) holder: Option<String>,
    pub(super) pid: Option<i64>,
    pub(super) proof: Option<Cow<'static, str>>,
}

/// The takeover that answers the request whose span is entered.
pub(super) fn takeover<H: Holder>(hold: &Hold<H>, change: &Change) {
    if !enabled() {
        return;
    }
    let previous = match change.detail {
        Detail::Granted { previous, .. } => previous.map(|token| token.generation),
        _ => None,
    };
    let proof = hold.front().observer.take_proof(hold.at.token.generation);
    let span = about!(
        Level::INFO,
        span::TAKEOVER,
        hold,
        { a::PREVIOUS } = previous.map(number),
        { a::PREVIOUS_HOLDER } = proof.holder,
        { a::PREVIOUS_PID } = proof.pid,
        { a::PROOF } = proof.proof.as_deref(),
    );
    told(&span, (Outcome::TakenOver, Some(Reason::Proven)));
    receipt(&span, change);
    let _inside = span.enter();
    tracing::event!(
        name: event::TAKEN_OVER, target: TARGET, Level::WARN,
        message = event::TAKEN_OVER,
        { a::RESOURCE } = hold.key.as_str(),
        { a::GENERATION } = number(hold.at.token.generation),
        { a::PREVIOUS } = previous.map(number),
        { a::PREVIOUS_HOLDER } = proof.holder,
        { a::PREVIOUS_PID } = proof.pid,
        { a::PROOF } = proof.proof.as_deref(),
    );
}

/// The span of one look at a holder.
pub(crate) fn verify<H: Holder>(backend: &'static str, question: &Question<H>) -> Span {
    made(|| {
        tracing::span!(
            target: TARGET, Level::INFO, span::VERIFY,
            { a::BACKEND } = backend,
            { a::HOLDER } = display(Name(&question.holder)),
            { a::KIND } = H::KIND,
            { a::SESSION } = parts(&question.holder).session,
            { a::PID } = parts(&question.holder).pid,
            { a::GENERATION } = number(question.about.generation),
            { a::VERDICT } = Empty,
            { a::PROOF } = Empty,
        )
    })
}

/// What the look showed.
pub(crate) fn verified(span: &Span, verdict: &Verdict) {
    apart(|| {
        span.record(a::VERDICT, verdict.name());
        span.record(a::PROOF, &*verdict.evidence().proof);
    });
}

pub(super) fn told(span: &Span, told: Told) {
    if span.is_disabled() {
        return;
    }
    let (outcome, reason) = told;
    span.record(a::OUTCOME, outcome.name());
    if let Some(reason) = reason {
        span.record(a::REASON, reason.name());
        if names::failed(told) {
            span.record(a::ERROR, reason.name());
            span.record(a::STATUS, "error");
        }
    }
}

fn receipt(span: &Span, change: &Change) {
    span.record(a::CODE, change.code.as_str());
    span.record(a::RECEIPT, display(change.seq));
}

/// What the authority did.
#[inline]
pub(crate) fn changed(span: &Span, change: &Change) {
    if span.is_disabled() {
        return;
    }
    apart(|| {
        if let Some(what) = names::change(change) {
            told(span, what);
        }
        receipt(span, change);
    });
}

pub(super) fn granted<H: Holder>(span: &Span, hold: &Hold<H>, change: &Change) {
    if span.is_disabled() {
        return;
    }
    changed(span, change);
    span.record(a::GENERATION, number(hold.at.token.generation));
    span.record(a::LEASE, display(hold.at.token.lease));
}

pub(super) fn not_granted<H: Holder>(span: &Span, error: &AcquireError<H>) {
    if span.is_disabled() {
        return;
    }
    told(span, names::acquire(error));
    if let AcquireError::Refused(refused) = error {
        refusal(span, refused);
    }
}

fn refusal<H: Holder>(span: &Span, refusal: &Refusal<H>) {
    span.record(a::CODE, refusal.code().as_str());
    if let Some(by) = refusal.by() {
        span.record(a::HELD_BY, display(Name(by)));
        span.record(a::HELD_BY_PID, parts(by).pid);
    }
}

/// The authority refused, or gave no answer.
pub(crate) fn refused<H: Holder>(hold: &Hold<H>, span: &Span, error: &LeaseError<H>) {
    let what = names::lease(error);
    told(span, what);
    hold.front().observer.decided(what);
    if let LeaseError::Refused(refused) = error {
        refusal(span, refused);
    }
}

/// Does the release of a last guard that is dropped. Nobody waits for the answer.
pub(crate) fn dropped<H: Holder>(hold: &Hold<H>, act: impl FnOnce()) {
    let span = release(hold);
    apart(|| told(&span, (Outcome::Released, Some(Reason::Dropped))));
    inside(&span, act);
    apart(|| drop(span));
}

/// An event about a lease that is held.
macro_rules! happened {
    ($level:expr, $name:expr, $hold:expr $(, $field:tt = $value:expr)* $(,)?) => {
        // Where it happens, others wait for what follows.
        apart(|| tracing::event!(
            name: $name, target: TARGET, $level,
            message = $name,
            { a::BACKEND } = $hold.front().observer.backend,
            { a::RESOURCE } = $hold.key.as_str(),
            { a::HOLDER } = display(Name($hold.holder())),
            { a::KIND } = H::KIND,
            { a::SESSION } = parts($hold.holder()).session,
            { a::PID } = parts($hold.holder()).pid,
            { a::GENERATION } = number($hold.at.token.generation),
            { a::LEASE } = display($hold.at.token.lease),
            $($field = $value,)*
        ))
    };
}

/// A lease was lost, in the thread that noticed it.
#[inline]
pub(crate) fn lost<H: Holder>(hold: &Hold<H>, loss: Loss) {
    let reason = Reason::of_loss(loss).name();
    match loss {
        Loss::Released => {}
        Loss::Disconnected | Loss::HandedOver => {
            happened!(Level::INFO, event::LOST, hold, { a::REASON } = reason);
        }
        Loss::Expired | Loss::Proven | Loss::Revoked | Loss::SessionEnded | Loss::Stale => {
            happened!(Level::WARN, event::LOST, hold, { a::REASON } = reason);
        }
    }
}

/// A lease will be lost unless it is renewed.
pub(crate) fn jeopardy<H: Holder>(hold: &Hold<H>) {
    happened!(Level::WARN, event::JEOPARDY, hold);
}

/// A lease is held for long, or an operation does not end.
pub(crate) fn incident_opened<H: Holder>(hold: &Hold<H>, incident: &Incident<H>) {
    happened!(
        Level::WARN,
        event::OPENED,
        hold,
        { a::INCIDENT } = whole(u128::from(incident.number)),
        { a::WHAT } = incident.what.name(),
        { a::OPERATION } = incident.what.operation().map(display),
        { a::AGE } = whole(incident.age.as_millis()),
    );
}

/// It is over.
pub(crate) fn incident_closed<H: Holder>(
    hold: &Hold<H>,
    incident: &Incident<H>,
    (age, how): (Duration, Closed),
) {
    let reason = match how {
        Closed::Lease(loss) => Some(Reason::of_loss(loss).name()),
        Closed::Operation | Closed::Unseen => None,
    };
    happened!(
        Level::INFO,
        event::CLOSED,
        hold,
        { a::INCIDENT } = whole(u128::from(incident.number)),
        { a::WHAT } = incident.what.name(),
        { a::OPERATION } = incident.what.operation().map(display),
        { a::AGE } = whole(age.as_millis()),
        { a::REASON } = reason,
    );
}

/// A number as viewers keep it: signed, or else it becomes text.
fn whole(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A gate has turned a writer away.
pub(crate) fn fenced<H: Holder>(hold: &Hold<H>, why: &Fenced) {
    let reason = Reason::of_fence(why).name();
    happened!(Level::WARN, event::FENCED, hold, { a::REASON } = reason);
    hold.front().observer.turned_away(&hold.key);
}

/// The process of a holder has ended; it proves nothing yet.
pub(crate) fn holder_died(generation: Generation) {
    apart(|| {
        tracing::event!(
            name: event::DIED, target: TARGET, Level::INFO,
            message = event::DIED,
            { a::GENERATION } = number(generation),
        );
    });
}

/// The span of a request that may come to wait, if there is one.
///
/// Neither made nor dropped under a lock: with a span its subscriber is called, which may call the authority.
#[derive(Clone)]
pub(crate) struct Cause(Option<Arc<Span>>);

impl Cause {
    /// The present span, for a request that waits so long.
    #[inline]
    pub(crate) fn of(wait: Wait) -> Self {
        if wait == Wait::No || is_off() {
            return Self(None);
        }
        Self::present()
    }

    #[inline(never)]
    fn present() -> Self {
        let span = made(Span::current);
        Self((!span.is_disabled()).then(|| Arc::new(span)))
    }

    pub(crate) fn span(&self) -> Span {
        let span = self.0.as_ref();
        span.map_or_else(Span::none, |span| made(|| Span::clone(span)))
    }

    /// Does something in this span.
    pub(crate) fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(span) => inside(span, act),
            None => act(),
        }
    }
}

impl Drop for Cause {
    #[inline]
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            ended(span);
        }
    }
}

#[inline(never)]
fn ended(span: Arc<Span>) {
    apart(|| drop(span));
}

/// The spans of requests that wait: a look at a holder belongs to the first of them.
pub(crate) struct Causes(BTreeMap<WaiterId, (ResourceKey, Cause)>);

impl Causes {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Remembers the span of a request that waits now.
    #[inline]
    pub(crate) fn add(
        &mut self,
        waiter: WaiterId,
        resource: Option<&ResourceKey>,
        cause: &mut Cause,
    ) {
        if cause.0.is_some()
            && let Some(resource) = resource
        {
            let cause = Cause(cause.0.take());
            self.0.insert(waiter, (resource.clone(), cause));
        }
    }

    /// The request is answered or gone. Its span may end with it, so it goes outside of locks.
    #[inline]
    pub(crate) fn remove(&mut self, waiter: WaiterId) -> Option<Cause> {
        if self.0.is_empty() {
            return None;
        }
        let (_resource, cause) = self.0.remove(&waiter)?;
        Some(cause)
    }

    /// Returns the span of the first request that waits for the lease of this generation.
    pub(crate) fn of<'a, H: Holder>(
        &self,
        generation: Generation,
        lease: impl Fn(&ResourceKey) -> Option<&'a Lease<H>>,
    ) -> Cause {
        let is_asked = |resource: &ResourceKey| {
            lease(resource).is_some_and(|lease| lease.token.generation == generation)
        };
        let mut causes = self.0.values();
        let cause = causes.find(|(resource, _)| is_asked(resource));
        cause.map_or(Cause(None), |(_, cause)| cause.clone())
    }
}
