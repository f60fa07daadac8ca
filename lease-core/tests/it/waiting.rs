//! What waiting promises, rule by rule: order, re-entry, cancelling, and hand-over in the same call.

use lease_core::{
    Action, By, Call, Code, Disposition, LeasePolicy, Moment, Note, Outcome, Provenance, Refusal,
    Request, Seen, SessionHolder, Step, Turn, Wait, WaiterId,
};

use crate::history::{Fate, always, lease_id};
use crate::rig::{Answered as _, Rig, T0, TTL_MS, generation, inp, key, mcp, ms, op, oth, who};
use crate::stage::{Act, Line, Scene, play};

/// The answers to waiting requests since the last look: whose lease it is, or why there is none.
fn answers(rig: &mut Rig) -> Vec<(WaiterId, Result<Provenance, Code>)> {
    core::iter::from_fn(|| rig.settled())
        .map(|settled| {
            let outcome = settled.outcome.map(|(grant, _)| grant.provenance);
            (settled.waiter, outcome.map_err(|refusal| refusal.code()))
        })
        .collect()
}

fn forever(rig: &mut Rig, resource: &str, holder: &SessionHolder) -> WaiterId {
    rig.queue(resource, holder, Wait::Forever)
}

const CREATED: Result<Provenance, Code> = Ok(Provenance::Created);
const AGAIN: Result<Provenance, Code> = Ok(Provenance::Reentrant);

#[test]
fn who_overlaps_is_served_in_order() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("p/a", &mcp());
    let first = forever(&mut rig, "p", &inp());
    let second = forever(&mut rig, "p/a", &oth());
    rig.release("p/a", grant.at).change();
    assert_eq!(answers(&mut rig), [(first, CREATED)]);
    let grant = rig.view("p").token;
    rig.release("p", grant.into()).change();
    assert_eq!(answers(&mut rig), [(second, CREATED)]);
}

#[test]
fn a_request_waits_behind_an_earlier_one_that_overlaps() {
    let mut rig = Rig::sessions();
    rig.holds("p/a", &mcp());
    let whole = forever(&mut rig, "p", &inp());
    // Free, and still not given: the larger request would never get its turn.
    let Refusal::Behind(behind) = rig.refused("p/b", &oth()) else {
        panic!("it overtook")
    };
    assert_eq!((behind.waiter, behind.by), (whole, inp()));
    assert_eq!(behind.resource.as_str(), "p");
    // What does not overlap is nobody's turn.
    rig.holds("q", &oth());
}

#[test]
fn two_writers_do_not_wait_for_each_other() {
    let mut rig = Rig::sessions();
    let part = rig.granted("p/a", &mcp());
    let whole = forever(&mut rig, "p", &inp());
    // The earlier request waits for this very writer, who may first need more.
    let more = rig.granted("p/b", &mcp());
    assert_eq!(answers(&mut rig), []);
    rig.release("p/b", more.at).change();
    rig.release("p/a", part.at).change();
    assert_eq!(answers(&mut rig), [(whole, CREATED)]);
}

#[test]
fn nor_when_one_of_them_becomes_holder_from_the_queue() {
    let mut rig = Rig::sessions();
    rig.holds("p/a", &oth()).holds("p/b", &oth());
    let part = forever(&mut rig, "p/a", &mcp());
    let whole = forever(&mut rig, "p", &inp());
    let more = forever(&mut rig, "p/b", &mcp());
    assert!(part < whole && whole < more);
    // The first grant puts its writer in the way of the second request, so the third may go.
    rig.disconnect(&oth());
    assert_eq!(answers(&mut rig), [(part, CREATED), (more, CREATED)]);
    assert_eq!(rig.registry.waiting(), 1);
}

#[test]
fn nor_when_one_of_them_is_handed_a_lease() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("p/a", &oth());
    forever(&mut rig, "p", &inp());
    let part = forever(&mut rig, "p/b", &mcp());
    drop(rig.adopt("p/a", grant.at, &oth(), &mcp()).grant());
    assert_eq!(answers(&mut rig), [(part, CREATED)]);
}

