//! Bad input: each is refused by name, changes nothing, and nothing panics.

use core::time::Duration;
use std::collections::BTreeMap;

use lease_core::{
    Action, AdoptProof, At, AuthorityId, Bounded, By, Call, Cell, Code, Counter, Decision,
    Disposition, FenceGate, Fenced, FencingToken, Lease, LeaseId, LeasePolicy, LeaseView, Moment,
    Note, OpId, Outcome, Provenance, Refusal, Registry, Scene, Seen, SessionHolder, Step, Turn,
    Verb, Wait, WaiterId, decide, limits, sweep,
};
use proptest::prelude::*;

use crate::rig::{
    Answered as _, Process, Rig, T0, TTL_MS, VIEWPORT, dead, first_process, generation, inp, key,
    mcp, ms, observed, op, oth, second_process, session_ttl,
};

/// All that a registry knows of leases, waiters and counters.
fn state<H: lease_core::Holder>(rig: &Rig<H>) -> String {
    let leases: BTreeMap<_, _> = rig
        .registry
        .peek(rig.now)
        .into_iter()
        .map(|view| {
            (
                view.resource.clone(),
                rig.registry.lease(&view.resource).cloned(),
            )
        })
        .collect();
    let counts = (
        rig.registry.held(),
        rig.registry.waiting(),
        rig.registry.last_major(),
    );
    format!("{leases:?} {counts:?}")
}

/// Refuses the action and changes nothing.
#[track_caller]
pub(crate) fn refuses<H: lease_core::Holder>(
    rig: &mut Rig<H>,
    resource: Option<&str>,
    action: Action<H>,
) -> Refusal<H> {
    let before = state(rig);
    let step = rig.step(resource, action.clone(), Wait::No);
    assert_eq!(state(rig), before, "{action:?} changed something");
    match step {
        Step::Done(Outcome::Refused(refusal)) => refusal,
        step => panic!("{action:?} was not refused: {step:?}"),
    }
}

pub(crate) fn acquire<H>(holder: H, ttl: Option<Duration>) -> Action<H> {
    Action::Acquire { holder, ttl }
}

/// Every action that names a lease by `token`, or by its id and holder.
fn with_token<H: lease_core::Holder>(token: FencingToken, holder: &H) -> Vec<Action<H>> {
    let at = At::from(token);
    let by = |exited| By::Holder {
        holder: holder.clone(),
        lease: Some(token.lease),
        exited,
    };
    vec![
        Action::Touch(at),
        Action::Renew { at, ttl: None },
        Action::Begin {
            at,
            op: op(9),
            from: Provenance::Created,
        },
        Action::End {
            at,
            op: op(1),
            result: Ok(()),
        },
        Action::End {
            at,
            op: OpId::ACQUISITION,
            result: Err(Disposition::PreMutation),
        },
        Action::Release(By::Token(at)),
        Action::Release(by(false)),
        Action::Release(by(true)),
        Action::Check(By::Token(at)),
        Action::Check(by(false)),
        Action::Offer {
            at,
            ticket: [1; 16],
        },
        Action::Adopt {
            token,
            proof: AdoptProof::Present(holder.clone()),
            to: holder.clone(),
        },
    ]
}

// A5, S15
#[test]
fn a_token_of_an_earlier_authority_matches_nothing() {
    let mut before = Rig::of(AuthorityId::from_random([1; 16]), session_ttl());
    let old = before.granted(VIEWPORT, &mcp()).at.token;
    let mut after = Rig::of(AuthorityId::from_random([2; 16]), session_ttl());
    assert_eq!((after.registry.held(), after.registry.waiting()), (0, 0));
    // It draws other random ids.
    let _drawn = after.turn(|_, turn| (turn.lease_id)());
    let new = after.granted(VIEWPORT, &mcp()).at.token;
    assert_eq!(new.generation, old.generation);
    assert_eq!(
        (old.authority, new.authority),
        (before.registry.authority(), after.registry.authority())
    );
    assert_ne!(old.authority, new.authority);
    for action in with_token(old, &mcp()) {
        let refusal = refuses(&mut after, Some(VIEWPORT), action);
        let expected = [Code::StaleToken, Code::LeaseMismatch];
        assert!(expected.contains(&refusal.code()), "{refusal}");
    }
    // Nor where the rest of the token is right by accident.
    let forged = FencingToken {
        authority: old.authority,
        ..new
    };
    let refusal = refuses(
        &mut after,
        Some(VIEWPORT),
        Action::Release(By::Token(forged.into())),
    );
    let stale = Refusal::StaleToken {
        given: forged,
        present: Some(new.generation),
        verb: Verb::Release,
    };
    assert_eq!(refusal, stale);
}

