//! Many resources, waiters and answers: what is over leaves nothing behind, and places that move are
//! not given twice.

use lease_core::{Action, Bounded, By, Call, Code, LeaseId, Outcome, Refusal, Step, Turn, Wait};

use crate::rig::{Answered as _, Rig, T0, TTL_MS, inp, key, mcp, oth, who};

#[test]
fn places_that_move_during_a_commit_are_not_given_twice() {
    let mut rig = Rig::sessions();
    let pads: Vec<_> = (0..300)
        .map(|number| rig.granted(&format!("pad/{number}"), &inp()).at)
        .collect();
    for number in 0..2_000 {
        rig.holds(&format!("a/{number}"), &mcp());
    }
    for (number, at) in pads.into_iter().enumerate() {
        rig.release(&format!("pad/{number}"), at).change();
    }
    // Ends what the bounded sweep left, far more than one call sweeps, in one commit.
    rig.at(T0 + TTL_MS + 1).holds("a", &oth());
    for number in 0..600 {
        rig.holds(&format!("k{number}"), &oth());
    }
    assert_eq!(
        (rig.registry.held(), rig.registry.peek(rig.now).len()),
        (601, 601)
    );
    for number in 0..600 {
        let refusal = rig.refused(&format!("k{number}"), &inp());
        assert_eq!(
            (refusal.code(), refusal.by()),
            (Code::WriteConflict, Some(&oth()))
        );
    }
}

#[test]
fn who_waits_is_served_also_after_the_tree_shrank() {
    let mut rig = Rig::sessions();
    let at: Vec<_> = (0..3_000)
        .map(|number| rig.granted(&format!("pad/{number}"), &mcp()).at)
        .collect();
    let exact = rig.queue("pad/0", &oth(), Wait::Forever);
    let below = rig.queue("pad/1/below", &inp(), Wait::Forever);
    for (number, at) in at.iter().enumerate().skip(2) {
        rig.release(&format!("pad/{number}"), *at).change();
    }
    // What is held and waited for, with what is above it.
    assert_eq!(rig.registry.footprint().0, 4);
    for (number, waiter) in [exact, below].into_iter().enumerate() {
        rig.release(&format!("pad/{number}"), at[number]).change();
        let settled = rig.settled().expect("somebody waits for it");
        assert_eq!(settled.waiter, waiter);
        assert!(settled.outcome.is_ok(), "{settled:?}");
    }
}

#[test]
fn who_holds_or_waits_is_known_also_after_a_crowd_has_left() {
    let mut rig = Rig::sessions();
    let held = rig.granted("k", &mcp());
    let crowd: Vec<_> = (0..3_000)
        .map(|number| rig.queue("k", &who("ag", &format!("s-{number}")), Wait::Forever))
        .collect();
    let first = rig.queue("k", &inp(), Wait::Forever);
    let below = rig.queue("k/below", &inp(), Wait::Forever);
    let last = rig.queue("k", &oth(), Wait::Forever);
    for waiter in crowd {
        assert!(rig.cancel(waiter));
    }
    rig.release("k", held.at).change();
    for waiter in [first, below] {
        let settled = rig.settled().expect("nothing is in its way");
        assert_eq!((settled.waiter, settled.outcome.is_ok()), (waiter, true));
    }
    assert!(rig.settled().is_none());
    assert_eq!(rig.disconnect(&inp()).len(), 2);
    assert_eq!(rig.settled().expect("it is next").waiter, last);
    assert_eq!(rig.disconnect(&oth()).len(), 1);
    assert_eq!(rig.registry.footprint().0, 0);
}

// X1
#[test]
fn the_tree_agrees_with_a_plain_map_while_it_grows_and_shrinks() {
    let mut rig = Rig::sessions();
    let mut held = std::collections::BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    for round in 0..30_000_u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // It grows to some thousands, shrinks to nothing, and grows again.
        let grows = (round / 5_000).is_multiple_of(2);
        let name = format!("{}/{}", random % 7, random % 6_007);
        match held.get(&name).copied() {
            None if grows || random.is_multiple_of(5) => {
                let grant = rig.granted(&name, &who("ag", &format!("s-{}", random % 3)));
                held.insert(name, grant.at);
            }
            Some(at) if !grows => {
                rig.release(&name, at).change();
                held.remove(&name);
            }
            Some(at) => drop(rig.touch(&name, at).change()),
            None => {
                if let Some((name, at)) = held.pop_first() {
                    rig.release(&name, at).change();
                }
            }
        }
        if round.is_multiple_of(1_000) {
            let listed = rig.registry.peek(rig.now);
            let tokens: Vec<_> = listed.iter().map(|view| view.token).collect();
            let mut expected: Vec<_> = held.values().map(|at| at.token).collect();
            expected.sort_by_key(|token| token.generation);
            let mut tokens = tokens;
            tokens.sort_by_key(|token| token.generation);
            assert_eq!(tokens, expected, "round {round}");
        }
    }
}

