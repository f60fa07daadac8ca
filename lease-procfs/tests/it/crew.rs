//! Holders with processes at their work: real ones, and ones written into a made-up `/proc`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lease_core::{HolderLiveness as _, Locality, ProcessProof, Question, Verdict};
use lease_procfs::{
    Kernel, Pid, ProcFs, ProcLiveness, ProcessGroup, ProcessHolder, ProcessIdentity, TargetPath,
};
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::rig::Missing;
use crate::sys::{Child, unshare, wait_for_ever};

pub(crate) const GROUP: ProcessProof = ProcessProof {
    group: true,
    paths: false,
};

pub(crate) const BOTH: ProcessProof = ProcessProof {
    group: true,
    paths: true,
};

pub(crate) const PATHS: ProcessProof = ProcessProof {
    group: false,
    paths: true,
};

/// Describes a process as a holder that recorded its group.
pub(crate) fn recorded(proc: &ProcFs, pid: Pid) -> ProcessHolder {
    let process = ProcessIdentity::of(proc, pid).unwrap();
    let group = ProcessGroup::of(proc, &process).unwrap().unwrap();
    ProcessHolder::new("editor", process)
        .unwrap()
        .with_group(group)
}

/// Asks about a holder of a lease that only this machine records.
pub(crate) fn question(
    holder: &ProcessHolder,
    occupancy: ProcessProof,
    target: Option<&Path>,
) -> Question<ProcessHolder> {
    let token = lease_core::FencingToken {
        authority: lease_core::AuthorityId::from_bytes([1; 16]),
        generation: lease_core::Generation::FIRST,
        lease: lease_core::LeaseId::from_bytes([2; 16]),
    };
    let mut question = Question::new(holder.clone(), token, 0, occupancy);
    question.locality = Locality::ThisMachine;
    question.target = target.map(|path| TargetPath::new(path).unwrap());
    question
}

pub(crate) fn ask(
    liveness: &ProcLiveness,
    holder: &ProcessHolder,
    occupancy: ProcessProof,
    target: Option<&Path>,
) -> Verdict {
    liveness.observe(&question(holder, occupancy, target))
}

/// Renders a verdict with who was found: `occupied: group_alive 12 (group)`.
pub(crate) fn told(verdict: &Verdict) -> String {
    let mut text = crate::rig::shown(verdict);
    for occupant in &verdict.evidence().occupants {
        text.push(' ');
        text.push_str(occupant);
    }
    text
}

/// A process that outlived its parent and is ours to reap now. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) pid: Pid,
    is_reaped: bool,
}

impl Orphan {
    fn adopt(child: Child) -> Self {
        Self {
            pid: child.leave(),
            is_reaped: false,
        }
    }

    fn raw(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.pid.get()).unwrap()
    }

    /// Ends it and leaves it a zombie, once its parent is gone.
    pub(crate) fn kill(&self) {
        kill_process(self.raw(), Signal::KILL).unwrap();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.raw()), options).unwrap();
    }

    pub(crate) fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if !self.is_reaped {
            self.is_reaped = true;
            let _ended = kill_process(self.raw(), Signal::KILL);
            let _reaped = waitid(WaitId::Pid(self.raw()), WaitIdOptions::EXITED);
        }
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Forks a wrapper that runs `enter`, then forks a worker that runs `work`, and waits. The worker is
/// at work when this returns, and ours when the wrapper is gone.
pub(crate) fn wrapper(enter: impl FnOnce(), work: impl FnOnce()) -> (Child, Orphan) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let wrapper = Child::fork(|| {
        enter();
        let worker = Child::fork(|| {
            work();
            let own = rustix::process::getpid().as_raw_nonzero();
            tell.write_all(format!("{own}\n").as_bytes()).unwrap();
            wait_for_ever();
        });
        wait_for_ever();
        drop(worker);
    });
    let mut text = String::new();
    while !text.ends_with('\n') {
        let mut byte = [0];
        told.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    let orphan = Orphan {
        pid: text.trim().parse().unwrap(),
        is_reaped: false,
    };
    (wrapper, orphan)
}

