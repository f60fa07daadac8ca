//! A model application whose six kinds of work all go through admission.

use std::collections::BTreeMap;

use lease_core::{Disposition, Grant, OpId, OperationKind, Provenance, SessionHolder};

use super::Told;
use super::incident::{stage, unbegun};
use super::stage::{Answered, Stage};
use crate::oracle::Rule;

const VIEWPORT: &str = "app/viewport";

/// Objects with properties, and a history that can be walked back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Application {
    objects: Objects,
    past: Vec<Objects>,
    future: Vec<Objects>,
}

type Objects = BTreeMap<String, BTreeMap<String, u32>>;

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Creates an object.
    Create(&'static str),
    /// Sets a property; values above 100 are refused before anything changes.
    SetProperty(&'static str, &'static str, u32),
    /// Calls a method, which is code of somebody else: it changes something and then raises.
    CallMethod(&'static str),
    /// Undoes the last change.
    Undo,
    /// Does again what was undone.
    Redo,
    /// Destroys an object; one that is pinned is put back as it was.
    Destroy(&'static str),
}

/// Why a piece of work failed, and what it says of its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Why.
    why: &'static str,
    /// What the application claims.
    claims: Option<Disposition>,
}

impl Work {
    /// Returns the kind.
    pub(super) const fn kind(self) -> OperationKind {
        match self {
            Self::Create(_) => OperationKind::Create,
            Self::SetProperty(..) => OperationKind::SetProperty,
            Self::CallMethod(_) => OperationKind::CallMethod,
            Self::Undo => OperationKind::Undo,
            Self::Redo => OperationKind::Redo,
            Self::Destroy(_) => OperationKind::Destroy,
        }
    }
}

impl Application {
    /// Does one piece of work.
    ///
    /// # Errors
    ///
    /// [`Failure`], with a claim where the application knows what it left behind.
    pub(super) fn work(&mut self, work: Work) -> Result<(), Failure> {
        let before = self.objects.clone();
        match work {
            Work::Create(name) => {
                self.objects.insert(name.to_owned(), BTreeMap::new());
                self.changed(before);
            }
            Work::SetProperty(_, _, value) if value > 100 => {
                let claims = Some(Disposition::PreMutation);
                return Err(Failure {
                    why: "value out of range",
                    claims,
                });
            }
            Work::SetProperty(name, property, value) => {
                let object = self.objects.entry(name.to_owned()).or_default();
                object.insert(property.to_owned(), value);
                self.changed(before);
            }
            Work::CallMethod(name) => {
                let object = self.objects.entry(name.to_owned()).or_default();
                object.insert("touched by a method".to_owned(), 1);
                // It says that nothing happened. It cannot know.
                let claims = Some(Disposition::PreMutation);
                return Err(Failure {
                    why: "the method raised",
                    claims,
                });
            }
            Work::Undo => {
                if let Some(objects) = self.past.pop() {
                    self.future
                        .push(std::mem::replace(&mut self.objects, objects));
                }
            }
            Work::Redo => {
                if let Some(objects) = self.future.pop() {
                    self.past
                        .push(std::mem::replace(&mut self.objects, objects));
                }
            }
            Work::Destroy(name) => {
                self.objects.remove(name);
                self.objects = before;
                let claims = Some(Disposition::RolledBack);
                return Err(Failure {
                    why: "the object is pinned",
                    claims,
                });
            }
        }
        Ok(())
    }

    fn changed(&mut self, before: Objects) {
        self.past.push(before);
        self.future.clear();
    }
}

/// The work of the story: every kind, well and badly.
const WORK: [Work; 7] = [
    Work::Create("camera"),
    Work::SetProperty("camera", "zoom", 40),
    Work::SetProperty("camera", "zoom", 400),
    Work::CallMethod("camera"),
    Work::Undo,
    Work::Redo,
    Work::Destroy("camera"),
];

/// One piece of work behind admission: a grant, an operation in flight, the work, its end.
fn admitted(
    stage: &mut Stage<SessionHolder>,
    writer: &SessionHolder,
    application: &mut Application,
    (number, work): (u8, Work),
) -> Option<(Provenance, Answered)> {
    let Grant { at, provenance, .. } = stage.ask(VIEWPORT, writer)?;
    let op = OpId::from_bytes([number.saturating_add(1); 16]);
    let kind = work.kind();
    let begun = stage
        .note(kind.name(), "begun")
        .begin(VIEWPORT, at, op, provenance);
    stage.demand(
        matches!(begun, Answered::Done(_)),
        Rule::EffectsAreSeen,
        "no operation began",
    );
    let result = application.work(work).map_err(|failure| {
        let claim = kind.claim(failure.claims);
        let set_aside = if claim.overruled {
            ", its claim is set aside"
        } else {
            ""
        };
        stage.note(kind.name(), &format!("{}{set_aside}", failure.why));
        claim.disposition
    });
    if result.is_ok() {
        stage.note(kind.name(), "done");
    }
    Some((provenance, stage.end(VIEWPORT, at, op, result)))
}

/// Runs all kinds of work with the guard, and compares with a run without it.
pub(super) fn all_kinds_of_work() -> Told {
    let Some((mut stage, mcp, _)) = stage() else {
        return unbegun();
    };
    let (mut guarded, mut unguarded) = (Application::default(), Application::default());
    let mut provenances = Vec::new();
    for (number, work) in (0_u8..).zip(WORK) {
        stage.at(1_000_000 + u64::from(number) * 100);
        let admitted = admitted(&mut stage, &mcp, &mut guarded, (number, work));
        let ended = matches!(admitted, Some((_, Answered::Done(_))));
        stage.demand(
            ended,
            Rule::EffectsAreSeen,
            format!("{work:?} was not admitted"),
        );
        provenances.extend(admitted.map(|(provenance, _)| provenance));
        // What the application itself says is not the guard's business.
        let _the_same_answer = unguarded.work(work);
        let held = stage.listed();
        let held = held
            .first()
            .is_some_and(|listed| listed.token.generation.get() == 1);
        stage.demand(
            held,
            Rule::GrantsEndOrAreListed,
            format!("nothing is held after {work:?}"),
        );
    }
    let created = provenances
        .iter()
        .filter(|from| **from == Provenance::Created)
        .count();
    let once = provenances.len() == WORK.len() && created == 1;
    stage.demand(
        once && provenances.first() == Some(&Provenance::Created),
        Rule::EffectsAreSeen,
        "created once and first",
    );
    stage.demand(
        guarded == unguarded,
        Rule::EffectsAreSeen,
        "the guard changed what the application did",
    );
    stage.tell(format!("the application holds {:?}", guarded.objects));
    stage.disconnect(&mcp);
    let empty = stage.listed().is_empty();
    stage.demand(
        empty,
        Rule::DisconnectIsComplete,
        "something is held after the disconnect",
    );
    stage.told()
}
