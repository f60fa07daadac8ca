//! What is mounted, moved or shared under a reader's feet, so that what it remembers of itself is not
//! so any more. A holder that lives is never dead.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use lease_core::Locality::ThisMachine;
use lease_core::Verdict;
use lease_procfs::{DescribeError, Kernel, Pid, ProcFs, ProcLiveness, ProcessIdentity};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::rig::{Kernels, Missing, Space, isolated, judge};
use crate::sys::{self, Child};

fn described(kernels: &Kernels, pid: Pid) -> [ProcessIdentity; 3] {
    kernels
        .each()
        .map(|proc| ProcessIdentity::of(proc, pid).unwrap())
}

/// Judges through readers that were made before, without a word of death.
#[track_caller]
fn judged(kernels: &Kernels, records: &[ProcessIdentity; 3]) -> Vec<String> {
    let each = kernels.each().into_iter().zip(records);
    let verdicts: Vec<_> = each.map(|(proc, record)| judge(proc, record)).collect();
    let is_dead = |verdict: &String| verdict.starts_with("dead");
    assert!(!verdicts.iter().any(is_dead), "{verdicts:?}");
    verdicts
}

// B7
// fault B06
#[test]
fn another_process_mounted_over_the_holder_is_no_death() {
    let name = "tricks::another_process_mounted_over_the_holder_is_no_death";
    isolated(name, Space::Pid, || {
        let (holder, other) = (Child::idle(), Child::idle());
        let kernels = Kernels::new();
        let records = described(&kernels, holder.pid());
        let point = format!("/proc/{}", holder.pid());
        mount_bind(format!("/proc/{}", other.pid()), &point).unwrap();
        for kernels in [&kernels, &Kernels::new()] {
            judged(kernels, &records);
            for proc in kernels.each() {
                // Nor is it described by what is another's.
                let refused = ProcessIdentity::of(proc, holder.pid()).unwrap_err();
                assert!(matches!(refused, DescribeError::Stat { .. }), "{refused}");
            }
        }
        unmount(&point, UnmountFlags::DETACH).unwrap();
        // A made-up one is no better, though it looks right.
        let stat = crate::crew::Place::new("made-up");
        let line = format!(
            "{} (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0",
            holder.pid()
        );
        std::fs::write(stat.join("stat"), line).unwrap();
        mount_bind(stat.join("stat"), format!("{point}/stat")).unwrap();
        let seen = judged(&kernels, &records);
        assert_eq!(
            seen[1..],
            ["unknown: proc_not_ours", "unknown: proc_not_ours"]
        );
        unmount(format!("{point}/stat"), UnmountFlags::DETACH).unwrap();
        // Nor is one that calls the process a thread of another.
        let lines = format!("Tgid:\t1\nPid:\t{}\n", holder.pid());
        std::fs::write(stat.join("status"), lines).unwrap();
        mount_bind(stat.join("status"), format!("{point}/status")).unwrap();
        assert_eq!(judged(&kernels, &records)[2], "unknown: proc_not_ours");
        unmount(format!("{point}/status"), UnmountFlags::DETACH).unwrap();
        Ok(())
    });
}

/// Mounts the `/proc` of a new pid namespace, in which the same number is somebody else.
fn mount_other_proc(at: &Path, pid: Pid) -> Result<Child, Missing> {
    sys::unshare(UnshareFlags::NEWPID).map_err(|errno| ("pid-namespaces", errno.to_string()))?;
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let first = Child::fork(move || {
        let stranger = Child::idle_at(pid);
        let mounted = mount("proc", at, "proc", MountFlags::empty(), None);
        let ready = match (&stranger, mounted) {
            (Ok(_), Ok(())) => b'r',
            (Err(_), _) => b's',
            (Ok(_), Err(_)) => b'p',
        };
        tell.write_all(&[ready]).unwrap();
        sys::wait_for_ever();
    });
    let mut ready = [0];
    told.read_exact(&mut ready).unwrap();
    match ready {
        [b'r'] => Ok(first),
        [b's'] => Err(("set-tid", "refused".to_owned())),
        _ => Err(("proc-mount", "refused".to_owned())),
    }
}

