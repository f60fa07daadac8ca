//! What every reason to refuse says.

use core::time::Duration;

use lease_core::{
    Behind, Bounded, Code, Counter, Fenced, GateError, KeyError, LeaseId, LeasePolicy, Mismatch,
    NameError, PolicyError, ProcessProof, Provenance, Question, RecordError, Refusal,
    SessionHolder, TtlFault, Verb, Wait, WaiterId, limits,
};

use crate::limits::lease;
use crate::rig::{
    Answered as _, Rig, T0, TTL_MS, VIEWPORT, alive, generation, inp, key, mcp, ms, occupied, op,
    oth, session_ttl, unknown,
};

/// Somebody is in the way, in every form.
fn in_the_way() -> Vec<Refusal<SessionHolder>> {
    let mut rig = Rig::sessions();
    let at = rig.granted(VIEWPORT, &mcp()).at;
    rig.begin(VIEWPORT, at, op(1), Provenance::Created).change();
    let held = rig.at(T0 + TTL_MS + 1).refused("app", &inp());
    rig.queue("app", &inp(), Wait::Forever);
    let behind = rig.refused("app/dialog", &oth());
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let question = Question::new(
        mcp(),
        rig.granted(VIEWPORT, &mcp()).at.token,
        0,
        ProcessProof::default(),
    );
    let mut judged = |verdict| {
        rig.answers = vec![question.answer(verdict)];
        rig.refused(VIEWPORT, &inp())
    };
    vec![
        held,
        judged(alive()),
        judged(occupied()),
        judged(unknown()),
        behind,
    ]
}

/// The call or the lease is not what it should be, in every form.
fn wrong() -> Vec<Refusal<SessionHolder>> {
    let given = lease(session_ttl()).token;
    let present = Some(generation(2));
    let stale = [
        Verb::Adopt,
        Verb::Begin,
        Verb::Check,
        Verb::End,
        Verb::Offer,
        Verb::Release,
        Verb::Renew,
        Verb::Touch,
    ]
    .map(|verb| Refusal::StaleToken {
        given,
        present,
        verb,
    });
    let mismatches = [
        Mismatch::ExitedWithoutId,
        Mismatch::ExitedOccupied,
        Mismatch::ExitUnprovable,
        Mismatch::Expired,
        Mismatch::Generation { present },
        Mismatch::Generation { present: None },
        Mismatch::Holder,
        Mismatch::LeaseId,
        Mismatch::NotExited,
        Mismatch::NotLive,
        Mismatch::Ticket,
    ]
    .map(Refusal::Mismatch);
    let longest = limits::TERM_MAX;
    let ttls = [
        TtlFault::Zero,
        TtlFault::TooLong { longest },
        TtlFault::NotNegotiable,
    ]
    .map(Refusal::Ttl);
    let mut wrong = vec![Refusal::StaleToken {
        given,
        present: None,
        verb: Verb::Touch,
    }];
    wrong.extend(stale);
    wrong.extend(mismatches);
    wrong.extend(ttls);
    wrong.extend([
        Refusal::Expired {
            token: given,
            expired_at: ms(T0),
        },
        Refusal::OperationId { op: op(7) },
        Refusal::Required,
        Refusal::Misaddressed,
        Refusal::Gate(Code::InvalidRole),
    ]);
    wrong
}

/// It is too much, too early or too late, in every form.
fn too_much() -> Vec<Refusal<SessionHolder>> {
    let waiter = WaiterId::from_order(4);
    let mut too_much = vec![
        Refusal::OperationInFlight {
            count: 2,
            oldest: ms(T0),
        },
        Refusal::Limit {
            what: Bounded::Operations,
            most: limits::OPERATIONS,
        },
        Refusal::Limit {
            what: Bounded::Waiters,
            most: limits::WAITERS,
        },
        Refusal::TimedOut {
            waiter,
            waited: Duration::from_millis(250),
            last: None,
        },
        Refusal::TimedOut {
            waiter,
            waited: Duration::from_millis(250),
            last: in_the_way().into_iter().next().map(Box::new),
        },
        Refusal::Withdrawn { waiter },
    ];
    too_much.extend(
        [
            Counter::Generation,
            Counter::Handovers,
            Counter::Seq,
            Counter::Waiter,
        ]
        .map(|counter| Refusal::Exhausted { counter }),
    );
    too_much
}

