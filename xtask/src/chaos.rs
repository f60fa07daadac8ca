//! `cargo xtask chaos`: the fault injector, built in release.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};

use crate::problem::Problem;
use crate::workspace::{Workspace, spoken};

/// Runs the fault injector and passes on its exit code.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Problem> {
    become_it(as_asked(workspace, arguments))
}

/// The call with the arguments of whoever asks, where that is: files are named from there, which need not be
/// the root of the workspace.
fn as_asked(workspace: &Workspace, arguments: &[OsString]) -> Command {
    let mut command = with_features(workspace, features(arguments));
    command
        .args(arguments)
        .stdin(Stdio::inherit())
        .current_dir(".");
    command
}

/// Goes on as the command, so that a signal meets the fault injector and nobody in between.
#[cfg(unix)]
fn become_it(mut command: Command) -> Result<ExitCode, Problem> {
    use std::os::unix::process::CommandExt as _;

    let error = command.exec();
    Err(Problem::caused(spoken(&command))(error))
}

#[cfg(not(unix))]
fn become_it(mut command: Command) -> Result<ExitCode, Problem> {
    let status = command
        .status()
        .map_err(Problem::caused(spoken(&command)))?;
    Ok(code(status.code()))
}

/// The call without the arguments of the fault injector: the same build as that of `cargo xtask chaos`, with
/// every scenario. The storm at a write lock blows until it has seen enough, for two or three seconds.
pub(crate) fn command(workspace: &Workspace) -> Command {
    with_features(workspace, features(&[]))
}

fn with_features(workspace: &Workspace, features: &str) -> Command {
    let mut command = workspace.cargo(["run", "--release", "--package", "chaos", "--bin", "chaos"]);
    command
        .arg("--manifest-path")
        .arg(workspace.root().join("Cargo.toml"));
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    command.arg("--");
    command
}

/// What the arguments need besides what is always there. The model checker is large, planted faults
/// must be in no other build, and SQLite is compiled only where its scenarios may run.
fn features(arguments: &[OsString]) -> &'static str {
    let has = |flag| arguments.iter().any(|argument| argument == flag);
    match (has("--falsify"), has("--model")) {
        (true, _) => "model,falsify",
        (false, true) => "model",
        (false, false) if is_sim_only(arguments) => "",
        (false, false) => "sqlite",
    }
}

/// Whether no real scenario is run: it is the other suite, or the help that is asked for.
fn is_sim_only(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter();
    let mut pairs = arguments.windows(2);
    words.any(|word| word == "--suite=sim" || word == "--help" || word == "-h")
        || pairs.any(|pair| pair == ["--suite", "sim"])
}

/// A program that a signal ended has no code: that is a failure.
#[cfg(not(unix))]
fn code(code: Option<i32>) -> ExitCode {
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(unix))]
    #[track_caller]
    fn check(seen: Option<i32>, passed_on: u8) {
        // `ExitCode` has no equality.
        let expected = format!("{:?}", ExitCode::from(passed_on));
        assert_eq!(format!("{:?}", code(seen)), expected);
    }

    #[test]
    fn the_model_checker_is_built_in_only_where_it_is_asked_for() {
        let features =
            |words: &[&str]| features(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for without_sqlite in [
            ["--suite", "sim"],
            ["--seed=1", "--suite=sim"],
            ["-h", "--help"],
        ] {
            assert_eq!(features(&without_sqlite), "");
        }
        assert_eq!(features(&["--suite", "real"]), "sqlite");
        assert_eq!(features(&[]), "sqlite");
        assert_eq!(features(&["--json", "file", "--model"]), "model");
        assert_eq!(features(&["--falsify"]), "model,falsify");
    }

    #[test]
    fn a_short_run_has_the_scenarios_of_the_write_lock() {
        let command = command(&Workspace::find().unwrap());
        assert!(command.get_args().any(|word| word == "sqlite"));
    }

    #[test]
    fn a_file_is_named_from_the_folder_of_whoever_asks() {
        let workspace = Workspace::find().unwrap();
        let arguments = ["--json", "run.json"].map(OsString::from);
        let command = as_asked(&workspace, &arguments);
        assert_eq!(command.get_current_dir(), Some(".".as_ref()));
        assert!(command.get_args().any(|word| word == "run.json"));
    }

    #[cfg(not(unix))]
    #[test]
    fn the_exit_code_is_passed_on_and_a_signal_is_a_failure() {
        check(Some(0), 0);
        check(Some(3), 3);
        check(Some(101), 101);
        check(None, 1);
    }
}
