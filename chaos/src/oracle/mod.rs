//! The judge of a history: bookkeeping of its own, made of what can be seen from outside.
//!
//! It uses no decision of the library, not even its notion of overlap or expiry. It believes receipts
//! only where something else confirms them: answers, listings, and the truth about who lives.

mod leases;
mod queue;
mod resource;
mod rule;

use std::collections::BTreeSet;

use lease_core::{
    Action, Answer, AuthorityId, By, Call, Change, Code, Detail, FencingToken, Holder, LeaseId,
    LeasePolicy, LeaseView, Moment, OpId, Provenance, Receipt, ResourceKey, Verdict, WaiterId,
};

use self::leases::{Leases, Replay};
use self::queue::{Queue, Scene, Waiting};
use self::rule::require;

pub use self::resource::ResourceLog;
pub use self::rule::{Breach, Rule};

/// Everything that was seen of one call.
#[derive(Clone, Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "whoever watches gives every part"
)]
pub struct Observed<'a, H: Holder> {
    /// What the clock read; it may have stepped back.
    pub read: Moment,
    /// What was done.
    pub deed: Deed<'a, H>,
    /// What was known about holders.
    pub answers: &'a [Answer],
    /// The receipts of this call.
    pub receipts: &'a [Receipt<H>],
    /// The waiting requests that were settled by this call, with the token of a grant.
    pub settled: &'a [(WaiterId, Option<FencingToken>)],
    /// What is listed afterwards.
    pub listed: &'a [Listed<H>],
    /// What is named as the next moment at which something is due.
    pub due: Due,
    /// How many places for keys and timers are in use, if that is known.
    pub footprint: Option<(usize, usize)>,
}

/// What was done to the authority, and what it said.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "whoever watches names every deed")]
pub enum Deed<'a, H: Holder> {
    /// A call, and its answer.
    Called(&'a Call<H>, Said),
    /// Time passed, or somebody looked.
    Advanced,
    /// A waiting request was taken back, or a grant that nobody received was given back.
    GaveBack(GaveBack),
}

/// What was given back without being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever watches names every case")]
pub enum GaveBack {
    /// A request.
    Request(WaiterId),
    /// A grant.
    Grant(FencingToken),
}

/// What an authority said, without the capability.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever watches names every answer"
)]
pub enum Said {
    /// A grant.
    Granted(FencingToken, Provenance),
    /// Done.
    Done(Change),
    /// These leases ended.
    Many(Vec<Change>),
    /// No.
    Refused(Code),
    /// Facts are missing.
    Asked,
    /// It waits.
    Queued(WaiterId),
}

/// One held lease as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "whoever watches gives every part"
)]
pub struct Listed<H> {
    /// What is held.
    pub resource: ResourceKey,
    /// Who holds it.
    pub holder: H,
    /// Which grant.
    pub token: FencingToken,
    /// When it was granted.
    pub acquired: Moment,
    /// The last progress.
    pub touched: Moment,
    /// The last moment of its term.
    pub expires: Option<Moment>,
    /// What is in flight, in order of begin.
    pub in_flight: Vec<OpId>,
    /// An operation ended with unknown effect.
    pub tainted: bool,
    /// How often it was handed over.
    pub handovers: u32,
}

/// What an authority names as the next moment at which something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "an authority names a moment or does not"
)]
pub enum Due {
    /// It names no such moments.
    Unnamed,
    /// Nothing is due, ever.
    Never,
    /// Something may be due at this moment, and nothing before.
    At(Moment),
}

/// Whether a holder is there: the truth, known to the world and not to the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "in truth it is there or it is not")]
pub enum Life {
    /// It, or work of it that counts, is there.
    Living,
    /// Nothing of it is there.
    Gone,
}

/// The judge of one history.
#[derive(Clone, Debug)]
pub struct Oracle<H: Holder> {
    policy: LeasePolicy,
    leases: Leases<H>,
    queue: Queue<H>,
    latest: Moment,
    last_seq: Option<lease_core::Seq>,
    newest: u64,
    authority: Option<AuthorityId>,
    /// Those that are gone for ever.
    past: BTreeSet<AuthorityId>,
    lease_ids: BTreeSet<LeaseId>,
    ended: BTreeSet<(u64, LeaseId)>,
    most_held: usize,
}

