//! Leases bound to a process: who may have them, whom a term binds, what a release takes.
//!
//! The core knows no process. A verdict says of the holder: alive; dead, with an empty group and an
//! unused path; occupied, where either still works; unknown. The question says that both count.

use core::time::Duration;

use lease_core::{
    Action, At, By, Change, Code, Detail, Lease, LeaseId, LeasePolicy, Locality, Mismatch, Outcome,
    ProcessProof, Provenance, Question, Refusal, Step, TtlFault, Wait,
};

use crate::rig::{
    Answered as _, Process, Rig, T0, alive, dead, first_process, key, ms, observed, occupied, op,
    second_process, unknown,
};

const TREE: &str = "alloc-7";

/// The term of most histories here, in milliseconds.
const TTL: u64 = 60_000;

fn rig() -> Rig<Process> {
    Rig::new(LeasePolicy::process_bound())
}

const fn span(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

/// The first process holds since `T0`.
fn held(ttl: Option<Duration>) -> (Rig<Process>, At) {
    let mut rig = rig();
    let at = rig.acquire_for(TREE, &first_process(), ttl).grant().at;
    (rig, at)
}

fn hold(rig: &mut Rig<Process>, resource: &str, holder: &Process) -> At {
    rig.granted(resource, holder).at
}

fn lease(rig: &Rig<Process>) -> Lease<Process> {
    rig.registry.lease(&key(TREE)).unwrap().clone()
}

fn ask(rig: &mut Rig<Process>, action: Action<Process>) -> Vec<Question<Process>> {
    match rig.step(Some(TREE), action, Wait::No) {
        Step::Ask(questions) => questions,
        step => panic!("does not ask: {step:?}"),
    }
}

fn acquire(holder: Process) -> Action<Process> {
    Action::Acquire { holder, ttl: None }
}

fn by(holder: Process, lease: Option<LeaseId>, exited: bool) -> By<Process> {
    By::Holder {
        holder,
        lease,
        exited,
    }
}

fn release(holder: Process, lease: Option<LeaseId>, exited: bool) -> Action<Process> {
    Action::Release(by(holder, lease, exited))
}

fn check(holder: Process, lease: Option<LeaseId>) -> Action<Process> {
    Action::Check(by(holder, lease, false))
}

/// The same identity with one part changed each time.
fn neighbours() -> Vec<Process> {
    let first = first_process();
    vec![
        Process {
            boot: "3b1a9f00-0000-4000-8000-000000000001",
            ..first.clone()
        },
        Process {
            pid: 4243,
            ..first.clone()
        },
        Process {
            ticks: 987_655,
            ..first.clone()
        },
        Process {
            client: "editor",
            ..first.clone()
        },
        Process {
            session: Some("sess-9"),
            ..first.clone()
        },
        Process {
            session: None,
            ..first.clone()
        },
        Process { run: None, ..first },
    ]
}

#[track_caller]
fn mismatch(outcome: Outcome<Process>, expected: Mismatch) {
    let refusal = outcome.refusal();
    assert_eq!(refusal.code(), Code::LeaseMismatch);
    assert_eq!(refusal, Refusal::Mismatch(expected));
}

// B92
#[test]
fn a_free_resource_is_granted_as_acquired() {
    let mut rig = rig();
    let Outcome::Granted(grant, change) = rig.acquire(TREE, &first_process()) else {
        panic!("not granted");
    };
    assert_eq!(grant.provenance, Provenance::Created);
    assert_eq!(change.code, Code::LeaseAcquired);
    assert_eq!(change.code.as_str(), "WRITER_LEASE_ACQUIRED");
    let lease = lease(&rig);
    assert_eq!((lease.acquired, lease.touched), (ms(T0), ms(T0)));
    assert_eq!(lease.holder, first_process());
    assert_eq!(lease.token, grant.at.token);
}

#[test]
fn a_lease_id_comes_from_the_injected_source_and_only_for_a_new_lease() {
    let mut rig = rig();
    let call = lease_core::Call {
        resource: Some(key(TREE)),
        action: acquire(first_process()),
        wait: Wait::No,
    };
    let drawn = LeaseId::from_random([0x5A; 16]);
    let mut draws = 0;
    for _ in 0..3 {
        let step = rig.turn(|registry, turn| {
            let mut source = || {
                draws += 1;
                drawn
            };
            let mut turn = lease_core::Turn::new(turn.seen, &mut source);
            registry.call(&call, &mut turn)
        });
        assert!(matches!(step, Step::Done(Outcome::Granted(..))));
    }
    assert_eq!((lease(&rig).token.lease, draws), (drawn, 1));
}

// B68
#[test]
fn the_term_is_chosen_per_request_and_zero_is_refused() {
    let (mut rig, at) = held(None);
    assert_eq!(lease(&rig).expires, None);
    rig.at(T0 + 1_000_000_000_000);
    rig.call(TREE, Action::Check(By::Token(at))).change();
    assert!(!rig.view(TREE).expired);

    let (rig, _) = held(span(TTL));
    assert_eq!(lease(&rig).expires, Some(ms(T0 + TTL)));

    let mut rig = Rig::new(LeasePolicy::process_bound());
    let refusal = rig.acquire_for(TREE, &first_process(), span(0)).refusal();
    assert_eq!(refusal.code(), Code::InvalidHolder);
    assert_eq!(refusal, Refusal::Ttl(TtlFault::Zero));
    assert_eq!(rig.registry.held(), 0);
}

// B69, S17
#[test]
fn a_lease_is_expired_one_tick_after_its_expiry() {
    let (rig, at) = held(span(TTL));
    let renew = Action::Renew { at, ttl: None };

    let mut edge = rig.clone();
    edge.at(T0 + TTL);
    assert!(!edge.view(TREE).expired);
    assert_eq!(edge.call(TREE, renew.clone()).change().code, Code::Renewed);
    let again = edge.acquire(TREE, &first_process()).change();
    assert_eq!(again.code, Code::Renewed);
    assert_eq!(lease(&edge).expires, Some(ms(T0 + TTL)));

    for late in [
        ms(T0 + TTL).after(Duration::from_nanos(1)),
        ms(T0 + TTL + 1),
    ] {
        let mut rig = rig.clone();
        rig.now = late;
        assert!(rig.view(TREE).expired);
        let refusal = rig.call(TREE, renew.clone()).refusal();
        assert_eq!(refusal.code(), Code::LeaseExpired);
        let refusal = rig.refused(TREE, &first_process());
        assert_eq!(refusal.code(), Code::LeaseExpired);
        let renewed = rig.acquire_for(TREE, &first_process(), span(TTL)).change();
        assert_eq!(renewed.code, Code::Renewed);
        assert_eq!(
            lease(&rig).expires,
            Some(late.after(Duration::from_millis(TTL)))
        );
        assert!(!rig.view(TREE).expired);
    }
}

// B70, S20
#[test]
fn expiry_takes_the_right_to_write_and_gives_it_to_nobody() {
    let (mut rig, at) = held(span(TTL));
    rig.at(T0 + TTL + 1);
    for (verdict, code) in [
        (alive(), Code::LeaseHeld),
        (occupied(), Code::LeaseHeld),
        (unknown(), Code::InvalidHolder),
    ] {
        rig.answers = vec![observed(at.token, verdict)];
        assert_eq!(rig.refused(TREE, &second_process()).code(), code);
    }
    rig.answers = vec![observed(at.token, alive())];
    let own = check(first_process(), Some(at.token.lease));
    mismatch(rig.call(TREE, own), Mismatch::Expired);
    mismatch(
        rig.call(TREE, Action::Check(By::Token(at))),
        Mismatch::Expired,
    );
    let begin = rig.begin(TREE, at, op(1), Provenance::Created).refusal();
    assert_eq!(begin.code(), Code::LeaseExpired);
    // However long it is over, a sweep does not end it.
    rig.at(T0 + 1_000 * TTL);
    assert_eq!(rig.advance(), []);
    assert_eq!(rig.list().len(), 1);
    // Proof does.
    rig.answers = vec![observed(at.token, dead())];
    hold(&mut rig, TREE, &second_process());
}

// B85
#[test]
fn a_present_holder_keeps_its_lease_expired_or_not() {
    for now in [T0, T0 + TTL, T0 + TTL + 1] {
        let (mut rig, at) = held(span(TTL));
        let asked = ask(rig.at(now), acquire(second_process()));
        let both = ProcessProof {
            group: true,
            paths: true,
        };
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].holder, first_process());
        assert_eq!((asked[0].about, asked[0].occupancy), (at.token, both));
        let before = lease(&rig);
        for verdict in [alive(), occupied()] {
            rig.answers = vec![asked[0].answer(verdict.clone())];
            let refusal = rig.refused(TREE, &second_process());
            assert_eq!(refusal.code(), Code::LeaseHeld);
            let Refusal::Held(held) = refusal else {
                panic!("not held: {refusal:?}");
            };
            assert_eq!(held.verdict, Some(verdict));
            assert_eq!(held.expired, now > T0 + TTL);
            assert_eq!((held.by, held.token), (first_process(), at.token));
            assert_eq!(lease(&rig), before);
        }
    }
}

