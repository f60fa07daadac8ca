//! Terms and clocks at their edges: absurd spans, the last tick, steps back, stamps in the future.

use core::time::Duration;

use lease_core::{
    Action, AdoptProof, At, By, Call, Cell, Cells as _, Code, Decision, Detail, Disposition, Lease,
    LeaseId, LeasePolicy, Moment, OpId, Operation, Outcome, PolicyBuilder, PolicyError, Proofs,
    Provenance, RecordError, Refusal, Scene, Seen, Seq, SessionHolder, Term, TtlFault, Wait,
    decide, limits,
};
use proptest::prelude::*;

use crate::limits::{acquire, lease, refuses};
use crate::rig::{
    Answered as _, Process, Rig, T0, TTL_MS, alive, dead, first_process, inp, key, mcp, ms,
    observed, op, second_process, session_ttl, unknown,
};
use crate::tables::Map;

const TICK: Duration = Duration::from_nanos(1);

#[test]
fn absurd_terms_are_refused_at_the_edge() {
    let policy = |ttl| LeasePolicy::session_ttl(ttl).map(|policy| policy.term());
    let hosted = |ttl| LeasePolicy::hosted_session(ttl).map(|policy| policy.term());
    for preset in [policy, hosted] {
        assert_eq!(preset(Duration::ZERO), Err(PolicyError::ZeroTerm));
        for span in [TICK, Duration::from_millis(999), limits::TERM_MAX] {
            assert_eq!(preset(span), Ok(Term::Fixed(span)));
        }
        for span in [
            limits::TERM_MAX + TICK,
            Duration::from_secs(u64::MAX),
            Duration::MAX,
        ] {
            assert_eq!(preset(span), Err(PolicyError::AbsurdTerm));
        }
    }
}

#[test]
fn absurd_ttls_are_refused_by_name() {
    let mut rig = Rig::<Process>::new(LeasePolicy::process_bound());
    let longest = limits::TERM_MAX;
    let faults = [
        (Duration::ZERO, TtlFault::Zero),
        (longest + TICK, TtlFault::TooLong { longest }),
        (Duration::from_secs(u64::MAX), TtlFault::TooLong { longest }),
        (Duration::MAX, TtlFault::TooLong { longest }),
    ];
    for (ttl, fault) in faults {
        let refusal = refuses(&mut rig, Some("a"), acquire(first_process(), Some(ttl)));
        assert_eq!(refusal, Refusal::Ttl(fault));
        assert_eq!(refusal.code(), Code::InvalidHolder);
    }
    let at = rig.granted("a", &first_process()).at;
    for (ttl, fault) in faults {
        for action in [
            acquire(first_process(), Some(ttl)),
            Action::Renew { at, ttl: Some(ttl) },
        ] {
            let refusal = refuses(&mut rig, Some("a"), action);
            assert_eq!(refusal, Refusal::Ttl(fault));
        }
    }
    for ttl in [TICK, longest] {
        rig.call("a", Action::Renew { at, ttl: Some(ttl) }).change();
        assert_eq!(rig.view("a").expires, Some(rig.now.after(ttl)));
    }
}

#[test]
fn a_policy_that_fixes_the_term_or_bounds_it_says_so() {
    let fault = |policy, ttl| {
        let mut rig = Rig::new(policy);
        refuses(&mut rig, Some("a"), acquire(mcp(), Some(ttl)))
    };
    for other in [TTL_MS - 1, TTL_MS + 1].map(Duration::from_millis) {
        assert_eq!(
            fault(session_ttl(), other),
            Refusal::Ttl(TtlFault::NotNegotiable)
        );
    }
    assert_eq!(
        fault(LeasePolicy::server_session(), TICK),
        Refusal::Ttl(TtlFault::NotNegotiable)
    );
    let longest = Duration::from_secs(60);
    let bounded = PolicyBuilder::new()
        .term(Term::PerGrant { max: Some(longest) })
        .ends_on(Proofs {
            disconnect: true,
            ..Proofs::default()
        })
        .build()
        .unwrap();
    assert_eq!(
        fault(bounded.clone(), longest + TICK),
        Refusal::Ttl(TtlFault::TooLong { longest })
    );
    let mut rig = Rig::new(bounded);
    rig.acquire_for("a", &mcp(), Some(longest)).change();
    // Asking for exactly the fixed term is no contradiction.
    let mut rig = Rig::sessions();
    rig.acquire_for("a", &mcp(), Some(Duration::from_millis(TTL_MS)))
        .change();
}

