//! Looking at the holders that others wait for.
//!
//! Who waits cannot look, since nobody may be polling it. So a small task on the keeper's runtime does: it has
//! the holders in the way watched for their death, and observes those that cannot be watched at a slow beat.
//! What it sees goes through the same decision as everything else.

use core::task::Waker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::task::Wake;

use lease_core::{Generation, Holder, Question};
use tracing::Instrument as _;

use super::{How, Inner, unseen};
use crate::caught::{caught, outcome};
use crate::clock::Alarm;
use crate::liveness::Watched;
use crate::telemetry;

/// What is being watched.
#[derive(Default)]
pub(super) struct Watches {
    /// One look is on its way, or under way.
    looking: bool,
    /// Something happened since it began.
    again: bool,
    /// By the lease in the way and its hand-overs; `None` where it cannot be watched.
    kept: BTreeMap<Subject, Option<Alarm>>,
    beat: Option<Alarm>,
}

/// Who is meant: a lease, and how often it was handed over.
type Subject = (Generation, u32);

const fn subject<H: Holder>(question: &Question<H>) -> Subject {
    (question.about.generation, question.handovers)
}

impl<H: Holder> Inner<H> {
    /// Has the holders in the way looked at, soon and elsewhere.
    pub(super) fn look(self: &Arc<Self>) {
        if self.liveness.is_none() {
            return;
        }
        let mut watches = self.watches();
        if watches.looking {
            watches.again = true;
            return;
        }
        watches.looking = true;
        drop(watches);
        let mut look = Look(Arc::downgrade(self));
        // Where no thread is left, whoever calls next observes for itself.
        spawn(async move {
            while let Some(inner) = look.0.upgrade() {
                inner.look_now().await;
                let mut watches = inner.watches();
                if !core::mem::take(&mut watches.again) {
                    watches.looking = false;
                    look.0 = Weak::new();
                }
            }
        });
    }

    async fn look_now(self: &Arc<Self>) {
        let questions = self.state().registry.questions();
        let mut answers = Vec::new();
        for question in &questions {
            if self.watch(question) {
                continue;
            }
            let cause = self.state().cause(question);
            let look = self.observe(question).instrument(cause.span());
            let verdict = outcome(look).await.unwrap_or_else(unseen);
            answers.push(question.answer(verdict));
        }
        self.forget_others(&questions);
        if !answers.is_empty() {
            self.turn(How::with(&answers), |state, turn| {
                drop(state.registry.advance(turn));
            });
        }
    }

    /// Whether the holder runs and its death will be told.
    fn watch(self: &Arc<Self>, question: &Question<H>) -> bool {
        let subject = subject(question);
        let mut watches = self.watches();
        if let Some(watched) = watches.kept.get(&subject) {
            return watched.is_some();
        }
        let bell = Waker::from(Arc::new(Bell {
            inner: Arc::downgrade(self),
            subject: Some(subject),
        }));
        // Under the lock, so that a death that is told now finds its watch kept.
        let watched = match &self.deaths {
            // One that panics watches nobody.
            Some(deaths) => caught(|| deaths.watch(question, bell)).unwrap_or(Watched::Unseen),
            None => Watched::Unseen,
        };
        let watch = match watched {
            Watched::Running(watch) => Some(watch),
            Watched::Gone | Watched::Unseen => None,
        };
        let runs = watch.is_some();
        watches.kept.insert(subject, watch);
        runs
    }

    /// Forgets whom nobody waits for any more; while any cannot be watched, the beat goes on.
    fn forget_others(self: &Arc<Self>, questions: &[Question<H>]) {
        let asked: BTreeSet<Subject> = questions.iter().map(subject).collect();
        let mut watches = self.watches();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = core::mem::take(&mut watches.kept)
            .into_iter()
            .partition(|(subject, _)| asked.contains(subject));
        watches.kept = kept;
        let unseen = watches.kept.values().any(Option::is_none);
        let bell = Waker::from(Arc::new(Bell {
            inner: Arc::downgrade(self),
            subject: None,
        }));
        let next = self.clock.now().after(self.beat);
        let beat = unseen.then(|| self.clock.arm(next, bell).ok()).flatten();
        let before = core::mem::replace(&mut watches.beat, beat);
        drop(watches);
        drop((gone, before));
    }
}

/// A look on its way, or under way, until it is over.
///
/// One that breaks off, or that no thread is there for, is over too: the next one is made.
struct Look<H: Holder>(Weak<Inner<H>>);

impl<H: Holder> Drop for Look<H> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.watches().looking = false;
        }
    }
}

/// Rings when a holder that is watched has died, or at the beat.
struct Bell<H: Holder> {
    inner: Weak<Inner<H>>,
    subject: Option<Subject>,
}

impl<H: Holder> Wake for Bell<H> {
    fn wake(self: Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else {
            return;
        };
        if let Some(subject) = self.subject {
            telemetry::holder_died(subject.0);
            // From now on it is observed instead: its work may outlive it.
            let watched = inner.watches().kept.insert(subject, None);
            drop(watched);
        }
        inner.look();
    }
}

/// Runs a look away from the caller's executors, if a thread can be had.
#[cfg(target_os = "linux")]
fn spawn(look: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = crate::keeper::runtime() {
        drop(runtime.spawn(look));
    }
}

#[cfg(not(target_os = "linux"))]
fn spawn(look: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(look));
    }
}