#[test]
fn re_entry_never_queues() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    forever(&mut rig, "k", &inp());
    for wait in [Wait::No, Wait::Forever] {
        let action = Action::Acquire {
            holder: mcp(),
            ttl: None,
        };
        let Step::Done(Outcome::Granted(again, _)) = rig.step(Some("k"), action, wait) else {
            panic!("it queued")
        };
        assert_eq!(again.provenance, Provenance::Reentrant);
        assert_eq!(again.at.token, grant.at.token);
    }
}

#[test]
fn who_becomes_holder_re_enters_with_all_its_requests() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let first = forever(&mut rig, "k", &inp());
    let other = forever(&mut rig, "k", &oth());
    let second = forever(&mut rig, "k", &inp());
    rig.release("k", grant.at).change();
    assert_eq!(answers(&mut rig), [(first, CREATED), (second, AGAIN)]);
    rig.disconnect(&inp());
    assert_eq!(answers(&mut rig), [(other, CREATED)]);
}

#[test]
fn a_grant_that_nobody_received_goes_on_to_the_next() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let gone = forever(&mut rig, "k", &inp());
    let next = forever(&mut rig, "k", &oth());
    rig.release("k", grant.at).change();
    assert!(rig.cancel(gone));
    assert_eq!(answers(&mut rig), [(next, CREATED)]);
    let ended = rig.with_code(Code::Abandoned);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].holder, Some(inp()));
    assert_eq!(ended[0].change.token.unwrap().generation, generation(2));
    assert!(!rig.cancel(gone));
}

#[test]
fn a_grant_that_nobody_received_stays_with_who_re_entered() {
    // Another task of the same writer uses the lease: it must not be taken from under it.
    let re_enters: [fn(&mut Rig); 3] = [
        |rig| drop(rig.granted("k", &inp())),
        |rig| {
            let at = rig.view("k").token.into();
            rig.begin("k", at, op(1), Provenance::Reentrant).change();
        },
        |rig| {
            let at = rig.view("k").token.into();
            rig.begin("k", at, op(1), Provenance::Created).change();
        },
    ];
    for re_enter in re_enters {
        let mut rig = Rig::sessions();
        let grant = rig.granted("k", &mcp());
        let gone = forever(&mut rig, "k", &inp());
        forever(&mut rig, "k", &oth());
        rig.release("k", grant.at).change();
        re_enter(&mut rig);
        assert!(rig.cancel(gone));
        assert_eq!(answers(&mut rig), []);
        assert_eq!(rig.view("k").holder, inp());
        assert_eq!(rig.with_code(Code::RetainedAfterFailure).len(), 1);
        assert_eq!(rig.with_code(Code::Abandoned).len(), 0);
    }
    // A second request of the same writer that was served with the first counts as well.
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let gone = forever(&mut rig, "k", &inp());
    forever(&mut rig, "k", &inp());
    rig.release("k", grant.at).change();
    assert!(rig.cancel(gone));
    assert_eq!(rig.view("k").holder, inp());
    // Giving back a re-entry gives back nothing.
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let again = rig.granted("k", &mcp());
    let k = key("k");
    rig.turn(|registry, turn| registry.abandon(&k, again, turn));
    assert_eq!(rig.view("k").holder, mcp());
}

#[test]
fn who_leaves_the_queue_lets_those_behind_go_at_once() {
    let leaves: [fn(&mut Rig, WaiterId); 3] = [
        |rig, waiter| assert!(rig.cancel(waiter)),
        |rig, _| drop(rig.disconnect(&inp())),
        |rig, _| drop(rig.at(T0 + 50).advance()),
    ];
    for leave in leaves {
        let mut rig = Rig::sessions();
        rig.holds("p/a", &mcp());
        let whole = rig.queue("p", &inp(), Wait::Until(ms(T0 + 50)));
        let part = forever(&mut rig, "p/b", &oth());
        leave(&mut rig, whole);
        let left = answers(&mut rig);
        assert_eq!(left.last(), Some(&(part, CREATED)));
        assert_eq!(rig.registry.waiting(), 0);
    }
}