// B7, B10
// fault B06
#[test]
fn a_proc_that_was_replaced_since_is_no_death() {
    let name = "tricks::a_proc_that_was_replaced_since_is_no_death";
    isolated(name, Space::Pid, || {
        let number = Pid::new(77).unwrap();
        let holder = Child::idle_at(number).map_err(|error| ("set-tid", error.to_string()))?;
        let kernels = Kernels::new();
        let records = described(&kernels, holder.pid());
        let mut first = mount_other_proc(Path::new("/proc"), number)?;
        judged(&kernels, &records);
        for proc in kernels.each() {
            // What is described now would be found dead by everybody else.
            ProcessIdentity::of(proc, holder.pid()).unwrap_err();
        }
        unmount("/proc", UnmountFlags::DETACH).unwrap();
        assert!(
            judged(&kernels, &records)
                .iter()
                .all(|verdict| verdict.starts_with("alive"))
        );
        first.kill();
        first.reap();
        Ok(())
    });
}

// B7, B10
// fault B06
#[test]
fn the_same_number_of_another_namespace_mounted_over_the_holder_is_no_death() {
    let name = "tricks::the_same_number_of_another_namespace_mounted_over_the_holder_is_no_death";
    isolated(name, Space::Pid, || {
        let number = Pid::new(77).unwrap();
        let holder = Child::idle_at(number).map_err(|error| ("set-tid", error.to_string()))?;
        let kernels = Kernels::new();
        let records = described(&kernels, holder.pid());
        let place = crate::crew::Place::new("other-proc");
        let other = place.join("proc");
        std::fs::create_dir(&other).unwrap();
        let mut first = mount_other_proc(&other, number)?;
        // It is a `/proc` that shows the number at the number's own place, and yet another process.
        for entry in ["77", "77/stat"] {
            let point = Path::new("/proc").join(entry);
            mount_bind(other.join(entry), &point).unwrap();
            for kernels in [&kernels, &Kernels::new()] {
                judged(kernels, &records);
                for proc in &kernels.each()[1..] {
                    // What is described now would be found dead by everybody else.
                    let refused = ProcessIdentity::of(proc, holder.pid()).unwrap_err();
                    assert_eq!(refused.to_string(), "process 77 is hidden", "{entry}");
                }
            }
            unmount(&point, UnmountFlags::DETACH).unwrap();
        }
        unmount(&other, UnmountFlags::DETACH).unwrap();
        first.kill();
        first.reap();
        Ok(())
    });
}

// fault B11
#[test]
fn a_boot_id_covered_in_a_proc_that_is_the_root_is_not_trusted() {
    let name = "tricks::a_boot_id_covered_in_a_proc_that_is_the_root_is_not_trusted";
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let records = described(&Kernels::new(), holder.pid());
        let random = "/proc/sys/kernel/random";
        mount_bind(format!("{random}/uuid"), format!("{random}/boot_id")).unwrap();
        std::os::unix::fs::chroot("/proc").unwrap();
        std::env::set_current_dir("/").unwrap();
        let kernel = Kernel::detect();
        let proc = ProcFs::at("/", kernel);
        assert!(!ProcessIdentity::own(&proc).unwrap().boot_trusted);
        assert_eq!(judge(&proc, &records[0]), "unknown: boot_id_untrusted");
        Ok(())
    });
}

// B10
// fault B01
#[test]
fn a_child_that_shares_memory_looks_from_its_own_namespace() {
    let name = "tricks::a_child_that_shares_memory_looks_from_its_own_namespace";
    isolated(name, Space::Pid, || {
        look_from_a_child_that_shares_memory();
        // The first process of a namespace has the number of the first process of another.
        let mut later = Child::fork(look_from_a_child_that_shares_memory);
        assert!(later.reap(), "the child's assertions hold");
        Ok(())
    });
}

