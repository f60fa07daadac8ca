//! Every short history of a small world, against the reference.
//!
//! Two writers, two resources of which one holds the other, and three spans of time: one tick, a term,
//! and a term and a tick. Whatever can be done in five steps is done.

use lease_core::{Disposition, Provenance};

use crate::history::{Beat, Deed, Lapse, Patience, Pick, Terms};
use crate::model::compare;
use crate::reference::Reference;
use crate::rig::TTL_MS;
use crate::stage::Stage;

const STEPS: usize = 5;

const WHOLE: usize = 0;
const PART: usize = 1;

fn now(deed: Deed) -> Beat {
    let lapse = Lapse::Stays;
    Beat { lapse, deed }
}

fn later(nanos: u64) -> Beat {
    let lapse = Lapse::Nanos(nanos);
    let deed = Deed::Advance;
    Beat { lapse, deed }
}

fn times() -> [Beat; 3] {
    let term = TTL_MS * 1_000_000;
    [later(1), later(term), later(term + 1)]
}

fn acquire(key: usize, who: usize, patience: Patience) -> Beat {
    now(Deed::Acquire {
        key,
        who,
        ttl: None,
        patience,
    })
}

fn requests(patience: Patience) -> [Beat; 4] {
    [(WHOLE, 0), (WHOLE, 1), (PART, 0), (PART, 1)].map(|(key, who)| acquire(key, who, patience))
}

/// Plays every history of `beats` from here on, as long as `steps`.
fn explore(stage: &Stage, reference: &Reference, beats: &[Beat], steps: usize) -> u64 {
    let mut played = 0;
    for beat in beats {
        let mut stage = stage.clone();
        let mut reference = reference.clone();
        stage.play(beat, |played| compare(&mut reference, played));
        played += 1;
        if steps > 1 {
            played += explore(&stage, &reference, beats, steps - 1);
        }
    }
    played
}

/// How many histories there are of up to five steps.
fn histories(beats: usize, first: usize) -> u64 {
    let rest = (0..5).map(|steps| beats.pow(steps)).sum::<usize>();
    u64::try_from(first * rest).unwrap()
}

/// The first step is a request of the first writer. Before that nothing can happen but time, and the
/// other half of all histories is the same with the names changed.
fn all(beats: &[Beat], first: &[Beat]) -> u64 {
    let mut played = 0;
    for beat in first {
        let mut stage = Stage::new(Terms::SessionTtl);
        let mut reference = Reference::new(Terms::SessionTtl.policy());
        stage.play(beat, |played| compare(&mut reference, played));
        played += 1 + explore(&stage, &reference, beats, STEPS - 1);
    }
    played
}

// X1
#[test]
fn every_short_history_of_two_who_hold() {
    let at = Pick::Old(0);
    let mut beats = Vec::from(times());
    beats.extend(requests(Patience::None));
    beats.extend([
        now(Deed::Touch(at)),
        now(Deed::Begin(at, 1, Provenance::Created)),
        now(Deed::End(at, 1, Ok(()))),
        now(Deed::End(at, 1, Err(Disposition::PreMutation))),
        now(Deed::Release(at)),
        now(Deed::Release(Pick::Old(1))),
        now(Deed::Disconnect(0)),
    ]);
    let first = [WHOLE, PART].map(|key| acquire(key, 0, Patience::None));
    assert_eq!(all(&beats, &first), histories(beats.len(), first.len()));
}

// X1
#[test]
fn every_short_history_of_two_who_wait() {
    let mut beats = Vec::from(times());
    beats.extend(requests(Patience::Forever));
    beats.extend([
        now(Deed::Release(Pick::Present(0))),
        now(Deed::Release(Pick::Present(1))),
        now(Deed::Disconnect(0)),
        now(Deed::Disconnect(1)),
        now(Deed::Cancel(0)),
        now(Deed::Cancel(1)),
        acquire(WHOLE, 1, Patience::For(TTL_MS * 1_000_000)),
    ]);
    let first = [WHOLE, PART].map(|key| acquire(key, 0, Patience::None));
    assert_eq!(all(&beats, &first), histories(beats.len(), first.len()));
}