#[test]
fn a_request_leaves_at_its_deadline() {
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let waiter = rig.queue("k", &inp(), Wait::Until(ms(T0 + 50)));
    assert_eq!(rig.registry.next_deadline(), Some(ms(T0 + 50)));
    rig.at(T0 + 49).advance();
    assert_eq!(answers(&mut rig), []);
    rig.at(T0 + 50).advance();
    let settled = rig.settled().unwrap();
    let waited = core::time::Duration::from_millis(50);
    // As somebody is told who asks now and does not wait.
    let last = Some(Box::new(rig.refused("k", &inp())));
    let told = Refusal::TimedOut {
        waiter,
        waited,
        last,
    };
    assert_eq!(told.by(), Some(&mcp()));
    assert_eq!(settled.outcome, Err(told));
    let receipts = rig.with_code(Code::WaitTimedOut);
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].holder, Some(inp()));
    assert!(!rig.cancel(waiter));
}

/// What was in the way at the end of a wait of `inp` for `key` until `T0 + 50`.
#[track_caller]
fn last(rig: &mut Rig, key: &str, seen_ms: u64) -> Option<Refusal<SessionHolder>> {
    rig.queue(key, &inp(), Wait::Until(ms(T0 + 50)));
    rig.at(seen_ms).advance();
    rig.last_refusal()
}

#[test]
fn who_waited_in_vain_is_told_what_was_in_the_way_at_the_end() {
    // At the deadline, and noticed later.
    for seen in [T0 + 50, T0 + 51] {
        for held in ["p", "p/k", "p/k/below"] {
            let mut rig = Rig::sessions();
            rig.holds(held, &mcp());
            let told = last(&mut rig, "p/k", seen).unwrap();
            assert_eq!(told, rig.refused("p/k", &inp()), "{held}");
            assert_eq!(told.by(), Some(&mcp()));
        }
        // Nothing that overlaps is held, and an earlier request goes first.
        let mut rig = Rig::sessions();
        rig.holds("p/b", &mcp());
        rig.queue("p", &oth(), Wait::Forever);
        let told = last(&mut rig, "p/k", seen).unwrap();
        assert_eq!(told, rig.refused("p/k", &inp()));
        assert_eq!(told.by(), Some(&oth()));
        // A lease that ended meanwhile is in nobody's way, but the time was over before it was seen.
        let mut rig = Rig::sessions();
        rig.holds("k", &mcp());
        assert_eq!(last(&mut rig, "k", seen + TTL_MS), None);
    }
}

#[test]
fn the_last_attempt_is_at_the_deadline() {
    // The term is over one tick before the wait is.
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let over = ms(T0 + TTL_MS).as_nanos() + 1;
    let over = Moment::from_nanos(over);
    let waiter = rig.queue("k", &inp(), Wait::Until(over));
    rig.now = over;
    rig.advance();
    assert_eq!(answers(&mut rig), [(waiter, CREATED)]);
    // One tick earlier it is not, and the wait is.
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let waiter = rig.queue("k", &inp(), Wait::Until(ms(T0 + TTL_MS)));
    rig.at(T0 + TTL_MS).advance();
    let timed_out = Err(Code::WaitTimedOut);
    assert_eq!(answers(&mut rig), [(waiter, timed_out)]);
}

#[test]
fn a_wait_that_is_over_already_is_one_attempt() {
    for deadline in [0, T0 - 1, T0] {
        let mut rig = Rig::sessions();
        let mut ask = |holder| {
            let action = Action::Acquire { holder, ttl: None };
            rig.step(Some("k"), action, Wait::Until(ms(deadline)))
        };
        assert!(matches!(ask(mcp()), Step::Done(Outcome::Granted(..))));
        assert!(matches!(
            ask(inp()),
            Step::Done(Outcome::Refused(Refusal::Held(_)))
        ));
        assert_eq!(rig.codes(), [Code::Created]);
    }
}