#[test]
fn renewal_keeps_id_acquisition_and_holder() {
    let (mut rig, at) = held(None);
    let before = lease(&rig);
    let change = rig.at(T0 + 5_000).acquire(TREE, &first_process()).change();
    assert_eq!(change.code, Code::Renewed);
    assert_eq!(change.token, Some(at.token));
    let after = lease(&rig);
    assert_eq!(after.touched, ms(T0 + 5_000));
    assert_eq!(after.acquired, before.acquired);
    assert_eq!((after.token, after.holder), (before.token, before.holder));
    assert_eq!(rig.with_code(Code::Renewed).len(), 1);
}

// B88
#[test]
fn only_an_explicit_ttl_moves_the_expiry() {
    let (mut rig, at) = held(span(TTL));
    hold(rig.at(T0 + 50_000), TREE, &first_process());
    assert_eq!(lease(&rig).expires, Some(ms(T0 + TTL)));
    // Earlier than before, and later.
    for (ttl, expires) in [(5_000, T0 + 55_000), (90_000, T0 + 140_000)] {
        rig.acquire_for(TREE, &first_process(), span(ttl)).change();
        assert_eq!(lease(&rig).expires, Some(ms(expires)));
        rig.call(TREE, Action::Renew { at, ttl: None }).change();
        assert_eq!(lease(&rig).expires, Some(ms(expires)));
    }
    let renew = Action::Renew {
        at,
        ttl: span(1_000),
    };
    rig.call(TREE, renew).change();
    assert_eq!(lease(&rig).expires, Some(ms(T0 + 51_000)));

    // A lease that had none gets one.
    let (mut rig, _) = held(None);
    rig.call(TREE, Action::Touch(lease(&rig).token.into()))
        .change();
    assert_eq!(lease(&rig).expires, None);
    rig.acquire_for(TREE, &first_process(), span(1_000))
        .change();
    assert_eq!(lease(&rig).expires, Some(ms(T0 + 1_000)));
}

