//! The decision for kernel locks.
