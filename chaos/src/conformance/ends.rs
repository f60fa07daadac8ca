//! Promises about how a lease ends.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use lease_core::{Action, At, By, Code, Disposition, FencingToken, Provenance, SessionHolder};

use super::{
    Asks as _, Heard, Kept, Subject, TERM, VIEWPORT, demand, kept, op, same, sessions, started,
    writers,
};

/// After a release the next writer gets in at the same moment, and the token is of the past.
pub fn release_frees_at_once<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    same(
        &subject.release(held.at)?.code,
        &Code::Released,
        "the release",
    )?;
    let next = subject.granted(VIEWPORT, &inp)?;
    same(&next.provenance, &Provenance::Created, "the next grant")?;
    subject.stale(Action::Release(By::Token(held.at)))?;
    kept()
}

/// Everything a bearer can do with `token`.
fn everything(token: FencingToken) -> [Action<SessionHolder>; 7] {
    let at = At::from(token);
    [
        Action::Touch(at),
        Action::Renew { at, ttl: None },
        Action::Begin {
            at,
            op: op(9),
            from: Provenance::Created,
        },
        Action::End {
            at,
            op: op(1),
            result: Err(Disposition::PreMutation),
        },
        Action::Offer {
            at,
            ticket: [1; 16],
        },
        Action::Check(By::Token(at)),
        Action::Release(By::Token(at)),
    ]
}

/// No action with the token of an earlier lease touches, ends or shields the present one.
pub fn an_older_token_changes_nothing<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let old = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(TERM + subject.tick());
    let new = subject.granted(VIEWPORT, &inp)?;
    subject.begin(new.at, op(1), new.provenance)?;
    let before = subject.listed();
    for action in everything(old.at.token) {
        subject.stale(action)?;
    }
    // The generation of the present lease under another lease id is no better.
    let forged = FencingToken {
        lease: old.at.token.lease,
        ..new.at.token
    };
    for action in everything(forged) {
        subject.stale(action)?;
    }
    same(&subject.listed(), &before, "what is held")?;
    kept()
}

/// A disconnect ends every lease of exactly that writer.
pub fn disconnect_is_exact<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let first = subject.granted(VIEWPORT, &mcp)?;
    let other = subject.granted("app/dialog", &inp)?;
    let second = subject.granted("b", &mcp)?;
    let changes = subject.disconnect(&mcp)?;
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.code, change.token))
        .collect();
    let expected = vec![
        (Code::Disconnected, Some(first.at.token)),
        (Code::Disconnected, Some(second.at.token)),
    ];
    same(&told, &expected, "what ended")?;
    same(
        &subject.token_of("app/dialog")?,
        &Some(other.at.token),
        "the other session's lease",
    )?;
    let _next = subject.granted(VIEWPORT, &oth)?;
    kept()
}

/// A disconnect asks neither for terms nor for operations; what runs on is of the past.
pub fn disconnect_ends_what_is_in_flight<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    subject.disconnect(&mcp)?;
    let next = subject.granted(VIEWPORT, &inp)?;
    subject.begin(next.at, op(2), next.provenance)?;
    subject.stale(Action::End {
        at: held.at,
        op: op(1),
        result: Ok(()),
    })?;
    let in_flight = subject
        .listed()
        .first()
        .map(|listed| listed.in_flight.clone());
    same(
        &in_flight,
        &Some(vec![op(2)]),
        "what the successor has in flight",
    )?;
    kept()
}

/// A second disconnect ends nothing and is no error.
pub fn disconnect_can_be_repeated<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    same(
        &subject.disconnect(&mcp)?.len(),
        &1,
        "what the first one ended",
    )?;
    same(
        &subject.disconnect(&mcp)?.len(),
        &0,
        "what the second one ended",
    )?;
    same(
        &subject.disconnect(&inp)?.len(),
        &0,
        "what a stranger's ended",
    )?;
    kept()
}

/// An operator retires the lease it means and no other, and a living holder's only on its word.
pub fn revoke_names_the_generation<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let old = subject.granted(VIEWPORT, &mcp)?;
    subject.release(old.at)?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let revoke = |token: FencingToken, even_if_alive| Action::Revoke {
        expected: token.generation,
        by: "operator".into(),
        reason: "a drill".into(),
        even_if_alive,
    };
    for (token, even_if_alive) in [(old.at.token, true), (held.at.token, false)] {
        let heard = subject.ask(VIEWPORT, revoke(token, even_if_alive))?;
        demand(
            matches!(heard, Heard::Refused(_)),
            format!("revoke was answered with {heard:?}"),
        )?;
        subject.is_held_under(held.at.token)?;
    }
    let revoked = subject.done(VIEWPORT, revoke(held.at.token, true))?;
    same(&revoked.code, &Code::Revoked, "the end")?;
    subject.stale(Action::Touch(held.at))?;
    let _next = subject.granted(VIEWPORT, &inp)?;
    kept()
}

/// What a token meant before a restart it means afterwards, or nothing.
pub fn a_restart_leaves_no_token_that_means_something_else<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.restart();
    if subject.capabilities().durable {
        subject.is_held_under(held.at.token)?;
        subject.refused(VIEWPORT, &inp)?;
        return kept();
    }
    same(&subject.listed().len(), &0, "the number of leases")?;
    let next = subject.granted(VIEWPORT, &inp)?;
    demand(next.at.token != held.at.token, "a token was given twice")?;
    for action in everything(held.at.token) {
        subject.stale(action)?;
    }
    same(
        &subject.token_of(VIEWPORT)?,
        &Some(next.at.token),
        "the successor's token",
    )?;
    kept()
}
