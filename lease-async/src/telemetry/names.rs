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
    use core::time::Duration;
    use std::collections::BTreeSet;

    use lease_core::{
        AuthorityId, Bounded, Change, Code, Counter, Detail, Fenced, FencingToken, Generation,
        LeaseId, Mismatch, Moment, OpId, Refusal, SessionHolder, TtlFault, Verb, Wait, WaiterId,
    };

    use super::{Outcome, Reason, Told};
    use crate::{AcquireError, AuthorityError, LeaseError, Leases, Loss, Memory};

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

    fn token() -> FencingToken {
        FencingToken {
            authority: AuthorityId::from_random([1; 16]),
            generation: Generation::new(1).unwrap(),
            lease: LeaseId::from_random([2; 16]),
        }
    }

    /// What three sessions are told: one holds below, another waits above, and the third asks for what is held and for
    /// what is free.
    async fn in_the_way() -> [Refusal<SessionHolder>; 2] {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let [one, other, third] = ["a", "b", "c"].map(|agent| leases.connect(agent).unwrap());
        let _held = one.acquire("docs/held").await.unwrap();
        let waits = other.acquire("docs").forever().into_future();
        let mut waits = core::pin::pin!(waits);
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let mut told = Vec::new();
        for resource in ["docs/held", "docs/free"] {
            match third.acquire(resource).await {
                Err(AcquireError::Refused(refused)) => told.push(refused),
                other => panic!("{other:?}"),
            }
        }
        told.try_into().unwrap()
    }

    #[track_caller]
    fn check<H: core::fmt::Debug>(refusal: &Refusal<H>, told: Told) {
        assert_eq!(super::refusal(refusal), told, "{refusal:?}");
        assert!(!super::failed(told), "{refusal:?}");
    }

    #[tokio::test]
    async fn who_is_refused_since_others_are_there_is_told_that_it_is_held() {
        let held = |reason| (Outcome::Held, Some(reason));
        let [refused, behind] = in_the_way().await;
        check(&refused, held(Reason::Conflict));
        let Refusal::Held(lease) = refused else {
            panic!("{refused:?}")
        };
        check(&Refusal::Uninspectable(lease), held(Reason::Uninspectable));
        check(&behind, held(Reason::Behind));
        let late = Refusal::<()>::TimedOut {
            waiter: WaiterId::from_order(1),
            waited: Duration::ZERO,
            last: None,
        };
        check(&late, held(Reason::TimedOut));
    }

    #[test]
    fn every_other_refusal_has_its_outcome_and_reason() {
        let (waiter, given) = (WaiterId::from_order(1), token());
        let op = OpId::from_random([3; 16]);
        let refused = |reason| (Outcome::Refused, Some(reason));
        for (refusal, told) in [
            (
                Refusal::<()>::Withdrawn { waiter },
                (Outcome::Cancelled, Some(Reason::Disconnected)),
            ),
            (
                Refusal::StaleToken {
                    given,
                    present: None,
                    verb: Verb::Touch,
                },
                (Outcome::Lost, Some(Reason::Stale)),
            ),
            (
                Refusal::OperationInFlight {
                    count: 1,
                    oldest: Moment::ZERO,
                },
                refused(Reason::InFlight),
            ),
            (Refusal::OperationId { op }, refused(Reason::OperationId)),
            (
                Refusal::Limit {
                    what: Bounded::Waiters,
                    most: 1,
                },
                refused(Reason::Limit),
            ),
            (Refusal::Ttl(TtlFault::Zero), refused(Reason::Ttl)),
            (
                Refusal::Expired {
                    token: given,
                    expired_at: Moment::ZERO,
                },
                refused(Reason::Expired),
            ),
            (
                Refusal::Mismatch(Mismatch::Holder),
                refused(Reason::Mismatch),
            ),
            (Refusal::Required, refused(Reason::NotHeld)),
            (
                Refusal::Exhausted {
                    counter: Counter::Seq,
                },
                refused(Reason::Counter),
            ),
            (Refusal::Gate(Code::Fenced), refused(Reason::Gate)),
            (Refusal::ReservedLease, refused(Reason::WrongCall)),
            (Refusal::Misaddressed, refused(Reason::WrongCall)),
        ] {
            check(&refusal, told);
        }
    }

    #[test]
    fn every_error_has_its_outcome_and_reason() {
        let key = lease_core::ResourceKey::new("").unwrap_err();
        let attempt = LeaseId::from_random([2; 16]);
        let failed = |reason| (Outcome::Failed, Some(reason));
        let unknown = (Outcome::Unknown, Some(Reason::Undecided));
        let causes: [(fn() -> AuthorityError, Told); 4] = [
            (
                || AuthorityError::Unreachable("it is down".into()),
                failed(Reason::Unreachable),
            ),
            (
                || AuthorityError::Unsupported("this"),
                failed(Reason::Unsupported),
            ),
            (
                || AuthorityError::Corrupt("it is torn".into()),
                failed(Reason::Corrupt),
            ),
            (|| AuthorityError::ShutDown, failed(Reason::ShutDown)),
        ];
        for (cause, told) in causes {
            assert_eq!(super::authority(&cause()), told);
            assert_eq!(
                super::acquire(&AcquireError::<()>::Authority(cause())),
                told
            );
            assert_eq!(super::lease(&LeaseError::<()>::Authority(cause())), told);
            assert!(super::failed(told));
        }
        let undecided = AuthorityError::Undecided { attempt };
        assert_eq!(super::authority(&undecided), unknown);
        assert!(super::failed(unknown));
        for (error, told) in [
            (
                AcquireError::<()>::Resource(key),
                (Outcome::Refused, Some(Reason::NoResource)),
            ),
            (
                AcquireError::Refused(Refusal::Required),
                (Outcome::Refused, Some(Reason::NotHeld)),
            ),
            (
                AcquireError::Cancelled,
                (Outcome::Cancelled, Some(Reason::Token)),
            ),
            (
                AcquireError::Releasing,
                (Outcome::Held, Some(Reason::Releasing)),
            ),
            (
                AcquireError::SessionGone,
                (Outcome::Cancelled, Some(Reason::Disconnected)),
            ),
        ] {
            assert_eq!(super::acquire(&error), told, "{error:?}");
        }
        for (error, told) in [
            (
                LeaseError::<()>::Refused(Refusal::Required),
                (Outcome::Refused, Some(Reason::NotHeld)),
            ),
            (
                LeaseError::TermTooShort,
                (Outcome::Refused, Some(Reason::ShortTerm)),
            ),
        ] {
            assert_eq!(super::lease(&error), told, "{error:?}");
        }
    }

    #[test]
    fn every_loss_and_every_word_of_a_gate_has_its_reason() {
        for (loss, reason) in [
            (Loss::Released, Reason::Released),
            (Loss::Disconnected, Reason::Disconnected),
            (Loss::Expired, Reason::Expired),
            (Loss::Proven, Reason::Proven),
            (Loss::Revoked, Reason::Revoked),
            (Loss::SessionEnded, Reason::SessionEnded),
            (Loss::HandedOver, Reason::HandedOver),
            (Loss::Stale, Reason::Stale),
        ] {
            assert_eq!(Reason::of_loss(loss), reason);
            let told = super::lease(&LeaseError::<()>::Lost(loss));
            assert_eq!(told, (Outcome::Lost, Some(reason)));
        }
        let current = token();
        let (authority, generation) = (current.authority, current.generation);
        for (fenced, reason) in [
            (Fenced::Older { current }, Reason::OlderToken),
            (Fenced::Twice { current }, Reason::DoubleGrant),
            (Fenced::Revoked { generation }, Reason::Revoked),
            (
                Fenced::OtherAuthority { current: authority },
                Reason::OtherAuthority,
            ),
        ] {
            assert_eq!(Reason::of_fence(&fenced), reason, "{fenced:?}");
        }
    }

    /// What an authority in memory does first.
    async fn change() -> Change {
        let memory = Memory::new().unwrap();
        let call = crate::Call {
            resource: Some("docs".parse().unwrap()),
            action: lease_core::Action::Acquire {
                holder: SessionHolder::new("a", "a").unwrap(),
                ttl: None,
            },
            wait: Wait::No,
        };
        match crate::Authority::call(&memory, call).answer().await {
            Ok(crate::Outcome::Granted(_, change)) => change,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn every_change_of_who_holds_has_its_outcome_and_reason() {
        let mut change = change().await;
        for (code, told) in [
            (Code::Created, Some((Outcome::Acquired, None))),
            (Code::LeaseAcquired, Some((Outcome::Acquired, None))),
            (Code::Reentrant, Some((Outcome::Reentered, None))),
            (Code::Renewed, Some((Outcome::Renewed, None))),
            (Code::Touched, Some((Outcome::Renewed, None))),
            (
                Code::TakenOver,
                Some((Outcome::TakenOver, Some(Reason::Proven))),
            ),
            (Code::Released, Some((Outcome::Released, None))),
            (Code::LeaseReleased, Some((Outcome::Released, None))),
            (
                Code::ReleasedAfterFailure,
                Some((Outcome::Released, Some(Reason::Failure))),
            ),
            (
                Code::Abandoned,
                Some((Outcome::Released, Some(Reason::Abandoned))),
            ),
            (
                Code::Disconnected,
                Some((Outcome::Lost, Some(Reason::Disconnected))),
            ),
            (Code::Reclaimed, Some((Outcome::Expired, None))),
            (Code::Revoked, Some((Outcome::Lost, Some(Reason::Revoked)))),
            (
                Code::SessionEnded,
                Some((Outcome::Lost, Some(Reason::SessionEnded))),
            ),
            (Code::Adopted, Some((Outcome::HandedOver, None))),
            (Code::Queued, None),
            (Code::OperationBegun, None),
        ] {
            change.code = code;
            assert_eq!(super::change(&change), told, "{code:?}");
        }
        change.detail = Detail::Released {
            held: Duration::ZERO,
            exited: true,
        };
        for code in [Code::Released, Code::LeaseReleased] {
            change.code = code;
            let told = (Outcome::Lost, Some(Reason::Proven));
            assert_eq!(super::change(&change), Some(told), "{code:?}");
        }
    }
}
