//! The program behind `cargo xtask chaos`.
//!
//! Exit codes: 0 nothing violated, 1 something violated, 2 wrong usage, 3 not all was run or explored.

mod explore;
mod interrupt;
mod options;
mod record;
mod run;
mod summary;
mod terminal;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use self::options::{Options, Plan};
use self::record::Record;
use self::summary::Tally;

/// Something is violated.
const VIOLATED: u8 = 1;
/// The arguments are wrong.
const USAGE: u8 = 2;
/// Nothing could be run, a run was interrupted, or an exploration stopped at its limit.
const NOT_ALL: u8 = 3;

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
    if options.model || options.falsify {
        return explore::start(options);
    }
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
    let called_off = match interrupt::listen() {
        Ok(called_off) => called_off,
        Err(problem) => return refuse(&format!("cannot listen to signals: {problem}")),
    };
    let runs = run::all(plan, called_off);
    let text = summary::text(plan, &runs);
    let written = record.map(|record| record.write(plan, &runs)).transpose();
    let printed = io::stdout().write_all(text.as_bytes());
    if let Err(problem) = written {
        return refuse(&problem.to_string());
    }
    let is_whole = !called_off.load(Ordering::Relaxed);
    ExitCode::from(code(Tally::of(&runs), is_whole, printed.is_ok()))
}

/// What the shell is told.
const fn code(tally: Tally, is_whole: bool, printed: bool) -> u8 {
    if tally.failed > 0 {
        VIOLATED
    } else if tally.passed == 0 || !is_whole {
        NOT_ALL
    } else if printed {
        0
    } else {
        // Nobody saw that it passed.
        VIOLATED
    }
}

fn refuse(problem: &str) -> ExitCode {
    // Nobody is left to tell if this fails, too.
    let _unheard = writeln!(io::stderr(), "error: {problem}");
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check([passed, failed, not_run]: [usize; 3], expected: u8) {
        let tally = Tally {
            passed,
            failed,
            not_run,
        };
        assert_eq!(code(tally, true, true), expected);
    }

    #[test]
    fn the_exit_code_tells_what_came_of_a_run() {
        check([1, 0, 0], 0);
        check([1, 0, 5], 0);
        check([5, 1, 5], VIOLATED);
        check([0, 1, 0], VIOLATED);
        check([0, 0, 5], NOT_ALL);
        check([0, 0, 0], NOT_ALL);
        let tally = Tally {
            passed: 1,
            ..Tally::default()
        };
        assert_eq!(code(tally, true, false), VIOLATED);
        assert_eq!(code(tally, false, true), NOT_ALL, "it was interrupted");
    }
}
