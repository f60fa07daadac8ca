//! Users of a path that the usual look at a process does not show.

use std::fs::{self, File};
use std::path::Path;

use lease_core::{HolderLiveness as _, Locality};
use lease_procfs::clear::{self, Purpose};
use lease_procfs::{Exclusion, Pass, ProcFs, ProcLiveness, TargetPath};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::thread::UnshareFlags;

use crate::crew::{BOTH, GROUP, Place, ask, leaderless, told, under_hidden_proc};
use crate::occupancy::{dead, keep, user};
use crate::rig::{Space, isolated, not_run};
use crate::sys::{self, Child};

#[track_caller]
fn is_told(target: &Path, expected: &str) {
    let liveness = ProcLiveness::system();
    let holder = dead(liveness.proc());
    assert_eq!(told(&ask(&liveness, &holder, BOTH, Some(target))), expected);
}

// B34
#[test]
fn a_user_with_another_root_in_a_container_is_found_under_the_name_it_has_there() {
    let name =
        "obscured::a_user_with_another_root_in_a_container_is_found_under_the_name_it_has_there";
    isolated(name, Space::Pid, || {
        let place = Place::new("other-root");
        let target = place.join("alloc-7");
        let jail = place.join("jail");
        for directory in [&target, &jail.join("place")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(target.join("x"), "0123456789").unwrap();
        let enter = || {
            sys::unshare(UnshareFlags::NEWNS).unwrap();
            mount_bind(&target, jail.join("place")).unwrap();
        };
        // In the same namespace as seen from its top, and from within.
        for (at, by) in [("/place", "cwd"), ("/place/x", "fd")] {
            let inside = user(|| {
                enter();
                std::os::unix::fs::chroot(&jail).unwrap();
                match by {
                    "cwd" => std::env::set_current_dir(at).unwrap(),
                    _ => keep(File::open(at).unwrap()),
                }
            });
            is_told(
                &target,
                &format!("occupied: path_in_use {} ({by})", inside.pid),
            );
        }
        is_told(&target, "dead: no_such_process");
        Ok(())
    });
}

// B34
#[test]
fn a_user_in_a_container_is_found_under_its_name_there_after_its_leader_thread_exited() {
    let name = "obscured::a_user_in_a_container_is_found_under_its_name_there_after_its_leader_thread_exited";
    isolated(name, Space::Pid, || {
        let place = Place::new("leaderless");
        let [target, point] = ["alloc-7", "work"].map(|part| place.join(part));
        for directory in [&target, &point] {
            fs::create_dir(directory).unwrap();
        }
        let shown = target.clone();
        let inside = leaderless(move || {
            sys::unshare(UnshareFlags::NEWNS).unwrap();
            mount_bind(&shown, &point).unwrap();
            std::env::set_current_dir(&point).unwrap();
        });
        is_told(
            &target,
            &format!("occupied: path_in_use {} (cwd)", inside.pid),
        );
        drop(inside);
        is_told(&target, "dead: no_such_process");
        Ok(())
    });
}

/// Starts a thread that shares no more what `flags` say, and returns when it has done its work. It stays.
fn start_apart(flags: UnshareFlags, work: impl FnOnce() + Send + 'static) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sys::unshare_thread(flags).unwrap();
        work();
        ready.send(()).unwrap();
        sys::wait_for_ever();
    });
    is_ready.recv().unwrap();
}

// B34
#[test]
fn a_thread_with_a_directory_or_descriptors_of_its_own_uses_the_path() {
    let place = Place::new("apart");
    let target = place.path().to_owned();
    fs::write(target.join("x"), "").unwrap();
    let apart = |work: fn(&Path), flags: UnshareFlags| {
        let target = target.clone();
        user(move || start_apart(flags, move || work(&target)))
    };
    let inside = apart(
        |path| std::env::set_current_dir(path).unwrap(),
        UnshareFlags::FS,
    );
    is_told(
        &target,
        &format!("occupied: path_in_use {} (cwd)", inside.pid),
    );
    drop(inside);
    let open = apart(
        |path| keep(File::open(path.join("x")).unwrap()),
        UnshareFlags::FILES,
    );
    is_told(&target, &format!("occupied: path_in_use {} (fd)", open.pid));
    drop(open);
    is_told(&target, "dead: no_such_process");
}

