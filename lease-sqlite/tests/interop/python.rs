//! The peer in Python, with the SQLite that its `sqlite3` is linked to.

use crate::rig::Language::Python;
use crate::{attribution, kills, legacy, records, rounds, waiting};

// C1
#[test]
fn both_sides_take_turns_for_a_thousand_rounds() {
    Python.run(
        "python::both_sides_take_turns_for_a_thousand_rounds",
        rounds::both_take_turns,
    );
}

#[test]
fn peer_gets_in_between_three_of_ours_that_never_pause() {
    Python.run(
        "python::peer_gets_in_between_three_of_ours_that_never_pause",
        rounds::three_of_ours_never_pause,
    );
}

#[test]
fn peer_gets_in_beside_one_of_ours_that_never_pauses() {
    Python.run(
        "python::peer_gets_in_beside_one_of_ours_that_never_pauses",
        rounds::one_of_ours_never_pauses,
    );
}

#[test]
fn writers_killed_at_any_time_leave_the_lock_to_the_others() {
    Python.run(
        "python::writers_killed_at_any_time_leave_the_lock_to_the_others",
        rounds::killed_at_any_time,
    );
}

// C72
#[test]
fn ours_names_a_peer_and_says_how_sure_that_is() {
    Python.run(
        "python::ours_names_a_peer_and_says_how_sure_that_is",
        attribution::of_a_peer,
    );
}

// C12, C21
#[test]
fn peer_reads_a_record_of_ours_byte_by_byte() {
    Python.run(
        "python::peer_reads_a_record_of_ours_byte_by_byte",
        attribution::of_ours,
    );
}

// C5
#[test]
fn writer_killed_in_the_first_hold_ever_leaves_a_free_lock() {
    Python.run(
        "python::writer_killed_in_the_first_hold_ever_leaves_a_free_lock",
        kills::in_the_first_hold,
    );
}

// C4, C5
#[test]
fn ours_killed_in_the_first_hold_on_an_empty_mutex_leaves_a_free_lock() {
    Python.run(
        "python::ours_killed_in_the_first_hold_on_an_empty_mutex_leaves_a_free_lock",
        kills::in_the_first_hold_on_an_empty_mutex,
    );
}

// C5
#[test]
fn writer_killed_in_a_later_hold_leaves_a_free_lock() {
    Python.run(
        "python::writer_killed_in_a_later_hold_leaves_a_free_lock",
        kills::in_a_later_hold,
    );
}

// C29
#[test]
fn record_harmed_during_a_hold_neither_grants_nor_sticks() {
    Python.run(
        "python::record_harmed_during_a_hold_neither_grants_nor_sticks",
        records::harmed_while_held,
    );
}

// C37, C40
#[test]
fn record_that_nobody_knows_keeps_both_sides_out() {
    Python.run(
        "python::record_that_nobody_knows_keeps_both_sides_out",
        records::not_recognised,
    );
}

#[test]
fn each_side_waits_for_the_other_and_is_granted_after_its_release() {
    Python.run(
        "python::each_side_waits_for_the_other_and_is_granted_after_its_release",
        waiting::for_a_release,
    );
}

#[test]
fn deadline_ends_a_wait_for_the_other_side() {
    Python.run(
        "python::deadline_ends_a_wait_for_the_other_side",
        waiting::to_a_deadline,
    );
}

// C37
#[test]
fn living_claim_of_protocol_1_keeps_everybody_out() {
    Python.run(
        "python::living_claim_of_protocol_1_keeps_everybody_out",
        legacy::a_living_claim,
    );
}

#[test]
fn dead_claim_of_protocol_1_is_removed_or_kept_as_the_build_says() {
    Python.run(
        "python::dead_claim_of_protocol_1_is_removed_or_kept_as_the_build_says",
        legacy::a_dead_claim,
    );
}
