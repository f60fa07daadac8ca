//! Threads on which nobody may wait, and the exceptions.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{
    AcquireError, AllowBlocking, AllowedSite, Blocking, ForbidBlocking, GuardError, Hold, Lane,
    LockOptions, WaitBudget, WriteLock,
};

use crate::rig::{BOUND, Place, Writer, now, within};

#[track_caller]
fn forbidden(outcome: Result<Hold, AcquireError>) -> AcquireError {
    match outcome {
        Err(error @ AcquireError::Forbidden { .. }) => error,
        other => panic!("{other:?}"),
    }
}

/// Takes the lock and gives it back, with time to wait.
fn pair(lock: &WriteLock) -> Result<(), AcquireError> {
    lock.acquire(within(BOUND)).map(drop)
}

/// How often a site was granted an exception, and how often it was used.
fn counted(lock: &WriteLock, site: &str) -> (u64, u64) {
    let sites = lock.health().blocking.sites;
    let mut found = sites.into_iter().filter(|counted| counted.site == site);
    found
        .next()
        .map_or((0, 0), |site| (site.granted, site.used))
}

// C101
#[test]
fn a_thread_that_forbids_blocking_refuses_what_may_wait_and_holds_nothing() {
    let place = Place::new();
    let lock = place.lock();
    let refused_before = Blocking::of_this_process().refused;
    let mark = ForbidBlocking::on_this_thread();
    let error = forbidden(lock.acquire(within(BOUND)));
    let text = error.to_string();
    for way_out in ["acquire_async", "AllowBlocking", "app.db.write-lock"] {
        assert!(text.contains(way_out), "{text}");
    }
    assert_eq!(error.code(), None);
    forbidden(lock.acquire_on(&Lane::new(), WaitBudget::Forever));
    assert_eq!(place.names(), [""; 0], "nothing was even opened");
    // However sure it is that it would not wait.
    let hold = now(&lock).unwrap();
    forbidden(lock.acquire(within(BOUND)));
    assert_eq!(lock.health().depth, 1);
    hold.release().unwrap();
    let mut other = Writer::start(&place);
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    // At once, and not after the ten seconds.
    forbidden(lock.acquire(WaitBudget::Forever));
    assert!(matches!(now(&lock), Err(AcquireError::Busy(_))));
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    assert!(lock.health().blocking.refused >= refused_before + 4);
    drop(mark);
    pair(&lock).unwrap();
}

// C101
#[test]
fn a_guarded_write_that_takes_the_lock_is_refused_and_what_goes_on_or_ends_is_not() {
    let place = Place::new();
    let open = || {
        let connection = Connection::open(place.database()).unwrap();
        LockOptions::new().guard(connection).unwrap()
    };
    let mut guarded = open();
    let mut other = Writer::start(&place);
    guarded.execute("CREATE TABLE note (text)", []).unwrap();
    let mark = ForbidBlocking::on_this_thread();
    // The budget is zero, but a write waits for the disk.
    let insert = "INSERT INTO note VALUES ('hello')";
    let refused = guarded.execute(insert, []).unwrap_err();
    assert!(matches!(
        refused,
        GuardError::Lock(AcquireError::Forbidden { .. })
    ));
    assert!(matches!(
        guarded.transaction(),
        Err(GuardError::Lock(AcquireError::Forbidden { .. }))
    ));
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
    let count = "SELECT count(*) FROM note";
    let notes = guarded.query(count, [], |row| row.get::<_, i64>(0));
    assert_eq!(notes.unwrap(), [0]);
    drop(mark);
    // One that has the lock goes on: to refuse it would only make its hold longer.
    let transaction = guarded.transaction().unwrap();
    let mark = ForbidBlocking::on_this_thread();
    transaction.execute(insert, []).unwrap();
    transaction.commit().unwrap();
    drop(mark);
    guarded.execute("BEGIN IMMEDIATE", []).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    let _mark = ForbidBlocking::on_this_thread();
    guarded.close().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
    assert_eq!(
        open().query(count, [], |row| row.get::<_, i64>(0)).unwrap(),
        [1]
    );
}

