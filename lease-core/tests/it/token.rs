//! The verbs of the registry for who has the parts of a call in hand: the same answers, numbers, receipts
//! and leases as by a call.

use core::time::Duration;

use lease_core::{
    Action, At, AuthorityId, By, Call, Change, Disposition, Finish, LeasePolicy, Moment, OpId,
    Outcome, Provenance, Refusal, Registry, Request, Seen, SessionHolder, Slot, Start, Step, Turn,
    Wait,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use crate::history::lease_id;
use crate::rig::{T0, TTL_MS, key, ms, session_ttl, who};

const KEYS: [&str; 3] = ["a", "a/b", "c"];

/// One registry that is called, and one that is asked by its verbs.
struct Pair {
    called: Registry<SessionHolder>,
    asked: Registry<SessionHolder>,
    drawn: (u64, u64),
    now: Moment,
    /// The latest token of each key.
    tokens: [Option<At>; 3],
}

/// What is done, with the token of which key, with or without its hint.
#[derive(Clone, Copy, Debug)]
struct Shown {
    at: usize,
    whose: usize,
    hinted: bool,
}

#[derive(Clone, Debug)]
enum Deed {
    /// By which of two writers, and for how many milliseconds it may wait.
    Acquire(usize, bool, u64),
    Touch(Shown),
    Check(Shown),
    Begin(Shown, u8, Provenance),
    End(Shown, u8, Result<(), Disposition>),
    Release(Shown),
    Wait(u64),
    Back(u64),
}

fn shown() -> impl Strategy<Value = Shown> {
    // Mostly the token of the same key.
    (0..KEYS.len(), any::<bool>(), 0..8_usize).prop_map(|(at, hinted, other)| Shown {
        at,
        whose: if other < KEYS.len() { other } else { at },
        hinted,
    })
}

fn deeds() -> impl Strategy<Value = Deed> {
    let wait = prop_oneof![Just(0), Just(0), 1..TTL_MS];
    let from = prop_oneof![Just(Provenance::Created), Just(Provenance::Reentrant)];
    let result = prop_oneof![
        Just(Ok(())),
        Just(Err(Disposition::PreMutation)),
        Just(Err(Disposition::RolledBack)),
        Just(Err(Disposition::Unknown)),
    ];
    prop_oneof![
        (0..KEYS.len(), any::<bool>(), wait).prop_map(|(at, b, c)| Deed::Acquire(at, b, c)),
        shown().prop_map(Deed::Touch),
        shown().prop_map(Deed::Check),
        (shown(), 0..3_u8, from).prop_map(|(shown, op, from)| Deed::Begin(shown, op, from)),
        (shown(), 0..3_u8, result).prop_map(|(shown, op, result)| Deed::End(shown, op, result)),
        shown().prop_map(Deed::Release),
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

    fn call(
        &mut self,
        at: usize,
        action: Action<SessionHolder>,
        wait: Wait,
    ) -> Step<SessionHolder> {
        let call = Call {
            resource: Some(key(KEYS[at])),
            action,
            wait,
        };
        step(&mut self.called, &mut self.drawn.0, self.now, &call)
    }

    /// Uses a verb of the registry that is asked.
    fn ask<T>(&mut self, verb: impl FnOnce(&mut Registry<SessionHolder>, &mut Turn<'_>) -> T) -> T {
        let drawn = &mut self.drawn.1;
        let mut draw = || {
            *drawn += 1;
            lease_id(*drawn)
        };
        verb(
            &mut self.asked,
            &mut Turn::new(Seen::at(self.now), &mut draw),
        )
    }

    fn acquire(
        &mut self,
        at: usize,
        holder: SessionHolder,
        ttl: Option<Duration>,
        wait: Wait,
    ) -> Step<SessionHolder> {
        let request = Request {
            holder: &holder,
            ttl,
            wait,
        };
        let answer = self.ask(|asked, turn| asked.acquire(&key(KEYS[at]), request, turn));
        let action = Action::Acquire {
            holder: holder.clone(),
            ttl,
        };
        let wanted = self.call(at, action, wait);
        assert_eq!(format!("{wanted:?}"), format!("{answer:?}"));
        if let Step::Done(Outcome::Granted(grant, _)) = &answer {
            self.tokens[at] = Some(grant.at);
        }
        answer
    }

    fn run(&mut self, deed: &Deed) {
        match *deed {
            Deed::Acquire(at, other, wait) => {
                let holder = if other {
                    who("ag-2", "s-2")
                } else {
                    who("ag-1", "s-1")
                };
                let until = self.now.after(Duration::from_millis(wait));
                let wait = if wait > 0 {
                    Wait::Until(until)
                } else {
                    Wait::No
                };
                drop(self.acquire(at, holder, None, wait));
            }
            Deed::Wait(wait) => self.now = self.now.after(Duration::from_millis(wait)),
            Deed::Back(back) => {
                self.now = Moment::from_nanos(self.now.as_nanos() - back * 1_000_000);
            }
            Deed::Touch(shown)
            | Deed::Check(shown)
            | Deed::Begin(shown, ..)
            | Deed::End(shown, ..)
            | Deed::Release(shown) => {
                if let Some(token) = self.tokens[shown.whose] {
                    let slot = if shown.hinted { token.slot } else { Slot::NONE };
                    self.bear(deed, shown.at, At { slot, ..token });
                }
            }
        }
        self.settle();
        self.agree();
    }

    /// Shows a token to both.
    fn bear(&mut self, deed: &Deed, place: usize, at: At) {
        let resource = key(KEYS[place]);
        let id = |op: u8| OpId::from_bytes([op; 16]);
        let (answer, action) = match *deed {
            Deed::Touch(_) => {
                let answer = self.ask(|asked, turn| asked.touch(&resource, at, turn));
                (answer.map(|()| None), Action::Touch(at))
            }
            Deed::Check(_) => {
                let answer = self.ask(|asked, turn| asked.check(&resource, at, turn));
                (answer.map(|()| None), Action::Check(By::Token(at)))
            }
            Deed::Begin(_, op, from) => {
                let op = id(op);
                let start = Start { op, from };
                let answer = self.ask(|asked, turn| asked.begin(&resource, at, start, turn));
                (answer.map(Some), Action::Begin { at, op, from })
            }
            Deed::End(_, op, result) => {
                let op = id(op);
                let finish = Finish { op, result };
                let answer = self.ask(|asked, turn| asked.end(&resource, at, finish, turn));
                (answer.map(Some), Action::End { at, op, result })
            }
            _ => {
                let answer = self.ask(|asked, turn| asked.release(&resource, at, turn));
                (answer.map(Some), Action::Release(By::Token(at)))
            }
        };
        let wanted = done(self.call(place, action, Wait::No));
        match answer {
            Ok(Some(change)) => assert_eq!(Ok(change), wanted),
            Ok(None) => assert!(wanted.is_ok(), "{wanted:?}"),
            Err(refusal) => assert_eq!(Err(refusal), wanted),
        }
    }

    /// Takes what was answered after waiting.
    fn settle(&mut self) {
        loop {
            let (called, asked) = (self.called.take_settled(), self.asked.take_settled());
            assert_eq!(called, asked);
            let Some(settled) = asked else { return };
            if let Ok((grant, _)) = settled.outcome {
                let at = KEYS.iter().position(|name| key(name) == settled.resource);
                self.tokens[at.expect("one of the keys")] = Some(grant.at);
            }
        }
    }

    /// Checks that the two know the same.
    fn agree(&mut self) {
        assert_eq!(self.called.last_major(), self.asked.last_major());
        assert_eq!(self.called.latest(), self.asked.latest());
        assert_eq!(self.called.take_receipts(), self.asked.take_receipts());
        assert_eq!(self.called.next_deadline(), self.asked.next_deadline());
        assert_eq!(self.called.waiting(), self.asked.waiting());
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

fn done(step: Step<SessionHolder>) -> Result<Change, Refusal<SessionHolder>> {
    match step {
        Step::Done(Outcome::Done(change)) => Ok(change),
        Step::Done(Outcome::Refused(refusal)) => Err(refusal),
        step => panic!("no answer to the bearer of a token: {step:?}"),
    }
}

proptest! {
    #[test]
    fn a_verb_answers_like_a_call(
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

const OWN: Shown = Shown {
    at: 0,
    whose: 0,
    hinted: true,
};

#[test]
fn a_suspended_holder_is_not_entitled_by_the_verb_either() {
    let mut pair = Pair::new(&LeasePolicy::process_bound(), 0);
    let ttl = Some(Duration::from_millis(TTL_MS));
    let Step::Done(Outcome::Granted(grant, _)) = pair.acquire(0, who("ag-1", "s-1"), ttl, Wait::No)
    else {
        panic!("not granted");
    };
    pair.run(&Deed::Check(OWN));
    pair.now = ms(T0 + TTL_MS + 1);
    let refused = pair.ask(|asked, turn| asked.check(&key(KEYS[0]), grant.at, turn));
    assert!(matches!(refused, Err(Refusal::Mismatch(_))), "{refused:?}");
}

#[test]
fn a_check_by_the_verb_keeps_its_receipt() {
    let mut pair = Pair::new(&session_ttl(), 4);
    pair.run(&Deed::Acquire(0, false, 0));
    pair.run(&Deed::Check(OWN));
    let at = pair.tokens[0].expect("it was granted");
    let checked = pair.ask(|asked, turn| asked.check(&key(KEYS[0]), at, turn));
    assert_eq!(checked, Ok(()));
    assert_eq!(pair.asked.take_receipts().receipts.len(), 1);
}

#[test]
fn a_place_keeps_one_timer_for_all_its_leases() {
    let mut pair = Pair::new(&session_ttl(), 0);
    for passed in 0..1_000 {
        pair.now = ms(T0 + passed);
        pair.run(&Deed::Acquire(0, false, 0));
        pair.run(&Deed::Release(OWN));
    }
    assert_eq!(pair.called.footprint(), (0, 1));
    // The timer of the first lease wakes nobody for the last one too early: it is only set anew.
    pair.run(&Deed::Acquire(0, false, 0));
    pair.now = ms(T0 + TTL_MS + 1);
    pair.run(&Deed::Check(OWN));
    let over = ms(T0 + 999 + TTL_MS).after(Duration::from_nanos(1));
    assert_eq!(pair.called.next_deadline(), Some(over));
    pair.now = over;
    pair.run(&Deed::Acquire(0, true, 0));
    assert_eq!(pair.called.held(), 1);
}
