//! What one history is played with; a seed decides it.

use std::time::Duration;

use lease_core::{LeasePolicy, PolicyError};

use super::random::Random;

/// The term of leases that have one.
pub(crate) const TERM: Duration = Duration::from_secs(30);

/// After how long without a sign of life the server ends a session, in nanoseconds.
pub(crate) const SERVER_SESSION_NANOS: u64 = 10_000_000_000;

/// The names of what can be leased: ancestors, descendants and strangers.
pub(crate) const KEYS: [&str; 6] = ["a", "a/b", "a/b/c", "a/d", "a/bc", "e"];

/// Where bytes can be written: under each name that has nothing below it.
pub(crate) const PLACES: [&str; 4] = ["a/b/c", "a/d", "a/bc", "e"];

/// Under which terms leases are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    Sessions,
    HostedSessions,
    Processes,
    ServerSessions,
}

/// The setting of one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) terms: Terms,
    pub(crate) seats: u8,
    /// How many of [`KEYS`] are used: few make quarrels, many make overlaps.
    pub(crate) keys: u8,
    /// Whether processes have inodes.
    pub(crate) pidfs: bool,
    /// How many millionths the authority's clock runs too fast.
    pub(crate) drift: i64,
    pub(crate) steps: u16,
}

impl Terms {
    pub(crate) fn policy(self) -> Result<LeasePolicy, PolicyError> {
        match self {
            Self::Sessions => LeasePolicy::session_ttl(TERM),
            Self::HostedSessions => LeasePolicy::hosted_session(TERM),
            Self::Processes => Ok(LeasePolicy::process_bound()),
            Self::ServerSessions => Ok(LeasePolicy::server_session()),
        }
    }

    /// Whether a holder is a process, or sits in one.
    pub(crate) const fn has_processes(self) -> bool {
        matches!(self, Self::HostedSessions | Self::Processes)
    }

    /// Whether a holder has a connection.
    pub(crate) const fn has_sessions(self) -> bool {
        !matches!(self, Self::Processes)
    }
}

impl Config {
    /// Draws the setting of a history under `terms`.
    pub(crate) fn draw(terms: Terms, random: &mut Random) -> Self {
        Self {
            terms,
            seats: 2 + random.small(3),
            keys: 1 + random.small(6),
            pidfs: random.percent(60),
            drift: random
                .one(&[0, 0, 0, 0, 200, -200, 50_000, -50_000])
                .unwrap_or(0),
            steps: 20 + u16::from(random.small(100)),
        }
    }
}
