//! What is measured.

use std::time::Instant;

use crate::floor::{Slots, Table};
use crate::guards;
use crate::ours::Held;
use crate::peers;
use crate::report::{Calls, Row};
use crate::rounds::{Work, allocations, least, names};
use crate::telemetry;
#[cfg(target_os = "linux")]
use crate::{handover, lock, process};

/// A group of rows: its name, and what measures it.
type Group = (&'static str, fn() -> Vec<Row>);

/// Every group, in order.
#[cfg(target_os = "linux")]
pub(crate) const GROUPS: [Group; 19] = [
    MEMORY[0],
    MEMORY[1],
    MEMORY[2],
    MEMORY[3],
    MEMORY[4],
    MEMORY[5],
    MEMORY[6],
    MEMORY[7],
    MEMORY[8],
    MEMORY[9],
    ("b1", lock::pairs),
    ("b3", lock::first_ever),
    ("b4", lock::cold_starts),
    ("c1", handover::releases),
    ("c2", handover::deaths),
    ("d1", process::verdicts),
    ("d2", process::kept),
    ("d3", process::groups),
    ("d4", process::passes),
];

/// Every group, in order: processes can be looked at on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) const GROUPS: [Group; 10] = MEMORY;

const MEMORY: [Group; 10] = [
    ("a1", by_name),
    ("a1-ways", other_ways),
    ("a1-depth", by_depth),
    ("a1-token", by_token),
    ("a2", two_threads),
    ("a3", sweeps),
    ("a4", guards::alone),
    ("a4-handover", guards::handed_over),
    ("t1", telemetry::looked_at),
    ("memory", memory),
];

fn by_name() -> Vec<Row> {
    [1, 1_000, 100_000, 1_000_000]
        .map(|n| cycle(n, 1, 2.0, true))
        .into()
}

/// The same work asked for in other ways; the goals are for the row above.
fn other_ways() -> Vec<Row> {
    let mut rows = Vec::new();
    for n in [1, 1_000, 100_000] {
        let (mut floor, mut ours) = (Table::new(names(2 * n, 1)), Held::new(names(2 * n, 1)));
        floor.halve();
        ours.halve();
        let mut floor = |count| floor.others(count);
        let mut ours = |count| ours.others(count);
        let name = format!("a1 release, then acquire another name, n = {n}");
        rows.push(way(n, name, &mut floor, &mut ours));
    }
    let (mut floor, mut ours) = (Table::new(names(1_000, 1)), Held::new(names(1_000, 1)));
    let mut ours = |count| ours.call_cycle(count);
    let name = "a1 acquire + release as calls, n = 1000".to_owned();
    rows.push(way(1_000, name, &mut floor, &mut ours));
    rows
}

fn way(n: usize, name: String, floor: &mut dyn Work, ours: &mut dyn Work) -> Row {
    let figures = least(units(n), &mut [&mut *floor, &mut *ours]);
    Row {
        name,
        ours: figures[1],
        floor: Some(figures[0]),
        goal: None,
        unit: "ns",
        allocations: Some(allocations(10_000, ours)),
        calls: Calls::NotCounted,
        peers: Vec::new(),
    }
}

fn by_depth() -> Vec<Row> {
    vec![cycle(1_000, 2, 3.0, false), cycle(1_000, 4, 5.0, false)]
}

fn units(n: usize) -> u64 {
    // Few names are met several times a round, so that they are as warm as they can be.
    if n >= 100_000 { 300_000 } else { 1_000_000 }
}

/// Acquire and release by name, with `n` names held.
fn cycle(n: usize, depth: usize, goal: f64, with_peers: bool) -> Row {
    let names = names(n, depth);
    let mut floor = Table::new(names.clone());
    let mut ours = Held::new(names.clone());
    let mut others = if with_peers {
        peers::all(&names)
    } else {
        Vec::new()
    };
    let mut works: Vec<&mut dyn Work> = vec![&mut floor, &mut ours];
    works.extend(others.iter_mut().map(|peer| peer as &mut dyn Work));
    let figures = least(units(n), &mut works);
    let allocations = allocations(10_000, &mut ours);
    let peers = others
        .iter()
        .zip(&figures[2..])
        .map(|(peer, nanos)| (peer.name, *nanos));
    Row {
        name: format!("a1 acquire + release, n = {n}, depth {depth}"),
        ours: figures[1],
        floor: Some(figures[0]),
        goal: Some(goal),
        unit: "ns",
        allocations: Some(allocations),
        calls: Calls::NotCounted,
        peers: peers.collect(),
    }
}

/// What is done with a token: its name, the work, and a goal in nanoseconds.
type Verb = (&'static str, fn(&mut Held, u64), Option<f64>);

/// What the bearer of a token does, with 1,000 names held.
fn by_token() -> Vec<Row> {
    let n = 1_000;
    let mut floor = Slots::new(n);
    let mut held: Vec<Held> = (0..6).map(|_| Held::by_own_keys(names(n, 1))).collect();
    let verbs: [Verb; 6] = [
        ("touch by token", Held::touch, Some(20.0)),
        ("check by token", Held::check, Some(10.0)),
        ("begin + end", Held::operation, Some(40.0)),
        ("touch as a call, with its receipt", Held::call_touch, None),
        ("check as a call, with its receipt", Held::call_check, None),
        ("begin + end as calls", Held::call_operation, None),
    ];
    let mut verb: Vec<_> = held
        .iter_mut()
        .zip(verbs)
        .map(|(held, (_, verb, _))| move |count| verb(held, count))
        .collect();
    let mut works: Vec<&mut dyn Work> = vec![&mut floor];
    works.extend(verb.iter_mut().map(|work| work as &mut dyn Work));
    let figures = least(2_000_000, &mut works);
    verb.iter_mut()
        .zip(verbs)
        .zip(&figures[1..])
        .map(|((work, (name, _, goal)), ours)| Row {
            name: format!("a1' {name} (slot by index: {:.1} ns)", figures[0]),
            ours: *ours,
            floor: None,
            goal,
            unit: "ns",
            allocations: Some(allocations(10_000, work)),
            calls: Calls::NotCounted,
            peers: Vec::new(),
        })
        .collect()
}

/// Two threads on one mutexed registry, against two threads on one mutexed map.
fn two_threads() -> Vec<Row> {
    let names = names(1_000, 1);
    let ours = parking_lot::Mutex::new(Held::new(names.clone()));
    let floor = parking_lot::Mutex::new(Table::new(names.clone()));
    let others = peers::all(&names);
    let mut both = |count: u64| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..count / 2).for_each(|_| ours.lock().run(1)));
            }
        });
    };
    let mut map = |count: u64| {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..count / 2).for_each(|_| floor.lock().run(1)));
            }
        });
    };
    let mut other: Vec<_> = others
        .iter()
        .map(|peer| |count| peer.run_in_two(count))
        .collect();
    let mut works: Vec<&mut dyn Work> = vec![&mut map, &mut both];
    works.extend(other.iter_mut().map(|work| work as &mut dyn Work));
    let figures = least(200_000, &mut works);
    let peers = others
        .iter()
        .zip(&figures[2..])
        .map(|(peer, nanos)| (peer.name, *nanos));
    vec![Row {
        name: "a2 two threads on one mutex, n = 1000".to_owned(),
        ours: figures[1],
        floor: Some(figures[0]),
        goal: Some(2.5),
        unit: "ns",
        allocations: None,
        calls: Calls::NotCounted,
        peers: peers.collect(),
    }]
}

