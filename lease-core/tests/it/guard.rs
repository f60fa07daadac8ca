//! The in-process guard, rule by rule.

use lease_core::{
    Action, AuthorityId, Code, Detail, LeasePolicy, ObservedBy, OpId, Outcome, Provenance, Refusal,
    Scene, Seen, SessionHolder, Step, Verb, Wait,
};

use crate::connections::{Login, Transport, login};
use crate::rig::{
    Answered as _, Rig, T0, TTL_MS, VIEWPORT, generation, inp, key, mcp, ms, op, oth, session_ttl,
    who,
};

const GRID: &str = "/app/viewport/grid";
const DIALOG: &str = "/app/dialog";

/// Every way to set up an authority that ends sessions on disconnect.
fn session_policies() -> [LeasePolicy; 3] {
    let ttl = std::time::Duration::from_millis(TTL_MS);
    [
        session_ttl(),
        LeasePolicy::hosted_session(ttl).unwrap(),
        LeasePolicy::server_session(),
    ]
}

/// Whether a request is kept out: refused, or not granted before somebody proves something.
fn kept_out(rig: &mut Rig, resource: &str, holder: &SessionHolder) -> bool {
    let action = Action::Acquire {
        holder: holder.clone(),
        ttl: None,
    };
    match rig.step(Some(resource), action, Wait::No) {
        Step::Done(Outcome::Refused(_)) | Step::Ask(_) => true,
        Step::Done(Outcome::Granted(..)) => false,
        step => panic!("{step:?}"),
    }
}

#[track_caller]
fn idle_ms(refusal: &Refusal<SessionHolder>) -> u128 {
    let Refusal::Held(held) = refusal else {
        panic!("{refusal:?}")
    };
    held.idle.as_millis()
}

// A1
#[test]
fn a_writer_is_the_exact_pair() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    assert_eq!(
        rig.granted(VIEWPORT, &who("ag-1", "s-100")).provenance,
        Provenance::Reentrant
    );
    for (agent, session) in [("ag-1", "s-200"), ("ag-2", "s-100"), ("ag-1", "s-100 ")] {
        assert_eq!(
            rig.refused(VIEWPORT, &who(agent, session)).code(),
            Code::WriteConflict
        );
    }
}

// A2, A8
#[test]
fn equal_agents_never_make_one_writer_under_any_policy() {
    for policy in session_policies()
        .into_iter()
        .chain([LeasePolicy::process_bound()])
    {
        let mut rig = Rig::new(policy);
        let mut transport = Transport::new(100);
        let (first, second) = (
            transport.accept(&login("ag-1")),
            transport.accept(&login("ag-1")),
        );
        assert_ne!(first, second);
        rig.holds(VIEWPORT, &first);
        assert!(kept_out(&mut rig, VIEWPORT, &second));
        assert_eq!(rig.view(VIEWPORT).holder, first);
    }
}

// A4
#[test]
fn success_leaves_the_lease_in_place() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.at(T0 + 10)
        .end(VIEWPORT, grant.at, op(1), Ok(()))
        .change();
    assert_eq!(
        rig.at(T0 + 11).refused(VIEWPORT, &inp()).code(),
        Code::WriteConflict
    );
}

// A6
#[test]
fn a_conflict_says_who_since_when_and_how_long() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let refusal = rig.at(T0 + 5_000).refused(GRID, &inp());
    assert_eq!(refusal.by(), Some(&mcp()));
    let Refusal::Held(held) = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!((held.resource, held.by), (key(VIEWPORT), mcp()));
    assert_eq!((held.token.generation, held.in_flight), (generation(1), 0));
    assert_eq!(held.idle.as_millis(), 5_000);
    assert_eq!(held.expires_in.unwrap().as_millis(), 25_000);
    assert_eq!((held.expired, held.verdict), (false, None));
}

// A7
#[test]
fn overlap_is_ancestry_by_whole_segments() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    for resource in [GRID, "/app", VIEWPORT] {
        assert_eq!(
            rig.refused(resource, &inp()).code(),
            Code::WriteConflict,
            "{resource}"
        );
    }
    for resource in ["/app/view", DIALOG] {
        assert_eq!(
            rig.granted(resource, &inp()).provenance,
            Provenance::Created,
            "{resource}"
        );
    }
    let second = rig.granted(GRID, &mcp());
    assert_eq!(
        (second.provenance, second.at.token.generation),
        (Provenance::Created, generation(4))
    );
    let own = rig.list().into_iter().filter(|view| view.holder == mcp());
    assert_eq!(
        own.map(|view| view.resource).collect::<Vec<_>>(),
        [key(VIEWPORT), key(GRID)]
    );
}

