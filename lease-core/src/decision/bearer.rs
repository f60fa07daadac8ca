//! What the bearer of a token may do with its lease.
//!
//! It concerns one lease and nothing else, so it needs no more of the scene than its cell.

use core::time::Duration;

use super::acquire::{renewed_expiry, touched};
use super::fate::{Fate, fate};
use super::released_code;
use crate::action::{Action, By};
use crate::cell::{Cell, Disposition, Lease, Operation, Provenance};
use crate::change::{Detail, Failure, Kept};
use crate::code::Code;
use crate::holder::Holder;
use crate::id::{At, OpId};
use crate::limits::OPERATIONS;
use crate::plan::{Edit, ended};
use crate::policy::Again;
use crate::refusal::{Bounded, Mismatch, Refusal, Verb};
use crate::shown::Ticket;
use crate::time::Moment;

/// What a call does to the present lease.
#[derive(Debug)]
pub(crate) enum Effect<H> {
    /// Nothing; it is only said.
    Report { code: Code, detail: Detail },
    /// The lease goes on, changed.
    Edit {
        code: Code,
        detail: Detail,
        edit: Edit<H>,
    },
    /// The lease ends.
    End { code: Code, detail: Detail },
}

/// Somebody who shows a token, at a moment.
pub(crate) struct Bearer<'a, H> {
    pub(crate) cell: &'a Cell<H>,
    pub(crate) at: At,
    pub(crate) now: Moment,
}

/// The token that `action` shows, if it is a bearer's.
pub(crate) const fn shown<H>(action: &Action<H>) -> Option<At> {
    match action {
        Action::Touch(at)
        | Action::Renew { at, .. }
        | Action::Begin { at, .. }
        | Action::End { at, .. }
        | Action::Release(By::Token(at))
        | Action::Offer { at, .. }
        | Action::Check(By::Token(at)) => Some(*at),
        Action::Acquire { .. }
        | Action::Release(By::Holder { .. })
        | Action::Disconnect(_)
        | Action::Adopt { .. }
        | Action::Revoke { .. }
        | Action::Check(By::Holder { .. })
        | Action::Sweep => None,
    }
}

impl<'a, H: Holder> Bearer<'a, H> {
    /// Decides `action`, which shows this token.
    pub(crate) fn act(&self, action: &Action<H>) -> Result<Effect<H>, Refusal<H>> {
        match action {
            Action::Touch(_) => self.progress(Verb::Touch, None),
            Action::Renew { ttl, .. } => self.progress(Verb::Renew, *ttl),
            Action::Begin { op, from, .. } => self.begin(*op, *from),
            Action::End { op, result, .. } => self.end(*op, *result),
            Action::Release(By::Token(_)) => self.release(),
            Action::Offer { ticket, .. } => self.offer(*ticket),
            Action::Check(By::Token(_)) => self.check(),
            Action::Acquire { .. }
            | Action::Release(By::Holder { .. })
            | Action::Disconnect(_)
            | Action::Adopt { .. }
            | Action::Revoke { .. }
            | Action::Check(By::Holder { .. })
            | Action::Sweep => Err(Refusal::Misaddressed),
        }
    }

