//! Which roles need a writer lease.

use super::name::Role;

/// What a role needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "callers must decide every case")]
pub enum RoleAnswer {
    /// A writer lease.
    Required,
    /// No writer lease: the role writes through a gate of its own.
    NotApplicable,
    /// Nothing is known of such a role, so it may not write.
    Invalid,
}

impl RoleAnswer {
    /// Returns the stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "REQUIRED",
            Self::NotApplicable => "NOT_APPLICABLE",
            Self::Invalid => "INVALID_ROLE",
        }
    }
}

/// Says what roles need. No role is known here; an application knows its own.
///
/// A role that it does not know is [`RoleAnswer::Invalid`]: neither the unknown nor the future falls
/// into a permissive class. A closure is a classifier.
pub trait RoleClassifier {
    /// Says what this role needs.
    fn classify(&self, role: &Role) -> RoleAnswer;
}

impl<F: Fn(&Role) -> RoleAnswer> RoleClassifier for F {
    fn classify(&self, role: &Role) -> RoleAnswer {
        self(role)
    }
}
