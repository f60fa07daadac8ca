//! The registry at work.

use std::time::Duration;

use lease_core::{
    Action, At, AuthorityId, By, Call, Finish, LeaseId, LeasePolicy, Moment, OpId, Outcome,
    Provenance, Registry, Request, ResourceKey, Seen, SessionHolder, Start, Step, Turn, Wait,
};

use crate::rounds::{Walk, Work};

/// A registry in which every name is held.
pub(crate) struct Held {
    pub(crate) registry: Registry<SessionHolder>,
    names: Vec<String>,
    keys: Vec<ResourceKey>,
    pub(crate) at: Vec<At>,
    holder: SessionHolder,
    random: u64,
    now: u64,
    walk: Walk,
    /// For each name whether its partner is held instead.
    swapped: Vec<bool>,
}

pub(crate) const TTL: Duration = Duration::from_secs(30);

fn call(resource: ResourceKey, action: Action<SessionHolder>) -> Call<SessionHolder> {
    Call {
        resource: Some(resource),
        action,
        wait: Wait::No,
    }
}

impl Held {
    pub(crate) fn new(names: Vec<String>) -> Self {
        let policy = LeasePolicy::session_ttl(TTL).expect("a sound policy");
        let keys = names
            .iter()
            .map(|name| ResourceKey::new(name).expect("a sound key"))
            .collect();
        let mut held = Self {
            registry: Registry::new(AuthorityId::from_bytes([7; 16]), policy),
            at: Vec::with_capacity(names.len()),
            swapped: vec![false; names.len()],
            keys,
            names,
            holder: SessionHolder::new("agent", "session-1").expect("a sound name"),
            random: 0,
            now: 1,
            walk: Walk::new(),
        };
        for at in 0..held.names.len() {
            let token = held.acquire(at);
            held.at.push(token);
        }
        held
    }

    /// Like [`new`](Self::new), for bearers who kept a copy of the key that they acquired.
    pub(crate) fn by_own_keys(names: Vec<String>) -> Self {
        let mut held = Self::new(names);
        let listed = held.registry.peek(Moment::ZERO).into_iter();
        let mut kept: Vec<_> = listed.map(|view| (view.token, view.resource)).collect();
        // Names were acquired in their order, so generations are in it too.
        kept.sort_by_key(|(token, _)| token.generation);
        held.keys = kept.into_iter().map(|(_, key)| key).collect();
        held
    }

