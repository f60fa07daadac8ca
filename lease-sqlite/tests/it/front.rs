//! The lock for tasks: waiting, giving up, and what is left of it.

use std::fs::{self, Permissions};
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lease_sqlite::{
    AcquireError, Busy, FaultPoint, ForbidBlocking, Hold, Lane, LockOptions, Released, Step,
    WaitBudget, WriteLock,
};
use rustix::process::{Resource, Rlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::rig::{BOUND, Place, Writer, not_run, now, until, within};
use crate::sys::{in_child, in_child_as_nobody, is_root, kill};
use crate::turns::waiting_at_gate;

/// Two threads, and one more that may block.
fn two_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(2).max_blocking_threads(1);
    builder.enable_time().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A lock of which two threads or tasks may have a share.
fn shared(place: &Place) -> Arc<WriteLock> {
    Arc::new(place.lock())
}

/// Waits for the lock in a task of its own.
fn task(
    runtime: &Runtime,
    lock: &Arc<WriteLock>,
    budget: WaitBudget,
) -> JoinHandle<Result<Hold, AcquireError>> {
    let lock = Arc::clone(lock);
    runtime.spawn(async move { lock.acquire_async(budget).await })
}

/// Has the lock once, in a task of its own, and gives it back. Returns whether it had to wait.
fn turn(runtime: &Runtime, lock: &Arc<WriteLock>) -> JoinHandle<bool> {
    let lock = Arc::clone(lock);
    runtime.spawn(async move {
        let hold = lock.acquire_async(within(BOUND)).await.unwrap();
        let contended = hold.granted().contended;
        assert_eq!(hold.release().unwrap(), Released::Lock);
        contended
    })
}

/// Polls once, with a waker that does nothing.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// An executor of one thread that knows nothing of tokio.
pub(crate) fn plain<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

#[track_caller]
fn busy(outcome: Result<Hold, AcquireError>) -> Busy {
    match outcome {
        Err(AcquireError::Busy(busy)) => *busy,
        other => panic!("{other:?}"),
    }
}

/// Nobody of this process holds or waits, and another one gets the lock.
#[track_caller]
fn nothing_is_left(lock: &WriteLock, other: &mut Writer) {
    until("nobody waits", || lock.waiting() == 0);
    until("nobody holds", || lock.health().depth == 0);
    let order = format!("acquire {}", BOUND.as_millis());
    assert_eq!(other.does(&order), "granted depth=1");
    assert_eq!(other.does("release"), "Some(Ok(Lock))");
}

/// Counts its turns.
fn ticker(runtime: &Runtime) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let ticks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ticks);
    let task = runtime.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (ticks, task)
}

/// Eight tasks wait for another process, and all of them get the lock; a ninth task ticks meanwhile.
fn eight_wait(runtime: &Runtime, drive: impl Fn(&mut dyn FnMut() -> bool)) {
    const TICKS: usize = 200;
    let place = Place::new();
    let lock = shared(&place);
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let (ticks, ticker) = ticker(runtime);
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks = (0..8).map(|_| {
        let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
        // As on a thread that serves others.
        runtime.spawn(ForbidBlocking::during(async move {
            let hold = lock.acquire_async(within(BOUND)).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            hold.check().unwrap();
            hold.release().unwrap()
        }))
    });
    let tasks: Vec<_> = tasks.collect();
    drive(&mut || lock.waiting() == 8);
    let before = ticks.load(Ordering::Relaxed);
    drive(&mut || ticks.load(Ordering::Relaxed) >= before + TICKS);
    assert_eq!(lock.waiting(), 8, "all of them still wait");
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    drive(&mut || tasks.iter().all(JoinHandle::is_finished));
    for task in tasks {
        assert_eq!(runtime.block_on(task).unwrap(), Released::Lock);
    }
    ticker.abort();
    nothing_is_left(&lock, &mut holder);
}

