//! The rules that the oracle checks, by name.

use std::fmt;

use crate::named::named;

named! {
    /// One rule. What breaks it is a fault of the code under test, or of the test.
    Rule {
        // At the guarded resource.
        HoldsDoNotOverlap = "holds-do-not-overlap":
            "No writer is let in between two accepted steps of another.",
        NoOlderAfterNewer = "no-older-token-after-newer":
            "Once a resource let a token in, it lets no older one in.",
        HolderGetsIn = "the-holder-gets-in":
            "The newest writer of the present authority is not turned away.",

        // At the authority.
        OneHolder = "one-holder":
            "No two writers hold overlapping resources at once.",
        NoTokenTwice = "no-token-twice":
            "No two grants have the same generation or the same lease id.",
        GenerationsGrow = "generations-grow":
            "Every new lease has a larger generation than all before it.",
        AuthorityIsNew = "a-restarted-authority-is-a-new-one":
            "All tokens of one authority carry its id, and after a restart without memory none carries an earlier one.",
        LivingAreNotEnded = "the-living-are-not-ended-by-proof":
            "A lease ends by proof of death only when its holder is gone, and its work where the terms say so.",
        DoubtNeverGrants = "doubt-never-grants":
            "A lease ends by proof only with the answer `dead` about exactly this lease and holder.",
        InFlightShields = "in-flight-shields-from-expiry":
            "No lease with an operation in flight ends by its term.",
        NoEarlyExpiry = "no-early-expiry":
            "A lease ends by its term only where the terms say so, and strictly after its last moment.",
        DueAreReclaimed = "the-due-are-reclaimed":
            "After a call that sweeps, no expired and idle lease is left, up to the bound of one sweep.",
        ReleaseWaits = "a-release-waits-for-operations":
            "A lease is not released while an operation is in flight, unless its holder is proven gone.",
        FailureNeedsProofs = "a-failure-releases-only-on-two-proofs":
            "A failure ends a lease only if its operation made the lease, nobody joined since, and it left nothing behind; an unused grant likewise.",
        SuspendedDoesNotWrite = "a-suspended-holder-does-not-write":
            "Whoever may not write until it renews begins nothing, is not entitled, and gets no further without naming a term.",
        OnlyTheHolderIsEntitled = "only-the-holder-is-entitled":
            "Only the present holder is told that it may write, and only when it is seen alive, where the terms ask for that.",
        EndsHaveCauses = "an-end-has-its-cause":
            "A lease ends only by a call that names it, by its term or by proof.",
        DisconnectIsComplete = "a-disconnect-is-complete":
            "After a disconnect nothing of that writer is held or waits.",
        GrantsEndOrAreListed = "every-grant-ends-or-is-listed":
            "Every grant that was answered has its receipt, and its lease is listed until its end is receipted.",
        PastCannotAct = "the-past-cannot-act":
            "A token that is not current changes nothing.",
        RefusalsChangeNothing = "a-refusal-changes-nothing":
            "A refused call leaves the leases as they were, but for sweeps and whom they let in.",
        ReceiptsReplay = "receipts-replay-to-the-listing":
            "What the receipts say, replayed from nothing, is what is listed.",
        ReceiptsInOrder = "receipts-are-in-order":
            "Receipts have strictly growing numbers, and none is missing.",
        TimeNeverRunsBack = "time-never-runs-back":
            "A change happens at the latest moment that was ever read.",
        NoLostHandOver = "no-lost-hand-over":
            "After every call, nobody waits who could go.",
        NoOvertaking = "no-overtaking":
            "Nobody gets a lease past an earlier overlapping waiter, unless a lease of its own blocks that waiter.",
        WaitsEnd = "a-wait-ends-at-its-deadline":
            "After a call that lets time pass, nobody waits past its deadline.",
        NoLateDeadline = "no-deadline-is-late":
            "The next moment at which something is due is never named too late.",
        BoundedMemory = "bounded-memory":
            "What is kept grows with what is held and waits, not with the past.",

        // Of the run itself.
        NothingPanics = "nothing-panics":
            "No call panics.",
        EffectsAreSeen = "effects-are-seen":
            "What a run is about did happen in it.",
        TextIsAsAccepted = "the-story-is-as-accepted":
            "A fixed scenario tells what it told when its text was accepted.",
    }
}

/// A rule that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// Which rule.
    pub rule: Rule,
    /// What was seen instead.
    pub what: String,
}

impl Breach {
    /// Says what was seen instead of what `rule` says.
    #[must_use]
    pub fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl std::error::Error for Breach {}

/// Answers a breach of `rule` unless `held`.
pub(super) fn require(held: bool, rule: Rule, what: impl FnOnce() -> String) -> Result<(), Breach> {
    if held {
        Ok(())
    } else {
        Err(Breach::new(rule, what()))
    }
}