/// The most leases that one call sweeps.
const SWEPT: usize = 64;

impl<H: Holder> Oracle<H> {
    /// Starts to watch an authority that is new and empty.
    #[must_use]
    pub const fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            leases: Leases::new(),
            queue: Queue::new(),
            latest: Moment::ZERO,
            last_seq: None,
            newest: 0,
            authority: None,
            past: BTreeSet::new(),
            lease_ids: BTreeSet::new(),
            ended: BTreeSet::new(),
            most_held: 0,
        }
    }

    /// Says that the authority is gone with all it knew, and another stands in its place.
    pub fn restarted(&mut self) {
        let gone = self.authority;
        self.restored();
        self.past.extend(gone);
        self.authority = None;
    }

    /// Says that the authority was put back to its beginning, and knows nothing of what it granted.
    pub fn restored(&mut self) {
        let fresh = Self::new(self.policy.clone());
        let old = std::mem::replace(self, fresh);
        self.authority = old.authority;
        self.past = old.past;
        // Lease ids are random: none comes back.
        self.lease_ids = old.lease_ids;
    }

    /// Judges one call. `life` says who is there in truth.
    ///
    /// # Errors
    ///
    /// The first rule that was broken.
    pub fn judge(
        &mut self,
        seen: &Observed<'_, H>,
        life: &dyn Fn(&H, FencingToken) -> Life,
    ) -> Result<(), Breach> {
        self.latest = self.latest.max(seen.read);
        let waited = self.queue.len();
        for receipt in seen.receipts {
            self.receipt(receipt, seen, life)?;
        }
        self.most_held = self.most_held.max(self.leases.len());
        self.settled(seen)?;
        self.answered(seen, waited)?;
        self.leases.compare(seen.listed)?;
        self.quiet(seen)
    }

    /// Replays one receipt.
    fn receipt(
        &mut self,
        receipt: &Receipt<H>,
        seen: &Observed<'_, H>,
        life: &dyn Fn(&H, FencingToken) -> Life,
    ) -> Result<(), Breach> {
        let change = &receipt.change;
        require(
            self.last_seq.is_none_or(|last| last < change.seq),
            Rule::ReceiptsInOrder,
            || format!("{} came after {:?}", change.seq, self.last_seq),
        )?;
        self.last_seq = Some(change.seq);
        require(change.at == self.latest, Rule::TimeNeverRunsBack, || {
            format!("{receipt} is at {}, not at {}", change.at, self.latest)
        })?;
        if let Some(waiting) = Waiting::of(receipt) {
            return self.queue.receipt(&waiting, change.code);
        }
        for ending in self.leases.endings(receipt)? {
            self.end(&ending, seen, life)?;
        }
        match self.leases.replay(receipt, &self.policy)? {
            Replay::Created(token) => {
                self.created(token, receipt)?;
                self.queue.overtaken(receipt, seen.settled, &self.leases)
            }
            Replay::Other => Ok(()),
        }
    }

    /// Judges a new lease.
    fn created(&mut self, token: FencingToken, receipt: &Receipt<H>) -> Result<(), Breach> {
        let generation = token.generation.get();
        let authority = *self.authority.get_or_insert(token.authority);
        let is_new = authority == token.authority && !self.past.contains(&authority);
        require(is_new, Rule::AuthorityIsNew, || {
            format!("{receipt} carries the id of authority {}", token.authority)
        })?;
        require(
            self.lease_ids.insert(token.lease) && generation != self.newest,
            Rule::NoTokenTwice,
            || {
                format!(
                    "{receipt} repeats generation {generation} or lease {}",
                    token.lease
                )
            },
        )?;
        require(generation > self.newest, Rule::GenerationsGrow, || {
            format!("{receipt} came after generation {}", self.newest)
        })?;
        self.newest = generation;
        self.leases.one_holder(token)
    }

    /// Judges the end of a lease, which is still known.
    fn end(
        &mut self,
        ending: &leases::Ending<H>,
        seen: &Observed<'_, H>,
        life: &dyn Fn(&H, FencingToken) -> Life,
    ) -> Result<(), Breach> {
        let token = ending.lease.token;
        let by = || {
            format!(
                "generation {} of {:?} ended by {}",
                token.generation, ending.lease.holder, ending.code
            )
        };
        match ending.code {
            Code::Reclaimed => self.expired(&ending.lease)?,
            _ if ending.by_proof => {
                require(
                    ending.lease.proven(seen.answers),
                    Rule::DoubtNeverGrants,
                    || format!("{} without an answer that says dead", by()),
                )?;
                let there = life(&ending.lease.holder, token);
                require(there == Life::Gone, Rule::LivingAreNotEnded, || {
                    format!("{} while its holder was there", by())
                })?;
            }
            code => require(
                causes(seen, code, &ending.lease),
                Rule::EndsHaveCauses,
                || format!("{}, and no call asked for it", by()),
            )?,
        }
        unfinished(ending, &by)?;
        self.ended.insert((token.generation.get(), token.lease));
        Ok(())
    }

    fn expired(&self, lease: &leases::Lease<H>) -> Result<(), Breach> {
        let generation = lease.token.generation;
        require(lease.ops.is_empty(), Rule::InFlightShields, || {
            let count = lease.ops.len();
            format!("generation {generation} was reclaimed with {count} operations in flight")
        })?;
        let last = leases::term(&self.policy).map(|term| lease.touched.after(term));
        require(
            last.is_some_and(|last| self.latest > last),
            Rule::NoEarlyExpiry,
            || {
                format!(
                    "generation {generation}, touched at {}, was reclaimed at {}",
                    lease.touched, self.latest
                )
            },
        )
    }

    /// Judges which requests were settled.
    fn settled(&mut self, seen: &Observed<'_, H>) -> Result<(), Breach> {
        for (waiter, token) in seen.settled {
            let known = self.queue.settle(*waiter);
            let Some(token) = token else { continue };
            // A request that was settled before its receipt as queued was seen has no entry.
            let holder = known.map(|known| known.holder);
            self.granted(*token, holder.as_ref())?;
        }
        Ok(())
    }

    /// A grant that was answered is a lease that is listed, or ended since.
    fn granted(&self, token: FencingToken, holder: Option<&H>) -> Result<(), Breach> {
        let listed = self
            .leases
            .by_token(token)
            .is_some_and(|lease| holder.is_none_or(|holder| lease.holder == *holder));
        let ended = self.ended.contains(&(token.generation.get(), token.lease));
        require(listed || ended, Rule::GrantsEndOrAreListed, || {
            format!(
                "generation {} was granted to {holder:?} and is not listed",
                token.generation
            )
        })
    }

    /// Judges what was said.
    fn answered(&mut self, seen: &Observed<'_, H>, waited: usize) -> Result<(), Breach> {
        let (call, said) = match &seen.deed {
            Deed::Called(call, said) => (*call, said),
            Deed::GaveBack(GaveBack::Request(waiter)) => {
                self.queue.settle(*waiter);
                return Ok(());
            }
            Deed::GaveBack(GaveBack::Grant(_)) | Deed::Advanced => return Ok(()),
        };
        match said {
            Said::Granted(token, _) => {
                let holder = match &call.action {
                    Action::Acquire { holder, .. } | Action::Adopt { to: holder, .. } => {
                        Some(holder)
                    }
                    _ => None,
                };
                self.granted(*token, holder)
            }
            Said::Done(change) => {
                self.entitled(call, change, seen.answers)?;
                let last = seen
                    .receipts
                    .iter()
                    .rev()
                    .find(|receipt| receipt.change == *change);
                require(last.is_some(), Rule::ReceiptsReplay, || {
                    format!(
                        "{} {} was answered and has no receipt",
                        change.seq, change.code
                    )
                })
            }
            Said::Many(changes) => changes.iter().try_for_each(|change| {
                let known = seen
                    .receipts
                    .iter()
                    .any(|receipt| receipt.change == *change);
                require(known, Rule::ReceiptsReplay, || {
                    format!(
                        "{} {} was answered and has no receipt",
                        change.seq, change.code
                    )
                })
            }),
            Said::Queued(waiter) => self.queue.push(*waiter, call),
            Said::Refused(_) | Said::Asked => refused(seen, waited),
        }
    }

    /// Judges who was told that it may write.
    fn entitled(&self, call: &Call<H>, change: &Change, answers: &[Answer]) -> Result<(), Breach> {
        let (Code::Entitled, Action::Check(by)) = (change.code, &call.action) else {
            return Ok(());
        };
        let lease = change.token.and_then(|token| self.leases.by_token(token));
        let proofs = self.policy.ends_on();
        let asks = proofs.process.is_some() || proofs.session;
        let may = lease.is_some_and(|lease| match by {
            By::Token(at) => at.token == lease.token,
            By::Holder { holder, .. } => {
                lease.holder == *holder && (!asks || lease.seen_alive(answers))
            }
        });
        require(may, Rule::OnlyTheHolderIsEntitled, || {
            format!("{by:?} was told that it may write")
        })
    }

    /// Judges what is named as the next moment at which something is due.
    fn not_late(&self, named: Due) -> Result<(), Breach> {
        let due = self
            .leases
            .due(&self.policy)
            .into_iter()
            .chain(self.queue.edges())
            .min();
        let late = due.is_some_and(|due| match named {
            Due::Unnamed => false,
            Due::Never => true,
            Due::At(named) => named > due,
        });
        require(!late, Rule::NoLateDeadline, || {
            format!("{named:?} is named, due is {due:?}")
        })
    }

    /// Judges what is left after a call.
    fn quiet(&self, seen: &Observed<'_, H>) -> Result<(), Breach> {
        let swept = match &seen.deed {
            Deed::Called(call, _) => !matches!(call.action, Action::Disconnect(_)),
            Deed::Advanced => true,
            Deed::GaveBack(_) => false,
        };
        if let Deed::Called(call, _) = &seen.deed
            && let Action::Disconnect(holder) = &call.action
        {
            self.disconnected(holder)?;
        }
        if swept {
            self.leases.none_is_due(&self.policy, self.latest, SWEPT)?;
            self.queue.none_is_late(self.latest)?;
        }
        let answers = if swept { seen.answers } else { &[] };
        let scene = Scene {
            answers,
            policy: &self.policy,
            now: self.latest,
        };
        self.queue.nobody_could_go(&self.leases, &scene)?;
        self.not_late(seen.due)?;
        self.bounded(seen.footprint)
    }

    fn disconnected(&self, holder: &H) -> Result<(), Breach> {
        let held = self.policy.ends_on().disconnect && self.leases.holds_any(holder);
        require(
            !held && !self.queue.waits_any(holder),
            Rule::DisconnectIsComplete,
            || format!("{holder:?} disconnected and still holds or waits"),
        )
    }

    fn bounded(&self, footprint: Option<(usize, usize)>) -> Result<(), Breach> {
        let Some((places, timers)) = footprint else {
            return Ok(());
        };
        let keys = self.leases.keys().chain(self.queue.keys());
        let most_places: usize = keys.map(|key| key.as_str().split('/').count()).sum();
        let most_timers = self.most_held.saturating_mul(2).saturating_add(66);
        require(
            places <= most_places && timers <= most_timers,
            Rule::BoundedMemory,
            || format!("{places} places of {most_places}, {timers} timers of {most_timers}"),
        )
    }

    /// Returns the moments at which a term or a wait is over, for whoever wants to come close to one.
    pub fn edges(&self) -> impl Iterator<Item = Moment> {
        self.leases.edges().chain(self.queue.edges())
    }

    /// Returns the latest moment that was ever read.
    #[must_use]
    pub const fn latest(&self) -> Moment {
        self.latest
    }

    /// Returns what is held, as far as the receipts say.
    pub fn held(&self) -> impl Iterator<Item = Listed<H>> {
        self.leases.iter().map(leases::Lease::listed)
    }

    /// Returns whether `token` is of a lease that is held now.
    #[must_use]
    pub fn is_current(&self, token: FencingToken) -> bool {
        self.leases.by_token(token).is_some()
    }
}

