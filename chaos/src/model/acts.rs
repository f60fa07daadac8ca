//! What may happen next in a world, in a fixed order, and how it is told.

use lease_core::{Disposition, Provenance};

use super::world::{Act, Patience, Setup, Sight, Sights, Verb, World};

/// Every ending of an operation.
const RESULTS: [Result<(), Disposition>; 4] = [
    Ok(()),
    Err(Disposition::PreMutation),
    Err(Disposition::RolledBack),
    Err(Disposition::Unknown),
];

/// Every observation.
const SIGHTS: [Sight; 3] = [Sight::Alive, Sight::Dead, Sight::Unknown];

/// Lists what may happen next.
pub(super) fn next(setup: &Setup, world: &World, acts: &mut Vec<Act>) {
    for who in 0..setup.writers.len() {
        for key in 0..setup.keys.len() {
            requests(setup, world, (who, key), acts);
        }
        if setup.may(Verb::Disconnect) {
            acts.push(Act::Disconnect(who));
        }
    }
    for key in 0..setup.keys.len() {
        held(setup, world, key, acts);
    }
    if setup.may(Verb::Cancel) {
        acts.extend((0..world.waiting.len()).map(Act::Cancel));
        acts.extend((0..world.granted.len()).map(Act::CancelGranted));
    }
    if !world.granted.is_empty() {
        acts.push(Act::Fetch);
        if setup.may(Verb::Abandon) {
            acts.push(Act::GiveBack);
        }
    }
    if setup.may(Verb::Time) {
        acts.push(Act::Sweep);
        acts.extend(super::world::STEPS.map(Act::Pass));
    }
}

/// The requests of one writer for one resource.
fn requests(setup: &Setup, world: &World, (who, key): (usize, usize), acts: &mut Vec<Act>) {
    let ask = |wait, seen| Act::Acquire {
        who,
        key,
        wait,
        seen,
    };
    let mut patience = vec![Patience::None];
    let waits = world.waiting.len().saturating_add(world.granted.len());
    if waits < setup.most_waits {
        let waits = [
            (Verb::Wait, Patience::Endless),
            (Verb::WaitUntil, Patience::Term),
        ];
        patience.extend(
            waits
                .into_iter()
                .filter_map(|(verb, patience)| setup.may(verb).then_some(patience)),
        );
    }
    let mut in_the_way = world.leases(setup).filter(|(place, lease)| {
        setup.overlap(*place, key) && setup.writer_of(&lease.holder) != Some(who)
    });
    let first = in_the_way.next().filter(|_| setup.may(Verb::Proof));
    let two = in_the_way.next().is_some();
    for wait in patience {
        acts.push(ask(wait, Sights::None));
        if let Some((first, _)) = first {
            acts.extend(SIGHTS.map(|sight| ask(wait, Sights::All(sight))));
            acts.push(ask(wait, Sights::Disagreeing));
            if two {
                acts.push(ask(wait, Sights::Of(first, Sight::Dead)));
            }
        }
    }
}

/// What may happen to the lease of one resource.
fn held(setup: &Setup, world: &World, key: usize, acts: &mut Vec<Act>) {
    let Some(lease) = world.lease(setup, key) else {
        return;
    };
    if setup.may(Verb::Touch) {
        acts.push(Act::Touch(key));
    }
    if setup.may(Verb::Renew) {
        acts.push(Act::Renew(key));
    }
    if setup.may(Verb::Operate) {
        if lease.ops.len() < setup.most_operations {
            let from = [Provenance::Created, Provenance::Reentrant];
            acts.extend(from.map(|from| Act::Begin { key, from }));
        }
        for nth in 0..lease.ops.len() {
            acts.extend(RESULTS.map(|result| Act::End { key, nth, result }));
        }
    }
    acts.push(Act::Release(key));
    if setup.may(Verb::Abandon) {
        acts.push(Act::Abandon(key));
    }
    if setup.may(Verb::Offer) {
        acts.push(Act::Offer(key));
    }
    if setup.may(Verb::Adopt) {
        for to in 0..setup.writers.len() {
            acts.push(Act::Adopt {
                key,
                to,
                ticket: false,
            });
            if setup.may(Verb::Offer) && lease.ticket.is_some() {
                acts.push(Act::Adopt {
                    key,
                    to,
                    ticket: true,
                });
            }
        }
    }
    if setup.may(Verb::Revoke) {
        acts.push(Act::Revoke(key, None));
    }
    if setup.may(Verb::Proof) {
        acts.extend(SIGHTS.map(|sight| Act::ReleaseExited(key, sight)));
        if setup.may(Verb::Revoke) {
            acts.extend(SIGHTS.map(|sight| Act::Revoke(key, Some(sight))));
        }
        if !world.waiting.is_empty() {
            acts.extend(SIGHTS.map(|sight| Act::Observe(key, sight)));
        }
    }
}

/// Tells what happens, in plain words.
pub(super) fn tell(setup: &Setup, act: Act) -> String {
    let who = |place| setup.who(place);
    let key = |place| setup.key(place);
    let saw = |sight: Option<Sight>| sight.map_or(String::new(), |sight| format!(", seen {sight}"));
    match act {
        Act::Acquire {
            who: asks,
            key: wanted,
            wait,
            seen,
        } => {
            let waits = match wait {
                Patience::None => "",
                Patience::Term => " and waits a term",
                Patience::Endless => " and waits",
            };
            let seen = match seen {
                Sights::None => String::new(),
                Sights::All(sight) => format!(", every holder seen {sight}"),
                Sights::Disagreeing => ", every holder seen dead and unknown".to_owned(),
                Sights::Of(place, sight) => format!(", the holder of {} seen {sight}", key(place)),
            };
            format!("{} asks for {}{waits}{seen}", who(asks), key(wanted))
        }
        Act::Touch(at) => format!("the holder of {} shows progress", key(at)),
        Act::Renew(at) => format!("the holder of {} renews", key(at)),
        Act::Begin { key: at, from } => {
            let which = match from {
                Provenance::Created => "the operation that made its lease",
                Provenance::Reentrant => "an operation",
            };
            format!("the holder of {} begins {which}", key(at))
        }
        Act::End {
            key: at,
            nth,
            result,
        } => format!("operation {nth} at {} ends: {result:?}", key(at)),
        Act::Release(at) => format!("the holder of {} releases", key(at)),
        Act::ReleaseExited(at, sight) => {
            let saw = saw(Some(sight));
            format!("somebody releases {} for its holder{saw}", key(at))
        }
        Act::Disconnect(gone) => format!("{} disconnects", who(gone)),
        Act::Cancel(nth) => format!("waiting request {nth} is taken back"),
        Act::CancelGranted(nth) => format!("granted request {nth} is taken back unfetched"),
        Act::Fetch => "every answer is fetched".to_owned(),
        Act::GiveBack => "the first granted answer is fetched and given back".to_owned(),
        Act::Abandon(at) => format!("the grant of {} is given back", key(at)),
        Act::Offer(at) => format!("the holder of {} offers it", key(at)),
        Act::Adopt {
            key: at,
            to,
            ticket,
        } => {
            let by = if ticket { " by ticket" } else { "" };
            format!("{} passes on to {}{by}", key(at), who(to))
        }
        Act::Revoke(at, sight) => format!("an operator revokes {}{}", key(at), saw(sight)),
        Act::Sweep => "somebody looks".to_owned(),
        Act::Observe(at, sight) => format!("the holder of {} is seen {sight}", key(at)),
        Act::Pass(ticks) => format!("{ticks} ticks pass"),
    }
}
