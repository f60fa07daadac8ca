//! What is seen at a guarded resource: which token was let in, and which was turned away.

use lease_core::{AuthorityId, FencingToken};

use super::rule::{Breach, Rule, require};

/// The log of one guarded resource, and the order of the authorities that stood over it.
///
/// Whoever guards the resource reports each step that was let in, reads as well as writes, in the order
/// in which they happened. Nothing here knows a [`FenceGate`](lease_core::FenceGate).
#[derive(Clone, Debug, Default)]
pub struct ResourceLog {
    /// The authorities in the order in which they took over; a later one is newer.
    authorities: Vec<AuthorityId>,
    /// Every token that was let in, in the order of its first step.
    seen: Vec<FencingToken>,
    newest: Option<FencingToken>,
}

impl ResourceLog {
    /// A resource that nobody touched.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            authorities: Vec::new(),
            seen: Vec::new(),
            newest: None,
        }
    }

    /// Says that `authority` is the newest one from now on.
    pub fn succeeded(&mut self, authority: AuthorityId) {
        self.authorities.retain(|known| *known != authority);
        self.authorities.push(authority);
    }

    /// Takes down one accepted step under `token`.
    ///
    /// # Errors
    ///
    /// [`Rule::NoOlderAfterNewer`] and [`Rule::HoldsDoNotOverlap`].
    pub fn accepted(&mut self, token: &FencingToken) -> Result<(), Breach> {
        if !self.authorities.contains(&token.authority) {
            // Nobody told of it: it came with its first token.
            self.authorities.push(token.authority);
        }
        if let Some(newest) = self.newest {
            require(!self.older(token, &newest), Rule::NoOlderAfterNewer, || {
                format!(
                    "generation {} was let in after generation {}",
                    token.generation, newest.generation
                )
            })?;
        }
        match self.seen.iter().position(|seen| seen == token) {
            None => self.seen.push(*token),
            Some(at) => {
                let between = self.seen.get(at.saturating_add(1));
                require(between.is_none(), Rule::HoldsDoNotOverlap, || {
                    let other = between.map_or(0, |token| token.generation.get());
                    format!(
                        "generation {} went on after generation {other} had been let in",
                        token.generation
                    )
                })?;
            }
        }
        self.newest = Some(*token);
        Ok(())
    }

    /// Returns the newest token that was let in.
    #[must_use]
    pub const fn newest(&self) -> Option<FencingToken> {
        self.newest
    }

    fn age(&self, authority: AuthorityId) -> Option<usize> {
        self.authorities
            .iter()
            .position(|known| *known == authority)
    }

    /// Whether `a` comes before `b` in the order of authorities, then of generations.
    fn older(&self, a: &FencingToken, b: &FencingToken) -> bool {
        (self.age(a.authority), a.generation) < (self.age(b.authority), b.generation)
    }
}