#[test]
fn a_token_that_is_not_the_present_one_is_refused_by_name() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    rig.begin("a", at, op(1), Provenance::Created).change();
    let wrong = [
        FencingToken {
            generation: generation(2),
            ..at.token
        },
        FencingToken {
            lease: LeaseId::from_bytes([9; 16]),
            ..at.token
        },
        FencingToken {
            lease: LeaseId::NIL,
            ..at.token
        },
    ];
    for token in wrong {
        for action in [
            Action::Touch(token.into()),
            Action::Renew {
                at: token.into(),
                ttl: None,
            },
            Action::Begin {
                at: token.into(),
                op: op(9),
                from: Provenance::Created,
            },
            Action::End {
                at: token.into(),
                op: op(1),
                result: Ok(()),
            },
            Action::Release(By::Token(token.into())),
            Action::Check(By::Token(token.into())),
            Action::Offer {
                at: token.into(),
                ticket: [1; 16],
            },
        ] {
            let refusal = refuses(&mut rig, Some("a"), action);
            assert!(
                matches!(refusal, Refusal::StaleToken { given, present: Some(_), .. } if given == token)
            );
        }
    }
    // The right token at another resource names nothing there.
    let elsewhere = refuses(&mut rig, Some("b"), Action::Touch(at));
    assert!(matches!(
        elsewhere,
        Refusal::StaleToken { present: None, .. }
    ));
    // A wrong hint does not matter.
    let hinted = At {
        slot: lease_core::Slot::new(4_000_000_000),
        ..at
    };
    rig.touch("a", hinted).change();
}

#[test]
fn a_call_to_the_wrong_address_is_refused() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    let mut misaddressed = with_token(at.token, &mcp());
    misaddressed.push(acquire(oth(), None));
    misaddressed.push(Action::Revoke {
        expected: at.token.generation,
        by: "operator".into(),
        reason: "".into(),
        even_if_alive: true,
    });
    for action in misaddressed {
        assert_eq!(refuses(&mut rig, None, action), Refusal::Misaddressed);
    }
    for action in [Action::Sweep, Action::Disconnect(mcp())] {
        assert_eq!(refuses(&mut rig, Some("a"), action), Refusal::Misaddressed);
    }
    assert_eq!(
        Refusal::<SessionHolder>::Misaddressed.code(),
        Code::InvalidHolder
    );
}

/// A lease as a commit leaves it.
pub(crate) fn lease(policy: LeasePolicy) -> Lease<SessionHolder> {
    let mut rig = Rig::new(policy);
    let at = rig.granted("a", &mcp()).at;
    rig.begin("a", at, op(1), Provenance::Created).change();
    rig.registry.lease(&key("a")).unwrap().clone()
}

#[test]
fn a_lease_has_at_most_1024_operations_in_flight() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    let id = |number: usize| OpId::from_bytes(u128::try_from(number).unwrap().to_be_bytes());
    let begin = |op| Action::Begin {
        at,
        op,
        from: Provenance::Reentrant,
    };
    for number in 1..=limits::OPERATIONS {
        rig.call("a", begin(id(number))).change();
    }
    let refusal = refuses(&mut rig, Some("a"), begin(id(limits::OPERATIONS + 1)));
    let full = Refusal::Limit {
        what: Bounded::Operations,
        most: 1_024,
    };
    assert_eq!((refusal.code(), refusal), (Code::LimitReached, full));
    rig.end("a", at, id(1), Ok(())).change();
    rig.call("a", begin(id(limits::OPERATIONS + 1))).change();
}

