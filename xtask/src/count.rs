//! Reads the closing lines of the test runners.

use core::ops::AddAssign;

use crate::workspace::Metadata;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed = self.passed.saturating_add(other.passed);
        self.failed = self.failed.saturating_add(other.failed);
        self.skipped = self.skipped.saturating_add(other.skipped);
    }
}

impl core::fmt::Display for Counts {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Which program runs the tests, and so which closing line to look for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Runner {
    /// One closing line for the whole run, on standard error.
    Nextest,
    /// One closing line for each test binary and each set of doc tests, on standard output.
    CargoTest,
}

/// What was read of a runner's output so far.
#[derive(Debug)]
pub(crate) struct Reading {
    runner: Runner,
    counts: Option<Counts>,
    /// How many test binaries of cargo test said that they start, and not yet how they ended.
    unclosed: u64,
}

impl Reading {
    pub(crate) fn new(runner: Runner) -> Self {
        Self {
            runner,
            counts: None,
            unclosed: 0,
        }
    }

    /// Takes note of one line, with or without colours.
    pub(crate) fn line(&mut self, line: &str) {
        let line = without_colours(line);
        match self.runner {
            // Output of a failed test may look like a closing line; the real one comes last.
            Runner::Nextest => self.counts = nextest(&line).or(self.counts),
            Runner::CargoTest => {
                if is_opening(&line) {
                    self.unclosed = self.unclosed.saturating_add(1);
                } else if let Some(counts) = cargo_test(&line) {
                    self.unclosed = self.unclosed.saturating_sub(1);
                    *self.counts.get_or_insert_default() += counts;
                }
            }
        }
    }

    /// The counts of the whole run.
    ///
    /// A test binary that started and has no closing line is one failure: a test ended the process,
    /// maybe with 0. So is a run that failed, or said nothing at the end, without naming a failed
    /// test: it did not build, or a test took the whole process down.
    pub(crate) fn end(self, success: bool) -> Counts {
        let mut counts = self.counts.unwrap_or_default();
        counts.failed = counts.failed.saturating_add(self.unclosed);
        if counts.failed == 0 && (!success || self.counts.is_none()) {
            counts.failed = 1;
        }
        counts
    }
}

/// Whether any member has documentation that cargo can test.
pub(crate) fn has_doc_tests(metadata: &Metadata) -> bool {
    metadata
        .packages
        .iter()
        .any(|package| package.has_target(&["lib", "proc-macro"]))
}

/// `     Summary [   0.012s] 4 tests run: 1 passed (1 slow), 2 failed, 1 timed out, 1 skipped`
fn nextest(line: &str) -> Option<Counts> {
    let (_time, rest) = line.strip_prefix("     Summary [")?.split_once(']')?;
    let (_number, list) = rest.split_once(" run: ")?;
    let mut counts = Counts::default();
    for entry in without_brackets(list).split(',') {
        let (number, word) = entry.trim().split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match word.trim() {
            "passed" => counts.passed = number,
            "skipped" => counts.skipped = number,
            // Failed, timed out, could not be started: no way to pass.
            _ => counts.failed = counts.failed.saturating_add(number),
        }
    }
    Some(counts)
}

/// `running 12 tests`, the first line of each test binary and each set of doc tests.
fn is_opening(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| rest.split_once(' '))
        .is_some_and(|(number, word)| {
            number.parse::<u64>().is_ok() && matches!(word, "test" | "tests")
        })
}

/// `test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn cargo_test(line: &str) -> Option<Counts> {
    let (_verdict, list) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| -> Option<u64> {
        list.split("; ")
            .find_map(|entry| entry.trim().strip_suffix(word))?
            .trim()
            .parse()
            .ok()
    };
    Some(Counts {
        passed: number(" passed")?,
        failed: number(" failed")?,
        skipped: number(" ignored")?.saturating_add(number(" filtered out")?),
    })
}

/// Leaves out what stands in round brackets.
fn without_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|character| {
            match character {
                '(' => depth = depth.saturating_add(1),
                ')' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        })
        .collect()
}

