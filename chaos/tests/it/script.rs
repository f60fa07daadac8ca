//! The stories without chance. The command compares them with the same stored texts.

use chaos::scenario::Judgement;
use chaos::script::{STORIES, Story, Told};

fn story(name: &str) -> Story {
    *STORIES.iter().find(|story| story.name == name).unwrap()
}

/// Tells a story in which nothing may be broken, and compares it with its stored text.
#[track_caller]
fn check(name: &str) -> Told {
    let story = story(name);
    let told = (story.tell)();
    assert_eq!(told.breaches, []);
    insta::assert_snapshot!(name.replace('-', "_"), told.lines.join("\n"));
    assert_eq!(story.judge().result, Judgement::Passed);
    told
}

/// The lines that contain `part`, in order.
fn with<'a>(told: &'a Told, part: &str) -> Vec<&'a str> {
    let lines = told.lines.iter().map(String::as_str);
    lines.filter(|line| line.contains(part)).collect()
}

// S1, A53
#[test]
fn a_silent_connection_keeps_nobody_out_for_longer_than_its_term() {
    let told = check("sim-incident-expiry");
    assert_eq!(with(&told, "refused WRITE_CONFLICT").len(), 2);
    assert_eq!(with(&told, "in flight 0").len(), 1);
    assert_eq!(with(&told, "DISCONNECTED"), [""; 0]);
}

// S2, A53
#[test]
fn a_lost_connection_keeps_nobody_out() {
    let told = check("sim-incident-disconnect");
    assert_eq!(with(&told, "RECLAIMED"), [""; 0]);
    assert_eq!(with(&told, "idle 4.5s").len(), 1);
}

// S5
#[test]
fn a_stale_holder_changes_nothing_of_its_successor() {
    let told = check("sim-stale-holder");
    assert_eq!(with(&told, "refused STALE_TOKEN").len(), 4);
    assert_eq!(with(&told, "turned away").len(), 1);
}

#[test]
fn only_the_proof_that_a_pid_was_recycled_passes_a_lease_on() {
    let told = check("sim-pid-recycled");
    assert_eq!(with(&told, "TAKEN_OVER").len(), 1);
    assert_eq!(with(&told, "proof pid_recycled").len(), 1);
    assert_eq!(with(&told, "refused INVALID_HOLDER").len(), 1);
}

// S11, A54
#[test]
fn all_kinds_of_work_go_through_admission_and_leave_what_they_left_without_it() {
    let told = check("sim-all-kinds-of-work");
    assert_eq!(with(&told, "CREATED").len(), 1);
    assert_eq!(with(&told, "REENTRANT").len(), 6);
    let kept = with(&told, "kept for PreExisting");
    let dispositions = ["PreMutation", "Unknown", "RolledBack"];
    assert_eq!(kept.len(), dispositions.len());
    for (line, disposition) in kept.iter().zip(dispositions) {
        assert!(line.contains("RETAINED_AFTER_FAILURE"), "{line}");
        assert!(line.contains(disposition), "{line}");
    }
    assert!(with(&told, "generation 2").is_empty());
}
