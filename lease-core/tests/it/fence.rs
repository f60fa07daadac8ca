//! The gate at the resource: it only rises, and what it refused leaves no trace.

use lease_core::{
    AuthorityId, Code, FenceGate, Fenced, FencingToken, GateError, LeaseId, Provenance,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::rig::{Answered as _, Rig, T0, TTL_MS, VIEWPORT, generation, inp, mcp, op};

const fn authority(number: u8) -> AuthorityId {
    AuthorityId::from_bytes([number; 16])
}

/// The token of `lease` under `generation` of authority 1.
fn token(number: u64, lease: u8) -> FencingToken {
    of(1, number, lease)
}

fn of(by: u8, number: u64, lease: u8) -> FencingToken {
    FencingToken {
        authority: authority(by),
        generation: generation(number),
        lease: LeaseId::from_bytes([lease; 16]),
    }
}

/// Refuses for this reason, in word and deed, and stays as it was.
#[track_caller]
fn refuses(gate: &mut FenceGate, token: &FencingToken, reason: Fenced) {
    let before = gate.clone();
    assert_eq!(gate.check(token), Err(reason));
    assert_eq!(gate.enter(token), Err(reason));
    assert_eq!(*gate, before);
    assert_eq!(reason.code(), Code::Fenced);
}

/// Lets in, and a check says so beforehand without letting anybody in.
#[track_caller]
fn enters(gate: &mut FenceGate, token: &FencingToken) {
    let before = gate.clone();
    assert_eq!(gate.check(token), Ok(()));
    assert_eq!(*gate, before);
    assert_eq!(gate.enter(token), Ok(()));
    assert_eq!(gate.current(), Some(*token));
}

#[test]
fn a_fresh_gate_takes_the_authority_of_its_first_token() {
    let mut gate = FenceGate::new();
    assert_eq!(gate, FenceGate::default());
    assert_eq!((gate.authority(), gate.current()), (None, None));
    enters(&mut gate, &token(7, 7));
    assert_eq!(gate.authority(), Some(authority(1)));
    assert_eq!(gate.retired(), []);
}

#[test]
fn the_same_writer_enters_as_often_as_it_likes() {
    let mut gate = FenceGate::new();
    for _ in 0..3 {
        enters(&mut gate, &token(7, 7));
    }
    enters(&mut gate, &token(8, 8));
}

#[test]
fn an_older_writer_is_refused() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    let older = Fenced::Older {
        current: token(7, 7),
    };
    for number in [1, 6] {
        refuses(&mut gate, &token(number, 1), older);
        // The lease id does not make up for the generation.
        refuses(&mut gate, &token(number, 7), older);
    }
}

#[test]
fn a_generation_given_twice_is_refused() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    let twice = Fenced::Twice {
        current: token(7, 7),
    };
    refuses(&mut gate, &token(7, 8), twice);
    enters(&mut gate, &token(7, 7));
}

#[test]
fn a_foreign_authority_is_refused_until_the_owner_puts_it_in_place() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &of(1, 1_000, 1));
    let foreign = Fenced::OtherAuthority {
        current: authority(1),
    };
    refuses(&mut gate, &of(2, 2_000, 2), foreign);
    refuses(&mut gate, &of(2, 1, 2), foreign);
    assert_eq!(gate.succeed(authority(2)), Ok(()));
    assert_eq!(gate.authority(), Some(authority(2)));
    assert_eq!(
        (gate.current(), gate.retired()),
        (None, &[authority(1)][..])
    );
    // The first token of the new one is the floor, however small.
    enters(&mut gate, &of(2, 3, 2));
    let older = Fenced::Older {
        current: of(2, 3, 2),
    };
    refuses(&mut gate, &of(2, 2, 1), older);
}

#[test]
fn a_succeeded_authority_never_comes_back() {
    let mut gate = FenceGate::new();
    for number in 1..=4 {
        assert_eq!(gate.succeed(authority(number)), Ok(()));
        enters(&mut gate, &of(number, 5, number));
    }
    let retired = [authority(1), authority(2), authority(3)];
    assert_eq!(gate.retired(), retired);
    let current = authority(4);
    for number in 1..=3 {
        let reason = Fenced::OtherAuthority { current };
        let largest = lease_core::limits::GENERATION_MAX;
        refuses(&mut gate, &of(number, largest, number), reason);
        let before = gate.clone();
        assert_eq!(gate.succeed(authority(number)), Err(reason));
        assert_eq!(gate, before);
    }
    // Restored before its first token, it still knows whom it turned away.
    let current = authority(5);
    let mut restored = FenceGate::restore(Some(current), None, retired.to_vec()).unwrap();
    for number in 1..=3 {
        let reason = Fenced::OtherAuthority { current };
        refuses(&mut restored, &of(number, 9, number), reason);
        assert_eq!(restored.succeed(authority(number)), Err(reason));
        restored.revoke(&of(number, 9, number));
        assert_eq!(restored.current(), None);
    }
    enters(&mut restored, &of(5, 1, 4));
}

