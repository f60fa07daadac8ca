//! The parts an identity is made of.

use core::fmt;
use core::str::FromStr;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The largest process number a Linux kernel gives: one less than `PID_MAX_LIMIT` on 64 bits.
const PID_MAX: i32 = 4_194_303;

/// Which boot of the kernel.
///
/// Source: `/proc/sys/kernel/random/boot_id`, a random UUID drawn at each start. All containers of a
/// machine share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(Uuid);

/// Why a text names no boot. Nothing is guessed in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootIdError {
    /// Nothing but blanks.
    #[error("boot id is empty")]
    Empty,
    /// The word some tools write when they could not read one, or a UUID of zeros.
    #[error("boot id stands for an unknown boot")]
    Sentinel,
    /// Not 36 lower-case characters with hyphens.
    #[error("boot id is not a UUID in its canonical form")]
    NotCanonical,
}

impl BootId {
    /// Reads what the kernel's file holds: the canonical form between blanks.
    ///
    /// # Errors
    ///
    /// [`BootIdError`] says what else is there.
    pub fn from_file(contents: &[u8]) -> Result<Self, BootIdError> {
        let text =
            str::from_utf8(contents.trim_ascii()).map_err(|_not_utf8| BootIdError::NotCanonical)?;
        text.parse()
    }
}

impl FromStr for BootId {
    type Err = BootIdError;

    /// Reads the canonical form, and no other spelling of it.
    fn from_str(text: &str) -> Result<Self, BootIdError> {
        if text.trim_ascii().is_empty() {
            return Err(BootIdError::Empty);
        }
        if text == "unknown-boot" {
            return Err(BootIdError::Sentinel);
        }
        let id = canonical(text).ok_or(BootIdError::NotCanonical)?;
        if id.is_nil() {
            return Err(BootIdError::Sentinel);
        }
        Ok(Self(id))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({self})")
    }
}

/// One run of a program image, told apart from its forked children and from what it execs.
///
/// Random. Kept in memory that the kernel wipes in a forked child, so a child never shows its
/// parent's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchId(Uuid);

/// The text is no launch id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("launch id is not a UUID in its canonical form")]
#[non_exhaustive]
pub struct LaunchIdError;

impl LaunchId {
    /// Makes the id out of the two words of the wiped page, or `None` if either is zero.
    #[cfg(target_os = "linux")]
    pub(crate) const fn from_words(high: u64, low: u64) -> Option<Self> {
        if high == 0 || low == 0 {
            return None;
        }
        Some(Self(Uuid::from_u64_pair(high, low)))
    }
}

impl FromStr for LaunchId {
    type Err = LaunchIdError;

    /// Reads the canonical form, and no other spelling of it.
    fn from_str(text: &str) -> Result<Self, LaunchIdError> {
        canonical(text)
            .filter(|id| !id.is_nil())
            .map(Self)
            .ok_or(LaunchIdError)
    }
}

impl fmt::Display for LaunchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for LaunchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchId({self})")
    }
}

/// The number of a process, within one pid namespace.
///
/// It finds a process and shows it; alone it identifies nobody, because numbers are used again.
///
/// Range: `1..=4_194_303`. Zero and negative numbers address groups in some system calls, so they
/// cannot be written down here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

/// Why a number or text is no process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PidError {
    /// Not digits only, or written with a leading zero.
    #[error("pid is not a plain decimal number")]
    NotANumber,
    /// Zero or negative.
    #[error("pid is not positive")]
    NotPositive,
    /// Above what any kernel gives.
    #[error("pid is above {PID_MAX}")]
    TooLarge,
}

impl Pid {
    /// The first process of a pid namespace.
    pub const INIT: Self = Self(1);