// A9
#[test]
fn a_lease_carries_its_metadata() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let [view] = &rig.list()[..] else { panic!() };
    assert_eq!((&view.resource, &view.holder), (&key(VIEWPORT), &mcp()));
    assert_eq!(view.token, grant.at.token);
    assert_eq!(view.token.authority, rig.registry.authority());
    assert_eq!(view.token.generation, generation(1));
    assert_eq!(
        (view.acquired, view.touched),
        (ms(1_000_000), ms(1_000_000))
    );
    assert!(view.in_flight.is_empty());
}

// A10
#[test]
fn generations_only_grow_over_all_resources() {
    let mut rig = Rig::sessions();
    let first = rig.granted(VIEWPORT, &mcp());
    assert_eq!(
        rig.granted(VIEWPORT, &mcp()).at.token.generation,
        generation(1)
    );
    rig.release(VIEWPORT, first.at).change();
    assert_eq!(
        rig.granted(DIALOG, &inp()).at.token.generation,
        generation(2)
    );
    rig.registry.raise_floor(generation((1 << 53) - 2));
    assert_eq!(
        rig.granted("/last", &inp()).at.token.generation.get(),
        (1 << 53) - 1
    );
    let before = rig.registry.peek(rig.now);
    let refusal = rig.refused("/beyond", &inp());
    assert_eq!(refusal.code(), Code::CounterExhausted);
    assert_eq!(rig.registry.peek(rig.now), before);
    // Re-entry needs no number, so it still works.
    assert_eq!(
        rig.granted("/last", &inp()).provenance,
        Provenance::Reentrant
    );
}

// A11
#[test]
fn stamps_are_ordered() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp())
        .at(T0 + 400)
        .holds(VIEWPORT, &mcp());
    rig.at(T0 + 100).holds(VIEWPORT, &mcp());
    let view = rig.view(VIEWPORT);
    assert_eq!(
        (view.acquired, view.touched),
        (ms(1_000_000), ms(1_000_400))
    );
}

// A12
#[test]
fn snapshots_are_defensive_copies() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let first = rig.list();
    let mut changed = first.clone();
    changed[0].touched = ms(0);
    changed.clear();
    assert_eq!(rig.list(), first);
    rig.release(VIEWPORT, grant.at).change();
    assert!(rig.list().is_empty());
    assert_eq!(first[0].resource, key(VIEWPORT));
}

// A13
#[test]
fn a_thousand_requests_make_one_entry() {
    let mut rig = Rig::sessions();
    for _ in 0..1_000 {
        rig.holds(VIEWPORT, &mcp());
    }
    let listed = rig.list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].token.generation, generation(1));
}

// A14
#[test]
fn a_grant_says_created_or_reentrant_with_the_same_token() {
    let mut rig = Rig::sessions();
    let first = rig.granted(VIEWPORT, &mcp());
    let again = rig.at(T0 + 1).granted(VIEWPORT, &mcp());
    assert_eq!(
        (first.provenance, first.at.token.generation),
        (Provenance::Created, generation(1))
    );
    assert_eq!(
        (again.provenance, again.at.token),
        (Provenance::Reentrant, first.at.token)
    );
}

// A15
#[test]
fn re_entry_starts_the_term_again() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp())
        .at(T0 + 29_000)
        .holds(VIEWPORT, &mcp());
    assert_eq!(rig.view(VIEWPORT).touched, ms(T0 + 29_000));
    assert_eq!(
        idle_ms(&rig.at(T0 + 30_001).refused(VIEWPORT, &inp())),
        1_001
    );
}

/// Chosen by the compiler for every type.
trait MayBeCloned {
    fn cloneable(&self) -> bool {
        false
    }
}
impl<T> MayBeCloned for &T {}

/// Chosen before it for a type that is `Clone`.
struct Probe<T>(std::marker::PhantomData<T>);
impl<T: Clone> Probe<T> {
    fn cloneable(&self) -> bool {
        true
    }
}

