//! The laws of a single state, each tried on copies: the past is inert, and everything comes free.

use lease_core::{
    Action, AdoptProof, Answer, At, By, Call, Disposition, Evidence, FencingToken, Generation,
    Lease, LeaseId, OnExpiry, OpId, Provenance, Question, SessionHolder, Slot, Verdict, Wait,
    WaiterId,
};

use super::law::{Breach, Law, require};
use super::queue::nobody_is_forgotten;
use super::view;
use super::world::{Act, Patience, Place, Said, Setup, Sight, Sights, TERM, World, answer};

type Judgement = Result<(), Breach>;

/// Checks every law of a state.
pub(super) fn judge(setup: &Setup, world: &World) -> Judgement {
    nobody_is_forgotten(setup, world)?;
    let mut swept = world.clone();
    drop(swept.perform(setup, Act::Sweep, false));
    holders_are_entitled(setup, &swept)?;
    past_is_inert(setup, &swept)?;
    late_verdicts_are_inert(setup, &swept)?;
    comes_free_by_disconnect(setup, world)?;
    comes_free_by_silence(setup, world)?;
    comes_free_by_death(setup, world)?;
    comes_free_by_finishing(setup, swept)
}

/// Whoever holds a lease within its term may write, to the last moment.
fn holders_are_entitled(setup: &Setup, world: &World) -> Judgement {
    for (key, lease) in world.leases(setup) {
        let call = Call {
            resource: setup.keys.get(key).cloned(),
            action: Action::Check(By::Token(At::from(lease.token))),
            wait: Wait::No,
        };
        let law = if lease.ops.is_empty() {
            Law::NoEarlyExpiry
        } else {
            Law::InFlightShields
        };
        let suspended = lease.terms.on_expiry() == OnExpiry::SuspendHolder
            && lease
                .expires
                .is_some_and(|last| last.as_nanos() < world.now);
        let said = world.clone().make(&call, &[], Act::Sweep);
        require(suspended || said == Said::Done, law, || {
            format!(
                "the holder of {} asks whether it may write, and is {said}",
                setup.key(key)
            )
        })?;
    }
    Ok(())
}

/// A lease id that was never drawn.
const FOREIGN: LeaseId = LeaseId::from_bytes([0xEE; 16]);

/// Makes every call with every token that is not the present one, and looks whether anything changed.
fn past_is_inert(setup: &Setup, world: &World) -> Judgement {
    let mut probe = world.clone();
    for key in 0..setup.keys.len() {
        for token in past_tokens(setup, world, key) {
            for slot in [Slot::NONE, world.slot(key)] {
                for action in with_token(At { token, slot }, setup) {
                    inert(setup, &mut probe, key, action)?;
                }
            }
        }
        let Some(lease) = world.lease(setup, key) else {
            continue;
        };
        for action in with_present_token(lease, setup) {
            inert(setup, &mut probe, key, action)?;
        }
    }
    let gone = WaiterId::from_order(u64::MAX);
    let known = probe.registry.clone().cancel(
        gone,
        &mut lease_core::Turn::new(
            lease_core::Seen::at(lease_core::Moment::from_nanos(world.now)),
            &mut || FOREIGN,
        ),
    );
    require(!known, Law::PastCannotAct, || {
        "a request that never was is taken back".to_owned()
    })?;
    require(
        view::of(setup, &probe) == view::of(setup, world),
        Law::PastCannotAct,
        || "a past token changed something".to_owned(),
    )
}

fn inert(setup: &Setup, probe: &mut World, key: Place, action: Action<SessionHolder>) -> Judgement {
    let call = Call {
        resource: setup.keys.get(key).cloned(),
        action,
        wait: Wait::No,
    };
    let said = probe.make(&call, &[], Act::Sweep);
    require(said == Said::Refused, Law::PastCannotAct, || {
        format!("{} at {} was {said}", named(&call.action), setup.key(key))
    })
}

