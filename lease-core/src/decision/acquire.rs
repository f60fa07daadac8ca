//! Who gets a lease.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Case, Decision, Site, acquired_code, occupancy, released_code, sort, verdict};
use crate::action::{Seen, WaiterId};
use crate::cell::Lease;
use crate::change::{Detail, ObservedBy};
use crate::code::Code;
use crate::holder::Holder;
use crate::id::At;
use crate::key::ResourceKey;
use crate::limits::TERM_MAX;
use crate::liveness::{Answer, Question, Verdict};
use crate::plan::{Draft, Edit, Ending, Own, Plan};
use crate::policy::{Again, LeasePolicy, Term};
use crate::refusal::{Behind, Held, Refusal, TtlFault};
use crate::time::Moment;

/// Decides a request for the lease of one resource.
pub(super) fn acquire<H: Holder>(
    site: &Site<'_, H>,
    holder: &H,
    ttl: Option<Duration>,
) -> Decision<H> {
    let (case, now) = (site.case, site.case.seen.now);
    let present = site.cell.lease().filter(|lease| !lease.lapsed(now));
    if let Some(lease) = present.filter(|lease| same(&lease.holder, holder)) {
        return again(site, lease, At::from(lease.token), ttl);
    }
    let opening = match unopposed(case.policy, ttl, now) {
        Ok(opening) => opening,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    let mut way = Way {
        ended: case.swept(ObservedBy::Request),
        previous: None,
        asked: Vec::new(),
    };
    let own = site.cell.lease().map(|lease| (site.key, lease));
    let near = case
        .scene
        .near
        .iter()
        .filter_map(|(key, cell)| Some((*key, cell.lease()?)));
    for (key, lease) in own.into_iter().chain(near) {
        // A writer never conflicts with itself, but its own lapsed lease at this key is over.
        if lease.holder == *holder && !(key == site.key && lease.lapsed(now)) {
            continue;
        }
        if let Err(refusal) = way.clear(case, site.key, key, lease) {
            return Decision::Refuse(refusal);
        }
    }
    if !way.asked.is_empty() {
        return Decision::Ask(way.asked);
    }
    if let Some(behind) = behind(site, holder).filter(|_| !planted!(QueueIsOvertaken)) {
        return Decision::Refuse(Refusal::Behind(behind));
    }
    sort(&mut way.ended);
    let code = match way.previous {
        Some(_) => Code::TakenOver,
        None => opening.code,
    };
    let own = Own::Create(Draft {
        key: site.key.clone(),
        holder: holder.clone(),
        terms: case.policy.clone(),
        expires: opening.expires,
        code,
        previous: way.previous,
    });
    Decision::Change(Plan {
        at: now,
        ended: way.ended,
        own,
    })
}

fn same<H: Holder>(one: &H, other: &H) -> bool {
    one == other || planted!(same_agent one, other, ReentryByAgent)
}

/// Whether `lease` of the very resource keeps a request of `holder` out, and nobody has to be asked whether it
/// still does: what [`acquire`] answers with [`Refusal::Held`] whatever else there is.
pub(crate) fn bars<H: Holder>(
    policy: &LeasePolicy,
    lease: &Lease<H>,
    holder: &H,
    ttl: Option<Duration>,
    now: Moment,
) -> bool {
    !same(&lease.holder, holder)
        && !lease.lapsed(now)
        && occupancy(lease).is_none()
        && unopposed::<H>(policy, ttl, now).is_ok()
}

/// Whether nobody but its holder can get past `lease` now, whatever its terms: [`contend`] does not call it over
/// or gone.
pub(crate) fn stands<H>(lease: &Lease<H>, seen: &Seen<'_>) -> bool {
    let mut answers = seen.answers.iter();
    !lease.lapsed(seen.now) && !answers.any(|answer| proves_dead(answer, lease))
}

/// What a request of another holder gets because of the lease of `key`, whether or not its holder was looked
/// at; `None` if it is over or its holder is proven gone.
pub(crate) fn refused_by<H: Holder>(
    key: &ResourceKey,
    lease: &Lease<H>,
    seen: &Seen<'_>,
) -> Option<Refusal<H>> {
    if lease.lapsed(seen.now) {
        return None;
    }
    // Terms that know no such proof do not listen to one.
    match occupancy(lease).and_then(|_| verdict(seen, lease)) {
        Some(Verdict::Dead(_)) => None,
        verdict => Some(refused(key, lease, seen.now, verdict)),
    }
}

fn refused<H: Holder>(
    key: &ResourceKey,
    lease: &Lease<H>,
    now: Moment,
    verdict: Option<&Verdict>,
) -> Refusal<H> {
    let held = Held::new(key, lease, now, verdict.cloned());
    match verdict {
        Some(Verdict::Unknown(_)) => Refusal::Uninspectable(held),
        _ => Refusal::Held(held),
    }
}

fn proves_dead<H>(answer: &Answer, lease: &Lease<H>) -> bool {
    answer.about == lease.token && matches!(answer.verdict, Verdict::Dead(_))
}

/// What a request gets where nothing is in its way: nothing that overlaps is held, and nobody waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The last moment of the term.
    pub(crate) expires: Option<Moment>,
    /// How the receipt calls it.
    pub(crate) code: Code,
}