// C101, fault B14
#[test]
fn tasks_that_wait_for_another_process_leave_the_threads_of_their_runtime_to_others() {
    eight_wait(&two_threads(), |is_so| until("it goes on", is_so));
    let runtime = one_thread();
    eight_wait(&runtime, |is_so| {
        // The one thread runs all of them, and this look, too.
        runtime.block_on(async {
            tokio::time::timeout(BOUND, async {
                while !is_so() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
            .await
            .expect("it goes on");
        });
    });
}

// C101
#[test]
fn the_blocking_threads_of_a_runtime_are_not_needed() {
    let place = Place::new();
    let lock = shared(&place);
    let runtime = two_threads();
    let (end, is_over) = channel::<()>();
    let blocks = runtime.spawn_blocking(move || is_over.recv().is_err());
    let (let_go, may_go) = tokio::sync::oneshot::channel::<()>();
    let own = Arc::clone(&lock);
    let holder = runtime.spawn(async move {
        let hold = own.acquire_async(WaitBudget::Forever).await.unwrap();
        may_go.await.unwrap();
        hold.release().unwrap()
    });
    until("it holds", || lock.health().depth == 1);
    let tasks: Vec<_> = (0..8).map(|_| turn(&runtime, &lock)).collect();
    until("all wait", || lock.waiting() == 8);
    let_go.send(()).unwrap();
    assert_eq!(runtime.block_on(holder).unwrap(), Released::Lock);
    for task in tasks {
        assert!(runtime.block_on(task).unwrap());
    }
    assert!(!blocks.is_finished());
    drop(end);
}

#[test]
fn any_executor_will_do_and_the_first_opening_is_not_made_on_its_thread() {
    let place = Place::new();
    let opened_on = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&opened_on);
    let options = LockOptions::new().observer(move |_event| {
        let name = thread::current().name().map(str::to_owned);
        names.lock().unwrap().push(name.unwrap_or_default());
    });
    let lock = options.open(place.database()).unwrap();
    let own = thread::current().name().map(str::to_owned).unwrap();
    for _time in 0..2 {
        plain(lock.acquire_async(within(BOUND)))
            .unwrap()
            .release()
            .unwrap();
    }
    // What was granted first was granted elsewhere, and the second by the first poll.
    let expected = ["write-lock-front", &own, &own, &own];
    assert_eq!(*opened_on.lock().unwrap(), expected);
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| plain(lock.acquire_async(within(BOUND))).map(drop));
        until("it waits", || lock.waiting() == 1);
        assert_eq!(holder.does("release"), "Some(Ok(Lock))");
        waiter.join().unwrap().unwrap();
    });
}

// C65
#[test]
fn a_task_enters_a_hold_only_with_it_or_its_lane() {
    let place = Place::new();
    let lock = shared(&place);
    one_thread().block_on(async {
        let lane = Lane::new();
        let hold = lock.acquire_async_on(&lane, WaitBudget::NOW).await.unwrap();
        // All run on this one thread.
        let other = Arc::clone(&lock);
        let stranger =
            tokio::spawn(async move { busy(other.acquire_async(WaitBudget::NOW).await) });
        assert_eq!(stranger.await.unwrap().locked_by, None);
        busy(now(&lock));
        busy(lock.acquire_async(WaitBudget::NOW).await);
        let entry = hold.again().unwrap();
        let heir = tokio::spawn(async move { (entry.granted().depth, entry.release().unwrap()) });
        assert_eq!(heir.await.unwrap(), (2, Released::Depth(1)));
        let budgets = [WaitBudget::NOW, within(BOUND), WaitBudget::Forever];
        for budget in budgets {
            let entry = lock.acquire_async_on(&lane, budget).await.unwrap();
            assert_eq!(
                (entry.granted().depth, entry.granted().contended),
                (2, false)
            );
        }
        assert_eq!(hold.release().unwrap(), Released::Lock);
    });
}

