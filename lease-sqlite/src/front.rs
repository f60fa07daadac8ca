//! The lock for tasks: waiting without a thread of the caller's.
//!
//! The contract:
//!
//! - *Where it runs.* The first attempt is made by the first poll, in the thread that polls, if this
//!   process has the mutex open already: a few system calls on local files, and none that waits. All
//!   else (the first opening, which writes and syncs a new mutex; every wait; every later attempt)
//!   happens on the *front*, one thread a process with a small runtime of its own, which starts when
//!   it is first needed and stays. So any executor will do, it needs no drivers and no blocking
//!   threads, and it may be blocked, or shut down: nothing of ours is in it but a waker.
//! - *Order.* A task takes its place in the line of its process in the poll that finds the lock taken,
//!   the same line in which threads stand.
//! - *Whose it is.* Each call is a lane of its own unless one is given, so tasks that share a thread
//!   share nothing. A hold may go to any thread; it is entered again by [`Hold::again`], or by its lane.
//! - *Cancel.* Dropping the future takes the request back, soon, as that is done on the front. A grant
//!   that nobody receives any more is given back there, or by the drop if it had come so far.
//! - *Deadline.* It counts from the first poll, and the front keeps it, whether or not anybody polls.
//!   The last attempt is made at it. No time is one attempt.
//! - *Release.* It is the same call as in threads, on whatever thread drops the hold: two or three
//!   system calls that do not wait.
//! - *Failures.* The front cannot be started: `AcquireError::Io` at [`Step::Wait`], nothing is held. A
//!   panic on the front is passed on to whoever awaits. A forked child is refused, and what it inherits
//!   of a wait it leaves alone.
//!
//! A lock that was granted is held until the future's owner sees it: a future that is kept and never
//! polled keeps others out as a thread would that never runs.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{InTheWay, Outside, Place, Sign, WaitBudget, Waiter};
use crate::error::{AcquireError, Step};
use crate::hold::{Hold, Lane};
use crate::lock::Shared;
use crate::options::Settings;
use crate::sys::{self, Common, Native};

/// Takes the lock, waiting within the budget, and blocks no thread meanwhile.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    settings: &Settings,
    lane: &Lane,
    budget: WaitBudget,
) -> Result<Hold, AcquireError> {
    shared.check_image()?;
    let errand = match Errand::begin(shared, settings, lane, budget)? {
        Ok(hold) => return Ok(hold),
        Err(errand) => errand,
    };
    let front = front().map_err(|source| failed(shared, source))?;
    let sent = Sent(Native::new(front.spawn(errand.run())));
    drop(front);
    match sent.await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The front does not end, and nobody else can abort it.
            Err(_) => Err(failed(shared, io::ErrorKind::Interrupted.into())),
        },
    }
}

fn failed(shared: &Shared, source: io::Error) -> AcquireError {
    AcquireError::Io {
        path: shared.paths.record.clone(),
        step: Step::Wait,
        source,
    }
}

/// What a task wants, and how far it has come.
struct Errand {
    shared: Arc<Shared>,
    settings: Settings,
    lane: Lane,
    budget: WaitBudget,
    started: Duration,
    tried: Option<Tried>,
}

/// After the first attempt, or instead of it where others wait.
struct Tried {
    seen: Option<Box<InTheWay>>,
    /// `None` where nobody stands in a line.
    place: Option<Place>,
}

impl Errand {
    /// Does what can be done in the caller's thread. Returns what is left.
    fn begin(
        shared: &Arc<Shared>,
        settings: &Settings,
        lane: &Lane,
        budget: WaitBudget,
    ) -> Result<Result<Hold, Box<Self>>, AcquireError> {
        let waiter = Waiter::new(shared, settings, lane, budget);
        let started = waiter.started;
        let is_open = shared.state().mutex().is_some();
        let tried = if is_open {
            match first(&waiter)? {
                Ok(hold) => return Ok(Ok(hold)),
                Err(tried) => Some(tried),
            }
        } else {
            None
        };
        drop(waiter);
        Ok(Err(Box::new(Self {
            shared: Arc::clone(shared),
            settings: settings.clone(),
            lane: lane.clone(),
            budget,
            started,
            tried,
        })))
    }

    /// Does the rest, on the front.
    async fn run(self) -> Result<Hold, AcquireError> {
        let mut waiter = Waiter::new(&self.shared, &self.settings, &self.lane, self.budget);
        waiter.started = self.started;
        let tried = match self.tried {
            Some(tried) => tried,
            None => match first(&waiter)? {
                Ok(hold) => return Ok(hold),
                Err(tried) => tried,
            },
        };
        match tried {
            Tried {
                place: Some(place),
                seen,
            } => stand(&mut waiter, &place, seen).await,
            Tried {
                place: None,
                seen: in_the_way,
            } => poll(&mut waiter, in_the_way).await,
        }
    }
}

/// Tries once, and takes a place in the line if that was in vain.
fn first(waiter: &Waiter<'_>) -> Result<Result<Hold, Tried>, AcquireError> {
    let seen = match waiter.first()? {
        Ok(hold) => return Ok(Ok(hold)),
        Err(seen) => seen,
    };
    let place = if waiter.settings.is_timing_given {
        None
    } else {
        Some(Place::join(waiter.shared))
    };
    Ok(Err(Tried { seen, place }))
}

