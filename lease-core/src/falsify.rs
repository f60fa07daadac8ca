//! Faults that can be planted into the decisions, one at a time, to show that the checks see them.
//!
//! Only the feature `falsify` has this module; without it every switch is the constant `false`. The
//! choice is one for the whole process, so a program that plants a fault should do nothing else.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Debug};
use core::sync::atomic::{AtomicU8, Ordering};

/// Makes the enum and its names from one table.
macro_rules! variants {
    ($($name:ident = $text:literal: $about:literal,)*) => {
        /// One wrong line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Variant {
            $(#[doc = $about] $name,)*
        }

        impl Variant {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name: words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns what is wrong, in one sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }
        }
    };
}

variants! {
    AbandonEndsAColleague = "abandon-ends-a-colleague":
        "Giving back a grant ends the lease although its writer re-entered since.",
    CancelledStillWaits = "cancelled-still-waits":
        "A request that was taken back stays in the queue and is handed the resource.",
    DisconnectByAgent = "disconnect-by-agent":
        "A disconnect ends the leases of every session of the same agent.",
    DoubtGrants = "doubt-grants":
        "A holder that cannot be looked at counts as gone.",
    EqualGenerationEnters = "equal-generation-enters":
        "The gate lets in another lease with the generation of the newest writer.",
    ExpiresAtItsMoment = "expires-at-its-moment":
        "A term is over at its last moment, not after it.",
    FirstVerdictCounts = "first-verdict-counts":
        "Of verdicts that disagree the first one counts.",
    GenerationRepeats = "generation-repeats":
        "The counter of generations stands still.",
    HandOverOverlaps = "hand-over-overlaps":
        "A lease passes to another holder though its giver keeps an overlapping one.",
    LateVerdictEndsSuccessor = "late-verdict-ends-successor":
        "A verdict about an earlier lease counts for the present one.",
    LateVerdictOutlivesHandOver = "late-verdict-outlives-hand-over":
        "A verdict about the giver of a lease counts for the one who took it over.",
    NoFenceOnRelease = "no-fence-on-release":
        "A release with any token ends the present lease.",
    NobodyIsServed = "nobody-is-served":
        "Whoever frees a resource does not look for who waits.",
    QueueIsOvertaken = "queue-is-overtaken":
        "A request does not look at who waited before it.",
    ReentryByAgent = "reentry-by-agent":
        "Another session of the holder's agent counts as the holder.",
    SweepIgnoresInFlight = "sweep-ignores-in-flight":
        "A term ends a lease although an operation is in flight.",
    UnknownEffectReleases = "unknown-effect-releases":
        "An operation that may have changed something frees its lease.",
    WaitsBehindItself = "waits-behind-itself":
        "A request waits for a waiter that its own writer's lease blocks.",
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Plants a fault in place of the one before; `None` plants none.
pub fn set(variant: Option<Variant>) {
    PLANTED.store(
        variant.map_or(NONE, |variant| variant as u8),
        Ordering::Relaxed,
    );
}

/// Whether this fault is planted.
pub(crate) fn is(variant: Variant) -> bool {
    PLANTED.load(Ordering::Relaxed) == variant as u8
}

/// Whether two holders show the same text up to the first slash: for sessions, the agent.
pub(crate) fn same_agent(one: &impl Debug, other: &impl Debug) -> bool {
    let agent = |text: String| text.split('/').next().map(String::from);
    agent(format!("{one:?}")) == agent(format!("{other:?}"))
}

/// No variant has this number.
const NONE: u8 = u8::MAX;

static PLANTED: AtomicU8 = AtomicU8::new(NONE);
