//! The record of a process-bound lease: what the core knows of it, and what is filed beside it.

use lease_core::{Answer, Lease, LeaseId, Locality, Moment, Question, Verdict};

use super::allocation::Place;
use super::refused::{MetadataFault, Refused};
use super::wall::WallStamp;
use crate::holder::ProcessHolder;
use crate::id::BootId;

/// The version of the stored form of records.
///
/// It grows when a field changes its meaning; fields may be added without.
pub const RECORD_SCHEMA: u32 = 1;

/// What is filed beside a lease of the core.
///
/// Its moments mean something in one boot only, so the boot is filed with them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "the stored form; keepers restore it"
)]
pub struct Filing {
    /// Where it was granted.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub place: Place,
    /// The boot whose decision clock the moments of the lease are read from.
    pub boot_id: BootId,
    /// 1 for a new lease, and one more with each renewal and hand-over.
    #[cfg_attr(feature = "serde", serde(with = "crate::wire::wide"))]
    pub version: u64,
    /// The latest grant or renewal. A touch is neither.
    pub renewed: Moment,
    /// When it was granted, for people.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub acquired_at: Option<WallStamp>,
    /// When it was granted or renewed last, for people.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub renewed_at: Option<WallStamp>,
}

impl Filing {
    /// Files a new lease.
    #[must_use]
    pub const fn new(place: Place, boot_id: BootId, at: Moment, wall: Option<WallStamp>) -> Self {
        Self {
            place,
            boot_id,
            version: 1,
            renewed: at,
            acquired_at: wall,
            renewed_at: wall,
        }
    }

    /// Files a renewal.
    pub fn renew(&mut self, at: Moment, wall: Option<WallStamp>) {
        self.version = self.version.saturating_add(1);
        self.renewed = at;
        self.renewed_at = wall;
    }

    /// Files a hand-over: the holder changed, and no term began.
    pub const fn hand_over(&mut self) {
        self.version = self.version.saturating_add(1);
    }

    /// Returns the wall time of a later moment, for people; `None` if no wall time was filed.
    #[must_use]
    pub fn wall_of(&self, moment: Moment) -> Option<WallStamp> {
        self.renewed_at?.after(moment.since(self.renewed))
    }
}

/// A lease and what is filed beside it, as one snapshot shows them.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a keeper gives every part")]
pub struct Present<'a> {
    /// What the core knows.
    pub lease: &'a Lease<ProcessHolder>,
    /// What is filed beside it.
    pub filing: &'a Filing,
    /// From where the record can be written.
    pub locality: Locality,
}

impl<'a> Present<'a> {
    /// Returns what was seen of the present holder, if anything was. Of several answers that do not
    /// agree, one that does not prove death counts.
    pub(super) fn verdict(&self, answers: &'a [Answer]) -> Option<&'a Verdict> {
        let about = |answer: &&Answer| {
            answer.about == self.lease.token && answer.handovers == self.lease.handovers
        };
        let mut counting = answers.iter().filter(about).map(|answer| &answer.verdict);
        let first = counting.clone().next();
        let stands = |verdict: &&Verdict| !matches!(verdict, Verdict::Dead(_));
        counting.find(stands).or(first)
    }

    /// Says in questions of the core where to look.
    pub(super) fn aim(&self, questions: &mut [Question<ProcessHolder>]) {
        for question in questions {
            question.locality = self.locality;
            question.target = Some(self.filing.place.path.clone());
        }
    }
}

/// The record of one lease. An allocation has at most one.
///
/// Stored with the feature `serde`: `schema` first. Another schema is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the stored form; keepers restore it"
)]
pub struct LeaseRecord {
    /// What the core knows.
    pub lease: Lease<ProcessHolder>,
    /// What is filed beside it.
    pub filing: Filing,
}

