//! What can be done with one lease.

use core::time::Duration;

use lease_core::{
    AdoptProof, Again, Answer, At, Code, Disposition, FencingToken, Generation, LeaseId, Moment,
    OnExpiry, OpId, Operation, Provenance, ResourceKey, SessionHolder, Term, Verdict, WaiterId,
};

use super::{Held, Reference};
use crate::stage::{Answered, Line, Said};

impl Reference {
    pub(super) fn renew(
        &mut self,
        resource: &ResourceKey,
        at: At,
        ttl: Option<Duration>,
        code: Code,
    ) -> Done {
        let token = self.current(resource, at.token)?;
        match self.term_again(self.find(token), ttl) {
            Err(code) => no(code),
            Ok(expires) => {
                self.touch(token, expires);
                Ok((code, Some(token)))
            }
        }
    }

    pub(super) fn begin(
        &mut self,
        resource: &ResourceKey,
        at: At,
        op: OpId,
        from: Provenance,
    ) -> Done {
        let token = self.current(resource, at.token)?;
        let lease = self.find(token);
        if self.suspended(lease) {
            return no(Code::LeaseExpired);
        }
        if op == OpId::ACQUISITION || lease.ops.iter().any(|other| other.id == op) {
            return no(Code::OperationIdInUse);
        }
        let since = self.now;
        let expires = self.term_goes_on(lease);
        let lease = self.touch(token, expires);
        // The lease was made once; whoever claims it after that joins it.
        let made = from == Provenance::Created && !lease.begun;
        lease.begun |= made;
        lease.shared |= !made;
        let from = if made { from } else { Provenance::Reentrant };
        lease.ops.push(Operation {
            id: op,
            since,
            from,
        });
        Ok((Code::OperationBegun, Some(token)))
    }

    pub(super) fn finish(
        &mut self,
        resource: &ResourceKey,
        token: FencingToken,
        op: OpId,
        result: Result<(), Disposition>,
    ) -> Done {
        let token = self.current(resource, token)?;
        let lease = self.find(token).clone();
        if op == OpId::ACQUISITION {
            if lease.shared || lease.begun || !lease.ops.is_empty() {
                return Ok((Code::RetainedAfterFailure, Some(token)));
            }
            return Ok(self.end(token, Code::Abandoned));
        }
        let Some(operation) = lease.ops.iter().find(|other| other.id == op) else {
            return no(Code::StaleToken);
        };
        let harmless = matches!(
            result,
            Err(Disposition::PreMutation | Disposition::RolledBack)
        );
        if harmless && operation.from == Provenance::Created && !lease.shared {
            return Ok(self.end(token, Code::ReleasedAfterFailure));
        }
        let expires = self.term_goes_on(&lease);
        let lease = self.touch(token, expires);
        lease.ops.retain(|other| other.id != op);
        lease.tainted |= result == Err(Disposition::Unknown);
        match result {
            Ok(()) => Ok((Code::OperationEnded, Some(token))),
            Err(_) => Ok((Code::RetainedAfterFailure, Some(token))),
        }
    }

    pub(super) fn release(&mut self, token: FencingToken, exited: bool) -> Done {
        if !exited && !self.find(token).ops.is_empty() {
            return no(Code::OperationInFlight);
        }
        Ok(self.end(token, self.released()))
    }

    pub(super) fn release_as(
        &mut self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        id: Option<LeaseId>,
        exited: bool,
    ) -> Done {
        let Some(lease) = self.present(resource).cloned() else {
            return Ok((Code::NotHeld, None));
        };
        if id.is_some_and(|id| id != lease.token.lease) || lease.holder != *holder {
            return no(Code::LeaseMismatch);
        }
        if !exited {
            return self.release(lease.token, false);
        }
        match self.seen(&lease) {
            _ if id.is_none() => no(Code::LeaseMismatch),
            Seen::Nothing | Seen::There => no(Code::LeaseMismatch),
            Seen::Unasked => ask(&lease),
            Seen::Doubt => no(Code::InvalidHolder),
            Seen::Gone => self.release(lease.token, true),
        }
    }

    pub(super) fn adopt(
        &mut self,
        resource: &ResourceKey,
        token: FencingToken,
        proof: &AdoptProof<SessionHolder>,
        to: &SessionHolder,
    ) -> Result<(), Said> {
        let token = self.current(resource, token)?;
        let lease = self.find(token);
        let proven = match proof {
            AdoptProof::Present(holder) => lease.holder == *holder,
            AdoptProof::Ticket(ticket) => lease.ticket == Some(*ticket),
        };
        if !proven {
            return no(Code::LeaseMismatch);
        }
        // Whoever takes it must not come to overlap somebody else by it.
        let others = self.leases.iter().filter(|other| {
            other.token != token && other.holder != *to && other.resource.overlaps(resource)
        });
        let others: Vec<_> = others
            .map(|other| (other.token, self.over(other)))
            .collect();
        if others.iter().any(|(_, over)| !over) {
            return no(self.held());
        }
        let expires = self.term_goes_on(lease);
        for (other, _) in others {
            self.end(other, Code::Reclaimed);
        }
        let lease = self.touch(token, expires);
        lease.holder = to.clone();
        lease.handovers += 1;
        lease.ticket = None;
        lease.shared = true;
        Ok(())
    }

