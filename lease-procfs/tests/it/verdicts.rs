//! The table, row by row and over every combination of facts.

use lease_core::{Locality, Verdict};
use lease_procfs::facts::{
    Boot, Exit, Facts, Grain, Inode, Leader, Lookup, Number, Occupancy, Presence, Signal, Ticks,
    Trust, View,
};
use lease_procfs::{Proof, Sameness, verdict};

use crate::rig::shown;

const LOCALITIES: [Locality; 2] = [Locality::ThisMachine, Locality::ManyMachines];

/// A number of our own namespace in this boot, not yet looked up.
fn near() -> Facts {
    let mut facts = Facts::default();
    facts.locality = Locality::ThisMachine;
    facts.boot = Boot::Same;
    facts.trust = Trust::Both;
    facts.view = View::Ours;
    facts.pid_namespace = Sameness::Same;
    facts.time_namespace = Sameness::Same;
    facts.grain = Grain::Inode;
    facts.occupancy = Occupancy::NotAsked;
    facts
}

fn opened(inode: Inode, exit: Exit) -> Facts {
    let mut facts = near();
    facts.lookup = Lookup::Opened;
    facts.inode = inode;
    facts.exit = exit;
    facts
}

fn by_ticks(ticks: Ticks, exit: Exit) -> Facts {
    let mut facts = near();
    facts.grain = Grain::Ticks;
    facts.lookup = Lookup::Opened;
    facts.ticks = ticks;
    facts.exit = exit;
    facts
}

fn without_pidfd(ticks: Ticks, number: Number, leader: Leader) -> Facts {
    let mut facts = near();
    facts.grain = Grain::Ticks;
    facts.lookup = Lookup::Unavailable;
    facts.ticks = ticks;
    facts.number = number;
    facts.leader = leader;
    facts
}

#[track_caller]
fn check(facts: Facts, expected: &str) {
    assert_eq!(shown(&verdict(&facts)), expected, "{facts:?}");
}

#[track_caller]
fn check_with(mut facts: Facts, change: impl FnOnce(&mut Facts), expected: &str) {
    change(&mut facts);
    check(facts, expected);
}

#[test]
fn what_was_not_looked_at_is_unknown() {
    check(Facts::default(), "unknown: proc_missing");
    check(near(), "unknown: not_observed");
}

// B28
#[test]
fn the_recorded_process_lives_or_is_dead() {
    check(opened(Inode::Same, Exit::Running), "alive: running");
    check(opened(Inode::Same, Exit::Exited), "dead: exited");
    check(
        opened(Inode::Different, Exit::Running),
        "dead: pid_recycled",
    );
    check_with(
        near(),
        |f| f.lookup = Lookup::NoSuchProcess,
        "dead: no_such_process",
    );
    check(
        by_ticks(Ticks::Same, Exit::Running),
        "alive: running_by_start_ticks",
    );
    check(
        by_ticks(Ticks::Different, Exit::Running),
        "dead: pid_recycled",
    );
    check(by_ticks(Ticks::Same, Exit::Exited), "dead: exited");
}

// fault B33
#[test]
fn a_number_that_became_a_thread_is_dead() {
    check_with(
        near(),
        |f| f.lookup = Lookup::NotAProcess,
        "dead: pid_recycled",
    );
    let older = |number| {
        move |f: &mut Facts| {
            f.lookup = Lookup::NotALeader;
            f.number = number;
        }
    };
    check_with(near(), older(Number::Thread), "dead: pid_recycled");
    check_with(near(), older(Number::Unreadable), "unknown: lookup_failed");
    let same = without_pidfd(Ticks::Same, Number::Thread, Leader::Runs);
    check(same, "dead: pid_recycled");
}

// fault B11
#[test]
fn another_boot_is_dead_only_with_trust_and_a_local_record() {
    let mut other = near();
    other.boot = Boot::Other;
    check(other, "dead: other_boot");
    check_with(
        other,
        |f| f.locality = Locality::ManyMachines,
        "unknown: another_machine",
    );
    for trust in [Trust::OursOnly, Trust::RecordOnly, Trust::Neither] {
        check_with(other, |f| f.trust = trust, "unknown: boot_id_untrusted");
        check_with(near(), |f| f.trust = trust, "unknown: boot_id_untrusted");
    }
    // A lock that is held cannot be of an earlier boot.
    check_with(
        other,
        |f| f.presence = Presence::Held,
        "unknown: presence_held",
    );
}

