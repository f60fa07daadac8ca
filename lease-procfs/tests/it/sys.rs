//! Forked children, exact pids and other calls that need `unsafe`.
#![expect(
    unsafe_code,
    reason = "fork, clone3 and friends; the children touch only what fork leaves sound"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use lease_procfs::Pid;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// A forked child. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    is_reaped: bool,
}

impl Child {
    /// Forks a child that runs `body` and exits.
    pub(crate) fn fork(body: impl FnOnce()) -> Self {
        // SAFETY: the C library makes its heap sound in the child, and the child leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        Self::run(pid.into(), body)
    }

    /// Forks a child that waits to be killed.
    pub(crate) fn idle() -> Self {
        Self::fork(wait_for_ever)
    }

    /// Forks an idle child with exactly this number in our pid namespace.
    pub(crate) fn idle_at(pid: Pid) -> io::Result<Self> {
        let wanted = [pid.get()];
        let arguments = CloneArguments {
            exit_signal: u64::try_from(libc::SIGCHLD).unwrap(),
            set_tid: wanted.as_ptr().expose_provenance() as u64,
            set_tid_size: 1,
            ..CloneArguments::default()
        };
        // SAFETY: as `fork`, without the C library's handlers: callers have one thread.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone3,
                &raw const arguments,
                size_of::<CloneArguments>(),
            )
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::run(pid, wait_for_ever))
    }

    fn run(pid: i64, body: impl FnOnce()) -> Self {
        if pid == 0 {
            let outcome = catch_unwind(AssertUnwindSafe(body));
            exit_now(i32::from(outcome.is_err()));
        }
        Self {
            pid: Pid::new(pid).expect("fork gives a number"),
            is_reaped: false,
        }
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(raw(self.pid), signal).expect("the child is ours");
    }

    /// Kills the child and waits until it is a zombie.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait_unreaped();
    }

    /// Waits until the child has exited, and leaves it a zombie.
    pub(crate) fn wait_unreaped(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(raw(self.pid)), options).expect("the child is ours");
    }

    /// Leaves ending and reaping it to somebody else.
    pub(crate) fn leave(mut self) -> Pid {
        self.is_reaped = true;
        self.pid
    }

    /// Waits until the child has exited, reaps it, and tells whether it succeeded.
    pub(crate) fn reap(&mut self) -> bool {
        self.is_reaped = true;
        let status = waitid(WaitId::Pid(raw(self.pid)), WaitIdOptions::EXITED);
        status
            .expect("the child is ours")
            .expect("it exited")
            .exit_status()
            == Some(0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            self.reap();
        }
    }
}

/// Runs `body` in a child of a new pid namespace that shares all memory, and returns when it is done.
/// The child lives until it is dropped.
pub(crate) fn share_memory_in_a_new_pid_namespace(body: impl FnMut()) -> Child {
    extern "C" fn run<F: FnMut()>(body: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent lends it until the child says that it is done.
        let (body, done) = unsafe { &mut *body.cast::<(F, AtomicBool)>() };
        let _caught = catch_unwind(AssertUnwindSafe(body));
        done.store(true, Ordering::Release);
        wait_for_ever();
        0
    }
    fn entry<F: FnMut()>(_: &(F, AtomicBool)) -> extern "C" fn(*mut libc::c_void) -> libc::c_int {
        run::<F>
    }
    const STACK: usize = 4 << 20;
    // The child stays on it.
    let stack = Box::leak(vec![0_u8; STACK].into_boxed_slice());
    let mut lent = (body, AtomicBool::new(false));
    let flags = libc::CLONE_VM | libc::CLONE_NEWPID | libc::SIGCHLD;
    // SAFETY: the stack is the child's alone; what is lent outlives its use, and this thread does
    // nothing meanwhile.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK).cast();
        libc::clone(entry(&lent), top, flags, (&raw mut lent).cast())
    };
    let child = Child {
        pid: Pid::new(pid.into()).expect("clone gives a number"),
        is_reaped: false,
    };
    while !lent.1.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    child
}

/// Leaves namespaces for new ones. The caller has one thread.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: no descriptor table is unshared.
    unsafe { unshare_unsafe(flags) }
}

/// Gives the calling thread a directory or descriptors of its own.
pub(crate) fn unshare_thread(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the thread keeps no descriptor of another's.
    unsafe { unshare_unsafe(flags) }
}

/// Maps a file for the life of the process.
pub(crate) fn map(file: &std::fs::File) {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let address = std::ptr::null_mut();
    // SAFETY: a new mapping where the kernel chooses overlaps nothing, and nobody reads it.
    let mapped = unsafe { mmap(address, 10, ProtFlags::READ, MapFlags::PRIVATE, file, 0) };
    mapped.expect("the file can be mapped");
}

/// Closes a descriptor under its owner's feet. Nobody opens another one before the process ends.
pub(crate) fn close_whoever_owns_it(fd: std::os::fd::BorrowedFd<'_>) {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the owner is never dropped, and no other descriptor gets the number.
    unsafe { rustix::io::close(fd.as_raw_fd()) };
}

/// Lets the process have few descriptors only.
pub(crate) fn few_descriptors() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let few = Rlimit {
        current: Some(16),
        maximum: Some(16),
    };
    setrlimit(Resource::Nofile, few).expect("less is always allowed");
}

/// Ends the leader thread alone.
pub(crate) fn exit_this_thread() -> ! {
    // SAFETY: the thread's stack stays mapped; nothing runs on it any more.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    exit_now(1)
}

pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

pub(crate) fn wait_for_ever() {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Traces a child from this thread and stops it. A kill ends both.
pub(crate) fn trace(pid: Pid) -> io::Result<()> {
    let null = std::ptr::null_mut::<libc::c_void>();
    for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
        // SAFETY: both take no address and no data.
        if unsafe { libc::ptrace(request, pid.get(), null, null) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes on another user, for good.
pub(crate) fn become_user(user: u32) {
    // SAFETY: changes credentials of this process.
    let refused = unsafe {
        libc::setgroups(0, std::ptr::null())
            | libc::setresgid(user, user, user)
            | libc::setresuid(user, user, user)
    };
    assert_eq!(refused, 0, "{}", io::Error::last_os_error());
}

/// Refuses one system call to this thread, for good, as the filters of many containers do.
pub(crate) fn forbid(call: libc::c_long) -> io::Result<()> {
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let number = u32::try_from(call).unwrap();
    // The number of the call is the first word that a filter may load.
    let mut filter = [
        statement(short(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0),
        libc::sock_filter {
            jf: 1,
            ..statement(short(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), number)
        },
        statement(
            short(libc::BPF_RET | libc::BPF_K),
            libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(),
        ),
        statement(short(libc::BPF_RET | libc::BPF_K), libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the program lives as long as the call, which copies it.
    let refused = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if refused == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn short(code: u32) -> u16 {
    u16::try_from(code).unwrap()
}

/// Lets a signal that is sent to this process interrupt its system calls.
pub(crate) fn be_interrupted_by_usr1() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: a handler that does nothing, and no flag that would restart a call.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(failed, 0, "{}", io::Error::last_os_error());
}

/// Counts how often a thread asks for memory.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the count is a plain cell without a
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns how often this thread asks for memory while it does something.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn raw(pid: Pid) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid.get()).expect("a pid is not zero")
}

/// `struct clone_args` of `linux/sched.h`.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}
