//! Laws that hold for every history.

use core::time::Duration;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use lease_core::{
    Action, AdoptProof, At, By, Call, Code, Detail, Disposition, FencingToken, LeasePolicy,
    LeaseView, Moment, Note, OpId, Outcome, Provenance, Receipt, Refusal, Registry, Seen,
    SessionHolder, Step, Turn, Verdict, Wait,
};
use proptest::prelude::*;

use crate::history::{AUTHORITY, Fate, History, Terms, always, lease_id, token, writer};
use crate::reference::{Row, rows};
use crate::replay::{listed, replay};
use crate::rig::{
    Answered as _, Rig, T0, TTL_MS, dead, first_process, inp, key, mcp, ms, observed, op, oth,
    second_process,
};
use crate::stage::{Act, Said, Scene, Shown, Stage, play};

/// The scenes of a history, and what they led to.
fn record(history: &History) -> Vec<(Scene, Shown)> {
    let mut scenes = Vec::new();
    play(history, |played| {
        scenes.push((played.scene.clone(), played.shown.clone()));
    });
    scenes
}

/// What is decided: nothing that is only for people.
fn decided(stage: &Stage, shown: &Shown) -> (Said, Vec<Row>, usize, String) {
    let held = rows(&stage.registry.peek(Moment::ZERO));
    let answered = format!("{:?}", stage.answered());
    (shown.said.clone(), held, stage.registry.waiting(), answered)
}

// X1
#[test]
fn no_two_writers_overlap_at_any_instant() {
    always(file!(), |history| {
        play(&history, |played| {
            let views = played.after.registry.peek(Moment::ZERO);
            for (at, one) in views.iter().enumerate() {
                for other in &views[at + 1..] {
                    let apart = !one.resource.overlaps(&other.resource);
                    assert!(one.holder == other.holder || apart, "{one:?}\n{other:?}");
                }
            }
        });
    });
}

// X2
#[test]
fn every_new_lease_has_a_larger_generation_than_all_before_it() {
    always(file!(), |history| {
        let largest = Cell::new(0);
        play(&history, |played| {
            for receipt in &played.shown.receipts {
                if let Detail::Granted { .. } = receipt.change.detail {
                    let generation = receipt.change.token.unwrap().generation.get();
                    assert!(generation > largest.replace(generation));
                }
            }
        });
    });
}

/// Everything that can be tried with a token, in the name of whoever holds now.
fn attempts(token: FencingToken, present: &LeaseView<SessionHolder>) -> Vec<Action<SessionHolder>> {
    let at = At::from(token);
    let holder = present.holder.clone();
    let running = present
        .in_flight
        .first()
        .map_or_else(|| op(9), |running| running.id);
    let by = |exited| By::Holder {
        holder: holder.clone(),
        lease: Some(token.lease),
        exited,
    };
    let failed = Err(Disposition::PreMutation);
    let adopt = |proof| Action::Adopt {
        token,
        proof,
        to: writer(2),
    };
    let end = |op| Action::End {
        at,
        op,
        result: failed,
    };
    let ttl = Some(Duration::from_millis(TTL_MS));
    vec![
        Action::Touch(at),
        Action::Renew { at, ttl: None },
        Action::Renew { at, ttl },
        Action::Begin {
            at,
            op: op(9),
            from: Provenance::Created,
        },
        end(running),
        end(OpId::ACQUISITION),
        Action::Release(By::Token(at)),
        Action::Release(by(false)),
        Action::Release(by(true)),
        Action::Offer {
            at,
            ticket: [1; 16],
        },
        adopt(AdoptProof::Present(holder.clone())),
        adopt(AdoptProof::Ticket([1; 16])),
        Action::Revoke {
            expected: token.generation,
            by: "operator".into(),
            reason: "stuck".into(),
            even_if_alive: true,
        },
        Action::Check(By::Token(at)),
        Action::Check(by(false)),
    ]
}

