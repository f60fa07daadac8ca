//! The leases as the receipts tell of them.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{
    Answer, Code, Detail, Disposition, FencingToken, Holder, LeasePolicy, Moment, OnExpiry, OpId,
    Provenance, Receipt, ResourceKey, Term, Verdict,
};

use super::rule::{Breach, Rule, require};
use super::{Listed, overlap, proves};

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease<H> {
    pub(super) resource: ResourceKey,
    pub(super) holder: H,
    pub(super) token: FencingToken,
    pub(super) acquired: Moment,
    pub(super) touched: Moment,
    pub(super) expires: Option<Moment>,
    pub(super) ops: Vec<OpId>,
    pub(super) tainted: bool,
    pub(super) handovers: u32,
    /// The operation that may call itself the maker.
    maker: Option<OpId>,
    /// Somebody joined since the grant.
    joined: bool,
}

/// A lease that ended, as it was.
#[derive(Clone, Debug)]
pub(super) struct Ending<H> {
    pub(super) lease: Lease<H>,
    pub(super) code: Code,
    pub(super) detail: Detail,
    /// The receipt says that the holder is gone.
    pub(super) by_proof: bool,
}

/// What a receipt did.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replay {
    /// A new lease.
    Created(FencingToken),
    /// Anything else.
    Other,
}

/// All leases, by resource.
#[derive(Clone, Debug)]
pub(super) struct Leases<H>(BTreeMap<ResourceKey, Lease<H>>);

impl<H: Holder> Lease<H> {
    /// Whether `answers` prove the holder gone.
    pub(super) fn proven(&self, answers: &[Answer]) -> bool {
        proves(answers, self.token, self.handovers)
    }

    /// Whether `answers` say that the holder lives.
    pub(super) fn seen_alive(&self, answers: &[Answer]) -> bool {
        answers
            .iter()
            .find(|answer| answer.about == self.token && answer.handovers == self.handovers)
            .is_some_and(|answer| matches!(answer.verdict, Verdict::Alive(_)))
    }

    /// As it should be listed.
    pub(super) fn listed(&self) -> Listed<H> {
        Listed {
            resource: self.resource.clone(),
            holder: self.holder.clone(),
            token: self.token,
            acquired: self.acquired,
            touched: self.touched,
            expires: self.expires,
            in_flight: self.ops.clone(),
            tainted: self.tainted,
            handovers: self.handovers,
        }
    }

    fn is_listed_as(&self, listed: &Listed<H>) -> bool {
        self.resource == listed.resource
            && self.holder == listed.holder
            && self.token == listed.token
            && self.acquired == listed.acquired
            && self.touched == listed.touched
            && self.expires == listed.expires
            && self.ops == listed.in_flight
            && self.tainted == listed.tainted
            && self.handovers == listed.handovers
    }
}

