//! Promises about who holds what.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use std::time::Duration;

use lease_core::{Provenance, Refusal};

use super::{
    Asks as _, Heard, Kept, Subject, VIEWPORT, demand, kept, same, sessions, started, writers,
};

/// The first grant says created, every further one re-entrant.
pub fn a_grant_is_created_once_and_re_entrant_after<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let first = subject.granted(VIEWPORT, &mcp)?;
    same(&first.provenance, &Provenance::Created, "the first grant")?;
    for _ in 0..3 {
        let again = subject.granted(VIEWPORT, &mcp)?;
        same(&again.provenance, &Provenance::Reentrant, "a further grant")?;
    }
    kept()
}

/// Re-entry gives the same token and adds no second lease.
pub fn re_entry_keeps_the_token<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let first = subject.granted(VIEWPORT, &mcp)?;
    for _ in 0..10 {
        let again = subject.granted(VIEWPORT, &mcp)?;
        same(&again.at.token, &first.at.token, "the token of a re-entry")?;
    }
    same(&subject.listed().len(), &1, "the number of leases")?;
    kept()
}

/// Equal agents with different sessions exclude each other.
pub fn another_session_of_the_same_agent_is_another_writer<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    for other in [&inp, &oth] {
        let refusal = subject.refused(VIEWPORT, other)?;
        same(&refusal.by(), &Some(&mcp), "who is in the way")?;
    }
    same(
        &subject.token_of(VIEWPORT)?,
        &Some(held.at.token),
        "the holder's token",
    )?;
    kept()
}

/// Ancestor and descendant exclude each other by whole segments; strangers do not.
pub fn overlapping_keys_are_one_resource<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    for overlapping in ["app", "app/viewport", "/app/viewport", "app/viewport/grid"] {
        subject.refused(overlapping, &inp)?;
    }
    for strange in ["app/view", "app/viewports", "app/dialog", "viewport"] {
        let _held = subject.granted(strange, &inp)?;
    }
    kept()
}

/// A writer gets overlapping resources of its own, each with a lease of its own.
pub fn a_writer_never_conflicts_with_itself<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let outer = subject.granted(VIEWPORT, &mcp)?;
    let inner = subject.granted("app/viewport/grid", &mcp)?;
    same(&inner.provenance, &Provenance::Created, "the second lease")?;
    demand(
        inner.at.token.generation > outer.at.token.generation,
        "no new generation",
    )?;
    same(&subject.listed().len(), &2, "the number of leases")?;
    kept()
}

/// A refusal names resource, holder, generation, idle time and what is in flight.
pub fn a_refusal_says_who_is_in_the_way<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(Duration::from_secs(5));
    let Refusal::Held(told) = subject.refused("app", &inp)? else {
        return Err("another refusal than held".to_owned());
    };
    same(&told.resource.as_str(), &VIEWPORT, "the resource")?;
    same(&told.by, &mcp, "the holder")?;
    same(&told.token, &held.at.token, "the token")?;
    same(&told.in_flight, &0, "what is in flight")?;
    same(&told.idle, &Duration::from_secs(5), "the idle time")?;
    same(
        &told.expires_in,
        &Some(Duration::from_secs(25)),
        "the rest of the term",
    )?;
    kept()
}

/// Who is refused neither touches nor ages the lease in the way.
pub fn a_refusal_changes_nothing<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    let before = subject.listed();
    subject.receipts();
    for _ in 0..20 {
        subject.pass(Duration::from_secs(1));
        subject.refused(VIEWPORT, &inp)?;
        subject.refused("app", &oth)?;
    }
    same(&subject.listed(), &before, "what is held")?;
    same(&subject.receipts().len(), &0, "the number of receipts")?;
    kept()
}

/// Each new lease has a larger generation than all before it, on whichever resource.
pub fn generations_grow<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let mut last = 0;
    for (holder, resource) in [(&mcp, VIEWPORT), (&inp, "app/dialog"), (&inp, "b")] {
        let grant = subject.granted(resource, holder)?;
        demand(
            grant.at.token.generation.get() > last,
            "a generation did not grow",
        )?;
        last = grant.at.token.generation.get();
    }
    subject.disconnect(&mcp)?;
    let next = subject.granted(VIEWPORT, &inp)?;
    demand(
        next.at.token.generation.get() > last,
        "a generation came back",
    )?;
    kept()
}

/// Changing what was listed changes nothing, and it does not change by itself.
pub fn a_listing_is_a_copy<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    let first = subject.listed();
    let mut changed = subject.listed();
    changed.clear();
    same(&subject.listed(), &first, "the second listing")?;
    subject.disconnect(&mcp)?;
    same(&first.len(), &1, "the first listing")?;
    same(&subject.listed().len(), &0, "the last listing")?;
    kept()
}

/// A look at any moment changes no later answer.
pub fn looking_changes_nothing<S: Subject>(subject: &mut S) -> Kept {
    let mut answers = Vec::new();
    for looks in [false, true] {
        started!(subject, sessions());
        let [mcp, inp, _] = writers()?;
        let mut heard = Vec::new();
        for holder in [&mcp, &inp, &mcp, &inp] {
            heard.push(match subject.acquire(VIEWPORT, holder)? {
                Heard::Granted(grant) => Some(grant.provenance),
                _ => None,
            });
            subject.pass(Duration::from_secs(20));
            if looks {
                subject.listed();
            }
        }
        answers.push(heard);
    }
    same(
        &answers.first(),
        &answers.last(),
        "answers with and without looking",
    )?;
    kept()
}

/// Receipts come in the order of their numbers.
pub fn receipts_have_growing_numbers<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let mut last = None;
    for _ in 0..3 {
        let _held = subject.granted(VIEWPORT, &mcp)?;
        let _held = subject.granted("app/dialog", &mcp)?;
        subject.disconnect(&mcp)?;
        let _held = subject.granted(VIEWPORT, &inp)?;
        subject.disconnect(&inp)?;
        for receipt in subject.receipts() {
            demand(
                last < Some(receipt.change.seq),
                format!("{receipt} came after {last:?}"),
            )?;
            last = Some(receipt.change.seq);
        }
    }
    demand(last.is_some(), "there are no receipts")?;
    kept()
}