// A16
#[test]
fn a_grant_cannot_be_ignored_copied_or_made_up() {
    // That ignoring it does not compile is shown beside `Grant`, by an example that must fail.
    assert!(Probe::<lease_core::At>(std::marker::PhantomData).cloneable());
    assert!(!(&Probe::<lease_core::Grant>(std::marker::PhantomData)).cloneable());
    // An operation begins and ends with the token of a grant, and only with the present one.
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    let mut other = grant.at;
    other.token.lease = lease_core::LeaseId::from_bytes([9; 16]);
    let refusal = rig
        .begin(VIEWPORT, other, op(2), Provenance::Created)
        .refusal();
    assert_eq!(refusal.code(), Code::StaleToken);
    assert_eq!(
        rig.end(VIEWPORT, other, op(1), Ok(())).refusal().code(),
        Code::StaleToken
    );
    assert_eq!(rig.view(VIEWPORT).in_flight.len(), 1);
}

// A17
#[test]
fn denied_requests_do_not_touch_the_holders_lease() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    for step in 0..100 {
        rig.at(T0 + step * 303).refused(VIEWPORT, &inp());
    }
    assert_eq!(rig.now, ms(T0 + 29_997));
    assert_eq!(rig.view(VIEWPORT).touched, ms(1_000_000));
    assert_eq!(
        rig.at(T0 + 30_001).granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
}

// A18
#[test]
fn with_the_clock_frozen_nothing_expires() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.at(T0 + 30_000);
    for _ in 0..1_000 {
        rig.refused(VIEWPORT, &inp());
        assert_eq!(rig.list().len(), 1);
        assert!(rig.advance().is_empty());
    }
    assert_eq!(rig.view(VIEWPORT).token, grant.at.token);
}

// A19
#[test]
fn the_sweep_is_lazy_and_sees_all_resources() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.at(T0 + 90_000);
    assert_eq!(rig.registry.held(), 1);
    assert!(rig.registry.peek(rig.now)[0].expired);
    let mut by_request = rig.clone();
    by_request.holds(DIALOG, &oth());
    assert_eq!(by_request.codes()[1..], [Code::Reclaimed, Code::Created]);
    // Also at the start of a call with a token, of another lease.
    let mut by_token = rig.clone();
    let refusal = by_token.touch(DIALOG, grant.at).refusal();
    assert_eq!(refusal.code(), Code::StaleToken);
    assert_eq!(by_token.codes()[1..], [Code::Reclaimed]);
    let Detail::Reclaimed { observed_by, .. } = by_token.receipts[1].change.detail else {
        panic!()
    };
    assert_eq!(observed_by, ObservedBy::TokenCall);
    // Not on a disconnect of somebody else.
    rig.disconnect(&oth());
    assert_eq!(rig.registry.held(), 1);
}

/// Runs the edge of the term: the last moment within, and the first beyond.
#[track_caller]
fn reclaimable_strictly_after(rig: &Rig, last: u64) {
    let mut within = rig.clone();
    assert_eq!(
        within.at(last).refused(VIEWPORT, &inp()).code(),
        Code::WriteConflict
    );
    let mut beyond = rig.clone();
    assert_eq!(
        beyond.at(last + 1).granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
    assert_eq!(beyond.with_code(Code::Reclaimed).len(), 1);
}

// A20
#[test]
fn only_idle_and_expired_leases_are_reclaimed() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    reclaimable_strictly_after(&rig, 1_030_000);
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    for now in [1_030_001, 2_000_000, u64::MAX / 1_000_000] {
        assert_eq!(
            rig.at(now).refused(VIEWPORT, &inp()).code(),
            Code::WriteConflict
        );
    }
}

// A21
#[test]
fn the_term_counts_from_the_last_touch() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.at(T0 + 20_000).touch(VIEWPORT, grant.at).change();
    reclaimable_strictly_after(&rig, T0 + 50_000);
}

