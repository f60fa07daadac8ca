//! Promises about time.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use std::time::Duration;

use lease_core::{Action, By, Code, LeasePolicy, PolicyError, Provenance, Refusal};

use super::{
    Asks as _, Heard, Kept, Subject, TERM, VIEWPORT, asked, demand, kept, op, same, sessions,
    started, writers,
};

/// At its last moment a lease stands; one tick later it is over.
pub fn expiry_is_strict<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(TERM);
    subject.refused(VIEWPORT, &inp)?;
    subject.pass(subject.tick());
    let next = subject.granted(VIEWPORT, &inp)?;
    same(&next.provenance, &Provenance::Created, "the next grant")?;
    kept()
}

/// The term counts from the last sign of progress.
pub fn re_entry_starts_the_term_anew<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let first = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(Duration::from_secs(29));
    let _again = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(Duration::from_secs(29));
    subject.done(VIEWPORT, Action::Touch(first.at))?;
    subject.pass(TERM);
    subject.refused(VIEWPORT, &inp)?;
    subject.pass(subject.tick());
    let _next = subject.granted(VIEWPORT, &inp)?;
    kept()
}

/// Whoever notices that a term is over says so, before and beside its own outcome.
pub fn an_end_by_term_has_its_own_receipt<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let old = subject.granted(VIEWPORT, &mcp)?;
    // Whether it is noticed at once or by the next call is the authority's affair.
    subject.receipts();
    subject.pass(TERM + subject.tick());
    let new = subject.granted(VIEWPORT, &inp)?;
    let receipts = subject.receipts();
    let told: Vec<_> = receipts
        .iter()
        .map(|receipt| {
            (
                receipt.change.code,
                receipt.change.token,
                receipt.holder.clone(),
            )
        })
        .collect();
    let expected = vec![
        (Code::Reclaimed, Some(old.at.token), Some(mcp)),
        (Code::Created, Some(new.at.token), Some(inp)),
    ];
    same(&told, &expected, "the receipts")?;
    let unknown = receipts
        .first()
        .is_some_and(|receipt| receipt.change.work_state_unknown());
    demand(unknown, "the receipt claims something about the work")?;
    kept()
}

/// A writer that comes back after its term gets a new lease, whoever looked in between.
pub fn an_own_expired_lease_is_not_revived<S: Subject>(subject: &mut S) -> Kept {
    for looks in [false, true] {
        started!(subject, sessions());
        let [mcp, ..] = writers()?;
        let old = subject.granted(VIEWPORT, &mcp)?;
        subject.pass(TERM + subject.tick());
        if looks {
            same(&subject.listed().len(), &0, "the number of leases")?;
        }
        let new = subject.granted(VIEWPORT, &mcp)?;
        same(&new.provenance, &Provenance::Created, "the new grant")?;
        demand(
            new.at.token.generation > old.at.token.generation,
            "no new generation",
        )?;
        subject.stale(Action::Touch(old.at))?;
    }
    kept()
}

/// Where an authority sweeps everything, any call notices every term that is over.
pub fn a_look_reclaims_every_resource<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(
        subject.capabilities().sweeps_all,
        "a sweep sees only what is asked for"
    );
    let [mcp, inp, _] = writers()?;
    let _held = subject.granted("a", &mcp)?;
    let _held = subject.granted("b", &mcp)?;
    // Whether it is noticed at once or by the next call is the authority's affair.
    subject.receipts();
    subject.pass(TERM + subject.tick());
    let _held = subject.granted("c", &inp)?;
    let codes: Vec<_> = subject
        .receipts()
        .iter()
        .map(|receipt| receipt.change.code)
        .collect();
    same(
        &codes,
        &vec![Code::Reclaimed, Code::Reclaimed, Code::Created],
        "the receipts",
    )?;
    kept()
}

/// A term that the policy does not grant is refused and changes nothing.
pub fn a_term_that_is_not_granted_is_refused<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    for ttl in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
        let action = Action::Acquire {
            holder: mcp.clone(),
            ttl: Some(ttl),
        };
        match subject.ask(VIEWPORT, action)? {
            Heard::Refused(Refusal::Ttl(_)) => {}
            heard => return Err(format!("{ttl:?} was answered with {heard:?}")),
        }
    }
    same(&subject.listed().len(), &0, "the number of leases")?;
    kept()
}

/// Where a term suspends its holder, the holder may not write after it, and nobody else gains.
pub fn a_term_that_suspends_gives_nobody_anything<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, Ok::<_, PolicyError>(LeasePolicy::process_bound()));
    let [mcp, inp, _] = writers()?;
    let acquire = Action::Acquire {
        holder: mcp,
        ttl: Some(TERM),
    };
    let Heard::Granted(held) = subject.ask(VIEWPORT, acquire)? else {
        return Err("a free resource was not granted".to_owned());
    };
    subject.done(VIEWPORT, Action::Check(By::Token(held.at)))?;
    subject.pass(TERM);
    subject.pass(subject.tick());
    let begin = Action::Begin {
        at: held.at,
        op: op(1),
        from: held.provenance,
    };
    for action in [begin, Action::Check(By::Token(held.at))] {
        let heard = subject.ask(VIEWPORT, action)?;
        demand(
            matches!(heard, Heard::Refused(_)),
            format!("after its term: {heard:?}"),
        )?;
    }
    same(
        &subject.refused(VIEWPORT, &inp)?.code(),
        &Code::LeaseHeld,
        "the code",
    )?;
    let renew = |ttl| Action::Renew { at: held.at, ttl };
    let heard = subject.ask(VIEWPORT, renew(None))?;
    demand(
        matches!(heard, Heard::Refused(_)),
        format!("renewed in silence: {heard:?}"),
    )?;
    subject.done(VIEWPORT, renew(Some(TERM)))?;
    subject.done(VIEWPORT, Action::Check(By::Token(held.at)))?;
    kept()
}
