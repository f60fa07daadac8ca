//! How many system calls a hold costs, counted from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{BOUND, Place, Writer, has_strace, now, said, until};
use crate::turns::waiting_at_gate;

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

#[test]
fn a_first_hold_opens_the_record_twice_and_reads_no_file_to_its_end() {
    if !has_strace("calls::a_first_hold_opens_the_record_twice_and_reads_no_file_to_its_end") {
        return;
    }
    let extra = difference(&calls_of("cold 20"), &calls_of("cold 40"));
    let each = |names: &[&str]| {
        let found = extra.iter().filter(|(found, _)| names.contains(&&**found));
        let all: i64 = found.map(|(_, count)| *count).sum();
        // A program may start with a call more or less.
        (all + 10) / 20
    };
    // The mutex by SQLite; the record by the sweep, and once for gate, reading and writing.
    assert_eq!(each(&["open", "openat"]), 3, "{extra:?}");
    // SQLite's descriptor is found without a list.
    assert_eq!(each(&["getdents64"]), 0, "{extra:?}");
    // The record by the sweep and under the lock; the mutex twice by SQLite, and its header before and
    // under the lock.
    assert_eq!(each(&["pread64"]), 6, "{extra:?}");
    assert_eq!(each(&["pwrite64"]), 1, "{extra:?}");
    // What the database is, twice the record in the sweep, twice at the gate, once under the lock; what the
    // mutex and its journal are and the mutex once more under the lock, and twice SQLite's descriptor.
    assert!(each(&["statx"]) <= 11, "{extra:?}");
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

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// What somebody who opens the lock and tries once is told, and how it opened this path.
fn opens_of(place: &Place, path: &Path) -> (String, Vec<String>) {
    let log = place.directory.join("calls");
    let log_name = log.to_str().unwrap();
    let which = "trace=openat,open";
    let tracer = ["strace", "-f", "-qq", "-e", which, "-o", log_name];
    let mut writer = Writer::start_with(place, &tracer);
    let told = writer.does("acquire 0");
    writer.ends();
    let name = format!("{}\"", path.display());
    let log = fs::read_to_string(log).unwrap();
    let opens = log.lines().filter(|line| line.contains(&name));
    (told, opens.map(str::to_owned).collect())
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
            make_pipe(&place.record());
        } else {
            fs::write(place.directory.join("victim"), "").unwrap();
            std::os::unix::fs::symlink("victim", place.record()).unwrap();
        }
        let (told, opens) = opens_of(&place, &place.record());
        assert!(told.starts_with("busy NotARegularFile"), "{told}");
        assert_eq!(opens, [""; 0]);
    }
}

#[test]
fn a_pipe_in_the_place_of_a_mutex_is_not_opened_to_sweep() {
    if !has_strace("calls::a_pipe_in_the_place_of_a_mutex_is_not_opened_to_sweep") {
        return;
    }
    let place = Place::new();
    let mut former = Writer::start(&place);
    assert_eq!(former.does("acquire 0"), "granted depth=1");
    former.kill();
    fs::remove_file(place.mutex()).unwrap();
    make_pipe(&place.mutex());
    let (told, opens) = opens_of(&place, &place.mutex());
    assert!(!told.starts_with("granted"), "{told}");
    assert_eq!(opens, [""; 0]);
    assert!(place.record().is_file());
}

/// What the thread that signed did from its wake-up to its signature, by a trace of every thread.
fn from_wake_up_to_signature(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let is_signature = |line: &&str| line.contains("pwrite64(") && line.contains("protocol");
    let signed = lines.iter().rposition(is_signature).unwrap();
    let thread = lines[signed].split(' ').next();
    let until_then = lines[..=signed].iter();
    let of_thread = until_then.filter(|line| line.split(' ').next() == thread);
    let mut calls: Vec<String> = Vec::new();
    for line in of_thread {
        let call = line
            .split_once(' ')
            .map_or("", |(_, call)| call.trim_start());
        if call.contains("ppoll") && call.contains("revents=POLLIN") {
            calls.clear();
        } else if !call.starts_with("<...") {
            calls.push(call.to_owned());
        }
    }
    calls
}

