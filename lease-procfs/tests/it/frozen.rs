//! Processes that do not move, or are of a strange kind, and live all the same.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_core::Locality::ThisMachine;
use lease_procfs::{DeathWatch, Found, KeptProcess, Pid, ProcFs, ProcessIdentity, Stat};
use rustix::process::Signal;

use crate::live::{nap, wait_for_state};
use crate::rig::{Kernels, judge, not_run};
use crate::sys::{self, Child};

/// A process that was described and is watched in every way there is.
struct Watched {
    kernels: Kernels,
    records: Vec<ProcessIdentity>,
    kept: KeptProcess,
    deaths: DeathWatch,
}

impl Watched {
    fn new(pid: Pid) -> Self {
        let kernels = Kernels::new();
        let records: Vec<_> = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, pid).unwrap())
            .into();
        let deaths = DeathWatch::new(&kernels.pidfs).unwrap();
        let found = deaths.watch(&records[0], ThisMachine).unwrap();
        assert!(matches!(found, Found::Running(_)), "{found:?}");
        let kept = KeptProcess::open(&kernels.pidfs, &records[0], ThisMachine).unwrap();
        let Found::Running(kept) = kept else {
            panic!("it runs: {kept:?}");
        };
        Self {
            kernels,
            records,
            kept,
            deaths,
        }
    }

    #[track_caller]
    fn assert_alive(&self, how: &str) {
        for (proc, record) in self.kernels.each().iter().zip(&self.records) {
            let seen = judge(proc, record);
            assert!(seen.starts_with("alive: running"), "{how}: {seen}");
        }
        assert_eq!(self.kept.verdict().name(), "alive", "{how}");
        let told = self.deaths.wait(Some(Duration::ZERO)).unwrap();
        assert!(told.is_empty(), "{how}");
    }

    /// Waits for the death to be told.
    #[track_caller]
    fn assert_dies(&self) {
        let told = self.deaths.wait(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(told.len(), 1, "the death is told");
        assert_eq!(self.kept.verdict().name(), "dead");
        assert_eq!(judge(&self.kernels.pidfs, &self.records[0]), "dead: exited");
    }
}

/// A cgroup of this test's own, with one child in it. Dropping it ends both.
struct Frozen {
    folder: PathBuf,
    freezer: &'static str,
    child: Option<Child>,
}

/// How the two versions of cgroups freeze: where, by which file, and what they call it.
struct Freezer {
    need: &'static str,
    roots: &'static [&'static str],
    file: &'static str,
    frozen: &'static str,
    thawed: &'static str,
}

const FIRST: Freezer = Freezer {
    need: "cgroup-v1-freezer",
    roots: &["/sys/fs/cgroup/freezer"],
    file: "freezer.state",
    frozen: "FROZEN",
    thawed: "THAWED",
};

const SECOND: Freezer = Freezer {
    need: "cgroup-v2-freezer",
    roots: &["/sys/fs/cgroup/unified", "/sys/fs/cgroup"],
    file: "cgroup.freeze",
    frozen: "1",
    thawed: "0",
};

impl Frozen {
    /// Makes the cgroup, or says that this machine has no such thing.
    fn new(test: &str, freezer: &Freezer) -> Option<Self> {
        let missing = |reason: &str| not_run(test, freezer.need, reason);
        let Some(root) = freezer.roots.iter().map(Path::new).find(|at| at.is_dir()) else {
            missing("there is no such folder");
            return None;
        };
        let own = rustix::process::getpid().as_raw_nonzero();
        let mut frozen = Self {
            folder: root.join(format!("lease-procfs-test-{own}")),
            freezer: freezer.file,
            child: None,
        };
        if let Err(error) = fs::create_dir(&frozen.folder) {
            missing(&error.to_string());
            return None;
        }
        if !frozen.folder.join(freezer.file).exists() {
            missing("cgroups have no freezer");
            return None;
        }
        let child = Child::idle();
        fs::write(frozen.folder.join("cgroup.procs"), child.pid().to_string()).unwrap();
        frozen.child = Some(child);
        Some(frozen)
    }

    fn child(&self) -> &Child {
        self.child.as_ref().unwrap()
    }

    fn write(&self, state: &str) {
        fs::write(self.folder.join(self.freezer), state).unwrap();
    }

    /// Waits until the cgroup says so itself.
    fn wait_until(&self, file: &str, word: &str) {
        let file = self.folder.join(file);
        for _ in 0..5_000 {
            if fs::read_to_string(&file).unwrap().contains(word) {
                return;
            }
            nap();
        }
        panic!("{} never said {word}", file.display());
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A frozen process of version 1 does not die.
        let thawed = if self.freezer == FIRST.file {
            FIRST.thawed
        } else {
            SECOND.thawed
        };
        if self.child.is_some() {
            let _refused = fs::write(self.folder.join(self.freezer), thawed);
        }
        self.child = None;
        // The kernel lets the folder go a moment after the last process.
        for _ in 0..1_000 {
            if fs::remove_dir(&self.folder).is_ok() || !self.folder.exists() {
                return;
            }
            nap();
        }
    }
}