    pub(crate) fn step(&mut self, call: &Call<SessionHolder>) -> Step<SessionHolder> {
        let random = &mut self.random;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_bytes(u128::from(*random).to_le_bytes())
        };
        // A microsecond a call: the whole run stays within the term.
        self.now += 10;
        let seen = Seen::at(Moment::from_nanos(self.now));
        self.registry
            .call(call, &mut Turn::new(seen, &mut lease_id))
    }

    /// Acquires by name: the name is made here, as for a request that comes in.
    #[inline]
    pub(crate) fn acquire(&mut self, at: usize) -> At {
        let key = ResourceKey::new(&self.names[at]).expect("a sound key");
        let request = Request {
            holder: &self.holder,
            ttl: None,
            wait: Wait::No,
        };
        let random = &mut self.random;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_bytes(u128::from(*random).to_le_bytes())
        };
        self.now += 10;
        let seen = Seen::at(Moment::from_nanos(self.now));
        let mut turn = Turn::new(seen, &mut lease_id);
        match self.registry.acquire(&key, request, &mut turn) {
            Step::Done(Outcome::Granted(grant, _)) => grant.at,
            step => panic!("not granted: {step:?}"),
        }
    }

    /// Acquires by name, as a call.
    fn call_acquire(&mut self, at: usize) -> At {
        let key = ResourceKey::new(&self.names[at]).expect("a sound key");
        let action = Action::Acquire {
            holder: self.holder.clone(),
            ttl: None,
        };
        match self.step(&call(key, action)) {
            Step::Done(Outcome::Granted(grant, _)) => grant.at,
            step => panic!("not granted: {step:?}"),
        }
    }

    fn done(&mut self, at: usize, action: Action<SessionHolder>) {
        let key = self.keys[at].clone();
        match self.step(&call(key, action)) {
            Step::Done(Outcome::Done(_)) => {}
            step => panic!("not done: {step:?}"),
        }
    }

    /// Uses a verb of the bearer of a token.
    #[inline(always)]
    fn bear<T>(
        &mut self,
        at: usize,
        verb: impl FnOnce(&mut Registry<SessionHolder>, &ResourceKey, At, &mut Turn<'_>) -> T,
    ) -> T {
        self.now += 10;
        let mut no_id = || LeaseId::NIL;
        let mut turn = Turn::new(Seen::at(Moment::from_nanos(self.now)), &mut no_id);
        verb(&mut self.registry, &self.keys[at], self.at[at], &mut turn)
    }

    #[inline]
    pub(crate) fn release(&mut self, at: usize) {
        let released = self.bear(at, |registry, key, at, turn| {
            registry.release(key, at, turn)
        });
        released.expect("it is held");
    }

    /// Gives up the keys that a caller would keep.
    pub(crate) fn forget_keys(&mut self) {
        self.keys = Vec::new();
    }

    pub(crate) fn cycle(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.release(at);
            self.at[at] = self.acquire(at);
        }
    }

    /// The same as calls, each with an action.
    pub(crate) fn call_cycle(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.done(at, Action::Release(By::Token(self.at[at])));
            self.at[at] = self.call_acquire(at);
        }
    }

    /// Lets only the first half of the names be held, for [`others`](Self::others).
    pub(crate) fn halve(&mut self) {
        (self.names.len() / 2..self.names.len()).for_each(|at| self.release(at));
    }

    /// Releases one name and acquires its partner in the other half.
    pub(crate) fn others(&mut self, count: u64) {
        for _ in 0..count {
            let (from, to) = self.walk.swap(&mut self.swapped);
            self.release(from);
            self.at[to] = self.acquire(to);
        }
    }

    pub(crate) fn call_touch(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.done(at, Action::Touch(self.at[at]));
        }
    }

    pub(crate) fn call_check(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.done(at, Action::Check(By::Token(self.at[at])));
        }
    }

    pub(crate) fn touch(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            let touched = self.bear(at, |registry, key, at, turn| registry.touch(key, at, turn));
            touched.expect("it is held");
        }
    }

    pub(crate) fn check(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            let checked = self.bear(at, |registry, key, at, turn| registry.check(key, at, turn));
            checked.expect("it is held");
        }
    }

    pub(crate) fn operation(&mut self, count: u64) {
        let op = OpId::from_bytes([1; 16]);
        let from = Provenance::Reentrant;
        let result = Ok(());
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            let start = Start { op, from };
            let begun = self.bear(at, |registry, key, at, turn| {
                registry.begin(key, at, start, turn)
            });
            begun.expect("it is held");
            let finish = Finish { op, result };
            let ended = self.bear(at, |registry, key, at, turn| {
                registry.end(key, at, finish, turn)
            });
            ended.expect("it is in flight");
        }
    }

    pub(crate) fn call_operation(&mut self, count: u64) {
        let op = OpId::from_bytes([1; 16]);
        let from = Provenance::Reentrant;
        let result = Ok(());
        for _ in 0..count {
            let place = self.walk.next(self.names.len());
            let at = self.at[place];
            self.done(place, Action::Begin { at, op, from });
            self.done(place, Action::End { at, op, result });
        }
    }

    /// Sweeps with nothing due.
    pub(crate) fn idle(&mut self, count: u64) {
        for _ in 0..count {
            self.now += 10;
            let mut no_id = || LeaseId::NIL;
            let mut turn = Turn::new(Seen::at(Moment::from_nanos(self.now)), &mut no_id);
            drop(std::hint::black_box(self.registry.advance(&mut turn)));
        }
    }

    /// Lets every term pass and sweeps until nothing is held. Answers how many were reclaimed.
    pub(crate) fn reclaim(&mut self) -> u64 {
        self.now += u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX) * 2;
        let sweep = Call {
            resource: None,
            action: Action::Sweep,
            wait: Wait::No,
        };
        let before = self.registry.held();
        while self.registry.held() > 0 {
            drop(self.step(&sweep));
        }
        before as u64
    }
}

impl Work for Held {
    fn run(&mut self, count: u64) {
        self.cycle(count);
    }
}
