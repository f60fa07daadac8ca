//! The verdict: one table over gathered facts. Its last row is doubt.

use lease_core::{Evidence, Locality, Verdict};

use crate::facts::{
    Boot, Exit, Facts, Grain, Inode, Leader, Lookup, Number, Occupancy, Presence, Signal, Ticks,
    Trust, View,
};
use crate::id::Sameness;
use crate::proof::Proof;

/// Judges a holder by what was seen, and by nothing else.
///
/// `Dead` comes only from a row that proves it. A fact that is in doubt never helps to prove, so
/// seeing less can turn a verdict into `Unknown` and never into `Dead` — but for a free presence
/// byte, which is a proof that decides only when nothing else did.
#[must_use]
pub fn verdict(facts: &Facts) -> Verdict {
    match ruling(facts) {
        Alive(proof) => Verdict::Alive(Evidence::new(proof.as_str())),
        Dead(proof) => after_death(proof, facts.occupancy),
        Unknown(proof) => Verdict::Unknown(Evidence::new(proof.as_str())),
    }
}

/// Judges what is left of the work of a holder that is proven gone.
const fn after_death(proof: Proof, occupancy: Occupancy) -> Verdict {
    match occupancy {
        Occupancy::NotAsked | Occupancy::Empty => Verdict::Dead(Evidence::new(proof.as_str())),
        Occupancy::Group => Verdict::Occupied(Evidence::new(Proof::GroupAlive.as_str())),
        Occupancy::Paths => Verdict::Occupied(Evidence::new(Proof::PathInUse.as_str())),
        Occupancy::Unobserved => {
            Verdict::Unknown(Evidence::new(Proof::OccupancyNotObserved.as_str()))
        }
        Occupancy::Hidden => Verdict::Unknown(Evidence::new(Proof::OccupancyHidden.as_str())),
        Occupancy::Failed => Verdict::Unknown(Evidence::new(Proof::OccupancyFailed.as_str())),
    }
}

/// Returns what proves that the holder's process is gone, if anything does.
pub(crate) fn death(facts: &Facts) -> Option<Proof> {
    match ruling(facts) {
        Dead(proof) => Some(proof),
        Alive(_) | Unknown(_) => None,
    }
}

/// What is said of the holder's process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ruling {
    Alive(Proof),
    Dead(Proof),
    Unknown(Proof),
}

use Ruling::{Alive, Dead, Unknown};

fn ruling(facts: &Facts) -> Ruling {
    let local_presence_is_free =
        facts.presence == Presence::Free && facts.locality == Locality::ThisMachine;
    // The kernel ends a lock with its last process, in whatever namespace. In our own namespace the
    // probe knows more: an exec gives the lock up and lives on.
    if local_presence_is_free && facts.pid_namespace == Sameness::Different {
        return Dead(Proof::PresenceReleased);
    }
    if let Some(ruling) = place(facts) {
        return ruling;
    }
    match probe(facts) {
        // Nothing better was seen, so the free byte stands.
        Unknown(_) if local_presence_is_free => Dead(Proof::PresenceReleased),
        ruling => ruling,
    }
}

/// Tells whether a look at the process can say anything.
pub(crate) fn may_probe(facts: &Facts) -> bool {
    place(facts).is_none()
}

/// Judges where the record comes from and where it is read. `None` if the number can be looked up.
fn place(facts: &Facts) -> Option<Ruling> {
    match facts.boot {
        Boot::Same => {}
        Boot::Other => return Some(other_boot(facts)),
        Boot::Unreadable => return Some(Unknown(unreadable_boot(facts.view))),
    }
    // Equal ids that somebody may have mounted there do not make one boot.
    if facts.trust != Trust::Both {
        return Some(Unknown(Proof::BootIdUntrusted));
    }
    match facts.view {
        View::Ours => {}
        View::NotOurs => return Some(Unknown(Proof::ProcNotOurs)),
        View::Missing => return Some(Unknown(Proof::ProcMissing)),
        View::Unsupported => return Some(Unknown(Proof::Unsupported)),
    }
    match facts.pid_namespace {
        Sameness::Same => {}
        Sameness::Different => return Some(Unknown(Proof::OtherPidNamespace)),
        Sameness::Undecided => return Some(Unknown(Proof::PidNamespaceUnknown)),
    }
    match (facts.grain, facts.time_namespace) {
        // The inode is the same for every reader.
        (Grain::Inode, _) | (Grain::Ticks, Sameness::Same) => None,
        (Grain::Ticks, Sameness::Different) => Some(Unknown(Proof::OtherTimeNamespace)),
        (Grain::Ticks, Sameness::Undecided) => Some(Unknown(Proof::TimeNamespaceUnknown)),
    }
}

fn other_boot(facts: &Facts) -> Ruling {
    match (facts.locality, facts.trust, facts.presence) {
        (Locality::ManyMachines, _, _) => Unknown(Proof::AnotherMachine),
        (Locality::ThisMachine, Trust::Both, Presence::Held) => Unknown(Proof::PresenceHeld),
        (Locality::ThisMachine, Trust::Both, Presence::None | Presence::Free) => {
            Dead(Proof::OtherBoot)
        }
        (
            Locality::ThisMachine,
            Trust::OursOnly | Trust::RecordOnly | Trust::Neither,
            Presence::None | Presence::Held | Presence::Free,
        ) => Unknown(Proof::BootIdUntrusted),
    }
}

