//! What waits by something of tokio's. That clones a waker under a lock of its own, so it is given one of ours: with a
//! caller's anything may be called.

use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Waker};
use std::sync::Arc;
use std::task::Wake;

struct Relay(Waker);

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

/// Waits as `future` does. The caller's waker is cloned before that is polled, and woken and dropped outside of locks.
pub(crate) async fn relayed<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let relay = Waker::from(Arc::new(Relay(cx.waker().clone())));
        future.as_mut().poll(&mut Context::from_waker(&relay))
    })
    .await
}
