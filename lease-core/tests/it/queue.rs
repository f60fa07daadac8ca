//! Who waits, who goes next, and that nobody is forgotten.

use core::time::Duration;

use lease_core::{
    Action, Code, Evidence, LeasePolicy, Outcome, Provenance, Question, Refusal, SessionHolder,
    Step, Verdict, Wait, WaiterId,
};

use crate::rig::{Answered as _, Rig, T0, TTL_MS, inp, key, mcp, ms, oth, who};

/// Grants as many other leases, of one writer, as one call sweeps.
fn fill_one_sweep(rig: &mut Rig) {
    for n in 0..64 {
        assert!(
            rig.granted(&format!("other/{n}"), &who("many", "s-9"))
                .at
                .slot
                .get()
                .is_some()
        );
    }
}

// fault B56
#[test]
fn handing_a_lease_to_and_fro_leaves_no_timers_behind() {
    let mut rig = Rig::sessions();
    let mut at = rig.granted("a", &mcp()).at;
    let (mut from, mut to) = (mcp(), inp());
    for _ in 0..1_000 {
        at = rig.adopt("a", at, &from, &to).grant().at;
        (from, to) = (to, from);
    }
    assert_eq!(rig.registry.footprint(), (1, 1));
    rig.release("a", at).change();
    assert_eq!(rig.registry.footprint(), (0, 1));
}

#[test]
fn a_lease_that_is_over_and_not_swept_yet_lets_its_writer_pass_nobody() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    assert_eq!(rig.granted("k", &mcp()).at.token.generation.get(), 65);
    let first = rig.queue("k", &inp(), Wait::Forever);
    let late = rig.at(T0 + TTL_MS + 1).refused("k", &mcp());
    assert_eq!(late.code(), Code::WriteConflict);
    assert_eq!(late.by(), Some(&inp()));
    rig.advance();
    let settled = rig.settled().unwrap();
    assert_eq!(settled.waiter, first);
    assert!(settled.outcome.is_ok());
}

#[test]
fn a_lease_that_is_over_and_not_swept_yet_keeps_nobody_from_a_hand_over() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    rig.holds("k/sub", &mcp());
    let outer = rig.granted("k", &mcp());
    drop(rig.at(T0 + 10).touch("k", outer.at));
    let adopted = rig.at(T0 + TTL_MS + 1).adopt("k", outer.at, &mcp(), &inp());
    assert_eq!(adopted.grant().at.token, outer.at.token);
    // What was in the way of a second holder is over, and says so.
    assert!(rig.registry.lease(&key("k/sub")).is_none());
    let codes = rig.receipts.iter().rev().take(2).map(|r| r.change.code);
    assert!(codes.eq([Code::Adopted, Code::Reclaimed]));
}

#[test]
fn nobody_waits_for_a_lease_that_is_over_and_not_swept_yet() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    rig.holds("k", &mcp());
    let action = Action::Acquire {
        holder: inp(),
        ttl: None,
    };
    let step = rig
        .at(T0 + TTL_MS + 1)
        .step(Some("k"), action, Wait::Forever);
    assert!(matches!(step, Step::Done(Outcome::Granted(..))), "{step:?}");
}

#[test]
fn the_last_attempt_is_made_at_the_deadline_however_much_there_is_to_sweep() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    assert_eq!(rig.granted("k", &mcp()).at.token.generation.get(), 65);
    let waiter = rig.queue("k", &inp(), Wait::Until(ms(T0 + TTL_MS + 5)));
    rig.at(T0 + TTL_MS + 5).advance();
    let settled = rig.settled().unwrap();
    assert_eq!(settled.waiter, waiter);
    assert!(settled.outcome.is_ok(), "{settled:?}");
}

