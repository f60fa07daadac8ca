//! The gate at the resource, over every order of tokens: a history of any length.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use lease_core::{AuthorityId, FenceGate, FencingToken, Generation, LeaseId};
use stateright::{Model, Property};

use super::explore::Budget;
use super::law::{Breach, Judged, Law, properties, require};

/// Every history of one gate.
#[derive(Debug)]
pub(super) struct Gates {
    /// The most steps in a history; `None` without end.
    pub(super) depth: Option<u32>,
    pub(super) budget: Budget,
}

/// A token by its parts: authority, generation, lease.
type Token = (u8, u8, u8);

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Somebody shows a token.
    Enter(Token),
    /// An operator revokes a token.
    Revoke(Token),
    /// The owner of the resource names a new authority.
    Succeed(u8),
}

/// A gate, and what a witness beside it remembers.
#[derive(Clone, Debug)]
pub(super) struct State {
    gate: FenceGate,
    /// The last token that was let in.
    inside: Option<Token>,
    /// The largest generation that was revoked, with its authority.
    revoked: Option<(u8, u8)>,
    /// Authorities that were succeeded.
    past: BTreeSet<u8>,
    /// The authority that was named last.
    named: Option<u8>,
    broken: Option<Law>,
    /// How many steps led here. Not a part of the state.
    depth: u32,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let parts = |state: &Self| (state.inside, state.revoked, state.named, state.broken);
        self.gate == other.gate && self.past == other.past && parts(self) == parts(other)
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.gate.authority().hash(state);
        self.gate.current().hash(state);
        self.gate.retired().hash(state);
        (
            self.inside,
            self.revoked,
            &self.past,
            self.named,
            self.broken,
        )
            .hash(state);
    }
}

impl Judged<Gates> for State {
    fn broken(&self, _: &Gates) -> Option<Law> {
        self.broken
    }
}

impl Model for Gates {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            gate: FenceGate::new(),
            inside: None,
            revoked: None,
            past: BTreeSet::new(),
            named: None,
            broken: None,
            depth: 0,
        }]
    }

    fn actions(&self, state: &State, moves: &mut Vec<Move>) {
        let deep = self.depth.is_some_and(|depth| state.depth >= depth);
        if deep || state.broken.is_some() || !self.budget.allows() {
            return;
        }
        for authority in 0..3 {
            moves.push(Move::Succeed(authority));
            for generation in 1..=3 {
                moves.push(Move::Revoke((authority, generation, 1)));
                for lease in 1..=2 {
                    moves.push(Move::Enter((authority, generation, lease)));
                }
            }
        }
    }

    fn next_state(&self, last: &State, step: Move) -> Option<State> {
        let (state, _) = take(last, step)?;
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

fn real((authority, generation, lease): Token) -> Option<FencingToken> {
    Some(FencingToken {
        authority: AuthorityId::from_bytes([authority; 16]),
        generation: Generation::new(u64::from(generation))?,
        lease: LeaseId::from_bytes([lease; 16]),
    })
}

/// Takes one step, and judges whether somebody was let in who must stay outside.
fn take(before: &State, step: Move) -> Option<(State, Option<Breach>)> {
    let mut after = before.clone();
    after.depth = after.depth.saturating_add(1);
    let mut judged = Ok(());
    match step {
        Move::Enter(token) => {
            if after.gate.enter(&real(token)?).is_ok() {
                judged = may_enter(before, token);
                after.inside = Some(token);
                after.named = Some(token.0);
            }
        }
        Move::Revoke(token) => {
            after.gate.revoke(&real(token)?);
            let ours = after.named.is_none_or(|named| named == token.0);
            let older = |(authority, most)| authority == token.0 && most >= token.1;
            if ours && !after.past.contains(&token.0) && !after.revoked.is_some_and(older) {
                after.revoked = Some((token.0, token.1));
                after.named = Some(token.0);
            }
        }
        Move::Succeed(next) => {
            let next_id = AuthorityId::from_bytes([next; 16]);
            if after.gate.succeed(next_id).is_ok() {
                let old = after.named.replace(next).filter(|old| *old != next);
                if let Some(old) = old {
                    after.past.insert(old);
                    after.inside = None;
                    after.revoked = None;
                }
            }
        }
    }
    let breach = judged.err();
    after.broken = breach.as_ref().map(|breach| breach.law);
    Some((after, breach))
}

fn may_enter(before: &State, token: Token) -> Result<(), Breach> {
    let (authority, generation, lease) = token;
    let what = || {
        let after = before
            .inside
            .map_or_else(String::new, |newest| format!(" after {}", name(newest)));
        format!("{} was let in{after}", name(token))
    };
    let foreign = before.named.is_some_and(|named| named != authority);
    require(
        !foreign && !before.past.contains(&authority),
        Law::NoForeignToken,
        what,
    )?;
    let revoked =
        (before.revoked).is_some_and(|(whose, most)| whose == authority && generation <= most);
    require(!revoked, Law::RevokedStayOut, what)?;
    if let Some((whose, newest, who)) = before.inside
        && whose == authority
    {
        require(generation >= newest, Law::NoOlderAfterNewer, what)?;
        let twice = generation == newest && lease != who;
        require(!twice, Law::NoGenerationTwice, what)?;
    }
    Ok(())
}

/// Tells a history step by step, and what is wrong at its end.
pub(super) fn retell(model: &Gates, moves: &[Move]) -> (Vec<String>, String) {
    let mut told = Vec::new();
    let mut state = model.init_states().into_iter().next();
    for step in moves {
        told.push(tell(*step));
        let Some((next, breach)) = state.as_ref().and_then(|state| take(state, *step)) else {
            break;
        };
        if let Some(breach) = breach {
            return (told, breach.what);
        }
        state = Some(next);
    }
    (told, String::new())
}

fn tell(step: Move) -> String {
    match step {
        Move::Enter(token) => format!("a writer with {} enters", name(token)),
        Move::Revoke(token) => format!("an operator revokes {}", name(token)),
        Move::Succeed(next) => format!("authority {next} succeeds"),
    }
}

fn name((authority, generation, lease): Token) -> String {
    format!("generation {generation}, lease {lease}, authority {authority}")
}
