//! The registry at work.

use std::time::Duration;

use lease_core::{
    Action, At, AuthorityId, By, Call, LeaseId, LeasePolicy, Moment, OpId, Outcome, Provenance,
    Registry, ResourceKey, Seen, SessionHolder, Step, Turn, Wait,
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
    pub(crate) fn acquire(&mut self, at: usize) -> At {
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

    pub(crate) fn release(&mut self, at: usize) {
        self.done(at, Action::Release(By::Token(self.at[at])));
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
            self.now += 10;
            let mut no_id = || LeaseId::NIL;
            let mut turn = Turn::new(Seen::at(Moment::from_nanos(self.now)), &mut no_id);
            let touched = self.registry.touch(&self.keys[at], self.at[at], &mut turn);
            touched.expect("it is held");
        }
    }

    pub(crate) fn check(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            self.now += 10;
            let mut no_id = || LeaseId::NIL;
            let mut turn = Turn::new(Seen::at(Moment::from_nanos(self.now)), &mut no_id);
            let checked = self.registry.check(&self.keys[at], self.at[at], &mut turn);
            checked.expect("it is held");
        }
    }

    pub(crate) fn operation(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.walk.next(self.names.len());
            let op = OpId::from_bytes([1; 16]);
            let token = self.at[at];
            self.done(
                at,
                Action::Begin {
                    at: token,
                    op,
                    from: Provenance::Reentrant,
                },
            );
            self.done(
                at,
                Action::End {
                    at: token,
                    op,
                    result: Ok(()),
                },
            );
        }
    }

    /// Sweeps with nothing due.
    pub(crate) fn idle(&mut self, count: u64) {
        let sweep = Call {
            resource: None,
            action: Action::Sweep,
            wait: Wait::No,
        };
        for _ in 0..count {
            drop(std::hint::black_box(self.step(&sweep)));
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