#[test]
fn an_authority_that_succeeds_itself_changes_nothing() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    let before = gate.clone();
    assert_eq!(gate.succeed(authority(1)), Ok(()));
    assert_eq!(gate, before);
}

#[test]
fn an_authority_put_in_place_at_a_fresh_gate_keeps_others_out() {
    let mut gate = FenceGate::new();
    assert_eq!(gate.succeed(authority(2)), Ok(()));
    assert_eq!(gate.retired(), []);
    let foreign = Fenced::OtherAuthority {
        current: authority(2),
    };
    refuses(&mut gate, &token(7, 7), foreign);
    enters(&mut gate, &of(2, 1, 1));
}

#[test]
fn a_revoked_generation_and_all_before_it_are_refused() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    gate.revoke(&token(7, 7));
    let revoked = Fenced::Revoked {
        generation: generation(7),
    };
    // The mark of a revoked generation is no key to it.
    for (number, lease) in [(7, 7), (7, 8), (7, 0), (6, 6), (1, 1)] {
        refuses(&mut gate, &token(number, lease), revoked);
    }
    assert_eq!(gate.current().map(|token| token.lease), Some(LeaseId::NIL));
    enters(&mut gate, &token(8, 8));
    let older = Fenced::Older {
        current: token(8, 8),
    };
    refuses(&mut gate, &token(7, 7), older);
}

#[test]
fn a_generation_can_be_revoked_before_its_writer_comes() {
    let mut gate = FenceGate::new();
    gate.revoke(&token(7, 7));
    let revoked = Fenced::Revoked {
        generation: generation(7),
    };
    refuses(&mut gate, &token(7, 7), revoked);
    enters(&mut gate, &token(8, 8));
    gate.revoke(&token(9, 9));
    let revoked = Fenced::Revoked {
        generation: generation(9),
    };
    refuses(&mut gate, &token(8, 8), revoked);
}

#[test]
fn revoking_what_is_past_or_foreign_changes_nothing() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    let before = gate.clone();
    gate.revoke(&token(6, 6));
    gate.revoke(&of(2, 9, 9));
    assert_eq!(gate, before);
    enters(&mut gate, &token(7, 7));
}

/// The gate after its parts were stored and read.
fn restored(gate: &FenceGate) -> FenceGate {
    let last = gate.current().map(|token| (token.generation, token.lease));
    FenceGate::restore(gate.authority(), last, gate.retired().to_vec()).unwrap()
}

#[test]
fn a_gate_restored_before_its_first_token_keeps_strangers_out() {
    let mut gate = FenceGate::new();
    enters(&mut gate, &token(7, 7));
    assert_eq!(gate.succeed(authority(2)), Ok(()));
    let current = authority(2);
    refuses(
        &mut restored(&gate),
        &of(3, 9, 9),
        Fenced::OtherAuthority { current },
    );
}

#[test]
fn parts_that_no_gate_has_had_open_none() {
    let last = Some((generation(7), token(7, 7).lease));
    let restore = |authority, last, retired| FenceGate::restore(authority, last, retired);
    assert_eq!(restore(None, last, Vec::new()), Err(GateError::NoAuthority));
    assert_eq!(
        restore(None, None, vec![authority(1)]),
        Err(GateError::Retired)
    );
    let retired = vec![authority(1)];
    assert_eq!(
        restore(Some(authority(1)), last, retired),
        Err(GateError::Retired)
    );
}

#[test]
fn the_mark_of_a_revoked_generation_is_nobodys_lease() {
    let mut nobody = token(7, 7);
    nobody.lease = LeaseId::NIL;
    let revoked = Fenced::Revoked {
        generation: generation(7),
    };
    refuses(&mut FenceGate::new(), &nobody, revoked);
}

#[test]
fn a_restored_gate_goes_on_where_it_was() {
    let mut revoked = FenceGate::new();
    enters(&mut revoked, &token(7, 7));
    revoked.revoke(&token(7, 7));
    let mut succeeded = FenceGate::new();
    enters(&mut succeeded, &token(7, 7));
    assert_eq!(succeeded.succeed(authority(2)), Ok(()));
    enters(&mut succeeded, &of(2, 3, 3));
    let mut entered = FenceGate::new();
    enters(&mut entered, &token(7, 7));
    for gate in [FenceGate::new(), entered, revoked, succeeded] {
        assert_eq!(restored(&gate), gate);
    }
}

