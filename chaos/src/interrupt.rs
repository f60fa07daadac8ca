//! Ends a run early and in order, so that neither a process nor a folder stays behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns what is set once this program is asked to end, also by a terminal that is closed. A second signal
/// does no more: a shell or a program in between may send the same one twice. `SIGQUIT` and `SIGKILL` end it
/// at once.
///
/// # Errors
///
/// What the system says to a handler.
pub(crate) fn listen() -> io::Result<&'static AtomicBool> {
    // A handler stays as long as the program.
    let called_off: &Arc<AtomicBool> = Box::leak(Box::default());
    flag::register(SIGINT, Arc::clone(called_off))?;
    flag::register(SIGTERM, Arc::clone(called_off))?;
    #[cfg(unix)]
    if outlives_terminal() == Some(false) {
        flag::register(signal_hook::consts::SIGHUP, Arc::clone(called_off))?;
    }
    Ok(called_off)
}

/// Whether this program was started to go on without its terminal, as by `nohup`; `None` where nobody tells.
#[cfg(unix)]
fn outlives_terminal() -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).ok()?;
    // The lowest bit is the signal 1, which is this one.
    Some(ignored & 1 == 1)
}