// B10
// fault B01
#[test]
fn another_namespace_is_unknown_whatever_the_number_names() {
    let seen = [
        opened(Inode::Same, Exit::Running),
        opened(Inode::Different, Exit::Running),
        opened(Inode::Same, Exit::Exited),
        by_ticks(Ticks::Different, Exit::Running),
    ];
    for facts in seen {
        let other = |f: &mut Facts| f.pid_namespace = Sameness::Different;
        check_with(facts, other, "unknown: other_pid_namespace");
        let unsure = |f: &mut Facts| f.pid_namespace = Sameness::Undecided;
        check_with(facts, unsure, "unknown: pid_namespace_unknown");
    }
    for ticks in [Ticks::Same, Ticks::Different] {
        let facts = by_ticks(ticks, Exit::Running);
        let other = |f: &mut Facts| f.time_namespace = Sameness::Different;
        check_with(facts, other, "unknown: other_time_namespace");
        let unsure = |f: &mut Facts| f.time_namespace = Sameness::Undecided;
        check_with(facts, unsure, "unknown: time_namespace_unknown");
    }
    // An inode is the same in every time namespace.
    let running = opened(Inode::Same, Exit::Running);
    check_with(
        running,
        |f| f.time_namespace = Sameness::Different,
        "alive: running",
    );
}

#[test]
fn a_view_that_is_not_ours_proves_nothing() {
    let gone = |view| {
        move |f: &mut Facts| {
            f.view = view;
            f.lookup = Lookup::NoSuchProcess;
        }
    };
    check_with(near(), gone(View::NotOurs), "unknown: proc_not_ours");
    check_with(near(), gone(View::Missing), "unknown: proc_missing");
    check_with(near(), gone(View::Unsupported), "unknown: unsupported");
    let unread = |f: &mut Facts| f.boot = Boot::Unreadable;
    check_with(near(), unread, "unknown: boot_id_unreadable");
}

// B7, B9
// fault B06
#[test]
fn a_look_that_failed_is_unknown() {
    let looked = |lookup| move |f: &mut Facts| f.lookup = lookup;
    check_with(near(), looked(Lookup::Denied), "unknown: lookup_denied");
    check_with(
        near(),
        looked(Lookup::Exhausted),
        "unknown: lookup_exhausted",
    );
    check_with(near(), looked(Lookup::Failed), "unknown: lookup_failed");
    check(
        opened(Inode::Failed, Exit::Running),
        "unknown: lookup_failed",
    );
    check(opened(Inode::Same, Exit::Failed), "unknown: lookup_failed");
    let read = [
        (Ticks::NotFound, "unknown: hidden"),
        (Ticks::Denied, "unknown: lookup_denied"),
        (Ticks::Exhausted, "unknown: lookup_exhausted"),
        (Ticks::Failed, "unknown: lookup_failed"),
        (Ticks::Malformed, "unknown: stat_malformed"),
        (Ticks::NotAsked, "unknown: not_observed"),
    ];
    for (ticks, expected) in read {
        check(by_ticks(ticks, Exit::Running), expected);
        let mut facts = without_pidfd(ticks, Number::NotAsked, Leader::NotAsked);
        facts.signal = Signal::NotPermitted;
        check(facts, expected);
        facts.signal = Signal::NoSuchProcess;
        check(facts, "dead: no_such_process");
    }
}

// fault B13
#[test]
fn an_exited_leader_is_death_only_where_a_pidfd_says_so() {
    check(opened(Inode::Same, Exit::Exited), "dead: exited");
    let leader = |leader| without_pidfd(Ticks::Same, Number::Process, leader);
    check(leader(Leader::Runs), "alive: running_by_start_ticks");
    check(leader(Leader::Exited), "unknown: leader_exited");
}

