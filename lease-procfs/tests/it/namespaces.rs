//! Holders and readers in different pid and time namespaces, for real.

use std::io::{Read as _, Write as _};

use lease_core::{Locality, ProcessProof};
use lease_procfs::facts::Presence;
use lease_procfs::{Kernel, Matching, Part, Pid, ProcFs, ProcLiveness, ProcessIdentity, Sameness};

use crate::rig::{Kernels, Space, isolated, judge, nested, shown};
use crate::sys::Child;

const OTHER: &str = "unknown: other_pid_namespace";

/// A holder with the number 77 in its own namespace, which lives until the pipe is closed.
fn holder_inside(test: &str, watch: impl Fn(&str)) {
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let (mut end, hold) = std::io::pipe().unwrap();
    let keeper = Child::fork(|| {
        let outcome = nested(Space::Pid, || {
            let pid = Pid::new(77).unwrap();
            let holder = Child::idle_at(pid).map_err(|error| ("set-tid", error.to_string()))?;
            let texts: Vec<_> = Kernels::new()
                .each()
                .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap().to_string())
                .into();
            tell.write_all(format!("{}\n\n", texts.join("\n")).as_bytes())
                .unwrap();
            end.read_exact(&mut [0]).unwrap();
            Ok(())
        });
        if let Err((need, reason)) = outcome {
            tell.write_all(format!("missing\n{need}\n{reason}\n\n").as_bytes())
                .unwrap();
        }
    });
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        let mut byte = [0];
        told.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    if let Some(missing) = text.strip_prefix("missing\n") {
        let (need, reason) = missing.trim_end().split_once('\n').unwrap();
        crate::rig::not_run(test, need, reason);
        return;
    }
    watch(text.trim_end());
    (&hold).write_all(&[1]).unwrap();
    keeper.wait_unreaped();
    watch(text.trim_end());
}

fn parsed(texts: &str) -> Vec<ProcessIdentity> {
    texts.lines().map(|line| line.parse().unwrap()).collect()
}

// B10
// fault B01
#[test]
fn a_holder_in_another_pid_namespace_is_unknown_alive_or_dead() {
    let name = "namespaces::a_holder_in_another_pid_namespace_is_unknown_alive_or_dead";
    holder_inside(name, |texts| {
        for (proc, record) in Kernels::new().each().iter().zip(parsed(texts)) {
            assert_eq!(judge(proc, &record), OTHER);
            // Evidence that crosses namespaces decides, on this machine.
            let liveness = ProcLiveness::new(ProcFs::clone(proc));
            let judged = |presence, locality| {
                shown(&liveness.judge_with(&record, locality, presence, ProcessProof::default()))
            };
            assert_eq!(judged(Presence::Held, Locality::ThisMachine), OTHER);
            assert_eq!(
                judged(Presence::Free, Locality::ThisMachine),
                "dead: presence_released"
            );
            assert_eq!(judged(Presence::Free, Locality::ManyMachines), OTHER);
        }
    });
}

// fault B01
#[test]
fn an_unrelated_process_with_the_same_number_here_changes_nothing() {
    let name = "namespaces::an_unrelated_process_with_the_same_number_here_changes_nothing";
    isolated(name, Space::Pid, || {
        let pid = Pid::new(77).unwrap();
        let unrelated = Child::idle_at(pid).map_err(|error| ("set-tid", error.to_string()))?;
        let kernels = Kernels::new();
        let here = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, unrelated.pid()).unwrap());
        holder_inside(name, |texts| {
            for ((proc, record), here) in kernels.each().iter().zip(parsed(texts)).zip(&here) {
                assert_eq!(judge(proc, &record), OTHER);
                assert!(judge(proc, here).starts_with("alive"));
            }
        });
        Ok(())
    });
}

// B10
#[test]
fn a_reader_inside_cannot_judge_a_holder_outside() {
    let name = "namespaces::a_reader_inside_cannot_judge_a_holder_outside";
    let holder = Child::idle();
    let inherited = Kernels::new();
    let records = inherited
        .each()
        .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
    isolated(name, Space::Pid, || {
        // Made here, and inherited from a parent in the other namespace.
        for kernels in [&Kernels::new(), &inherited] {
            for (proc, record) in kernels.each().iter().zip(&records) {
                assert_eq!(judge(proc, record), OTHER);
            }
        }
        Ok(())
    });
    for (proc, record) in inherited.each().iter().zip(&records) {
        assert!(judge(proc, record).starts_with("alive"));
    }
}