/// One of each reason to refuse.
fn refusals() -> Vec<Refusal<SessionHolder>> {
    [in_the_way(), wrong(), too_much()].concat()
}

/// One of each other error, in words.
fn errors() -> Vec<String> {
    let token = lease(session_ttl()).token;
    let span = Duration::from_secs(1);
    let policies = [
        PolicyError::ZeroTerm,
        PolicyError::AbsurdTerm,
        PolicyError::EndIfIdleNeedsFixedTerm,
        PolicyError::SuspendNeedsProcess,
        PolicyError::NoTermNeedsIgnore,
        PolicyError::NeverEnds,
        PolicyError::MarginTooLong,
        PolicyError::MarginTooShort {
            asked: span,
            least: span * 3,
        },
        PolicyError::NeedsShields,
        PolicyError::AlreadySet,
    ];
    let keys = [
        KeyError::Empty,
        KeyError::TooLong { bytes: 513 },
        KeyError::TooDeep,
        KeyError::EmptySegment { at: 2 },
        KeyError::DotSegment { at: 2 },
        KeyError::Control { at: 2 },
    ];
    let part = "agent";
    let names = [
        NameError::Empty { part },
        NameError::TooLong { part, bytes: 257 },
        NameError::Control { part, at: 2 },
    ];
    let records = [
        RecordError::FutureStamp { field: "touched" },
        RecordError::Disordered { field: "ops" },
        RecordError::TermTooLong,
        RecordError::ForeignExpiry,
        RecordError::Operations,
        RecordError::Provenance,
        RecordError::ReservedLease,
    ];
    let gates = [
        GateError::NoAuthority,
        GateError::Retired,
        GateError::Writer,
    ];
    let fenced = [
        Fenced::Older { current: token },
        Fenced::OtherAuthority {
            current: token.authority,
        },
        Fenced::Twice { current: token },
        Fenced::Revoked {
            generation: token.generation,
        },
    ];
    let mut lines = Vec::new();
    lines.extend(policies.map(|error| format!("{error:?}: {error}")));
    lines.extend(keys.map(|error| format!("{error:?}: {error}")));
    lines.extend(names.map(|error| format!("{error:?}: {error}")));
    lines.extend(records.map(|error| format!("{error:?}: {error}")));
    lines.extend(gates.map(|error| format!("{error:?}: {error}")));
    lines.extend(fenced.map(|error| format!("{error}")));
    lines.push("".parse::<LeaseId>().unwrap_err().to_string());
    lines.push("".parse::<Code>().unwrap_err().to_string());
    lines
}

#[test]
fn every_error_is_told_in_one_line() {
    let mut lines: Vec<_> = refusals()
        .iter()
        .map(|refusal| format!("{}: {refusal}", refusal.code()))
        .collect();
    let reserved: Refusal<SessionHolder> = Refusal::ReservedLease;
    lines.push(format!("{}: {reserved}", reserved.code()));
    lines.extend(errors());
    for line in &lines {
        assert!(!line.ends_with('.') && !line.contains('\n'), "{line}");
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_refusal_says_who_is_in_the_way_and_whether_waiting_can_help() {
    for refusal in refusals() {
        let somebody = matches!(
            refusal,
            Refusal::Held(_) | Refusal::Uninspectable(_) | Refusal::Behind(_)
        );
        assert_eq!(refusal.waits(), somebody, "{refusal}");
        // Whoever waited to the end is told, and nothing is left to wait for.
        let was_there = matches!(refusal, Refusal::TimedOut { last: Some(_), .. });
        assert_eq!(refusal.by().is_some(), somebody || was_there, "{refusal}");
        if let Refusal::Behind(behind) = &refusal {
            let Behind { by, resource, .. } = &**behind;
            assert_eq!((by, resource), (&inp(), &key("app")));
        }
    }
}
