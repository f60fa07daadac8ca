//! What refusals say: to programs, by code and reason, and to people.

use lease_core::{Evidence, RecordError, Refusal};
use lease_procfs::binding;
use lease_procfs::bound::{
    AllocationId, AllocationIdError, CheckoutFault, HolderFault, Lifecycle, MetadataFault,
    NameError, OwnerId, PlacePart, Refused, Role, StoreLock, Verb, WallStamp,
};

use super::rig::first;

fn malformed() -> binding::BindingListError {
    binding::foreign(["ticket:1", "runtime:process-v1:{}"], None, &first()).unwrap_err()
}

/// One of each kind.
fn every_gate() -> Vec<Refused> {
    let evidence = Evidence::new("group_alive").with_occupants(["4250 (group)"]);
    vec![
        Refused::TargetUnreadable,
        Refused::ForeignTarget,
        Refused::StoreLock(StoreLock::Sound),
        Refused::StoreLock(StoreLock::Missing),
        Refused::StoreLock(StoreLock::NotRegular),
        Refused::StoreLock(StoreLock::Symlink),
        Refused::Marker,
        Refused::NoRepository,
        Refused::Unmanaged,
        Refused::RecordVersion {
            expected: 11,
            found: 12,
        },
        Refused::Checkout(CheckoutFault::Detached),
        Refused::Owner {
            declared: OwnerId::new("owner-b").unwrap(),
        },
        Refused::HolderChanged,
        Refused::Holder(HolderFault::NotRunning),
        Refused::Role {
            role: Role::new("wizard").unwrap(),
        },
        Refused::Binding(malformed()),
        Refused::ForeignBindings {
            positions: vec![0, 2],
        },
        Refused::Lifecycle {
            state: Lifecycle::new("PAUSED").unwrap(),
        },
        Refused::Drift(PlacePart::Owner),
        Refused::Place(PlacePart::Path),
        Refused::HolderMissing { verb: Verb::Check },
        Refused::HolderMissing {
            verb: Verb::Release,
        },
        Refused::PidConflict,
        Refused::Metadata(MetadataFault::Lease(RecordError::TermTooLong)),
        Refused::Metadata(MetadataFault::Malformed { part: "filing" }),
        Refused::Metadata(MetadataFault::Schema { found: 2 }),
        Refused::Metadata(MetadataFault::Vanished),
        Refused::ExitedOccupied(evidence),
        Refused::Core(Refusal::Required),
    ]
}

#[test]
fn every_refusal_is_told_in_one_line() {
    let line = |refused: Refused| {
        let reason = refused.reason().unwrap_or("-");
        let mut line = format!("{} {reason}: {refused}", refused.code());
        let mut source = std::error::Error::source(&refused);
        while let Some(error) = source {
            line = format!("{line}: {error}");
            source = error.source();
        }
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let mut lines: Vec<_> = every_gate().into_iter().map(line).collect();
    lines.push(NameError::Empty.to_string());
    lines.push(NameError::TooLong { bytes: 257 }.to_string());
    lines.push(NameError::Control { at: 1 }.to_string());
    lines.push(AllocationIdError::Nested { segments: 2 }.to_string());
    lines.push(AllocationId::new("").unwrap_err().to_string());
    lines.push("soon".parse::<WallStamp>().unwrap_err().to_string());
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_gate_becomes_a_refusal_of_the_core_with_its_code() {
    for refused in every_gate() {
        let code = refused.code();
        let refusal = refused.into_refusal();
        assert_eq!(refusal.code(), code);
        let is_gate = matches!(refusal, Refusal::Gate(_));
        let of_the_core = matches!(refusal, Refusal::Mismatch(_) | Refusal::Required);
        assert!(is_gate || of_the_core, "{refusal}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn refusals_have_a_stable_form() {
    use super::rig::{dead, keeper, occupied, second, seconds};

    let mut keeper = keeper();
    let mut told: Vec<_> = every_gate();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper
        .liveness
        .says(4242, occupied("path_in_use", "7000 (cwd)"));
    told.push(keeper.at(60_001).acquire(&second()).unwrap_err());
    told.push(keeper.acquire(&first()).unwrap_err());
    keeper.liveness.says(4242, dead());
    assert!(keeper.acquire(&second()).is_ok());
    let lines: Vec<_> = told
        .iter()
        .map(|refused| serde_json::to_string(refused).unwrap())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
    for (refused, line) in told.iter().zip(&lines) {
        let code = refused.code();
        assert!(
            line.starts_with(&format!("{{\"code\":\"{code}\"")),
            "{line}"
        );
    }
}