impl<H: Holder> Leases<H> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lease<H>> {
        self.0.values()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.0.keys()
    }

    pub(super) fn at(&self, key: &ResourceKey) -> Option<&Lease<H>> {
        self.0.get(key)
    }

    pub(super) fn by_token(&self, token: FencingToken) -> Option<&Lease<H>> {
        self.0.values().find(|lease| lease.token == token)
    }

    pub(super) fn holds_any(&self, holder: &H) -> bool {
        self.0.values().any(|lease| lease.holder == *holder)
    }

    /// Whether `holder` holds something that overlaps `key` and counts.
    pub(super) fn holds(
        &self,
        holder: &H,
        key: &ResourceKey,
        counts: &dyn Fn(&Lease<H>) -> bool,
    ) -> bool {
        self.near(key)
            .any(|lease| lease.holder == *holder && counts(lease))
    }

    /// What overlaps `key`.
    pub(super) fn near(&self, key: &ResourceKey) -> impl Iterator<Item = &Lease<H>> {
        self.0
            .values()
            .filter(move |lease| overlap(&lease.resource, key))
    }

    /// The latest moment that may be named as the next one at which something is due.
    pub(super) fn due(&self, policy: &LeasePolicy) -> Option<Moment> {
        let ends = self.0.values().filter(|lease| lease.ops.is_empty());
        let last = ends.filter_map(|lease| Some(lease.touched.after(term(policy)?)));
        last.min().map(|last| last.after(Duration::from_nanos(1)))
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = Moment> {
        self.0.values().filter_map(|lease| lease.expires)
    }

    /// Takes out the leases that a receipt ends.
    pub(super) fn endings(&mut self, receipt: &Receipt<H>) -> Result<Vec<Ending<H>>, Breach> {
        let change = &receipt.change;
        let (token, by_proof) = match (change.code, change.detail) {
            (Code::TakenOver, Detail::Granted { previous, .. }) => (previous, true),
            (Code::SessionEnded, _) => (change.token, true),
            (Code::Released | Code::LeaseReleased, Detail::Released { exited, .. }) => {
                (change.token, exited)
            }
            (
                Code::Abandoned
                | Code::Disconnected
                | Code::Reclaimed
                | Code::ReleasedAfterFailure
                | Code::Revoked,
                _,
            ) => (change.token, false),
            _ => return Ok(Vec::new()),
        };
        let lease = receipt
            .resource
            .as_ref()
            .and_then(|key| self.0.get(key))
            .filter(|lease| Some(lease.token) == token)
            .cloned();
        let Some(lease) = lease else {
            return Err(Breach::new(
                Rule::PastCannotAct,
                format!("{receipt} ends a lease that is not there"),
            ));
        };
        self.0.remove(&lease.resource);
        Ok(vec![Ending {
            lease,
            code: change.code,
            detail: change.detail,
            by_proof,
        }])
    }

    /// Replays what a receipt says of a lease that is new or goes on.
    pub(super) fn replay(
        &mut self,
        receipt: &Receipt<H>,
        policy: &LeasePolicy,
    ) -> Result<Replay, Breach> {
        match receipt.change.code {
            Code::Created | Code::LeaseAcquired | Code::TakenOver => self.create(receipt, policy),
            Code::Reentrant
            | Code::Renewed
            | Code::Touched
            | Code::OperationBegun
            | Code::OperationEnded
            | Code::RetainedAfterFailure
            | Code::Offered
            | Code::Adopted
            | Code::Entitled => {
                let lease = self.present(receipt)?;
                let before = lease.clone();
                lease.edit(receipt, policy)?;
                let grew = lease.touched >= before.touched && lease.acquired == before.acquired;
                require(grew, Rule::ReceiptsReplay, || {
                    format!("{receipt} moves a stamp back")
                })?;
                Ok(Replay::Other)
            }
            _ => Ok(Replay::Other),
        }
    }

    fn create(&mut self, receipt: &Receipt<H>, policy: &LeasePolicy) -> Result<Replay, Breach> {
        let change = &receipt.change;
        let (Some(resource), Some(holder), Some(token), Detail::Granted { expires, .. }) = (
            &receipt.resource,
            &receipt.holder,
            change.token,
            change.detail,
        ) else {
            return Err(incomplete(receipt));
        };
        fits(receipt, policy, expires, change.at)?;
        let lease = Lease {
            resource: resource.clone(),
            holder: holder.clone(),
            token,
            acquired: change.at,
            touched: change.at,
            expires,
            ops: Vec::new(),
            tainted: false,
            handovers: 0,
            maker: None,
            joined: false,
        };
        match self.0.insert(resource.clone(), lease) {
            None => Ok(Replay::Created(token)),
            Some(old) => Err(Breach::new(
                Rule::OneHolder,
                format!("{receipt} is on top of generation {}", old.token.generation),
            )),
        }
    }

    fn present(&mut self, receipt: &Receipt<H>) -> Result<&mut Lease<H>, Breach> {
        let token = receipt.change.token;
        receipt
            .resource
            .as_ref()
            .and_then(|key| self.0.get_mut(key))
            .filter(|lease| Some(lease.token) == token)
            .ok_or_else(|| {
                let what = format!("{receipt} is about a lease that is not there");
                Breach::new(Rule::PastCannotAct, what)
            })
    }

    /// The new lease overlaps no other writer's.
    pub(super) fn one_holder(&self, token: FencingToken) -> Result<(), Breach> {
        let Some(new) = self.by_token(token) else {
            return Ok(());
        };
        let other = self
            .near(&new.resource)
            .find(|lease| lease.holder != new.holder);
        require(other.is_none(), Rule::OneHolder, || {
            let other = other.map(|lease| (&lease.resource, &lease.holder));
            format!("{:?} got {} beside {other:?}", new.holder, new.resource)
        })
    }

    /// Compares with what is listed.
    pub(super) fn compare(&self, listed: &[Listed<H>]) -> Result<(), Breach> {
        for (a, lease) in listed.iter().enumerate() {
            let other = listed.iter().skip(a.saturating_add(1)).find(|other| {
                overlap(&other.resource, &lease.resource) && other.holder != lease.holder
            });
            require(other.is_none(), Rule::OneHolder, || {
                let other = other.map(|lease| (&lease.resource, &lease.holder));
                format!(
                    "{:?} holds {} beside {other:?}",
                    lease.holder, lease.resource
                )
            })?;
        }
        let mut told = self.0.values();
        for listed in listed {
            let lease = told.next();
            let same = lease.is_some_and(|lease| lease.is_listed_as(listed));
            require(same, Rule::ReceiptsReplay, || {
                format!("receipts tell of {lease:?}, listed is {listed:?}")
            })?;
        }
        let unlisted = told.next();
        require(unlisted.is_none(), Rule::GrantsEndOrAreListed, || {
            format!("{unlisted:?} is not listed, and nothing says that it ended")
        })
    }

    /// After a sweep nothing is expired and idle, unless more was than one sweep takes.
    pub(super) fn none_is_due(
        &self,
        policy: &LeasePolicy,
        now: Moment,
        most: usize,
    ) -> Result<(), Breach> {
        if self.0.len() >= most {
            return Ok(());
        }
        let due = self.0.values().find(|lease| lease.lapsed(policy, now));
        require(due.is_none(), Rule::DueAreReclaimed, || {
            format!("{due:?} is left at {now}")
        })
    }
}

