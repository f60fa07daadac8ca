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
        Claims = "claims-of-protocol-1",
        Damages = "damaged-records",
        Deaths = "deaths-told",
        Descriptors = "looks-short-of-descriptors",
        EqualTicks = "rounds-with-equal-start-ticks",
        Effects = "effects-seen",
        Errors = "errors-of-a-swap",
        FencedWrites = "fenced-writes",
        Grants = "grants",
        Kills = "kills",
        Lost = "holds-that-noticed-their-loss",
        PidsRecycled = "pids-recycled",
        Records = "records-of-a-holder",
        Occupied = "refusals-for-work-that-goes-on",
        Refusals = "refusals",
        ReuseMicros = "longest-reuse-us",
        Rounds = "rounds",
        Steps = "agreed-steps",
        Stops = "stops",
        Swaps = "directory-swaps",
        Takeovers = "takeovers-on-proof",
        TicksOnlyRounds = "rounds-without-pidfs",
        TicksOnlyEqual = "rounds-without-pidfs-with-equal-start-ticks",
        Writes = "accepted-writes",
    }
}

names! {
    /// What must hold.
    Rule {
        ClaimIsHonoured = "claim-is-honoured",
        DeathIsToldOnce = "death-is-told-once",
        DeadHolderIsSucceeded = "dead-holder-is-succeeded",
        EffectIsSeen = "effect-is-seen",
        EndingIsTheKernels = "ending-is-the-kernels",
        ErrorHasACause = "error-has-a-cause",
        GrantIsCreated = "grant-is-created",
        GrantIsTheKernels = "grant-is-the-kernels",
        HoldsDoNotOverlap = "holds-do-not-overlap",
        IdentityIsTheKernels = "identity-is-the-kernels",
        LateWriteLeavesNoByte = "late-write-leaves-no-byte",
        LiveHolderIsKept = "live-holder-is-kept",
        NextIsGranted = "next-is-granted",
        NobodyStarves = "nobody-starves",
        OccupantIsNamed = "occupant-is-named",
        OldAuthorityIsRefused = "old-authority-is-refused",
        ProofIsNamed = "proof-is-named",
        RecordNamesTheHolder = "record-names-the-holder",
        RefusalHoldsNothing = "refusal-holds-nothing",
        ScenarioEnds = "scenario-ends",
        StaleTokenIsTold = "stale-token-is-told",
        TokensRise = "tokens-rise",
        UnknownNeverGrants = "unknown-never-grants",
        WatchReapsNobody = "watch-reaps-nobody",
        WorkIsAwaited = "work-is-awaited",
        WriteIsLetIn = "write-is-let-in",
    }
}

/// The most receipts that a report shows; the first and the last of more.
const RECEIPTS: usize = 20;

/// The most violations that a report shows.
const VIOLATIONS: usize = 20;

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

    /// Returns what the machine lacked for it, unless a rule did not hold before that came up.
    pub(crate) fn or_missing(mut self) -> Result<Self, Problem> {
        if self.violations.is_empty()
            && let Some(missing) = self.missing.take()
        {
            return Err(missing);
        }
        Ok(self)
    }

    pub(crate) fn violated(&mut self, rule: Rule, what: impl Into<String>) {
        // One broken thing may show a thousand times.
        if self.violations.len() < VIOLATIONS {
            self.violations.push((rule, what.into()));
        }
    }

    /// Names what was violated.
    #[cfg(all(test, feature = "sqlite"))]
    pub(crate) fn rules(&self) -> Vec<&'static str> {
        self.violations
            .iter()
            .map(|(rule, _)| rule.name())
            .collect()
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

#[cfg(test)]
mod tests {
    use super::super::problem::Need;
    use super::*;
    use crate::scenario::Judgement;

    fn missing() -> Problem {
        Problem::missing(Need::Pidfs, "there is none")
    }

    #[track_caller]
    fn check_failed(story: Story, rules: &[&str]) {
        let report = story.judge();
        let Judgement::Failed { violations } = report.result else {
            panic!("{report:?}");
        };
        let found: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
        assert_eq!(found, rules);
    }

    #[test]
    fn story_with_an_effect_and_no_violation_passes() {
        let mut story = Story::default();
        story.effect(true, "the fault");
        let report = story.judge();
        assert_eq!(report.result, Judgement::Passed);
        assert_eq!(report.counters.get("effects-seen"), Some(&1));
    }

    #[test]
    fn story_without_any_effect_fails() {
        check_failed(Story::default(), &["effect-is-seen"]);
    }

    #[test]
    fn effect_that_was_not_seen_fails_beside_others_that_were() {
        let mut story = Story::default();
        story.effect(true, "one fault");
        story.effect(false, "another fault");
        check_failed(story, &["effect-is-seen"]);
    }

    #[test]
    fn what_the_machine_lacks_is_not_run() {
        let not_run = Judgement::NotRun {
            need: "pidfs",
            reason: "there is none".to_owned(),
        };
        assert_eq!(Story::stopped(missing()).judge().result, not_run);
    }

    #[test]
    fn violation_is_not_excused_by_what_the_machine_lacks() {
        let mut story = Story::stopped(missing());
        story.violated(Rule::TokensRise, "they fell");
        assert!(story.clone().or_missing().is_ok());
        check_failed(story, &["tokens-rise"]);
    }

    #[test]
    fn story_that_breaks_off_fails() {
        let story = Story::stopped(Problem::broken("a pipe broke"));
        check_failed(story, &["scenario-ends"]);
    }
}
