//! The command as people and scripts use it.

use std::io::Read as _;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use chaos::scenario::Suite;

fn chaos(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An empty folder for the files of one test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command refuses these arguments before it runs anything, and says why.
#[track_caller]
fn check_refused(arguments: &[&str], why: &str) {
    let output = chaos(arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains(why), "{output:?}");
}

fn sim_count() -> usize {
    let scenarios = chaos::scenarios();
    scenarios
        .iter()
        .filter(|scenario| scenario.suite == Suite::Sim)
        .count()
}

const SHORT: [&str; 6] = ["--suite", "sim", "--seed", "7", "--seeds", "20"];

#[test]
fn a_run_ends_with_one_line_that_counts_the_scenarios() {
    let output = chaos(&SHORT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    let last = told.lines().last().unwrap();
    let count = sim_count();
    assert_eq!(
        last,
        format!("chaos: {count} scenarios, {count} passed, 0 failed, 0 not run")
    );
    assert!(told.contains("repeat with: cargo xtask chaos --suite sim --seed 7 --seeds 20"));
    assert!(text(&output.stderr).starts_with(&format!("chaos: {count} scenarios, seed 7")));
}

#[test]
fn a_record_has_every_scenario_with_its_result_counters_and_receipts() {
    let folder = folder("record");
    let file = folder.join("run.json");
    let mut arguments = SHORT.to_vec();
    arguments.extend(["--json", file.to_str().unwrap()]);
    assert_eq!(chaos(&arguments).status.code(), Some(0));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["schema"], 1);
    assert_eq!(record["seed"], 7);
    assert_eq!(
        record["command"],
        "cargo xtask chaos --suite sim --seed 7 --seeds 20"
    );
    let scenarios = record["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), sim_count());
    for scenario in scenarios {
        assert_eq!(scenario["result"], "passed", "{scenario}");
        assert_eq!(scenario["suite"], "sim");
        assert!(!scenario["counters"].as_object().unwrap().is_empty());
        assert!(!scenario["receipts"].as_array().unwrap().is_empty());
    }
    // Nothing else is left behind.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_record_that_cannot_be_written_is_refused_before_anything_is_run() {
    let folder = folder("no-record");
    let missing = folder.join("missing/run.json");
    check_refused(&["--json", missing.to_str().unwrap()], "cannot write");
    check_refused(&["--json", folder.to_str().unwrap()], "cannot write");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// A record is refused and does not take the place of this node.
#[cfg(unix)]
#[track_caller]
fn check_node_stays(node: &Path) {
    use std::os::unix::fs::FileTypeExt as _;

    let before = std::fs::symlink_metadata(node).unwrap().file_type();
    check_refused(
        &[
            "--scenario",
            "sim-stale-holder",
            "--json",
            node.to_str().unwrap(),
        ],
        "regular file",
    );
    let after = std::fs::symlink_metadata(node).unwrap().file_type();
    assert_eq!(after.is_fifo(), before.is_fifo());
    assert_eq!(after.is_symlink(), before.is_symlink());
}

#[cfg(unix)]
#[test]
fn a_record_never_takes_the_place_of_a_fifo_or_a_symbolic_link() {
    let folder = folder("node");
    let fifo = folder.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    check_node_stays(&fifo);
    let file = folder.join("file");
    std::fs::write(&file, "kept").unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    check_node_stays(&link);
    let dangling = folder.join("dangling");
    std::os::unix::fs::symlink("nothing", &dangling).unwrap();
    check_node_stays(&dangling);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4);
}

#[test]
fn a_run_that_is_killed_leaves_no_part_of_a_record() {
    let folder = folder("killed");
    let file = folder.join("run.json");
    let mut run = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--scenario", "sim-sessions", "--time", "60s", "--json"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says what it runs once the record can be written.
    let mut byte = [0];
    run.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[track_caller]
fn check_played_from_the_last_seed(seeds: &str) {
    let output = chaos(&[
        "--scenario",
        "sim-sessions",
        "--seed",
        "18446744073709551615",
        "--seeds",
        seeds,
        "--time",
        "5s",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains(&format!("  histories: {seeds}, ")), "{told}");
}

#[test]
fn a_run_from_the_last_seed_plays_as_many_histories_as_were_asked_for() {
    check_played_from_the_last_seed("1");
    check_played_from_the_last_seed("3");
}

#[test]
fn arguments_that_mean_nothing_are_refused_by_name() {
    check_refused(&["--scenario", "sim-nothing"], "no scenario `sim-nothing`");
    check_refused(
        &["--suite", "real", "--scenario", "sim-sessions"],
        "in suite `real`",
    );
    check_refused(&["--suite", "none"], "possible values: sim, real, all");
    check_refused(&["--seeds", "0"], "--seeds");
    check_refused(&["--seed=-1"], "--seed");
    check_refused(&["--time", "0s"], "no time at all");
    check_refused(&["--time", "5 fortnights"], "is no unit");
    check_refused(&["--time", "99999999h"], "more than a year");
    check_refused(&["--time", "99999999999999999999s"], "expected a number");
    check_refused(&["--unknown"], "--unknown");
}

#[test]
fn chosen_scenarios_are_run_in_the_order_of_the_list() {
    let arguments = [
        "--scenario",
        "sim-stale-holder",
        "--scenario",
        "sim-incident-expiry",
    ];
    let told = text(&chaos(&arguments).stdout);
    let names: Vec<_> = told
        .lines()
        .filter_map(|line| line.strip_prefix("passed   "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["sim-incident-expiry", "sim-stale-holder"]);
}

#[test]
fn a_list_shows_names_that_are_unique_and_say_their_suite() {
    let output = chaos(&["--list"]);
    assert_eq!(output.status.code(), Some(0));
    let scenarios = chaos::scenarios();
    assert_eq!(text(&output.stdout).lines().count(), scenarios.len());
    for (at, scenario) in scenarios.iter().enumerate() {
        assert!(
            scenario.name.starts_with(scenario.suite.name()),
            "{}",
            scenario.name
        );
        assert!(
            !scenarios[..at]
                .iter()
                .any(|other| other.name == scenario.name)
        );
    }
}

#[test]
fn a_run_without_enough_time_still_plays_one_history_of_each() {
    let arguments = ["--scenario", "sim-sessions", "--time", "1ms"];
    let output = chaos(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("sim-sessions"));
}
