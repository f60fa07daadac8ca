//! The gates before a lease: one at a time, and in their order.

use std::time::Duration;

use lease_core::{Code, Refusal, TtlFault};
use lease_procfs::bound::{
    Admission, Answered, Checkout, HolderFault, Lifecycle, Marker, OwnerId, PlacePart, Refused,
    Request, Role, RoleClassifier as _, Standing, StoreLock, Target, admit,
};
use lease_procfs::{Pid, ProcessIdentity, TargetPath};

use super::rig::{
    BOOT1, Keeper, Yard, dead, first, holder, keeper, lease_id, occupied, process, roles, second,
    seconds, told, unknown,
};

/// What the first holder is told by the keeper as it is.
#[track_caller]
fn refused(keeper: &Keeper) -> (Code, Option<&'static str>) {
    let before = keeper.record();
    let told = told(keeper.acquire(&first()));
    assert_eq!(keeper.record(), before, "a refusal changes nothing");
    told
}

// B63
#[test]
fn a_classifier_answers_for_the_roles_that_its_application_knows() {
    let answers = ["feature", "integrator", "wizard"]
        .map(|role| roles.classify(&Role::new(role).unwrap()).as_str());
    assert_eq!(answers, ["REQUIRED", "NOT_APPLICABLE", "INVALID_ROLE"]);
    let mut keeper = keeper();
    keeper.yard.record.role = Role::new("wizard").unwrap();
    assert_eq!(refused(&keeper), (Code::InvalidRole, None));
}

// B64, B82
#[test]
fn a_role_with_a_gate_of_its_own_is_granted_nothing_and_refused_nothing() {
    let mut keeper = keeper();
    keeper.yard.record.role = Role::new("integrator").unwrap();
    // Neither is looked at.
    keeper.yard.bind("ticket:42");
    keeper.yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap();
    let Ok(Answered::NotApplicable(answer)) = keeper.request(&Request::new(&first())) else {
        panic!("not that answer");
    };
    assert_eq!(answer.code, Code::DedicatedRoleGate);
    insta::assert_snapshot!(answer, @"DEDICATED_ROLE_GATE NOT_APPLICABLE alloc-7, role integrator");
    assert_eq!(keeper.record(), None);
    let receipts = keeper.ledger.lock().unwrap().take_receipts();
    assert_eq!(receipts.receipts, []);
    keeper.yard.record.bindings.clear();
    assert_eq!(
        told(keeper.check(&first())),
        (Code::LeaseRequired, Some("lease"))
    );
}

// B72, B73
#[test]
fn a_target_must_be_readable_and_of_the_same_repository() {
    let mut keeper = keeper();
    keeper.yard.target = Target::Unreadable;
    assert_eq!(refused(&keeper), (Code::InvalidTarget, Some("unavailable")));
    keeper.yard.target = Target::Foreign;
    assert_eq!(refused(&keeper), (Code::UnregisteredWorktree, None));
}

// B76, B77
#[test]
fn a_store_must_be_what_it_says() {
    let mut keeper = keeper();
    keeper.yard.marker = Marker::Symlink;
    assert_eq!(refused(&keeper), (Code::InvalidPolicy, None));
    keeper.yard.marker = Marker::Sound;
    keeper.yard.repository = None;
    assert_eq!(
        refused(&keeper),
        (Code::InvalidMetadata, Some("repository_id"))
    );
}

#[test]
fn a_lock_of_the_store_that_is_in_doubt_is_refused() {
    for lock in [
        StoreLock::Missing,
        StoreLock::NotRegular,
        StoreLock::Symlink,
    ] {
        let mut keeper = keeper();
        keeper.yard.lock = lock;
        assert_eq!(refused(&keeper), (Code::InvalidMetadata, Some("lock_file")));
    }
}

#[test]
fn a_target_of_which_nothing_is_recorded_is_refused() {
    let mut keeper = keeper();
    keeper.yard.managed = false;
    assert_eq!(refused(&keeper), (Code::UnregisteredWorktree, None));
}

