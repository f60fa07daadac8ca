//! Giving a lease back, by its grant and on somebody's behalf.

use lease_core::{Answer, Change, Code, Mismatch, ProcessProof, Question, Refusal, Turn};
use lease_procfs::bound::{
    Answered, Asked, Lifecycle, MetadataFault, OwnerId, Refused, Release, ReleaseOnBehalf,
    ReleaseReason, ReleaseReceipt, Request,
};
use lease_procfs::{Pid, ProcessHolder, TargetPath};

use super::rig::{
    BOOT1, Keeper, dead, first, holder, keeper, lease_id, occupied, process, seconds, told, unknown,
};

fn held() -> Keeper {
    let keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper
}

fn of(holder: ProcessHolder) -> Release {
    Release::OnBehalf(ReleaseOnBehalf::of(holder))
}

fn with_lease(holder: ProcessHolder, number: u64) -> Release {
    Release::OnBehalf(ReleaseOnBehalf::of(holder).with_lease(lease_id(number)))
}

// B100
#[test]
fn a_release_needs_the_complete_identity_before_any_store_is_read() {
    // No store and no ledger is among the arguments.
    let stated = ReleaseOnBehalf::stated(None, Some(Pid::new(4242).unwrap()));
    assert_eq!(told(stated), (Code::LeaseMismatch, Some("holder_missing")));
}

// B101
#[test]
fn a_pid_beside_an_identity_must_agree_with_it() {
    let stated = |pid| ReleaseOnBehalf::stated(Some(first()), Some(Pid::new(pid).unwrap()));
    assert_eq!(
        told(stated(4243)),
        (Code::LeaseMismatch, Some("pid_conflict"))
    );
    let keeper = held();
    let release = Release::OnBehalf(stated(4242).unwrap());
    assert_eq!(
        keeper.release(&release).unwrap().change.code,
        Code::LeaseReleased
    );
}

// B102
#[test]
fn releasing_where_nothing_is_held_is_a_normal_answer() {
    let keeper = keeper();
    for release in [of(first()), with_lease(first(), 1)] {
        let receipt = keeper.release(&release).unwrap();
        assert_eq!(receipt.change.code.as_str(), "NO_WRITER_LEASE");
        assert_eq!(
            (receipt.holder_exited, receipt.reason),
            (false, ReleaseReason::NotHeld)
        );
        assert_eq!(receipt.allocation.as_str(), "alloc-7");
    }
    assert_eq!(keeper.liveness.take_questions().len(), 0);
}

// B105, B108
#[test]
fn a_living_holder_releases_with_the_lease_id_or_without() {
    for release in [of(first()), with_lease(first(), 1)] {
        let mut keeper = held();
        let before = keeper.yard.record.clone();
        let receipt = keeper.at(7).release(&release).unwrap();
        let shown = "#2.0 WRITER_LEASE_RELEASED alloc-7 generation 1, holder exited false";
        assert_eq!(receipt.to_string(), shown);
        assert!(!receipt.holder_exited);
        assert_eq!(receipt.reason, ReleaseReason::HolderReleased);
        assert_eq!(keeper.record(), None);
        assert_eq!(keeper.yard.record, before);
    }
}

