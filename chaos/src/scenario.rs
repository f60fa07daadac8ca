//! What a scenario is, what it is given, and what it reports.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::clock::Deadline;

/// A story that is run against the shipped code and judged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name: words joined by hyphens, the suite first, for example `sim-idle-expiry`.
    pub name: &'static str,
    /// Where it belongs.
    pub suite: Suite,
    /// One sentence: what is done, and what must then be true.
    pub about: &'static str,
    /// Whether it goes on over more and more seeds for as long as it may.
    pub seeded: bool,
    /// Runs it to its end or to the deadline of the context.
    pub run: fn(&Context<'_>) -> Report,
}

/// The kinds of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever chooses scenarios must look at every kind"
)]
pub enum Suite {
    /// In a virtual machine room: one seed is one history.
    Sim,
    /// With processes of this machine.
    Real,
}

/// What one run of a scenario is given.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Context<'a> {
    /// The first seed. A scenario without chance ignores it.
    pub seed: u64,
    /// How many seeds to run, from the first one on; `None` is as many as the time allows.
    pub seeds: Option<u64>,
    /// When to stop starting anything new. A scenario that is not done by then reports what it saw.
    pub deadline: Deadline,
    /// Where progress is shown.
    pub progress: &'a dyn Progress,
}

/// Shows people how far a run has come. It may be called as often as one likes.
pub trait Progress: Sync {
    /// Shows one short line, in place of the one before.
    fn show(&self, line: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct Silent;

/// What a run of a scenario found.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a report that is dropped hides a violation"]
#[non_exhaustive]
pub struct Report {
    /// The judgement.
    pub result: Judgement,
    /// The receipts that tell the story, in their stored form. Bounded by whoever fills it.
    pub receipts: Vec<serde_json::Value>,
    /// What was counted: histories, steps, grants, faults whose effect was seen.
    pub counters: BTreeMap<&'static str, u64>,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// How a run is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever counts results must count every kind"
)]
pub enum Judgement {
    /// Everything that the scenario is about was seen, and nothing was violated.
    Passed,
    /// Something was violated, or an effect that must be seen was not.
    Failed {
        /// At least one.
        violations: Vec<Violation>,
    },
    /// The machine does not allow it, so nothing is claimed.
    NotRun {
        /// What is needed, as `cargo xtask test` names it, for example `user-namespaces`.
        need: &'static str,
        /// What the machine said, in a sentence.
        reason: String,
    },
}

/// One rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The rule's name, in words joined by hyphens.
    pub rule: &'static str,
    /// What was seen instead.
    pub what: String,
    /// The steps that lead there, one a line, as short as could be found.
    pub history: Vec<String>,
    /// How many steps that is, and how many it was when it was found; zero without steps.
    pub steps: (usize, usize),
    /// The arguments of `cargo xtask chaos` that repeat it; empty where the scenario's name and seed
    /// of the run do.
    pub repeat: String,
}

impl Scenario {
    /// Makes a scenario.
    #[must_use]
    pub const fn new(
        name: &'static str,
        suite: Suite,
        about: &'static str,
        run: fn(&Context<'_>) -> Report,
    ) -> Self {
        Self {
            name,
            suite,
            about,
            seeded: false,
            run,
        }
    }

    /// Says that it goes on over more and more seeds for as long as it may, so that the time of a run
    /// is shared out among those that do.
    #[must_use]
    pub const fn seeded(mut self) -> Self {
        self.seeded = true;
        self
    }
}

impl Suite {
    /// Returns the name: `sim` or `real`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Real => "real",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<'a> Context<'a> {
    /// Makes a context: this many seeds from `seed` on, until `deadline`.
    #[must_use]
    pub const fn new(
        seed: u64,
        seeds: Option<u64>,
        deadline: Deadline,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            seed,
            seeds,
            deadline,
            progress,
        }
    }

    /// Makes a context for a test: one seed, the time of a test, no progress.
    #[must_use]
    pub fn once(seed: u64) -> Self {
        let deadline = Deadline::within(Duration::from_secs(30));
        Self::new(seed, Some(1), deadline, &Silent)
    }

    /// Returns whether nothing new should be started.
    #[must_use]
    pub fn time_is_up(&self) -> bool {
        self.deadline.has_passed()
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("seed", &self.seed)
            .field("seeds", &self.seeds)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Progress for Silent {
    fn show(&self, _line: &str) {}
}

impl Report {
    /// Starts a report in which nothing is violated.
    pub const fn passed() -> Self {
        Self::of(Judgement::Passed)
    }

    /// Reports what this machine does not allow.
    pub fn not_run(need: &'static str, reason: impl Into<String>) -> Self {
        Self::of(Judgement::NotRun {
            need,
            reason: reason.into(),
        })
    }

    /// Reports one violation.
    pub fn failed(violation: Violation) -> Self {
        Self::of(Judgement::Failed {
            violations: vec![violation],
        })
    }

    const fn of(result: Judgement) -> Self {
        Self {
            result,
            receipts: Vec::new(),
            counters: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Adds to a counter.
    pub fn count(&mut self, counter: &'static str, more: u64) {
        let count = self.counters.entry(counter).or_default();
        *count = count.saturating_add(more);
    }

    /// Keeps a receipt, or whatever tells the story, in its stored form.
    pub fn keep(&mut self, receipt: &impl serde::Serialize) {
        match serde_json::to_value(receipt) {
            Ok(value) => self.receipts.push(value),
            Err(error) => self
                .notes
                .push(format!("a receipt has no stored form: {error}")),
        }
    }

    /// Adds a line for people.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Adds a violation; whatever it was, the run has failed now.
    pub fn violated(&mut self, violation: Violation) {
        match &mut self.result {
            Judgement::Failed { violations } => violations.push(violation),
            Judgement::Passed | Judgement::NotRun { .. } => {
                self.result = Judgement::Failed {
                    violations: vec![violation],
                };
            }
        }
    }
}

impl Violation {
    /// Names a rule and what was seen instead.
    #[must_use]
    pub fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
            history: Vec::new(),
            steps: (0, 0),
            repeat: String::new(),
        }
    }

    /// Adds the steps that lead there.
    #[must_use]
    pub fn with_history(mut self, history: Vec<String>) -> Self {
        self.history = history;
        self
    }

    /// Adds how many steps were left of how many.
    #[must_use]
    pub const fn with_steps(mut self, left: usize, found: usize) -> Self {
        self.steps = (left, found);
        self
    }

    /// Adds the arguments of `cargo xtask chaos` that repeat it.
    #[must_use]
    pub fn repeated_by(mut self, arguments: impl Into<String>) -> Self {
        self.repeat = arguments.into();
        self
    }
}

impl fmt::Display for Violation {
    /// One line, without the history.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}
