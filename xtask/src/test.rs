//! `cargo xtask test`: every test, and an honest count of those that did not run.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::child::Running;
use crate::count::{Counts, Reading, Runner, has_doc_tests};
use crate::exit;
use crate::needs;
use crate::not_run::{self, settle};
use crate::problem::Problem;
use crate::say::say;
use crate::workspace::{Metadata, Workspace, spoken};

/// How long a process that a test left behind may keep the output open after its runner is gone.
const GRACE: Duration = Duration::from_secs(2);

/// What a feature leaves out is also tested without it: a package, its test program, and which tests.
const AS_SHIPPED: [(&str, &[&str]); 1] = [("lease-sqlite", &["it", "--", "fence::", "sweep::"])];

/// Runs every test; the counts are the last line.
pub(crate) fn run(workspace: &Workspace, strict: bool) -> Result<ExitCode, Problem> {
    let counts = run_all(workspace, strict)?;
    say(counts)?;
    Ok(exit(counts.failed == 0))
}

/// Runs every test, lists what was not run, and returns the counts.
pub(crate) fn run_all(workspace: &Workspace, strict: bool) -> Result<Counts, Problem> {
    let metadata = workspace.metadata()?;
    let file = not_run_file(&metadata.target_directory)?;
    let counts = run_runners(workspace, &metadata, &file);
    let not_run = not_run::read(&file);
    fs::remove_file(&file).map_err(Problem::caused(file.display()))?;
    let (counts, not_run) = (counts?, not_run?);

    let mut failed = 0_u64;
    if !not_run.is_empty() {
        say("checks that were not run:")?;
    }
    for check in &not_run {
        let judged = check.judge(&needs::probe(check.need()), strict);
        say(format_args!("  {}", judged.words))?;
        failed = failed.saturating_add(u64::from(judged.failed));
    }
    Ok(settle(counts, &not_run, failed))
}

/// An empty file of this run alone, that tests in other user namespaces can append to.
#[expect(
    clippy::disallowed_methods,
    reason = "a name for a file, not an identity"
)]
fn not_run_file(target: &Path) -> Result<PathBuf, Problem> {
    let file = target.join(format!("not-run-{}", std::process::id()));
    fs::create_dir_all(target)
        .and_then(|()| File::create(&file))
        .and_then(|_| open_to_all(&file))
        .map_err(Problem::caused(file.display()))?;
    Ok(file)
}

#[cfg(unix)]
fn open_to_all(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    fs::set_permissions(file, fs::Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn open_to_all(_file: &Path) -> std::io::Result<()> {
    Ok(())
}

fn run_runners(workspace: &Workspace, metadata: &Metadata, file: &Path) -> Result<Counts, Problem> {
    let mut counts = if workspace.has("nextest") {
        let arguments = ["nextest", "run", "--profile", "ci", "--no-fail-fast"];
        runner(workspace, &arguments, Runner::Nextest, file)?
    } else {
        say("cargo-nextest is not here: plain cargo test runs the tests, one at a time")?;
        let targets = [
            "test",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
            "--no-fail-fast",
        ];
        runner(workspace, &targets, Runner::CargoTest, file)?
    };
    if has_doc_tests(metadata) {
        let arguments = ["test", "--doc", "--no-fail-fast"];
        counts += runner(workspace, &arguments, Runner::CargoTest, file)?;
    }
    for (package, tests) in AS_SHIPPED {
        if metadata.packages.iter().any(|found| found.name == package) {
            let arguments = ["test", "--no-fail-fast", "--package", package, "--test"];
            let arguments = [&arguments, tests].concat();
            let part = run_with(workspace.cargo(&arguments), Runner::CargoTest, file)?;
            // The others ran above, with every feature: left out here is not skipped.
            counts += Counts { skipped: 0, ..part };
        }
    }
    Ok(counts)
}

fn runner(
    workspace: &Workspace,
    arguments: &[&str],
    runner: Runner,
    file: &Path,
) -> Result<Counts, Problem> {
    let mut command = workspace.cargo(arguments);
    command.args(["--workspace", "--all-features"]);
    run_with(command, runner, file)
}

fn run_with(mut command: Command, runner: Runner, file: &Path) -> Result<Counts, Problem> {
    command
        .env("INSTA_UPDATE", "no")
        .env_remove("INSTA_FORCE_PASS")
        .env(not_run::FILE, file);
    let counts = match runner {
        Runner::Nextest => watch(&mut command, runner, &mut stderr()),
        Runner::CargoTest => watch(&mut command, runner, &mut stdout()),
    };
    counts.map_err(Problem::caused(spoken(&command)))
}

/// Runs a runner, passes its output on line by line, and reads its closing lines.
fn watch(command: &mut Command, runner: Runner, to: &mut dyn Write) -> std::io::Result<Counts> {
    match runner {
        Runner::Nextest => command.stderr(Stdio::piped()),
        Runner::CargoTest => command.stdout(Stdio::piped()),
    };
    let mut running = Running::start(command)?;
    let child = running.child();
    let lines = match runner {
        Runner::Nextest => child.stderr.take().map(read_lines),
        Runner::CargoTest => child.stdout.take().map(read_lines),
    };
    let mut reading = Reading::new(runner);
    if let Some(lines) = lines {
        pass_on(|| running.has_ended(), &lines, to, &mut reading)?;
    }
    let success = running.wait()?.success();
    Ok(reading.end(success))
}

/// Reads in a thread of its own, so that a pipe kept open by somebody else holds nobody up.
fn read_lines(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if sender.send(core::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Ends when the output ends, or when the runner is gone and nothing came for a while.
fn pass_on(
    mut has_ended: impl FnMut() -> std::io::Result<bool>,
    lines: &Receiver<Vec<u8>>,
    to: &mut dyn Write,
    reading: &mut Reading,
) -> std::io::Result<()> {
    loop {
        match lines.recv_timeout(GRACE) {
            Ok(line) => {
                to.write_all(&line)?;
                reading.line(&String::from_utf8_lossy(&line));
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                if has_ended()? {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSING: &str =
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0s";

    #[track_caller]
    fn check(script: &str, expected: [u64; 3]) {
        // Not to the real output: there this closing line would be counted.
        let mut passed_on = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let counts = watch(&mut command, Runner::CargoTest, &mut passed_on).unwrap();
        assert_eq!(
            String::from_utf8(passed_on).unwrap(),
            format!("{CLOSING}\n")
        );
        assert_eq!([counts.passed, counts.failed, counts.skipped], expected);
    }

    #[test]
    fn the_closing_line_of_a_real_process_is_read() {
        check(&format!("echo '{CLOSING}'"), [3, 0, 1]);
        check(&format!("echo '{CLOSING}'; exit 101"), [3, 1, 1]);
    }

    #[test]
    fn a_process_left_behind_does_not_hold_up_the_run() {
        let scratch = Workspace::empty("left-behind");
        let number = scratch.root().join("number");
        // It has the output open for longer than anybody waits for a test.
        let sleeper = format!("sleep 1000 2>&- & echo $! > '{}'", number.display());
        check(&format!("{sleeper}; echo '{CLOSING}'"), [3, 0, 1]);
        let number = fs::read_to_string(number).unwrap();
        fs::remove_dir_all(scratch.root()).unwrap();
        // It was there to the end, and is not left to others.
        let ended = Command::new("kill").arg(number.trim()).status().unwrap();
        assert!(ended.success(), "{number}");
    }
}
