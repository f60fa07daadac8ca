//! What a decision will change, and the one place where cells change.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::cell::{Cell, Lease, Operation, Provenance};
use crate::change::{Change, Detail, Failure};
use crate::code::Code;
use crate::id::{At, AuthorityId, FencingToken, Generation, LeaseId, OpId, Seq, Slot};
use crate::key::ResourceKey;
use crate::liveness::Evidence;
use crate::policy::LeasePolicy;
use crate::shown::Ticket;
use crate::time::Moment;

/// Changes that were decided and not yet made: at most one new lease, any number of ended ones.
///
/// It was decided for one scene. The driver commits it in the same critical section, or, where it
/// decided on what it believes, only after the store has confirmed exactly that scene.
#[derive(Debug)]
#[must_use = "a plan that is not committed changed nothing"]
pub struct Plan<H> {
    pub(crate) at: Moment,
    /// In ascending generation.
    pub(crate) ended: Vec<Ending<H>>,
    pub(crate) own: Own<H>,
}

/// A lease that ends.
#[derive(Clone, Debug)]
pub(crate) struct Ending<H> {
    pub(crate) key: ResourceKey,
    pub(crate) slot: Slot,
    pub(crate) token: FencingToken,
    pub(crate) holder: H,
    pub(crate) code: Code,
    pub(crate) detail: Detail,
    pub(crate) evidence: Option<Box<Evidence>>,
}

/// What happens at the resource asked for.
#[derive(Debug)]
pub(crate) enum Own<H> {
    /// Nothing; the plan only ends leases.
    Nothing,
    /// A receipt without any change.
    Report {
        key: ResourceKey,
        code: Code,
        token: Option<FencingToken>,
        detail: Detail,
    },
    /// A new lease.
    Create(Draft<H>),
    /// The present lease goes on, changed.
    Edit {
        key: ResourceKey,
        at: At,
        code: Code,
        detail: Detail,
        edit: Edit<H>,
    },
    /// The present lease ends.
    End(Ending<H>),
}

/// A new lease without its token.
#[derive(Debug)]
pub(crate) struct Draft<H> {
    pub(crate) key: ResourceKey,
    pub(crate) holder: H,
    pub(crate) terms: LeasePolicy,
    pub(crate) expires: Option<Moment>,
    pub(crate) code: Code,
    /// The lease it replaces on proof, at the same resource.
    pub(crate) previous: Option<Box<Ending<H>>>,
}

/// How a present lease changes.
#[derive(Debug)]
pub(crate) enum Edit<H> {
    /// Progress, without a new claim.
    Touch { expires: Option<Moment> },
    /// A further request of the holder: it gets a grant, and the lease is shared from then on.
    Again { expires: Option<Moment> },
    /// One more operation in flight.
    Begin {
        operation: Operation,
        expires: Option<Moment>,
    },
    /// One operation fewer.
    End {
        op: OpId,
        expires: Option<Moment>,
        taints: bool,
    },
    /// A ticket.
    Offer { ticket: Ticket },
    /// A new holder.
    Adopt {
        from: H,
        to: H,
        expires: Option<Moment>,
    },
}

/// What a commit gives to a new lease; given exactly when [`Plan::created`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a driver gives every part")]
pub struct Fresh {
    /// Who grants.
    pub authority: AuthorityId,
    /// Larger than every generation this authority gave before.
    pub generation: Generation,
    /// Random, never given before, not [`LeaseId::NIL`].
    pub lease: LeaseId,
}

/// Where the driver keeps cells: a map, rows of one transaction, the cells of one store request.
pub trait Cells<H> {
    /// Stores the cell of a new lease, in place of what was there, and says where it is.
    fn put(&mut self, key: &ResourceKey, cell: Cell<H>) -> Slot;

    /// Lets `edit` change the cell of `key`, but never its holder, and stores what it made of it.
    ///
    /// `hint` says where the cell may be.
    fn edit(&mut self, key: &ResourceKey, hint: Slot, edit: &mut dyn FnMut(&mut Cell<H>)) -> Slot;

