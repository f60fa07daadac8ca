//! Scenarios without chance: a fixed story, told in receipts, compared with the text that was accepted.

mod application;
mod incident;
mod recycled;
mod stage;

use crate::oracle::{Breach, Rule};
use crate::scenario::{Context, Report, Scenario, Suite, Violation};

/// What a story told, and what in it was not as it must be.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Told {
    /// One line for each thing that was done, and one for each receipt, refusal and write.
    pub lines: Vec<String>,
    /// The receipts in their stored form.
    pub receipts: Vec<serde_json::Value>,
    /// What broke a rule.
    pub breaches: Vec<Breach>,
}

/// A story with the text that was accepted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Story {
    /// The name of its scenario and, with underscores, of its text.
    pub name: &'static str,
    /// Tells it.
    pub tell: fn() -> Told,
    /// The stored snapshot.
    accepted: &'static str,
}

/// Makes a story whose text lies with the tests.
macro_rules! story {
    ($name:literal, $file:literal, $tell:path) => {
        Story {
            name: $name,
            tell: $tell,
            accepted: include_str!(concat!(
                "../../tests/it/snapshots/it__script__",
                $file,
                ".snap"
            )),
        }
    };
}

/// Every story.
pub const STORIES: [Story; 5] = [
    story!(
        "sim-incident-expiry",
        "sim_incident_expiry",
        incident::expiry
    ),
    story!(
        "sim-incident-disconnect",
        "sim_incident_disconnect",
        incident::disconnect
    ),
    story!(
        "sim-stale-holder",
        "sim_stale_holder",
        incident::stale_holder
    ),
    story!(
        "sim-pid-recycled",
        "sim_pid_recycled",
        recycled::pid_recycled
    ),
    story!(
        "sim-all-kinds-of-work",
        "sim_all_kinds_of_work",
        application::all_kinds_of_work
    ),
];

/// The scenarios without chance.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let [expiry, disconnect, stale, recycled, work] = STORIES.map(|story| story.name);
    let scenario = |name, about, run| Scenario::new(name, Suite::Sim, about, run);
    vec![
        scenario(
            expiry,
            "A connection whose call failed stays silent: the next writer gets in when the term is over.",
            |_: &Context<'_>| run(0),
        ),
        scenario(
            disconnect,
            "A connection whose call failed is lost: the next writer gets in at once.",
            |_: &Context<'_>| run(1),
        ),
        scenario(
            stale,
            "A writer that lost its lease tries everything with its old token, and nothing changes.",
            |_: &Context<'_>| run(2),
        ),
        scenario(
            recycled,
            "A process dies and its number is given to another: only that proof passes the lease on.",
            |_: &Context<'_>| run(3),
        ),
        scenario(
            work,
            "An application creates, sets, calls, undoes, redoes and destroys behind admission.",
            |_: &Context<'_>| run(4),
        ),
    ]
}

fn run(number: usize) -> Report {
    match STORIES.get(number) {
        Some(story) => story.judge(),
        None => Report::failed(Violation::new(
            Rule::TextIsAsAccepted.name(),
            "no such story",
        )),
    }
}

impl Story {
    /// Tells it and compares.
    pub fn judge(&self) -> Report {
        let told = (self.tell)();
        let mut report = Report::passed();
        for breach in &told.breaches {
            let violation = Violation::new(breach.rule.name(), breach.what.clone());
            report.violated(violation.with_history(told.lines.clone()));
        }
        let accepted: Vec<&str> = self.accepted().lines().collect();
        let differs = (0..told.lines.len().max(accepted.len()))
            .find(|&at| told.lines.get(at).map(String::as_str) != accepted.get(at).copied());
        if let Some(at) = differs {
            let what = format!(
                "line {}: told {:?}, accepted {:?}",
                at.saturating_add(1),
                told.lines.get(at),
                accepted.get(at)
            );
            let violation = Violation::new(Rule::TextIsAsAccepted.name(), what);
            report.violated(violation.with_history(told.lines.clone()));
        }
        report.count(
            "lines told",
            u64::try_from(told.lines.len()).unwrap_or(u64::MAX),
        );
        report.count(
            "receipts",
            u64::try_from(told.receipts.len()).unwrap_or(u64::MAX),
        );
        report.receipts = told.receipts;
        report
    }

    /// The accepted text: what follows the header of the snapshot.
    fn accepted(&self) -> &'static str {
        let body = self.accepted.splitn(3, "---\n").nth(2);
        body.unwrap_or(self.accepted).trim_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Judgement;

    #[test]
    fn a_story_that_tells_something_else_is_found() {
        let story = STORIES[0];
        assert_eq!(story.judge().result, Judgement::Passed);
        let changed = Story {
            accepted: "---\nsource: x\n---\nsomething else\n",
            ..story
        };
        let Judgement::Failed { violations } = changed.judge().result else {
            panic!("passed");
        };
        assert_eq!(violations[0].rule, Rule::TextIsAsAccepted.name());
        assert!(
            violations[0].what.starts_with("line 1: told"),
            "{}",
            violations[0]
        );
    }
}
