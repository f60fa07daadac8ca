//! Users of a dead holder's paths, for real.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lease_core::{HolderLiveness as _, Verdict};
use lease_procfs::{
    DescribeError, Exclusion, Matching, OccupancyExclusion, Pass, ProcFs, ProcLiveness,
    ProcessGroup, ProcessHolder, ProcessIdentity, TargetPath,
};

use crate::crew::{
    BOTH, GROUP, Orphan, PATHS, Place, ask, lead_a_group, leaderless, question, recorded, told,
    under_hidden_proc, wrapper,
};
use crate::rig::{Missing, Space, isolated, not_run};
use crate::sys::{self, Child};

/// A holder that has run and is gone without a trace.
pub(crate) fn dead(proc: &ProcFs) -> ProcessHolder {
    let mut child = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    let holder = ProcessHolder::new("editor", ProcessIdentity::of(proc, child.pid()).unwrap());
    child.kill();
    child.reap();
    holder.unwrap()
}

/// Forks a process that is at work, ours from the beginning.
pub(crate) fn user(work: impl FnOnce()) -> Orphan {
    let (mut parent, user) = wrapper(|| {}, work);
    parent.kill();
    parent.reap();
    user
}

fn verdict(holder: &ProcessHolder, target: &Path) -> Verdict {
    ask(&ProcLiveness::system(), holder, BOTH, Some(target))
}

#[track_caller]
fn is_used_by(holder: &ProcessHolder, target: &Path, user: &Orphan, by: &str) {
    let expected = format!("occupied: path_in_use {} ({by})", user.pid);
    assert_eq!(told(&verdict(holder, target)), expected);
}

#[track_caller]
fn is_free(holder: &ProcessHolder, target: &Path) {
    assert_eq!(told(&verdict(holder, target)), "dead: no_such_process");
}

// S25, B34, B37
#[test]
fn a_writer_without_a_lease_keeps_the_path_of_a_dead_holder() {
    let place = Place::new("writer");
    let target = place.join("alloc-7");
    let neighbour = place.join("alloc-70");
    for directory in [&target, &neighbour] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("x"), "0123456789").unwrap();
    }
    let holder = dead(&ProcFs::system());
    is_free(&holder, &target);
    let at = |path: &Path| {
        let path = path.to_owned();
        user(move || std::env::set_current_dir(path).unwrap())
    };
    is_used_by(&holder, &target, &at(&target), "cwd");
    let file = target.join("x");
    let open = user(|| keep(File::open(&file).unwrap()));
    is_used_by(&holder, &target, &open, "fd");
    drop(open);
    let mapped = user(|| sys::map(&File::open(&file).unwrap()));
    is_used_by(&holder, &target, &mapped, "map");
    drop(mapped);
    is_free(&holder, &target);
    let beside = user(|| keep(File::open(neighbour.join("x")).unwrap()));
    is_free(&holder, &target);
    drop(beside);
    let above = at(place.path());
    is_free(&holder, &target);
    drop(above);
    // Removed and made again: the old directory's user still counts, for root and below.
    let inside = at(&target);
    fs::remove_dir_all(&target).unwrap();
    is_used_by(&holder, &target, &inside, "cwd");
    fs::create_dir(&target).unwrap();
    is_used_by(&holder, &target, &inside, "cwd");
    drop(inside);
    is_free(&holder, &target);
}

/// Leaves a file open for the life of a forked child.
pub(crate) fn keep(file: File) {
    let _descriptor = std::os::fd::IntoRawFd::into_raw_fd(file);
}

#[test]
fn a_child_in_another_session_is_found_by_what_it_uses() {
    let place = Place::new("session");
    let target = place.path().to_owned();
    let (mut holder, worker) = wrapper(lead_a_group, move || {
        rustix::process::setsid().unwrap();
        std::env::set_current_dir(target).unwrap();
    });
    let liveness = ProcLiveness::system();
    let record = recorded(liveness.proc(), holder.pid());
    holder.kill();
    holder.reap();
    assert_eq!(
        told(&ask(&liveness, &record, GROUP, None)),
        "dead: no_such_process"
    );
    is_used_by(&record, place.path(), &worker, "cwd");
    worker.end();
    is_free(&record, place.path());
}