// B106, B108, S28
#[test]
fn releasing_for_an_exited_holder_takes_its_lease_id_and_nobody_left() {
    let keeper = held();
    keeper.liveness.says(4242, dead());
    let before = (keeper.record(), keeper.yard.record.clone());
    let mismatch = |reason| (Code::LeaseMismatch, Some(reason));
    assert_eq!(
        told(keeper.release(&of(first()))),
        mismatch("exited_without_id")
    );
    assert_eq!(
        told(keeper.release(&with_lease(first(), 2))),
        mismatch("lease_id")
    );
    for (by, occupant, reason) in [
        ("group_alive", "4250", "exited_group_alive"),
        ("path_in_use", "7000", "exited_path_in_use"),
        ("something_new", "1", "exited_occupied"),
    ] {
        let left = occupied(by, occupant);
        keeper.liveness.says(4242, left.clone());
        let refused = keeper.release(&with_lease(first(), 1)).unwrap_err();
        assert_eq!((refused.code(), refused.reason()), mismatch(reason));
        assert!(refused.to_string().contains(occupant), "{refused}");
        assert_eq!(refused, Refused::ExitedOccupied(left.evidence().clone()));
        let refusal = Refusal::Mismatch(Mismatch::ExitedOccupied);
        assert_eq!(refused.into_refusal(), refusal);
    }
    keeper.liveness.says(4242, unknown());
    let doubt = keeper.release(&with_lease(first(), 1));
    assert_eq!(told(doubt), (Code::InvalidHolder, Some("uninspectable")));
    assert_eq!((keeper.record(), keeper.yard.record.clone()), before);

    keeper.liveness.says(4242, dead());
    let receipt = keeper.release(&with_lease(first(), 1)).unwrap();
    insta::assert_snapshot!(
        receipt,
        @"#2.0 WRITER_LEASE_RELEASED alloc-7 generation 1, holder exited true, proof exited"
    );
    assert!(receipt.holder_exited);
    assert_eq!(receipt.reason, ReleaseReason::HolderExited);
    assert_eq!(receipt.evidence.unwrap().proof, "exited");
    assert_eq!((keeper.record(), keeper.yard.record), (None, before.1));
}

// B103, B104
#[test]
fn the_lease_id_is_compared_before_the_holder_and_the_holder_in_every_part() {
    let keeper = held();
    let other_run = holder(["cli-a", "sess-1", "run-2"], process(BOOT1, 4242, 987_654));
    let wrong_both = keeper.release(&with_lease(other_run.clone(), 2));
    assert_eq!(told(wrong_both), (Code::LeaseMismatch, Some("lease_id")));
    let without_run = ProcessHolder::new("cli-a", *first().process())
        .and_then(|holder| holder.with_session("sess-1"))
        .unwrap();
    for wrong in [
        other_run,
        without_run,
        holder(["cli-b", "sess-1", "run-1"], process(BOOT1, 4242, 987_654)),
        holder(["cli-a", "sess-9", "run-1"], process(BOOT1, 4242, 987_654)),
        holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4243, 987_654)),
        holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4242, 987_655)),
    ] {
        for release in [of(wrong.clone()), with_lease(wrong.clone(), 1)] {
            let answer = keeper.release(&release);
            assert_eq!(told(answer), (Code::LeaseMismatch, Some("holder")));
        }
    }
    let wrong_lease = keeper.release(&with_lease(first(), 2));
    assert_eq!(told(wrong_lease), (Code::LeaseMismatch, Some("lease_id")));
    assert!(keeper.record().is_some());
    // Nobody was looked at for it.
    assert_eq!(keeper.liveness.take_questions().len(), 0);
}

// B109
#[test]
fn a_removal_that_finds_nothing_filed_is_no_release() {
    let released = |keeper: &Keeper| -> Change {
        let receipt = keeper.release(&of(first())).unwrap();
        receipt.change
    };
    let keeper = held();
    let allocation = keeper.yard.record.allocation.clone();
    let filing = keeper.record().unwrap().filing;
    let change = released(&keeper);
    let receipt = |removed| ReleaseReceipt::new(change, allocation.clone(), removed, None);
    let refused = receipt(None).unwrap_err();
    assert_eq!(
        (refused.code(), refused.reason()),
        (Code::InvalidMetadata, Some("vanished"))
    );
    assert_eq!(refused, Refused::Metadata(MetadataFault::Vanished));
    assert_eq!(
        receipt(Some(&filing)).unwrap().change.code,
        Code::LeaseReleased
    );
}

