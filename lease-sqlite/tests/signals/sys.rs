//! Signals without an end.
#![expect(
    unsafe_code,
    reason = "a handler that does nothing, and who sends to it"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

/// Does something while another thread sends signals to this one.
pub(crate) fn under_signals<T>(part: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_number: libc::c_int) {}
    // SAFETY: the handler touches nothing.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
    // SAFETY: it reads a number.
    let own = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: that thread waits for the end of this scope.
                unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
            }
        });
        let done = part();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}
