//! A world in canonical form: two worlds with equal views go on alike.
//!
//! Moments count from now and are capped, generations are ranks, tokens are present or past, waiting
//! requests are places in the queue. What no decision reads is left out: stamps of acquisition and of
//! the last progress, whether an effect is unknown, the numbers of commits, receipts, and where things
//! lie in the registry's memory.

use std::collections::BTreeSet;

use lease_core::Provenance;

use super::world::{Setup, World};

/// The longest span that is told apart.
const FAR: u64 = 250;
const NEVER: u8 = 255;
const PAST: u8 = 254;

/// The canonical form.
pub(super) fn of(setup: &Setup, world: &World) -> Box<[u8]> {
    let mut view = Vec::with_capacity(64);
    let generations: BTreeSet<u64> = world
        .leases(setup)
        .map(|(_, lease)| lease.token.generation.get())
        .collect();
    for key in 0..setup.keys.len() {
        let Some(lease) = world.lease(setup, key) else {
            view.push(NEVER);
            continue;
        };
        let generation = lease.token.generation.get();
        view.push(setup.writer_of(&lease.holder).map_or(PAST, small));
        view.push(small(generations.range(..generation).count()));
        view.push(span(lease.expires.map(|last| last.as_nanos()), world.now));
        let flags = [
            lease.shared,
            lease.begun,
            lease.handovers > 0,
            lease.ticket.is_some(),
        ];
        view.push(flags.iter().fold(0, |all, flag| all << 1 | u8::from(*flag)));
        view.push(small(lease.ops.len()));
        view.extend(lease.ops.iter().map(|op| made(op.from)));
    }
    view.push(small(world.waiting.len()));
    for waiting in &world.waiting {
        view.extend([small(waiting.who), small(waiting.key)]);
        view.push(span(waiting.deadline, world.now));
    }
    view.push(small(world.granted.len()));
    for granted in &world.granted {
        let present = world
            .lease(setup, granted.key)
            .is_some_and(|lease| lease.token == granted.at.token);
        let part = match granted.provenance {
            Provenance::Created if present => 1,
            Provenance::Created | Provenance::Reentrant => 0,
        };
        view.extend([small(granted.who), small(granted.key), part]);
    }
    let deadline = world.registry.next_deadline();
    view.push(span(
        deadline.map(|deadline| deadline.as_nanos()),
        world.now,
    ));
    view.into_boxed_slice()
}

/// How far `moment` lies from `now`.
fn span(moment: Option<u64>, now: u64) -> u8 {
    match moment {
        None => NEVER,
        Some(moment) if moment < now => PAST,
        Some(moment) => u8::try_from(moment.saturating_sub(now).min(FAR)).unwrap_or(PAST),
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(PAST)
}

const fn made(from: Provenance) -> u8 {
    match from {
        Provenance::Created => 1,
        Provenance::Reentrant => 0,
    }
}
