//! Incidents and the health view: told once, closed once, and never in a lease's way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_async::{
    Authority as _, Closed, HeldLease, Incident, IncidentEvent, IncidentPolicy, Incidents,
    LeasePolicy, Leases, Loss, ManualClock, Memory, Moment, Reach, SessionHolder, Standing, Stuck,
};
use lease_core::{Action, Call, Disposition, Wait};

use crate::rig::{KEY, Random, Rig, SOON, T0, TTL, ask};

const HOLD: Duration = Duration::from_secs(300);
const OPERATION: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A rig whose front looks for incidents, and whoever listens.
fn watched() -> (Rig<ManualClock>, Incidents) {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        Leases::new(memory)
            .unwrap()
            .with_incidents(IncidentPolicy::new(HOLD, OPERATION))
    });
    let incidents = rig.leases.incidents().unwrap();
    (rig, incidents)
}

fn opened(incidents: &mut Incidents) -> Incident {
    match incidents.try_next() {
        Some(IncidentEvent::Opened(incident)) => Incident::clone(&incident),
        other => panic!("{other:?}"),
    }
}

fn closed(incidents: &mut Incidents) -> (u64, Duration, Closed) {
    match incidents.try_next() {
        Some(IncidentEvent::Closed { incident, age, how }) => (incident.number, age, how),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn nothing(incidents: &mut Incidents) {
    let next = incidents.try_next();
    assert!(next.is_none(), "{next:?}");
}

#[tokio::test]
async fn a_lease_that_goes_on_is_one_incident_however_long_and_however_often_it_is_looked_at() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let since = Moment::from_millis(T0);
    for _ in 0..29 {
        rig.clock.advance(SECOND * 10);
        guard.touch().await.unwrap();
    }
    let almost = Duration::from_secs(10) - Duration::from_nanos(1);
    rig.clock.advance(almost);
    nothing(&mut incidents);
    assert_eq!(rig.leases.health().incidents, 0);
    rig.clock.advance(Duration::from_nanos(1));
    let incident = opened(&mut incidents);
    assert_eq!(
        (incident.number, incident.what, incident.since),
        (1, Stuck::Hold, since)
    );
    assert_eq!((incident.age, incident.threshold), (HOLD, HOLD));
    assert_eq!(incident.resource.as_str(), "app/viewport");
    assert_eq!(incident.holder.agent(), "a");
    assert_eq!(incident.token, guard.token());
    assert_eq!(incident.in_flight, []);
    for _ in 0..100 {
        guard.touch().await.unwrap();
        rig.clock.advance(SECOND * 10);
        assert_eq!(rig.leases.health().incidents, 1);
        drop(ask(&session).await.unwrap());
    }
    nothing(&mut incidents);
    // It was told, and that moved nothing.
    assert_eq!(guard.standing(), Standing::Safe);
    guard.release().await.unwrap();
    let ended = Closed::Lease(Loss::Released);
    assert_eq!(closed(&mut incidents), (1, HOLD + SECOND * 1_000, ended));
    nothing(&mut incidents);
    let health = rig.leases.health();
    assert_eq!((health.incidents, health.open.len()), (1, 0));
    assert_eq!(health.last_incident.unwrap().token, incident.token);
    assert_eq!(rig.clock.armed(), 0);
    rig.assert_empty();
}

#[tokio::test]
async fn an_operation_that_does_not_end_is_an_incident_and_its_lease_is_another() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    rig.clock.advance(SECOND);
    let quick = guard.begin().await.unwrap();
    let stuck = guard.begin().await.unwrap();
    rig.clock.advance(SECOND * 10);
    quick.end().await.unwrap();
    let late = guard.begin().await.unwrap();
    rig.clock.advance(SECOND * 49);
    nothing(&mut incidents);
    rig.clock.advance(SECOND);
    let incident = opened(&mut incidents);
    assert_eq!(incident.what, Stuck::Operation(stuck.id()));
    assert_eq!((incident.age, incident.threshold), (OPERATION, OPERATION));
    let in_flight = incident
        .in_flight
        .iter()
        .map(|of| (of.id, of.age.as_secs()));
    let expected = [(stuck.id(), 60), (late.id(), 50)];
    assert!(in_flight.eq(expected), "{:?}", incident.in_flight);
    late.end().await.unwrap();
    nothing(&mut incidents);
    // The operation shields the lease from its term, so the lease becomes one too.
    rig.clock.advance(HOLD);
    let lease = opened(&mut incidents);
    assert_eq!((lease.number, lease.what), (2, Stuck::Hold));
    assert_eq!(lease.in_flight.len(), 1);
    let open = rig.leases.health().open;
    let open: Vec<_> = open.iter().map(|incident| incident.number).collect();
    assert_eq!(open, [1, 2]);
    rig.clock.advance(HOLD * 100);
    nothing(&mut incidents);
    stuck.fail(Disposition::RolledBack).await.unwrap();
    let age = OPERATION + HOLD * 101;
    assert_eq!(closed(&mut incidents), (1, age, Closed::Operation));
    drop(session);
    let age = age + SECOND;
    let ended = Closed::Lease(Loss::Disconnected);
    assert_eq!(closed(&mut incidents), (2, age, ended));
    nothing(&mut incidents);
    assert_eq!(rig.clock.armed(), 0);
}

