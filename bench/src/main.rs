//! Counts and times the core beside its floors and its peers, in one run.
//!
//! A floor is the cheapest program that does the physically necessary work. Ratios are what counts:
//! absolute times move with the machine. Each figure is the least of several rounds, and the rounds of
//! floor, ours and peers take turns, so that a drift of the machine meets all of them.

mod floor;
mod ours;
mod peers;
mod report;
mod rounds;
mod rows;
mod sys;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut check = false;
    let mut json = None;
    let mut only = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--json" => json = arguments.next(),
            "--only" => only = arguments.next(),
            // What cargo itself passes to a benchmark.
            "--bench" => {}
            other => {
                eprintln!(
                    "bench: unknown argument {other}; known are --check, --json FILE, --only GROUP"
                );
                return ExitCode::from(2);
            }
        }
    }
    let mut rows = Vec::new();
    for (name, measure) in rows::GROUPS {
        if only.as_ref().is_none_or(|only| only == name) {
            rows.extend(measure());
        }
    }
    print!("{}", report::text(&rows));
    if let Some(file) = json
        && let Err(problem) = std::fs::write(&file, report::json(&rows))
    {
        eprintln!("bench: {file}: {problem}");
        return ExitCode::from(2);
    }
    let missed = rows.iter().filter(|row| row.misses_goal_twice()).count();
    if check && missed > 0 {
        eprintln!("bench: {missed} rows are beyond twice their goal");
        return ExitCode::from(1);
    }
    ExitCode::SUCCESS
}
