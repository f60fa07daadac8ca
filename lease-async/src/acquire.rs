//! A request for a lease, and its future.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use lease_core::{
    Action, By, Change, Grant, Holder, KeyError, Moment, Note, Outcome, Provenance, ResourceKey,
    SessionHolder, Wait,
};
use tokio_util::sync::CancellationToken;

use crate::authority::{AuthorityError, BoxFuture, Reply};
use crate::caught::apart;
use crate::clock::{Alarm, AlarmClock};
use crate::error::AcquireError;
use crate::guard::LeaseGuard;
use crate::leases::Shared;
use crate::relayed::relayed;
use crate::table::{Asking, Behind, Entered};
use crate::telemetry::Request;

/// How often one poll asks.
const ROUNDS: usize = 32;

/// What names a resource.
pub trait AsResource {
    /// Returns the resource.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if it is none.
    fn as_resource(&self) -> Result<ResourceKey, KeyError>;
}

impl AsResource for str {
    fn as_resource(&self) -> Result<ResourceKey, KeyError> {
        ResourceKey::new(self)
    }
}

impl AsResource for String {
    fn as_resource(&self) -> Result<ResourceKey, KeyError> {
        ResourceKey::new(self)
    }
}

impl AsResource for ResourceKey {
    #[inline]
    fn as_resource(&self) -> Result<ResourceKey, KeyError> {
        Ok(self.clone())
    }
}

impl<T: AsResource + ?Sized> AsResource for &T {
    #[inline]
    fn as_resource(&self) -> Result<ResourceKey, KeyError> {
        (**self).as_resource()
    }
}

/// A request for a lease. It is made by awaiting it.
#[must_use = "a request does nothing until it is awaited"]
pub struct Acquire<H: Holder = SessionHolder> {
    session: Arc<Shared<H>>,
    resource: Result<ResourceKey, KeyError>,
    patience: Patience,
    rare: Option<Box<Rare>>,
}

/// What few requests say. By itself, since a request is moved more often than it is looked at.
#[derive(Default)]
struct Rare {
    ttl: Option<Duration>,
    renewed: bool,
    cancel: Option<CancellationToken>,
    note: Option<Note>,
}

#[derive(Clone, Copy, Debug)]
enum Patience {
    Wait(Wait),
    Within(Duration),
}

impl Patience {
    /// Says until when it may wait.
    fn wait(&mut self, clock: &dyn AlarmClock) -> Wait {
        match *self {
            Self::Wait(wait) => wait,
            Self::Within(span) => {
                let until = Wait::Until(clock.now().after(span));
                // Asking again does not give more time.
                *self = Self::Wait(until);
                until
            }
        }
    }
}

impl<H: Holder> Acquire<H> {
    #[inline]
    pub(crate) const fn new(
        session: Arc<Shared<H>>,
        resource: Result<ResourceKey, KeyError>,
    ) -> Self {
        Self {
            session,
            resource,
            patience: Patience::Wait(Wait::No),
            rare: None,
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Waits until `at` at the latest, on the [clock of the authority](crate::Authority::clock); the last attempt is made
    /// at it.
    ///
    /// It is the authority that ends the wait. Whoever does not trust it to answer drops the request in time, as a
    /// timeout of the runtime does: that takes it back.
    pub fn deadline(mut self, at: Moment) -> Self {
        self.patience = Patience::Wait(Wait::Until(at));
        self
    }

    /// Waits for `span` at most, from the first poll on. It ends as [`deadline`](Self::deadline) says.
    pub const fn within(mut self, span: Duration) -> Self {
        self.patience = Patience::Within(span);
        self
    }

    /// Waits without end.
    pub fn forever(mut self) -> Self {
        self.patience = Patience::Wait(Wait::Forever);
        self
    }

    /// Names the term, where the policy lets the request name it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rare().ttl = Some(ttl);
        self
    }

    /// Renews the lease at each third of its fixed term until the last guard is gone or it is lost.
    ///
    /// Without it an idle lease ends with its term, which is what the term is for. Renewals do not run on
    /// the executor of the caller.
    pub fn renewed(mut self) -> Self {
        self.rare().renewed = true;
        self
    }

    /// Says what it is for. The words go into the receipt of the grant, unless it had to be waited for, and
    /// decide nothing.
    pub fn because(mut self, why: &str) -> Self {
        self.rare().note = Some(Note::new("request", why));
        self
    }

    /// Gives up when `token` is cancelled. A token that is cancelled already gets nothing, even when the
    /// resource is free.
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.rare().cancel = Some(token);
        self
    }
}

impl<H: Holder> IntoFuture for Acquire<H> {
    type Output = Result<LeaseGuard<H>, AcquireError<H>>;
    type IntoFuture = AcquireFuture<H>;

    #[inline]
    fn into_future(self) -> AcquireFuture<H> {
        AcquireFuture {
            session: self.session,
            resource: self.resource,
            patience: self.patience,
            rare: self.rare,
            cancelled: None,
            asking: None,
            step: Step::Ask,
            told: Request::new(),
        }
    }
}