// B89
#[test]
fn an_expired_lease_is_not_renewed_silently() {
    let (mut rig, at) = held(span(TTL));
    let (before, major) = (lease(&rig), rig.registry.last_major());
    rig.at(T0 + TTL + 1);
    for action in [
        acquire(first_process()),
        Action::Renew { at, ttl: None },
        Action::Touch(at),
    ] {
        let refusal = rig.call(TREE, action).refusal();
        assert_eq!(refusal.code(), Code::LeaseExpired);
        let expired = Refusal::Expired {
            token: at.token,
            expired_at: ms(T0 + TTL),
        };
        assert_eq!(refusal, expired);
        assert_eq!(
            (lease(&rig), rig.registry.last_major()),
            (before.clone(), major)
        );
    }
}

#[test]
fn an_expired_lease_renewed_with_a_ttl_keeps_its_id() {
    let (mut rig, at) = held(span(TTL));
    let change = rig
        .at(T0 + TTL + 1)
        .acquire_for(TREE, &first_process(), span(30_000))
        .change();
    assert_eq!((change.code, change.token), (Code::Renewed, Some(at.token)));
    let lease = lease(&rig);
    assert_eq!(lease.token, at.token);
    assert_eq!(lease.expires, Some(ms(T0 + TTL + 30_001)));
    assert_eq!(lease.acquired, ms(T0));
}

