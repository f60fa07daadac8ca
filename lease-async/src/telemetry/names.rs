//! Every name that leaves this crate. `docs/telemetry.md` lists the same, and a test compares them.

use lease_core::{Change, Code, Detail, Fenced, Refusal};

use crate::authority::AuthorityError;
use crate::error::{AcquireError, LeaseError};
use crate::standing::Loss;

/// What spans and events are filtered by.
pub(super) const TARGET: &str = "lease_async";

pub(super) mod span {
    pub(in crate::telemetry) const ACQUIRE: &str = "acquire writer_lease";
    pub(in crate::telemetry) const RELEASE: &str = "release writer_lease";
    pub(in crate::telemetry) const RENEW: &str = "renew writer_lease";
    pub(in crate::telemetry) const TAKEOVER: &str = "takeover writer_lease";
    pub(in crate::telemetry) const VERIFY: &str = "verify writer_lease";
}

pub(super) mod event {
    pub(in crate::telemetry) const CLOSED: &str = "writer_lease.incident.closed";
    pub(in crate::telemetry) const DIED: &str = "writer_lease.holder.died";
    pub(in crate::telemetry) const FENCED: &str = "writer_lease.fenced";
    pub(in crate::telemetry) const JEOPARDY: &str = "writer_lease.jeopardy";
    pub(in crate::telemetry) const LOST: &str = "writer_lease.lost";
    pub(in crate::telemetry) const OPENED: &str = "writer_lease.incident.opened";
    pub(in crate::telemetry) const TAKEN_OVER: &str = "writer_lease.taken_over";
}

pub(super) mod attribute {
    pub(in crate::telemetry) const AGE: &str = "writer_lease.incident.age_ms";
    pub(in crate::telemetry) const BACKEND: &str = "writer_lease.backend";
    pub(in crate::telemetry) const CODE: &str = "writer_lease.code";
    pub(in crate::telemetry) const ERROR: &str = "error.type";
    pub(in crate::telemetry) const GENERATION: &str = "writer_lease.generation";
    pub(in crate::telemetry) const HELD_BY: &str = "writer_lease.held_by";
    pub(in crate::telemetry) const HELD_BY_PID: &str = "writer_lease.held_by.pid";
    pub(in crate::telemetry) const HOLDER: &str = "writer_lease.holder";
    pub(in crate::telemetry) const INCIDENT: &str = "writer_lease.incident.number";
    pub(in crate::telemetry) const KIND: &str = "writer_lease.holder.kind";
    pub(in crate::telemetry) const LEASE: &str = "writer_lease.lease.id";
    pub(in crate::telemetry) const OPERATION: &str = "writer_lease.operation.id";
    pub(in crate::telemetry) const OUTCOME: &str = "writer_lease.outcome";
    pub(in crate::telemetry) const PID: &str = "process.pid";
    pub(in crate::telemetry) const PREVIOUS: &str = "writer_lease.previous.generation";
    pub(in crate::telemetry) const PREVIOUS_HOLDER: &str = "writer_lease.previous.holder";
    pub(in crate::telemetry) const PREVIOUS_PID: &str = "writer_lease.previous.pid";
    pub(in crate::telemetry) const PROOF: &str = "writer_lease.proof";
    pub(in crate::telemetry) const REASON: &str = "writer_lease.reason";
    pub(in crate::telemetry) const RECEIPT: &str = "writer_lease.receipt.id";
    pub(in crate::telemetry) const RESOURCE: &str = "writer_lease.resource";
    /// Read by the bridge to OpenTelemetry: the status of the span.
    pub(in crate::telemetry) const STATUS: &str = "otel.status_code";
    pub(in crate::telemetry) const SESSION: &str = "session.id";
    pub(in crate::telemetry) const VERDICT: &str = "writer_lease.verdict";
    pub(in crate::telemetry) const WHAT: &str = "writer_lease.incident.what";
}