/// A refusal may be preceded by a sweep only, and by whom that lets in.
fn refused<H: Holder>(seen: &Observed<'_, H>, waited: usize) -> Result<(), Breach> {
    if waited > 0 {
        return Ok(());
    }
    let harmless = |code| matches!(code, Code::Reclaimed | Code::ClockSteppedBack);
    let other = seen
        .receipts
        .iter()
        .find(|receipt| !harmless(receipt.change.code));
    require(other.is_none(), Rule::RefusalsChangeNothing, || {
        other.map_or_else(String::new, ToString::to_string)
    })
}

/// Whether a deed asks for the end of `lease` with `code`.
fn causes<H: Holder>(seen: &Observed<'_, H>, code: Code, lease: &leases::Lease<H>) -> bool {
    let (call, action) = match &seen.deed {
        Deed::Called(call, _) => (*call, &call.action),
        Deed::GaveBack(GaveBack::Grant(token)) => {
            return code == Code::Abandoned && lease.token == *token;
        }
        Deed::GaveBack(GaveBack::Request(_)) => return code == Code::Abandoned,
        Deed::Advanced => return false,
    };
    let here = call.resource.as_ref() == Some(&lease.resource);
    match (action, code) {
        (Action::Release(By::Token(at)), Code::Released | Code::LeaseReleased) => {
            here && at.token == lease.token
        }
        (Action::Release(By::Holder { holder, .. }), Code::Released | Code::LeaseReleased) => {
            here && *holder == lease.holder
        }
        (Action::End { at, op, .. }, Code::ReleasedAfterFailure) => {
            here && at.token == lease.token && lease.ops.contains(op)
        }
        (Action::End { at, op, .. }, Code::Abandoned) => {
            here && at.token == lease.token && *op == OpId::ACQUISITION
        }
        (Action::Disconnect(holder), Code::Disconnected) => *holder == lease.holder,
        (
            Action::Revoke {
                expected,
                even_if_alive,
                ..
            },
            Code::Revoked,
        ) => {
            let may = *even_if_alive || lease.proven(seen.answers);
            here && *expected == lease.token.generation && may
        }
        _ => false,
    }
}