#[test]
fn an_operation_id_in_use_or_reserved_is_refused() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    rig.begin("a", at, op(1), Provenance::Created).change();
    for op in [op(1), OpId::ACQUISITION] {
        let begin = Action::Begin {
            at,
            op,
            from: Provenance::Reentrant,
        };
        let refusal = refuses(&mut rig, Some("a"), begin);
        assert_eq!(
            (refusal.code(), refusal),
            (Code::OperationIdInUse, Refusal::OperationId { op })
        );
    }
    // An end of what is not in flight is stale, and takes nothing from what is.
    let end = Action::End {
        at,
        op: op(2),
        result: Ok(()),
    };
    assert_eq!(refuses(&mut rig, Some("a"), end).code(), Code::StaleToken);
}

// A10
#[test]
fn generations_grow_over_all_resources_and_end_instead_of_wrapping() {
    let mut rig = Rig::sessions();
    let number = |at: At| at.token.generation.get();
    assert_eq!(number(rig.granted("a", &mcp()).at), 1);
    assert_eq!(number(rig.granted("a", &mcp()).at), 1);
    assert_eq!(number(rig.granted("b", &inp()).at), 2);
    rig.disconnect(&mcp());
    assert_eq!(number(rig.granted("a", &mcp()).at), 3);
    rig.registry.raise_floor(generation(1_000));
    assert_eq!(number(rig.granted("c", &mcp()).at), 1_001);
    // A floor never lowers.
    rig.registry.raise_floor(generation(5));
    assert_eq!(number(rig.granted("d", &mcp()).at), 1_002);
    // The very next one is raised, too.
    rig.registry.raise_floor(generation(1_003));
    assert_eq!(number(rig.granted("g", &mcp()).at), 1_004);
    rig.registry
        .raise_floor(generation(limits::GENERATION_MAX - 1));
    let last = rig.granted("e", &mcp()).at;
    assert_eq!(number(last), 9_007_199_254_740_991);
    for _ in 0..2 {
        let refusal = refuses(&mut rig, Some("f"), acquire(mcp(), None));
        let counter = Counter::Generation;
        let exhausted = Refusal::Exhausted { counter };
        assert_eq!(
            (refusal.code(), refusal),
            (Code::CounterExhausted, exhausted)
        );
        rig.registry.raise_floor(generation(1));
    }
    // What is held goes on and ends.
    assert_eq!(number(rig.granted("e", &mcp()).at), number(last));
    rig.release("e", last).change();
    assert_eq!(
        refuses(&mut rig, Some("e"), acquire(mcp(), None)).code(),
        Code::CounterExhausted
    );
}

#[test]
fn a_takeover_without_a_generation_left_ends_nothing() {
    let mut rig = Rig::<Process>::new(LeasePolicy::process_bound());
    let at = rig.granted("a", &first_process()).at;
    let below = rig.granted("b/c", &first_process()).at;
    rig.registry.raise_floor(generation(limits::GENERATION_MAX));
    rig.answers = vec![observed(at.token, dead()), observed(below.token, dead())];
    for resource in ["a", "b"] {
        let refusal = refuses(&mut rig, Some(resource), acquire(second_process(), None));
        assert_eq!(refusal.code(), Code::CounterExhausted);
    }
}

#[test]
fn a_lease_is_handed_over_at_most_as_often_as_can_be_counted() {
    let mut worn = lease(LeasePolicy::process_bound());
    worn.handovers = u32::MAX;
    worn.shared = true;
    let token = worn.token;
    let (now, key) = (ms(T0), key("a"));
    let cell = Cell::load(worn, now, limits::TERM_MAX).unwrap();
    let scene = Scene {
        own: Some((&key, &cell)),
        near: &[],
        queued: &[],
        due: &[],
    };
    let action = Action::Adopt {
        token,
        proof: AdoptProof::Present(mcp()),
        to: inp(),
    };
    let counter = Counter::Handovers;
    match decide(&session_ttl(), &scene, &action, &Seen::at(now)) {
        Decision::Refuse(refusal) => assert_eq!(refusal, Refusal::Exhausted { counter }),
        decision => panic!("not refused: {decision:?}"),
    }
}

#[test]
fn without_a_resource_a_decision_about_one_is_refused() {
    let scene = Scene {
        own: None,
        near: &[],
        queued: &[],
        due: &[],
    };
    let token = lease(session_ttl()).token;
    let mut actions = with_token(token, &mcp());
    actions.push(acquire(mcp(), None));
    for action in actions {
        match decide(&session_ttl(), &scene, &action, &Seen::at(ms(T0))) {
            Decision::Refuse(refusal) => assert_eq!(refusal, Refusal::Misaddressed),
            decision => panic!("not refused: {decision:?}"),
        }
    }
}

