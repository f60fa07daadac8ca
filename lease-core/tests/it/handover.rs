//! Hand-over, revocation, and verdicts that come late.

use lease_core::{
    Action, AdoptProof, Cell, Code, Detail, Evidence, FenceGate, Fenced, LeasePolicy, Mismatch,
    Outcome, Provenance, Refusal, Scene, Seen, SessionHolder, Step, Verdict, Wait, decide, limits,
};

use crate::rig::{
    Answered as _, Rig, T0, VIEWPORT, generation, inp, key, mcp, ms, op, oth, session_ttl,
};

fn revoke(expected: u64, even_if_alive: bool) -> Action<SessionHolder> {
    Action::Revoke {
        expected: generation(expected),
        by: "operator".into(),
        reason: "stuck".into(),
        even_if_alive,
    }
}

#[test]
fn the_present_holder_hands_over_with_the_same_token() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let adopted = rig.at(T0 + 10).adopt(VIEWPORT, grant.at, &mcp(), &inp());
    let Outcome::Granted(theirs, change) = adopted else {
        panic!("{adopted:?}")
    };
    assert_eq!(
        (theirs.at.token, theirs.provenance),
        (grant.at.token, Provenance::Reentrant)
    );
    assert_eq!(change.code, Code::Adopted);
    let receipt = rig.receipts.last().unwrap();
    assert_eq!(
        (&receipt.holder, &receipt.previous),
        (&Some(inp()), &Some(mcp()))
    );
    let view = rig.view(VIEWPORT);
    assert_eq!((view.holder, view.handovers), (inp(), 1));
    assert_eq!((view.acquired, view.touched), (ms(T0), ms(T0 + 10)));
    // The giver is any other writer now; its disconnect takes nothing.
    assert_eq!(rig.refused(VIEWPORT, &mcp()).by(), Some(&inp()));
    assert_eq!(rig.disconnect(&mcp()), []);
    assert_eq!(rig.disconnect(&inp()).len(), 1);
}

#[test]
fn a_ticket_is_good_once_and_only_the_last_one() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let adopt = |ticket| Action::Adopt {
        token: grant.at.token,
        proof: AdoptProof::Ticket(ticket),
        to: inp(),
    };
    let mismatch = Refusal::Mismatch(Mismatch::Ticket);
    assert_eq!(rig.call(VIEWPORT, adopt([0; 16])).refusal(), mismatch);
    for ticket in [[1; 16], [2; 16]] {
        let offered = rig
            .call(
                VIEWPORT,
                Action::Offer {
                    at: grant.at,
                    ticket,
                },
            )
            .change();
        assert_eq!(offered.code, Code::Offered);
    }
    assert_eq!(rig.call(VIEWPORT, adopt([1; 16])).refusal(), mismatch);
    drop(rig.call(VIEWPORT, adopt([2; 16])).grant());
    assert_eq!(rig.call(VIEWPORT, adopt([2; 16])).refusal(), mismatch);
    assert_eq!(rig.view(VIEWPORT).holder, inp());
}

#[test]
fn who_reads_a_log_cannot_adopt_by_a_ticket() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let ticket = [167; 16];
    let offer = Action::Offer {
        at: grant.at,
        ticket,
    };
    let adopt: Action<SessionHolder> = Action::Adopt {
        token: grant.at.token,
        proof: AdoptProof::Ticket(ticket),
        to: inp(),
    };
    let viewport = key(VIEWPORT);
    let held = rig.registry.lease(&viewport).unwrap().clone();
    let held = Cell::load(held, ms(T0), limits::TERM_MAX).unwrap();
    let scene = Scene {
        own: Some((&viewport, &held)),
        near: &[],
        queued: &[],
        due: &[],
    };
    let decided = decide(&session_ttl(), &scene, &offer, &Seen::at(ms(T0)));
    let shown = [
        format!("{offer:?}"),
        format!("{adopt:?}"),
        format!("{decided:?}"),
    ];
    assert_eq!(rig.call(VIEWPORT, offer).change().code, Code::Offered);
    let kept = format!("{:?}", rig.registry.lease(&viewport));
    for shown in shown.into_iter().chain([kept]) {
        assert!(
            shown.contains("[hidden]") && !shown.contains("167"),
            "{shown}"
        );
    }
}

#[test]
fn nobody_else_can_hand_a_lease_over() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let refusal = rig.adopt(VIEWPORT, grant.at, &oth(), &oth()).refusal();
    assert_eq!(refusal, Refusal::Mismatch(Mismatch::Holder));
    assert_eq!(rig.view(VIEWPORT).holder, mcp());
}

#[test]
fn a_hand_over_cannot_make_two_holders_overlap() {
    // The giver holds an ancestor too: for it that is no conflict, for another holder it would be.
    let mut rig = Rig::sessions();
    rig.holds("/app", &mcp());
    let inner = rig.granted(VIEWPORT, &mcp());
    let refusal = rig.adopt(VIEWPORT, inner.at, &mcp(), &inp()).refusal();
    assert_eq!(
        (refusal.code(), refusal.by()),
        (Code::WriteConflict, Some(&mcp()))
    );
    assert_eq!(rig.view(VIEWPORT).holder, mcp());
}

#[test]
fn who_adopts_its_own_lease_is_not_in_its_own_way() {
    let mut rig = Rig::sessions();
    rig.holds("/app", &mcp());
    let inner = rig.granted(VIEWPORT, &mcp());
    let adopted = rig.adopt(VIEWPORT, inner.at, &mcp(), &mcp());
    assert_eq!(adopted.grant().at.token, inner.at.token);
}

