//! Verdicts by name, kernels with and without something, and namespaces of a test's own.

#[cfg(target_os = "linux")]
use lease_core::Locality;
use lease_core::Verdict;
#[cfg(target_os = "linux")]
use lease_procfs::{Kernel, ProcFs, ProcLiveness, ProcessIdentity};

#[cfg(target_os = "linux")]
pub(crate) use crate::not_run::not_run;

/// Renders a verdict as `dead: exited`.
pub(crate) fn shown(verdict: &Verdict) -> String {
    format!("{}: {}", verdict.name(), verdict.evidence().proof)
}

/// Judges one process with nothing else at stake.
#[cfg(target_os = "linux")]
pub(crate) fn judge(proc: &ProcFs, process: &ProcessIdentity) -> String {
    shown(&ProcLiveness::new(proc.clone()).judge(process, Locality::ThisMachine))
}

/// What a check sees through three kernels: this one, one without pidfs, one without pidfd.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) pidfs: ProcFs,
    pub(crate) pidfd: ProcFs,
    pub(crate) stat: ProcFs,
}

#[cfg(target_os = "linux")]
impl Kernels {
    pub(crate) fn new() -> Self {
        let kernel = Kernel::detect();
        let without_pidfd = kernel.without_pidfd().without_namespace_ids();
        Self {
            pidfs: ProcFs::at("/proc", kernel),
            pidfd: ProcFs::at("/proc", kernel.without_pidfs().without_namespace_ids()),
            stat: ProcFs::at("/proc", without_pidfd),
        }
    }

    pub(crate) const fn each(&self) -> [&ProcFs; 3] {
        [&self.pidfs, &self.pidfd, &self.stat]
    }
}

/// Returns whether pidfs is there, and says so if it is not.
#[cfg(target_os = "linux")]
pub(crate) fn has_pidfs(test: &str) -> bool {
    let has = Kernel::detect().pidfs;
    if !has {
        not_run(
            test,
            "pidfs",
            "the kernel gives pidfds no inode of their own",
        );
    }
    has
}

/// Opens files until this process may open no more. Only for a process that ends soon: its limit
/// stays low.
#[cfg(target_os = "linux")]
pub(crate) fn take_every_descriptor() -> Vec<std::fs::File> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // What a forked child inherits depends on what else ran at that moment.
    let highest = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u64>().ok())
        .max();
    let few = Some(highest.unwrap() + 8);
    let few = Rlimit {
        current: few,
        maximum: few,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/proc/self/status") {
        taken.push(file);
    }
    taken
}

#[cfg(target_os = "linux")]
pub(crate) use isolation::{Missing, Space, isolated, nested};

#[cfg(target_os = "linux")]
mod isolation {
    use std::fs;
    use std::io::{self, Read as _, Write as _};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::UnshareFlags;

    use super::not_run;
    use crate::sys::{Child, unshare};

    /// Namespaces of one's own, made without privileges.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Space {
        /// A pid namespace with its own `/proc`.
        Pid,
        /// A pid namespace under the `/proc` of the outer one.
        PidUnderOuterProc,
        /// The old pid namespace and `/proc`, with a boot clock that is far ahead.
        Time,
    }

    /// What the machine lacks for a check.
    pub(crate) type Missing = (&'static str, String);

    /// Runs a check as the first process in namespaces of its own.
    #[track_caller]
    pub(crate) fn isolated(test: &str, space: Space, body: impl FnOnce() -> Result<(), Missing>) {
        if let Err((need, reason)) = nested(space, body) {
            not_run(test, need, &reason);
        }
    }

    /// The same, with what is missing returned.
    #[track_caller]
    pub(crate) fn nested(
        space: Space,
        body: impl FnOnce() -> Result<(), Missing>,
    ) -> Result<(), Missing> {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut outer = Child::fork(|| {
            let outcome = match enter(space) {
                Ok(()) => {
                    let mut writer = writer.try_clone().unwrap();
                    let inner = Child::fork(move || {
                        let outcome = mount_proc(space).and_then(|()| caught(body));
                        writer.write_all(encode(&outcome).as_bytes()).unwrap();
                    });
                    inner.wait_unreaped();
                    return;
                }
                Err(missing) => Err(missing),
            };
            writer.write_all(encode(&outcome).as_bytes()).unwrap();
        });
        drop(writer);
        let mut report = String::new();
        reader.read_to_string(&mut report).unwrap();
        outer.reap();
        decode(&report)
    }

    fn enter(space: Space) -> Result<(), Missing> {
        let (need, flags) = match space {
            Space::Pid => ("pid-namespaces", UnshareFlags::NEWPID | UnshareFlags::NEWNS),
            Space::PidUnderOuterProc => ("pid-namespaces", UnshareFlags::NEWPID),
            Space::Time => ("time-namespaces", UnshareFlags::NEWTIME),
        };
        let user = rustix::process::getuid().as_raw();
        let group = rustix::process::getgid().as_raw();
        unshare(UnshareFlags::NEWUSER).map_err(|error| ("user-namespaces", error.to_string()))?;
        let maps = fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
            .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")));
        maps.map_err(|error| ("user-namespaces", error.to_string()))?;
        unshare(flags).map_err(|error| (need, error.to_string()))?;
        if space == Space::Time {
            fs::write("/proc/self/timens_offsets", "boottime 1000000 0")
                .map_err(|error| (need, error.to_string()))?;
        }
        Ok(())
    }

    fn mount_proc(space: Space) -> Result<(), Missing> {
        if space != Space::Pid {
            return Ok(());
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)
            .and_then(|()| mount("proc", "/proc", "proc", MountFlags::empty(), None))
            .map_err(|errno| ("proc-mount", errno.to_string()))
    }

    fn caught(body: impl FnOnce() -> Result<(), Missing>) -> Result<(), Missing> {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
            let words = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Err((PANICKED, words.unwrap_or("without words").to_owned()))
        })
    }

    const PANICKED: &str = "panicked";

    const NEEDS: [&str; 10] = [
        PANICKED,
        "mount-namespaces",
        "pid-namespaces",
        "pidfs",
        "proc-mount",
        "root",
        "set-tid",
        "time-namespaces",
        "tmpfs",
        "user-namespaces",
    ];

    fn encode(outcome: &Result<(), Missing>) -> String {
        match outcome {
            Ok(()) => "ran".to_owned(),
            Err((need, reason)) => format!("{need}\n{reason}"),
        }
    }

    #[track_caller]
    fn decode(report: &str) -> Result<(), Missing> {
        if report == "ran" {
            return Ok(());
        }
        let (need, reason) = report.split_once('\n').expect("the child reports");
        let need = NEEDS.iter().find(|known| **known == need).unwrap();
        assert_ne!(*need, PANICKED, "{reason}");
        Err((need, reason.to_owned()))
    }
}
