//! The check at the resource, where an older writer is turned away.

use alloc::vec::Vec;
use core::fmt;

use crate::code::Code;
use crate::id::{AuthorityId, FencingToken, Generation, LeaseId};

/// Stands at the resource and lets only the newest writer in.
///
/// A lock alone cannot stop a writer that stalled, lost its lease and wakes up. Each holder passes
/// [`enter`](Self::enter) before its first *read* of the resource and before every write; the gate
/// only ever rises. It is plain data: keep it beside what it protects, in the same transaction where
/// there is one, and change it under whatever serialises access to the resource.
///
/// One lease for one gate: of two overlapping leases of one writer only the newer one counts here once it has
/// entered, though both are good.
///
/// # Examples
///
/// ```
/// # use lease_core::{AuthorityId, FenceGate, FencingToken, Fenced, Generation, LeaseId};
/// # let token = |generation| FencingToken {
/// #     authority: AuthorityId::from_bytes([1; 16]),
/// #     generation: Generation::new(generation).unwrap(),
/// #     lease: LeaseId::from_bytes([generation as u8; 16]),
/// # };
/// let (old, new) = (token(1), token(2));
/// let mut gate = FenceGate::new();
/// gate.enter(&old)?;
/// gate.enter(&new)?;
/// // The old holder wakes up late: nothing of its write reaches the resource.
/// assert_eq!(gate.enter(&old), Err(Fenced::Older { current: new }));
/// # Ok::<(), Fenced>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceGate {
    authority: Option<AuthorityId>,
    /// The newest writer under that authority. [`LeaseId::NIL`]: this generation is revoked.
    last: Option<(Generation, LeaseId)>,
    retired: Vec<AuthorityId>,
}

/// Stored parts that no gate can have had.
///
/// State: no gate was made. It is unknown who entered last, so nobody may. Retry: never with these parts;
/// the owner of the resource has to find out, and begins anew with an authority of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A last writer without an authority.
    #[error("stored gate has a last writer and no authority")]
    NoAuthority,
    /// The authority is among the retired ones, or there are retired ones and none after them.
    #[error("stored gate has a retired authority, or only retired ones")]
    Retired,
    /// A generation without a lease, a lease without a generation, or a generation out of range.
    #[error("stored gate has no sound generation and lease")]
    Writer,
}

/// Why a writer was turned away. The gate is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fenced {
    /// A newer writer has entered.
    ///
    /// Retry: never with this token; acquire anew.
    Older {
        /// The newest writer.
        current: FencingToken,
    },
    /// The token is of another authority, or of one that was succeeded.
    ///
    /// Retry: after the owner of the resource called [`FenceGate::succeed`], if it ever does.
    OtherAuthority {
        /// Whose tokens count.
        current: AuthorityId,
    },
    /// The generation was given to two leases: the authority was restored from an older state.
    ///
    /// Retry: never with this token; raise the authority's floor and acquire anew.
    Twice {
        /// The writer that entered with it first.
        current: FencingToken,
    },
    /// The generation was revoked by an operator, or the token bears the mark of a revoked one.
    ///
    /// Retry: never with this token; acquire anew.
    Revoked {
        /// The newest generation that is revoked; of a token with the mark its own.
        generation: Generation,
    },
}

