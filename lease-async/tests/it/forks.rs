//! A forked child has a copy of everything, also of the authority. No token of it may pass for one of its parent.

use core::pin::pin;
use core::task::{Context, Waker};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Wake;
use std::time::Duration;

use lease_async::{Alarm, AlarmClock as _, Leases, Memory, Session, SystemClock};
use lease_core::Clock as _;

use crate::jump::{alone, now};
use crate::rig::{KEY, SOON, poll};
use crate::sys::forked;

/// Takes a lease and begins under it. Answers what is the same in a copy of the authority, and the two ids.
fn next(session: &Session) -> String {
    let guard = now(session.acquire(KEY).into_future()).unwrap();
    let operation = now(guard.begin()).unwrap();
    let token = guard.token();
    let (authority, generation) = (token.authority, token.generation);
    let (lease, operation) = (token.lease, operation.id());
    format!("{authority:?} {generation:?}\t{lease:?}\t{operation:?}\n")
}

#[test]
fn the_ids_of_a_forked_child_are_not_those_of_its_parent() {
    let name = "forks::the_ids_of_a_forked_child_are_not_those_of_its_parent";
    alone(name, || {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let session = leases.connect("a").unwrap();
        // From now on ids are in stock.
        drop(now(session.acquire("docs").into_future()).unwrap());
        let mut told = forked(|| {
            let by_its_child = forked(|| next(&session));
            by_its_child + &next(&session)
        });
        told += &next(&session);
        let parts = told.lines().map(|line| line.split_once('\t').unwrap());
        let (grants, ids): (BTreeSet<_>, Vec<_>) = parts.unzip();
        assert_eq!((grants.len(), ids.len()), (1, 3), "{told}");
        let ids: Vec<_> = ids.iter().flat_map(|ids| ids.split('\t')).collect();
        let different: BTreeSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (6, 6), "{told}");
        Ok(())
    });
}

struct Bell(Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _unheard = self.0.send(());
    }
}

fn armed(after: Duration, bell: Sender<()>) -> Alarm {
    let clock = SystemClock::new();
    let waker = Waker::from(Arc::new(Bell(bell)));
    clock.arm(clock.now().after(after), waker).unwrap()
}

#[test]
fn who_waits_in_a_forked_child_is_not_left_to_the_alarm_of_its_parent() {
    let name = "forks::who_waits_in_a_forked_child_is_not_left_to_the_alarm_of_its_parent";
    alone(name, || {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let (one, other) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
        let held = now(one.acquire(KEY).into_future()).unwrap();
        let first = Duration::from_millis(300);
        let mut next = pin!(other.acquire(KEY).within(first).into_future());
        assert!(poll(next.as_mut()).is_pending());
        // Its alarm stays for who waits next.
        drop(held);
        let held = now(next).unwrap();
        let told = forked(|| {
            let (bell, rings) = channel();
            let waker = Waker::from(Arc::new(Bell(bell)));
            let mut cx = Context::from_waker(&waker);
            let mut last = pin!(one.acquire(KEY).within(first * 2).into_future());
            assert!(last.as_mut().poll(&mut cx).is_pending());
            let rang = rings.recv_timeout(SOON).is_ok();
            if rang && last.as_mut().poll(&mut cx).is_ready() {
                "turned away"
            } else {
                "waits for ever"
            }
            .to_owned()
        });
        assert_eq!(told, "turned away");
        drop(held);
        Ok(())
    });
}

#[test]
fn the_clock_of_a_forked_child_rings_and_leaves_that_of_its_parent_alone() {
    let name = "forks::the_clock_of_a_forked_child_rings_and_leaves_that_of_its_parent_alone";
    alone(name, || {
        let soon = Duration::from_millis(20);
        let (bell, rings) = channel();
        let first = armed(soon, bell.clone());
        rings.recv_timeout(SOON).unwrap();
        let mut inherited = Some(first);
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let parent = std::thread::spawn(move || {
            here.read_exact(&mut [0]).unwrap();
            // It is set after the fork, so the child knows nothing of it.
            let alarm = armed(soon * 10, bell);
            here.write_all(&[0]).unwrap();
            alarm
        });
        let told = forked(|| {
            drop(inherited.take());
            there.write_all(&[0]).unwrap();
            there.read_exact(&mut [0]).unwrap();
            let (bell, rings) = channel();
            // Were it set at the timer of the parent, that would ring in an hour.
            let late = armed(SOON * 360, bell.clone());
            let early = armed(soon, bell);
            let rang = rings.recv_timeout(SOON).is_ok();
            drop((late, early));
            if rang { "rang" } else { "silent" }.to_owned()
        });
        let alarm = parent.join().unwrap();
        assert_eq!(told, "rang");
        rings.recv_timeout(SOON).unwrap();
        drop((alarm, inherited));
        Ok(())
    });
}
