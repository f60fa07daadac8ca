//! From one process to the next: after a release, and after the holder's death.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::place::{self, Place};
use crate::report::{Calls, Row};
use crate::ways::{self, Folder, Named, WAYS};

/// How long each holds.
const HOLD: Duration = Duration::from_millis(2);

/// How long each stays away after it has left: longer than a hand-over, so that it is no newcomer
/// in the middle of one, and shorter than a hold, so that it waits again before the next one.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a waiter gets to begin its wait.
const SETTLE: Duration = Duration::from_millis(20);

/// Each figure is the best of so many runs, which take turns.
const RUNS: usize = 3;

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Is one of the processes that pass the lock on. `relay:WAY:PROCESSOR:FOLDER` or `hold:WAY:MIB:FOLDER`.
pub(crate) fn work(name: &str, units: u64) -> Result<(), String> {
    let unknown = || format!("unknown work handover/{name}");
    let words: Vec<_> = name.splitn(4, ':').collect();
    match words[..] {
        ["relay", way, processor, folder] => {
            // Before anything starts a thread, which would stay elsewhere.
            place::keep_to(processor).ok_or_else(unknown)?;
            relay(
                ways::way(way).ok_or_else(unknown)?,
                Path::new(folder),
                units,
            );
        }
        ["hold", way, mib, folder] => {
            let mib = mib.parse().map_err(|_| unknown())?;
            hold(ways::way(way).ok_or_else(unknown)?, Path::new(folder), mib);
        }
        _ => return Err(unknown()),
    }
    Ok(())
}

/// Says one line to the one who started this process.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("somebody listens");
}

fn hear() {
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("somebody speaks");
}

/// One turn: when it was asked for, when it was granted, and when it ended.
#[derive(Clone, Copy)]
struct Turn {
    asked: u64,
    granted: u64,
    left: u64,
}

fn relay(way: &Named, folder: &Path, rounds: u64) {
    let mut way = (way.open)(folder);
    way.through(&mut || ());
    say("ready");
    hear();
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let asked = now();
        let mut turn = None;
        way.through(&mut || {
            let granted = now();
            std::thread::sleep(HOLD);
            turn = Some((granted, now()));
        });
        let (granted, left) = turn.expect("it was in");
        turns.push(Turn {
            asked,
            granted,
            left,
        });
        std::thread::sleep(PAUSE);
    }
    for turn in turns {
        say(&format!("{} {} {}", turn.asked, turn.granted, turn.left));
    }
}

/// Holds until it is killed, with so much memory in use.
fn hold(way: &Named, folder: &Path, mib: usize) {
    let memory = vec![1_u8; mib << 20];
    let mut way = (way.open)(folder);
    way.through(&mut || {
        say("held");
        hear();
    });
    std::hint::black_box(memory);
}

