//! Keys, names, identifiers and moments.
