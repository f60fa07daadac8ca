//! Real processes, looked at through three kernels: with pidfs, with pidfd alone, with `stat` alone.

use std::io::{Read as _, Write as _};

use lease_core::{Locality, ProcessProof};
use lease_procfs::facts::Presence;
use lease_procfs::{
    DescribeError, Kernel, Matching, Part, Pid, ProcFs, ProcLiveness, ProcessIdentity,
};
use rustix::process::Signal;

use crate::rig::{
    Kernels, Missing, Space, has_pidfs, isolated, judge, not_run, shown, take_every_descriptor,
};
use crate::sys::{self, Child};

/// Describes a process through each kernel and keeps the kernel beside it.
fn described(kernels: &Kernels, pid: Pid) -> Vec<(&ProcFs, ProcessIdentity)> {
    let each = kernels.each().into_iter();
    each.map(|proc| (proc, ProcessIdentity::of(proc, pid).unwrap()))
        .collect()
}

fn identities(kernels: &Kernels, pid: Pid) -> Vec<ProcessIdentity> {
    let each = described(kernels, pid).into_iter();
    each.map(|(_, identity)| identity).collect()
}

fn judged(described: &[(&ProcFs, ProcessIdentity)]) -> Vec<String> {
    described
        .iter()
        .map(|(proc, identity)| judge(proc, identity))
        .collect()
}

const DEAD: [&str; 3] = ["dead: no_such_process"; 3];

fn alive() -> [&'static str; 3] {
    let by_ticks = "alive: running_by_start_ticks";
    let first = if Kernel::detect().pidfs {
        "alive: running"
    } else {
        by_ticks
    };
    [first, by_ticks, by_ticks]
}

/// Waits until `stat` shows this state.
pub(crate) fn wait_for_state(pid: Pid, state: u8) {
    for _ in 0..5_000 {
        let line = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
        if lease_procfs::Stat::parse(&line).unwrap().state == state {
            return;
        }
        nap();
    }
    panic!("process {pid} never came into state {}", char::from(state));
}

pub(crate) fn nap() {
    let millisecond = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let _woken = rustix::thread::nanosleep(&millisecond);
}

#[test]
fn own_process_is_described_with_its_launch_and_is_alive() {
    for proc in Kernels::new().each() {
        let own = ProcessIdentity::own(proc).unwrap();
        assert_eq!(own, ProcessIdentity::own(proc).unwrap());
        assert_eq!(own, ProcessIdentity::of(proc, own.pid).unwrap());
        assert!(own.launch.is_some() && own.boot_trusted);
        assert_eq!(own.launch, lease_procfs::LaunchId::current());
        assert_eq!(own.pidfd_inode.is_some(), proc.kernel().pidfs);
        assert!(judge(proc, &own).starts_with("alive: running"));
    }
}

// B28
// fault B13
#[test]
fn a_process_lives_then_is_a_zombie_then_is_gone() {
    let kernels = Kernels::new();
    let mut child = Child::idle();
    let described = described(&kernels, child.pid());
    assert!(
        described
            .iter()
            .all(|(_, identity)| identity.launch.is_none())
    );
    assert_eq!(judged(&described), alive());

    child.signal(Signal::STOP);
    wait_for_state(child.pid(), b'T');
    assert_eq!(judged(&described), alive(), "stopped is not gone");

    child.kill();
    let exited = ["dead: exited", "dead: exited", "unknown: leader_exited"];
    assert_eq!(judged(&described), exited, "not reaped");
    for proc in kernels.each() {
        let refused = ProcessIdentity::of(proc, child.pid()).unwrap_err();
        assert!(
            matches!(refused, DescribeError::NotRunning { .. }),
            "{refused}"
        );
    }

    child.reap();
    assert_eq!(judged(&described), DEAD, "reaped");
}

// B16
#[test]
fn a_process_that_is_not_running_is_not_described() {
    let mut child = Child::fork(|| {});
    let pid = child.pid();
    child.reap();
    for proc in Kernels::new().each() {
        let refused = ProcessIdentity::of(proc, pid).unwrap_err();
        assert_eq!(refused.to_string(), format!("process {pid} is not running"));
    }
}

#[test]
fn a_process_whose_leader_thread_exited_is_alive() {
    let kernels = Kernels::new();
    let (mut orders, mut give) = std::io::pipe().unwrap();
    let child = Child::fork(|| {
        std::thread::spawn(sys::wait_for_ever);
        orders.read_exact(&mut [0]).unwrap();
        sys::exit_this_thread();
    });
    let described = described(&kernels, child.pid());
    give.write_all(&[1]).unwrap();
    wait_for_state(child.pid(), b'Z');
    let mut expected = alive();
    expected[2] = "unknown: leader_exited";
    assert_eq!(judged(&described), expected);
}

