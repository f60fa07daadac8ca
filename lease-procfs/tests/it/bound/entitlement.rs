//! Whether a holder may write now.

use std::sync::Arc;

use lease_core::{Code, Seen};
use lease_procfs::bound::{
    AllocationId, Claim, Entitlement, Lifecycle, OwnerId, Place, PlacePart, Present, Refused,
    Release, ReleaseOnBehalf, RepositoryId, entitled,
};
use lease_procfs::{ProcessHolder, TargetPath, binding};

use super::rig::{
    BOOT1, Keeper, dead, first, holder, keeper, lease_id, occupied, process, second, seconds, told,
    unknown,
};

/// The first holder holds for a minute.
fn held() -> Keeper {
    let keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper
}

fn on_behalf(holder: ProcessHolder) -> Release {
    Release::OnBehalf(ReleaseOnBehalf::of(holder))
}

// B113
#[test]
fn without_a_lease_or_without_a_holder_there_is_no_entitlement() {
    let keeper = keeper();
    assert_eq!(
        told(keeper.check(&first())),
        (Code::LeaseRequired, Some("lease"))
    );
    keeper.acquire(&first()).unwrap();
    let nobody = Claim {
        holder: None,
        place: &keeper.yard.place(),
        bindings: &[],
    };
    assert_eq!(
        told(keeper.claim(&nobody)),
        (Code::LeaseRequired, Some("holder"))
    );
    assert!(keeper.check(&first()).is_ok());
}

// B114
#[test]
fn a_foreign_binding_is_told_before_the_lease_is_compared() {
    let mut keeper = held();
    keeper.yard.bind("ticket:42");
    keeper.at(60_001);
    keeper.yard.record.owner = OwnerId::new("owner-b").unwrap();
    assert_eq!(told(keeper.check(&second())), (Code::ExternalBinding, None));
    keeper.yard.bind("runtime:process-v1:{");
    assert_eq!(told(keeper.check(&second())).0, Code::InvalidRuntimeBinding);
}

/// The same place with one part changed each time.
fn elsewhere(place: &Place) -> [(&'static str, Place); 4] {
    let mut places = [(); 4].map(|()| place.clone());
    places[0].repository = RepositoryId::new("repo-2").unwrap();
    places[1].allocation = AllocationId::new("alloc-8").unwrap();
    places[2].path = TargetPath::new("/w/alloc-8").unwrap();
    places[3].owner = OwnerId::new("owner-b").unwrap();
    let [repository, allocation, path, owner] = places;
    [
        ("repository", repository),
        ("allocation", allocation),
        ("path", path),
        ("owner", owner),
    ]
}

// B115, S35
#[test]
fn every_single_fault_is_named() {
    let mut keeper = held();
    let place = keeper.yard.place();
    let parts = elsewhere(&place);
    let me = first();
    let record = keeper.record().unwrap();
    let present = record.present(lease_core::Locality::ThisMachine);
    for (reason, place) in &parts {
        let claim = Claim {
            holder: Some(&me),
            place,
            bindings: &[],
        };
        let judged = entitled(Some(present), &claim, &keeper.seen(&[]));
        assert_eq!(told(judged), (Code::LeaseMismatch, Some(*reason)));
    }
    let other_run = holder(["cli-a", "sess-1", "run-2"], process(BOOT1, 4242, 987_654));
    assert_eq!(
        told(keeper.check(&other_run)),
        (Code::LeaseMismatch, Some("holder"))
    );
    // At its last moment the term is not over.
    keeper.at(60_000);
    assert!(keeper.check(&me).is_ok());
    keeper.at(60_001);
    assert_eq!(
        told(keeper.check(&me)),
        (Code::LeaseMismatch, Some("expired"))
    );
    keeper.at(0);
    for verdict in [dead(), occupied("group_alive", "4250")] {
        keeper.liveness.says(4242, verdict);
        assert_eq!(
            told(keeper.check(&me)),
            (Code::LeaseMismatch, Some("not_live"))
        );
    }
    // B117 is decided by the core; the code is the same here.
    keeper.liveness.says(4242, unknown());
    assert_eq!(
        told(keeper.check(&me)),
        (Code::InvalidHolder, Some("uninspectable"))
    );
    let nobody = Claim {
        holder: None,
        place: &place,
        bindings: &[],
    };
    assert_eq!(
        told(keeper.claim(&nobody)),
        (Code::LeaseRequired, Some("holder"))
    );
    keeper.release(&on_behalf(me.clone())).unwrap_err();
    keeper.liveness.says(4242, super::rig::alive());
    keeper.release(&on_behalf(me.clone())).unwrap();
    assert_eq!(
        told(keeper.check(&me)),
        (Code::LeaseRequired, Some("lease"))
    );
}

#[test]
fn a_place_that_differs_in_several_parts_names_the_first() {
    let place = keeper().yard.place();
    let mut other = place.clone();
    assert_eq!(place.difference(&other), None);
    other.owner = OwnerId::new("owner-b").unwrap();
    assert_eq!(place.difference(&other), Some(PlacePart::Owner));
    other.path = TargetPath::new("/w").unwrap();
    assert_eq!(place.difference(&other), Some(PlacePart::Path));
    other.allocation = AllocationId::new("alloc-8").unwrap();
    assert_eq!(place.difference(&other), Some(PlacePart::Allocation));
    other.repository = RepositoryId::new("repo-2").unwrap();
    assert_eq!(place.difference(&other), Some(PlacePart::Repository));
}

// B116
#[test]
fn the_check_judges_the_snapshot_that_it_is_handed() {
    // There is no store among its arguments.
    type Check = for<'a, 'b, 'c, 'd, 'e> fn(
        Option<Present<'a>>,
        &'b Claim<'c>,
        &'d Seen<'e>,
    ) -> Result<Entitlement, Refused>;
    let check: Check = entitled;

    let keeper = held();
    let before = keeper.record().unwrap();
    let alive = keeper.check(&first()).unwrap();
    keeper.release(&on_behalf(first())).unwrap();
    let me = first();
    let claim = Claim {
        holder: Some(&me),
        place: &keeper.yard.place(),
        bindings: &[],
    };
    let snapshot = before.present(lease_core::Locality::ThisMachine);
    let judged = check(Some(snapshot), &claim, &keeper.seen(&[])).unwrap();
    let Entitlement::Ask(questions) = judged else {
        panic!("asks nothing: {judged:?}");
    };
    // It says where to look.
    assert_eq!(questions[0].target, Some(keeper.yard.record.path.clone()));
    let local = lease_core::Locality::ThisMachine;
    assert_eq!(questions[0].locality, local);
    let answers = [questions[0].answer(super::rig::alive())];
    let judged = check(Some(snapshot), &claim, &keeper.seen(&answers)).unwrap();
    assert!(matches!(judged, Entitlement::Confirmed(confirmed) if confirmed == alive));
    assert_eq!(told(keeper.check(&me)).0, Code::LeaseRequired);
}