#[test]
fn a_free_presence_byte_decides_across_namespaces_and_where_nothing_else_did() {
    let free = |f: &mut Facts| f.presence = Presence::Free;
    let mut other = opened(Inode::Same, Exit::Running);
    other.pid_namespace = Sameness::Different;
    check_with(other, free, "dead: presence_released");
    other.boot = Boot::Unreadable;
    check_with(other, free, "dead: presence_released");
    other.locality = Locality::ManyMachines;
    check_with(other, free, "unknown: boot_id_unreadable");
    // In our own namespace only when the look ended in doubt.
    check_with(opened(Inode::Same, Exit::Running), free, "alive: running");
    check_with(
        opened(Inode::Same, Exit::Failed),
        free,
        "dead: presence_released",
    );
    let unsure = |f: &mut Facts| {
        f.presence = Presence::Free;
        f.pid_namespace = Sameness::Undecided;
    };
    check_with(near(), unsure, "unknown: pid_namespace_unknown");
    for presence in [Presence::None, Presence::Held] {
        check_with(
            other,
            |f| f.presence = presence,
            "unknown: boot_id_unreadable",
        );
    }
}

#[test]
fn what_else_must_be_gone_and_was_not_looked_at_keeps_the_dead_from_being_dead() {
    let asked = |f: &mut Facts| f.occupancy = Occupancy::Unobserved;
    check_with(
        opened(Inode::Same, Exit::Exited),
        asked,
        "unknown: occupancy_not_observed",
    );
    check_with(opened(Inode::Same, Exit::Running), asked, "alive: running");
    let mut other_boot = near();
    other_boot.boot = Boot::Other;
    check_with(other_boot, asked, "unknown: occupancy_not_observed");
}

/// What each answer about the rest of its work makes of a holder that is proven gone.
fn after_death(occupancy: Occupancy, death: &str) -> String {
    match occupancy {
        Occupancy::NotAsked | Occupancy::Empty => death.to_owned(),
        Occupancy::Group => "occupied: group_alive".to_owned(),
        Occupancy::Paths => "occupied: path_in_use".to_owned(),
        Occupancy::Unobserved => "unknown: occupancy_not_observed".to_owned(),
        Occupancy::Hidden => "unknown: occupancy_hidden".to_owned(),
        Occupancy::Failed => "unknown: occupancy_failed".to_owned(),
        other => panic!("{other:?} has no row here"),
    }
}

#[track_caller]
fn occupancy_matters_after_death_only(facts: &Facts) {
    let mut facts = *facts;
    facts.occupancy = Occupancy::NotAsked;
    let alone = verdict(&facts);
    for &occupancy in Occupancy::ALL {
        facts.occupancy = occupancy;
        let whole = verdict(&facts);
        match &alone {
            Verdict::Dead(_) => {
                assert_eq!(shown(&whole), after_death(occupancy, &shown(&alone)));
            }
            Verdict::Alive(_) | Verdict::Unknown(_) => assert_eq!(whole, alone, "{facts:?}"),
            Verdict::Occupied(_) => panic!("nobody was asked about: {facts:?}"),
        }
    }
}

#[test]
fn somebody_at_its_work_makes_the_dead_occupied_and_changes_nothing_else() {
    looks(&[near()], occupancy_matters_after_death_only);
    for place in places() {
        for look in some_looks() {
            occupancy_matters_after_death_only(&joined(&place, &look));
        }
    }
}

/// Every place a record can come from, with every presence.
fn places() -> Vec<Facts> {
    let mut places = Vec::new();
    let mut facts = near();
    for locality in LOCALITIES {
        facts.locality = locality;
        for &presence in Presence::ALL {
            facts.presence = presence;
            for &boot in Boot::ALL {
                facts.boot = boot;
                for &trust in Trust::ALL {
                    facts.trust = trust;
                    for &view in View::ALL {
                        facts.view = view;
                        for &pid_namespace in Sameness::ALL {
                            facts.pid_namespace = pid_namespace;
                            for &time_namespace in Sameness::ALL {
                                facts.time_namespace = time_namespace;
                                places.push(facts);
                            }
                        }
                    }
                }
            }
        }
    }
    places
}