impl<H: Holder> Lease<H> {
    /// Whether its term is over, that ends it, and nothing is in flight.
    pub(super) fn lapsed(&self, policy: &LeasePolicy, now: Moment) -> bool {
        let over = |term| now > self.touched.after(term);
        self.ops.is_empty() && term(policy).is_some_and(over)
    }

    /// Goes on as a receipt says, if the receipt goes on from here.
    fn edit(&mut self, receipt: &Receipt<H>, policy: &LeasePolicy) -> Result<(), Breach> {
        require(self.continues(receipt), Rule::ReceiptsReplay, || {
            format!("{receipt} does not continue {self:?}")
        })?;
        require(
            self.may(receipt, policy),
            Rule::SuspendedDoesNotWrite,
            || format!("{receipt} after the term of {self:?}"),
        )?;
        let expires = match receipt.change.detail {
            Detail::Touched { expires, .. } => {
                self.joined |= receipt.change.code == Code::Reentrant;
                expires
            }
            Detail::Begun {
                op, from, expires, ..
            } => {
                self.ops.push(op);
                match from {
                    Provenance::Created => self.maker = self.maker.or(Some(op)),
                    Provenance::Reentrant => self.joined = true,
                }
                expires
            }
            Detail::Ended {
                op,
                expires,
                failure,
                ..
            } if op != OpId::ACQUISITION => {
                self.ops.retain(|known| *known != op);
                self.tainted |=
                    failure.is_some_and(|failure| failure.disposition == Disposition::Unknown);
                expires
            }
            Detail::HandedOver { handovers, expires } => {
                self.handovers = handovers;
                self.joined = true;
                self.holder = receipt.holder.clone().ok_or_else(|| incomplete(receipt))?;
                expires
            }
            _ => return Ok(()),
        };
        self.touched = self.touched.max(receipt.change.at);
        fits(receipt, policy, expires, self.touched)?;
        self.expires = expires;
        Ok(())
    }

