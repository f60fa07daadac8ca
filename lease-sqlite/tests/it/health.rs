//! What is told: numbered events, one incident per long foreign hold, and a view that moves nothing.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread::scope;
use std::time::Duration;

use lease_core::{Attribution, BusyReason};
use lease_sqlite::{
    AcquireError, Happening, LockEvent, LockOptions, Timing as _, WaitBudget, WriteLock,
};

use crate::rig::{ManualTiming, Place, Writer, descriptors, manual, now};

/// Every event of a lock, as code and number.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<LockEvent>>>);

impl Heard {
    fn by(&self, options: LockOptions) -> LockOptions {
        let events = Arc::clone(&self.0);
        options.observer(move |event| events.lock().unwrap().push(event.clone()))
    }

    fn codes(&self) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let shown = |event: &LockEvent| format!("{} {}", event.number, event.code());
        events.iter().map(shown).collect()
    }

    fn count(&self, code: &str) -> usize {
        let codes = self.codes();
        codes.iter().filter(|shown| shown.ends_with(code)).count()
    }
}

/// A lock whose clocks only sleep moves, and that is listened to.
fn timed(place: &Place, heard: &Heard) -> (WriteLock, Arc<ManualTiming>) {
    let (options, timing) = manual();
    (heard.by(options).open(place.database()).unwrap(), timing)
}

fn milliseconds(time: u64) -> WaitBudget {
    WaitBudget::Within(Duration::from_millis(time))
}

/// A record as a peer writes it.
fn peer(pid: i32, acquired_at_ms: i64) -> String {
    let object = format!(
        "{{\"protocol\":2,\"pid\":{pid},\"token\":\"{pid}:0:ab:1\",\
         \"created_at_ms\":{acquired_at_ms},\"purpose\":\"nightly\"}}"
    );
    format!("{object:<1024}")
}

// C99
#[test]
fn events_are_numbered_from_1_and_the_last_is_kept() {
    let place = Place::new();
    let heard = Heard::default();
    let lock = heard.by(LockOptions::new()).open(place.database()).unwrap();
    assert_eq!(lock.health().last_event, None);
    let hold = now(&lock).unwrap();
    let entry = now(&lock).unwrap();
    entry.release().unwrap();
    hold.release().unwrap();
    let expected = [
        "1 LOCK_ACQUIRED",
        "2 REENTRANT",
        "3 DEPTH_RELEASED",
        "4 RELEASED",
    ];
    assert_eq!(heard.codes(), expected);
    assert_eq!(lock.health().last_event.unwrap().number, 4);
    // Another lock of the same path counts by itself.
    let second = place.lock();
    now(&second).unwrap().release().unwrap();
    assert_eq!(second.health().last_event.unwrap().number, 2);
    assert_eq!(lock.health().last_event.unwrap().number, 4);
}

// C85
#[test]
fn an_observer_that_panics_changes_nothing() {
    let place = Place::new();
    let options = LockOptions::new().observer(|_| std::panic::resume_unwind(Box::new("broken")));
    let lock = options.open(place.database()).unwrap();
    let hold = now(&lock).unwrap();
    hold.check().unwrap();
    hold.release().unwrap();
    assert_eq!(lock.health().last_event.unwrap().number, 2);
}

// S49, C79, C83
#[test]
fn a_long_foreign_hold_is_told_of_once_and_a_name_plate_never() {
    let place = Place::new();
    let heard = Heard::default();
    let (lock, timing) = timed(&place, &heard);
    timing.set_wall_ms(1_000_000_000);
    now(&lock).unwrap().release().unwrap();
    // P0 wrote an hour ago; P1 has the kernel lock and has not signed.
    let mut other = Writer::start(&place);
    let old = peer(
        std::os::unix::process::parent_id().try_into().unwrap(),
        1_000_000_000 - 3_600_000,
    );
    fs::write(place.record(), old).unwrap();
    assert_eq!(other.does("peer"), "held");
    let Err(AcquireError::Busy(busy)) = now(&lock) else {
        panic!("not busy");
    };
    assert_eq!(busy.reason, BusyReason::Kernel(Attribution::Unconfirmed));
    assert_eq!(lock.health().incidents, 0);
    timing.advance(10);
    let signed_at_ms = timing.wall_ms();
    fs::write(place.record(), peer(other.pid(), signed_at_ms)).unwrap();
    timing.advance(10);
    assert!(lock.acquire(milliseconds(45_000 - 20)).is_err());
    assert_eq!(heard.count("FOREIGN_HOLD"), 1);
    let health = lock.health();
    assert_eq!(health.incidents, 1);
    let incident = health.last_incident.unwrap();
    assert_eq!(incident.holder.pid.get(), other.pid());
    assert_eq!(incident.holder.purpose.as_deref(), Some("nightly"));
    let first_poll = incident.threshold_ms..incident.threshold_ms + 25;
    assert!(first_poll.contains(&incident.age_ms), "{}", incident.age_ms);
    assert_eq!(incident.threshold_ms, 30_000);
    // However many look at the same hold, and whatever lock they look through.
    assert!(place.lock().health().incidents == 1);
    assert!(lock.acquire(milliseconds(1_000)).is_err());
    assert_eq!(heard.count("FOREIGN_HOLD"), 1);
    // The next hold may be told of again.
    fs::write(
        place.record(),
        peer(other.pid(), signed_at_ms).replace(":ab:1", ":ab:2"),
    )
    .unwrap();
    assert!(lock.acquire(milliseconds(100)).is_err());
    assert_eq!(heard.count("FOREIGN_HOLD"), 2);
    #[cfg(feature = "test-util")]
    {
        lock.reset_health();
        assert_eq!(
            (lock.health().incidents, lock.health().last_incident),
            (0, None)
        );
    }
}

