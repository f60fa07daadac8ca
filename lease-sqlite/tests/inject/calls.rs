//! One call fails at a time; what is granted, held and left is asked of the kernel.

use std::fs;
use std::time::Duration;

use lease_sqlite::{AcquireError, LockOptions, WaitBudget};

use crate::rig::{Place, Victim, has_strace};

/// More than any of these calls is made in one round.
const MOST: u32 = 40;

/// How many faults were met, and how many of them an acquire told of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    faults: u32,
    errors: u32,
    /// As somebody in the way, who was not there.
    busy: u32,
    /// Unlocks that failed without SQLite saying so, and were told of.
    deaf: u32,
}

/// Lets a call of acquire, check and release fail, each of them in a round of its own.
///
/// With `warm` the lock was held before; else each round is the first one on its path.
fn each(call: &str, how: &str, warm: bool) -> Seen {
    each_after(call, how, warm, |_| ())
}

/// As `each`, with something done to the files before each round.
fn each_after(call: &str, how: &str, warm: bool, before: impl Fn(&Place)) -> Seen {
    let mut seen = Seen::default();
    let mut victim = Victim::start();
    let mut place = Place::new();
    victim.opens(&place);
    if warm {
        holds(&mut victim);
    }
    for number in 1..=MOST {
        before(&place);
        let tracer = victim.with(&place, call, how, number);
        let answer = victim.does("acquire");
        let is_granted = answer == "granted";
        let what = format!("{call}, {how}, number {number}: {answer}");
        assert_eq!(victim.has_lock(&place.mutex()), is_granted, "{what}");
        if is_granted {
            let check = victim.does("check");
            let released = victim.does("release");
            assert!(check.starts_with("Some("), "{what}: {check}");
            assert!(released.starts_with("Some("), "{what}: {released}");
            seen.deaf += u32::from(released.contains("step: Unlock"));
        } else {
            assert!(!answer.contains("read-only"), "{what}: it is none");
            names_path_and_step(&answer, &place);
        }
        let fault = tracer.end();
        let Some(fault) = fault else {
            assert!(is_granted, "{what}: without a fault");
            return seen;
        };
        let left = victim.locks(&place.mutex());
        assert!(left.is_empty(), "{what}: {left:?} after {fault}");
        seen.faults += 1;
        seen.errors += u32::from(!is_granted);
        seen.busy += u32::from(answer.contains(" is busy"));
        nothing_is_left(&place, &format!("{what} by {fault}"));
        others_get_in(&place, &what);
        holds(&mut victim);
        if !warm {
            place = Place::new();
            victim.opens(&place);
        }
    }
    panic!("{call}: more than {MOST} in one round");
}

/// A round without a fault.
#[track_caller]
fn holds(victim: &mut Victim) {
    assert_eq!(victim.does("acquire"), "granted");
    assert_eq!(victim.does("check"), "Some(Ok(()))");
    assert_eq!(victim.does("release"), "Some(Ok(Lock))");
}

/// `error write lock: open of "/tmp/app.db.write-lock" failed`
#[track_caller]
fn names_path_and_step(answer: &str, place: &Place) {
    let path = place.directory.to_str().unwrap();
    let steps = [
        "create", "open", "begin", "fence", "adopt", "write", "commit", "unlock",
    ];
    let has_step = steps
        .iter()
        .any(|step| answer.contains(&format!(": {step} of \"")));
    let is_own_name = answer.contains("/proc/self");
    // A record of which nobody can see what it is keeps out, and is named.
    let has_step = has_step
        || answer.contains("\" cannot be a mutex: ")
        || answer.contains(".write-lock\" is busy: ");
    let has_path = answer.contains(path) || is_own_name;
    assert!(has_step && has_path, "{answer}");
}