/// Who may write at `now`: the holder by its own check, a contender by asking.
fn both(rig: &Rig, at: At, now: Moment) -> (bool, bool) {
    let mut asked = rig.clone();
    asked.now = now;
    let mut contended = asked.clone();
    let check = asked.call("a", Action::Check(By::Token(at)));
    let grant = contended.acquire("a", &inp());
    (
        matches!(check, Outcome::Done(_)),
        matches!(grant, Outcome::Granted(..)),
    )
}

// fault B39
#[test]
fn at_the_edge_of_a_term_never_both_may_write() {
    for absurd in [
        Duration::ZERO,
        limits::TERM_MAX + TICK,
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        assert!(LeasePolicy::session_ttl(absurd).is_err());
    }
    let edge = |start: Moment, ttl: Duration| {
        let mut rig = Rig::new(LeasePolicy::session_ttl(ttl).unwrap());
        rig.now = start;
        let at = rig.granted("a", &mcp()).at;
        // Never shorter than asked, and as fine as asked.
        let last = start.after(ttl);
        assert_eq!(rig.view("a").expires, Some(last));
        let before = Moment::from_nanos(last.as_nanos().saturating_sub(1)).max(start);
        assert_eq!(both(&rig, at, before), (true, false));
        assert_eq!(both(&rig, at, last), (true, false));
        if last < Moment::MAX {
            assert_eq!(both(&rig, at, last.after(TICK)), (false, true));
        }
        for way in [Action::Touch(at), Action::Release(By::Token(at))] {
            let mut late = rig.clone();
            late.now = last.after(TICK);
            if last < Moment::MAX {
                assert_eq!(late.call("a", way).refusal().code(), Code::StaleToken);
            }
        }
    };
    let spans = [
        TICK,
        Duration::from_millis(1),
        Duration::from_millis(999),
        Duration::from_secs(1),
        limits::TERM_MAX,
    ];
    for ttl in spans {
        for start in [
            Moment::ZERO,
            ms(T0),
            Moment::from_nanos(u64::MAX - 5),
            Moment::MAX,
        ] {
            edge(start, ttl);
        }
    }
    proptest!(|(start: u64, ttl in 1..=u64::try_from(limits::TERM_MAX.as_nanos()).unwrap())| {
        edge(Moment::from_nanos(start), Duration::from_nanos(ttl));
    });
}

#[test]
fn at_the_edge_of_a_suspending_term_only_proof_gives_the_lease_away() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let ttl = Duration::from_millis(999);
    let at = rig.acquire_for("a", &first_process(), Some(ttl)).grant().at;
    let last = rig.now.after(ttl);
    for (now, may_write) in [
        (last, true),
        (last.after(TICK), false),
        (Moment::MAX, false),
    ] {
        rig.now = now;
        rig.answers = vec![observed(at.token, alive())];
        let mut own = rig.clone();
        let check = own.call("a", Action::Check(By::Token(at)));
        assert_eq!(matches!(check, Outcome::Done(_)), may_write);
        let refusal = refuses(&mut rig, Some("a"), acquire(second_process(), None));
        assert_eq!(refusal.code(), Code::LeaseHeld);
    }
}

// A27
#[test]
fn a_clock_that_steps_back_counts_as_the_latest_time_seen() {
    let mut rig = Rig::sessions();
    let at = rig.granted("a", &mcp()).at;
    rig.at(T0 + 10_000).touch("a", at).change();
    // Back, before even the acquisition.
    rig.at(T0 - 5_000);
    let touched = rig.touch("a", at).change();
    let latest = ms(T0 + 10_000);
    let detail = Detail::Touched {
        before: latest,
        after: latest,
        expired_at: Some(latest.after(Duration::from_millis(TTL_MS))),
        expires: Some(latest.after(Duration::from_millis(TTL_MS))),
    };
    assert_eq!((touched.at, touched.detail), (latest, detail));
    rig.begin("a", at, op(1), Provenance::Created).change();
    let ended = rig.at(0).end("a", at, op(1), Ok(())).change();
    let Detail::Ended { took, expires, .. } = ended.detail else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (took, expires),
        (
            Duration::ZERO,
            Some(latest.after(Duration::from_millis(TTL_MS)))
        )
    );
    let view = rig.view("a");
    assert_eq!((view.acquired, view.touched), (ms(T0), latest));
    assert_eq!(rig.refused("a", &inp()).code(), Code::WriteConflict);
    // One receipt for the step, not one for each call; what was read is in it.
    let stepped = rig.with_code(Code::ClockSteppedBack);
    assert_eq!(stepped.len(), 1);
    assert_eq!(
        stepped[0].change.detail,
        Detail::Clock {
            read: ms(T0 - 5_000)
        }
    );
    assert_eq!(
        (stepped[0].change.at, stepped[0].change.token),
        (latest, None)
    );
    // The term counts from the latest time seen, also once the clock is right again.
    rig.at(T0 + 10_000 + TTL_MS);
    assert_eq!(rig.refused("a", &inp()).code(), Code::WriteConflict);
    rig.at(T0).advance();
    assert_eq!(rig.with_code(Code::ClockSteppedBack).len(), 2);
    let _granted = rig.at(T0 + 10_000 + TTL_MS + 1).granted("a", &inp());
    let seqs: Vec<_> = rig
        .receipts
        .iter()
        .map(|receipt| receipt.change.seq)
        .collect();
    assert!(seqs.is_sorted_by(|a, b| a < b));
}

