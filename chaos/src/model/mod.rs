//! Explores every short history of the shipped core, and looks for a law that does not hold.
//!
//! Nothing here is a second implementation: a state holds a [`lease_core::Registry`], or cells that
//! [`lease_core::decide`] decides about, and what leads from one to the next is their own calls. What
//! is written twice, on purpose, are the laws.

mod acts;
mod explore;
#[cfg(feature = "falsify")]
pub mod falsify;
mod gate;
mod interleave;
mod judge;
mod law;
mod queue;
mod state;
mod store;
mod view;
mod world;
mod worlds;

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker as _, HasDiscoveries, Model};

use self::explore::{Budget, Histories};
use self::gate::Gates;
use self::interleave::Interleavings;
pub use self::law::Law;
use self::store::Compare;
use self::world::Setup;
use crate::clock::{Deadline, Stopwatch};

/// What is explored.
#[derive(Clone, Debug)]
pub struct World {
    name: &'static str,
    about: &'static str,
    /// The most steps in a history; `None` without end.
    depth: Option<u32>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The memory registry with everybody who calls it.
    Registry(Setup),
    /// Clients of a store that compares and sets.
    Store(Setup, Compare),
    /// The gate at a resource.
    Gate,
}

/// How far to go in one world.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The most steps in a history, if it is less than the world's own.
    pub depth: Option<u32>,
    /// The most states to go on from; it bounds the memory.
    pub states: u64,
    /// How long.
    pub time: Duration,
}

/// What an exploration found.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Explored {
    /// Which world.
    pub world: &'static str,
    /// How many states differ.
    pub states: u64,
    /// How many steps lead from one to another, repeats included.
    pub steps: u64,
    /// The most steps in a history.
    pub depth: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Whether every history was explored: up to the depth, or all there are.
    pub complete: bool,
    /// A law that does not hold, with a shortest history.
    pub broken: Option<Counterexample>,
}

/// A history that breaks a law.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Counterexample {
    /// Which law, by name.
    pub law: &'static str,
    /// What was seen instead.
    pub what: String,
    /// What happened, one step a line.
    pub history: Vec<String>,
}

/// A model that can stop early, and tell a history of its own.
trait Explorable: Model {
    fn budget(&self) -> &Budget;

    /// The steps in plain words, and what is wrong at their end.
    fn retell(&self, history: &[Self::Action]) -> (Vec<String>, String);
}

impl Explorable for Histories {
    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn retell(&self, history: &[Self::Action]) -> (Vec<String>, String) {
        explore::retell(&self.setup, history)
    }
}

impl Explorable for Interleavings {
    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn retell(&self, history: &[Self::Action]) -> (Vec<String>, String) {
        interleave::retell(&self.setup, self.compare, history)
    }
}

impl Explorable for Gates {
    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn retell(&self, history: &[Self::Action]) -> (Vec<String>, String) {
        gate::retell(self, history)
    }
}

/// Returns every world.
#[must_use]
pub fn worlds() -> Vec<World> {
    worlds::all().unwrap_or_default()
}

impl World {
    /// Returns the name: words joined by hyphens.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what is explored, in one sentence.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// Returns this world with a store that compares the cell asked for only, if it has a store. That
    /// is wrong, and shows that the checker sees it.
    #[must_use]
    pub fn with_narrow_compare(mut self) -> Self {
        if let Kind::Store(_, compare) = &mut self.kind {
            *compare = Compare::OwnCell;
        }
        self
    }

    /// Explores, breadth first, in one thread: so a counterexample is as short as can be.
    #[must_use]
    pub fn explore(&self, limits: Limits) -> Explored {
        let depth = match (self.depth, limits.depth) {
            (Some(own), Some(asked)) => Some(own.min(asked)),
            (own, asked) => own.or(asked),
        };
        let budget = Budget::new(Deadline::within(limits.time), limits.states);
        let explored = match &self.kind {
            Kind::Registry(setup) => run(Histories {
                setup: setup.clone(),
                depth,
                budget,
            }),
            Kind::Store(setup, compare) => run(Interleavings {
                setup: setup.clone(),
                depth: depth.unwrap_or(u32::MAX),
                compare: *compare,
                budget,
            }),
            Kind::Gate => run(Gates { depth, budget }),
        };
        Explored {
            world: self.name,
            ..explored
        }
    }
}

impl Limits {
    /// Goes at most so far, from so many states and for so long.
    #[must_use]
    pub const fn new(depth: Option<u32>, states: u64, time: Duration) -> Self {
        Self {
            depth,
            states,
            time,
        }
    }
}

fn run<M>(model: M) -> Explored
where
    M: Explorable + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Clone + PartialEq,
{
    let watch = Stopwatch::start();
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let model = checker.model();
    model.budget().replay();
    let discoveries = checker.discoveries();
    let mut found: Vec<_> = Law::ALL
        .iter()
        .filter_map(|law| Some((*law, discoveries.get(law.name())?.clone().into_actions())))
        .collect();
    found.sort_by_key(|(law, history)| (history.len(), *law));
    let broken = found.into_iter().next().map(|(law, history)| {
        let (history, what) = model.retell(&history);
        Counterexample {
            law: law.name(),
            what,
            history,
        }
    });
    Explored {
        world: "",
        states: wide(checker.unique_state_count()),
        steps: wide(checker.state_count()),
        // The checker counts the states of a history, and the first is there without a step.
        depth: wide(checker.max_depth()).saturating_sub(1),
        took_ms: u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX),
        complete: !model.budget().spent() && broken.is_none(),
        broken,
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl fmt::Display for Explored {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            world,
            states,
            steps,
            depth,
            took_ms,
            ..
        } = self;
        let how = match (&self.broken, self.complete) {
            (Some(_), _) => "BROKEN",
            (None, true) => "complete",
            (None, false) => "stopped at its limit",
        };
        let (seconds, tenths) = (took_ms / 1000, took_ms % 1000 / 100);
        write!(
            f,
            "{world}: {states} states, {steps} steps, depth {depth}, {seconds}.{tenths} s, {how}"
        )
    }
}