// A22
#[test]
fn a_reclaim_has_a_receipt_of_its_own_before_the_grant() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let Outcome::Granted(grant, change) = rig.at(T0 + 30_001).acquire(VIEWPORT, &inp()) else {
        panic!()
    };
    let [_, reclaimed, created] = &rig.receipts[..] else {
        panic!("{:?}", rig.receipts)
    };
    assert_eq!(
        (reclaimed.change.code, &reclaimed.holder),
        (Code::Reclaimed, &Some(mcp()))
    );
    assert_eq!(reclaimed.change.token.unwrap().generation, generation(1));
    let Detail::Reclaimed { idle, observed_by } = reclaimed.change.detail else {
        panic!()
    };
    assert_eq!(
        (idle.as_millis(), observed_by),
        (30_001, ObservedBy::Request)
    );
    assert_eq!((created.change, &created.holder), (change, &Some(inp())));
    assert_eq!(grant.at.token.generation, generation(2));
    assert!(reclaimed.change.seq < created.change.seq);
}

// A23
#[test]
fn an_inspection_that_reclaims_has_the_same_receipt() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    assert!(rig.at(T0 + 30_001).list().is_empty());
    let [reclaimed] = rig.with_code(Code::Reclaimed)[..] else {
        panic!()
    };
    let Detail::Reclaimed { observed_by, .. } = reclaimed.change.detail else {
        panic!()
    };
    assert_eq!(observed_by, ObservedBy::Inspection);
}

// A25
#[test]
fn a_sweep_goes_in_ascending_generation() {
    let mut rig = Rig::sessions();
    for number in 1..=9 {
        let resource = format!("/r/{number}");
        let grant = rig.granted(&resource, &mcp());
        if ![3, 5, 9].contains(&number) {
            rig.release(&resource, grant.at).change();
        }
    }
    // The order of their touches is another one.
    rig.at(T0 + 1)
        .holds("/r/3", &mcp())
        .at(T0 + 2)
        .holds("/r/5", &mcp());
    rig.at(T0 + 60_000).holds(DIALOG, &oth());
    let swept = rig.with_code(Code::Reclaimed).into_iter();
    let swept: Vec<_> = swept
        .map(|one| one.change.token.unwrap().generation.get())
        .collect();
    assert_eq!(swept, [3, 5, 9]);
}

// A26
#[test]
fn a_denied_request_still_reports_what_it_reclaimed() {
    let mut rig = Rig::sessions();
    rig.holds(GRID, &mcp());
    rig.at(T0 + 20_000).holds("/app/viewport/list", &oth());
    let refusal = rig.at(T0 + 30_001).refused(VIEWPORT, &inp());
    let Refusal::Held(held) = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(held.by, oth());
    let [reclaimed] = rig.with_code(Code::Reclaimed)[..] else {
        panic!()
    };
    assert_eq!(
        (&reclaimed.holder, &reclaimed.resource),
        (&Some(mcp()), &Some(key(GRID)))
    );
}

// A27, fault B34
#[test]
fn a_clock_that_steps_back_expires_nothing_and_is_noticed() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    rig.at(T0 - 500).holds(VIEWPORT, &mcp());
    assert_eq!(rig.view(VIEWPORT).touched, ms(1_000_000));
    assert_eq!(idle_ms(&rig.refused(VIEWPORT, &inp())), 0);
    // One receipt for the step, however many calls there are until the clock has caught up.
    let [stepped] = rig.with_code(Code::ClockSteppedBack)[..] else {
        panic!()
    };
    assert_eq!(stepped.change.at, ms(T0));
    assert_eq!(stepped.change.detail, Detail::Clock { read: ms(T0 - 500) });
    rig.at(T0 + 1)
        .holds(VIEWPORT, &mcp())
        .at(0)
        .holds(VIEWPORT, &mcp());
    assert_eq!(rig.with_code(Code::ClockSteppedBack).len(), 2);
}

// A29
#[test]
fn a_disconnect_of_an_expired_lease_is_a_disconnect() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let ended = rig.at(T0 + 60_000).disconnect(&mcp());
    assert_eq!(ended[0].token.unwrap().generation, generation(1));
    let Detail::Disconnected { expired: true, .. } = ended[0].detail else {
        panic!("{ended:?}")
    };
    assert_eq!(rig.codes(), [Code::Created, Code::Disconnected]);
}

// A30
#[test]
fn an_operation_in_flight_shields_however_long_it_takes() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    let refusal = rig.at(T0 + 3_000_000).refused(VIEWPORT, &inp());
    let Refusal::Held(held) = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!((held.by, held.in_flight), (mcp(), 1));
}

