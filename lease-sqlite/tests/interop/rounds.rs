//! Many rounds of both sides on one lock.

use std::collections::BTreeSet;

use crate::oracle::{self, Rounds};
use crate::rig::{Language, Place, Side, Writer, tell};

/// Rounds of a writer, and how long it stays inside and outside, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
    inside_us: u64,
    outside_us: u64,
}

/// Runs so many writers of each side to the end.
fn run(place: &Place, language: Language, [ours, peers]: [usize; 2], plans: [Plan; 2]) -> Rounds {
    let sides = [
        ("ours", Side::Ours, ours, plans[0]),
        ("peer", Side::Peer(language), peers, plans[1]),
    ];
    let mut writers = Vec::new();
    for (name, side, count, plan) in sides {
        for number in 0..count {
            let writer = Writer::start(side, place);
            let order = format!(
                "rounds {} {} {} {name}{number}",
                plan.rounds, plan.inside_us, plan.outside_us
            );
            writers.push((writer, order));
        }
    }
    for (writer, order) in &mut writers {
        writer.order(order);
    }
    let mut waits = Vec::new();
    for (writer, order) in &writers {
        let answer = writer.late_answer();
        let wait = answer.strip_prefix("done ");
        waits.push(wait.unwrap_or_else(|| panic!("{order}: {answer}")).to_owned());
    }
    let rounds = oracle::rounds(place, &BTreeSet::new());
    let runs = ["ours", "peer"].map(|side| rounds.longest_run(side));
    tell(&format!(
        "{language:?}: {} rounds, most in a row [ours, peer] {runs:?}, longest waits {waits:?} ms",
        rounds.count()
    ));
    rounds
}

pub(crate) fn experiment(language: Language) {
    let numbers = std::fs::read_to_string("/tmp/i-plan").unwrap();
    let n: Vec<u64> = numbers.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let u = |i: usize| usize::try_from(n[i]).unwrap();
    let place = Place::new();
    let plans = [
        Plan { rounds: u(2), inside_us: n[3], outside_us: n[4] },
        Plan { rounds: u(5), inside_us: n[6], outside_us: n[7] },
    ];
    run(&place, language, [u(0), u(1)], plans);
}
