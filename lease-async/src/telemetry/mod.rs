//! What is told to whoever looks on: spans and events by `tracing`, measurements by a meter that is given.
//!
//! Nothing here decides anything, and nothing is exported from here. Where nobody looks on, each call costs one
//! look at a flag. `docs/telemetry.md` is the contract.

#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod request;
mod spans;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

use lease_core::{Change, Code, Generation, Holder, Moment, Receipt, ResourceKey, Verdict};

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
pub(crate) use self::request::Request;
pub(crate) use self::spans::{
    Cause, Causes, asks, changed, dropped, fenced, holder_died, incident_closed, incident_opened,
    inside, is_off, jeopardy, left, lost, refused, renew, verified, verify,
};

use self::names::Told;
use self::spans::Proof;
use crate::error::LeaseError;
use crate::hold::Hold;

/// How many takeovers may be on their way to whoever asked for them.
const PROOFS: usize = 64;

/// Looks on at one front.
pub(crate) struct Observer {
    /// What the authority is made of.
    backend: &'static str,
    #[cfg(feature = "metrics")]
    metrics: OnceLock<Metrics>,
    /// What takeovers rest on, until their requests are answered.
    proofs: Mutex<BTreeMap<Generation, Proof>>,
}

impl Observer {
    pub(crate) fn new(backend: &'static str) -> Arc<Self> {
        Arc::new(Self {
            backend,
            #[cfg(feature = "metrics")]
            metrics: OnceLock::new(),
            proofs: Mutex::default(),
        })
    }

    /// Whether anything is measured.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(clippy::unused_self, reason = "then nothing is")
    )]
    pub(crate) fn measures(&self) -> bool {
        #[cfg(feature = "metrics")]
        return self.metrics.get().is_some();
        #[cfg(not(feature = "metrics"))]
        false
    }

    /// Measures from now on, unless it does already.
    #[cfg(feature = "metrics")]
    pub(crate) fn measure(&self, metrics: Metrics) {
        // Those that were given first stay: what they have counted must be uncounted there.
        drop(self.metrics.set(metrics));
    }

    /// Sees what the authority did.
    #[inline]
    pub(crate) fn see<H: Holder>(&self, receipt: &Receipt<H>) {
        if receipt.change.code == Code::TakenOver && spans::enabled() {
            self.keep(receipt);
        }
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.get() {
            metrics.see(self.backend, &receipt.change, receipt.resource.as_ref());
        }
    }

    /// Some receipts were not seen.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            clippy::unused_self,
            reason = "only measurements depend on every receipt"
        )
    )]
    pub(crate) fn missed(&self) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.get() {
            metrics.forget(self.backend);
        }
    }

    /// Sees what was observed of a holder.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            unused_variables,
            clippy::unused_self,
            reason = "the span tells it already"
        )
    )]
    pub(crate) fn judged(&self, verdict: &Verdict) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.get() {
            metrics.judged(self.backend, verdict);
        }
    }

    /// Counts an answer that changed nothing.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            unused_variables,
            clippy::unused_self,
            reason = "the span tells it already"
        )
    )]
    fn decided(&self, told: Told) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.get() {
            metrics.decided(self.backend, told);
        }
    }

    /// Counts a write that a gate has turned away.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(
            unused_variables,
            clippy::unused_self,
            reason = "the event tells it already"
        )
    )]
    fn turned_away(&self, resource: &ResourceKey) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.get() {
            metrics.fenced(self.backend, resource);
        }
    }

    fn keep<H: Holder>(&self, receipt: &Receipt<H>) {
        let Some(token) = receipt.change.token else {
            return;
        };
        let previous = receipt.previous.as_ref();
        let proof = Proof {
            holder: previous.map(|holder| spans::Name(holder).to_string()),
            pid: previous.and_then(|holder| spans::parts(holder).pid),
            proof: receipt
                .evidence
                .as_ref()
                .map(|evidence| evidence.proof.clone()),
        };
        let mut proofs = self.proofs();
        // A request that was given up asks for nothing.
        while proofs.len() >= PROOFS {
            proofs.pop_first();
        }
        proofs.insert(token.generation, proof);
    }

    fn take_proof(&self, generation: Generation) -> Proof {
        self.proofs().remove(&generation).unwrap_or_default()
    }

    fn proofs(&self) -> MutexGuard<'_, BTreeMap<Generation, Proof>> {
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures how late a renewal came through that was due.
#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, reason = "the span tells it already")
)]
pub(crate) fn lagged<H: Holder>(
    hold: &Hold<H>,
    due: Moment,
    ended: &Result<Change, LeaseError<H>>,
) {
    #[cfg(feature = "metrics")]
    if let Some(metrics) = hold.front().observer.metrics.get() {
        let what = match ended {
            Ok(_) => (names::Outcome::Renewed, None),
            Err(error) => names::lease(error),
        };
        let lag = hold.front().clock.now().since(due);
        metrics.lagged(hold.front().observer.backend, &hold.key, lag, what);
    }
}

#[cfg(test)]
mod tests {
    use lease_core::{Code, Evidence, Generation, Receipt, SessionHolder};

    use super::{Observer, PROOFS};
    use crate::{Authority as _, Event, Leases, Memory};

    /// The receipt of a takeover.
    async fn taken_over() -> Receipt<SessionHolder> {
        let memory = Memory::new().unwrap();
        let mut events = memory.events();
        let leases = Leases::new(memory).unwrap();
        let session = leases.connect("a").unwrap();
        let _held = session.acquire("docs").await.unwrap();
        let Some(Event::Receipt(receipt)) = events.try_next() else {
            panic!("no receipt")
        };
        let mut receipt = Receipt::clone(&receipt);
        receipt.change.code = Code::TakenOver;
        receipt.evidence = Some(Evidence::new("exited"));
        receipt
    }

    #[tokio::test]
    async fn of_takeovers_that_nobody_asks_for_any_more_the_latest_are_remembered() {
        let mut receipt = taken_over().await;
        let observer = Observer::new("test");
        let _told = tracing::subscriber::set_default(tracing_subscriber::registry());
        let many = 2 * u64::try_from(PROOFS).unwrap();
        let generation = |n| Generation::new(n).unwrap();
        for n in 1..=many {
            let token = receipt.change.token.as_mut().unwrap();
            token.generation = generation(n);
            observer.see(&receipt);
        }
        assert_eq!(observer.proofs().len(), PROOFS);
        assert!(observer.take_proof(generation(many / 2)).proof.is_none());
        assert!(
            observer
                .take_proof(generation(many / 2 + 1))
                .proof
                .is_some()
        );
        assert!(observer.take_proof(generation(many)).proof.is_some());
        assert_eq!(observer.proofs().len(), PROOFS - 2);
    }
}
