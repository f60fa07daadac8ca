//! The numbers themselves.

use core::fmt;

/// One rule, law, scenario or fault. Ordered as the list is: by letter, then by number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Rule {
    kind: Kind,
    number: u32,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Sessions,
    Processes,
    WriteLock,
    Laws,
    Scenarios,
    Faults,
}

const LETTERS: [(char, Kind); 5] = [
    ('A', Kind::Sessions),
    ('B', Kind::Processes),
    ('C', Kind::WriteLock),
    ('S', Kind::Scenarios),
    ('X', Kind::Laws),
];

impl Rule {
    /// Reads `A20` or `fault B07`; faults have two digits, the others no leading zero.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, digits) = match text.strip_prefix("fault B") {
            Some(digits) if digits.len() == 2 => (Kind::Faults, digits),
            Some(_) => return None,
            None => plain(text)?,
        };
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| *number > 0)?;
        is_number.then_some(Self { kind, number })
    }

    /// Whether somebody may have meant a number: `A3.`, `B05`, `fault 7`.
    pub(super) fn resembles(text: &str) -> bool {
        let word = text.trim_start_matches("fault").trim();
        let digits = word.trim_start_matches(|letter| "ABCSX".contains(letter));
        let is_short = word.len() <= digits.len().saturating_add(1);
        let digits = digits.trim_end_matches(|mark: char| mark.is_ascii_punctuation());
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_short && is_number && (word.len() > digits.len() || text.starts_with("fault"))
    }

    /// All from this to `last`, which must be of the same kind and not before it.
    pub(super) fn through(self, last: Self) -> Option<impl Iterator<Item = Self>> {
        let Self { kind, number } = self;
        let is_range = kind == last.kind && number <= last.number;
        is_range.then(|| (number..=last.number).map(move |number| Self { kind, number }))
    }
}

fn plain(text: &str) -> Option<(Kind, &str)> {
    LETTERS.iter().find_map(|(letter, kind)| {
        let digits = text.strip_prefix(*letter)?;
        (!digits.starts_with('0')).then_some((*kind, digits))
    })
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        let letter = LETTERS.iter().find(|(_, kind)| *kind == self.kind);
        match letter {
            Some((letter, _)) => write!(out, "{letter}{number}"),
            None => write!(out, "fault B{number:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_it_is_read() {
        for text in ["A1", "B117", "C10", "S55", "X3", "fault B07", "fault B58"] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_in_the_form_is_no_number() {
        for text in [
            "",
            "A",
            "A0",
            "A01",
            "D1",
            "A1b",
            "A+1",
            "fault B7",
            "fault A07",
            "fault B00",
            "B07",
        ] {
            assert_eq!(Rule::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_fault_is_not_the_rule_of_that_letter() {
        assert_ne!(Rule::parse("fault B34"), Rule::parse("B34"));
    }

    #[test]
    fn what_somebody_may_have_meant_is_told_from_words() {
        for text in ["A1", "A1.", "B07", "A1:", "fault 7", "fault B7"] {
            assert!(Rule::resembles(text), "{text}");
        }
        for text in ["", "A", "As", "7", "ABC1", "F1", "fault", "Also", "A1b"] {
            assert!(!Rule::resembles(text), "{text}");
        }
    }

    #[test]
    fn a_range_stays_within_its_kind() {
        let rule = |text: &str| Rule::parse(text).unwrap();
        let through = |first: &str, last: &str| {
            let range = rule(first).through(rule(last))?;
            Some(range.map(|rule| rule.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(through("A9", "A11").unwrap(), ["A9", "A10", "A11"]);
        assert_eq!(through("A9", "A9").unwrap(), ["A9"]);
        assert_eq!(through("A9", "A8"), None);
        assert_eq!(through("A9", "B10"), None);
    }
}