// B91
#[test]
fn a_lease_whose_holder_is_proven_gone_is_taken_over_expired_or_not() {
    for now in [T0 + 1, T0 + TTL, T0 + TTL + 1] {
        let (mut rig, old) = held(span(TTL));
        // What the dead process had in flight is gone with it.
        rig.begin(TREE, old, op(1), Provenance::Created).change();
        rig.answers = vec![observed(old.token, dead())];
        let Outcome::Granted(grant, change) = rig.at(now).acquire(TREE, &second_process()) else {
            panic!("not granted");
        };
        assert_eq!(change.code, Code::TakenOver);
        let previous = Detail::Granted {
            expires: None,
            previous: Some(old.token),
        };
        assert_eq!(change.detail, previous);
        let new = grant.at.token;
        assert_eq!(grant.provenance, Provenance::Created);
        assert_ne!(new.lease, old.token.lease);
        assert!(new.generation > old.token.generation);
        let lease = lease(&rig);
        assert_eq!((lease.token, lease.holder), (new, second_process()));
        assert_eq!((lease.acquired, lease.touched), (ms(now), ms(now)));
        assert_eq!((lease.ops.len(), lease.tainted), (0, false));
        let receipts = rig.with_code(Code::TakenOver);
        assert_eq!(receipts.len(), 1);
        assert_eq!(receipts[0].previous, Some(first_process()));
        assert_eq!(receipts[0].holder, Some(second_process()));
        assert_eq!(receipts[0].evidence.as_ref(), Some(dead().evidence()));
    }
}

// B93
#[test]
fn a_holder_that_cannot_be_judged_is_not_gone() {
    for now in [T0, T0 + TTL, T0 + TTL + 1] {
        let (mut rig, at) = held(span(TTL));
        let before = lease(&rig);
        rig.answers = vec![observed(at.token, unknown())];
        let refusal = rig.at(now).refused(TREE, &second_process());
        assert_eq!(refusal.code(), Code::InvalidHolder);
        let Refusal::Uninspectable(held) = refusal else {
            panic!("was judged: {refusal:?}");
        };
        assert_eq!(held.verdict, Some(unknown()));
        assert_eq!(lease(&rig), before);
        assert_eq!(rig.with_code(Code::TakenOver).len(), 0);
    }
}

#[test]
fn an_identity_that_differs_in_one_part_is_another_holder() {
    let (rig, at) = held(None);
    for other in neighbours() {
        let mut rig = rig.clone();
        let asked = ask(&mut rig, acquire(other.clone()));
        assert_eq!(asked[0].holder, first_process(), "{other:?}");
        rig.answers = vec![asked[0].answer(alive())];
        let refusal = rig.refused(TREE, &other);
        assert_eq!(
            (refusal.code(), refusal.by()),
            (Code::LeaseHeld, Some(&first_process()))
        );
        assert_eq!(lease(&rig).token, at.token);
    }
}

#[test]
fn one_question_is_asked_per_decision_and_its_answer_is_kept() {
    let (mut rig, at) = held(None);
    let asked = ask(&mut rig, acquire(second_process()));
    assert_eq!(asked.len(), 1);
    // The core leaves the place open; the memory driver knows that only this machine writes to it.
    assert_eq!(
        (asked[0].locality, &asked[0].target),
        (Locality::ThisMachine, &None)
    );
    // Proof of death stays true, however late the request comes back with it.
    rig.answers = vec![asked[0].answer(dead())];
    hold(rig.at(T0 + 1_000_000), TREE, &second_process());
    let receipt = rig.with_code(Code::TakenOver)[0];
    assert_eq!(receipt.evidence.as_ref(), Some(dead().evidence()));
    // It proves nothing about the next holder.
    let asked = ask(&mut rig, acquire(first_process()));
    assert_eq!(asked[0].holder, second_process());
    assert_ne!(asked[0].about, at.token);
}

#[test]
fn a_verdict_about_an_earlier_holder_of_the_same_lease_is_inert() {
    let (mut rig, at) = held(None);
    let asked = ask(&mut rig, acquire(second_process()));
    let child = Process {
        pid: 4300,
        ..first_process()
    };
    rig.adopt(TREE, at, &first_process(), &child).change();
    rig.answers = vec![asked[0].answer(dead())];
    let again = ask(&mut rig, acquire(second_process()));
    assert_eq!((&again[0].holder, again[0].about), (&child, at.token));
    assert_eq!(lease(&rig).holder, child);
}