// B13
// fault B33
#[test]
fn a_thread_is_not_a_process() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        tell.send(Pid::new(id.into()).unwrap()).unwrap();
        let _disconnected = stopped.recv();
    });
    let id = told.recv().unwrap();
    let line = std::fs::read(format!("/proc/{id}/stat")).unwrap();
    let ticks = lease_procfs::Stat::parse(&line).unwrap().start_ticks;

    for proc in Kernels::new().each() {
        let refused = ProcessIdentity::of(proc, id).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("{id} is a thread, not a process")
        );
        // A record whose number a thread has now, with other ticks and with the same.
        let mut record = ProcessIdentity::own(proc).unwrap();
        record.pid = id;
        record.start_ticks = "1".parse().unwrap();
        assert_eq!(judge(proc, &record), "dead: pid_recycled");
        record.start_ticks = ticks;
        assert_eq!(judge(proc, &record), "dead: pid_recycled");
    }
    drop(stop);
    thread.join().unwrap();
}

// B13
#[test]
fn identity_survives_exec() {
    let mut shell = std::process::Command::new("sh")
        .args(["-c", "read line; exec sleep 1000"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::new(shell.id().into()).unwrap();
    let kernels = Kernels::new();
    let before = described(&kernels, pid);
    let same = identities(&kernels, pid);
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
    for _ in 0..5_000 {
        if std::fs::read(format!("/proc/{pid}/comm")).unwrap() == b"sleep\n" {
            break;
        }
        nap();
    }
    assert_eq!(
        std::fs::read(format!("/proc/{pid}/comm")).unwrap(),
        b"sleep\n"
    );
    assert_eq!(identities(&kernels, pid), same);
    assert_eq!(judged(&before), alive());
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert_eq!(judged(&before), DEAD);
}

// B6
// fault B37
#[test]
fn a_process_of_any_name_is_alive_and_then_dead() {
    let names = [
        c"a b",
        c"(x)",
        c") S 1 2 3 (",
        c"               ",
        c"",
        c") (\xff\n",
        c"last",
    ];
    let (mut orders, mut give) = std::io::pipe().unwrap();
    let (mut done, mut report) = std::io::pipe().unwrap();
    let child = Child::fork(move || {
        for name in names {
            orders.read_exact(&mut [0]).unwrap();
            rustix::thread::set_name(name).unwrap();
            report.write_all(&[1]).unwrap();
        }
        sys::wait_for_ever();
    });
    let kernels = Kernels::new();
    let first = described(&kernels, child.pid());
    let same = identities(&kernels, child.pid());
    for name in names {
        give.write_all(&[1]).unwrap();
        done.read_exact(&mut [0]).unwrap();
        assert_eq!(judged(&first), alive(), "renamed to {name:?}");
        assert_eq!(identities(&kernels, child.pid()), same);
    }
    child.kill();
    assert!(
        judged(&first)
            .iter()
            .all(|verdict| !verdict.starts_with("alive"))
    );
    drop(child);
    assert_eq!(judged(&first), DEAD);
}

#[test]
fn a_forked_child_is_another_process_with_another_launch() {
    let proc = ProcFs::system();
    let parent = ProcessIdentity::own(&proc).unwrap();
    let mut child = Child::fork(|| {
        let own = ProcessIdentity::own(&proc).unwrap();
        assert_ne!(own.pid, parent.pid);
        assert!(own.launch.is_some());
        assert_eq!(own.launch, lease_procfs::LaunchId::current());
        assert_ne!(own.launch, parent.launch);
        assert!(matches!(own.matches(&parent), Matching::Different(_)));
        assert_eq!(own, ProcessIdentity::own(&proc).unwrap());
        assert!(judge(&proc, &parent).starts_with("alive"));
    });
    assert!(child.reap(), "the child's assertions hold");
    assert_eq!(ProcessIdentity::own(&proc).unwrap(), parent);
}

#[test]
#[expect(clippy::needless_collect, reason = "all threads run at once")]
fn threads_share_one_launch() {
    let proc = ProcFs::system();
    let own = || ProcessIdentity::own(&proc).unwrap().launch;
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(own)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        all.iter()
            .all(|launch| *launch == own() && launch.is_some())
    );
}

// fault B11
#[test]
fn a_record_of_another_boot_is_dead_even_with_my_own_number_and_ticks() {
    let liveness = ProcLiveness::system();
    let mut record = ProcessIdentity::own(liveness.proc()).unwrap();
    record.boot_id = "351d7b06-ce56-4437-8f88-900d8f613d51".parse().unwrap();
    for pid in [record.pid, Pid::INIT] {
        record.pid = pid;
        let local = liveness.judge(&record, Locality::ThisMachine);
        assert_eq!(shown(&local), "dead: other_boot");
        let shared = liveness.judge(&record, Locality::ManyMachines);
        assert_eq!(shown(&shared), "unknown: another_machine");
        let mut untrusted = record;
        untrusted.boot_trusted = false;
        let unsure = liveness.judge(&untrusted, Locality::ThisMachine);
        assert_eq!(shown(&unsure), "unknown: boot_id_untrusted");
        let (held, none) = (Presence::Held, ProcessProof::default());
        let held = liveness.judge_with(&record, Locality::ThisMachine, held, none);
        assert_eq!(shown(&held), "unknown: presence_held");
    }
}

#[test]
fn equal_boot_ids_are_one_machine_whoever_writes_the_records() {
    // So a running copy of this machine would take our holders for its own, and find them dead.
    let mut child = Child::idle();
    let liveness = ProcLiveness::system();
    let record = ProcessIdentity::of(liveness.proc(), child.pid()).unwrap();
    child.kill();
    child.reap();
    for locality in [Locality::ThisMachine, Locality::ManyMachines] {
        let verdict = liveness.judge(&record, locality);
        assert_eq!(shown(&verdict), "dead: no_such_process");
    }
}

// fault B10
#[test]
fn a_record_with_my_own_number_is_not_me() {
    for proc in Kernels::new().each() {
        let own = ProcessIdentity::own(proc).unwrap();
        let mut record = own;
        record.launch = None;
        record.start_ticks = "1".parse().unwrap();
        record.pidfd_inode = own.pidfd_inode.map(|inode| inode - 1);
        assert_eq!(judge(proc, &record), "dead: pid_recycled");
        assert!(matches!(
            own.matches(&record),
            Matching::Different(_) | Matching::Undecided(_)
        ));
    }
}

#[test]
fn a_question_about_the_rest_of_its_work_is_answered_only_by_looking_at_it() {
    use lease_core::HolderLiveness as _;

    let liveness = ProcLiveness::system();
    let mut child = Child::idle();
    let process = ProcessIdentity::of(liveness.proc(), child.pid()).unwrap();
    let holder = lease_procfs::ProcessHolder::new("editor", process).unwrap();
    child.kill();
    child.reap();
    let token = lease_core::FencingToken {
        authority: lease_core::AuthorityId::from_bytes([1; 16]),
        generation: lease_core::Generation::FIRST,
        lease: lease_core::LeaseId::from_bytes([2; 16]),
    };
    let ask = |group, paths| {
        let occupancy = ProcessProof { group, paths };
        let question = lease_core::Question::new(holder.clone(), token, 0, occupancy);
        shown(&liveness.observe(&question))
    };
    assert_eq!(ask(false, false), "dead: no_such_process");
    assert_eq!(ask(true, false), "dead: no_such_process");
    // Nobody said where to look.
    for group in [true, false] {
        assert_eq!(ask(group, true), "unknown: occupancy_not_observed");
    }
    // A judgement of the process alone is none of its work.
    let occupancy = ProcessProof {
        group: true,
        paths: false,
    };
    let locality = Locality::ThisMachine;
    let judged = liveness.judge_with(holder.process(), locality, Presence::None, occupancy);
    assert_eq!(shown(&judged), "unknown: occupancy_not_observed");
}

// fault B06
#[test]
fn without_descriptors_a_live_holder_is_unknown() {
    let holder = Child::idle();
    let proc = ProcFs::system();
    let alive = ProcessIdentity::of(&proc, holder.pid()).unwrap();
    let mut gone = Child::idle();
    let dead = ProcessIdentity::of(&proc, gone.pid()).unwrap();
    gone.kill();
    gone.reap();
    let mut child = Child::fork(|| {
        // Reads what a forked child reads anew while it still can.
        let proc = ProcFs::system();
        let taken = take_every_descriptor();
        assert_eq!(judge(&proc, &alive), "unknown: lookup_exhausted");
        assert_eq!(judge(&proc, &dead), "dead: no_such_process");
        drop(taken);
        assert!(judge(&proc, &alive).starts_with("alive"));
    });
    assert!(child.reap(), "the child's assertions hold");
}

// B9
// fault B06
#[test]
fn a_process_hidden_from_us_is_unknown() {
    let name = "live::a_process_hidden_from_us_is_unknown";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let (mut report, mut outcome) = std::io::pipe().unwrap();
    let mut outer = Child::fork(|| {
        use rustix::thread::UnshareFlags;
        sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWPID).unwrap();
        let mut inner = Child::fork(|| {
            if let Err((need, reason)) = hide_and_look() {
                outcome
                    .write_all(format!("{need}\n{reason}").as_bytes())
                    .unwrap();
            }
        });
        assert!(inner.reap(), "the inner child's assertions hold");
    });
    drop(outcome);
    let mut missing = String::new();
    report.read_to_string(&mut missing).unwrap();
    assert!(outer.reap(), "the child's assertions hold");
    if let Some((need, reason)) = missing.split_once('\n') {
        not_run(name, need, reason);
    }
}

