//! One registry behind one mutex, called from many threads.

use std::sync::{Barrier, Mutex};

use lease_core::{
    Action, AuthorityId, By, Call, Disposition, LeaseId, Moment, OpId, Outcome, Receipt, Registry,
    Seen, SessionHolder, Step, Turn, Wait,
};

use crate::replay::{listed, replay};
use crate::rig::{key, session_ttl, who};

const THREADS: u64 = 8;
const CALLS: u64 = 10_000;
const KEYS: [&str; 5] = ["a", "a/b", "a/b/c", "a/d", "e"];

/// A small generator, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct World {
    registry: Registry<SessionHolder>,
    receipts: Vec<Receipt<SessionHolder>>,
    random: u64,
    now: u64,
}

impl World {
    fn call(&mut self, call: &Call<SessionHolder>) -> Step<SessionHolder> {
        let random = &mut self.random;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_bytes(u128::from(*random).to_be_bytes())
        };
        self.now += 1_000_000;
        let mut turn = Turn::new(Seen::at(Moment::from_nanos(self.now)), &mut lease_id);
        let step = self.registry.call(call, &mut turn);
        let taken = self.registry.take_receipts();
        assert_eq!(taken.missed, 0);
        self.receipts.extend(taken.receipts);
        step
    }
}

/// One thread's calls: it keeps the last token it was given and uses it at random, stale or not.
fn work(world: &Mutex<World>, thread: u64) {
    let mut random = Random(thread * 2 + 1);
    let holder = who("agent", &format!("s-{}", thread % 3));
    let mut at = None;
    for number in 0..CALLS {
        let resource = KEYS[usize::try_from(random.below(5)).unwrap()];
        let op = OpId::from_bytes([u8::try_from(1 + random.below(200)).unwrap(); 16]);
        let action = match (random.below(9), at) {
            (1, Some(at)) => Action::Touch(at),
            (2, Some(at)) => Action::Begin {
                at,
                op,
                from: lease_core::Provenance::Created,
            },
            (3, Some(at)) => Action::End {
                at,
                op,
                result: Err(Disposition::PreMutation),
            },
            (4, Some(at)) => Action::End {
                at,
                op,
                result: Ok(()),
            },
            (5, Some(at)) => Action::Release(By::Token(at)),
            (6, _) if number % 50 == 0 => Action::Disconnect(holder.clone()),
            _ => Action::Acquire {
                holder: holder.clone(),
                ttl: None,
            },
        };
        let resource = match action {
            Action::Disconnect(_) => None,
            _ => Some(key(resource)),
        };
        let call = Call {
            resource,
            action,
            wait: Wait::No,
        };
        let step = world.lock().unwrap().call(&call);
        if let Step::Done(Outcome::Granted(grant, _)) = step {
            at = Some(grant.at);
        }
    }
}

// X13
#[test]
fn calls_from_many_threads_are_one_sequence_of_receipts() {
    let registry = Registry::new(AuthorityId::from_bytes([3; 16]), session_ttl()).with_receipts(64);
    let world = Mutex::new(World {
        registry,
        receipts: Vec::new(),
        random: 0,
        now: 0,
    });
    let start = Barrier::new(usize::try_from(THREADS).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, start) = (&world, &start);
            scope.spawn(move || {
                start.wait();
                work(world, thread);
            });
        }
    });
    let world = world.into_inner().unwrap();
    let numbers: Vec<_> = world
        .receipts
        .iter()
        .map(|receipt| receipt.change.seq)
        .collect();
    assert!(numbers.is_sorted_by(|before, after| before < after));
    assert!(numbers.len() > 1_000, "{} receipts", numbers.len());
    let now = Moment::from_nanos(world.now);
    assert_eq!(replay(&world.receipts), listed(&world.registry.peek(now)));
}
