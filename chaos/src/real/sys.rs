//! System calls that have no safe wrapper.
#![expect(
    unsafe_code,
    reason = "socket options, namespaces, forks, mappings, traces and the end of one thread have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::thread::UnshareFlags;

/// `SO_PEERPIDFD` of `asm-generic/socket.h` (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// Who connected a socket, as the kernel saw it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number in our pid namespace; 0 if it has none there.
    pub(crate) pid: i32,
    /// Holds that very process. `None` before Linux 6.5, or where the process has no number here.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// Asks the kernel who connected this stream socket.
pub(crate) fn peer(socket: impl AsFd) -> io::Result<Peer> {
    // SAFETY: a `ucred` is three integers, for which zero is a value.
    let nobody: libc::ucred = unsafe { std::mem::zeroed() };
    let credentials = socket_option(&socket, libc::SO_PEERCRED, nobody)?;
    // Older kernels know no such option; some refuse a peer that has no number here.
    let pidfd = socket_option(&socket, SO_PEERPIDFD, -1)
        .ok()
        .filter(|number| *number >= 0)
        // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    Ok(Peer {
        pid: credentials.pid,
        pidfd,
    })
}

/// Reads a socket option that is plain integers.
fn socket_option<T: Copy>(socket: &impl AsFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `value`; every `T` used
    // here is made of integers, for which any bytes are a value.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if answer == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Moves this thread, or its children, into namespaces of their own.
///
/// `flags` are `NEW` ones; descriptors stay shared.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    let flags = flags.difference(UnshareFlags::FILES);
    // SAFETY: the table of descriptors, which is all that this can take away from other threads,
    // stays shared.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Ends the calling thread, and lets the other threads of the process run.
///
/// In the first thread it leaves a process whose leader has exited. Nothing of the thread is dropped.
pub(crate) fn leave_thread() -> ! {
    loop {
        // SAFETY: the thread runs nothing after this. Its stack stays mapped, so what other threads
        // borrowed from it stays valid.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Maps the first page of a file, for as long as this process lives.
pub(crate) fn map(file: &impl AsFd) -> io::Result<()> {
    const PAGE: usize = 4_096;
    // SAFETY: a new mapping where the kernel likes takes nothing away, and nobody reads it.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_fd().as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Traces a process of one thread, a child of ours, from this thread, and stops it. It ends with us.
#[cfg(feature = "sqlite")]
pub(crate) fn trace(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, pid, 0, options)?;
    request(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
    wait_for_stop(pid).map(drop)
}

/// Lets a traced process go on to the begin of its next system call. `None` if it has ended.
#[cfg(feature = "sqlite")]
pub(crate) fn next_call(pid: i32) -> io::Result<Option<Call>> {
    /// What `waitpid` tells of a stop at a system call: `PTRACE_O_TRACESYSGOOD`.
    const AT_CALL: i32 = libc::SIGTRAP | 0x80;
    let mut signal = 0;
    loop {
        request(libc::PTRACE_SYSCALL, pid, 0, signal)?;
        match wait_for_stop(pid)? {
            None => return Ok(None),
            Some(AT_CALL) => {
                // At its end there is nothing to be seen.
                if let Some(call) = call_of(pid)? {
                    return Ok(Some(call));
                }
                signal = 0;
            }
            // A group stop or our own interruption is no signal to pass on.
            Some(libc::SIGTRAP) => signal = 0,
            Some(other) => signal = other,
        }
    }
}

/// Traces a process no more; it goes on.
#[cfg(feature = "sqlite")]
pub(crate) fn let_go(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, 0, 0)
}

/// A system call that begins: `struct ptrace_syscall_info` of `linux/ptrace.h`, as far as its entry.
#[cfg(feature = "sqlite")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// Which call.
    pub(crate) number: u64,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
}

#[cfg(feature = "sqlite")]
fn call_of(pid: i32) -> io::Result<Option<Call>> {
    /// `PTRACE_GET_SYSCALL_INFO` (Linux 5.3).
    const GET_SYSCALL_INFO: TraceRequest = 0x420e;
    /// `PTRACE_SYSCALL_INFO_ENTRY`.
    const ENTRY: u8 = 1;
    let mut call = Call::default();
    // SAFETY: the kernel writes no more than it is told there is room for, and every part is an integer.
    let answer = unsafe { libc::ptrace(GET_SYSCALL_INFO, pid, size_of::<Call>(), &raw mut call) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((call.op == ENTRY).then_some(call))
}

/// How the C library writes the number of a request.
#[cfg(all(feature = "sqlite", target_env = "musl"))]
type TraceRequest = libc::c_int;
#[cfg(all(feature = "sqlite", not(target_env = "musl")))]
type TraceRequest = libc::c_uint;

/// Asks for something that takes numbers only.
#[cfg(feature = "sqlite")]
fn request(request: TraceRequest, pid: i32, address: usize, data: i32) -> io::Result<()> {
    let data = libc::c_long::from(data);
    // SAFETY: none of the requests of this file that come here reads or writes memory of ours.
    match unsafe { libc::ptrace(request, pid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits until a traced process stops, and returns by which signal. `None` if it has ended.
#[cfg(feature = "sqlite")]
fn wait_for_stop(pid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: writes one integer.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status)))
}

/// Forks a child that sleeps for a second and keeps every open file but the standard ones.
#[cfg(feature = "sqlite")]
pub(crate) fn fork_sleeper() -> io::Result<()> {
    // SAFETY: the child makes only calls that are sound after a fork, and leaves by a signal.
    let child = unsafe { libc::fork() };
    sleeps_as_child(child.into())
}

/// As `fork_sleeper`, behind the back of the C library, so that no handler closes anything in the child.
#[cfg(feature = "sqlite")]
pub(crate) fn clone_sleeper() -> io::Result<()> {
    // SAFETY: without flags it is a plain fork; the child does as above.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    sleeps_as_child(child)
}

#[cfg(feature = "sqlite")]
fn sleeps_as_child(child: libc::c_long) -> io::Result<()> {
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => loop {
            // SAFETY: calls that are sound after a fork; whoever reads our output is not kept waiting.
            unsafe {
                for descriptor in 0..=2 {
                    libc::close(descriptor);
                }
                libc::alarm(1);
                libc::pause();
            }
        },
        _ => Ok(()),
    }
}
