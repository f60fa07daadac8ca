//! Whole histories of process-bound leases, over scripted processes.

use std::sync::{Barrier, Mutex};
use std::thread;

use lease_core::{AdoptProof, Code, Locality, Mismatch, Refusal, Verdict};
use lease_procfs::bound::{
    Adoption, Answered, Asked, Refused, Release, ReleaseOnBehalf, Request, Revocation, observing,
};
use lease_procfs::facts::{Boot, Facts, Lookup, Signal, Ticks, Trust, View};
use lease_procfs::{ProcessHolder, Sameness, binding, verdict};

use super::rig::{
    BOOT1, Keeper, dead, first, holder, keeper, lease_id, process, second, seconds, told,
};

fn of(holder: ProcessHolder) -> Release {
    Release::OnBehalf(ReleaseOnBehalf::of(holder))
}

// S16
#[test]
fn acquire_renew_check_release_and_release_again() {
    let mut keeper = keeper();
    let allocation = keeper.yard.record.clone();
    let mut told = Vec::new();
    told.push(
        keeper
            .acquire_for(&first(), seconds(60))
            .unwrap()
            .to_string(),
    );
    told.push(keeper.at(5_000).acquire(&first()).unwrap().to_string());
    let checked = keeper.at(6_000).check(&first()).unwrap();
    told.push(checked.code.to_string());
    told.push(keeper.at(7_000).release(&of(first())).unwrap().to_string());
    told.push(keeper.release(&of(first())).unwrap().to_string());
    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(checked.token.lease, lease_id(1));
    assert_eq!(
        super::rig::told(keeper.check(&first())).0,
        Code::LeaseRequired
    );
    assert_eq!(keeper.yard.record, allocation);
    assert_eq!(allocation.version, 12);
}

// S17
#[test]
fn an_expired_lease_is_renewed_with_a_term_only() {
    let mut keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    let edge = keeper.at(60_000).acquire(&first()).unwrap();
    assert_eq!((edge.change.code, edge.record_version), (Code::Renewed, 2));
    assert_eq!(edge.expires.unwrap().as_nanos(), 1_060_000_000_000);
    let before = keeper.record();
    let refused = keeper.at(60_001).acquire(&first());
    assert_eq!(told(refused).0, Code::LeaseExpired);
    assert_eq!(keeper.record(), before);
    let renewed = keeper
        .at(60_002)
        .acquire_for(&first(), seconds(30))
        .unwrap();
    assert_eq!(
        (renewed.change.code, renewed.record_version),
        (Code::Renewed, 3)
    );
    assert_eq!(renewed.expires.unwrap().as_nanos(), 1_090_002_000_000);
}

// S20
#[test]
fn an_expired_lease_of_a_living_holder_is_nobodys_to_write_with() {
    let mut keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper.at(60_001);
    let refused = keeper.acquire(&second()).unwrap_err();
    let Refused::Core(Refusal::Held(held)) = &refused else {
        panic!("not held: {refused}");
    };
    assert!(held.expired);
    assert_eq!(
        (refused.code(), refused.reason()),
        (Code::LeaseHeld, Some("alive"))
    );
    assert_eq!(
        told(keeper.check(&first())),
        (Code::LeaseMismatch, Some("expired"))
    );
}

// B1
#[test]
fn no_lease_ever_changes_the_allocation() {
    let mut keeper = keeper();
    let allocation = keeper.yard.record.clone();
    keeper.acquire(&first()).unwrap();
    keeper.liveness.says(4242, dead());
    let taken = keeper.at(1).acquire(&second()).unwrap();
    assert_eq!(taken.change.code, Code::TakenOver);
    assert!(taken.change.work_state_unknown());
    keeper.release(&of(second())).unwrap();
    assert_eq!(keeper.yard.record, allocation);
    // The lease's own version starts anew, the allocation's stays.
    assert_eq!((taken.record_version, allocation.version), (1, 12));
}