// S49
#[test]
fn a_long_hold_of_our_own_process_is_no_incident() {
    let place = Place::new();
    let heard = Heard::default();
    let (lock, timing) = timed(&place, &heard);
    let hold = now(&lock).unwrap();
    timing.advance(100_000);
    scope(|scope| {
        scope.spawn(|| assert!(lock.acquire(milliseconds(100)).is_err()));
    });
    assert_eq!(
        (heard.count("FOREIGN_HOLD"), lock.health().incidents),
        (0, 0)
    );
    hold.release().unwrap();
    // A record without our fields is ours by its number alone.
    let reader = rusqlite::Connection::open(place.mutex()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
        .unwrap();
    let own = lock.last_writer().unwrap();
    fs::write(place.record(), peer(own.pid.get(), 0)).unwrap();
    timing.advance(100_000);
    assert!(lock.acquire(milliseconds(100)).is_err());
    assert_eq!(heard.count("FOREIGN_HOLD"), 0);
}

// C81
#[test]
fn a_process_is_our_own_by_its_identity_and_not_by_its_number() {
    let place = Place::new();
    let heard = Heard::default();
    let (lock, timing) = timed(&place, &heard);
    now(&lock).unwrap().release().unwrap();
    let own = lock.last_writer().unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    let theirs = lock.last_writer().unwrap().identity.unwrap();
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    // Somebody in this process keeps the lock busy, so that the kernel names nobody else.
    let reader = rusqlite::Connection::open(place.mutex()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
        .unwrap();
    let old = timing.wall_ms() - 100_000;
    for (identity, expected) in [(own.identity.unwrap(), 0), (theirs, 1)] {
        let pid = own.pid;
        let object = format!(
            "{{\"protocol\":2,\"pid\":{pid},\"token\":\"{expected}\",\
             \"created_at_ms\":{old},\"identity\":\"{identity}\"}}"
        );
        fs::write(place.record(), format!("{object:<1024}")).unwrap();
        assert!(lock.acquire(milliseconds(100)).is_err());
        assert_eq!(heard.count("FOREIGN_HOLD"), expected, "{identity}");
    }
}

// C80, S45
#[cfg(feature = "legacy-v1")]
#[test]
fn a_live_claim_of_protocol_1_is_told_of_like_a_kernel_lock() {
    let place = Place::new();
    let heard = Heard::default();
    let (lock, timing) = timed(&place, &heard);
    timing.set_wall_ms(1_000_000_000);
    let pid = std::os::unix::process::parent_id();
    let claim = format!(
        "{{\"pid\":{pid},\"token\":\"old\",\"created_at_ms\":{}}}",
        1_000_000_000 - 31_000
    );
    fs::write(place.record(), &claim).unwrap();
    assert!(now(&lock).is_err());
    assert_eq!(heard.count("FOREIGN_HOLD"), 0, "at one look");
    // Between two polls another one can take the kernel lock; the claim keeps it out as well.
    let other = Mutex::new(Writer::start(&place));
    timing.at(30, move || {
        let told = other.lock().unwrap().does("acquire 0");
        assert!(told.starts_with("busy LegacyAlive"), "{told}");
    });
    let Err(AcquireError::Busy(busy)) = lock.acquire(milliseconds(100)) else {
        panic!("not busy");
    };
    assert_eq!(
        (busy.reason, busy.waited.as_millis()),
        (BusyReason::LegacyAlive, 100)
    );
    assert_eq!(heard.count("FOREIGN_HOLD"), 1);
    let incident = lock.health().last_incident.unwrap();
    assert!(incident.age_ms >= 31_000 && u32::try_from(incident.holder.pid.get()).unwrap() == pid);
    assert_eq!(fs::read_to_string(place.record()).unwrap(), claim);
}

// C78
#[test]
fn an_incident_begins_at_its_threshold() {
    for (age_ms, expected) in [(29_999, 0), (30_000, 1)] {
        let place = Place::new();
        let (lock, timing) = timed(&place, &Heard::default());
        timing.set_wall_ms(1_000_000_000);
        now(&lock).unwrap().release().unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("peer"), "held");
        fs::write(place.record(), peer(other.pid(), 1_000_000_025 - age_ms)).unwrap();
        assert!(now(&lock).is_err());
        timing.advance(25);
        assert!(now(&lock).is_err());
        assert_eq!(lock.health().incidents, expected, "{age_ms}");
    }
}

// C50
#[test]
fn the_last_lock_that_goes_during_a_hold_is_told_of_once() {
    let place = Place::new();
    let mut other = Writer::start(&place);
    let before = descriptors();
    let heard = Heard::default();
    let (one, two) = (
        heard.by(LockOptions::new()).open(place.database()).unwrap(),
        heard.by(LockOptions::new()).open(place.database()).unwrap(),
    );
    let hold = now(&one).unwrap();
    assert_eq!(one.health().locks, 2);
    drop(two);
    assert_eq!(heard.count("HANDLE_KEPT"), 0);
    drop(one);
    assert_eq!(heard.count("HANDLE_KEPT"), 1);
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    assert_eq!(heard.count("HANDLE_KEPT"), 1);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(descriptors(), before);
}

// C100
#[test]
fn a_hold_beyond_its_budget_is_told_of_at_its_end_without_the_time_that_was_suspended() {
    let place = Place::new();
    let (options, timing) = manual();
    let heard = Heard::default();
    let options = heard.by(options).hold_budget(Duration::from_millis(100));
    let lock = options.open(place.database()).unwrap();
    timing.advance(1_000);
    let hold = now(&lock).unwrap();
    timing.advance(100);
    hold.release().unwrap();
    assert_eq!(heard.count("HOLD_BUDGET"), 0, "at the budget");
    let hold = now(&lock).unwrap();
    timing.advance(150);
    hold.check().unwrap();
    hold.release().unwrap();
    assert_eq!(heard.count("HOLD_BUDGET"), 1);
    let hold = now(&lock).unwrap();
    timing.advance(50);
    let outer = hold.pause_budget();
    timing.advance(40);
    let inner = hold.pause_budget();
    drop(outer);
    timing.advance(60);
    drop(inner);
    hold.release().unwrap();
    assert_eq!(heard.count("HOLD_BUDGET"), 1, "100 of 150 were suspended");
    let last = heard.0.lock().unwrap().pop().unwrap();
    assert!(
        matches!(last.what, Happening::Released { held_for, .. } if held_for.as_millis() == 150)
    );
    let hold = now(&lock).unwrap();
    for _pause in 0..2 {
        timing.advance(70);
        let pause = hold.pause_budget();
        timing.advance(30);
        drop(pause);
    }
    hold.release().unwrap();
    let last = heard.0.lock().unwrap().pop().unwrap();
    let expected = Happening::HoldBudget {
        budget: Duration::from_millis(100),
        held_for: Duration::from_millis(140),
        suspended_for: Duration::from_millis(60),
    };
    assert_eq!(last.what, expected);
}

// S50, C92
#[test]
fn a_sweep_that_removed_something_is_told_of_and_a_broken_observer_does_not_matter() {
    for is_broken in [false, true] {
        let place = Place::new();
        now(&place.lock()).unwrap().release().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = i32::try_from(child.id()).unwrap();
        fs::write(place.record(), peer(dead, 0)).unwrap();
        let heard = Heard::default();
        let events = heard.clone();
        let options = LockOptions::new().observer(move |event| {
            events.0.lock().unwrap().push(event.clone());
            if is_broken {
                std::panic::resume_unwind(Box::new("broken"));
            }
        });
        let _lock = options.open(place.database()).unwrap();
        assert!(!place.record().exists());
        let told = heard.0.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert!(matches!(told[0].what, Happening::Swept { pid } if pid.get() == dead));
    }
}

#[test]
fn a_lock_with_an_observer_can_be_shown() {
    let place = Place::new();
    let options = LockOptions::new().observer(|_event| ());
    let lock = options.open(place.database()).unwrap();
    assert!(format!("{lock:?}").contains("events: Events { .. }"));
}
