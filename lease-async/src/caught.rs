//! What others wrote, which may panic: that is not to end what this crate does for everybody else.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does what others wrote. `None` if that panics.
pub(crate) fn caught<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// Does what others wrote, and goes on also if that panics.
pub(crate) fn apart<T>(act: impl FnOnce() -> T) {
    drop(catch_unwind(AssertUnwindSafe(act)));
}

/// Waits for what others wrote. `None` if that panics; what panics only when it goes has its outcome.
pub(crate) async fn outcome<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(Some(future));
    let outcome = poll_fn(|cx| match future.as_mut().as_pin_mut() {
        Some(running) => {
            caught(|| running.poll(cx)).map_or(Poll::Ready(None), |poll| poll.map(Some))
        }
        None => Poll::Ready(None),
    })
    .await;
    apart(|| future.set(None));
    outcome
}