#[tokio::test]
async fn an_operation_that_outlives_its_lease_is_told_until_it_is_dropped() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    drop((session, guard));
    rig.assert_empty();
    rig.clock.advance(OPERATION);
    assert_eq!(
        opened(&mut incidents).what,
        Stuck::Operation(operation.id())
    );
    nothing(&mut incidents);
    drop(operation);
    assert_eq!(closed(&mut incidents), (1, OPERATION, Closed::Operation));
    assert_eq!(rig.clock.armed(), 0);
}

#[tokio::test]
async fn a_lease_that_nobody_uses_ends_with_its_term_and_is_no_incident() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    ask(&session).await.unwrap().keep();
    rig.clock.advance(HOLD);
    nothing(&mut incidents);
    let health = rig.leases.health();
    assert_eq!((health.incidents, rig.clock.armed()), (0, 0));
}

#[tokio::test]
async fn an_incident_is_closed_when_the_term_ends_though_nobody_uses_the_lease() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    for _ in 0..10 {
        rig.clock.advance(HOLD / 10);
        guard.touch().await.unwrap();
    }
    assert_eq!(opened(&mut incidents).number, 1);
    guard.keep();
    rig.clock.advance(TTL);
    nothing(&mut incidents);
    rig.clock.advance(Duration::from_nanos(1));
    let ended = Closed::Lease(Loss::Expired);
    let age = HOLD + TTL + Duration::from_nanos(1);
    assert_eq!(closed(&mut incidents), (1, age, ended));
    assert_eq!(rig.clock.armed(), 0);
}

#[tokio::test]
async fn an_incident_is_closed_by_whoever_ends_the_lease() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    rig.clock.advance(HOLD);
    let whats = [opened(&mut incidents).what, opened(&mut incidents).what];
    assert_eq!(whats, [Stuck::Operation(operation.id()), Stuck::Hold]);
    let revoke = Call {
        resource: Some(guard.resource().clone()),
        action: Action::Revoke {
            expected: guard.token().generation,
            by: "operator".into(),
            reason: "stuck".into(),
            even_if_alive: true,
        },
        wait: Wait::No,
    };
    drop(rig.memory.call(revoke).answer().await.unwrap());
    let ended = Closed::Lease(Loss::Revoked);
    assert_eq!(closed(&mut incidents), (2, HOLD, ended));
    // What was begun under it still runs.
    assert_eq!(rig.leases.health().open.len(), 1);
    drop(operation);
    assert_eq!(closed(&mut incidents).0, 1);
}

