//! Ends a run early and in order, so that neither a process nor a folder stays behind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns what is set once this program is asked to end. A second signal does no more: a shell or a
/// program in between may send the same one twice. `SIGQUIT` and `SIGKILL` end it at once.
///
/// # Errors
///
/// What the system says to a handler.
pub(crate) fn listen() -> io::Result<&'static AtomicBool> {
    // A handler stays as long as the program.
    let called_off: &Arc<AtomicBool> = Box::leak(Box::default());
    flag::register(SIGINT, Arc::clone(called_off))?;
    flag::register(SIGTERM, Arc::clone(called_off))?;
    Ok(called_off)
}
