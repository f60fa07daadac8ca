//! What ends a lease, and what a second request means: orthogonal parts, checked once.

use core::time::Duration;

use crate::limits::TERM_MAX;
use crate::liveness::Locality;

/// The terms under which an authority grants, stored in every lease it grants.
///
/// Pure data, valid by construction: the parts are independent, and the combinations that mean
/// nothing are refused by [`PolicyBuilder::build`]. The decision tables follow from the parts.
/// Contenders are judged by the *holder's* terms alone. No part treats equal agents as one writer.
///
/// # Examples
///
/// ```
/// # use core::time::Duration;
/// # use lease_core::{LeasePolicy, PolicyError};
/// let policy = LeasePolicy::session_ttl(Duration::from_secs(30))?;
/// assert!(policy.ends_on().disconnect);
/// assert_eq!(LeasePolicy::session_ttl(Duration::ZERO), Err(PolicyError::ZeroTerm));
/// # Ok::<(), PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LeasePolicy {
    term: Term,
    on_expiry: OnExpiry,
    ends_on: Proofs,
    again: Again,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    self_stop_margin: Option<Duration>,
}

/// How long a lease is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum Term {
    /// No term.
    None,
    /// The request names it; without a ttl that lease has no expiry.
    PerGrant {
        /// The longest that is granted.
        max: Option<Duration>,
    },
    /// Always this one, counted from the last touch.
    Fixed(Duration),
}

/// What the end of the term does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum OnExpiry {
    /// Nothing.
    Ignore,
    /// The holder may not write until it renews with an explicit ttl; nobody else gains.
    SuspendHolder,
    /// The lease may be reclaimed while no operation is in flight.
    EndIfIdle,
}

/// What ends a lease besides its holder's own release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[expect(
    clippy::exhaustive_structs,
    reason = "decisions must look at every proof"
)]
pub struct Proofs {
    /// The transport says that the holder's connection ended.
    pub disconnect: bool,
    /// Evidence says that the holder's process is gone.
    pub process: Option<ProcessProof>,
    /// The server says that the holder's session ended.
    pub session: bool,
}

/// What must be gone besides the holder's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[expect(
    clippy::exhaustive_structs,
    reason = "decisions must look at every proof"
)]
pub struct ProcessProof {
    /// Every live member of its process group.
    pub group: bool,
    /// Every process that uses the resource's paths.
    pub paths: bool,
}

/// What a further request of the same holder means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(clippy::exhaustive_enums, reason = "decisions must look at every case")]
pub enum Again {
    /// It is progress: a fixed term starts anew, one named by the request stays as it was.
    Touch,
    /// It is a renewal: a term named by the request moves only with an explicit ttl, a fixed one starts
    /// anew.
    Renew,
}

/// Why parts make no policy, or a policy no authority.
///
/// State: unchanged; an authority keeps the policy it has. Retry: never with the same parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// `term` is zero: such a lease would be over at once.
    #[error("term is zero")]
    ZeroTerm,
    /// `term` is above 100 years.
    #[error("term is longer than 100 years")]
    AbsurdTerm,
    /// `on_expiry` is `EndIfIdle` without a fixed `term`.
    #[error("on_expiry EndIfIdle needs a fixed term")]
    EndIfIdleNeedsFixedTerm,
    /// `on_expiry` is `SuspendHolder` without a `process` proof in `ends_on`.
    #[error("on_expiry SuspendHolder needs ends_on.process")]
    SuspendNeedsProcess,
    /// `term` is `None` and `on_expiry` is not `Ignore`.
    #[error("without a term on_expiry must be Ignore")]
    NoTermNeedsIgnore,
    /// Neither `ends_on` nor `on_expiry` ever ends the lease of a silent holder.
    #[error("ends_on is empty and on_expiry is not EndIfIdle: nothing would ever end a lease")]
    NeverEnds,
    /// `self_stop_margin` is not below the fixed `term`, or there is no term.
    #[error("self_stop_margin must be below the fixed term")]
    MarginTooLong,
    /// `self_stop_margin` is below what the authority needs.
    #[error("self_stop_margin {asked:?} is below the authority's {least:?}")]
    MarginTooShort {
        /// What the policy says.
        asked: Duration,
        /// What the authority needs.
        least: Duration,
    },
    /// `on_expiry` is `EndIfIdle`, and the authority does not know operations in flight.
    #[error("on_expiry EndIfIdle needs an authority that shields operations in flight")]
    NeedsShields,
    /// The policy of this authority was set before, or it has answered a call already.
    #[error("the policy of this authority is already in force")]
    AlreadySet,
}

