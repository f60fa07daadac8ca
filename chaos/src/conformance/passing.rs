//! Promises about a lease that passes to another writer.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use std::time::Duration;

use lease_core::{
    Action, AdoptProof, Code, Evidence, LeasePolicy, Provenance, Refusal, SessionHolder, Verdict,
    Wait,
};

use super::{
    Asks as _, Heard, Kept, Subject, TERM, VIEWPORT, demand, kept, key, op, same, sessions,
    started, writers,
};

/// A hand-over changes the holder and nothing else, and needs the present holder's will.
pub fn an_adopted_lease_keeps_its_token<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let adopt = |from: &SessionHolder, to: &SessionHolder| Action::Adopt {
        token: held.at.token,
        proof: AdoptProof::Present(from.clone()),
        to: to.clone(),
    };
    let heard = subject.ask(VIEWPORT, adopt(&oth, &oth))?;
    demand(
        matches!(heard, Heard::Refused(_)),
        format!("a stranger's will: {heard:?}"),
    )?;
    let Heard::Granted(adopted) = subject.ask(VIEWPORT, adopt(&mcp, &inp))? else {
        return Err("the holder's will was not done".to_owned());
    };
    same(&adopted.at.token, &held.at.token, "the token")?;
    same(
        &adopted.provenance,
        &Provenance::Reentrant,
        "the adopter's grant",
    )?;
    let holder = subject
        .listed()
        .first()
        .map(|listed| (listed.holder.clone(), listed.handovers));
    same(&holder, &Some((inp, 1)), "the holder")?;
    subject.refused(VIEWPORT, &mcp)?;
    kept()
}

/// A ticket hands over once, to whoever has it, while its lease lasts.
pub fn a_ticket_is_good_once<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.done(
        VIEWPORT,
        Action::Offer {
            at: held.at,
            ticket: [5; 16],
        },
    )?;
    let adopt = |ticket, to: &SessionHolder| Action::Adopt {
        token: held.at.token,
        proof: AdoptProof::Ticket(ticket),
        to: to.clone(),
    };
    let heard = subject.ask(VIEWPORT, adopt([6; 16], &oth))?;
    demand(
        matches!(heard, Heard::Refused(_)),
        format!("another ticket: {heard:?}"),
    )?;
    let heard = subject.ask(VIEWPORT, adopt([5; 16], &inp))?;
    demand(
        matches!(heard, Heard::Granted(_)),
        format!("the ticket: {heard:?}"),
    )?;
    let heard = subject.ask(VIEWPORT, adopt([5; 16], &oth))?;
    demand(
        matches!(heard, Heard::Refused(_)),
        format!("the ticket again: {heard:?}"),
    )?;
    kept()
}

/// A grant whose receiver is gone goes to the next one.
pub fn a_grant_that_nobody_received_is_passed_on<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let first = subject.queued(VIEWPORT, &inp, Wait::Forever)?;
    let second = subject.queued(VIEWPORT, &oth, Wait::Forever)?;
    subject.release(held.at)?;
    let unwanted = subject.one_settled(first)?;
    subject.receipts();
    subject.abandon(&key(VIEWPORT)?, unwanted);
    let _next = subject.one_settled(second)?;
    let codes: Vec<_> = subject
        .receipts()
        .iter()
        .map(|receipt| receipt.change.code)
        .collect();
    same(
        &codes,
        &vec![Code::Abandoned, Code::Created],
        "the receipts",
    )?;
    kept()
}

/// A grant whose receiver is gone is not taken from those who use the lease meanwhile.
pub fn a_grant_that_is_in_use_is_not_taken_back<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let first = subject.queued(VIEWPORT, &inp, Wait::Forever)?;
    subject.release(held.at)?;
    let unwanted = subject.one_settled(first)?;
    let again = subject.granted(VIEWPORT, &inp)?;
    subject.begin(again.at, op(1), again.provenance)?;
    let token = unwanted.at.token;
    subject.abandon(&key(VIEWPORT)?, unwanted);
    subject.is_held_under(token)?;
    subject.refused(VIEWPORT, &oth)?;
    kept()
}

/// Proof that the holder's process is gone passes the lease on, with a receipt that names the proof.
pub fn proof_of_death_passes_a_lease_on<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, LeasePolicy::hosted_session(TERM));
    let [mcp, inp, _] = writers()?;
    let old = subject.granted(VIEWPORT, &mcp)?;
    subject.refused(VIEWPORT, &inp)?;
    subject.observe(&mcp, Verdict::Dead(Evidence::new("exited")));
    subject.receipts();
    let new = subject.granted(VIEWPORT, &inp)?;
    demand(
        new.at.token.generation > old.at.token.generation,
        "no new generation",
    )?;
    let receipts = subject.receipts();
    let told = receipts.iter().any(|receipt| {
        receipt.change.code == Code::TakenOver
            && receipt
                .evidence
                .as_ref()
                .is_some_and(|evidence| evidence.proof == "exited")
            && receipt.previous.as_ref() == Some(&mcp)
    });
    demand(told, format!("no receipt names the proof: {receipts:?}"))?;
    subject.stale(Action::Touch(old.at))?;
    kept()
}

/// Neither doubt nor life nor leftover work passes a lease on.
pub fn doubt_never_grants<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, LeasePolicy::hosted_session(TERM));
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    for verdict in [
        Verdict::Unknown(Evidence::new("cannot_look")),
        Verdict::Alive(Evidence::new("running")),
        Verdict::Occupied(Evidence::new("exited")),
    ] {
        subject.observe(&mcp, verdict.clone());
        subject.pass(Duration::from_secs(1));
        let refusal = subject.refused(VIEWPORT, &inp)?;
        let doubt = matches!(verdict, Verdict::Unknown(_));
        let uninspectable = matches!(refusal, Refusal::Uninspectable(_));
        same(&uninspectable, &doubt, "whether the refusal is about doubt")?;
        subject.is_held_under(held.at.token)?;
    }
    kept()
}

/// A lease that overlaps another one of its giver is not handed over: there would be two holders.
pub fn a_hand_over_never_makes_two_holders_overlap<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let _outer = subject.granted("app", &mcp)?;
    let inner = subject.granted(VIEWPORT, &mcp)?;
    let adopt = Action::Adopt {
        token: inner.at.token,
        proof: AdoptProof::Present(mcp.clone()),
        to: inp,
    };
    let Heard::Refused(refusal) = subject.ask(VIEWPORT, adopt)? else {
        return Err("two holders overlap".to_owned());
    };
    same(&refusal.by(), &Some(&mcp), "who is in the way")?;
    let holders: Vec<_> = subject
        .listed()
        .into_iter()
        .map(|listed| listed.holder)
        .collect();
    same(&holders, &vec![mcp.clone(), mcp], "the holders")?;
    kept()
}
