//! What must hold in every state and at every step, by name.

use crate::named::named;

/// Makes the laws, and the same laws as properties for the checker.
macro_rules! laws {
    ($($name:ident = $text:literal: $about:literal,)*) => {
        named! {
            /// One law. A state in which one is broken is a counterexample.
            Law {
                $($name = $text: $about,)*
            }
        }

        /// The same laws as properties for the checker.
        pub(super) fn properties<M>() -> Vec<stateright::Property<M>>
        where
            M: stateright::Model,
            M::State: Judged<M>,
        {
            vec![$(stateright::Property::always($text, |model, state: &M::State| {
                state.broken(model) != Some(Law::$name)
            }),)*]
        }
    };
}

laws! {
    OneHolder = "one-holder":
        "No two writers hold overlapping resources, and who is granted a lease is its holder.",
    GenerationsGrow = "generations-grow":
        "Every new lease has a larger generation than all before it.",
    OnlyWhoAsks = "only-who-asks-is-granted":
        "A lease is granted only to a writer that asks for it or waits for it.",
    PastCannotAct = "the-past-cannot-act":
        "A token, verdict, operation or request that is over changes nothing.",
    DoubtNeverGrants = "doubt-never-grants":
        "A lease ends by proof only with the answer `dead` about exactly this lease and holder.",
    InFlightShields = "in-flight-shields-from-expiry":
        "No lease with an operation in flight ends by its term.",
    NoEarlyExpiry = "no-early-expiry":
        "A lease ends by its term only strictly after its last moment.",
    FailureFreesItsOwn = "a-failure-frees-its-own-lease-only":
        "A failed operation or a grant given back ends the lease only if it made it, left nothing behind and nobody joined.",
    EndsHaveCauses = "an-end-has-its-cause":
        "A lease ends only by a call that names it, by its term or by proof.",
    DisconnectIsComplete = "a-disconnect-is-complete":
        "After a disconnect nothing of that writer is held or waits.",
    DueAreReclaimed = "the-due-are-reclaimed":
        "After a call that sweeps, no lease that is over is left.",
    RefusalsChangeNothing = "a-refusal-changes-nothing":
        "A call that is refused, or must ask, changes no lease but those that are over, and those of whom that lets in.",
    NoLostHandOver = "no-lost-hand-over":
        "Nobody waits who could go, unless the next deadline has come.",
    NoOvertaking = "no-overtaking":
        "Nobody gets a lease past an earlier overlapping waiter that does not wait for this very writer.",
    WaitsEnd = "a-wait-ends-at-its-deadline":
        "After a call that lets time pass, nobody waits past its deadline.",
    WaitersAreCounted = "every-wait-is-answered-once":
        "Who waits is who asked to and was neither answered nor taken back.",
    HintsDecideNothing = "hints-decide-nothing":
        "A call with a hint where the lease is does what it does without.",
    NoOlderAfterNewer = "no-older-token-after-newer":
        "Once a resource let a token in, it lets no older one in.",
    NoGenerationTwice = "no-generation-twice-at-the-gate":
        "A resource lets in one lease of each generation.",
    NoForeignToken = "no-foreign-token-at-the-gate":
        "A resource lets in tokens of its present authority only, and never one of a succeeded authority.",
    RevokedStayOut = "the-revoked-stay-out":
        "A resource lets in no generation up to a revoked one.",
    EverythingComesFree = "everything-comes-free":
        "From every state, disconnects, silence or holders that finish free every resource and empty the queue.",
}

/// A state that says which law is broken in it, or by the step to it.
pub(super) trait Judged<M> {
    /// The first law found broken.
    fn broken(&self, model: &M) -> Option<Law>;
}

/// A law that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) law: Law,
    pub(super) what: String,
}

/// Answers a breach of `law` unless `held`.
pub(super) fn require(held: bool, law: Law, what: impl FnOnce() -> String) -> Result<(), Breach> {
    if held {
        Ok(())
    } else {
        Err(Breach { law, what: what() })
    }
}