/// What is called, and with which token.
fn named(action: &Action<SessionHolder>) -> String {
    let with = |verb: &str, token: &FencingToken| {
        let lease = if token.lease == FOREIGN {
            " of a lease never drawn"
        } else {
            ""
        };
        format!("{verb} with generation {}{lease}", token.generation)
    };
    match action {
        Action::Touch(at) => with("a touch", &at.token),
        Action::Renew { at, .. } => with("a renewal", &at.token),
        Action::Begin { at, .. } => with("a begin", &at.token),
        Action::End { at, op, .. } if *op == OpId::ACQUISITION => {
            with("a grant given back", &at.token)
        }
        Action::End { at, .. } => with("an end", &at.token),
        Action::Release(By::Token(at)) => with("a release", &at.token),
        Action::Release(By::Holder { holder, .. }) => format!("a release by {holder:?}"),
        Action::Offer { at, .. } => with("an offer", &at.token),
        Action::Check(By::Token(at)) => with("a check", &at.token),
        Action::Adopt { token, to, .. } => with(&format!("an adoption by {to:?}"), token),
        Action::Revoke { expected, .. } => format!("a revocation of generation {expected}"),
        action => format!("{action:?}"),
    }
}

/// Tokens that are not the one at `key`: older, of the same generation and another lease, of another
/// resource.
fn past_tokens(setup: &Setup, world: &World, key: Place) -> Vec<FencingToken> {
    let present = world.lease(setup, key).map(|lease| lease.token);
    let authority = world.registry.authority();
    let foreign = |generation: u64| {
        Some(FencingToken {
            authority,
            generation: Generation::new(generation)?,
            lease: FOREIGN,
        })
    };
    let generation = present.map_or(world.newest, |token| token.generation.get());
    let older = foreign(generation.saturating_sub(1));
    let same = foreign(generation);
    let others = world
        .leases(setup)
        .filter(|(other, _)| *other != key)
        .map(|(_, lease)| lease.token);
    older.into_iter().chain(same).chain(others).collect()
}

/// Every call that shows a token.
fn with_token(at: At, setup: &Setup) -> Vec<Action<SessionHolder>> {
    let failed = Err(Disposition::PreMutation);
    let op = OpId::from_bytes([1; 16]);
    let end = |op| Action::End {
        at,
        op,
        result: failed,
    };
    let mut actions = vec![
        Action::Touch(at),
        Action::Renew { at, ttl: None },
        Action::Begin {
            at,
            op,
            from: Provenance::Created,
        },
        end(op),
        end(OpId::ACQUISITION),
        Action::Release(By::Token(at)),
        Action::Offer {
            at,
            ticket: [9; 16],
        },
        Action::Check(By::Token(at)),
    ];
    actions.extend(setup.writers.first().map(|writer| Action::Adopt {
        token: at.token,
        proof: AdoptProof::Present(writer.clone()),
        to: writer.clone(),
    }));
    actions
}

/// Calls about the present lease by somebody who is not meant, or about what is over.
fn with_present_token(lease: &Lease<SessionHolder>, setup: &Setup) -> Vec<Action<SessionHolder>> {
    let at = At::from(lease.token);
    let mut actions = vec![
        Action::End {
            at,
            op: OpId::from_bytes([0xEE; 16]),
            result: Err(Disposition::PreMutation),
        },
        Action::Adopt {
            token: lease.token,
            proof: AdoptProof::Ticket([9; 16]),
            to: lease.holder.clone(),
        },
    ];
    actions.extend(
        lease
            .token
            .generation
            .next()
            .map(|expected| Action::Revoke {
                expected,
                by: "operator".into(),
                reason: "model".into(),
                even_if_alive: true,
            }),
    );
    for other in setup.writers.iter().filter(|other| **other != lease.holder) {
        actions.push(Action::Adopt {
            token: lease.token,
            proof: AdoptProof::Present(other.clone()),
            to: other.clone(),
        });
        for lease_id in [None, Some(lease.token.lease)] {
            actions.push(Action::Release(By::Holder {
                holder: other.clone(),
                lease: lease_id,
                exited: false,
            }));
        }
    }
    actions
}

