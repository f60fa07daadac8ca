//! A peer that speaks protocol 1, where the existence of a file is the claim.

use std::fs;

use crate::rig::{Language, Place, Side, Writer};

#[cfg(feature = "legacy-v1")]
const ALIVE: &str = "LegacyAlive";
#[cfg(not(feature = "legacy-v1"))]
const ALIVE: &str = "Unrecognised";

/// A claim of a living process keeps ours and peers out, without a kernel lock.
pub(crate) fn a_living_claim(language: Language) {
    let place = Place::new();
    let mut old = Writer::start(Side::Peer(language), &place);
    let mut ours = Writer::start(Side::Ours, &place);
    let mut peer = Writer::start(Side::Peer(language), &place);
    assert_eq!(old.does("claim"), "claimed");
    let claim = fs::read(place.record()).unwrap();
    let answer = ours.does("acquire 60");
    assert_eq!(
        answer,
        format!("busy {} None {ALIVE} locked_by=None", old.pid())
    );
    let answer = peer.does("acquire 60");
    assert!(answer.starts_with("busy"), "{answer}");
    assert!(claim == fs::read(place.record()).unwrap());

    // One that waits is granted as soon as the claim is gone.
    ours.order("acquire 9000");
    assert_eq!(peer.does("acquire 60"), answer);
    assert_eq!(ours.early_answer(), None);
    assert_eq!(old.does("unclaim"), "unclaimed");
    assert_eq!(ours.answer(), "granted");
    // The record of a hold is in the way of a claim.
    assert_eq!(old.does("claim"), "taken");
    ours.releases();
    peer.acquires();
}

/// A claim of a process that was killed is removed once, by whoever comes first.
#[cfg(feature = "legacy-v1")]
pub(crate) fn a_dead_claim(language: Language) {
    for ours_first in [true, false] {
        let place = Place::new();
        let mut old = Writer::start(Side::Peer(language), &place);
        // Opened before the claim, so that its sweep cannot have taken it.
        let mut ours = Writer::start(Side::Ours, &place);
        let mut peer = Writer::start(Side::Peer(language), &place);
        assert_eq!(old.does("claim"), "claimed");
        assert!(ours.does("acquire 0").contains(ALIVE));
        old.kill();
        if ours_first {
            assert_eq!(ours.does("acquire 0"), "granted reaped");
            assert!(peer.does("acquire 0").starts_with("busy"));
            ours.releases();
        }
        peer.acquires();
        assert!(ours.does("acquire 0").starts_with("busy"));
        peer.releases();
        ours.acquires();
        assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
    }
}

/// Without the feature nobody judges a claim, so it stays.
#[cfg(not(feature = "legacy-v1"))]
pub(crate) fn a_dead_claim(language: Language) {
    let place = Place::new();
    let mut old = Writer::start(Side::Peer(language), &place);
    let mut ours = Writer::start(Side::Ours, &place);
    assert_eq!(old.does("claim"), "claimed");
    let claim = fs::read(place.record()).unwrap();
    old.kill();
    let answer = ours.does("acquire 60");
    assert!(answer.contains(ALIVE), "{answer}");
    assert!(claim == fs::read(place.record()).unwrap());
}
