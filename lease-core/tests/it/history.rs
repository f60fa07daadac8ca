//! Random histories: a small world, and what people do in it.
//!
//! A [`Beat`] says what is done in words that fit any state ("the newest token of `p`"). A
//! [stage](crate::stage) turns it into a scene with the very tokens, moments and answers, which can be
//! played again, on another stage and against the [reference](crate::reference).

use core::time::Duration;

use lease_core::{
    AuthorityId, Disposition, Evidence, FencingToken, Generation, LeaseId, LeasePolicy, Provenance,
    SessionHolder, Verdict,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::rig::{TTL_MS, session_ttl, who};

/// The resources: a tree of four levels of overlap, and one that overlaps nothing.
pub(crate) const KEYS: [&str; 6] = ["p", "p/a", "p/b", "p/b/x", "p/b/y", "q"];

pub(crate) const AUTHORITY: AuthorityId = AuthorityId::from_bytes([0xA1; 16]);

/// The terms that somebody may ask for.
const TTLS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(TTL_MS),
];

pub(crate) fn term(number: Option<usize>) -> Option<Duration> {
    number.map(|number| TTLS[number])
}

/// The writers. The first two are two sessions of one agent.
pub(crate) fn writer(number: usize) -> SessionHolder {
    match number {
        0 => who("ag-1", "s-1"),
        1 => who("ag-1", "s-2"),
        _ => who("ag-2", "s-3"),
    }
}

/// The id of the lease with this generation, on every stage and in the reference.
pub(crate) fn lease_id(generation: u64) -> LeaseId {
    LeaseId::from_random((u128::from(generation) * 0x9E37_79B9_7F4A_7C15).to_be_bytes())
}

pub(crate) fn token(generation: u64) -> FencingToken {
    FencingToken {
        authority: AUTHORITY,
        generation: Generation::new(generation).unwrap(),
        lease: lease_id(generation),
    }
}

/// Under which terms a history happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    SessionTtl,
    HostedSession,
    ProcessBound,
    ServerSession,
}

impl Terms {
    pub(crate) const ALL: [Self; 4] = [
        Self::SessionTtl,
        Self::HostedSession,
        Self::ProcessBound,
        Self::ServerSession,
    ];

    pub(crate) fn policy(self) -> LeasePolicy {
        match self {
            Self::SessionTtl => session_ttl(),
            Self::HostedSession => {
                LeasePolicy::hosted_session(Duration::from_millis(TTL_MS)).unwrap()
            }
            Self::ProcessBound => LeasePolicy::process_bound(),
            Self::ServerSession => LeasePolicy::server_session(),
        }
    }
}

/// How a holder is found when somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    Dead,
    Occupied,
    Unknown,
}

impl Fate {
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Self::Alive => Verdict::Alive(Evidence::new("alive")),
            Self::Dead => Verdict::Dead(Evidence::new("dead")),
            Self::Occupied => Verdict::Occupied(Evidence::new("occupied")),
            Self::Unknown => Verdict::Unknown(Evidence::new("unknown")),
        }
    }
}

/// Which token somebody shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// Of this one of the present leases; of the newest that there was, if nothing is held.
    Present(usize),
    /// That many grants ago, whatever became of it.
    Old(usize),
    /// As `Present`, with another lease id.
    Forged(usize),
}

/// How time passes before something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lapse {
    Stays,
    Nanos(u64),
    /// Up to the last moment of that lease's term, and so many nanoseconds on.
    Edge(usize, i64),
    /// Up to the next deadline, and so many nanoseconds on.
    Deadline(i64),
    /// The clock is set back.
    Back(u64),
}

/// How long a request may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    /// So many nanoseconds.
    For(u64),
    Forever,
}