#[test]
fn a_request_that_became_a_refused_re_entry_does_not_go_on_waiting() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let term = Some(Duration::from_millis(10));
    let grant = rig.acquire_for("k", &mcp(), term).grant();
    let action = Action::Acquire {
        holder: inp(),
        ttl: None,
    };
    let Step::Ask(questions) = rig.step(Some("k"), action, Wait::Forever) else {
        panic!("nothing was asked");
    };
    rig.answers = vec![questions[0].answer(Verdict::Alive(Evidence::new("alive")))];
    let waiter = rig.queue("k", &inp(), Wait::Forever);
    rig.answers.clear();
    // The lease is suspended when its waiter adopts it, so its request without a ttl is a refused
    // re-entry: left in the queue it would be a request of the holder, waiting for itself.
    let adopted = rig.at(T0 + 11).adopt("k", grant.at, &mcp(), &inp()).grant();
    assert_eq!(adopted.at.token, grant.at.token);
    assert_eq!(rig.registry.waiting(), 0);
    let settled = rig.settled().unwrap();
    assert_eq!(settled.waiter, waiter);
    assert!(matches!(settled.outcome, Err(Refusal::Expired { .. })));
}

#[test]
fn three_writers_do_not_wait_for_each_other_through_the_queue() {
    let mut rig = Rig::sessions();
    assert_eq!(rig.granted("p/a", &mcp()).at.token.generation.get(), 1);
    // Blocked by the lease of the first.
    let whole = rig.queue("p", &inp(), Wait::Forever);
    // Behind it, and by that behind the first.
    let part = rig.queue("p/b", &oth(), Wait::Forever);
    assert!(whole < part);
    // It waits for neither, or all three would wait for ever.
    assert_eq!(rig.granted("p/b", &mcp()).at.token.generation.get(), 2);
}

#[test]
fn taking_back_a_grant_and_sweeping_read_the_clock_once() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let waiter = rig.queue("k", &inp(), Wait::Forever);
    rig.release("k", grant.at).change();
    assert!(rig.at(T0 - 1).cancel(waiter));
    drop(rig.step(None, Action::Sweep, Wait::No));
    rig.advance();
    assert_eq!(rig.with_code(Code::ClockSteppedBack).len(), 1);
}

#[test]
fn nor_through_a_request_that_overlaps_only_those_in_between() {
    let mut rig = Rig::sessions();
    assert_eq!(rig.granted("p/a", &mcp()).at.token.generation.get(), 1);
    rig.queue("p", &inp(), Wait::Forever);
    // Behind the request for `p`, and in front of the one for `p/b`, but no neighbour of `p/b/x`.
    rig.queue("p/b/y", &oth(), Wait::Forever);
    rig.queue("p/b", &inp(), Wait::Forever);
    assert_eq!(rig.granted("p/b/x", &mcp()).at.token.generation.get(), 2);
}

#[test]
fn waiters_are_numbered_in_the_order_in_which_they_came() {
    let mut rig = Rig::sessions();
    drop(rig.granted("k", &mcp()));
    let first = rig.queue("k", &inp(), Wait::Forever);
    let second = rig.queue("k", &oth(), Wait::Forever);
    assert!(first.order() < second.order() && first < second);
    assert_eq!(WaiterId::from_order(second.order()), second);
}

#[test]
fn a_writer_gets_its_own_lapsed_lease_anew_and_leaves_its_neighbour_to_the_sweep() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    let old = rig.granted("k", &mcp()).at.token;
    rig.holds("k/sub", &mcp());
    let new = rig.at(T0 + TTL_MS + 1).granted("k", &mcp());
    assert_eq!(new.provenance, Provenance::Created);
    let last: Vec<_> = rig.receipts.iter().rev().take(2).collect();
    assert_eq!(last[0].change.token, Some(new.at.token));
    assert_eq!(
        (last[1].change.code, last[1].change.token),
        (Code::Reclaimed, Some(old))
    );
    assert!(rig.registry.lease(&key("k/sub")).is_some());
}

