//! What several threads do at once, in every order of them: answers that are handed over, and leases that are
//! released while somebody asks for them again.
//!
//! It runs the very files of the front end, under a lock as there; a waker is woken after the lock is free.
//! `cargo xtask ci` runs it.

#[cfg(test)]
mod atomic {
    //! What every order of threads is to be seen of.
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
}
#[cfg(test)]
#[expect(dead_code, reason = "not all of it is handed over")]
#[path = "../../lease-async/src/memory/places.rs"]
mod places;
#[cfg(test)]
#[path = "../../lease-async/src/release.rs"]
mod release;
#[cfg(test)]
mod releases;
#[cfg(test)]
#[expect(
    dead_code,
    reason = "a session has one row here, and nobody surveys it"
)]
#[path = "../../lease-async/src/rooms.rs"]
mod rooms;
#[cfg(test)]
mod handover {
    //! An answer on its way to somebody who waits, leaves or is turned away.

    use core::future::poll_fn;
    use core::task::{Context, Poll, Waker};

    use loom::future::block_on;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::places::{Left, Look, Places};

    /// One grant, as somebody who decides has it.
    const GRANT: u32 = 7;

    /// What the authority keeps, and what became of its grants.
    struct Authority {
        places: Mutex<Places<u8, u32>>,
        received: AtomicUsize,
        given_back: AtomicUsize,
    }

    impl Authority {
        fn with_waiters(waiters: &[u8]) -> Arc<Self> {
            let mut places = Places::new();
            waiters.iter().for_each(|who| places.add(*who));
            Arc::new(Self {
                places: Mutex::new(places),
                received: AtomicUsize::new(0),
                given_back: AtomicUsize::new(0),
            })
        }

        /// Grants to the first of these who is there.
        fn grant(&self, to: &[u8]) {
            let mut places = self.places.lock().unwrap();
            let mut woken = None;
            let mut grant = Some(GRANT);
            for who in to {
                let Some(given) = grant.take() else { break };
                match places.deliver(*who, given) {
                    Ok(waker) => woken = waker,
                    Err(back) => grant = Some(back),
                }
            }
            drop(places);
            if grant.is_some() {
                self.given_back.fetch_add(1, Ordering::SeqCst);
            }
            if let Some(waker) = woken {
                waker.wake();
            }
        }

        /// A waker is cloned, and dropped, while the lock is free: before, or when it is asked for.
        fn poll(&self, who: u8, cx: &Context<'_>, mut fresh: Option<Waker>) -> Poll<Option<u32>> {
            loop {
                let look = self
                    .places
                    .lock()
                    .unwrap()
                    .look(who, cx.waker(), &mut fresh);
                match look {
                    Look::Waits => return Poll::Pending,
                    Look::Unknown => fresh = Some(cx.waker().clone()),
                    Look::Answer(grant) => {
                        self.received.fetch_add(1, Ordering::SeqCst);
                        return Poll::Ready(Some(grant));
                    }
                    Look::Shut => return Poll::Ready(None),
                }
            }
        }

        /// Waits as a task does.
        fn wait(&self, who: u8) -> Option<u32> {
            block_on(poll_fn(|cx| self.poll(who, cx, Some(cx.waker().clone()))))
        }

        /// Goes; what was granted meanwhile goes to the next one, in the same critical section.
        fn leave(&self, who: u8, next: &[u8]) {
            let mut places = self.places.lock().unwrap();
            let left = places.take(who);
            let mut woken = None;
            if let Left::Answer(grant) = left {
                let passed_on =
                    next.iter()
                        .try_fold(grant, |grant, next| match places.deliver(*next, grant) {
                            Ok(waker) => {
                                woken = waker;
                                Err(())
                            }
                            Err(grant) => Ok(grant),
                        });
                if passed_on.is_ok() {
                    self.given_back.fetch_add(1, Ordering::SeqCst);
                }
            }
            drop(places);
            if let Some(waker) = woken {
                waker.wake();
            }
        }

        fn shut(&self, who: u8) {
            let woken = self.places.lock().unwrap().shut(who);
            if let Some(waker) = woken {
                waker.wake();
            }
        }

        /// How many grants were received, and how many given back. No place is left.
        fn count(&self) -> (usize, usize) {
            assert_eq!(self.places.lock().unwrap().len(), 0);
            let count = |which: &AtomicUsize| which.load(Ordering::SeqCst);
            (count(&self.received), count(&self.given_back))
        }
    }

    #[test]
    fn a_grant_wakes_who_waits_for_it() {
        loom::model(|| {
            let authority = Authority::with_waiters(&[1]);
            let theirs = Arc::clone(&authority);
            let granting = thread::spawn(move || theirs.grant(&[1]));
            assert_eq!(authority.wait(1), Some(GRANT));
            granting.join().unwrap();
            assert_eq!(authority.count(), (1, 0));
        });
    }

    #[test]
    fn a_grant_to_who_leaves_at_the_same_time_is_received_or_given_back_once() {
        for polls in 0..3 {
            loom::model(move || {
                let authority = Authority::with_waiters(&[1]);
                let theirs = Arc::clone(&authority);
                let granting = thread::spawn(move || theirs.grant(&[1]));
                let cx = Context::from_waker(Waker::noop());
                let received = (0..polls).any(|_| authority.poll(1, &cx, None).is_ready());
                if !received {
                    authority.leave(1, &[]);
                }
                granting.join().unwrap();
                let (received, given_back) = authority.count();
                assert_eq!(received + given_back, 1);
            });
        }
    }

    #[test]
    fn a_grant_that_is_given_back_wakes_the_next_one() {
        loom::model(|| {
            let authority = Authority::with_waiters(&[1, 2]);
            let granting = Arc::clone(&authority);
            let granting = thread::spawn(move || granting.grant(&[1, 2]));
            let leaving = Arc::clone(&authority);
            let leaving = thread::spawn(move || {
                let cx = Context::from_waker(Waker::noop());
                match leaving.poll(1, &cx, Some(Waker::noop().clone())) {
                    // It has the lease, and passes it on when it is done.
                    Poll::Ready(grant) => {
                        assert_eq!(grant, Some(GRANT));
                        leaving.grant(&[2]);
                    }
                    Poll::Pending => leaving.leave(1, &[2]),
                }
            });
            assert_eq!(authority.wait(2), Some(GRANT));
            granting.join().unwrap();
            leaving.join().unwrap();
            assert_eq!(authority.count().1, 0);
        });
    }

    #[test]
    fn the_latest_task_that_polled_is_woken() {
        loom::model(|| {
            let authority = Authority::with_waiters(&[1]);
            let theirs = Arc::clone(&authority);
            let granting = thread::spawn(move || theirs.grant(&[1]));
            let elsewhere = Context::from_waker(Waker::noop());
            if authority.poll(1, &elsewhere, None).is_pending() {
                assert_eq!(authority.wait(1), Some(GRANT));
            }
            granting.join().unwrap();
            assert_eq!(authority.count(), (1, 0));
        });
    }

    #[test]
    fn who_is_turned_away_is_woken_and_a_grant_after_that_is_given_back() {
        loom::model(|| {
            let authority = Authority::with_waiters(&[1]);
            let (granting, shutting) = (Arc::clone(&authority), Arc::clone(&authority));
            let granting = thread::spawn(move || granting.grant(&[1]));
            let shutting = thread::spawn(move || shutting.shut(1));
            let received = authority.wait(1);
            granting.join().unwrap();
            shutting.join().unwrap();
            let expected = if received.is_some() { (1, 0) } else { (0, 1) };
            assert_eq!(authority.count(), expected);
        });
    }
}