#[test]
fn frozen_by_a_cgroup_of_version_1_is_alive_even_when_killed() {
    let test = "frozen::frozen_by_a_cgroup_of_version_1_is_alive_even_when_killed";
    let Some(frozen) = Frozen::new(test, &FIRST) else {
        return;
    };
    let watched = Watched::new(frozen.child().pid());
    frozen.write(FIRST.frozen);
    frozen.wait_until(FIRST.file, FIRST.frozen);
    watched.assert_alive("frozen");
    // It keeps all its locks until it is thawed, so it must not be called dead.
    frozen.child().signal(Signal::KILL);
    watched.assert_alive("killed while frozen");
    frozen.write(FIRST.thawed);
    watched.assert_dies();
}

#[test]
fn frozen_by_a_cgroup_of_version_2_is_alive_until_killed() {
    let test = "frozen::frozen_by_a_cgroup_of_version_2_is_alive_until_killed";
    let Some(frozen) = Frozen::new(test, &SECOND) else {
        return;
    };
    let watched = Watched::new(frozen.child().pid());
    frozen.write(SECOND.frozen);
    frozen.wait_until("cgroup.events", "frozen 1");
    watched.assert_alive("frozen");
    frozen.child().signal(Signal::KILL);
    watched.assert_dies();
}

#[test]
fn a_traced_process_is_alive() {
    let child = Child::idle();
    let watched = Watched::new(child.pid());
    if let Err(error) = sys::trace(child.pid()) {
        return not_run(
            "frozen::a_traced_process_is_alive",
            "ptrace",
            &error.to_string(),
        );
    }
    wait_for_state(child.pid(), b't');
    watched.assert_alive("traced and stopped");
    child.signal(Signal::KILL);
    watched.assert_dies();
}

#[test]
fn identity_survives_an_exec_of_another_thread() {
    let (mut orders, mut give) = std::io::pipe().unwrap();
    let child = Child::fork(|| {
        let thread = std::thread::spawn(move || {
            use std::os::unix::process::CommandExt as _;
            orders.read_exact(&mut [0]).unwrap();
            std::process::Command::new("sleep").arg("1000").exec()
        });
        panic!("no exec: {}", thread.join().unwrap());
    });
    let watched = Watched::new(child.pid());
    give.write_all(&[1]).unwrap();
    let name = format!("/proc/{}/comm", child.pid());
    for _ in 0..5_000 {
        if fs::read(&name).unwrap() == b"sleep\n" {
            break;
        }
        nap();
    }
    assert_eq!(fs::read(&name).unwrap(), b"sleep\n");
    watched.assert_alive("another program, begun by another thread");
    for (proc, record) in watched.kernels.each().iter().zip(&watched.records) {
        assert_eq!(ProcessIdentity::of(proc, child.pid()).unwrap(), *record);
    }
    child.signal(Signal::KILL);
    watched.assert_dies();
}

#[test]
fn a_kernel_thread_is_a_process_that_lives() {
    let name = "frozen::a_kernel_thread_is_a_process_that_lives";
    let pid = Pid::new(2).unwrap();
    match fs::read("/proc/2/comm") {
        Ok(comm) if comm == b"kthreadd\n" => {}
        Ok(_) | Err(_) => return not_run(name, "kernel-threads", "2 is another process"),
    }
    let watched = Watched::new(pid);
    watched.assert_alive("a thread of the kernel");
    // It has no program, no memory and nothing open; that is no sign of death.
    assert!(fs::read_link("/proc/2/exe").is_err());
    let line = fs::read("/proc/2/stat").unwrap();
    assert!(!Stat::parse(&line).unwrap().leader_exited());
}

// fault B06
#[test]
fn another_users_process_is_seen_living_and_dying() {
    let name = "frozen::another_users_process_is_seen_living_and_dying";
    if !rustix::process::getuid().is_root() {
        return not_run(name, "root", "two users are needed");
    }
    let roots = Child::idle();
    let (mut orders, mut give) = std::io::pipe().unwrap();
    let (mut ready, mut tell) = std::io::pipe().unwrap();
    let mut stranger = Child::fork(|| {
        sys::become_user(65_534);
        // It may neither signal nor trace it, and what it sees is the same.
        let watched = Watched::new(roots.pid());
        watched.assert_alive("seen by another user");
        tell.write_all(&[1]).unwrap();
        orders.read_exact(&mut [0]).unwrap();
        watched.assert_dies();
        tell.write_all(&[1]).unwrap();
        orders.read_exact(&mut [0]).unwrap();
        let ending = watched.kept.ending();
        assert!(ending.is_none_or(|ending| ending.to_string() == "signal: 9 (SIGKILL)"));
        for (proc, record) in watched.kernels.each().iter().zip(&watched.records) {
            assert_eq!(judge(proc, record), "dead: no_such_process");
        }
    });
    let watched = Watched::new(stranger.pid());
    ready.read_exact(&mut [0]).unwrap();
    watched.assert_alive("another user's, seen by root");
    roots.kill();
    give.write_all(&[1]).unwrap();
    ready.read_exact(&mut [0]).unwrap();
    drop(roots);
    give.write_all(&[1]).unwrap();
    stranger.wait_unreaped();
    watched.assert_dies();
    assert!(stranger.reap(), "the other user's assertions hold");
}

#[test]
fn a_process_that_a_forked_child_judges_is_the_same_one() {
    let proc = ProcFs::system();
    let child = Child::idle();
    let record = ProcessIdentity::of(&proc, child.pid()).unwrap();
    let mut forked = Child::fork(|| {
        assert!(judge(&proc, &record).starts_with("alive: running"));
        assert_eq!(ProcessIdentity::of(&proc, child.pid()).unwrap(), record);
    });
    assert!(forked.reap(), "the child's assertions hold");
}