/// Forks a process that does `work` and whose leader thread has exited, while another goes on.
pub(crate) fn leaderless(work: impl FnOnce() + Send + 'static) -> Orphan {
    let child = Child::fork(|| {
        work();
        let _thread = std::thread::spawn(wait_for_ever);
        crate::sys::exit_this_thread();
    });
    let pid = child.pid();
    for _ in 0..5_000 {
        let line = fs::read(format!("/proc/{pid}/stat")).unwrap();
        if lease_procfs::Stat::parse(&line).unwrap().leader_exited() {
            break;
        }
        let millisecond = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let _woken = rustix::thread::nanosleep(&millisecond);
    }
    Orphan::adopt(child)
}

/// Makes the calling process the leader of a group of its own.
pub(crate) fn lead_a_group() {
    rustix::process::setpgid(None, None).unwrap();
}

/// Runs a check as root in a pid namespace of its own whose `/proc` hides everybody from others.
pub(crate) fn under_hidden_proc(body: impl FnOnce()) -> Result<(), Missing> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::UnshareFlags;

    let (mut report, mut outcome) = std::io::pipe().unwrap();
    let mut outer = Child::fork(|| {
        unshare(UnshareFlags::NEWNS | UnshareFlags::NEWPID).unwrap();
        let mut inner = Child::fork(|| {
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            let hidden = Some(c"hidepid=2");
            let mounted = mount_change("/", private)
                .and_then(|()| mount("proc", "/proc", "proc", MountFlags::empty(), hidden));
            match mounted {
                Ok(()) => body(),
                Err(errno) => outcome.write_all(errno.to_string().as_bytes()).unwrap(),
            }
        });
        assert!(inner.reap(), "the inner child's assertions hold");
    });
    drop(outcome);
    let mut refused = String::new();
    report.read_to_string(&mut refused).unwrap();
    assert!(outer.reap(), "the child's assertions hold");
    if refused.is_empty() {
        Ok(())
    } else {
        Err(("proc-mount", refused))
    }
}

/// A directory of a test's own, removed at the end.
#[derive(Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let own = rustix::process::getpid().as_raw_nonzero();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{own}"));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    /// The same, where every user can look it up.
    pub(crate) fn for_everybody(name: &str) -> Self {
        let own = rustix::process::getpid().as_raw_nonzero();
        let path = std::env::temp_dir().join(format!("lease-procfs-{name}-{own}"));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A made-up `/proc`.
#[derive(Debug)]
pub(crate) struct FakeProc(Place);

impl FakeProc {
    pub(crate) fn new(name: &str) -> Self {
        let fake = Self(Place::new(name));
        // Something must be listed that everybody can see.
        fake.process(1, 0, 1, 1);
        fake
    }

    pub(crate) fn proc(&self) -> ProcFs {
        ProcFs::at(self.0.path(), Kernel::detect())
    }

    /// Adds a process that uses `/`.
    pub(crate) fn process(&self, pid: i64, parent: i64, group: i64, ticks: u64) {
        fs::create_dir_all(self.path(pid, "fd")).unwrap();
        self.stat(pid, parent, group, ticks);
        self.link(pid, "cwd", "/");
        self.link(pid, "exe", "/bin/sleep");
        self.write(pid, "maps", b"");
        self.write(pid, "cmdline", b"sleep\x009\x00");
    }

    pub(crate) fn stat(&self, pid: i64, parent: i64, group: i64, ticks: u64) {
        let line = format!(
            "{pid} (a) (b) S {parent} {group} {group} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n"
        );
        self.write(pid, "stat", line.as_bytes());
    }

    pub(crate) fn path(&self, pid: i64, name: &str) -> PathBuf {
        self.0.join(format!("{pid}/{name}"))
    }

    pub(crate) fn write(&self, pid: i64, name: &str, contents: &[u8]) {
        fs::write(self.path(pid, name), contents).unwrap();
    }

    /// Makes a link, instead of the one that is there.
    pub(crate) fn link(&self, pid: i64, name: &str, target: impl AsRef<Path>) {
        self.remove(pid, name);
        symlink(target, self.path(pid, name)).unwrap();
    }

    pub(crate) fn map(&self, pid: i64, path: &[u8]) {
        let column = b"7f00-7f01 r--p 00000000 fd:01 1234                       ";
        let mut line = column.to_vec();
        line.extend_from_slice(path);
        line.push(b'\n');
        self.write(pid, "maps", &line);
    }

    pub(crate) fn remove(&self, pid: i64, name: &str) {
        let path = self.path(pid, name);
        let removed = if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        drop(removed);
    }
}

pub(crate) fn pid(number: i64) -> Pid {
    Pid::new(number).unwrap()
}
