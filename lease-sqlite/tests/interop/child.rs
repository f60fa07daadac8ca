//! What a writer of ours does: the test program, run again with this one test and orders to obey.

use std::fs::{File, OpenOptions};
use std::io::{Write as _, stdin};
use std::path::Path;
use std::time::Duration;

use lease_sqlite::{AcquireError, Hold, LastWriter, LockOptions, WaitBudget, WriteLock};

use crate::rig::{PATIENCE, answer, orders, rest};

/// Runs in every test run, where it has no orders and does nothing.
#[test]
fn obeys_orders() {
    let Some(database) = orders() else {
        return;
    };
    let options = LockOptions::new().role("ours").purpose("ours");
    let lock = options.open(database).unwrap();
    let mut hold = None;
    answer("ready");
    for order in stdin().lines() {
        let order = order.unwrap();
        let words: Vec<&str> = order.split(' ').collect();
        match *words {
            ["acquire", time_ms] => {
                let time = Duration::from_millis(time_ms.parse().unwrap());
                let outcome = lock.acquire(WaitBudget::Within(time));
                answer(&told(&outcome));
                hold = outcome.ok();
            }
            ["release"] => {
                let outcome = hold.take().map(Hold::release);
                assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
                answer("released");
            }
            ["check"] => answer(&format!("{:?}", hold.as_ref().map(Hold::check))),
            ["record"] => answer(&shown(lock.last_writer().as_ref())),
            ["rounds", count, hold, pause, name] => {
                let [count, hold, pause] = [count, hold, pause].map(|text| text.parse().unwrap());
                answer(&rounds(&lock, count, [hold, pause], name));
            }
            _ => answer("what?"),
        }
    }
}

/// Enters and leaves, and says so at the guarded resource itself.
fn rounds(lock: &WriteLock, count: u64, [hold_us, pause_us]: [u64; 2], name: &str) -> String {
    let mut log = log(&lock.lock_path().with_extension("write-lock.log"));
    let mut longest = Duration::ZERO;
    for number in 0..count {
        let hold = lock.acquire(WaitBudget::Within(PATIENCE)).unwrap();
        longest = longest.max(hold.granted().waited);
        // One write each: the kernel puts them in an order.
        log.write_all(format!("enter {name} {number}\n").as_bytes())
            .unwrap();
        rest(hold_us);
        log.write_all(format!("leave {name} {number}\n").as_bytes())
            .unwrap();
        hold.release().unwrap();
        rest(pause_us);
    }
    format!("done {}", longest.as_millis())
}

fn log(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.append(true).create(true).open(path).unwrap()
}

fn told(outcome: &Result<Hold, AcquireError>) -> String {
    match outcome {
        Ok(hold) if hold.granted().reaped.is_some() => "granted reaped".to_owned(),
        Ok(_) => "granted".to_owned(),
        Err(AcquireError::Busy(busy)) => {
            let locked_by = busy.locked_by.map(|pid| pid.get());
            let holder = shown(busy.holder.as_ref());
            format!("busy {holder} {:?} locked_by={locked_by:?}", busy.reason)
        }
        Err(other) => format!("error {other}"),
    }
}

fn shown(writer: Option<&LastWriter>) -> String {
    let pid = writer.map_or_else(|| "None".to_owned(), |writer| writer.pid.to_string());
    let purpose = writer.and_then(|writer| writer.purpose.as_deref());
    format!("{pid} {}", purpose.unwrap_or("None"))
}