#[test]
fn a_writer_passes_those_who_wait_for_it_and_nobody_else() {
    let mut rig = Rig::sessions();
    let (holder, waiter, last) = (who("d", "1"), who("c", "1"), who("e", "1"));
    rig.holds("q/b/x", &holder).holds("q/a", &mcp());
    rig.queue("q/a", &inp(), Wait::Forever);
    rig.queue("q/b", &waiter, Wait::Forever);
    rig.queue("q", &last, Wait::Forever);
    // The first and the last wait for this writer, the one between for somebody else.
    let late = rig.refused("q/b/y", &mcp());
    assert!(matches!(late, Refusal::Behind(_)), "{late:?}");
    assert_eq!(late.by(), Some(&waiter));
}

#[test]
fn a_writer_that_holds_something_else_passes_nobody_at_a_release() {
    let mut rig = Rig::sessions();
    rig.holds("p/x", &mcp()).holds("q", &oth());
    let inner = rig.granted("p/y", &inp());
    let whole = rig.queue("p", &who("d", "1"), Wait::Forever);
    let part = rig.queue("p/y", &oth(), Wait::Forever);
    // The first goes on waiting for `p/x`, and the second behind it.
    rig.release("p/y", inner.at).change();
    assert_eq!((rig.settled(), rig.registry.waiting()), (None, 2));
    assert!(rig.cancel(whole));
    let settled = rig.settled().expect("nobody is in front any more");
    assert_eq!((settled.waiter, settled.outcome.is_ok()), (part, true));
}

#[test]
fn who_asked_for_the_whole_does_not_pass_who_asked_for_a_part_before() {
    let mut rig = Rig::sessions();
    let held = rig.granted("p", &mcp());
    let part = rig.queue("p/x", &inp(), Wait::Forever);
    rig.queue("p", &oth(), Wait::Forever);
    rig.release("p", held.at).change();
    let settled = rig.settled().expect("nobody is in front of the part");
    assert_eq!((settled.waiter, settled.outcome.is_ok()), (part, true));
    assert_eq!((rig.settled(), rig.registry.waiting()), (None, 1));
}

#[test]
fn proof_of_a_death_lets_nobody_overtake_who_waits_for_more() {
    let policy = LeasePolicy::hosted_session(Duration::from_millis(TTL_MS)).unwrap();
    let mut rig = Rig::new(policy);
    rig.holds("k/a", &mcp()).holds("k/b", &inp());
    let ask = Action::Acquire {
        holder: oth(),
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some("k"), ask, Wait::Forever) else {
        panic!("nobody is asked about")
    };
    let observe = |dead: &SessionHolder| {
        let verdict = |holder: &SessionHolder| {
            if holder == dead {
                Verdict::Dead(Evidence::new("exited"))
            } else {
                Verdict::Alive(Evidence::new("running"))
            }
        };
        let answer = |question: &Question<_>| question.answer(verdict(&question.holder));
        asked.iter().map(answer).collect()
    };
    rig.answers = observe(&oth());
    rig.queue("k", &oth(), Wait::Forever);
    rig.answers = observe(&mcp());
    let late = rig.refused("k/a", &who("ag-9", "s-9"));
    assert!(matches!(late, Refusal::Behind(_)), "{late:?}");
    assert_eq!(late.by(), Some(&oth()));
}

#[test]
fn a_lease_that_is_over_keeps_nobody_from_what_is_released_below_it() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    rig.holds("k", &mcp());
    let inner = rig.granted("k/a", &mcp());
    let waiter = rig.queue("k/a", &inp(), Wait::Forever);
    drop(rig.at(T0 + 10).touch("k/a", inner.at));
    rig.at(T0 + TTL_MS + 1).release("k/a", inner.at).change();
    let settled = rig.settled().expect("the waiter is served at once");
    assert_eq!((settled.waiter, settled.outcome.is_ok()), (waiter, true));
    assert!(rig.registry.lease(&key("k")).is_none());
}

