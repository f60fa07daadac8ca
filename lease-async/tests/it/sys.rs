//! A process with one thread, which a test can move into namespaces of its own; and wakers that tell what is done to
//! them.
#![expect(
    unsafe_code,
    reason = "fork, what only a process with one thread may do, and the table of a waker"
)]

use core::task::{RawWaker, RawWakerVTable, Waker};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// What a machine does not have, and why.
pub(crate) type Missing = (&'static str, String);

/// Runs `body` in a forked child, and answers what that wrote.
///
/// To be called while no other thread of this process does anything.
pub(crate) fn forked(body: impl FnOnce() -> String) -> String {
    let (mut reader, mut writer) = io::pipe().unwrap();
    // SAFETY: the C library makes its heap sound in the child, no other thread is in the middle of anything,
    // and the child leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
            let answer = body();
            writer.write_all(answer.as_bytes()).unwrap();
        }));
        // SAFETY: it only ends the process.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    drop(writer);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    let pid = Pid::from_raw(pid).expect("fork gives a number");
    waitpid(Some(pid), WaitOptions::empty()).unwrap();
    answer
}

/// Makes a time namespace whose `CLOCK_BOOTTIME` is off by so many seconds. This process is not in it yet.
pub(crate) fn make_time_namespace(seconds: i64) -> Result<(), Missing> {
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    // SAFETY: no descriptor table is unshared.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    alone.map_err(|error| ("user-namespaces", error.to_string()))?;
    fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")))
        .map_err(|error| ("user-namespaces", error.to_string()))?;
    // SAFETY: as above.
    let time = unsafe { unshare_unsafe(UnshareFlags::NEWTIME) };
    time.map_err(|error| ("time-namespaces", error.to_string()))?;
    fs::write("/proc/self/timens_offsets", format!("boottime {seconds} 0"))
        .map_err(|error| ("time-namespaces", error.to_string()))
}

/// Moves this process into the namespace it has made: its clock jumps.
pub(crate) fn enter_time_namespace() {
    let next = fs::File::open("/proc/self/ns/time_for_children").unwrap();
    move_into_link_name_space(next.as_fd(), Some(LinkNameSpaceType::Time)).unwrap();
}

/// What is called by a waker that is cloned, woken or dropped.
type Told = dyn Fn() + Send + Sync;

/// Makes a waker that calls `told` before it is cloned, woken or dropped.
pub(crate) fn telling(told: Arc<Told>) -> Waker {
    let data = Arc::into_raw(Arc::new(told));
    // SAFETY: the functions of the table keep the contract of a waker, since each counts the one `Arc` that it has,
    // and what is called may come from any thread.
    unsafe { Waker::from_raw(RawWaker::new(data.cast(), &TELLING)) }
}

static TELLING: RawWakerVTable = RawWakerVTable::new(
    |data| {
        tell(data);
        // SAFETY: as in `tell`.
        unsafe { Arc::increment_strong_count(data.cast::<Arc<Told>>()) };
        RawWaker::new(data, &TELLING)
    },
    |data| {
        tell(data);
        gone(data);
    },
    tell,
    |data| {
        tell(data);
        gone(data);
    },
);

fn tell(data: *const ()) {
    // SAFETY: whoever calls has a waker, and with that one share of what was made in `telling`.
    let told = unsafe { &*data.cast::<Arc<Told>>() };
    told();
}

fn gone(data: *const ()) {
    // SAFETY: as in `tell`, and this share goes with its waker.
    drop(unsafe { Arc::from_raw(data.cast::<Arc<Told>>()) });
}
