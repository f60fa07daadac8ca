//! The process in which calls fail: this test program, run again with one test and orders to obey.

use std::io::stdin;
use std::time::Duration;

use lease_sqlite::{Hold, LockOptions, WaitBudget, WriteLock};

use crate::rig::{answer, is_child};

fn budget(verb: &str) -> WaitBudget {
    match verb {
        "wait" => WaitBudget::Within(Duration::from_secs(8)),
        _ => WaitBudget::NOW,
    }
}

/// Runs in every test run, where it has no orders and does nothing.
#[test]
fn obeys_orders() {
    if !is_child() {
        return;
    }
    let mut lock: Option<WriteLock> = None;
    let mut hold: Option<Hold> = None;
    answer("ready");
    for order in stdin().lines().map_while(Result::ok) {
        let (verb, rest) = order.split_once(' ').unwrap_or((&order, ""));
        match verb {
            "open" => {
                lock = LockOptions::new().role("child").open(rest).ok();
                answer(if lock.is_some() { "open" } else { "closed" });
            }
            "acquire" | "wait" => match lock.as_ref().map(|lock| lock.acquire(budget(verb))) {
                Some(Ok(held)) => {
                    hold = Some(held);
                    answer("granted");
                }
                Some(Err(error)) => answer(&format!("error {error}")),
                None => answer("closed"),
            },
            "check" => {
                let check = hold.as_ref().map(Hold::check);
                answer(&format!("{check:?}").replace('\n', " "));
            }
            "release" => {
                let released = hold.take().map(Hold::release);
                answer(&format!("{released:?}").replace('\n', " "));
            }
            _ => answer("what?"),
        }
    }
}
