//! Why the core said no. The state is known, and unchanged.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use crate::action::WaiterId;
use crate::cell::Lease;
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{FencingToken, Generation, OpId};
use crate::key::ResourceKey;
use crate::liveness::Verdict;
use crate::time::Moment;

/// Why a request was refused.
///
/// Every refusal leaves the leases as they were; a sweep that ran before it has receipts of its own.
/// Refusals have no number: they are returned, never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal<H> {
    /// Another holder's lease is in the way.
    ///
    /// Retry: after it is released, disconnected, reclaimed or proven dead.
    Held(Box<Held<H>>),
    /// Another holder's lease is in the way, and whether that holder lives cannot be decided.
    ///
    /// Retry: when it can be looked at.
    Uninspectable(Box<Held<H>>),
    /// An earlier overlapping request waits.
    ///
    /// Retry: by waiting too.
    Behind(Box<Behind<H>>),
    /// The token is not that of the present lease.
    ///
    /// Retry: never with this token.
    StaleToken {
        /// What was given.
        given: FencingToken,
        /// The present generation, if the resource is held.
        present: Option<Generation>,
        /// What it was given for.
        verb: Verb,
    },
    /// Operations are in flight.
    ///
    /// Retry: after they ended.
    OperationInFlight {
        /// How many.
        count: u32,
        /// When the oldest began.
        oldest: Moment,
    },
    /// The operation id is in flight already, or reserved.
    ///
    /// Retry: with another id. A repeated `begin` finds here that the first one arrived.
    OperationId {
        /// Which one.
        op: OpId,
    },
    /// Something bounded is full.
    ///
    /// Retry: after something ended.
    Limit {
        /// What is full.
        what: Bounded,
        /// The most there may be.
        most: usize,
    },
    /// The ttl of the request is not one that the policy grants.
    ///
    /// Retry: with another ttl.
    Ttl(TtlFault),
    /// The holder's own term is over.
    ///
    /// Retry: by renewing with an explicit ttl.
    Expired {
        /// Which lease.
        token: FencingToken,
        /// The last moment of its term.
        expired_at: Moment,
    },
    /// The lease is not the one that was meant, or its holder may not do this.
    ///
    /// Retry: with what matches.
    Mismatch(Mismatch),
    /// There is no lease.
    ///
    /// Retry: after acquiring one.
    Required,
    /// The waiting request's deadline passed.
    ///
    /// Retry: at will.
    TimedOut {
        /// Which request.
        waiter: WaiterId,
        /// How long it waited.
        waited: Duration,
        /// What was in the way at the end, if anything still was.
        last: Option<Box<Self>>,
    },
    /// The waiting request's holder disconnected, or took the request back.
    ///
    /// Retry: by a new connection.
    Withdrawn {
        /// Which request.
        waiter: WaiterId,
    },
    /// A counter is at its maximum; it never wraps.
    ///
    /// Retry: never with this authority.
    Exhausted {
        /// Which counter.
        counter: Counter,
    },
    /// The source of random lease ids gave the reserved one.
    ///
    /// Retry: with a sound source.
    ReservedLease,
    /// The action needs a resource, or must not have one.
    ///
    /// Retry: never; the call is wrong.
    Misaddressed,
    /// An application's own gate said no: role, owner, lifecycle, target.
    ///
    /// Retry: as that gate says.
    Gate(Code),
}

/// The lease in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held<H> {
    /// The resource of that lease, which may be an ancestor or descendant of the one asked for.
    pub resource: ResourceKey,
    /// Who holds it.
    pub by: H,
    /// Which grant.
    pub token: FencingToken,
    /// The time since its holder's last progress.
    pub idle: Duration,
    /// How many operations are in flight.
    pub in_flight: u32,
    /// The time until its term is over; `None` without a term or after it.
    pub expires_in: Option<Duration>,
    /// Its term is over. That gives nobody anything while the holder is there.
    pub expired: bool,
    /// What was seen of the holder, where the terms ask for it.
    pub verdict: Option<Verdict>,
    proof: bool,
}

/// The waiter in front.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behind<H> {
    /// What it waits for.
    pub resource: ResourceKey,
    /// Who waits.
    pub by: H,
    /// Which request.
    pub waiter: WaiterId,
}