// fault B34
#[test]
fn a_wall_clock_that_jumps_decides_nothing() {
    let walls = [None, Some(i64::MIN), Some(-1), Some(0), Some(i64::MAX)];
    let history = |wall_ms: Option<i64>| {
        let mut rig = Rig::new(LeasePolicy::process_bound());
        let mut said = Vec::new();
        let mut ask = |rig: &mut Rig<Process>, at, action| {
            rig.at(at);
            let call = Call {
                resource: Some(key("a")),
                action,
                wait: Wait::No,
            };
            let step = rig.turn(|registry, turn| {
                turn.seen.wall_ms = wall_ms;
                registry.call(&call, turn)
            });
            said.push(format!("{step:?}"));
        };
        ask(
            &mut rig,
            T0,
            acquire(first_process(), Some(Duration::from_millis(TTL_MS))),
        );
        let token = rig.view("a").token;
        rig.answers = vec![observed(token, alive())];
        ask(&mut rig, T0 + TTL_MS, acquire(second_process(), None));
        ask(
            &mut rig,
            T0 + TTL_MS,
            Action::Check(By::Token(token.into())),
        );
        // A clock of decisions that steps back gives no negative age.
        ask(&mut rig, T0 - 1, acquire(second_process(), None));
        rig.answers = vec![observed(token, unknown())];
        ask(&mut rig, T0 + TTL_MS + 1, acquire(second_process(), None));
        rig.answers = vec![observed(token, dead())];
        ask(&mut rig, T0 + TTL_MS + 1, acquire(second_process(), None));
        assert!(
            rig.receipts
                .iter()
                .all(|receipt| receipt.wall_ms == wall_ms)
        );
        (said, rig.codes())
    };
    let first = history(None);
    assert!(first.1.contains(&Code::TakenOver));
    for wall in walls {
        assert_eq!(history(wall), first);
    }
}

#[track_caller]
fn unsound(lease: Lease<SessionHolder>, longest: Duration, error: RecordError) {
    assert_eq!(Cell::load(lease, ms(T0), longest), Err(error));
}

/// Puts a stamp where no commit put it.
type Plant = fn(&mut Lease<SessionHolder>, Moment);

#[test]
fn a_stored_lease_that_no_commit_wrote_is_no_cell() {
    let now = ms(T0);
    let sound = lease(session_ttl());
    let longest = Duration::from_millis(TTL_MS);
    let cell = Cell::load(sound.clone(), now, longest).unwrap();
    assert_eq!(cell.lease(), Some(&sound));

    let stamps: [(_, Plant); 3] = [
        ("acquired", |lease, stamp| lease.acquired = stamp),
        ("touched", |lease, stamp| lease.touched = stamp),
        ("ops", |lease, stamp| lease.ops[0].since = stamp),
    ];
    for (field, change) in stamps {
        for future in [now.after(TICK), Moment::MAX] {
            let mut planted = sound.clone();
            change(&mut planted, future);
            unsound(planted, longest, RecordError::FutureStamp { field });
        }
    }
    let early = ms(T0 - 1);
    let mut touched = sound.clone();
    touched.touched = early;
    unsound(
        touched,
        longest,
        RecordError::Disordered { field: "touched" },
    );
    let mut began = sound.clone();
    began.ops.push(Operation {
        id: op(9),
        since: early,
        from: Provenance::Created,
    });
    unsound(began, longest, RecordError::Disordered { field: "ops" });
    let mut over = sound;
    over.expires = Some(early);
    unsound(over, longest, RecordError::Disordered { field: "expires" });
}