// B78
#[test]
fn an_expected_version_is_that_of_the_allocation_record() {
    let keeper = keeper();
    let holder = first();
    let mut request = Request::new(&holder);
    request.expected_version = Some(11);
    let refused = keeper.request(&request).unwrap_err();
    assert_eq!(refused.code().as_str(), "RECORD_VERSION_CONFLICT");
    let conflict = Refused::RecordVersion {
        expected: 11,
        found: 12,
    };
    assert_eq!(refused, conflict);
    // The lease's own version is 1 and then 2.
    request.expected_version = Some(12);
    assert!(keeper.request(&request).is_ok());
    assert!(keeper.request(&request).is_ok());
    assert_eq!(keeper.record().unwrap().filing.version, 2);
    assert_eq!(keeper.acquire(&holder).unwrap().record_version, 3);
}

// B79
#[test]
fn a_checkout_in_doubt_is_refused() {
    let flags = |detached, locked, prunable| Checkout {
        detached,
        locked,
        prunable,
    };
    for (checkout, reason) in [
        (flags(true, false, false), "detached"),
        (flags(false, true, false), "locked"),
        (flags(false, false, true), "prunable"),
    ] {
        let mut keeper = keeper();
        keeper.yard.checkout = checkout;
        assert_eq!(refused(&keeper), (Code::InvalidTarget, Some(reason)));
    }
}

// B80
#[test]
fn an_owner_may_stay_undeclared_and_must_be_right_if_not() {
    let keeper = keeper();
    let (holder, right, wrong) = (
        first(),
        OwnerId::new("owner-a").unwrap(),
        OwnerId::new("owner-b").unwrap(),
    );
    let mut request = Request::new(&holder);
    request.owner = Some(&wrong);
    let refused = keeper.request(&request).unwrap_err();
    assert_eq!(refused.code(), Code::OwnerMismatch);
    // It says who was declared, and not who it is.
    assert!(!refused.to_string().contains("owner-a"), "{refused}");
    let receipt = keeper.acquire(&holder).unwrap();
    assert_eq!(receipt.place.owner, right);
    request.owner = Some(&right);
    assert!(keeper.request(&request).is_ok());
}

// B81
#[test]
fn a_holder_described_before_must_still_be_the_same() {
    let keeper = keeper();
    let observed = holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4242, 987_700));
    let before = first();
    let mut request = Request::new(&observed);
    request.described = Some(&before);
    let answer = keeper.request(&request);
    assert_eq!(told(answer), (Code::LeaseMismatch, Some("holder_changed")));
    request.described = Some(&observed);
    assert!(keeper.request(&request).is_ok());
}

#[test]
fn a_holder_that_cannot_be_described_is_refused_with_the_reason() {
    let keeper = keeper();
    let holder = first();
    for &fault in HolderFault::ALL {
        let mut request = Request::new(&holder);
        request.holder = Err(fault);
        let answer = keeper.request(&request);
        assert_eq!(told(answer), (Code::InvalidHolder, Some(fault.as_str())));
    }
    assert_eq!(keeper.record(), None);
}

#[test]
fn a_term_is_judged_before_roles_and_by_the_core() {
    let mut keeper = keeper();
    keeper.yard.record.role = Role::new("wizard").unwrap();
    let hundred_and_one_years = seconds(101 * 365 * 24 * 60 * 60);
    for ttl in [Duration::ZERO, hundred_and_one_years] {
        let refused = keeper.acquire_for(&first(), ttl).unwrap_err();
        assert_eq!(
            (refused.code(), refused.reason()),
            (Code::InvalidHolder, Some("ttl"))
        );
        assert!(matches!(refused, Refused::Core(Refusal::Ttl(_))));
    }
    assert_eq!(
        told(keeper.acquire_for(&first(), seconds(1))).0,
        Code::InvalidRole
    );
}

// B83
#[test]
fn a_foreign_binding_blocks_first_grant_takeover_and_renewal() {
    let mut keeper = keeper();
    keeper.yard.bind("ticket:42");
    assert_eq!(refused(&keeper), (Code::ExternalBinding, None));
    keeper.yard.record.bindings.clear();
    keeper.acquire(&first()).unwrap();

    keeper.yard.bind("ticket:42");
    assert_eq!(refused(&keeper), (Code::ExternalBinding, None));
    keeper.liveness.says(4242, dead());
    let before = keeper.record();
    let refused = keeper.acquire(&second()).unwrap_err();
    assert_eq!(refused, Refused::ForeignBindings { positions: vec![0] });
    assert_eq!(keeper.record(), before);
}

