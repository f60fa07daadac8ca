//! The log of the storm at a write lock, and the oracle over it.
//!
//! Everybody appends a line: who came in, wrote and left, by which mutex, and what was damaged when.

use std::collections::BTreeMap;

use super::story::{Count, Rule, Story};

/// Which writers were killed, and how many lines there were just before.
pub(super) type Killed = BTreeMap<String, usize>;

/// A hold that is open in the log.
#[derive(Debug)]
struct Open<'a> {
    name: &'a str,
    inode: &'a str,
    /// How often it wrote after another one had come in, or after its mutex had gone.
    late: u32,
}

/// What the log shows of what the storm is for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) entered: u64,
    pub(super) killed_inside: u64,
    pub(super) records: u64,
}

/// Judges the log line by line, and says what it shows.
///
/// Two holds of one mutex never overlap. Where the directory was swapped during a hold, that hold
/// ends at its next look: one write may already be on its way then.
pub(super) fn judge(story: &mut Story, lines: &[String], killed: &Killed) -> Seen {
    let mut log = Log {
        has_swaps: lines.iter().any(|line| line.starts_with("swap ")),
        ..Log::default()
    };
    for (at, line) in lines.iter().enumerate() {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or("");
        let (Some(name), Some(inode)) = (words.next(), words.next()) else {
            story.violated(Rule::ScenarioEnds, line);
            continue;
        };
        match verb {
            "enter" => {
                log.close(|name| killed.get(name).is_some_and(|lines| *lines <= at));
                log.enter(story, at, line, (name, inode));
            }
            "write" => {
                story.count(Count::Writes, 1);
                let is_let_in = log.is_let_in(name);
                story.check(Rule::HoldsDoNotOverlap, is_let_in, || {
                    format!("line {at}: {line} beside its successor, or after its mutex had gone")
                });
            }
            "leave" | "lost" => {
                story.count(Count::Lost, u64::from(verb == "lost"));
                log.open.retain(|hold| hold.name != name);
            }
            "signed" | "unsigned" => {
                log.seen.records = log.seen.records.saturating_add(1);
                story.check(Rule::RecordNamesTheHolder, verb == "signed", || {
                    line.clone()
                });
            }
            "claim" => log.beside_claim = Some(Vec::new()),
            "unclaim" => log.beside_claim = None,
            "swap" => {}
            "swapped" => log.gone_mutexes.push(inode),
            _ => trouble(story, verb, line, log.has_swaps),
        }
    }
    log.seen
}

/// What was read so far.
#[derive(Debug, Default)]
struct Log<'a> {
    open: Vec<Open<'a>>,
    seen: Seen,
    /// The mutexes that went with their directory.
    gone_mutexes: Vec<&'a str>,
    /// Those of which somebody came in beside a claim, while there is one.
    beside_claim: Option<Vec<&'a str>>,
    /// Whether the directory was swapped at any time.
    has_swaps: bool,
}

impl<'a> Log<'a> {
    /// The holds of the dead are over.
    fn close(&mut self, is_dead: impl Fn(&str) -> bool) {
        let before = self.open.len();
        self.open.retain(|hold| !is_dead(hold.name));
        let gone = u64::try_from(before.saturating_sub(self.open.len())).unwrap_or(0);
        self.seen.killed_inside = self.seen.killed_inside.saturating_add(gone);
    }

    /// Somebody comes in.
    fn enter(
        &mut self,
        story: &mut Story,
        at: usize,
        line: &str,
        (name, inode): (&'a str, &'a str),
    ) {
        let has_swaps = self.has_swaps;
        self.seen.entered = self.seen.entered.saturating_add(1);
        if let Some(mutexes) = &mut self.beside_claim {
            // Whoever had looked at the record before the claim came was let in: one, and one more
            // who held the mutex of the directory before.
            let is_honoured = mutexes.is_empty() || (has_swaps && !mutexes.contains(&inode));
            story.check(Rule::ClaimIsHonoured, is_honoured, || {
                format!("line {at}: {line} beside a claim, and others of {mutexes:?} before")
            });
            mutexes.push(inode);
        }
        let mut open = self.open.iter();
        let is_alone = open.all(|hold| hold.inode != inode && has_swaps);
        story.check(Rule::HoldsDoNotOverlap, is_alone, || {
            format!("line {at}: {line} while another one held")
        });
        self.open.push(Open {
            name,
            inode,
            late: 0,
        });
    }