// X3
#[test]
fn the_past_cannot_act() {
    always(file!(), |history| {
        let mut scenes = record(&history);
        let mut stage = play(&history, |_| {});
        let granted = scenes.drain(..).flat_map(|(_, shown)| shown.receipts);
        let granted: BTreeSet<_> = granted
            .filter(|receipt| matches!(receipt.change.detail, Detail::Granted { .. }))
            .map(|receipt| receipt.change.token.unwrap().generation.get())
            .collect();
        let now = stage.now;
        let scene = |act| Scene {
            now,
            answers: Vec::new(),
            act,
        };
        stage.perform(&scene(Act::Advance));
        let before = rows(&stage.registry.peek(now));
        for present in stage.registry.peek(now) {
            for &generation in &granted {
                let old = token(generation);
                if old == present.token {
                    continue;
                }
                for action in attempts(old, &present) {
                    let call = Call {
                        resource: Some(present.resource.clone()),
                        action: action.clone(),
                        wait: Wait::No,
                    };
                    let mut copy = stage.clone();
                    let shown = copy.perform(&scene(Act::Call(call)));
                    assert!(matches!(shown.said, Said::Refused(_)), "{action:?}");
                    assert_eq!(rows(&copy.registry.peek(now)), before, "{action:?}");
                }
            }
        }
    });
}

// X4
#[test]
fn doubt_never_grants() {
    always(file!(), |history| {
        play(&history, |played| {
            // With a queue it may go to somebody else, which is a grant as well.
            let waited = played.before.registry.waiting() > 0;
            if waited || matches!(played.shown.said, Said::Granted(..)) {
                return;
            }
            for answer in 0..played.scene.answers.len() {
                let mut scene = played.scene.clone();
                scene.answers[answer].verdict = Fate::Unknown.verdict();
                let doubted = played.before.clone().perform(&scene);
                let granted = matches!(doubted.said, Said::Granted(..));
                assert!(!granted, "{:?}\n{doubted:?}", played.shown);
            }
        });
    });
}

// X5
#[test]
fn an_end_by_term_or_proof_claims_nothing_of_the_work() {
    always(file!(), |history| {
        play(&history, |played| {
            for receipt in &played.shown.receipts {
                let change = receipt.change;
                let ended = [Code::Reclaimed, Code::TakenOver, Code::SessionEnded];
                let exited = matches!(change.detail, Detail::Released { exited: true, .. });
                let silent = ended.contains(&change.code) || exited;
                assert_eq!(change.work_state_unknown(), silent);
                let text = receipt.to_string();
                assert_eq!(text.contains("work state unknown"), silent, "{text}");
            }
        });
    });
}

// X6
#[test]
fn a_refusal_changes_nothing_but_what_time_has_ended() {
    always(file!(), |history| {
        play(&history, |played| {
            let (Said::Refused(_) | Said::Asked(_)) = played.shown.said else {
                return;
            };
            // The same call with nothing in it.
            let mut idle = played.before.clone();
            let waited = idle.registry.waiting() > 0;
            let shown = idle.perform(&Scene {
                act: Act::Advance,
                ..played.scene.clone()
            });
            assert_eq!(played.shown.lines(), shown.lines());
            let (_, held, waiting, answered) = decided(played.after, played.shown);
            let (_, idle_held, idle_waiting, idle_answered) = decided(&idle, &shown);
            assert_eq!(
                (held, waiting, answered),
                (idle_held, idle_waiting, idle_answered)
            );
            for line in shown.lines() {
                let swept = matches!(line.code, Code::Reclaimed | Code::ClockSteppedBack);
                assert!(swept || waited, "{line:?}");
            }
        });
    });
}

// X7
#[test]
fn the_receipts_alone_rebuild_what_is_held() {
    always(file!(), |history| {
        let mut receipts: Vec<Receipt<SessionHolder>> = Vec::new();
        play(&history, |played| {
            receipts.extend(played.shown.receipts.iter().cloned());
            let numbers = receipts.iter().map(|receipt| receipt.change.seq);
            assert!(numbers.is_sorted_by(|a, b| a < b));
            let held = played.after.registry.peek(Moment::ZERO);
            assert_eq!(replay(&receipts), listed(&held));
        });
    });
}