#[test]
fn a_disconnect_takes_back_the_requests_of_its_writer() {
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let gone = [
        forever(&mut rig, "k", &inp()),
        forever(&mut rig, "k/inner", &inp()),
    ];
    // The same agent by another session stays.
    let stays = forever(&mut rig, "k", &who("ag-1", "s-201"));
    assert_eq!(rig.disconnect(&inp()), []);
    let withdrawn = Err(Code::Abandoned);
    assert_eq!(answers(&mut rig), gone.map(|waiter| (waiter, withdrawn)));
    assert_eq!(rig.with_code(Code::Abandoned).len(), 2);
    rig.disconnect(&mcp());
    assert_eq!(answers(&mut rig), [(stays, CREATED)]);
}

#[test]
fn whoever_frees_a_resource_hands_it_over_in_the_same_call() {
    let token = |rig: &Rig| rig.view("k").token.into();
    let by_holder = |_: &Rig| By::Holder {
        holder: mcp(),
        lease: None,
        exited: false,
    };
    let ways: [&dyn Fn(&mut Rig); 7] = [
        &|rig| {
            let at = token(rig);
            rig.release("k", at).change();
        },
        &|rig| {
            let action = Action::Release(by_holder(rig));
            rig.call("k", action).change();
        },
        &|rig| {
            let (at, failed) = (token(rig), Err(Disposition::PreMutation));
            rig.begin("k", at, op(1), Provenance::Created).change();
            rig.end("k", at, op(1), failed).change();
        },
        &|rig| drop(rig.disconnect(&mcp())),
        // A request for something else sweeps.
        &|rig| drop(rig.at(T0 + TTL_MS + 1).granted("elsewhere", &oth())),
        &|rig| {
            let action = Action::Revoke {
                expected: generation(1),
                by: "operator".into(),
                reason: "stuck".into(),
                even_if_alive: true,
            };
            rig.call("k", action).change();
        },
        &|rig| drop(rig.at(T0 + TTL_MS + 1).list()),
    ];
    for (number, free) in ways.iter().enumerate() {
        let mut rig = Rig::sessions();
        rig.holds("k", &mcp());
        let waiter = forever(&mut rig, "k", &inp());
        free(&mut rig);
        assert_eq!(answers(&mut rig), [(waiter, CREATED)], "way {number}");
        assert_eq!(rig.view("k").holder, inp(), "way {number}");
    }
}

#[test]
fn a_grant_given_back_is_handed_over_in_the_same_call() {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let waiter = forever(&mut rig, "k", &inp());
    let k = key("k");
    rig.turn(|registry, turn| registry.abandon(&k, grant, turn));
    assert_eq!(answers(&mut rig), [(waiter, CREATED)]);
    assert_eq!(rig.with_code(Code::Abandoned).len(), 1);
}

#[test]
fn proof_that_the_holder_is_gone_serves_who_waits() {
    for (policy, code) in [
        (LeasePolicy::process_bound(), Code::TakenOver),
        (LeasePolicy::server_session(), Code::SessionEnded),
    ] {
        let mut rig = Rig::new(policy);
        rig.holds("k", &mcp());
        assert!(rig.registry.questions().is_empty());
        let action = Action::Acquire {
            holder: inp(),
            ttl: None,
        };
        let Step::Ask(asked) = rig.step(Some("k"), action, Wait::Forever) else {
            panic!("nothing was asked")
        };
        rig.answers = vec![asked[0].answer(Fate::Alive.verdict())];
        let waiter = forever(&mut rig, "k", &inp());
        let next = forever(&mut rig, "k", &oth());
        // What must be known for those who wait is known to the driver.
        let watched = rig.registry.questions();
        assert_eq!(watched.len(), 1);
        assert_eq!(
            (&watched[0].holder, watched[0].about),
            (&mcp(), asked[0].about)
        );
        for fate in [Fate::Alive, Fate::Occupied, Fate::Unknown] {
            rig.answers = vec![watched[0].answer(fate.verdict())];
            rig.advance();
            assert_eq!(answers(&mut rig), []);
        }
        rig.answers = vec![watched[0].answer(Fate::Dead.verdict())];
        rig.advance();
        assert_eq!(answers(&mut rig), [(waiter, CREATED)]);
        assert_eq!(rig.with_code(code).len(), 1);
        assert!(rig.cancel(next));
        assert!(rig.registry.questions().is_empty());
    }
}

