//! Kinds of work, and what a failure of each may claim.

use crate::cell::Disposition;

/// What kind of work an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OperationKind {
    /// Calls a method of the application: arbitrary code.
    CallMethod,
    /// Creates an object.
    Create,
    /// Destroys an object.
    Destroy,
    /// Does again what was undone.
    Redo,
    /// Sets a property.
    SetProperty,
    /// Undoes the last change.
    Undo,
}

/// What a failure counts as, and whether its claim was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// What the failure counts as.
    pub disposition: Disposition,
    /// More was claimed than this kind of work can know.
    pub overruled: bool,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::CallMethod,
        Self::Create,
        Self::Destroy,
        Self::Redo,
        Self::SetProperty,
        Self::Undo,
    ];

    /// Decides what a failure of this kind counts as, given what its caller claims.
    ///
    /// Without a claim the effect is unknown. A method call runs arbitrary code, so whatever it claims
    /// counts as unknown.
    #[must_use]
    pub const fn claim(self, claimed: Option<Disposition>) -> Claim {
        match (self, claimed) {
            (_, None | Some(Disposition::Unknown)) => Claim {
                disposition: Disposition::Unknown,
                overruled: false,
            },
            (Self::CallMethod, Some(Disposition::PreMutation | Disposition::RolledBack)) => Claim {
                disposition: Disposition::Unknown,
                overruled: true,
            },
            (
                Self::Create | Self::Destroy | Self::Redo | Self::SetProperty | Self::Undo,
                Some(disposition),
            ) => Claim {
                disposition,
                overruled: false,
            },
        }
    }

    /// Returns the stable name, for [`Note::by`](crate::Note).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallMethod => "call_method",
            Self::Create => "create",
            Self::Destroy => "destroy",
            Self::Redo => "redo",
            Self::SetProperty => "set_property",
            Self::Undo => "undo",
        }
    }
}