// X8
#[test]
fn the_same_history_has_the_same_transcript() {
    let transcript = |history: &History| {
        let mut text = String::new();
        let stage = play(history, |played| {
            for receipt in &played.shown.receipts {
                writeln!(text, "{receipt} {receipt:?}").unwrap();
            }
            writeln!(text, "{:?}", played.shown.said).unwrap();
        });
        text + &format!("{:?}{:?}", stage.settled(), stage.registry.peek(stage.now))
    };
    always(file!(), |history| {
        assert_eq!(transcript(&history), transcript(&history));
    });
}

/// Plays scenes as a driver that calls at every deadline; `looks` says where it also lists.
fn prompt(history: &History, scenes: &[(Scene, Shown)], looks: u64) -> Vec<String> {
    let mut stage = Stage::new(history.terms);
    let mut story = Vec::new();
    for (number, (scene, _)) in scenes.iter().enumerate() {
        let idle = |now, act| Scene {
            now,
            answers: Vec::new(),
            act,
        };
        while let Some(deadline) = stage.registry.next_deadline()
            && deadline <= scene.now
            && deadline > stage.now
        {
            stage.perform(&idle(deadline, Act::Advance));
        }
        if looks >> (number % 64) & 1 == 1 {
            let between = scene.now.since(stage.now) / 2;
            let between = stage.now.after(between).min(scene.now);
            stage.perform(&idle(between, Act::List));
            stage.perform(&idle(scene.now, Act::List));
        }
        // Receiving an answer reads no clock; here it does, or a look would be the one that notices it.
        stage.perform(&idle(scene.now, Act::Advance));
        let shown = stage.perform(scene);
        // What a look or a sweep itself finds is not what is decided.
        if !matches!(shown.said, Said::Listed(_) | Said::Many(_)) {
            story.push(format!("{:?}", shown.said));
        }
        story.push(format!("{:?}", stage.answered()));
    }
    story.push(format!("{:?}", rows(&stage.registry.peek(stage.now))));
    story
}

// X9
#[test]
fn looking_neither_helps_nor_hurts() {
    always(file!(), |history| {
        let scenes = record(&history);
        let unseen = prompt(&history, &scenes, 0);
        assert_eq!(prompt(&history, &scenes, history.noise), unseen);
        assert_eq!(prompt(&history, &scenes, u64::MAX), unseen);
    });
}

/// The same call, with other words in it.
fn reworded(scene: &Scene) -> Scene {
    let mut scene = scene.clone();
    if let Act::Call(call) = &mut scene.act
        && let Action::Revoke { by, reason, .. } = &mut call.action
    {
        *by = "somebody else".into();
        *reason = "for no reason\0".into();
    }
    for answer in &mut scene.answers {
        let evidence = answer
            .verdict
            .evidence()
            .clone()
            .with_detail("in other words");
        answer.verdict = match answer.verdict {
            Verdict::Alive(_) => Verdict::Alive(evidence),
            Verdict::Dead(_) => Verdict::Dead(evidence),
            Verdict::Occupied(_) => Verdict::Occupied(evidence),
            Verdict::Unknown(_) => Verdict::Unknown(evidence),
        };
    }
    scene
}

// X10, fault B34
#[test]
fn what_is_only_for_people_never_decides() {
    // Backwards by a day, 1970, far ahead, and what no clock shows.
    const WALLS: [Option<i64>; 6] = [
        Some(1_700_000_000_000),
        Some(1_699_913_600_000),
        Some(0),
        Some(4_855_680_000_000),
        Some(i64::MIN),
        None,
    ];
    always(file!(), |history| {
        let mut stage = Stage::new(history.terms);
        let mut other = Stage::new(history.terms);
        for (number, (scene, _)) in record(&history).into_iter().enumerate() {
            other.wall_ms = WALLS[number % WALLS.len()];
            other.note = Some(Note::new("undo", "the disk is full"));
            let (shown, told) = (stage.perform(&scene), other.perform(&reworded(&scene)));
            assert_eq!(decided(&stage, &shown), decided(&other, &told));
            assert_eq!(shown.lines(), told.lines());
        }
    });
}

// X11
#[test]
fn receipts_that_nobody_keeps_change_nothing() {
    always(file!(), |history| {
        let scenes = record(&history);
        let mut stages = [0, 1, 1 << 20].map(|most| Stage::with_receipts(history.terms, most));
        for (scene, _) in &scenes {
            let seen = stages.each_mut().map(|stage| {
                let shown = stage.perform(scene);
                decided(stage, &shown)
            });
            assert_eq!(seen[0], seen[2]);
            assert_eq!(seen[1], seen[2]);
        }
    });
}

