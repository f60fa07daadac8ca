//! The trait of every backend: who decides, whatever it is made of.

use core::fmt;
use core::pin::Pin;
use core::time::Duration;
use std::sync::Arc;

use lease_core::{
    Action, At, AuthorityId, By, Call, Capabilities, Holder, LeaseId, LeasePolicy, Note, Outcome,
    PolicyError, Request, ResourceKey, Wait,
};

use crate::clock::{AlarmClock, SystemClock};
use crate::events::Events;

/// A future without a name.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The cause of an error in a backend.
pub type BoxError = Box<dyn core::error::Error + Send + Sync>;

/// Decides who holds what: in memory, in a file, in a cluster.
///
/// It may be shared and used as an object. What it is asked is a [`Call`] of the core, and what it answers
/// was decided by the core.
pub trait Authority: Send + Sync + 'static {
    /// Who its holders are.
    type Holder: Holder;

    /// Returns which authority this is; part of every token.
    fn id(&self) -> AuthorityId;

    /// Returns what it is made of, for telemetry: one word, the same for every authority of this kind.
    fn backend(&self) -> &'static str {
        "other"
    }

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the terms that are in force unless others are set.
    fn default_policy(&self) -> LeasePolicy;

    /// Sets the terms of all leases to come. Once, and before the first call.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if the authority cannot keep what the policy needs, or has one in force.
    fn set_policy(&self, policy: LeasePolicy) -> Result<(), PolicyError>;

    /// Answers one call, at once or later.
    ///
    /// A front end has no deadline of its own beside it: a request is answered when its [`Wait`] is over at the
    /// latest, and an authority that cannot be asked says so by an error, and does not stay silent.
    ///
    /// Dropping a pending reply is the cancel: a request that waits is withdrawn, and a grant that came in
    /// the meantime is given back.
    fn call(&self, call: Call<Self::Holder>) -> Reply<Self::Holder>;

    /// Answers one call of a front end as [`call`](Self::call) does, and takes down what people say about it:
    /// what kind of operation it is, why it failed. The words decide nothing.
    ///
    /// A front end knows by the answer what its call did. So where nobody listens to [`events`](Self::events),
    /// only the receipts that [`losses`](Self::losses) promises are needed.
    fn call_from_front(&self, call: Call<Self::Holder>, note: Option<Note>) -> Reply<Self::Holder> {
        drop(note);
        self.call(call)
    }

    /// Asks for a lease as [`call_from_front`](Self::call_from_front) does, for a front end that keeps the parts of
    /// the call: an authority that answers at once need not copy them.
    fn request_from_front(
        &self,
        resource: &ResourceKey,
        request: Request<'_, Self::Holder>,
        note: Option<&Note>,
    ) -> Reply<Self::Holder> {
        let Request { holder, ttl, wait } = request;
        let holder = holder.clone();
        let call = Call {
            resource: Some(resource.clone()),
            action: Action::Acquire { holder, ttl },
            wait,
        };
        self.call_from_front(call, note.cloned())
    }

    /// Takes a Release, an End or a Disconnect from a destructor; other calls are forgotten.
    ///
    /// It never blocks and never fails; without a runtime it does what can be done without one. A call
    /// that is made after it returned is decided after it.
    fn call_detached(&self, call: Call<Self::Holder>);

    /// Takes a call of a front end as [`call_detached`](Self::call_detached) does, with what people say about it.
    fn call_detached_from_front(&self, call: Call<Self::Holder>, note: Option<Note>) {
        drop(note);
        self.call_detached(call);
    }

    /// Takes a Release as [`call_detached_from_front`](Self::call_detached_from_front) does, for a front end that
    /// keeps the parts of the call.
    fn release_from_front(&self, resource: &ResourceKey, at: At) {
        let call = Call {
            resource: Some(resource.clone()),
            action: Action::Release(By::Token(at)),
            wait: Wait::No,
        };
        self.call_detached_from_front(call, None);
    }

    /// Returns at least the receipts, from now on, of leases that end or go to another holder, but for releases
    /// that a front end has asked for. All receipts, unless the authority spares some.
    fn losses(&self) -> Events<Self::Holder> {
        self.events()
    }

    /// Returns the receipts from now on.
    fn events(&self) -> Events<Self::Holder>;

    /// Grants nothing any more, and waits up to `within` until nothing is held. What is over by its term meanwhile
    /// is not held.
    ///
    /// # Cancel safety
    ///
    /// It is shut by the call itself; dropping the future only means not to wait.
    fn shutdown(&self, within: Duration) -> BoxFuture<ShutdownReport>;

    /// Returns the clock on which this authority decides.
    ///
    /// A front end computes deadlines and checks terms on this one and no other.
    fn clock(&self) -> Arc<dyn AlarmClock> {
        Arc::new(SystemClock::new())
    }
}

/// The answer to a call, or what becomes it.
#[must_use = "dropping a pending reply takes the call back"]
#[expect(clippy::exhaustive_enums, reason = "callers must decide both")]
pub enum Reply<H> {
    /// The answer.
    Ready(Result<Outcome<H>, AuthorityError>),
    /// It comes later; dropping this is the cancel.
    Pending(BoxFuture<Result<Outcome<H>, AuthorityError>>),
}

impl<H> Reply<H> {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// [`AuthorityError`] where nothing was decided, or it is not known what was.
    ///
    /// # Cancel safety
    ///
    /// Dropping it takes the call back.
    pub async fn answer(self) -> Result<Outcome<H>, AuthorityError> {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(future) => future.await,
        }
    }
}

impl<H: fmt::Debug> fmt::Debug for Reply<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// Why an authority gave no answer. A refusal is an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// It was not reached, or cannot work now.
    ///
    /// State: nothing was decided. Retry: later.
    #[error("the authority cannot be reached")]
    Unreachable(#[source] BoxError),
    /// It cannot do this.
    ///
    /// State: nothing was decided. Retry: never.
    #[error("the authority cannot do this: {0}")]
    Unsupported(&'static str),
    /// What is stored is not sound.
    ///
    /// State: nothing was decided. Retry: after it was put right.
    #[error("what the authority has stored is not sound")]
    Corrupt(#[source] BoxError),
    /// It may have decided.
    ///
    /// State: unknown until the attempt is read back; writes under the lease are blocked until then. From now
    /// on the authority answers no call about the lease before it knows what became of the attempt, so any
    /// answer reads it back. Retry: by [`LeaseGuard::read_back`](crate::LeaseGuard::read_back); after a request,
    /// by asking again.
    #[error("it is not known whether attempt {attempt} was decided")]
    Undecided {
        /// Which attempt.
        attempt: LeaseId,
    },
    /// It was shut down.
    ///
    /// State: nothing was decided. Retry: never.
    #[error("the authority was shut down")]
    ShutDown,
}

/// What a shutdown left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many leases are still held. They end with the authority, or by their terms where it is durable.
    pub held: usize,
    /// How many waiting requests were turned away.
    pub turned_away: usize,
}

impl ShutdownReport {
    /// Reports what is left.
    #[must_use]
    pub const fn new(held: usize, turned_away: usize) -> Self {
        Self { held, turned_away }
    }
}
