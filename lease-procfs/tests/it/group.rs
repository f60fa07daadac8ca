//! The process group of a dead holder, for real where the kernel must say it.

use lease_core::Locality;
use lease_procfs::work::GroupLiveness;
use lease_procfs::{
    Kernel, Pass, ProcFs, ProcLiveness, ProcessGroup, ProcessHolder, ProcessIdentity,
};
use rustix::process::setpgid;

use crate::crew::{
    BOTH, FakeProc, GROUP, Place, ask, lead_a_group, pid, question, recorded, told, wrapper,
};
use crate::rig::{Kernels, Space, isolated, not_run};
use crate::sys::{self, Child};

fn group(number: i64) -> ProcessGroup {
    ProcessGroup::new(pid(number))
}

/// The same holder as one who recorded no group.
fn without_group(holder: &ProcessHolder) -> ProcessHolder {
    ProcessHolder::new(holder.client(), *holder.process()).unwrap()
}

#[test]
fn the_present_group_of_a_named_process_is_recorded_and_never_that_of_a_gone_one() {
    use lease_procfs::DescribeError;
    use lease_procfs::select::{Labels, Selector, resolve};

    let labels = Labels {
        client: "editor",
        session: None,
        run: None,
    };
    let mut leader = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    for proc in Kernels::new().each() {
        let named = resolve(proc, &Selector::Pid(leader.pid()), labels).unwrap();
        assert_eq!(named.group(), None);
        // The child may not have come to lead it yet.
        let grouped = loop {
            let grouped = named.clone().with_present_group(proc).unwrap();
            if grouped.group().map(ProcessGroup::get) == Some(leader.pid()) {
                break grouped;
            }
            std::thread::yield_now();
        };
        assert_eq!(grouped, named, "the group is no part of who it is");
    }
    let named = ProcessHolder::new(
        "editor",
        *recorded(&ProcFs::system(), leader.pid()).process(),
    );
    leader.kill();
    leader.reap();
    let gone = named.unwrap().with_present_group(&ProcFs::system());
    let gone = gone.unwrap_err();
    assert!(matches!(gone, DescribeError::NotRunning { .. }), "{gone}");
}

// B29, S18
#[test]
fn a_killed_leaders_lease_is_occupied_until_the_last_of_its_group_is_gone() {
    let away = Place::new("away");
    let (mut leader, worker) = wrapper(lead_a_group, || std::env::set_current_dir("/").unwrap());
    let kernels = Kernels::new();
    let holders = kernels.each().map(|proc| {
        (
            ProcLiveness::new(proc.clone()),
            recorded(proc, leader.pid()),
        )
    });
    let each = |expected: &str| {
        for (liveness, holder) in &holders {
            for holder in [holder, &without_group(holder)] {
                let verdict = ask(liveness, holder, BOTH, Some(away.path()));
                assert_eq!(told(&verdict), expected);
            }
        }
    };
    leader.kill();
    let occupied = format!("occupied: group_alive {} (group)", worker.pid);
    for (liveness, holder) in &holders[..2] {
        let verdict = ask(liveness, holder, GROUP, None);
        assert_eq!(told(&verdict), occupied, "not reaped yet");
    }
    leader.reap();
    each(&occupied);
    assert_eq!(
        ask(&holders[0].0, &holders[0].1, GROUP, None)
            .evidence()
            .detail
            .as_deref(),
        Some(&*format!("1 process in process group {}", leader.pid()))
    );
    // A zombie keeps the group alive, and counts.
    worker.kill();
    each(&format!(
        "occupied: group_alive {} (group, exited)",
        worker.pid
    ));
    worker.end();
    each("dead: no_such_process");
}

