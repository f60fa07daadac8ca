//! The checks that a test did not run because of the machine.
//!
//! A test rig prints `NOT RUN: <test>: <need>: <reason>` and appends the same line to the file that
//! [`FILE`] names. The file is the channel; the print is for people, and runners swallow it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::count::Counts;
use crate::needs::Presence;
use crate::problem::Problem;

/// The variable that tells the test rigs where to append.
pub(crate) const FILE: &str = "LEASE_NOT_RUN_FILE";

const MARK: &str = "NOT RUN: ";

/// One check that was not run.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct NotRun {
    test: String,
    need: String,
    reason: String,
}

/// How one check that was not run is counted, and what to say of it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Judged {
    pub(crate) failed: bool,
    pub(crate) words: String,
}

impl NotRun {
    fn parse(line: &str) -> Self {
        let rest = line.strip_prefix(MARK).unwrap_or(line);
        let mut parts = rest.splitn(3, ": ").map(|part| part.trim().to_owned());
        let mut part = || parts.next().unwrap_or_default();
        Self {
            test: part(),
            need: part(),
            reason: part(),
        }
    }

    /// Decides whether this is a failure. Only a strict run has any.
    pub(crate) fn judge(&self, presence: &Presence, strict: bool) -> Judged {
        let Self { test, need, reason } = self;
        let (failed, remark) = match presence {
            Presence::Missing(why) => (false, format!("not on this machine: {why}")),
            Presence::Here => (strict, format!("this machine has {need}")),
            Presence::Untold(why) => (strict, format!("cannot tell: {why}")),
        };
        let mark = if failed { "FAILED, " } else { "" };
        Judged {
            failed,
            words: format!("{mark}{MARK}{test}: {need}: {reason} ({remark})"),
        }
    }

    pub(crate) fn need(&self) -> &str {
        &self.need
    }
}

/// Reads what the rigs appended; the same line twice counts once.
pub(crate) fn read(file: &Path) -> Result<BTreeSet<NotRun>, Problem> {
    let text = fs::read_to_string(file).map_err(Problem::caused(file.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> BTreeSet<NotRun> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(NotRun::parse)
        .collect()
}

/// Moves the tests that did not run out of the passed ones, where their runner counted them.
pub(crate) fn settle(counts: Counts, not_run: &BTreeSet<NotRun>, failed: u64) -> Counts {
    let tests: BTreeSet<&str> = not_run.iter().map(|check| check.test.as_str()).collect();
    let checks = count(not_run.len());
    Counts {
        passed: counts.passed.saturating_sub(count(tests.len())),
        failed: counts.failed.saturating_add(failed),
        skipped: counts.skipped.saturating_add(checks.saturating_sub(failed)),
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig;

    fn zombie() -> NotRun {
        NotRun::parse("NOT RUN: live::zombie_is_dead: pid-namespaces: clone3: EPERM")
    }

    #[test]
    fn a_line_has_a_test_a_need_and_a_reason() {
        let expected = NotRun {
            test: "live::zombie_is_dead".to_owned(),
            need: "pid-namespaces".to_owned(),
            reason: "clone3: EPERM".to_owned(),
        };
        assert_eq!(zombie(), expected);
    }

    #[test]
    fn what_the_rigs_say_is_read_and_a_missing_file_is_a_problem() {
        let workspace = crate::workspace::Workspace::empty("not-run");
        let file = workspace.root().join("file");
        let missing = read(&file);
        let said = rig::line("live::zombie_is_dead", "pid-namespaces", "clone3: EPERM");
        rig::append(&file, &said);
        rig::append(&file, &said);
        let checks = read(&file);
        fs::remove_dir_all(workspace.root()).unwrap();
        assert!(missing.is_err());
        assert_eq!(checks.unwrap(), BTreeSet::from([zombie()]));
    }

    #[test]
    fn a_line_without_a_need_still_counts() {
        let checks = parse("NOT RUN: live::zombie_is_dead: no namespaces here\n\n");
        assert_eq!(checks.len(), 1);
        assert_eq!(checks.first().unwrap().need(), "no namespaces here");
    }

    #[test]
    fn only_a_strict_run_fails_a_check_whose_need_is_here() {
        let (here, missing) = (Presence::Here, Presence::Missing("EPERM".to_owned()));
        assert!(zombie().judge(&here, true).failed);
        assert!(!zombie().judge(&here, false).failed);
        assert!(!zombie().judge(&missing, true).failed);
        assert!(!zombie().judge(&missing, false).failed);
    }

    #[test]
    fn what_cannot_be_told_is_no_excuse_in_a_strict_run() {
        let untold = Presence::Untold("no such need".to_owned());
        assert!(zombie().judge(&untold, true).failed);
        assert!(!zombie().judge(&untold, false).failed);
    }

    #[test]
    fn the_list_names_test_need_reason_and_judgement() {
        let words = zombie().judge(&Presence::Here, true).words;
        assert_eq!(
            words,
            "FAILED, NOT RUN: live::zombie_is_dead: pid-namespaces: clone3: EPERM \
             (this machine has pid-namespaces)"
        );
    }

    #[test]
    fn a_test_that_did_not_run_is_skipped_and_not_passed() {
        let counts = Counts {
            passed: 10,
            failed: 1,
            skipped: 2,
        };
        // Two checks of one test, one of another, and one line that came twice.
        let text = "NOT RUN: a: root: x\nNOT RUN: a: linux: x\nNOT RUN: b: root: x\n";
        let checks = parse(&format!("{text}{text}"));
        let settled = Counts {
            passed: 8,
            failed: 1,
            skipped: 5,
        };
        assert_eq!(settle(counts, &checks, 0), settled);
        let strict = Counts {
            passed: 8,
            failed: 3,
            skipped: 3,
        };
        assert_eq!(settle(counts, &checks, 2), strict);
    }
}
