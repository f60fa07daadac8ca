//! The system's clock and its alarms.

use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::time::Duration;

use lease_async::{
    AcquireError, AlarmClock as _, Event, LeasePolicy, Leases, ManualClock, Memory, Moment,
    Standing, SystemClock,
};
use lease_core::{Clock as _, Refusal};

use crate::rig::{Counts, KEY, SOON};

struct Tell(mpsc::Sender<Moment>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.0.send(SystemClock::new().now()).unwrap();
    }
}

fn bell() -> (Waker, mpsc::Receiver<Moment>) {
    let (told, rings) = mpsc::channel();
    (Waker::from(Arc::new(Tell(told))), rings)
}

#[test]
fn an_alarm_rings_once_and_not_before_its_moment() {
    let clock = SystemClock::new();
    let (waker, rings) = bell();
    let at = clock.now().after(Duration::from_millis(30));
    let late = clock
        .arm(clock.now().after(SOON * 100), waker.clone())
        .unwrap();
    // An earlier one than the one before it, and one for what is past.
    let alarm = clock.arm(at, waker.clone()).unwrap();
    assert!(rings.recv_timeout(SOON).unwrap() >= at);
    let past = clock.arm(Moment::ZERO, waker).unwrap();
    assert!(rings.recv_timeout(SOON).is_ok());
    drop((alarm, past, late));
    assert!(rings.recv_timeout(SOON).is_err());
}

#[test]
fn a_dropped_alarm_does_not_ring() {
    let clock = SystemClock::new();
    let mut span = Duration::from_millis(50);
    // On a slow machine it may ring before it is dropped, and that shows nothing.
    let (soon, rings) = loop {
        let (waker, rings) = bell();
        let soon = clock.now().after(span);
        drop(clock.arm(soon, waker).unwrap());
        if clock.now() < soon {
            break (soon, rings);
        }
        span *= 2;
        assert!(span < SOON);
    };
    let (last, told) = bell();
    let _last = clock
        .arm(soon.after(Duration::from_millis(20)), last)
        .unwrap();
    assert!(told.recv_timeout(SOON).is_ok());
    assert!(rings.try_recv().is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn the_timer_of_the_clock_blocks_nobody_and_reaches_no_other_program() {
    let clock = SystemClock::new();
    let (waker, _rings) = bell();
    let _alarm = clock.arm(clock.now().after(SOON), waker).unwrap();
    let mut timers = 0;
    for open in std::fs::read_dir("/proc/self/fd").unwrap() {
        let open = open.unwrap();
        // The one that lists them is gone by now.
        let what = std::fs::read_link(open.path()).unwrap_or_default();
        if !what.to_string_lossy().contains("timerfd") {
            continue;
        }
        let info = std::path::Path::new("/proc/self/fdinfo").join(open.file_name());
        let info = std::fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
        assert_ne!(flags & libc::O_CLOEXEC.cast_unsigned(), 0, "{info}");
        assert_ne!(flags & libc::O_NONBLOCK.cast_unsigned(), 0, "{info}");
        timers += 1;
    }
    assert!(timers > 0);
}

#[test]
fn a_clock_that_is_set_rings_what_is_due_and_goes_back_too() {
    let at = Moment::from_millis;
    let clock = ManualClock::new(at(10));
    let rings = Arc::<Counts>::default();
    let arm = |moment| clock.arm(moment, Waker::from(Arc::clone(&rings))).unwrap();
    let (first, second) = (arm(at(20)), arm(at(30)));
    assert_eq!(format!("{first:?}"), "Alarm");
    for (moment, rang) in [(15, 0), (20, 1), (5, 1), (29, 1)] {
        clock.set(at(moment));
        assert_eq!((clock.now(), rings.get()), (at(moment), rang));
        assert_eq!(clock.armed(), 2 - rang);
    }
    drop(second);
    clock.set(at(40));
    assert_eq!((rings.get(), clock.armed()), (1, 0));
    drop(first);
    // It tells people no time of day.
    assert_eq!(clock.wall_ms(), None);
}

#[test]
fn a_waker_that_panics_does_not_end_the_clock() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as planned");
        }
    }
    let clock = SystemClock::new();
    let now = clock.now();
    let _bad = clock.arm(now, Waker::from(Arc::new(Panics))).unwrap();
    let (waker, rings) = bell();
    let _good = clock
        .arm(now.after(Duration::from_millis(20)), waker)
        .unwrap();
    assert!(rings.recv_timeout(SOON).is_ok());
}

#[tokio::test]
async fn a_real_wait_ends_at_its_deadline() {
    let leases = Leases::new(Memory::new().unwrap()).unwrap();
    let (holder, waiter) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
    let _held = holder.acquire(KEY).await.unwrap();
    let clock = SystemClock::new();
    let mut span = Duration::from_millis(50);
    let (asked, waited) = loop {
        let asked = clock.now();
        match waiter.acquire(KEY).within(span).await.unwrap_err() {
            AcquireError::Refused(Refusal::TimedOut { waited, .. }) => break (asked, waited),
            // On a slow machine the time was over before it could wait.
            AcquireError::Refused(Refusal::Held(_)) if span < SOON => span *= 2,
            other => panic!("{other:?}"),
        }
    };
    let took = clock.now().since(asked);
    assert!(took >= span && waited <= took && took < SOON, "{took:?}");
}

#[tokio::test]
async fn receipts_tell_people_the_time_of_day() {
    let leases = Leases::new(Memory::new().unwrap()).unwrap();
    let mut events = leases.events();
    let session = leases.connect("a").unwrap();
    let _guard = session.acquire(KEY).await.unwrap();
    let Some(Event::Receipt(receipt)) = events.next().await else {
        panic!("no receipt")
    };
    // Some day after this was written.
    assert!(receipt.wall_ms.is_some_and(|ms| ms > 1_700_000_000_000));
}

#[tokio::test]
async fn renewals_go_on_while_the_executor_is_blocked() {
    let memory = Memory::new().unwrap();
    let term = Duration::from_secs(3);
    let policy = LeasePolicy::session_ttl(term).unwrap();
    let leases = Leases::with_policy(memory.clone(), policy).unwrap();
    let session = leases.connect("a").unwrap();
    let guard = session.acquire(KEY).renewed().await.unwrap();
    let granted = memory.list()[0].acquired;
    // This thread is the whole executor, and it looks at nothing else until two thirds of the term are over.
    let end = SystemClock::new().now().after(SOON);
    while memory.list()[0].touched < granted.after(term * 2 / 3) {
        assert!(SystemClock::new().now() < end, "nobody renews");
        std::thread::yield_now();
    }
    assert_eq!(guard.standing(), Standing::Safe);
}