#[test]
fn a_target_may_have_any_name() {
    let place = Place::new("name");
    let target = place.join(OsStr::from_bytes(b"a\nb \xff\\012"));
    fs::create_dir(&target).unwrap();
    let file = target.join("x");
    fs::write(&file, "0123456789").unwrap();
    let holder = dead(&ProcFs::system());
    let inside = {
        let target = target.clone();
        user(move || std::env::set_current_dir(target).unwrap())
    };
    is_used_by(&holder, &target, &inside, "cwd");
    drop(inside);
    let mapped = user(|| sys::map(&File::open(&file).unwrap()));
    is_used_by(&holder, &target, &mapped, "map");
    is_free(&holder, &place.join(OsStr::from_bytes(b"a")));
    // A mapped file whose own name is removed, too.
    fs::remove_file(&file).unwrap();
    is_used_by(&holder, &target, &mapped, "map");
    is_used_by(&holder, &file, &mapped, "map");
}

// B42
#[test]
fn a_target_with_a_symbolic_link_is_asked_about_where_it_leads() {
    let place = Place::new("linked");
    let real = place.join("w");
    fs::create_dir(&real).unwrap();
    let link = place.join("home");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let holder = dead(&ProcFs::system());
    let there = real.clone();
    let inside = user(move || std::env::set_current_dir(there).unwrap());
    is_used_by(&holder, &link, &inside, "cwd");
    // What was removed and replaced by a link is still in use.
    let other = place.join("other");
    fs::create_dir(&other).unwrap();
    fs::remove_dir(&real).unwrap();
    std::os::unix::fs::symlink(&other, &real).unwrap();
    is_used_by(&holder, &real, &inside, "cwd");
    // Where it leads cannot be told.
    let circle = place.join("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    assert_eq!(
        told(&verdict(&holder, &circle)),
        "unknown: occupancy_failed"
    );
}

#[test]
fn a_process_whose_leader_thread_exited_still_uses_what_its_threads_use() {
    let place = Place::new("threads");
    let holder = dead(&ProcFs::system());
    let target = place.path().to_owned();
    let worker = leaderless(move || std::env::set_current_dir(target).unwrap());
    let line = fs::read(format!("/proc/{}/stat", worker.pid)).unwrap();
    assert_eq!(lease_procfs::Stat::parse(&line).unwrap().state, b'Z');
    assert!(fs::read_link(format!("/proc/{}/cwd", worker.pid)).is_err());
    is_used_by(&holder, place.path(), &worker, "cwd");
}

/// Shows a directory at another place, in the present mount namespace.
fn bind(shown: &Path, point: &Path) -> Result<(), Missing> {
    rustix::mount::mount_bind(shown, point).map_err(|errno| ("mount-namespaces", errno.to_string()))
}