#[test]
fn stored_operations_must_go_with_what_is_said_of_their_origin() {
    let longest = Duration::from_millis(TTL_MS);
    let operation = |number, from| Operation {
        id: op(number),
        since: ms(T0),
        from,
    };
    let created = operation(1, Provenance::Created);
    let joined = operation(2, Provenance::Reentrant);
    let planted = |ops: &[Operation], begun, shared, handovers| {
        let mut planted = lease(session_ttl());
        planted.ops = ops.to_vec();
        (planted.begun, planted.shared, planted.handovers) = (begun, shared, handovers);
        planted
    };
    let sound = planted(&[created, joined], true, true, 1);
    assert!(Cell::load(sound, ms(T0), longest).is_ok());
    let second = operation(3, Provenance::Created);
    for planted in [
        planted(&[created, second], true, true, 0),
        planted(&[created], false, false, 0),
        planted(&[joined], false, false, 0),
        planted(&[], false, false, 1),
    ] {
        unsound(planted, longest, RecordError::Provenance);
    }
}

#[test]
fn a_stored_lease_whose_term_does_not_follow_is_no_cell() {
    let (now, longest) = (ms(T0), Duration::from_millis(TTL_MS));
    let sound = lease(session_ttl());
    unsound(
        sound.clone(),
        longest.saturating_sub(TICK),
        RecordError::TermTooLong,
    );
    let mut per_grant = lease(LeasePolicy::process_bound());
    per_grant.expires = Some(now.after(longest));
    assert!(Cell::load(per_grant.clone(), now, longest).is_ok());
    per_grant.expires = Some(now.after(longest + TICK));
    unsound(per_grant, longest, RecordError::TermTooLong);
    // The lease's own bound counts where it is the shorter one.
    let max = Some(longest);
    let bounded = PolicyBuilder::new()
        .term(Term::PerGrant { max })
        .ends_on(Proofs {
            disconnect: true,
            ..Proofs::default()
        });
    let mut bounded = lease(bounded.build().unwrap());
    bounded.expires = Some(now.after(longest + TICK));
    unsound(bounded, limits::TERM_MAX, RecordError::TermTooLong);

    for expires in [
        None,
        Some(now),
        Some(now.after(longest + TICK)),
        Some(Moment::MAX),
    ] {
        let mut foreign = sound.clone();
        foreign.expires = expires;
        unsound(foreign, longest, RecordError::ForeignExpiry);
    }
    let mut none = lease(LeasePolicy::server_session());
    none.expires = Some(now);
    unsound(none, longest, RecordError::ForeignExpiry);
}

#[test]
fn a_stored_lease_with_reserved_or_too_many_ids_is_no_cell() {
    let (now, longest) = (ms(T0), Duration::from_millis(TTL_MS));
    let mut sound = lease(session_ttl());
    sound.shared = true;
    let operation = |number: u16| Operation {
        id: OpId::from_bytes(u128::from(number).to_be_bytes()),
        since: now,
        from: Provenance::Reentrant,
    };
    let most = u16::try_from(limits::OPERATIONS).unwrap();
    for ops in [
        (1..=most + 1).map(operation).collect(),
        vec![operation(1), operation(2), operation(1)],
        vec![operation(0)],
    ] {
        let planted = Lease {
            ops,
            ..sound.clone()
        };
        unsound(planted, longest, RecordError::Operations);
    }
    let full = Lease {
        ops: (1..=most).map(operation).collect(),
        ..sound.clone()
    };
    assert!(Cell::load(full, now, longest).is_ok());
    let mut nil = sound;
    nil.token.lease = LeaseId::NIL;
    unsound(nil, longest, RecordError::ReservedLease);
}

