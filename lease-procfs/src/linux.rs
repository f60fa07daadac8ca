//! Looks at processes on Linux.

use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::clock::wait_until_past;
use crate::describe::DescribeError;
use crate::facts::{Exit, Facts, Grain, Inode, Leader, Lookup, Number, Signal, Ticks, View};
use crate::id::{BootId, Namespace, NamespaceInode, Pid};
use crate::identity::ProcessIdentity;
use crate::mountinfo::is_uncovered;
use crate::own::{NoBootId, Own, OwnNamespace};
use crate::procfs::{Kernel, ProcFs};
use crate::stat::{Stat, StatError};
use crate::sys;
use crate::verdict::{death, may_probe};

pub(crate) use crate::sys::{launch_if_made, own_pid};

/// Where the boot id stands below the root of `/proc`.
const BOOT_ID: &str = "/sys/kernel/random/boot_id";

/// The largest `stat` line that is believed: 52 numbers of 20 digits and a name fit well.
pub(crate) const STAT_BYTES: usize = 2_048;

/// The largest `status` that is believed.
const STATUS_BYTES: usize = 8_192;

/// The longest path that is put together without asking for memory.
const PATH_BYTES: usize = 128;

/// The most of `mountinfo` that is read; a longer table leaves the boot id untrusted.
const MOUNTINFO_BYTES: usize = 4 << 20;

