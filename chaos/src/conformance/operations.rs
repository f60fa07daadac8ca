//! Promises about operations in flight and how they end.
#![expect(
    clippy::missing_errors_doc,
    reason = "the error of a promise is that it was broken, and how"
)]

use std::time::Duration;

use lease_core::{Action, By, Code, Disposition, Provenance, Refusal};

use super::{
    Asks as _, Heard, Kept, Subject, TERM, VIEWPORT, asked, kept, op, same, sessions, started,
    writers,
};

const NO_SHIELDS: &str = "operations in flight are not known";

/// Success leaves the lease in place: it is held until it is released.
pub fn a_lease_stays_after_a_success<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    let ended = subject.end(held.at, op(1), Ok(()))?;
    same(&ended.code, &Code::OperationEnded, "the end")?;
    subject.refused(VIEWPORT, &inp)?;
    subject.is_held_under(held.at.token)?;
    kept()
}

/// However long operations run, the lease stands; the shield ends with the last of them.
pub fn in_flight_shields_from_expiry<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(subject.capabilities().shields, NO_SHIELDS);
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    subject.begin(held.at, op(2), Provenance::Reentrant)?;
    subject.pass(TERM * 100);
    let Refusal::Held(told) = subject.refused(VIEWPORT, &inp)? else {
        return Err("another refusal than held".to_owned());
    };
    same(&told.in_flight, &2, "what is in flight")?;
    subject.end(held.at, op(1), Ok(()))?;
    subject.pass(TERM * 100);
    subject.refused(VIEWPORT, &inp)?;
    subject.end(held.at, op(2), Ok(()))?;
    subject.pass(TERM + subject.tick());
    let _next = subject.granted(VIEWPORT, &inp)?;
    kept()
}

/// The term of an operation that ran long starts at its end.
pub fn the_end_of_an_operation_starts_the_term_anew<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(subject.capabilities().shields, NO_SHIELDS);
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    subject.pass(TERM * 10);
    subject.end(held.at, op(1), Ok(()))?;
    subject.pass(TERM);
    subject.refused(VIEWPORT, &inp)?;
    subject.pass(subject.tick());
    let _next = subject.granted(VIEWPORT, &inp)?;
    kept()
}

/// No operation begins under a lease whose term is over.
pub fn begin_needs_a_living_lease<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.pass(TERM + subject.tick());
    subject.stale(Action::Begin {
        at: held.at,
        op: op(1),
        from: held.provenance,
    })?;
    same(&subject.listed().len(), &0, "the number of leases")?;
    kept()
}

/// The end of an operation that is not in flight, or no longer, changes nothing.
pub fn an_unknown_operation_ends_nothing<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    let end = |number| Action::End {
        at: held.at,
        op: op(number),
        result: Err(Disposition::PreMutation),
    };
    subject.stale(end(2))?;
    subject.end(held.at, op(1), Ok(()))?;
    let before = subject.listed();
    subject.stale(end(1))?;
    same(&subject.listed(), &before, "what is held")?;
    kept()
}

/// What an operation has half changed is not unlocked by a release.
pub fn release_waits_for_operations<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, ..] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    match subject.ask(VIEWPORT, Action::Release(By::Token(held.at)))? {
        Heard::Refused(Refusal::OperationInFlight { count: 1, .. }) => {}
        heard => return Err(format!("release was answered with {heard:?}")),
    }
    subject.end(held.at, op(1), Ok(()))?;
    same(
        &subject.release(held.at)?.code,
        &Code::Released,
        "the release",
    )?;
    kept()
}

/// An operation that made its lease and proves that it left nothing behind takes the lease with it.
pub fn a_failure_before_any_change_releases_what_it_made<S: Subject>(subject: &mut S) -> Kept {
    for proven in [Disposition::PreMutation, Disposition::RolledBack] {
        started!(subject, sessions());
        let [mcp, inp, _] = writers()?;
        let held = subject.granted(VIEWPORT, &mcp)?;
        subject.begin(held.at, op(1), held.provenance)?;
        let ended = subject.end(held.at, op(1), Err(proven))?;
        same(&ended.code, &Code::ReleasedAfterFailure, "the end")?;
        let _next = subject.granted(VIEWPORT, &inp)?;
    }
    kept()
}

/// Half a change may be out there: the lease stays, unshielded, until its term is over.
pub fn a_failure_of_unknown_effect_keeps_the_lease<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    subject.pass(Duration::from_secs(2));
    let ended = subject.end(held.at, op(1), Err(Disposition::Unknown))?;
    same(&ended.code, &Code::RetainedAfterFailure, "the end")?;
    let tainted = subject
        .listed()
        .first()
        .map(|listed| (listed.tainted, listed.in_flight.len()));
    same(&tainted, &Some((true, 0)), "the lease")?;
    subject.pass(TERM);
    subject.refused(VIEWPORT, &inp)?;
    subject.pass(subject.tick());
    let _next = subject.granted(VIEWPORT, &inp)?;
    kept()
}

/// Whatever an operation says that did not make its lease, the lease stays.
pub fn a_failed_re_entry_keeps_the_lease<S: Subject>(subject: &mut S) -> Kept {
    for claimed in [
        Disposition::PreMutation,
        Disposition::RolledBack,
        Disposition::Unknown,
    ] {
        started!(subject, sessions());
        let [mcp, ..] = writers()?;
        let held = subject.granted(VIEWPORT, &mcp)?;
        let again = subject.granted(VIEWPORT, &mcp)?;
        subject.begin(again.at, op(1), again.provenance)?;
        let ended = subject.end(again.at, op(1), Err(claimed))?;
        same(&ended.code, &Code::RetainedAfterFailure, "the end")?;
        subject.is_held_under(held.at.token)?;
    }
    kept()
}

/// An operation that made a lease does not end it for others of the same writer.
pub fn a_failure_does_not_end_a_lease_that_others_use<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    let [mcp, inp, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    let again = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(again.at, op(2), again.provenance)?;
    let ended = subject.end(held.at, op(1), Err(Disposition::PreMutation))?;
    same(&ended.code, &Code::RetainedAfterFailure, "the end")?;
    subject.refused(VIEWPORT, &inp)?;
    subject.end(again.at, op(2), Ok(()))?;
    subject.is_held_under(held.at.token)?;
    kept()
}

/// An id names one operation at a time, so that no operation ends another's shield.
pub fn an_operation_id_is_good_for_one_operation<S: Subject>(subject: &mut S) -> Kept {
    started!(subject, sessions());
    asked!(subject.capabilities().shields, NO_SHIELDS);
    let [mcp, _, _] = writers()?;
    let held = subject.granted(VIEWPORT, &mcp)?;
    subject.begin(held.at, op(1), held.provenance)?;
    let begin = Action::Begin {
        at: held.at,
        op: op(1),
        from: Provenance::Reentrant,
    };
    match subject.ask(VIEWPORT, begin)? {
        Heard::Refused(refusal) => same(&refusal.code(), &Code::OperationIdInUse, "the code")?,
        heard => return Err(format!("one id twice: {heard:?}")),
    }
    subject.end(held.at, op(1), Ok(()))?;
    subject.begin(held.at, op(1), Provenance::Reentrant)?;
    kept()
}
