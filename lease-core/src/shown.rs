//! What `Debug` shows of leases and of what is asked about them: all but the ticket of a hand-over, since who reads it in
//! a log could adopt the lease.

use core::fmt;

use crate::action::{Action, AdoptProof};
use crate::cell::Lease;

/// A ticket, not to be shown.
pub(crate) struct Ticket(pub(crate) [u8; 16]);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl<H: fmt::Debug> fmt::Debug for AdoptProof<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(holder) => f.debug_tuple("Present").field(holder).finish(),
            Self::Ticket(ticket) => f.debug_tuple("Ticket").field(&Ticket(*ticket)).finish(),
        }
    }
}

impl<H: fmt::Debug> fmt::Debug for Lease<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every field is named, so that a new one is not forgotten.
        let Self {
            token,
            holder,
            terms,
            acquired,
            touched,
            expires,
            ops,
            tainted,
            shared,
            begun,
            handovers,
            ticket,
        } = self;
        f.debug_struct("Lease")
            .field("token", token)
            .field("holder", holder)
            .field("terms", terms)
            .field("acquired", acquired)
            .field("touched", touched)
            .field("expires", expires)
            .field("ops", ops)
            .field("tainted", tainted)
            .field("shared", shared)
            .field("begun", begun)
            .field("handovers", handovers)
            .field("ticket", &ticket.map(Ticket))
            .finish()
    }
}

impl<H: fmt::Debug> fmt::Debug for Action<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { holder, ttl } => f
                .debug_struct("Acquire")
                .field("holder", holder)
                .field("ttl", ttl)
                .finish(),
            Self::Touch(at) => f.debug_tuple("Touch").field(at).finish(),
            Self::Renew { at, ttl } => f
                .debug_struct("Renew")
                .field("at", at)
                .field("ttl", ttl)
                .finish(),
            Self::Begin { at, op, from } => f
                .debug_struct("Begin")
                .field("at", at)
                .field("op", op)
                .field("from", from)
                .finish(),
            Self::End { at, op, result } => f
                .debug_struct("End")
                .field("at", at)
                .field("op", op)
                .field("result", result)
                .finish(),
            Self::Release(by) => f.debug_tuple("Release").field(by).finish(),
            Self::Disconnect(holder) => f.debug_tuple("Disconnect").field(holder).finish(),
            Self::Offer { at, ticket } => f
                .debug_struct("Offer")
                .field("at", at)
                .field("ticket", &Ticket(*ticket))
                .finish(),
            Self::Adopt { token, proof, to } => f
                .debug_struct("Adopt")
                .field("token", token)
                .field("proof", proof)
                .field("to", to)
                .finish(),
            Self::Revoke {
                expected,
                by,
                reason,
                even_if_alive,
            } => f
                .debug_struct("Revoke")
                .field("expected", expected)
                .field("by", by)
                .field("reason", reason)
                .field("even_if_alive", even_if_alive)
                .finish(),
            Self::Check(by) => f.debug_tuple("Check").field(by).finish(),
            Self::Sweep => f.write_str("Sweep"),
        }
    }
}
