//! The list of the real scenarios.

use std::path::Path;
use std::time::Duration;

use super::boot;
#[cfg(feature = "sqlite")]
use super::claim;
use super::deaths;
use super::descriptors;
use super::kill;
use super::launch::{SELF, tell};
use super::occupied;
use super::place;
use super::problem::Problem;
use super::restart;
use super::stop;
use super::storm;
use super::world::World;
#[cfg(feature = "sqlite")]
use super::write_lock;
use crate::scenario::{Context, Report, Scenario, Suite};

/// Tells a story in its namespaces.
type Tell = fn(&mut World) -> Result<(), Problem>;

/// Makes the list of scenarios and the list of their stories.
macro_rules! tales {
    ($($(#[$when:meta])? $name:literal, $tell:path, $about:literal;)*) => {
        /// Returns the scenarios of the real suite.
        pub(super) fn scenarios() -> Vec<Scenario> {
            vec![$($(#[$when])? Scenario::new($name, Suite::Real, $about, |context| {
                run_by(Path::new(SELF), $name, context)
            }),)*]
        }

        /// Returns the story of this name.
        pub(super) fn story(name: &str) -> Option<Tell> {
            match name {
                $($(#[$when])? $name => Some($tell),)*
                _ => None,
            }
        }
    };
}

tales! {
    "real-kill-exited", kill::exited,
        "A holder is killed and not reaped; the next writer is granted on the proof that it has exited.";
    "real-kill-reaped", kill::reaped,
        "A holder is killed and reaped; the next writer is granted on the proof that its number names nothing.";
    "real-pid-recycled", kill::recycled,
        "A dead holder's exact number is given to another process at once; the next writer is granted on that proof.";
    "real-pid-recycled-many", kill::recycled_many,
        "A dead holder's number is given away over and over, with and without pidfs: nobody is ever taken for the dead holder.";
    "real-stop-past-term", stop::past_term,
        "A holder sleeps past its term, a successor writes, and the late write leaves no byte.";
    "real-stop-in-flight", stop::in_flight,
        "A holder sleeps past its term with an operation in flight, and nobody is granted.";
    "real-zombie-leader", stop::zombie_leader,
        "A holder's leader thread exits while another writes on, and nobody is granted.";
    "real-own-pid-again", kill::own_pid_again,
        "A process with the dead holder's own number and name asks and gets a lease of its own.";
    "real-other-pid-namespace", place::other_pid_namespace,
        "A holder is recorded in a sibling pid namespace; from here it is never judged, and nobody is granted.";
    "real-thread-id", place::thread_id,
        "The dead holder's number is a thread now: proof of death; and no thread is recorded as a holder.";
    "real-clock-offset", place::clock_offset,
        "Holder, record and authority on a boot clock that is far ahead: no live holder is succeeded.";
    "real-kill-storm", storm::kill_storm,
        "Several writers are killed and stopped at random: no two holds overlap and tokens rise.";
    "real-authority-restart", restart::authority_restart,
        "The authority is killed and another takes its place: old tokens are refused, in the end for ever.";
    "real-group-outlives-leader", occupied::group_outlives_leader,
        "A killed leader's group lives on, reaped or not: nobody is granted before its last member is gone.";
    "real-group-number-again", occupied::group_number_again,
        "The group of a dead holder is empty and its number leads another group: the next writer is granted.";
    "real-path-in-use", occupied::path_in_use,
        "Somebody who left the dead holder's group has its tree as directory, open or mapped, removed or not.";
    "real-descriptors-exhausted", descriptors::exhausted,
        "The authority has few descriptors or none to look with, and nobody is granted what is in use.";
    "real-other-boot", boot::other_boot,
        "A record of another boot proves a death only where no other machine writes records.";
    "real-death-watch", deaths::watch,
        "Children, strangers and a number that comes back are watched: each death is told once, and nobody is reaped.";
    #[cfg(feature = "sqlite")] "real-claim-in-between", claim::in_between,
        "A claim of protocol 1 comes in the place of a dead one just before that is replaced, and stays there.";
    #[cfg(feature = "sqlite")] "real-write-lock-storm", write_lock::storm,
        "Writers at one lock are killed, stopped and renumbered, its files damaged, its directory swapped.";
}

/// Runs one scenario with `program`, which asks [`role`](super::role) first, in its roles.
///
/// For callers that are not that program themselves.
///
/// A scenario is short, so it is told to its end whatever the time of the run is, unless the run is called
/// off; one that hangs is ended and has failed.
pub fn run_by(program: &Path, name: &str, context: &Context<'_>) -> Report {
    tell(
        program,
        name,
        context.seed,
        context.deadline.another(LONGEST),
    )
    .judge()
}

/// The longest that one scenario may take: many times what the slowest one does.
const LONGEST: Duration = Duration::from_secs(60);
