//! What is known about a holder: a question, an observation, a verdict with its evidence.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::holder::Holder;
use crate::id::FencingToken;
use crate::limits::{OCCUPANTS, TEXT_BYTES};
use crate::policy::ProcessProof;

/// Where the record of a lease can be written from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a record is local or it is not")]
pub enum Locality {
    /// By this machine only, so another boot id is an earlier boot of it.
    ThisMachine,
    /// By others too, so another boot id may be another machine. Equal ones are one machine all the same: a running
    /// copy of a virtual machine must not write here.
    ManyMachines,
}

/// Asks whether a holder, or its work, is still there.
///
/// Made by [`decide`](crate::decide), which knows neither places nor paths: it leaves `target` empty
/// and writes [`Locality::ManyMachines`], the value that proves least. The driver fills in both
/// before it observes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question<H: Holder> {
    /// Who is asked about.
    pub holder: H,
    /// Which lease it is asked for.
    pub about: FencingToken,
    /// How often that lease had been handed over when it was asked.
    pub handovers: u32,
    /// Where the record lies.
    pub locality: Locality,
    /// Which other live use counts as occupancy.
    pub occupancy: ProcessProof,
    /// What occupancy is looked for in, where paths count.
    pub target: Option<H::Target>,
}

impl<H: Holder> Question<H> {
    /// Asks about `holder` of the lease `about`, with the driver's parts still at their defaults.
    #[must_use]
    pub const fn new(
        holder: H,
        about: FencingToken,
        handovers: u32,
        occupancy: ProcessProof,
    ) -> Self {
        Self {
            holder,
            about,
            handovers,
            locality: Locality::ManyMachines,
            occupancy,
            target: None,
        }
    }

    /// Answers with what was observed.
    #[must_use]
    pub const fn answer(&self, verdict: Verdict) -> Answer {
        Answer {
            about: self.about,
            handovers: self.handovers,
            verdict,
        }
    }
}

/// A verdict, bound to what was asked.
///
/// It counts for exactly the lease it was asked for, while the holder is still the one it was asked
/// about; else it is inert.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The lease it is about.
    pub about: FencingToken,
    /// The hand-overs of that lease at the question.
    pub handovers: u32,
    /// What was seen.
    pub verdict: Verdict,
}

/// What evidence says about a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(
    clippy::exhaustive_enums,
    reason = "callers must decide every case; doubt is one of them"
)]
pub enum Verdict {
    /// It lives.
    Alive(Evidence),
    /// It is proven gone, and nothing of it is left.
    Dead(Evidence),
    /// It is gone, but its group or another process still uses the resource.
    Occupied(Evidence),
    /// It cannot be decided. This never grants.
    Unknown(Evidence),
}

impl Verdict {
    /// Returns what the verdict rests on.
    #[must_use]
    pub const fn evidence(&self) -> &Evidence {
        match self {
            Self::Alive(evidence)
            | Self::Dead(evidence)
            | Self::Occupied(evidence)
            | Self::Unknown(evidence) => evidence,
        }
    }

    /// Returns the verdict's name: `alive`, `dead`, `occupied` or `unknown`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Alive(_) => "alive",
            Self::Dead(_) => "dead",
            Self::Occupied(_) => "occupied",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// What a verdict rests on. Bounded; holds no file contents, command lines of the holder or
/// environment values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Evidence {
    /// The deciding proof as a stable code in `snake_case`, for example `pid_recycled`.
    pub proof: Cow<'static, str>,
    /// More for people; text may change.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub detail: Option<Arc<str>>,
    /// Who occupies the resource, at most 16.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub occupants: Vec<Arc<str>>,
    /// How many processes could not be looked into.
    pub unreadable: u32,
}

impl Evidence {
    /// Names the deciding proof.
    #[must_use]
    pub const fn new(proof: &'static str) -> Self {
        Self {
            proof: Cow::Borrowed(proof),
            detail: None,
            occupants: Vec::new(),
            unreadable: 0,
        }
    }

    /// Adds text for people. Control characters are escaped and the rest is cut at 256 bytes.
    #[must_use]
    pub fn with_detail(mut self, detail: &str) -> Self {
        self.detail = Some(printable(detail));
        self
    }

    /// Adds occupants; those after the sixteenth are left out.
    #[must_use]
    pub fn with_occupants<'a>(mut self, occupants: impl IntoIterator<Item = &'a str>) -> Self {
        self.occupants = occupants
            .into_iter()
            .take(OCCUPANTS)
            .map(printable)
            .collect();
        self
    }

    /// Adds how many processes could not be looked into.
    #[must_use]
    pub const fn with_unreadable(mut self, unreadable: u32) -> Self {
        self.unreadable = unreadable;
        self
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Evidence {
    /// Reads within the bounds, whatever was written.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Parts<'a> {
            proof: Cow<'a, str>,
            #[serde(default)]
            detail: Option<Cow<'a, str>>,
            #[serde(default)]
            occupants: Vec<Cow<'a, str>>,
            #[serde(default)]
            unreadable: u32,
        }
        let parts = Parts::deserialize(d)?;
        let mut evidence = Self::new("")
            .with_occupants(parts.occupants.iter().map(|occupant| &**occupant))
            .with_unreadable(parts.unreadable);
        evidence.proof = Cow::Owned(printable(&parts.proof).as_ref().into());
        evidence.detail = parts.detail.as_deref().map(printable);
        Ok(evidence)
    }
}

/// Escapes control characters and cuts at [`TEXT_BYTES`], on a character boundary.
pub(crate) fn printable(text: &str) -> Arc<str> {
    let mut out = alloc::string::String::new();
    for c in text.chars() {
        let before = out.len();
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        if out.len() > TEXT_BYTES {
            out.truncate(before);
            break;
        }
    }
    Arc::from(out)
}

/// Observes holders. The one trait that every holder-liveness backend implements.
///
/// It cannot fail: what could not be seen is [`Verdict::Unknown`] with the reason.
pub trait HolderLiveness<H: Holder> {
    /// Looks at the holder and says what was seen.
    fn observe(&self, question: &Question<H>) -> Verdict;
}
