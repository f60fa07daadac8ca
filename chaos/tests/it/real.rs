//! Real faults: each test runs one scenario with the built program in its own namespaces.

#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chaos::clock::Deadline;
use chaos::real::run_by;
use chaos::scenario::{Context, Judgement, Report};
use rustix::process::{Pid, Signal, kill_process};

/// Runs a scenario, which must pass; `None` if this machine does not allow it.
#[track_caller]
fn passes(test: &str, scenario: &str) -> Option<Report> {
    let program = Path::new(env!("CARGO_BIN_EXE_chaos"));
    let report = run_by(program, scenario, &Context::once(1));
    match &report.result {
        Judgement::Passed => Some(report),
        Judgement::NotRun { need, reason } => {
            not_run(test, need, reason);
            None
        }
        Judgement::Failed { violations } => panic!("{scenario}: {violations:#?}, {report:#?}"),
    }
}

fn not_run(test: &str, need: &str, reason: &str) {
    crate::not_run::not_run(&format!("real::{test}"), need, reason);
}

fn receipts(report: &Report) -> String {
    let lines: Vec<_> = report
        .receipts
        .iter()
        .filter_map(|line| line.as_str())
        .collect();
    lines.join("\n")
}

#[track_caller]
fn counted(report: &Report, counter: &str) -> u64 {
    *report.counters.get(counter).unwrap_or(&0)
}

// fault B13
#[test]
fn killed_holder_that_nobody_reaps_is_succeeded_on_proof() {
    let test = "killed_holder_that_nobody_reaps_is_succeeded_on_proof";
    let Some(report) = passes(test, "real-kill-exited") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 first
    WRITER_LEASE_TAKEN_OVER generation 2 second from first generation 1, proof exited
    WRITER_LEASE_RELEASED generation 2 second
    WRITER_LEASE_ACQUIRED generation 3 third
    ");
}

#[test]
fn killed_and_reaped_holder_is_succeeded_on_proof() {
    let test = "killed_and_reaped_holder_is_succeeded_on_proof";
    let Some(report) = passes(test, "real-kill-reaped") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 first
    WRITER_LEASE_TAKEN_OVER generation 2 second from first generation 1, proof no_such_process
    ");
}

#[test]
fn recycled_pid_is_proof_that_the_holder_is_dead() {
    let test = "recycled_pid_is_proof_that_the_holder_is_dead";
    let Some(report) = passes(test, "real-pid-recycled") else {
        return;
    };
    assert_eq!(counted(&report, "pids-recycled"), 10);
    assert_eq!(counted(&report, "takeovers-on-proof"), 10);
}

#[test]
fn recycled_pid_is_never_taken_for_the_dead_holder() {
    let test = "recycled_pid_is_never_taken_for_the_dead_holder";
    let Some(report) = passes(test, "real-pid-recycled-many") else {
        return;
    };
    assert_eq!(counted(&report, "pids-recycled"), 230);
    assert_eq!(counted(&report, "takeovers-on-proof"), 230);
    assert_eq!(counted(&report, "rounds-without-pidfs"), 30);
    assert_eq!(
        counted(&report, "rounds-without-pidfs-with-equal-start-ticks"),
        0
    );
}

