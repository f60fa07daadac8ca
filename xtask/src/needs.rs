//! What a check may need of the machine, and whether this machine has it.
//!
//! A probe does the thing and sees its effect; a version number proves nothing inside a container.

use std::env::temp_dir;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether the machine has what a check needs.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    /// The probe saw its effect.
    Here,
    /// The probe was refused, with the machine's own words.
    Missing(String),
    /// Nobody could look.
    Untold(String),
}

type Probe = fn() -> Presence;

/// A Unix socket has a path of at most about 100 bytes; a test names its folder and socket below.
const SCRATCH_BYTES: usize = 60;

/// What a storm of real faults writes, several times over.
const SCRATCH_ROOM: usize = 8 << 20;

/// Every need that a test may name.
const NEEDS: [(&str, Probe); 24] = [
    ("cgroup-v1-freezer", || {
        cgroup(&["/sys/fs/cgroup/freezer"], "freezer.state")
    }),
    ("cgroup-v2-freezer", || {
        cgroup(
            &["/sys/fs/cgroup/unified", "/sys/fs/cgroup"],
            "cgroup.freeze",
        )
    }),
    ("descriptors", descriptors),
    ("kernel-threads", kernel_threads),
    ("linux", linux),
    ("mount-namespaces", || unshare(&["--mount"], "true")),
    ("node-better-sqlite3", || {
        program("node", &["-e", "require('better-sqlite3')"])
    }),
    ("pid-namespaces", || unshare(&["--pid", "--fork"], "true")),
    ("pidfd", pidfd),
    ("pidfd-exit", pidfd_exit),
    ("pidfs", pidfs),
    ("proc-mount", || {
        unshare(&["--pid", "--fork", "--mount-proc"], "true")
    }),
    ("processes", processes),
    ("ptrace", ptrace),
    ("python-sqlite", || {
        program("python3", &["-c", "import sqlite3"])
    }),
    ("root", root),
    ("rotel", || program("rotel-agent", &["--help"])),
    ("scratch-folder", || scratch_folder(&temp_dir())),
    ("seccomp", seccomp),
    ("set-tid", set_tid),
    ("strace", || sees("strace", &["-o", "/dev/null", "true"])),
    ("time-namespaces", || {
        unshare(&["--time", "--fork", "--boottime", "1000"], "true")
    }),
    ("tmpfs", || {
        unshare(&["--mount"], "mount -t tmpfs none /tmp")
    }),
    ("user-namespaces", || unshare(&[], "true")),
];

/// Probes one need.
pub(crate) fn probe(need: &str) -> Presence {
    NEEDS.iter().find(|(name, _)| *name == need).map_or_else(
        || Presence::Untold(format!("`{need}` is no need that xtask can probe")),
        |(_, probe)| probe(),
    )
}

fn linux() -> Presence {
    if cfg!(target_os = "linux") {
        Presence::Here
    } else {
        Presence::Missing(format!("this is {}", std::env::consts::OS))
    }
}

/// A folder in which a test can write, and bind a Unix socket in a folder of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "a name for a file, not an identity"
)]
fn scratch_folder(folder: &Path) -> Presence {
    let name = folder.display();
    let bytes = folder.as_os_str().len();
    if bytes >= SCRATCH_BYTES {
        return Presence::Missing(format!("the path {name} has {bytes} bytes"));
    }
    let file = folder.join(format!("xtask-probe-{}", std::process::id()));
    let written = fs::write(&file, vec![0; SCRATCH_ROOM]);
    // Half a file is removed, too; where there is none the first error says more.
    match (written, fs::remove_file(&file)) {
        (Ok(()), Ok(())) => Presence::Here,
        (Err(error), _) | (Ok(()), Err(error)) => Presence::Missing(format!("{name}: {error}")),
    }
}

