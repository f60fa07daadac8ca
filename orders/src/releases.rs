//! A lease that is released while its own session asks for it again.
//!
//! Whoever has a guard holds the lease, whatever the others do, and nobody waits for ever. What the front end does
//! in one critical section is done in one here; what it calls between them is an authority that decides at once.

use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Wake;

use lease_core::{Generation, ResourceKey};
use loom::future::block_on;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::release::{Asking, Entry, Leave, Order, Seat, Ticket};
use crate::rooms::Sitter;

/// The hold of one lease.
struct Hold {
    room: usize,
    generation: Generation,
    seat: Seat,
    /// Changed with the table locked.
    lost: AtomicBool,
}

type Held = Arc<Hold>;

impl Sitter for Held {
    fn room(&self) -> usize {
        self.room
    }

    fn row(&self) -> usize {
        0
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

/// The leases of two resources, as the authority has them.
struct Authority {
    held: [Option<Generation>; 2],
    next: Generation,
}

/// What a front end does otherwise than it should, to see that this is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Who finds a release under way begins to wait for its end after the table is free.
    StandsLate,
    /// It says that it asks only after it was answered.
    AsksLate,
    /// It says that it releases only after the authority was told.
    ReleasesLate,
}

/// What became of one attempt to get a guard.
enum Came {
    In(Held),
    /// The lease ended meanwhile.
    Late,
    /// It stands behind a release.
    Behind(Ticket),
}

/// Whether a task was woken.
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One resource, and another one.
const HERE: usize = 0;
const ELSEWHERE: usize = 1;

struct Front {
    keys: [ResourceKey; 2],
    order: Mutex<Order<Held>>,
    authority: Mutex<Authority>,
    fault: Fault,
}

impl Front {
    /// With one guard of a lease.
    fn with_guard(fault: Fault) -> (Arc<Self>, Held) {
        let mut order = Order::new();
        assert_eq!(order.rooms.add_row(), 0);
        let front = Arc::new(Self {
            keys: ["app/viewport", "app/console"].map(|key| ResourceKey::new(key).unwrap()),
            order: Mutex::new(order),
            authority: Mutex::new(Authority {
                held: [None, None],
                next: Generation::FIRST,
            }),
            fault,
        });
        let guard = front.acquire(HERE);
        (front, guard)
    }

    /// As the authority decides: a session that has the lease is granted it again.
    fn decide(&self, what: usize) -> Generation {
        let mut authority = self.authority.lock().unwrap();
        if let Some(held) = authority.held[what] {
            return held;
        }
        let granted = authority.next;
        authority.held[what] = Some(granted);
        authority.next = granted.next().unwrap();
        granted
    }

    /// Ends the lease, if it is held.
    fn end(&self, generation: Generation) {
        let mut authority = self.authority.lock().unwrap();
        for held in &mut authority.held {
            held.take_if(|held| *held == generation);
        }
    }

    fn ask(&self, what: usize) -> Asking {
        self.order.lock().unwrap().ask(&self.keys[what])
    }

    /// Asks until there is a guard, as a task does.
    fn acquire(&self, what: usize) -> Held {
        loop {
            match self.attempt(what) {
                Came::In(hold) => return hold,
                Came::Late => {}
                Came::Behind(ticket) => self.wait(ticket),
            }
        }
    }

    fn attempt(&self, what: usize) -> Came {
        let (asking, generation) = if self.fault == Fault::AsksLate {
            let generation = self.decide(what);
            (self.ask(what), generation)
        } else {
            let asking = self.ask(what);
            (asking, self.decide(what))
        };
        let came = self.enter(&asking, generation);
        if let Came::In(hold) = &came {
            // What the guard is for.
            let held = self.authority.lock().unwrap().held[what];
            assert_eq!(held, Some(hold.generation), "a guard without a lease");
        }
        came
    }

    fn enter(&self, asking: &Asking, generation: Generation) -> Came {
        let mut order = self.order.lock().unwrap();
        let is_lost = |hold: &Held| hold.seat.engage() || hold.lost.load(Ordering::Relaxed);
        let before = match order.enter(asking, generation, is_lost) {
            Entry::Again(hold) => return Came::In(hold),
            Entry::Gone => return Came::Late,
            Entry::Behind(ticket) => {
                drop(order);
                return Came::Behind(self.stand(ticket, generation, asking.room));
            }
            Entry::New => None,
            Entry::Anew(before) => Some(before),
        };
        let serve = |hold: &mut Held| {
            let Some(hold) = Arc::get_mut(hold) else {
                return false;
            };
            hold.room = asking.room;
            hold.generation = generation;
            hold.seat.serve_again();
            hold.lost = AtomicBool::new(false);
            true
        };
        let (hold, gone) = match order.sit_again(asking, serve) {
            Ok(hold) => (hold, None),
            Err(gone) => {
                let hold = Arc::new(Hold {
                    room: asking.room,
                    generation,
                    seat: Seat::new(),
                    lost: AtomicBool::new(false),
                });
                let parked = order.sit(asking, Arc::clone(&hold));
                (hold, gone.or(parked))
            }
        };
        drop(order);
        drop((before, gone));
        Came::In(hold)
    }

