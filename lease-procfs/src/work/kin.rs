//! What tasks have in common, by the kernel's own comparison: `kcmp(2)`.
//!
//! It compares numbers of our own pid namespace, and so helps only where `/proc` shows the same ones.
//! That is sure in the first pid namespace, where `kthreadd` is number 2. Everywhere else, and where the
//! call is forbidden, the reader goes by what `/proc` shows.

use std::os::fd::BorrowedFd;

use rustix::fs::readlinkat_raw;

use super::source::stat_below;
use crate::id::Pid;
use crate::sys::{self, Shared};

/// What `/proc/self/ns/pid` shows in the first pid namespace: `PID_NS_INIT_INO` of `linux/nsfs.h`.
const FIRST_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// Compares tasks of the first pid namespace.
#[derive(Debug)]
pub(super) struct Kin {
    /// Of whom every thread of the kernel has its descriptors.
    kthreadd: Pid,
}

impl Kin {
    /// Returns `None` unless the numbers below `root` are ours and may be compared.
    pub(super) fn of(root: BorrowedFd<'_>) -> Option<Self> {
        let mut link = [0; FIRST_NAMESPACE.len() + 1];
        // It is there only if this `/proc` shows us, so a `/proc` of the same namespace or of one above.
        let count = readlinkat_raw(root, c"self/ns/pid", link.as_mut_slice()).ok()?;
        if link.get(..count) != Some(FIRST_NAMESPACE) {
            return None;
        }
        let kin = Self {
            kthreadd: kthreadd(root)?,
        };
        // Whether it may be asked at all, and tells us from the kernel.
        (kin.is_of_kernel(kin.kthreadd) && !kin.is_of_kernel(sys::own_pid()?)).then_some(kin)
    }

    /// Tells whether this is a thread of the kernel for sure: it shares the descriptors of the one that
    /// makes them. A program gets its own when it starts, and who ends has none.
    pub(super) fn is_of_kernel(&self, pid: Pid) -> bool {
        sys::share(Shared::Descriptors, self.kthreadd, pid) == Ok(true)
    }

    /// Tells whether two threads have another directory or other descriptors, if it can be told.
    pub(super) fn are_apart(&self, one: Pid, other: Pid) -> Option<bool> {
        let share = |what| sys::share(what, one, other).ok();
        Some(!share(Shared::Directory)? || !share(Shared::Descriptors)?)
    }
}

/// Returns who makes the threads of the kernel. But for it, only the first process has no parent.
fn kthreadd(root: BorrowedFd<'_>) -> Option<Pid> {
    let pid = Pid::new(2).ok()?;
    let stat = stat_below(root, pid).ok()?;
    (stat.parent.is_none() && stat.group.is_none()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::{Command, Stdio};

    use super::*;

    // B34
    #[test]
    fn a_process_that_ended_and_was_not_reaped_shares_nothing_with_anybody() {
        let own = sys::own_pid().unwrap();
        let kin = Kin { kthreadd: own };
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        let pidfd = sys::open_pidfd(pid).unwrap();
        while !sys::has_exited(pidfd.as_fd()).unwrap() {
            std::thread::yield_now();
        }
        assert!(!kin.is_of_kernel(pid), "it has no descriptors at all");
        child.wait().unwrap();
        assert!(!kin.is_of_kernel(pid), "there is nobody");
        assert!(!Kin { kthreadd: pid }.is_of_kernel(own));
    }

    #[test]
    fn threads_of_the_kernel_are_known_where_the_kernel_may_be_asked() {
        let proc = sys::open("/proc").unwrap();
        let own = sys::own_pid().unwrap();
        let is_first = std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes() == FIRST_NAMESPACE);
        let kthreadd = Pid::new(2).unwrap();
        let may_ask = sys::share(Shared::Descriptors, kthreadd, own).is_ok();
        let kin = Kin::of(proc.as_fd());
        assert_eq!(kin.is_some(), is_first && may_ask);
        if let Some(kin) = kin {
            assert!(kin.is_of_kernel(kthreadd));
            assert!(!kin.is_of_kernel(Pid::INIT) && !kin.is_of_kernel(own));
            assert_eq!(kin.are_apart(own, own), Some(false));
            assert_eq!(kin.are_apart(own, kthreadd), Some(true));
        }
        let elsewhere = sys::open("/proc/self").unwrap();
        assert!(Kin::of(elsewhere.as_fd()).is_none(), "it is no /proc");
    }
}
