//! Every bound of the core, in one place.

use core::time::Duration;

/// The longest resource key, in bytes of UTF-8.
pub const KEY_BYTES: usize = 512;

/// The most segments of a resource key.
pub const KEY_SEGMENTS: usize = 32;

/// The longest agent or session name, in bytes of UTF-8.
pub const NAME_BYTES: usize = 256;

/// The largest generation: 2^53 - 1, so that every JSON reader and SQLite keep it exactly.
pub const GENERATION_MAX: u64 = (1 << 53) - 1;

/// The longest term: 100 years of 365 days. Longer ones are slips of a unit, not wishes.
pub const TERM_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The most leases that one call sweeps.
pub const SWEEP_LEASES: usize = 64;

/// The most operations in flight under one lease.
pub const OPERATIONS: usize = 1_024;

/// The most requests that wait in one registry.
pub const WAITERS: usize = 1 << 20;

/// The most requests of one holder that wait in one registry.
pub const HOLDER_WAITERS: usize = 1_024;

/// The longest free text in evidence and operator notes, in bytes; longer text is cut.
pub const TEXT_BYTES: usize = 256;

/// The most occupants that evidence names.
pub const OCCUPANTS: usize = 16;
