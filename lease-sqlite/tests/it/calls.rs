//! How many system calls a hold costs, counted from outside.

use std::collections::BTreeMap;
use std::fs;

use crate::rig::{Place, Writer, has_strace};

/// Calls of the test's own talk, of the allocator and of threads.
const NOT_OURS: [&str; 8] = [
    "brk", "futex", "madvise", "mmap", "mprotect", "munmap", "read", "write",
];

type Calls = BTreeMap<String, i64>;

/// Counts the system calls of a second process that obeys one order.
fn calls_of(order: &str) -> Calls {
    let place = Place::new();
    let log = place.directory.join("calls");
    let log_name = log.to_str().unwrap();
    let mut writer = Writer::start_with(&place, &["strace", "-f", "-qq", "-o", log_name]);
    assert_eq!(writer.does(order), "done");
    writer.ends();
    let mut calls = Calls::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        // `123 fcntl(4, F_SETLK, ..` begins a call; `<... fcntl resumed>` goes on with one.
        let call = line
            .split_once(' ')
            .map_or("", |(_, call)| call.trim_start());
        let name = call.split_once('(').map_or("", |(name, _)| name);
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name && !name.is_empty() && !NOT_OURS.contains(&name) {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// What the second costs beyond the first.
fn difference(less: &Calls, more: &Calls) -> Vec<(String, i64)> {
    let names: Calls = less.clone().into_iter().chain(more.clone()).collect();
    let differences = names.into_keys().map(|name| {
        let count = |calls: &Calls| calls.get(&name).copied().unwrap_or(0);
        let difference = count(more) - count(less);
        (name, difference)
    });
    differences.filter(|(_, count)| *count != 0).collect()
}

// C33
#[test]
fn a_hold_costs_eighteen_system_calls() {
    if !has_strace("calls::a_hold_costs_eighteen_system_calls") {
        return;
    }
    let extra = difference(&calls_of("pairs 100"), &calls_of("pairs 200"));
    let total: i64 = extra.iter().map(|(_, count)| count).sum();
    assert_eq!(total, 18 * 100, "{extra:?}");
    let of = |name: &str| {
        let found = extra.iter().find(|(found, _)| found == name);
        found.map_or(0, |(_, count)| *count)
    };
    // Nine of SQLite, and the gate closed and opened.
    assert_eq!(of("fcntl"), (9 + 2) * 100, "{extra:?}");
    assert_eq!(of("statx"), 2 * 100, "{extra:?}");
    assert_eq!(of("pwrite64"), 100, "{extra:?}");
    assert_eq!(of("pread64"), 100, "{extra:?}");
}

// C60
#[test]
fn an_entry_into_ones_own_hold_costs_no_system_call() {
    if !has_strace("calls::an_entry_into_ones_own_hold_costs_no_system_call") {
        return;
    }
    let few = calls_of("entries 2");
    let many = calls_of("entries 300");
    assert_eq!(difference(&few, &many), []);
}

// C46
#[test]
fn what_is_no_regular_file_is_never_opened() {
    if !has_strace("calls::what_is_no_regular_file_is_never_opened") {
        return;
    }
    for is_pipe in [true, false] {
        let place = Place::new();
        if is_pipe {
            let made = std::process::Command::new("mkfifo")
                .arg(place.record())
                .status();
            assert!(made.unwrap().success());
        } else {
            fs::write(place.directory.join("victim"), "").unwrap();
            std::os::unix::fs::symlink("victim", place.record()).unwrap();
        }
        let log = place.directory.join("calls");
        let log_name = log.to_str().unwrap();
        let tracer = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=openat,open",
            "-o",
            log_name,
        ];
        let mut writer = Writer::start_with(&place, &tracer);
        let told = writer.does("acquire 0");
        assert!(told.starts_with("busy NotARegularFile"), "{told}");
        writer.ends();
        let record = format!("{}\"", place.record().display());
        let log = fs::read_to_string(log).unwrap();
        let opens: Vec<&str> = log.lines().filter(|line| line.contains(&record)).collect();
        // Making it exclusively opens nothing that is there.
        assert!(
            !opens.is_empty() && opens.iter().all(|line| line.contains("O_EXCL")),
            "{opens:?}"
        );
    }
}