#[test]
fn a_hold_goes_to_other_threads_and_a_task_that_ends_gives_it_back() {
    let place = Place::new();
    let lock = shared(&place);
    let runtime = two_threads();
    let mut other = Writer::start(&place);
    let hold = runtime.block_on(lock.acquire_async(within(BOUND))).unwrap();
    let hold = thread::spawn(move || hold).join().unwrap();
    hold.check().unwrap();
    let holds = runtime.spawn(async move {
        let _hold = hold;
        std::future::pending::<()>().await;
    });
    assert!(other.does("acquire 0").starts_with("busy"));
    holds.abort();
    nothing_is_left(&lock, &mut other);
    let hold = runtime.block_on(lock.acquire_async(within(BOUND))).unwrap();
    let panics = runtime.spawn(async move {
        let _hold = hold;
        panic!("as planned");
    });
    assert!(runtime.block_on(panics).is_err());
    nothing_is_left(&lock, &mut other);
}

#[test]
fn tasks_and_threads_stand_in_one_line() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let runtime = two_threads();
    let hold = now(&lock).unwrap();
    let log = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..8 {
            let (lock, runtime, log) = (&lock, &runtime, &log);
            scope.spawn(move || {
                let outcome = if number % 2 == 0 {
                    let waits = task(runtime, lock, within(BOUND));
                    runtime.block_on(waits).unwrap()
                } else {
                    lock.acquire(within(BOUND))
                };
                let hold = outcome.unwrap();
                log.lock().unwrap().push(number);
                hold.release().unwrap();
            });
            until("it waits", || lock.waiting() == number + 1);
        }
        hold.release().unwrap();
    });
    assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_wait_that_is_dropped_is_taken_back_whatever_it_has_come_to() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let mut holder = Writer::start(&place);
    drop(lock.acquire_async(WaitBudget::Forever));
    for polls in 0..4 {
        for others in [false, true] {
            assert_eq!(holder.does("acquire 0"), "granted depth=1");
            let runtime = one_thread();
            let mut dropped = Box::pin(lock.acquire_async(WaitBudget::Forever));
            for _poll in 0..polls {
                assert!(poll(dropped.as_mut()).is_pending());
            }
            // One that stands behind it loses nothing.
            let own = Arc::clone(&lock);
            let mut behind = Box::pin(async move { own.acquire_async(within(BOUND)).await });
            if others {
                assert!(poll(behind.as_mut()).is_pending());
                until("it waits", || lock.waiting() > usize::from(polls > 0));
            }
            drop(dropped);
            if others {
                until("it is gone", || lock.waiting() == 1);
                assert_eq!(holder.does("release"), "Some(Ok(Lock))");
                drop(runtime.block_on(behind).unwrap());
            } else {
                assert_eq!(holder.does("release"), "Some(Ok(Lock))");
            }
            nothing_is_left(&lock, &mut holder);
        }
    }
}

#[test]
fn a_grant_that_nobody_receives_any_more_is_given_back() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let mut holder = Writer::start(&place);
    // It has come, and was not looked at.
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let mut waits = Box::pin(lock.acquire_async(WaitBudget::Forever));
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    until("it is granted", || lock.health().depth == 1);
    drop(waits);
    nothing_is_left(&lock, &mut holder);
    // It is just coming: under the kernel lock, and before anything is written.
    for point in [FaultPoint::Passed, FaultPoint::Moved, FaultPoint::Write] {
        assert_eq!(holder.does("acquire 0"), "granted depth=1");
        let ((reached, is_reached), (go_on, may_go_on)) = (channel(), channel());
        lock.meanwhile(point, move || {
            reached.send(()).unwrap();
            may_go_on.recv_timeout(BOUND).unwrap();
        });
        let mut waits = Box::pin(lock.acquire_async(WaitBudget::Forever));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(holder.does("release"), "Some(Ok(Lock))");
        is_reached.recv_timeout(BOUND).unwrap();
        drop(waits);
        go_on.send(()).unwrap();
        nothing_is_left(&lock, &mut holder);
    }
}

