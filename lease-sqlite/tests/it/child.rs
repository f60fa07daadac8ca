//! What a second process does: the test program, run again with this one test and an order to obey.

use std::collections::VecDeque;
use std::fs;
use std::io::{Write as _, stdin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use lease_sqlite::{AcquireError, Hold, LockOptions, WaitBudget, WriteLock};

use crate::guarded::counts;
use crate::rig::{BOUND, answer, orders};
use crate::sys::{clone_sleeper, fork_sleeper};
use crate::turns::storm;

/// Runs in every test run, where it has no orders and does nothing.
#[test]
fn obeys_orders() {
    let Some(database) = orders() else {
        return;
    };
    let lock = LockOptions::new()
        .role("child")
        .purpose("obey")
        .open(&database)
        .unwrap();
    let mut holds = VecDeque::new();
    let mut peer = None;
    answer("ready");
    let mut orders = stdin().lines();
    while let Some(order) = orders.next() {
        let order = order.unwrap();
        let (verb, rest) = order.split_once(' ').unwrap_or((&order, ""));
        match verb {
            "acquire" => {
                let budget = WaitBudget::Within(Duration::from_millis(rest.parse().unwrap()));
                let outcome = lock.acquire(budget);
                answer(&told(&outcome));
                holds.extend(outcome);
            }
            "release" => answer(&format!("{:?}", holds.pop_back().map(Hold::release))),
            "check" => answer(&format!("{:?}", holds.back().map(Hold::check))),
            "pairs" => {
                for _pair in 0..rest.parse().unwrap() {
                    let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
                    hold.release().unwrap();
                }
                answer("done");
            }
            "cold" => answer(cold(&database, rest)),
            "rounds" => answer(&rounds(&lock, rest.parse().unwrap())),
            "counts" => answer(&counts(&database, rest)),
            "again" => again(&lock, &mut holds),
            "loop" => {
                let next = || drop(orders.next());
                answer(&looped(&lock, next));
            }
            "turn" => answer(turn(&lock, rest)),
            "storm" => answer(&storm(&database, rest)),
            // What a peer does that knows neither gate nor our fields.
            "peer" => {
                let mutex = rusqlite::Connection::open(lock.mutex_path()).unwrap();
                mutex.execute_batch("BEGIN EXCLUSIVE").unwrap();
                answer("held");
                peer = Some(mutex);
            }
            "fork" => answer(&fork_sleeper().to_string()),
            "clone" => answer(&clone_sleeper().to_string()),
            "spawn" => answer(&spawn_sleeper().to_string()),
            "entries" => {
                let hold = lock.acquire(WaitBudget::NOW).unwrap();
                for _entry in 0..rest.parse().unwrap() {
                    lock.acquire(WaitBudget::NOW).unwrap().release().unwrap();
                }
                hold.release().unwrap();
                answer("done");
            }
            "quit" => {
                drop(peer.take());
                return;
            }
            _ => answer("what?"),
        }
    }
}

/// Starts another program that lasts longer than any test.
fn spawn_sleeper() -> u32 {
    let mut command = Command::new("sleep");
    command.arg((BOUND.as_secs() * 2).to_string());
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
    silent.spawn().unwrap().id()
}

/// Opens, takes, gives back and closes the lock of another database.
fn cold(database: &Path, times: &str) -> &'static str {
    let other = database.with_extension("cold");
    for _opening in 0..times.parse().unwrap() {
        let lock = LockOptions::new().open(&other).unwrap();
        lock.acquire(WaitBudget::NOW).unwrap().release().unwrap();
    }
    "done"
}

/// Takes turns with others, and fails if anybody else is inside.
fn rounds(lock: &WriteLock, rounds: u32) -> String {
    let mut longest = Duration::ZERO;
    let inside = lock.lock_path().with_extension("inside");
    for _round in 0..rounds {
        let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
        longest = longest.max(hold.granted().waited);
        drop(fs::File::create_new(&inside).unwrap());
        fs::remove_file(&inside).unwrap();
        hold.release().unwrap();
    }
    format!("done, longest wait {} ms", longest.as_millis())
}

/// Is inside once, and says so where everybody does.
fn turn(lock: &WriteLock, name: &str) -> &'static str {
    let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
    let log = lock.lock_path().with_extension("log");
    let file = fs::OpenOptions::new().append(true).create(true).open(log);
    writeln!(file.unwrap(), "{name}").unwrap();
    hold.release().unwrap();
    "had its turn"
}

/// Gives back and takes again without a pause. Says whether somebody who waited was in between.
fn again(lock: &WriteLock, holds: &mut VecDeque<Hold>) {
    holds.pop_back().map(Hold::release).unwrap().unwrap();
    let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
    let waited = lock.lock_path().with_extension("waited");
    let is_after = fs::remove_file(waited).is_ok();
    answer(&format!("again, after who waited: {is_after}"));
    holds.push_back(hold);
}

/// Takes and gives back without a pause, until the next order.
fn looped(lock: &WriteLock, next_order: impl FnOnce()) -> String {
    let is_over = AtomicBool::new(false);
    let rounds = scope(|scope| {
        let greedy = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
                hold.release().unwrap();
                rounds += 1;
            }
            rounds
        });
        answer("looping");
        next_order();
        is_over.store(true, Ordering::Relaxed);
        greedy.join().unwrap()
    });
    format!("looped {rounds} times")
}

/// Says in one line what came of an attempt.
pub(crate) fn told(outcome: &Result<Hold, AcquireError>) -> String {
    match outcome {
        Ok(hold) => {
            let granted = hold.granted();
            let reaped = if granted.reaped.is_some() {
                " reaped"
            } else {
                ""
            };
            format!("granted depth={}{reaped}", granted.depth)
        }
        Err(AcquireError::Busy(busy)) => {
            let holder = busy.holder.as_ref().map(|holder| holder.pid.get());
            let locked_by = busy.locked_by.map(|pid| pid.get());
            format!(
                "busy {:?} holder={holder:?} locked_by={locked_by:?}",
                busy.reason
            )
        }
        Err(other) => format!("error {other}"),
    }
}