#[test]
fn a_plan_is_empty_when_it_neither_changes_nor_reports() {
    let mut over = lease(session_ttl());
    over.ops.clear();
    let (token, later) = (over.token, ms(T0 + 2 * TTL_MS));
    let (key, present) = (key("a"), ms(T0));
    let cell = Cell::load(over, present, limits::TERM_MAX).unwrap();
    let due = [(&key, &cell)];
    let scene = Scene {
        own: Some((&key, &cell)),
        near: &[],
        queued: &[],
        due: &due,
    };
    let sweep = |now| sweep(&session_ttl(), &scene, &Action::Sweep, &Seen::at(now));
    assert!(sweep(present).is_empty());
    assert!(!sweep(later).is_empty());
    let check = Action::Check(By::Token(token.into()));
    match decide(&session_ttl(), &scene, &check, &Seen::at(present)) {
        Decision::Change(plan) => assert!(!plan.is_empty()),
        decision => panic!("no report: {decision:?}"),
    }
}

/// Tokens that are right in every, some or no part.
fn tokens(present: FencingToken) -> impl Strategy<Value = FencingToken> {
    (any::<bool>(), 0..3_u8, any::<bool>()).prop_map(move |(authority, number, lease)| {
        FencingToken {
            authority: if authority {
                present.authority
            } else {
                AuthorityId::from_bytes([0; 16])
            },
            generation: match number {
                0 => present.generation,
                1 => generation(1),
                _ => generation(limits::GENERATION_MAX),
            },
            lease: if lease { present.lease } else { LeaseId::NIL },
        }
    })
}

#[test]
fn no_input_makes_a_call_panic_and_a_refusal_changes_nothing() {
    let mut start = Rig::sessions();
    let _past = start.granted("a/b", &inp());
    start.disconnect(&inp());
    let at = start.granted("a/b", &mcp()).at;
    start.begin("a/b", at, op(1), Provenance::Created).change();
    let resources = prop_oneof![
        Just(None),
        Just(Some("a/b")),
        Just(Some("a")),
        Just(Some("x"))
    ];
    let spans = prop_oneof![
        Just(None),
        any::<u64>().prop_map(|n| Some(Duration::from_nanos(n))),
        Just(Some(Duration::MAX))
    ];
    let inputs = (
        tokens(at.token),
        resources,
        spans,
        any::<u8>(),
        any::<u64>(),
    );
    proptest!(|((token, resource, ttl, number, now) in inputs)| {
        let mut actions = with_token(token, &mcp());
        actions.extend(with_token(token, &oth()));
        actions.extend([
            acquire(oth(), ttl),
            acquire(mcp(), ttl),
            Action::Renew { at: token.into(), ttl },
            Action::Begin { at: token.into(), op: op(number), from: Provenance::Created },
            Action::Disconnect(oth()),
            Action::Sweep,
        ]);
        for action in actions {
            let mut rig = start.clone();
            // A lease with an operation in flight stays, whatever the time is.
            rig.now = Moment::from_nanos(now);
            let leases = rig.registry.peek(Moment::ZERO);
            let step = rig.step(resource, action, Wait::Until(Moment::from_nanos(now)));
            if matches!(step, Step::Done(Outcome::Refused(_))) {
                let left = rig.registry.peek(Moment::ZERO);
                let token = |leases: &[LeaseView<_>]| leases.first().map(|view| view.token);
                prop_assert_eq!(token(&left), token(&leases));
                prop_assert_eq!(rig.registry.lease(&key("a/b")), start.registry.lease(&key("a/b")));
            }
        }
    });
}

#[test]
fn a_gate_is_not_moved_by_what_it_turns_away() {
    let token = lease(session_ttl()).token;
    let mut gate = FenceGate::new();
    assert_eq!(gate.enter(&token), Ok(()));
    let before = gate.clone();
    let foreign = FencingToken {
        authority: AuthorityId::from_bytes([9; 16]),
        generation: generation(limits::GENERATION_MAX),
        ..token
    };
    let twin = FencingToken {
        lease: LeaseId::from_bytes([9; 16]),
        ..token
    };
    assert_eq!(
        gate.enter(&foreign),
        Err(Fenced::OtherAuthority {
            current: token.authority
        })
    );
    assert_eq!(gate.enter(&twin), Err(Fenced::Twice { current: token }));
    assert_eq!(gate, before);
}

