//! Plants one fault after the other in the core, and looks for the law that finds it.

use std::time::Duration;

use lease_core::falsify::{Variant, set};

use super::{Limits, worlds};

/// How a planted fault was found.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Falsified {
    /// Which fault.
    pub variant: &'static str,
    /// What is wrong.
    pub about: &'static str,
    /// The law that found it; `None` if it survived.
    pub rule: Option<&'static str>,
    /// In which world.
    pub world: Option<&'static str>,
    /// What was seen instead of what the law says.
    pub what: String,
    /// The shortest history, one step a line.
    pub counterexample: Vec<String>,
}

/// The longest history that is tried.
const DEPTH: u32 = 5;

/// How long one world may take at one depth.
const TIME: Duration = Duration::from_secs(120);

/// Returns every fault that can be planted, with what is wrong.
pub fn variants() -> impl Iterator<Item = (&'static str, &'static str)> {
    Variant::ALL
        .iter()
        .map(|variant| (variant.name(), variant.about()))
}

/// Plants the fault of this name, explores every world ever deeper until a law is broken, and takes
/// the fault out again. `None` if there is no such fault.
///
/// It is there for the whole process meanwhile.
#[must_use]
pub fn falsify(name: &str) -> Option<Falsified> {
    let mut all = Variant::ALL.iter().copied();
    let variant = all.find(|variant| variant.name() == name)?;
    set(Some(variant));
    let falsified = search(variant);
    set(None);
    Some(falsified)
}

fn search(variant: Variant) -> Falsified {
    let worlds = worlds();
    for depth in 1..=DEPTH {
        for world in &worlds {
            let limits = Limits::new(Some(depth), u64::MAX, TIME);
            if let Some(broken) = world.explore(limits).broken {
                return Falsified {
                    variant: variant.name(),
                    about: variant.about(),
                    rule: Some(broken.law),
                    world: Some(world.name()),
                    what: broken.what,
                    counterexample: broken.history,
                };
            }
        }
    }
    Falsified {
        variant: variant.name(),
        about: variant.about(),
        rule: None,
        world: None,
        what: String::new(),
        counterexample: Vec::new(),
    }
}
