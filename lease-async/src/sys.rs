//! Where descriptors are handed to a reactor, and what tells a forked child from its parent.
#![expect(
    unsafe_code,
    reason = "a reactor has to trust who says which descriptor it is, and a page that forked children find wiped"
)]

use core::num::NonZeroU64;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use tokio::io::unix::AsyncFd;

/// The number of this process, in a page of its own; null until the first call.
///
/// No lock and no `OnceLock`: a fork could happen while another thread has it, and the child would wait for ever.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

const PAGE_BYTES: usize = size_of::<AtomicU64>();

/// Returns a random number of this process: another one in every forked child, however it was forked.
///
/// `None` where the kernel gives no memory that it wipes in a child, or no random numbers. A child that shares our
/// memory (`vfork`) has ours.
pub(crate) fn process() -> Option<NonZeroU64> {
    let page = match NonNull::new(PAGE.load(Ordering::Acquire)) {
        Some(page) => page,
        None => publish(wiped_page()?)?,
    };
    // SAFETY: see `process_if_made`.
    let number = unsafe { page.as_ref() };
    if let Some(made) = NonZeroU64::new(number.load(Ordering::Acquire)) {
        return Some(made);
    }
    let drawn = NonZeroU64::new(getrandom::u64().ok()?)?;
    // The first of several threads wins.
    match number.compare_exchange(0, drawn.get(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_zero) => Some(drawn),
        Err(theirs) => NonZeroU64::new(theirs),
    }
}

/// Returns the number of this process if it was made since its start, or its fork. Two loads.
#[inline]
pub(crate) fn process_if_made() -> Option<NonZeroU64> {
    let page = NonNull::new(PAGE.load(Ordering::Acquire))?;
    // SAFETY: PAGE only ever holds a mapping made by `wiped_page`, which is never unmapped once it was published.
    // Zeroes are a valid atomic, the mapping is aligned to a page, and the kernel changes it only in a forked
    // child, to zeroes, before the child runs.
    let number = unsafe { page.as_ref() };
    NonZeroU64::new(number.load(Ordering::Acquire))
}

/// Publishes a page, or gives it back and returns the one another thread published first.
fn publish(page: NonNull<AtomicU64>) -> Option<NonNull<AtomicU64>> {
    let null = core::ptr::null_mut();
    match PAGE.compare_exchange(null, page.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_null) => Some(page),
        Err(theirs) => {
            // SAFETY: the mapping was made by `wiped_page` with this length and nobody has seen it. If it cannot
            // be unmapped, one page stays for the life of the process.
            let _unmapped = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
            NonNull::new(theirs)
        }
    }
}

/// Maps a page of zeroes that is zeroes again in every forked child.
fn wiped_page() -> Option<NonNull<AtomicU64>> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping where the kernel chooses overlaps nothing.
    let mapped = unsafe { mmap_anonymous(core::ptr::null_mut(), PAGE_BYTES, access, flags) };
    let page = NonNull::new(mapped.ok()?.cast::<AtomicU64>())?;
    // SAFETY: exactly the mapping made above, which nobody else knows.
    let wiped = unsafe { madvise(page.as_ptr().cast(), PAGE_BYTES, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: as above; a number that a child inherits is worse than none.
        let _unmapped = unsafe { munmap(page.as_ptr().cast(), PAGE_BYTES) };
        return None;
    }
    Some(page)
}

/// What all of a process share, and a forked child has anew: that of a parent has no thread there, and may be
/// locked for ever.
pub(crate) struct Common<T>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    /// Whose it is; `None` where a child cannot be told from its parent.
    process: Option<NonZeroU64>,
    value: T,
}

impl<T: Default + Send + Sync> Common<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns that of this process. What a parent had stays in memory, and is not dropped.
    #[inline]
    pub(crate) fn of_this_process(&'static self) -> &'static T {
        // SAFETY: the pointer is null or that of a value that was leaked in `made`.
        let known = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        match known.filter(|known| known.process == process_if_made()) {
            Some(known) => &known.value,
            None => self.made(),
        }
    }

    #[cold]
    fn made(&'static self) -> &'static T {
        let process = process();
        let mut present = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: as above.
            if let Some(known) = unsafe { present.as_ref() }.filter(|it| it.process == process) {
                return &known.value;
            }
            let value = T::default();
            let made: *mut Owned<T> = Box::leak(Box::new(Owned { process, value }));
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match (self.0).compare_exchange(present, made, order.0, order.1) {
                // SAFETY: it was leaked just now and lives for ever.
                Ok(_former) => return unsafe { &(*made).value },
                Err(theirs) => {
                    // SAFETY: `made` was not published.
                    drop(unsafe { Box::from_raw(made) });
                    present = theirs;
                }
            }
        }
    }
}

/// Registers a descriptor with the reactor of the runtime that is entered.
pub(crate) fn readable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: it is one descriptor, open as long as the reactor keeps its share.
    let registered = unsafe { AsyncFd::register(fd) };
    registered.map_err(|refused| refused.into_parts().1)
}

/// Registers a watch of processes with the reactor of the runtime that is entered.
#[cfg(feature = "procfs")]
pub(crate) fn deaths(
    watch: Arc<lease_procfs::DeathWatch>,
) -> io::Result<AsyncFd<Arc<lease_procfs::DeathWatch>>> {
    // SAFETY: a watch owns its one descriptor, and is there as long as the reactor keeps its share.
    let registered = unsafe { AsyncFd::register(watch) };
    registered.map_err(|refused| refused.into_parts().1)
}