/// A verdict about an earlier lease or an earlier holder is as good as none.
fn late_verdicts_are_inert(setup: &Setup, world: &World) -> Judgement {
    let proofs = setup.policy.ends_on();
    if proofs.process.is_none() && !proofs.session {
        return Ok(());
    }
    let late: Vec<Answer> = world
        .leases(setup)
        .flat_map(|(_, lease)| late_verdicts(lease))
        .collect();
    if late.is_empty() {
        return Ok(());
    }
    for who in 0..setup.writers.len() {
        for key in 0..setup.keys.len() {
            let act = Act::Acquire {
                who,
                key,
                wait: Patience::None,
                seen: Sights::None,
            };
            let mut without = world.clone();
            let plain = without
                .perform(setup, act, false)
                .map(|answered| answered.said);
            let Some(call) = request(setup, who, key) else {
                continue;
            };
            let mut with = world.clone();
            let said = with.make(&call, &late, act);
            require(Some(said) == plain, Law::PastCannotAct, || {
                let plain = plain.map(|plain| plain.to_string()).unwrap_or_default();
                format!(
                    "{} asks for {}, and is {said} with late verdicts, but {plain} without them",
                    setup.who(who),
                    setup.key(key)
                )
            })?;
        }
    }
    let mut advanced = world.clone();
    advanced.advance(&late);
    require(
        view::of(setup, &advanced) == view::of(setup, world),
        Law::PastCannotAct,
        || "late verdicts changed something".to_owned(),
    )
}

fn request(setup: &Setup, who: Place, key: Place) -> Option<Call<SessionHolder>> {
    Some(Call {
        resource: Some(setup.keys.get(key)?.clone()),
        action: Action::Acquire {
            holder: setup.writers.get(who)?.clone(),
            ttl: setup.ttl(),
        },
        wait: Wait::No,
    })
}

/// Verdicts that were on their way when the lease came, or when it was handed over.
fn late_verdicts(lease: &Lease<SessionHolder>) -> Vec<Answer> {
    let dead = |about, handovers| {
        Question::new(
            lease.holder.clone(),
            about,
            handovers,
            lease.terms.ends_on().process.unwrap_or_default(),
        )
        .answer(Verdict::Dead(Evidence::new("late")))
    };
    let mut late = vec![dead(
        FencingToken {
            lease: FOREIGN,
            ..lease.token
        },
        lease.handovers,
    )];
    late.extend(
        lease
            .handovers
            .checked_sub(1)
            .map(|earlier| dead(lease.token, earlier)),
    );
    late
}

/// Every connection ends: nothing is held, nobody waits.
fn comes_free_by_disconnect(setup: &Setup, world: &World) -> Judgement {
    if !setup.policy.ends_on().disconnect {
        return Ok(());
    }
    let mut drained = world.clone();
    for who in 0..setup.writers.len() {
        drop(drained.perform(setup, Act::Disconnect(who), false));
    }
    is_free(&drained, "everybody disconnected")
}

/// Everybody falls silent, the work in flight ends, and holders die where only proof ends a lease.
fn comes_free_by_silence(setup: &Setup, world: &World) -> Judgement {
    let mut drained = world.clone();
    for _ in 0..rounds(setup, world) {
        if drained.registry.held() == 0 && drained.registry.waiting() == 0 {
            break;
        }
        for key in 0..setup.keys.len() {
            end_all(setup, &mut drained, key);
            if setup.policy.on_expiry() != OnExpiry::EndIfIdle {
                drop(drained.perform(setup, Act::ReleaseExited(key, Sight::Dead), false));
            }
        }
        drained.now = drained.now.saturating_add(TERM).saturating_add(1);
        let dead: Vec<Answer> = if setup.policy.on_expiry() == OnExpiry::EndIfIdle {
            Vec::new()
        } else {
            drained
                .leases(setup)
                .map(|(_, lease)| answer(lease, Sight::Dead))
                .collect()
        };
        drained.advance(&dead);
    }
    is_free(&drained, "everybody fell silent")
}

