//! How a driver looks at holders: outside the decision, once, and only when it is asked to.

use lease_core::{
    Action, By, Code, FencingToken, Holder, HolderLiveness, LeasePolicy, Locality, Outcome,
    Question, Refusal, Step, Verdict, Wait,
};
use mockall::mock;
use mockall::predicate::function;

use crate::rig::{
    Answered as _, Process, Rig, T0, alive, dead, first_process, inp, mcp, ms, observed, oth,
    second_process, unknown,
};

mock! {
    Probe<H: Holder> {}
    impl<H: Holder> HolderLiveness<H> for Probe<H> {
        fn observe(&self, question: &Question<H>) -> Verdict;
    }
}

/// Acquires as a driver does: asks the probe what the decision asks, and calls again.
fn acquire<H: Holder>(rig: &mut Rig<H>, holder: &H, probe: &impl HolderLiveness<H>) -> Outcome<H> {
    rig.answers.clear();
    loop {
        let action = Action::Acquire {
            holder: holder.clone(),
            ttl: None,
        };
        match rig.step(Some("a"), action, Wait::No) {
            Step::Done(outcome) => return outcome,
            Step::Ask(questions) => {
                let looks = questions
                    .iter()
                    .map(|asked| asked.answer(probe.observe(asked)));
                rig.answers = looks.collect();
            }
            Step::Queued(waiter) => panic!("{waiter} waits"),
        }
    }
}

/// A probe that must be used exactly `times`, about the first process, here.
fn seeing(verdict: Verdict, times: usize) -> MockProbe<Process> {
    let mut probe = MockProbe::new();
    probe
        .expect_observe()
        .with(function(|asked: &Question<Process>| {
            asked.holder == first_process()
                && asked.locality == Locality::ThisMachine
                && asked.occupancy.group
                && asked.occupancy.paths
        }))
        .times(times)
        .return_const(verdict);
    probe
}

// B98
#[test]
fn a_holder_is_looked_at_once_per_request_and_the_receipt_keeps_what_was_seen() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    rig.holds("a", &first_process());
    for (verdict, code) in [(alive(), Code::LeaseHeld), (unknown(), Code::InvalidHolder)] {
        let refusal = acquire(&mut rig, &second_process(), &seeing(verdict, 1)).refusal();
        assert_eq!(refusal.code(), code);
    }
    let taken = acquire(&mut rig, &second_process(), &seeing(dead(), 1)).change();
    assert_eq!(taken.code, Code::TakenOver);
    let receipt = rig.receipts.last().unwrap();
    assert_eq!(receipt.evidence.as_ref(), Some(dead().evidence()));
    assert_eq!(receipt.previous, Some(first_process()));
}

#[test]
fn nobody_is_looked_at_for_free_own_or_term_bound_leases() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let never = seeing(dead(), 0);
    for code in [Code::LeaseAcquired, Code::Renewed] {
        assert_eq!(
            acquire(&mut rig, &first_process(), &never).change().code,
            code
        );
    }
    let mut sessions = Rig::sessions();
    let mut never = MockProbe::new();
    never.expect_observe().never();
    assert_eq!(
        acquire(&mut sessions, &mcp(), &never).change().code,
        Code::Created
    );
    for other in [inp(), oth()] {
        let refusal = acquire(&mut sessions, &other, &never).refusal();
        assert_eq!(refusal.code(), Code::WriteConflict);
    }
}

#[test]
fn a_release_and_a_revocation_on_proof_keep_the_evidence() {
    let release = |token: FencingToken| {
        let (holder, lease) = (first_process(), Some(token.lease));
        Action::Release(By::Holder {
            holder,
            lease,
            exited: true,
        })
    };
    let revoke = |token: FencingToken| Action::Revoke {
        expected: token.generation,
        by: "operator".into(),
        reason: "gone".into(),
        even_if_alive: false,
    };
    let actions: [&dyn Fn(FencingToken) -> Action<Process>; 2] = [&release, &revoke];
    for action in actions {
        let mut rig = Rig::new(LeasePolicy::process_bound());
        let token = rig.granted("a", &first_process()).at.token;
        rig.answers = vec![observed(token, dead())];
        let change = rig.call("a", action(token)).change();
        assert!(change.work_state_unknown());
        let receipt = rig.receipts.last().unwrap();
        assert_eq!(receipt.evidence.as_ref(), Some(dead().evidence()));
    }
}

#[test]
fn a_session_that_its_server_ended_leaves_work_in_an_unknown_state() {
    let mut rig = Rig::new(LeasePolicy::server_session());
    let token = rig.granted("a", &first_process()).at.token;
    rig.answers = vec![observed(token, dead())];
    rig.holds("a", &second_process());
    let [ended] = rig.with_code(Code::SessionEnded)[..] else {
        panic!()
    };
    assert!(ended.change.work_state_unknown());
}

// X4
#[test]
fn verdicts_that_do_not_agree_are_doubt() {
    for verdicts in [[dead(), unknown()], [unknown(), dead()], [dead(), alive()]] {
        let mut rig = Rig::new(LeasePolicy::process_bound());
        let token = rig.granted("a", &first_process()).at.token;
        rig.answers = verdicts.map(|verdict| observed(token, verdict)).into();
        drop(rig.refused("a", &second_process()));
        assert_eq!(rig.view("a").token, token);
    }
}

#[test]
fn who_waited_in_vain_is_told_who_holds_and_what_was_seen_of_it() {
    let seen = [
        (vec![], None, Code::LeaseHeld),
        (vec![alive()], Some(alive()), Code::LeaseHeld),
        (vec![unknown()], Some(unknown()), Code::InvalidHolder),
        (vec![dead(), alive()], Some(alive()), Code::LeaseHeld),
    ];
    for (verdicts, told, code) in seen {
        let mut rig = Rig::new(LeasePolicy::process_bound());
        let token = rig.granted("a", &first_process()).at.token;
        rig.answers = vec![observed(token, alive())];
        rig.queue("a", &second_process(), Wait::Until(ms(T0 + 50)));
        let verdicts = verdicts.into_iter();
        rig.answers = verdicts.map(|verdict| observed(token, verdict)).collect();
        rig.at(T0 + 50).advance();
        let last = rig.last_refusal().unwrap();
        assert_eq!((last.code(), last.by()), (code, Some(&first_process())));
        let (Refusal::Held(held) | Refusal::Uninspectable(held)) = last else {
            panic!("{last:?}");
        };
        assert_eq!(held.verdict, told);
    }
}

#[test]
fn a_proof_that_the_terms_do_not_know_is_not_told_to_who_waited() {
    let mut rig = Rig::sessions();
    let token = rig.granted("a", &mcp()).at.token;
    rig.queue("a", &inp(), Wait::Until(ms(T0 + 50)));
    rig.answers = vec![observed(token, dead())];
    rig.at(T0 + 50).advance();
    let last = rig.last_refusal();
    assert_eq!(last, Some(rig.refused("a", &inp())));
}
