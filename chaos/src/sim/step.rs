//! One step of a history, as data that can be run again, also when others are left out.
//!
//! Steps name things by small numbers that are resolved when the step runs, modulo what is there. A
//! step that finds nothing does nothing.

use std::fmt;

use lease_core::Disposition;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    // Time.
    Pass {
        nanos: u64,
    },
    ClockBack {
        nanos: u64,
    },
    Suspend {
        nanos: u64,
    },

    // Processes and connections.
    Arrive {
        seat: u8,
        machine: u8,
        choice: u8,
    },
    Exit {
        seat: u8,
        threads_stay: bool,
    },
    Reap {
        machine: u8,
        nth: u8,
    },
    Fork {
        seat: u8,
        hold: u8,
        group: bool,
        uses: bool,
        choice: u8,
    },
    EndChild {
        nth: u8,
    },
    Stall {
        seat: u8,
    },
    Wake {
        seat: u8,
    },
    Unplug {
        seat: u8,
    },
    Hear {
        nth: u8,
    },
    Reboot {
        machine: u8,
    },
    Blind {
        yes: bool,
    },

    // Calls.
    Acquire {
        seat: u8,
        key: u8,
        ttl_ms: Option<u64>,
        wait: Waits,
        late: bool,
    },
    Touch {
        seat: u8,
        hold: u8,
    },
    Renew {
        seat: u8,
        hold: u8,
        ttl_ms: Option<u64>,
    },
    Begin {
        seat: u8,
        hold: u8,
    },
    End {
        seat: u8,
        hold: u8,
        op: u8,
        how: How,
    },
    Release {
        seat: u8,
        hold: u8,
    },
    ReleaseAs {
        seat: u8,
        key: u8,
    },
    ReleaseExited {
        key: u8,
    },
    Offer {
        seat: u8,
        hold: u8,
    },
    Redeem {
        seat: u8,
        ticket: u8,
    },
    HandOver {
        seat: u8,
        hold: u8,
        to: u8,
    },
    Revoke {
        key: u8,
        even_if_alive: bool,
    },
    Check {
        seat: u8,
        hold: u8,
    },
    CheckAs {
        seat: u8,
        key: u8,
    },
    Haunt {
        past: u8,
        verb: u8,
    },
    Sweep,
    Advance,
    Cancel {
        seat: u8,
        nth: u8,
    },

    // Mail and evidence.
    Deliver {
        nth: u8,
    },
    Lose {
        nth: u8,
    },
    Watch,
    Probe {
        nth: u8,
    },

    // The guarded resources.
    Write {
        seat: u8,
        hold: u8,
        place: u8,
    },
    WriteLate {
        past: u8,
        place: u8,
    },

    // The authority.
    Restart,
    Restore,
    RaiseFloor,
    Succeed {
        place: u8,
    },
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    No,
    For { ms: u64 },
    Forever,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    Failed(Disposition),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass { nanos } => write!(f, "{} pass", span(*nanos)),
            Self::ClockBack { nanos } => write!(f, "the clock steps back by {}", span(*nanos)),
            Self::Suspend { nanos } => write!(f, "the machine sleeps for {}", span(*nanos)),
            Self::Reap { machine, nth } => write!(f, "machine {machine} reaps zombie {nth}"),
            Self::EndChild { nth } => write!(f, "child {nth} ends"),
            Self::Hear { nth } => write!(f, "the authority hears of lost connection {nth}"),
            Self::Reboot { machine } => write!(f, "machine {machine} reboots"),
            Self::Blind { yes: true } => f.write_str("the prober goes blind"),
            Self::Blind { yes: false } => f.write_str("the prober sees again"),
            Self::ReleaseExited { key } => {
                write!(f, "a host releases key {key} for an exited holder")
            }
            Self::Revoke { key, even_if_alive } => {
                write!(
                    f,
                    "an operator revokes key {key}, even if alive: {even_if_alive}"
                )
            }
            Self::Haunt { past, verb } => write!(f, "token {past} of the past tries verb {verb}"),
            Self::Sweep => f.write_str("somebody sweeps"),
            Self::Advance => f.write_str("the driver lets time pass"),
            Self::Deliver { nth } => write!(f, "answer {nth} arrives"),
            Self::Lose { nth } => write!(f, "answer {nth} finds nobody"),
            Self::Watch => f.write_str("the driver asks after those in front of waiters"),
            Self::Probe { nth } => write!(f, "the prober answers question {nth}"),
            Self::WriteLate { past, place } => {
                write!(f, "token {past} of the past writes at place {place}")
            }
            Self::Restart => f.write_str("the authority restarts"),
            Self::Restore => f.write_str("the authority is put back to its beginning"),
            Self::RaiseFloor => f.write_str("the authority is told what the resources have seen"),
            Self::Succeed { place } => {
                write!(f, "the owner of place {place} names the new authority")
            }
            seated => seated.fmt_seated(f),
        }
    }
}

