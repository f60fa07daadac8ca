//! A second driver, over a sorted map: it fetches its own scenes and sweeps by itself, as a store would.

use std::collections::BTreeMap;

use lease_core::{
    Action, Call, Cell, Cells, Change, Code, Decision, Disposition, Fresh, Grant, LeasePolicy,
    Moment, OpId, Outcome, Plan, Provenance, ResourceKey, Seen, Seq, SessionHolder, Slot, Step,
    decide, sweep,
};

use crate::history::{always, token};
use crate::stage::{Act, Said, Scene, Stage, play, said};

/// Cells by resource. It has no use for places.
#[derive(Debug, Default)]
struct Sorted(BTreeMap<ResourceKey, Cell<SessionHolder>>);

impl Cells<SessionHolder> for Sorted {
    fn put(&mut self, key: &ResourceKey, cell: Cell<SessionHolder>) -> Slot {
        self.0.insert(key.clone(), cell);
        Slot::NONE
    }

    fn edit(
        &mut self,
        key: &ResourceKey,
        _: Slot,
        edit: &mut dyn FnMut(&mut Cell<SessionHolder>),
    ) -> Slot {
        edit(self.0.get_mut(key).unwrap());
        Slot::NONE
    }

    fn remove(&mut self, key: &ResourceKey, _: Slot) {
        self.0.remove(key).unwrap();
    }
}

/// An authority with no queue.
struct Driver {
    policy: LeasePolicy,
    cells: Sorted,
    generations: u64,
    major: u64,
    now: Moment,
}

impl Driver {
    fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            cells: Sorted::default(),
            generations: 0,
            major: 0,
            now: Moment::ZERO,
        }
    }

    fn call(&mut self, call: &Call<SessionHolder>, mut seen: Seen<'_>) -> Step<SessionHolder> {
        self.now = self.now.max(seen.now);
        seen.now = self.now;
        let swept = self.sweep(&call.action, &seen);
        let free = Cell::FREE;
        let cells = &self.cells.0;
        let near: Vec<_> = match &call.resource {
            Some(key) => {
                let others = cells.iter().filter(|(other, _)| *other != key);
                others.filter(|(other, _)| other.overlaps(key)).collect()
            }
            // More than it needs: what is not the holder's must not be touched.
            None => cells.iter().collect(),
        };
        let own = call.resource.as_ref();
        let scene = lease_core::Scene {
            own: own.map(|key| (key, cells.get(key).unwrap_or(&free))),
            near: &near,
            queued: &[],
            due: &[],
        };
        match decide(&self.policy, &scene, &call.action, &seen) {
            Decision::Ask(questions) => Step::Ask(questions),
            Decision::Refuse(refusal) => Step::Done(Outcome::Refused(refusal)),
            Decision::Change(plan) => {
                let (grant, mut changes) = self.commit(plan);
                Step::Done(match (&call.action, grant) {
                    (Action::Sweep, _) => Outcome::Many(swept),
                    (Action::Disconnect(_), _) => Outcome::Many(changes),
                    (_, Some(grant)) => Outcome::Granted(grant, changes.pop().unwrap()),
                    (_, None) => Outcome::Done(changes.pop().unwrap()),
                })
            }
        }
    }

    /// Ends what is over, 64 at most, the oldest first.
    fn sweep(&mut self, action: &Action<SessionHolder>, seen: &Seen<'_>) -> Vec<Change> {
        let mut due: Vec<_> = self.cells.0.iter().collect();
        due.sort_by_key(|(_, cell)| cell.lease().unwrap().token.generation);
        due.retain(|(_, cell)| cell.lease().unwrap().lapsed(seen.now));
        due.truncate(64);
        let scene = lease_core::Scene {
            own: None,
            near: &[],
            queued: &[],
            due: &due,
        };
        let plan = sweep(&self.policy, &scene, action, seen);
        self.commit(plan).1
    }

    fn commit(&mut self, plan: Plan<SessionHolder>) -> (Option<Grant>, Vec<Change>) {
        let fresh = plan.created().then(|| {
            self.generations += 1;
            let token = token(self.generations);
            Fresh {
                authority: token.authority,
                generation: token.generation,
                lease: token.lease,
            }
        });
        self.major += 1;
        let (major, mut changes) = (self.major, Vec::new());
        let seq = Seq { major, minor: 0 };
        let grant = plan.commit(&mut self.cells, fresh, seq, &mut |change| {
            changes.push(change);
        });
        (grant, changes)
    }
}

/// The scene for an authority where nobody waits and nobody holds a grant object.
fn plain(scene: &Scene) -> Option<(Scene, Call<SessionHolder>)> {
    let call = |resource, action| Call {
        resource,
        action,
        wait: lease_core::Wait::No,
    };
    let call = match &scene.act {
        Act::Call(given) => call(given.resource.clone(), given.action.clone()),
        Act::Advance | Act::List => call(None, Action::Sweep),
        Act::Abandon {
            resource,
            token,
            provenance: Provenance::Created,
            ..
        } => {
            let (at, op, result) = (
                (*token).into(),
                OpId::ACQUISITION,
                Err(Disposition::PreMutation),
            );
            call(Some(resource.clone()), Action::End { at, op, result })
        }
        Act::Abandon { .. } | Act::Cancel(_) | Act::Receive => return None,
    };
    let act = Act::Call(call.clone());
    Some((
        Scene {
            act,
            ..scene.clone()
        },
        call,
    ))
}

/// Which of several leases in the way is named first depends on the order of the scene.
fn unordered(said: Said) -> Said {
    let held = [Code::LeaseHeld, Code::WriteConflict, Code::InvalidHolder];
    match said {
        Said::Refused(codes) if codes.iter().any(|code| held.contains(code)) => {
            Said::Refused(held.into())
        }
        said => said,
    }
}

#[test]
fn another_driver_answers_as_the_registry_does() {
    always(file!(), |history| {
        let mut stage = Stage::new(history.terms);
        let mut driver = Driver::new(history.terms.policy());
        let mut scenes = Vec::new();
        play(&history, |played| scenes.push(played.scene.clone()));
        for (scene, call) in scenes.iter().filter_map(plain) {
            let shown = stage.perform(&scene);
            let mut seen = Seen::at(scene.now);
            seen.answers = &scene.answers;
            let answered = said(driver.call(&call, seen), &call, &mut Vec::new());
            assert_eq!(unordered(answered), unordered(shown.said));
            assert_eq!(stage.registry.held(), driver.cells.0.len());
            for (key, cell) in &driver.cells.0 {
                assert_eq!(stage.registry.lease(key), cell.lease());
            }
        }
    });
}