    /// Whether what a receipt says of before is so.
    fn continues(&self, receipt: &Receipt<H>) -> bool {
        let counts = |in_flight: u32, ops: usize| Ok(in_flight) == u32::try_from(ops);
        match receipt.change.detail {
            Detail::Touched {
                before,
                after,
                expired_at,
                ..
            } => {
                before == self.touched
                    && expired_at == self.expires
                    && after == self.touched.max(receipt.change.at)
            }
            Detail::Begun { op, in_flight, .. } => {
                !self.ops.contains(&op) && counts(in_flight, self.ops.len().saturating_add(1))
            }
            Detail::Ended {
                op: OpId::ACQUISITION,
                expires,
                ..
            } => expires == self.expires,
            Detail::Ended { op, in_flight, .. } => {
                self.ops.contains(&op) && counts(in_flight, self.ops.len().saturating_sub(1))
            }
            Detail::HandedOver { handovers, .. } => {
                Some(handovers) == self.handovers.checked_add(1)
            }
            _ => true,
        }
    }

    /// Whether a holder may do this, if its term is over.
    fn may(&self, receipt: &Receipt<H>, policy: &LeasePolicy) -> bool {
        if !self.suspended(policy, receipt.change.at) {
            return true;
        }
        match receipt.change.detail {
            // Progress counts only with a new term.
            Detail::Touched {
                expired_at,
                expires,
                ..
            } => expires != expired_at,
            Detail::Begun { .. } => false,
            _ => receipt.change.code != Code::Entitled,
        }
    }

    /// Whether its holder may not write until it renews.
    fn suspended(&self, policy: &LeasePolicy, now: Moment) -> bool {
        policy.on_expiry() == OnExpiry::SuspendHolder && self.expires.is_some_and(|last| now > last)
    }

    /// Whether nobody began anything under it or joined.
    pub(super) fn is_unused(&self) -> bool {
        !self.joined && self.maker.is_none() && self.ops.is_empty()
    }

    /// Whether a failed operation may take it along.
    pub(super) fn goes_with(&self, op: OpId, disposition: Disposition) -> bool {
        !self.joined && self.maker == Some(op) && disposition != Disposition::Unknown
    }
}

/// The fixed term after which an idle lease may be reclaimed; `None` if its terms know no such end.
pub(super) fn term(policy: &LeasePolicy) -> Option<Duration> {
    match (policy.on_expiry(), policy.term()) {
        (OnExpiry::EndIfIdle, Term::Fixed(term)) => Some(term),
        _ => None,
    }
}

/// A fixed term ends one term after the last touch, and no other lease has an end without a wish.
fn fits<H: Holder>(
    receipt: &Receipt<H>,
    policy: &LeasePolicy,
    expires: Option<Moment>,
    touched: Moment,
) -> Result<(), Breach> {
    let right = match policy.term() {
        Term::Fixed(term) => expires == Some(touched.after(term)),
        Term::None => expires.is_none(),
        Term::PerGrant { .. } => true,
    };
    require(right, Rule::ReceiptsReplay, || {
        format!("{receipt} does not end one term after {touched}")
    })
}

fn incomplete<H: Holder>(receipt: &Receipt<H>) -> Breach {
    Breach::new(Rule::ReceiptsReplay, format!("{receipt} lacks a part"))
}