impl Step {
    /// Renders what one writer does.
    fn fmt_seated(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrive {
                seat,
                machine,
                choice,
            } => {
                write!(
                    f,
                    "writer {seat} arrives on machine {machine}, place {choice}"
                )
            }
            Self::Exit {
                seat,
                threads_stay: false,
            } => write!(f, "writer {seat} exits"),
            Self::Exit {
                seat,
                threads_stay: true,
            } => {
                write!(f, "writer {seat} loses its first thread")
            }
            Self::Fork {
                seat,
                hold,
                group,
                uses,
                choice,
            } => write!(
                f,
                "writer {seat} forks into place {choice}, same group: {group}, uses lease {hold}: {uses}"
            ),
            Self::Stall { seat } => write!(f, "writer {seat} stalls"),
            Self::Wake { seat } => write!(f, "writer {seat} wakes up"),
            Self::Unplug { seat } => write!(f, "writer {seat} loses its connection"),
            Self::Acquire {
                seat,
                key,
                ttl_ms,
                wait,
                late,
            } => {
                write!(f, "writer {seat} asks for key {key}")?;
                if let Some(ttl) = ttl_ms {
                    write!(f, ", ttl {ttl} ms")?;
                }
                match wait {
                    Waits::No => {}
                    Waits::For { ms } => write!(f, ", waits {ms} ms")?,
                    Waits::Forever => f.write_str(", waits")?,
                }
                if *late {
                    f.write_str(", the answer is delayed")
                } else {
                    Ok(())
                }
            }
            held => held.fmt_held(f),
        }
    }

    /// Renders what one writer does with what it has.
    fn fmt_held(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Touch { seat, hold } => write!(f, "writer {seat} touches lease {hold}"),
            Self::Renew { seat, hold, ttl_ms } => {
                write!(f, "writer {seat} renews lease {hold}, ttl {ttl_ms:?} ms")
            }
            Self::Begin { seat, hold } => {
                write!(f, "writer {seat} begins an operation under lease {hold}")
            }
            Self::End {
                seat,
                hold,
                op,
                how,
            } => {
                write!(
                    f,
                    "writer {seat} ends operation {op} under lease {hold}: {how:?}"
                )
            }
            Self::Release { seat, hold } => write!(f, "writer {seat} releases lease {hold}"),
            Self::ReleaseAs { seat, key } => write!(f, "writer {seat} releases key {key} by name"),
            Self::Offer { seat, hold } => write!(f, "writer {seat} offers lease {hold}"),
            Self::Redeem { seat, ticket } => write!(f, "writer {seat} redeems ticket {ticket}"),
            Self::HandOver { seat, hold, to } => {
                write!(f, "writer {seat} hands lease {hold} over to writer {to}")
            }
            Self::Check { seat, hold } => write!(f, "writer {seat} checks lease {hold}"),
            Self::CheckAs { seat, key } => write!(f, "writer {seat} checks key {key} by name"),
            Self::Cancel { seat, nth } => write!(f, "writer {seat} takes request {nth} back"),
            Self::Write { seat, hold, place } => {
                write!(
                    f,
                    "writer {seat} writes at place {place} under lease {hold}"
                )
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// Nanoseconds as people write them.
fn span(nanos: u64) -> String {
    format!("{:?}", std::time::Duration::from_nanos(nanos))
}