/// Every outcome of a look, at each of these places.
fn looks(places: &[Facts], mut each: impl FnMut(&Facts)) {
    for place in places {
        let mut facts = *place;
        for &grain in Grain::ALL {
            facts.grain = grain;
            for &lookup in Lookup::ALL {
                facts.lookup = lookup;
                for &inode in Inode::ALL {
                    facts.inode = inode;
                    for &exit in Exit::ALL {
                        facts.exit = exit;
                        rest(&mut facts, &mut each);
                    }
                }
            }
        }
    }
}

fn rest(facts: &mut Facts, each: &mut impl FnMut(&Facts)) {
    for &ticks in Ticks::ALL {
        facts.ticks = ticks;
        for &leader in Leader::ALL {
            facts.leader = leader;
            for &number in Number::ALL {
                facts.number = number;
                for &signal in Signal::ALL {
                    facts.signal = signal;
                    each(facts);
                }
            }
        }
    }
}

/// A few looks of each kind.
fn some_looks() -> Vec<Facts> {
    let mut looks = vec![near()];
    for &lookup in Lookup::ALL {
        for &signal in &[Signal::NotAsked, Signal::NoSuchProcess] {
            let mut facts = near();
            facts.lookup = lookup;
            facts.signal = signal;
            looks.push(facts);
        }
    }
    for &exit in Exit::ALL {
        looks.extend(Inode::ALL.iter().map(|&inode| opened(inode, exit)));
        looks.extend(Ticks::ALL.iter().map(|&ticks| by_ticks(ticks, exit)));
    }
    for &ticks in Ticks::ALL {
        for &number in Number::ALL {
            looks.push(without_pidfd(ticks, number, Leader::Runs));
        }
    }
    looks
}

/// Puts the look of one at the place of the other.
fn joined(place: &Facts, look: &Facts) -> Facts {
    let mut facts = *look;
    facts.locality = place.locality;
    facts.presence = place.presence;
    facts.boot = place.boot;
    facts.trust = place.trust;
    facts.view = place.view;
    facts.pid_namespace = place.pid_namespace;
    facts.time_namespace = place.time_namespace;
    facts
}

/// Tells, in other words than the table, whether these facts can prove a death at all.
fn may_be_dead(facts: &Facts) -> bool {
    let local = facts.locality == Locality::ThisMachine;
    let free = local && facts.presence == Presence::Free;
    if free && facts.pid_namespace == Sameness::Different {
        return true;
    }
    if facts.trust != Trust::Both {
        return false;
    }
    if facts.boot == Boot::Other {
        return local && facts.presence != Presence::Held;
    }
    let looked_up_rightly = facts.boot == Boot::Same
        && facts.view == View::Ours
        && facts.pid_namespace == Sameness::Same
        && (facts.grain == Grain::Inode || facts.time_namespace == Sameness::Same);
    let opened = facts.lookup == Lookup::Opened;
    let number_is_gone = facts.signal == Signal::NoSuchProcess
        || matches!(facts.lookup, Lookup::NoSuchProcess | Lookup::NotAProcess)
        || (facts.number == Number::Thread && !opened);
    let number_is_anothers =
        (opened && facts.inode == Inode::Different) || facts.ticks == Ticks::Different;
    let exited = opened && facts.exit == Exit::Exited;
    looked_up_rightly && (free || number_is_gone || number_is_anothers || exited)
}

#[track_caller]
fn dead_only_with_proof(facts: &Facts) {
    match verdict(facts) {
        Verdict::Dead(evidence) => assert!(may_be_dead(facts), "{evidence:?} from {facts:?}"),
        Verdict::Occupied(evidence) => panic!("{evidence:?} from {facts:?}"),
        Verdict::Alive(_) | Verdict::Unknown(_) => {}
    }
}

#[test]
fn dead_comes_only_from_facts_that_prove_it() {
    let mut near_free = near();
    near_free.presence = Presence::Free;
    let mut far = near();
    far.pid_namespace = Sameness::Different;
    looks(&[near(), near_free, far], dead_only_with_proof);
    for place in places() {
        for look in some_looks() {
            dead_only_with_proof(&joined(&place, &look));
        }
    }
}