/// The future of a request for a lease.
///
/// # Cancel safety
///
/// Dropping it takes the request back. If it was granted in the meantime, the lease is given back, unless
/// the same session re-entered it since.
#[must_use = "a future does nothing until it is awaited"]
pub struct AcquireFuture<H: Holder> {
    session: Arc<Shared<H>>,
    resource: Result<ResourceKey, KeyError>,
    patience: Patience,
    rare: Option<Box<Rare>>,
    /// From the first poll on, if anything may cancel it.
    cancelled: Option<BoxFuture<()>>,
    step: Step<H>,
    /// While it is on its way.
    asking: Option<Asking>,
    /// Last: what is pending is taken back before.
    told: Request,
}

type Answer<H> = Result<Outcome<H>, AuthorityError>;

enum Step<H: Holder> {
    Ask,
    Wait(BoxFuture<Answer<H>>),
    /// The last guard of the same lease is being released.
    Behind(Box<(Behind<H>, Option<Alarm>)>),
    Over,
}

impl<H: Holder> Future for AcquireFuture<H> {
    type Output = Result<LeaseGuard<H>, AcquireError<H>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (front, holder) = (&this.session.front, &this.session.holder);
        let Some(_inside) = this.told.poll(front, holder, &this.resource) else {
            return this.go_on(cx);
        };
        let end = this.go_on(cx);
        if let Poll::Ready(Err(error)) = &end {
            this.told.failed(&this.session.front, error);
        }
        end
    }
}

type End<H> = Result<LeaseGuard<H>, AcquireError<H>>;

impl<H: Holder> AcquireFuture<H> {
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<End<H>> {
        // Made where it goes: to move a guard that was just made costs more than a lock.
        let mut end = Poll::Pending;
        self.advance(cx, &mut end);
        end
    }

    /// Goes on until there is an end, or nothing to do but to wait.
    // Inlined, its room on the stack makes each poll of who waits dearer.
    #[inline(never)]
    fn advance(&mut self, cx: &mut Context<'_>, end: &mut Poll<End<H>>) {
        let this = self;
        if let Some(rare) = &mut this.rare
            && let Some(token) = rare.cancel.take()
        {
            this.cancelled = Some(Box::pin(relayed(token.cancelled_owned())));
        }
        if let Some(cancelled) = &mut this.cancelled
            && cancelled.as_mut().poll(cx).is_ready()
        {
            // Who polls again is told the same.
            this.cancelled = None;
            // Dropping what is pending is the cancel.
            *end = this.give_up(AcquireError::Cancelled);
            return;
        }
        // Each round more than the first one follows a release of the same lease by another task.
        let mut rounds = ROUNDS;
        loop {
            match core::mem::replace(&mut this.step, Step::Over) {
                Step::Ask if rounds == 0 => {
                    // Others of this thread get their turn, also where an authority grants what has ended for ever.
                    this.step = Step::Ask;
                    cx.waker().wake_by_ref();
                    return;
                }
                Step::Ask => {
                    rounds = rounds.saturating_sub(1);
                    this.ask(end);
                }
                Step::Wait(mut pending) => match pending.as_mut().poll(cx) {
                    // Looked at where it is: the copy of an answer is not free.
                    Poll::Ready(Ok(Outcome::Granted(ref grant, ref change))) => {
                        this.granted(grant, change, end);
                    }
                    Poll::Ready(answer) => this.take(answer, end),
                    Poll::Pending if this.session.is_gone() => {
                        // The disconnect may have come before this was sent, also by this very poll. Then the
                        // authority keeps it.
                        drop(pending);
                        *end = this.give_up(AcquireError::SessionGone);
                    }
                    Poll::Pending => {
                        this.step = Step::Wait(pending);
                        return;
                    }
                },
                Step::Behind(mut behind) => {
                    drop(behind.1.take());
                    if Pin::new(&mut behind.0).poll(cx).is_pending() {
                        *end = this.stand_behind(behind, cx);
                        return;
                    }
                    this.step = Step::Ask;
                }
                // As every future that was polled after its end; here it says so.
                Step::Over => *end = Poll::Ready(Err(AcquireError::Cancelled)),
            }
            if end.is_ready() {
                return;
            }
        }
    }

    /// Asks the authority. Pending: go on.
    fn ask(&mut self, end: &mut Poll<End<H>>) {
        let resource = match &self.resource {
            Ok(resource) => resource,
            Err(error) => {
                *end = Poll::Ready(Err(AcquireError::Resource(*error)));
                return;
            }
        };
        if self.session.is_gone() {
            *end = Poll::Ready(Err(AcquireError::SessionGone));
            return;
        }
        let front = &self.session.front;
        let wait = self.patience.wait(&*front.clock);
        let request = lease_core::Request {
            holder: &self.session.holder,
            ttl: self.rare.as_ref().and_then(|rare| rare.ttl),
            wait,
        };
        // Before the call: an end that comes before its answer is to be known.
        self.asking = Some(front.table.asking(resource));
        let note = self.rare.as_ref().and_then(|rare| rare.note.as_ref());
        match front.authority.request_from_front(resource, request, note) {
            Reply::Ready(Ok(Outcome::Granted(ref grant, ref change))) => {
                self.granted(grant, change, end);
            }
            Reply::Ready(answer) => self.take(answer, end),
            Reply::Pending(answer) => {
                if wait != Wait::No {
                    self.told.waits();
                }
                self.step = Step::Wait(answer);
            }
        }
    }

