//! The front door, and the connections that come through it.

use core::sync::atomic::{AtomicBool, Ordering};
use core::{fmt, time::Duration};
use std::sync::{Arc, OnceLock};

use lease_core::{Action, Call, Holder, LeasePolicy, NameError, PolicyError, SessionHolder, Wait};

use crate::acquire::{Acquire, AsResource};
use crate::authority::{Authority, AuthorityError, BoxError};
use crate::caught::apart;
use crate::clock::AlarmClock;
use crate::events::{Events, Missed, Tap};
use crate::health::{Health, Heard, HeldLease};
use crate::ids;
use crate::incidents::{IncidentPolicy, Incidents, Watch};
use crate::standing::Terms;
use crate::table::Table;
use crate::telemetry::Observer;

/// The front door to one authority. A clone is the same door.
pub struct Leases<H: Holder = SessionHolder> {
    front: Arc<Front<H>>,
}

/// What the sessions of a front have in common.
pub(crate) struct Front<H: Holder> {
    pub(crate) authority: Arc<dyn Authority<Holder = H>>,
    pub(crate) clock: Arc<dyn AlarmClock>,
    pub(crate) terms: Terms,
    /// Whether operations in flight shield.
    pub(crate) shields: bool,
    pub(crate) table: Arc<Table<H>>,
    pub(crate) observer: Arc<Observer>,
    /// Looks for incidents, if that was asked for.
    pub(crate) watch: OnceLock<Arc<Watch<H>>>,
    pub(crate) heard: Heard,
    pub(crate) missed: Missed<H>,
}

/// One connection: one writer.
///
/// # Drop
///
/// It is the disconnect: everything it holds is freed at once, its waiting requests are withdrawn, its guards are
/// lost, and what still runs under them is refused by its token.
#[must_use = "dropping a session is the disconnect"]
pub struct Session<H: Holder = SessionHolder> {
    shared: Arc<Shared<H>>,
}

/// What the requests and the holds of a session need, also when the session goes meanwhile.
pub(crate) struct Shared<H: Holder> {
    pub(crate) front: Arc<Front<H>>,
    /// What it holds, in the table.
    pub(crate) row: usize,
    pub(crate) holder: H,
    gone: AtomicBool,
}

impl<H: Holder> Leases<H> {
    /// Opens an authority under its default policy.
    ///
    /// # Errors
    ///
    /// [`PolicyError::AlreadySet`] if the authority was opened before: clone the door instead.
    pub fn new(authority: impl Authority<Holder = H>) -> Result<Self, PolicyError> {
        let policy = authority.default_policy();
        Self::with_policy(authority, policy)
    }

    /// Opens an authority under this policy.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if the authority cannot keep what the policy needs, or was opened before.
    pub fn with_policy(
        authority: impl Authority<Holder = H>,
        policy: LeasePolicy,
    ) -> Result<Self, PolicyError> {
        Self::open(Arc::new(authority), policy)
    }

    /// Opens an authority that is an object already.
    ///
    /// # Errors
    ///
    /// As [`with_policy`](Self::with_policy).
    pub fn open(
        authority: Arc<dyn Authority<Holder = H>>,
        policy: LeasePolicy,
    ) -> Result<Self, PolicyError> {
        let capabilities = authority.capabilities();
        let terms = Terms::of(&policy, capabilities.self_stop_margin);
        authority.set_policy(policy)?;
        let observer = Observer::new(authority.backend());
        let table = Arc::new(Table::new(Arc::clone(&observer)));
        let weak = Arc::downgrade(&table);
        let tap: std::sync::Weak<dyn Tap<H>> = weak;
        let missed = authority.losses().tap(tap);
        Ok(Self {
            front: Arc::new(Front {
                clock: authority.clock(),
                authority,
                terms,
                shields: capabilities.shields,
                table,
                observer,
                watch: OnceLock::new(),
                heard: Heard::default(),
                missed,
            }),
        })
    }