// B94, S26
#[test]
fn one_process_under_other_labels_is_another_holder_and_finds_the_first_alive() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let process = *first().process();
    let bare = || ProcessHolder::new("cli-a", process).unwrap();
    let others = [
        bare()
            .with_session("sess-9")
            .unwrap()
            .with_run("run-1")
            .unwrap(),
        bare().with_run("run-1").unwrap(),
        bare().with_session("sess-1").unwrap(),
    ];
    for other in others {
        let refused = keeper.acquire(&other).unwrap_err();
        assert_eq!(
            (refused.code(), refused.reason()),
            (Code::LeaseHeld, Some("alive"))
        );
        let released = keeper.release(&of(other)).unwrap_err();
        assert_eq!(released, Refused::Core(Refusal::Mismatch(Mismatch::Holder)));
    }
    assert_eq!(keeper.record().unwrap().lease.holder, first());
}

// B96, B98
#[test]
fn a_decision_looks_once_and_a_grant_gathers_no_status() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    keeper.acquire(&first()).unwrap();
    // Nobody else is there, so nobody is looked at.
    assert_eq!(keeper.liveness.take_questions().len(), 0);
    keeper.liveness.says(4242, dead());
    let taken = keeper.acquire(&second()).unwrap();
    let questions = keeper.liveness.take_questions();
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].holder, first());
    assert_eq!(questions[0].target, Some(keeper.yard.record.path.clone()));
    assert_eq!(questions[0].locality, Locality::ThisMachine);
    assert!(questions[0].occupancy.group && questions[0].occupancy.paths);
    let evidence = taken.previous.unwrap().evidence.unwrap();
    assert_eq!(&evidence, dead().evidence());
    keeper.acquire(&second()).unwrap();
    assert_eq!(keeper.liveness.take_questions().len(), 0);
}

// S30
#[test]
fn the_old_runtime_fences_the_lease_that_took_over() {
    let mut keeper = keeper();
    let labels = ["cli-a", "sess-1", "run-1"];
    keeper.acquire(&first()).unwrap();
    let child = holder(labels, process(BOOT1, 4300, 987_700));
    let kind = binding::BindingKind::Agent;
    let bound = binding::RuntimeBinding::new(kind, Some(lease_id(1)), &child).unwrap();
    keeper.yard.bind(&bound.encode());
    keeper.liveness.says(4242, dead());

    let stranger = holder(["cli-b", "sess-1", "run-1"], process(BOOT1, 4400, 990_000));
    assert_eq!(told(keeper.acquire(&stranger)).0, Code::ExternalBinding);

    let successor = holder(labels, process(BOOT1, 4400, 990_000));
    let taken = keeper.acquire(&successor).unwrap();
    assert_eq!(taken.change.code, Code::TakenOver);
    assert_eq!(taken.change.token.unwrap().lease, lease_id(2));
    assert_eq!(told(keeper.check(&successor)).0, Code::ExternalBinding);
    assert_eq!(told(keeper.acquire(&successor)).0, Code::ExternalBinding);
    keeper.yard.record.bindings.clear();
    assert!(keeper.check(&successor).is_ok());
}

// S27
#[test]
fn a_malformed_binding_fails_the_request_alone_and_beside_a_valid_own_one() {
    let kind = binding::BindingKind::Agent;
    let own = binding::RuntimeBinding::new(kind, None, &first())
        .unwrap()
        .encode();
    let twice = |key: &str| {
        let start = own.find(&format!("\"{key}\":")).unwrap();
        let end = start + own[start..].find([',', '}']).unwrap();
        format!("{},{}", &own[..end], &own[start..])
    };
    let changed = |from: &str, to: &str| {
        assert!(own.contains(from), "{from} in {own}");
        own.replace(from, to)
    };
    let malformed = [
        twice("kind"),
        twice("lease_id"),
        twice("pid"),
        changed("\"kind\"", "\"more\":1,\"kind\""),
        changed("\"pid\":4242", "\"pid\":true"),
        changed("\"start_ticks\":987654", "\"start_ticks\":1.0"),
    ];
    for malformed in malformed {
        for beside in [false, true] {
            let mut keeper = keeper();
            if beside {
                keeper.yard.bind(&own);
            }
            keeper.yard.bind(&malformed);
            let refused = keeper.acquire(&first()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidRuntimeBinding, "{malformed}");
            let Refused::Binding(error) = refused else {
                panic!("not the binding: {refused}");
            };
            assert_eq!(error.index, usize::from(beside));
            assert_eq!(keeper.record(), None);
            keeper.yard.record.bindings.pop();
            assert!(keeper.acquire(&first()).is_ok());
        }
    }
}

