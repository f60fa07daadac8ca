//! Measurements.

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_core::{Change, Code, Detail, Evidence, Generation, Moment, ResourceKey, Verdict};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::names::{self, Outcome, Reason, Told, attribute as a, metric as m};
use crate::standing::Loss;

/// Bounds in seconds for what should be quick.
const WAITS: [f64; 13] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

/// Bounds in seconds for what may take as long as it needs.
const HOLDS: [f64; 13] = [
    0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 86_400.0,
];

/// What a front measures, by the instruments of one meter.
///
/// Nothing is measured unless it is given to [`Leases::with_metrics`](crate::Leases::with_metrics). Names,
/// units and attributes are those of `docs/telemetry.md`. No attribute is the name of a resource or holder,
/// a pid or a token.
///
/// ```
/// use lease_async::{Leases, Memory, Metrics};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let meter = opentelemetry::global::meter("my-application");
/// let metrics = Metrics::new(&meter).with_class(|resource| {
///     if resource.as_str().starts_with("/worktree/") { "worktree" } else { "other" }
/// });
/// let leases = Leases::new(Memory::new()?)?.with_metrics(metrics);
/// # drop(leases.connect("ag-1")?);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is measured until it is given to a front"]
pub struct Metrics {
    acquire: Histogram<f64>,
    active: UpDownCounter<i64>,
    decisions: Counter<u64>,
    fenced: Counter<u64>,
    hold: Histogram<f64>,
    lag: Histogram<f64>,
    verdicts: Counter<u64>,
    waiting: UpDownCounter<i64>,
    class: Option<Arc<Class>>,
    /// Since when, and of which class. Only what is in here is counted as active.
    held: Mutex<BTreeMap<Generation, (Moment, Option<&'static str>)>>,
}

type Class = dyn Fn(&ResourceKey) -> &'static str + Send + Sync;

impl Metrics {
    /// Makes the instruments.
    ///
    /// A global meter must be asked for after its provider was set; one that is asked for before never counts.
    pub fn new(meter: &Meter) -> Self {
        let seconds = |name, what, bounds: [f64; 13]| {
            let histogram = meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(what);
            histogram.with_boundaries(bounds.to_vec()).build()
        };
        let count = |name, unit, what| {
            let counter = meter.u64_counter(name).with_unit(unit);
            counter.with_description(what).build()
        };
        let level = |name, unit, what| {
            let counter = meter.i64_up_down_counter(name).with_unit(unit);
            counter.with_description(what).build()
        };
        Self {
            acquire: seconds(m::ACQUIRE, "From a request to its answer.", WAITS),
            active: level(m::ACTIVE, "{lease}", "Leases that are held."),
            decisions: count(
                m::DECISIONS,
                "{decision}",
                "What was decided about who holds.",
            ),
            fenced: count(m::FENCED, "{write}", "Writes that a gate turned away."),
            hold: seconds(m::HOLD, "From a grant to the end of its lease.", HOLDS),
            lag: seconds(
                m::LAG,
                "From when a renewal was due until it came through.",
                WAITS,
            ),
            verdicts: count(m::VERDICTS, "{verdict}", "Looks at holders."),
            waiting: level(m::WAITING, "{waiter}", "Requests that wait."),
            class: None,
            held: Mutex::default(),
        }
    }

    /// Sorts resources into few classes, which measurements tell apart.
    ///
    /// Called for each request, each new lease, each renewal that was due, and each token that a gate turned away.
    pub fn with_class(
        mut self,
        class: impl Fn(&ResourceKey) -> &'static str + Send + Sync + 'static,
    ) -> Self {
        self.class = Some(Arc::new(class));
        self
    }

    pub(super) fn class(&self, resource: &ResourceKey) -> Option<&'static str> {
        self.class.as_ref().map(|class| class(resource))
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Generation, (Moment, Option<&'static str>)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn see(
        &self,
        backend: &'static str,
        change: &Change,
        resource: Option<&ResourceKey>,
    ) {
        if change.code == Code::Fenced {
            let class = resource.and_then(|resource| self.class(resource));
            With::new(backend)
                .class(class)
                .of(|with| self.fenced.add(1, with));
        }
        let Some(what) = names::change(change) else {
            return;
        };
        self.decided(backend, what);
        if let (Outcome::Acquired | Outcome::TakenOver, Some(token)) = (what.0, change.token) {
            if let Detail::Granted {
                previous: Some(previous),
                ..
            } = change.detail
            {
                let how = (Outcome::Lost, Some(Reason::Proven));
                self.ended(backend, previous.generation, change.at, how);
            }
            let class = resource.and_then(|resource| self.class(resource));
            self.held().insert(token.generation, (change.at, class));
            With::new(backend)
                .class(class)
                .of(|with| self.active.add(1, with));
        } else if let (Some(token), Some(_)) = (change.token, Loss::of(change)) {
            self.ended(backend, token.generation, change.at, what);
        }
    }

