//! Random histories against a naive reference.