    /// Makes a process number.
    ///
    /// # Errors
    ///
    /// [`PidError::NotPositive`] or [`PidError::TooLarge`].
    pub const fn new(number: i64) -> Result<Self, PidError> {
        if number < 1 {
            return Err(PidError::NotPositive);
        }
        if number > PID_MAX as i64 {
            return Err(PidError::TooLarge);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the range was checked above, and TryFrom is not const"
        )]
        Ok(Self(number as i32))
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl FromStr for Pid {
    type Err = PidError;

    /// Reads decimal digits, without sign, blank or leading zero.
    fn from_str(text: &str) -> Result<Self, PidError> {
        if text.strip_prefix('-').is_some_and(is_digits) {
            return Err(PidError::NotPositive);
        }
        if text == "0" {
            return Err(PidError::NotPositive);
        }
        if !is_plain(text) {
            return Err(PidError::NotANumber);
        }
        // Digits only, so what does not fit is too large.
        Self::new(text.parse().unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When the kernel started a process.
///
/// Unit: clock ticks (10 ms) since boot, as the *reader's* time namespace shows them. Never
/// converted, and for an identity never ordered: equality is all that it needs.
///
/// Two processes can share a pid and a tick when the number comes back within the tick in which its
/// first owner started, so ticks prove a difference, and sameness only to that grain.
///
/// Source: `proc_pid_stat(5)`, field 22.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StartTicks(u64);

/// The text is no tick count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("start ticks are not a plain decimal number of 64 bits")]
#[non_exhaustive]
pub struct StartTicksError;

impl StartTicks {
    /// Makes a start time out of the kernel's number.
    #[must_use]
    pub const fn new(ticks: u64) -> Self {
        Self(ticks)
    }

    /// Returns the kernel's number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for StartTicks {
    type Err = StartTicksError;

    /// Reads decimal digits, without sign, blank or leading zero.
    fn from_str(text: &str) -> Result<Self, StartTicksError> {
        plain_number(text).map(Self).ok_or(StartTicksError)
    }
}

impl fmt::Display for StartTicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a pid or time namespace, within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Namespace {
    /// The kernel's own number for it, which it gives only once in a boot (Linux 6.18).
    Id(
        #[cfg_attr(
            feature = "serde",
            serde(serialize_with = "crate::wire::wide::serialize")
        )]
        u64,
    ),
    /// The inode of its file, on older kernels.
    ///
    /// That number is used again as soon as a namespace ends, so it proves a difference alone, and
    /// sameness only together with the start of the namespace's first process.
    Inode(NamespaceInode),
}

/// A namespace by the inode of its file and the start of pid 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "a number and what makes it unique"
)]
pub struct NamespaceInode {
    /// The inode.
    #[cfg_attr(
        feature = "serde",
        serde(serialize_with = "crate::wire::wide::serialize")
    )]
    pub inode: u64,
    /// The start of pid 1 as seen from inside, or `None` where it could not be read.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub init_start: Option<StartTicks>,
}

/// Whether two things are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "callers must decide every case; doubt is one of them"
)]
pub enum Sameness {
    /// They are one.
    Same,
    /// They are two.
    Different,
    /// It cannot be told.
    Undecided,
}

impl Sameness {
    /// Every value, for tables over all of them.
    pub const ALL: &'static [Self] = &[Self::Same, Self::Different, Self::Undecided];
}

impl Namespace {
    /// Compares two names that were taken in the same boot.
    #[must_use]
    pub fn compare(self, other: Self) -> Sameness {
        match (self, other) {
            (Self::Id(ours), Self::Id(theirs)) if ours == theirs => Sameness::Same,
            (Self::Id(_), Self::Id(_)) => Sameness::Different,
            (Self::Inode(ours), Self::Inode(theirs)) => ours.compare(theirs),
            // A name of each kind: one reader could not ask for the number.
            (Self::Id(_), Self::Inode(_)) | (Self::Inode(_), Self::Id(_)) => Sameness::Undecided,
        }
    }
}

impl NamespaceInode {
    fn compare(self, other: Self) -> Sameness {
        if self.inode != other.inode {
            return Sameness::Different;
        }
        match (self.init_start, other.init_start) {
            (Some(ours), Some(theirs)) if ours == theirs => Sameness::Same,
            (Some(_), Some(_)) => Sameness::Different,
            (None, _) | (_, None) => Sameness::Undecided,
        }
    }
}

/// Reads a UUID in its canonical form only: one id in two spellings would differ from itself where
/// text is compared.
fn canonical(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    let mut form = [0; Hyphenated::LENGTH];
    (id.hyphenated().encode_lower(&mut form) == text).then_some(id)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Tells whether the text is the one decimal spelling of a number.
fn is_plain(text: &str) -> bool {
    is_digits(text) && (text.len() == 1 || !text.starts_with('0'))
}

/// Reads the one decimal spelling of a number.
pub(crate) fn plain_number(text: &str) -> Option<u64> {
    if is_plain(text) {
        text.parse().ok()
    } else {
        None
    }
}
