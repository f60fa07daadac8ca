//! What xtask runs ends with it: a signal that asks xtask to end goes on to whatever it has started.

use std::io;
use std::process::{Child, Command, ExitStatus};

#[cfg(unix)]
pub(crate) use group::{is_called_off, listen};

/// A command that runs. Whatever it starts is asked to end with it, unless that has left its process group.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts a command.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        let child = group::start(command)?;
        #[cfg(not(unix))]
        let child = command.spawn()?;
        Ok(Self { child })
    }

    pub(crate) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Tells whether it has ended.
    #[cfg(unix)]
    pub(crate) fn has_ended(&self) -> io::Result<bool> {
        group::has_ended(&self.child)
    }

    /// Tells whether it has ended.
    #[cfg(not(unix))]
    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> io::Result<ExitStatus> {
        #[cfg(unix)]
        group::ended(&self.child);
        self.child.wait()
    }
}

/// A signal ends a program of Windows at once.
#[cfg(not(unix))]
pub(crate) const fn is_called_off() -> bool {
    false
}

/// There is nothing to listen for.
#[cfg(not(unix))]
pub(crate) fn listen() -> Result<(), crate::problem::Problem> {
    Ok(())
}

#[cfg(unix)]
mod group {
    use std::io;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::thread;

    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::signal_name;

    use crate::problem::Problem;
    use crate::workspace::spoken;

    /// Whether a signal came.
    static CALLED_OFF: AtomicBool = AtomicBool::new(false);

    /// The process groups that run, and what each is called.
    static RUNNING: Mutex<Vec<(Pid, String)>> = Mutex::new(Vec::new());

    pub(crate) fn is_called_off() -> bool {
        CALLED_OFF.load(Ordering::Acquire)
    }

    /// Listens for the signals that ask a program to end, from now on. Whoever let this one outlive its terminal, as
    /// `nohup` does, is not asked.
    pub(crate) fn listen() -> Result<(), Problem> {
        let outlives_terminal = ignores(SIGHUP);
        let asked = [SIGINT, SIGTERM, SIGHUP];
        let asked = asked
            .iter()
            .filter(|signal| **signal != SIGHUP || !outlives_terminal);
        let mut signals = Signals::new(asked).map_err(Problem::caused("listening for signals"))?;
        let listener = thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                call_off(signal);
            }
        });
        listener
            .map(drop)
            .map_err(Problem::caused("a thread for signals"))
    }

    /// Whether this process ignores a signal, as whoever started it chose.
    fn ignores(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        let bit = u32::try_from(signal).unwrap_or(0).saturating_sub(1);
        ignored.is_some_and(|set| set.checked_shr(bit).unwrap_or(0) & 1 == 1)
    }

    /// Passes a signal on. Whoever does not end by the first is killed by the second.
    fn call_off(signal: i32) {
        let running = running();
        let is_first = !CALLED_OFF.swap(true, Ordering::AcqRel);
        let signal_to_send = Signal::from_named_raw(signal).filter(|_| is_first);
        let name = signal_name(signal).unwrap_or("a signal");
        for (group, words) in &*running {
            Problem::new(format!("{name}: ending {words}")).tell();
            // Its last member may have gone by itself.
            let _sent = kill_process_group(*group, signal_to_send.unwrap_or(Signal::KILL));
        }
    }

    pub(super) fn start(command: &mut Command) -> io::Result<Child> {
        // Under the lock, so that a signal finds what was started, or nothing is.
        let mut running = running();
        if is_called_off() {
            return Err(io::Error::other("called off by a signal"));
        }
        let child = command.process_group(0).spawn()?;
        running.push((Pid::from_child(&child), spoken(command)));
        Ok(child)
    }

    /// Tells whether a child has ended, without reaping it.
    pub(super) fn has_ended(child: &Child) -> io::Result<bool> {
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(Pid::from_child(child)), looks)?.is_some())
    }

    /// Waits until a child has ended, and forgets it before it is reaped and its number is somebody else's. Whom a
    /// runner that was called off left in its group is killed.
    pub(super) fn ended(child: &Child) {
        let pid = Pid::from_child(child);
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), looks) {}
        let mut running = running();
        if is_called_off() {
            // Nobody may be left.
            let _sent = kill_process_group(pid, Signal::KILL);
        }
        running.retain(|(group, _words)| *group != pid);
    }

    fn running() -> MutexGuard<'static, Vec<(Pid, String)>> {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