#[test]
fn alive_comes_only_from_the_recorded_process_running() {
    looks(&[near()], |facts| {
        if !matches!(verdict(facts), Verdict::Alive(_)) {
            return;
        }
        let by_inode = facts.grain == Grain::Inode && facts.inode == Inode::Same;
        let by_ticks = facts.grain == Grain::Ticks && facts.ticks == Ticks::Same;
        let proven = match facts.lookup {
            Lookup::Opened => facts.exit == Exit::Running && (by_inode || by_ticks),
            Lookup::Unavailable => {
                facts.ticks == Ticks::Same
                    && facts.number == Number::Process
                    && facts.leader == Leader::Runs
            }
            _ => false,
        };
        assert!(proven, "{facts:?}");
    });
}

type Doubt = fn(&mut Facts);

/// Each fact, made less certain. A presence that nobody asked about is no doubt: every row but two
/// does without.
const DOUBTS: &[Doubt] = &[
    |f| f.locality = Locality::ManyMachines,
    |f| f.boot = Boot::Unreadable,
    |f| f.trust = Trust::OursOnly,
    |f| f.trust = Trust::RecordOnly,
    |f| f.trust = Trust::Neither,
    |f| f.view = View::Missing,
    |f| f.view = View::NotOurs,
    |f| f.view = View::Unsupported,
    |f| f.pid_namespace = Sameness::Undecided,
    |f| f.time_namespace = Sameness::Undecided,
    |f| f.lookup = Lookup::NotAsked,
    |f| f.lookup = Lookup::Denied,
    |f| f.lookup = Lookup::Exhausted,
    |f| f.lookup = Lookup::Failed,
    |f| f.inode = Inode::NotAsked,
    |f| f.inode = Inode::Failed,
    |f| f.exit = Exit::NotAsked,
    |f| f.exit = Exit::Failed,
    |f| f.ticks = Ticks::NotAsked,
    |f| f.ticks = Ticks::NotFound,
    |f| f.ticks = Ticks::Denied,
    |f| f.ticks = Ticks::Exhausted,
    |f| f.ticks = Ticks::Failed,
    |f| f.ticks = Ticks::Malformed,
    |f| f.leader = Leader::NotAsked,
    |f| f.number = Number::NotAsked,
    |f| f.number = Number::Unreadable,
    |f| f.signal = Signal::NotAsked,
    |f| f.signal = Signal::Failed,
    |f| f.occupancy = Occupancy::Unobserved,
    |f| f.occupancy = Occupancy::Hidden,
    |f| f.occupancy = Occupancy::Failed,
];

/// What a free byte and a number that names nothing prove is left out: they are proofs in reserve,
/// which stand when the better look fails.
fn has_proof_in_reserve(facts: &Facts) -> bool {
    facts.presence == Presence::Free || facts.signal == Signal::NoSuchProcess
}

#[track_caller]
fn doubt_kills_nobody(facts: &Facts) {
    let before = verdict(facts);
    if matches!(before, Verdict::Dead(_)) || has_proof_in_reserve(facts) {
        return;
    }
    for doubt in DOUBTS {
        let mut doubted = *facts;
        doubt(&mut doubted);
        let after = verdict(&doubted);
        assert!(
            !matches!(after, Verdict::Dead(_)),
            "{facts:?} then {doubted:?}: {after:?}"
        );
    }
}

#[test]
fn doubt_about_any_fact_never_makes_a_holder_dead() {
    looks(&[near()], doubt_kills_nobody);
    for place in places() {
        for look in some_looks() {
            doubt_kills_nobody(&joined(&place, &look));
        }
    }
}

#[test]
fn proofs_have_distinct_codes_in_snake_case() {
    let mut codes: Vec<_> = Proof::ALL.iter().map(|proof| proof.as_str()).collect();
    let count = codes.len();
    let is_snake = |c: char| c.is_ascii_lowercase() || c == '_';
    assert!(
        codes.iter().all(|code| code.chars().all(is_snake)),
        "{codes:?}"
    );
    insta::assert_snapshot!(codes.join("\n"));
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), count);
}
