//! The plainest driver over the bare decision: one ordered map, looked through as a whole.
//!
//! It shares `decide` and `commit` with every backend and nothing with the registry: no tree, no heap,
//! no hints. It has no queue, so requests that would wait are refused.

use std::collections::BTreeMap;

use lease_core::{
    Action, AuthorityId, By, Call, Cell, Cells, Change, Decision, Disposition, Fresh, Generation,
    Grant, LeasePolicy, Locality, Moment, OpId, Outcome, Plan, Provenance, Question, Receipt,
    Refusal, ResourceKey, Scene, Seen, Seq, Slot, Step, Turn, WaiterId, decide, sweep,
};

use super::driver::{Answered, Driver};
use super::holder::SimHolder;
use crate::oracle::Listed;

/// An authority that is one map.
#[derive(Clone, Debug)]
pub struct Plain {
    authority: AuthorityId,
    policy: LeasePolicy,
    cells: Map,
    generation: u64,
    major: u64,
    latest: Moment,
    receipts: Vec<Receipt<SimHolder>>,
}

#[derive(Clone, Debug, Default)]
struct Map(BTreeMap<ResourceKey, Cell<SimHolder>>);

impl Cells<SimHolder> for Map {
    fn put(&mut self, key: &ResourceKey, cell: Cell<SimHolder>) -> Slot {
        self.0.insert(key.clone(), cell);
        Slot::NONE
    }

    fn edit(
        &mut self,
        key: &ResourceKey,
        _: Slot,
        edit: &mut dyn FnMut(&mut Cell<SimHolder>),
    ) -> Slot {
        if let Some(cell) = self.0.get_mut(key) {
            edit(cell);
        }
        Slot::NONE
    }

    fn remove(&mut self, key: &ResourceKey, _: Slot) {
        self.0.remove(key);
    }
}

impl Plain {
    fn observe(&mut self, turn: &mut Turn<'_>) {
        self.latest = self.latest.max(turn.seen.now);
        turn.seen.now = self.latest;
    }

    fn sweep(&mut self, action: &Action<SimHolder>, turn: &mut Turn<'_>) -> Vec<Change> {
        let mut due: Vec<_> = self.cells.0.iter().collect();
        due.sort_by_key(|(_, cell)| cell.lease().map(|lease| lease.token.generation));
        due.retain(|(_, cell)| {
            cell.lease()
                .is_some_and(|lease| lease.lapsed(turn.seen.now))
        });
        let scene = Scene {
            own: None,
            near: &[],
            queued: &[],
            due: &due,
        };
        let plan = sweep(&self.policy, &scene, action, &turn.seen);
        self.commit(plan, turn).1
    }

    fn decide(&self, call: &Call<SimHolder>, seen: &Seen<'_>) -> Decision<SimHolder> {
        let free = Cell::FREE;
        let own = call
            .resource
            .as_ref()
            .map(|key| (key, self.cells.0.get(key).unwrap_or(&free)));
        let counts =
            |key: &ResourceKey, cell: &Cell<SimHolder>| match (&call.resource, &call.action) {
                (_, Action::Disconnect(holder)) => {
                    cell.lease().is_some_and(|lease| lease.holder == *holder)
                }
                (Some(asked), _) => asked != key && asked.overlaps(key),
                (None, _) => false,
            };
        let near: Vec<_> = self
            .cells
            .0
            .iter()
            .filter(|(key, cell)| counts(key, cell))
            .collect();
        let scene = Scene {
            own,
            near: &near,
            queued: &[],
            due: &[],
        };
        decide(&self.policy, &scene, &call.action, seen)
    }

