//! What tasks have in common, by the kernel's own comparison: `kcmp(2)`.
//!
//! It compares numbers of our own pid namespace, and so helps only where `/proc` shows the same ones.
//! That is sure in the first pid namespace, where `kthreadd` is number 2. Where the call is forbidden, the
//! reader goes by what `/proc` shows of each thread.

use std::os::fd::BorrowedFd;

use rustix::fs::readlinkat_raw;

use super::source::stat_below;
use crate::id::Pid;
use crate::sys::{self, Shared};

/// What `/proc/self/ns/pid` shows in the first pid namespace: `PID_NS_INIT_INO` of `linux/nsfs.h`.
const FIRST_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// Compares tasks of our own pid namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kin {
    /// Of whom every thread of the kernel has its descriptors. `None` where the kernel's threads are not
    /// seen or not ours to ask about.
    kthreadd: Option<Pid>,
}

impl Kin {
    /// Returns `None` unless the numbers below `root` are ours and may be compared.
    ///
    /// `shows_our_numbers` tells whether they are, and is asked only where it is not sure.
    pub(super) fn of(
        root: BorrowedFd<'_>,
        shows_our_numbers: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let own = sys::own_pid()?;
        // Whether it may be asked at all.
        if sys::share(Shared::Descriptors, own, own) != Ok(true) {
            return None;
        }
        let is_first = is_first_namespace(root);
        if !is_first && !shows_our_numbers() {
            return None;
        }
        let mut kin = Self { kthreadd: None };
        if is_first {
            kin.kthreadd = kthreadd(root);
        }
        // Whether it may be asked about the kernel, and tells us from it.
        let tells = kin.kthreadd.is_some_and(|first| kin.is_of_kernel(first));
        if !tells || kin.is_of_kernel(own) {
            kin.kthreadd = None;
        }
        Some(kin)
    }

    /// Tells whether this is a thread of the kernel for sure: it shares the descriptors of the one that
    /// makes them. A program gets its own when it starts, and who ends has none.
    pub(super) fn is_of_kernel(&self, pid: Pid) -> bool {
        let shares = |kthreadd| sys::share(Shared::Descriptors, kthreadd, pid) == Ok(true);
        self.kthreadd.is_some_and(shares)
    }

    /// Tells whether two threads have another directory or other descriptors, if it can be told.
    pub(super) fn are_apart(&self, one: Pid, other: Pid) -> Option<bool> {
        let share = |what| sys::share(what, one, other).ok();
        Some(!share(Shared::Directory)? || !share(Shared::Descriptors)?)
    }
}

/// It is there only if this `/proc` shows us, so a `/proc` of the same namespace or of one above.
fn is_first_namespace(root: BorrowedFd<'_>) -> bool {
    let mut link = [0; FIRST_NAMESPACE.len() + 1];
    let count = readlinkat_raw(root, c"self/ns/pid", link.as_mut_slice());
    count.is_ok_and(|count| link.get(..count) == Some(FIRST_NAMESPACE))
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
        let kin = Kin {
            kthreadd: Some(own),
        };
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        let pidfd = sys::open_pidfd(pid).unwrap();
        while !sys::has_exited(pidfd.as_fd()).unwrap() {
            std::thread::yield_now();
        }
        assert!(!kin.is_of_kernel(pid), "it has no descriptors at all");
        child.wait().unwrap();
        assert!(!kin.is_of_kernel(pid), "there is nobody");
        let kin = Kin {
            kthreadd: Some(pid),
        };
        assert!(!kin.is_of_kernel(own));
    }

    #[test]
    fn threads_of_the_kernel_are_known_where_the_kernel_may_be_asked() {
        let proc = sys::open("/proc").unwrap();
        let own = sys::own_pid().unwrap();
        let is_first = std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes() == FIRST_NAMESPACE);
        let kthreadd = Pid::new(2).unwrap();
        let may_ask = sys::share(Shared::Descriptors, kthreadd, own).is_ok();
        let kin = Kin::of(proc.as_fd(), || false);
        let may_ask_at_all = sys::share(Shared::Descriptors, own, own).is_ok();
        assert_eq!(kin.is_some(), is_first && may_ask_at_all);
        if let Some(kin) = kin {
            assert_eq!(kin.is_of_kernel(kthreadd), may_ask);
            assert!(!kin.is_of_kernel(Pid::INIT) && !kin.is_of_kernel(own));
            assert_eq!(kin.are_apart(own, own), Some(false));
            assert_eq!(kin.are_apart(own, kthreadd), may_ask.then_some(true));
        }
        let elsewhere = sys::open("/proc/self").unwrap();
        assert!(
            Kin::of(elsewhere.as_fd(), || false).is_none(),
            "it is no /proc"
        );
        let kin = Kin::of(elsewhere.as_fd(), || true);
        assert_eq!(kin.is_some(), may_ask_at_all);
        assert!(
            kin.is_none_or(|kin| !kin.is_of_kernel(kthreadd)),
            "nobody said so"
        );
    }
}
