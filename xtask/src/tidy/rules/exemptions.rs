//! The rules that have no test yet, each with a reason.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::rule::Rule;
use super::{Catalogue, EXEMPTIONS, Finding};

/// The exempted rules with the line on which each stands.
#[derive(Debug, Default)]
pub(super) struct Exemptions(BTreeMap<Rule, usize>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    exempt: Vec<Exempt>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exempt {
    /// Numbers such as `A20`, and ranges such as `B19-B62`.
    rules: Vec<Spanned<String>>,
    reason: Spanned<String>,
}

impl Exemptions {
    pub(super) fn read(text: &str, catalogue: &Catalogue, findings: &mut Vec<Finding>) -> Self {
        let mut find = |line, what: String| findings.push(Finding::new(EXEMPTIONS, line, what));
        let file: File = match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => {
                let start = error.span().map_or(0, |span| span.start);
                find(line_of(text, start), error.message().to_owned());
                return Self::default();
            }
        };
        let mut exemptions = Self::default();
        for exempt in &file.exempt {
            if exempt.reason.get_ref().trim().is_empty() {
                find(
                    line_of(text, exempt.reason.span().start),
                    "the reason is empty".to_owned(),
                );
            }
            for entry in &exempt.rules {
                let line = line_of(text, entry.span().start);
                match exemptions.add(entry.get_ref(), line, catalogue) {
                    Ok(()) => {}
                    Err(what) => find(line, what),
                }
            }
        }
        exemptions
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Rule, usize)> {
        self.0.iter().map(|(&rule, &line)| (rule, line))
    }

    pub(super) fn contains(&self, rule: Rule) -> bool {
        self.0.contains_key(&rule)
    }

    fn add(&mut self, entry: &str, line: usize, catalogue: &Catalogue) -> Result<(), String> {
        let (first, last) = ends(entry).ok_or_else(|| format!("`{entry}` is no rule or range"))?;
        for end in [first, last] {
            if !catalogue.contains_key(&end) {
                return Err(format!("{end} is no rule of {}", super::RULES));
            }
        }
        let range = first
            .through(last)
            .ok_or_else(|| format!("`{entry}` is no range"))?;
        // Some numbers were never given, so a range may have gaps.
        for rule in range.filter(|rule| catalogue.contains_key(rule)) {
            if self.0.insert(rule, line).is_some() {
                return Err(format!("{rule} is exempted twice"));
            }
        }
        Ok(())
    }
}

fn ends(entry: &str) -> Option<(Rule, Rule)> {
    let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
    Some((Rule::parse(first)?, Rule::parse(last)?))
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or_default();
    before.matches('\n').count().saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads exemptions with the rules A1, A2, A4, fault B02 and fault B05 in the list.
    #[track_caller]
    fn check(text: &str, expected: &[&str], findings: &[&str]) {
        let rules = ["A1", "A2", "A4", "fault B02", "fault B05"];
        let catalogue = rules
            .iter()
            .map(|rule| (Rule::parse(rule).unwrap(), 1))
            .collect();
        let mut found = Vec::new();
        let exemptions = Exemptions::read(text, &catalogue, &mut found);
        let exempted: Vec<String> = exemptions
            .iter()
            .map(|(rule, _)| rule.to_string())
            .collect();
        assert_eq!(exempted, expected);
        let found: Vec<String> = found
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect();
        assert_eq!(found, findings);
    }

    #[track_caller]
    fn check_rules(rules: &str, expected: &[&str], findings: &[&str]) {
        let text = format!("[[exempt]]\nrules = [{rules}]\nreason = \"later\"\n");
        check(&text, expected, findings);
    }

    #[test]
    fn numbers_and_ranges_are_read_over_gaps() {
        check_rules(
            "\"A1-A4\", \"fault B02\"",
            &["A1", "A2", "A4", "fault B02"],
            &[],
        );
        check_rules("\"fault B02-fault B05\"", &["fault B02", "fault B05"], &[]);
        check("", &[], &[]);
    }

    #[test]
    fn a_number_that_is_no_rule_is_found() {
        check_rules("\"A3\"", &[], &["2: A3 is no rule of docs/rules.md"]);
        check_rules("\n\"A1-A9\"", &[], &["3: A9 is no rule of docs/rules.md"]);
        check_rules("\"B2\"", &[], &["2: B2 is no rule of docs/rules.md"]);
        check_rules("\"some\"", &[], &["2: `some` is no rule or range"]);
        check_rules("\"A4-A1\"", &[], &["2: `A4-A1` is no range"]);
    }

    #[test]
    fn a_rule_is_exempted_once() {
        check_rules("\"A1\", \"A1-A2\"", &["A1"], &["2: A1 is exempted twice"]);
    }

    #[test]
    fn an_exemption_has_a_reason() {
        let text = "[[exempt]]\nrules = [\"A1\"]\nreason = \" \"\n";
        check(text, &["A1"], &["3: the reason is empty"]);
        check(
            "[[exempt]]\nrules = [\"A1\"]\n",
            &[],
            &["1: missing field `reason`"],
        );
    }
}
