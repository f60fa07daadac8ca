//! The simulation.

use std::sync::Mutex;
use std::time::Duration;

use chaos::clock::Deadline;
use chaos::scenario::{Context, Judgement, Progress, Report, Silent};
use chaos::sim::{Driver, Plain, Play, Shipped, play, transcript};

const TERMS: [Play; 4] = [
    Play::Sessions,
    Play::HostedSessions,
    Play::Processes,
    Play::ServerSessions,
];

/// Plays `seeds` histories from seed 1 on.
fn run<D: Driver>(terms: Play, seeds: u64) -> Report {
    let deadline = Deadline::within(Duration::from_secs(60));
    play::<D>(
        "sim-test",
        terms,
        &Context::new(1, Some(seeds), deadline, &Silent),
    )
}

#[track_caller]
fn check<D: Driver>(terms: Play, seeds: u64) {
    let report = run::<D>(terms, seeds);
    assert_eq!(report.result, Judgement::Passed, "{terms:?}");
    assert_eq!(report.counters.get("histories"), Some(&seeds));
}

#[test]
fn histories_over_the_shipped_registry_break_no_rule() {
    for terms in TERMS {
        check::<Shipped>(terms, 1_000);
    }
}

#[test]
fn histories_over_the_bare_decision_break_no_rule() {
    check::<Plain>(Play::All, 2_000);
}

// X8
#[test]
fn one_seed_is_one_history_byte_for_byte() {
    for terms in TERMS {
        for seed in 0..20 {
            let told = transcript::<Shipped>(terms, seed);
            assert_eq!(
                told,
                transcript::<Shipped>(terms, seed),
                "{terms:?}, seed {seed}"
            );
            assert_ne!(
                told,
                transcript::<Shipped>(terms, seed + 1),
                "{terms:?}, seed {seed}"
            );
        }
    }
}

/// Keeps what is shown.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl Progress for Kept {
    fn show(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

#[test]
fn progress_leaves_the_name_to_whoever_shows_it() {
    let kept = Kept::default();
    let deadline = Deadline::within(Duration::from_secs(60));
    let context = Context::new(1, Some(600), deadline, &kept);
    let report = play::<Shipped>("sim-test", Play::Sessions, &context);
    assert_eq!(report.result, Judgement::Passed);
    let lines = kept.0.into_inner().unwrap();
    assert_eq!(lines, ["256 histories", "512 histories"]);
}

#[test]
fn no_history_at_all_does_not_pass() {
    let report = run::<Shipped>(Play::Sessions, 0);
    assert!(matches!(report.result, Judgement::Failed { .. }));
}
