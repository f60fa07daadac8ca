//! Every rule of `docs/rules.md` is named above the test that decides it, or exempted with a reason.

mod exemptions;
mod naming;
mod rule;

use std::collections::BTreeMap;

use self::exemptions::Exemptions;
use self::rule::Rule;
use super::{Finding, Tree, numbered};

/// The list of all rules.
const RULES: &str = "docs/rules.md";

/// The list of those that have no test yet.
const EXEMPTIONS: &str = "docs/exemptions.toml";

/// The rules with the line on which each stands.
type Catalogue = BTreeMap<Rule, usize>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(rules), Some(exemptions)) = (tree.text(RULES), tree.text(EXEMPTIONS)) else {
        let what = format!("{RULES} and {EXEMPTIONS} must both be there");
        return vec![Finding::new(RULES, 1, what)];
    };
    let mut findings = Vec::new();
    let catalogue = catalogue(rules, &mut findings);
    let named = naming::named(tree, &catalogue, &mut findings);
    let exemptions = Exemptions::read(exemptions, &catalogue, &mut findings);
    for (rule, line) in exemptions.iter() {
        if named.contains(&rule) {
            let what = format!("{rule} is named above a test: take it out here");
            findings.push(Finding::new(EXEMPTIONS, line, what));
        }
    }
    for (&rule, &line) in &catalogue {
        if !named.contains(&rule) && !exemptions.contains(rule) {
            let what = format!("{rule} is named above no test and has no exemption");
            findings.push(Finding::new(RULES, line, what));
        }
    }
    findings
}

/// Reads the lines `- **A20** ..` and `- **fault B07** ..`.
fn catalogue(text: &str, findings: &mut Vec<Finding>) -> Catalogue {
    let mut catalogue = Catalogue::new();
    for (line, words) in numbered(text) {
        let Some((name, rest)) = words
            .strip_prefix("- **")
            .and_then(|words| words.split_once("**"))
        else {
            continue;
        };
        if let Some(what) = add(&mut catalogue, name, rest, line) {
            findings.push(Finding::new(RULES, line, what));
        }
    }
    if catalogue.is_empty() {
        findings.push(Finding::new(RULES, 1, "lists no rule"));
    }
    catalogue
}

/// Adds one entry, or says what is wrong with it.
fn add(catalogue: &mut Catalogue, name: &str, rest: &str, line: usize) -> Option<String> {
    let Some(rule) = Rule::parse(name) else {
        let what = format!("`{name}` is no number in the form of `A20` or `fault B07`");
        return Rule::resembles(name).then_some(what);
    };
    if !rest.starts_with(' ') {
        return Some("no space after the number".to_owned());
    }
    let earlier = catalogue.insert(rule, line);
    earlier.map(|_| format!("{rule} is here twice"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check as check_files;
    use super::*;

    const TEST: &str = "lease-core/tests/it/a.rs";
    const TWO: &str = "# Rules\n\n- **A1** One.\n- **fault B02** Two.\n- **F1** A fact.\n";

    /// Checks this list, test file and list of exemptions.
    #[track_caller]
    fn check_three(rules: &str, test: &str, exemptions: &str, expected: &[&str]) {
        let files = [(RULES, rules), (TEST, test), (EXEMPTIONS, exemptions)];
        check_files(check, &files, expected);
    }

    #[test]
    fn a_rule_is_covered_by_a_test_or_by_an_exemption() {
        let exempt = "[[exempt]]\nrules = [\"fault B02\"]\nreason = \"later\"\n";
        check_three(TWO, "// A1\n#[test]\nfn a() {}\n", exempt, &[]);
        check_three(TWO, "// A1, fault B02\n#[test]\nfn a() {}\n", "", &[]);
    }

    #[test]
    fn a_rule_without_either_is_found_at_its_line() {
        check_three(
            TWO,
            "",
            "",
            &[
                "docs/rules.md:3: A1 is named above no test and has no exemption",
                "docs/rules.md:4: fault B02 is named above no test and has no exemption",
            ],
        );
    }

    #[test]
    fn an_exemption_of_a_named_rule_is_stale() {
        check_three(
            TWO,
            "// A1, fault B02\n#[test]\nfn a() {}\n",
            "[[exempt]]\nrules = [\"A1\"]\nreason = \"later\"\n",
            &["docs/exemptions.toml:2: A1 is named above a test: take it out here"],
        );
    }

    #[test]
    fn a_list_of_rules_is_well_formed_and_there() {
        check_three(
            "- **A1** One.\n- **A1** One.\n- **A2**: two\n- **A03** three\n- **Also** four\n",
            "// A1\n#[test]\nfn a() {}\n",
            "",
            &[
                "docs/rules.md:2: A1 is here twice",
                "docs/rules.md:3: no space after the number",
                "docs/rules.md:4: `A03` is no number in the form of `A20` or `fault B07`",
            ],
        );
        check_three("", "", "", &["docs/rules.md:1: lists no rule"]);
        let expected =
            ["docs/rules.md:1: docs/rules.md and docs/exemptions.toml must both be there"];
        check_files(check, &[(RULES, TWO)], &expected);
    }
}