/// Only the files of the lock are there, each what it should be. A name that could not be removed
/// again is a file too many, and nothing more.
#[track_caller]
fn nothing_is_left(place: &Place, what: &str) {
    let could_not_remove = what.starts_with("unlink") || what.starts_with("statx");
    let unfinished = ["app.db.write-lock.mutex.new-", "app.db.write-lock.new-"];
    let names: Vec<_> = place
        .names()
        .into_iter()
        .filter(|name| !could_not_remove || !unfinished.iter().any(|it| name.starts_with(it)))
        .collect();
    let known = ["app.db.write-lock", "app.db.write-lock.mutex"];
    assert!(
        names.iter().all(|name| known.contains(&&**name)),
        "{what}: {names:?}"
    );
    if place.mutex().exists() {
        // Nobody in this process holds.
        assert_eq!(fs::read(place.mutex()).unwrap().len(), 4_096, "{what}");
    }
}

/// The next one gets in at once, whatever happened.
#[track_caller]
fn others_get_in(place: &Place, what: &str) {
    let lock = LockOptions::new()
        .role("next")
        .open(place.database())
        .unwrap();
    let hold = lock.acquire(WaitBudget::NOW);
    let hold = hold.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    hold.check().unwrap();
    hold.release().unwrap();
    let record = fs::read(place.record()).unwrap();
    assert_eq!(record.len(), 1_024, "{what}");
}

/// The calls of one round are as many as were met, and some of them matter to whoever acquires.
#[track_caller]
fn check(call: &str, how: &str, faults: u32, errors: u32) {
    let seen = each(call, how, true);
    let (deaf, expected) = (seen.deaf, (faults, errors, 0));
    assert_eq!((seen.faults, seen.errors, deaf), expected, "{call}");
}

#[test]
fn a_call_of_sqlite_that_fails_is_an_error_or_a_hold_and_never_both() {
    if !has_strace("calls::a_call_of_sqlite_that_fails_is_an_error_or_a_hold_and_never_both") {
        return;
    }
    let seen = each("fcntl", "error=EIO", true);
    assert!(seen.faults >= 9 && seen.errors >= 4, "{seen:?}");
    assert_eq!(seen.deaf, 1, "{seen:?}");
}

#[test]
fn a_kernel_without_locks_grants_nothing_and_keeps_nothing() {
    if !has_strace("calls::a_kernel_without_locks_grants_nothing_and_keeps_nothing") {
        return;
    }
    let seen = each("fcntl", "error=ENOLCK", true);
    assert!(seen.faults >= 9 && seen.errors >= 1, "{seen:?}");
    // The last unlock of COMMIT, of which SQLite says that all is well.
    assert_eq!(seen.deaf, 1, "{seen:?}");
}

// C14
#[test]
fn a_look_that_fails_is_an_error_that_gives_the_lock_back() {
    if !has_strace("calls::a_look_that_fails_is_an_error_that_gives_the_lock_back") {
        return;
    }
    // Two under the lock, and those of the check, of which an acquire knows nothing.
    check("statx", "error=EIO", 4, 2);
    check("statx", "error=EACCES", 4, 2);
}

// C30
#[test]
fn a_record_that_cannot_be_written_is_an_error_that_gives_the_lock_back() {
    if !has_strace("calls::a_record_that_cannot_be_written_is_an_error_that_gives_the_lock_back") {
        return;
    }
    for how in [
        "error=EIO",
        "error=ENOSPC",
        "error=EDQUOT",
        "retval=512",
        "retval=0",
    ] {
        check("pwrite64", how, 1, 1);
    }
    // Interrupted is not failed.
    check("pwrite64", "error=EINTR", 1, 0);
}

#[test]
fn what_sqlite_reads_and_looks_at_may_fail() {
    if !has_strace("calls::what_sqlite_reads_and_looks_at_may_fail") {
        return;
    }
    for (call, how) in [
        ("pread64", "error=EIO"),
        ("pread64", "retval=0"),
        ("newfstatat", "error=EIO"),
        ("newfstatat", "error=EACCES"),
    ] {
        assert!(each(call, how, true).faults >= 1, "{call} {how}");
    }
}

