//! Incidents: what is held for long, and operations that do not end. They are told; they move nothing.
//!
//! Whatever could become an incident stands in one order, by the moment from which on it is one, and a single
//! alarm is armed for the earliest of these moments. While nothing could become one, none is.

use core::fmt;
use core::task::Waker;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use lease_core::{FencingToken, Generation, Holder, Moment, OpId, ResourceKey, SessionHolder};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

use crate::caught::apart;
use crate::clock::{Alarm, AlarmClock};
use crate::hold::Hold;
use crate::relayed::relayed;
use crate::standing::Loss;
use crate::telemetry;

/// How many are kept for the slowest listener.
const BACKLOG: usize = 1_024;

/// When to look again at an incident whose term is over, while an operation shields it.
const BEAT: Duration = Duration::from_secs(1);

/// From when on a lease, or an operation, is an incident.
///
/// [`Duration::MAX`] means never. An age of exactly the threshold is an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncidentPolicy {
    /// For a lease, from its grant on, however often it is renewed. Five minutes, if not set.
    pub hold: Duration,
    /// For an operation, from its begin on. One minute, if not set.
    pub operation: Duration,
}

impl IncidentPolicy {
    /// Sets both thresholds.
    #[must_use]
    pub const fn new(hold: Duration, operation: Duration) -> Self {
        Self { hold, operation }
    }
}

impl Default for IncidentPolicy {
    fn default() -> Self {
        Self::new(Duration::from_secs(300), Duration::from_secs(60))
    }
}

/// What takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there is nothing else that is held"
)]
pub enum Stuck {
    /// A lease.
    Hold,
    /// An operation under it.
    Operation(OpId),
}

impl Stuck {
    /// Returns what it is called in telemetry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Operation(_) => "operation",
        }
    }

    /// Returns which operation, if it is one.
    #[must_use]
    pub const fn operation(self) -> Option<OpId> {
        match self {
            Self::Hold => None,
            Self::Operation(id) => Some(id),
        }
    }
}

/// A lease that is held for long, or an operation that does not end. There is one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incident<H = SessionHolder> {
    /// Counts the incidents of a front from 1.
    pub number: u64,
    /// What takes long.
    pub what: Stuck,
    /// What is held.
    pub resource: ResourceKey,
    /// Who holds it.
    pub holder: H,
    /// Which grant.
    pub token: FencingToken,
    /// Since when, on the decision clock. A lease that this front found held already: since then.
    pub since: Moment,
    /// How old it was when it became an incident.
    pub age: Duration,
    /// From which age on it is told.
    pub threshold: Duration,
    /// What was in flight under the lease then, in order of begin.
    pub in_flight: Vec<InFlight>,
}

/// An operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Its random id.
    pub id: OpId,
    /// How long it is in flight.
    pub age: Duration,
}

/// How an incident ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The lease did.
    Lease(Loss),
    /// The operation did, or was dropped.
    Operation,
    /// That was not seen: receipts were missed and nobody here has a guard, or another guard took the lease up.
    Unseen,
}

/// What a listener gets.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a listener must decide every case")]
pub enum IncidentEvent<H = SessionHolder> {
    /// Something takes long.
    Opened(Arc<Incident<H>>),
    /// It is over.
    Closed {
        /// What was opened.
        incident: Arc<Incident<H>>,
        /// How old it became.
        age: Duration,
        /// How it ended.
        how: Closed,
    },
    /// So many before the next one were dropped, since this listener was slow.
    Missed(u64),
}

/// The incidents of one front, from the moment of [`Leases::incidents`](crate::Leases::incidents) on.
///
/// Each is opened once and closed once, in this order. A listener that is slow loses the oldest ones and is told
/// how many; nobody waits for it.
#[derive(Debug)]
pub struct Incidents<H = SessionHolder> {
    receiver: broadcast::Receiver<IncidentEvent<H>>,
}