/// Returns `None` if there was no descriptor or memory to find it out with.
pub(crate) fn detect() -> Option<Kernel> {
    // Finding this process is what makes "not found" mean something for others.
    let own = own_pid().map(sys::open_pidfd);
    let (pidfd, pidfs) = match own {
        Some(Ok(pidfd)) => (true, sys::is_pidfs(pidfd.as_fd())),
        Some(Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return None,
        Some(Err(_)) | None => (false, false),
    };
    Some(Kernel {
        pidfd,
        pidfs,
        namespace_ids: true,
    })
}

pub(crate) fn read_own(root: &Path, kernel: Kernel) -> Own {
    let (boot_id, boot_trusted) = read_boot_id(root);
    let pid = own_pid();
    Own {
        launch: sys::launch(),
        pid,
        boot_id,
        boot_trusted,
        view: read_view(root, pid),
        pid_namespace: read_namespace(root, "pid", kernel),
        time_namespace: read_namespace(root, "time", kernel),
    }
}

/// Compares where a record comes from with where it is read.
pub(crate) fn place(proc: &ProcFs, process: &ProcessIdentity) -> Facts {
    proc.with_own(|own| own.place(process))
}

/// Looks at the number of a recorded process. The record is of this boot and this pid namespace.
pub(crate) fn look(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity) {
    drop(look_and_keep(facts, proc, process));
}

/// Looks in the same way, and keeps the pidfd. While the verdict is that the process runs, it is the
/// recorded one's.
pub(crate) fn look_and_keep(
    facts: &mut Facts,
    proc: &ProcFs,
    process: &ProcessIdentity,
) -> Result<OwnedFd, Errno> {
    let kept = look_at(facts, proc, process);
    if death(facts).is_some() {
        look_at_ourselves(facts, proc, process);
    }
    kept
}

/// Looks again at what is remembered of ourselves, so that no death rests on what is not so any more:
/// this may be another process with our memory, in another pid namespace, and `/proc` or our clock may
/// have been replaced.
fn look_at_ourselves(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity) {
    // What the kernel says of a number needs neither `/proc` nor a clock, and an equal inode not even
    // the number.
    let by_proc = facts.ticks == Ticks::Different || facts.number == Number::Thread;
    if !by_proc && (facts.inode == Inode::Same || proc.is_of_this_process()) {
        return;
    }
    let now = proc.read_own().place(process);
    facts.boot = now.boot;
    facts.trust = now.trust;
    facts.view = now.view;
    facts.pid_namespace = now.pid_namespace;
    facts.time_namespace = now.time_namespace;
    let read = match (facts.number, facts.ticks) {
        (Number::Thread, _) => "status",
        (_, Ticks::Different) => "stat",
        (_, _) => return,
    };
    if !is_the_kernels(proc.root(), &format!("/{}/{read}", process.pid)) {
        facts.view = View::NotOurs;
    }
}

fn look_at(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity) -> Result<OwnedFd, Errno> {
    if !proc.kernel().pidfd {
        facts.lookup = Lookup::Unavailable;
        look_without_pidfd(facts, proc, process);
        return Err(Errno::NOSYS);
    }
    let pidfd = sys::open_pidfd(process.pid).inspect_err(|&errno| {
        look_at_refusal(facts, proc, process, errno);
    })?;
    facts.lookup = Lookup::Opened;
    match facts.grain {
        Grain::Inode => {
            facts.inode = match sys::inode(pidfd.as_fd()) {
                Ok(inode) if Some(inode) == process.pidfd_inode => Inode::Same,
                Ok(_) => Inode::Different,
                Err(_) => Inode::Failed,
            };
        }
        Grain::Ticks => look_at_ticks(facts, proc, process),
    }
    // Last: while it runs, all that was read before is about this process.
    facts.exit = match sys::has_exited(pidfd.as_fd()) {
        Ok(false) => Exit::Running,
        Ok(true) => Exit::Exited,
        Err(_) => Exit::Failed,
    };
    Ok(pidfd)
}

fn look_at_refusal(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity, errno: Errno) {
    facts.lookup = match errno {
        Errno::SRCH => Lookup::NoSuchProcess,
        Errno::NOENT => Lookup::NotAProcess,
        Errno::INVAL => Lookup::NotALeader,
        Errno::NOSYS => Lookup::Unavailable,
        Errno::PERM | Errno::ACCESS => Lookup::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Lookup::Exhausted,
        _ => Lookup::Failed,
    };
    match facts.lookup {
        Lookup::NotAsked | Lookup::Opened | Lookup::NoSuchProcess | Lookup::NotAProcess => {}
        Lookup::NotALeader => {
            facts.number = read_number(proc.root(), process.pid);
            look_at_signal(facts, process.pid);
        }
        Lookup::Unavailable => look_without_pidfd(facts, proc, process),
        Lookup::Denied | Lookup::Exhausted | Lookup::Failed => look_at_signal(facts, process.pid),
    }
}

fn look_without_pidfd(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity) {
    // No pidfd, no inode: a call that the kernel has may still be forbidden. Ticks can be compared
    // only in the time namespace they were counted in.
    facts.grain = Grain::Ticks;
    if !may_probe(facts) {
        return;
    }
    look_at_ticks(facts, proc, process);
    if facts.ticks == Ticks::Same {
        facts.number = read_number(proc.root(), process.pid);
    } else if facts.ticks != Ticks::Different {
        look_at_signal(facts, process.pid);
    }
}

fn look_at_ticks(facts: &mut Facts, proc: &ProcFs, process: &ProcessIdentity) {
    facts.ticks = match read_stat(proc.root(), process.pid) {
        Ok(stat) => {
            facts.leader = if stat.leader_exited() {
                Leader::Exited
            } else {
                Leader::Runs
            };
            if stat.start_ticks == process.start_ticks {
                Ticks::Same
            } else {
                Ticks::Different
            }
        }
        Err(NoStat::Malformed(_)) => Ticks::Malformed,
        Err(NoStat::Unread(errno)) => match errno {
            Errno::NOENT | Errno::SRCH => Ticks::NotFound,
            Errno::PERM | Errno::ACCESS => Ticks::Denied,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Ticks::Exhausted,
            _ => Ticks::Failed,
        },
    };
}

fn look_at_signal(facts: &mut Facts, pid: Pid) {
    facts.signal = match sys::signal_zero(pid) {
        Ok(()) => Signal::Exists,
        Err(Errno::PERM) => Signal::NotPermitted,
        Err(Errno::SRCH) => Signal::NoSuchProcess,
        Err(_) => Signal::Failed,
    };
}

pub(crate) fn describe_own(proc: &ProcFs) -> Result<ProcessIdentity, DescribeError> {
    let pid = own_pid().ok_or(DescribeError::Unsupported)?;
    describe(proc, pid)
}

pub(crate) fn describe(proc: &ProcFs, pid: Pid) -> Result<ProcessIdentity, DescribeError> {
    proc.with_present_own(|own| {
        let boot_id = own.boot_id.map_err(|cause| match cause {
            NoBootId::Unread(errno) => DescribeError::BootIdUnreadable {
                source: io::Error::from_raw_os_error(errno),
            },
            NoBootId::Malformed(source) => DescribeError::BootId { source },
        })?;
        require_ours(own.view)?;
        let (stat, pidfd_inode) = if proc.kernel().pidfd {
            describe_by_pidfd(proc, pid)?
        } else {
            (describe_by_stat(proc, pid)?, None)
        };
        // A description is for ever: `/proc` and our clock may have been replaced since they were
        // looked at.
        require_ours(read_view(proc.root(), own.pid))?;
        // Nor is it what somebody mounted over the process. A boot id that is not trusted proves no
        // death anyway.
        if own.boot_trusted && !is_the_kernels(proc.root(), &format!("/{pid}/stat")) {
            return Err(DescribeError::Hidden { pid });
        }
        let namespace = |kind| read_namespace(proc.root(), kind, proc.kernel()).recorded();
        Ok(ProcessIdentity {
            boot_id,
            boot_trusted: own.boot_trusted,
            pid,
            start_ticks: stat.start_ticks,
            pidfd_inode,
            pid_namespace: namespace("pid"),
            time_namespace: namespace("time"),
            launch: own.launch.filter(|_| own.pid == Some(pid)),
        })
    })
}

/// Refuses a `/proc` in which numbers mean other processes than to us.
pub(crate) const fn require_ours(view: View) -> Result<(), DescribeError> {
    match view {
        View::Ours => Ok(()),
        View::NotOurs => Err(DescribeError::ProcNotOurs),
        View::Missing => Err(DescribeError::ProcMissing),
        View::Unsupported => Err(DescribeError::Unsupported),
    }
}

/// The pidfd is opened first and polled last, so what was read between is about one process.
fn describe_by_pidfd(proc: &ProcFs, pid: Pid) -> Result<(Stat, Option<u64>), DescribeError> {
    let pidfd = sys::open_pidfd(pid).map_err(|errno| match errno {
        Errno::SRCH => DescribeError::NotRunning { pid },
        Errno::NOENT | Errno::INVAL => not_a_process(proc, pid),
        errno => unreadable(pid, errno),
    })?;
    let inode = if proc.kernel().pidfs {
        Some(sys::inode(pidfd.as_fd()).map_err(|errno| unreadable(pid, errno))?)
    } else {
        None
    };
    let stat = read_stat(proc.root(), pid);
    let is_past = match (&stat, inode) {
        (Ok(stat), None) => wait_until_past(stat.start_ticks),
        (Ok(_), Some(_)) | (Err(_), _) => true,
    };
    if sys::has_exited(pidfd.as_fd()).map_err(|errno| unreadable(pid, errno))? {
        return Err(DescribeError::NotRunning { pid });
    }
    match stat {
        Ok(_) if !is_past => Err(DescribeError::StartsAhead { pid }),
        Ok(stat) => Ok((stat, inode)),
        Err(NoStat::Unread(Errno::NOENT | Errno::SRCH)) => Err(DescribeError::Hidden { pid }),
        Err(NoStat::Unread(errno)) => Err(unreadable(pid, errno)),
        Err(NoStat::Malformed(source)) => Err(DescribeError::Stat { pid, source }),
    }
}

/// Without pidfd: the same start before and after the wait is the same process, to one tick.
fn describe_by_stat(proc: &ProcFs, pid: Pid) -> Result<Stat, DescribeError> {
    let before = stat_or_reason(proc, pid)?;
    if !wait_until_past(before.start_ticks) {
        return Err(DescribeError::StartsAhead { pid });
    }
    match read_number(proc.root(), pid) {
        Number::Process => {}
        Number::Thread => return Err(DescribeError::Thread { pid }),
        Number::NotAsked | Number::Unreadable => return Err(DescribeError::Hidden { pid }),
    }
    let after = stat_or_reason(proc, pid)?;
    if after.start_ticks != before.start_ticks || after.leader_exited() {
        return Err(DescribeError::NotRunning { pid });
    }
    Ok(after)
}

/// Reads the `stat` of a process, or says why there is none.
pub(crate) fn stat_or_reason(proc: &ProcFs, pid: Pid) -> Result<Stat, DescribeError> {
    match read_stat(proc.root(), pid) {
        Ok(stat) => Ok(stat),
        Err(NoStat::Malformed(source)) => Err(DescribeError::Stat { pid, source }),
        Err(NoStat::Unread(Errno::NOENT | Errno::SRCH)) => match sys::signal_zero(pid) {
            Err(Errno::SRCH) => Err(DescribeError::NotRunning { pid }),
            Ok(()) | Err(_) => Err(DescribeError::Hidden { pid }),
        },
        Err(NoStat::Unread(errno)) => Err(unreadable(pid, errno)),
    }
}

/// The kernel says that the number names no process: a thread, or what only a group keeps.
fn not_a_process(proc: &ProcFs, pid: Pid) -> DescribeError {
    match read_number(proc.root(), pid) {
        Number::Thread => DescribeError::Thread { pid },
        Number::NotAsked | Number::Process | Number::Unreadable => {
            DescribeError::NotRunning { pid }
        }
    }
}

fn unreadable(pid: Pid, errno: Errno) -> DescribeError {
    DescribeError::Unreadable {
        pid,
        source: errno.into(),
    }
}

/// Why there is no `stat` of a process.
pub(crate) enum NoStat {
    Unread(Errno),
    Malformed(StatError),
}

pub(crate) fn read_stat(root: &Path, pid: Pid) -> Result<Stat, NoStat> {
    let mut buffer = [0; STAT_BYTES];
    let line = read_into(root, format_args!("{pid}/stat"), &mut buffer).map_err(NoStat::Unread)?;
    Stat::parse_of(pid, line).map_err(NoStat::Malformed)
}

/// Asks `status` whether a number is a process or a thread.
fn read_number(root: &Path, pid: Pid) -> Number {
    let mut buffer = [0; STATUS_BYTES];
    let Ok(status) = read_into(root, format_args!("{pid}/status"), &mut buffer) else {
        return Number::Unreadable;
    };
    // Under another process's name it would say "thread" about a process.
    if status_numbers(status, b"Pid:").next().flatten() != Some(pid) {
        return Number::Unreadable;
    }
    match status_numbers(status, b"Tgid:").next() {
        Some(group) if group == Some(pid) => Number::Process,
        Some(Some(_)) => Number::Thread,
        Some(None) | None => Number::Unreadable,
    }
}

/// Tells whether numbers in this `/proc` mean the same processes as to us.
pub(crate) fn shows_our_numbers(proc: &ProcFs) -> bool {
    read_view(proc.root(), own_pid()) == View::Ours
}

/// Tells whether this `/proc` is the one of our own pid namespace.
fn read_view(root: &Path, pid: Option<Pid>) -> View {
    let mut buffer = [0; STATUS_BYTES];
    let Ok(status) = read_into(root, format_args!("self/status"), &mut buffer) else {
        return View::Missing;
    };
    // One number for each namespace from the one of this `/proc` down to ours: one alone means that
    // both are the same. A number that is equal by chance does not pass.
    let mut numbers = status_numbers(status, b"NSpid:");
    let (first, second) = (numbers.next(), numbers.next());
    let shown = match (first, second) {
        (Some(only), None) => only,
        // Before Linux 4.1 there is no such line.
        (None, _) => status_numbers(status, b"Pid:").next().flatten(),
        (Some(_), Some(_)) => None,
    };
    if pid.is_some() && shown == pid {
        View::Ours
    } else {
        View::NotOurs
    }
}

/// Returns the numbers of one line of `status`; `None` for what is no process number.
fn status_numbers<'a>(status: &'a [u8], key: &'a [u8]) -> impl Iterator<Item = Option<Pid>> {
    status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(|word| str::from_utf8(word).ok()?.parse().ok())
}

