//! Runs every check and job of this workspace: `cargo xtask <command>`.
//!
//! Exit codes: 0 all good, 1 a check failed, 2 wrong usage, 3 called off by a signal, which ends what was
//! running, too. `chaos` passes on the code of the program it runs.

mod bench;
mod chaos;
mod child;
mod ci;
mod count;
mod elsewhere;
mod needs;
mod not_run;
mod problem;
mod proof;
#[cfg(test)]
#[expect(
    dead_code,
    reason = "what the test programs of the crates call is not called here"
)]
mod rig;
mod say;
mod test;
mod tidy;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::problem::Problem;
use crate::workspace::Workspace;

/// Runs every check and job of this workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds the fault injector in release and runs it with the arguments given.
    #[command(disable_help_flag = true)]
    Chaos {
        /// Passed on as they are; `--help` too.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Runs every test and lists the checks that this machine does not allow.
    Test {
        /// Counts a check as failed when it was not run though this machine has what it needs.
        #[arg(long)]
        strict: bool,
    },
    /// Runs the quick checks in order: lock files, format, lints, docs, tests, every order of threads at a
    /// hand-over, tidy, the core without std, a short chaos run.
    Ci {
        /// Leaves out the tests, for a caller that runs `test --strict` as well.
        #[arg(long)]
        no_tests: bool,
    },
    /// Runs the benchmarks, beside floors and peers of the same run.
    Bench {
        /// Ends with 1 when a number is beyond twice its goal.
        #[arg(long)]
        check: bool,
        /// Writes the numbers into this file too.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Measures only this group of rows, such as `c2`; a wrong name lists all.
        #[arg(long, value_name = "GROUP")]
        only: Option<String>,
    },
    /// Checks what no compiler checks: rule coverage, the direction of dependencies, bans by file, names in documents.
    Tidy,
}

/// The exit code after a signal, as the fault injector has it.
const CALLED_OFF: u8 = 3;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let code = match child::listen().and_then(|()| run(command)) {
        Ok(code) => code,
        Err(problem) => {
            problem.tell();
            ExitCode::FAILURE
        }
    };
    if child::is_called_off() {
        return ExitCode::from(CALLED_OFF);
    }
    code
}

fn run(task: Task) -> Result<ExitCode, Problem> {
    let workspace = Workspace::find()?;
    match task {
        Task::Chaos { arguments } => chaos::run(&workspace, &arguments),
        Task::Test { strict } => test::run(&workspace, strict),
        Task::Ci { no_tests } => ci::run(&workspace, no_tests),
        Task::Bench { check, json, only } => {
            bench::run(&workspace, check, json.as_deref(), only.as_deref())
        }
        Task::Tidy => tidy::run(&workspace),
    }
}

/// 0 when everything held, else 1.
fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn chaos_gets_every_argument_as_it_was_written() {
        let parsed = Arguments::parse_from(["xtask", "chaos", "--suite", "sim", "--help", "-x"]);
        let Task::Chaos { arguments } = parsed.command else {
            panic!("parsed as {:?}", parsed.command);
        };
        assert_eq!(arguments, ["--suite", "sim", "--help", "-x"]);
    }

    #[test]
    fn an_unknown_command_is_wrong_usage() {
        let error = Arguments::try_parse_from(["xtask", "dance"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
