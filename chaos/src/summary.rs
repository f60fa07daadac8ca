//! What a run came to, for people.

use std::fmt::Write as _;

use chaos::scenario::{Judgement, Violation};

use crate::options::Plan;
use crate::run::Run;

/// How many scenarios came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) not_run: usize,
}

/// The longest history that is printed; the record has all of it.
const HISTORY: usize = 120;

impl Tally {
    pub(crate) fn of(runs: &[Run]) -> Self {
        let mut tally = Self::default();
        for run in runs {
            let sum = match run.report.result {
                Judgement::Passed => &mut tally.passed,
                Judgement::Failed { .. } => &mut tally.failed,
                Judgement::NotRun { .. } => &mut tally.not_run,
            };
            *sum = sum.saturating_add(1);
        }
        tally
    }
}

/// What one scenario came to, with its notes.
pub(crate) fn result(run: &Run) -> String {
    let name = run.scenario.name;
    let seconds = run.took.as_secs_f64();
    let mut text = match &run.report.result {
        Judgement::Passed => format!("passed   {name} ({seconds:.1} s)\n"),
        Judgement::Failed { violations } => {
            let what = violations
                .first()
                .map(ToString::to_string)
                .unwrap_or_default();
            format!("FAILED   {name} ({seconds:.1} s): {what}\n")
        }
        Judgement::NotRun { need, reason } => format!("not run  {name}: {need}: {reason}\n"),
    };
    for note in &run.report.notes {
        add(&mut text, &format!("         {note}"));
    }
    text
}

/// What was violated and how to repeat it, with the tally in the very last line.
pub(crate) fn text(plan: &Plan, runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        if let Judgement::Failed { violations } = &run.report.result {
            for violation in violations {
                add(&mut text, "");
                explain(&mut text, run.scenario.name, plan.seed, violation);
            }
        }
    }
    let Tally {
        passed,
        failed,
        not_run,
    } = Tally::of(runs);
    add(&mut text, "");
    add(&mut text, &format!("repeat with: {}", plan.command));
    let scenarios = counted(runs.len(), "scenario");
    add(
        &mut text,
        &format!("chaos: {scenarios}, {passed} passed, {failed} failed, {not_run} not run"),
    );
    text
}

/// A number with its noun.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{end}")
}

fn explain(text: &mut String, name: &str, seed: u64, violation: &Violation) {
    add(text, &format!("{name} breaks {violation}"));
    let (left, found) = violation.steps;
    if found > 0 {
        add(
            text,
            &format!("the shortest history found has {left} steps of {found}:"),
        );
    }
    for line in violation.history.iter().take(HISTORY) {
        add(text, &format!("  {line}"));
    }
    let more = violation.history.len().saturating_sub(HISTORY);
    if more > 0 {
        add(text, &format!("  and {more} lines more"));
    }
    let repeat = match violation.repeat.as_str() {
        "" => format!("--scenario {name} --seed {seed}"),
        repeat => repeat.to_owned(),
    };
    add(text, &format!("repeat with: cargo xtask chaos {repeat}"));
}

/// The scenarios, each with its sentence.
pub(crate) fn list(plan: &Plan) -> String {
    let mut text = String::new();
    let width = plan
        .scenarios
        .iter()
        .map(|scenario| scenario.name.len())
        .max()
        .unwrap_or(0);
    for scenario in &plan.scenarios {
        add(
            &mut text,
            &format!("{:width$}  {}", scenario.name, scenario.about),
        );
    }
    text
}

fn add(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _infallible = writeln!(text, "{line}");
}