#[tokio::test]
async fn ten_thousand_idle_leases_cost_one_alarm() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let memory = Memory::builder().clock(clock.clone()).build().unwrap();
    let leases = Leases::with_policy(memory, LeasePolicy::process_bound())
        .unwrap()
        .with_incidents(IncidentPolicy::new(HOLD, OPERATION));
    let session = leases.connect("a").unwrap();
    assert_eq!(clock.armed(), 0);
    for number in 0..10_000 {
        let guard = session.acquire(format!("docs/{number}")).await.unwrap();
        guard.keep();
    }
    assert_eq!((clock.armed(), leases.known()), (1, 10_000));
    drop(session);
    assert_eq!((clock.armed(), leases.known()), (0, 0));
    assert_eq!(leases.health().incidents, 0);
}

#[tokio::test]
async fn what_never_is_an_incident_costs_no_alarm() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let rig = Rig::over(clock, |memory| {
        let never = IncidentPolicy::new(Duration::MAX, Duration::MAX);
        Leases::new(memory).unwrap().with_incidents(never)
    });
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    assert_eq!(rig.clock.armed(), 0);
    rig.clock.advance(HOLD * 1_000_000);
    assert_eq!(rig.leases.health().incidents, 0);
    drop((operation, guard, session));
    rig.assert_empty();
}

#[tokio::test]
async fn a_slow_listener_is_told_how_many_incidents_it_missed() {
    let (rig, mut incidents) = watched();
    let session = rig.connect("a");
    let mut guards = Vec::new();
    for number in 0..1_030 {
        guards.push(session.acquire(format!("docs/{number}")).await.unwrap());
    }
    for _ in 0..15 {
        rig.clock.advance(TTL * 2 / 3);
        for guard in &guards {
            guard.touch().await.unwrap();
        }
    }
    assert_eq!(rig.leases.health().open.len(), 1_030);
    assert!(matches!(
        incidents.try_next(),
        Some(IncidentEvent::Missed(6))
    ));
    assert_eq!(opened(&mut incidents).number, 7);
    drop((guards, session, rig));
    // The front is gone with its last session, and what it told before is still there.
    let mut left = 0;
    while incidents.next().await.is_some() {
        left += 1;
    }
    assert!(left > 0);
}

#[tokio::test]
async fn whatever_happens_every_incident_is_opened_once_and_closed_once() {
    let mut random = Random(0x1bad_5eed_1bad_5eed);
    let (rig, mut incidents) = watched();
    let mut open = std::collections::BTreeMap::new();
    let mut sessions: Vec<_> = (0..4).map(|_| Some(rig.connect("a"))).collect();
    let (mut guards, mut operations) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for _ in 0..5_000 {
        let who = usize::try_from(random.below(4)).unwrap();
        match random.below(12) {
            0..=3 => {
                let session = sessions[who].get_or_insert_with(|| rig.connect("a"));
                let key = format!("docs/{}", random.below(6));
                guards.extend(session.acquire(key).await.ok());
            }
            4 | 5 if !guards.is_empty() => {
                let at = usize::try_from(random.below(guards.len().try_into().unwrap())).unwrap();
                operations.extend(guards[at].begin().await.ok());
            }
            6 if !guards.is_empty() => drop(guards.swap_remove(0)),
            7 if !operations.is_empty() => drop(operations.swap_remove(0)),
            8 if random.below(20) == 0 => sessions[who] = None,
            _ => rig.clock.advance(Duration::from_secs(random.below(20))),
        }
        for guard in &guards {
            // Most of them are used all the time.
            drop(guard.touch().await);
        }
        while let Some(event) = incidents.try_next() {
            match event {
                IncidentEvent::Opened(incident) => {
                    seen += 1;
                    assert_eq!(incident.number, seen);
                    let part = format!("{} {:?}", incident.token.generation, incident.what);
                    assert!(open.insert(incident.number, part).is_none());
                }
                IncidentEvent::Closed { incident, .. } => {
                    assert!(open.remove(&incident.number).is_some());
                }
                IncidentEvent::Missed(missed) => panic!("{missed} missed"),
            }
        }
        let parts: std::collections::BTreeSet<_> = open.values().collect();
        assert_eq!(parts.len(), open.len(), "one for each lease and operation");
        assert_eq!(rig.leases.health().open.len(), open.len());
    }
    assert!(seen > 20, "{seen}");
    drop((guards, operations, sessions));
    while let Some(event) = incidents.try_next() {
        let IncidentEvent::Closed { incident, .. } = event else {
            panic!("{event:?}");
        };
        assert!(open.remove(&incident.number).is_some());
    }
    assert!(open.is_empty());
    assert_eq!(rig.clock.armed(), 0);
    rig.assert_empty();
}

