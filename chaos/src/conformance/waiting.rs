//! Promises to those who wait.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use std::time::Duration;

use lease_core::{Code, Order, Provenance, Refusal, Wait};

use super::{
    Asks as _, Kept, Subject, VIEWPORT, asked, demand, kept, same, sessions, started, writer,
    writers,
};

/// Whoever frees a resource hands it over: nobody has to ask again.
pub fn a_waiter_is_served_in_the_same_call<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let waiter = subject.queued(VIEWPORT, &inp, Wait::Forever)?;
    same(&subject.settled().len(), &0, "who was served early")?;
    subject.release(held.at)?;
    let grant = subject.one_settled(waiter)?;
    same(
        &grant.provenance,
        &Provenance::Created,
        "the waiter's grant",
    )?;
    subject.is_held_under(grant.at.token)?;
    subject.refused(VIEWPORT, &oth)?;
    kept()
}

/// First come, first served; nobody gets past who waits already.
pub fn waiters_are_served_in_order<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(
        subject.capabilities().order == Order::Fifo,
        "no order is promised"
    );
    let [mcp, ..] = writers()?;
    let mut held = subject.granted(VIEWPORT, &mcp)?;
    let mut waiting = Vec::new();
    for number in 0..4 {
        let next = writer("ag-3", &format!("s-{number}"))?;
        waiting.push((subject.queued(VIEWPORT, &next, Wait::Forever)?, next));
    }
    let late = writer("ag-4", "s-1")?;
    for (waiter, _) in waiting {
        subject.release(held.at)?;
        held = subject.one_settled(waiter)?;
        subject.refused(VIEWPORT, &late)?;
    }
    kept()
}

/// A writer whose own lease is what somebody waits for need not stand behind that one.
pub fn a_waiter_behind_its_own_lease_does_not_block<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(
        subject.capabilities().order == Order::Fifo,
        "no order is promised"
    );
    let [mcp, inp, _] = writers()?;
    let _held = subject.granted(VIEWPORT, &mcp)?;
    let _waiter = subject.queued("app", &inp, Wait::Forever)?;
    // Behind that request it would wait for itself.
    let again = subject.granted("app/viewport/grid", &mcp)?;
    same(&again.provenance, &Provenance::Created, "the second lease")?;
    same(&subject.settled().len(), &0, "who was served")?;
    kept()
}

/// A wait ends at its deadline, with a refusal and a receipt.
pub fn a_wait_ends_at_its_deadline<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let deadline = subject.now().after(Duration::from_secs(10));
    let waiter = subject.queued(VIEWPORT, &inp, Wait::Until(deadline))?;
    subject.pass(Duration::from_secs(10).saturating_sub(subject.tick()));
    same(&subject.settled().len(), &0, "who was answered early")?;
    subject.pass(subject.tick());
    let mut settled = subject.settled();
    match (settled.pop(), settled.is_empty()) {
        (Some((late, Err(Refusal::TimedOut { .. }))), true) if late == waiter => {}
        (other, _) => return Err(format!("at the deadline there was {other:?}")),
    }
    let told = subject
        .receipts()
        .iter()
        .any(|receipt| receipt.change.code == Code::WaitTimedOut);
    demand(told, "the end of the wait has no receipt")?;
    subject.is_held_under(held.at.token)?;
    kept()
}

/// A request that was taken back is nobody's any more.
pub fn a_request_taken_back_gets_nothing<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let first = subject.queued(VIEWPORT, &inp, Wait::Forever)?;
    let second = subject.queued(VIEWPORT, &oth, Wait::Forever)?;
    subject.cancel(first);
    subject.release(held.at)?;
    let _next = subject.one_settled(second)?;
    kept()
}

/// A writer that disconnects waits for nothing any more.
pub fn a_disconnect_takes_requests_back<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, oth] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    let first = subject.queued(VIEWPORT, &inp, Wait::Forever)?;
    let second = subject.queued(VIEWPORT, &oth, Wait::Forever)?;
    subject.disconnect(&inp)?;
    for (waiter, outcome) in subject.settled() {
        demand(
            waiter == first && outcome.is_err(),
            format!("{waiter} was answered with {outcome:?}"),
        )?;
    }
    subject.release(held.at)?;
    let _next = subject.one_settled(second)?;
    kept()
}