    fn commit(
        &mut self,
        plan: Plan<SimHolder>,
        turn: &mut Turn<'_>,
    ) -> (Option<Grant>, Vec<Change>) {
        let fresh = plan.created().then(|| {
            self.generation = self.generation.saturating_add(1);
            Generation::new(self.generation).map(|generation| Fresh {
                authority: self.authority,
                generation,
                lease: (turn.lease_id)(),
            })
        });
        let subjects: Vec<_> = plan
            .subjects()
            .map(|subject| {
                let parts = (subject.holder.copied(), subject.previous.copied());
                (subject.key.clone(), parts, subject.evidence.cloned())
            })
            .collect();
        let seq = Seq {
            major: self.major.saturating_add(1),
            minor: 0,
        };
        let mut changes = Vec::new();
        let grant = plan.commit(&mut self.cells, fresh.flatten(), seq, &mut |change| {
            changes.push(change);
        });
        for (change, (key, (holder, previous), evidence)) in changes.iter().zip(subjects) {
            let mut receipt = Receipt::new(*change);
            let held = || self.cells.0.get(&key)?.lease().map(|lease| lease.holder);
            receipt.holder = holder.or_else(held);
            receipt.previous = previous;
            receipt.evidence = evidence;
            receipt.resource = Some(key);
            self.receipts.push(receipt);
        }
        if let Some(last) = changes.last() {
            self.major = last.seq.major;
        }
        (grant, changes)
    }
}

impl Driver for Plain {
    fn start(authority: AuthorityId, policy: LeasePolicy) -> Self {
        Self {
            authority,
            policy,
            cells: Map::default(),
            generation: 0,
            major: 0,
            latest: Moment::ZERO,
            receipts: Vec::new(),
        }
    }

    fn call(&mut self, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        self.observe(turn);
        let swept = self.sweep(&call.action, turn);
        if let Action::Sweep = call.action {
            return Step::Done(Outcome::Many(swept));
        }
        match self.decide(call, &turn.seen) {
            Decision::Refuse(refusal) => Step::Done(Outcome::Refused(refusal)),
            Decision::Ask(mut questions) => {
                for question in &mut questions {
                    question.locality = Locality::ThisMachine;
                }
                Step::Ask(questions)
            }
            Decision::Change(plan) => {
                let (grant, changes) = self.commit(plan, turn);
                Step::Done(match (grant, changes.last(), &call.action) {
                    (_, _, Action::Disconnect(_)) | (None, None, _) => Outcome::Many(changes),
                    (Some(grant), Some(last), _) => Outcome::Granted(grant, *last),
                    (None, Some(last), _) => Outcome::Done(*last),
                    (Some(_), None, _) => Outcome::Refused(Refusal::Required),
                })
            }
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_>) -> Vec<Change> {
        self.observe(turn);
        self.sweep(&Action::Sweep, turn)
    }

    fn cancel(&mut self, _: WaiterId, _: &mut Turn<'_>) -> bool {
        false
    }

    fn abandon(&mut self, resource: &ResourceKey, grant: Grant, turn: &mut Turn<'_>) {
        self.observe(turn);
        if grant.provenance == Provenance::Reentrant {
            return;
        }
        let action = Action::End {
            at: grant.at,
            op: OpId::ACQUISITION,
            result: Err(Disposition::PreMutation),
        };
        let call = Call {
            resource: Some(resource.clone()),
            action,
            wait: lease_core::Wait::No,
        };
        if let Decision::Change(plan) = self.decide(&call, &turn.seen) {
            drop(self.commit(plan, turn));
        }
    }

    fn take_settled(&mut self) -> Option<Answered> {
        None
    }

    fn take_receipts(&mut self) -> Vec<Receipt<SimHolder>> {
        std::mem::take(&mut self.receipts)
    }

    fn listed(&self, _: Moment) -> Vec<Listed<SimHolder>> {
        let list = |(key, cell): (&ResourceKey, &Cell<SimHolder>)| {
            let lease = cell.lease()?;
            Some(Listed {
                resource: key.clone(),
                holder: lease.holder,
                token: lease.token,
                acquired: lease.acquired,
                touched: lease.touched,
                expires: lease.expires,
                in_flight: lease.ops.iter().map(|operation| operation.id).collect(),
                tainted: lease.tainted,
                handovers: lease.handovers,
            })
        };
        self.cells.0.iter().filter_map(list).collect()
    }

    fn raise_floor(&mut self, floor: Generation) {
        self.generation = self.generation.max(floor.get());
    }

    fn questions(&self) -> Vec<Question<SimHolder>> {
        Vec::new()
    }
}

/// How a lease is named where the token is all that is known.
pub(super) const fn by_token(token: lease_core::FencingToken) -> By<SimHolder> {
    By::Token(lease_core::At {
        token,
        slot: Slot::NONE,
    })
}
