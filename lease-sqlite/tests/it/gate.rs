//! Waking: who lets go, or dies, lets the next one in without a poll.

use std::thread::scope;

use lease_sqlite::{Lane, WaitBudget};

use crate::rig::{BOUND, Place, Writer, now, said, within};
use crate::turns::is_gate_shut;

#[cfg(feature = "test-util")]
mod alone {
    use std::fs;
    use std::thread::scope;
    use std::time::Duration;

    use lease_sqlite::{AcquireError, FaultPoint, Hold, LockOptions, WriteLock};

    #[cfg(feature = "async")]
    use crate::front::plain;
    use crate::rig::{BOUND, Place, Writer, now, until, within};
    use crate::sys::{is_polling, is_running, kill};
    use crate::turns::{is_gate_shut, waiting_at_gate};

    fn until_waiting(lock: &WriteLock) {
        until("somebody waits", || lock.waiting() > 0);
    }

    #[test]
    fn a_release_of_another_process_wakes_a_waiter() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        for _round in 0..20 {
            assert_eq!(other.does("acquire 0"), "granted depth=1");
            scope(|scope| {
                let waiter = scope.spawn(|| {
                    let hold = lock.acquire(within(BOUND)).unwrap();
                    hold.check().unwrap();
                    hold.granted().contended
                });
                until_waiting(&lock);
                assert_eq!(other.does("release"), "Some(Ok(Lock))");
                assert!(waiter.join().unwrap());
            });
        }
    }

    #[test]
    fn a_release_of_another_thread_wakes_a_waiter() {
        let place = Place::new();
        let lock = place.deaf();
        for _round in 0..20 {
            let hold = now(&lock).unwrap();
            scope(|scope| {
                let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
                until_waiting(&lock);
                hold.release().unwrap();
                waiter.join().unwrap().unwrap();
            });
        }
    }

    /// Kills a writer while somebody waits for what it has.
    fn its_death_wakes_a_waiter(lock: &WriteLock, other: &mut Writer) {
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).unwrap().granted().waited);
            // Who is in line but not yet outside would look once more only at a beat.
            until("it waits", is_polling);
            other.kill();
            let waited = waiter.join().unwrap();
            assert!(waited < BOUND, "only the deadline let it in");
        });
    }

    #[test]
    fn the_death_of_a_holder_wakes_a_waiter() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        its_death_wakes_a_waiter(&lock, &mut other);
    }

    #[test]
    fn the_death_of_a_peer_that_knows_no_gate_wakes_a_waiter() {
        let place = Place::new();
        let lock = place.deaf();
        now(&lock).unwrap().release().unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("peer"), "held");
        its_death_wakes_a_waiter(&lock, &mut other);
    }

    #[test]
    fn the_death_of_a_peer_without_a_record_wakes_a_waiter() {
        let place = Place::new();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("peer"), "held");
        its_death_wakes_a_waiter(&place.deaf(), &mut other);
    }

    #[test]
    fn who_comes_while_others_of_its_process_wait_tries_nothing_before_its_turn() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        // It has no gate, which would keep anybody from trying.
        assert_eq!(other.does("peer"), "held");
        scope(|scope| {
            let wait = || lock.acquire(within(BOUND)).map(drop);
            let first = scope.spawn(wait);
            until("the first one waits", is_polling);
            let before = lock.passes(FaultPoint::Begin);
            let second = scope.spawn(wait);
            until("both wait", || lock.waiting() > 1);
            assert_eq!(lock.passes(FaultPoint::Begin), before);
            other.kill();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn the_death_of_a_holder_whose_clone_keeps_the_gate_shut_wakes_a_waiter() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        // The record is there, so that the second hold shuts its gate.
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        let child: i32 = other.does("clone").parse().unwrap();
        its_death_wakes_a_waiter(&lock, &mut other);
        assert!(is_running(child));
        kill(child);
    }

    #[test]
    fn who_is_let_through_in_vain_keeps_the_gate_as_long_as_it_is_that_of_the_record() {
        let place = Place::new();
        let lock = place.deaf();
        now(&lock).unwrap().release().unwrap();
        let mut peer = Writer::start(&place);
        assert_eq!(peer.does("peer"), "held");
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
            let attempts = || lock.passes(FaultPoint::Begin);
            let passed = || lock.passes(FaultPoint::Passed);
            until("it is let through", || passed() > 0);
            let before = attempts();
            until("it tries in vain", || attempts() > before + 10);
            assert_eq!(passed(), 1, "it stays first");
            assert!(is_gate_shut(&place));
            fs::remove_file(place.record()).unwrap();
            fs::write(place.record(), "").unwrap();
            until("it is at the new gate", || is_gate_shut(&place));
            peer.order("quit");
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn who_is_kept_out_by_something_else_than_a_holder_leaves_the_gate_open() {
        let place = Place::new();
        let options = LockOptions::new().poll(Duration::from_millis(50));
        let lock = options.open(place.database()).unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
            until("it waits", || waiting_at_gate(&place) > 0);
            fs::write(place.record(), "{\"protocol\":99}").unwrap();
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            until("it is let through", || lock.passes(FaultPoint::Passed) > 0);
            until("the gate is open", || !is_gate_shut(&place));
            fs::write(place.record(), "").unwrap();
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn who_is_let_through_leaves_no_room_for_peers_before_it_is_due() {
        let place = Place::new();
        let lock = place.deaf();
        fs::write(place.record(), "{\"protocol\":2,\"pid\":1}").unwrap();
        now(&lock).unwrap().release().unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).unwrap().granted().waited);
            until("it waits", || waiting_at_gate(&place) > 0);
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            assert!(waiter.join().unwrap() < BOUND, "only the deadline ended it");
        });
    }

    #[test]
    fn a_deadline_ends_a_wait_that_nothing_else_ends() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        let time = Duration::from_millis(60);
        let AcquireError::Busy(busy) = lock.acquire(within(time)).unwrap_err() else {
            panic!("not busy");
        };
        assert!(busy.waited >= time && busy.waited < BOUND);
        assert_eq!(lock.waiting(), 0);
        // Whoever is left at the gate keeps nobody out.
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        now(&lock).unwrap().release().unwrap();
    }

    #[test]
    fn who_has_given_up_opens_the_gate_that_is_passed_later() {
        let place = Place::new();
        let lock = place.deaf();
        let [mut holder, mut other] = [Writer::start(&place), Writer::start(&place)];
        assert_eq!(holder.does("acquire 0"), "granted depth=1");
        // Nobody can be called back from the gate.
        for doubled in 6.. {
            let told = other.does(&format!("acquire {}", 1 << doubled));
            assert!(told.starts_with("busy"), "{told}");
            if waiting_at_gate(&place) > 0 {
                break;
            }
        }
        assert_eq!(holder.does("release"), "Some(Ok(Lock))");
        until("the gate is passed", || waiting_at_gate(&place) == 0);
        for _round in 0..3 {
            let hold = lock.acquire(within(BOUND)).unwrap();
            // Else nothing but the end of the time let it in.
            assert!(hold.granted().waited < BOUND);
            hold.release().unwrap();
        }
    }

    fn is_attended() -> bool {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| fs::read(task.unwrap().path().join("comm")).ok());
        names.into_iter().any(|name| name == b"write-lock-gate\n")
    }

    #[test]
    fn the_thread_at_the_gate_ends_when_nobody_has_waited_for_long_and_comes_again() {
        let place = Place::new();
        let lock = place.deaf();
        let mut other = Writer::start(&place);
        for comes_again in [false, true] {
            assert_eq!(other.does("acquire 0"), "granted depth=1");
            scope(|scope| {
                let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
                until("it waits", || waiting_at_gate(&place) > 0);
                assert!(is_attended());
                assert_eq!(other.does("release"), "Some(Ok(Lock))");
                waiter.join().unwrap().unwrap();
            });
            if !comes_again {
                until("the thread is gone", || !is_attended());
            }
        }
    }

    /// Somebody who takes the lock again and again leaves a poll interval, in which somebody who polls gets it.
    fn leaves_room_for_peers(acquire: fn(&WriteLock) -> Hold) {
        /// Long enough to come in it on any machine.
        const POLL: Duration = Duration::from_secs(2);
        let place = Place::new();
        let lock = LockOptions::new().poll(POLL).open(place.database());
        let lock = lock.unwrap();
        let mut peer = Writer::start(&place);
        // Where such a record lies, peers are expected.
        fs::write(place.record(), "{\"protocol\":2,\"pid\":1}").unwrap();
        let is_passed = || lock.passes(FaultPoint::Passed) > 0;
        for _in_a_row in 0..10 {
            let hold = acquire(&lock);
            assert!(!hold.granted().contended);
            hold.release().unwrap();
        }
        assert!(!is_passed());
        scope(|scope| {
            let next = scope.spawn(|| acquire(&lock).granted().clone());
            until("it leaves room", is_passed);
            assert_eq!(peer.does("peer"), "held");
            assert!(!next.is_finished());
            assert_eq!(lock.health().depth, 0);
            peer.order("quit");
            let granted = next.join().unwrap();
            assert!(granted.contended);
            assert!(granted.waited >= POLL + POLL / 4, "{granted:?}");
            assert!(granted.waited < BOUND, "not all the time that it has");
        });
        // It counts anew.
        assert!(!acquire(&lock).granted().contended);
    }

    #[test]
    fn a_thread_leaves_a_poll_interval_to_peers_after_ten_holds_in_a_row() {
        leaves_room_for_peers(|lock| lock.acquire(within(BOUND)).unwrap());
    }

    #[cfg(feature = "async")]
    #[test]
    fn a_task_leaves_a_poll_interval_to_peers_after_ten_holds_in_a_row() {
        leaves_room_for_peers(|lock| plain(lock.acquire_async(within(BOUND))).unwrap());
    }

    #[test]
    fn room_that_is_left_to_peers_in_vain_eight_times_is_left_no_more() {
        let place = Place::new();
        let lock = LockOptions::new().poll(Duration::from_millis(5));
        let lock = lock.open(place.database()).unwrap();
        fs::write(place.record(), "{\"protocol\":2,\"pid\":1}").unwrap();
        let waits = |_: &u32| lock.acquire(within(BOUND)).unwrap().granted().contended;
        let waited: Vec<u32> = (1..=150).filter(waits).collect();
        assert_eq!(waited, [11, 21, 31, 41, 51, 61, 71, 81]);
    }

    #[test]
    fn what_is_in_the_way_behind_the_gate_is_tried_once_a_poll_interval() {
        const POLL: Duration = Duration::from_millis(50);
        let place = Place::new();
        let options = LockOptions::new().poll(POLL);
        let lock = options.open(place.database()).unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).unwrap().granted().waited);
            until("it waits", || waiting_at_gate(&place) > 0);
            fs::remove_file(place.record()).unwrap();
            fs::create_dir(place.record()).unwrap();
            let attempts = || u128::from(lock.passes(FaultPoint::Begin));
            let before = attempts();
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            until("it is tried again and again", || attempts() > before + 10);
            fs::remove_dir(place.record()).unwrap();
            let polls = waiter.join().unwrap().as_millis() / POLL.as_millis();
            let attempts = attempts() - before;
            assert!(attempts <= polls + 5, "{attempts} attempts in {polls}");
            assert!(lock.passes(FaultPoint::Passed) > 0);
        });
    }

    #[test]
    fn a_record_that_is_removed_costs_a_beat_and_not_the_lock() {
        let place = Place::new();
        let beat = Duration::from_millis(20);
        let options = LockOptions::new().poll(beat).beat(beat);
        let lock = options.open(place.database()).unwrap();
        let mut other = Writer::start(&place);
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
            until_waiting(&lock);
            fs::remove_file(place.record()).unwrap();
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
            waiter.join().unwrap().unwrap();
        });
    }
}

