//! Which rules the tests name, and whether they name them in the one right place.

use std::collections::BTreeSet;

use super::super::source::Source;
use super::super::{Finding, Tree};
use super::Catalogue;
use super::rule::Rule;

/// What one comment line is.
#[derive(Debug, Eq, PartialEq)]
enum Line {
    Prose,
    Rules(Vec<Rule>),
    /// Nothing but numbers, in another form than ours.
    Malformed,
}

/// Collects the rules above tests; numbers in test code that stand elsewhere are findings.
pub(super) fn named(
    tree: &Tree,
    catalogue: &Catalogue,
    findings: &mut Vec<Finding>,
) -> BTreeSet<Rule> {
    let mut named = BTreeSet::new();
    for (path, source) in &tree.rust {
        let Some(first) = source.test_code_from(path) else {
            continue;
        };
        for line in first..=source.code.len() {
            match read(source, line) {
                Line::Prose => {}
                Line::Malformed => {
                    let what = "numbers above a test are written `// A20, B3, fault B07`";
                    findings.push(Finding::new(path, line, what));
                }
                Line::Rules(rules) => {
                    if !is_above_test(source, line, path.contains("/src/conformance")) {
                        let what = "rule numbers stand directly above a `#[test]` only";
                        findings.push(Finding::new(path, line, what));
                    }
                    for rule in rules {
                        if !catalogue.contains_key(&rule) {
                            let what = format!("{rule} is no rule of {}", super::RULES);
                            findings.push(Finding::new(path, line, what));
                        }
                        named.insert(rule);
                    }
                }
            }
        }
    }
    named
}

fn read(source: &Source, line: usize) -> Line {
    if !source.code(line).trim().is_empty() {
        return Line::Prose;
    }
    let comment = source.comment(line).trim();
    let Some(words) = comment.strip_prefix("//") else {
        return Line::Prose;
    };
    let rules: Option<Vec<Rule>> = words.trim().split(", ").map(Rule::parse).collect();
    match rules {
        Some(rules) if words.starts_with(' ') => Line::Rules(rules),
        Some(_) => Line::Malformed,
        None if is_only_numbers(words) => Line::Malformed,
        None => Line::Prose,
    }
}

fn is_only_numbers(words: &str) -> bool {
    let separators = [' ', ',', ';', '/', '&', '+'];
    let filler = ["", "and", "fault", "faults"];
    let mut words = words
        .split(separators)
        .filter(|word| !filler.contains(word))
        .peekable();
    words.peek().is_some() && words.all(Rule::resembles)
}

/// Whether only comments and attributes stand between this line and a test.
///
/// The functions of the conformance suite get their `#[test]` from a macro.
fn is_above_test(source: &Source, line: usize, conformance: bool) -> bool {
    let mut is_test = conformance;
    let mut attribute = String::new();
    for line in line.saturating_add(1)..=source.code.len() {
        let code = source.code(line).trim();
        if code.is_empty() && attribute.is_empty() {
            if source.comment(line).trim().is_empty() {
                return false;
            }
            continue;
        }
        if attribute.is_empty() && !code.starts_with("#[") {
            return is_test && is_function(code);
        }
        attribute.push_str(code);
        if is_closed(&attribute) {
            is_test |= is_test_attribute(&attribute);
            attribute.clear();
        }
    }
    false
}

fn is_closed(attribute: &str) -> bool {
    attribute.matches('[').count() == attribute.matches(']').count()
}

/// `#[test]`, and those of other crates that end in `::test`, such as tokio's.
fn is_test_attribute(attribute: &str) -> bool {
    let path = attribute.trim_start_matches("#[");
    let end = path.find(['(', ']', ' ']).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or_default();
    path == "test" || path.ends_with("::test")
}