#[test]
fn every_lease_that_a_commit_wrote_is_a_cell() {
    let policies = || {
        prop_oneof![
            Just(session_ttl()),
            Just(LeasePolicy::process_bound()),
            Just(LeasePolicy::server_session()),
        ]
    };
    let steps = proptest::collection::vec((0..8_u8, 0..70_000_u64, 1..90_000_u64), 0..30);
    proptest!(|(policy in policies(), steps in steps)| {
        let mut rig: Rig = Rig::new(policy);
        let mut now = T0;
        for (what, back_and_forth, ttl) in steps {
            now = now.saturating_add(back_and_forth).saturating_sub(20_000);
            rig.at(now);
            let Some(present) = rig.registry.lease(&key("a")).map(|lease| (lease.token, lease.holder.clone())) else {
                drop(rig.step(Some("a"), acquire(mcp(), None), Wait::No));
                continue;
            };
            let at = At::from(present.0);
            let ttl = Some(Duration::from_millis(ttl));
            let action = match what {
                0 => acquire(present.1, ttl),
                1 => acquire(present.1, None),
                2 => Action::Renew { at, ttl },
                3 => Action::Touch(at),
                4 => Action::Begin { at, op: op(2), from: Provenance::Created },
                5 => Action::End { at, op: op(2), result: Err(Disposition::Unknown) },
                6 => Action::Adopt { token: at.token, proof: AdoptProof::Present(present.1), to: inp() },
                _ => Action::Offer { at, ticket: [2; 16] },
            };
            drop(rig.step(Some("a"), action, Wait::No));
            // Never in the future of the latest moment that the registry saw.
            let latest = rig.receipts.iter().map(|receipt| receipt.change.at).max().unwrap();
            if let Some(lease) = rig.registry.lease(&key("a")) {
                prop_assert!(Cell::load(lease.clone(), latest.max(rig.now), limits::TERM_MAX).is_ok(), "{:?}", lease);
            }
        }
    });
}

#[test]
fn a_commit_at_an_earlier_moment_moves_no_stamp_back() {
    let mut rig = Rig::<Process>::new(LeasePolicy::process_bound());
    let at = rig.granted("a", &first_process()).at;
    rig.at(T0 + 10_000).touch("a", at).change();
    let key = key("a");
    let lease = rig.registry.lease(&key).unwrap().clone();
    let cell = Cell::load(lease.clone(), rig.now, limits::TERM_MAX).unwrap();
    let scene = Scene {
        own: Some((&key, &cell)),
        near: &[],
        queued: &[],
        due: &[],
    };
    let begin = Action::Begin {
        at,
        op: op(1),
        from: Provenance::Created,
    };
    // A driver of another process read its clock before this one did.
    for action in [
        Action::Touch(at),
        begin,
        acquire(first_process(), None),
        Action::Adopt {
            token: at.token,
            proof: AdoptProof::Present(first_process()),
            to: second_process(),
        },
    ] {
        let mut cells = Map::default();
        cells.put(&key, cell.clone());
        let policy = LeasePolicy::process_bound();
        let Decision::Change(plan) = decide(&policy, &scene, &action, &Seen::at(ms(T0))) else {
            panic!("not done: {action:?}");
        };
        let seq = Seq { major: 9, minor: 0 };
        let _grant = plan.commit(&mut cells, None, seq, &mut |_| {});
        let after = cells.0[&key].lease().unwrap();
        assert_eq!(
            (after.acquired, after.touched),
            (lease.acquired, lease.touched)
        );
    }
}

#[test]
fn terms_that_progress_put_out_of_order_end_in_theirs() {
    let mut rig = Rig::sessions();
    // The first acquired shows progress last, and the others in the reverse of their order.
    let acquired = [0, 1_000, 1_000, 1_000, 1_000];
    let touched = [20_000, 15_000, 14_000, 13_000, 12_000];
    let names: Vec<_> = (0..acquired.len())
        .map(|name| format!("app/{name}"))
        .collect();
    let mut at = Vec::new();
    for (name, passed) in names.iter().zip(acquired) {
        at.push(rig.at(T0 + passed).granted(name, &mcp()).at);
    }
    for ((name, at), passed) in names.iter().zip(at).zip(touched).rev() {
        rig.at(T0 + passed).touch(name, at).change();
    }
    // Their timers come due and are set anew.
    for passed in [0, 1_000] {
        rig.at(T0 + passed + TTL_MS + 1);
        assert_eq!(rig.advance(), []);
    }
    for (name, passed) in names.iter().zip(touched).rev() {
        let over = ms(T0 + passed + TTL_MS).after(TICK);
        assert_eq!(rig.registry.next_deadline(), Some(over), "{name}");
        rig.now = over;
        assert_eq!(rig.advance().len(), 1, "{name}");
    }
    assert_eq!(rig.registry.footprint(), (0, 0));
}
