//! Receipts for whoever listens: in order, bounded, and never in anybody's way.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lease_core::{Holder, Receipt, Receipts, Verdict};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

use crate::caught::apart;
use crate::relayed::relayed;

/// What a listener gets.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a listener must decide both")]
pub enum Event<H> {
    /// Something happened.
    Receipt(Arc<Receipt<H>>),
    /// So many receipts before the next one were dropped, since this listener was slow.
    Missed(u64),
}

/// The receipts of one authority, from the moment of [`Authority::events`](crate::Authority::events) on.
///
/// A listener that is slow loses the oldest ones and is told how many; nobody waits for it.
#[derive(Debug)]
pub struct Events<H> {
    receiver: broadcast::Receiver<Event<H>>,
    channel: Arc<Channel<H>>,
}

/// Publishes the receipts of an authority. For backends.
#[derive(Debug)]
pub struct EventSource<H> {
    channel: Arc<Channel<H>>,
    sender: broadcast::Sender<Event<H>>,
}

/// Sees every receipt in the thread that publishes it.
pub(crate) trait Tap<H>: Send + Sync {
    fn see(&self, receipt: &Receipt<H>);
    fn missed(&self);
    fn judged(&self, verdict: &Verdict);
}

/// Copied when one is added, shared at each publication.
type Taps<H> = Arc<[Weak<dyn Tap<H>>]>;

struct Channel<H> {
    taps: Mutex<Taps<H>>,
    /// Receipts that were dropped before they were published, and those that slow listeners have missed.
    unpublished: AtomicU64,
    missed: AtomicU64,
}

/// Counts what was missed of the receipts of one authority.
pub(crate) struct Missed<H>(Arc<Channel<H>>);

impl<H> Missed<H> {
    /// Returns how many were never published, and how many listeners were too slow for.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.0.unpublished), count(&self.0.missed))
    }
}

impl<H: Holder> EventSource<H> {
    /// Makes a source that keeps up to `most` receipts for the slowest listener, at least one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let (sender, _nobody) = broadcast::channel(most.clamp(1, 1 << 20));
        let taps = Mutex::new(Taps::from([]));
        let channel = Arc::new(Channel {
            taps,
            unpublished: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        });
        Self { channel, sender }
    }

    /// Returns the receipts from now on.
    #[must_use]
    pub fn events(&self) -> Events<H> {
        Events {
            receiver: self.sender.subscribe(),
            channel: Arc::clone(&self.channel),
        }
    }

    /// Counts what was observed of a holder, where that is measured. Not under any lock.
    pub fn judged(&self, verdict: &Verdict) {
        let taps = Arc::clone(&self.channel.taps());
        let taps = taps.iter().filter_map(Weak::upgrade);
        taps.for_each(|tap| tap.judged(verdict));
    }

    /// Publishes receipts, in their order. Not under any lock: listeners are woken here.
    pub fn publish(&self, receipts: Receipts<H>) {
        let taps = Arc::clone(&self.channel.taps());
        let listened = self.sender.receiver_count() > 0;
        if receipts.missed > 0 {
            let unpublished = &self.channel.unpublished;
            unpublished.fetch_add(receipts.missed, Ordering::Relaxed);
            let taps = taps.iter().filter_map(Weak::upgrade);
            taps.for_each(|tap| apart(|| tap.missed()));
            if listened {
                self.send(Event::Missed(receipts.missed));
            }
        }
        for receipt in receipts.receipts {
            for tap in taps.iter().filter_map(Weak::upgrade) {
                // It wakes whoever waits for a loss, and nobody's panic costs others their receipts.
                apart(|| tap.see(&receipt));
            }
            if listened {
                self.send(Event::Receipt(Arc::new(receipt)));
            }
        }
    }

    fn send(&self, event: Event<H>) {
        // It wakes listeners, as above. Nobody listening any more is no error.
        apart(|| self.sender.send(event));
    }
}

impl<H> Channel<H> {
    fn taps(&self) -> MutexGuard<'_, Taps<H>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Holder> Events<H> {
    /// Waits for the next one; `None` once the authority is gone and everything was taken.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping it.
    pub async fn next(&mut self) -> Option<Event<H>> {
        match relayed(self.receiver.recv()).await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(self.lagged(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Takes the next one if it is there already.
    pub fn try_next(&mut self) -> Option<Event<H>> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(missed)) => Some(self.lagged(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    fn lagged(&self, missed: u64) -> Event<H> {
        self.channel.missed.fetch_add(missed, Ordering::Relaxed);
        Event::Missed(missed)
    }

    /// Stops listening, and shows every receipt to `tap` from now on.
    pub(crate) fn tap(self, tap: Weak<dyn Tap<H>>) -> Missed<H> {
        let mut taps = self.channel.taps();
        let kept = taps.iter().filter(|tap| tap.strong_count() > 0).cloned();
        let all = kept.chain([tap]).collect();
        *taps = all;
        drop(taps);
        Missed(self.channel)
    }
}

impl<H> fmt::Debug for Channel<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}