fn sweeps() -> Vec<Row> {
    let mut rows = Vec::new();
    for n in [1_000, 1_000_000] {
        let mut held = Held::new(names(n, 1));
        let mut idle = |count| held.idle(count);
        let figure = least(100_000, &mut [&mut idle])[0];
        let start = Instant::now();
        let reclaimed = held.reclaim();
        let each = start.elapsed().as_nanos() as f64 / reclaimed as f64;
        rows.push(Row {
            name: format!("a3 sweep with nothing due, n = {n}"),
            ours: figure,
            floor: None,
            goal: Some(10.0),
            unit: "ns",
            allocations: None,
            calls: Calls::NotCounted,
            peers: Vec::new(),
        });
        rows.push(Row {
            name: format!("a3 reclaim, each of {n} due"),
            ours: each,
            floor: None,
            goal: Some(300.0),
            unit: "ns",
            allocations: None,
            calls: Calls::NotCounted,
            peers: Vec::new(),
        });
    }
    rows
}

/// What is held costs, and what is left once nothing is.
fn memory() -> Vec<Row> {
    let n = 1_000_000;
    let names = names(n, 1);
    let empty = crate::sys::bytes();
    let mut held = Held::new(names);
    let keys = held.at.capacity() * size_of::<lease_core::At>();
    let full = crate::sys::bytes() - empty - keys as i64;
    for at in 0..n {
        held.release(at);
    }
    held.forget_keys();
    let left = crate::sys::bytes() - empty;
    let row = |name: &str, ours: f64| Row {
        name: name.to_owned(),
        ours,
        floor: None,
        goal: None,
        unit: "bytes",
        allocations: None,
        calls: Calls::NotCounted,
        peers: Vec::new(),
    };
    vec![
        row(
            "memory a held resource, key included",
            full as f64 / n as f64,
        ),
        row(
            "memory left of a million released ones",
            left as f64 - keys as f64,
        ),
    ]
}
