//! Observing holders without blocking an executor.

use core::task::Waker;
use std::sync::Arc;

use async_trait::async_trait;
use lease_core::{Evidence, Holder, HolderLiveness, Question, Verdict};
use tokio::runtime::Handle;

use crate::clock::Alarm;

/// Observes holders: [`HolderLiveness`] for whoever has to wait for what it looks at.
///
/// It cannot fail: what could not be seen is [`Verdict::Unknown`] with the reason. It is to answer in bounded time,
/// with that too: those for whom others wait are looked at one after another, so one look that never ends keeps all
/// of them from being looked at again.
///
/// # Examples
///
/// ```
/// use lease_async::AsyncHolderLiveness;
/// use lease_core::{Evidence, Question, SessionHolder, Verdict};
///
/// struct Registry;
///
/// #[async_trait::async_trait]
/// impl AsyncHolderLiveness<SessionHolder> for Registry {
///     async fn observe(&self, _question: &Question<SessionHolder>) -> Verdict {
///         Verdict::Unknown(Evidence::new("registry_down"))
///     }
/// }
/// ```
#[async_trait]
pub trait AsyncHolderLiveness<H: Holder>: Send + Sync + 'static {
    /// Looks at the holder and says what was seen.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any await; it only looks.
    async fn observe(&self, question: &Question<H>) -> Verdict;
}

/// An observer that blocks, made to look on the blocking threads of the runtime.
///
/// Without a runtime it looks in the thread that polls.
#[derive(Debug)]
pub struct Blocking<L>(Arc<L>);

impl<L> Blocking<L> {
    /// Wraps an observer.
    #[must_use]
    pub fn new(liveness: L) -> Self {
        Self(Arc::new(liveness))
    }
}

#[async_trait]
impl<H, L> AsyncHolderLiveness<H> for Blocking<L>
where
    H: Holder,
    L: HolderLiveness<H> + Send + Sync + 'static,
{
    async fn observe(&self, question: &Question<H>) -> Verdict {
        let Ok(runtime) = Handle::try_current() else {
            return self.0.observe(question);
        };
        let (liveness, question) = (Arc::clone(&self.0), question.clone());
        let look = runtime.spawn_blocking(move || liveness.observe(&question));
        // The runtime ends, or the observer panicked: nothing was seen.
        look.await
            .unwrap_or_else(|_ended| Verdict::Unknown(Evidence::new("observer_ended")))
    }
}

/// Tells when a holder may be gone, so that nobody has to look again and again.
pub trait DeathSource<H: Holder>: Send + Sync + 'static {
    /// Wakes `waker` once when the holder of `question` has ended, unless the watch is dropped before.
    ///
    /// It proves nothing: whoever is woken observes. It must not block, and not wake inside this call, which
    /// is made under a lock that the waker takes.
    fn watch(&self, question: &Question<H>, waker: Waker) -> Watched;
}

/// What became of a wish to watch a holder.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum Watched {
    /// It runs, and this is what watches it.
    Running(Alarm),
    /// It is gone already.
    Gone,
    /// It cannot be watched.
    Unseen,
}