// B34
#[test]
fn a_thread_with_a_directory_of_its_own_uses_the_path_after_its_leader_thread_exited() {
    let place = Place::new("apart-leaderless");
    let target = place.path().to_owned();
    let inside = leaderless(move || {
        // It is read in the place of its leader, and shows nothing.
        let _first = std::thread::spawn(sys::wait_for_ever);
        start_apart(UnshareFlags::FS, move || {
            std::env::set_current_dir(&target).unwrap();
        });
    });
    is_told(
        place.path(),
        &format!("occupied: path_in_use {} (cwd)", inside.pid),
    );
    drop(inside);
    is_told(place.path(), "dead: no_such_process");
}

// B34
#[test]
fn a_thread_with_other_descriptors_uses_the_path_although_it_has_as_many() {
    let name = "obscured::a_thread_with_other_descriptors_uses_the_path_although_it_has_as_many";
    a_thread_has_as_many_others("as-many");
    isolated(name, Space::Pid, || {
        a_thread_has_as_many_others("as-many-inside");
        Ok(())
    });
}

/// Each thread is read, and shows the same: it is told once.
fn each_thread_uses_what_all_share(name: &str) {
    let place = Place::new(name);
    fs::write(place.join("x"), "").unwrap();
    let target = place.path().to_owned();
    let inside = user(move || {
        std::env::set_current_dir(&target).unwrap();
        keep(File::open("x").unwrap());
        for _ in 0..40 {
            start_apart(UnshareFlags::empty(), || ());
        }
    });
    let target = TargetPath::new(place.path()).unwrap();
    let found = Pass::new(&ProcFs::system()).users_of(&target, &Exclusion::nobody());
    let [user] = &found.unwrap().users[..] else {
        panic!("there is one");
    };
    assert_eq!(user.pid, inside.pid);
    let by: Vec<_> = user.uses.iter().map(|one| one.by.as_str()).collect();
    assert_eq!(by, ["cwd", "fd"]);
}

fn a_thread_has_as_many_others(name: &str) {
    let place = Place::new(name);
    fs::write(place.join("x"), "").unwrap();
    let target = place.path().to_owned();
    let open = user(move || {
        let other = File::open("/dev/null").unwrap();
        start_apart(UnshareFlags::FILES, move || {
            // Its own one only: the process keeps what it has opened.
            drop(other);
            keep(File::open(target.join("x")).unwrap());
        });
    });
    is_told(
        place.path(),
        &format!("occupied: path_in_use {} (fd)", open.pid),
    );
    drop(open);
    is_told(place.path(), "dead: no_such_process");
}

// B34
#[test]
fn a_thread_with_other_descriptors_uses_the_path_where_the_kernel_may_not_be_asked() {
    // A filter is its thread's, and this one is none of the others'.
    let forbidden = std::thread::spawn(|| {
        if let Err(error) = sys::forbid(libc::SYS_kcmp) {
            return not_run(
                "obscured::a_thread_with_other_descriptors_uses_the_path_where_the_kernel_may_not_be_asked",
                "seccomp",
                &error.to_string(),
            );
        }
        a_thread_has_as_many_others("as-many-unasked");
        each_thread_uses_what_all_share("shared-unasked");
    });
    forbidden.join().unwrap();
}

// B34, B38
#[test]
fn a_directory_too_deep_to_be_shown_lies_in_what_is_above_it() {
    let place = Place::new("deep");
    let beside = Place::new("beside");
    let deep = |open: bool| {
        user(|| {
            std::env::set_current_dir(place.path()).unwrap();
            let name = "d".repeat(250);
            for _ in 0..20 {
                fs::create_dir_all(&name).unwrap();
                std::env::set_current_dir(&name).unwrap();
            }
            fs::read_link("/proc/self/cwd").unwrap_err();
            if open {
                keep(File::open(".").unwrap());
                std::env::set_current_dir("/").unwrap();
            }
        })
    };
    for (open, by) in [(false, "cwd"), (true, "fd")] {
        let user = deep(open);
        let used = format!("occupied: path_in_use {} ({by})", user.pid);
        is_told(place.path(), &used);
        is_told(&place.join("d".repeat(250)), &used);
        is_told(beside.path(), "dead: no_such_process");
    }
    is_told(place.path(), "dead: no_such_process");
}