#[test]
fn the_first_acquire_on_a_path_survives_a_fault_at_each_call_that_makes_files() {
    if !has_strace(
        "calls::the_first_acquire_on_a_path_survives_a_fault_at_each_call_that_makes_files",
    ) {
        return;
    }
    for (call, how) in [
        ("pwrite64", "error=ENOSPC"),
        ("link,linkat", "error=EPERM"),
        ("unlink,unlinkat", "error=EACCES"),
    ] {
        let seen = each(call, how, false);
        assert!(seen.faults >= 1, "{call} {how}: {seen:?}");
        assert!(!call.starts_with("link") || seen.errors == 1, "{seen:?}");
    }
    // Somebody was faster, and what that one made is used.
    let seen = each("link,linkat", "error=EEXIST", false);
    assert_eq!((seen.faults, seen.errors), (1, 0), "{seen:?}");
}

// fault B12
#[test]
fn who_is_slow_at_a_first_write_is_not_robbed_and_who_is_killed_there_keeps_nobody_out() {
    if !has_strace(
        "calls::who_is_slow_at_a_first_write_is_not_robbed_and_who_is_killed_there_keeps_nobody_out",
    ) {
        return;
    }
    let mut under_the_lock = 0;
    for number in 1..=MOST {
        let (mut victim, place) = (Victim::start(), Place::new());
        victim.opens(&place);
        let what = format!("before write {number} of the first acquire on a path");
        let tracer = victim.with(&place, "pwrite64", "delay_enter=60000000", number);
        victim.order("acquire");
        let answer = loop {
            let heard = victim.heard_within(Duration::from_millis(1));
            if heard.is_some() || victim.is_kept() {
                break heard;
            }
        };
        if let Some(answer) = answer {
            assert_eq!(answer, "granted", "{what}");
            drop(tracer);
            assert!(number > 2, "the mutex and the record are written");
            assert!(under_the_lock > 0, "some are written under the lock");
            return;
        }
        if victim.has_lock(&place.mutex()) {
            under_the_lock += 1;
            let options = LockOptions::new().role("next");
            let next = options.open(place.database()).unwrap();
            let robbed = next.acquire(WaitBudget::NOW);
            assert!(
                matches!(robbed, Err(AcquireError::Busy(_))),
                "{what}: {robbed:?}"
            );
        }
        // It does not come back from where it is kept, and is gone once nobody keeps it there.
        victim.dismiss().kill().unwrap();
        drop(tracer);
        drop(victim);
        others_get_in(&place, &what);
    }
    panic!("more than {MOST} writes in one round");
}

#[test]
fn the_first_acquire_on_a_path_survives_a_fault_at_each_call_that_opens() {
    if !has_strace("calls::the_first_acquire_on_a_path_survives_a_fault_at_each_call_that_opens") {
        return;
    }
    let seen = each("open,openat", "error=EMFILE", false);
    assert!(seen.faults >= 4 && seen.errors >= 2, "{seen:?}");
}

#[test]
fn the_first_acquire_on_a_path_survives_a_fault_at_each_sync_and_lock() {
    if !has_strace("calls::the_first_acquire_on_a_path_survives_a_fault_at_each_sync_and_lock") {
        return;
    }
    let seen = each("fsync,fdatasync", "error=EIO", false);
    assert!(seen.faults >= 1 && seen.errors >= 1, "{seen:?}");
    let seen = each("fcntl", "error=EIO", false);
    assert!(seen.faults >= 9, "{seen:?}");
}