#[test]
fn proof_that_the_holder_is_gone_serves_who_came_before_somebody_above() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    rig.holds("k/part", &mcp());
    let action = Action::Acquire {
        holder: inp(),
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some("k/part"), action, Wait::Forever) else {
        panic!("nothing was asked")
    };
    rig.answers = vec![asked[0].answer(Fate::Alive.verdict())];
    let waiter = forever(&mut rig, "k/part", &inp());
    let later = forever(&mut rig, "k", &oth());
    rig.answers = vec![asked[0].answer(Fate::Dead.verdict())];
    rig.advance();
    assert_eq!(answers(&mut rig), [(waiter, CREATED)]);
    assert!(rig.cancel(later));
}

#[test]
fn the_next_deadline_is_never_late() {
    always(file!(), |history| {
        play(&history, |played| {
            let mut idle = played.after.clone();
            let answered = idle.answered();
            let last = match idle.registry.next_deadline() {
                Some(deadline) => deadline.as_nanos() - 1,
                None => u64::MAX - 1,
            };
            let now = Moment::from_nanos(last);
            if now < idle.registry.latest() {
                return;
            }
            let shown = idle.perform(&Scene {
                now,
                answers: Vec::new(),
                act: Act::Advance,
            });
            // The clock may have been set back meanwhile, which is no deadline's affair.
            let stepped = |line: &Line| line.code == Code::ClockSteppedBack;
            assert!(shown.lines().iter().all(stepped), "{shown:?}");
            assert_eq!(idle.answered(), answered);
        });
    });
}

// fault B56
#[test]
fn a_greedy_writer_waits_its_turn() {
    let mut rig = Rig::sessions();
    let greedy = who("greedy", "s-1");
    let mut at = rig.granted("k", &greedy).at;
    let patient: Vec<_> = (0..50).map(|n| who("patient", &format!("s-{n}"))).collect();
    for holder in &patient {
        forever(&mut rig, "k", holder);
    }
    // It releases and asks again before anybody else moves, over and over.
    let mut order = Vec::new();
    for _ in 0..51 {
        rig.release("k", at).change();
        assert!(matches!(
            rig.acquire("k", &greedy),
            Outcome::Refused(Refusal::Held(_)) | Outcome::Granted(..)
        ));
        if order.is_empty() {
            forever(&mut rig, "k", &greedy);
        }
        let view = rig.view("k");
        at = view.token.into();
        order.push(view.holder);
    }
    assert_eq!(order[..50], patient[..]);
    assert_eq!(order[50], greedy);
}

// fault B15
#[test]
fn waiters_that_leave_swallow_no_grant() {
    let mut rig = Rig::sessions();
    let mut chance = 7_u64;
    for round in 0..5 {
        let now = T0 + round * 100;
        let grant = rig.at(now).granted("k", &mcp());
        let mut stay = Vec::new();
        for n in 0..1_000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let holder = who("many", &format!("s-{n}"));
            match chance >> 61 {
                // By time, by its own will, by its connection.
                0 | 1 => drop(rig.queue("k", &holder, Wait::Until(ms(now + 50)))),
                2 => {
                    let waiter = forever(&mut rig, "k/inner", &holder);
                    assert!(rig.cancel(waiter));
                }
                3 => {
                    forever(&mut rig, "k", &holder);
                    rig.disconnect(&holder);
                }
                _ => {
                    forever(&mut rig, "k", &holder);
                    stay.push(holder);
                }
            }
        }
        rig.at(now + 50).advance();
        assert_eq!(rig.registry.waiting(), stay.len());
        let mut at = grant.at;
        for holder in &stay {
            rig.release("k", at).change();
            let view = rig.view("k");
            assert_eq!(view.holder, *holder);
            at = view.token.into();
        }
        rig.release("k", at).change();
        drop(answers(&mut rig));
        assert_eq!((rig.registry.waiting(), rig.registry.held()), (0, 0));
        let (nodes, timers) = rig.registry.footprint();
        assert_eq!(nodes, 0);
        assert!(timers <= 66, "{timers} timers");
        rig.at(now + 99);
    }
    rig.at(T0 + 2 * TTL_MS).advance();
    assert_eq!(rig.registry.footprint(), (0, 0));
}