/// What a stale token was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Adopt.
    Adopt,
    /// Begin.
    Begin,
    /// Check.
    Check,
    /// End.
    End,
    /// Offer.
    Offer,
    /// Release.
    Release,
    /// Renew.
    Renew,
    /// Touch.
    Touch,
}

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bounded {
    /// Operations in flight under one lease.
    Operations,
    /// Requests of one holder that wait.
    HolderWaiters,
    /// Requests that wait, or were answered and not taken yet.
    Waiters,
}

/// Which counter is at its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// The generations of the authority.
    Generation,
    /// The hand-overs of one lease.
    Handovers,
    /// The numbers of changes.
    Seq,
    /// The numbers of waiting requests.
    Waiter,
}

/// Why a ttl is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlFault {
    /// It is zero.
    Zero,
    /// It is above 100 years or above the policy's own bound.
    TooLong {
        /// The longest that is granted.
        longest: Duration,
    },
    /// The policy fixes the term, or has none.
    NotNegotiable,
}

/// What does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The holder's exit is stated without the lease id.
    ExitedWithoutId,
    /// The holder is gone, but its group or another process still works.
    ExitedOccupied,
    /// The exit cannot be proven: the terms ask for no process.
    ExitUnprovable,
    /// The term is over.
    Expired,
    /// Another generation is present, or none.
    Generation {
        /// The present one.
        present: Option<Generation>,
    },
    /// Another holder is recorded.
    Holder,
    /// Another lease is recorded.
    LeaseId,
    /// The holder was said to have exited, and is alive.
    NotExited,
    /// The holder is not alive.
    NotLive,
    /// The ticket is not the one that was offered, or none was.
    Ticket,
}

impl<H> Refusal<H> {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Held(held) if held.proof => Code::LeaseHeld,
            Self::Held(_) | Self::Behind(_) => Code::WriteConflict,
            Self::Uninspectable(_) | Self::Ttl(_) | Self::Misaddressed => Code::InvalidHolder,
            Self::StaleToken { .. } => Code::StaleToken,
            Self::OperationInFlight { .. } => Code::OperationInFlight,
            Self::OperationId { .. } => Code::OperationIdInUse,
            Self::Limit { .. } => Code::LimitReached,
            Self::Expired { .. } => Code::LeaseExpired,
            Self::Mismatch(_) => Code::LeaseMismatch,
            Self::Required => Code::LeaseRequired,
            Self::ReservedLease => Code::InvalidMetadata,
            Self::TimedOut { .. } => Code::WaitTimedOut,
            Self::Withdrawn { .. } => Code::Abandoned,
            Self::Exhausted { .. } => Code::CounterExhausted,
            Self::Gate(code) => *code,
        }
    }

    /// Returns who is in the way, where somebody is; of a wait that is over, who was at its end.
    #[must_use]
    pub const fn by(&self) -> Option<&H> {
        match self {
            Self::Held(held) | Self::Uninspectable(held) => Some(&held.by),
            Self::Behind(behind) => Some(&behind.by),
            Self::TimedOut {
                last: Some(last), ..
            } => last.by(),
            Self::StaleToken { .. }
            | Self::OperationInFlight { .. }
            | Self::OperationId { .. }
            | Self::Limit { .. }
            | Self::Ttl(_)
            | Self::Expired { .. }
            | Self::Mismatch(_)
            | Self::Required
            | Self::TimedOut { .. }
            | Self::Withdrawn { .. }
            | Self::Exhausted { .. }
            | Self::ReservedLease
            | Self::Misaddressed
            | Self::Gate(_) => None,
        }
    }

    /// Returns whether waiting can help: somebody else is in the way now.
    #[must_use]
    pub const fn waits(&self) -> bool {
        matches!(
            self,
            Self::Held(_) | Self::Uninspectable(_) | Self::Behind(_)
        )
    }
}

impl<H: Holder> Behind<H> {
    pub(crate) fn new(resource: &ResourceKey, by: &H, waiter: WaiterId) -> Box<Self> {
        Box::new(Self {
            resource: resource.clone(),
            by: by.clone(),
            waiter,
        })
    }
}

