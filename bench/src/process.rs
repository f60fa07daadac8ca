//! Processes: a verdict, a kept one, a group, and who uses a path, each beside its raw calls.

use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use lease_procfs::lease_core::{Locality, Verdict};
use lease_procfs::work::GroupLiveness;
use lease_procfs::{
    Exclusion, Found, KeptProcess, Pass, ProcFs, ProcLiveness, ProcessGroup, ProcessIdentity,
    TargetPath,
};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use crate::calls::calls;
use crate::raw;
use crate::report::{Calls, Row};
use crate::rounds::{Work, allocations, least, least_of_long};

/// A unit of work, done so many times.
type Job = Box<dyn FnMut(u64)>;

/// Processes that sleep until this is dropped, each the first of its own group.
pub(crate) struct Sleepers(Vec<Child>);

impl Sleepers {
    fn new(count: usize) -> Rc<Self> {
        use std::os::unix::process::CommandExt as _;
        let sleeper = |_| {
            Command::new("sleep")
                // Long enough, and no longer: who kills this program leaves them behind.
                .arg("1800")
                .stdin(Stdio::null())
                .process_group(0)
                .spawn()
                .expect("sleep is there")
        };
        Rc::new(Self((0..count).map(sleeper).collect()))
    }

    fn first(&self) -> lease_procfs::Pid {
        lease_procfs::Pid::new(self.0[0].id().into()).expect("a pid")
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// How a verdict of one running process is come by.
const VERDICTS: [&str; 5] = ["raw-verdict", "verdict", "procfs", "sysinfo", "signal"];

/// The same with a pidfd that is kept.
const KEPT: [&str; 2] = ["raw-poll", "kept"];

/// How one tells whether a group has a member.
const GROUPS: [&str; 3] = ["raw-group", "group", "procfs-group"];

/// How one finds who uses paths. The number of targets is part of the name.
const PASSES: [&str; 5] = [
    "raw-pass",
    "pass-1",
    "pass-100",
    "procfs-pass",
    "raw-evidence",
];

/// Does one named work, for who counts its system calls. `SLEEPERS:NAME`.
pub(crate) fn work(name: &str, count: u64) -> Result<(), String> {
    let unknown = || format!("unknown work {name}");
    let (sleepers, name) = name.split_once(':').ok_or_else(unknown)?;
    let sleepers = sleepers.parse().map_err(|_| unknown())?;
    job(name, &Sleepers::new(sleepers)).ok_or_else(unknown)?(count);
    Ok(())
}

fn job(name: &str, sleepers: &Rc<Sleepers>) -> Option<Job> {
    let (kept, sleepers) = (Rc::clone(sleepers), Rc::clone(sleepers));
    let mut unit: Box<dyn FnMut()> = match name {
        "raw-verdict" => raw_verdict(&sleepers),
        "verdict" => verdict(&sleepers),
        "procfs" => procfs_start(&sleepers),
        "sysinfo" => sysinfo_start(&sleepers),
        "signal" => signal(&sleepers),
        "raw-poll" => raw_poll(&sleepers),
        "kept" => kept_verdict(&sleepers),
        "raw-group" => raw_group(&sleepers),
        "group" => group(&sleepers),
        "procfs-group" => procfs_group(&sleepers),
        "raw-pass" => raw_pass(raw::Depth::Paths),
        "raw-evidence" => raw_pass(raw::Depth::Evidence),
        "pass-1" => pass(1),
        "pass-100" => pass(100),
        "procfs-pass" => procfs_pass(),
        _ => return None,
    };
    Some(Box::new(move |count| {
        for _ in 0..count {
            unit();
        }
        let _alive = &kept;
    }))
}

fn identity(sleepers: &Sleepers) -> ProcessIdentity {
    ProcessIdentity::of(&ProcFs::system(), sleepers.first()).expect("it runs")
}

fn raw_verdict(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let pid = sleepers.first().get();
    let inode = raw::inode(&raw::open(pid));
    Box::new(move || {
        let pidfd = raw::open(pid);
        assert!(raw::inode(&pidfd) == inode && !raw::has_exited(&pidfd));
    })
}

fn verdict(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let (identity, liveness) = (identity(sleepers), ProcLiveness::system());
    Box::new(move || {
        let verdict = liveness.judge(&identity, Locality::ThisMachine);
        assert!(matches!(verdict, Verdict::Alive(_)));
    })
}

fn procfs_start(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let pid = sleepers.first().get();
    let start = identity(sleepers).start_ticks.get();
    Box::new(move || {
        let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
        assert!(stat.is_ok_and(|stat| stat.starttime == start));
    })
}

fn sysinfo_start(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let pid = sysinfo::Pid::from_u32(sleepers.first().get().unsigned_abs());
    let mut system = System::new();
    Box::new(move || {
        let nothing = ProcessRefreshKind::nothing();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, nothing);
        assert!(system.process(pid).is_some_and(|it| it.start_time() > 0));
    })
}

fn signal(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let pid = sleepers.first().get();
    Box::new(move || assert!(raw::signal_zero(pid)))
}

fn raw_poll(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let pidfd = raw::open(sleepers.first().get());
    Box::new(move || assert!(!raw::has_exited(&pidfd)))
}

fn kept_verdict(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let found = KeptProcess::open(
        &ProcFs::system(),
        &identity(sleepers),
        Locality::ThisMachine,
    );
    let Ok(Found::Running(kept)) = found else {
        panic!("it runs: {found:?}");
    };
    Box::new(move || assert!(matches!(kept.verdict(), Verdict::Alive(_))))
}

fn raw_group(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let group = sleepers.first().get();
    Box::new(move || assert!(raw::signal_zero_to_group(group)))
}

fn group(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let group = ProcessGroup::new(sleepers.first());
    Box::new(move || assert_eq!(group.liveness(), GroupLiveness::Alive))
}

fn procfs_group(sleepers: &Sleepers) -> Box<dyn FnMut()> {
    let group = sleepers.first().get();
    Box::new(move || {
        let all = procfs::process::all_processes().expect("/proc is there");
        let alive = all
            .filter_map(|process| process.ok()?.stat().ok())
            .any(|stat| stat.pgrp == group);
        assert!(alive);
    })
}

/// A folder that this program works in, so that somebody uses it.
fn used() -> TargetPath {
    TargetPath::new(std::env::current_dir().expect("a working folder")).expect("an absolute path")
}

fn raw_pass(depth: raw::Depth) -> Box<dyn FnMut()> {
    let target = used().as_path().as_os_str().as_encoded_bytes().to_vec();
    Box::new(move || assert!(raw::pass(&target, depth) > 0))
}

fn pass(targets: usize) -> Box<dyn FnMut()> {
    let proc = ProcFs::system();
    let mut paths = vec![used()];
    paths.extend((1..targets).map(|number| {
        TargetPath::new(format!("/no-such-folder/{number}")).expect("an absolute path")
    }));
    Box::new(move || {
        let pass = Pass::new(&proc);
        let users = paths.iter().map(|path| {
            let users = pass.users_of(path, &Exclusion::nobody());
            users.expect("/proc is there").users.len()
        });
        assert!(users.sum::<usize>() > 0);
    })
}

fn procfs_pass() -> Box<dyn FnMut()> {
    use procfs::process::{FDTarget, MMapPath, Process};

    let target = used().as_path().to_owned();
    let uses = move |process: Process| {
        let cwd = process.cwd().is_ok_and(|cwd| cwd.starts_with(&target));
        let open = process.fd().into_iter().flatten().flatten();
        let open = open.filter(|fd| match &fd.target {
            FDTarget::Path(path) => path.starts_with(&target),
            _ => false,
        });
        let maps = process.maps().into_iter().flatten();
        let maps = maps.filter(|map| match &map.pathname {
            MMapPath::Path(path) => path.starts_with(&target),
            _ => false,
        });
        open.count() + maps.count() + usize::from(cwd)
    };
    Box::new(move || {
        let all = procfs::process::all_processes().expect("/proc is there");
        assert!(all.flatten().map(&uses).sum::<usize>() > 0);
    })
}

/// Rounds and units in a round.
#[derive(Clone, Copy)]
enum Amount {
    Many(u64),
    Rounds(u64),
}

/// The figures of these works, of which the first is the floor.
fn figures(names: &[&str], sleepers: &Rc<Sleepers>, amount: Amount) -> Vec<f64> {
    let jobs = names.iter().map(|name| job(name, sleepers));
    let mut jobs: Vec<_> = jobs.map(|job| job.expect("a known work")).collect();
    let mut works: Vec<&mut dyn Work> = jobs.iter_mut().map(|job| job as &mut dyn Work).collect();
    match amount {
        Amount::Many(total) => least(total, &mut works),
        Amount::Rounds(rounds) => least_of_long(rounds, &mut works),
    }
}

/// Counts the calls of one work and of its floor by running both again under strace.
fn counted(ours: &str, floor: &str, sleepers: usize, units: u64) -> Calls {
    let count = |name: &str| calls(&format!("{sleepers}:{name}"), units);
    match (count(ours), count(floor)) {
        (Ok(ours), Ok(floor)) => Calls::Counted { ours, floor },
        (Err(reason), _) | (_, Err(reason)) => Calls::NotRun(reason),
    }
}

fn allocated(name: &str, sleepers: &Rc<Sleepers>, count: u64) -> Option<f64> {
    let mut job = job(name, sleepers)?;
    Some(allocations(count, &mut job))
}

/// One process is judged.
pub(crate) fn verdicts() -> Vec<Row> {
    let sleepers = Sleepers::new(1);
    let figures = figures(&VERDICTS, &sleepers, Amount::Many(60_000));
    vec![Row {
        name: "d1 verdict of a recorded holder".to_owned(),
        ours: figures[1],
        floor: Some(figures[0]),
        goal: Some(1.15),
        unit: "ns",
        allocations: allocated("verdict", &sleepers, 1_000),
        calls: counted("verdict", "raw-verdict", 1, 2_000),
        peers: vec![
            ("procfs crate: start time only", figures[2]),
            ("sysinfo crate: start time only", figures[3]),
            ("kill(pid, 0): takes any later owner", figures[4]),
        ],
    }]
}

/// One process is judged by a pidfd that was kept.
pub(crate) fn kept() -> Vec<Row> {
    let sleepers = Sleepers::new(1);
    let figures = figures(&KEPT, &sleepers, Amount::Many(600_000));
    vec![Row {
        name: "d2 verdict by a kept pidfd".to_owned(),
        ours: figures[1],
        floor: Some(figures[0]),
        goal: Some(1.3),
        unit: "ns",
        allocations: allocated("kept", &sleepers, 1_000),
        calls: counted("kept", "raw-poll", 1, 2_000),
        peers: Vec::new(),
    }]
}

/// A group is asked for a member.
pub(crate) fn groups() -> Vec<Row> {
    let sleepers = Sleepers::new(50);
    let figures = figures(&GROUPS[..2], &sleepers, Amount::Many(600_000));
    let scan = self::figures(&GROUPS[2..], &sleepers, Amount::Rounds(100));
    vec![Row {
        name: "d3 whether a group has a member".to_owned(),
        ours: figures[1],
        floor: Some(figures[0]),
        goal: Some(1.5),
        unit: "ns",
        allocations: allocated("group", &sleepers, 1_000),
        calls: counted("group", "raw-group", 50, 2_000),
        peers: vec![("procfs crate: a scan, 50 sleepers", scan[0])],
    }]
}

/// Everybody is asked for uses of a path.
pub(crate) fn passes() -> Vec<Row> {
    let mut rows = Vec::new();
    for (count, rounds) in [(50, 60), (500, 30)] {
        let sleepers = Sleepers::new(count);
        let figures = figures(&PASSES, &sleepers, Amount::Rounds(rounds));
        for (ours, targets, floor, beside) in [
            (1, 1, 0, ""),
            (2, 100, 0, ""),
            (1, 1, 4, ", beside all evidence raw"),
        ] {
            let (name, floor_name) = (PASSES[ours], PASSES[floor]);
            rows.push(Row {
                name: format!("d4 who uses {targets} paths, {count} sleepers{beside}"),
                ours: figures[ours],
                floor: Some(figures[floor]),
                goal: Some(1.1),
                unit: "ns of cpu",
                allocations: allocated(name, &sleepers, 5),
                calls: match count {
                    50 => counted(name, floor_name, count, 5),
                    _ => Calls::NotCounted,
                },
                peers: match (ours, floor) {
                    (1, 0) => vec![("procfs crate: one path", figures[3])],
                    _ => Vec::new(),
                },
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_does_what_its_name_says() {
        let sleepers = Sleepers::new(2);
        for names in [&VERDICTS[..], &KEPT, &GROUPS, &PASSES] {
            for name in names {
                job(name, &sleepers).unwrap()(2);
            }
        }
        assert!(job("luck", &sleepers).is_none());
        assert!(work("2:kept", 1).is_ok() && work("kept", 1).is_err());
    }
}
