//! Draws the steps of a history, with an eye on the room: where something can happen, it should.

use lease_core::Disposition;

use super::config::{Config, TERM, Terms};
use super::driver::Driver;
use super::random::Random;
use super::room::Room;
use super::step::{How, Step, Waits};

/// Draws the next step.
pub(crate) fn next<D: Driver>(config: &Config, room: &Room<D>, random: &mut Random) -> Step {
    let seat = random.small(config.seats);
    let seated = room.seat(seat);
    if room.has_zombies(0) && random.percent(25) {
        return Step::Reap {
            machine: 0,
            nth: random.small(3),
        };
    }
    if !seated.taken {
        return match random.percent(70) {
            true => arrive(seat, random),
            false => elsewhere(config, room, random),
        };
    }
    if let Some(step) = pending(config, seat, room, random) {
        return step;
    }
    if seated.stalled && random.percent(25) {
        return Step::Wake { seat };
    }
    if seated.ops > 0 && random.percent(15) {
        return end(seat, random);
    }
    if seated.waits > 0 && random.percent(8) {
        return Step::Cancel {
            seat,
            nth: random.small(3),
        };
    }
    if seated.holds == 0 && random.percent(50) {
        return acquire(config, seat, random);
    }
    match random.below(100) {
        0..25 => acquire(config, seat, random),
        25..60 => held(config, seat, random),
        _ => elsewhere(config, room, random),
    }
}

/// What is on its way, or was found out and not used.
fn pending<D: Driver>(
    config: &Config,
    seat: u8,
    room: &Room<D>,
    random: &mut Random,
) -> Option<Step> {
    let [mail, lost, open, past, tickets] = room.piles();
    if mail > 0 && random.percent(35) {
        let nth = random.small(4);
        return Some(if random.percent(75) {
            Step::Deliver { nth }
        } else {
            Step::Lose { nth }
        });
    }
    if let Some(key) = random.one(&room.proven())
        && random.percent(60)
    {
        let ttl_ms = ttl(config, random);
        let late = random.percent(10);
        return Some(Step::Acquire {
            seat,
            key,
            ttl_ms,
            wait: Waits::No,
            late,
        });
    }
    if open > 0 && random.percent(60) {
        return Some(Step::Probe {
            nth: random.small(4),
        });
    }
    if lost > 0 && random.percent(20) {
        return Some(Step::Hear {
            nth: random.small(4),
        });
    }
    if tickets > 0 && random.percent(4) {
        return Some(Step::Redeem {
            seat,
            ticket: random.small(4),
        });
    }
    if past > 0 && random.percent(6) {
        return Some(haunt(random));
    }
    None
}

/// What does not concern one writer in particular.
fn elsewhere<D: Driver>(config: &Config, room: &Room<D>, random: &mut Random) -> Step {
    let seat = random.small(config.seats);
    let machine = u8::from(random.percent(15));
    match random.below(100) {
        0..40 => time(config, room, random),
        40..44 => Step::Sweep,
        44..50 => Step::Advance,
        50..58 => Step::Watch,
        58..66 => Step::Stall { seat },
        66..78 => Step::Exit {
            seat,
            threads_stay: random.percent(15),
        },
        78..84 => Step::Reap {
            machine,
            nth: random.small(3),
        },
        84..87 => Step::Unplug { seat },
        87..91 => Step::EndChild {
            nth: random.small(4),
        },
        91..94 => Step::Blind {
            yes: random.percent(40),
        },
        94..96 => Step::Succeed {
            place: random.small(4),
        },
        96..98 => Step::Revoke {
            key: random.small(config.keys),
            even_if_alive: random.percent(50),
        },
        98 => match random.below(4) {
            0 => Step::Restore,
            1 => Step::RaiseFloor,
            _ => Step::Restart,
        },
        _ => match random.percent(50) {
            true => Step::Reboot { machine },
            false => Step::ReleaseExited {
                key: random.small(config.keys),
            },
        },
    }
}

fn arrive(seat: u8, random: &mut Random) -> Step {
    let machine = u8::from(random.percent(15));
    Step::Arrive {
        seat,
        machine,
        // Mostly the number that became free last, so that it comes back at once.
        choice: random.small(4).saturating_sub(2),
    }
}