    /// It is over, also for whoever keeps the future.
    fn give_up(&mut self, why: AcquireError<H>) -> Poll<End<H>> {
        self.take_back();
        Poll::Ready(Err(why))
    }

    /// Takes back what is on its way.
    fn take_back(&mut self) {
        // What is pending is taken back first: until then its grant may come.
        self.step = Step::Over;
        if let Some(asking) = self.asking.take() {
            self.session.front.table.asked(&asking);
        }
    }

    /// Waits for a release that another task makes, as long as the request may wait.
    ///
    /// A request that may not wait at all waits for it too: the release is on its way already.
    fn stand_behind(
        &mut self,
        mut behind: Box<(Behind<H>, Option<Alarm>)>,
        cx: &Context<'_>,
    ) -> Poll<Result<LeaseGuard<H>, AcquireError<H>>> {
        let clock = &self.session.front.clock;
        behind.1 = match self.patience {
            Patience::Wait(Wait::Until(at)) if clock.now() >= at => {
                return Poll::Ready(Err(AcquireError::Releasing));
            }
            Patience::Wait(Wait::Until(at)) => match clock.arm(at, cx.waker().clone()) {
                Ok(alarm) => Some(alarm),
                Err(error) => {
                    let error = AuthorityError::Unreachable(error.into());
                    return Poll::Ready(Err(AcquireError::Authority(error)));
                }
            },
            Patience::Wait(Wait::No | Wait::Forever) | Patience::Within(_) => None,
        };
        self.step = Step::Behind(behind);
        Poll::Pending
    }

    /// Makes a guard of a grant. Pending: the lease ended on the way, go on.
    fn take(&mut self, answer: Answer<H>, end: &mut Poll<End<H>>) {
        self.session.front.heard.answered(&answer);
        let why = match answer {
            Ok(Outcome::Granted(grant, change)) => return self.enter(&grant, &change, end),
            Ok(Outcome::Refused(_)) if self.session.is_gone() => AcquireError::SessionGone,
            Ok(Outcome::Refused(refusal)) => AcquireError::Refused(refusal),
            Ok(Outcome::Done(_) | Outcome::Many(_)) => {
                AcquireError::Authority(AuthorityError::Unsupported("a grant for a request"))
            }
            Err(error) => AcquireError::Authority(error),
        };
        *end = self.give_up(why);
    }

    fn granted(&mut self, grant: &Grant, change: &Change, end: &mut Poll<End<H>>) {
        self.session.front.heard.answers();
        self.enter(grant, change, end);
    }

    fn enter(&mut self, grant: &Grant, change: &Change, end: &mut Poll<End<H>>) {
        let session = &self.session;
        let (Some(asking), Ok(resource)) = (self.asking.take(), &self.resource) else {
            // Nobody is granted what was not asked for.
            return;
        };
        let front = &session.front;
        let hold = match front
            .table
            .enter(session, resource, &asking, (grant, change))
        {
            Entered::Hold(hold) => hold,
            Entered::Gone => {
                self.step = Step::Ask;
                return;
            }
            Entered::Releasing(over) => {
                self.step = Step::Behind(Box::new((over, None)));
                return;
            }
        };
        let created = grant.provenance == Provenance::Created;
        *end = Poll::Ready(Ok(LeaseGuard::new(hold, created)));
        let Poll::Ready(Ok(guard)) = end else { return };
        if session.is_gone() {
            // The disconnect came before this grant, so it is on us to end it.
            front.table.disconnect(session);
            let release = Action::Release(By::Token(grant.at));
            let release = guard.hold().call(release);
            apart(|| front.authority.call_detached(release));
            *end = Poll::Ready(Err(AcquireError::SessionGone));
            return;
        }
        self.told.granted(guard.hold(), change);
        if self.rare.as_ref().is_some_and(|rare| rare.renewed) {
            guard.hold().renew();
        }
    }
}

impl<H: Holder> Drop for AcquireFuture<H> {
    #[inline]
    fn drop(&mut self) {
        // Whoever has its answer has nothing on its way.
        if self.asking.is_some() {
            self.take_back();
        }
    }
}

impl<H: Holder> fmt::Debug for Acquire<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("holder", &self.session.holder)
            .field("resource", &self.resource)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl<H: Holder> fmt::Debug for AcquireFuture<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture")
            .field("holder", &self.session.holder)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}