#[test]
fn a_request_that_nobody_made_cannot_be_taken_back() {
    let mut rig = Rig::sessions();
    let _held = rig.granted("a", &mcp());
    let waiter = rig.queue("a", &inp(), Wait::Forever);
    let before = state(&rig);
    for number in [1, u64::MAX] {
        assert!(!rig.cancel(WaiterId::from_order(number)));
    }
    assert_eq!(state(&rig), before);
    assert!(rig.cancel(waiter));
    assert!(!rig.cancel(waiter));
}

#[test]
fn a_source_of_ids_that_gives_the_reserved_one_grants_nothing() {
    let mut rig = Rig::sessions();
    let call = Call {
        resource: Some(key("a")),
        action: Action::Acquire {
            holder: mcp(),
            ttl: None,
        },
        wait: Wait::No,
    };
    let step = rig.turn(|registry, turn| {
        let mut nil = || LeaseId::NIL;
        registry.call(&call, &mut Turn::new(turn.seen, &mut nil))
    });
    let Step::Done(Outcome::Refused(refusal)) = step else {
        panic!("{step:?}")
    };
    assert_eq!(
        (&refusal, refusal.code()),
        (&Refusal::ReservedLease, Code::InvalidMetadata)
    );
    assert!(rig.list().is_empty());
    assert_eq!(rig.granted("a", &mcp()).at.token.generation, generation(1));
}

#[test]
fn what_people_say_of_a_request_is_in_the_receipt_of_its_lease() {
    let mut rig = Rig::sessions();
    let note = Note::new("import", "nightly");
    rig.note = Some(note.clone());
    drop(rig.granted("k", &mcp()));
    assert_eq!(rig.receipts.last().unwrap().note, Some(note));
}

#[test]
fn every_receipt_has_the_wall_time_of_its_call() {
    let mut rig = Rig::sessions();
    let wall = |wall_ms| Seen {
        now: ms(T0),
        wall_ms: Some(wall_ms),
        answers: &[],
    };
    let mut at = None;
    let call = |action| Call {
        resource: Some(key("k")),
        action,
        wait: Wait::No,
    };
    for number in 1..=3 {
        let action = match (number, at) {
            (_, None) => acquire(mcp(), None),
            (2, Some(at)) => Action::Touch(at),
            (_, Some(at)) => Action::Release(By::Token(at)),
        };
        let step = rig.turn(|registry, turn| {
            turn.seen = wall(number);
            registry.call(&call(action), turn)
        });
        if let Step::Done(Outcome::Granted(grant, _)) = step {
            at = Some(grant.at);
        }
    }
    let walls = rig.receipts.iter().map(|receipt| receipt.wall_ms);
    assert!(walls.eq([Some(1), Some(2), Some(3)]));
}

#[test]
fn a_registry_that_keeps_no_receipts_keeps_none() {
    let mut rig = Rig::sessions();
    rig.registry = Registry::new(AuthorityId::from_bytes([0xA1; 16]), session_ttl());
    let grant = rig.granted("k", &mcp());
    rig.release("k", grant.at).change();
    assert_eq!(rig.receipts, []);
    assert_eq!(rig.registry.last_major(), 2);
}

#[test]
fn receipts_are_there_until_they_are_taken() {
    let authority = AuthorityId::from_bytes([0xA1; 16]);
    let mut registry = Registry::new(authority, session_ttl()).with_receipts(1);
    let mut draw = || LeaseId::from_bytes([1; 16]);
    let mut turn = Turn::new(Seen::at(ms(T0)), &mut draw);
    let call = |name, action| Call {
        resource: Some(key(name)),
        action,
        wait: Wait::No,
    };
    assert!(!registry.has_receipts());
    drop(registry.call(&call("a", acquire(mcp(), None)), &mut turn));
    assert!(registry.has_receipts());
    drop(registry.call(&call("a", acquire(mcp(), None)), &mut turn));
    let taken = registry.take_receipts();
    assert_eq!((taken.receipts.len(), taken.missed), (1, 1));
    assert!(!registry.has_receipts());
}