#[tokio::test]
async fn a_listener_that_panics_when_it_is_woken_costs_nobody_anything() {
    struct Breaks;
    impl std::task::Wake for Breaks {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("this listener breaks");
        }
    }
    let (rig, mut incidents) = watched();
    let mut broken = rig.leases.incidents().unwrap();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    let waker = std::task::Waker::from(std::sync::Arc::new(Breaks));
    let mut next = Box::pin(broken.next());
    let mut context = std::task::Context::from_waker(&waker);
    assert!(next.as_mut().poll(&mut context).is_pending());
    rig.clock.advance(HOLD);
    assert_eq!(opened(&mut incidents).number, 1);
    assert_eq!(opened(&mut incidents).number, 2);
    operation.end().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(closed(&mut incidents).0, 1);
    assert_eq!(closed(&mut incidents).0, 2);
}

#[tokio::test]
async fn the_health_view_says_what_is_held_what_waits_and_what_was_missed() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let mut rig = Rig::keeping(4, clock, |memory| Leases::new(memory).unwrap());
    let health = rig.leases.health();
    assert_eq!((health.held, health.waiting), (0, 0));
    assert_eq!((health.oldest, health.authority), (None, Reach::Untried));
    assert!(rig.leases.incidents().is_none());

    let (a, b) = (rig.connect("a"), rig.connect("b"));
    let guard = ask(&a).await.unwrap();
    let again = ask(&a).await.unwrap();
    rig.clock.advance(SECOND * 25);
    let operation = guard.begin().await.unwrap();
    let menu = b.acquire("app/menu").await.unwrap();
    let mut waits = Box::pin(b.acquire(KEY).forever().into_future());
    assert!(crate::rig::poll(waits.as_mut()).is_pending());
    let health = rig.leases.health();
    assert_eq!((health.held, health.waiting), (2, 1));
    assert_eq!(health.authority, Reach::Answers);
    let shown = |lease: &HeldLease<SessionHolder>| {
        let (age, resource) = (lease.age.as_secs(), lease.resource.as_str().to_owned());
        (resource, age, lease.guards, lease.operations)
    };
    let oldest = health.oldest.unwrap();
    assert_eq!(shown(&oldest), ("app/viewport".to_owned(), 25, 2, 1));
    assert_eq!(oldest.standing, Standing::Safe);
    let list: Vec<_> = rig.leases.list().iter().map(shown).collect();
    let second = ("app/menu".to_owned(), 0, 1, 0);
    assert_eq!(list, [shown(&oldest), second]);

    let missed = rig.events.try_next();
    assert!(missed.is_some());
    let health = rig.leases.health();
    assert!(health.missed > 0 && health.unpublished == 0, "{health:?}");
    drop((operation, again, guard, menu, waits));
    drop((a, b));
    assert_eq!(rig.leases.health().held, 0);
    assert_eq!(rig.leases.list(), []);
}

#[tokio::test]
async fn the_health_view_says_that_the_authority_was_shut_down() {
    let rig = Rig::still();
    let session = rig.connect("a");
    drop(ask(&session).await.unwrap());
    assert_eq!(rig.leases.health().authority, Reach::Answers);
    rig.memory.shutdown(Duration::ZERO).await;
    drop(ask(&session).await.unwrap_err());
    assert_eq!(rig.leases.health().authority, Reach::ShutDown);
}

