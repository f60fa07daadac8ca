//! Leases bound to a process, as far as the core decides them.
