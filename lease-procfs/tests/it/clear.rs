//! Whether a runtime is clear, decided by facts alone.

use lease_core::{Code, Evidence, Verdict};
use lease_procfs::clear::{
    BlockedBy, Clear, DeclaredHolder, Purpose, Reference, RuntimeOccupied, Seen, check,
};
use lease_procfs::{Pid, Proof, StartTicks};
use proptest::prelude::*;

fn pid(number: i64) -> Pid {
    Pid::new(number).unwrap()
}

fn dead() -> Verdict {
    Verdict::Dead(Evidence::new(Proof::NoSuchProcess.as_str()))
}

/// A holder of this boot.
fn holder(number: i64, ticks: u64, verdict: Verdict) -> DeclaredHolder {
    let started = Some(StartTicks::new(ticks));
    DeclaredHolder {
        pid: pid(number),
        verdict,
        started,
    }
}

/// A holder whose start cannot be compared.
fn of_another_boot(number: i64) -> DeclaredHolder {
    let verdict = Verdict::Dead(Evidence::new(Proof::OtherBoot.as_str()));
    DeclaredHolder {
        pid: pid(number),
        verdict,
        started: None,
    }
}

/// A process in the path, with its start if the second look gave one.
fn terminal(ticks: Option<u64>) -> Reference {
    Reference {
        pid: pid(7_000),
        started: ticks.map(StartTicks::new),
    }
}

/// Two holders of this boot, both gone, and an old terminal.
fn old_terminal() -> Seen {
    Seen {
        holders: vec![
            holder(4_242, 987_654, dead()),
            holder(5_151, 990_000, dead()),
        ],
        references: vec![terminal(Some(500_000))],
        ..Seen::default()
    }
}

#[track_caller]
fn clear(seen: &Seen) -> Clear {
    let clear = check(Purpose::Runtime, seen).unwrap();
    assert_eq!(clear.code(), Code::RuntimeClear);
    clear
}

#[track_caller]
fn occupied(purpose: Purpose, seen: &Seen) -> RuntimeOccupied {
    let occupied = check(purpose, seen).unwrap_err();
    assert_eq!(occupied.code(), Code::RuntimeOccupied);
    assert!(!occupied.blockers.is_empty());
    occupied
}

#[track_caller]
fn refuse(seen: &Seen, said: &str) {
    let text = occupied(Purpose::Runtime, seen).to_string();
    assert_eq!(text, format!("runtime is occupied: {said}"));
}

// B58
#[test]
fn a_live_holder_or_its_live_group_blocks() {
    let evidence = || Evidence::new(Proof::Running.as_str());
    for (verdict, said) in [
        (Verdict::Alive(evidence()), "holder_alive 5151"),
        (Verdict::Occupied(evidence()), "group_alive 5151"),
        (Verdict::Unknown(evidence()), "uncertain 5151"),
    ] {
        let mut seen = old_terminal();
        seen.holders[1].verdict = verdict;
        refuse(&seen, said);
        seen.references.clear();
        refuse(&seen, said);
        seen.holders.swap(0, 1);
        refuse(&seen, said);
    }
    let seen = Seen {
        references: vec![],
        ..old_terminal()
    };
    assert_eq!(clear(&seen).predating, []);
}

// B59
#[test]
fn only_a_process_older_than_every_holder_is_ignored() {
    for (ticks, ignored) in [
        (500_000, true),
        (987_653, true),
        (987_654, false),
        (988_000, false),
        (990_000, false),
        (995_000, false),
    ] {
        let mut seen = old_terminal();
        seen.references = vec![terminal(Some(ticks))];
        for _ in 0..2 {
            if ignored {
                assert_eq!(clear(&seen).predating, [pid(7_000)], "{ticks}");
            } else {
                refuse(&seen, "observed 7000");
            }
            seen.holders.swap(0, 1);
        }
    }
    let mut seen = old_terminal();
    seen.references.push(Reference {
        pid: pid(7_001),
        started: Some(StartTicks::new(995_000)),
    });
    refuse(&seen, "observed 7001");
}

// B60
#[test]
fn a_reference_in_any_doubt_blocks() {
    let mut nobody_declared = old_terminal();
    nobody_declared.holders.clear();
    refuse(&nobody_declared, "observed 7000");

    let mut gone = old_terminal();
    gone.references = vec![terminal(None)];
    refuse(&gone, "observed 7000");

    for at in 0..2 {
        let mut other_boot = old_terminal();
        other_boot.holders[at] = of_another_boot(4_242);
        refuse(&other_boot, "observed 7000");
        other_boot.references.clear();
        assert_eq!(
            clear(&other_boot).predating,
            [],
            "the holder itself is gone"
        );
    }
}