    /// Measures what happens behind this door, and all its clones, from now on.
    ///
    /// Once, and before the first session: where measurements are made already, these ones are dropped.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn with_metrics(self, metrics: crate::Metrics) -> Self {
        self.front.observer.measure(metrics);
        // Once somebody has listened, every receipt is kept.
        drop(self.front.authority.events());
        self
    }

    /// Looks for incidents behind this door, and all its clones, from now on.
    ///
    /// Once, and before the first session: where it is done already, that policy stays, and what was granted
    /// before is not looked at. An incident is told and moves nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lease_async::{IncidentPolicy, Leases, Memory};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let long = IncidentPolicy::new(Duration::from_secs(600), Duration::from_secs(30));
    /// let leases = Leases::new(Memory::new()?)?.with_incidents(long);
    /// let mut incidents = leases.incidents().ok_or("they are looked for")?;
    /// # drop(leases.connect("ag-1")?);
    /// assert!(incidents.try_next().is_none());
    /// assert!(leases.health().open.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_incidents(self, policy: IncidentPolicy) -> Self {
        let watch = || Watch::new(policy, Arc::clone(&self.front.clock));
        self.front.watch.get_or_init(watch);
        self
    }

    /// Accepts a connection: `holder` makes the writer out of the session id that is minted here.
    ///
    /// What a client sends must not become the session; `holder` should use the one it is given.
    ///
    /// # Errors
    ///
    /// What `holder` says, or that there is no randomness.
    pub fn connect_with<E: Into<BoxError>>(
        &self,
        holder: impl FnOnce(&str) -> Result<H, E>,
    ) -> Result<Session<H>, BoxError> {
        let session = ids::session()?;
        let holder = holder(&session).map_err(Into::into)?;
        Ok(self.session(holder))
    }

    fn session(&self, holder: H) -> Session<H> {
        Session {
            shared: Arc::new(Shared {
                front: Arc::clone(&self.front),
                row: self.front.table.add_row(),
                holder,
                gone: AtomicBool::new(false),
            }),
        }
    }

    /// Returns the authority behind the door.
    #[must_use]
    pub fn authority(&self) -> &dyn Authority<Holder = H> {
        &*self.front.authority
    }

    /// Returns the receipts from now on.
    #[must_use]
    pub fn events(&self) -> Events<H> {
        self.front.authority.events()
    }

    /// Returns the incidents from now on; `None` unless [`with_incidents`](Self::with_incidents) looks for them.
    #[must_use]
    pub fn incidents(&self) -> Option<Incidents<H>> {
        self.front.watch.get().map(|watch| watch.listen())
    }

    /// Returns how this front is, for an operator.
    #[must_use]
    pub fn health(&self) -> Health<H> {
        self.front.health()
    }

    /// Lists the leases that are known here, in order of their grants. The list is a copy.
    ///
    /// What other fronts and processes hold by the same authority is not among them.
    #[must_use]
    pub fn list(&self) -> Vec<HeldLease<H>> {
        self.front.list()
    }

    /// Returns how many leases are known here: those with guards, and those that outlive them.
    #[must_use]
    pub fn known(&self) -> usize {
        self.front.table.len()
    }
}

impl Leases<SessionHolder> {
    /// Accepts a connection of an agent. Its session id is minted here.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the name is none, or there is no randomness.
    pub fn connect(&self, agent: &str) -> Result<Session<SessionHolder>, ConnectError> {
        let session = ids::session().map_err(ConnectError::Authority)?;
        let holder = SessionHolder::new(agent, &session).map_err(ConnectError::Name)?;
        Ok(self.session(holder))
    }
}

/// Why a connection was not accepted.
///
/// State: unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The agent's name is none. Retry: with another.
    #[error(transparent)]
    Name(NameError),
    /// No session id could be drawn. Retry: later.
    #[error(transparent)]
    Authority(AuthorityError),
}

impl<H: Holder> Session<H> {
    /// Asks for a lease: at once, or waiting as the request says.
    ///
    /// Awaiting it gives a [`LeaseGuard`](crate::LeaseGuard), or says why there is none by an
    /// [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    ///
    /// As [`AcquireFuture`](crate::AcquireFuture): a request that is dropped is taken back.
    #[inline]
    pub fn acquire(&self, resource: impl AsResource) -> Acquire<H> {
        Acquire::new(Arc::clone(&self.shared), resource.as_resource())
    }

    /// Returns who this is to the authority.
    #[must_use]
    pub fn holder(&self) -> &H {
        &self.shared.holder
    }
}

impl<H: Holder> Shared<H> {
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}

impl<H: Holder> Drop for Shared<H> {
    fn drop(&mut self) {
        self.front.table.remove_row(self.row);
    }
}

impl<H: Holder> Drop for Session<H> {
    fn drop(&mut self) {
        let front = &self.shared.front;
        // Before the disconnect: a grant that comes after it finds that nobody is there.
        self.shared.gone.store(true, Ordering::SeqCst);
        front.table.disconnect(&self.shared);
        let disconnect = Call {
            resource: None,
            action: Action::Disconnect(self.shared.holder.clone()),
            wait: Wait::No,
        };
        apart(|| front.authority.call_detached(disconnect));
    }
}

impl<H: Holder> Clone for Leases<H> {
    fn clone(&self) -> Self {
        Self {
            front: Arc::clone(&self.front),
        }
    }
}

impl<H: Holder> fmt::Debug for Leases<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("authority", &self.front.authority.id())
            .finish_non_exhaustive()
    }
}

impl<H: Holder> fmt::Debug for Session<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.shared.holder).finish()
    }
}

/// How long before the end of a term a holder in the authority's own process stops: not at all.
pub(crate) const fn no_margin(_term: Duration) -> Duration {
    Duration::ZERO
}
