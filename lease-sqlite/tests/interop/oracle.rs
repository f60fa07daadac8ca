//! Who was inside, from the log that everybody inside writes at the guarded resource. It knows nothing of locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::rig::Place;

/// Every round, in the order in which it was entered.
#[derive(Debug)]
pub(crate) struct Rounds {
    by: Vec<String>,
    /// How many never left.
    pub(crate) unfinished: usize,
}

/// Reads the log. Panics if somebody entered before the one before had left, unless that one was killed inside.
#[track_caller]
pub(crate) fn rounds(place: &Place, killed: &BTreeSet<String>) -> Rounds {
    let log = fs::read_to_string(place.log()).unwrap();
    judge(&log, killed).unwrap_or_else(|why| panic!("{why}"))
}

fn judge(log: &str, killed: &BTreeSet<String>) -> Result<Rounds, String> {
    let mut inside: Option<(&str, &str)> = None;
    let mut by = Vec::new();
    let mut left = 0;
    for (at, line) in (1..).zip(log.lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["enter", name, number] => {
                if let Some((other, _)) = inside.filter(|(other, _)| !killed.contains(*other)) {
                    return Err(format!("line {at}: {name} meets {other} inside"));
                }
                inside = Some((name, number));
                by.push(name.to_owned());
            }
            ["leave", name, number] => {
                if inside != Some((name, number)) {
                    return Err(format!(
                        "line {at}: {name} leaves where {inside:?} is inside"
                    ));
                }
                inside = None;
                left += 1;
            }
            _ => return Err(format!("line {at}: {line:?} says nothing")),
        }
    }
    match inside {
        Some((name, _)) if !killed.contains(name) => Err(format!("{name} is still inside")),
        _ => Ok(Rounds {
            unfinished: by.len() - left,
            by,
        }),
    }
}

impl Rounds {
    pub(crate) const fn count(&self) -> usize {
        self.by.len()
    }

    /// How many rounds each writer had.
    pub(crate) fn each(&self) -> BTreeMap<&str, usize> {
        let mut each = BTreeMap::new();
        for name in &self.by {
            *each.entry(name.as_str()).or_default() += 1;
        }
        each
    }

    /// The most rounds in a row of one side, counted from the first round of the other one.
    pub(crate) fn longest_run_between(&self, side: &str, other: &str) -> usize {
        let first = self.by.iter().position(|name| name.starts_with(other));
        let by = self.by[first.unwrap_or(0)..].to_vec();
        let rounds = Self { by, unfinished: 0 };
        rounds.longest_run(side)
    }

    /// The most rounds in a row of one side, counted only while the other still has some to come.
    pub(crate) fn longest_run(&self, side: &str) -> usize {
        let is_other = |name: &String| !name.starts_with(side);
        let wanted = self.by.iter().rposition(is_other).unwrap_or(0);
        let runs = self.by[..wanted].split(is_other);
        runs.map(<[String]>::len).max().unwrap_or(0)
    }
}

#[test]
fn a_meeting_inside_is_seen_and_a_killed_one_is_not_met() {
    let met = "enter a 0\nenter b 0\nleave b 0\nleave a 0\n";
    let nobody = BTreeSet::new();
    let why = judge(met, &nobody).unwrap_err();
    assert_eq!(why, "line 2: b meets a inside");
    let killed = BTreeSet::from(["a".to_owned()]);
    // The one that was killed cannot have left afterwards.
    assert!(judge(met, &killed).is_err());
    let after = "enter a 0\nenter b 0\nleave b 0\n";
    let rounds = judge(after, &killed).unwrap();
    assert_eq!((rounds.count(), rounds.unfinished), (2, 1));
    assert!(judge(after, &nobody).is_err());
    assert!(judge("enter a 0\n", &nobody).is_err());
    assert!(judge("enter a 0\nleave a 1\n", &nobody).is_err());
}

#[test]
fn a_run_counts_only_while_the_other_side_has_rounds_to_come() {
    let by = ["a1", "a2", "b1", "a1", "b1", "a1", "a1", "a1"].map(str::to_owned);
    let rounds = Rounds {
        by: by.to_vec(),
        unfinished: 0,
    };
    assert_eq!((rounds.longest_run("a"), rounds.longest_run("b")), (2, 1));
    assert_eq!(
        rounds.each(),
        BTreeMap::from([("a1", 5), ("a2", 1), ("b1", 2)])
    );
}