/// Whether somebody lost a lease by it, or handed it over, otherwise than by releasing it.
fn loses<H>(receipt: &Receipt<H>) -> bool {
    let change = &receipt.change;
    match change.detail {
        Detail::Granted { previous, .. } => previous.is_some(),
        Detail::Released { exited, .. } => {
            exited || !matches!(change.code, Code::Released | Code::LeaseReleased)
        }
        Detail::Reclaimed { .. } | Detail::Disconnected { .. } => true,
        _ => matches!(
            change.code,
            Code::ReleasedAfterFailure
                | Code::Adopted
                | Code::SessionEnded
                | Code::ClockSteppedBack
        ),
    }
}

#[test]
fn with_receipts_of_losses_only_everything_else_goes_on_as_always() {
    always(file!(), |history| {
        let scenes = record(&history);
        let mut all = Stage::new(history.terms);
        let mut losses = Stage::new(history.terms);
        losses.registry.keep_losses_only(true);
        for (scene, _) in &scenes {
            let (shown, told) = (all.perform(scene), losses.perform(scene));
            assert_eq!(decided(&all, &shown), decided(&losses, &told));
            let lost: Vec<_> = shown
                .receipts
                .iter()
                .filter(|receipt| loses(receipt))
                .collect();
            assert_eq!(told.receipts.iter().collect::<Vec<_>>(), lost);
            assert!(!losses.registry.has_receipts());
        }
    });
}

// X11
#[test]
fn a_sink_that_panics_leaves_the_lock_as_it_is() {
    let registry = Registry::new(AUTHORITY, Terms::SessionTtl.policy()).with_receipts(16);
    let shared = Mutex::new(registry);
    let mut drawn = 0;
    let mut call = |action| {
        let mut registry = shared.lock().unwrap();
        let mut draw = || {
            drawn += 1;
            lease_id(drawn)
        };
        let mut turn = Turn::new(Seen::at(ms(T0)), &mut draw);
        let call = Call {
            resource: Some(key("k")),
            action,
            wait: Wait::No,
        };
        let step = registry.call(&call, &mut turn);
        let receipts = registry.take_receipts().receipts;
        drop(registry);
        // Sinks run outside.
        let sunk = catch_unwind(AssertUnwindSafe(|| {
            if !receipts.is_empty() {
                resume_unwind(Box::new("the sink failed"));
            }
        }));
        assert_eq!(sunk.is_err(), !receipts.is_empty());
        step
    };
    let acquire = |holder| Action::Acquire { holder, ttl: None };
    let Step::Done(Outcome::Granted(grant, _)) = call(acquire(mcp())) else {
        panic!()
    };
    let Step::Done(Outcome::Refused(Refusal::Held(_))) = call(acquire(inp())) else {
        panic!()
    };
    let Step::Done(Outcome::Done(_)) = call(Action::Release(By::Token(grant.at))) else {
        panic!()
    };
    assert!(matches!(
        call(acquire(inp())),
        Step::Done(Outcome::Granted(..))
    ));
    assert!(!shared.is_poisoned());
}

// fault B04
#[test]
fn the_same_stale_evidence_takes_over_once() {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let stale = rig.granted("k", &first_process()).at.token;
    // Both have seen the dead holder before either calls.
    let evidence = observed(stale, dead());
    rig.answers = vec![evidence];
    let mut third = second_process();
    third.pid += 1;
    let first = rig.acquire("k", &second_process()).grant();
    assert_eq!(first.at.token.generation.get(), 2);
    let call = Action::Acquire {
        holder: third,
        ttl: None,
    };
    let Step::Ask(asked) = rig.step(Some("k"), call, Wait::No) else {
        panic!("old evidence decided about a new lease")
    };
    assert_eq!(
        (&asked[0].holder, asked[0].about),
        (&second_process(), first.at.token)
    );
    assert_eq!(rig.with_code(Code::TakenOver).len(), 1);
    assert_eq!(rig.view("k").token, first.at.token);
}