impl PolicyError {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> crate::Code {
        crate::Code::PolicyRefused
    }
}

/// What an authority can do. A policy that needs more is refused when the two are joined.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "an authority states every capability"
)]
pub struct Capabilities {
    /// Leases outlive the process.
    pub durable: bool,
    /// Operations in flight are known, so they shield from expiry.
    pub shields: bool,
    /// A sweep sees every resource, not only those asked for.
    pub sweeps_all: bool,
    /// What is promised about the order of waiters.
    pub order: Order,
    /// Where the records can be written from.
    pub locality: Locality,
    /// How long before expiry the holder's own check stops, for a term.
    pub self_stop_margin: fn(Duration) -> Duration,
}

/// What an authority promises about the order of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "an authority promises one of these"
)]
pub enum Order {
    /// First come, first served among overlapping requests.
    Fifo,
    /// Every process gets a share, in no promised order.
    Share,
}

impl LeasePolicy {
    /// A session inside one process: it ends on disconnect, or once idle longer than `ttl`.
    ///
    /// Nothing is asked about processes. A wrong clock can reclaim an idle lease early.
    ///
    /// # Errors
    ///
    /// [`PolicyError::ZeroTerm`] and [`PolicyError::AbsurdTerm`].
    pub fn session_ttl(ttl: Duration) -> Result<Self, PolicyError> {
        PolicyBuilder::new()
            .term(Term::Fixed(ttl))
            .on_expiry(OnExpiry::EndIfIdle)
            .ends_on(Proofs {
                disconnect: true,
                ..Proofs::default()
            })
            .build()
    }

    /// A session whose host process can be asked after: as [`session_ttl`](Self::session_ttl), and
    /// it ends on proof that the host process is gone.
    ///
    /// # Errors
    ///
    /// [`PolicyError::ZeroTerm`] and [`PolicyError::AbsurdTerm`].
    pub fn hosted_session(ttl: Duration) -> Result<Self, PolicyError> {
        PolicyBuilder::new()
            .term(Term::Fixed(ttl))
            .on_expiry(OnExpiry::EndIfIdle)
            .ends_on(Proofs {
                disconnect: true,
                process: Some(ProcessProof::default()),
                session: false,
            })
            .build()
    }

    /// A lease bound to one process: it ends on proof that the process, its group and every user of
    /// the path are gone.
    ///
    /// The term, where a request names one, suspends the holder and gives nobody else anything. A
    /// wrong clock can suspend early and never gives away.
    #[must_use]
    pub const fn process_bound() -> Self {
        Self {
            term: Term::PerGrant { max: None },
            on_expiry: OnExpiry::SuspendHolder,
            ends_on: Proofs {
                disconnect: false,
                process: Some(ProcessProof {
                    group: true,
                    paths: true,
                }),
                session: false,
            },
            again: Again::Renew,
            self_stop_margin: None,
        }
    }

    /// A session that a server keeps: it ends on disconnect or when the server ends the session.
    ///
    /// No clock of ours matters.
    #[must_use]
    pub const fn server_session() -> Self {
        Self {
            term: Term::None,
            on_expiry: OnExpiry::Ignore,
            ends_on: Proofs {
                disconnect: true,
                process: None,
                session: true,
            },
            again: Again::Touch,
            self_stop_margin: None,
        }
    }

    /// Returns how long a lease is valid.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Returns what the end of the term does.
    #[must_use]
    pub const fn on_expiry(&self) -> OnExpiry {
        self.on_expiry
    }

    /// Returns what ends a lease besides release.
    #[must_use]
    pub const fn ends_on(&self) -> Proofs {
        self.ends_on
    }

    /// Returns what a further request of the same holder means.
    #[must_use]
    pub const fn again(&self) -> Again {
        self.again
    }

    /// Returns how long before expiry the holder's own check stops; `None` leaves it to the
    /// authority.
    #[must_use]
    pub const fn self_stop_margin(&self) -> Option<Duration> {
        self.self_stop_margin
    }

