//! Runs histories, on all processors, and reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::config::Terms;
use super::count::{Count, Counts};
use super::driver::{Driver, Shipped};
use super::history::{self, History};
use super::plain::Plain;
use crate::clock::Stopwatch;
use crate::oracle::Rule;
use crate::scenario::{Context, Report, Scenario, Suite, Violation};

/// Which histories are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "one for each kind of terms, and all of them"
)]
pub enum Play {
    /// Sessions with a term that ends them.
    Sessions,
    /// The same, in a process that can be asked after.
    HostedSessions,
    /// Processes.
    Processes,
    /// Sessions that a server keeps.
    ServerSessions,
    /// All of these in turn.
    All,
}

/// How many histories must be played before it is a fault that something was never seen.
const ENOUGH: u64 = 10_000;

/// The seeded scenarios.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "sim-sessions",
            Suite::Sim,
            "Sessions come, stall, lose their connection and write late; no two ever hold at once.",
            |context| play::<Shipped>("sim-sessions", Play::Sessions, context),
        )
        .seeded(),
        Scenario::new(
            "sim-hosted-sessions",
            Suite::Sim,
            "Sessions sit in processes whose numbers come back at once; only proof and term take a lease.",
            |context| play::<Shipped>("sim-hosted-sessions", Play::HostedSessions, context),
        )
        .seeded(),
        Scenario::new(
            "sim-processes",
            Suite::Sim,
            "Processes die, fork, turn zombie and are looked at too late or not at all; doubt never grants.",
            |context| play::<Shipped>("sim-processes", Play::Processes, context),
        )
        .seeded(),
        Scenario::new(
            "sim-server-sessions",
            Suite::Sim,
            "A server ends sessions it has not heard of; whoever sleeps through it is turned away.",
            |context| play::<Shipped>("sim-server-sessions", Play::ServerSessions, context),
        )
        .seeded(),
        Scenario::new(
            "sim-bare-decide",
            Suite::Sim,
            "The decision under the plainest driver there can be keeps the same rules.",
            |context| play::<Plain>("sim-bare-decide", Play::All, context),
        )
        .seeded(),
    ]
}

impl Play {
    const fn terms(self, seed: u64) -> Terms {
        match self {
            Self::Sessions => Terms::Sessions,
            Self::HostedSessions => Terms::HostedSessions,
            Self::Processes => Terms::Processes,
            Self::ServerSessions => Terms::ServerSessions,
            Self::All => match seed % 4 {
                0 => Terms::Sessions,
                1 => Terms::HostedSessions,
                2 => Terms::Processes,
                _ => Terms::ServerSessions,
            },
        }
    }

    /// What must have happened somewhere in many histories.
    fn effects(self) -> Vec<Count> {
        let mut effects = vec![
            Count::Granted,
            Count::Refused,
            Count::Stale,
            Count::Written,
            Count::Fenced,
            Count::Restarts,
            Count::Adopted,
        ];
        match self {
            Self::Sessions => {
                effects.extend([Count::Reclaimed, Count::Disconnected, Count::Queued]);
            }
            Self::HostedSessions | Self::Processes => effects.extend([
                Count::TakenOver,
                Count::Recycled,
                Count::Unknown,
                Count::StaleEvidence,
            ]),
            Self::ServerSessions => effects.extend([Count::TakenOver, Count::Unknown]),
            Self::All => effects.extend([Count::Reclaimed, Count::TakenOver, Count::Recycled]),
        }
        if self != Self::All {
            // The plain driver has no queue, and no receipt for a clock that steps back.
            effects.extend([
                Count::SteppedBack,
                Count::HandedOver,
                Count::TimedOut,
                Count::Abandoned,
            ]);
        }
        effects
    }
}

/// What all workers share.
struct Board {
    /// How many histories were begun. Counted from 0, as a seed may be the last number there is.
    begun: AtomicU64,
    /// How many there are to begin.
    wanted: u64,
    /// A rule is broken, so no more are begun.
    stop: AtomicBool,
    sum: Mutex<Sum>,
}

#[derive(Default)]
struct Sum {
    counts: Counts,
    /// The broken history that was begun first, with its place and its seed.
    broken: Option<(u64, u64, History)>,
}

