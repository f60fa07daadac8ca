//! How many system calls a verdict takes, counted by strace, and how much memory.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use lease_core::HolderLiveness as _;
use lease_core::Locality::ThisMachine;
use lease_procfs::{
    DeathWatch, Found, KeptProcess, ProcFs, ProcLiveness, ProcessHolder, ProcessIdentity,
};

use crate::crew::{GROUP, lead_a_group, question};
use crate::rig::{Kernels, has_pidfs, not_run};
use crate::sys::{Child, allocations, wait_for_ever};

const FEW: i64 = 1_000;
const MANY: i64 = 3_000;

/// Runs two tests of this program under strace and returns the calls that one round takes, to the
/// nearest whole number.
fn calls(test: &str, few: &str, many: &str) -> Option<BTreeMap<String, i64>> {
    let (few, many) = (counted(test, few)?, counted(test, many)?);
    let each = many.iter().map(|(name, calls)| {
        let more = calls - few.get(name).copied().unwrap_or(0);
        // What the program does besides differs by a few calls.
        (name.clone(), (more + (MANY - FEW) / 2) / (MANY - FEW))
    });
    Some(each.filter(|(_, calls)| *calls != 0).collect())
}

fn counted(test: &str, worker: &str) -> Option<BTreeMap<String, i64>> {
    let traced = Command::new("strace")
        .args(["-f", "-c"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("calls::{worker}"), "--test-threads=1"])
        .output();
    let text = match &traced {
        Ok(traced) => String::from_utf8_lossy(&traced.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    if !traced.is_ok_and(|traced| traced.status.success()) {
        let last = text.lines().last().unwrap_or("refused");
        not_run(&format!("calls::{test}"), "strace", last);
        return None;
    }
    // share, seconds, microseconds a call, calls, errors or nothing, name
    let line = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let name = words.last()?.to_owned();
        Some((name.to_owned(), words.get(3)?.parse().ok()?))
    };
    let table: BTreeMap<_, _> = text.lines().filter_map(line).collect();
    assert!(table.contains_key("execve"), "{text}");
    Some(table)
}

#[track_caller]
fn assert_calls(counted: Option<BTreeMap<String, i64>>, expected: &[(&str, i64)]) {
    let Some(mut counted) = counted else {
        return;
    };
    counted.remove("total");
    // Machines that never had the older call use the newer one.
    if let Some(calls) = counted.remove("open") {
        counted.insert("openat".to_owned(), calls);
    }
    if cfg!(debug_assertions) {
        // The standard library looks whether a descriptor is open before it closes it.
        counted.remove("fcntl");
    }
    let expected = expected
        .iter()
        .map(|(name, calls)| ((*name).to_owned(), *calls));
    assert_eq!(counted, expected.collect());
}

fn verdicts(proc: ProcFs, rounds: i64) {
    let own = ProcessIdentity::own(&proc).unwrap();
    let liveness = ProcLiveness::new(proc);
    for _ in 0..rounds {
        let verdict = liveness.judge(&own, ThisMachine);
        assert_eq!(verdict.name(), "alive");
    }
}

#[test]
fn few_verdicts_by_inode_are_alive() {
    verdicts(Kernels::new().pidfs, FEW);
}

#[test]
fn many_verdicts_by_inode_are_alive() {
    verdicts(Kernels::new().pidfs, MANY);
}

#[test]
fn a_verdict_by_inode_takes_four_calls() {
    let test = "a_verdict_by_inode_takes_four_calls";
    if !has_pidfs(&format!("calls::{test}")) {
        return;
    }
    let counted = calls(
        test,
        "few_verdicts_by_inode_are_alive",
        "many_verdicts_by_inode_are_alive",
    );
    let expected = [("pidfd_open", 1), ("fstat", 1), ("ppoll", 1), ("close", 1)];
    assert_calls(counted, &expected);
}

#[test]
fn few_verdicts_by_ticks_are_alive() {
    verdicts(Kernels::new().pidfd, FEW);
}

#[test]
fn many_verdicts_by_ticks_are_alive() {
    verdicts(Kernels::new().pidfd, MANY);
}

#[test]
fn a_verdict_by_ticks_takes_six_calls() {
    let counted = calls(
        "a_verdict_by_ticks_takes_six_calls",
        "few_verdicts_by_ticks_are_alive",
        "many_verdicts_by_ticks_are_alive",
    );
    let expected = [
        ("pidfd_open", 1),
        ("openat", 1),
        ("read", 1),
        ("ppoll", 1),
        ("close", 2),
    ];
    assert_calls(counted, &expected);
}

#[test]
fn a_verdict_asks_for_no_memory() {
    let kernels = Kernels::new();
    for proc in kernels.each() {
        let own = ProcessIdentity::own(proc).unwrap();
        let liveness = ProcLiveness::new(proc.clone());
        let judge = || assert_eq!(liveness.judge(&own, ThisMachine).name(), "alive");
        judge();
        assert_eq!(allocations(judge), 0, "{:?}", proc.kernel());
    }
    let own = ProcessIdentity::own(&kernels.pidfd).unwrap();
    let found = KeptProcess::open(&kernels.pidfd, &own, ThisMachine).unwrap();
    let Found::Running(kept) = found else {
        panic!("it runs");
    };
    let deaths = DeathWatch::new(&kernels.pidfd).unwrap();
    let _watched = deaths.watch(&own, ThisMachine).unwrap();
    let asked = allocations(|| {
        assert_eq!(kept.verdict().name(), "alive");
        assert!(deaths.wait(Some(Duration::ZERO)).unwrap().is_empty());
    });
    assert_eq!(asked, 0);
}

fn kept(rounds: i64) {
    let proc = ProcFs::system();
    let own = ProcessIdentity::own(&proc).unwrap();
    let Found::Running(kept) = KeptProcess::open(&proc, &own, ThisMachine).unwrap() else {
        panic!("it runs");
    };
    for _ in 0..rounds {
        assert_eq!(kept.verdict().name(), "alive");
    }
}

#[test]
fn few_verdicts_of_a_kept_process_are_alive() {
    kept(FEW);
}

#[test]
fn many_verdicts_of_a_kept_process_are_alive() {
    kept(MANY);
}

#[test]
fn a_verdict_of_a_kept_process_takes_one_call() {
    let counted = calls(
        "a_verdict_of_a_kept_process_takes_one_call",
        "few_verdicts_of_a_kept_process_are_alive",
        "many_verdicts_of_a_kept_process_are_alive",
    );
    assert_calls(counted, &[("ppoll", 1)]);
}

fn watches(rounds: i64) {
    let proc = ProcFs::system();
    let own = ProcessIdentity::own(&proc).unwrap();
    let deaths = DeathWatch::new(&proc).unwrap();
    for _ in 0..rounds {
        let Found::Running(id) = deaths.watch(&own, ThisMachine).unwrap() else {
            panic!("it runs");
        };
        assert!(deaths.forget(id));
    }
}

#[test]
fn few_watches_end_by_being_forgotten() {
    watches(FEW);
}

#[test]
fn many_watches_end_by_being_forgotten() {
    watches(MANY);
}

#[test]
fn a_watch_takes_two_calls_more_than_a_verdict() {
    let test = "a_watch_takes_two_calls_more_than_a_verdict";
    if !has_pidfs(&format!("calls::{test}")) {
        return;
    }
    let counted = calls(
        test,
        "few_watches_end_by_being_forgotten",
        "many_watches_end_by_being_forgotten",
    );
    let expected = [
        ("pidfd_open", 1),
        ("fstat", 1),
        ("ppoll", 1),
        ("epoll_ctl", 2),
        ("close", 1),
    ];
    assert_calls(counted, &expected);
}

fn dead_with_an_empty_group(rounds: i64) {
    let liveness = ProcLiveness::system();
    let mut child = Child::fork(|| {
        lead_a_group();
        wait_for_ever();
    });
    let process = ProcessIdentity::of(liveness.proc(), child.pid()).unwrap();
    child.kill();
    child.reap();
    let holder = ProcessHolder::new("editor", process).unwrap();
    let question = question(&holder, GROUP, None);
    for _ in 0..rounds {
        assert_eq!(liveness.observe(&question).name(), "dead");
    }
}

#[test]
fn few_holders_with_empty_groups_are_dead() {
    dead_with_an_empty_group(FEW);
}

#[test]
fn many_holders_with_empty_groups_are_dead() {
    dead_with_an_empty_group(MANY);
}

#[test]
fn an_empty_group_takes_one_call_more_than_the_death() {
    let test = "an_empty_group_takes_one_call_more_than_the_death";
    if !has_pidfs(&format!("calls::{test}")) {
        return;
    }
    let counted = calls(
        test,
        "few_holders_with_empty_groups_are_dead",
        "many_holders_with_empty_groups_are_dead",
    );
    // The death rests on a number, which means something to this very process only: one call more.
    let expected = [("pidfd_open", 1), ("getpid", 1), ("kill", 1)];
    assert_calls(counted, &expected);
}