/// Makes a cgroup below the first of these folders that exists, and looks for its freezer.
#[expect(
    clippy::disallowed_methods,
    reason = "a name for a folder, not an identity"
)]
fn cgroup(roots: &[&str], freezer: &str) -> Presence {
    let Some(root) = roots.iter().map(Path::new).find(|root| root.is_dir()) else {
        return Presence::Missing(format!("there is no {}", roots.join(", no ")));
    };
    let folder = root.join(format!("xtask-probe-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&folder) {
        return Presence::Missing(format!("{}: {error}", folder.display()));
    }
    let has_freezer = folder.join(freezer).exists();
    match fs::remove_dir(&folder) {
        Ok(()) if has_freezer => Presence::Here,
        Ok(()) => Presence::Missing(format!("a cgroup has no {freezer}")),
        Err(error) => Presence::Untold(format!("{}: {error}", folder.display())),
    }
}

/// A kernel that has filters says of each process whether it is under one.
fn seccomp() -> Presence {
    match fs::read_to_string("/proc/self/status") {
        Ok(status) if status.contains("\nSeccomp:") => Presence::Here,
        Ok(_) => Presence::Missing("this kernel has no filters of system calls".to_owned()),
        Err(error) => Presence::Untold(format!("/proc/self/status: {error}")),
    }
}

/// The threads of the kernel are children of number 2, where a process may see them.
fn kernel_threads() -> Presence {
    match fs::read_to_string("/proc/2/comm") {
        Ok(name) if name.trim() == "kthreadd" => Presence::Here,
        Ok(name) => Presence::Missing(format!("number 2 is {}", name.trim())),
        Err(error) => Presence::Missing(format!("/proc/2: {error}")),
    }
}

/// The death watch takes 4,096 processes, and a test fills it.
fn descriptors() -> Presence {
    sees("sh", &["-c", "ulimit -Hn && ulimit -n 4200"])
}

/// A storm of real faults starts that many at once, and some for itself.
fn processes() -> Presence {
    let all_at_once =
        "for _ in 1 2 3 4 5 6 7 8; do for _ in 1 2 3 4 5; do sleep 1 & done; done; wait";
    sees("sh", &["-c", all_at_once])
}

/// The one probe by version: only a program with an ioctl of its own could see the effect.
fn pidfd_exit() -> Presence {
    let told = fs::read_to_string("/proc/sys/kernel/osrelease").map(|release| {
        let mut parts = release.split('.').map(|part| part.trim().parse::<u32>());
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        }
    });
    match told {
        Ok(Some(version)) if version >= (6, 15) => Presence::Here,
        Ok(Some((major, minor))) => Presence::Missing(format!("this is Linux {major}.{minor}")),
        Ok(None) => Presence::Untold("the kernel's release has no form".to_owned()),
        Err(error) => Presence::Untold(format!("the kernel's release: {error}")),
    }
}

/// A parent may trace its child unless the machine forbids all tracing.
fn ptrace() -> Presence {
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() == "3" => Presence::Missing("ptrace_scope is 3".to_owned()),
        Ok(_) | Err(_) => Presence::Here,
    }
}

/// Tests make their namespaces without privileges, so the probe does, too.
fn unshare(namespaces: &[&str], script: &str) -> Presence {
    let mut arguments = vec!["--user", "--map-root-user"];
    arguments.extend(namespaces);
    arguments.extend(["sh", "-c", script]);
    sees("unshare", &arguments)
}

/// Asks a fresh pid namespace for the next pid, as a test does that reuses one.
fn set_tid() -> Presence {
    unshare(
        &["--pid", "--fork", "--mount-proc"],
        "echo 100 > /proc/sys/kernel/ns_last_pid && test \"$(sh -c 'echo $$')\" = 101",
    )
}

/// Runs a program of another language, which a machine need not have.
fn program(name: &str, arguments: &[&str]) -> Presence {
    match Command::new(name).arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Presence::Missing(format!("there is no {name}"))
        }
        _ => sees(name, arguments),
    }
}

/// Runs a command for its effect.
fn sees(program: &str, arguments: &[&str]) -> Presence {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match output {
        Err(error) => Presence::Untold(format!("{program}: {error}")),
        Ok(output) if output.status.success() => Presence::Here,
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr);
            // Some say more after the error.
            let error = words.lines().find(|line| line.starts_with("Error: "));
            let last = error.or_else(|| words.lines().last());
            Presence::Missing(format!("{program}: {}", last.unwrap_or("refused")))
        }
    }
}