// C14, C42
#[test]
fn a_record_that_cannot_be_adopted_is_an_error_that_gives_the_lock_back() {
    if !has_strace("calls::a_record_that_cannot_be_adopted_is_an_error_that_gives_the_lock_back") {
        return;
    }
    // Longer than a record, so that it is cut too.
    let peer = |place: &Place| {
        let record = "{\"protocol\":2,\"pid\":1,\"token\":\"1:0:ab:1\",\"created_at_ms\":5}";
        let other = place.record().with_extension("other");
        fs::write(&other, format!("{record:<1500}")).unwrap();
        fs::rename(other, place.record()).unwrap();
    };
    for (call, how) in [
        ("open,openat", "error=EMFILE"),
        ("open,openat", "error=EIO"),
        ("ftruncate", "error=EIO"),
        ("pread64", "error=EIO"),
        ("statx", "error=EIO"),
        ("pwrite64", "error=ENOSPC"),
        ("fcntl", "error=ENOLCK"),
    ] {
        let seen = each_after(call, how, true, peer);
        assert!(seen.faults >= 1, "{call} {how}: {seen:?}");
    }
    // It has gone since it was seen: whoever took it away is in the way.
    let seen = each_after("open,openat", "error=ENOENT", true, peer);
    assert_eq!(seen.busy, 1, "{seen:?}");
}

#[cfg(feature = "legacy-v1")]
#[test]
fn a_dead_claim_that_cannot_be_removed_leaves_nothing_locked() {
    if !has_strace("calls::a_dead_claim_that_cannot_be_removed_leaves_nothing_locked") {
        return;
    }
    let claim = |place: &Place| {
        let claim = "{\"pid\":4194303,\"token\":\"old\",\"created_at_ms\":5}";
        let other = place.record().with_extension("other");
        fs::write(&other, claim).unwrap();
        fs::rename(other, place.record()).unwrap();
    };
    for (call, how) in [
        ("renameat2", "error=EINVAL"),
        ("renameat2", "error=EIO"),
        ("open,openat", "error=EMFILE"),
        ("statx", "error=EIO"),
    ] {
        let seen = each_after(call, how, true, claim);
        assert!(
            seen.faults >= 1 && seen.errors >= 1,
            "{call} {how}: {seen:?}"
        );
        // Nobody is in the way of a file system that cannot do it.
        assert!(call != "renameat2" || seen.busy == 0, "{how}: {seen:?}");
    }
}

/// Lets a call fail while somebody waits, or is let in.
fn each_while_waiting(call: &str, how: &str) -> u32 {
    const RELEASED_AFTER: Duration = Duration::from_millis(30);
    let mut victim = Victim::start();
    let place = Place::new();
    victim.opens(&place);
    holds(&mut victim);
    let lock = LockOptions::new().open(place.database()).unwrap();
    for number in 1..=MOST {
        let hold = lock.acquire(WaitBudget::NOW).unwrap();
        let tracer = victim.with(&place, call, how, number);
        victim.order("wait");
        let early = victim.heard_within(RELEASED_AFTER);
        hold.release().unwrap();
        let answer = early.unwrap_or_else(|| victim.answer());
        let is_granted = answer == "granted";
        let what = format!("{call}, {how}, number {number}: {answer}");
        assert_eq!(victim.has_lock(&place.mutex()), is_granted, "{what}");
        if is_granted {
            let released = victim.does("release");
            assert!(released.starts_with("Some("), "{what}: {released}");
        } else {
            names_path_and_step(&answer, &place);
        }
        let fault = tracer.end();
        let left = victim.locks(&place.mutex());
        assert!(left.is_empty(), "{what}: {left:?} after {fault:?}");
        others_get_in(&place, &what);
        if fault.is_none() {
            assert!(is_granted, "{what}: without a fault");
            return number - 1;
        }
        holds(&mut victim);
    }
    MOST
}

#[test]
fn whoever_waits_survives_a_fault_at_each_call() {
    if !has_strace("calls::whoever_waits_survives_a_fault_at_each_call") {
        return;
    }
    for (call, how) in [
        ("ppoll,poll", "error=EINTR"),
        ("pidfd_open", "error=EMFILE"),
        ("eventfd2", "error=EMFILE"),
        ("clone3,clone", "error=EAGAIN"),
        ("fcntl", "error=ENOLCK"),
    ] {
        let faults = each_while_waiting(call, how);
        assert!(faults >= 1, "{call} {how}");
    }
}