/// A lease does not end under what may be half done.
fn unfinished<H: Holder>(
    ending: &leases::Ending<H>,
    by: &dyn Fn() -> String,
) -> Result<(), Breach> {
    let lease = &ending.lease;
    match (ending.code, ending.detail) {
        (Code::Released | Code::LeaseReleased, _) if !ending.by_proof => {
            require(lease.ops.is_empty(), Rule::ReleaseWaits, || {
                format!("{} with {} operations in flight", by(), lease.ops.len())
            })
        }
        (Code::ReleasedAfterFailure, Detail::Failed { op, disposition }) => {
            let proven = lease.goes_with(op, disposition);
            require(proven, Rule::FailureNeedsProofs, || {
                format!("{} with {disposition:?}", by())
            })
        }
        (Code::Abandoned, _) => require(lease.is_unused(), Rule::FailureNeedsProofs, || {
            format!("{} while it was in use", by())
        }),
        _ => Ok(()),
    }
}

/// Whether an answer proves the holder of a lease with this token and hand-over count gone.
fn proves(answers: &[Answer], token: FencingToken, handovers: u32) -> bool {
    answers
        .iter()
        .find(|answer| answer.about == token && answer.handovers == handovers)
        .is_some_and(|answer| matches!(answer.verdict, Verdict::Dead(_)))
}

/// Whether two names overlap: equal, or one continues the other after a slash.
fn overlap(a: &ResourceKey, b: &ResourceKey) -> bool {
    let (a, b) = (a.as_str(), b.as_str());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl From<Option<Moment>> for Due {
    fn from(named: Option<Moment>) -> Self {
        named.map_or(Self::Never, Self::At)
    }
}

impl<H: Holder> From<&LeaseView<H>> for Listed<H> {
    fn from(view: &LeaseView<H>) -> Self {
        Self {
            resource: view.resource.clone(),
            holder: view.holder.clone(),
            token: view.token,
            acquired: view.acquired,
            touched: view.touched,
            expires: view.expires,
            in_flight: view
                .in_flight
                .iter()
                .map(|operation| operation.id)
                .collect(),
            tainted: view.tainted,
            handovers: view.handovers,
        }
    }
}