/// What a listener has seen, while others go on.
#[derive(Default)]
struct Seen {
    open: std::collections::BTreeSet<u64>,
    opened: u64,
    closed: u64,
}

impl Seen {
    fn take(&mut self, incidents: &mut Incidents) {
        while let Some(event) = incidents.try_next() {
            match event {
                IncidentEvent::Opened(incident) => {
                    self.opened += 1;
                    assert_eq!(incident.number, self.opened, "in their order");
                    assert!(self.open.insert(incident.number));
                }
                IncidentEvent::Closed { incident, .. } => {
                    self.closed += 1;
                    assert!(self.open.remove(&incident.number), "opened before");
                }
                IncidentEvent::Missed(missed) => panic!("{missed} missed"),
            }
        }
    }
}

/// Ends the others, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes leases and begins operations, some of which it keeps for a while.
async fn busy(leases: Leases, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    let mut session = leases.connect("a").unwrap();
    let (mut guards, mut operations) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        match random.below(8) {
            0..=2 => {
                let key = format!("docs/{}", random.below(8));
                guards.extend(session.acquire(key).await.ok());
            }
            3 | 4 => {
                if let Some(guard) = guards.last() {
                    operations.extend(guard.begin().await.ok());
                }
            }
            5 if !guards.is_empty() => drop(guards.remove(0)),
            6 if !operations.is_empty() => drop(operations.remove(0)),
            7 if random.below(50) == 0 => session = leases.connect("a").unwrap(),
            _ => {}
        }
        guards.truncate(8);
        operations.truncate(8);
    }
}

#[test]
fn threads_that_end_what_is_just_being_told_leave_nothing_open() {
    let clock = ManualClock::new(Moment::from_millis(T0));
    let policy = IncidentPolicy::new(SECOND, SECOND / 2);
    let rig = Rig::over(clock, |memory| {
        Leases::new(memory).unwrap().with_incidents(policy)
    });
    let mut incidents = rig.leases.incidents().unwrap();
    let mut seen = Seen::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        let work = |seed| {
            let (leases, stop) = (rig.leases.clone(), &stop);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(busy(leases, seed, stop));
            });
        };
        (1..=4).for_each(|seed| work(seed * 0x9e37_79b9));
        while seen.opened < 300 {
            rig.clock.advance(SECOND / 10);
            seen.take(&mut incidents);
            std::thread::yield_now();
        }
    });
    seen.take(&mut incidents);
    assert!(seen.open.is_empty(), "{:?}", seen.open);
    assert_eq!(seen.opened, seen.closed);
    let health = rig.leases.health();
    assert_eq!((health.incidents, health.open.len()), (seen.opened, 0));
    assert_eq!(rig.clock.armed(), 0);
    rig.assert_empty();
}

#[tokio::test]
async fn on_the_clock_of_the_machine_an_incident_is_told_though_nobody_looks() {
    let policy = IncidentPolicy::new(Duration::MAX, Duration::from_millis(20));
    let leases = Leases::new(Memory::new().unwrap()).unwrap();
    let leases = leases.with_incidents(policy);
    let mut incidents = leases.incidents().unwrap();
    let session = leases.connect("a").unwrap();
    let guard = ask(&session).await.unwrap();
    let operation = guard.begin().await.unwrap();
    let told = tokio::time::timeout(SOON, incidents.next()).await.unwrap();
    let Some(IncidentEvent::Opened(incident)) = told else {
        panic!("{told:?}");
    };
    assert_eq!(incident.what.operation(), Some(operation.id()));
    operation.end().await.unwrap();
    let told = tokio::time::timeout(SOON, incidents.next()).await.unwrap();
    assert!(matches!(
        told,
        Some(IncidentEvent::Closed {
            how: Closed::Operation,
            ..
        })
    ));
    drop((session, guard, leases));
    assert!(incidents.next().await.is_none());
}