// fault B16
#[test]
fn re_entry_is_for_the_exact_writer_and_key() {
    let mut rig = Rig::sessions();
    let first = rig.granted("k", &mcp());
    let again = rig.granted("k", &mcp());
    assert_eq!(again.at.token, first.at.token);
    assert_eq!(
        (first.provenance, again.provenance),
        (Provenance::Created, Provenance::Reentrant)
    );
    // The same agent by another session, and another agent.
    for other in [inp(), oth()] {
        assert_eq!(rig.refused("k", &other).by(), Some(&mcp()));
    }
    // Another key is another lease, also one that overlaps.
    let inner = rig.granted("k/inner", &mcp());
    assert_eq!(inner.provenance, Provenance::Created);
    assert_ne!(inner.at.token, first.at.token);
    assert_eq!(rig.refused("k/inner", &inp()).by(), Some(&mcp()));
    // Released in the wrong order, each frees its own.
    rig.release("k", first.at).change();
    assert_eq!(rig.refused("k", &inp()).by(), Some(&mcp()));
    rig.release("k/inner", inner.at).change();
    assert_eq!(rig.granted("k", &inp()).provenance, Provenance::Created);
}

// fault B39
#[test]
fn holder_and_contender_never_both_say_yes() {
    let term = 1..=100_u64 * 365 * 24 * 3_600 * 1_000_000_000;
    let start = prop_oneof![Just(0), Just(u64::MAX - 1), any::<u64>()];
    proptest!(|(term in term, start in start, off in -2..3_i64)| {
        let policy = LeasePolicy::session_ttl(Duration::from_nanos(term)).unwrap();
        let mut rig: Rig = Rig::new(policy);
        rig.now = Moment::from_nanos(start);
        let grant = rig.granted("k", &mcp());
        let last = rig.view("k").expires.unwrap();
        prop_assert_eq!(last, Moment::from_nanos(start.saturating_add(term)));
        rig.now = Moment::from_nanos(last.as_nanos().saturating_add_signed(off)).max(rig.now);
        let mut other = rig.clone();
        let entitled = other.call("k", Action::Check(By::Token(grant.at)));
        let entitled = matches!(entitled, Outcome::Done(_));
        let taken = matches!(rig.acquire("k", &inp()), Outcome::Granted(..));
        prop_assert_ne!(entitled, taken);
        // Never shorter than asked for.
        prop_assert_eq!(taken, rig.now > last);
    });
}

// fault B47
#[test]
fn after_a_long_sleep_the_holder_learns_whether_it_holds() {
    let asleep = T0 + 5 * TTL_MS;
    // Nobody else came: a value says that it is lost, a fresh request recovers.
    let mut alone = Rig::sessions();
    let old = alone.granted("k", &mcp());
    let renew = Action::Renew {
        at: old.at,
        ttl: None,
    };
    let lost = alone.at(asleep).call("k", renew.clone()).refusal();
    assert_eq!(lost.code(), Code::StaleToken);
    assert_eq!(alone.codes(), [Code::Created, Code::Reclaimed]);
    let fresh = alone.granted("k", &mcp());
    assert!(fresh.at.token.generation > old.at.token.generation);
    // Somebody came.
    let mut raced = Rig::sessions();
    let old = raced.granted("k", &mcp());
    let theirs = raced.at(asleep).granted("k", &inp());
    let lost = raced.call("k", renew).refusal();
    assert_eq!(lost.code(), Code::StaleToken);
    assert_eq!(raced.touch("k", old.at).refusal().code(), Code::StaleToken);
    assert_eq!(raced.refused("k", &mcp()).by(), Some(&inp()));
    assert_eq!(raced.view("k").token, theirs.at.token);
    // Under terms that only suspend nobody else gains, and an explicit ttl restores the same lease.
    let mut bound = Rig::new(LeasePolicy::process_bound());
    let ttl = Some(Duration::from_millis(TTL_MS));
    let held = bound.acquire_for("k", &mcp(), ttl).grant();
    let late = Action::Renew { at: held.at, ttl };
    let restored = bound.at(asleep).call("k", late).change();
    assert_eq!(
        (restored.code, restored.token),
        (Code::Renewed, Some(held.at.token))
    );
}