fn hide_and_look() -> Result<(), Missing> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
        .and_then(|()| {
            mount(
                "proc",
                "/proc",
                "proc",
                MountFlags::empty(),
                Some(c"hidepid=2"),
            )
        })
        .map_err(|errno| ("proc-mount", errno.to_string()))?;
    let holder = Child::idle();
    let records: Vec<_> = Kernels::new()
        .each()
        .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap())
        .into();
    let mut other_user = Child::fork(|| {
        sys::become_user(65_534);
        let kernels = Kernels::new();
        let seen: Vec<_> = kernels
            .each()
            .iter()
            .zip(&records)
            .map(|(proc, record)| judge(proc, record))
            .collect();
        // Without pidfs the first kernel has only ticks, which are hidden.
        let first = if Kernel::detect().pidfs {
            "alive: running"
        } else {
            "unknown: hidden"
        };
        assert_eq!(seen[0], first);
        // Namespaces are known by their first process here, and that one is hidden, too.
        assert!(
            seen[1..]
                .iter()
                .all(|verdict| verdict.starts_with("unknown: ")),
            "{seen:?}"
        );
        for kernel in [
            Kernel::detect(),
            Kernel::detect().without_pidfs(),
            Kernel::detect().without_pidfd(),
        ] {
            let proc = ProcFs::at("/proc", kernel);
            let refused = ProcessIdentity::of(&proc, holder.pid()).unwrap_err();
            assert!(matches!(refused, DescribeError::Hidden { .. }), "{refused}");
            let mut record = ProcessIdentity::own(&proc).unwrap();
            record.pid = holder.pid();
            record.start_ticks = records[1].start_ticks;
            record.pidfd_inode = None;
            assert_eq!(judge(&proc, &record), "unknown: hidden");
        }
    });
    assert!(other_user.reap(), "the other user's assertions hold");
    Ok(())
}

