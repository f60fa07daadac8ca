//! The stable form of a refusal.

use lease_core::Refusal;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::refused::Refused;

/// A number that every JSON reader keeps.
#[derive(serde::Serialize)]
struct Wide(#[serde(with = "crate::wire::wide")] u64);

impl Serialize for Refused {
    /// `code` first, `reason` where there is one, `text` for people, and what the caller needs to act.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("code", self.code().as_str())?;
        if let Some(reason) = self.reason() {
            map.serialize_entry("reason", reason)?;
        }
        map.serialize_entry("text", &self.to_string())?;
        match self {
            Self::RecordVersion { expected, found } => {
                map.serialize_entry("expected", &Wide(*expected))?;
                map.serialize_entry("found", &Wide(*found))?;
            }
            Self::Owner { declared } => map.serialize_entry("declared", declared)?,
            Self::Role { role } => map.serialize_entry("role", role)?,
            Self::Binding(error) => {
                map.serialize_entry("position", &error.index)?;
                map.serialize_entry("fault", &error.error.to_string())?;
            }
            Self::ForeignBindings { positions } => map.serialize_entry("positions", positions)?,
            Self::Lifecycle { state } => map.serialize_entry("state", state)?,
            Self::Drift(part) => map.serialize_entry("part", part.as_str())?,
            Self::ExitedOccupied(evidence) => map.serialize_entry("evidence", evidence)?,
            Self::Core(Refusal::Held(held) | Refusal::Uninspectable(held)) => {
                map.serialize_entry("lease", &held.token.lease)?;
                map.serialize_entry("generation", &held.token.generation)?;
                map.serialize_entry("holder", &held.by)?;
                map.serialize_entry("expired", &held.expired)?;
                if let Some(verdict) = &held.verdict {
                    map.serialize_entry("evidence", verdict.evidence())?;
                }
            }
            Self::Core(Refusal::Expired { token, expired_at }) => {
                map.serialize_entry("lease", &token.lease)?;
                map.serialize_entry("expires", expired_at)?;
            }
            Self::TargetUnreadable
            | Self::ForeignTarget
            | Self::StoreLock(_)
            | Self::Marker
            | Self::NoRepository
            | Self::Unmanaged
            | Self::Checkout(_)
            | Self::HolderChanged
            | Self::Holder(_)
            | Self::Place(_)
            | Self::HolderMissing { .. }
            | Self::PidConflict
            | Self::Metadata(_)
            | Self::Core(_) => {}
        }
        map.end()
    }
}
