//! What the bearer of a token may do with its lease.

use core::time::Duration;

use super::acquire::{renewed_expiry, touched};
use super::fate::{Fate, fate};
use super::{Decision, Site};
use crate::cell::{Disposition, Lease, Operation, Provenance};
use crate::change::{Detail, Failure, Kept};
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{At, OpId};
use crate::limits::OPERATIONS;
use crate::plan::{Edit, Own, ended};
use crate::policy::Again;
use crate::refusal::{Bounded, Mismatch, Refusal, Verb};

/// Shows progress.
pub(super) fn touch<H: Holder>(site: &Site<'_, H>, at: At) -> Decision<H> {
    progress(site, at, Verb::Touch, None, Code::Touched)
}

/// Renews, with or without an explicit ttl.
pub(super) fn renew<H: Holder>(site: &Site<'_, H>, at: At, ttl: Option<Duration>) -> Decision<H> {
    let code = match site.cell.lease().map(|lease| lease.terms.again()) {
        Some(Again::Renew) => Code::Renewed,
        Some(Again::Touch) | None => Code::Touched,
    };
    progress(site, at, Verb::Renew, ttl, code)
}

fn progress<H: Holder>(
    site: &Site<'_, H>,
    at: At,
    verb: Verb,
    ttl: Option<Duration>,
    code: Code,
) -> Decision<H> {
    let now = site.case.seen.now;
    let renewed = site
        .current(at, verb)
        .and_then(|lease| renewed_expiry(lease, ttl, now).map(|expires| (lease, expires)));
    match renewed {
        Err(refusal) => Decision::Refuse(refusal),
        Ok((lease, expires)) => edit(
            site,
            at,
            code,
            touched(lease, now, expires),
            Edit::Touch { expires },
        ),
    }
}

/// Puts an operation in flight.
pub(super) fn begin<H: Holder>(
    site: &Site<'_, H>,
    at: At,
    op: OpId,
    from: Provenance,
) -> Decision<H> {
    let now = site.case.seen.now;
    let lease = match writable(site, at, Verb::Begin) {
        Ok(lease) => lease,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    if op == OpId::ACQUISITION || lease.ops.iter().any(|operation| operation.id == op) {
        return Decision::Refuse(Refusal::OperationId { op });
    }
    if lease.ops.len() >= OPERATIONS {
        let what = Bounded::Operations;
        return Decision::Refuse(Refusal::Limit {
            what,
            most: OPERATIONS,
        });
    }
    // Only one operation can have made the lease; a second claim is a re-entry.
    let from = if lease.begun {
        Provenance::Reentrant
    } else {
        from
    };
    let expires = lease.expires_after_touch(now);
    let in_flight = lease.in_flight().saturating_add(1);
    let detail = Detail::Begun {
        op,
        from,
        in_flight,
        expires,
    };
    let operation = Operation {
        id: op,
        since: now,
        from,
    };
    edit(
        site,
        at,
        Code::OperationBegun,
        detail,
        Edit::Begin { operation, expires },
    )
}

/// Ends an operation and decides whether its lease survives.
pub(super) fn end<H: Holder>(
    site: &Site<'_, H>,
    at: At,
    op: OpId,
    result: Result<(), Disposition>,
) -> Decision<H> {
    let now = site.case.seen.now;
    let lease = match site.current(at, Verb::End) {
        Ok(lease) => lease,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    if op == OpId::ACQUISITION {
        return abandon(site, lease, at);
    }
    // A late or repeated end names an operation that is not in flight: it belongs to the past.
    let Some(operation) = lease
        .ops
        .iter()
        .find(|operation| operation.id == op)
        .copied()
    else {
        let present = Some(lease.token.generation);
        return Decision::Refuse(Refusal::StaleToken {
            given: at.token,
            present,
            verb: Verb::End,
        });
    };
    let (kept, disposition) = match (fate(operation.from, result, lease.shared), result) {
        (Fate::Release, Err(disposition)) => {
            let detail = Detail::Failed { op, disposition };
            return site.end(lease, at, Code::ReleasedAfterFailure, detail);
        }
        (Fate::Keep(kept), Err(disposition)) => (kept, Some(disposition)),
        (Fate::Keep(_) | Fate::Release, Ok(())) => (None, None),
    };
    let failure = kept
        .zip(disposition)
        .map(|(kept, disposition)| Failure::new(operation.from, disposition, kept));
    let code = match failure {
        Some(_) => Code::RetainedAfterFailure,
        None => Code::OperationEnded,
    };
    let expires = lease.expires_after_touch(now);
    let in_flight = lease.in_flight().saturating_sub(1);
    let taints = disposition == Some(Disposition::Unknown);
    let detail = ended(operation, now, in_flight, expires, failure);
    edit(
        site,
        at,
        code,
        detail,
        Edit::End {
            op,
            expires,
            taints,
        },
    )
}

/// Gives back a grant that nobody received, unless somebody uses the lease meanwhile.
fn abandon<H: Holder>(site: &Site<'_, H>, lease: &Lease<H>, at: At) -> Decision<H> {
    let now = site.case.seen.now;
    if !lease.shared && !lease.begun && lease.ops.is_empty() {
        let held = now.since(lease.acquired);
        return site.end(
            lease,
            at,
            Code::Abandoned,
            Detail::Released {
                held,
                exited: false,
            },
        );
    }
    // No progress: the receiver is gone, so the term is left as it was.
    let operation = Operation {
        id: OpId::ACQUISITION,
        since: lease.acquired,
        from: Provenance::Created,
    };
    let failure = Failure::new(operation.from, Disposition::PreMutation, Kept::Shared);
    let detail = ended(
        operation,
        now,
        lease.in_flight(),
        lease.expires,
        Some(failure),
    );
    site.report(Code::RetainedAfterFailure, Some(lease.token), detail)
}

/// Says whether the bearer may write now.
pub(super) fn check<H: Holder>(site: &Site<'_, H>, at: At) -> Decision<H> {
    match site.current(at, Verb::Check) {
        Err(refusal) => Decision::Refuse(refusal),
        Ok(lease) if lease.suspended(site.case.seen.now) => {
            Decision::Refuse(Refusal::Mismatch(Mismatch::Expired))
        }
        Ok(lease) => site.report(Code::Entitled, Some(lease.token), Detail::Plain),
    }
}

/// The lease that `at` names, if its holder may write under it now.
pub(super) fn writable<'a, H: Holder>(
    site: &Site<'a, H>,
    at: At,
    verb: Verb,
) -> Result<&'a Lease<H>, Refusal<H>> {
    let lease = site.current(at, verb)?;
    match lease.expires {
        Some(expired_at) if lease.suspended(site.case.seen.now) => Err(Refusal::Expired {
            token: lease.token,
            expired_at,
        }),
        Some(_) | None => Ok(lease),
    }
}

/// Changes the present lease.
pub(super) fn edit<H: Holder>(
    site: &Site<'_, H>,
    at: At,
    code: Code,
    detail: Detail,
    edit: Edit<H>,
) -> Decision<H> {
    site.change(Own::Edit {
        key: site.key.clone(),
        at,
        code,
        detail,
        edit,
    })
}