    /// The lease that the token names, if it is the present one and not over.
    #[inline(always)]
    pub(crate) fn current(&self, verb: Verb) -> Result<&'a Lease<H>, Refusal<H>> {
        let present = self.cell.lease().filter(|lease| !lease.lapsed(self.now));
        match present {
            Some(lease) if lease.token == self.at.token => Ok(lease),
            Some(lease) if planted!(NoFenceOnRelease) && matches!(verb, Verb::Release) => Ok(lease),
            Some(_) | None => Err(self.stale(present, verb)),
        }
    }

    fn stale(&self, present: Option<&Lease<H>>, verb: Verb) -> Refusal<H> {
        let present = present.map(|lease| lease.token.generation);
        Refusal::StaleToken {
            given: self.at.token,
            present,
            verb,
        }
    }

    /// The lease that the token names, if its holder may write under it now.
    fn writable(&self, verb: Verb) -> Result<&'a Lease<H>, Refusal<H>> {
        let lease = self.current(verb)?;
        match lease.expires {
            Some(expired_at) if lease.suspended(self.now) => Err(Refusal::Expired {
                token: lease.token,
                expired_at,
            }),
            Some(_) | None => Ok(lease),
        }
    }

    /// Until when the lease goes on after progress, or a renewal with or without an explicit ttl.
    #[inline(always)]
    pub(crate) fn goes_on(
        &self,
        verb: Verb,
        ttl: Option<Duration>,
    ) -> Result<(&'a Lease<H>, Option<Moment>), Refusal<H>> {
        let lease = self.current(verb)?;
        let expires = renewed_expiry(lease, ttl, self.now)?;
        Ok((lease, expires))
    }

    /// Shows progress, or renews with or without an explicit ttl.
    fn progress(&self, verb: Verb, ttl: Option<Duration>) -> Result<Effect<H>, Refusal<H>> {
        let (lease, expires) = self.goes_on(verb, ttl)?;
        let code = match (verb, lease.terms.again()) {
            (Verb::Renew, Again::Renew) => Code::Renewed,
            _ => Code::Touched,
        };
        let detail = touched(lease, self.now, expires);
        Ok(Effect::Edit {
            code,
            detail,
            edit: Edit::Touch { expires },
        })
    }

    /// Gives the lease back.
    #[inline(always)]
    pub(crate) fn release(&self) -> Result<Effect<H>, Refusal<H>> {
        release(self.current(Verb::Release)?, self.now)
    }

    /// Puts an operation in flight.
    #[inline(always)]
    pub(crate) fn begin(&self, op: OpId, from: Provenance) -> Result<Effect<H>, Refusal<H>> {
        let lease = self.writable(Verb::Begin)?;
        if op == OpId::ACQUISITION || lease.ops.iter().any(|operation| operation.id == op) {
            return Err(Refusal::OperationId { op });
        }
        if lease.ops.len() >= OPERATIONS {
            return Err(Refusal::Limit {
                what: Bounded::Operations,
                most: OPERATIONS,
            });
        }
        // Only one operation can have made the lease; a second claim is a re-entry.
        let from = if lease.begun {
            Provenance::Reentrant
        } else {
            from
        };
        let expires = lease.expires_after_touch(self.now);
        let in_flight = lease.in_flight().saturating_add(1);
        Ok(Effect::Edit {
            code: Code::OperationBegun,
            detail: Detail::Begun {
                op,
                from,
                in_flight,
                expires,
            },
            edit: Edit::Begin {
                operation: Operation {
                    id: op,
                    since: self.now,
                    from,
                },
                expires,
            },
        })
    }

    /// Ends an operation and decides whether its lease survives.
    #[inline(always)]
    pub(crate) fn end(
        &self,
        op: OpId,
        result: Result<(), Disposition>,
    ) -> Result<Effect<H>, Refusal<H>> {
        let lease = self.current(Verb::End)?;
        if op == OpId::ACQUISITION {
            return Ok(abandon(lease, self.now));
        }
        // A late or repeated end names an operation that is not in flight: it belongs to the past.
        let Some(operation) = lease.ops.iter().find(|operation| operation.id == op) else {
            return Err(self.stale(Some(lease), Verb::End));
        };
        let taints = result == Err(Disposition::Unknown);
        let fate = if taints && planted!(UnknownEffectReleases) {
            Fate::Release
        } else {
            fate(operation.from, result, lease.shared)
        };
        let failure = match (fate, result) {
            (Fate::Release, Err(disposition)) => {
                let detail = Detail::Failed { op, disposition };
                return Ok(Effect::End {
                    code: Code::ReleasedAfterFailure,
                    detail,
                });
            }
            (Fate::Keep(Some(kept)), Err(disposition)) => {
                Some(Failure::new(operation.from, disposition, kept))
            }
            (Fate::Keep(None), Err(_)) | (Fate::Keep(_) | Fate::Release, Ok(())) => None,
        };
        let code = match failure {
            Some(_) => Code::RetainedAfterFailure,
            None => Code::OperationEnded,
        };
        let expires = lease.expires_after_touch(self.now);
        let in_flight = lease.in_flight().saturating_sub(1);
        let detail = ended(*operation, self.now, in_flight, expires, failure);
        Ok(Effect::Edit {
            code,
            detail,
            edit: Edit::End {
                op,
                expires,
                taints,
            },
        })
    }

    /// Stores a ticket, in place of an earlier one.
    fn offer(&self, ticket: [u8; 16]) -> Result<Effect<H>, Refusal<H>> {
        self.current(Verb::Offer)?;
        let edit = Edit::Offer {
            ticket: Ticket(ticket),
        };
        Ok(Effect::Edit {
            code: Code::Offered,
            detail: Detail::Plain,
            edit,
        })
    }

    /// Decides whether the bearer may write now.
    pub(crate) fn entitled(&self) -> Result<(), Refusal<H>> {
        if self.current(Verb::Check)?.suspended(self.now) {
            return Err(Refusal::Mismatch(Mismatch::Expired));
        }
        Ok(())
    }

    /// Says whether the bearer may write now.
    fn check(&self) -> Result<Effect<H>, Refusal<H>> {
        self.entitled()?;
        Ok(Effect::Report {
            code: Code::Entitled,
            detail: Detail::Plain,
        })
    }
}

/// Gives back a grant that nobody received, unless somebody uses the lease meanwhile.
fn abandon<H>(lease: &Lease<H>, now: Moment) -> Effect<H> {
    if (!lease.shared || planted!(AbandonEndsAColleague)) && !lease.begun && lease.ops.is_empty() {
        let detail = Detail::Released {
            held: now.since(lease.acquired),
            exited: false,
        };
        return Effect::End {
            code: Code::Abandoned,
            detail,
        };
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
    Effect::Report {
        code: Code::RetainedAfterFailure,
        detail,
    }
}

/// Releases unless operations run: what they have half changed must not be unlocked.
#[inline(always)]
pub(super) fn release<H>(lease: &Lease<H>, now: Moment) -> Result<Effect<H>, Refusal<H>> {
    if let Some(oldest) = lease.ops.iter().map(|operation| operation.since).min() {
        return Err(Refusal::OperationInFlight {
            count: lease.in_flight(),
            oldest,
        });
    }
    let detail = Detail::Released {
        held: now.since(lease.acquired),
        exited: false,
    };
    Ok(Effect::End {
        code: released_code(&lease.terms),
        detail,
    })
}
