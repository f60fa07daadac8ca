//! The record of one change, for whoever keeps it.

use alloc::sync::Arc;
use core::fmt;

use crate::action::Action;
use crate::change::{Change, Detail};
use crate::holder::Holder;
use crate::key::ResourceKey;
use crate::liveness::{Evidence, printable};
use crate::plan::Subject;

/// The version of the stored form of receipts.
///
/// It grows when a field changes its meaning; fields may be added without.
pub const RECEIPT_SCHEMA: u32 = 1;

/// What happened, to what, by whom, on what evidence.
///
/// Built from a [`Change`] only when somebody keeps it. It claims nothing about the holder's work:
/// after an end by term or by proof its state is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt<H> {
    /// What happened.
    pub change: Change,
    /// The resource; `None` for what concerns the whole authority.
    pub resource: Option<ResourceKey>,
    /// Whose lease or request it was or became.
    pub holder: Option<H>,
    /// Whose lease it was before, at a takeover.
    pub previous: Option<H>,
    /// What a proof rests on.
    pub evidence: Option<Evidence>,
    /// What people said about it.
    pub note: Option<Note>,
    /// Milliseconds since the Unix epoch, for people only.
    pub wall_ms: Option<i64>,
}

/// Words of people about a change. They decide nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Note {
    /// Who says so, or the kind of operation.
    pub by: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

impl Note {
    /// Takes down who and why. Control characters are escaped and the rest is cut at 256 bytes.
    #[must_use]
    pub fn new(by: &str, reason: &str) -> Self {
        Self {
            by: printable(by),
            reason: printable(reason),
        }
    }

    /// The note that an action carries by itself.
    pub(crate) fn of<H>(action: &Action<H>) -> Option<Self> {
        if let Action::Revoke { by, reason, .. } = action {
            Some(Self::new(by, reason))
        } else {
            None
        }
    }
}

impl<H> Receipt<H> {
    /// Records a change that concerns no lease.
    #[must_use]
    pub const fn new(change: Change) -> Self {
        Self {
            change,
            resource: None,
            holder: None,
            previous: None,
            evidence: None,
            note: None,
            wall_ms: None,
        }
    }

    /// Records a change of what `subject` names. A subject without holder takes it from the cell
    /// after the commit.
    #[must_use]
    pub fn of(change: Change, subject: Subject<'_, H>) -> Self
    where
        H: Clone,
    {
        Self {
            resource: Some(subject.key.clone()),
            holder: subject.holder.cloned(),
            previous: subject.previous.cloned(),
            evidence: subject.evidence.cloned(),
            ..Self::new(change)
        }
    }

    /// Adds what people said about it.
    #[must_use]
    pub fn with_note(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }
}

impl<H: Holder> fmt::Display for Receipt<H> {
    /// One line for people, without random ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.change.seq, self.change.code)?;
        if let Some(resource) = &self.resource {
            write!(f, " {resource}")?;
        }
        if let Some(token) = &self.change.token {
            write!(f, " generation {}", token.generation)?;
        }
        if let Some(holder) = &self.holder {
            write!(f, " {} {holder:?}", H::KIND)?;
        }
        if let Some(previous) = &self.previous {
            write!(f, " from {previous:?}")?;
        }
        write!(f, "{}", self.change.detail)?;
        if let Some(evidence) = &self.evidence {
            write!(f, ", proof {}", evidence.proof)?;
        }
        if self.change.work_state_unknown() {
            f.write_str(", work state unknown")?;
        }
        match &self.note {
            Some(note) => write!(f, ", by {}: {}", note.by, note.reason),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Detail {
    /// The fields that are not random, each after a comma.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => Ok(()),
            Self::Granted { expires, previous } => {
                if let Some(previous) = previous {
                    write!(f, ", previous generation {}", previous.generation)?;
                }
                last(f, *expires)
            }
            Self::Touched {
                before,
                after,
                expires,
                ..
            } => {
                write!(f, ", touched {before} to {after}")?;
                last(f, *expires)
            }
            Self::Begun {
                from,
                in_flight,
                expires,
                ..
            } => {
                write!(f, ", {from:?}, in flight {in_flight}")?;
                last(f, *expires)
            }
            Self::Ended {
                took,
                in_flight,
                expires,
                failure,
                ..
            } => {
                if let Some(failure) = failure {
                    let (from, disposition) = (failure.from, failure.disposition);
                    write!(
                        f,
                        ", {from:?}, {disposition:?}, kept for {:?}",
                        failure.kept
                    )?;
                }
                write!(f, ", took {took:?}, in flight {in_flight}")?;
                last(f, *expires)
            }
            Self::Failed { disposition, .. } => write!(f, ", {disposition:?}"),
            Self::Released {
                held,
                exited: false,
            } => write!(f, ", held {held:?}"),
            Self::Released { held, exited: true } => write!(f, ", held {held:?}, holder exited"),
            Self::Disconnected {
                in_flight,
                idle,
                expired,
            } => {
                write!(
                    f,
                    ", in flight {in_flight}, idle {idle:?}, expired {expired}"
                )
            }
            Self::Reclaimed { idle, observed_by } => {
                write!(f, ", idle {idle:?}, observed by {observed_by:?}")
            }
            Self::HandedOver { handovers, expires } => {
                write!(f, ", handed over {handovers} times")?;
                last(f, *expires)
            }
            Self::Waiting { waiter } => write!(f, ", request {waiter}"),
            Self::Clock { read } => write!(f, ", read {read}"),
        }
    }
}

fn last(f: &mut fmt::Formatter<'_>, expires: Option<crate::Moment>) -> fmt::Result {
    match expires {
        Some(expires) => write!(f, ", term until {expires}"),
        None => Ok(()),
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! The stored form: `schema` first, then the change and what it concerns.

    use alloc::borrow::Cow;

    use super::{Evidence, Note, RECEIPT_SCHEMA, Receipt, ResourceKey};

    impl<'de> serde::Deserialize<'de> for Note {
        /// Reads within the bounds of [`Note::new`], whatever was written.
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            #[derive(serde::Deserialize)]
            struct Parts<'a> {
                by: Cow<'a, str>,
                reason: Cow<'a, str>,
            }
            let parts = Parts::deserialize(d)?;
            Ok(Self::new(&parts.by, &parts.reason))
        }
    }