// B99
#[test]
fn created_and_taken_over_leases_get_larger_generations_and_renewals_none() {
    let mut rig = rig();
    let generation = |rig: &Rig<Process>| lease(rig).token.generation.get();
    let first = rig.granted(TREE, &first_process());
    assert_eq!(generation(&rig), 1);
    hold(&mut rig, TREE, &first_process());
    assert_eq!(generation(&rig), 1);
    rig.release(TREE, first.at).change();
    let second = rig.granted(TREE, &first_process());
    assert_eq!(generation(&rig), 2);
    rig.answers = vec![observed(second.at.token, dead())];
    hold(&mut rig, TREE, &second_process());
    assert_eq!(generation(&rig), 3);
    // One counter for all resources.
    hold(&mut rig, "alloc-8", &first_process());
    assert_eq!(rig.view("alloc-8").token.generation.get(), 4);
}

// B102
#[test]
fn releasing_where_nothing_is_held_is_a_normal_answer() {
    let mut rig = rig();
    for lease in [None, Some(LeaseId::from_bytes([9; 16]))] {
        for exited in [false, true] {
            let change = rig
                .call(TREE, release(first_process(), lease, exited))
                .change();
            assert_eq!(change.code.as_str(), "NO_WRITER_LEASE");
            assert_eq!((change.token, change.detail), (None, Detail::Plain));
        }
    }
    assert_eq!(rig.registry.held(), 0);
}

// B103
#[test]
fn a_given_lease_id_is_compared_before_the_holder() {
    let (mut rig, _) = held(None);
    let before = lease(&rig);
    let wrong = Some(LeaseId::from_bytes([9; 16]));
    for holder in [first_process(), second_process()] {
        for exited in [false, true] {
            let outcome = rig.call(TREE, release(holder.clone(), wrong, exited));
            mismatch(outcome, Mismatch::LeaseId);
            assert_eq!(lease(&rig), before);
        }
    }
}

// B104
#[test]
fn release_takes_a_holder_equal_in_every_part() {
    let (mut rig, at) = held(None);
    let before = lease(&rig);
    for other in neighbours() {
        for id in [None, Some(at.token.lease)] {
            for exited in [false, true] {
                let outcome = rig.call(TREE, release(other.clone(), id, exited));
                mismatch(outcome, Mismatch::Holder);
                assert_eq!(lease(&rig), before);
            }
        }
    }
    rig.call(TREE, release(first_process(), None, false))
        .change();
}

// B105
#[test]
fn whoever_lives_and_holds_releases_without_being_asked_after() {
    for (id, answer) in [(false, None), (true, None), (false, Some(occupied()))] {
        let (mut rig, at) = held(None);
        let answer = answer.map(|verdict| observed(at.token, verdict));
        rig.answers = answer.into_iter().collect();
        let id = id.then_some(at.token.lease);
        let change = rig
            .at(T0 + 7)
            .call(TREE, release(first_process(), id, false))
            .change();
        assert_eq!(change.code, Code::LeaseReleased);
        let released = Detail::Released {
            held: Duration::from_millis(7),
            exited: false,
        };
        assert_eq!(change.detail, released);
        assert_eq!(rig.registry.held(), 0);
    }
}