fn is_function(code: &str) -> bool {
    code.split(' ')
        .find(|word| !["async", "const", "pub", "pub(crate)", "pub(super)"].contains(word))
        == Some("fn")
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::tree;
    use super::*;

    /// Reads one test file with the rules A1 to A3 in the list.
    #[track_caller]
    fn check_in(path: &str, text: &str, expected: &[&str], findings: &[&str]) {
        let number = |text: &str| Rule::parse(text).unwrap();
        let catalogue = number("A1").through(number("A3")).unwrap();
        let catalogue = catalogue.map(|rule| (rule, 1)).collect();
        let mut found = Vec::new();
        let named = named(&tree(&[(path, text)]), &catalogue, &mut found);
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        assert_eq!(named, expected);
        let found: Vec<String> = found
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect();
        assert_eq!(found, findings);
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str], findings: &[&str]) {
        check_in("a/tests/it/a.rs", text, expected, findings);
    }

    const ELSEWHERE: &str = "rule numbers stand directly above a `#[test]` only";
    const FORM: &str = "numbers above a test are written `// A20, B3, fault B07`";

    #[test]
    fn numbers_directly_above_a_test_name_their_rules() {
        check("// A1\n#[test]\nfn a() {}\n", &["A1"], &[]);
        check(
            "    // A1, A3\n    #[test]\n    fn a() {}\n",
            &["A1", "A3"],
            &[],
        );
        check(
            "// A1\n#[tokio::test(start_paused = true)]\nasync fn a() {}\n",
            &["A1"],
            &[],
        );
    }

    #[test]
    fn other_comments_and_attributes_may_stand_between() {
        check(
            "// A1\n// A2\n// Because of the tide.\n/// Doc.\n#[expect(\n    x,\n    reason = \"]\"\n)]\n\
             #[test]\n// Why.\n#[cfg(unix)]\nfn a() {}\n",
            &["A1", "A2"],
            &[],
        );
    }

    #[test]
    fn numbers_elsewhere_in_test_code_are_found() {
        let line = |line: usize| format!("{line}: {ELSEWHERE}");
        check("// A1\nfn helper() {}\n", &["A1"], &[&line(1)]);
        check("// A1\n#[inline]\nfn helper() {}\n", &["A1"], &[&line(1)]);
        check("// A1\n\n#[test]\nfn a() {}\n", &["A1"], &[&line(1)]);
        check(
            "#[test]\nfn a() {\n    // A1\n    b();\n}\n",
            &["A1"],
            &[&line(3)],
        );
        check("#[test]\n// A1\nfn a() {}\n", &["A1"], &[&line(2)]);
        check("// A1\n#[cfg(test)]\nmod a {}\n", &["A1"], &[&line(1)]);
        check("// A1\n", &["A1"], &[&line(1)]);
    }

    #[test]
    fn a_number_that_is_no_rule_is_found() {
        let finding = "1: A4 is no rule of docs/rules.md";
        check("// A1, A4\n#[test]\nfn a() {}\n", &["A1", "A4"], &[finding]);
    }

    #[test]
    fn numbers_in_another_form_are_found() {
        for form in [
            "// A1,A2",
            "//A1",
            "// A1 A2",
            "// A1.",
            "// B02",
            "// fault B2",
            "// A1 and A2",
        ] {
            check(
                &format!("{form}\n#[test]\nfn a() {{}}\n"),
                &[],
                &[&format!("1: {FORM}")],
            );
        }
    }

    #[test]
    fn prose_and_literals_name_nothing() {
        check(
            "// A1 says so.\n// A lock.\n#[test]\nfn a() {\n    b(\"\n// A1\n\")\n}\n",
            &[],
            &[],
        );
        check("let a = 1; // A1\n", &[], &[]);
    }

    #[test]
    fn code_that_is_no_test_code_is_left_alone() {
        check_in("a/src/a.rs", "// A1\nlet a = 1;\n", &[], &[]);
        let text = "// A1\nlet a = 1;\n#[cfg(test)]\nmod tests {\n    // A2\n    #[test]\n    fn a() {}\n}\n";
        check_in("a/src/a.rs", text, &["A2"], &[]);
    }

    #[test]
    fn a_function_of_the_conformance_suite_is_a_test() {
        let text = "// A1\n/// Doc.\npub fn a<S: Subject>(subject: &mut S) {}\n";
        check_in("chaos/src/conformance.rs", text, &["A1"], &[]);
        check_in("chaos/src/conformance/a.rs", text, &["A1"], &[]);
        check_in(
            "chaos/src/conformance.rs",
            "// A1\nstruct A;\n",
            &["A1"],
            &[&format!("1: {ELSEWHERE}")],
        );
    }
}
