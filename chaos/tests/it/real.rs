//! Real faults.