impl LeaseRecord {
    /// Checks the version of a stored form.
    ///
    /// # Errors
    ///
    /// [`MetadataFault::Schema`] for every version but [`RECORD_SCHEMA`].
    pub const fn check_schema(found: u32) -> Result<(), Refused> {
        if found == RECORD_SCHEMA {
            Ok(())
        } else {
            Err(Refused::Metadata(MetadataFault::Schema { found }))
        }
    }

    /// Returns which lease it is.
    #[must_use]
    pub const fn lease_id(&self) -> LeaseId {
        self.lease.token.lease
    }

    /// Returns the last moment of its term as wall time, for people.
    #[must_use]
    pub fn expires_at(&self) -> Option<WallStamp> {
        self.filing.wall_of(self.lease.expires?)
    }

    /// Shows it to a check.
    #[must_use]
    pub const fn present(&self, locality: Locality) -> Present<'_> {
        Present {
            lease: &self.lease,
            filing: &self.filing,
            locality,
        }
    }
}

impl From<Present<'_>> for LeaseRecord {
    fn from(present: Present<'_>) -> Self {
        Self {
            lease: present.lease.clone(),
            filing: present.filing.clone(),
        }
    }
}

#[cfg(feature = "serde")]
impl LeaseRecord {
    /// Reads a stored record, and says what is wrong with it in the words of this crate.
    ///
    /// The schema counts before anything else, wherever it stands, so that a later form is told as one
    /// and not by what it lacks. `Deserialize` refuses the same, with the words of the reader around it.
    ///
    /// # Errors
    ///
    /// [`Refused::Metadata`]: [`MetadataFault::Schema`] for another version, else
    /// [`MetadataFault::Malformed`]. Nothing of the text is repeated.
    pub fn read<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Self, Refused> {
        use serde::Deserialize as _;

        match stored::Loose::deserialize(d) {
            Ok(loose) => loose.into_record(),
            Err(_repeats_it) => Err(Refused::Metadata(MetadataFault::Malformed {
                part: "record",
            })),
        }
    }
}

#[cfg(feature = "serde")]
mod stored {
    use lease_core::Lease;
    use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny};
    use serde::ser::{Serialize, Serializer};

    use super::super::refused::{MetadataFault, Refused};
    use super::{Filing, LeaseRecord, RECORD_SCHEMA};
    use crate::holder::ProcessHolder;

    impl Serialize for LeaseRecord {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            #[derive(serde::Serialize)]
            struct Stored<'a> {
                schema: u32,
                #[serde(flatten)]
                filing: &'a Filing,
                lease: &'a Lease<ProcessHolder>,
            }
            let stored = Stored {
                schema: RECORD_SCHEMA,
                filing: &self.filing,
                lease: &self.lease,
            };
            stored.serialize(s)
        }
    }

    impl<'de> Deserialize<'de> for LeaseRecord {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            crate::wire::legibly::<Loose, D>(d)?
                .into_record()
                .map_err(D::Error::custom)
        }
    }

    /// A record of any schema. Its parts are judged after the schema is.
    #[derive(serde::Deserialize)]
    pub(super) struct Loose {
        #[serde(deserialize_with = "crate::wire::schema")]
        schema: u32,
        #[serde(flatten)]
        filing: Option<Filing>,
        lease: Option<Part<Lease<ProcessHolder>>>,
    }

    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Part<T> {
        Sound(T),
        Other(IgnoredAny),
    }

    impl Loose {
        pub(super) fn into_record(self) -> Result<LeaseRecord, Refused> {
            LeaseRecord::check_schema(self.schema)?;
            let malformed = |part| Err(Refused::Metadata(MetadataFault::Malformed { part }));
            match (self.filing, self.lease) {
                (Some(filing), Some(Part::Sound(lease))) => Ok(LeaseRecord { lease, filing }),
                (Some(_), Some(Part::Other(_)) | None) => malformed("lease"),
                (None, _) => malformed("filing"),
            }
        }
    }
}
