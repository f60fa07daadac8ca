//! The worlds that are explored.

use std::time::Duration;

use lease_core::{LeasePolicy, PolicyError};

use super::store::Compare;
use super::world::{Setup, TERM, Verb};
use super::{Kind, World};

/// What sessions do.
const SESSIONS: &[Verb] = &[
    Verb::Touch,
    Verb::Operate,
    Verb::Disconnect,
    Verb::Wait,
    Verb::WaitUntil,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Adopt,
    Verb::Revoke,
    Verb::Time,
];

/// What sessions do whose process can be asked after.
const HOSTED: &[Verb] = &[
    Verb::Touch,
    Verb::Operate,
    Verb::Disconnect,
    Verb::Wait,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Adopt,
    Verb::Revoke,
    Verb::Time,
    Verb::Proof,
];

/// What processes do: they hand over by ticket, and renew.
const PROCESSES: &[Verb] = &[
    Verb::Renew,
    Verb::Operate,
    Verb::Disconnect,
    Verb::Wait,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Offer,
    Verb::Adopt,
    Verb::Revoke,
    Verb::Time,
    Verb::Proof,
];

/// What sessions do that a server keeps: they have no term.
const SERVERS: &[Verb] = &[
    Verb::Touch,
    Verb::Operate,
    Verb::Disconnect,
    Verb::Wait,
    Verb::WaitUntil,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Adopt,
    Verb::Revoke,
    Verb::Time,
    Verb::Proof,
];

/// What sessions do again and again.
const CLOSURE: &[Verb] = &[
    Verb::Touch,
    Verb::Operate,
    Verb::Disconnect,
    Verb::Wait,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Adopt,
    Verb::Revoke,
    Verb::Time,
];

/// What matters to the queue.
const QUEUE: &[Verb] = &[
    Verb::Disconnect,
    Verb::Wait,
    Verb::Cancel,
    Verb::Abandon,
    Verb::Adopt,
];

/// The two resources of most worlds: one lies below the other.
const NESTED: [&str; 2] = ["p", "p/c"];

/// Returns every world, the large ones first.
///
/// # Errors
///
/// [`PolicyError`] never: the terms are written here.
pub(super) fn all() -> Result<Vec<World>, PolicyError> {
    let term = Duration::from_nanos(TERM);
    let sessions = LeasePolicy::session_ttl(term)?;
    let hosted = LeasePolicy::hosted_session(term)?;
    let mut worlds = of_sessions(&sessions);
    worlds.extend([
        World {
            name: "hosted-sessions",
            about: "every history of 7 actions of 3 sessions whose process can be asked after",
            depth: Some(7),
            kind: Kind::Registry(setup(3, &NESTED, &hosted, HOSTED)),
        },
        World {
            name: "processes",
            about: "every history of 7 actions of 3 processes that hand over and renew",
            depth: Some(7),
            kind: Kind::Registry(setup(
                3,
                &NESTED,
                &LeasePolicy::process_bound(),
                PROCESSES,
            )),
        },
        World {
            name: "server-sessions",
            about: "every history of 6 actions of 3 sessions that a server keeps",
            depth: Some(6),
            kind: Kind::Registry(setup(3, &NESTED, &LeasePolicy::server_session(), SERVERS)),
        },
        World {
            name: "two-steps",
            about: "every interleaving of 7 readings and commits of 3 clients of a store that compares and sets",
            depth: Some(7),
            kind: Kind::Store(
                Setup {
                    most_operations: 1,
                    most_waits: 2,
                    ..setup(3, &NESTED, &hosted, &[])
                },
                Compare::Scene,
            ),
        },
        World {
            name: "gate",
            about: "every history of any length of a gate: 3 authorities, 3 generations, 2 leases of each",
            depth: None,
            kind: Kind::Gate,
        },
    ]);
    Ok(worlds)
}

fn of_sessions(sessions: &LeasePolicy) -> Vec<World> {
    vec![
        World {
            name: "sessions",
            about: "every history of 7 actions of 3 sessions at 2 overlapping resources",
            depth: Some(7),
            kind: Kind::Registry(setup(3, &NESTED, sessions, SESSIONS)),
        },
        World {
            name: "queue",
            about: "every history of 7 requests, hand-overs and ends at 3 resources, two of them apart",
            depth: Some(7),
            kind: Kind::Registry(setup(3, &["p", "p/a", "p/b"], sessions, QUEUE)),
        },
        World {
            name: "closure",
            about: "every history of any length of 2 sessions, with 1 operation and 2 waits at a time",
            depth: None,
            kind: Kind::Registry(Setup {
                most_operations: 1,
                most_waits: 2,
                ..setup(2, &NESTED, sessions, CLOSURE)
            }),
        },
    ]
}

fn setup(writers: usize, keys: &[&str], policy: &LeasePolicy, verbs: &'static [Verb]) -> Setup {
    Setup {
        writers: Setup::writers(writers),
        keys: Setup::keys(keys),
        policy: policy.clone(),
        verbs,
        most_operations: 2,
        most_waits: 4,
    }
}
