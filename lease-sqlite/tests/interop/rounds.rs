//! Many rounds of both sides on one lock, with an oracle that knows nothing of locks.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{self, Rounds};
use crate::rig::{Language, Place, Side, Writer, rest, tell, until};

/// The most rounds in a row of one side while the other waits. Chance decides, and no peer is in a line; with these plans it
/// is some 20.
const IN_A_ROW: usize = 200;

/// Rounds of a writer, and how long it stays inside and outside, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
    inside_us: u64,
    outside_us: u64,
}

impl Plan {
    fn order(&self, name: &str) -> String {
        format!(
            "rounds {} {} {} {name}",
            self.rounds, self.inside_us, self.outside_us
        )
    }
}

/// Runs so many writers of each side to the end.
fn run(place: &Place, language: Language, counts: [usize; 2], plan: Plan) -> Rounds {
    let sides = [("ours", Side::Ours), ("peer", Side::Peer(language))];
    let mut writers = BTreeMap::new();
    for ((side_name, side), count) in sides.into_iter().zip(counts) {
        for number in 0..count {
            writers.insert(format!("{side_name}{number}"), Writer::start(side, place));
        }
    }
    for (name, writer) in &mut writers {
        writer.order(&plan.order(name));
    }
    let mut waits = Vec::new();
    for (name, writer) in &writers {
        let answer = writer.late_answer();
        let Some(wait) = answer.strip_prefix("done ") else {
            panic!("{name}: {answer}");
        };
        waits.push(format!("{name} {wait}"));
    }
    let rounds = oracle::rounds(place, &BTreeSet::new());
    for name in writers.keys() {
        assert_eq!(rounds.each().get(&**name), Some(&plan.rounds), "{name}");
    }
    tell(&format!(
        "{language:?}: {} rounds, most in a row: ours {}, peer {}; longest waits in ms: {}",
        rounds.count(),
        rounds.longest_run("ours"),
        rounds.longest_run("peer"),
        waits.join(", ")
    ));
    rounds
}

/// A thousand rounds of two and two writers: nobody meets another inside, and all get their rounds.
pub(crate) fn both_take_turns(language: Language) {
    let place = Place::new();
    let plan = Plan {
        rounds: 250,
        inside_us: 500,
        outside_us: 3_000,
    };
    let rounds = run(&place, language, [2, 2], plan);
    assert_eq!(rounds.count(), 1_000);
    for side in ["ours", "peer"] {
        let run = rounds.longest_run(side);
        assert!(run <= IN_A_ROW, "{side} had {run} rounds in a row");
    }
}

/// Writers of ours that never pause leave time to a peer that polls: ten holds each, then a poll interval, and what chance
/// adds to that.
pub(crate) fn three_of_ours_never_pause(language: Language) {
    never_pause(language, 3);
}

/// One alone, who meets none of ours, does the same.
pub(crate) fn one_of_ours_never_pauses(language: Language) {
    never_pause(language, 1);
}

fn never_pause(language: Language, count: usize) {
    let place = Place::new();
    let mut peer = Writer::start(Side::Peer(language), &place);
    // Ours expect peers where a record of one lies.
    peer.acquires();
    peer.releases();
    let endless = Plan {
        rounds: 1_000_000,
        inside_us: 1_000,
        outside_us: 0,
    };
    let mut ours = Vec::new();
    let mut names = BTreeSet::new();
    for number in 0..count {
        let name = format!("ours{number}");
        let mut writer = Writer::start(Side::Ours, &place);
        writer.order(&endless.order(&name));
        until("it is inside", || place.says(&name));
        names.insert(name);
        ours.push(writer);
    }
    let plan = Plan {
        rounds: 50,
        outside_us: 5_000,
        ..endless
    };
    peer.order(&plan.order("peer"));
    let answer = peer.late_answer();
    assert!(answer.starts_with("done "), "{answer}");
    for writer in &mut ours {
        writer.kill();
    }
    let rounds = oracle::rounds(&place, &names);
    let run = rounds.longest_run_between("ours", "peer");
    tell(&format!(
        "{language:?}: most in a row of {count} of ours {run}; longest wait of the peer {answer} ms"
    ));
    // On a busy machine a peer is sometimes late for the time that is left to it.
    assert!(run <= 100 * count, "ours had {run} rounds in a row");
}

/// Whoever is killed, inside or outside, wherever it is: the others go on, and nobody meets another.
pub(crate) fn killed_at_any_time(language: Language) {
    let place = Place::new();
    let plan = Plan {
        rounds: 40,
        inside_us: 2_000,
        outside_us: 500,
    };
    let endless = Plan {
        rounds: 100_000,
        ..plan
    };
    let mut stayers = [("ours", Side::Ours), ("peer", Side::Peer(language))]
        .map(|(name, side)| (name, Writer::start(side, &place)));
    for (name, writer) in &mut stayers {
        writer.order(&plan.order(name));
    }
    let mut killed = BTreeSet::new();
    for number in 0..8 {
        let side = if number % 2 == 0 {
            Side::Ours
        } else {
            Side::Peer(language)
        };
        let name = format!("killed{number}");
        let mut victim = Writer::start(side, &place);
        victim.order(&endless.order(&name));
        until("it is inside", || place.says(&name));
        // Some are killed inside, some on their way out, some while they wait again.
        rest(number * 700);
        victim.kill();
        killed.insert(name);
    }
    for (name, writer) in &stayers {
        let answer = writer.late_answer();
        assert!(answer.starts_with("done "), "{name}: {answer}");
    }
    let rounds = oracle::rounds(&place, &killed);
    let each = rounds.each();
    assert_eq!((each["ours"], each["peer"]), (plan.rounds, plan.rounds));
    assert_eq!(each.len(), 10, "{each:?}");
    tell(&format!(
        "{language:?}: {} of 8 were killed inside, rounds of each: {each:?}",
        rounds.unfinished
    ));
}
