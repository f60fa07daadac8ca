//! System calls, and the few places that need `unsafe`.
#![expect(
    unsafe_code,
    reason = "a page that forked children find wiped, and three calls without a wrapper"
)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::path::Arg;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::id::{LaunchId, Pid};

/// What `fstatfs` says of a pidfd that has an inode of its own.
const PIDFS_MAGIC: u64 = 0x5049_4446;

/// What `fstatfs` says of a file of `/proc`.
const PROC_MAGIC: u64 = 0x9fa0;

/// Returns the number of this process in its own pid namespace.
pub(crate) fn own_pid() -> Option<Pid> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    Pid::new(pid.into()).ok()
}

/// Opens a pidfd. The number must name a process, not a thread.
pub(crate) fn open_pidfd(pid: Pid) -> Result<OwnedFd> {
    pidfd_open(raw(pid)?, PidfdFlags::empty())
}

/// Returns the inode of a pidfd, unique where the pidfd is of pidfs.
pub(crate) fn inode(fd: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_ino)
}

/// Tells whether a pidfd is of pidfs.
pub(crate) fn is_pidfs(pidfd: BorrowedFd<'_>) -> bool {
    has_magic(pidfd, PIDFS_MAGIC)
}

/// Tells whether a file lies in a `/proc`.
pub(crate) fn is_proc(file: BorrowedFd<'_>) -> bool {
    has_magic(file, PROC_MAGIC)
}

/// Tells whether the process behind a pidfd has exited, without waiting.
pub(crate) fn has_exited(pidfd: BorrowedFd<'_>) -> Result<bool> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A signal ends even a poll that does not wait. Whoever is sent signals all the time is told so.
    for _attempt in 0..INTERRUPTIONS {
        let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&now)) {
            Err(Errno::INTR) => {}
            ended => {
                let _how_many = ended?;
                let [pidfd] = &fds;
                return is_readable(pidfd.revents());
            }
        }
    }
    Err(Errno::INTR)
}

/// What is no descriptor is ready as well: somebody closed it who does not own it, as programs do that
/// go into the background.
fn is_readable(seen: PollFlags) -> Result<bool> {
    if seen.contains(PollFlags::NVAL) {
        return Err(Errno::BADF);
    }
    Ok(!seen.is_empty())
}

/// How many signals in a row one look puts up with.
const INTERRUPTIONS: u32 = 64;

/// Tells how the process behind a pidfd ended, where the kernel says so: to its parent as soon as it
/// has exited, to anybody once it was reaped (Linux 6.15). Nothing is reaped here.
pub(crate) fn ending(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    ending_after_reap(pidfd).or_else(|| ending_of_child(pidfd))
}

/// `struct pidfd_info` of `linux/pidfd.h`, in its first and smallest form.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// Numbers and ids, which nobody here asks for.
    ids: [u32; 11],
    exit_code: i32,
}

fn ending_after_reap(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    /// `PIDFD_GET_INFO` of `linux/pidfd.h`.
    const PIDFD_GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);
    /// `PIDFD_INFO_EXIT`: asked for, and set in the answer if there is one.
    const EXIT: u64 = 1 << 3;
    let mut info = PidfdInfo {
        mask: EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: PIDFD_GET_INFO reads and writes one structure of the size that its number carries; a
    // kernel without it answers ENOTTY, and so does a file that is no pidfd.
    unsafe { ioctl(pidfd, Updater::<PIDFD_GET_INFO, _>::new(&mut info)) }.ok()?;
    (info.mask & EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code))
}

fn ending_of_child(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(pidfd), look)
        .ok()?
        .and_then(|status| wait_status(&status))
}

/// Puts what `waitid` tells into the form of `wait`: `wait(2)`.
fn wait_status(status: &WaitIdStatus) -> Option<ExitStatus> {
    const DUMPED: i32 = 0x80;
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, Some(signal)) if status.dumped() => signal | DUMPED,
        (None, Some(signal)) => signal,
        (None, None) => return None,
    };
    Some(ExitStatus::from_raw(raw))
}

/// Makes an empty epoll.
pub(crate) fn new_epoll() -> Result<OwnedFd> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
}