/// Plays histories over `D` until the seeds or the time are used up, or a rule is broken.
pub fn play<D: Driver>(name: &'static str, play: Play, context: &Context<'_>) -> Report {
    let watch = Stopwatch::start();
    let wanted = context.seeds.unwrap_or(u64::MAX);
    let board = Board {
        begun: AtomicU64::new(0),
        wanted,
        stop: AtomicBool::new(false),
        sum: Mutex::new(Sum::default()),
    };
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = workers
        .min(usize::try_from(wanted).unwrap_or(usize::MAX))
        .max(1);
    thread::scope(|scope| {
        for _ in 1..workers {
            let worker = thread::Builder::new();
            let started = worker.spawn_scoped(scope, || work::<D>(play, context, &board));
            // Where there is no room for one more thread, those that are there do its work.
            if started.is_err() {
                break;
            }
        }
        work::<D>(play, context, &board);
    });
    let sum = board
        .sum
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    report::<D>(name, play, context, (sum, watch))
}

/// Plays one history after the other.
fn work<D: Driver>(play: Play, context: &Context<'_>, board: &Board) {
    while !board.stop.load(Ordering::Relaxed) {
        let place = board.begun.fetch_add(1, Ordering::Relaxed);
        // The first history is played whatever the time, so that a run never claims to pass on nothing.
        if place >= board.wanted || (context.time_is_up() && place > 0) {
            return;
        }
        // After the last number there is comes 0.
        let seed = context.seed.wrapping_add(place);
        let history = history::draw::<D>(play.terms(seed), seed);
        let mut sum = board
            .sum
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        sum.counts.merge(&history.counts);
        if history.breach.is_some() {
            // Those before it are in work already, so the first broken one is found.
            board.stop.store(true, Ordering::Relaxed);
            if sum
                .broken
                .as_ref()
                .is_none_or(|(first, _, _)| place < *first)
            {
                sum.broken = Some((place, seed, history));
            }
            return;
        }
        let played = sum.counts.get(Count::Histories);
        drop(sum);
        if played.is_multiple_of(256) {
            context.progress.show(&format!("{played} histories"));
        }
    }
}

fn report<D: Driver>(
    name: &'static str,
    play: Play,
    context: &Context<'_>,
    (sum, watch): (Sum, Stopwatch),
) -> Report {
    let mut report = Report::passed();
    for (counter, count) in sum.counts.named() {
        report.count(counter, count);
    }
    let histories = sum.counts.get(Count::Histories);
    let ms = u64::try_from(watch.elapsed().as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let rate = histories.saturating_mul(1_000) / ms;
    let steps = sum.counts.get(Count::Steps);
    report.note(format!(
        "histories: {histories}, from seed {} on, with {steps} steps in all; {rate} histories a second",
        context.seed
    ));
    if histories == 0 {
        let what = "no history was played";
        report.violated(Violation::new(Rule::EffectsAreSeen.name(), what));
    }
    match sum.broken {
        Some((_place, seed, history)) => {
            context
                .progress
                .show(&format!("seed {seed} breaks a rule, making it short"));
            report.violated(violation::<D>(name, seed, &history));
        }
        None => {
            let first = history::draw::<D>(play.terms(context.seed), context.seed);
            report.receipts = first.tell::<D>().receipts;
            for (count, counter) in Count::ALL {
                let missing = play.effects().contains(count) && sum.counts.get(*count) == 0;
                if missing && histories >= ENOUGH {
                    let what = format!("no {counter} in {histories} histories");
                    report.violated(Violation::new(Rule::EffectsAreSeen.name(), what));
                }
            }
        }
    }
    report
}

/// Makes a broken history short, and says how to repeat it.
fn violation<D: Driver>(name: &str, seed: u64, history: &History) -> Violation {
    let shrunk = history.shrunk::<D>();
    let told = shrunk.tell::<D>();
    let breach = shrunk.breach.clone().or_else(|| history.breach.clone());
    let (rule, what) = breach.map_or((Rule::NothingPanics, String::new()), |breach| {
        (breach.rule, breach.what)
    });
    let mut lines = vec![format!("{:?}", shrunk.config)];
    lines.extend(told.lines);
    Violation::new(rule.name(), what)
        .with_history(lines)
        .with_steps(shrunk.steps.len(), history.steps.len())
        .repeated_by(format!("--scenario {name} --seed {seed} --seeds 1"))
}

/// Tells the whole history of one seed: steps, answers and receipts, one a line.
#[must_use]
pub fn transcript<D: Driver>(play: Play, seed: u64) -> Vec<String> {
    history::draw::<D>(play.terms(seed), seed).tell::<D>().lines
}
