//! Numbers that come back, for real: the same pid in a fresh pid namespace.

use lease_procfs::{Kernel, Matching, Part, Pid, ProcFs, ProcessIdentity};

use crate::rig::{Missing, Space, isolated, judge};
use crate::sys::Child;

const PID: i64 = 4_242;

fn spawn() -> Result<Child, Missing> {
    Child::idle_at(Pid::new(PID).unwrap()).map_err(|error| ("set-tid", error.to_string()))
}

/// Two processes that had the number one after the other, the second still running.
fn recycle(proc: &ProcFs) -> Result<(ProcessIdentity, ProcessIdentity, Child), Missing> {
    let mut first = spawn()?;
    let before = ProcessIdentity::of(proc, first.pid()).unwrap();
    first.kill();
    first.reap();
    let second = spawn()?;
    let after = ProcessIdentity::of(proc, second.pid()).unwrap();
    Ok((before, after, second))
}

/// How many numbers come back in the long tests.
const TIMES: u32 = 1_000;

// B2, B11
// fault B10
#[test]
fn one_number_comes_back_a_thousand_times_and_every_owner_is_told_from_the_next() {
    let name =
        "recycled::one_number_comes_back_a_thousand_times_and_every_owner_is_told_from_the_next";
    isolated(name, Space::Pid, || {
        let kernel = Kernel::detect();
        if !kernel.pidfs {
            return Err(("pidfs", "pidfds have no inode of their own".to_owned()));
        }
        let proc = ProcFs::at("/proc", kernel);
        let mut earlier: Vec<ProcessIdentity> = Vec::new();
        let mut same_tick = 0;
        let mut last = Child::idle();
        for _ in 0..TIMES {
            last.kill();
            last.reap();
            last = spawn()?;
            let present = ProcessIdentity::of(&proc, last.pid()).unwrap();
            assert_eq!(judge(&proc, &present), "alive: running");
            if let Some(before) = earlier.last() {
                same_tick += u32::from(before.start_ticks == present.start_ticks);
                assert_eq!(judge(&proc, before), "dead: pid_recycled");
                assert!(matches!(
                    before.matches(&present),
                    Matching::Different(Part::PidfdInode)
                ));
            }
            earlier.push(present);
        }
        let present = earlier.pop().unwrap();
        for before in &earlier {
            assert_eq!(judge(&proc, before), "dead: pid_recycled");
        }
        assert_eq!(judge(&proc, &present), "alive: running");
        report(same_tick);
        // A busy machine takes longer than a tick, but not a thousand times.
        assert!(same_tick > 0, "none within the tick");
        Ok(())
    });
}

// B11
#[test]
fn without_inodes_and_without_the_guard_most_recycled_numbers_would_look_alive() {
    let name =
        "recycled::without_inodes_and_without_the_guard_most_recycled_numbers_would_look_alive";
    isolated(name, Space::Pid, || {
        let proc = ProcFs::at("/proc", Kernel::detect().without_pidfs());
        // What a describer records that reads the ticks at once, as most programs do.
        let own = ProcessIdentity::own(&proc).unwrap();
        let hasty = |child: &Child| {
            let line = std::fs::read(format!("/proc/{}/stat", child.pid())).unwrap();
            let mut record = own;
            record.launch = None;
            record.pid = child.pid();
            record.start_ticks = lease_procfs::Stat::parse(&line).unwrap().start_ticks;
            record
        };
        let mut last = spawn()?;
        let mut mistaken = 0;
        for _ in 0..TIMES {
            let before = hasty(&last);
            last.kill();
            last.reap();
            last = spawn()?;
            let seen = judge(&proc, &before);
            match seen.as_str() {
                "dead: pid_recycled" => {}
                "alive: running_by_start_ticks" => mistaken += 1,
                other => panic!("{other}"),
            }
        }
        report(mistaken);
        // The hole is there, so the guard of `of` and `own` is what closes it: see the next test.
        assert!(mistaken > 0, "none within the tick");
        Ok(())
    });
}

/// Says how many of the recycled numbers had the same start ticks.
#[expect(clippy::print_stderr, reason = "people read it")]
fn report(same: u32) {
    eprintln!("{same} of {TIMES} came back with the same start ticks");
}

// B2
// fault B10
#[test]
fn a_number_that_came_back_within_the_same_tick_is_told_apart_by_its_inode() {
    let name = "recycled::a_number_that_came_back_within_the_same_tick_is_told_apart_by_its_inode";
    isolated(name, Space::Pid, || {
        let kernel = Kernel::detect();
        if !kernel.pidfs {
            return Err(("pidfs", "pidfds have no inode of their own".to_owned()));
        }
        let proc = ProcFs::at("/proc", kernel);
        let mut same_tick = 0;
        for _ in 0..2_000 {
            let (before, after, _second) = recycle(&proc)?;
            assert_eq!(before.pid, after.pid);
            assert_eq!(judge(&proc, &before), "dead: pid_recycled");
            assert_eq!(judge(&proc, &after), "alive: running");
            assert_eq!(
                before.matches(&after),
                Matching::Different(Part::PidfdInode)
            );
            same_tick += u32::from(before.start_ticks == after.start_ticks);
            if same_tick == 20 {
                return Ok(());
            }
        }
        panic!("only {same_tick} of 2000 came back within the tick");
    });
}

// B11
#[test]
fn without_inodes_the_one_tick_guard_tells_every_recycled_number_apart() {
    let name = "recycled::without_inodes_the_one_tick_guard_tells_every_recycled_number_apart";
    isolated(name, Space::Pid, || {
        for kernel in [
            Kernel::detect().without_pidfs(),
            Kernel::detect().without_pidfd(),
        ] {
            let proc = ProcFs::at("/proc", kernel);
            for _ in 0..100 {
                let (before, after, _second) = recycle(&proc)?;
                assert_ne!(before.start_ticks, after.start_ticks);
                assert_eq!(judge(&proc, &before), "dead: pid_recycled");
                assert_eq!(judge(&proc, &after), "alive: running_by_start_ticks");
            }
        }
        Ok(())
    });
}

#[test]
fn a_number_that_its_group_keeps_is_gone() {
    let name = "recycled::a_number_that_its_group_keeps_is_gone";
    isolated(name, Space::Pid, || {
        let leader_pid = Pid::new(PID).unwrap();
        let mut leader = spawn()?;
        let raw = rustix::process::Pid::from_raw(leader_pid.get());
        rustix::process::setpgid(raw, raw).unwrap();
        let member = Child::idle();
        let member_raw = rustix::process::Pid::from_raw(member.pid().get());
        rustix::process::setpgid(member_raw, raw).unwrap();
        let kernels = crate::rig::Kernels::new();
        let records = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, leader_pid).unwrap());
        leader.kill();
        leader.reap();
        assert!(spawn().is_err(), "the group keeps the number");
        for (proc, record) in kernels.each().iter().zip(&records) {
            assert_eq!(judge(proc, record), "dead: no_such_process");
        }
        Ok(())
    });
}
