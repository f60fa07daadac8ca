//! Runs the planned scenarios, one after the other, and shares out the time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos::clock::{Deadline, Stopwatch};
use chaos::scenario::{Context, Report, Scenario, Violation};

use crate::options::Plan;
use crate::summary;
use crate::terminal::Terminal;

/// A scenario that was run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenario: Scenario,
    pub(crate) report: Report,
    pub(crate) took: Duration,
}

/// The least that a scenario without seeds gets: it ends by itself, and this is for one that hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a scenario needed that was not run to its end because the run was called off.
const TIME: &str = "time";

/// Runs everything, and shows how far it has come. Once it is called off, the scenario that runs is ended,
/// and what it saw of its broken end does not count; the others are not begun.
pub(crate) fn all(plan: &Plan, called_off: &'static AtomicBool) -> Vec<Run> {
    let terminal = Terminal::new();
    let deadline = Deadline::within(plan.time).unless(called_off);
    let count = plan.scenarios.len();
    let scenarios = summary::counted(count, "scenario");
    terminal.line(&format!("chaos: {scenarios}, seed {}", plan.seed));
    let mut seeded = plan
        .scenarios
        .iter()
        .filter(|scenario| scenario.seeded)
        .count();
    let mut runs = Vec::new();
    for (number, scenario) in plan.scenarios.iter().enumerate() {
        let left = deadline.remaining();
        let share = if scenario.seeded {
            let parts = u32::try_from(seeded.max(1)).unwrap_or(u32::MAX);
            seeded = seeded.saturating_sub(1);
            left / parts
        } else {
            left.max(PATIENCE)
        };
        let until = deadline.another(share);
        terminal.begin(&format!(
            "[{}/{count}] {}",
            number.saturating_add(1),
            scenario.name
        ));
        let context = Context::new(plan.seed, plan.seeds, until, &terminal);
        let watch = Stopwatch::start();
        let is_off = || called_off.load(Ordering::Relaxed);
        let mut report = Report::not_run(TIME, "the run was interrupted");
        if !is_off() {
            let ended = run(scenario, &context);
            if !is_off() {
                report = ended;
            }
        }
        let run = Run {
            scenario: *scenario,
            report,
            took: watch.elapsed(),
        };
        terminal.result(&summary::result(&run));
        runs.push(run);
    }
    runs
}

/// A scenario that panics has failed, and the others go on.
fn run(scenario: &Scenario, context: &Context<'_>) -> Report {
    catch_unwind(AssertUnwindSafe(|| (scenario.run)(context))).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Report::failed(Violation::new("nothing-panics", text.unwrap_or_default()))
    })
}
