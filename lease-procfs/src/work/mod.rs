//! What is left of a holder's work: members of its process group, and users of its paths.

mod ancestry;
mod command;
mod group;
#[cfg(target_os = "linux")]
mod kin;
mod maps;
mod occupants;
mod pass;
mod paths;
#[cfg(target_os = "linux")]
mod reader;
mod rest;
#[cfg(target_os = "linux")]
mod source;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
#[cfg_attr(target_os = "linux", path = "reading.rs")]
mod system;
mod uses;

pub use ancestry::{Exclusion, OccupancyExclusion, ancestry};
pub use command::command_text;
pub use group::{GroupLiveness, Member, Members, ProcessGroup};
pub use maps::mapped_path;
pub use occupants::{Occupant, Occupants, PathUse, UsedBy};
pub use pass::{Pass, ScanError};

pub(crate) use rest::{Commands, RecordedGroups, Rules, Visibility, Work};
