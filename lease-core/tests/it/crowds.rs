//! Many who wait around one key: what an event costs grows with their number, not with its square.
//!
//! Work is counted in comparisons of holders, since each lease or waiter that is looked at costs one.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use lease_core::{Action, Holder, LeasePolicy, Step, Wait, WaiterId};

use crate::rig::{Rig, alive, session_ttl};

/// As many wait in the smaller of two worlds.
const FEW: u64 = 250;

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
    static COPIED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Eq)]
struct Counted(u64);

impl Clone for Counted {
    fn clone(&self) -> Self {
        COPIED.set(COPIED.get() + 1);
        Self(self.0)
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Hash for Counted {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.0.hash(state);
    }
}

impl Holder for Counted {
    type Target = ();
    const KIND: &'static str = "counted";
}

/// How many holders are compared by `work`.
fn comparisons(work: impl FnOnce()) -> u64 {
    let before = COMPARED.get();
    work();
    COMPARED.get() - before
}

/// How many holders are copied by `work`, as each decision does.
fn copies(work: impl FnOnce()) -> u64 {
    let before = COPIED.get();
    work();
    COPIED.get() - before
}

/// Asserts that an event in a world of `crowd` costs about twice as much if twice as many wait.
#[track_caller]
fn assert_linear(event: impl Fn(u64) -> u64) {
    let (few, many) = (event(FEW), event(2 * FEW));
    assert!(
        many <= 3 * few + 100,
        "{few} comparisons for {FEW}, {many} for twice as many"
    );
}

struct World(Rig<Counted>);

impl World {
    fn new(policy: LeasePolicy) -> Self {
        Self(Rig::new(policy))
    }

    fn holds(&mut self, resource: &str, holder: u64) {
        self.0.holds(resource, &Counted(holder));
    }

    fn waits(&mut self, resource: &str, holder: u64) -> WaiterId {
        self.0.queue(resource, &Counted(holder), Wait::Forever)
    }

    fn goes(&mut self, waiter: WaiterId) {
        assert!(self.0.turn(|registry, turn| registry.cancel(waiter, turn)));
    }
}

#[test]
fn who_waits_above_what_many_hold_costs_a_look_each() {
    assert_linear(|crowd| {
        let mut world = World::new(session_ttl());
        for number in 0..crowd {
            world.holds(&format!("a/{number}"), number);
        }
        for number in 0..crowd {
            world.waits("a", number);
        }
        let last = world.waits("a", crowd);
        comparisons(|| world.goes(last))
    });
}

#[test]
fn what_a_writer_holds_elsewhere_costs_nothing_where_it_waits() {
    assert_linear(|crowd| {
        let mut world = World::new(session_ttl());
        let (writer, other) = (crowd, crowd + 1);
        for number in 0..crowd {
            world.holds(&format!("elsewhere/{number}"), writer);
        }
        world.holds("a/held", other);
        world.waits("a", other + 1);
        let last = world.waits("a", other + 2);
        let waiting = comparisons(|| {
            for number in 0..crowd {
                world.waits(&format!("a/{number}"), writer);
            }
        });
        waiting + comparisons(|| world.goes(last))
    });
}

#[test]
fn who_is_asked_about_for_many_is_looked_at_once() {
    assert_linear(|crowd| {
        let mut world = World::new(LeasePolicy::process_bound());
        for number in 0..crowd {
            world.holds(&format!("a/{number}"), number);
        }
        let acquire = Action::Acquire {
            holder: Counted(crowd),
            ttl: None,
        };
        let Step::Ask(asked) = world.0.step(Some("a"), acquire, Wait::Forever) else {
            panic!("nobody is asked about");
        };
        world.0.answers = asked
            .iter()
            .map(|question| question.answer(alive()))
            .collect();
        for number in 0..crowd {
            world.waits("a", crowd + number);
        }
        let mut asked = Vec::new();
        let compared = comparisons(|| asked = world.0.registry.questions());
        assert_eq!(u64::try_from(asked.len()), Ok(crowd));
        compared
    });
}

#[test]
fn who_stands_behind_another_needs_no_decision() {
    let mut world = World::new(session_ttl());
    let (held, first, last) = (FEW, FEW + 1, FEW + 2);
    world.holds("a/held", held);
    world.waits("a", first);
    for number in 0..FEW {
        world.holds(&format!("elsewhere/{number}"), number);
        // Some wait above others, and all of them behind the first.
        let resource = ["a/b".to_owned(), format!("a/b/{number}")];
        world.waits(&resource[usize::from(number % 2 == 0)], number);
    }
    let last = world.waits("a", last);
    assert!(copies(|| world.goes(last)) < 20);
}

#[test]
fn who_waits_beside_a_crowd_costs_nothing_to_who_stands_behind_another() {
    assert_linear(|crowd| {
        let mut world = World::new(session_ttl());
        let [held, first, below, last] = [0, 1, 2, 3].map(|number| 2 * crowd + number);
        world.holds("a/held", held);
        for number in 0..crowd {
            world.waits(&format!("a/held/{number}"), number);
        }
        world.waits("a", first);
        world.waits("a/b/c", below);
        for number in crowd..2 * crowd {
            world.holds(&format!("elsewhere/{number}"), number);
            world.waits("a/b", number);
        }
        let last = world.waits("a", last);
        comparisons(|| world.goes(last))
    });
}