    /// Makes `key` free. `hint` says where the cell may be.
    fn remove(&mut self, key: &ResourceKey, hint: Slot);
}

/// The capability to write: made by a commit only, and not `Clone`, so that "I made this lease"
/// cannot be claimed twice.
///
/// Throwing it away is a mistake that the compiler sees:
///
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # fn admit() -> lease_core::Grant { loop {} }
/// fn write() {
///     admit();
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without the grant the lease can be neither used nor released"]
#[non_exhaustive]
pub struct Grant {
    /// Which lease, and where it may be found.
    pub at: At,
    /// Whether this request made the lease.
    pub provenance: Provenance,
}

/// What one change of a plan concerns, for a receipt. In the order of the changes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a, H> {
    /// The resource.
    pub key: &'a ResourceKey,
    /// The holder; `None` is the one in the cell after the commit.
    pub holder: Option<&'a H>,
    /// The holder it was taken from on proof, or that handed over.
    pub previous: Option<&'a H>,
    /// What that proof rests on.
    pub evidence: Option<&'a Evidence>,
}

impl<H: Clone> Plan<H> {
    /// Returns whether the plan makes a new lease, and so needs a [`Fresh`].
    #[must_use]
    pub const fn created(&self) -> bool {
        matches!(self.own, Own::Create(_))
    }

    /// Returns whether the plan changes nothing and has no receipt.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ended.is_empty() && matches!(self.own, Own::Nothing)
    }

    /// Returns the resources whose lease ends, so that a driver can wake who waits for them.
    pub fn freed(&self) -> impl Iterator<Item = &ResourceKey> {
        let own = match &self.own {
            Own::End(ending) => Some(&ending.key),
            Own::Nothing | Own::Report { .. } | Own::Create(_) | Own::Edit { .. } => None,
        };
        self.ended.iter().map(|ending| &ending.key).chain(own)
    }

    /// Whether somebody may lose a lease by it, or hand it over.
    pub(crate) fn may_lose(&self) -> bool {
        let own = match &self.own {
            Own::Nothing | Own::Report { .. } => false,
            Own::Create(draft) => draft.previous.is_some(),
            Own::Edit { edit, .. } => matches!(edit, Edit::Adopt { .. }),
            Own::End(_) => true,
        };
        own || !self.ended.is_empty()
    }

    /// Says where the leases that end may be found.
    pub(crate) fn locate(&mut self, mut place: impl FnMut(FencingToken) -> Option<Slot>) {
        for ending in &mut self.ended {
            ending.slot = place(ending.token).unwrap_or(Slot::NONE);
        }
    }

    /// Returns what each change will concern, in the order in which `commit` reports them.
    pub fn subjects(&self) -> impl Iterator<Item = Subject<'_, H>> {
        let own = match &self.own {
            Own::Nothing => None,
            Own::Report { key, .. } => Some(Subject::of(key, None)),
            Own::Create(draft) => Some(draft.subject()),
            Own::Edit {
                key,
                edit: Edit::Adopt { from, to, .. },
                ..
            } => Some(Subject {
                previous: Some(from),
                ..Subject::of(key, Some(to))
            }),
            Own::Edit { key, .. } => Some(Subject::of(key, None)),
            Own::End(ending) => Some(ending.subject()),
        };
        self.ended.iter().map(Ending::subject).chain(own)
    }

    /// Makes the changes: ended leases first, in ascending generation, then the own resource.
    ///
    /// Infallible, and the only place where cells change. The changes are numbered from `seq` on and
    /// handed to `out` in order. The answer is the capability, where the plan grants one.
    ///
    /// Without a `fresh` for a created lease nothing at all is changed: that is a driver's mistake.
    pub fn commit(
        self,
        cells: &mut impl Cells<H>,
        fresh: Option<Fresh>,
        seq: Seq,
        out: &mut dyn FnMut(Change),
    ) -> Option<Grant> {
        debug_assert_eq!(
            self.created(),
            fresh.is_some(),
            "fresh exactly for a created lease"
        );
        if self.created() && fresh.is_none() {
            return None;
        }
        let at = self.at;
        let mut next = seq;
        let mut report = |code, token, detail| {
            out(Change {
                seq: next,
                code,
                token,
                at,
                detail,
            });
            next = next.following();
        };
        // Not moved one by one: an ending is big.
        for ending in &self.ended {
            cells.remove(&ending.key, ending.slot);
            report(ending.code, Some(ending.token), ending.detail);
        }
        match self.own {
            Own::Nothing => None,
            Own::Report {
                code,
                token,
                detail,
                ..
            } => {
                report(code, token, detail);
                None
            }
            Own::Create(draft) => {
                let (code, detail) = (draft.code, draft.detail());
                let granted = fresh.map(|fresh| create(draft, fresh, at, cells));
                report(code, granted.as_ref().map(|grant| grant.at.token), detail);
                granted
            }
            Own::Edit {
                key,
                at: place,
                code,
                detail,
                edit,
            } => {
                let grants = matches!(edit, Edit::Again { .. } | Edit::Adopt { .. });
                let slot = change(&key, place, edit, at, cells);
                report(code, Some(place.token), detail);
                grants.then_some(Grant {
                    at: At {
                        token: place.token,
                        slot,
                    },
                    provenance: Provenance::Reentrant,
                })
            }
            Own::End(ending) => {
                cells.remove(&ending.key, ending.slot);
                report(ending.code, Some(ending.token), ending.detail);
                None
            }
        }
    }
}

