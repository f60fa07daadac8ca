//! Who may go before whom: the rule of waiting, said once more and naively.

use lease_core::WaiterId;

use super::law::{Breach, Law, require};
use super::world::{Place, Setup, Waiting, World, over};

/// A request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: WaiterId,
    pub(super) who: Place,
    pub(super) key: Place,
}

impl Request {
    pub(super) const fn of(waiting: &Waiting) -> Self {
        Self {
            id: waiting.id,
            who: waiting.who,
            key: waiting.key,
        }
    }
}

/// The earlier request that `who` must let go first when it asks for `key` from its place in the queue.
///
/// A request of another writer for what overlaps, unless it waits for `who` itself.
pub(super) fn is_in_front(
    setup: &Setup,
    (queue, place): (&[Request], usize),
    held: &[(Place, Place)],
    (who, key): (Place, Place),
) -> Option<Request> {
    let earlier = queue.get(..place).unwrap_or(queue);
    earlier.iter().enumerate().find_map(|(at, request)| {
        let counts = request.who != who
            && setup.overlap(request.key, key)
            && !waits_for(setup, (earlier, at), held, who);
        counts.then_some(*request)
    })
}

/// Whether the request at `place` waits for a lease of `who`, or behind one that does.
fn waits_for(
    setup: &Setup,
    (queue, place): (&[Request], usize),
    held: &[(Place, Place)],
    who: Place,
) -> bool {
    let Some(request) = queue.get(place) else {
        return false;
    };
    let blocked = held
        .iter()
        .any(|(key, by)| *by == who && setup.overlap(*key, request.key));
    blocked
        || (0..place).any(|at| {
            queue.get(at).is_some_and(|earlier| {
                earlier.who != request.who
                    && earlier.who != who
                    && setup.overlap(earlier.key, request.key)
            }) && waits_for(setup, (queue, at), held, who)
        })
}

/// Nobody waits who could go, unless the registry says that something is due.
pub(super) fn nobody_is_forgotten(setup: &Setup, world: &World) -> Result<(), Breach> {
    let queue: Vec<Request> = world.waiting.iter().map(Request::of).collect();
    let held: Vec<(Place, Place)> = world
        .leases(setup)
        .filter(|(_, lease)| !over(lease, world.now))
        .filter_map(|(key, lease)| Some((key, setup.writer_of(&lease.holder)?)))
        .collect();
    let unnoticed = world.leases(setup).any(|(_, lease)| over(lease, world.now));
    if unnoticed && world.due() {
        return Ok(());
    }
    for (place, request) in queue.iter().enumerate() {
        let Request { who, key, .. } = *request;
        let again = held.contains(&(key, who));
        let blocked = held
            .iter()
            .any(|(at, by)| *by != who && setup.overlap(*at, key));
        let behind = is_in_front(setup, (&queue, place), &held, (who, key)).is_some();
        require(!again && (blocked || behind), Law::NoLostHandOver, || {
            format!(
                "{} waits for {} and could go",
                setup.who(who),
                setup.key(key)
            )
        })?;
    }
    Ok(())
}