    use crate::change::Change;
    use crate::holder::Holder;

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(bound(
        serialize = "H: serde::Serialize",
        deserialize = "H: serde::Deserialize<'de>"
    ))]
    struct Stored<'a, H: Clone> {
        #[serde(deserialize_with = "known")]
        schema: u32,
        #[serde(flatten)]
        change: Change,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<Cow<'a, ResourceKey>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder_kind: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Cow<'a, H>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<Cow<'a, H>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evidence: Option<Cow<'a, Evidence>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Cow<'a, Note>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work_state: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wall_ms: Option<i64>,
    }

    /// Reads the version at once: of another one nothing else need make sense.
    fn known<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
        let schema = <u32 as serde::Deserialize>::deserialize(d)?;
        if schema == RECEIPT_SCHEMA {
            return Ok(schema);
        }
        Err(serde::de::Error::custom(format_args!(
            "receipt has the unknown schema version {schema}, not {RECEIPT_SCHEMA}"
        )))
    }

    impl<H: Holder + serde::Serialize> serde::Serialize for Receipt<H> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let stored = Stored {
                schema: RECEIPT_SCHEMA,
                change: self.change,
                resource: self.resource.as_ref().map(Cow::Borrowed),
                holder_kind: self.holder.as_ref().map(|_| Cow::Borrowed(H::KIND)),
                holder: self.holder.as_ref().map(Cow::Borrowed),
                previous: self.previous.as_ref().map(Cow::Borrowed),
                evidence: self.evidence.as_ref().map(Cow::Borrowed),
                note: self.note.as_ref().map(Cow::Borrowed),
                work_state: self
                    .change
                    .work_state_unknown()
                    .then_some(Cow::Borrowed("unknown")),
                wall_ms: self.wall_ms,
            };
            stored.serialize(serializer)
        }
    }

    impl<'de, H: Holder + serde::Deserialize<'de>> serde::Deserialize<'de> for Receipt<H> {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            use serde::de::Error as _;

            let stored: Stored<'_, H> = crate::wire::legibly(d)?;
            if stored
                .holder_kind
                .as_deref()
                .is_some_and(|kind| kind != H::KIND)
            {
                return Err(D::Error::custom("receipt is about another kind of holder"));
            }
            Ok(Self {
                change: stored.change,
                resource: stored.resource.map(Cow::into_owned),
                holder: stored.holder.map(Cow::into_owned),
                previous: stored.previous.map(Cow::into_owned),
                evidence: stored.evidence.map(Cow::into_owned),
                note: stored.note.map(Cow::into_owned),
                wall_ms: stored.wall_ms,
            })
        }
    }
}