// S24
#[test]
fn a_holder_that_cannot_be_inspected_keeps_its_lease_expired_or_not() {
    for (elapsed, doubt) in [0, 60_001]
        .into_iter()
        .flat_map(|elapsed| doubts().map(|doubt| (elapsed, doubt)))
    {
        let mut keeper = keeper();
        keeper.acquire_for(&first(), seconds(60)).unwrap();
        keeper.liveness.says(4242, doubt);
        let before = keeper.record();
        let refused = keeper.at(elapsed).acquire(&second());
        assert_eq!(told(refused), (Code::InvalidHolder, Some("uninspectable")));
        assert_eq!(keeper.record(), before);
        let receipts = keeper.ledger.lock().unwrap().take_receipts();
        assert_eq!(receipts.receipts.len(), 1);
    }
}

/// What the table says of a stat that gives EACCES, EIO, or ENOENT while signal 0 gives EPERM.
fn doubts() -> [Verdict; 3] {
    let facts = |ticks, signal| {
        let mut facts = Facts::default();
        facts.locality = Locality::ThisMachine;
        facts.boot = Boot::Same;
        facts.trust = Trust::Both;
        facts.view = View::Ours;
        facts.pid_namespace = Sameness::Same;
        facts.time_namespace = Sameness::Same;
        facts.lookup = Lookup::Unavailable;
        (facts.ticks, facts.signal) = (ticks, signal);
        let verdict = verdict(&facts);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
        verdict
    };
    [
        facts(Ticks::Denied, Signal::NotAsked),
        facts(Ticks::Failed, Signal::NotAsked),
        facts(Ticks::NotFound, Signal::NotPermitted),
    ]
}

// S32
#[test]
fn of_eight_that_race_for_a_dead_holders_lease_one_takes_it_over() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    for round in 0..200 {
        let dying = keeper.record().unwrap().lease;
        assert_eq!(dying.token.generation.get(), round + 1);
        keeper
            .liveness
            .says(dying.holder.process().pid.get(), dead());
        let codes = race(&keeper, round);
        let mut expected = vec![Code::LeaseHeld; 7];
        expected.push(Code::TakenOver);
        expected.sort_unstable();
        assert_eq!(codes, expected);
        keeper.liveness.take_questions();
    }
}

/// Lets eight processes of this round ask at once; the codes that they are told, in order.
fn race(keeper: &Keeper, round: u64) -> Vec<Code> {
    let start = Barrier::new(8);
    let codes = Mutex::new(Vec::new());
    let ask = |number: u64| {
        let pid = 10_000 + i64::try_from(round * 8 + number).unwrap();
        let racer = holder(["cli-b", "sess-2", "run-2"], process(BOOT1, pid, 990_000));
        start.wait();
        let code = match keeper.acquire(&racer) {
            Ok(receipt) => receipt.change.code,
            Err(refused) => refused.code(),
        };
        codes.lock().unwrap().push(code);
    };
    let ask = &ask;
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || ask(number));
        }
    });
    let mut codes = codes.into_inner().unwrap();
    codes.sort_unstable();
    codes
}