#[test]
fn a_deadline_is_kept_whether_or_not_anybody_polls() {
    let place = Place::new();
    let lock = shared(&place);
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    // No time: one attempt, and no place in the line.
    let opened = busy(plain(lock.acquire_async(WaitBudget::NOW)));
    assert_eq!(opened.holder.unwrap().pid.get(), holder.pid());
    let attempts = lock.passes(FaultPoint::Begin);
    busy(plain(lock.acquire_async(WaitBudget::NOW)));
    assert!(lock.passes(FaultPoint::Begin) > attempts);
    assert_eq!(lock.waiting(), 0);
    let time = Duration::from_millis(60);
    let mut waits = Box::pin(lock.acquire_async(within(time)));
    let mut behind = Box::pin(lock.acquire_async(within(time)));
    assert!(poll(waits.as_mut()).is_pending());
    assert!(poll(behind.as_mut()).is_pending());
    until("both have given up", || lock.waiting() == 0);
    for ended in [waits, behind] {
        let refused = busy(plain(ended));
        assert!(refused.waited >= time, "{refused:?}");
        assert_eq!(refused.holder.unwrap().pid.get(), holder.pid());
    }
    // Behind somebody who waits on.
    let mut first = Box::pin(lock.acquire_async(WaitBudget::Forever));
    let mut behind = Box::pin(lock.acquire_async(within(time)));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(behind.as_mut()).is_pending());
    until("the second has given up", || lock.waiting() == 1);
    assert!(busy(plain(behind)).waited >= time);
    assert!(poll(first.as_mut()).is_pending());
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    plain(first).unwrap().release().unwrap();
    nothing_is_left(&lock, &mut holder);
}

#[test]
fn a_clock_that_is_given_says_when_a_task_has_waited_enough() {
    let place = Place::new();
    let (lock, timing) = place.timed();
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let mut waits = Box::pin(lock.acquire_async(within(Duration::from_millis(60))));
    assert!(poll(waits.as_mut()).is_pending());
    timing.advance(59);
    let attempts = lock.passes(FaultPoint::Begin);
    until("it tries", || lock.passes(FaultPoint::Begin) > attempts + 1);
    assert!(poll(waits.as_mut()).is_pending());
    timing.advance(1);
    assert_eq!(busy(plain(waits)).waited.as_millis(), 60);
    assert_eq!(timing.sleeps_ms(), [0_u128; 0], "no thread slept");
}