#[test]
fn the_proc_of_another_namespace_describes_nobody() {
    let name = "namespaces::the_proc_of_another_namespace_describes_nobody";
    isolated(name, Space::PidUnderOuterProc, || {
        let proc = ProcFs::system();
        let refused = ProcessIdentity::own(&proc).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/proc is not the one of this process's pid namespace"
        );
        // Whatever the record says, a number is not looked up through such a view.
        let mut child = Child::idle();
        child.kill();
        child.reap();
        let kernel = Kernel::detect();
        let mut record = "boot=251d7b06-ce56-4437-8f88-900d8f613d51 trust=yes pid=1 start=1"
            .parse::<ProcessIdentity>()
            .unwrap();
        record.pid = child.pid();
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap();
        record.boot_id = lease_procfs::BootId::from_file(&boot).unwrap();
        let seen = judge(&ProcFs::at("/proc", kernel), &record);
        assert_eq!(seen, "unknown: proc_not_ours");
        Ok(())
    });
}

#[test]
fn ticks_of_another_time_namespace_are_not_compared() {
    let name = "namespaces::ticks_of_another_time_namespace_are_not_compared";
    let holder = Child::idle();
    let kernels = Kernels::new();
    let records = kernels
        .each()
        .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
    isolated(name, Space::Time, || {
        let kernels = Kernels::new();
        let here = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
        assert_ne!(
            here[1].start_ticks, records[1].start_ticks,
            "the clock is another"
        );
        let seen: Vec<_> = kernels
            .each()
            .iter()
            .zip(&records)
            .map(|(p, r)| judge(p, r))
            .collect();
        let pidfs = Kernel::detect().pidfs;
        let first = if pidfs {
            "alive: running"
        } else {
            "unknown: other_time_namespace"
        };
        assert_eq!(seen[0], first);
        if pidfs {
            assert_eq!(here[0].matches(&records[0]), Matching::Same);
        }
        // Without numbers of namespaces the first process's start, read on two clocks, tells.
        for (at, seen) in seen.iter().enumerate().skip(1) {
            assert!(seen.starts_with("unknown: other_"), "kernel {at}: {seen}");
            assert!(matches!(
                here[at].matches(&records[at]),
                Matching::Undecided(Part::PidNamespace | Part::TimeNamespace)
            ));
        }
        // With them, the pid namespace is the same one.
        let proc = ProcFs::at("/proc", Kernel::detect().without_pidfs());
        let mut record = records[0];
        record.pidfd_inode = None;
        let seen = judge(&proc, &record);
        assert!(seen.starts_with("unknown: other_"), "{seen}");
        Ok(())
    });
}

#[test]
fn namespaces_that_follow_each_other_have_different_names() {
    let name = "namespaces::namespaces_that_follow_each_other_have_different_names";
    let read = || {
        let (mut told, mut tell) = std::io::pipe().unwrap();
        let outcome = nested(Space::Pid, || {
            let proc = ProcFs::at("/proc", Kernel::detect());
            let own = ProcessIdentity::own(&proc).unwrap();
            tell.write_all(format!("{own}\n").as_bytes()).unwrap();
            Ok(())
        });
        drop(tell);
        let mut text = String::new();
        told.read_to_string(&mut text).unwrap();
        outcome.map(|()| text.trim_end().parse::<ProcessIdentity>().unwrap())
    };
    match (read(), read()) {
        (Ok(first), Ok(second)) => {
            let (first, second) = (first.pid_namespace.unwrap(), second.pid_namespace.unwrap());
            assert_eq!(first.compare(second), Sameness::Different);
        }
        (Err((need, reason)), _) | (_, Err((need, reason))) => {
            crate::rig::not_run(name, need, &reason);
        }
    }
}

#[test]
fn a_boot_id_under_a_mount_is_not_trusted() {
    let name = "namespaces::a_boot_id_under_a_mount_is_not_trusted";
    isolated(name, Space::Pid, || {
        let before = ProcFs::system();
        let holder = Child::idle();
        let record = ProcessIdentity::of(&before, holder.pid()).unwrap();
        assert!(record.boot_trusted);
        // A file of `/proc` itself, so that only the table of mounts can tell.
        let random = "/proc/sys/kernel/random";
        rustix::mount::mount_bind(format!("{random}/uuid"), format!("{random}/boot_id"))
            .map_err(|errno| ("proc-mount", errno.to_string()))?;
        let after = ProcFs::system();
        let own = ProcessIdentity::own(&after).unwrap();
        assert!(!own.boot_trusted);
        assert_ne!(own.boot_id, record.boot_id);
        assert_eq!(judge(&after, &record), "unknown: boot_id_untrusted");
        assert!(
            judge(&before, &record).starts_with("alive"),
            "read before, and kept"
        );
        Ok(())
    });
}