#[test]
fn a_dead_holder_keeps_nobody_from_what_is_released_below_its_lease() {
    let policy = LeasePolicy::hosted_session(Duration::from_millis(TTL_MS)).unwrap();
    let mut rig = Rig::new(policy);
    rig.holds("k", &mcp());
    let inner = rig.granted("k/a", &mcp());
    let ask = Action::Acquire {
        holder: oth(),
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some("k/a"), ask, Wait::Forever) else {
        panic!("nobody is asked about")
    };
    let outer = |question: &&Question<_>| question.about != inner.at.token;
    let verdict = Verdict::Alive(Evidence::new("running"));
    let alive = |question: &Question<_>| question.answer(verdict.clone());
    rig.answers = asked.iter().map(alive).collect();
    let waiter = rig.queue("k/a", &oth(), Wait::Forever);
    let dead = |question: &Question<_>| question.answer(Verdict::Dead(Evidence::new("exited")));
    rig.answers = asked.iter().filter(outer).map(dead).collect();
    assert_eq!(rig.answers.len(), 1);
    rig.release("k/a", inner.at).change();
    let settled = rig.settled().expect("the waiter is served at once");
    assert_eq!((settled.waiter, settled.outcome.is_ok()), (waiter, true));
}

#[test]
fn holders_that_come_and_go_leave_nothing_behind() {
    let mut rig = Rig::sessions();
    rig.holds("kept", &mcp());
    for n in 0..100 {
        let holder = who("many", &format!("s-{n}"));
        let first = rig.granted("a", &holder);
        let second = rig.granted("b", &holder);
        assert_eq!(rig.registry.footprint().0, 3);
        rig.release("a", first.at).change();
        // The other lease is the holder's still.
        assert_eq!(rig.refused("b", &oth()).by(), Some(&holder));
        rig.release("b", second.at).change();
        assert_eq!(rig.registry.footprint().0, 1);
    }
    assert_eq!(rig.disconnect(&mcp()).len(), 1);
    assert_eq!(rig.registry.footprint().0, 0);
}

#[test]
fn a_writer_that_may_pass_the_first_request_of_another_still_waits_behind_the_second() {
    let mut rig = Rig::sessions();
    let (holder, waiter) = (who("d", "1"), who("e", "1"));
    rig.holds("q/b/x", &holder).holds("q/a", &mcp());
    // The first waits for this writer; the second does not, and nobody waits behind itself.
    rig.queue("q", &waiter, Wait::Forever);
    let second = rig.queue("q/b", &waiter, Wait::Forever);
    match rig.refused("q/b/y", &mcp()) {
        Refusal::Behind(behind) => assert_eq!((behind.waiter, behind.by), (second, waiter)),
        refusal => panic!("not behind: {refusal:?}"),
    }
}

/// Who was served since the last look.
fn served(rig: &mut Rig) -> Vec<WaiterId> {
    core::iter::from_fn(|| rig.settled())
        .map(|settled| settled.waiter)
        .collect()
}

#[test]
fn answers_are_taken_in_the_order_of_the_requests() {
    let mut rig = Rig::sessions();
    let names = ["a", "b", "c", "d"];
    let held = names.map(|name| rig.granted(name, &mcp()).at);
    let waiting = names.map(|name| rig.queue(name, &inp(), Wait::Forever));
    for at in [2, 0, 3, 1] {
        rig.release(names[at], held[at]).change();
    }
    // One from between the others, and the first, are taken back before they are taken.
    assert!(rig.cancel(waiting[2]) && rig.cancel(waiting[0]));
    assert!(!rig.cancel(waiting[2]));
    assert_eq!(rig.registry.held(), 2);
    assert_eq!(served(&mut rig), [waiting[1], waiting[3]]);
    assert!(!rig.cancel(waiting[1]));
}

