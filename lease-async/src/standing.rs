//! How a lease stands: safe, in jeopardy, lost.

use core::fmt;
use core::time::Duration;

use lease_core::{Change, Code, Detail, LeasePolicy, Moment, OnExpiry, Term};

/// How a lease stands at one moment, as its holder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a holder must decide every case")]
pub enum Standing {
    /// It holds.
    Safe,
    /// It will be lost, or is suspended, unless it is renewed; or it is not known what was decided of it.
    Jeopardy,
    /// It is lost, for good. Write nothing more under it.
    Lost(Loss),
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// It was released: by a guard, or after an operation of its creator that changed nothing.
    Released,
    /// Its session is gone.
    Disconnected,
    /// Its term is over and nothing was in flight.
    Expired,
    /// Its holder is proven gone.
    Proven,
    /// An operator retired it.
    Revoked,
    /// The server ended the session.
    SessionEnded,
    /// Somebody else has it now, by will.
    HandedOver,
    /// The authority does not know the token any more.
    Stale,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "it was released",
            Self::Disconnected => "its session is gone",
            Self::Expired => "its term is over",
            Self::Proven => "its holder is proven gone",
            Self::Revoked => "an operator retired it",
            Self::SessionEnded => "the server ended the session",
            Self::HandedOver => "it was handed over",
            Self::Stale => "its token is stale",
        })
    }
}

impl Loss {
    /// What `change` says of the lease whose token it carries.
    pub(crate) const fn of(change: &Change) -> Option<Self> {
        match change.code {
            Code::Released | Code::LeaseReleased => {
                if matches!(change.detail, Detail::Released { exited: true, .. }) {
                    Some(Self::Proven)
                } else {
                    Some(Self::Released)
                }
            }
            Code::ReleasedAfterFailure | Code::Abandoned => Some(Self::Released),
            Code::Disconnected => Some(Self::Disconnected),
            Code::Reclaimed => Some(Self::Expired),
            Code::Revoked => Some(Self::Revoked),
            Code::SessionEnded => Some(Self::SessionEnded),
            _ => None,
        }
    }
}

/// The terms, as far as a holder has to judge itself by them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) on_expiry: OnExpiry,
    /// How long before the end the holder stops.
    pub(crate) margin: Duration,
    /// The fixed term, and a third of it.
    pub(crate) term: Duration,
    pub(crate) third: Duration,
}

impl Terms {
    pub(crate) fn of(policy: &LeasePolicy, authority: fn(Duration) -> Duration) -> Self {
        let term = match policy.term() {
            Term::Fixed(term) => term,
            Term::None | Term::PerGrant { .. } => Duration::ZERO,
        };
        let own = || authority(term);
        Self {
            on_expiry: policy.on_expiry(),
            margin: policy.self_stop_margin().unwrap_or_else(own),
            term,
            third: term.checked_div(3).unwrap_or_default(),
        }
    }

    /// How an idle lease stands whose term ends with `expires`.
    pub(crate) fn judge(&self, expires: Option<Moment>, now: Moment) -> Standing {
        let Some(last) = expires else {
            return Standing::Safe;
        };
        let stop = now.after(self.margin);
        match self.on_expiry {
            OnExpiry::Ignore => Standing::Safe,
            OnExpiry::EndIfIdle if stop > last => Standing::Lost(Loss::Expired),
            OnExpiry::EndIfIdle | OnExpiry::SuspendHolder if stop.after(self.third) > last => {
                Standing::Jeopardy
            }
            OnExpiry::EndIfIdle | OnExpiry::SuspendHolder => Standing::Safe,
        }
    }

    /// The earliest last moment of an idle lease whose operation is ended by a call that is made after `now` is read.
    pub(crate) fn ended_after(&self, now: impl FnOnce() -> Moment) -> Option<Moment> {
        (self.on_expiry == OnExpiry::EndIfIdle).then(|| now().after(self.term))
    }

    /// Whether a lease whose term ends with `expires` holds for `remaining` more.
    pub(crate) fn lasts(&self, expires: Option<Moment>, now: Moment, remaining: Duration) -> bool {
        match (self.on_expiry, expires) {
            (OnExpiry::Ignore, _) | (_, None) => true,
            (OnExpiry::EndIfIdle | OnExpiry::SuspendHolder, Some(last)) => {
                now.after(self.margin).after(remaining) <= last
            }
        }
    }

    /// The first moment at which an idle lease is lost by its term.
    pub(crate) fn lost_at(&self, expires: Option<Moment>) -> Option<Moment> {
        if self.on_expiry != OnExpiry::EndIfIdle {
            return None;
        }
        let stop = expires?.since(Moment::ZERO).saturating_sub(self.margin);
        Some(Moment::ZERO.after(stop).after(Duration::from_nanos(1)))
    }
}