// fault B56
#[test]
fn keys_used_once_leave_no_memory_behind() {
    let mut rig = Rig::sessions();
    rig.holds("kept", &mcp());
    let base = rig.registry.footprint();
    let mut registry = rig.registry.with_receipts(0);
    let mut drawn = 0_u64;
    let mut draw = || {
        drawn += 1;
        lease_id(drawn)
    };
    let mut turn = Turn::new(Seen::at(ms(T0)), &mut draw);
    let mut call = Call {
        resource: None,
        action: Action::Sweep,
        wait: Wait::No,
    };
    let acquire = Action::Acquire {
        holder: inp(),
        ttl: None,
    };
    // Without optimisation a million takes as long as all other tests together.
    let keys = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    for n in 0..keys {
        call.resource = Some(key(&format!("once/{n}")));
        call.action = acquire.clone();
        let Step::Done(Outcome::Granted(grant, _)) = registry.call(&call, &mut turn) else {
            panic!("not granted")
        };
        call.action = Action::Release(By::Token(grant.at));
        let Step::Done(Outcome::Done(_)) = registry.call(&call, &mut turn) else {
            panic!("not released")
        };
    }
    let (nodes, timers) = registry.footprint();
    assert_eq!((nodes, registry.held()), (base.0, 1));
    // Timers of what is gone are bounded, not one a key.
    assert!(timers <= base.1 + 66, "{timers} timers");
}

/// A request whose deadline has passed, before one that still waits, and what frees the resource.
#[track_caller]
fn nothing_for_the_overdue(free: impl FnOnce(&mut Rig, lease_core::Grant)) {
    let mut rig = Rig::sessions();
    let grant = rig.granted("k", &mcp());
    let late = rig.queue("k", &inp(), Wait::Until(ms(T0 + 100)));
    let live = rig.queue("k", &oth(), Wait::Forever);
    free(&mut rig, grant);
    let first = rig.settled().unwrap();
    assert_eq!(first.waiter, late);
    assert!(
        matches!(first.outcome, Err(Refusal::TimedOut { .. })),
        "{first:?}"
    );
    let second = rig.settled().unwrap();
    assert_eq!((second.waiter, second.outcome.is_ok()), (live, true));
    assert_eq!(rig.with_code(Code::WaitTimedOut).len(), 1);
}

#[test]
fn a_request_past_its_deadline_gets_nothing_whatever_frees_the_resource() {
    nothing_for_the_overdue(|rig, _| drop(rig.at(T0 + 101).disconnect(&mcp())));
    nothing_for_the_overdue(|rig, grant| {
        rig.at(T0 + 101)
            .turn(|registry, turn| registry.abandon(&key("k"), grant, turn));
    });
    nothing_for_the_overdue(|rig, _| drop(rig.at(T0 + TTL_MS + 1).advance()));
    nothing_for_the_overdue(|rig, grant| drop(rig.at(T0 + 101).release("k", grant.at)));
}