/// As `Waiter::stand`.
async fn stand(
    waiter: &mut Waiter<'_>,
    place: &Place,
    mut seen: Option<Box<InTheWay>>,
) -> Result<Hold, AcquireError> {
    waiter.note(seen.as_deref());
    loop {
        waiter.line_up(place, &mut seen);
        let sign = if wait_turn(place, waiter.left()).await {
            let in_the_way = seen.take().unwrap_or_else(|| waiter.look());
            wait_outside(waiter, &in_the_way).await
        } else {
            Sign::Try
        };
        match waiter.follow(sign)? {
            Ok(hold) => return Ok(hold),
            Err(in_the_way) => seen = Some(in_the_way),
        }
    }
}

/// As `Waiter::poll`. The clock that was given says when it is over, and the machine's measures the time
/// between two attempts.
async fn poll(
    waiter: &mut Waiter<'_>,
    mut seen: Option<Box<InTheWay>>,
) -> Result<Hold, AcquireError> {
    if let Some(in_the_way) = seen.take_if(|_| waiter.is_over()) {
        return Err(waiter.refused(*in_the_way));
    }
    loop {
        sleep(waiter.until_next_poll()).await;
        if let Ok(hold) = waiter.follow(Sign::Try)? {
            return Ok(hold);
        }
    }
}

/// Waits until everybody ahead is gone, or the time is over. Returns whether it is first.
async fn wait_turn(place: &Place, time: Option<Duration>) -> bool {
    let mut end = pin!(async {
        match time {
            Some(time) => sleep(time).await,
            None => pending().await,
        }
    });
    poll_fn(|context| {
        if place.poll_first(context).is_ready() {
            return Poll::Ready(true);
        }
        end.as_mut().poll(context).map(|()| false)
    })
    .await
}

/// As `Waiter::wait_outside`.
async fn wait_outside(waiter: &mut Waiter<'_>, in_the_way: &InTheWay) -> Sign {
    let outside = waiter.go_outside(in_the_way);
    let doorman = waiter.shared.line.doorman();
    let bell = doorman
        .filter(|_| outside.hears_bell)
        .map(|doorman| doorman.bell().descriptor());
    outside.wait(bell).await;
    let (sign, room) = waiter.come_back(outside);
    if let Some(time) = room {
        sleep(time).await;
        waiter.after_room();
    }
    sign
}

impl Outside {
    async fn wait(&self, bell: Option<BorrowedFd<'_>>) {
        if self.time.is_zero() {
            return;
        }
        // What cannot be registered is not heard: then the time has to do.
        let holder = self.holder.as_ref().map(|holder| holder.as_fd());
        let heard = [bell, holder].map(|fd| fd.and_then(|fd| sys::readable(fd).ok()));
        let mut end = pin!(sleep(self.time));
        poll_fn(|context| {
            let is_readable = |fd: &AsyncFd<BorrowedFd<'_>>| fd.poll_read_ready(context).is_ready();
            if heard.iter().flatten().any(is_readable) {
                return Poll::Ready(());
            }
            end.as_mut().poll(context)
        })
        .await;
    }
}

impl Place {
    fn poll_first(&self, context: &Context<'_>) -> Poll<()> {
        let mut queue = self.line().queue();
        if queue.waiting.front() == Some(&self.number) {
            return Poll::Ready(());
        }
        let before = queue.wakers.insert(self.number, context.waker().clone());
        drop(queue);
        // It may own things that take locks when they go.
        drop(before);
        Poll::Pending
    }
}

/// An errand on its way.
///
/// # Drop
///
/// Calls it back. What it brings after that is dropped, and so given back.
struct Sent(Native<JoinHandle<Result<Hold, AcquireError>>>);

impl Future for Sent {
    type Output = <JoinHandle<Result<Hold, AcquireError>> as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll(context)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.0.is_own() {
            self.0.abort();
        }
    }
}

/// The front of this process, once it was needed.
static FRONT: Common<Mutex<Option<Handle>>> = Common::new();

/// Returns the runtime of the front, which runs on its own thread.
fn front() -> io::Result<Handle> {
    // That of a parent has no thread in a forked child.
    let known = FRONT.of_this_process().lock();
    let mut known = known.unwrap_or_else(PoisonError::into_inner);
    if let Some(front) = &*known {
        return Ok(front.clone());
    }
    let mut builder = Builder::new_current_thread();
    let runtime = Front(Some(builder.enable_io().enable_time().build()?));
    let handle = runtime.0.as_ref().map(Runtime::handle).cloned();
    let handle = handle.ok_or(io::ErrorKind::NotFound)?;
    thread::Builder::new()
        .name("write-lock-front".to_owned())
        .spawn(move || runtime.serve())?;
    *known = Some(handle.clone());
    Ok(handle)
}

/// The runtime of the front.
///
/// # Drop
///
/// Does not wait: it may be dropped where waiting is not allowed, if no thread is left for it.
struct Front(Option<Runtime>);

impl Front {
    /// Runs what is sent, as long as the process runs.
    fn serve(&self) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(pending::<()>());
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