/// What somebody does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Acquire {
        key: usize,
        who: usize,
        ttl: Option<usize>,
        patience: Patience,
    },
    Touch(Pick),
    Renew(Pick, Option<usize>),
    Begin(Pick, u8, Provenance),
    /// Any number from 3 on is the operation in flight.
    End(Pick, u8, Result<(), Disposition>),
    Release(Pick),
    ReleaseAs {
        which: Pick,
        /// Any number from 3 on is the present holder.
        who: usize,
        named: bool,
        exited: bool,
    },
    Disconnect(usize),
    Offer(Pick, u8),
    Adopt {
        which: Pick,
        /// Any number from 3 on is the present holder.
        by: usize,
        ticket: Option<u8>,
        to: usize,
    },
    Revoke {
        which: Pick,
        even_if_alive: bool,
    },
    Check(Pick),
    CheckAs {
        which: Pick,
        /// Any number from 3 on is the present holder.
        who: usize,
        named: bool,
    },
    Sweep,
    Advance,
    /// Looks at those whom somebody waits for, and lets time pass with what was seen.
    Watch,
    List,
    /// The request queued so many before the latest.
    Cancel(usize),
    /// The grant received so many before the latest.
    Abandon(usize),
    /// Receives the answers to waiting requests.
    Receive,
    /// From now on this holder is found like this.
    Becomes(usize, Fate),
    /// Something was seen of a holder some time ago; it comes with the next call.
    Rumour(Pick, u32, Fate),
}

impl Deed {
    /// The token it is done with.
    pub(crate) const fn which(&self) -> Option<Pick> {
        match *self {
            Self::Touch(which)
            | Self::Renew(which, _)
            | Self::Begin(which, ..)
            | Self::End(which, ..)
            | Self::Release(which)
            | Self::ReleaseAs { which, .. }
            | Self::Offer(which, _)
            | Self::Adopt { which, .. }
            | Self::Revoke { which, .. }
            | Self::Check(which)
            | Self::CheckAs { which, .. }
            | Self::Rumour(which, ..) => Some(which),
            Self::Acquire { .. }
            | Self::Disconnect(_)
            | Self::Sweep
            | Self::Advance
            | Self::Watch
            | Self::List
            | Self::Cancel(_)
            | Self::Abandon(_)
            | Self::Receive
            | Self::Becomes(..) => None,
        }
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) lapse: Lapse,
    pub(crate) deed: Deed,
}

/// A history, and the terms it happens under.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) terms: Terms,
    pub(crate) beats: Vec<Beat>,
    /// Chance for whoever wants to disturb it.
    pub(crate) noise: u64,
}

fn some_key() -> impl Strategy<Value = usize> {
    0..KEYS.len()
}

fn some_token() -> BoxedStrategy<Pick> {
    prop_oneof![
        6 => some_key().prop_map(Pick::Present),
        3 => (0..4_usize).prop_map(Pick::Old),
        1 => some_key().prop_map(Pick::Forged),
    ]
    .boxed()
}

fn some_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        1 => Just(Fate::Alive),
        3 => Just(Fate::Dead),
        1 => Just(Fate::Occupied),
        1 => Just(Fate::Unknown),
    ]
}

fn some_ttl() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(0)), 4 => Just(Some(1)), 2 => Just(Some(2))]
}

/// More than half of all waits end within one tick of a term or a deadline.
fn some_lapse() -> BoxedStrategy<Lapse> {
    prop_oneof![
        16 => Just(Lapse::Stays),
        2 => (1..20_000_000_u64).prop_map(Lapse::Nanos),
        4 => (some_key(), -1..2_i64).prop_map(|(n, off)| Lapse::Edge(n, off)),
        1 => (-1..2_i64).prop_map(Lapse::Deadline),
        1 => Just(Lapse::Nanos(TTL_MS * 1_000_000 + 1)),
        1 => (1..50_000_000_u64).prop_map(Lapse::Back),
    ]
    .boxed()
}

fn some_request() -> BoxedStrategy<Deed> {
    let term = TTL_MS * 1_000_000;
    let patience = prop_oneof![
        5 => Just(Patience::None),
        1 => Just(Patience::For(0)),
        1 => Just(Patience::For(10_000_000)),
        2 => (term..term + 2).prop_map(Patience::For),
        6 => Just(Patience::Forever),
    ];
    let ttl = prop_oneof![4 => Just(None), 1 => some_ttl()];
    (some_key(), 0..3_usize, ttl, patience)
        .prop_map(|(key, who, ttl, patience)| Deed::Acquire {
            key,
            who,
            ttl,
            patience,
        })
        .boxed()
}