// A32
#[test]
fn the_shield_counts_and_ends_with_the_last_operation() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.at(T0 + 10)
        .begin(VIEWPORT, grant.at, op(2), Provenance::Reentrant)
        .change();
    rig.at(T0 + 20)
        .end(VIEWPORT, grant.at, op(1), Ok(()))
        .change();
    rig.at(T0 + 90_000).refused(VIEWPORT, &inp());
    assert_eq!(rig.view(VIEWPORT).in_flight.len(), 1);
    rig.end(VIEWPORT, grant.at, op(2), Ok(())).change();
    reclaimable_strictly_after(&rig, T0 + 120_000);
}

// A33
#[test]
fn the_term_of_a_finished_operation_starts_at_its_end() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    rig.at(T0 + 300_000)
        .end(VIEWPORT, grant.at, op(1), Ok(()))
        .change();
    reclaimable_strictly_after(&rig, T0 + 330_000);
}

// A34
#[test]
fn begin_needs_a_live_token() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let begun = rig
        .at(T0 + 30_001)
        .begin(VIEWPORT, grant.at, op(1), grant.provenance);
    let Refusal::StaleToken {
        verb: Verb::Begin,
        present: None,
        ..
    } = begun.refusal()
    else {
        panic!()
    };
    assert_eq!(rig.codes(), [Code::Created, Code::Reclaimed]);
    assert!(rig.list().is_empty());
}

// A36
#[test]
fn a_stuck_operation_is_held_and_visible() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), grant.provenance)
        .change();
    let listed = rig.at(T0 + 86_400_000).list();
    assert_eq!(listed[0].in_flight[0].id, op(1));
    assert_eq!(
        rig.now.since(listed[0].in_flight[0].since).as_millis(),
        86_400_000
    );
}

// A52
#[test]
fn a_denied_request_has_nothing_to_clean_up() {
    let mut rig = Rig::sessions();
    rig.holds(VIEWPORT, &mcp());
    let before = rig.list();
    // The refusal holds no grant and no token of the asker's: there is nothing to end or release.
    let refusal = rig.refused(VIEWPORT, &inp());
    let Refusal::Held(held) = refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!((&held.token, &held.by), (&before[0].token, &mcp()));
    assert_eq!(rig.list(), before);
}

// A55
#[test]
fn the_actions_are_these_and_no_others() {
    // Whoever adds an action must look here: none locks per operation, merges writers of one agent,
    // rolls an application back, authenticates a connection or marshals arguments.
    let name = |action: &Action<SessionHolder>| match action {
        Action::Acquire { .. } => "acquire",
        Action::Touch(_) => "touch",
        Action::Renew { .. } => "renew",
        Action::Begin { .. } => "begin",
        Action::End { .. } => "end",
        Action::Release(_) => "release",
        Action::Disconnect(_) => "disconnect",
        Action::Offer { .. } => "offer",
        Action::Adopt { .. } => "adopt",
        Action::Revoke { .. } => "revoke",
        Action::Check(_) => "check",
        Action::Sweep => "sweep",
    };
    assert_eq!(name(&Action::Sweep), "sweep");
    // A failed operation leaves the application to its caller: the core only keeps or frees.
    let scene: Scene<'_, SessionHolder> = Scene {
        own: None,
        near: &[],
        queued: &[],
        due: &[],
    };
    let end = Action::End {
        at: lease_core::FencingToken {
            authority: AuthorityId::from_bytes([0; 16]),
            generation: generation(1),
            lease: lease_core::LeaseId::NIL,
        }
        .into(),
        op: OpId::ACQUISITION,
        result: Ok(()),
    };
    let decision = lease_core::decide(&session_ttl(), &scene, &end, &Seen::at(ms(0)));
    assert!(matches!(
        decision,
        lease_core::Decision::Refuse(Refusal::Misaddressed)
    ));
    // A login with claims makes a writer of its own, however it spells them.
    let mut transport = Transport::new(7);
    let spoof = transport.accept(&Login {
        agent: "ag-1",
        claims: ["s-100", "s-100", "s-100"],
    });
    assert_ne!(spoof, mcp());
}