// B34
#[test]
fn a_user_through_another_mount_is_found_in_our_mount_namespace() {
    let name = "occupancy::a_user_through_another_mount_is_found_in_our_mount_namespace";
    isolated(name, Space::Pid, || {
        let place = Place::new("mounts");
        let target = place.join("w/alloc-7");
        let below = target.join("a/b");
        fs::create_dir_all(&below).unwrap();
        let points = ["one", "two"].map(|point| place.join(point));
        for point in &points {
            fs::create_dir(point).unwrap();
        }
        let holder = dead(&ProcFs::system());
        // The parent of the target, and a part of the target.
        bind(&place.join("w"), &points[0])?;
        bind(&below, &points[1])?;
        let checks = [
            (points[0].join("alloc-7"), true),
            (points[0].join("alloc-7/a"), true),
            (points[0].clone(), false),
            (points[1].clone(), true),
            (place.path().to_owned(), false),
        ];
        for (path, counts) in checks {
            let inside = user(move || std::env::set_current_dir(path).unwrap());
            if counts {
                is_used_by(&holder, &target, &inside, "cwd");
            } else {
                is_free(&holder, &target);
            }
        }
        for point in &points {
            rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        Ok(())
    });
}

// B34
#[test]
fn a_user_in_a_container_is_found_under_the_name_it_has_there() {
    let name = "occupancy::a_user_in_a_container_is_found_under_the_name_it_has_there";
    isolated(name, Space::Pid, || {
        let place = Place::new("container");
        let target = place.join("w/alloc-7");
        fs::create_dir_all(target.join("a/b")).unwrap();
        fs::write(target.join("a/b/x"), "0123456789").unwrap();
        let point = place.join("work");
        fs::create_dir(&point).unwrap();
        let holder = dead(&ProcFs::system());
        // We do not see what is mounted in there.
        let enter = || {
            sys::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
            rustix::mount::mount_bind(&target, &point).unwrap();
            point.clone()
        };
        let inside = user(|| std::env::set_current_dir(enter()).unwrap());
        is_used_by(&holder, &target, &inside, "cwd");
        drop(inside);
        let open = user(|| keep(File::open(enter().join("a/b/x")).unwrap()));
        is_used_by(&holder, &target, &open, "fd");
        is_used_by(&holder, &target.join("a/b/x"), &open, "fd");
        is_free(&holder, &target.join("c"));
        drop(open);
        let mapped = user(|| sys::map(&File::open(enter().join("a/b/x")).unwrap()));
        is_used_by(&holder, &target, &mapped, "map");
        drop(mapped);
        is_free(&holder, &target);
        Ok(())
    });
}

// B35, B107, S29
#[test]
fn a_shell_in_the_path_keeps_a_takeover_and_not_a_release_asked_for_in_it() {
    let place = Place::new("shell");
    let holder = dead(&ProcFs::system());
    let target = place.path();
    let mut shell = Child::fork(|| {
        std::env::set_current_dir(target).unwrap();
        let own = rustix::process::getpid().as_raw_nonzero();
        let mut caller = Child::fork(|| {
            // The caller is inside as well, and never counts.
            let asked = |liveness: ProcLiveness| told(&ask(&liveness, &holder, BOTH, Some(target)));
            let takeover = ProcLiveness::system();
            assert_eq!(
                asked(takeover),
                format!("occupied: path_in_use {own} (cwd)")
            );
            let release = ProcLiveness::system().exclude(OccupancyExclusion::CallerAncestry);
            assert_eq!(asked(release.clone()), "dead: no_such_process");
            let stranger = user(|| {});
            assert_eq!(
                asked(release),
                format!("occupied: path_in_use {} (cwd)", stranger.pid)
            );
        });
        assert!(caller.reap(), "the caller's assertions hold");
    });
    assert!(shell.reap(), "the shell's assertions hold");
}

// B38
#[test]
fn another_users_processes_are_counted_and_are_doubt_for_who_must_see_all() {
    let name = "occupancy::another_users_processes_are_counted_and_are_doubt_for_who_must_see_all";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let place = Place::for_everybody("others");
    let target = place.path().to_owned();
    let holder = dead(&ProcFs::system());
    let inside = user(move || std::env::set_current_dir(target).unwrap());
    let target = place.path();
    let mut other = Child::fork(|| {
        sys::become_user(65_534);
        let link = fs::read_link(format!("/proc/{}/cwd", inside.pid)).unwrap_err();
        assert_eq!(link.kind(), std::io::ErrorKind::PermissionDenied);
        let proc = ProcFs::system();
        let found = Pass::new(&proc)
            .users_of(
                &TargetPath::new(target).unwrap(),
                &Exclusion::of(&proc, OccupancyExclusion::Caller),
            )
            .unwrap();
        assert!(found.users.is_empty() && found.unreadable > 0);
        let liveness = ProcLiveness::new(proc);
        let parity = ask(&liveness, &holder, PATHS, Some(target));
        assert_eq!(told(&parity), "dead: no_such_process");
        assert!(parity.evidence().unreadable > 0);
        let strict = liveness.require_full_visibility();
        let doubt = ask(&strict, &holder, PATHS, Some(target));
        assert_eq!(told(&doubt), "unknown: occupancy_hidden");
        assert!(doubt.evidence().unreadable > 0);
    });
    assert!(other.reap(), "the other user's assertions hold");
}

// B38
#[test]
fn under_a_proc_that_hides_others_the_kernel_still_says_that_a_group_lives() {
    let name = "occupancy::under_a_proc_that_hides_others_the_kernel_still_says_that_a_group_lives";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let outcome = under_hidden_proc(|| {
        let liveness = ProcLiveness::system();
        let (mut leader, worker) = wrapper(lead_a_group, || {});
        let holder = recorded(liveness.proc(), leader.pid());
        leader.kill();
        leader.reap();
        let target = Path::new("/nowhere");
        let mut other = Child::fork(|| {
            sys::become_user(65_534);
            let proc = ProcFs::system();
            assert!(!fs::exists(format!("/proc/{}", worker.pid)).unwrap());
            // What another user cannot tell of namespaces is told by one who can.
            let mut process = *holder.process();
            process.pid_namespace = ProcessIdentity::own(&proc).unwrap().pid_namespace;
            let record = ProcessHolder::new("editor", process).unwrap();
            let liveness = ProcLiveness::new(proc);
            let verdict = ask(&liveness, &record, BOTH, Some(target));
            assert_eq!(told(&verdict), "occupied: group_alive");
            assert!(verdict.evidence().detail.is_some());
            // Nobody is listed, so nobody is missed either, unless all must be seen.
            let verdict = ask(&liveness, &record, PATHS, Some(target));
            assert_eq!(told(&verdict), "dead: no_such_process");
            let strict = liveness.require_full_visibility();
            let verdict = ask(&strict, &record, PATHS, Some(target));
            assert_eq!(told(&verdict), "unknown: occupancy_hidden");
        });
        assert!(other.reap(), "the other user's assertions hold");
    });
    if let Err((need, reason)) = outcome {
        not_run(name, need, &reason);
    }
}

#[test]
fn without_descriptors_occupancy_is_unknown() {
    let place = Place::new("descriptors");
    let holder = dead(&ProcFs::system());
    let target = place.path();
    let mut child = Child::fork(|| {
        let liveness = ProcLiveness::system();
        sys::few_descriptors();
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        let verdict = ask(&liveness, &holder, PATHS, Some(target));
        assert_eq!(told(&verdict), "unknown: occupancy_failed");
        drop(taken);
        let verdict = ask(&liveness, &holder, PATHS, Some(target));
        assert_eq!(told(&verdict), "dead: no_such_process");
    });
    assert!(child.reap(), "the child's assertions hold");
}

#[test]
fn a_live_holders_work_is_not_looked_at() {
    // Every descriptor is taken, so a look at `/proc` would end in doubt.
    let place = Place::new("alive");
    let proc = ProcFs::system();
    let living = Child::idle();
    let alive = recorded(&proc, living.pid());
    let target = place.path();
    if !proc.kernel().pidfs {
        return not_run(
            "occupancy::a_live_holders_work_is_not_looked_at",
            "pidfs",
            "the holder itself is looked at without /proc",
        );
    }
    let mut child = Child::fork(|| {
        std::env::set_current_dir(target).unwrap();
        let liveness = ProcLiveness::system();
        let questions = [question(&alive, BOTH, Some(target))];
        sys::few_descriptors();
        let mut taken = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        // One is left for the pidfd, and none for `/proc` beside its list.
        drop(taken.pop());
        assert_eq!(told(&liveness.observe(&questions[0])), "alive: running");
        assert_eq!(told(&liveness.observe_all(&questions)[0]), "alive: running");
    });
    assert!(child.reap(), "the child's assertions hold");
}

// B39
#[test]
fn many_holders_are_judged_by_one_pass_in_the_order_of_the_questions() {
    let place = Place::new("many");
    let liveness = ProcLiveness::system();
    let living = Child::idle();
    let gone = dead(liveness.proc());
    let paths: Vec<PathBuf> = (0..4).map(|n| place.join(format!("alloc-{n}"))).collect();
    for path in &paths {
        fs::create_dir(path).unwrap();
    }
    let used = paths[2].clone();
    let inside = user(move || std::env::set_current_dir(used).unwrap());
    let questions = [
        question(&gone, BOTH, Some(&paths[0])),
        question(
            &recorded(liveness.proc(), living.pid()),
            BOTH,
            Some(&paths[1]),
        ),
        question(&gone, BOTH, Some(&paths[2])),
        question(&gone, BOTH, None),
    ];
    let answers: Vec<_> = liveness.observe_all(&questions).iter().map(told).collect();
    let one_by_one: Vec<_> = questions
        .iter()
        .map(|one| told(&liveness.observe(one)))
        .collect();
    assert_eq!(answers, one_by_one);
    assert_eq!(answers[0], "dead: no_such_process");
    assert!(answers[1].starts_with("alive: "));
    assert_eq!(
        answers[2],
        format!("occupied: path_in_use {} (cwd)", inside.pid)
    );
    assert_eq!(answers[3], "unknown: occupancy_not_observed");
}

// B41
#[test]
fn evidence_names_sixteen_and_their_commands_only_when_asked() {
    let place = Place::new("sixteen");
    let holder = dead(&ProcFs::system());
    let crowd: Vec<_> = (0..18)
        .map(|_| {
            let target = place.path().to_owned();
            Child::fork(move || {
                std::env::set_current_dir(target).unwrap();
                sys::wait_for_ever();
            })
        })
        .collect();
    let mut found = 0;
    for _ in 0..5_000 {
        let users = Pass::new(&ProcFs::system())
            .users_of(
                &TargetPath::new(place.path()).unwrap(),
                &Exclusion::nobody(),
            )
            .unwrap();
        found = users.users.len();
        if found == crowd.len() {
            break;
        }
    }
    assert_eq!(found, crowd.len());
    let plain = verdict(&holder, place.path());
    let evidence = plain.evidence();
    assert_eq!(evidence.occupants.len(), 16);
    assert_eq!(evidence.detail.as_deref(), Some("18 processes in the path"));
    assert!(
        evidence
            .occupants
            .iter()
            .all(|one| one.ends_with(" (cwd)") && one.len() < 16)
    );
    let liveness = ProcLiveness::system().show_commands();
    let shown = ask(&liveness, &holder, BOTH, Some(place.path()));
    let first = &shown.evidence().occupants[0];
    // The children are copies of this program.
    let program = std::env::args().next().unwrap();
    let program: String = program.chars().take(100).collect();
    assert!(first.contains(&program), "{first}");
}

// fault B36
#[test]
fn a_lease_names_who_was_asked_for_and_passes_to_no_child_by_itself() {
    let place = Place::new("daemon");
    let liveness = ProcLiveness::system();
    let target = place.path().to_owned();
    // A launcher that starts a daemon, in a session of its own, and goes away.
    let (mut launcher, daemon) = wrapper(lead_a_group, move || {
        rustix::process::setsid().unwrap();
        std::env::set_current_dir(target).unwrap();
    });
    let holder = recorded(liveness.proc(), launcher.pid());
    assert_eq!(holder.process().pid, launcher.pid());
    let asked = || ask(&liveness, &holder, BOTH, Some(place.path()));
    assert_eq!(
        asked().name(),
        "alive",
        "checked again after it was written"
    );
    launcher.kill();
    let gone = ProcessIdentity::of(liveness.proc(), launcher.pid()).unwrap_err();
    assert!(matches!(gone, DescribeError::NotRunning { .. }));
    launcher.reap();
    let gone = ProcessIdentity::of(liveness.proc(), launcher.pid()).unwrap_err();
    assert!(matches!(gone, DescribeError::NotRunning { .. }));
    let refused = ProcessGroup::of(liveness.proc(), holder.process());
    assert!(refused.is_err());
    // The daemon is somebody else, who is in the way of others and does not hold the lease.
    let child = ProcessIdentity::of(liveness.proc(), daemon.pid).unwrap();
    assert!(matches!(
        holder.process().matches(&child),
        Matching::Different(_)
    ));
    assert_ne!(holder, ProcessHolder::new("editor", child).unwrap());
    assert_eq!(
        told(&asked()),
        format!("occupied: path_in_use {} (cwd)", daemon.pid)
    );
    daemon.end();
    assert_eq!(told(&asked()), "dead: no_such_process");
}