impl<H: Holder> Incidents<H> {
    /// Waits for the next one; `None` once the front is gone and everything was taken.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping it.
    pub async fn next(&mut self) -> Option<IncidentEvent<H>> {
        match relayed(self.receiver.recv()).await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(IncidentEvent::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Takes the next one if it is there already.
    pub fn try_next(&mut self) -> Option<IncidentEvent<H>> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(missed)) => Some(IncidentEvent::Missed(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// Watches the leases of one front, and what is in flight under them.
///
/// Its lock comes after those of the table and of a hold; nothing is called under it but the clock.
pub(crate) struct Watch<H: Holder> {
    policy: IncidentPolicy,
    clock: Arc<dyn AlarmClock>,
    state: Mutex<State<H>>,
    sender: broadcast::Sender<IncidentEvent<H>>,
}

struct State<H: Holder> {
    leases: BTreeMap<Generation, Watched<H>>,
    /// What is to be looked at, and when.
    due: BTreeSet<Due>,
    alarm: Option<(Moment, Alarm)>,
    open: BTreeMap<u64, Arc<Incident<H>>>,
    opened: u64,
    last: Option<Arc<Incident<H>>>,
    /// What is to be told, in order, and whether somebody is about it.
    untold: VecDeque<IncidentEvent<H>>,
    telling: bool,
}

/// When to look at which lease, or at which operation of it.
type Due = (Moment, Generation, Option<OpId>);

/// A lease, and what is in flight under it. Operations may outlive their lease here: they still run.
struct Watched<H: Holder> {
    hold: Option<Part<H>>,
    operations: Vec<(OpId, Part<H>)>,
}

/// What may be an incident.
struct Part<H: Holder> {
    hold: Weak<Hold<H>>,
    since: Moment,
    due: Option<Moment>,
    open: Option<Arc<Incident<H>>>,
}

/// How something ends, and by which clock.
struct End<'a> {
    how: Closed,
    clock: &'a dyn AlarmClock,
}

/// What is known of incidents. A copy.
pub(crate) struct Known<H> {
    pub(crate) opened: u64,
    pub(crate) open: Vec<Arc<Incident<H>>>,
    pub(crate) last: Option<Arc<Incident<H>>>,
}

impl<H: Holder> Watch<H> {
    pub(crate) fn new(policy: IncidentPolicy, clock: Arc<dyn AlarmClock>) -> Arc<Self> {
        let (sender, _nobody) = broadcast::channel(BACKLOG);
        Arc::new(Self {
            policy,
            clock,
            sender,
            state: Mutex::new(State {
                leases: BTreeMap::new(),
                due: BTreeSet::new(),
                alarm: None,
                open: BTreeMap::new(),
                opened: 0,
                last: None,
                untold: VecDeque::new(),
                telling: false,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self) -> Incidents<H> {
        Incidents {
            receiver: self.sender.subscribe(),
        }
    }

    /// A lease was granted.
    pub(crate) fn granted(self: &Arc<Self>, hold: &Arc<Hold<H>>) {
        let generation = hold.at.token.generation;
        let part = Part::new(hold, hold.since, self.policy.hold);
        let mut state = self.state();
        // Whoever marks it lost comes here after that, and finds it; or it is lost already.
        if hold.state().lost.is_some() {
            return;
        }
        state
            .due
            .extend(part.due.map(|due| (due, generation, None)));
        let watched = state.leases.entry(generation).or_default();
        // Its holder had given it up, and is about to say so.
        let before = watched.hold.replace(part);
        let end = self.end(Closed::Unseen);
        let closed = before.and_then(|before| state.settle(before, (generation, None), &end));
        let rung = self.arm(&mut state);
        drop(state);
        drop(rung);
        self.closed(hold, closed.as_ref(), &end);
    }

    /// An operation began.
    pub(crate) fn begun(self: &Arc<Self>, hold: &Arc<Hold<H>>, id: OpId, since: Moment) {
        let generation = hold.at.token.generation;
        let part = Part::new(hold, since, self.policy.operation);
        let mut state = self.state();
        state
            .due
            .extend(part.due.map(|due| (due, generation, Some(id))));
        let watched = state.leases.entry(generation).or_default();
        watched.operations.push((id, part));
        let rung = self.arm(&mut state);
        drop(state);
        drop(rung);
    }

    /// A lease is lost, or it is not known whether it goes on.
    pub(crate) fn ended(&self, hold: &Hold<H>, how: Closed) {
        self.close(hold, how, |watched| {
            // Another hold of the same lease is another one's to end.
            watched
                .hold
                .take_if(|part| core::ptr::eq(part.hold.as_ptr(), hold))
                .map(|part| (None, part))
        });
    }

    /// An operation is over.
    pub(crate) fn over(&self, hold: &Hold<H>, id: OpId) {
        self.close(hold, Closed::Operation, |watched| {
            let mut operations = watched.operations.iter();
            let at = operations.position(|(other, _)| *other == id)?;
            let (id, part) = watched.operations.remove(at);
            Some((Some(id), part))
        });
    }

    fn end(&self, how: Closed) -> End<'_> {
        let clock = &*self.clock;
        End { how, clock }
    }

    fn close(
        &self,
        hold: &Hold<H>,
        how: Closed,
        take: impl FnOnce(&mut Watched<H>) -> Option<(Option<OpId>, Part<H>)>,
    ) {
        let generation = hold.at.token.generation;
        let mut state = self.state();
        let Some(watched) = state.leases.get_mut(&generation) else {
            return;
        };
        let Some((id, part)) = take(watched) else {
            return;
        };
        if watched.hold.is_none() && watched.operations.is_empty() {
            state.leases.remove(&generation);
        }
        let end = self.end(how);
        let closed = state.settle(part, (generation, id), &end);
        // An alarm that is early rings for nobody; none is left where nothing can come.
        let idle = state.due.is_empty();
        let alarm = if idle { state.alarm.take() } else { None };
        drop(state);
        drop(alarm);
        self.closed(hold, closed.as_ref(), &end);
    }

    /// Tells that an incident is over, if there was one.
    fn closed(&self, hold: &Hold<H>, closed: Option<&(Arc<Incident<H>>, Duration)>, end: &End<'_>) {
        if let Some((incident, age)) = closed {
            telemetry::incident_closed(hold, incident, (*age, end.how));
            self.tell();
        }
    }

    /// Looks at whatever is due, and arms the alarm for the next.
    pub(crate) fn look(self: &Arc<Self>) {
        let now = self.clock.now();
        loop {
            let mut state = self.state();
            let Some((_, generation, id)) = state.take_due(now) else {
                let rung = self.arm(&mut state);
                drop(state);
                drop(rung);
                break;
            };
            let hold = state.part(generation, id).and_then(|part| {
                part.due = None;
                part.hold.upgrade()
            });
            drop(state);
            let Some(hold) = hold else { continue };
            if id.is_none() && hold.is_over(now) {
                // The term has ended it, and nobody has used it since: that is told as any loss.
                hold.standing();
                continue;
            }
            self.take_note(&hold, id, now);
        }
        self.tell();
    }

    /// What is due is an incident now, unless it has ended meanwhile, or is one already.
    fn take_note(&self, hold: &Arc<Hold<H>>, id: Option<OpId>, now: Moment) {
        let generation = hold.at.token.generation;
        // An incident of a lease may end by its term, which nobody else looks at.
        let again = match id {
            None => hold
                .lost_at()
                .map(|at| if at > now { at } else { now.after(BEAT) }),
            Some(_) => None,
        };
        let mut state = self.state();
        let in_flight = state.in_flight(generation, now);
        let number = state.opened.saturating_add(1);
        let Some(part) = state.part(generation, id) else {
            return;
        };
        part.due = again;
        let news = part.open.is_none();
        if news {
            let (what, threshold) = match id {
                None => (Stuck::Hold, self.policy.hold),
                Some(id) => (Stuck::Operation(id), self.policy.operation),
            };
            part.open = Some(Arc::new(Incident {
                number,
                what,
                resource: hold.key.clone(),
                holder: hold.holder().clone(),
                token: hold.at.token,
                since: part.since,
                age: now.since(part.since),
                threshold,
                in_flight,
            }));
        }
        let incident = part.open.clone();
        state.due.extend(again.map(|at| (at, generation, id)));
        if let Some(incident) = incident.filter(|_| news) {
            state.opened = number;
            state.open.insert(number, Arc::clone(&incident));
            state.last = Some(Arc::clone(&incident));
            let event = IncidentEvent::Opened(Arc::clone(&incident));
            state.untold.push_back(event);
            drop(state);
            telemetry::incident_opened(hold, &incident);
        }
    }

    /// Tells what is to be told, outside the lock. One thread does it for all, so the order stays.
    fn tell(&self) {
        let mut state = self.state();
        if core::mem::replace(&mut state.telling, true) {
            return;
        }
        while let Some(event) = state.untold.pop_front() {
            drop(state);
            // A listener's waker that panics is no reason not to tell the rest. Nobody listening is no error.
            apart(|| self.sender.send(event));
            state = self.state();
        }
        state.telling = false;
    }

    /// Sets the alarm for what comes first. Where nothing can ring, the next look at the health notices. Answers the
    /// alarm before it, to be dropped outside the lock.
    fn arm(self: &Arc<Self>, state: &mut State<H>) -> Option<(Moment, Alarm)> {
        let (at, ..) = state.due.first().copied()?;
        if state.alarm.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return None;
        }
        let bell = Waker::from(Arc::new(Bell(Arc::downgrade(self))));
        let alarm = self.clock.arm(at, bell).ok()?;
        state.alarm.replace((at, alarm))
    }

    /// Returns what is known of incidents, after a look.
    pub(crate) fn known(self: &Arc<Self>) -> Known<H> {
        self.look();
        let state = self.state();
        Known {
            opened: state.opened,
            open: state.open.values().cloned().collect(),
            last: state.last.clone(),
        }
    }
}

impl<H: Holder> State<H> {
    /// Takes the first one that is due.
    fn take_due(&mut self, now: Moment) -> Option<Due> {
        let first = self.due.first().is_some_and(|(at, ..)| *at <= now);
        if first { self.due.pop_first() } else { None }
    }

    /// Something is no part of a lease any more.
    fn settle(
        &mut self,
        part: Part<H>,
        (generation, id): (Generation, Option<OpId>),
        end: &End<'_>,
    ) -> Option<(Arc<Incident<H>>, Duration)> {
        if let Some(due) = part.due {
            self.due.remove(&(due, generation, id));
        }
        let incident = part.open?;
        self.open.remove(&incident.number);
        let (how, age) = (end.how, end.clock.now().since(incident.since));
        let told = (Arc::clone(&incident), age);
        self.untold
            .push_back(IncidentEvent::Closed { incident, age, how });
        Some(told)
    }

    fn part(&mut self, generation: Generation, id: Option<OpId>) -> Option<&mut Part<H>> {
        let watched = self.leases.get_mut(&generation)?;
        let Some(id) = id else {
            return watched.hold.as_mut();
        };
        let mut operations = watched.operations.iter_mut();
        operations.find_map(|(other, part)| (*other == id).then_some(part))
    }

    fn in_flight(&self, generation: Generation, now: Moment) -> Vec<InFlight> {
        let watched = self.leases.get(&generation);
        let operations = watched.into_iter().flat_map(|watched| &watched.operations);
        let in_flight = operations.map(|(id, part)| InFlight {
            id: *id,
            age: now.since(part.since),
        });
        in_flight.collect()
    }
}

impl<H: Holder> Part<H> {
    fn new(hold: &Arc<Hold<H>>, since: Moment, threshold: Duration) -> Self {
        Self {
            hold: Arc::downgrade(hold),
            since,
            due: (threshold != Duration::MAX).then(|| since.after(threshold)),
            open: None,
        }
    }
}

impl<H: Holder> Default for Watched<H> {
    fn default() -> Self {
        Self {
            hold: None,
            operations: Vec::new(),
        }
    }
}

/// Rings when something may be an incident.
struct Bell<H: Holder>(Weak<Watch<H>>);

impl<H: Holder> Wake for Bell<H> {
    fn wake(self: Arc<Self>) {
        if let Some(watch) = self.0.upgrade() {
            let rung = watch.state().alarm.take();
            drop(rung);
            watch.look();
        }
    }
}

impl<H: Holder> fmt::Debug for Watch<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::IncidentPolicy;
    use crate::{Leases, ManualClock, Memory, Moment};

    #[tokio::test]
    async fn nothing_is_kept_of_what_has_ended() {
        let clock = ManualClock::new(Moment::ZERO);
        let memory = Memory::builder().clock(clock).build().unwrap();
        let leases = Leases::new(memory).unwrap();
        let leases = leases.with_incidents(IncidentPolicy::default());
        let session = leases.connect("a").unwrap();
        let guard = session.acquire("docs").await.unwrap();
        let front = guard.hold().front().clone();
        let watch = front.watch.get().unwrap();
        let operation = guard.begin().await.unwrap();
        assert_eq!(watch.state().leases.len(), 1);
        drop(session);
        assert_eq!(watch.state().leases.len(), 1);
        drop(operation);
        assert_eq!(watch.state().leases.len(), 0);
    }
}