#[test]
fn a_runtime_that_ends_takes_its_waits_and_holds_along() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let mut holder = Writer::start(&place);
    for runtime in [two_threads(), one_thread()] {
        assert_eq!(holder.does("acquire 0"), "granted depth=1");
        let tasks: Vec<_> = (0..3)
            .map(|_| task(&runtime, &lock, WaitBudget::Forever))
            .collect();
        runtime.block_on(async {
            while lock.waiting() < 3 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        drop((runtime, tasks));
        assert_eq!(holder.does("release"), "Some(Ok(Lock))");
        nothing_is_left(&lock, &mut holder);
    }
    let runtime = one_thread();
    let hold = runtime.block_on(lock.acquire_async(within(BOUND))).unwrap();
    runtime.spawn(async move {
        let _hold = hold;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    nothing_is_left(&lock, &mut holder);
}

#[test]
fn tasks_get_the_lock_of_a_process_that_is_killed_even_if_its_gate_stays_shut() {
    for is_cloned in [false, true] {
        let place = Place::new();
        let lock = Arc::new(place.deaf());
        let runtime = two_threads();
        let mut holder = Writer::start(&place);
        assert_eq!(holder.does("acquire 0"), "granted depth=1");
        let child: Option<i32> = is_cloned.then(|| holder.does("clone").parse().unwrap());
        // Behind a gate that stays shut nobody rings for the second one.
        let waiting = if is_cloned { 1 } else { 3 };
        let tasks: Vec<_> = (0..waiting).map(|_| turn(&runtime, &lock)).collect();
        until("all wait", || lock.waiting() == waiting);
        until("the first stands outside", || waiting_at_gate(&place) > 0);
        holder.kill();
        for task in tasks {
            assert!(runtime.block_on(task).unwrap());
        }
        nothing_is_left(&lock, &mut Writer::start(&place));
        // Only now, as it has kept the gate shut.
        child.into_iter().for_each(kill);
    }
}

#[test]
fn a_panic_on_the_way_reaches_whoever_awaits_and_nobody_else() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let runtime = two_threads();
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let first = task(&runtime, &lock, within(BOUND));
    until("it waits", || lock.waiting() == 1);
    let second = task(&runtime, &lock, within(BOUND));
    until("it waits", || lock.waiting() == 2);
    lock.meanwhile(FaultPoint::Passed, || panic!("as planned"));
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    assert!(runtime.block_on(first).unwrap_err().is_panic());
    drop(runtime.block_on(second).unwrap().unwrap());
    nothing_is_left(&lock, &mut holder);
}

#[test]
fn many_tasks_that_give_up_at_any_moment_leave_nothing_and_lose_nobody() {
    let place = Place::new();
    let lock = shared(&place);
    let runtime = two_threads();
    let mut other = Writer::start(&place);
    for round in 0..20_u64 {
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        let tasks: Vec<_> = (0..16).map(|_| turn(&runtime, &lock)).collect();
        until("some wait", || lock.waiting() > 0);
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        let mut kept = Vec::new();
        for (number, task) in (0_u64..).zip(tasks) {
            // Which of them differs from round to round.
            if (number * 7 + round).is_multiple_of(3) {
                kept.push(task);
            } else {
                task.abort();
            }
        }
        for task in kept {
            runtime.block_on(task).unwrap();
        }
        nothing_is_left(&lock, &mut other);
    }
}

#[test]
fn a_forked_child_leaves_the_wait_of_its_parent_alone_and_waits_by_itself() {
    let place = Place::new();
    let lock = Arc::new(place.deaf());
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let mut waits = Some(Box::pin(lock.acquire_async(WaitBudget::Forever)));
    assert!(poll(waits.as_mut().unwrap().as_mut()).is_pending());
    let failed = in_child(|| {
        drop(waits.take());
        let forked = plain(lock.acquire_async(WaitBudget::Forever));
        assert!(matches!(forked, Err(AcquireError::Forked { .. })));
        let own = place.lock();
        busy(plain(own.acquire_async(within(Duration::from_millis(30)))));
    });
    assert!(!failed);
    assert_eq!(lock.waiting(), 1);
    assert_eq!(holder.does("release"), "Some(Ok(Lock))");
    let hold = plain(waits.unwrap()).unwrap();
    assert!(hold.granted().contended);
    hold.release().unwrap();
    nothing_is_left(&lock, &mut holder);
}

/// Lets a wait fail by a limit of its process, and succeed without it.
fn fails_under(place: &Place, limited: Resource) {
    let lock = place.lock();
    let limits = rustix::process::getrlimit(limited);
    let none = Rlimit {
        current: Some(0),
        ..limits
    };
    // Where it may not block, nor wait for the end of anything.
    let runtime = one_thread();
    let outcome = runtime.block_on(async {
        rustix::process::setrlimit(limited, none).unwrap();
        let outcome = lock.acquire_async(within(BOUND)).await;
        rustix::process::setrlimit(limited, limits).unwrap();
        outcome
    });
    let Err(
        error @ AcquireError::Io {
            step: Step::Wait, ..
        },
    ) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("wait of"), "{error}");
    assert_eq!(lock.waiting(), 0);
    let hold = runtime.block_on(lock.acquire_async(within(BOUND)));
    assert_eq!(hold.unwrap().release().unwrap(), Released::Lock);
}

#[test]
fn a_wait_fails_for_want_of_descriptors_and_works_afterwards() {
    let place = Place::new();
    // In a process of its own, as it is about all descriptors of a process.
    assert!(!in_child(|| fails_under(&place, Resource::Nofile)));
}

#[test]
fn a_wait_fails_for_want_of_threads_and_works_afterwards() {
    if !is_root() {
        let test = "front::a_wait_fails_for_want_of_threads_and_works_afterwards";
        not_run(test, "root", "only root can become somebody else");
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.directory, Permissions::from_mode(0o777)).unwrap();
    // Root has as many threads as it likes.
    assert!(!in_child_as_nobody(|| {
        fails_under(&place, Resource::Nproc);
    }));
}