// B84
#[test]
fn only_an_active_allocation_takes_or_renews_a_lease() {
    let mut keeper = keeper();
    let paused = Lifecycle::new("PAUSED").unwrap();
    keeper.yard.record.lifecycle = paused.clone();
    assert_eq!(refused(&keeper), (Code::InvalidLifecycle, None));
    keeper.yard.record.lifecycle = Lifecycle::new("ACTIVE").unwrap();
    keeper.acquire(&first()).unwrap();
    keeper.yard.record.lifecycle = paused.clone();
    let refused = keeper.acquire(&first()).unwrap_err();
    assert_eq!(refused, Refused::Lifecycle { state: paused });
    assert!(refused.to_string().contains("PAUSED"), "{refused}");
    assert_eq!(keeper.record().unwrap().filing.version, 1);
}

// B86
#[test]
fn a_lease_whose_place_has_moved_is_neither_renewed_nor_taken_over() {
    let mut keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let sound = keeper.yard.clone();
    for part in [PlacePart::Repository, PlacePart::Path, PlacePart::Owner] {
        keeper.yard = sound.clone();
        match part {
            PlacePart::Repository => {
                keeper.yard.repository =
                    Some(lease_procfs::bound::RepositoryId::new("repo-2").unwrap());
            }
            PlacePart::Path => {
                keeper.yard.record.path = TargetPath::new("/w/alloc-8").unwrap();
            }
            _ => keeper.yard.record.owner = OwnerId::new("owner-b").unwrap(),
        }
        let drift = (Code::LeaseMismatch, Some("identity_drift"));
        // The holder's own renewal, expired or not: nobody need be asked after.
        assert_eq!(refused(&keeper), drift);
        keeper.liveness.take_questions();
        for (verdict, expected) in [
            (super::rig::alive(), (Code::LeaseHeld, Some("alive"))),
            (
                occupied("group_alive", "4250"),
                (Code::LeaseHeld, Some("group")),
            ),
            (
                occupied("path_in_use", "7000"),
                (Code::LeaseHeld, Some("paths")),
            ),
            (unknown(), (Code::InvalidHolder, Some("uninspectable"))),
            (dead(), drift),
        ] {
            keeper.liveness.says(4242, verdict);
            let before = keeper.record();
            assert_eq!(told(keeper.acquire(&second())), expected);
            assert_eq!(keeper.record(), before);
            let questions = keeper.liveness.take_questions();
            assert_eq!(questions.len(), 1);
            // What the lease protects is looked at, not where its record has moved.
            assert_eq!(questions[0].target, Some(sound.record.path.clone()));
        }
    }
}

