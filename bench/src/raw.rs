//! The floors of the process rows: the system calls that must be made, and nothing else.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, readlinkat_raw};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process, test_kill_process_group};

fn raw(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("a pid is not zero")
}

pub(crate) fn open(pid: i32) -> OwnedFd {
    pidfd_open(raw(pid), PidfdFlags::empty()).expect("it runs")
}

pub(crate) fn inode(pidfd: &OwnedFd) -> u64 {
    rustix::fs::fstat(pidfd).expect("a pidfd").st_ino
}

pub(crate) fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).expect("a pidfd") != 0
}

pub(crate) fn signal_zero(pid: i32) -> bool {
    test_kill_process(raw(pid)).is_ok()
}

pub(crate) fn signal_zero_to_group(group: i32) -> bool {
    test_kill_process_group(raw(group)).is_ok()
}

/// How much a raw pass looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Working directories, descriptors and mappings.
    Paths,
    /// Also what tells that the paths mean what they say, and that they are all: the mount namespaces,
    /// and the directories and descriptors of threads.
    Evidence,
}

/// Reads the working directory, the descriptors and the mappings of all, and counts in how many
/// texts the path occurs.
pub(crate) fn pass(path: &[u8], depth: Depth) -> usize {
    let directory = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let root = rustix::fs::open("/proc", directory, Mode::empty()).expect("/proc is there");
    let mut list = Vec::with_capacity(32 << 10);
    let mut open_files = Vec::with_capacity(32 << 10);
    let mut link = vec![0; 4_097];
    let mut maps = vec![0; 32 << 10];
    let mut name = Vec::new();
    let mut found = 0;
    let mut processes = RawDir::new(&root, list.spare_capacity_mut());
    while let Some(Ok(process)) = processes.next() {
        let pid = process.file_name().to_bytes();
        if !pid[0].is_ascii_digit() {
            continue;
        }
        let cwd = below(&mut name, pid, b"/cwd");
        if let Ok(count) = readlinkat_raw(&root, cwd, &mut link[..]) {
            found += usize::from(link[..count].starts_with(path));
        }
        let fds = below(&mut name, pid, b"/fd");
        if let Ok(fds) = openat(&root, fds, directory, Mode::empty()) {
            let mut each = RawDir::new(&fds, open_files.spare_capacity_mut());
            while let Some(Ok(fd)) = each.next() {
                if let Ok(count) = readlinkat_raw(fds.as_fd(), fd.file_name(), &mut link[..]) {
                    found += usize::from(link[..count].starts_with(path));
                }
            }
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = below(&mut name, pid, b"/maps");
        if let Ok(file) = openat(&root, file, flags, Mode::empty()) {
            while let Ok(count @ 1..) = rustix::io::read(&file, &mut maps[..]) {
                let lines = maps[..count].split(|&byte| byte == b'\n');
                let path_of = |line: &[u8]| line.iter().position(|&byte| byte == b'/');
                found += lines
                    .filter(|line| path_of(line).is_some_and(|at| line[at..].starts_with(path)))
                    .count();
            }
        }
        if depth == Depth::Evidence {
            let namespace = below(&mut name, pid, b"/ns/mnt");
            let _namespace = readlinkat_raw(&root, namespace, &mut link[..]);
            found += threads(&root, pid, path);
        }
    }
    found
}

/// Compares what the threads of a process have with what it has itself, if there are any, and counts
/// which have their own.
fn threads(root: &OwnedFd, pid: &[u8], path: &[u8]) -> usize {
    let mut name = Vec::new();
    let list = below(&mut name, pid, b"/task");
    let is_alone = |list: &[u8]| {
        rustix::fs::statat(root, list, AtFlags::empty()).is_ok_and(|list| list.st_nlink <= 3)
    };
    if is_alone(list) {
        return 0;
    }
    let directory = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let Ok(list) = openat(root, list, directory, Mode::empty()) else {
        return 0;
    };
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut link = vec![0; 4_097];
    let mut name = Vec::new();
    let mut found = 0;
    let mut each = RawDir::new(&list, buffer.spare_capacity_mut());
    while let Some(Ok(thread)) = each.next() {
        let thread = thread.file_name().to_bytes();
        if thread == pid || !thread[0].is_ascii_digit() {
            continue;
        }
        let cwd = below(&mut name, thread, b"/cwd");
        if let Ok(count) = readlinkat_raw(&list, cwd, &mut link[..]) {
            found += usize::from(link[..count].starts_with(path));
        }
        let fds = below(&mut name, thread, b"/fd");
        let _descriptors = rustix::fs::statat(&list, fds, AtFlags::empty());
    }
    found
}

fn below<'a>(name: &'a mut Vec<u8>, pid: &[u8], what: &[u8]) -> &'a [u8] {
    name.clear();
    name.extend_from_slice(pid);
    name.extend_from_slice(what);
    name
}
