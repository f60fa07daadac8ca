//! Writers that are killed inside, in the first hold that there ever was on the path and in a later one.

use std::fs;

use crate::rig::{Language, Place, Side, Writer};

/// Each side is killed in the first hold on the path.
pub(crate) fn in_the_first_hold(language: Language) {
    for dies in [Side::Ours, Side::Peer(language)] {
        let place = Place::new();
        let mut dying = Writer::start(dies, &place);
        survive(language, dies, &place, &mut dying);
    }
}

/// Ours is killed in a first hold on a mutex that a peer made with 0 bytes, so that it writes a page.
pub(crate) fn in_the_first_hold_on_an_empty_mutex(language: Language) {
    let place = Place::new();
    let mut maker = Writer::start(Side::Peer(language), &place);
    assert_eq!(maker.does("open"), "opened");
    assert_eq!(fs::metadata(place.mutex()).unwrap().len(), 0);
    let mut dying = Writer::start(Side::Ours, &place);
    survive(language, Side::Ours, &place, &mut dying);
    // The one that made it has the same file still.
    maker.acquires();
    maker.releases();
}

/// Each side is killed in a later hold, after both have held.
pub(crate) fn in_a_later_hold(language: Language) {
    for dies in [Side::Ours, Side::Peer(language)] {
        let place = Place::new();
        let mut dying = Writer::start(dies, &place);
        for side in [Side::Ours, Side::Peer(language)] {
            let mut earlier = Writer::start(side, &place);
            earlier.acquires();
            earlier.releases();
        }
        dying.acquires();
        dying.releases();
        survive(language, dies, &place, &mut dying);
    }
}

/// Lets it be killed while it holds and while both sides wait, and looks at what is left.
fn survive(language: Language, dies: Side, place: &Place, dying: &mut Writer) {
    let mut ours = Writer::start(Side::Ours, place);
    let mut peer = Writer::start(Side::Peer(language), place);
    dying.acquires();
    for writer in [&mut ours, &mut peer] {
        let answer = writer.does("acquire 0");
        let named = format!("busy {} ", dying.pid());
        assert!(answer.starts_with(&named), "{answer}");
    }
    ours.order("acquire 9000");
    peer.order("acquire 9000");
    // Both wait for as long as it lives.
    assert_eq!((ours.early_answer(), peer.early_answer()), (None, None));
    dying.kill();
    let (first, second) = both_in_turn(&mut ours, &mut peer);
    first.releases();
    assert_eq!(second.answer(), "granted", "{dies:?} was killed");
    second.releases();

    // Nothing is left of the dead one but its place in the file system.
    assert!(!place.journal().exists());
    let left = fs::read(place.mutex()).unwrap();
    for _round in 0..3 {
        for writer in [&mut ours, &mut peer] {
            writer.acquires();
            writer.releases();
        }
    }
    let mut next = Writer::start(dies, place);
    next.acquires();
    next.releases();
    assert!(left == fs::read(place.mutex()).unwrap(), "no hold writes");
}

/// Waits until one of two that wait is granted, and returns that one first.
fn both_in_turn<'a>(
    one: &'a mut Writer,
    other: &'a mut Writer,
) -> (&'a mut Writer, &'a mut Writer) {
    let mut first = None;
    crate::rig::until("one of two is granted", || {
        let answers = (one.early_answer(), other.early_answer());
        first = match answers {
            (None, None) => None,
            (Some(answer), None) => Some((answer, true)),
            (None, Some(answer)) => Some((answer, false)),
            (Some(_), Some(_)) => panic!("both are inside"),
        };
        first.is_some()
    });
    let (answer, is_one) = first.unwrap();
    assert_eq!(answer, "granted");
    if is_one { (one, other) } else { (other, one) }
}