fn acquire(config: &Config, seat: u8, random: &mut Random) -> Step {
    let wait = match random.below(100) {
        0..45 => Waits::No,
        45..70 => Waits::For {
            ms: random.one(&[1, 1_000, 29_999, 30_000, 30_001]).unwrap_or(1),
        },
        _ => Waits::Forever,
    };
    Step::Acquire {
        seat,
        key: random.small(config.keys),
        ttl_ms: ttl(config, random),
        wait,
        late: random.percent(10),
    }
}

fn ttl(config: &Config, random: &mut Random) -> Option<u64> {
    let wishes: &[Option<u64>] = match config.terms {
        Terms::Processes => &[None, None, Some(1_000), Some(30_000)],
        Terms::Sessions | Terms::HostedSessions => &[None, None, None, Some(30_000), Some(7)],
        Terms::ServerSessions => &[None, None, None, None, Some(7)],
    };
    random.one(wishes).flatten()
}

/// What a writer does with a lease it knows of.
fn held(config: &Config, seat: u8, random: &mut Random) -> Step {
    let hold = random.small(4);
    match random.below(100) {
        0..30 => Step::Write {
            seat,
            hold,
            place: random.small(4),
        },
        30..45 => Step::Begin { seat, hold },
        45..55 => end(seat, random),
        55..65 => Step::Release { seat, hold },
        65..73 => Step::Touch { seat, hold },
        73..79 => Step::Renew {
            seat,
            hold,
            ttl_ms: ttl(config, random),
        },
        79..83 => Step::Check { seat, hold },
        83..86 => Step::CheckAs {
            seat,
            key: random.small(config.keys),
        },
        86..89 => Step::ReleaseAs {
            seat,
            key: random.small(config.keys),
        },
        89..92 => Step::Offer { seat, hold },
        92..95 => Step::HandOver {
            seat,
            hold,
            to: random.small(config.seats),
        },
        _ => Step::Fork {
            seat,
            hold,
            group: random.percent(50),
            uses: random.percent(50),
            choice: random.small(4),
        },
    }
}

fn end(seat: u8, random: &mut Random) -> Step {
    let how = match random.below(4) {
        0 => How::Failed(Disposition::PreMutation),
        1 => How::Failed(Disposition::RolledBack),
        2 => How::Failed(Disposition::Unknown),
        _ => How::Well,
    };
    Step::End {
        seat,
        hold: random.small(4),
        op: random.small(4),
        how,
    }
}

fn haunt(random: &mut Random) -> Step {
    let past = random.small(8);
    match random.percent(50) {
        true => Step::WriteLate {
            past,
            place: random.small(4),
        },
        false => Step::Haunt {
            past,
            verb: random.small(8),
        },
    }
}

/// Time passes: preferably up to the edge of a term or of a wait, or just past it.
fn time<D: Driver>(config: &Config, room: &Room<D>, random: &mut Random) -> Step {
    let short = [1, 1_000_000, 10_000_000, 1_000_000_000];
    let term = u64::try_from(TERM.as_nanos()).unwrap_or(u64::MAX);
    match random.below(100) {
        0..55 => {
            let read = room.read();
            let edges: Vec<u64> = room
                .oracle()
                .edges()
                .filter(|edge| *edge >= read)
                .map(|edge| edge.as_nanos().saturating_sub(read.as_nanos()))
                .collect();
            let Some(left) = random.one(&edges) else {
                return Step::Pass {
                    nanos: random.one(&short).unwrap_or(1),
                };
            };
            // A clock that runs too fast needs less true time to get there.
            let fast = u128::try_from(1_000_000_i64.saturating_add(config.drift)).unwrap_or(1);
            let true_left = u128::from(left).saturating_mul(1_000_000) / fast.max(1);
            let nanos = u64::try_from(true_left).unwrap_or(u64::MAX);
            Step::Pass {
                nanos: nanos.saturating_add(random.below(3)).saturating_sub(1),
            }
        }
        55..80 => Step::Pass {
            nanos: random.one(&short).unwrap_or(1),
        },
        80..90 => Step::Pass {
            nanos: random.below(term.saturating_mul(2)),
        },
        90..95 => Step::Suspend {
            nanos: random.below(term.saturating_mul(2)),
        },
        _ => Step::ClockBack {
            nanos: random.below(term),
        },
    }
}
