//! Checking and touching without a receipt in hand: the same answers, numbers and leases as by a call.

use core::time::Duration;

use lease_core::{
    Action, At, AuthorityId, By, Call, LeasePolicy, Moment, OpId, Outcome, Provenance, Refusal,
    Registry, Seen, SessionHolder, Slot, Step, Turn, Wait,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use crate::history::lease_id;
use crate::rig::{T0, TTL_MS, key, ms, session_ttl, who};

const KEYS: [&str; 3] = ["a", "a/b", "c"];

/// One registry that is called, and one that is asked by the shortcuts wherever there is one.
struct Pair {
    called: Registry<SessionHolder>,
    asked: Registry<SessionHolder>,
    drawn: (u64, u64),
    now: Moment,
    /// The latest token of each key, and one that was never given.
    tokens: [Option<At>; 3],
}

#[derive(Clone, Debug)]
enum Deed {
    Acquire(usize, bool),
    Touch(usize, usize, bool),
    Check(usize, usize, bool),
    Begin(usize),
    End(usize),
    Release(usize),
    Wait(u64),
    Back(u64),
}

fn deeds() -> impl Strategy<Value = Deed> {
    let place = 0..KEYS.len();
    prop_oneof![
        (place.clone(), any::<bool>()).prop_map(|(at, other)| Deed::Acquire(at, other)),
        (place.clone(), place.clone(), any::<bool>()).prop_map(|(a, b, c)| Deed::Touch(a, b, c)),
        (place.clone(), place.clone(), any::<bool>()).prop_map(|(a, b, c)| Deed::Check(a, b, c)),
        place.clone().prop_map(Deed::Begin),
        place.clone().prop_map(Deed::End),
        place.prop_map(Deed::Release),
        prop_oneof![Just(1), Just(TTL_MS - 1), Just(TTL_MS), Just(TTL_MS + 1)].prop_map(Deed::Wait),
        (1_u64..50).prop_map(Deed::Back),
    ]
}

impl Pair {
    fn new(policy: &LeasePolicy, receipts: usize) -> Self {
        let authority = AuthorityId::from_bytes([0xA1; 16]);
        let new = || Registry::new(authority, policy.clone()).with_receipts(receipts);
        Self {
            called: new(),
            asked: new(),
            drawn: (0, 0),
            now: ms(T0),
            tokens: [None; 3],
        }
    }

    /// Calls both.
    fn both(&mut self, at: usize, action: Action<SessionHolder>) -> Step<SessionHolder> {
        let call = Call {
            resource: Some(key(KEYS[at])),
            action,
            wait: Wait::No,
        };
        let answer = step(&mut self.asked, &mut self.drawn.1, self.now, &call);
        let wanted = step(&mut self.called, &mut self.drawn.0, self.now, &call);
        assert_eq!(format!("{wanted:?}"), format!("{answer:?}"));
        answer
    }

    /// Calls one, and asks the other by its shortcut.
    fn shortcut(&mut self, at: usize, action: Action<SessionHolder>, shown: At) {
        let resource = key(KEYS[at]);
        let drawn = &mut self.drawn.1;
        let mut draw = || {
            *drawn += 1;
            lease_id(*drawn)
        };
        let mut turn = Turn::new(Seen::at(self.now), &mut draw);
        let answer = match &action {
            Action::Touch(_) => self.asked.touch(&resource, shown, &mut turn),
            _ => self.asked.check(&resource, shown, &mut turn),
        };
        let call = Call {
            resource: Some(resource),
            action,
            wait: Wait::No,
        };
        let wanted = step(&mut self.called, &mut self.drawn.0, self.now, &call);
        assert_eq!(answer, refusal(wanted));
    }

    /// The token of `whose`, with or without its hint.
    fn shown(&self, whose: usize, hinted: bool) -> Option<At> {
        let token = self.tokens[whose]?;
        let slot = if hinted { token.slot } else { Slot::NONE };
        Some(At { slot, ..token })
    }

    fn bear(&mut self, at: usize, action: impl FnOnce(At) -> Action<SessionHolder>) {
        if let Some(shown) = self.shown(at, true) {
            drop(self.both(at, action(shown)));
        }
    }

    fn run(&mut self, deed: &Deed) {
        let op = OpId::from_bytes([1; 16]);
        match *deed {
            Deed::Acquire(at, other) => {
                let holder = if other {
                    who("ag-2", "s-2")
                } else {
                    who("ag-1", "s-1")
                };
                let acquire = Action::Acquire { holder, ttl: None };
                if let Step::Done(Outcome::Granted(grant, _)) = self.both(at, acquire) {
                    self.tokens[at] = Some(grant.at);
                }
            }
            Deed::Touch(at, whose, hinted) => {
                if let Some(shown) = self.shown(whose, hinted) {
                    self.shortcut(at, Action::Touch(shown), shown);
                }
            }
            Deed::Check(at, whose, hinted) => {
                if let Some(shown) = self.shown(whose, hinted) {
                    self.shortcut(at, Action::Check(By::Token(shown)), shown);
                }
            }
            Deed::Begin(place) => self.bear(place, |at| Action::Begin {
                at,
                op,
                from: Provenance::Reentrant,
            }),
            Deed::End(place) => self.bear(place, |at| Action::End {
                at,
                op,
                result: Ok(()),
            }),
            Deed::Release(place) => self.bear(place, |at| Action::Release(By::Token(at))),
            Deed::Wait(wait) => self.now = self.now.after(Duration::from_millis(wait)),
            Deed::Back(back) => {
                self.now = Moment::from_nanos(self.now.as_nanos() - back * 1_000_000);
            }
        }
        self.agree();
    }

    /// Checks that the two know the same.
    fn agree(&mut self) {
        assert_eq!(self.called.last_major(), self.asked.last_major());
        assert_eq!(self.called.latest(), self.asked.latest());
        assert_eq!(self.called.take_receipts(), self.asked.take_receipts());
        assert_eq!(self.called.next_deadline(), self.asked.next_deadline());
        for name in KEYS {
            let (called, asked) = (self.called.lease(&key(name)), self.asked.lease(&key(name)));
            assert_eq!(format!("{called:?}"), format!("{asked:?}"));
        }
    }
}

fn step(
    registry: &mut Registry<SessionHolder>,
    drawn: &mut u64,
    now: Moment,
    call: &Call<SessionHolder>,
) -> Step<SessionHolder> {
    let mut draw = || {
        *drawn += 1;
        lease_id(*drawn)
    };
    registry.call(call, &mut Turn::new(Seen::at(now), &mut draw))
}

fn refusal(step: Step<SessionHolder>) -> Result<(), Refusal<SessionHolder>> {
    match step {
        Step::Done(Outcome::Refused(refusal)) => Err(refusal),
        _ => Ok(()),
    }
}

proptest! {
    #[test]
    fn a_shortcut_answers_like_a_call(
        history in proptest::collection::vec(deeds(), 1..60),
        suspends in any::<bool>(),
        receipts in prop_oneof![Just(0), Just(4)],
    ) {
        let policy = if suspends { LeasePolicy::process_bound() } else { session_ttl() };
        let mut pair = Pair::new(&policy, receipts);
        for deed in &history {
            pair.run(deed);
        }
    }
}

#[test]
fn a_suspended_holder_is_not_entitled_by_the_shortcut_either() {
    let mut pair = Pair::new(&LeasePolicy::process_bound(), 0);
    let holder = who("ag-1", "s-1");
    let ttl = Some(Duration::from_millis(TTL_MS));
    let Step::Done(Outcome::Granted(grant, _)) = pair.both(0, Action::Acquire { holder, ttl })
    else {
        panic!("not granted");
    };
    pair.tokens[0] = Some(grant.at);
    pair.run(&Deed::Check(0, 0, true));
    pair.now = ms(T0 + TTL_MS + 1);
    let mut draw = || lease_id(1);
    let mut turn = Turn::new(Seen::at(pair.now), &mut draw);
    let refused = pair.asked.check(&key(KEYS[0]), grant.at, &mut turn);
    assert!(matches!(refused, Err(Refusal::Mismatch(_))), "{refused:?}");
}

#[test]
fn a_place_keeps_one_timer_for_all_its_leases() {
    let mut pair = Pair::new(&session_ttl(), 0);
    for passed in 0..1_000 {
        pair.now = ms(T0 + passed);
        pair.run(&Deed::Acquire(0, false));
        pair.run(&Deed::Release(0));
    }
    assert_eq!(pair.called.footprint(), (0, 1));
    // The timer of the first lease wakes nobody for the last one too early: it is only set anew.
    pair.run(&Deed::Acquire(0, false));
    pair.now = ms(T0 + TTL_MS + 1);
    pair.run(&Deed::Check(0, 0, true));
    let over = ms(T0 + 999 + TTL_MS).after(Duration::from_nanos(1));
    assert_eq!(pair.called.next_deadline(), Some(over));
    pair.now = over;
    pair.run(&Deed::Acquire(0, true));
    assert_eq!(pair.called.held(), 1);
}
