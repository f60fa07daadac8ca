//! Threads on which nobody may wait for the lock, and the exceptions, granted by name and counted.
//!
//! Forbidden is what may wait: an acquire with time, however free the lock is, so that a mistake shows
//! at its first run and not under load; and every guarded write that takes the lock, as it waits for
//! the disk too. One attempt (`WaitBudget::NOW`), [`WriteLock::acquire_async`](crate::WriteLock), a
//! read, and whatever gives back or ends something are never refused.
//!
//! Marks lie on a stack of their thread and the newest counts. Each takes away itself only, so that the
//! order in which they go does not matter.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::AcquireError;
use crate::limits::ALLOWED_SITES;

/// Forbids this thread to wait for a write lock as long as it lives.
///
/// For threads that serve many: an event loop, a worker of a runtime. What would wait fails with
/// [`AcquireError::Forbidden`] and holds nothing. The newest mark of a thread counts: an
/// [`AllowBlocking`] lifts it, and another `ForbidBlocking` within that forbids again.
///
/// A mark belongs to its thread, so a task that may move to another one cannot keep it across an await;
/// [`during`](Self::during) marks whatever thread polls.
///
/// ```compile_fail,E0277
/// fn goes_to_another_thread(mark: lease_sqlite::ForbidBlocking) {
///     std::thread::spawn(move || drop(mark));
/// }
/// ```
///
/// # Drop
///
/// Ends this mark, whatever others there are.
#[derive(Debug)]
#[must_use = "dropping it ends the ban"]
pub struct ForbidBlocking {
    _mark: Mark,
}

impl ForbidBlocking {
    /// Marks this thread.
    pub fn on_this_thread() -> Self {
        Self {
            _mark: Mark::new(Kind::Forbidden),
        }
    }

    /// Runs a future with the mark on whatever thread polls it, and on no other and no longer.
    ///
    /// # Cancel safety
    ///
    /// That of the future.
    pub async fn during<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        // The same one at each poll: what the future made since then is newer.
        let number = Mark::number();
        poll_fn(|context| {
            let _mark = Mark::put(number, Kind::Forbidden);
            future.as_mut().poll(context)
        })
        .await
    }
}

/// Lifts a [`ForbidBlocking`] on this thread as long as it lives, for a reason.
///
/// It counts for whatever runs on this thread: one that is held across an await lifts the ban for the other
/// tasks of the thread, too.
///
/// Each is counted under its site, and so is each wait that would have been refused without it:
/// [`Health::blocking`](crate::Health) tells.
///
/// # Drop
///
/// Ends this exception, whatever others there are.
///
/// # Examples
///
/// ```
/// use lease_sqlite::{AllowBlocking, Blocking, ForbidBlocking};
///
/// let _mark = ForbidBlocking::on_this_thread();
/// {
///     let _lifted = AllowBlocking::new("settings::save", "once, at the end of the program");
///     // .. what may wait for the lock ..
/// }
/// let sites = Blocking::of_this_process().sites;
/// assert!(sites.iter().any(|counted| counted.site == "settings::save"));
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the exception"]
pub struct AllowBlocking {
    _mark: Mark,
}

impl AllowBlocking {
    /// Lifts the ban on this thread. `site` is its name in the code, the same each time.
    pub fn new(site: &'static str, reason: &'static str) -> Self {
        let counts = counts(site, reason);
        add(&counts.granted);
        Self {
            _mark: Mark::new(Kind::Allowed(counts)),
        }
    }
}

/// What became of waiting where it is forbidden, in this process since it started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocking {
    /// How many waits were refused.
    pub refused: u64,
    /// Where exceptions were made, in the order of the first one at each; the first
    /// [`ALLOWED_SITES`].
    pub sites: Vec<AllowedSite>,
    /// How many exceptions were made at sites beyond these.
    pub unlisted_granted: u64,
    /// How many waits these let through.
    pub unlisted_used: u64,
}

/// The exceptions of one site.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllowedSite {
    /// Where.
    pub site: &'static str,
    /// Why, as said the first time.
    pub reason: &'static str,
    /// How many there were.
    pub granted: u64,
    /// How many waits they let through that would have been refused. An exception that is never used
    /// can go.
    pub used: u64,
}

impl Blocking {
    /// Counts what there was until now.
    #[must_use]
    pub fn of_this_process() -> Self {
        let sites = SITES.iter().map_while(OnceLock::get);
        Self {
            refused: REFUSED.load(Ordering::Relaxed),
            sites: sites.map(Site::seen).collect(),
            unlisted_granted: UNLISTED.granted.load(Ordering::Relaxed),
            unlisted_used: UNLISTED.used.load(Ordering::Relaxed),
        }
    }
}