fn some_operation() -> BoxedStrategy<Deed> {
    let from = prop_oneof![Just(Provenance::Created), Just(Provenance::Reentrant)];
    let result = prop_oneof![
        Just(Ok(())),
        Just(Err(Disposition::PreMutation)),
        Just(Err(Disposition::RolledBack)),
        Just(Err(Disposition::Unknown)),
    ];
    // Id 0 is the reserved one.
    let begin = (some_token(), 0..3_u8, from).prop_map(|(at, op, from)| Deed::Begin(at, op, from));
    let end = (some_token(), 0..9_u8, result).prop_map(|(at, op, how)| Deed::End(at, op, how));
    prop_oneof![begin, end].boxed()
}

fn some_end() -> BoxedStrategy<Deed> {
    prop_oneof![
        5 => some_token().prop_map(Deed::Release),
        2 => (some_token(), 0..6_usize, any::<bool>(), any::<bool>()).prop_map(
            |(which, who, named, exited)| Deed::ReleaseAs { which, who, named, exited }
        ),
        3 => (0..3_usize).prop_map(Deed::Disconnect),
        2 => (some_token(), any::<bool>())
            .prop_map(|(which, even_if_alive)| Deed::Revoke { which, even_if_alive }),
        1 => (0..3_usize).prop_map(Deed::Abandon),
        3 => (0..4_usize).prop_map(Deed::Cancel),
    ]
    .boxed()
}

fn some_hand_over() -> BoxedStrategy<Deed> {
    let ticket = proptest::option::weighted(0.3, 0..2_u8);
    let adopt = (some_token(), 0..6_usize, ticket, 0..3_usize);
    prop_oneof![
        1 => (some_token(), 0..2_u8).prop_map(|(at, ticket)| Deed::Offer(at, ticket)),
        2 => adopt.prop_map(|(which, by, ticket, to)| Deed::Adopt { which, by, ticket, to }),
    ]
    .boxed()
}

fn some_look() -> BoxedStrategy<Deed> {
    prop_oneof![
        1 => some_token().prop_map(Deed::Check),
        1 => (some_token(), 0..6_usize, any::<bool>())
            .prop_map(|(which, who, named)| Deed::CheckAs { which, who, named }),
        1 => Just(Deed::Sweep),
        1 => Just(Deed::Advance),
        2 => Just(Deed::Watch),
        1 => Just(Deed::List),
        2 => Just(Deed::Receive),
        4 => (0..3_usize, some_fate()).prop_map(|(who, fate)| Deed::Becomes(who, fate)),
        1 => (some_token(), 0..2_u32, some_fate())
            .prop_map(|(which, handovers, fate)| Deed::Rumour(which, handovers, fate)),
    ]
    .boxed()
}

pub(crate) fn beat() -> BoxedStrategy<Beat> {
    let progress = prop_oneof![
        1 => some_token().prop_map(Deed::Touch),
        1 => (some_token(), some_ttl()).prop_map(|(at, ttl)| Deed::Renew(at, ttl)),
    ];
    let deed = prop_oneof![
        10 => some_request(),
        2 => progress,
        4 => some_operation(),
        5 => some_end(),
        2 => some_hand_over(),
        4 => some_look(),
    ];
    (some_lapse(), deed)
        .prop_map(|(lapse, deed)| Beat { lapse, deed })
        .boxed()
}

pub(crate) fn history() -> impl Strategy<Value = History> {
    let terms = proptest::sample::select(&Terms::ALL[..]);
    let beats = proptest::collection::vec(beat(), 1..80);
    (terms, beats, any::<u64>()).prop_map(|(terms, beats, noise)| History {
        terms,
        beats,
        noise,
    })
}

/// Checks `law` on random histories: 256, or as many as `PROPTEST_CASES` says.
pub(crate) fn always(file: &'static str, law: impl Fn(History)) {
    let mut runner = TestRunner::new(Config::with_source_file(file));
    let checked = runner.run(&history(), |history| {
        law(history);
        Ok(())
    });
    match checked {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => panic!("{reason}\n{history:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
