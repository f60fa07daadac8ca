//! What is to be expected of a process that is ahead in a line.

use std::fs;

use lease_procfs::Pid;

use crate::sys;

/// From the worst on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outlook {
    /// It has ended.
    Gone,
    /// It is stopped, or nobody knows which one it is.
    Doubtful,
    /// It runs, or will.
    Good,
}

impl Outlook {
    /// Judges a process by its number in our pid namespace.
    pub(crate) fn of(pid: Pid) -> Self {
        match sys::watch(pid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Self::Gone,
            Ok(process) if sys::has_ended(&process) => return Self::Gone,
            Ok(_) | Err(_) => {}
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name before it may have any character, brackets too.
        let state = stat.rsplit(')').next().map(str::trim_start);
        match state.and_then(|rest| rest.chars().next()) {
            Some('T' | 't') => Self::Doubtful,
            Some(_) | None => Self::Good,
        }
    }
}

#[cfg(test)]
#[path = "../tests/signals/sys.rs"]
mod signals;

#[cfg(test)]
mod tests {
    use super::{Outlook, signals};

    #[test]
    fn a_signal_is_no_end_of_a_process() {
        let own = crate::own::pid().unwrap();
        let looks = || (0..2_000).map(|_look| Outlook::of(own));
        let seen = signals::under_signals(|| looks().min());
        assert_eq!(seen, Some(Outlook::Good));
    }
}
