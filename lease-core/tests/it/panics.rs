//! A holder is the caller's: whichever of its copies, comparisons or hashes panics, nothing is half done.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use lease_core::{
    Action, AuthorityId, Call, Holder, LeaseId, Moment, Outcome, Registry, Request, Seen, Step,
    Turn, Wait,
};

use crate::rig::{key, session_ttl};

thread_local! {
    /// How many more times a holder is copied, compared or hashed until one of these panics.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

fn count() {
    let left = LEFT.get();
    LEFT.set(left.and_then(|left| left.checked_sub(1)));
    if left == Some(0) {
        resume_unwind(Box::new("out of holders"));
    }
}

#[derive(Debug, Eq)]
struct Brittle(u64);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        count();
        Self(self.0)
    }
}

impl PartialEq for Brittle {
    fn eq(&self, other: &Self) -> bool {
        count();
        self.0 == other.0
    }
}

impl Hash for Brittle {
    fn hash<S: Hasher>(&self, state: &mut S) {
        count();
        self.0.hash(state);
    }
}

impl Holder for Brittle {
    type Target = ();
    const KIND: &'static str = "brittle";
}

struct World {
    registry: Registry<Brittle>,
    random: u128,
    now: u64,
}

impl World {
    fn new() -> Self {
        let authority = AuthorityId::from_random([7; 16]);
        let registry = Registry::new(authority, session_ttl()).with_receipts(1_000);
        Self {
            registry,
            random: 0,
            now: 0,
        }
    }

    /// Makes a call, and answers nothing if it panics.
    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut Registry<Brittle>, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let Self {
            registry,
            random,
            now,
        } = self;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_bytes(random.to_be_bytes())
        };
        *now += 1;
        let seen = Seen::at(Moment::from_millis(*now));
        let mut turn = Turn::new(seen, &mut lease_id);
        catch_unwind(AssertUnwindSafe(|| call(registry, &mut turn))).ok()
    }

    fn asks(&mut self, text: &str, number: u64) {
        let (key, holder) = (key(text), Brittle(number));
        let request = Request {
            holder: &holder,
            ttl: None,
            wait: Wait::Forever,
        };
        let step = self.call(|registry, turn| registry.acquire(&key, request, turn));
        if let Some(Step::Done(Outcome::Granted(grant, _))) = step {
            self.gives_back(text, grant.at);
        }
    }

    fn gives_back(&mut self, text: &str, at: lease_core::At) {
        self.call(|registry, turn| drop(registry.release(&key(text), at, turn)));
    }

    fn leaves(&mut self, number: u64) {
        let call = Call {
            resource: None,
            action: Action::Disconnect(Brittle(number)),
            wait: Wait::No,
        };
        self.call(|registry, turn| drop(registry.call(&call, turn)));
    }

    /// Five writers hold and wait, hand over, let a wait be, and go.
    fn lives(&mut self) {
        for number in 1..=5 {
            let (key, holder) = (key("a"), Brittle(number));
            let request = Request {
                holder: &holder,
                ttl: None,
                wait: Wait::Forever,
            };
            self.call(|registry, turn| drop(registry.acquire(&key, request, turn)));
            self.asks("a/b", number);
        }
        for _ in 0..3 {
            let held = self.registry.lease(&key("a")).map(|lease| lease.token);
            if let Some(token) = held {
                self.gives_back("a", token.into());
            }
        }
        self.now += 40_000;
        self.call(|registry, turn| drop(registry.advance(turn)));
        self.asks("c", 6);
        self.leaves(5);
    }
}

#[test]
fn whatever_a_holder_panics_in_nothing_is_half_done() {
    for left in 0..2_000 {
        let mut world = World::new();
        LEFT.set(Some(left));
        world.lives();
        let panicked = LEFT.take().is_none();
        let listed = world.registry.peek(Moment::ZERO).len();
        assert_eq!(listed, world.registry.held(), "{left}");
        (1..=6).for_each(|number| world.leaves(number));
        assert_eq!(
            (world.registry.held(), world.registry.waiting()),
            (0, 0),
            "{left}"
        );
        // Who comes next finds nothing that was left.
        (7..=9).for_each(|number| world.asks(&format!("d-{number}"), number));
        assert_eq!(world.registry.footprint().0, 0, "{left}");
        if !panicked {
            return;
        }
    }
    panic!("not every panic was tried");
}