// B110
#[test]
fn owner_lifecycle_bindings_drift_and_expiry_play_no_part_in_a_release() {
    for exited in [false, true] {
        let mut keeper = held();
        keeper.at(60_001);
        keeper.yard.record.owner = OwnerId::new("owner-b").unwrap();
        keeper.yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap();
        keeper.yard.record.path = TargetPath::new("/elsewhere").unwrap();
        keeper.yard.bind("ticket:42");
        if exited {
            keeper.liveness.says(4242, dead());
        }
        let receipt = keeper.release(&with_lease(first(), 1)).unwrap();
        assert_eq!(
            (receipt.change.code, receipt.holder_exited),
            (Code::LeaseReleased, exited)
        );
    }
}

// B111
#[test]
fn release_by_grant_and_on_behalf_leave_the_same_receipts() {
    let left = [false, true].map(|on_behalf| {
        let mut keeper = keeper();
        let answered = keeper.request(&Request::new(&first())).unwrap();
        let Answered::Granted { grant, .. } = answered else {
            panic!("not granted");
        };
        let release = if on_behalf {
            of(first())
        } else {
            Release::Grant(grant.at)
        };
        let receipt = keeper.at(7).release(&release).unwrap();
        let receipts = keeper.ledger.lock().unwrap().take_receipts().receipts;
        (receipt, receipts)
    });
    assert_eq!(left[0], left[1]);
    assert_eq!(left[0].1.len(), 2);
}

/// Releases by the first holder's identity with these answers, and observes nobody.
fn release_with(keeper: &Keeper, answers: &[Answer]) -> Result<Asked<ReleaseReceipt>, Refused> {
    let allocation = keeper.yard.record.allocation.clone();
    let mut no_new_lease = || lease_id(9);
    let mut turn = Turn::new(keeper.seen(answers), &mut no_new_lease);
    let mut ledger = keeper.ledger.lock().unwrap();
    ledger.release(&allocation, &of(first()), &mut turn)
}

#[test]
fn an_answer_about_another_lease_or_an_earlier_holder_is_inert() {
    let keeper = held();
    let lease = keeper.record().unwrap().lease;
    let proof = ProcessProof::default();
    let mut other = lease.token;
    other.lease = lease_id(2);
    for (about, handovers) in [(other, 0), (lease.token, 1)] {
        let question = Question::new(first(), about, handovers, proof);
        for verdict in [super::rig::alive(), dead()] {
            let released = release_with(&keeper, &[question.answer(verdict)]);
            assert!(matches!(released, Ok(Asked::Ask(asked)) if asked.len() == 1));
        }
    }
    assert!(keeper.record().is_some());
}

#[test]
fn of_answers_that_disagree_one_that_does_not_prove_death_counts() {
    let keeper = held();
    let lease = keeper.record().unwrap().lease;
    let question = Question::new(first(), lease.token, 0, ProcessProof::default());
    let answers = [dead(), super::rig::alive(), dead()].map(|said| question.answer(said));
    let Ok(Asked::Done(receipt)) = release_with(&keeper, &answers) else {
        panic!("not released");
    };
    assert!(!receipt.holder_exited);
}

#[test]
fn nothing_is_kept_of_a_lease_that_was_released() {
    let keeper = held();
    let kept = || {
        let ledger = keeper.ledger.lock().unwrap();
        format!("{ledger:?}").contains("Filing")
    };
    assert!(kept());
    keeper.release(&of(first())).unwrap();
    assert!(!kept());
}

#[test]
fn a_grant_of_an_earlier_lease_releases_nothing() {
    let keeper = keeper();
    let answered = keeper.request(&Request::new(&first())).unwrap();
    let Answered::Granted { grant, .. } = answered else {
        panic!("not granted");
    };
    keeper.release(&Release::Grant(grant.at)).unwrap();
    keeper.acquire(&first()).unwrap();
    let late = keeper.release(&Release::Grant(grant.at));
    assert_eq!(told(late).0, Code::StaleToken);
    assert!(keeper.record().is_some());
}