/// Leaves out the escape sequences with which terminals change colours.
fn without_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut pieces = line.trim_end().split('\u{1b}');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|character: char| character.is_ascii_alphabetic());
        let rest = end.and_then(|end| piece.get(end.saturating_add(1)..));
        plain.push_str(rest.unwrap_or_default());
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(runner: Runner, lines: &[&str], success: bool, expected: [u64; 3]) {
        let mut reading = Reading::new(runner);
        lines.iter().for_each(|line| reading.line(line));
        let Counts {
            passed,
            failed,
            skipped,
        } = reading.end(success);
        assert_eq!([passed, failed, skipped], expected);
    }

    #[test]
    fn nextest_says_how_many() {
        let line = "     Summary [   0.018s] 1 test run: 1 passed, 0 skipped\n";
        check(Runner::Nextest, &[line], true, [1, 0, 0]);
    }

    #[test]
    fn whatever_is_not_passed_or_skipped_is_failed() {
        let line = "     Summary [   1.025s] 9/12 tests run: 4 passed (1 slow, 1 leaky), \
                    2 failed (1 due to being leaky), 2 timed out, 1 exec failed, 3 skipped";
        check(Runner::Nextest, &[line], false, [4, 5, 3]);
    }

    #[test]
    fn colours_do_not_hide_the_closing_line() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.018s] \u{1b}[1m7\u{1b}[0m tests run: \
                    \u{1b}[1m7\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m2\u{1b}[0m skipped";
        check(Runner::Nextest, &[line], true, [7, 0, 2]);
    }

    #[test]
    fn output_of_a_test_is_no_closing_line() {
        let lines = [
            "    test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; x",
            "     Summary [ 1s] 9 tests run: 9 passed, 0 skipped",
            "     Summary [   0.018s] 2 tests run: 1 passed, 1 failed, 0 skipped",
        ];
        check(Runner::Nextest, &lines, false, [1, 1, 0]);
        check(Runner::CargoTest, &lines[..1], false, [0, 1, 0]);
    }

    #[test]
    fn cargo_test_is_added_up_over_all_binaries() {
        let lines = [
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0.00s",
            "test one ... ok",
            "test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 1 filtered out; in 1s",
        ];
        check(Runner::CargoTest, &lines, false, [5, 4, 2]);
    }

    #[test]
    fn a_run_without_a_closing_line_is_a_failure() {
        check(
            Runner::Nextest,
            &["error: could not compile `a`"],
            false,
            [0, 1, 0],
        );
        check(Runner::Nextest, &[], true, [0, 1, 0]);
        check(Runner::CargoTest, &[], true, [0, 1, 0]);
    }

    #[test]
    fn a_process_that_died_is_a_failure_even_if_no_test_is_named() {
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; x";
        check(Runner::CargoTest, &[line], false, [3, 1, 0]);
        check(Runner::CargoTest, &[line], true, [3, 0, 0]);
    }

    #[test]
    fn a_binary_that_ends_early_with_success_is_a_failure() {
        let closing =
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; x";
        let lines = ["running 1 test", closing, "running 2 tests"];
        check(Runner::CargoTest, &lines[..2], true, [1, 0, 0]);
        check(Runner::CargoTest, &lines, true, [1, 1, 0]);
        check(Runner::CargoTest, &lines, false, [1, 1, 0]);
        let lines = ["running 2 tests", "running 1 test", closing];
        check(Runner::CargoTest, &lines, true, [1, 1, 0]);
        check(Runner::CargoTest, &lines[..1], true, [0, 1, 0]);
    }

    #[test]
    fn output_of_a_test_is_no_opening_line() {
        let closing =
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; x";
        let lines = [
            "running late",
            "running 2 tests slowly",
            "  running 2 tests",
            closing,
        ];
        check(Runner::CargoTest, &lines, true, [1, 0, 0]);
    }

    #[test]
    fn only_a_library_has_doc_tests() {
        let has = |kind: &str| {
            let package = format!(
                r#"{{"name": "a", "dependencies": [], "targets": [{{"kind": ["{kind}"]}}]}}"#
            );
            let text = format!(r#"{{"target_directory": "t", "packages": [{package}]}}"#);
            has_doc_tests(&serde_json::from_str(&text).unwrap())
        };
        assert!(has("lib"));
        assert!(!has("bin"));
    }

    #[test]
    fn the_counts_are_written_in_the_plain_closing_form() {
        let counts = Counts {
            passed: 1,
            failed: 2,
            skipped: 3,
        };
        assert_eq!(counts.to_string(), "1 passed, 2 failed, 3 skipped");
    }
}
