//! The caller's own processes.

use lease_procfs::work::ancestry;
use lease_procfs::{Exclusion, OccupancyExclusion, Pass, ProcFs, TargetPath};

use crate::crew::{FakeProc, pid};

/// The chain 600, 500, 400, 1.
fn chain(name: &str) -> FakeProc {
    let fake = FakeProc::new(name);
    fake.process(400, 1, 400, 4_000);
    fake.process(500, 400, 500, 5_000);
    fake.process(600, 500, 600, 6_000);
    fake
}

#[track_caller]
fn check(fake: &FakeProc, expected: &[i64]) {
    let expected: Vec<_> = expected.iter().map(|&number| pid(number)).collect();
    assert_eq!(ancestry(&fake.proc(), pid(600)), expected);
}

// B33
#[test]
fn ancestry_goes_up_to_the_first_process_and_leaves_it_out() {
    let fake = chain("ancestry");
    check(&fake, &[600, 500, 400]);
    // What cannot be read ends it, for want of a parent.
    fake.remove(500, "stat");
    check(&fake, &[600, 500]);
    fake.write(500, "stat", b"500 (sh S 400");
    check(&fake, &[600, 500]);
    // A repeat ends it.
    fake.stat(500, 600, 500, 5_000);
    fake.stat(600, 500, 600, 5_000);
    check(&fake, &[600, 500]);
    fake.stat(600, 600, 600, 5_000);
    check(&fake, &[600]);
    // Outside of the pid namespace there is no number.
    fake.stat(600, 0, 600, 5_000);
    check(&fake, &[600]);
    fake.stat(600, 1, 600, 5_000);
    check(&fake, &[600]);
}

#[test]
fn a_parents_number_with_a_later_owner_is_no_ancestor() {
    let fake = chain("later-owner");
    fake.stat(400, 1, 400, 5_001);
    check(&fake, &[600, 500]);
    // Nobody can tell within one tick.
    fake.stat(400, 1, 400, 5_000);
    check(&fake, &[600, 500, 400]);
}

#[test]
fn the_first_process_has_no_ancestry_of_its_own() {
    let fake = chain("first");
    assert_eq!(ancestry(&fake.proc(), pid(1)), []);
}

// B35, B107
#[test]
fn a_takeover_counts_the_callers_shell_and_a_release_for_another_does_not() {
    let fake = chain("exclusion");
    for number in [400, 500] {
        fake.link(number, "cwd", "/w/alloc-7");
    }
    let target = TargetPath::new("/w/alloc-7").unwrap();
    let pass = Pass::new(&fake.proc());
    let users = |excluded: &Exclusion| -> Vec<i32> {
        let found = pass.users_of(&target, excluded).unwrap();
        found.users.iter().map(|user| user.pid.get()).collect()
    };
    let caller: Exclusion = [pid(600)].into_iter().collect();
    assert_eq!(users(&caller), [400, 500]);
    let ancestry: Exclusion = ancestry(&fake.proc(), pid(600)).into_iter().collect();
    assert!(users(&ancestry).is_empty());
    // The first process is never part of it.
    fake.link(1, "cwd", "/w/alloc-7");
    let later = Pass::new(&fake.proc());
    let found = later.users_of(&target, &ancestry).unwrap();
    assert_eq!(found.users.len(), 1);
    assert_eq!(found.users[0].pid, pid(1));
}

#[test]
fn this_process_and_its_parent_are_among_the_callers_ancestry() {
    let proc = ProcFs::system();
    let own = pid(rustix::process::getpid().as_raw_nonzero().get().into());
    let caller = Exclusion::of(&proc, OccupancyExclusion::Caller);
    assert_eq!(caller.pids(), [own]);
    let ancestry = Exclusion::of(&proc, OccupancyExclusion::CallerAncestry);
    assert!(ancestry.contains(own) && !ancestry.contains(pid(1)));
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
    assert!(parent == 1 || ancestry.contains(pid(parent.into())));
    assert_eq!(Exclusion::nobody().pids(), []);
}