/// Every holder that is asked about is dead: the registry's own questions are enough to end all waits.
fn comes_free_by_death(setup: &Setup, world: &World) -> Judgement {
    let proofs = setup.policy.ends_on();
    if proofs.process.is_none() && !proofs.session {
        return Ok(());
    }
    let mut drained = world.clone();
    for _ in 0..rounds(setup, world) {
        let questions = drained.registry.questions();
        let dead = |question: &Question<SessionHolder>| {
            question.answer(Verdict::Dead(Evidence::new("model")))
        };
        let answers: Vec<Answer> = questions.iter().map(dead).collect();
        drained.advance(&answers);
    }
    for key in 0..setup.keys.len() {
        drop(drained.perform(setup, Act::ReleaseExited(key, Sight::Dead), false));
    }
    is_free(&drained, "every holder that was asked about was dead")
}

/// Whoever waits for nothing finishes and gives back what it holds. Only a circle of writers that hold
/// and wait may be left.
fn comes_free_by_finishing(setup: &Setup, mut drained: World) -> Judgement {
    for _ in 0..rounds(setup, &drained) {
        let mut finished = false;
        for key in 0..setup.keys.len() {
            let Some(holder) = drained.lease(setup, key).map(|lease| lease.holder.clone()) else {
                continue;
            };
            let who = setup.writer_of(&holder);
            if drained
                .waiting
                .iter()
                .any(|waiting| Some(waiting.who) == who)
            {
                continue;
            }
            end_all(setup, &mut drained, key);
            drop(drained.perform(setup, Act::Release(key), false));
            finished = true;
        }
        if !finished {
            break;
        }
    }
    if circle(setup, &drained) {
        return Ok(());
    }
    is_free(&drained, "whoever waited for nothing finished")
}

/// More rounds than there can be leases and waits one after the other.
fn rounds(setup: &Setup, world: &World) -> usize {
    (world.waiting.len())
        .saturating_add(setup.keys.len())
        .saturating_mul(2)
        .saturating_add(2)
}

fn end_all(setup: &Setup, world: &mut World, key: Place) {
    let ops = world.lease(setup, key).map_or(0, |lease| lease.ops.len());
    for _ in 0..ops {
        let act = Act::End {
            key,
            nth: 0,
            result: Ok(()),
        };
        drop(world.perform(setup, act, false));
    }
}

fn is_free(world: &World, after: &str) -> Judgement {
    let (held, waiting) = (world.registry.held(), world.registry.waiting());
    let (places, _) = world.registry.footprint();
    require(
        held == 0 && waiting == 0 && places == 0,
        Law::EverythingComesFree,
        || format!("{after}: {held} held, {waiting} wait, {places} places kept"),
    )
}

/// Whether writers that hold and wait stand in a circle.
fn circle(setup: &Setup, world: &World) -> bool {
    let count = setup.writers.len();
    let waits_for = |one: Place, other: Place| {
        one != other
            && world.waiting.iter().any(|waiting| {
                waiting.who == one
                    && world.leases(setup).any(|(key, lease)| {
                        setup.writer_of(&lease.holder) == Some(other)
                            && setup.overlap(key, waiting.key)
                    })
            })
    };
    let mut reach: Vec<Vec<bool>> = (0..count)
        .map(|one| (0..count).map(|other| waits_for(one, other)).collect())
        .collect();
    let at = |reach: &[Vec<bool>], one: Place, other: Place| {
        reach.get(one).and_then(|row| row.get(other)).copied() == Some(true)
    };
    for over in 0..count {
        for one in 0..count {
            for other in 0..count {
                if at(&reach, one, over)
                    && at(&reach, over, other)
                    && let Some(cell) = reach.get_mut(one).and_then(|row| row.get_mut(other))
                {
                    *cell = true;
                }
            }
        }
    }
    (0..count).any(|one| at(&reach, one, one))
}