fn read_boot_id(root: &Path) -> (Result<BootId, NoBootId>, bool) {
    let unread = |errno: Errno| (Err(NoBootId::Unread(errno.raw_os_error())), false);
    let file = match sys::open(root.join(BOOT_ID.trim_start_matches('/'))) {
        Ok(file) => file,
        Err(errno) => return unread(errno),
    };
    let mut buffer = [0; 128];
    let count = match sys::read(&file, &mut buffer) {
        Ok(count) => count,
        Err(errno) => return unread(errno),
    };
    let contents = buffer.get(..count).unwrap_or_default();
    let trusted = sys::is_proc(file.as_fd()) && is_the_kernels(root, BOOT_ID);
    (
        BootId::from_file(contents).map_err(NoBootId::Malformed),
        trusted,
    )
}

/// Tells whether nothing is mounted over a file of `/proc`.
fn is_the_kernels(root: &Path, file: &str) -> bool {
    // A thread may have mounts of its own, and it is this one that reads.
    let Ok(mounts) = sys::open(root.join("thread-self/mountinfo"))
        .or_else(|_older_kernel| sys::open(root.join("self/mountinfo")))
    else {
        return false;
    };
    match sys::read_whole(&mounts, MOUNTINFO_BYTES) {
        Ok(table) => table.len() < MOUNTINFO_BYTES && is_uncovered(&table, root, file),
        Err(_) => false,
    }
}