fn look_from_a_child_that_shares_memory() {
    let holder = Child::idle();
    let kernels = Kernels::new();
    let records = described(&kernels, holder.pid());
    let mut seen: Vec<Verdict> = Vec::new();
    let mut own: Vec<ProcessIdentity> = Vec::new();
    let liveness = kernels.each().map(|proc| ProcLiveness::new(proc.clone()));
    let inside = sys::share_memory_in_a_new_pid_namespace(|| {
        let each = liveness.iter().zip(&records);
        seen.extend(each.map(|(liveness, record)| liveness.judge(record, ThisMachine)));
        own.extend(kernels.each().into_iter().flat_map(ProcessIdentity::own));
    });
    assert_eq!(seen.len(), 3);
    assert!(
        !seen
            .iter()
            .any(|verdict| matches!(verdict, Verdict::Dead(_))),
        "{seen:?}"
    );
    assert_eq!(own, [], "its number means nothing in this /proc");
    drop(inside);
}

// fault B11
#[test]
fn a_boot_id_covered_for_one_thread_alone_is_no_death() {
    let name = "tricks::a_boot_id_covered_for_one_thread_alone_is_no_death";
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let records = described(&Kernels::new(), holder.pid());
        let looked = std::thread::spawn(move || {
            sys::unshare_thread(UnshareFlags::NEWNS).unwrap();
            let random = "/proc/sys/kernel/random";
            mount_bind(format!("{random}/uuid"), format!("{random}/boot_id")).unwrap();
            let kernels = Kernels::new();
            for proc in kernels.each() {
                assert!(!ProcessIdentity::own(proc).unwrap().boot_trusted);
            }
            judged(&kernels, &records)
        });
        assert_eq!(looked.join().unwrap(), ["unknown: boot_id_untrusted"; 3]);
        Ok(())
    });
}

// B10
#[test]
fn a_move_into_another_time_namespace_is_no_death() {
    let name = "tricks::a_move_into_another_time_namespace_is_no_death";
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let kernels = Kernels::new();
        let records = described(&kernels, holder.pid());
        let missing = |error: std::io::Error| ("time-namespaces", error.to_string());
        sys::unshare(UnshareFlags::NEWTIME).map_err(|errno| missing(errno.into()))?;
        std::fs::write("/proc/self/timens_offsets", "boottime 1000000 0").map_err(missing)?;
        let next = File::open("/proc/self/ns/time_for_children").map_err(missing)?;
        move_into_link_name_space(next.as_fd(), Some(LinkNameSpaceType::Time))
            .map_err(|errno| missing(errno.into()))?;
        // Old kernels know a pid namespace by the start of its first process, which moved, too.
        for verdict in &judged(&kernels, &records)[1..] {
            assert!(verdict.starts_with("unknown: other_"), "{verdict}");
        }
        // What it says of itself now, others judge right.
        for proc in kernels.each() {
            let own = ProcessIdentity::own(proc).unwrap();
            let fresh = ProcFs::at("/proc", proc.kernel());
            assert!(judge(&fresh, &own).starts_with("alive"));
        }
        Ok(())
    });
}

// fault B06
#[test]
fn signals_during_a_look_are_no_doubt() {
    let mut reader = Child::fork(|| {
        sys::be_interrupted_by_usr1();
        let holder = Child::idle();
        let own = rustix::process::getpid();
        let storm = Child::fork(|| while kill_process(own, Signal::USR1).is_ok() {});
        let kernel = Kernel::detect();
        for kernel in [kernel, kernel.without_pidfs()] {
            let proc = ProcFs::at("/proc", kernel);
            let record = loop {
                // Files may be interrupted while they are opened; the look alone is at stake.
                if let Ok(record) = ProcessIdentity::of(&proc, holder.pid()) {
                    break record;
                }
            };
            let liveness = ProcLiveness::new(proc);
            for _ in 0..10_000 {
                let verdict = liveness.judge(&record, ThisMachine);
                assert_eq!(verdict.name(), "alive", "{verdict:?}");
            }
        }
        drop(storm);
    });
    assert!(reader.reap(), "the reader's assertions hold");
}