#[cfg(feature = "metrics")]
pub(super) mod metric {
    pub(in crate::telemetry) const ACQUIRE: &str = "writer_lease.acquire.duration";
    pub(in crate::telemetry) const ACTIVE: &str = "writer_lease.active";
    pub(in crate::telemetry) const DECISIONS: &str = "writer_lease.decisions";
    pub(in crate::telemetry) const FENCED: &str = "writer_lease.fenced_writes";
    pub(in crate::telemetry) const HOLD: &str = "writer_lease.hold.duration";
    pub(in crate::telemetry) const LAG: &str = "writer_lease.renewal.lag";
    pub(in crate::telemetry) const VERDICTS: &str = "writer_lease.liveness.verdicts";
    pub(in crate::telemetry) const WAITING: &str = "writer_lease.waiting";
    /// What the user sorts resources into.
    pub(in crate::telemetry) const CLASS: &str = "writer_lease.class";
}

/// Makes a closed enumeration of attribute values.
macro_rules! values {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($variant,)*
        }

        impl $name {
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

values! {
    /// What came of it.
    Outcome {
        Acquired = "acquired",
        Cancelled = "cancelled",
        DepthReleased = "depth_released",
        Expired = "expired",
        Failed = "failed",
        HandedOver = "handed_over",
        Held = "held",
        Lost = "lost",
        Reentered = "reentered",
        Refused = "refused",
        Released = "released",
        Renewed = "renewed",
        TakenOver = "taken_over",
        Unknown = "unknown",
    }
}

values! {
    /// Why, where the outcome does not say it all.
    Reason {
        Abandoned = "abandoned",
        Behind = "behind",
        Conflict = "conflict",
        Corrupt = "corrupt",
        Counter = "counter_exhausted",
        Disconnected = "disconnected",
        Dropped = "dropped",
        DoubleGrant = "double_grant",
        Expired = "expired",
        Failure = "operation_failed",
        Gate = "gate",
        HandedOver = "handed_over",
        InFlight = "operation_in_flight",
        Limit = "limit",
        Mismatch = "mismatch",
        NoResource = "no_resource",
        NotHeld = "not_held",
        OperationId = "operation_id_in_use",
        OlderToken = "older_token",
        OtherAuthority = "other_authority",
        Proven = "proven_dead",
        Released = "released",
        Releasing = "releasing",
        Revoked = "revoked",
        SessionEnded = "session_ended",
        ShortTerm = "term_too_short",
        ShutDown = "shut_down",
        Stale = "stale_token",
        TimedOut = "timed_out",
        Token = "cancellation_token",
        Ttl = "ttl",
        Undecided = "undecided",
        Uninspectable = "uninspectable",
        Unreachable = "unreachable",
        Unsupported = "unsupported",
        WrongCall = "wrong_call",
    }
}

/// An outcome, and its reason.
pub(super) type Told = (Outcome, Option<Reason>);

impl Reason {
    pub(super) const fn of_loss(loss: Loss) -> Self {
        match loss {
            Loss::Released => Self::Released,
            Loss::Disconnected => Self::Disconnected,
            Loss::Expired => Self::Expired,
            Loss::Proven => Self::Proven,
            Loss::Revoked => Self::Revoked,
            Loss::SessionEnded => Self::SessionEnded,
            Loss::HandedOver => Self::HandedOver,
            Loss::Stale => Self::Stale,
        }
    }

    pub(super) const fn of_fence(fenced: &Fenced) -> Self {
        match fenced {
            Fenced::Older { .. } => Self::OlderToken,
            Fenced::Twice { .. } => Self::DoubleGrant,
            Fenced::Revoked { .. } => Self::Revoked,
            Fenced::OtherAuthority { .. } => Self::OtherAuthority,
            _ => Self::Gate,
        }
    }
}

/// What a change decides about who holds; `None` for what decides nothing about it.
pub(super) const fn change(change: &Change) -> Option<Told> {
    let exited = matches!(change.detail, Detail::Released { exited: true, .. });
    Some(match change.code {
        Code::Created | Code::LeaseAcquired => (Outcome::Acquired, None),
        Code::Reentrant => (Outcome::Reentered, None),
        Code::Renewed | Code::Touched => (Outcome::Renewed, None),
        Code::TakenOver => (Outcome::TakenOver, Some(Reason::Proven)),
        Code::Released | Code::LeaseReleased if exited => (Outcome::Lost, Some(Reason::Proven)),
        Code::Released | Code::LeaseReleased => (Outcome::Released, None),
        Code::ReleasedAfterFailure => (Outcome::Released, Some(Reason::Failure)),
        Code::Abandoned => (Outcome::Released, Some(Reason::Abandoned)),
        Code::Disconnected => (Outcome::Lost, Some(Reason::Disconnected)),
        Code::Reclaimed => (Outcome::Expired, None),
        Code::Revoked => (Outcome::Lost, Some(Reason::Revoked)),
        Code::SessionEnded => (Outcome::Lost, Some(Reason::SessionEnded)),
        Code::Adopted => (Outcome::HandedOver, None),
        _ => return None,
    })
}

pub(super) const fn refusal<H>(refusal: &Refusal<H>) -> Told {
    let reason = match refusal {
        Refusal::Held(_) => return (Outcome::Held, Some(Reason::Conflict)),
        Refusal::Uninspectable(_) => return (Outcome::Held, Some(Reason::Uninspectable)),
        Refusal::Behind(_) => return (Outcome::Held, Some(Reason::Behind)),
        Refusal::TimedOut { .. } => return (Outcome::Held, Some(Reason::TimedOut)),
        Refusal::Withdrawn { .. } => return (Outcome::Cancelled, Some(Reason::Disconnected)),
        Refusal::StaleToken { .. } => return (Outcome::Lost, Some(Reason::Stale)),
        Refusal::OperationInFlight { .. } => Reason::InFlight,
        Refusal::OperationId { .. } => Reason::OperationId,
        Refusal::Limit { .. } => Reason::Limit,
        Refusal::Ttl(_) => Reason::Ttl,
        Refusal::Expired { .. } => Reason::Expired,
        Refusal::Mismatch(_) => Reason::Mismatch,
        Refusal::Required => Reason::NotHeld,
        Refusal::Exhausted { .. } => Reason::Counter,
        Refusal::Gate(_) => Reason::Gate,
        // The rest is a call that cannot be right, and what a later core adds.
        _ => Reason::WrongCall,
    };
    (Outcome::Refused, Some(reason))
}

/// These are failures; their reason is the error's type too.
pub(super) const fn authority(error: &AuthorityError) -> Told {
    match error {
        AuthorityError::Unreachable(_) => (Outcome::Failed, Some(Reason::Unreachable)),
        AuthorityError::Unsupported(_) => (Outcome::Failed, Some(Reason::Unsupported)),
        AuthorityError::Corrupt(_) => (Outcome::Failed, Some(Reason::Corrupt)),
        AuthorityError::Undecided { .. } => (Outcome::Unknown, Some(Reason::Undecided)),
        AuthorityError::ShutDown => (Outcome::Failed, Some(Reason::ShutDown)),
    }
}

pub(super) const fn acquire<H: core::fmt::Debug>(error: &AcquireError<H>) -> Told {
    match error {
        AcquireError::Resource(_) => (Outcome::Refused, Some(Reason::NoResource)),
        AcquireError::Refused(refused) => refusal(refused),
        AcquireError::Authority(error) => authority(error),
        AcquireError::Cancelled => (Outcome::Cancelled, Some(Reason::Token)),
        AcquireError::Releasing => (Outcome::Held, Some(Reason::Releasing)),
        AcquireError::SessionGone => (Outcome::Cancelled, Some(Reason::Disconnected)),
    }
}

pub(super) const fn lease<H: core::fmt::Debug>(error: &LeaseError<H>) -> Told {
    match error {
        LeaseError::Lost(loss) => (Outcome::Lost, Some(Reason::of_loss(*loss))),
        LeaseError::Refused(refused) => refusal(refused),
        LeaseError::Authority(error) => authority(error),
        LeaseError::TermTooShort => (Outcome::Refused, Some(Reason::ShortTerm)),
    }
}

pub(super) const fn failed((outcome, _): Told) -> bool {
    matches!(outcome, Outcome::Failed | Outcome::Unknown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Outcome, Reason};

    const CONTRACT: &str = include_str!("../../../docs/telemetry.md");

    /// The first cells of the table below a heading.
    fn table(heading: &str) -> BTreeSet<&str> {
        let (_, section) = CONTRACT.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| row.split('`').next().unwrap()).collect()
    }

    #[test]
    fn the_contract_lists_every_outcome_and_reason_and_no_other() {
        let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
        assert_eq!(table("Outcomes"), outcomes.collect());
        let reasons = Reason::ALL.iter().map(|reason| reason.name());
        assert_eq!(table("Reasons"), reasons.collect());
    }
}