#[test]
fn a_launch_that_differs_in_the_same_process_is_another_image() {
    let proc = ProcFs::system();
    let own = ProcessIdentity::own(&proc).unwrap();
    let mut earlier = own;
    earlier.launch = Some("ec0895b6-afec-d185-0651-8e3ddb668a2c".parse().unwrap());
    assert_eq!(own.matches(&earlier), Matching::Different(Part::Launch));
}

// fault B38
#[test]
fn a_number_above_four_million_is_a_process() {
    let name = "live::a_number_above_four_million_is_a_process";
    isolated(name, Space::Pid, || {
        let pid = Pid::new(4_000_001).unwrap();
        let mut child = Child::idle_at(pid).map_err(|error| ("set-tid", error.to_string()))?;
        let kernels = Kernels::new();
        let described = described(&kernels, pid);
        assert_eq!(judged(&described), alive());
        child.kill();
        child.reap();
        assert_eq!(judged(&described), DEAD);
        Ok(())
    });
}

#[test]
fn a_kept_pidfs_verdict_opens_no_proc_file() {
    if !has_pidfs("live::a_kept_pidfs_verdict_opens_no_proc_file") {
        return;
    }
    // The root is looked at once, when it is opened; the verdict itself needs the kernel alone.
    let liveness = ProcLiveness::system();
    let own = ProcessIdentity::own(liveness.proc()).unwrap();
    let facts = liveness.gather(
        &own,
        Locality::ThisMachine,
        Presence::None,
        ProcessProof::default(),
    );
    assert_eq!(facts.ticks, lease_procfs::facts::Ticks::NotAsked);
    assert_eq!(facts.number, lease_procfs::facts::Number::NotAsked);
}
