//! The in-process guard, rule by rule.
