//! Timing in turns.

use std::time::Instant;

/// Many short rounds: on a busy machine some of them run undisturbed.
const ROUNDS: u64 = 300;

/// Something to time: does `count` units of its work.
pub(crate) trait Work {
    fn run(&mut self, count: u64);
}

impl<F: FnMut(u64)> Work for F {
    fn run(&mut self, count: u64) {
        self(count);
    }
}

/// Nanoseconds a unit for each work, the least of many rounds taken in turns. `total` is how many units
/// each does in all.
pub(crate) fn least(total: u64, works: &mut [&mut dyn Work]) -> Vec<f64> {
    let start = Instant::now();
    let now = || start.elapsed().as_nanos();
    turns(now, ROUNDS, total / ROUNDS, works)
}

/// The same for work that takes long: one unit a round, in nanoseconds of this thread's processor
/// time, because a busy machine leaves no long round undisturbed.
#[cfg(target_os = "linux")]
pub(crate) fn least_of_long(rounds: u64, works: &mut [&mut dyn Work]) -> Vec<f64> {
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u128::from(now.tv_sec.unsigned_abs()) * 1_000_000_000
            + u128::from(now.tv_nsec.unsigned_abs())
    };
    turns(now, rounds, 1, works)
}

fn turns(now: impl Fn() -> u128, rounds: u64, count: u64, works: &mut [&mut dyn Work]) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; works.len()];
    for _ in 0..rounds {
        for (work, least) in works.iter_mut().zip(&mut least) {
            let start = now();
            work.run(count);
            let nanos = (now() - start) as f64 / count as f64;
            *least = least.min(nanos);
        }
    }
    least
}

/// Allocations a unit, after a warm-up.
pub(crate) fn allocations(count: u64, work: &mut dyn Work) -> f64 {
    work.run(count);
    let before = crate::sys::calls();
    work.run(count);
    (crate::sys::calls() - before) as f64 / count as f64
}

/// A small generator, so that each work walks the same names.
pub(crate) struct Walk(u64);

impl Walk {
    pub(crate) const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    /// Picks a pair of partners, one in each half, and swaps which of them is held. Answers the one that
    /// was, and the one that is.
    pub(crate) fn swap(&mut self, swapped: &mut [bool]) -> (usize, usize) {
        let half = swapped.len() / 2;
        let first = self.next(half);
        let second = first + half;
        swapped[first] ^= true;
        if swapped[first] {
            (first, second)
        } else {
            (second, first)
        }
    }
}

/// `n` names of `depth` segments; the last segment tells them apart.
pub(crate) fn names(n: usize, depth: usize) -> Vec<String> {
    let above: String = (1..depth).map(|level| format!("level-{level}/")).collect();
    (0..n)
        .map(|number| format!("{above}resource-{number}"))
        .collect()
}