// B71, S34
#[test]
fn of_all_faults_at_once_the_first_in_the_fixed_order_is_told() {
    let mut keeper = keeper();
    let sound = keeper.yard.clone();
    // Another live holder, whose lease was granted for another path.
    keeper.yard.record.path = TargetPath::new("/w/alloc-6").unwrap();
    keeper.acquire(&second()).unwrap();
    let granted = keeper.record();
    keeper.yard = sound.clone();

    let (holder, wrong_owner) = (first(), OwnerId::new("owner-b").unwrap());
    let described = super::rig::holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4242, 1));
    keeper.yard.target = Target::Unreadable;
    keeper.yard.lock = StoreLock::Symlink;
    keeper.yard.marker = Marker::Symlink;
    keeper.yard.repository = None;
    keeper.yard.managed = false;
    keeper.yard.checkout.detached = true;
    keeper.yard.record.role = Role::new("wizard").unwrap();
    keeper.yard.bind("ticket:42");
    keeper.yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap();
    let mut request = Request::new(&holder).with_ttl(Duration::ZERO);
    request.expected_version = Some(11);
    request.owner = Some(&wrong_owner);
    request.described = Some(&described);

    let mut order = Vec::new();
    let granted_at_last = loop {
        let refused = match keeper.request(&request) {
            Ok(answered) => break answered,
            Err(refused) => refused,
        };
        assert_eq!(
            keeper.record(),
            granted,
            "nothing is stored before the grant"
        );
        let reason = refused.reason().map(|reason| format!(" ({reason})"));
        order.push(format!("{}{}", refused.code(), reason.unwrap_or_default()));
        match refused {
            Refused::TargetUnreadable => keeper.yard.target = Target::Foreign,
            Refused::ForeignTarget => keeper.yard.target = Target::Ours,
            Refused::StoreLock(_) => keeper.yard.lock = StoreLock::Sound,
            Refused::Marker => keeper.yard.marker = Marker::Sound,
            Refused::NoRepository => keeper.yard.repository.clone_from(&sound.repository),
            Refused::Unmanaged => keeper.yard.managed = true,
            Refused::RecordVersion { .. } => request.expected_version = None,
            Refused::Checkout(_) => keeper.yard.checkout = Checkout::default(),
            Refused::Owner { .. } => request.owner = None,
            Refused::HolderChanged => request.described = None,
            Refused::Core(Refusal::Ttl(TtlFault::Zero)) => request.ttl = None,
            Refused::Role { .. } => keeper.yard.record.role = sound.record.role.clone(),
            Refused::ForeignBindings { .. } => keeper.yard.record.bindings.clear(),
            Refused::Lifecycle { .. } => {
                keeper.yard.record.lifecycle = sound.record.lifecycle.clone();
            }
            Refused::Core(Refusal::Held(_)) => keeper.liveness.says(5151, dead()),
            // The lease moves back under the record.
            Refused::Drift(_) => keeper.yard.record.path = TargetPath::new("/w/alloc-6").unwrap(),
            other => panic!("unexpected: {other}"),
        }
    };
    insta::assert_snapshot!(order.join("\n"));
    let receipt = super::rig::receipt(granted_at_last);
    assert_eq!(receipt.change.code, Code::TakenOver);
    assert_eq!(receipt.change.token.unwrap().lease, lease_id(2));
}

/// A fault in what the keeper sees, or in the request; the first in the order first.
type Fault = fn(&mut Yard, &mut Asks);

/// What is asked, as owned parts.
#[derive(Debug, Default)]
struct Asks {
    version: Option<u64>,
    owner: Option<OwnerId>,
    described: Option<lease_procfs::ProcessHolder>,
    ttl: Option<Duration>,
}

const FAULTS: [(Fault, Code); 14] = [
    (
        |yard, _| yard.target = Target::Unreadable,
        Code::InvalidTarget,
    ),
    (
        |yard, _| yard.lock = StoreLock::Missing,
        Code::InvalidMetadata,
    ),
    (|yard, _| yard.marker = Marker::Symlink, Code::InvalidPolicy),
    (|yard, _| yard.repository = None, Code::InvalidMetadata),
    (|yard, _| yard.managed = false, Code::UnregisteredWorktree),
    (
        |_, asks| asks.version = Some(11),
        Code::RecordVersionConflict,
    ),
    (|yard, _| yard.checkout.locked = true, Code::InvalidTarget),
    (
        |_, asks| asks.owner = OwnerId::new("owner-b").ok(),
        Code::OwnerMismatch,
    ),
    (
        |_, asks| asks.described = Some(second()),
        Code::LeaseMismatch,
    ),
    (
        |_, asks| asks.ttl = Some(Duration::ZERO),
        Code::InvalidHolder,
    ),
    (
        |yard, _| yard.record.role = Role::new("wizard").unwrap(),
        Code::InvalidRole,
    ),
    (|yard, _| yard.bind("ticket:42"), Code::ExternalBinding),
    (
        |yard, _| yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap(),
        Code::InvalidLifecycle,
    ),
    // The lease was granted to the same holder for the path that is recorded without this fault.
    (
        |yard, _| yard.record.path = TargetPath::new("/w/x").unwrap(),
        Code::LeaseMismatch,
    ),
];