    /// Whether a write is one of the newest hold, whose mutex is there, or the only late one of another hold.
    fn is_let_in(&mut self, name: &str) -> bool {
        let is_newest = self.open.last().is_some_and(|hold| hold.name == name);
        let hold = self.open.iter_mut().find(|hold| hold.name == name);
        hold.is_some_and(|hold| {
            let is_late = !is_newest || self.gone_mutexes.contains(&hold.inode);
            hold.late = hold.late.saturating_add(u32::from(is_late));
            hold.late <= 1
        })
    }
}

/// Judges a line that tells of nothing good.
fn trouble(story: &mut Story, verb: &str, line: &str, has_swaps: bool) {
    match verb {
        "unseen" => story.violated(Rule::GrantIsTheKernels, line),
        "kept" => story.violated(Rule::RefusalHoldsNothing, line),
        "starved" => story.violated(Rule::NobodyStarves, line),
        "error" | "unreleased" => {
            // Between the two directories there is none.
            story.check(Rule::ErrorHasACause, has_swaps, || line.to_owned());
            if has_swaps {
                story.note(format!(
                    "no violation, as the directory was swapped: {line}"
                ));
            }
            story.count(Count::Errors, 1);
        }
        _ => story.violated(Rule::ScenarioEnds, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str], killed: &[(&str, usize)]) -> Vec<&'static str> {
        let mut story = Story::default();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let killed = killed.iter().map(|(name, at)| ((*name).to_owned(), *at));
        judge(&mut story, &lines, &killed.collect());
        story.rules()
    }

    #[test]
    fn the_oracle_can_fail() {
        let overlap = Rule::HoldsDoNotOverlap.name();
        assert_eq!(
            judged(&["enter a 1", "write a 1", "leave a 1", "enter b 1"], &[]),
            [""; 0]
        );
        assert_eq!(judged(&["enter a 1", "enter b 1"], &[]), [overlap]);
        assert_eq!(judged(&["enter a 1", "enter b 1"], &[("a", 1)]), [""; 0]);
        assert_eq!(judged(&["enter a 1", "enter b 1"], &[("a", 2)]), [overlap]);
        assert_eq!(judged(&["enter a 1", "enter b 2"], &[]), [overlap]);
        let swapped = [
            "swap story 0",
            "enter a 1",
            "enter b 2",
            "write a 1",
            "lost a 1",
        ];
        assert_eq!(judged(&swapped, &[]), [""; 0]);
        let twice = [
            "swap story 0",
            "enter a 1",
            "enter b 2",
            "write a 1",
            "write a 1",
        ];
        assert_eq!(judged(&twice, &[]), [overlap]);
        let unnoticed = [
            "enter a 1",
            "swap story 0",
            "swapped story 1",
            "write a 1",
            "write a 1",
        ];
        assert_eq!(judged(&unnoticed[..4], &[]), [""; 0]);
        assert_eq!(judged(&unnoticed, &[]), [overlap]);
        assert_eq!(
            judged(&["unseen a 0"], &[]),
            [Rule::GrantIsTheKernels.name()]
        );
        assert_eq!(judged(&["signed a 0"], &[]), [""; 0]);
        assert_eq!(
            judged(&["unsigned a 0"], &[]),
            [Rule::RecordNamesTheHolder.name()]
        );
        assert_eq!(
            judged(&["kept a 0 Busy"], &[]),
            [Rule::RefusalHoldsNothing.name()]
        );
        assert_eq!(
            judged(&["starved a 0 Busy"], &[]),
            [Rule::NobodyStarves.name()]
        );
        assert_eq!(
            judged(&["error a 0 Io"], &[]),
            [Rule::ErrorHasACause.name()]
        );
        assert_eq!(judged(&["write a 1"], &[]), [overlap]);
        let claimed = ["claim story 0", "enter a 1", "leave a 1", "enter b 1"];
        assert_eq!(judged(&claimed, &[]), [Rule::ClaimIsHonoured.name()]);
        assert_eq!(judged(&claimed[..3], &[]), [""; 0]);
    }

    #[test]
    fn who_held_the_mutex_of_the_directory_before_may_come_in_beside_a_claim_too() {
        let claimed = |second: &'static str| {
            [
                "swap story 0",
                "claim story 0",
                "enter a 1",
                "leave a 1",
                second,
            ]
        };
        assert_eq!(judged(&claimed("enter b 2"), &[]), [""; 0]);
        let rule = Rule::ClaimIsHonoured.name();
        assert_eq!(judged(&claimed("enter b 1"), &[]), [rule]);
    }
}