// B38
#[test]
fn a_process_with_something_mounted_over_it_is_doubt_for_everybody() {
    let name = "obscured::a_process_with_something_mounted_over_it_is_doubt_for_everybody";
    isolated(name, Space::Pid, || {
        let place = Place::new("covered");
        let inside = user(|| std::env::set_current_dir(place.path()).unwrap());
        let other = Child::idle();
        let point = format!("/proc/{}", inside.pid);
        mount("none", &point, "tmpfs", MountFlags::empty(), None)
            .map_err(|errno| ("tmpfs", errno.to_string()))?;
        is_told(place.path(), "unknown: occupancy_hidden");
        unmount(&point, UnmountFlags::DETACH).unwrap();
        mount_bind(format!("/proc/{}", other.pid()), &point).unwrap();
        is_told(place.path(), "unknown: occupancy_hidden");
        // So it is to whoever clears the place.
        let target = TargetPath::new(place.path()).unwrap();
        let liveness = ProcLiveness::system();
        let nobody = Exclusion::nobody();
        let seen = clear::observe(&liveness, Locality::ThisMachine, &[], &target, &nobody);
        let refused = clear::check(Purpose::Allocation, &seen).unwrap_err();
        assert_eq!(refused.to_string(), "runtime is occupied: uncertain");
        let members =
            Pass::new(&ProcFs::system()).group(lease_procfs::ProcessGroup::new(inside.pid));
        assert_eq!(members.unwrap().obscured, 1);
        unmount(&point, UnmountFlags::DETACH).unwrap();
        is_told(
            place.path(),
            &format!("occupied: path_in_use {} (cwd)", inside.pid),
        );
        Ok(())
    });
}

// B34, B38
#[test]
fn a_user_with_more_mounts_than_are_read_is_doubt_for_everybody() {
    let name = "obscured::a_user_with_more_mounts_than_are_read_is_doubt_for_everybody";
    isolated(name, Space::Pid, || {
        let place = Place::new("mounts");
        let [target, point] = ["alloc-7", "work"].map(|part| place.join(part));
        for directory in [&target, &point] {
            fs::create_dir(directory).unwrap();
        }
        let deep = (0..12).fold(place.join("deep"), |path, _| path.join("d".repeat(240)));
        fs::create_dir_all(&deep).unwrap();
        let inside = |mounts: usize| {
            user(|| {
                sys::unshare(UnshareFlags::NEWNS).unwrap();
                for _ in 0..mounts {
                    mount_bind(&deep, &deep).unwrap();
                }
                mount_bind(&target, &point).unwrap();
                std::env::set_current_dir(&point).unwrap();
            })
        };
        let many = inside(500);
        is_told(
            &target,
            &format!("occupied: path_in_use {} (cwd)", many.pid),
        );
        drop(many);
        let too_many = inside(4_000);
        is_told(&target, "unknown: occupancy_hidden");
        drop(too_many);
        is_told(&target, "dead: no_such_process");
        Ok(())
    });
}

// B38
#[test]
fn the_first_process_of_a_namespace_cannot_tell_by_itself_that_nobody_is_hidden() {
    let name =
        "obscured::the_first_process_of_a_namespace_cannot_tell_by_itself_that_nobody_is_hidden";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let place = Place::for_everybody("first");
    let outcome = under_hidden_proc(|| {
        let liveness = ProcLiveness::system();
        let holder = dead(liveness.proc());
        let strict = liveness.require_full_visibility();
        // It ends with the namespace: whoever started it may not kill it later.
        let _hidden = std::mem::ManuallyDrop::new(user(|| {
            sys::become_user(65_533);
            std::env::set_current_dir(place.path()).unwrap();
        }));
        let question = crate::crew::question(&holder, BOTH, Some(place.path()));
        assert_eq!(
            strict.observe(&question).name(),
            "occupied",
            "root sees everybody"
        );
        let target = TargetPath::new(place.path()).unwrap();
        let pass = |proc: &ProcFs| {
            Pass::new(proc)
                .users_of(&target, &Exclusion::nobody())
                .unwrap()
        };
        assert!(!pass(strict.proc()).hides);
        sys::become_user(65_534);
        let found = pass(strict.proc());
        assert_eq!((found.users.len(), found.hides), (0, true));
        assert_eq!(
            told(&strict.observe(&question)),
            "unknown: occupancy_hidden"
        );
        assert_eq!(ask(&strict, &holder, GROUP, None).name(), "dead");
    });
    if let Err((need, reason)) = outcome {
        not_run(name, need, &reason);
    }
}