#[test]
fn a_request_that_is_taken_back_is_not_served_first() {
    let mut rig = Rig::sessions();
    rig.holds("k", &mcp());
    let late = rig.queue("k", &inp(), Wait::Until(ms(T0 + TTL_MS)));
    let gone = forever(&mut rig, "k", &inp());
    // The term is over and so is the first wait, and nobody has noticed either.
    rig.at(T0 + TTL_MS + 1);
    assert!(rig.cancel(gone));
    assert_eq!(answers(&mut rig), [(late, Err(Code::WaitTimedOut))]);
    assert_eq!(rig.view("k").holder, mcp());
}

#[test]
fn a_freed_key_goes_past_a_waiter_for_all_of_it_that_waits_for_the_same_writer() {
    let mut rig = Rig::sessions();
    rig.holds("p/c", &inp());
    let freed = rig.granted("p/d", &mcp()).at;
    rig.queue("p", &oth(), Wait::Forever);
    let passes = rig.queue("p/d", &inp(), Wait::Forever);
    rig.release("p/d", freed).change();
    // It waits behind nobody: who is in front of it waits for its own lease.
    let settled = rig.settled().expect("it can go");
    assert_eq!(settled.waiter, passes);
    assert!(settled.outcome.is_ok(), "{settled:?}");
}

#[test]
fn a_freed_key_goes_past_a_waiter_for_all_of_it_of_the_same_writer() {
    let mut rig = Rig::sessions();
    rig.holds("p/c", &inp());
    let freed = rig.granted("p/d", &mcp()).at;
    rig.queue("p", &oth(), Wait::Forever);
    let passes = rig.queue("p/d", &oth(), Wait::Forever);
    rig.release("p/d", freed).change();
    let settled = rig.settled().expect("it can go");
    assert_eq!(settled.waiter, passes);
    assert!(settled.outcome.is_ok(), "{settled:?}");
}

#[test]
fn a_freed_key_goes_to_nobody_behind_a_waiter_for_all_of_it() {
    let mut rig = Rig::sessions();
    rig.holds("p/c", &inp());
    let freed = rig.granted("p/d", &mcp()).at;
    rig.queue("p", &oth(), Wait::Forever);
    rig.queue("p/d", &who("ag-9", "s-9"), Wait::Forever);
    rig.release("p/d", freed).change();
    assert!(rig.settled().is_none());
    assert_eq!(rig.registry.waiting(), 2);
}

#[test]
fn a_freed_key_goes_past_a_waiter_for_another_part_of_it() {
    let mut rig = Rig::sessions();
    let freed = rig.granted("p", &inp()).at;
    rig.holds("p/a/x", &inp());
    rig.queue("p/a", &oth(), Wait::Forever);
    let passes = rig.queue("p/b", &mcp(), Wait::Forever);
    rig.release("p", freed).change();
    let settled = rig.settled().expect("it can go");
    assert_eq!(settled.waiter, passes);
    assert!(settled.outcome.is_ok(), "{settled:?}");
}

#[test]
fn words_about_a_call_are_not_said_of_the_grants_it_leads_to() {
    let mut rig = Rig::sessions();
    let note = || Note::new("call_method", "done");
    let grant = rig.granted("p", &mcp());
    forever(&mut rig, "p", &inp());
    rig.turn(|registry, turn| {
        turn.note = Some(note());
        registry.release(&key("p"), grant.at, turn)
    })
    .unwrap();
    // The term of the second holder is over when somebody asks for something else.
    forever(&mut rig, "p", &oth());
    rig.at(T0 + 2 * TTL_MS);
    let asked = rig.turn(|registry, turn| {
        turn.note = Some(note());
        let (holder, ttl, wait) = (&mcp(), None, Wait::No);
        registry.acquire(&key("q"), Request { holder, ttl, wait }, turn)
    });
    assert!(matches!(asked, Step::Done(Outcome::Granted(..))));
    let noted = |code| -> Vec<_> {
        let receipts = rig.with_code(code).into_iter();
        receipts.map(|receipt| receipt.note.clone()).collect()
    };
    assert_eq!(noted(Code::Released), [Some(note())]);
    // The first holder, two that waited, and the one that asked last.
    assert_eq!(noted(Code::Created), [None, None, None, Some(note())]);
}