#[cfg(target_os = "linux")]
fn root() -> Presence {
    if rustix::process::geteuid().is_root() {
        Presence::Here
    } else {
        Presence::Missing("the effective user is not root".to_owned())
    }
}

#[cfg(target_os = "linux")]
fn own_pidfd() -> std::io::Result<std::os::fd::OwnedFd> {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    Ok(pidfd_open(getpid(), PidfdFlags::empty())?)
}

#[cfg(target_os = "linux")]
fn pidfd() -> Presence {
    match own_pidfd() {
        Ok(_) => Presence::Here,
        Err(error) => Presence::Missing(format!("pidfd: {error}")),
    }
}

/// Pidfds of pidfs say so in their link; older ones are anonymous inodes.
#[cfg(target_os = "linux")]
fn pidfs() -> Presence {
    use std::fs::read_link;
    use std::os::fd::AsRawFd as _;

    let link =
        own_pidfd().and_then(|pidfd| read_link(format!("/proc/self/fd/{}", pidfd.as_raw_fd())));
    match link {
        Ok(link) if link.to_string_lossy().starts_with("pidfd:") => Presence::Here,
        Ok(link) => Presence::Missing(format!("a pidfd is {}", link.display())),
        Err(error) => Presence::Missing(format!("pidfd: {error}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn root() -> Presence {
    linux()
}

#[cfg(not(target_os = "linux"))]
fn pidfd() -> Presence {
    linux()
}

#[cfg(not(target_os = "linux"))]
fn pidfs() -> Presence {
    linux()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn a_need_that_nobody_knows_cannot_be_told() {
        assert!(matches!(probe("luck"), Presence::Untold(_)));
    }

    #[test]
    fn a_refused_probe_says_why_and_a_missing_program_cannot_tell() {
        let refused = sees("sh", &["-c", "echo no such thing >&2; exit 1"]);
        assert_eq!(refused, Presence::Missing("sh: no such thing".to_owned()));
        assert!(matches!(sees("no-such-program", &[]), Presence::Untold(_)));
        let missing = program("no-such-program", &[]);
        assert_eq!(
            missing,
            Presence::Missing("there is no no-such-program".to_owned())
        );
        assert_eq!(program("sh", &["-c", "true"]), Presence::Here);
        assert_eq!(sees("true", &[]), Presence::Here);
    }

    #[test]
    fn a_scratch_folder_is_there_can_be_written_and_has_a_short_path() {
        let scratch = Workspace::empty("scratch");
        let long = scratch.root().join("x".repeat(SCRATCH_BYTES));
        fs::create_dir(&long).unwrap();
        let probes = [
            scratch_folder(scratch.root()),
            scratch_folder(&long),
            scratch_folder(Path::new("/no-such-folder")),
        ];
        fs::remove_dir_all(scratch.root()).unwrap();

        let [short, long, missing] = probes;
        // A temporary folder with a long path is not this test's business.
        if scratch.root().as_os_str().len() < SCRATCH_BYTES {
            assert_eq!(short, Presence::Here);
        }
        assert!(matches!(long, Presence::Missing(why) if why.ends_with(" bytes")));
        assert!(matches!(missing, Presence::Missing(why) if why.contains("/no-such-folder: ")));
        assert!(!matches!(probe("scratch-folder"), Presence::Untold(_)));
    }

    #[test]
    fn every_need_can_be_probed() {
        for (name, probe) in NEEDS {
            // Which of the three it is depends on the machine; that it answers does not.
            let words = format!("{:?}", probe());
            assert!(!words.is_empty(), "{name}");
        }
    }

    #[test]
    fn contributors_are_told_every_need() {
        let text = include_str!("../../CONTRIBUTING.md");
        for (name, _) in NEEDS {
            assert!(
                text.contains(&format!("`{name}`")),
                "CONTRIBUTING.md misses {name}"
            );
        }
    }
}