// S21
#[test]
fn an_earlier_boots_group_is_not_looked_at_and_its_paths_are() {
    let place = Place::new("boot");
    let leader = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    wait_for_group(&leader);
    let liveness = ProcLiveness::system();
    let present = recorded(liveness.proc(), leader.pid());
    let mut process = *present.process();
    process.boot_id = "351d7b06-ce56-4437-8f88-900d8f613d51".parse().unwrap();
    let holder = ProcessHolder::new("editor", process)
        .unwrap()
        .with_group(present.group().unwrap());
    // A scan would find it: the group of this number lives.
    assert_eq!(
        group(leader.pid().get().into()).liveness(),
        GroupLiveness::Alive
    );
    let verdict = ask(&liveness, &holder, BOTH, Some(place.path()));
    assert_eq!(told(&verdict), "dead: other_boot");
    let directory = place.path().to_owned();
    let (mut parent, user) = wrapper(|| {}, move || std::env::set_current_dir(directory).unwrap());
    let verdict = ask(&liveness, &holder, BOTH, Some(place.path()));
    assert_eq!(
        told(&verdict),
        format!("occupied: path_in_use {} (cwd)", user.pid)
    );
    parent.kill();
    parent.reap();
}

// B30, S22
#[test]
fn the_group_of_a_numbers_new_owner_is_no_evidence() {
    let name = "group::the_group_of_a_numbers_new_owner_is_no_evidence";
    isolated(name, Space::Pid, || {
        let number = pid(4_242);
        let spawn = || Child::idle_at(number).map_err(|error| ("set-tid", error.to_string()));
        let raw = rustix::process::Pid::from_raw(number.get());
        for kernel in [Kernel::detect(), Kernel::detect().without_pidfs()] {
            let liveness = ProcLiveness::new(ProcFs::at("/proc", kernel));
            let mut first = spawn()?;
            setpgid(raw, raw).unwrap();
            let holder = recorded(liveness.proc(), number);
            first.kill();
            first.reap();
            let mut second = spawn()?;
            setpgid(raw, raw).unwrap();
            let mut others = [Child::idle(), Child::idle()];
            for other in &others {
                setpgid(rustix::process::Pid::from_raw(other.pid().get()), raw).unwrap();
            }
            assert_eq!(ProcessGroup::new(number).liveness(), GroupLiveness::Alive);
            for holder in [&holder, &without_group(&holder)] {
                let verdict = ask(&liveness, holder, BOTH, Some("/nowhere".as_ref()));
                assert_eq!(told(&verdict), "dead: pid_recycled");
            }
            second.kill();
            second.reap();
            for other in &mut others {
                other.kill();
                other.reap();
            }
        }
        Ok(())
    });
}

// B31, S19
#[test]
fn of_a_recorded_group_only_who_is_no_older_than_the_holder_counts() {
    let ticks = ProcFs::at("/proc", Kernel::detect().without_pidfd());
    let leader = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    wait_for_group(&leader);
    let number = rustix::process::Pid::from_raw(leader.pid().get());
    // Returns only after the leader's tick, so the holder is younger.
    ProcessIdentity::of(&ticks, leader.pid()).unwrap();
    let (mut wrapper, worker) = wrapper(
        || setpgid(None, number).unwrap(),
        || std::env::set_current_dir("/").unwrap(),
    );
    let liveness = ProcLiveness::system();
    let holder = recorded(liveness.proc(), wrapper.pid());
    assert_eq!(holder.group(), Some(ProcessGroup::new(leader.pid())));
    wrapper.kill();
    let told = |liveness: &ProcLiveness, holder: &ProcessHolder| {
        told(&ask(liveness, holder, BOTH, Some("/nowhere".as_ref())))
    };
    let occupied = format!("occupied: group_alive {} (group)", worker.pid);
    // A holder that was not reaped still shows its group.
    assert_eq!(told(&liveness, &holder), occupied);
    assert_eq!(told(&liveness, &without_group(&holder)), occupied);
    wrapper.reap();
    assert_eq!(told(&liveness, &holder), occupied);
    let dead = "dead: no_such_process";
    assert_eq!(told(&liveness, &without_group(&holder)), dead);
    assert_eq!(
        told(&liveness.clone().ignore_recorded_groups(), &holder),
        dead
    );
    worker.end();
    assert_eq!(told(&liveness, &holder), dead);
    assert_eq!(
        ProcessGroup::new(leader.pid()).liveness(),
        GroupLiveness::Alive,
        "the older leader lives on"
    );
}