impl<H: Holder> Held<H> {
    /// Describes `lease` of `resource` as it stands in the way at `now`.
    pub(crate) fn new(
        resource: &ResourceKey,
        lease: &Lease<H>,
        now: Moment,
        verdict: Option<Verdict>,
    ) -> Box<Self> {
        let expired = lease.expired(now);
        Box::new(Self {
            resource: resource.clone(),
            by: lease.holder.clone(),
            token: lease.token,
            idle: now.since(lease.touched),
            in_flight: lease.in_flight(),
            expires_in: lease
                .expires
                .filter(|_| !expired)
                .map(|last| last.since(now)),
            expired,
            verdict,
            proof: lease.terms.ends_on().process.is_some(),
        })
    }
}

impl<H: fmt::Debug> fmt::Display for Refusal<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(held) => write!(f, "{held}"),
            Self::Uninspectable(held) => write!(f, "{held}, and cannot be judged"),
            Self::Behind(behind) => {
                write!(f, "{:?} waits for {} already", behind.by, behind.resource)
            }
            Self::StaleToken {
                given,
                present,
                verb,
            } => {
                write!(f, "{verb:?} with stale generation {}", given.generation)?;
                match present {
                    Some(present) => write!(f, ", present is {present}"),
                    None => f.write_str(", nothing is held"),
                }
            }
            Self::OperationInFlight { count, oldest } => {
                write!(f, "{count} operations in flight, the oldest since {oldest}")
            }
            Self::OperationId { op } => write!(f, "operation id {op} is in use or reserved"),
            Self::Limit { what, most } => write!(f, "{what:?} at the limit of {most}"),
            Self::Ttl(TtlFault::Zero) => f.write_str("ttl is zero"),
            Self::Ttl(TtlFault::TooLong { longest }) => write!(f, "ttl is above {longest:?}"),
            Self::Ttl(TtlFault::NotNegotiable) => f.write_str("the policy fixes the term"),
            Self::Expired { token, expired_at } => {
                write!(
                    f,
                    "term of generation {} was over after {expired_at}",
                    token.generation
                )
            }
            Self::Mismatch(mismatch) => write!(f, "lease does not match: {mismatch}"),
            Self::Required => f.write_str("no lease is held"),
            Self::TimedOut { waited, last, .. } => {
                write!(f, "waited {waited:?} until the deadline")?;
                last.as_ref().map_or(Ok(()), |last| write!(f, ": {last}"))
            }
            Self::Withdrawn { waiter } => write!(f, "request {waiter} was withdrawn"),
            Self::Exhausted { counter } => write!(f, "counter {counter:?} is at its maximum"),
            Self::ReservedLease => f.write_str("the source of lease ids gave the reserved one"),
            Self::Misaddressed => f.write_str("the action and the resource do not go together"),
            Self::Gate(code) => write!(f, "gate {code}"),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ExitedWithoutId => "an exit is stated without the lease id",
            Self::ExitedOccupied => "the holder has exited and its work has not",
            Self::ExitUnprovable => "the terms know no proof of an exit",
            Self::Expired => "the term is over",
            Self::Generation {
                present: Some(present),
            } => {
                return write!(f, "the present generation is {present}");
            }
            Self::Generation { present: None } => "nothing is held",
            Self::Holder => "another holder is recorded",
            Self::LeaseId => "another lease is recorded",
            Self::NotExited => "the holder is alive",
            Self::NotLive => "the holder is not alive",
            Self::Ticket => "the ticket is not the one offered",
        };
        f.write_str(text)
    }
}

impl<H: fmt::Debug> fmt::Display for Held<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, generation) = (&self.resource, self.token.generation);
        write!(
            f,
            "{resource} is held by {:?} under generation {generation}",
            self.by
        )?;
        write!(f, ", idle {:?}, {} in flight", self.idle, self.in_flight)?;
        if let Some(verdict) = &self.verdict {
            write!(f, ", {} ({})", verdict.name(), verdict.evidence().proof)?;
        }
        if self.expired {
            f.write_str(", expired")
        } else {
            Ok(())
        }
    }
}

impl<H: fmt::Debug> core::error::Error for Refusal<H> {}