#[test]
fn writer_that_slept_past_its_term_leaves_no_byte_after_its_successor() {
    let test = "writer_that_slept_past_its_term_leaves_no_byte_after_its_successor";
    let Some(report) = passes(test, "real-stop-past-term") else {
        return;
    };
    assert_eq!(counted(&report, "fenced-writes"), 1);
    // On a busy machine the successor's term may end as well, before the scenario does.
    let told = receipts(&report);
    let told = told
        .strip_suffix("\nRECLAIMED generation 2 second")
        .unwrap_or(&told);
    insta::assert_snapshot!(told, @r"
    CREATED generation 1 first
    RECLAIMED generation 1 first
    CREATED generation 2 second
    ");
}

#[test]
fn stopped_holder_with_an_operation_in_flight_is_kept() {
    let test = "stopped_holder_with_an_operation_in_flight_is_kept";
    let Some(report) = passes(test, "real-stop-in-flight") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    CREATED generation 1 first
    OPERATION_BEGUN generation 1 first
    QUEUED second
    WAIT_TIMED_OUT second
    OPERATION_ENDED generation 1 first
    RELEASED generation 1 first
    CREATED generation 2 second
    ");
}

// B12
#[test]
fn holder_with_a_zombie_leader_is_kept_until_its_last_thread_is_gone() {
    let test = "holder_with_a_zombie_leader_is_kept_until_its_last_thread_is_gone";
    let Some(report) = passes(test, "real-zombie-leader") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 first
    ENTITLED generation 1 first
    WRITER_LEASE_TAKEN_OVER generation 2 second from first generation 1, proof exited
    ");
}

// fault B10
#[test]
fn process_with_the_dead_holders_own_pid_gets_a_lease_of_its_own() {
    let test = "process_with_the_dead_holders_own_pid_gets_a_lease_of_its_own";
    let Some(report) = passes(test, "real-own-pid-again") else {
        return;
    };
    assert_eq!(counted(&report, "takeovers-on-proof"), 11);
}

// fault B01
#[test]
fn holder_recorded_in_another_pid_namespace_is_never_judged_dead() {
    let test = "holder_recorded_in_another_pid_namespace_is_never_judged_dead";
    let Some(report) = passes(test, "real-other-pid-namespace") else {
        return;
    };
    assert_eq!(counted(&report, "effects-seen"), 3);
    insta::assert_snapshot!(receipts(&report), @"WRITER_LEASE_ACQUIRED generation 1 far");
}

// fault B33
#[test]
fn thread_id_neither_holds_nor_keeps_a_dead_holder_alive() {
    let test = "thread_id_neither_holds_nor_keeps_a_dead_holder_alive";
    let Some(report) = passes(test, "real-thread-id") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 first
    WRITER_LEASE_TAKEN_OVER generation 2 successor from first generation 1, proof pid_recycled
    WRITER_LEASE_RELEASED generation 2 successor
    WRITER_LEASE_ACQUIRED generation 3 process
    WRITER_LEASE_TAKEN_OVER generation 4 successor from process generation 3, proof exited
    ");
}

#[test]
fn clock_that_is_far_ahead_takes_no_lease_from_a_live_holder() {
    let test = "clock_that_is_far_ahead_takes_no_lease_from_a_live_holder";
    let Some(report) = passes(test, "real-clock-offset") else {
        return;
    };
    assert_eq!(counted(&report, "effects-seen"), 4);
}

#[test]
fn holds_do_not_overlap_while_writers_are_killed_and_stopped() {
    let test = "holds_do_not_overlap_while_writers_are_killed_and_stopped";
    let Some(report) = passes(test, "real-kill-storm") else {
        return;
    };
    assert_ne!(counted(&report, "kills"), 0);
    assert_ne!(counted(&report, "stops"), 0);
}

// A5, S15
#[test]
fn tokens_of_an_authority_that_was_killed_are_refused_for_ever() {
    let test = "tokens_of_an_authority_that_was_killed_are_refused_for_ever";
    let Some(report) = passes(test, "real-authority-restart") else {
        return;
    };
    assert_eq!(counted(&report, "fenced-writes"), 5);
}

// B29, S18
#[test]
fn group_of_a_killed_leader_is_awaited_to_its_last_member() {
    let test = "group_of_a_killed_leader_is_awaited_to_its_last_member";
    let Some(report) = passes(test, "real-group-outlives-leader") else {
        return;
    };
    assert_eq!(counted(&report, "refusals-for-work-that-goes-on"), 4);
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 leader
    WRITER_LEASE_TAKEN_OVER generation 2 next from leader generation 1, proof no_such_process
    WRITER_LEASE_RELEASED generation 2 next
    WRITER_LEASE_ACQUIRED generation 3 member
    WRITER_LEASE_TAKEN_OVER generation 4 next from member generation 3, proof no_such_process
    ");
}

// B30, S22
#[test]
fn group_of_a_numbers_next_owner_is_nobody_at_the_dead_holders_work() {
    let test = "group_of_a_numbers_next_owner_is_nobody_at_the_dead_holders_work";
    let Some(report) = passes(test, "real-group-number-again") else {
        return;
    };
    assert_eq!(counted(&report, "refusals-for-work-that-goes-on"), 3);
    assert_eq!(counted(&report, "pids-recycled"), 3);
    assert_eq!(counted(&report, "takeovers-on-proof"), 3);
}

#[test]
fn tree_of_a_dead_holder_is_in_use_in_whichever_way_somebody_uses_it() {
    let test = "tree_of_a_dead_holder_is_in_use_in_whichever_way_somebody_uses_it";
    let Some(report) = passes(test, "real-path-in-use") else {
        return;
    };
    assert_eq!(counted(&report, "refusals-for-work-that-goes-on"), 8);
    assert_eq!(counted(&report, "takeovers-on-proof"), 8);
}

#[test]
fn authority_without_descriptors_grants_nothing_that_is_in_use() {
    let test = "authority_without_descriptors_grants_nothing_that_is_in_use";
    let Some(report) = passes(test, "real-descriptors-exhausted") else {
        return;
    };
    assert_eq!(counted(&report, "looks-short-of-descriptors"), 32);
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 first
    WRITER_LEASE_TAKEN_OVER generation 2 next from first generation 1, proof no_such_process
    ");
}

// B28, S21
#[test]
fn boot_of_another_machine_is_no_proof_and_an_earlier_one_is() {
    let test = "boot_of_another_machine_is_no_proof_and_an_earlier_one_is";
    let Some(report) = passes(test, "real-other-boot") else {
        return;
    };
    insta::assert_snapshot!(receipts(&report), @r"
    WRITER_LEASE_ACQUIRED generation 1 far
    WRITER_LEASE_ACQUIRED generation 1 namesake
    WRITER_LEASE_TAKEN_OVER generation 2 next from namesake generation 1, proof other_boot
    ");
}

#[test]
fn watch_tells_each_death_once_and_leaves_the_ending_to_the_parent() {
    let test = "watch_tells_each_death_once_and_leaves_the_ending_to_the_parent";
    let Some(report) = passes(test, "real-death-watch") else {
        return;
    };
    assert_eq!(counted(&report, "deaths-told"), 6);
}

/// A folder for one test.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    /// Makes one with a short path, since a socket's has a limit, and a name that no other run has.
    fn new() -> Self {
        let name = RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("lease-chaos-test-{name:016x}"));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Counts the processes that have this folder in their arguments.
    fn processes(&self) -> usize {
        let wanted = self.0.to_str().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap();
        let lines = entries.filter_map(|entry| {
            // A process may end meanwhile.
            std::fs::read(entry.ok()?.path().join("cmdline")).ok()
        });
        lines
            .filter(|line| String::from_utf8_lossy(line).contains(wanted))
            .count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that fails has said why; it must not panic once more.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn killing_the_launcher_ends_every_process_of_a_scenario() {
    let test = "killing_the_launcher_ends_every_process_of_a_scenario";
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command
        .args(["__role", "launch", "user", "real-kill-storm", "1"])
        .arg(&folder.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    // The launcher, the first process in the namespaces, the authority and at least one writer.
    if !comes_to(|| ended(&mut launcher) || folder.processes() >= 4) || ended(&mut launcher) {
        let output = launcher.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(words.contains("Missing"), "{words}");
        return not_run(test, "user-namespaces", words.trim());
    }
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    assert!(
        comes_to(|| folder.processes() == 0),
        "{} are left",
        folder.processes()
    );
}

#[test]
fn a_run_that_is_interrupted_leaves_no_process_and_no_folder_and_says_what_it_did_not_do() {
    let test =
        "a_run_that_is_interrupted_leaves_no_process_and_no_folder_and_says_what_it_did_not_do";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::new();
        let record = folder.0.join("run.json");
        let mut run = Command::new(env!("CARGO_BIN_EXE_chaos"))
            .args([
                "--scenario",
                "real-kill-storm",
                "--scenario",
                "sim-sessions",
            ])
            .args(["--time", "60s", "--json"])
            .arg(&record)
            .env("TMPDIR", &folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The launcher, the first process in the namespaces, the authority and at least one writer: with
        // the run itself, whose arguments name the record.
        if !comes_to(|| ended(&mut run) || folder.processes() >= 5) || ended(&mut run) {
            let output = run.wait_with_output().unwrap();
            let words = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(words.contains("not run"), "{words}");
            return not_run(test, "user-namespaces", words.trim());
        }
        let pid = Pid::from_child(&run);
        for _twice in 0..2 {
            kill_process(pid, signal).unwrap();
        }
        let output = run.wait_with_output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(
            told.ends_with("chaos: 2 scenarios, 0 passed, 0 failed, 2 not run\n"),
            "{told}"
        );
        let record = std::fs::read_to_string(&record).unwrap();
        assert_eq!(record.matches("the run was interrupted").count(), 2);
        assert_eq!(folder.processes(), 0);
        assert_eq!(
            std::fs::read_dir(&folder.0).unwrap().count(),
            1,
            "{folder:?}"
        );
    }
}

/// Runs one scenario from the command line and returns its exit code and what it told.
fn command(mut command: Command) -> (Option<i32>, String) {
    let output = command
        .args(["--scenario", "real-kill-exited", "--seed", "1"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), told)
}

#[test]
fn scenario_without_a_folder_for_temporary_files_is_not_run() {
    let folder = Folder::new();
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_chaos"));
    chaos.env("TMPDIR", folder.0.join("missing"));
    let (code, told) = command(chaos);
    assert_eq!(code, Some(3), "{told}");
    assert!(
        told.contains("not run  real-kill-exited: scratch-folder: "),
        "{told}"
    );
}

/// Runs a scenario with a temporary folder of that name, which it makes do with.
#[track_caller]
fn makes_do_with(test: &str, name: &OsStr) {
    let folder = Folder::new();
    let temporary = folder.0.join(name);
    std::fs::create_dir(&temporary).unwrap();
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_chaos"));
    chaos.env("TMPDIR", temporary);
    let (code, told) = command(chaos);
    match code {
        Some(0) => {}
        Some(3) => not_run(test, "user-namespaces", told.trim()),
        _ => panic!("{told}"),
    }
}

#[test]
fn scenario_makes_do_with_a_temporary_folder_whose_path_is_too_long_for_a_socket() {
    let test = "scenario_makes_do_with_a_temporary_folder_whose_path_is_too_long_for_a_socket";
    makes_do_with(test, "long".repeat(30).as_ref());
}

#[test]
fn scenario_makes_do_with_a_temporary_folder_whose_path_is_no_text() {
    let test = "scenario_makes_do_with_a_temporary_folder_whose_path_is_no_text";
    makes_do_with(test, OsStr::from_bytes(b"\xff"));
}

#[test]
fn scenario_with_hardly_any_descriptor_is_not_run() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 8; exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_chaos"));
    let (code, told) = command(shell);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("not run  real-kill-exited: "), "{told}");
}

/// The program in a mount namespace of its own, in which this was mounted before.
fn behind(mount: &str) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    unshare.arg(format!("{mount} || exit 77; exec \"$@\""));
    unshare.args(["sh", env!("CARGO_BIN_EXE_chaos")]);
    unshare
}

/// Nothing shows in `/proc`.
fn without_proc() -> Command {
    behind("mount -t tmpfs none /proc")
}

#[test]
fn scenario_on_a_full_disk_is_not_run() {
    let test = "scenario_on_a_full_disk_is_not_run";
    let folder = Folder::new();
    for bound in ["size=16k", "nr_inodes=4"] {
        let mut chaos = behind(&format!("mount -t tmpfs -o {bound} none \"$TMPDIR\""));
        chaos.env("TMPDIR", &folder.0);
        let (code, told) = command(chaos);
        if code != Some(3) && told.is_empty() {
            return not_run(test, "tmpfs", "a tmpfs cannot be mounted");
        }
        assert_eq!(code, Some(3), "{told}");
        assert!(
            told.contains("not run  real-kill-exited: scratch-folder: "),
            "{told}"
        );
    }
}

#[test]
fn scenario_without_proc_is_not_run() {
    let test = "scenario_without_proc_is_not_run";
    let hides_proc = without_proc().arg("--list").stdout(Stdio::null()).status();
    if !hides_proc.is_ok_and(|status| status.success()) {
        return not_run(test, "tmpfs", "a tmpfs cannot hide /proc");
    }
    let (code, told) = command(without_proc());
    assert_eq!(code, Some(3), "{told}");
    assert!(
        told.contains("not run  real-kill-exited: proc-mount: "),
        "{told}"
    );
}

#[test]
fn scenario_where_no_process_can_be_opened_is_not_run() {
    let test = "scenario_where_no_process_can_be_opened_is_not_run";
    for refusal in ["ENOSYS", "EPERM"] {
        let chaos = || {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
            strace.arg(format!("inject=pidfd_open:error={refusal}"));
            strace.arg(env!("CARGO_BIN_EXE_chaos"));
            strace
        };
        let traces = chaos().arg("--list").stdout(Stdio::null()).status();
        if !traces.is_ok_and(|status| status.success()) {
            return not_run(test, "strace", "it is not here, or may not trace");
        }
        let (code, told) = command(chaos());
        assert_eq!(code, Some(3), "{told}");
        assert!(
            told.contains("not run  real-kill-exited: pidfd: "),
            "{told}"
        );
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn claim_that_comes_just_before_a_dead_one_is_replaced_stays() {
    let test = "claim_that_comes_just_before_a_dead_one_is_replaced_stays";
    let Some(report) = passes(test, "real-claim-in-between") else {
        return;
    };
    assert_eq!(counted(&report, "effects-seen"), 1);
}

#[cfg(feature = "sqlite")]
#[test]
fn storm_at_one_write_lock_lets_no_two_in_and_starves_nobody() {
    let test = "storm_at_one_write_lock_lets_no_two_in_and_starves_nobody";
    let Some(report) = passes(test, "real-write-lock-storm") else {
        return;
    };
    assert!(counted(&report, "kills") > 10, "{report:?}");
    assert!(counted(&report, "damaged-records") > 10, "{report:?}");
    assert!(counted(&report, "claims-of-protocol-1") > 0, "{report:?}");
    assert!(counted(&report, "records-of-a-holder") > 10, "{report:?}");
    assert!(counted(&report, "directory-swaps") > 0, "{report:?}");
    assert!(counted(&report, "stops") > 10, "{report:?}");
}

fn ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// Looks at a condition until it holds, for at most a minute.
#[expect(clippy::disallowed_methods, reason = "a short wait between two looks")]
fn comes_to(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Deadline::within(Duration::from_secs(60));
    while !holds() {
        if deadline.has_passed() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