// B61
#[test]
fn managed_references_and_doubts_block_by_themselves() {
    for (managed, managed_doubts, scan_doubts, said) in [
        (1, 0, 0, "managed"),
        (0, 1, 0, "uncertain"),
        (0, 0, 1, "uncertain"),
        (0, 2, 3, "uncertain"),
        (7, 0, 1, "managed, uncertain"),
    ] {
        let alone = Seen {
            managed,
            managed_doubts,
            scan_doubts,
            ..Seen::default()
        };
        refuse(&alone, said);
        let beside = Seen {
            managed,
            managed_doubts,
            scan_doubts,
            ..old_terminal()
        };
        refuse(&beside, said);
    }
    assert_eq!(clear(&Seen::default()).predating, []);
}

// B62
#[test]
fn cleanup_of_the_allocation_counts_older_processes_too() {
    let seen = old_terminal();
    assert_eq!(clear(&seen).predating, [pid(7_000)]);
    let refused = occupied(Purpose::Allocation, &seen);
    assert_eq!(refused.to_string(), "runtime is occupied: observed 7000");
    let nobody = Seen {
        references: vec![],
        ..seen
    };
    assert!(check(Purpose::Allocation, &nobody).is_ok());
}

// S33
#[test]
fn an_old_terminal_leaves_the_runtime_clear_and_each_of_six_differences_does_not() {
    let base = old_terminal();
    assert_eq!(clear(&base).predating, [pid(7_000)]);
    let with = |change: &dyn Fn(&mut Seen)| {
        let mut seen = base.clone();
        change(&mut seen);
        occupied(Purpose::Runtime, &seen)
    };
    let first = |refused: RuntimeOccupied| refused.blockers[0].by;
    assert_eq!(
        first(with(&|seen| seen.references[0] = terminal(Some(987_654)))),
        BlockedBy::Observed
    );
    assert_eq!(
        first(with(&|seen| seen.holders.clear())),
        BlockedBy::Observed
    );
    assert_eq!(
        first(with(&|seen| seen.holders[1] = of_another_boot(5_151))),
        BlockedBy::Observed
    );
    assert_eq!(first(with(&|seen| seen.managed = 1)), BlockedBy::Managed);
    assert_eq!(
        first(with(&|seen| seen.scan_doubts = 1)),
        BlockedBy::Uncertain
    );
    assert_eq!(
        first(occupied(Purpose::Allocation, &base)),
        BlockedBy::Observed
    );
}

#[test]
fn the_text_names_the_first_and_counts_the_rest() {
    let references = (1..=20).map(|number| Reference {
        pid: pid(number),
        started: None,
    });
    let seen = Seen {
        references: references.collect(),
        managed: 1,
        ..Seen::default()
    };
    let refused = occupied(Purpose::Runtime, &seen);
    assert_eq!(refused.blockers.len(), 21);
    insta::assert_snapshot!(refused, @"runtime is occupied: observed 1, observed 2, observed 3, observed 4, observed 5, observed 6, observed 7, observed 8 and 13 more");
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![
        Verdict::Alive(Evidence::new("running")),
        dead(),
        Verdict::Occupied(Evidence::new("group_alive")),
        Verdict::Unknown(Evidence::new("hidden")),
    ])
}

fn seens() -> impl Strategy<Value = Seen> {
    let started = || prop::option::of((0_u64..6).prop_map(StartTicks::new));
    let holders = (1_i64..9, verdicts(), started());
    let holders = holders.prop_map(|(number, verdict, started)| DeclaredHolder {
        pid: pid(number),
        verdict,
        started,
    });
    let references = (1_i64..9, started());
    let references = references.prop_map(|(number, started)| Reference {
        pid: pid(number),
        started,
    });
    let few = 0_usize..2;
    let lists = (
        prop::collection::vec(holders, 0..4),
        prop::collection::vec(references, 0..4),
    );
    (lists, few.clone(), few.clone(), few).prop_map(
        |((holders, references), managed, managed_doubts, scan_doubts)| Seen {
            holders,
            references,
            managed,
            managed_doubts,
            scan_doubts,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn seeing_more_never_clears(seen in seens(), more in seens()) {
        let mut both = seen.clone();
        both.references.extend(more.references);
        both.managed += more.managed;
        both.managed_doubts += more.managed_doubts;
        both.scan_doubts += more.scan_doubts;
        if check(Purpose::Runtime, &seen).is_err() {
            prop_assert!(check(Purpose::Runtime, &both).is_err());
        }
        if check(Purpose::Runtime, &both).is_err() {
            prop_assert!(check(Purpose::Allocation, &both).is_err());
        }
    }

    #[test]
    fn what_cannot_be_told_never_clears(seen in seens(), at in any::<prop::sample::Index>()) {
        let mut less = seen.clone();
        if !less.holders.is_empty() {
            let at = at.index(less.holders.len());
            less.holders[at].started = None;
        }
        for reference in &mut less.references {
            reference.started = None;
        }
        if check(Purpose::Runtime, &seen).is_err() {
            prop_assert!(check(Purpose::Runtime, &less).is_err());
        }
    }
}
