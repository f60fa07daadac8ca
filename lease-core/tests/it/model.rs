//! Random histories against a naive reference.

use std::collections::BTreeSet;

use lease_core::Moment;

use crate::history::always;
use crate::reference::{Reference, rows};
use crate::stage::{Played, Said, play};

/// Plays on the reference what a stage has played, and compares everything that can be seen.
#[track_caller]
pub(crate) fn compare(reference: &mut Reference, played: &Played<'_>) {
    let (shown, stage) = (played.shown, played.after);
    let expected = reference.perform(played.scene, &shown.served);
    match (&expected, &shown.said) {
        (Said::Refused(codes), Said::Refused(code)) => {
            assert!(code.is_subset(codes), "{code:?}, expected one of {codes:?}");
        }
        (Said::Listed(_), Said::Listed(views)) => assert_eq!(rows(views), reference.rows()),
        (expected, said) => assert_eq!(said, expected),
    }
    assert_eq!(shown.lines(), reference.lines);
    assert_eq!(rows(&stage.registry.peek(Moment::ZERO)), reference.rows());
    assert_eq!(stage.registry.waiting(), reference.waiting());
    assert_eq!(stage.answered(), reference.settled);
    let asked = stage.registry.questions();
    let asked = asked.iter().map(|asked| asked.about.generation.get());
    assert_eq!(asked.collect::<BTreeSet<_>>(), reference.questions());
}

#[test]
fn a_registry_answers_as_the_reference_does() {
    always(file!(), |history| {
        let mut reference = Reference::new(history.terms.policy());
        play(&history, |played| compare(&mut reference, played));
    });
}