#[test]
fn a_new_holder_is_not_the_creator() {
    // A clean failure of the giver's first operation must not free what it gave away.
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), Provenance::Created)
        .change();
    drop(rig.adopt(VIEWPORT, grant.at, &mcp(), &inp()).grant());
    let failed = rig.end(
        VIEWPORT,
        grant.at,
        op(1),
        Err(lease_core::Disposition::PreMutation),
    );
    assert_eq!(failed.change().code, Code::RetainedAfterFailure);
    assert_eq!(rig.view(VIEWPORT).holder, inp());
}

#[test]
fn a_verdict_about_the_giver_says_nothing_about_the_new_holder() {
    let policy = LeasePolicy::hosted_session(std::time::Duration::from_secs(30)).unwrap();
    let mut rig = Rig::new(policy);
    let grant = rig.granted(VIEWPORT, &mcp());
    let ask = Action::Acquire {
        holder: oth(),
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some(VIEWPORT), ask.clone(), Wait::No) else {
        panic!()
    };
    // While somebody looks, the giver hands over and ends: what was seen is true, and of the past.
    drop(rig.adopt(VIEWPORT, grant.at, &mcp(), &inp()).grant());
    rig.answers = vec![asked[0].answer(Verdict::Dead(Evidence::new("exited")))];
    let Step::Ask(again) = rig.step(Some(VIEWPORT), ask, Wait::No) else {
        panic!()
    };
    assert_eq!((&asked[0].holder, &again[0].holder), (&mcp(), &inp()));
    assert_eq!(rig.view(VIEWPORT).holder, inp());
}

#[test]
fn of_verdicts_that_do_not_agree_the_first_that_does_not_prove_death_counts() {
    let policy = LeasePolicy::hosted_session(std::time::Duration::from_secs(30)).unwrap();
    let mut rig = Rig::new(policy);
    rig.holds(VIEWPORT, &mcp());
    let ask = Action::Acquire {
        holder: oth(),
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some(VIEWPORT), ask, Wait::No) else {
        panic!()
    };
    let dead = || Verdict::Dead(Evidence::new("exited"));
    let alive = || Verdict::Alive(Evidence::new("running"));
    let unknown = || Verdict::Unknown(Evidence::new("denied"));
    for (seen, code) in [
        ([alive(), unknown(), dead()], Code::LeaseHeld),
        ([unknown(), alive(), dead()], Code::InvalidHolder),
        ([dead(), alive(), unknown()], Code::LeaseHeld),
        ([dead(), dead(), unknown()], Code::InvalidHolder),
    ] {
        rig.answers = seen.map(|verdict| asked[0].answer(verdict)).into();
        assert_eq!(
            rig.refused(VIEWPORT, &oth()).code(),
            code,
            "{:?}",
            rig.answers
        );
    }
}

#[test]
fn an_operator_retires_an_expected_generation_only() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    let other = Refusal::Mismatch(Mismatch::Generation {
        present: Some(generation(1)),
    });
    assert_eq!(rig.call(VIEWPORT, revoke(2, true)).refusal(), other);
    // Nothing proves that the holder is gone, so it counts as alive.
    assert_eq!(
        rig.call(VIEWPORT, revoke(1, false)).refusal().by(),
        Some(&mcp())
    );
    assert_eq!(rig.view(VIEWPORT).token, grant.at.token);
    let revoked = rig.call(VIEWPORT, revoke(1, true)).change();
    assert_eq!(
        (revoked.code, revoked.token),
        (Code::Revoked, Some(grant.at.token))
    );
    let note = rig.receipts.last().unwrap().note.clone().unwrap();
    assert_eq!((&*note.by, &*note.reason), ("operator", "stuck"));
    assert_eq!(
        rig.touch(VIEWPORT, grant.at).refusal().code(),
        Code::StaleToken
    );
    let nothing = Refusal::Mismatch(Mismatch::Generation { present: None });
    assert_eq!(rig.call(VIEWPORT, revoke(1, true)).refusal(), nothing);
    // At the resource the retired generation is turned away although nobody came after it.
    let mut gate = FenceGate::new();
    gate.enter(&grant.at.token).unwrap();
    gate.revoke(&grant.at.token);
    assert_eq!(
        gate.enter(&grant.at.token),
        Err(Fenced::Revoked {
            generation: generation(1)
        })
    );
    let next = rig.granted(VIEWPORT, &inp());
    assert_eq!(gate.enter(&next.at.token), Ok(()));
}

#[test]
fn a_revocation_on_proof_needs_no_force() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    rig.holds(VIEWPORT, &mcp());
    let Step::Ask(asked) = rig.step(Some(VIEWPORT), revoke(1, false), Wait::No) else {
        panic!()
    };
    let verdicts = [
        (Verdict::Alive(Evidence::new("running")), Code::LeaseHeld),
        (
            Verdict::Occupied(Evidence::new("group_alive")),
            Code::LeaseHeld,
        ),
        (
            Verdict::Unknown(Evidence::new("unreadable")),
            Code::InvalidHolder,
        ),
    ];
    for (verdict, code) in verdicts {
        rig.answers = vec![asked[0].answer(verdict)];
        assert_eq!(rig.call(VIEWPORT, revoke(1, false)).refusal().code(), code);
    }
    rig.answers = vec![asked[0].answer(Verdict::Dead(Evidence::new("exited")))];
    let revoked = rig.call(VIEWPORT, revoke(1, false)).change();
    assert!(matches!(revoked.detail, Detail::Released { .. }));
    assert_eq!(revoked.code, Code::Revoked);
}