#[test]
fn a_lease_is_handed_to_a_child_by_a_ticket_and_keeps_its_token() {
    let mut keeper = keeper();
    let Ok(Answered::Granted { grant, .. }) = keeper.request(&Request::new(&first())) else {
        panic!("not granted");
    };
    let allocation = keeper.yard.record.allocation.clone();
    let child = holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4300, 987_700));
    let adopt = |keeper: &Keeper, ticket: u8| {
        let adoption = Adoption {
            token: grant.at.token,
            proof: AdoptProof::Ticket([ticket; 16]),
            to: child.clone(),
        };
        keeper.call(|ledger, turn| {
            let adopted = ledger.adopt(&allocation, adoption.clone(), turn);
            adopted.map(Asked::Done)
        })
    };
    let early = adopt(&keeper, 7).unwrap_err();
    assert_eq!(early.reason(), Some("ticket"));
    let offered = keeper.call(|ledger, turn| {
        let offered = ledger.offer(&allocation, grant.at, [7; 16], turn);
        offered.map(Asked::Done)
    });
    assert_eq!(offered.unwrap().code, Code::Offered);
    let (adopted, change) = adopt(&keeper, 7).unwrap();
    assert_eq!(
        (adopted.at.token, change.code),
        (grant.at.token, Code::Adopted)
    );
    assert_eq!(adopt(&keeper, 7).unwrap_err().reason(), Some("ticket"));
    let record = keeper.record().unwrap();
    assert_eq!((&record.lease.holder, record.filing.version), (&child, 2));
    // The giver is gone, and nothing follows from it.
    keeper.liveness.says(4242, dead());
    assert_eq!(told(keeper.acquire(&second())).0, Code::LeaseHeld);
    assert_eq!(
        told(keeper.check(&first())),
        (Code::LeaseMismatch, Some("holder"))
    );
    assert!(keeper.at(1).check(&child).is_ok());
}

#[test]
fn an_operator_retires_a_lease_of_the_expected_generation() {
    let keeper = keeper();
    let generation = keeper
        .acquire(&first())
        .unwrap()
        .change
        .token
        .unwrap()
        .generation;
    let allocation = keeper.yard.record.allocation.clone();
    let revoke = |expected, even_if_alive| {
        let revocation = Revocation {
            expected,
            by: "operator".into(),
            reason: "stuck".into(),
            even_if_alive,
        };
        keeper.call(|ledger, turn| ledger.revoke(&allocation, revocation.clone(), turn))
    };
    let other = generation.next().unwrap();
    assert_eq!(
        told(revoke(other, true)),
        (Code::LeaseMismatch, Some("generation"))
    );
    assert!(revoke(generation, false).is_err(), "the holder lives");
    assert_eq!(revoke(generation, true).unwrap().code, Code::Revoked);
    assert_eq!(keeper.record(), None);
    let receipts = keeper.ledger.lock().unwrap().take_receipts().receipts;
    let note = receipts.last().unwrap().note.as_ref().unwrap();
    assert_eq!((&*note.by, &*note.reason), ("operator", "stuck"));
    assert_eq!(told(keeper.check(&first())).0, Code::LeaseRequired);
}

#[test]
fn a_lease_that_changes_hands_in_every_round_is_given_up_on() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let question = {
        let refused = keeper.call(|ledger, turn| {
            let (view, me) = (keeper.yard.view(), second());
            ledger.acquire(&Request::new(&me), &view, &super::rig::roles, turn)
        });
        assert_eq!(told(refused).0, Code::LeaseHeld);
        keeper.liveness.take_questions().remove(0)
    };
    let mut calls = 0;
    let asked = observing(&keeper.liveness, |answers| {
        assert_eq!(answers.len(), calls);
        calls += 1;
        Ok(Asked::<()>::Ask(vec![question.clone()]))
    });
    assert!(matches!(asked, Ok(Asked::Ask(_))));
    assert_eq!(calls, lease_procfs::limits::ROUNDS);
}
