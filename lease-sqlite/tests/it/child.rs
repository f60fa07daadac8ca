//! What a second process does: the test program, run again with this one test and an order to obey.

use std::collections::VecDeque;
use std::fs;
use std::io::stdin;
use std::time::Duration;

use lease_sqlite::{AcquireError, Hold, LockOptions, WaitBudget};

use crate::guarded::counts;
use crate::rig::{BOUND, answer, orders};
use crate::sys::fork_sleeper;

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
    for order in stdin().lines() {
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
            "rounds" => {
                let mut longest = Duration::ZERO;
                let inside = lock.lock_path().with_extension("inside");
                for _round in 0..rest.parse().unwrap() {
                    let hold = lock.acquire(WaitBudget::Within(BOUND)).unwrap();
                    longest = longest.max(hold.granted().waited);
                    // Fails if anybody else is inside.
                    drop(fs::File::create_new(&inside).unwrap());
                    fs::remove_file(&inside).unwrap();
                    hold.release().unwrap();
                }
                answer(&format!("done, longest wait {} ms", longest.as_millis()));
            }
            "counts" => answer(&counts(&database, rest)),
            // What a peer does that knows neither gate nor our fields.
            "peer" => {
                let mutex = rusqlite::Connection::open(lock.mutex_path()).unwrap();
                mutex.execute_batch("BEGIN EXCLUSIVE").unwrap();
                answer("held");
                peer = Some(mutex);
            }
            "fork" => answer(&fork_sleeper().to_string()),
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