#[test]
fn one_writer_cannot_fill_the_queue() {
    let mut rig = Rig::sessions();
    let most = lease_core::limits::HOLDER_WAITERS;
    rig.holds("k", &mcp());
    for _ in 0..most {
        rig.queue("k", &inp(), Wait::Forever);
    }
    let action = Action::Acquire {
        holder: inp(),
        ttl: None,
    };
    let step = rig.step(Some("k"), action, Wait::Forever);
    let Step::Done(Outcome::Refused(refusal)) = step else {
        panic!("{step:?}")
    };
    assert_eq!(
        refusal,
        Refusal::Limit {
            what: Bounded::HolderWaiters,
            most
        }
    );
    assert_eq!(
        (refusal.code(), rig.registry.waiting()),
        (Code::LimitReached, most)
    );
    // Others may still wait, and all of its own leave with it.
    rig.queue("k", &oth(), Wait::Forever);
    rig.disconnect(&inp());
    assert_eq!(rig.registry.waiting(), 1);
    let withdrawn = std::iter::from_fn(|| rig.settled());
    assert_eq!(
        withdrawn
            .filter(|one| matches!(one.outcome, Err(Refusal::Withdrawn { .. })))
            .count(),
        most
    );
}

#[test]
fn a_source_of_ids_that_panics_loses_no_waiter() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("a", &mcp());
    let waiter = rig.queue("a", &inp(), Wait::Forever);
    let release = Call {
        resource: Some(key("a")),
        action: Action::Release(By::Token(grant.at)),
        wait: Wait::No,
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.turn(|registry, turn| {
            let mut broken = || std::panic::resume_unwind(Box::new("no entropy"));
            drop(registry.call(&release, &mut Turn::new(turn.seen, &mut broken)));
        });
    }));
    assert!(outcome.is_err());
    assert_eq!(rig.registry.waiting(), 1);
    assert!(rig.cancel(waiter));
}

#[test]
fn who_is_refused_at_a_hand_over_lets_the_next_one_go() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("a", &mcp());
    let first = rig.queue("a", &inp(), Wait::Forever);
    let second = rig.queue("a", &oth(), Wait::Forever);
    rig.turn(|registry, turn| {
        let mut drawn = [LeaseId::NIL, LeaseId::from_bytes([9; 16])].into_iter();
        let mut draw = || drawn.next().expect("two are drawn");
        let mut turn = Turn::new(turn.seen, &mut draw);
        assert!(registry.release(&key("a"), grant.at, &mut turn).is_ok());
    });
    let settled = rig.settled().expect("it is answered");
    assert_eq!(settled.waiter, first);
    assert_eq!(settled.outcome, Err(Refusal::ReservedLease));
    let settled = rig.settled().expect("it is next");
    assert_eq!((settled.waiter, settled.outcome.is_ok()), (second, true));
    assert_eq!((rig.registry.waiting(), rig.view("a").holder), (0, oth()));
}

#[test]
fn many_who_wait_below_a_key_are_looked_at_once() {
    // With a second look at all of them for each, this would not end within the test's bound.
    let mut rig = Rig::sessions();
    let held = rig.granted("a", &mcp());
    let waiting = 20_000;
    for number in 0..waiting {
        rig.queue(
            &format!("a/{number}"),
            &who("ag", &format!("s-{number}")),
            Wait::Forever,
        );
    }
    for _ in 0..50 {
        rig.holds("a", &mcp());
    }
    rig.release("a", held.at).change();
    assert_eq!((rig.registry.waiting(), rig.registry.held()), (0, waiting));
}

#[test]
fn places_come_back_once_most_of_them_are_free() {
    let mut rig = Rig::sessions();
    rig.registry = rig.registry.clone().with_receipts(0);
    let at: Vec<_> = (0..5_000)
        .map(|n| rig.granted(&format!("k-{n}"), &mcp()).at)
        .collect();
    let place = |at: lease_core::At| at.slot.get().unwrap();
    assert_eq!(place(*at.last().unwrap()), 4_999);
    for (n, at) in at.iter().enumerate().take(4_900) {
        rig.release(&format!("k-{n}"), *at).change();
    }
    // Without them the latest that came free would be the next that is given.
    let next = rig.granted("next", &mcp()).at;
    assert!(place(next) < 1_300, "{next:?}");
    // Who held all the time holds still, wherever that is now.
    for (n, at) in at.iter().enumerate().skip(4_900) {
        rig.release(&format!("k-{n}"), *at).change();
    }
    assert_eq!(rig.registry.held(), 1);
}

/// Grants `count` keys, gives the first `released` back, and answers at which place the next one lies.
fn next_place(count: usize, released: usize) -> u32 {
    let mut rig = Rig::sessions();
    let at: Vec<_> = (0..count)
        .map(|n| rig.granted(&format!("k-{n}"), &mcp()).at)
        .collect();
    for (n, at) in at.into_iter().enumerate().take(released) {
        rig.release(&format!("k-{n}"), at).change();
    }
    rig.granted("next", &mcp()).at.slot.get().unwrap()
}

#[test]
fn places_stay_while_they_are_few_or_many_of_them_are_in_use() {
    // The one that came free last but one: the last one is kept for who comes back.
    assert_eq!(next_place(20, 19), 17);
    assert_eq!(next_place(2_000, 2), 0);
}
