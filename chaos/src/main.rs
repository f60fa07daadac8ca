//! The program behind `cargo xtask chaos`.
//!
//! Exit codes: 0 nothing violated, 1 something violated, 2 wrong usage, 3 nothing could be run.

mod options;
mod record;
mod run;
mod summary;
mod terminal;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use self::options::{Options, Plan};
use self::record::Record;

/// Something is violated.
const VIOLATED: u8 = 1;
/// The arguments are wrong.
const USAGE: u8 = 2;
/// Nothing could be run.
const NOTHING_RUN: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The real scenarios start this program again, as one of their processes.
    if let Some(code) = chaos::real::role(&arguments) {
        return code;
    }
    match Options::read(arguments) {
        Ok(options) => start(&options),
        Err(error) => {
            // Help and version are printed this way, too, and are no errors.
            let code = u8::try_from(error.exit_code()).unwrap_or(USAGE);
            match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_broken_pipe) => ExitCode::from(USAGE),
            }
        }
    }
}

fn start(options: &Options) -> ExitCode {
    let plan = match options.plan(chaos::scenarios()) {
        Ok(plan) => plan,
        Err(problem) => return refuse(&problem),
    };
    if options.list {
        return match io::stdout().write_all(summary::list(&plan).as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_broken_pipe) => ExitCode::from(USAGE),
        };
    }
    // A file that cannot be written is found before anything is run, not after a minute.
    let record = match options.json.as_deref().map(Record::create).transpose() {
        Ok(record) => record,
        Err(problem) => return refuse(&problem.to_string()),
    };
    conclude(&plan, record)
}

/// Runs what was planned, and says what came of it.
fn conclude(plan: &Plan, record: Option<Record>) -> ExitCode {
    let runs = run::all(plan);
    let text = summary::text(plan, &runs);
    let written = record.map(|record| record.write(plan, &runs)).transpose();
    let printed = io::stdout().write_all(text.as_bytes());
    if let Err(problem) = written {
        return refuse(&problem.to_string());
    }
    let tally = summary::Tally::of(&runs);
    match (printed, tally) {
        (_, tally) if tally.failed > 0 => ExitCode::from(VIOLATED),
        (_, tally) if tally.passed == 0 => ExitCode::from(NOTHING_RUN),
        (Ok(()), _) => ExitCode::SUCCESS,
        (Err(_broken_pipe), _) => ExitCode::from(VIOLATED),
    }
}

fn refuse(problem: &str) -> ExitCode {
    // Nobody is left to tell if this fails, too.
    let _unheard = writeln!(io::stderr(), "error: {problem}");
    ExitCode::from(USAGE)
}