    pub(super) fn revoke(
        &mut self,
        resource: &ResourceKey,
        expected: Generation,
        force: bool,
    ) -> Done {
        let present = self.present(resource).cloned();
        let Some(lease) = present.filter(|lease| lease.token.generation == expected) else {
            return no(Code::LeaseMismatch);
        };
        match self.seen(&lease) {
            _ if force => Ok(self.end(lease.token, Code::Revoked)),
            Seen::Gone => Ok(self.end(lease.token, Code::Revoked)),
            Seen::Nothing | Seen::There => no(self.held()),
            Seen::Doubt => no(Code::InvalidHolder),
            Seen::Unasked => ask(&lease),
        }
    }

    pub(super) fn check_as(
        &self,
        resource: &ResourceKey,
        holder: &SessionHolder,
        id: Option<LeaseId>,
    ) -> Done {
        let Some(lease) = self.present(resource) else {
            return no(Code::LeaseRequired);
        };
        let other = id.is_some_and(|id| id != lease.token.lease) || lease.holder != *holder;
        if other || self.suspended(lease) {
            return no(Code::LeaseMismatch);
        }
        let alive = self
            .answer(lease)
            .is_some_and(|seen| matches!(seen, Verdict::Alive(_)));
        match self.seen(lease) {
            Seen::Nothing => Ok((Code::Entitled, Some(lease.token))),
            Seen::There if alive => Ok((Code::Entitled, Some(lease.token))),
            Seen::There | Seen::Gone => no(Code::LeaseMismatch),
            Seen::Doubt => no(Code::InvalidHolder),
            Seen::Unasked => ask(lease),
        }
    }

    pub(super) fn abandon(
        &mut self,
        resource: &ResourceKey,
        token: FencingToken,
        from: Provenance,
    ) {
        if from == Provenance::Created {
            let (op, result) = (OpId::ACQUISITION, Err(Disposition::PreMutation));
            let done = self.finish(resource, token, op, result);
            if let Ok((Code::RetainedAfterFailure, token)) = done {
                self.tell(Code::RetainedAfterFailure, token, resource);
            }
        }
    }

    /// Ends a lease, with a receipt.
    pub(super) fn end(&mut self, token: FencingToken, code: Code) -> (Code, Option<FencingToken>) {
        let lease = self.find(token).clone();
        self.leases.retain(|other| other.token != token);
        self.write(code, Some(token), &lease.resource, &lease.holder);
        (code, Some(token))
    }

    /// Takes a request out of the queue, with a receipt and an answer.
    pub(super) fn leave(&mut self, id: WaiterId, code: Code, answer: Answered) {
        let place = self.waiters.iter().position(|waiter| waiter.id == id);
        let waiter = self.waiters.remove(place.unwrap());
        self.write(code, None, &waiter.resource, &waiter.holder);
        self.settled.insert(id, answer);
    }

    /// A receipt about the present holder.
    pub(super) fn tell(&mut self, code: Code, token: Option<FencingToken>, resource: &ResourceKey) {
        let lease = self.leases.iter().find(|lease| lease.resource == *resource);
        let line = Line {
            code,
            token,
            resource: Some(resource.clone()),
            holder: lease.map(|lease| lease.holder.clone()),
        };
        self.lines.push(line);
    }

    pub(super) fn write(
        &mut self,
        code: Code,
        token: Option<FencingToken>,
        resource: &ResourceKey,
        holder: &SessionHolder,
    ) {
        self.lines.push(Line {
            code,
            token,
            resource: Some(resource.clone()),
            holder: Some(holder.clone()),
        });
    }

    /// Shows progress: the last touch never moves back.
    pub(super) fn touch(&mut self, token: FencingToken, expires: Option<Moment>) -> &mut Held {
        let now = self.now;
        let lease = self.lease(token);
        lease.touched = lease.touched.max(now);
        lease.expires = expires;
        lease
    }

    pub(super) fn lease(&mut self, token: FencingToken) -> &mut Held {
        let mut leases = self.leases.iter_mut();
        leases.find(|lease| lease.token == token).unwrap()
    }

    pub(super) fn find(&self, token: FencingToken) -> &Held {
        let mut leases = self.leases.iter();
        leases.find(|lease| lease.token == token).unwrap()
    }

