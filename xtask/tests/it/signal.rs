//! A signal that asks the program to end.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Instead of cargo: it knows no package, and what it runs goes on until it is ended, in a process of its own.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
  "metadata --format-version"*) echo '{"packages":[],"target_directory":"'"$FOLDER"'"}' ;;
  "nextest --version") ;;
  "nextest run"*|"fmt --all"*) sleep 1000 & echo $! > "$FOLDER/new"; mv "$FOLDER/new" "$FOLDER/sleeper"; wait ;;
esac
"#;

/// Runs the program with a cargo of the test's own until that runs what does not end, and sends it a signal.
#[track_caller]
fn check(arguments: &[&str], signal: Signal, words: &str) {
    let name = format!("{}-{}", arguments[0], signal.as_raw());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    let cargo = folder.join("cargo");
    fs::write(&cargo, CARGO).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .env("CARGO", &cargo)
        .env("FOLDER", &folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sleeper = sleeper(&mut xtask, &folder);
    kill_process(Pid::from_child(&xtask), signal).unwrap();
    // It ends when everybody has ended who has it open.
    let mut told = String::new();
    let mut stderr = xtask.stderr.take().unwrap();
    stderr.read_to_string(&mut told).unwrap();
    assert_eq!(xtask.wait().unwrap().code(), Some(3), "{told}");
    assert!(told.contains(words), "{told}");
    assert!(comes_to_its_end(&sleeper), "{sleeper}: {told}");
    // Only the cargo and what it wrote: no list of what was not run.
    let left = fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 2, "{told}");
    fs::remove_dir_all(&folder).unwrap();
}

/// Waits until the number of the process is written that does not end.
#[expect(clippy::disallowed_methods, reason = "a short wait between two looks")]
fn sleeper(xtask: &mut Child, folder: &std::path::Path) -> String {
    for _look in 0..30_000 {
        if let Ok(number) = fs::read_to_string(folder.join("sleeper")) {
            return number.trim().to_owned();
        }
        assert_eq!(xtask.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("nothing was run");
}

/// Waits until a process is gone that was ended, or waits for somebody to reap it.
#[expect(clippy::disallowed_methods, reason = "a short wait between two looks")]
fn comes_to_its_end(number: &str) -> bool {
    for _look in 0..5_000 {
        match fs::read_to_string(format!("/proc/{number}/stat")) {
            Ok(stat) if !stat.contains(" Z ") && !stat.contains(" X ") => {}
            Ok(_) | Err(_) => return true,
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}

#[test]
fn a_signal_ends_the_runner_of_the_tests_and_says_so() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        check(
            &["test"],
            signal,
            &format!("{name}: ending cargo nextest run"),
        );
    }
}

#[test]
fn a_signal_ends_the_check_that_runs_and_no_other_one_is_begun() {
    let words = "called off, and the other checks were not run";
    check(&["ci", "--no-tests"], Signal::TERM, words);
}
