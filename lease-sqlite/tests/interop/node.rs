//! The peer in JavaScript, with the SQLite of `better-sqlite3`.

use crate::rig::Language::Node;
use crate::{attribution, kills, legacy, records, rounds, waiting};

#[test]
fn both_sides_take_turns_for_a_thousand_rounds() {
    Node.run(
        "node::both_sides_take_turns_for_a_thousand_rounds",
        rounds::both_take_turns,
    );
}

#[test]
fn peer_gets_in_between_three_of_ours_that_never_pause() {
    Node.run(
        "node::peer_gets_in_between_three_of_ours_that_never_pause",
        rounds::three_of_ours_never_pause,
    );
}

#[test]
fn peer_gets_in_beside_one_of_ours_that_never_pauses() {
    Node.run(
        "node::peer_gets_in_beside_one_of_ours_that_never_pauses",
        rounds::one_of_ours_never_pauses,
    );
}

#[test]
fn writers_killed_at_any_time_leave_the_lock_to_the_others() {
    Node.run(
        "node::writers_killed_at_any_time_leave_the_lock_to_the_others",
        rounds::killed_at_any_time,
    );
}

#[test]
fn ours_names_a_peer_and_says_how_sure_that_is() {
    Node.run(
        "node::ours_names_a_peer_and_says_how_sure_that_is",
        attribution::of_a_peer,
    );
}

#[test]
fn peer_reads_a_record_of_ours_byte_by_byte() {
    Node.run(
        "node::peer_reads_a_record_of_ours_byte_by_byte",
        attribution::of_ours,
    );
}

#[test]
fn writer_killed_in_the_first_hold_ever_leaves_a_free_lock() {
    Node.run(
        "node::writer_killed_in_the_first_hold_ever_leaves_a_free_lock",
        kills::in_the_first_hold,
    );
}

#[test]
fn ours_killed_in_the_first_hold_on_an_empty_mutex_leaves_a_free_lock() {
    Node.run(
        "node::ours_killed_in_the_first_hold_on_an_empty_mutex_leaves_a_free_lock",
        kills::in_the_first_hold_on_an_empty_mutex,
    );
}

#[test]
fn writer_killed_in_a_later_hold_leaves_a_free_lock() {
    Node.run(
        "node::writer_killed_in_a_later_hold_leaves_a_free_lock",
        kills::in_a_later_hold,
    );
}

#[test]
fn record_harmed_during_a_hold_neither_grants_nor_sticks() {
    Node.run(
        "node::record_harmed_during_a_hold_neither_grants_nor_sticks",
        records::harmed_while_held,
    );
}

#[test]
fn record_that_nobody_knows_keeps_both_sides_out() {
    Node.run(
        "node::record_that_nobody_knows_keeps_both_sides_out",
        records::not_recognised,
    );
}

#[test]
fn each_side_waits_for_the_other_and_is_granted_after_its_release() {
    Node.run(
        "node::each_side_waits_for_the_other_and_is_granted_after_its_release",
        waiting::for_a_release,
    );
}

#[test]
fn deadline_ends_a_wait_for_the_other_side() {
    Node.run(
        "node::deadline_ends_a_wait_for_the_other_side",
        waiting::to_a_deadline,
    );
}

#[test]
fn living_claim_of_protocol_1_keeps_everybody_out() {
    Node.run(
        "node::living_claim_of_protocol_1_keeps_everybody_out",
        legacy::a_living_claim,
    );
}

#[test]
fn dead_claim_of_protocol_1_is_removed_or_kept_as_the_build_says() {
    Node.run(
        "node::dead_claim_of_protocol_1_is_removed_or_kept_as_the_build_says",
        legacy::a_dead_claim,
    );
}
