//! Other places than `/proc`: trees made by hand, where everything can be wrong.

use std::fs;
use std::path::{Path, PathBuf};

use lease_core::{Code, Locality};
use lease_procfs::{DescribeError, Kernel, Pid, ProcFs, ProcLiveness, ProcessIdentity};

use crate::rig::shown;
use crate::sys::Child;

const BOOT: &str = "251d7b06-ce56-4437-8f88-900d8f613d51\n";

/// A directory that looks like a `/proc` of this process.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{pid}"));
        let tree = Self(root);
        tree.write("sys/kernel/random/boot_id", BOOT);
        tree.write(
            "self/status",
            &format!("Name:\tx\nPid:\t{pid}\nNSpid:\t{pid}\n"),
        );
        tree
    }

    fn write(&self, name: &str, contents: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }

    fn proc(&self) -> ProcFs {
        ProcFs::at(&self.0, Kernel::detect().without_pidfs())
    }

    fn proc_without_pidfd(&self) -> ProcFs {
        ProcFs::at(&self.0, Kernel::detect().without_pidfd())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[track_caller]
fn refuse(outcome: Result<ProcessIdentity, DescribeError>, expected: &str) {
    let refused = outcome.unwrap_err();
    assert_eq!(refused.to_string(), expected);
    assert_eq!(refused.code(), Code::InvalidHolder);
}

// B3
#[test]
fn without_a_boot_id_nobody_is_described_and_nothing_is_known() {
    let real = ProcessIdentity::own(&ProcFs::system()).unwrap();
    let tree = Tree::new("no-boot-id");
    for contents in [
        None,
        Some(""),
        Some(" \n"),
        Some("unknown-boot\n"),
        Some("BOOT1"),
    ] {
        match contents {
            None => {
                tree.remove("sys/kernel/random/boot_id");
                refuse(ProcessIdentity::own(&tree.proc()), "boot id cannot be read");
            }
            Some(contents) => {
                tree.write("sys/kernel/random/boot_id", contents);
                let refused = ProcessIdentity::own(&tree.proc());
                refuse(refused, "the kernel's boot id is unusable");
            }
        }
        let verdict = ProcLiveness::new(tree.proc()).judge(&real, Locality::ThisMachine);
        assert_eq!(shown(&verdict), "unknown: boot_id_unreadable");
    }
}

#[test]
fn a_boot_id_that_no_kernel_wrote_is_read_and_not_trusted() {
    let tree = Tree::new("boot-id");
    let pid = Pid::new(rustix::process::getpid().as_raw_nonzero().get().into()).unwrap();
    tree.write(&format!("{pid}/stat"), &stat_line(pid, "7"));
    let own = ProcessIdentity::own(&tree.proc()).unwrap();
    assert_eq!(own.boot_id.to_string(), BOOT.trim_end());
    assert_eq!((own.boot_trusted, own.pid_namespace), (false, None));
    let verdict = ProcLiveness::new(tree.proc()).judge(&own, Locality::ThisMachine);
    assert_eq!(shown(&verdict), "unknown: boot_id_untrusted");
}

fn stat_line(pid: Pid, ticks: &str) -> String {
    format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n")
}

#[test]
fn a_tree_that_does_not_show_ourselves_describes_nobody() {
    let tree = Tree::new("not-ours");
    let own = rustix::process::getpid().as_raw_nonzero();
    tree.write("self/status", "Pid:\t1\nNSpid:\t1\n");
    let expected = "/proc is not the one of this process's pid namespace";
    refuse(ProcessIdentity::own(&tree.proc()), expected);
    // The same number by chance, one namespace further in.
    tree.write("self/status", &format!("Pid:\t9\nNSpid:\t9\t{own}\n"));
    refuse(ProcessIdentity::own(&tree.proc()), expected);
    tree.remove("self/status");
    refuse(
        ProcessIdentity::own(&tree.proc()),
        "/proc is missing or unreadable",
    );
}

// B7, B8
#[test]
fn a_live_process_that_cannot_be_read_is_not_called_gone() {
    let tree = Tree::new("unreadable");
    let child = Child::idle();
    let pid = child.pid();
    let stat = format!("{pid}/stat");
    for proc in [tree.proc(), tree.proc_without_pidfd()] {
        refuse(
            ProcessIdentity::of(&proc, pid),
            &format!("process {pid} is hidden"),
        );
    }
    tree.write(&stat, "4242 codex S 1");
    for proc in [tree.proc(), tree.proc_without_pidfd()] {
        let refused = ProcessIdentity::of(&proc, pid);
        refuse(refused, &format!("process {pid} has a malformed stat"));
    }
    tree.remove(&stat);
    fs::create_dir(tree.0.join(&stat)).unwrap();
    for proc in [tree.proc(), tree.proc_without_pidfd()] {
        let refused = ProcessIdentity::of(&proc, pid);
        refuse(refused, &format!("process {pid} cannot be inspected"));
    }
    fs::remove_dir(tree.0.join(&stat)).unwrap();
    // A start ahead of the clock was counted on another one.
    tree.write(&stat, &stat_line(pid, "18446744073709551615"));
    for proc in [tree.proc(), tree.proc_without_pidfd()] {
        let refused = ProcessIdentity::of(&proc, pid);
        refuse(
            refused,
            &format!("process {pid} started ahead of this process's clock"),
        );
    }
}

// B7
#[test]
fn absent_from_the_tree_and_from_the_kernel_is_gone() {
    let tree = Tree::new("gone");
    let mut child = Child::fork(|| {});
    let pid = child.pid();
    child.reap();
    for proc in [tree.proc(), tree.proc_without_pidfd()] {
        refuse(
            ProcessIdentity::of(&proc, pid),
            &format!("process {pid} is not running"),
        );
    }
}