// C101
#[test]
fn an_exception_lifts_the_ban_by_name_and_is_counted() {
    const SITE: &str = "forbid::counted";
    let place = Place::new();
    let lock = place.lock();
    let mark = ForbidBlocking::on_this_thread();
    {
        let _lifted = AllowBlocking::new(SITE, "a test");
        pair(&lock).unwrap();
        pair(&lock).unwrap();
        now(&lock).unwrap().release().unwrap();
        {
            let _within = AllowBlocking::new("forbid::inner", "another test");
            pair(&lock).unwrap();
        }
        pair(&lock).unwrap();
        // The newest counts: what is called from here may forbid it again.
        let again = ForbidBlocking::on_this_thread();
        forbidden(lock.acquire(within(BOUND)));
        drop(again);
        pair(&lock).unwrap();
    }
    forbidden(lock.acquire(within(BOUND)));
    assert_eq!(counted(&lock, SITE), (1, 4));
    assert_eq!(counted(&lock, "forbid::inner"), (1, 1));
    drop(mark);
    // What nobody forbids needs no exception, and uses none.
    let lifted = AllowBlocking::new(SITE, "other words");
    pair(&lock).unwrap();
    drop(lifted);
    assert_eq!(counted(&lock, SITE), (2, 4));
    let sites = Blocking::of_this_process().sites;
    let is_ours = |site: &&AllowedSite| site.site == SITE;
    assert_eq!(sites.iter().find(is_ours).unwrap().reason, "a test");
}

// C101
#[test]
fn a_guarded_write_uses_an_exception_once() {
    const SITE: &str = "forbid::guarded";
    let place = Place::new();
    let connection = Connection::open(place.database()).unwrap();
    let mut guarded = LockOptions::new().guard(connection).unwrap();
    guarded.set_wait(within(BOUND));
    let _mark = ForbidBlocking::on_this_thread();
    let _lifted = AllowBlocking::new(SITE, "a test");
    guarded.execute("CREATE TABLE note (text)", []).unwrap();
    assert_eq!(counted(guarded.lock(), SITE), (1, 1));
}

#[test]
fn marks_may_go_in_any_order() {
    let place = Place::new();
    let lock = place.lock();
    let site = "forbid::any_order";
    let first = ForbidBlocking::on_this_thread();
    let lifted = AllowBlocking::new(site, "a test");
    drop(first);
    pair(&lock).unwrap();
    let second = ForbidBlocking::on_this_thread();
    drop(lifted);
    forbidden(lock.acquire(within(BOUND)));
    let third = ForbidBlocking::on_this_thread();
    drop(second);
    forbidden(lock.acquire(within(BOUND)));
    drop(third);
    pair(&lock).unwrap();
}

#[test]
fn a_panic_takes_its_marks_along() {
    let place = Place::new();
    let lock = place.lock();
    let _mark = ForbidBlocking::on_this_thread();
    let panics = AssertUnwindSafe(|| {
        let _lifted = AllowBlocking::new("forbid::panic", "a test");
        pair(&lock).unwrap();
        panic!("as planned");
    });
    assert!(catch_unwind(panics).is_err());
    forbidden(lock.acquire(within(BOUND)));
}

#[test]
fn a_mark_is_of_its_thread_and_may_be_the_last_thing_that_goes() {
    thread_local! {
        static LATE: RefCell<Option<ForbidBlocking>> = const { RefCell::new(None) };
    }
    let place = Place::new();
    let lock = place.lock();
    let _mark = ForbidBlocking::on_this_thread();
    // What goes first at the end of a thread is what came first, or what came last.
    for is_first in [false, true] {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                if is_first {
                    LATE.with(|late| assert!(late.borrow().is_none()));
                }
                pair(&lock).unwrap();
                let own = ForbidBlocking::on_this_thread();
                LATE.with(|late| *late.borrow_mut() = Some(own));
                forbidden(lock.acquire(within(BOUND)));
            });
            other.join().unwrap();
        });
    }
    forbidden(lock.acquire(within(BOUND)));
}

// C101
#[test]
fn a_task_forbids_blocking_wherever_it_is_polled_and_nowhere_else() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let place = Place::new();
    let lock = std::sync::Arc::new(place.lock());
    let tasks = (0..8).map(|_| {
        let lock = std::sync::Arc::clone(&lock);
        runtime.spawn(ForbidBlocking::during(async move {
            for _hop in 0..20 {
                forbidden(lock.acquire(within(BOUND)));
                tokio::task::yield_now().await;
            }
        }))
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        tokio::spawn(async move { pair(&lock).unwrap() })
            .await
            .unwrap();
    });
}

// C101
#[test]
fn an_exception_of_a_task_outlives_an_await_and_ends_where_it_ends() {
    let place = Place::new();
    let lock = place.lock();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(ForbidBlocking::during(async {
        forbidden(lock.acquire(within(BOUND)));
        let lifted = AllowBlocking::new("across an await", "a test");
        pair(&lock).unwrap();
        for _poll in 0..3 {
            tokio::task::yield_now().await;
            pair(&lock).unwrap();
        }
        drop(lifted);
        tokio::task::yield_now().await;
        forbidden(lock.acquire(within(BOUND)));
    }));
    assert_eq!(counted(&lock, "across an await"), (1, 4));
    pair(&lock).unwrap();
}