    /// Checks that an authority can keep what this policy needs.
    ///
    /// # Errors
    ///
    /// [`PolicyError::NeedsShields`] and [`PolicyError::MarginTooShort`].
    pub fn fits(&self, capabilities: &Capabilities) -> Result<(), PolicyError> {
        if self.on_expiry == OnExpiry::EndIfIdle && !capabilities.shields {
            return Err(PolicyError::NeedsShields);
        }
        let (Some(asked), Term::Fixed(term)) = (self.self_stop_margin, self.term) else {
            return Ok(());
        };
        let least = (capabilities.self_stop_margin)(term);
        if asked < least {
            return Err(PolicyError::MarginTooShort { asked, least });
        }
        Ok(())
    }
}

/// Puts a policy together from its parts.
///
/// Starts with no term, expiry ignored, no proof and touching re-entry; the proofs must be given.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct PolicyBuilder {
    policy: LeasePolicy,
}

impl PolicyBuilder {
    /// Starts from nothing.
    pub const fn new() -> Self {
        Self {
            policy: LeasePolicy {
                term: Term::None,
                on_expiry: OnExpiry::Ignore,
                ends_on: Proofs {
                    disconnect: false,
                    process: None,
                    session: false,
                },
                again: Again::Touch,
                self_stop_margin: None,
            },
        }
    }

    /// Sets how long a lease is valid.
    pub const fn term(mut self, term: Term) -> Self {
        self.policy.term = term;
        self
    }

    /// Sets what the end of the term does.
    pub const fn on_expiry(mut self, on_expiry: OnExpiry) -> Self {
        self.policy.on_expiry = on_expiry;
        self
    }

    /// Sets what ends a lease besides release.
    pub const fn ends_on(mut self, ends_on: Proofs) -> Self {
        self.policy.ends_on = ends_on;
        self
    }

    /// Sets what a further request of the same holder means.
    pub const fn again(mut self, again: Again) -> Self {
        self.policy.again = again;
        self
    }

    /// Sets how long before expiry the holder's own check stops.
    pub const fn self_stop_margin(mut self, margin: Duration) -> Self {
        self.policy.self_stop_margin = Some(margin);
        self
    }

    /// Checks the parts against each other.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] names the fields that clash.
    pub fn build(self) -> Result<LeasePolicy, PolicyError> {
        let LeasePolicy {
            term,
            on_expiry,
            ends_on,
            self_stop_margin,
            ..
        } = self.policy;
        match term {
            Term::Fixed(term) | Term::PerGrant { max: Some(term) } => check_term(term)?,
            Term::None | Term::PerGrant { max: None } => {}
        }
        match on_expiry {
            OnExpiry::Ignore => {}
            _ if term == Term::None => return Err(PolicyError::NoTermNeedsIgnore),
            OnExpiry::SuspendHolder if ends_on.process.is_none() => {
                return Err(PolicyError::SuspendNeedsProcess);
            }
            OnExpiry::EndIfIdle if !matches!(term, Term::Fixed(_)) => {
                return Err(PolicyError::EndIfIdleNeedsFixedTerm);
            }
            OnExpiry::SuspendHolder | OnExpiry::EndIfIdle => {}
        }
        let silent_end = ends_on.disconnect || ends_on.process.is_some() || ends_on.session;
        if !silent_end && on_expiry != OnExpiry::EndIfIdle {
            return Err(PolicyError::NeverEnds);
        }
        match (self_stop_margin, term) {
            (None, _) => Ok(self.policy),
            (Some(margin), Term::Fixed(term)) if margin < term => Ok(self.policy),
            (Some(_), _) => Err(PolicyError::MarginTooLong),
        }
    }
}

impl Default for PolicyBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// Refuses terms that nobody means.
pub(crate) fn check_term(term: Duration) -> Result<(), PolicyError> {
    if term.is_zero() {
        Err(PolicyError::ZeroTerm)
    } else if term > TERM_MAX {
        Err(PolicyError::AbsurdTerm)
    } else {
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for LeasePolicy {
    /// Reads the parts and checks them again: a stored policy that means nothing is refused.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            term: Term,
            on_expiry: OnExpiry,
            ends_on: Proofs,
            again: Again,
            #[serde(default)]
            self_stop_margin: Option<Duration>,
        }
        let parts: Parts = crate::wire::legibly(d)?;
        let policy = Self {
            term: parts.term,
            on_expiry: parts.on_expiry,
            ends_on: parts.ends_on,
            again: parts.again,
            self_stop_margin: parts.self_stop_margin,
        };
        PolicyBuilder { policy }
            .build()
            .map_err(serde::de::Error::custom)
    }
}