// B32
#[test]
fn the_caller_in_the_group_counts_and_the_exited_holder_does_not() {
    let liveness = ProcLiveness::system();
    let leader = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    let number = rustix::process::Pid::from_raw(leader.pid().get());
    wait_for_group(&leader);
    let holder = recorded(liveness.proc(), leader.pid());
    leader.kill();
    // Not reaped, so the kernel still calls the group alive.
    assert_eq!(
        ProcessGroup::new(leader.pid()).liveness(),
        GroupLiveness::Alive
    );
    assert_eq!(told(&ask(&liveness, &holder, GROUP, None)), "dead: exited");
    let mut caller = Child::fork(|| {
        setpgid(None, number).unwrap();
        let own = rustix::process::getpid().as_raw_nonzero();
        let verdict = ask(&ProcLiveness::system(), &holder, GROUP, None);
        assert_eq!(
            told(&verdict),
            format!("occupied: group_alive {own} (group)")
        );
    });
    assert!(caller.reap(), "the caller's assertions hold");
}

/// Waits until a child leads its own group.
fn wait_for_group(child: &Child) {
    let raw = rustix::process::Pid::from_raw(child.pid().get());
    for _ in 0..5_000 {
        if rustix::process::getpgid(raw).ok() == raw {
            return;
        }
        let millisecond = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let _woken = rustix::thread::nanosleep(&millisecond);
    }
    panic!("{} never led a group", child.pid());
}

// B32
#[test]
fn a_scan_skips_who_vanishes_and_counts_who_cannot_be_read() {
    let fake = FakeProc::new("group-scan");
    fake.process(4_242, 1, 4_242, 987_654);
    fake.process(4_250, 1, 4_242, 987_700);
    fake.process(4_260, 1, 4_260, 987_700);
    // Listed, and gone when it is read.
    fake.process(4_270, 1, 4_242, 987_700);
    fake.remove(4_270, "stat");
    // Neither a line nor readable.
    fake.process(4_280, 1, 4_242, 987_700);
    fake.write(4_280, "stat", b"4280 (x S 1 4242");
    fake.process(4_290, 1, 4_242, 987_700);
    fake.remove(4_290, "stat");
    std::fs::create_dir(fake.path(4_290, "stat")).unwrap();
    let members = Pass::new(&fake.proc()).group(group(4_242)).unwrap();
    let pids: Vec<_> = members.members.iter().map(|one| one.pid.get()).collect();
    assert_eq!(pids, [4_242, 4_250]);
    assert_eq!((members.unreadable, members.hides), (2, false));
}

// B32
#[test]
fn somebody_elses_group_is_alive() {
    let name = "group::somebody_elses_group_is_alive";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let leader = Child::fork(|| {
        lead_a_group();
        sys::wait_for_ever();
    });
    wait_for_group(&leader);
    let number = ProcessGroup::new(leader.pid());
    let mut other = Child::fork(|| {
        sys::become_user(65_534);
        assert_eq!(number.liveness(), GroupLiveness::Alive);
    });
    assert!(other.reap(), "the other user's assertions hold");
    assert_eq!(number.liveness(), GroupLiveness::Alive);
}

#[test]
fn the_first_process_is_never_asked_as_a_group() {
    // The kernel takes -1 for everybody, who is always there.
    assert_eq!(group(1).liveness(), GroupLiveness::Undecided);
}

#[test]
fn a_holder_of_another_pid_namespace_has_no_group_here() {
    let liveness = ProcLiveness::system();
    let mut child = Child::idle();
    let here = recorded(liveness.proc(), child.pid());
    child.kill();
    child.reap();
    let mut process = *here.process();
    process.pid_namespace = Some(lease_procfs::Namespace::Id(u64::MAX));
    let holder = ProcessHolder::new("editor", process).unwrap();
    let mut question = question(&holder, BOTH, Some("/nowhere".as_ref()));
    question.locality = Locality::ThisMachine;
    let free = liveness.observe_with(&question, lease_procfs::facts::Presence::Free);
    let kernel_has_ids = liveness.proc().kernel().namespace_ids;
    let expected = if kernel_has_ids {
        "unknown: occupancy_not_observed"
    } else {
        "unknown: pid_namespace_unknown"
    };
    assert_eq!(told(&free), expected);
}
