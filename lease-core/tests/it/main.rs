//! Behaviour of the core, through the registry and through the bare decision.

#[cfg(test)]
mod connections;
#[cfg(test)]
mod crowds;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod handover;
#[cfg(test)]
mod history;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod large;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod model;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod process_bound;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod release;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod scoped;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod terms;
#[cfg(test)]
mod token;
#[cfg(test)]
mod waiting;
#[cfg(feature = "serde")]
#[cfg(test)]
mod wire;
#[cfg(test)]
mod words;
