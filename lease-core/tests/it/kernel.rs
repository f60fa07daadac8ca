//! The decision for kernel locks, over the whole product of what can be seen.

use lease_core::{
    Attribution, BusyReason, Contention, KernelSeen, KernelState, RecordClass, Verdict,
    kernel_contention,
};

use crate::rig::{alive, dead, occupied, unknown};

const LOCKS: [KernelState; 3] = [
    KernelState::Taken,
    KernelState::TakenElsewhere,
    KernelState::Busy,
];

const RECORDS: [RecordClass; 10] = [
    RecordClass::Missing,
    RecordClass::Current,
    RecordClass::LegacyAlive,
    RecordClass::LegacyDead,
    RecordClass::LegacyOwnPid,
    RecordClass::Directory,
    RecordClass::NotARegularFile,
    RecordClass::Unreadable,
    RecordClass::Unrecognised,
    RecordClass::Changing,
];

const PAIRS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

fn verdicts() -> [Option<Verdict>; 5] {
    [
        None,
        Some(alive()),
        Some(dead()),
        Some(occupied()),
        Some(unknown()),
    ]
}

/// Everything that can be seen.
fn all() -> Vec<KernelSeen> {
    let mut all = Vec::new();
    for verdict in verdicts() {
        for lock in LOCKS {
            for record in RECORDS {
                for (same_file, steady) in PAIRS {
                    all.push(KernelSeen {
                        verdict: verdict.clone(),
                        lock,
                        record,
                        same_file,
                        steady,
                    });
                }
            }
        }
    }
    assert_eq!(all.len(), 5 * 3 * 10 * 4);
    all
}

#[test]
fn only_a_lock_taken_beside_a_harmless_record_is_granted() {
    let harmless = [
        RecordClass::Missing,
        RecordClass::Current,
        RecordClass::LegacyDead,
    ];
    let mut granted = 0;
    for seen in all() {
        let expected = seen.lock == KernelState::Taken && harmless.contains(&seen.record);
        let contention = kernel_contention(&seen);
        let is_granted = matches!(contention, Contention::Grant { .. });
        assert_eq!(is_granted, expected, "{seen:?}: {contention:?}");
        granted += usize::from(is_granted);
    }
    assert_eq!(granted, 3 * 5 * 4);
}

#[test]
fn a_grant_adopts_what_is_not_its_own_and_reaps_only_dead_claims() {
    for seen in all() {
        if let Contention::Grant { adopt, reap } = kernel_contention(&seen) {
            let own = seen.record == RecordClass::Current && seen.same_file;
            assert_eq!(adopt, !own, "{seen:?}");
            assert_eq!(reap, seen.record == RecordClass::LegacyDead, "{seen:?}");
        }
    }
}

// C29
#[test]
fn beside_a_free_lock_a_record_of_a_running_process_keeps_nobody_out() {
    for (same_file, steady) in PAIRS {
        let seen = KernelSeen {
            verdict: Some(alive()),
            lock: KernelState::Taken,
            record: RecordClass::Current,
            same_file,
            steady,
        };
        let granted = Contention::Grant {
            adopt: !same_file,
            reap: false,
        };
        assert_eq!(kernel_contention(&seen), granted);
    }
}

#[test]
fn a_verdict_only_names_the_holder() {
    for seen in all() {
        let contention = kernel_contention(&seen);
        for verdict in verdicts() {
            let other = kernel_contention(&KernelSeen {
                verdict,
                ..seen.clone()
            });
            match (contention, other) {
                (
                    Contention::Busy(BusyReason::Kernel(_)),
                    Contention::Busy(BusyReason::Kernel(_)),
                ) => assert_eq!(seen.lock, KernelState::Busy),
                (one, other) => assert_eq!(one, other, "{seen:?}"),
            }
        }
    }
}

#[test]
fn a_busy_lock_is_attributed_as_surely_as_its_record_allows() {
    let table = [
        (None, false, Attribution::None),
        (None, true, Attribution::None),
        (Some(alive()), false, Attribution::Unconfirmed),
        (Some(alive()), true, Attribution::Confirmed),
        (Some(dead()), false, Attribution::Unconfirmed),
        (Some(dead()), true, Attribution::Unconfirmed),
        (Some(occupied()), false, Attribution::Unconfirmed),
        (Some(occupied()), true, Attribution::Unconfirmed),
        (Some(unknown()), false, Attribution::Unconfirmed),
        (Some(unknown()), true, Attribution::Unconfirmed),
    ];
    for (verdict, steady, attribution) in table {
        for record in RECORDS {
            for same_file in [false, true] {
                let seen = KernelSeen {
                    verdict: verdict.clone(),
                    lock: KernelState::Busy,
                    record,
                    same_file,
                    steady,
                };
                let busy = Contention::Busy(BusyReason::Kernel(attribution));
                assert_eq!(kernel_contention(&seen), busy, "{seen:?}");
            }
        }
    }
}

#[test]
fn every_obstacle_at_the_record_has_its_own_reason() {
    let table = [
        (RecordClass::LegacyAlive, BusyReason::LegacyAlive),
        (RecordClass::LegacyOwnPid, BusyReason::LegacyOwnPid),
        (RecordClass::Directory, BusyReason::Directory),
        (RecordClass::NotARegularFile, BusyReason::NotARegularFile),
        (RecordClass::Unreadable, BusyReason::Unreadable),
        (RecordClass::Unrecognised, BusyReason::Unrecognised),
        (RecordClass::Changing, BusyReason::LostRace),
    ];
    for (record, reason) in table {
        for verdict in verdicts() {
            for (same_file, steady) in PAIRS {
                let seen = KernelSeen {
                    verdict: verdict.clone(),
                    lock: KernelState::Taken,
                    record,
                    same_file,
                    steady,
                };
                assert_eq!(kernel_contention(&seen), Contention::Busy(reason));
            }
        }
    }
}

#[test]
fn a_lock_on_a_replaced_file_is_busy_whatever_the_record_says() {
    for seen in all() {
        if seen.lock == KernelState::TakenElsewhere {
            let moved = Contention::Busy(BusyReason::MutexMoved);
            assert_eq!(kernel_contention(&seen), moved, "{seen:?}");
        }
    }
}
