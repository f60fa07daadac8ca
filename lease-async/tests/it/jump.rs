//! The clock of a holder jumps, since its process is moved into another time namespace.
//!
//! What keeps a lease, and what judges it, read the same clock here. Each test runs in a process of its own with
//! one thread, since only such a process can be moved.

use std::process::Command;
use std::time::Duration;

use lease_async::{
    AcquireError, Event, LeaseError, LeaseGuard, Leases, Loss, Memory, Standing, SystemClock,
};
use lease_core::{Clock as _, Code, FenceGate, Fenced, Refusal};

use crate::rig::{KEY, not_run, ordered, poll};
use crate::sys::{Missing, enter_time_namespace, forked, make_time_namespace};

const ALONE: &str = "LEASE_ALONE";
const RAN: &str = "ran";

/// Runs `body` in a process with one thread, or says what this machine does not have.
pub(crate) fn alone(test: &str, body: impl FnOnce() -> Result<(), Missing>) {
    if ordered(ALONE).is_some() {
        let answer = forked(|| match body() {
            Ok(()) => RAN.to_owned(),
            Err((need, reason)) => format!("{need}: {reason}"),
        });
        let line = format!("alone: {answer}\n");
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).unwrap();
        return;
    }
    // In a child of its own, no other test runs beside the fork.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let answer = output
        .lines()
        .find_map(|line| line.split_once("alone: ").map(|(_, answer)| answer));
    match answer.and_then(|answer| answer.split_once(": ")) {
        Some((need, reason)) => not_run(test, need, reason),
        None => {
            let words = String::from_utf8_lossy(&child.stderr);
            assert_eq!(answer, Some(RAN), "{words}");
        }
    }
}

/// The answer of a future that has one at once, as all of an authority in memory do where nobody waits.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match poll(std::pin::pin!(future)) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

/// A text behind a fence, whose writer looks at its lease before it writes.
#[derive(Default)]
struct Page {
    gate: FenceGate,
    text: &'static str,
}

impl Page {
    fn write(&mut self, guard: &LeaseGuard, text: &'static str) -> Result<(), Loss> {
        match now(guard.ensure(Duration::ZERO)) {
            Ok(()) => {}
            Err(LeaseError::Lost(loss)) => return Err(loss),
            Err(error) => panic!("{error}"),
        }
        guard.enter(&mut self.gate).unwrap();
        self.text = text;
        Ok(())
    }
}

#[test]
fn a_holder_whose_clock_jumps_ahead_has_lost_and_writes_nothing() {
    let name = "jump::a_holder_whose_clock_jumps_ahead_has_lost_and_writes_nothing";
    alone(name, || {
        make_time_namespace(1_000_000)?;
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let (a, b) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
        let guard = now(a.acquire(KEY).into_future()).unwrap();
        let busy = now(a.acquire("app/menu").into_future()).unwrap();
        let operation = now(busy.begin()).unwrap();
        let mut page = Page::default();
        page.write(&guard, "first").unwrap();
        let before = SystemClock::new().now();
        enter_time_namespace();
        let jumped = SystemClock::new().now().since(before);
        assert!(jumped >= Duration::from_secs(1_000_000), "{jumped:?}");

        // Before anybody was granted anything, and without a word of the authority.
        assert_eq!(page.write(&guard, "late"), Err(Loss::Expired));
        assert_eq!(guard.standing(), Standing::Lost(Loss::Expired));
        assert!(matches!(
            now(guard.begin()),
            Err(LeaseError::Lost(Loss::Expired))
        ));
        assert!(matches!(
            now(guard.touch()),
            Err(LeaseError::Lost(Loss::Expired))
        ));
        assert_eq!(page.text, "first");
        // What is in flight shields, however long the clock says it took.
        assert_eq!(busy.standing(), Standing::Safe);
        let refused = now(b.acquire("app/menu").into_future());
        assert!(matches!(
            refused,
            Err(AcquireError::Refused(Refusal::Held(_)))
        ));
        now(operation.end()).unwrap();
        assert_eq!(busy.standing(), Standing::Safe);

        let next = now(b.acquire(KEY).into_future()).unwrap();
        page.write(&next, "second").unwrap();
        let fenced = guard.enter(&mut page.gate);
        assert!(matches!(fenced, Err(Fenced::Older { .. })), "{fenced:?}");
        assert_eq!(page.text, "second");
        Ok(())
    });
}

#[test]
fn a_clock_that_jumps_back_lets_nobody_in_beside_the_holder() {
    let name = "jump::a_clock_that_jumps_back_lets_nobody_in_beside_the_holder";
    alone(name, || {
        let up = SystemClock::new().now().since(lease_async::Moment::ZERO);
        let back = i64::try_from(up.as_secs() / 2).unwrap();
        make_time_namespace(-back)?;
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let mut events = leases.events();
        let (a, b) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
        let guard = now(a.acquire(KEY).into_future()).unwrap();
        let mut page = Page::default();
        page.write(&guard, "first").unwrap();
        let before = SystemClock::new().now();
        enter_time_namespace();
        assert!(SystemClock::new().now() < before);

        let refused = now(b.acquire(KEY).into_future());
        assert!(matches!(
            refused,
            Err(AcquireError::Refused(Refusal::Held(_)))
        ));
        page.write(&guard, "second").unwrap();
        now(guard.touch()).unwrap();
        now(guard.release()).unwrap();
        let next = now(b.acquire(KEY).into_future()).unwrap();
        page.write(&next, "third").unwrap();
        let codes: Vec<_> = std::iter::from_fn(|| events.try_next())
            .map(|event| match event {
                Event::Receipt(receipt) => receipt.change.code,
                Event::Missed(missed) => panic!("{missed} missed"),
            })
            .collect();
        assert!(codes.contains(&Code::ClockSteppedBack), "{codes:?}");
        Ok(())
    });
}
