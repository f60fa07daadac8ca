//! What was asked for on the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use chaos::clock;
use chaos::scenario::{Scenario, Suite};
use clap::{Parser, ValueEnum};

/// How long a run takes if nobody says how many histories it should play.
const TIME: Duration = Duration::from_secs(60);

/// Without a limit of time.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Injects faults and checks that no rule of the leases is broken.
///
/// The sim suite plays seeded histories of a virtual machine room over the shipped core. The real
/// suite kills, stops and replaces processes of this machine, in namespaces of their own; what this
/// machine does not allow is listed as not run.
#[derive(Debug, Parser)]
#[command(
    name = "chaos",
    bin_name = "cargo xtask chaos",
    version,
    after_help = "Exit codes: 0 nothing violated, 1 something violated, 2 wrong usage, 3 not all was run or explored: this machine allows nothing of it, or it was interrupted, or it came to its limit."
)]
pub(crate) struct Options {
    /// Which suite to run
    #[arg(long, value_enum, default_value_t = Suites::All)]
    suite: Suites,

    /// The seed of the first history; the next one has the next number. Without it one is drawn and shown
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How many histories each seeded scenario plays; without it as many as the time allows
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,

    /// How long the run may take, for example 90s, 5m or 500ms; scenarios that play no seeds run to their end all
    /// the same, which takes some ten seconds for all of them; a number alone counts seconds [default: 60s, or no limit with --seeds]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,

    /// Runs only this scenario; may be given several times
    #[arg(long = "scenario", value_name = "NAME")]
    pub(crate) scenarios: Vec<String>,

    /// Explores every short history of the core instead, up to the depth of each world; --scenario
    /// then names a world
    #[arg(long, conflicts_with_all = ["suite", "seed", "seeds"])]
    pub(crate) model: bool,

    /// Plants one fault after the other in the core instead, and says which law finds it; --scenario
    /// then names a fault
    #[arg(long, conflicts_with_all = ["model", "suite", "seed", "seeds", "depth", "time"])]
    pub(crate) falsify: bool,

    /// With --model: no history longer than this
    #[arg(long, value_name = "STEPS", requires = "model")]
    pub(crate) depth: Option<u32>,

    /// Lists the scenarios and runs none
    #[arg(long)]
    pub(crate) list: bool,

    /// Writes a record of the run to this file
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suites {
    Sim,
    Real,
    All,
}

/// What will be run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) seed: u64,
    pub(crate) seeds: Option<u64>,
    pub(crate) time: Duration,
    /// What repeats this run.
    pub(crate) command: String,
}

impl Options {
    /// Reads the arguments, without the program's name.
    pub(crate) fn read(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(std::iter::once(OsString::from("chaos")).chain(arguments))
    }

    /// Chooses from all scenarios.
    pub(crate) fn plan(&self, all: Vec<Scenario>) -> Result<Plan, String> {
        let in_suite = |scenario: &Scenario| match self.suite {
            Suites::All => true,
            Suites::Sim => scenario.suite == Suite::Sim,
            Suites::Real => scenario.suite == Suite::Real,
        };
        let mut scenarios: Vec<_> = all.into_iter().filter(in_suite).collect();
        for name in &self.scenarios {
            if !scenarios.iter().any(|scenario| scenario.name == name) {
                let suite = self.suite_name();
                return Err(format!(
                    "no scenario `{name}` in suite `{suite}`; `cargo xtask chaos --list` shows all"
                ));
            }
        }
        if !self.scenarios.is_empty() {
            scenarios.retain(|scenario| self.scenarios.iter().any(|name| name == scenario.name));
        }
        // Below a million, so that a person can type it.
        let seed = self.seed.unwrap_or_else(|| clock::arbitrary() % 1_000_000);
        let time = match (self.time, self.seeds) {
            (Some(time), _) => time,
            (None, Some(_)) => FOREVER,
            (None, None) => TIME,
        };
        Ok(Plan {
            scenarios,
            seed,
            seeds: self.seeds,
            time,
            command: self.repeated(seed),
        })
    }

    fn suite_name(&self) -> &'static str {
        match self.suite {
            Suites::All => "all",
            Suites::Sim => "sim",
            Suites::Real => "real",
        }
    }

    /// The command that repeats a run of these options from `seed`.
    fn repeated(&self, seed: u64) -> String {
        let mut words = vec!["cargo xtask chaos".to_owned()];
        if self.suite != Suites::All {
            words.push(format!("--suite {}", self.suite_name()));
        }
        words.extend(
            self.scenarios
                .iter()
                .map(|name| format!("--scenario {name}")),
        );
        words.push(format!("--seed {seed}"));
        words.extend(self.seeds.map(|seeds| format!("--seeds {seeds}")));
        words.extend(
            self.time
                .map(|time| format!("--time {}ms", time.as_millis())),
        );
        words.join(" ")
    }
}

/// Reads `90s`, `5m`, `500ms` or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_not_a_number| "expected a number with a unit, for example 60s".to_owned())?;
    let span = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" | "" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3_600).map(Duration::from_secs),
        _ => return Err(format!("`{unit}` is no unit; there are ms, s, m and h")),
    };
    match span {
        Some(span) if span.is_zero() => Err("no time at all".to_owned()),
        Some(span) if span <= FOREVER => Ok(span),
        Some(_) | None => Err("more than a year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[track_caller]
    fn refuses(arguments: &[&str]) {
        let read = Options::read(arguments.iter().map(OsString::from).collect());
        let error = read.expect_err("it was read");
        assert_eq!(error.exit_code(), 2, "{error}");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_would_change_nothing_is_refused() {
        refuses(&["--falsify", "--depth", "2"]);
        refuses(&["--falsify", "--time", "1s"]);
        refuses(&["--depth", "2"]);
        refuses(&["--list", "--json", "file"]);
        refuses(&["--model", "--list", "--json", "file"]);
        refuses(&["--model", "--seed", "1"]);
    }
}
