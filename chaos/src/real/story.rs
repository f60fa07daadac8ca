//! What a scenario tells the program that started it, and how that is judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::wire::Told;
use crate::scenario::{Report, Violation};

/// Makes an enum of names that are joined by hyphens.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum $name {
            $($variant,)*
        }

        impl $name {
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

names! {
    /// What is counted.
    Count {
        EqualTicks = "rounds-with-equal-start-ticks",
        Effects = "effects-seen",
        FencedWrites = "fenced-writes",
        Grants = "grants",
        Kills = "kills",
        PidsRecycled = "pids-recycled",
        Refusals = "refusals",
        ReuseMicros = "longest-reuse-us",
        Rounds = "rounds",
        Steps = "agreed-steps",
        Stops = "stops",
        Takeovers = "takeovers-on-proof",
        TicksOnlyRounds = "rounds-without-pidfs",
        TicksOnlyEqual = "rounds-without-pidfs-with-equal-start-ticks",
        Writes = "accepted-writes",
    }
}

names! {
    /// What must hold.
    Rule {
        DeadHolderIsSucceeded = "dead-holder-is-succeeded",
        EffectIsSeen = "effect-is-seen",
        GrantIsCreated = "grant-is-created",
        HoldsDoNotOverlap = "holds-do-not-overlap",
        IdentityIsTheKernels = "identity-is-the-kernels",
        LateWriteLeavesNoByte = "late-write-leaves-no-byte",
        LiveHolderIsKept = "live-holder-is-kept",
        OldAuthorityIsRefused = "old-authority-is-refused",
        ProofIsNamed = "proof-is-named",
        ScenarioEnds = "scenario-ends",
        StaleTokenIsTold = "stale-token-is-told",
        TokensRise = "tokens-rise",
        UnknownNeverGrants = "unknown-never-grants",
        WriteIsLetIn = "write-is-let-in",
    }
}

/// The most receipts that a report shows; the first and the last of more.
const RECEIPTS: usize = 20;

/// What one scenario found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Story {
    missing: Option<Problem>,
    violations: Vec<(Rule, String)>,
    counts: BTreeMap<Count, u64>,
    receipts: Vec<String>,
    notes: Vec<String>,
}

impl Story {
    /// A story that was not told to its end.
    pub(crate) fn stopped(problem: Problem) -> Self {
        let mut story = Self::default();
        story.stop(problem);
        story
    }

    /// Says why it was not told to its end.
    pub(crate) fn stop(&mut self, problem: Problem) {
        match problem {
            Problem::Missing { .. } => self.missing = Some(problem),
            Problem::Violated { rule, what } => self.violated(rule, what),
            Problem::Broken(what) => self.violated(Rule::ScenarioEnds, what),
        }
    }

    pub(crate) fn violated(&mut self, rule: Rule, what: impl Into<String>) {
        self.violations.push((rule, what.into()));
    }

    /// Checks one rule.
    pub(crate) fn check(&mut self, rule: Rule, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(rule, what());
        }
    }

    /// Counts a fault whose effect was seen. One that was not seen proves nothing, so the scenario
    /// has failed.
    pub(crate) fn effect(&mut self, seen: bool, what: &str) {
        if seen {
            self.count(Count::Effects, 1);
        } else {
            self.violated(Rule::EffectIsSeen, format!("not seen: {what}"));
        }
    }

    pub(crate) fn count(&mut self, count: Count, more: u64) {
        let number = self.counts.entry(count).or_default();
        *number = number.saturating_add(more);
    }

    /// Keeps the largest.
    pub(crate) fn most(&mut self, count: Count, number: u64) {
        let most = self.counts.entry(count).or_default();
        *most = number.max(*most);
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Keeps the receipts of an authority.
    pub(crate) fn keep(&mut self, told: &[Told]) {
        let half = RECEIPTS.checked_div(2).unwrap_or(0);
        let left_out = told.len().saturating_sub(RECEIPTS);
        for (at, receipt) in told.iter().enumerate() {
            if at == half && left_out > 0 {
                self.receipts.push(format!("({left_out} more)"));
            }
            if at < half || at >= half.saturating_add(left_out) {
                self.receipts.push(receipt.to_string());
            }
        }
    }

    /// Judges: a violation fails, a lack of the machine is not run, and without any effect nothing
    /// is claimed.
    pub(crate) fn judge(self) -> Report {
        let effects = self.counts.get(&Count::Effects).copied().unwrap_or(0);
        let mut report = match &self.missing {
            Some(Problem::Missing { need, reason }) if self.violations.is_empty() => {
                Report::not_run(need.name(), reason.as_str())
            }
            Some(_) | None => Report::passed(),
        };
        if self.missing.is_none() && self.violations.is_empty() && effects == 0 {
            let rule = Rule::EffectIsSeen.name();
            report.violated(Violation::new(rule, "no fault had any effect"));
        }
        for (rule, what) in self.violations {
            report.violated(Violation::new(rule.name(), what));
        }
        for (count, number) in self.counts {
            report.count(count.name(), number);
        }
        for receipt in &self.receipts {
            report.keep(receipt);
        }
        for note in self.notes {
            report.note(note);
        }
        report
    }
}