#[test]
fn nobody_sleeps_between_a_release_and_the_next_grant() {
    if !has_strace("calls::nobody_sleeps_between_a_release_and_the_next_grant") {
        return;
    }
    let place = Place::new();
    let lock = place.lock();
    let log = place.directory.join("calls");
    let log_name = log.to_str().unwrap();
    let tracer = ["strace", "-f", "-qq", "-o", log_name];
    let mut writer = Writer::start_with(&place, &tracer);
    assert_eq!(writer.does("pairs 1"), "done");
    // It waits behind a record of its own.
    let hold = now(&lock).unwrap();
    writer.order(&format!("acquire {}", BOUND.as_millis()));
    until("it waits", || waiting_at_gate(&place) > 0);
    hold.release().unwrap();
    assert_eq!(writer.answer(), "granted depth=1");
    writer.ends();
    let mut calls = from_wake_up_to_signature(&fs::read_to_string(log).unwrap());
    // A mutex in memory that another thread is just leaving; without a time it is no sleep.
    calls.retain(|call| !call.starts_with("futex(") || call.contains("tv_sec"));
    let sleeps = ["poll", "nanosleep", "select", "tv_sec"];
    let is_sleep = |call: &&String| sleeps.iter().any(|name| call.contains(name));
    assert_eq!(calls.iter().find(is_sleep), None, "{calls:#?}");
    // `BEGIN EXCLUSIVE`, both files looked at, and the record.
    said(&format!("{} calls from wake-up to signature", calls.len()));
    assert!(calls.len() <= 13, "{calls:#?}");
}

/// What the thread at the gate did from its wake-up until it had rung.
fn from_gate_to_bell(log: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let mut thread = None;
    for line in log.lines() {
        let (id, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if call.contains("F_OFD_SETLKW") {
            (thread, calls) = (Some(id), Vec::new());
        } else if thread == Some(id) && !call.starts_with("<...") {
            calls.push(call.to_owned());
            if call.starts_with("write(") {
                break;
            }
        }
    }
    calls
}

#[test]
fn who_waits_behind_a_holder_rings_at_once_and_who_waits_behind_a_waiter_goes_its_way_first() {
    if !has_strace(
        "calls::who_waits_behind_a_holder_rings_at_once_and_who_waits_behind_a_waiter_goes_its_way_first",
    ) {
        return;
    }
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let acquire = format!("acquire {}", BOUND.as_millis());
    let mut holder = Writer::start(&place);
    holder.order(&acquire);
    until("it waits", || waiting_at_gate(&place) > 0);
    hold.release().unwrap();
    assert_eq!(holder.answer(), "granted depth=1");
    let logs = ["first", "second"].map(|name| place.directory.join(name));
    let mut waiters = logs.each_ref().map(|log| {
        let tracer = ["strace", "-f", "-qq", "-o", log.to_str().unwrap()];
        Writer::start_with(&place, &tracer)
    });
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.order(&acquire);
        until("it waits", || waiting_at_gate(&place) > number);
    }
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    for waiter in &mut waiters {
        assert_eq!(waiter.answer(), "granted depth=1");
        assert_eq!(waiter.does("release"), "Some(Ok(Lock))");
        waiter.ends();
    }
    let [first, second] = logs.map(|log| {
        let calls = from_gate_to_bell(&fs::read_to_string(log).unwrap());
        let names = calls.iter().map(|call| call.split('(').next().unwrap());
        // A mutex in memory that another thread is just leaving.
        let names = names.filter(|name| *name != "futex");
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(first, ["write"]);
    assert_eq!(second, ["fcntl", "write"]);
}