/// Adds what becomes readable, under a key of the caller's.
pub(crate) fn add_to_epoll(epoll: BorrowedFd<'_>, file: BorrowedFd<'_>, key: u64) -> Result<()> {
    let data = epoll::EventData::new_u64(key);
    epoll::add(epoll, file, data, epoll::EventFlags::IN)
}

/// Takes it out again. To close the file would not do: a forked child may still have it open.
pub(crate) fn remove_from_epoll(epoll: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<()> {
    epoll::delete(epoll, file)
}

/// Waits until something is readable and returns the keys, as many as there is room for.
///
/// `None` waits without end. No key at all means that the time is over.
pub(crate) fn wait_for_epoll<'a>(
    epoll: BorrowedFd<'_>,
    keys: &'a mut [u64; EPOLL_KEYS],
    timeout: Option<&Timespec>,
) -> Result<&'a [u64]> {
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }; EPOLL_KEYS];
    let count = epoll::wait(epoll, &mut events, timeout)?;
    for (key, event) in keys.iter_mut().zip(events) {
        *key = event.data.u64();
    }
    Ok(keys.get(..count).unwrap_or_default())
}

/// How many keys one wait gives at most.
pub(crate) const EPOLL_KEYS: usize = 64;

/// Makes a bell that is readable once it was rung, until it is silenced.
pub(crate) fn new_bell() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Rings a bell.
pub(crate) fn ring(bell: BorrowedFd<'_>) -> Result<()> {
    match rustix::io::write(bell, &1_u64.to_ne_bytes()) {
        // It has been rung 2^64 - 2 times, which is enough.
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Silences a bell and tells whether it was rung: of several threads, to one.
pub(crate) fn silence(bell: BorrowedFd<'_>) -> bool {
    rustix::io::read(bell, &mut [0; size_of::<u64>()]).is_ok()
}

/// Asks the kernel whether a number of our pid namespace names anything. Nothing is sent.
pub(crate) fn signal_zero(pid: Pid) -> Result<()> {
    rustix::process::test_kill_process(raw(pid)?)
}

/// For reading what may not be what it should be: a named pipe would keep us waiting for its other end.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens a file for reading.
pub(crate) fn open(path: impl Arg) -> Result<OwnedFd> {
    rustix::fs::open(path, READ, Mode::empty())
}

/// Reads what one read gives.
pub(crate) fn read_piece(file: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::io::read(file.as_fd(), &mut *buffer) {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

/// Fills `buffer` from a file and returns how much there was; a full buffer may mean more.
pub(crate) fn read(file: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(file.as_fd(), rest) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Reads a file whose size nobody knows, up to `most` bytes; as many may mean more.
pub(crate) fn read_whole(file: impl AsFd, most: usize) -> Result<Vec<u8>> {
    /// Most tables fit, and memory is cleared before it is filled.
    const FIRST_BYTES: usize = 16 << 10;
    let mut bytes = Vec::new();
    let mut filled = 0_usize;
    let mut room = FIRST_BYTES.min(most);
    while filled < room {
        bytes.resize(room, 0);
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        filled = filled.saturating_add(read(file.as_fd(), rest)?);
        if filled < room {
            break;
        }
        room = room.saturating_mul(2).min(most);
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Asks a namespace's file for the number the kernel gives only once in a boot.
pub(crate) fn namespace_id(file: BorrowedFd<'_>) -> Result<u64> {
    /// `NS_GET_ID` of `linux/nsfs.h`.
    const NS_GET_ID: Opcode = opcode::read::<u64>(0xb7, 13);
    // SAFETY: NS_GET_ID writes one u64 and nothing else; a kernel without it answers ENOTTY, and so
    // does a file that is no namespace.
    unsafe { ioctl(file, Getter::<NS_GET_ID, u64>::new()) }
}

/// What two tasks may have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    Descriptors,
    /// Working directory and root.
    Directory,
}

/// Tells whether two tasks share something. Both must be ours to look at.
pub(crate) fn share(what: Shared, one: Pid, other: Pid) -> Result<bool> {
    let kind: libc::c_long = match what {
        // `KCMP_FILES` and `KCMP_FS` of `linux/kcmp.h`.
        Shared::Descriptors => 2,
        Shared::Directory => 3,
    };
    let [one, other] = [one, other].map(|pid| libc::c_long::from(pid.get()));
    let none: libc::c_long = 0;
    // SAFETY: kcmp takes five numbers, of which these kinds ignore the last two, and writes nothing.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, none, none) };
    match compared {
        0 => Ok(true),
        1.. => Ok(false),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

/// Returns the launch of this program image, and makes it at the first call after start or fork.
///
/// `None` where the kernel gives no such page, or no random numbers.
pub(crate) fn launch() -> Option<LaunchId> {
    let page = launch_page()?;
    let mut random = [0_u64; 2];
    for (word, place) in page.iter().zip(&mut random) {
        *place = match word.load(Ordering::Acquire) {
            // The first of several threads wins, word by word; all of them then read the same.
            0 => {
                let drawn = random_word()?;
                match word.compare_exchange(0, drawn, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_zero) => drawn,
                    Err(theirs) => theirs,
                }
            }
            drawn => drawn,
        };
    }
    let [high, low] = random;
    LaunchId::from_words(high, low)
}

/// Returns the launch if it was made since start or fork. Two loads.
pub(crate) fn launch_if_made() -> Option<LaunchId> {
    let page = NonNull::new(PAGE.load(Ordering::Acquire))?;
    // SAFETY: see `launch_page`.
    let [high, low] = unsafe { page.as_ref() };
    LaunchId::from_words(high.load(Ordering::Acquire), low.load(Ordering::Acquire))
}

/// The two words of the launch, in a page of their own; null until the first call.
///
/// No lock and no `OnceLock`: a fork could happen while another thread holds it, and the child would
/// wait for ever.
static PAGE: AtomicPtr<[AtomicU64; 2]> = AtomicPtr::new(std::ptr::null_mut());

const PAGE_BYTES: usize = size_of::<[AtomicU64; 2]>();

fn launch_page() -> Option<&'static [AtomicU64; 2]> {
    let page = match NonNull::new(PAGE.load(Ordering::Acquire)) {
        Some(page) => page,
        None => publish(wiped_page()?)?,
    };
    // SAFETY: PAGE only ever holds a mapping made by `wiped_page`, which is never unmapped once it
    // was published. Zeroes are valid atomics, the mapping is aligned to a page, and the kernel
    // changes it only in a forked child, to zeroes, before the child runs.
    Some(unsafe { page.as_ref() })
}

/// Publishes a page, or gives it back and returns the one another thread published first.
fn publish(page: NonNull<[AtomicU64; 2]>) -> Option<NonNull<[AtomicU64; 2]>> {
    let null = std::ptr::null_mut();
    match PAGE.compare_exchange(null, page.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_null) => Some(page),
        Err(theirs) => {
            // SAFETY: the mapping was made by `wiped_page` with this length and nobody has seen it.
            // If it cannot be unmapped, one page stays for the life of the process.
            let _unmapped = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
            NonNull::new(theirs)
        }
    }
}

/// Maps a page of zeroes that is zeroes again in every forked child.
fn wiped_page() -> Option<NonNull<[AtomicU64; 2]>> {
    // SAFETY: a new private mapping where the kernel chooses overlaps nothing.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let page = NonNull::new(mapped.ok()?.cast::<[AtomicU64; 2]>())?;
    // SAFETY: exactly the mapping made above, which nobody else knows.
    let wiped = unsafe { madvise(page.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: as above; a launch that a child inherits is worse than none.
        let _unmapped = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
        return None;
    }
    Some(page)
}

/// Draws a word that is not zero.
fn random_word() -> Option<u64> {
    let mut bytes = [0; size_of::<u64>()];
    let drawn = getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
    if drawn < bytes.len() {
        return None;
    }
    // One in 2^64 draws is zero, which would mean that there is none.
    Some(u64::from_ne_bytes(bytes).max(1))
}

fn raw(pid: Pid) -> Result<rustix::process::Pid> {
    rustix::process::Pid::from_raw(pid.get()).ok_or(Errno::INVAL)
}

fn has_magic(file: BorrowedFd<'_>, magic: u64) -> bool {
    // The type of the field differs between machines; the numbers are small and positive.
    rustix::fs::fstatfs(file)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|t| t == magic))
}