// B71
#[test]
fn of_any_faults_the_earliest_gate_speaks() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let (record, holder) = (keeper.record().unwrap(), first());
    let policy = lease_core::LeasePolicy::process_bound();
    let standing = Standing {
        policy: &policy,
        present: Some(record.present(lease_core::Locality::ThisMachine)),
        seen: keeper.seen(&[]),
    };
    for chosen in 0_u32..1 << FAULTS.len() {
        let (mut yard, mut asks) = (keeper.yard.clone(), Asks::default());
        let is_chosen = |number: &usize| chosen & (1 << number) != 0;
        for number in (0..FAULTS.len()).filter(is_chosen) {
            FAULTS[number].0(&mut yard, &mut asks);
        }
        let mut request = Request::new(&holder);
        request.expected_version = asks.version;
        request.owner = asks.owner.as_ref();
        request.described = asks.described.as_ref();
        request.ttl = asks.ttl;
        let told = admit(&request, &yard.view(), &roles, &standing).map_err(|told| told.code());
        let earliest = (0..FAULTS.len())
            .find(is_chosen)
            .map(|number| FAULTS[number].1);
        assert_eq!(told.err(), earliest, "faults {chosen:014b}");
    }
}

// S31
#[test]
fn three_kinds_of_role_meet_a_foreign_binding_and_a_paused_allocation() {
    let told = ["feature", "integrator", "wizard"].map(|role| {
        let mut keeper = keeper();
        keeper.yard.bind("ticket:42");
        keeper.yard.record.lifecycle = Lifecycle::new("PAUSED").unwrap();
        keeper.yard.record.role = Role::new(role).unwrap();
        let code = match keeper.request(&Request::new(&first())) {
            Ok(Answered::NotApplicable(answer)) => answer.code,
            Ok(answered) => panic!("granted: {answered:?}"),
            Err(refused) => refused.code(),
        };
        assert_eq!(keeper.record(), None);
        code.as_str()
    });
    assert_eq!(
        told,
        ["EXTERNAL_BINDING", "DEDICATED_ROLE_GATE", "INVALID_ROLE"]
    );
}

#[test]
fn admit_is_pure_and_leaves_who_gets_the_lease_to_the_core() {
    let keeper = keeper();
    keeper.acquire(&second()).unwrap();
    let record = keeper.record().unwrap();
    let holder = first();
    let policy = lease_core::LeasePolicy::process_bound();
    let standing = Standing {
        policy: &policy,
        present: Some(record.present(lease_core::Locality::ThisMachine)),
        seen: keeper.seen(&[]),
    };
    let admission = admit(
        &Request::new(&holder),
        &keeper.yard.view(),
        &roles,
        &standing,
    );
    let Ok(Admission::Run(admitted)) = admission else {
        panic!("not admitted: {admission:?}");
    };
    let acquire = lease_core::Action::Acquire { holder, ttl: None };
    assert_eq!(admitted.action, acquire);
    assert_eq!(admitted.place, keeper.yard.place());
}

#[test]
fn every_description_error_has_a_sub_reason() {
    let pid = Pid::new(4242).unwrap();
    let faults = [
        lease_procfs::DescribeError::NotRunning { pid },
        lease_procfs::DescribeError::Thread { pid },
        lease_procfs::DescribeError::Hidden { pid },
        lease_procfs::DescribeError::ProcMissing,
        lease_procfs::DescribeError::ProcNotOurs,
        lease_procfs::DescribeError::Unsupported,
    ]
    .map(|error| HolderFault::from(&error).as_str());
    assert_eq!(
        faults,
        [
            "not_running",
            "thread_id",
            "hidden",
            "boot_id_unavailable",
            "namespace",
            "uninspectable",
        ]
    );
    let unread = lease_procfs::select::SelectError::Stat {
        pid,
        step: 1,
        source: lease_procfs::StatError::NoName,
    };
    assert_eq!(HolderFault::from(&unread).as_str(), "bad_stat");
    let label = |client: &str, session: &str| {
        let process: ProcessIdentity = *first().process();
        let built = lease_procfs::ProcessHolder::new(client, process)
            .and_then(|holder| holder.with_session(session));
        HolderFault::from(&built.unwrap_err()).as_str()
    };
    assert_eq!((label("-", "s"), label("a", "")), ("client_id", "label"));
}
