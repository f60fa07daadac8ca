//! Counts and times the core beside its floors and its peers, in one run.
//!
//! A floor is the cheapest program that does the physically necessary work. Ratios are what counts:
//! absolute times move with the machine. Each figure is the least of several rounds, and the rounds of
//! floor, ours and peers take turns, so that a drift of the machine meets all of them.
#![expect(clippy::disallowed_methods, reason = "measures time")]

#[cfg(target_os = "linux")]
mod calls;
mod floor;
mod guards;
#[cfg(target_os = "linux")]
mod handover;
#[cfg(target_os = "linux")]
mod lock;
mod ours;
mod peers;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod raw;
mod report;
mod rounds;
mod rows;
mod sys;
mod telemetry;
#[cfg(target_os = "linux")]
mod ways;

use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;

use crate::report::Row;

/// A group of rows: its name, and what measures it.
type Group = (&'static str, fn() -> Vec<Row>);

/// What the command line asks for.
#[derive(Default)]
struct Options {
    check: bool,
    json: Option<String>,
    only: Option<String>,
    /// A work that is done and not timed, for who counts its system calls.
    work: Option<String>,
    units: u64,
}

fn main() -> ExitCode {
    let ended = options(std::env::args().skip(1)).and_then(|options| run(&options, &rows::GROUPS));
    match ended {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("bench: {missed} rows are beyond twice their goal");
            ExitCode::from(1)
        }
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::from(2)
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => options.check = true,
            "--json" => options.json = Some(arguments.next().ok_or("--json needs a FILE")?),
            "--work" => options.work = Some(arguments.next().ok_or("--work needs a NAME")?),
            "--units" => {
                let units = arguments.next().and_then(|units| units.parse().ok());
                options.units = units.ok_or("--units needs a NUMBER")?;
            }
            "--only" => options.only = Some(arguments.next().ok_or("--only needs a GROUP")?),
            // What cargo itself passes to a benchmark.
            "--bench" => {}
            other => {
                return Err(format!(
                    "unknown argument {other}; known are --check, --json FILE, --only GROUP"
                ));
            }
        }
    }
    Ok(options)
}

/// Does one work for who counts its system calls.
#[cfg(target_os = "linux")]
fn work(name: &str, units: u64) -> Result<usize, String> {
    let done = match name.split_once('/') {
        Some(("lock", name)) => lock::work(name, units),
        Some(("handover", name)) => handover::work(name, units),
        _ => process::work(name, units),
    };
    done.map(|()| 0)
}

#[cfg(not(target_os = "linux"))]
fn work(name: &str, _units: u64) -> Result<usize, String> {
    Err(format!("unknown work {name}"))
}

/// Measures, tells, and says how many rows a check found beyond twice their goal.
fn run(options: &Options, groups: &[Group]) -> Result<usize, String> {
    if let Some(name) = &options.work {
        return work(name, options.units);
    }
    if let Some(only) = &options.only
        && !groups.iter().any(|(name, _)| name == only)
    {
        // Nothing measured is nothing missed, and would pass every check.
        let names: Vec<_> = groups.iter().map(|(name, _)| *name).collect();
        return Err(format!("no group {only}; there are {}", names.join(", ")));
    }
    // Before the measuring: it takes minutes, which a wrong name would waste.
    let json = options.json.as_deref().map(create).transpose()?;
    let mut rows = Vec::new();
    for (name, measure) in groups {
        if options.only.as_ref().is_none_or(|only| only == name) {
            rows.extend(measure());
        }
    }
    print!("{}", report::text(&rows));
    if let Some((name, mut file)) = json {
        file.write_all(report::json(&rows).as_bytes())
            .map_err(|cause| format!("{name}: {cause}"))?;
    }
    let missed = rows.iter().filter(|row| row.misses_goal_twice()).count();
    Ok(if options.check { missed } else { 0 })
}

fn create(name: &str) -> Result<(&str, File), String> {
    File::create(name)
        .map(|file| (name, file))
        .map_err(|cause| format!("cannot write the numbers into {name}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_made_is_refused_before_anything_is_measured() {
        let words = ["--check", "--json", "/no-such-folder/x.json"];
        let options = options(words.map(str::to_owned).into_iter()).unwrap();
        let never: Group = ("never", || panic!("measured"));
        let problem = run(&options, &[never]).unwrap_err();
        assert!(
            problem.starts_with("cannot write the numbers into /no-such-folder/x.json: "),
            "{problem}"
        );
    }

    #[test]
    fn a_group_that_is_not_there_is_refused_and_passes_no_check() {
        let words = [
            "--check",
            "--only",
            "nevr",
            "--json",
            "/no-such-folder/x.json",
        ];
        let options = options(words.map(str::to_owned).into_iter()).unwrap();
        let never: Group = ("never", || panic!("measured"));
        let problem = run(&options, &[never]).unwrap_err();
        assert_eq!(problem, "no group nevr; there are never");
    }

    #[test]
    fn an_argument_without_its_value_is_refused() {
        let problem = options(["--json".to_owned()].into_iter()).err();
        assert_eq!(problem.as_deref(), Some("--json needs a FILE"));
    }
}
