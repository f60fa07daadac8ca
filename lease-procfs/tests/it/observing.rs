//! The loop around a decision: who is looked at, how often, and with what the call is made again.

use lease_core::{
    Answer, AuthorityId, Evidence, FencingToken, Generation, HolderLiveness, LeaseId, ProcessProof,
    Question, Verdict,
};
use lease_procfs::bound::{Asked, Refused, observing};
use lease_procfs::{ProcessHolder, limits};
use mockall::predicate::function;
use mockall::{Sequence, mock};

use crate::identity::whole;

mock! {
    Liveness {}
    impl HolderLiveness<ProcessHolder> for Liveness {
        fn observe(&self, question: &Question<ProcessHolder>) -> Verdict;
    }
}

fn dead() -> Verdict {
    Verdict::Dead(Evidence::new("exited"))
}

/// Asks about the holder of this name, for the lease of this generation.
fn question(client: &str, generation: u64) -> Question<ProcessHolder> {
    let token = FencingToken {
        authority: AuthorityId::from_bytes([1; 16]),
        generation: Generation::new(generation).unwrap(),
        lease: LeaseId::from_bytes([2; 16]),
    };
    let holder = ProcessHolder::new(client, whole()).unwrap();
    Question::new(holder, token, 0, ProcessProof::default())
}

/// Expects exactly one look at the holder of this name, as the next one.
fn expect_look(liveness: &mut MockLiveness, order: &mut Sequence, client: &'static str) {
    let is_asked = move |asked: &Question<ProcessHolder>| asked.holder.client() == client;
    liveness
        .expect_observe()
        .with(function(is_asked))
        .once()
        .in_sequence(order)
        .return_const(dead());
}

#[test]
fn nobody_is_looked_at_before_a_decision_asks() {
    let liveness = MockLiveness::new();
    let done = observing(&liveness, |answers| {
        assert!(answers.is_empty());
        Ok(Asked::Done(7))
    });
    assert!(matches!(done, Ok(Asked::Done(7))));
    let refused = observing::<()>(&liveness, |_answers| Err(Refused::Unmanaged));
    assert!(matches!(refused, Err(Refused::Unmanaged)));
}

#[test]
fn each_holder_is_looked_at_once_and_in_the_order_of_the_questions() {
    let (mut liveness, mut order) = (MockLiveness::new(), Sequence::new());
    for client in ["first", "second", "third"] {
        expect_look(&mut liveness, &mut order, client);
    }
    let mut calls = Vec::new();
    let done = observing(&liveness, |answers: &[Answer]| {
        calls.push(answers.len());
        Ok(match answers.len() {
            0 => Asked::Ask(vec![question("first", 1), question("second", 2)]),
            2 => Asked::Ask(vec![question("third", 3)]),
            _ => {
                let about = answers.iter().map(|answer| answer.about.generation.get());
                Asked::Done(about.collect::<Vec<_>>())
            }
        })
    });
    let Ok(Asked::Done(about)) = done else {
        panic!("{done:?}");
    };
    assert_eq!(about, [1, 2, 3], "what was seen before stays");
    assert_eq!(calls, [0, 2, 3]);
}

#[test]
fn a_lease_that_is_anothers_each_time_ends_in_a_question() {
    let mut liveness = MockLiveness::new();
    liveness
        .expect_observe()
        .times(limits::ROUNDS - 1)
        .return_const(dead());
    let mut generation = 0;
    let asked = observing::<()>(&liveness, |_answers| {
        generation += 1;
        Ok(Asked::Ask(vec![question("next", generation)]))
    });
    let Ok(Asked::Ask(questions)) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(
        questions[0].about.generation.get(),
        u64::try_from(limits::ROUNDS).unwrap(),
        "the last one, which nobody looked at"
    );
}