// C77
#[test]
fn everybody_gets_in_and_nobody_meets_another_inside() {
    let place = Place::new();
    let mut writers: Vec<Writer> = (0..6).map(|_| Writer::start(&place)).collect();
    for writer in &mut writers {
        writer.order("rounds 40");
    }
    for writer in &writers {
        // Reported, not judged: no order is promised.
        let told = writer.answer();
        assert!(told.starts_with("done, longest wait "), "{told}");
        said(&format!("{told} of 40 rounds among 6"));
    }
}

#[test]
fn lanes_and_processes_share_one_lock() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    other.order("rounds 40");
    scope(|scope| {
        for _thread in 0..4 {
            scope.spawn(|| {
                for _round in 0..40 {
                    let hold = lock.acquire_on(&Lane::new(), within(BOUND)).unwrap();
                    let inside = lock.lock_path().with_extension("inside");
                    drop(std::fs::File::create_new(&inside).unwrap());
                    std::fs::remove_file(&inside).unwrap();
                    hold.release().unwrap();
                }
            });
        }
    });
    assert!(other.answer().starts_with("done"));
    assert!(now(&lock).is_ok());
}

#[test]
fn a_wait_for_ever_ends_with_a_grant() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire(WaitBudget::Forever).map(drop));
        other.order("release");
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_holder_has_the_gate_of_the_record_that_lies_there_now() {
    let place = Place::new();
    let lock = place.lock();
    for is_first in [true, false] {
        if !is_first {
            std::fs::remove_file(place.record()).unwrap();
        }
        drop(now(&lock).unwrap());
        let hold = now(&lock).unwrap();
        assert!(is_gate_shut(&place), "{is_first}");
        hold.release().unwrap();
        assert!(!is_gate_shut(&place), "{is_first}");
    }
}
