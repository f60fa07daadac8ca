//! What reaches the guarded resources.

use lease_core::FencingToken;

use super::Room;
use crate::oracle::{Breach, Rule};
use crate::sim::count::Count;
use crate::sim::driver::Driver;
use crate::sim::step::Step;

impl<D: Driver> Room<D> {
    pub(super) fn write(&mut self, step: Step) -> Result<(), Breach> {
        match step {
            Step::Write { seat, hold, place } => match self.hold(seat, hold) {
                Some((_, hold)) => {
                    let (key, token) = (hold.key, hold.at.token);
                    self.enter(key, token, place)
                }
                None => Ok(()),
            },
            Step::WriteLate { past, place } => {
                let at = usize::from(past).checked_rem(self.past.len());
                match at.and_then(|at| self.past.get(at).copied()) {
                    Some((key, token)) => self.enter(key, token, place),
                    None => Ok(()),
                }
            }
            Step::Succeed { place } => {
                self.succeed(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The places below a key, by number.
    pub(super) fn below(&self, key: u8) -> Vec<usize> {
        let Some(key) = self.key(key) else {
            return Vec::new();
        };
        let covers = |name: &str| {
            name.strip_prefix(key.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let places = self.places.iter().enumerate();
        places
            .filter(|(_, place)| covers(place.name))
            .map(|(at, _)| at)
            .collect()
    }

    /// One step at a guarded resource: through the gate, or not at all.
    fn enter(&mut self, key: u8, token: FencingToken, place: u8) -> Result<(), Breach> {
        let below = self.below(key);
        let at = usize::from(place)
            .checked_rem(below.len())
            .and_then(|at| below.get(at));
        let Some(place) = at.and_then(|at| self.places.get_mut(*at)) else {
            return Ok(());
        };
        let name = place.name;
        let newest = place.log.newest();
        match self.driver.enter(&mut place.gate, &token) {
            Ok(()) => {
                place.owner.get_or_insert(token.authority);
                place.log.accepted(&token)?;
                self.counts.add(Count::Written, 1);
                self.tell(|| format!("    generation {} is let in at {name}", token.generation));
                Ok(())
            }
            Err(fenced) => {
                // The newest lease of the authority that the owner wants has nothing in its way.
                let ours = place.owner.is_none_or(|owner| owner == token.authority);
                let later = |other: &FencingToken| {
                    other.authority == token.authority
                        && other.generation >= token.generation
                        && *other != token
                };
                let closed = place.closed.is_some_and(|closed| later(&closed));
                if ours
                    && !closed
                    && !newest.is_some_and(|newest| later(&newest))
                    && self.oracle.is_current(token)
                {
                    let what = format!("generation {} at {name}: {fenced}", token.generation);
                    return Err(Breach::new(Rule::HolderGetsIn, what));
                }
                self.counts.add(Count::Fenced, 1);
                self.tell(|| format!("    turned away at {name}: {fenced}"));
                Ok(())
            }
        }
    }

    /// The owner of a place wants the tokens of the present authority from now on.
    fn succeed(&mut self, place: u8) {
        let (authority, count) = (self.authority, self.places.len());
        let at = usize::from(place).checked_rem(count);
        if let Some(place) = at.and_then(|at| self.places.get_mut(at))
            && place.gate.succeed(authority).is_ok()
        {
            place.owner = Some(authority);
        }
    }
}