#[test]
fn a_confirmed_entitlement_says_for_which_lease_until_when_and_why() {
    let keeper = held();
    let confirmed = keeper.check(&first()).unwrap();
    let record = keeper.record().unwrap();
    assert_eq!(confirmed.code, Code::Entitled);
    assert_eq!(confirmed.token, record.lease.token);
    assert_eq!(confirmed.expires, record.lease.expires);
    let expires_at = confirmed.expires_at.unwrap().to_string();
    assert_eq!(expires_at, "2023-11-14T22:14:20.000Z");
    assert_eq!(confirmed.evidence.unwrap().proof, "running");
    // It changed nothing and left no receipt.
    let receipts = keeper.ledger.lock().unwrap().take_receipts().receipts;
    assert_eq!(receipts.len(), 1);
}

#[test]
fn an_own_binding_of_the_present_lease_is_no_fence() {
    let mut keeper = held();
    let bound = |lease| {
        let kind = binding::BindingKind::Agent;
        let binding = binding::RuntimeBinding::new(kind, lease, &first());
        binding.unwrap().encode()
    };
    keeper.yard.bind(&bound(Some(lease_id(1))));
    assert!(keeper.check(&first()).is_ok());
    assert!(keeper.acquire(&first()).is_ok());
    // One from before there was a lease, and one of a lease to come.
    for lease in [None, Some(lease_id(2))] {
        keeper.yard.bind(&bound(lease));
        assert_eq!(told(keeper.check(&first())).0, Code::ExternalBinding);
        keeper.yard.record.bindings.pop();
    }
}

#[test]
fn a_clock_that_steps_back_takes_no_entitlement_away() {
    let mut keeper = keeper();
    keeper.at(5_000).acquire_for(&first(), seconds(60)).unwrap();
    assert!(keeper.at(0).check(&first()).is_ok());
}

#[test]
fn lifecycle_plays_no_part_in_an_entitlement() {
    let mut keeper = held();
    keeper.yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap();
    assert!(keeper.check(&first()).is_ok());
    let binding: Arc<str> = "ticket:42".into();
    keeper.yard.record.bindings.push(binding);
    assert_eq!(told(keeper.check(&first())).0, Code::ExternalBinding);
}
