//! One seed, one history; and a history that broke a rule, made short.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::config::{Config, Terms};
use super::count::{Count, Counts};
use super::driver::Driver;
use super::generate;
use super::random::Random;
use super::room::Room;
use super::step::Step;
use crate::oracle::{Breach, Rule};

/// What one history came to.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) config: Config,
    seed: u64,
    pub(crate) steps: Vec<Step>,
    pub(crate) counts: Counts,
    /// The rule that the last step broke.
    pub(crate) breach: Option<Breach>,
}

/// How much of a history is put into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    Nothing,
    /// Steps and receipts, and the receipts in their stored form.
    Everything,
}

/// What a history told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) lines: Vec<String>,
    pub(crate) receipts: Vec<serde_json::Value>,
}

/// Draws and plays the history of a seed.
pub(crate) fn draw<D: Driver>(terms: Terms, seed: u64) -> History {
    let mut random = Random::new(seed);
    let config = Config::draw(terms, &mut random);
    let mut history = History {
        config,
        seed,
        steps: Vec::with_capacity(usize::from(config.steps)),
        counts: Counts::default(),
        breach: None,
    };
    let Ok(policy) = terms.policy() else {
        history.breach = Some(Breach::new(
            Rule::NothingPanics,
            "the policy does not build",
        ));
        return history;
    };
    let mut room = Room::<D>::new(config, policy, seed);
    for _ in 0..config.steps {
        let step = generate::next(&config, &room, &mut random);
        history.steps.push(step);
        if let Err(breach) = guarded(&mut room, step) {
            history.breach = Some(breach);
            break;
        }
    }
    history.counts = room.counts;
    history.counts.add(Count::Histories, 1);
    history
}

/// Plays given steps in the setting of a history; answers the broken rule, after how many steps.
fn replay<D: Driver>(
    history: &History,
    steps: &[Step],
    telling: Telling,
) -> (Option<(usize, Breach)>, Told) {
    let Ok(policy) = history.config.terms.policy() else {
        return (None, Told::default());
    };
    let mut room = Room::<D>::new(history.config, policy, history.seed);
    if telling == Telling::Everything {
        room.trace = Some(Vec::new());
        room.receipts = Some(Vec::new());
    }
    let mut broken = None;
    for (played, step) in steps.iter().enumerate() {
        if let Err(breach) = guarded(&mut room, *step) {
            broken = Some((played.saturating_add(1), breach));
            break;
        }
    }
    let lines = room.trace.take().unwrap_or_default();
    let receipts = room.receipts.take().unwrap_or_default();
    (broken, Told { lines, receipts })
}

/// Plays a step; a panic is a broken rule like any other.
fn guarded<D: Driver>(room: &mut Room<D>, step: Step) -> Result<(), Breach> {
    catch_unwind(AssertUnwindSafe(|| room.play(step))).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a text".to_owned());
        Err(Breach::new(Rule::NothingPanics, text))
    })
}

impl History {
    /// Tells the history in words.
    pub(crate) fn tell<D: Driver>(&self) -> Told {
        replay::<D>(self, &self.steps, Telling::Everything).1
    }

    /// Leaves out whatever is not needed to break the same rule, one piece after the other.
    ///
    /// Pieces are halves first and single steps last; it ends when no single step can go.
    pub(crate) fn shrunk<D: Driver>(&self) -> Self {
        let Some(breach) = &self.breach else {
            return self.clone();
        };
        let mut best = self.clone();
        let mut piece = best.steps.len() / 2;
        while piece > 0 {
            let mut at = 0;
            let mut shorter = false;
            while at < best.steps.len() {
                let end = at.saturating_add(piece).min(best.steps.len());
                let mut steps = best.steps.clone();
                steps.drain(at..end);
                match replay::<D>(&best, &steps, Telling::Nothing).0 {
                    Some((played, found)) if found.rule == breach.rule => {
                        steps.truncate(played);
                        best.steps = steps;
                        best.breach = Some(found);
                        shorter = true;
                    }
                    _ => at = end,
                }
            }
            // Single steps that were needed may not be any more, once others are gone.
            if piece > 1 || !shorter {
                piece /= 2;
            }
        }
        best
    }
}