/// A process of this program, killed at the end.
struct Other {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(work: &str, units: u64) -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut child = Command::new(own)
            .args(["--work", &format!("handover/{work}")])
            .args(["--units", &units.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        Self {
            child,
            stdin,
            lines: BufReader::new(stdout).lines(),
        }
    }

    fn hears(&mut self, line: &str) {
        let said = self.lines.next().expect("a line").expect("a line");
        assert_eq!(said, line);
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What a relay of so many waiters showed.
struct Relayed {
    /// Nanoseconds from a release to the next grant, in order.
    handovers: Vec<u64>,
    /// The most grants that anybody had to wait for, the own one included. Who came in a moment in
    /// which the lock was free stood in no line, and is not counted.
    longest_wait: usize,
}

/// `None` where there are too few processors for the place.
fn relayed(way: &Named, place: Place, waiting: usize, rounds: u64) -> Option<Relayed> {
    let folder = Folder::new();
    let mut others = Vec::new();
    for which in 0..=waiting {
        let processor = place.of(which)?;
        let work = format!("relay:{}:{processor}:{}", way.name, folder.0.display());
        let mut other = Other::start(&work, rounds);
        other.hears("ready");
        others.push(other);
    }
    for other in &mut others {
        writeln!(other.stdin, "go").expect("it listens");
    }
    let mut turns: Vec<Turn> = Vec::new();
    for other in &mut others {
        for _ in 0..rounds {
            let line = other.lines.next().expect("a turn").expect("a turn");
            let mut numbers = line
                .split(' ')
                .map(|number| number.parse().expect("a number"));
            let mut number = || numbers.next().expect("three numbers");
            turns.push(Turn {
                asked: number(),
                granted: number(),
                left: number(),
            });
        }
    }
    turns.sort_by_key(|turn| turn.granted);
    Some(judged(&turns, waiting))
}

/// Looks only at hand-overs at which all of them stood in line.
fn judged(turns: &[Turn], waiting: usize) -> Relayed {
    let mut relayed = Relayed {
        handovers: Vec::new(),
        longest_wait: 0,
    };
    for pair in turns.windows(2) {
        let [before, next] = pair else { continue };
        assert!(before.left <= next.granted, "two were in at once");
        let stands = |turn: &&Turn| turn.asked < before.left && turn.granted > before.left;
        if turns.iter().filter(stands).count() != waiting {
            continue;
        }
        relayed.handovers.push(next.granted - before.left);
        let passed = turns.windows(2).filter(|pair| {
            let [before, turn] = pair else { return false };
            let stood = turn.asked < before.left;
            stood && turn.granted > next.asked && turn.granted <= next.granted
        });
        let passed = passed.count();
        relayed.longest_wait = relayed.longest_wait.max(passed);
    }
    relayed.handovers.sort_unstable();
    relayed
}

/// Microseconds below which so many percent are.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let at = sorted.len() * percent / 100;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |nanos| *nanos as f64 / 1_000.0)
}

/// The ways that can wait, ours first and `F_SETLKW` next.
fn waiting_ways() -> Vec<&'static Named> {
    WAYS.iter()
        .filter(|way| !["sqlite", "pidlock"].contains(&way.name))
        .collect()
}

fn row(name: String, figures: &[f64], goal: Option<f64>, ways: &[&Named]) -> Row {
    Row {
        name,
        ours: figures[0],
        floor: Some(figures[1]),
        goal,
        unit: "us",
        allocations: None,
        calls: Calls::NotCounted,
        peers: ways
            .iter()
            .zip(figures)
            .skip(2)
            .map(|(way, figure)| (way.about, *figure))
            .collect(),
    }
}

fn least_each(figures: &mut [f64], at: usize, figure: f64) {
    figures[at] = figures[at].min(figure);
}

/// The best figures of each way, over some relays.
struct Best {
    half: Vec<f64>,
    most: Vec<f64>,
    longest: Vec<usize>,
}

impl Best {
    /// `None` where there are too few processors for the place.
    fn of(ways: &[&Named], place: Place, waiting: usize, rounds: u64) -> Option<Self> {
        let mut best = Self {
            half: vec![f64::INFINITY; ways.len()],
            most: vec![f64::INFINITY; ways.len()],
            longest: vec![0; ways.len()],
        };
        for _ in 0..RUNS {
            for (at, way) in ways.iter().enumerate() {
                let relayed = relayed(way, place, waiting, rounds)?;
                least_each(&mut best.half, at, percentile(&relayed.handovers, 50));
                least_each(&mut best.most, at, percentile(&relayed.handovers, 99));
                best.longest[at] = best.longest[at].max(relayed.longest_wait);
            }
        }
        Some(best)
    }
}

/// From a release to the next one in.
pub(crate) fn releases() -> Vec<Row> {
    let ways = waiting_ways();
    let mut rows = Vec::new();
    let mut alone = f64::NAN;
    for (waiting, rounds) in [(1, 150), (32, 12)] {
        for place in [Place::Any, Place::One, Place::Two] {
            // The peers are all of one kind, which shows without a given place.
            let ways = if place == Place::Any {
                &ways[..]
            } else {
                &ways[..2]
            };
            let about = place.about();
            let name = |what: &str| format!("c1 release to next, {waiting} waiting{about}, {what}");
            let Some(best) = Best::of(ways, place, waiting, rounds) else {
                eprintln!("NOT RUN: {}: one processor only", name("p50"));
                continue;
            };
            rows.push(row(name("p50"), &best.half, Some(4.0), ways));
            rows.push(row(name("p99"), &best.most, None, ways));
            match (place, waiting) {
                (Place::Any, 1) => alone = best.half[0],
                (Place::Any, _) => rows.extend(beside_one(&best, alone, waiting, ways)),
                (Place::One | Place::Two, _) => {}
            }
        }
    }
    rows
}

/// What many who wait come to beside one alone.
fn beside_one(best: &Best, alone: f64, waiting: usize, ways: &[&Named]) -> [Row; 2] {
    let longest: Vec<f64> = best.longest.iter().map(|longest| *longest as f64).collect();
    [
        Row {
            floor: Some(alone),
            peers: Vec::new(),
            ..row(
                format!("c1' {waiting} waiting beside 1 waiting, p50"),
                &best.half,
                Some(3.0),
                ways,
            )
        },
        Row {
            unit: "grants",
            floor: Some(waiting as f64),
            // One more is somebody who asked in the moment of a release.
            ..row(
                format!("c1'' longest wait of {waiting}"),
                &longest,
                Some(1.1),
                ways,
            )
        },
    ]
}

/// Microseconds from SIGKILL to the next one in, with so much memory at the holder; in order.
fn deaths_of(way: &Named, mib: usize, rounds: usize) -> Vec<u64> {
    let mut all: Vec<_> = (0..rounds)
        .map(|_| {
            let folder = Folder::new();
            let work = format!("hold:{}:{mib}:{}", way.name, folder.0.display());
            let mut holder = Other::start(&work, 1);
            holder.hears("held");
            let mut next = (way.open)(&folder.0);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(move || {
                    let mut granted = 0;
                    next.through(&mut || granted = now());
                    granted
                });
                std::thread::sleep(SETTLE);
                let killed = now();
                holder.kill();
                waiter.join().expect("it gets in") - killed
            })
        })
        .collect();
    all.sort_unstable();
    all
}