impl FenceGate {
    /// A gate nobody has passed. It takes the authority of its first token.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            authority: None,
            last: None,
            retired: Vec::new(),
        }
    }

    /// Restores a gate from its stored parts: whose tokens count, the newest writer, and the
    /// authorities that were succeeded.
    ///
    /// # Errors
    ///
    /// [`GateError`] for parts that do not go together. Such a gate is never taken for an open one.
    pub fn restore(
        authority: Option<AuthorityId>,
        last: Option<(Generation, LeaseId)>,
        retired: Vec<AuthorityId>,
    ) -> Result<Self, GateError> {
        match authority {
            None if last.is_some() => Err(GateError::NoAuthority),
            // Only an authority that came after retires another.
            None if !retired.is_empty() => Err(GateError::Retired),
            Some(authority) if retired.contains(&authority) => Err(GateError::Retired),
            Some(_) | None => Ok(Self {
                authority,
                last,
                retired,
            }),
        }
    }

    /// Lets the holder of `token` in and raises the gate to it.
    ///
    /// # Errors
    ///
    /// [`Fenced::Older`] for a lower generation, [`Fenced::Twice`] for an equal one of another lease,
    /// [`Fenced::Revoked`] up to a revoked one, [`Fenced::OtherAuthority`] for a foreign token.
    pub fn enter(&mut self, token: &FencingToken) -> Result<(), Fenced> {
        self.check(token)?;
        self.authority = Some(token.authority);
        self.last = Some((token.generation, token.lease));
        Ok(())
    }

    /// Says what [`enter`](Self::enter) would say, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    pub fn check(&self, token: &FencingToken) -> Result<(), Fenced> {
        // The mark of a revoked generation is nobody's lease.
        if token.lease == LeaseId::NIL {
            return Err(Fenced::Revoked {
                generation: token.generation,
            });
        }
        // Without an authority there is none that was succeeded.
        if let Some(current) = self.authority.filter(|current| *current != token.authority) {
            return Err(Fenced::OtherAuthority { current });
        }
        let Some(current) = self.current() else {
            return Ok(());
        };
        let revoked = current.lease == LeaseId::NIL;
        match token.generation.cmp(&current.generation) {
            core::cmp::Ordering::Greater => Ok(()),
            core::cmp::Ordering::Equal
                if !revoked
                    && (token.lease == current.lease || planted!(EqualGenerationEnters)) =>
            {
                Ok(())
            }
            _ if revoked => Err(Fenced::Revoked {
                generation: current.generation,
            }),
            core::cmp::Ordering::Equal => Err(Fenced::Twice { current }),
            core::cmp::Ordering::Less => Err(Fenced::Older { current }),
        }
    }

    /// Turns `token` and every older one away for ever, without a newer writer.
    ///
    /// The other half of an operator's revocation. A token of another authority, or one that is older
    /// than the gate already, changes nothing.
    pub fn revoke(&mut self, token: &FencingToken) {
        let ours = self
            .authority
            .is_none_or(|authority| authority == token.authority);
        let newest = self
            .last
            .is_none_or(|(generation, _)| token.generation >= generation);
        if ours && newest && !self.retired.contains(&token.authority) {
            self.authority = Some(token.authority);
            self.last = Some((token.generation, LeaseId::NIL));
        }
    }

    /// Puts a new authority in place of the old one, whose tokens are refused from then on for ever.
    ///
    /// Called by the owner of the resource, who knows that the old authority grants no more: a memory
    /// authority is a new one at each start. The first token of the new one is the floor.
    ///
    /// # Errors
    ///
    /// [`Fenced::OtherAuthority`] if `next` was succeeded before: it never comes back.
    pub fn succeed(&mut self, next: AuthorityId) -> Result<(), Fenced> {
        if self.retired.contains(&next) {
            return Err(Fenced::OtherAuthority {
                current: self.authority.unwrap_or(next),
            });
        }
        if let Some(old) = self.authority.replace(next).filter(|old| *old != next) {
            self.retired.push(old);
            self.last = None;
        }
        Ok(())
    }

    /// Returns whose tokens count.
    #[must_use]
    pub const fn authority(&self) -> Option<AuthorityId> {
        self.authority
    }

    /// Returns the newest token that entered; of a revoked one the lease is [`LeaseId::NIL`].
    #[must_use]
    pub fn current(&self) -> Option<FencingToken> {
        let (generation, lease) = self.last?;
        Some(FencingToken {
            authority: self.authority?,
            generation,
            lease,
        })
    }

    /// Returns the authorities that were succeeded, the earliest first.
    #[must_use]
    pub fn retired(&self) -> &[AuthorityId] {
        &self.retired
    }
}

impl Fenced {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> Code {
        Code::Fenced
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Older { current } => {
                write!(f, "token is older than generation {}", current.generation)
            }
            Self::OtherAuthority { current } => {
                write!(
                    f,
                    "token is of an authority that has not succeeded {current}"
                )
            }
            Self::Twice { current } => {
                write!(
                    f,
                    "generation {} was given to two leases",
                    current.generation
                )
            }
            Self::Revoked { generation } => write!(f, "generation {generation} was revoked"),
        }
    }
}

impl core::error::Error for Fenced {}

#[cfg(feature = "serde")]
mod wire {
    //! The stored form: four plain parts, checked together when they are read.

    use alloc::vec::Vec;

    use super::{AuthorityId, FenceGate, GateError, Generation, LeaseId};

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stored {
        #[serde(deserialize_with = "crate::wire::required")]
        authority: Option<AuthorityId>,
        #[serde(with = "crate::wire::wide")]
        generation: u64,
        #[serde(deserialize_with = "crate::wire::required")]
        lease: Option<LeaseId>,
        retired: Vec<AuthorityId>,
    }

    impl serde::Serialize for FenceGate {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let stored = Stored {
                authority: self.authority,
                generation: self.last.map_or(0, |(generation, _)| generation.get()),
                lease: self.last.map(|(_, lease)| lease),
                retired: self.retired.clone(),
            };
            stored.serialize(serializer)
        }
    }

    impl<'de> serde::Deserialize<'de> for FenceGate {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            use serde::de::Error as _;

            let stored: Stored = crate::wire::legibly(d)?;
            let last = match (stored.generation, stored.lease) {
                (0, None) => None,
                (generation, Some(lease)) => match Generation::new(generation) {
                    Some(generation) => Some((generation, lease)),
                    None => return Err(D::Error::custom(GateError::Writer)),
                },
                (_, None) => return Err(D::Error::custom(GateError::Writer)),
            };
            Self::restore(stored.authority, last, stored.retired).map_err(D::Error::custom)
        }
    }
}