/// Decides a request that has nothing in its way.
#[inline]
pub(crate) fn unopposed<H>(
    policy: &LeasePolicy,
    ttl: Option<Duration>,
    now: Moment,
) -> Result<Opening, Refusal<H>> {
    Ok(Opening {
        expires: first_expiry(policy, ttl, now).map_err(Refusal::Ttl)?,
        code: acquired_code(policy),
    })
}

/// What a request has to get past.
struct Way<H: Holder> {
    ended: Vec<Ending<H>>,
    /// The lease at the same resource, replaced on proof.
    previous: Option<Box<Ending<H>>>,
    asked: Vec<Question<H>>,
}

impl<H: Holder> Way<H> {
    /// Judges one lease of another holder that is in the way of a request for `own`.
    fn clear(
        &mut self,
        case: &Case<'_, H>,
        own: &ResourceKey,
        key: &ResourceKey,
        lease: &Lease<H>,
    ) -> Result<(), Refusal<H>> {
        match contend(case, key, lease) {
            Contention::Over => {
                self.ended
                    .push(case.reclaimed(key, lease, ObservedBy::Request));
            }
            Contention::Gone(ending) if ending.code == Code::TakenOver && key == own => {
                self.previous = Some(ending);
            }
            Contention::Gone(ending) => self.ended.push(neighbour(*ending, lease)),
            Contention::Ask(question) => self.asked.push(question),
            Contention::Refuse(refusal) => return Err(refusal),
        }
        Ok(())
    }
}

/// A lease ended on proof elsewhere than at the resource asked for is released for its holder.
fn neighbour<H>(ending: Ending<H>, lease: &Lease<H>) -> Ending<H> {
    if ending.code == Code::TakenOver {
        Ending {
            code: released_code(&lease.terms),
            ..ending
        }
    } else {
        ending
    }
}

/// What another holder's lease means for a request.
enum Contention<H: Holder> {
    /// Its term ended it.
    Over,
    /// Its holder is proven gone.
    Gone(Box<Ending<H>>),
    /// It must be known first whether its holder is there.
    Ask(Question<H>),
    /// It stands.
    Refuse(Refusal<H>),
}

/// Judges another holder's lease, by that lease's own terms.
fn contend<H: Holder>(case: &Case<'_, H>, key: &ResourceKey, lease: &Lease<H>) -> Contention<H> {
    let now = case.seen.now;
    if lease.lapsed(now) {
        return Contention::Over;
    }
    let Some(question) = Case::question(lease) else {
        return Contention::Refuse(refused(key, lease, now, None));
    };
    match case.verdict(lease) {
        None => Contention::Ask(question),
        Some(Verdict::Unknown(_)) if planted!(DoubtGrants) => Contention::Over,
        Some(Verdict::Dead(evidence)) => {
            let code = match lease.terms.ends_on().process {
                Some(_) => Code::TakenOver,
                None => Code::SessionEnded,
            };
            let detail = Detail::Released {
                held: now.since(lease.acquired),
                exited: true,
            };
            let ending = Ending::new(key, lease, code, detail);
            Contention::Gone(Box::new(Ending {
                evidence: Some(Box::new(evidence.clone())),
                ..ending
            }))
        }
        Some(verdict) => Contention::Refuse(refused(key, lease, now, Some(verdict))),
    }
}