#[test]
fn those_who_leave_from_between_change_nobodys_turn() {
    let mut rig = Rig::sessions();
    let mut at = rig.granted("k", &mcp()).at;
    let mut waiting: Vec<_> = (0..400)
        .map(|n| rig.queue("k", &who("ag", &format!("s-{n}")), Wait::Forever))
        .collect();
    let leaves = |n: usize| (3..390).contains(&n) && !n.is_multiple_of(40);
    for (n, waiter) in waiting.iter().enumerate().filter(|(n, _)| leaves(*n)) {
        assert!(rig.cancel(*waiter), "{n}");
        assert!(!rig.cancel(*waiter), "{n}");
    }
    waiting = (0..400)
        .filter(|n| !leaves(*n))
        .map(|n| waiting[n])
        .collect();
    assert_eq!(rig.registry.waiting(), waiting.len());
    for (n, waiter) in waiting.into_iter().enumerate() {
        if n == 5 {
            // Those who come meanwhile come last.
            rig.queue("k", &oth(), Wait::Forever);
        }
        rig.release("k", at).change();
        let settled = rig.settled().expect("somebody waits");
        assert_eq!(settled.waiter, waiter);
        at = settled.outcome.expect("it is granted").0.at;
    }
    assert_eq!(rig.registry.waiting(), 1);
    rig.release("k", at).change();
    assert_eq!(rig.settled().map(|last| last.resource), Some(key("k")));
}

#[test]
fn a_writers_requests_are_its_own_whichever_of_them_leaves() {
    let mut rig = Rig::sessions();
    for name in ["a", "b", "c", "d", "e"] {
        rig.holds(name, &mcp());
    }
    let waiting = ["a", "b", "c", "d", "e"].map(|name| rig.queue(name, &inp(), Wait::Forever));
    let other = rig.queue("e", &oth(), Wait::Forever);
    assert!(rig.cancel(waiting[2]) && rig.cancel(waiting[0]) && rig.cancel(waiting[4]));
    rig.disconnect(&inp());
    assert_eq!(served(&mut rig), [waiting[1], waiting[3]]);
    assert_eq!(rig.registry.waiting(), 1);
    rig.disconnect(&mcp());
    assert_eq!(served(&mut rig), [other]);
}

#[test]
fn who_becomes_holder_of_a_key_alone_goes_on_with_its_other_requests_for_it() {
    let mut rig = Rig::sessions();
    let at = rig.granted("k", &mcp()).at;
    let first = rig.queue("k", &inp(), Wait::Forever);
    let behind = rig.queue("k", &oth(), Wait::Forever);
    let second = rig.queue("k", &inp(), Wait::Forever);
    let third = rig.queue("k", &inp(), Wait::Forever);
    rig.release("k", at).change();
    assert_eq!(served(&mut rig), [first, second, third]);
    assert_eq!(rig.registry.waiting(), 1);
    rig.disconnect(&inp());
    assert_eq!(served(&mut rig), [behind]);
}

#[test]
fn a_request_that_the_policy_would_not_grant_does_not_wait() {
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let action = Action::Acquire {
        holder: inp(),
        ttl: Some(Duration::from_millis(TTL_MS + 1)),
    };
    let step = rig.step(Some("k"), action, Wait::Forever);
    let Step::Done(outcome) = step else {
        panic!("it waits: {step:?}")
    };
    assert!(matches!(outcome.refusal(), Refusal::Ttl(_)));
    assert_eq!(rig.registry.waiting(), 0);
}

#[test]
fn what_a_writer_keeps_below_a_key_it_releases_keeps_others_from_it() {
    let mut rig = Rig::sessions();
    let whole = rig.granted("k", &mcp()).at;
    let part = rig.granted("k/a", &mcp()).at;
    let waiter = rig.queue("k", &inp(), Wait::Forever);
    rig.release("k", whole).change();
    assert_eq!(served(&mut rig), []);
    rig.release("k/a", part).change();
    assert_eq!(served(&mut rig), [waiter]);
}