    fn ended(&self, backend: &'static str, generation: Generation, at: Moment, how: Told) {
        // A grant that was not seen was not counted.
        let Some((since, class)) = self.held().remove(&generation) else {
            return;
        };
        With::new(backend)
            .class(class)
            .of(|with| self.active.add(-1, with));
        let seconds = at.since(since).as_secs_f64();
        With::new(backend)
            .class(class)
            .told(how)
            .of(|with| self.hold.record(seconds, with));
    }

    /// Counts nothing as active any more, since ends may have been missed.
    pub(super) fn forget(&self, backend: &'static str) {
        let held = core::mem::take(&mut *self.held());
        for (_since, class) in held.into_values() {
            With::new(backend)
                .class(class)
                .of(|with| self.active.add(-1, with));
        }
    }

    pub(super) fn decided(&self, backend: &'static str, what: Told) {
        With::new(backend)
            .told(what)
            .of(|with| self.decisions.add(1, with));
    }

    pub(super) fn asked(
        &self,
        backend: &'static str,
        class: Option<&'static str>,
        took: Duration,
        what: Told,
    ) {
        let seconds = took.as_secs_f64();
        // Why is told by the decisions.
        let what = (what.0, None);
        With::new(backend)
            .class(class)
            .told(what)
            .of(|with| self.acquire.record(seconds, with));
    }

    pub(super) fn waiting(&self, backend: &'static str, class: Option<&'static str>, more: i64) {
        With::new(backend)
            .class(class)
            .of(|with| self.waiting.add(more, with));
    }

    pub(super) fn lagged(
        &self,
        backend: &'static str,
        resource: &ResourceKey,
        lag: Duration,
        ended: Told,
    ) {
        let with = With::new(backend)
            .class(self.class(resource))
            .told((ended.0, None));
        with.of(|with| self.lag.record(lag.as_secs_f64(), with));
    }

    pub(super) fn judged(&self, backend: &'static str, verdict: &Verdict) {
        let with = [
            KeyValue::new(a::BACKEND, backend),
            KeyValue::new(a::VERDICT, verdict.name()),
            KeyValue::new(a::PROOF, few(verdict.evidence())),
        ];
        self.verdicts.add(1, &with);
    }

    pub(super) fn fenced(&self, backend: &'static str, resource: &ResourceKey) {
        let class = self.class(resource);
        With::new(backend)
            .class(class)
            .of(|with| self.fenced.add(1, with));
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("held", &self.held().len())
            .finish_non_exhaustive()
    }
}

/// The attributes of one measurement, without an allocation.
struct With {
    backend: &'static str,
    class: Option<&'static str>,
    told: Option<Told>,
}

impl With {
    const fn new(backend: &'static str) -> Self {
        Self {
            backend,
            class: None,
            told: None,
        }
    }

    const fn class(mut self, class: Option<&'static str>) -> Self {
        self.class = class;
        self
    }

    const fn told(mut self, what: Told) -> Self {
        self.told = Some(what);
        self
    }

    fn of<T>(&self, measure: impl FnOnce(&[KeyValue]) -> T) -> T {
        let backend = || KeyValue::new(a::BACKEND, self.backend);
        let class = self.class.map(|class| KeyValue::new(m::CLASS, class));
        let outcome = self
            .told
            .map(|(outcome, _)| KeyValue::new(a::OUTCOME, outcome.name()));
        let reason = self.told.and_then(|(_, reason)| reason);
        let reason = reason.map(|reason| KeyValue::new(a::REASON, reason.name()));
        match (class, outcome, reason) {
            (None, None, _) => measure(&[backend()]),
            (Some(class), None, _) => measure(&[backend(), class]),
            (None, Some(outcome), None) => measure(&[backend(), outcome]),
            (Some(class), Some(outcome), None) => measure(&[backend(), class, outcome]),
            (None, Some(outcome), Some(reason)) => measure(&[backend(), outcome, reason]),
            (Some(class), Some(outcome), Some(reason)) => {
                measure(&[backend(), class, outcome, reason])
            }
        }
    }
}

/// The name of the proof, as far as it is one of few: what was read from elsewhere may be anything.
const fn few(evidence: &Evidence) -> &'static str {
    match evidence.proof {
        Cow::Borrowed(proof) => proof,
        Cow::Owned(_) => "other",
    }
}