fn read_namespace(root: &Path, kind: &str, kernel: Kernel) -> OwnNamespace {
    let file = match sys::open(root.join("self/ns").join(kind)) {
        Ok(file) => file,
        // A kernel without this kind has the directory and not the file.
        Err(Errno::NOENT) if root.join("self/ns").is_dir() => return OwnNamespace::Absent,
        Err(_) => return OwnNamespace::Unreadable,
    };
    if kernel.namespace_ids
        && let Ok(id) = sys::namespace_id(file.as_fd())
    {
        return OwnNamespace::Known(Namespace::Id(id));
    }
    match sys::inode(file.as_fd()) {
        Ok(inode) => OwnNamespace::Known(Namespace::Inode(NamespaceInode {
            inode,
            init_start: read_stat(root, Pid::INIT).ok().map(|stat| stat.start_ticks),
        })),
        Err(_) => OwnNamespace::Unreadable,
    }
}

/// Reads a small file below `/proc` that the kernel prints in one piece. One that fills the buffer is
/// cut, and its parser says so.
pub(crate) fn read_into<'a>(
    root: &Path,
    name: fmt::Arguments<'_>,
    buffer: &'a mut [u8],
) -> Result<&'a [u8], Errno> {
    let file = open_below(root, name)?;
    let count = sys::read_piece(&file, buffer)?;
    Ok(buffer.get(..count).unwrap_or_default())
}

/// Opens a file without asking for memory, unless the root has a long name.
fn open_below(root: &Path, name: fmt::Arguments<'_>) -> Result<OwnedFd, Errno> {
    let mut path = [0; PATH_BYTES];
    let mut rest = path.as_mut_slice();
    let written = rest
        .write_all(root.as_os_str().as_bytes())
        .and_then(|()| write!(rest, "/{name}"));
    let used = PATH_BYTES.saturating_sub(rest.len());
    match (written, path.get(..used)) {
        (Ok(()), Some(path)) => sys::open(path),
        (Ok(()) | Err(_), _) => sys::open(root.join(name.to_string())),
    }
}