/// Puts a new lease into its cell.
fn create<H>(draft: Draft<H>, fresh: Fresh, at: Moment, cells: &mut impl Cells<H>) -> Grant {
    let token = fresh.token();
    let lease = Lease::new(token, draft.holder, draft.terms, at, draft.expires);
    let slot = cells.put(&draft.key, Cell { lease: Some(lease) });
    Grant::created(token, slot)
}

/// Changes the lease of `key`, if it is still the one the plan was made for.
fn change<H: Clone>(
    key: &ResourceKey,
    at: At,
    edit: Edit<H>,
    now: Moment,
    cells: &mut impl Cells<H>,
) -> Slot {
    if let Edit::Adopt { .. } = edit {
        return rehold(key, at, edit, now, cells);
    }
    let mut edit = Some(edit);
    cells.edit(key, at.slot, &mut |cell| {
        let same = cell.lease.as_mut().filter(|lease| lease.token == at.token);
        debug_assert!(
            same.is_some(),
            "a plan is committed to the scene it was made for"
        );
        if let (Some(lease), Some(edit)) = (same, edit.take()) {
            lease.apply(edit, now);
        }
    })
}

/// Makes a change that concerns the present lease of `cell` only, as [`Plan::commit`] makes it, where
/// the driver has the cell in its hands.
#[inline(always)]
pub(crate) fn edit_in_place<H>(cell: &mut Cell<H>, edit: Edit<H>, now: Moment) {
    if let Some(lease) = cell.lease.as_mut() {
        lease.apply(edit, now);
    }
}

/// Stores the lease of `key` anew under its next holder, since drivers find leases by holder.
fn rehold<H: Clone>(
    key: &ResourceKey,
    at: At,
    edit: Edit<H>,
    now: Moment,
    cells: &mut impl Cells<H>,
) -> Slot {
    let mut present = None;
    let slot = cells.edit(key, at.slot, &mut |cell| {
        present = cell.lease.clone().filter(|lease| lease.token == at.token);
    });
    debug_assert!(
        present.is_some(),
        "a plan is committed to the scene it was made for"
    );
    match present {
        Some(mut lease) => {
            lease.apply(edit, now);
            cells.put(key, Cell { lease: Some(lease) })
        }
        None => slot,
    }
}

