//! A holder's process dies while others wait for its lease.

use std::process::{Child, Command};
use std::time::Duration;

use lease_async::lease_procfs::{Kernel, ProcFs, ProcessHolder, ProcessIdentity};
use lease_async::{
    AcquireError, LeasePolicy, Leases, Loss, Memory, Session, Standing, SystemClock,
};
use lease_core::{Clock as _, Code};
use tokio::time::timeout;

use crate::rig::{KEY, SOON};

const HOUR: Duration = Duration::from_secs(3_600);

/// A process that would run for an hour, and does not outlive the test.
struct Host(Child);

impl Host {
    fn start() -> Self {
        Self(Command::new("sleep").arg("3600").spawn().unwrap())
    }

    fn identity(&self) -> ProcessIdentity {
        let pid = self.0.id().to_string().parse().unwrap();
        ProcessIdentity::of(&ProcFs::system(), pid).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Sessions of processes; holders are not looked at again unless they are known to have died.
fn leases() -> Leases<ProcessHolder> {
    let builder = Memory::builder().processes(&ProcFs::system()).unwrap();
    let memory = builder.observe_every(HOUR).build().unwrap();
    Leases::with_policy(memory, LeasePolicy::hosted_session(HOUR).unwrap()).unwrap()
}

fn connect(leases: &Leases<ProcessHolder>, process: ProcessIdentity) -> Session<ProcessHolder> {
    let holder = |session: &str| ProcessHolder::new("editor", process)?.with_session(session);
    leases.connect_with(holder).unwrap()
}

/// Says that this machine cannot watch deaths.
fn not_run(test: &str) -> bool {
    let able = Kernel::detect().pidfs;
    if !able {
        crate::rig::not_run(test, "pidfs", "this kernel has none");
    }
    !able
}

#[tokio::test]
async fn who_waits_behind_a_killed_host_is_served_at_once() {
    if not_run("deaths::who_waits_behind_a_killed_host_is_served_at_once") {
        return;
    }
    for in_flight in [false, true] {
        let leases = leases();
        let mut events = leases.events();
        let host = Host::start();
        let gone = connect(&leases, host.identity());
        let held = gone.acquire(KEY).await.unwrap();
        let operation = if in_flight {
            Some(held.begin().await.unwrap())
        } else {
            None
        };
        let own = ProcessIdentity::own(&ProcFs::system()).unwrap();
        let waiter = connect(&leases, own);
        let refused = waiter.acquire(KEY).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::LeaseHeld));
        let request = tokio::spawn(waiter.acquire(KEY).forever().into_future());
        while count(&mut events, Code::Queued) == 0 {
            tokio::task::yield_now().await;
        }
        drop(host);
        let guard = timeout(SOON, request).await.unwrap().unwrap().unwrap();
        assert_eq!(guard.token().generation.get(), 2);
        assert_eq!(held.standing(), Standing::Lost(Loss::Proven));
        drop(operation);
        assert_eq!(guard.standing(), Standing::Safe);
    }
}

/// How often this happened since the last look.
fn count(events: &mut lease_async::Events<ProcessHolder>, code: Code) -> usize {
    core::iter::from_fn(|| events.try_next())
        .filter(|event| match event {
            lease_async::Event::Receipt(receipt) => receipt.change.code == code,
            lease_async::Event::Missed(_) => false,
        })
        .count()
}

#[tokio::test]
async fn every_waiter_in_a_row_is_served_when_the_host_before_it_dies() {
    if not_run("deaths::every_waiter_in_a_row_is_served_when_the_host_before_it_dies") {
        return;
    }
    let leases = leases();
    let mut events = leases.events();
    let mut row = Vec::new();
    for place in 0..4 {
        let host = Host::start();
        let session = connect(&leases, host.identity());
        let request = tokio::spawn(session.acquire(KEY).forever().into_future());
        // Each observes the holder first, and is in the row once that is done.
        let mut changes = 0;
        while changes == 0 {
            tokio::task::yield_now().await;
            changes += count(
                &mut events,
                if place == 0 {
                    Code::Created
                } else {
                    Code::Queued
                },
            );
        }
        row.push((host, session, request));
    }
    let mut kept = Vec::new();
    for (generation, (host, session, request)) in (1..).zip(row) {
        let guard = timeout(SOON, request).await.unwrap().unwrap().unwrap();
        assert_eq!(guard.token().generation.get(), generation);
        // The session stays: it is the death that lets the next one in.
        kept.push((session, guard));
        drop(host);
    }
}

#[tokio::test]
async fn a_living_host_gives_nothing_away() {
    if not_run("deaths::a_living_host_gives_nothing_away") {
        return;
    }
    let leases = leases();
    let host = Host::start();
    let session = connect(&leases, host.identity());
    let held = session.acquire(KEY).await.unwrap();
    let own = ProcessIdentity::own(&ProcFs::system()).unwrap();
    let waiter = connect(&leases, own);
    let mut wait = Duration::from_millis(100);
    loop {
        let refused = waiter.acquire(KEY).within(wait).await.unwrap_err();
        assert!(matches!(refused, AcquireError::Refused(_)), "{refused:?}");
        assert_eq!(held.standing(), Standing::Safe);
        if refused.code() == Some(Code::WaitTimedOut) {
            return;
        }
        // On a slow machine the first look has taken all of the time, and nobody has waited.
        assert_eq!(refused.code(), Some(Code::LeaseHeld));
        wait *= 2;
        assert!(wait < SOON);
    }
}

#[tokio::test]
async fn a_watch_that_nobody_needs_any_more_leaves_no_descriptor_behind() {
    if not_run("deaths::a_watch_that_nobody_needs_any_more_leaves_no_descriptor_behind") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What all watches have in common stays.
    let _stays = leases();
    let before = open();
    for _ in 0..10 {
        drop(leases());
    }
    // The thread that listens to them lets them go.
    let end = SystemClock::new().now().after(SOON);
    while open() > before {
        assert!(SystemClock::new().now() < end, "{} of {before}", open());
        tokio::task::yield_now().await;
    }
}