    /// The lease of this resource, unless it is over.
    pub(super) fn present(&self, resource: &ResourceKey) -> Option<&Held> {
        let mut leases = self.leases.iter();
        leases.find(|lease| lease.resource == *resource && !self.over(lease))
    }

    /// The token, if it is that of the present lease.
    pub(super) fn current(
        &self,
        resource: &ResourceKey,
        token: FencingToken,
    ) -> Result<FencingToken, Said> {
        let present = self.present(resource).map(|lease| lease.token);
        if present == Some(token) {
            Ok(token)
        } else {
            no(Code::StaleToken)
        }
    }

    pub(super) fn expired(&self, lease: &Held) -> bool {
        lease.expires.is_some_and(|last| self.now > last)
    }

    /// Whether its term ends the lease now.
    pub(super) fn over(&self, lease: &Held) -> bool {
        self.policy.on_expiry() == OnExpiry::EndIfIdle
            && lease.ops.is_empty()
            && self.expired(lease)
    }

    /// Whether its term keeps the holder from writing now.
    pub(super) fn suspended(&self, lease: &Held) -> bool {
        self.policy.on_expiry() == OnExpiry::SuspendHolder && self.expired(lease)
    }

    pub(super) fn first_term(&self, ttl: Option<Duration>) -> Result<Option<Moment>, Code> {
        match (self.policy.term(), ttl) {
            (_, Some(Duration::ZERO)) | (Term::None, Some(_)) => Err(Code::InvalidHolder),
            (Term::None | Term::PerGrant { .. }, None) => Ok(None),
            (Term::PerGrant { .. }, Some(ttl)) => Ok(Some(self.now.after(ttl))),
            (Term::Fixed(term), None) => Ok(Some(self.now.after(term))),
            (Term::Fixed(term), Some(ttl)) if ttl == term => Ok(Some(self.now.after(term))),
            (Term::Fixed(_), Some(_)) => Err(Code::InvalidHolder),
        }
    }

    pub(super) fn term_again(
        &self,
        lease: &Held,
        ttl: Option<Duration>,
    ) -> Result<Option<Moment>, Code> {
        match ttl {
            Some(_) => self.first_term(ttl),
            None if self.suspended(lease) => Err(Code::LeaseExpired),
            None => Ok(self.term_goes_on(lease)),
        }
    }

    /// The end of the term after progress without a ttl.
    pub(super) fn term_goes_on(&self, lease: &Held) -> Option<Moment> {
        match self.policy.term() {
            Term::Fixed(term) => Some(self.now.after(term)),
            Term::None | Term::PerGrant { .. } => lease.expires,
        }
    }

    pub(super) fn answer(&self, lease: &Held) -> Option<&Verdict> {
        let mut answers = self.answers.iter();
        let about =
            |answer: &&Answer| answer.about == lease.token && answer.handovers == lease.handovers;
        answers.find(about).map(|answer| &answer.verdict)
    }

    /// What is known of a holder, where the terms ask for it.
    pub(super) fn seen(&self, lease: &Held) -> Seen {
        let proofs = self.policy.ends_on();
        match self.answer(lease) {
            _ if proofs.process.is_none() && !proofs.session => Seen::Nothing,
            None => Seen::Unasked,
            Some(Verdict::Alive(_) | Verdict::Occupied(_)) => Seen::There,
            Some(Verdict::Dead(_)) => Seen::Gone,
            Some(Verdict::Unknown(_)) => Seen::Doubt,
        }
    }

    pub(super) fn held(&self) -> Code {
        match self.policy.ends_on().process {
            Some(_) => Code::LeaseHeld,
            None => Code::WriteConflict,
        }
    }

    /// How the lease of a holder that is gone ends by somebody's request, for the same resource or not.
    pub(super) fn gone(&self, same: bool) -> Code {
        match (self.policy.ends_on().process, same) {
            (None, _) => Code::SessionEnded,
            (Some(_), true) => Code::TakenOver,
            (Some(_), false) => self.released(),
        }
    }

    pub(super) fn released(&self) -> Code {
        match self.policy.again() {
            Again::Touch => Code::Released,
            Again::Renew => Code::LeaseReleased,
        }
    }
}

/// What was done to which lease, or what is said instead.
pub(super) type Done = Result<(Code, Option<FencingToken>), Said>;

pub(super) enum Seen {
    /// The terms ask for no proof, so nothing can be known.
    Nothing,
    Unasked,
    /// The holder, or its work.
    There,
    Doubt,
    Gone,
}

pub(super) fn no<T>(code: Code) -> Result<T, Said> {
    Err(Said::Refused([code].into()))
}

fn ask<T>(lease: &Held) -> Result<T, Said> {
    Err(Said::Asked([lease.token.generation.get()].into()))
}