    fn stand(&self, ticket: Ticket, generation: Generation, room: usize) -> Ticket {
        if self.fault != Fault::StandsLate {
            return ticket;
        }
        let mut order = self.order.lock().unwrap();
        drop(order.forget(ticket));
        let hold = order.rooms.seat(room, generation).cloned();
        // If it has no seat any more, the release it was seen at is over, and will not be over once more.
        let gone = Seat::new();
        order.stand(hold.as_ref().map_or(&gone, Sitter::seat))
    }

    fn wait(&self, ticket: Ticket) {
        block_on(poll_fn(|cx| {
            let mut waker = Some(cx.waker().clone());
            let is_over = self.order.lock().unwrap().look(ticket, &mut waker);
            if is_over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
    }

    /// Drops a guard.
    fn leave(&self, hold: &Held) {
        if self.fault == Fault::ReleasesLate {
            self.end(hold.generation);
        }
        if hold.seat.leaves_quietly() {
            return self.release(hold);
        }
        let give_up = || {
            let is_lost = hold.seat.engage() || hold.lost.swap(true, Ordering::Relaxed);
            (!is_lost).then_some(())
        };
        let left = self.order.lock().unwrap().leave(hold, give_up);
        match left {
            Leave::Stays(told) => told.into_iter().for_each(|waker| waker.wake()),
            Leave::Release((), gone) => {
                drop(gone);
                self.release(hold);
            }
        }
    }

    fn release(&self, hold: &Held) {
        self.end(hold.generation);
        if !hold.seat.is_over_quietly() {
            self.settle(hold, true);
        }
    }

    fn settle(&self, hold: &Held, released: bool) {
        let (gone, told) = self.order.lock().unwrap().settle(hold, released, true);
        drop(gone);
        told.into_iter().for_each(|waker| waker.wake());
    }

    /// Releases the only guard by hand. Answers whether it was the only one.
    fn begin_release(&self, hold: &Held) -> bool {
        self.order.lock().unwrap().begin_release(hold).is_ok()
    }

    /// The authority has ended the lease, and its receipt says so.
    fn revoke(&self, hold: &Held) {
        self.end(hold.generation);
        let mut order = self.order.lock().unwrap();
        let (gone, told) = order.remove(hold);
        hold.lost.store(true, Ordering::Relaxed);
        drop(order);
        drop(gone);
        told.into_iter().for_each(|waker| waker.wake());
    }

    /// Nothing is held, and nobody is on the way. One seat at most is kept for the next request.
    fn assert_at_rest(&self) {
        let mut order = self.order.lock().unwrap();
        assert_eq!(order.rooms.len(), 0);
        assert_eq!(order.rooms.requests(), 0);
        if let Some((room, generation)) = order.rooms.last_of(0) {
            drop(order.end(room, generation));
        }
        assert_eq!(order.rooms.last_of(0), None);
        drop(order);
        assert_eq!(self.authority.lock().unwrap().held, [None, None]);
    }
}

/// Runs a model in every order, or in those with at most so many switches that nobody asked for.
fn check(switches: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    builder.check(model);
}

/// A task of the session that gets a guard and drops it.
fn comes_and_goes(front: &Arc<Front>) -> thread::JoinHandle<()> {
    let front = Arc::clone(front);
    thread::spawn(move || {
        let guard = front.acquire(HERE);
        front.leave(&guard);
    })
}

/// One guard is dropped while so many tasks of its session come and go.
fn come_and_go(fault: Fault, others: usize, switches: Option<usize>) {
    check(switches, move || {
        let (front, guard) = Front::with_guard(fault);
        let others: Vec<_> = (0..others).map(|_| comes_and_goes(&front)).collect();
        front.leave(&guard);
        for other in others {
            other.join().unwrap();
        }
        front.assert_at_rest();
    });
}

#[test]
fn who_comes_while_the_last_guard_goes_gets_a_lease_that_is_held() {
    come_and_go(Fault::None, 1, None);
}

#[test]
fn two_who_come_while_the_last_guard_goes_get_leases_that_are_held() {
    come_and_go(Fault::None, 2, Some(2));
}

/// Runs a model that has to fail, and answers why it did.
fn what_is_found(model: impl FnOnce()) -> String {
    let found = catch_unwind(AssertUnwindSafe(model)).expect_err("the fault is found");
    match found.downcast::<String>() {
        Ok(found) => *found,
        Err(other) => (*other.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// One guard is dropped while another task of its session comes, which is polled once.
fn stand_behind(fault: Fault) {
    loom::model(move || {
        let (front, guard) = Front::with_guard(fault);
        let theirs = Arc::clone(&front);
        let other = thread::spawn(move || match theirs.attempt(HERE) {
            Came::In(guard) => {
                theirs.leave(&guard);
                None
            }
            Came::Late => None,
            Came::Behind(ticket) => {
                let bell = std::sync::Arc::new(Bell(AtomicBool::new(false)));
                let mut waker = Some(Waker::from(std::sync::Arc::clone(&bell)));
                let is_over = theirs.order.lock().unwrap().look(ticket, &mut waker);
                (!is_over).then_some((ticket, bell))
            }
        });
        front.leave(&guard);
        if let Some((ticket, bell)) = other.join().unwrap() {
            assert!(bell.0.load(Ordering::Relaxed), "it sleeps for ever");
            let is_over = front.order.lock().unwrap().look(ticket, &mut None);
            assert!(is_over);
        }
        front.assert_at_rest();
    });
}

#[test]
fn the_end_of_a_release_lets_nobody_go_who_stands_behind_another_one() {
    check(None, || {
        let (front, here) = Front::with_guard(Fault::None);
        let elsewhere = front.acquire(ELSEWHERE);
        assert!(front.begin_release(&here) && front.begin_release(&elsewhere));
        let behind = [HERE, ELSEWHERE].map(|what| match front.attempt(what) {
            Came::Behind(ticket) => ticket,
            Came::In(_) | Came::Late => panic!("it is being released"),
        });
        let is_over = |ticket| front.order.lock().unwrap().look(ticket, &mut None);
        front.release(&here);
        assert_eq!(behind.map(is_over), [true, false]);
        front.release(&elsewhere);
        assert_eq!(behind.map(is_over), [true, true]);
        front.assert_at_rest();
    });
}

#[test]
fn who_stands_behind_a_release_is_woken_when_it_is_over() {
    stand_behind(Fault::None);
}

#[test]
fn who_begins_to_wait_for_a_release_after_the_table_is_free_is_not_woken() {
    let found = what_is_found(|| stand_behind(Fault::StandsLate));
    assert_eq!(found, "it sleeps for ever");
}

#[test]
fn a_grant_from_before_the_end_is_believed_by_who_did_not_say_that_it_asks() {
    let found = what_is_found(|| come_and_go(Fault::AsksLate, 1, None));
    assert!(found.contains("a guard without a lease"), "{found}");
}

#[test]
fn a_grant_is_believed_whose_release_was_decided_before_it_was_said() {
    let found = what_is_found(|| come_and_go(Fault::ReleasesLate, 1, Some(3)));
    assert!(found.contains("a guard without a lease"), "{found}");
}

#[test]
fn who_stands_behind_a_release_that_is_dropped_or_fails_goes_on() {
    for sent in [false, true] {
        check(Some(3), move || {
            let (front, guard) = Front::with_guard(Fault::None);
            let other = comes_and_goes(&front);
            if front.begin_release(&guard) {
                if sent {
                    // No answer came: the guard stays, and goes later.
                    front.settle(&guard, false);
                }
                front.leave(&guard);
            }
            other.join().unwrap();
            front.assert_at_rest();
        });
    }
}

#[test]
fn who_stands_behind_a_release_that_is_dropped_goes_on_where_the_authority_has_ended_the_lease() {
    loom::model(|| {
        let (front, guard) = Front::with_guard(Fault::None);
        let other = comes_and_goes(&front);
        if front.begin_release(&guard) {
            front.revoke(&guard);
            front.leave(&guard);
        }
        other.join().unwrap();
        front.assert_at_rest();
    });
}

#[test]
fn who_comes_and_goes_elsewhere_keeps_nobody_from_coming_here() {
    for polls in 1..=2 {
        check(Some(3), move || {
            let (front, guard) = Front::with_guard(Fault::None);
            let theirs = Arc::clone(&front);
            let other = thread::spawn(move || {
                for _ in 0..polls {
                    let guard = theirs.acquire(ELSEWHERE);
                    theirs.leave(&guard);
                }
            });
            front.leave(&guard);
            drop(guard);
            let guard = front.acquire(HERE);
            front.leave(&guard);
            other.join().unwrap();
            front.assert_at_rest();
        });
    }
}

#[test]
fn who_has_no_seat_any_more_does_not_leave_without_the_table() {
    loom::model(|| {
        let (front, guard) = Front::with_guard(Fault::None);
        front.revoke(&guard);
        assert!(!guard.seat.leaves_quietly());
        front.leave(&guard);
        front.assert_at_rest();
    });
}