// B106, S28
#[test]
fn releasing_for_an_exited_holder_takes_the_lease_id_and_proof_that_nobody_is_left() {
    let (mut rig, at) = held(span(TTL));
    rig.begin(TREE, at, op(1), Provenance::Created).change();
    let (before, id) = (lease(&rig), Some(at.token.lease));
    rig.answers = vec![observed(at.token, dead())];
    let without = rig.call(TREE, release(first_process(), None, true));
    mismatch(without, Mismatch::ExitedWithoutId);
    let wrong = release(first_process(), Some(LeaseId::from_bytes([9; 16])), true);
    mismatch(rig.call(TREE, wrong), Mismatch::LeaseId);

    rig.answers.clear();
    let asked = ask(&mut rig, release(first_process(), id, true));
    let both = ProcessProof {
        group: true,
        paths: true,
    };
    assert_eq!(
        (asked.len(), asked[0].about, asked[0].occupancy),
        (1, at.token, both)
    );
    for (verdict, fault) in [
        (occupied(), Mismatch::ExitedOccupied),
        (alive(), Mismatch::NotExited),
    ] {
        rig.answers = vec![asked[0].answer(verdict)];
        mismatch(rig.call(TREE, release(first_process(), id, true)), fault);
        assert_eq!(lease(&rig), before);
    }
    rig.answers = vec![asked[0].answer(unknown())];
    let doubt = rig.call(TREE, release(first_process(), id, true)).refusal();
    assert_eq!(doubt.code(), Code::InvalidHolder);
    assert_eq!(lease(&rig), before);

    rig.answers = vec![asked[0].answer(dead())];
    let change = rig
        .at(T0 + 9)
        .call(TREE, release(first_process(), id, true))
        .change();
    assert_eq!(change.code, Code::LeaseReleased);
    let released = Detail::Released {
        held: Duration::from_millis(9),
        exited: true,
    };
    assert_eq!(change.detail, released);
    assert_eq!(rig.registry.held(), 0);
}

#[test]
fn expiry_plays_no_part_in_a_release() {
    let (rig, at) = held(span(TTL));
    let ways = [
        Action::Release(By::Token(at)),
        release(first_process(), None, false),
        release(first_process(), Some(at.token.lease), true),
    ];
    for way in ways {
        let mut rig = rig.clone();
        rig.answers = vec![observed(at.token, dead())];
        rig.at(T0 + TTL + 1).call(TREE, way).change();
        assert_eq!(rig.registry.held(), 0);
    }
}

// B111
#[test]
fn release_by_grant_and_on_behalf_leave_the_same_receipts() {
    let ways = |at: At| {
        [
            Action::Release(By::Token(at)),
            release(first_process(), None, false),
            release(first_process(), Some(at.token.lease), false),
        ]
    };
    let left = [0, 1, 2].map(|way| {
        let (mut rig, at) = held(span(TTL));
        rig.at(T0 + 7).call(TREE, ways(at)[way].clone()).change();
        rig.receipts
    });
    assert_eq!(left[0].len(), 2);
    assert_eq!((&left[0], &left[0]), (&left[1], &left[2]));
}

// B112
#[test]
fn a_released_lease_entitles_nobody() {
    let (mut rig, at) = held(None);
    rig.answers = vec![observed(at.token, alive())];
    let by_name = check(first_process(), Some(at.token.lease));
    let change = rig.call(TREE, by_name.clone()).change();
    assert_eq!(
        (change.code, change.token),
        (Code::Entitled, Some(at.token))
    );
    rig.release(TREE, at).change();
    for action in [by_name, check(first_process(), None)] {
        let refusal = rig.call(TREE, action).refusal();
        assert_eq!(
            (refusal.code(), refusal),
            (Code::LeaseRequired, Refusal::Required)
        );
    }
    let by_token = rig.call(TREE, Action::Check(By::Token(at))).refusal();
    assert_eq!(by_token.code(), Code::StaleToken);
}

#[test]
fn entitlement_names_what_does_not_match() {
    let (mut rig, at) = held(span(TTL));
    rig.answers = vec![observed(at.token, alive())];
    for other in neighbours() {
        mismatch(rig.call(TREE, check(other, None)), Mismatch::Holder);
    }
    let wrong = check(first_process(), Some(LeaseId::from_bytes([9; 16])));
    mismatch(rig.call(TREE, wrong), Mismatch::LeaseId);
    for verdict in [dead(), occupied()] {
        rig.answers = vec![observed(at.token, verdict)];
        let outcome = rig.call(TREE, check(first_process(), None));
        mismatch(outcome, Mismatch::NotLive);
    }
    // What is over is said before anybody is asked.
    rig.answers.clear();
    rig.at(T0 + TTL + 1);
    mismatch(
        rig.call(TREE, check(first_process(), None)),
        Mismatch::Expired,
    );
}

