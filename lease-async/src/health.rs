//! How a front is: what it holds, what takes long, what was missed, and whether its authority answers.

use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;
use std::sync::Arc;

use lease_core::{FencingToken, Holder, Moment, ResourceKey, SessionHolder};

use crate::authority::AuthorityError;
use crate::hold::Hold;
use crate::incidents::Incident;
use crate::leases::Front;
use crate::standing::Standing;

/// What is known of a front. Reading it moves no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health<H = SessionHolder> {
    /// How many leases are held, as far as this front knows; those whose end nobody has noticed too.
    pub held: usize,
    /// The one that was granted first.
    pub oldest: Option<HeldLease<H>>,
    /// How many requests have no answer yet.
    pub waiting: usize,
    /// How many incidents there were.
    pub incidents: u64,
    /// Those that go on, the earliest first. None where none are looked for.
    pub open: Vec<Arc<Incident<H>>>,
    /// The last one.
    pub last_incident: Option<Arc<Incident<H>>>,
    /// What is known of the authority.
    pub authority: Reach,
    /// How many receipts the authority has dropped before anybody saw them.
    pub unpublished: u64,
    /// How many receipts listeners have missed since they were slow, as far as they have looked.
    pub missed: u64,
}

/// A lease, as this front knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLease<H = SessionHolder> {
    /// What is held.
    pub resource: ResourceKey,
    /// Who holds it.
    pub holder: H,
    /// Which grant.
    pub token: FencingToken,
    /// When it was granted, on the decision clock, or when this front found it held.
    pub since: Moment,
    /// How long ago that was.
    pub age: Duration,
    /// How it stands. A use of it might still renew one in jeopardy.
    pub standing: Standing,
    /// How many guards it has; none where it was left to its term or to the disconnect.
    pub guards: usize,
    /// How many operations of its guards are in flight.
    pub operations: usize,
}

/// What the last answer says of the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// It was not asked yet.
    Untried,
    /// It has answered; a refusal is an answer.
    Answers,
    /// It was not reached, or cannot work.
    Unreachable,
    /// It is not known whether it decided.
    Undecided,
    /// What it has stored is not sound.
    Corrupt,
    /// It was shut down.
    ShutDown,
}

/// Remembers the last answer.
#[derive(Debug, Default)]
pub(crate) struct Heard(AtomicU8);

const REACH: [Reach; 6] = [
    Reach::Untried,
    Reach::Answers,
    Reach::Unreachable,
    Reach::Undecided,
    Reach::Corrupt,
    Reach::ShutDown,
];

impl Heard {
    /// Takes down that there was an answer.
    #[inline]
    pub(crate) fn answers(&self) {
        self.set(1);
    }

    /// Takes an answer down.
    #[inline]
    pub(crate) fn answered<T>(&self, answer: &Result<T, AuthorityError>) {
        let place = match answer {
            // What it cannot do it has said.
            Ok(_) | Err(AuthorityError::Unsupported(_)) => 1,
            Err(AuthorityError::Unreachable(_)) => 2,
            Err(AuthorityError::Undecided { .. }) => 3,
            Err(AuthorityError::Corrupt(_)) => 4,
            Err(AuthorityError::ShutDown) => 5,
        };
        self.set(place);
    }

    fn set(&self, place: u8) {
        // Mostly it is as before, and then nobody's cache is to be disturbed.
        if self.0.load(Ordering::Relaxed) != place {
            self.0.store(place, Ordering::Relaxed);
        }
    }

    fn reach(&self) -> Reach {
        let place = usize::from(self.0.load(Ordering::Relaxed));
        REACH.get(place).copied().unwrap_or(Reach::Untried)
    }
}

impl<H: Holder> Hold<H> {
    fn shown(&self, now: Moment) -> HeldLease<H> {
        let standing = self.peek(now);
        let state = self.state();
        HeldLease {
            resource: self.key.clone(),
            holder: self.holder().clone(),
            token: self.at.token,
            since: self.since,
            age: now.since(self.since),
            standing,
            guards: self.seat.guards(),
            operations: state.operations,
        }
    }
}

impl<H: Holder> Front<H> {
    pub(crate) fn list(&self) -> Vec<HeldLease<H>> {
        let now = self.clock.now();
        let holds = self.table.holds();
        holds.iter().map(|hold| hold.shown(now)).collect()
    }

    pub(crate) fn health(&self) -> Health<H> {
        let known = self.watch.get().map(|watch| watch.known());
        let (held, oldest, waiting) = self.table.survey();
        let now = self.clock.now();
        let (unpublished, missed) = self.missed.counts();
        let (incidents, open, last_incident) = known.map_or_else(Default::default, |known| {
            (known.opened, known.open, known.last)
        });
        Health {
            held,
            oldest: oldest.map(|hold| hold.shown(now)),
            waiting,
            incidents,
            open,
            last_incident,
            authority: self.heard.reach(),
            unpublished,
            missed,
        }
    }
}