#[test]
fn a_writer_that_wakes_after_its_successor_entered_writes_nothing() {
    let mut rig = Rig::sessions();
    let (mut gate, mut data) = (FenceGate::new(), Vec::new());
    let stalled = rig.granted(VIEWPORT, &mcp()).at;
    assert_eq!(gate.enter(&stalled.token), Ok(()));
    let successor = rig.at(T0 + TTL_MS + 1).granted(VIEWPORT, &inp()).at;
    enters(&mut gate, &successor.token);
    data.push("successor");
    // It has not noticed anything yet, and goes straight to the resource.
    let late = gate.enter(&stalled.token).map(|()| data.push("stalled"));
    let current = successor.token;
    assert_eq!(late, Err(Fenced::Older { current }));
    assert_eq!(data, ["successor"]);
    // And the authority tells it the same.
    let begin = rig.begin(VIEWPORT, stalled, op(1), Provenance::Created);
    assert_eq!(begin.refusal().code(), Code::StaleToken);
}

#[test]
fn an_authority_restored_from_an_older_state_is_noticed_and_raised_above_the_gate() {
    let mut rig = Rig::sessions();
    let mut restored = rig.clone();
    let mut gate = FenceGate::new();
    let current = rig.granted("a", &mcp()).at.token;
    enters(&mut gate, &current);
    // The restored one knows nothing of that grant; its random ids are others.
    let _drawn = restored.turn(|_, turn| (turn.lease_id)());
    let twin = restored.granted("a", &inp()).at.token;
    assert_eq!(twin.generation, current.generation);
    refuses(&mut gate, &twin, Fenced::Twice { current });
    restored.registry.raise_floor(current.generation);
    enters(&mut gate, &restored.granted("b", &inp()).at.token);
}

/// What may happen at a gate.
#[derive(Clone, Copy, Debug)]
enum Event {
    Enter(FencingToken),
    Check(FencingToken),
    Revoke(FencingToken),
    Succeed(AuthorityId),
    Restore,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let tokens =
        || (1..4_u8, 1..6_u64, 1..4_u8).prop_map(|(by, number, lease)| of(by, number, lease));
    let event = prop_oneof![
        8 => tokens().prop_map(Event::Enter),
        2 => tokens().prop_map(Event::Check),
        1 => tokens().prop_map(Event::Revoke),
        1 => (1..4_u8).prop_map(|by| Event::Succeed(authority(by))),
        1 => Just(Event::Restore),
    ];
    vec(event, 0..60)
}

/// Lets one event happen and answers which token got in, if one did.
fn happen(gate: &mut FenceGate, event: Event) -> Option<FencingToken> {
    let before = gate.clone();
    match event {
        Event::Enter(token) => {
            let said = gate.check(&token);
            let done = gate.enter(&token);
            assert_eq!(said, done);
            if done.is_err() {
                assert_eq!(*gate, before, "a refusal changes nothing");
            }
            return done.ok().map(|()| token);
        }
        Event::Check(token) => {
            let _answer = gate.check(&token);
            assert_eq!(*gate, before, "a check changes nothing");
        }
        Event::Revoke(token) => gate.revoke(&token),
        Event::Succeed(next) => {
            if gate.succeed(next).is_err() {
                assert_eq!(*gate, before, "a refusal changes nothing");
            }
        }
        // Only the stored parts are left of a gate that somebody has passed.
        Event::Restore if gate.current().is_some() => {
            *gate = restored(gate);
            assert_eq!(*gate, before);
        }
        Event::Restore => {}
    }
    None
}

#[test]
fn what_gets_in_never_decreases_and_never_comes_from_the_past() {
    proptest!(|(events in events())| {
        let mut gate = FenceGate::new();
        let mut entered: Vec<FencingToken> = Vec::new();
        let mut revoked: Vec<FencingToken> = Vec::new();
        for event in events {
            if let Event::Revoke(token) = event {
                let standing = gate.current().is_none_or(|current| token.generation >= current.generation);
                let ours = gate.authority().is_none_or(|by| by == token.authority);
                if standing && ours && !gate.retired().contains(&token.authority) {
                    revoked.push(token);
                }
            }
            let Some(token) = happen(&mut gate, event) else { continue };
            prop_assert!(!gate.retired().contains(&token.authority));
            prop_assert_eq!(gate.authority(), Some(token.authority));
            for past in entered.iter().filter(|past| past.authority == token.authority) {
                prop_assert!(token.generation >= past.generation);
                prop_assert!(token.generation > past.generation || token.lease == past.lease);
            }
            for past in revoked.iter().filter(|past| past.authority == token.authority) {
                prop_assert!(token.generation > past.generation);
            }
            // Whoever was in before under another authority is retired.
            for past in entered.iter().filter(|past| past.authority != token.authority) {
                prop_assert!(gate.retired().contains(&past.authority));
            }
            entered.push(token);
        }
    });
}