// B117
#[test]
fn doubt_about_the_holder_does_not_entitle() {
    let (mut rig, at) = held(None);
    let by_name = check(first_process(), Some(at.token.lease));
    let asked = ask(&mut rig, by_name.clone());
    rig.answers = vec![asked[0].answer(unknown())];
    let refusal = rig.call(TREE, by_name).refusal();
    assert_eq!(refusal.code(), Code::InvalidHolder);
    assert!(matches!(refusal, Refusal::Uninspectable(_)));
    assert_eq!(rig.with_code(Code::Entitled).len(), 0);
}

#[test]
fn a_dead_neighbour_is_released_for_its_holder_before_the_grant() {
    let mut rig = rig();
    let below = rig.granted("alloc-7/src", &first_process());
    rig.answers = vec![observed(below.at.token, dead())];
    let Outcome::Granted(grant, change) = rig.acquire(TREE, &second_process()) else {
        panic!("not granted");
    };
    assert_eq!(change.code, Code::LeaseAcquired);
    assert_eq!(
        rig.codes(),
        [
            Code::LeaseAcquired,
            Code::LeaseReleased,
            Code::LeaseAcquired
        ]
    );
    let released = &rig.receipts[1];
    assert_eq!(released.change.token, Some(below.at.token));
    assert_eq!(released.resource, Some(key("alloc-7/src")));
    assert!(matches!(
        released.change.detail,
        Detail::Released { exited: true, .. }
    ));
    assert_eq!(released.evidence.as_ref(), Some(dead().evidence()));
    assert!(grant.at.token.generation > below.at.token.generation);
    assert_eq!(rig.registry.held(), 1);
}

#[test]
fn every_holder_in_the_way_is_asked_about_at_once() {
    let mut rig = rig();
    let third = Process {
        pid: 6000,
        ..second_process()
    };
    let one = rig.granted("alloc-7/a", &first_process()).at.token;
    let two = rig.granted("alloc-7/b", &third).at.token;
    let mut asked = ask(&mut rig, acquire(second_process()));
    asked.sort_by_key(|question| question.about.generation);
    let about: Vec<_> = asked.iter().map(|question| question.about).collect();
    assert_eq!(about, [one, two]);
    // With half the proof the other half is asked for again, and nothing ends.
    rig.answers = vec![asked[0].answer(dead())];
    let again = ask(&mut rig, acquire(second_process()));
    assert_eq!((again.len(), again[0].about), (1, two));
    assert_eq!(rig.registry.held(), 2);
    rig.answers.push(asked[1].answer(dead()));
    hold(&mut rig, TREE, &second_process());
    assert_eq!(rig.registry.held(), 1);
}

#[test]
fn acquire_renew_check_release_and_release_again() {
    let (mut rig, at) = held(span(TTL));
    rig.answers = vec![observed(at.token, alive())];
    let codes: Vec<Code> = [
        acquire(first_process()),
        check(first_process(), None),
        release(first_process(), None, false),
        release(first_process(), None, false),
    ]
    .map(|action| rig.call(TREE, action).change())
    .map(|change: Change| change.code)
    .to_vec();
    assert_eq!(
        codes,
        [
            Code::Renewed,
            Code::Entitled,
            Code::LeaseReleased,
            Code::NotHeld
        ]
    );
}

#[test]
fn an_operator_revokes_on_proof_or_by_explicit_word() {
    let revoke = |at: At, even_if_alive| Action::Revoke {
        expected: at.token.generation,
        by: "operator".into(),
        reason: "stuck".into(),
        even_if_alive,
    };
    for (verdict, code) in [
        (alive(), Code::LeaseHeld),
        (occupied(), Code::LeaseHeld),
        (unknown(), Code::InvalidHolder),
    ] {
        let (mut rig, at) = held(None);
        assert_eq!(ask(&mut rig, revoke(at, false)).len(), 1);
        rig.answers = vec![observed(at.token, verdict)];
        let refusal = rig.call(TREE, revoke(at, false)).refusal();
        assert_eq!(refusal.code(), code);
        let change = rig.call(TREE, revoke(at, true)).change();
        assert_eq!(change.code, Code::Revoked);
        assert_eq!(rig.registry.held(), 0);
    }
    let (mut rig, at) = held(None);
    rig.answers = vec![observed(at.token, dead())];
    let change = rig.call(TREE, revoke(at, false)).change();
    assert_eq!(change.code, Code::Revoked);
}