/// Refuses what may wait, where that is forbidden.
pub(crate) fn check(lock_path: &Path) -> Result<(), AcquireError> {
    match Marks::with(|marks| marks.rule()) {
        Some(Rule::Forbidden) => {
            add(&REFUSED);
            Err(AcquireError::Forbidden {
                lock_path: lock_path.to_owned(),
            })
        }
        Some(Rule::Lifted(counts)) => {
            add(&counts.used);
            Ok(())
        }
        None => Ok(()),
    }
}

/// One mark of this thread.
///
/// # Drop
///
/// Takes it away.
#[derive(Debug)]
struct Mark {
    number: u64,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Mark {
    fn new(kind: Kind) -> Self {
        Self::put(Self::number(), kind)
    }

    /// Returns a number that no mark of any thread has.
    fn number() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a mark on this thread, above those with a smaller number.
    fn put(number: u64, kind: Kind) -> Self {
        Marks::with(|marks| {
            let place = marks.stack.partition_point(|(other, _)| *other < number);
            marks.stack.insert(place, (number, kind));
            Some(())
        });
        Self {
            number,
            stays_on_its_thread: PhantomData,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        Marks::with(|marks| {
            marks.stack.retain(|(number, _)| *number != self.number);
            Some(())
        });
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Forbidden,
    Allowed(&'static Counts),
}

/// What the marks of a thread come to.
enum Rule {
    Forbidden,
    /// It would be forbidden without this exception.
    Lifted(&'static Counts),
}

/// The marks of a thread, the newest last.
#[derive(Debug)]
struct Marks {
    stack: Vec<(u64, Kind)>,
}

thread_local! {
    static MARKS: RefCell<Marks> = const {
        RefCell::new(Marks { stack: Vec::new() })
    };
}

impl Marks {
    /// `None` at the end of a thread, when its marks are gone already.
    fn with<T>(part: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let outcome = MARKS.try_with(|marks| part(&mut *marks.try_borrow_mut().ok()?));
        outcome.ok().flatten()
    }

    fn rule(&self) -> Option<Rule> {
        let (_, newest) = self.stack.last()?;
        match newest {
            Kind::Forbidden => Some(Rule::Forbidden),
            Kind::Allowed(counts) => {
                let forbids = |(_, kind): &(u64, Kind)| matches!(kind, Kind::Forbidden);
                let is_lifted = self.stack.iter().any(forbids);
                is_lifted.then_some(Rule::Lifted(counts))
            }
        }
    }
}

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Of every site that found no place in the list.
static UNLISTED: Counts = Counts::new();

/// Filled from the start. Without a lock, which a forked child could find locked for ever.
static SITES: [OnceLock<Site>; ALLOWED_SITES] = [const { OnceLock::new() }; ALLOWED_SITES];

#[derive(Debug)]
struct Site {
    site: &'static str,
    reason: &'static str,
    counts: Counts,
}

#[derive(Debug)]
struct Counts {
    granted: AtomicU64,
    used: AtomicU64,
}

impl Site {
    fn seen(&self) -> AllowedSite {
        AllowedSite {
            site: self.site,
            reason: self.reason,
            granted: self.counts.granted.load(Ordering::Relaxed),
            used: self.counts.used.load(Ordering::Relaxed),
        }
    }
}

impl Counts {
    const fn new() -> Self {
        Self {
            granted: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }
}

/// Finds the counts of a site, or gives it a place.
fn counts(site: &'static str, reason: &'static str) -> &'static Counts {
    let new = || Site {
        site,
        reason,
        counts: Counts::new(),
    };
    let known = SITES.iter().map(|place| place.get_or_init(new));
    let mut known = known.filter(|known| known.site == site);
    known.next().map_or(&UNLISTED, |known| &known.counts)
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    // C101
    #[test]
    fn sites_beyond_the_list_are_counted_together_and_those_on_it_are_kept() {
        let names: Vec<&'static str> = (0..ALLOWED_SITES + 2)
            .map(|number| &*format!("site {number}").leak())
            .collect();
        for _again in 0..2 {
            for name in &names {
                let _forbidden = ForbidBlocking::on_this_thread();
                let _lifted = AllowBlocking::new(name, "a test");
                check(Path::new("lock")).unwrap();
            }
        }
        let seen = Blocking::of_this_process();
        assert_eq!((seen.unlisted_granted, seen.unlisted_used), (4, 4));
        let expected = names.iter().take(ALLOWED_SITES).map(|site| (*site, 2, 2));
        let listed = seen.sites.iter();
        let listed = listed.map(|site| (site.site, site.granted, site.used));
        assert!(listed.eq(expected), "{seen:?}");
    }
}
