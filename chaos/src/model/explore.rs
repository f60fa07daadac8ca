//! The registry's world as a model for the checker.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stateright::{Model, Property};

use super::acts;
use super::judge::Stepped;
use super::law::{Breach, Judged, Law, properties};
use super::state;
use super::view;
use super::world::{Act, Setup, World};
use crate::clock::Deadline;

/// Every history of a world, up to a depth or without end.
#[derive(Debug)]
pub(super) struct Histories {
    pub(super) setup: Setup,
    /// The most actions in a history; `None` without end.
    pub(super) depth: Option<u32>,
    pub(super) budget: Budget,
}

/// When to stop looking further, and whether that has happened.
#[derive(Debug)]
pub(super) struct Budget {
    deadline: Deadline,
    most: u64,
    expanded: AtomicU64,
    spent: AtomicBool,
    /// A path is told again: nothing counts, nothing stops.
    replay: AtomicBool,
}

impl Budget {
    /// Stops at `deadline`, or after going on from `most` states.
    pub(super) const fn new(deadline: Deadline, most: u64) -> Self {
        Self {
            deadline,
            most,
            expanded: AtomicU64::new(0),
            spent: AtomicBool::new(false),
            replay: AtomicBool::new(false),
        }
    }

    /// Whether one more state may be gone on from.
    pub(super) fn allows(&self) -> bool {
        if self.replay.load(Ordering::Relaxed) {
            return true;
        }
        let expanded = self.expanded.fetch_add(1, Ordering::Relaxed);
        if expanded >= self.most || (expanded.is_multiple_of(64) && self.deadline.has_passed()) {
            self.spent.store(true, Ordering::Relaxed);
        }
        !self.spent.load(Ordering::Relaxed)
    }

    /// Whether it stopped before the end.
    pub(super) fn spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// From now on paths are told again.
    pub(super) fn replay(&self) {
        self.replay.store(true, Ordering::Relaxed);
    }
}

/// A state as the checker keeps it: how to make it, and its canonical form.
///
/// Millions wait to be looked at, and a world is large. So a state keeps its parent's world and the
/// last action; its own world is made when it is looked at.
#[derive(Clone, Debug)]
pub(super) struct State {
    view: Box<[u8]>,
    broken: Option<Law>,
    depth: u32,
    origin: Option<(Arc<World>, Act)>,
    seen: OnceLock<Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    world: Arc<World>,
    broken: Option<Law>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view && self.broken == other.broken
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.view.hash(state);
        self.broken.hash(state);
    }
}

impl State {
    fn seen(&self, setup: &Setup) -> &Seen {
        self.seen.get_or_init(|| {
            let world = match &self.origin {
                None => World::new(setup),
                Some((parent, act)) => {
                    let mut world = World::clone(parent);
                    drop(world.perform(setup, *act, true));
                    world
                }
            };
            let judged = || state::judge(setup, &world).err().map(|breach| breach.law);
            let broken = self.broken.or_else(judged);
            Seen {
                // A fresh copy has no room to spare.
                world: Arc::new(world.clone()),
                broken,
            }
        })
    }
}

impl Judged<Histories> for State {
    fn broken(&self, model: &Histories) -> Option<Law> {
        self.seen(&model.setup).broken
    }
}

impl Model for Histories {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            view: view::of(&self.setup, &World::new(&self.setup)),
            broken: None,
            depth: 0,
            origin: None,
            seen: OnceLock::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        let deep = self.depth.is_some_and(|depth| state.depth >= depth);
        if deep || !self.budget.allows() {
            return;
        }
        let seen = state.seen(&self.setup);
        if seen.broken.is_none() {
            acts::next(&self.setup, &seen.world, actions);
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let before = &last.seen(&self.setup).world;
        let (after, breach) = step(&self.setup, before, act)?;
        let state = State {
            view: view::of(&self.setup, &after),
            broken: breach.map(|breach| breach.law),
            depth: last.depth.saturating_add(1),
            origin: Some((Arc::clone(before), act)),
            seen: OnceLock::new(),
        };
        // A step that changes nothing is no step.
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }

    fn format_action(&self, act: &Act) -> String {
        acts::tell(&self.setup, *act)
    }
}

/// Takes one step, and judges it. `None` if there is nothing it could be about.
pub(super) fn step(setup: &Setup, before: &World, act: Act) -> Option<(World, Option<Breach>)> {
    let mut after = before.clone();
    let answered = after.perform(setup, act, true)?;
    let stepped = Stepped {
        setup,
        before,
        act,
        answered: &answered,
        after: &after,
    };
    let breach = stepped.judge().and_then(|()| same_without_hint(&stepped));
    Some((after, breach.err()))
}

/// Takes the same step without a hint where the lease is.
fn same_without_hint(stepped: &Stepped<'_>) -> Result<(), Breach> {
    let hinted = matches!(
        stepped.act,
        Act::Touch(_)
            | Act::Renew(_)
            | Act::Begin { .. }
            | Act::End { .. }
            | Act::Release(_)
            | Act::Abandon(_)
            | Act::Offer(_)
    );
    if !hinted {
        return Ok(());
    }
    let mut plain = stepped.before.clone();
    let answered = plain.perform(stepped.setup, stepped.act, false);
    let same = answered.map(|answered| answered.said) == Some(stepped.answered.said)
        && view::of(stepped.setup, &plain) == view::of(stepped.setup, stepped.after);
    super::law::require(same, Law::HintsDecideNothing, || {
        format!("{:?} differs without a hint", stepped.act)
    })
}

/// Tells a history step by step, and what is wrong at its end.
pub(super) fn retell(setup: &Setup, acts: &[Act]) -> (Vec<String>, String) {
    let mut world = World::new(setup);
    let mut told = Vec::new();
    for act in acts {
        told.push(acts::tell(setup, *act));
        let Some((next, breach)) = step(setup, &world, *act) else {
            return (told, "the history cannot be told again".to_owned());
        };
        if let Some(breach) = breach {
            return (told, breach.what);
        }
        world = next;
    }
    let what = state::judge(setup, &world).err();
    (told, what.map(|breach| breach.what).unwrap_or_default())
}