/// Names the reason nearest to the cause.
const fn unreadable_boot(view: View) -> Proof {
    match view {
        View::Unsupported => Proof::Unsupported,
        View::Missing => Proof::ProcMissing,
        View::Ours | View::NotOurs => Proof::BootIdUnreadable,
    }
}

/// Judges the number by what was looked at. It is a number of our own namespace, in this boot.
fn probe(facts: &Facts) -> Ruling {
    let ruling = match facts.lookup {
        Lookup::NotAsked => Unknown(Proof::NotObserved),
        Lookup::Opened => opened(facts),
        Lookup::NoSuchProcess => Dead(Proof::NoSuchProcess),
        Lookup::NotAProcess => Dead(Proof::PidRecycled),
        Lookup::NotALeader => not_a_leader(facts.number),
        Lookup::Unavailable => without_pidfd(facts),
        Lookup::Denied => Unknown(Proof::LookupDenied),
        Lookup::Exhausted => Unknown(Proof::LookupExhausted),
        Lookup::Failed => Unknown(Proof::LookupFailed),
    };
    match (ruling, facts.signal) {
        // Signal 0 needs no descriptor and no `/proc`, and looks the number up in our namespace.
        (Unknown(_), Signal::NoSuchProcess) => Dead(Proof::NoSuchProcess),
        (ruling, _) => ruling,
    }
}

fn opened(facts: &Facts) -> Ruling {
    match facts.grain {
        Grain::Inode => by_inode(facts.inode, facts.exit),
        Grain::Ticks => by_ticks(facts.ticks, facts.exit),
    }
}

const fn by_inode(inode: Inode, exit: Exit) -> Ruling {
    match (inode, exit) {
        (Inode::Different, _) => Dead(Proof::PidRecycled),
        (Inode::Same, Exit::Exited) => Dead(Proof::Exited),
        (Inode::Same, Exit::Running) => Alive(Proof::Running),
        (Inode::Same, Exit::NotAsked | Exit::Failed) | (Inode::NotAsked | Inode::Failed, _) => {
            Unknown(Proof::LookupFailed)
        }
    }
}

/// The pidfd was opened before the ticks were read and polled after, so a process that still runs
/// is the one whose ticks were read.
const fn by_ticks(ticks: Ticks, exit: Exit) -> Ruling {
    match (ticks, exit) {
        // At some moment the number named a process that is not the recorded one.
        (Ticks::Different, _) => Dead(Proof::PidRecycled),
        // The number named this process when it was opened. It was the holder and has exited, or
        // the holder was gone before.
        (
            Ticks::Same
            | Ticks::NotAsked
            | Ticks::NotFound
            | Ticks::Denied
            | Ticks::Exhausted
            | Ticks::Failed
            | Ticks::Malformed,
            Exit::Exited,
        ) => Dead(Proof::Exited),
        (Ticks::Same, Exit::Running) => Alive(Proof::RunningByStartTicks),
        (Ticks::Same, Exit::NotAsked | Exit::Failed) => Unknown(Proof::LookupFailed),
        // It runs and cannot be seen.
        (Ticks::NotFound, _) => Unknown(Proof::Hidden),
        (unread, _) => Unknown(unread_ticks(unread)),
    }
}

const fn not_a_leader(number: Number) -> Ruling {
    match number {
        Number::Thread => Dead(Proof::PidRecycled),
        Number::NotAsked | Number::Process | Number::Unreadable => Unknown(Proof::LookupFailed),
    }
}

/// A kernel or a sandbox without pidfd: ticks first, then whether they are a process's.
const fn without_pidfd(facts: &Facts) -> Ruling {
    match (facts.ticks, facts.number, facts.leader) {
        (Ticks::Different, _, _) | (Ticks::Same, Number::Thread, _) => Dead(Proof::PidRecycled),
        (Ticks::Same, Number::Process, Leader::Runs) => Alive(Proof::RunningByStartTicks),
        (Ticks::Same, Number::Process, Leader::Exited) => Unknown(Proof::LeaderExited),
        (Ticks::Same, Number::Process, Leader::NotAsked)
        | (Ticks::Same, Number::NotAsked | Number::Unreadable, _) => Unknown(Proof::NotObserved),
        (Ticks::NotFound, _, _) => match facts.signal {
            Signal::Exists | Signal::NotPermitted => Unknown(Proof::Hidden),
            Signal::NotAsked | Signal::NoSuchProcess | Signal::Failed => {
                Unknown(Proof::NotObserved)
            }
        },
        (unread, _, _) => Unknown(unread_ticks(unread)),
    }
}

/// Says why there are no ticks.
const fn unread_ticks(ticks: Ticks) -> Proof {
    match ticks {
        Ticks::Denied => Proof::LookupDenied,
        Ticks::Exhausted => Proof::LookupExhausted,
        Ticks::Failed => Proof::LookupFailed,
        Ticks::Malformed => Proof::StatMalformed,
        Ticks::NotAsked | Ticks::Same | Ticks::Different | Ticks::NotFound => Proof::NotObserved,
    }
}