/// From the holder's death to the next one in, and what its memory adds.
pub(crate) fn deaths() -> Vec<Row> {
    let ways = waiting_ways();
    let mut rows = Vec::new();
    let mut slopes = Vec::new();
    for (mib, rounds) in [(0, 15), (64, 8), (256, 6)] {
        // The peers are all of one kind, which shows with the smallest holder.
        let ways = if mib == 0 { &ways[..] } else { &ways[..2] };
        let mut half = vec![f64::INFINITY; ways.len()];
        for _ in 0..RUNS {
            for (at, way) in ways.iter().enumerate() {
                least_each(&mut half, at, percentile(&deaths_of(way, mib, rounds), 50));
            }
        }
        slopes.push((mib, half[0], half[1]));
        let name = format!("c2 SIGKILL to next, holder of {mib} MiB, p50");
        rows.push(row(name, &half, Some(2.0), ways));
    }
    if let [(none, ours, floor), .., (most, ours_most, floor_most)] = slopes[..] {
        let mib = (most - none) as f64;
        let figures = [(ours_most - ours) / mib, (floor_most - floor) / mib];
        rows.push(row(
            "c2' each MiB of the holder's memory".to_owned(),
            &figures,
            None,
            &[],
        ));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(asked: u64, granted: u64, left: u64) -> Turn {
        Turn {
            asked,
            granted,
            left,
        }
    }

    #[test]
    fn handovers_count_where_all_stand_in_line_and_the_longest_wait_is_seen() {
        // The third one was asked for first.
        let turns = [
            turn(0, 1, 10),
            turn(3, 12, 20),
            turn(2, 25, 30),
            turn(29, 31, 32),
        ];
        let relayed = judged(&turns, 2);
        assert_eq!((relayed.handovers, relayed.longest_wait), (vec![2], 1));
        let relayed = judged(&turns, 1);
        assert_eq!((relayed.handovers, relayed.longest_wait), (vec![1, 5], 2));
    }

    #[test]
    fn an_overlap_is_no_measurement() {
        let turns = [turn(0, 1, 10), turn(3, 9, 20)];
        assert!(std::panic::catch_unwind(|| judged(&turns, 1)).is_err());
    }

    #[test]
    fn a_percentile_is_in_microseconds() {
        let sorted: Vec<u64> = (0..100).map(|micros| micros * 1_000).collect();
        assert_eq!(
            (percentile(&sorted, 50), percentile(&sorted, 99)),
            (50.0, 99.0)
        );
    }

    #[test]
    fn an_unknown_work_is_refused() {
        for unknown in ["relay:luck:any:x", "relay:ours:moon:x", "hold:ours:x"] {
            assert!(work(unknown, 1).is_err(), "{unknown}");
        }
    }
}