impl<H> Lease<H> {
    /// A new lease, also where the driver sees by itself that nothing is in its way.
    // Inlined, or the lease is copied once more.
    #[inline(always)]
    pub(crate) const fn new(
        token: FencingToken,
        holder: H,
        terms: LeasePolicy,
        at: Moment,
        expires: Option<Moment>,
    ) -> Self {
        Self {
            token,
            holder,
            terms,
            acquired: at,
            touched: at,
            expires,
            ops: Vec::new(),
            tainted: false,
            shared: false,
            begun: false,
            handovers: 0,
            ticket: None,
        }
    }

    #[inline(always)]
    fn apply(&mut self, edit: Edit<H>, now: Moment) {
        match edit {
            Edit::Offer { ticket } => {
                self.ticket = Some(ticket.0);
                return;
            }
            Edit::Touch { expires } => self.expires = expires,
            Edit::Again { expires } => {
                self.expires = expires;
                self.shared = true;
            }
            Edit::Begin { operation, expires } => {
                self.expires = expires;
                self.ops.push(operation);
                match operation.from {
                    Provenance::Created => self.begun = true,
                    Provenance::Reentrant => self.shared = true,
                }
            }
            Edit::End {
                op,
                expires,
                taints,
            } => {
                self.expires = expires;
                self.ops.retain(|operation| operation.id != op);
                self.tainted |= taints;
            }
            Edit::Adopt { to, expires, .. } => {
                self.expires = expires;
                self.holder = to;
                self.handovers = self.handovers.saturating_add(1);
                self.ticket = None;
                // The new holder did not make the lease, so nobody may undo it as its maker.
                self.shared = true;
            }
        }
        self.touched = self.touched.max(now);
    }
}

impl Fresh {
    pub(crate) const fn token(self) -> FencingToken {
        FencingToken {
            authority: self.authority,
            generation: self.generation,
            lease: self.lease,
        }
    }
}

impl Grant {
    /// The capability of who made a lease.
    pub(crate) const fn created(token: FencingToken, slot: Slot) -> Self {
        Self {
            at: At { token, slot },
            provenance: Provenance::Created,
        }
    }
}

impl<H> Draft<H> {
    fn detail(&self) -> Detail {
        Detail::Granted {
            expires: self.expires,
            previous: self.previous.as_ref().map(|previous| previous.token),
        }
    }

    fn subject(&self) -> Subject<'_, H> {
        Subject {
            key: &self.key,
            holder: Some(&self.holder),
            previous: self.previous.as_ref().map(|previous| &previous.holder),
            evidence: self
                .previous
                .as_ref()
                .and_then(|previous| previous.evidence.as_deref()),
        }
    }
}

impl<H> Ending<H> {
    /// Ends `lease` of `key`.
    pub(crate) fn new(key: &ResourceKey, lease: &Lease<H>, code: Code, detail: Detail) -> Self
    where
        H: Clone,
    {
        Self {
            key: key.clone(),
            slot: Slot::NONE,
            token: lease.token,
            holder: lease.holder.clone(),
            code,
            detail,
            evidence: None,
        }
    }

    pub(crate) fn subject(&self) -> Subject<'_, H> {
        Subject {
            key: &self.key,
            holder: Some(&self.holder),
            previous: None,
            evidence: self.evidence.as_deref(),
        }
    }
}

impl<'a, H> Subject<'a, H> {
    const fn of(key: &'a ResourceKey, holder: Option<&'a H>) -> Self {
        Self {
            key,
            holder,
            previous: None,
            evidence: None,
        }
    }
}

/// What the end of an operation reports when the lease stays.
pub(crate) fn ended(
    operation: Operation,
    now: Moment,
    in_flight: u32,
    expires: Option<Moment>,
    failure: Option<Failure>,
) -> Detail {
    let took: Duration = now.since(operation.since);
    Detail::Ended {
        op: operation.id,
        took,
        in_flight,
        expires,
        failure,
    }
}