/// Whom a request of `holder` must let go first.
fn behind<H: Holder>(site: &Site<'_, H>, holder: &H) -> Option<Box<Behind<H>>> {
    let scene = site.case.scene;
    if scene.queued.is_empty() {
        return None;
    }
    let ours = |lease: &Lease<H>| lease.holder == *holder && !lease.lapsed(site.case.seen.now);
    let own = scene
        .near
        .iter()
        .filter(|(_, cell)| cell.lease().is_some_and(ours));
    let own: Vec<_> = own.map(|(key, _)| *key).collect();
    let queued = scene.queued.iter().copied();
    let (waiter, key, by) = first_in_front((site.key, holder), &own, queued)?;
    Some(Behind::new(key, by, waiter))
}

/// The earliest of the waiters `queued` that a request of `holder` for `key` must let go first; `own` is what
/// that writer holds.
///
/// A waiter that a lease of the same writer blocks does not count: it waits for this very writer, and
/// the two would wait for each other. Nor does one that waits behind such a waiter.
pub(crate) fn first_in_front<'a, H: Holder>(
    (key, holder): (&ResourceKey, &H),
    own: &[&ResourceKey],
    queued: impl Iterator<Item = (WaiterId, &'a ResourceKey, &'a H)>,
) -> Option<(WaiterId, &'a ResourceKey, &'a H)> {
    let mut passed: Vec<(&ResourceKey, &H)> = Vec::new();
    for (waiter, wanted, by) in queued.filter(|&(.., by)| by != holder) {
        let waits_for_us =
            |&(other, whose): &(&ResourceKey, &H)| whose != by && other.overlaps(wanted);
        let blocked = own.iter().any(|own| own.overlaps(wanted));
        if !planted!(WaitsBehindItself) && (blocked || passed.iter().any(waits_for_us)) {
            passed.push((wanted, by));
        } else if wanted.overlaps(key) {
            return Some((waiter, wanted, by));
        }
    }
    None
}

/// Decides a further request of the present holder.
pub(super) fn again<H: Holder>(
    site: &Site<'_, H>,
    lease: &Lease<H>,
    at: At,
    ttl: Option<Duration>,
) -> Decision<H> {
    let now = site.case.seen.now;
    let expires = match renewed_expiry(lease, ttl, now) {
        Ok(expires) => expires,
        Err(refusal) => return Decision::Refuse(refusal),
    };
    let code = match lease.terms.again() {
        Again::Touch => Code::Reentrant,
        Again::Renew => Code::Renewed,
    };
    let own = Own::Edit {
        key: site.key.clone(),
        at,
        code,
        detail: touched(lease, now, expires),
        edit: Edit::Again { expires },
    };
    Decision::Change(site.case.plan(ObservedBy::Request, own))
}

/// What progress at `now` reports.
pub(super) fn touched<H>(lease: &Lease<H>, now: Moment, expires: Option<Moment>) -> Detail {
    Detail::Touched {
        before: lease.touched,
        after: lease.touched.max(now),
        expired_at: lease.expires,
        expires,
    }
}

/// The last moment of the term after a renewal, with or without an explicit ttl.
pub(super) fn renewed_expiry<H>(
    lease: &Lease<H>,
    ttl: Option<Duration>,
    now: Moment,
) -> Result<Option<Moment>, Refusal<H>> {
    match (ttl, lease.expires) {
        (Some(_), _) => {
            first_expiry(&lease.terms, ttl, now.max(lease.touched)).map_err(Refusal::Ttl)
        }
        // After its term a holder must say anew how long it wants to write.
        (None, Some(expired_at)) if lease.suspended(now) => Err(Refusal::Expired {
            token: lease.token,
            expired_at,
        }),
        (None, _) => Ok(lease.expires_after_touch(now)),
    }
}

/// The last moment of a term that starts at `now` under `terms`.
#[inline]
fn first_expiry(
    terms: &LeasePolicy,
    ttl: Option<Duration>,
    now: Moment,
) -> Result<Option<Moment>, TtlFault> {
    match (terms.term(), ttl) {
        (_, Some(Duration::ZERO)) => Err(TtlFault::Zero),
        (Term::None | Term::PerGrant { .. }, None) => Ok(None),
        (Term::None, Some(_)) => Err(TtlFault::NotNegotiable),
        (Term::Fixed(term), Some(ttl)) if ttl != term => Err(TtlFault::NotNegotiable),
        (Term::Fixed(term), _) => Ok(Some(now.after(term))),
        (Term::PerGrant { max }, Some(ttl)) => {
            let longest = max.map_or(TERM_MAX, |max| max.min(TERM_MAX));
            if ttl > longest {
                Err(TtlFault::TooLong { longest })
            } else {
                Ok(Some(now.after(ttl)))
            }
        }
    }
}
