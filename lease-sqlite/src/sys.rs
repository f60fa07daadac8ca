//! System calls: the one file of this crate that meets descriptors, locks of the kernel and forks.
#![expect(
    unsafe_code,
    reason = "descriptors that belong to SQLite, one lock query, and a handler for forks"
)]

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use lease_procfs::{LaunchId, Pid};
use rusqlite::{Connection, FileControl, ffi};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::PidfdFlags;
#[cfg(feature = "async")]
use tokio::io::{Interest, unix::AsyncFd};

use crate::files::{FileId, look_at, read_start};

/// A place in a file.
pub(crate) type Offset = libc::off_t;

/// Bytes of a file that are locked, not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) start: Offset,
    /// The one after the last one; `None` for all there can be.
    pub(crate) end: Option<Offset>,
}

/// Locks bytes of an open file without waiting; `false` if somebody else has them, `None` if they
/// cannot be locked.
pub(crate) fn try_bytes(file: impl AsFd, bytes: Bytes) -> Option<bool> {
    match set_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK, bytes) {
        Ok(()) => Some(true),
        Err(error) => {
            let code = error.raw_os_error();
            matches!(code, Some(libc::EAGAIN | libc::EACCES)).then_some(false)
        }
    }
}

/// Looks for a lock of anybody else on bytes of an open file, one of several.
pub(crate) fn find_lock(file: impl AsFd, bytes: Bytes) -> io::Result<Option<Bytes>> {
    let mut query = byte_range(libc::F_WRLCK, bytes);
    get_lock(file, &mut query)?;
    let end = (query.l_len != 0).then(|| query.l_start.saturating_add(query.l_len));
    Ok((query.l_type != short(libc::F_UNLCK)).then_some(Bytes {
        start: query.l_start,
        end,
    }))
}

fn get_lock(file: impl AsFd, query: &mut libc::flock) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open and the pointer is to a flock, as F_OFD_GETLK wants it.
    let answer = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut *query) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Unlocks bytes of an open file. Whoever waits for them is woken by the kernel.
pub(crate) fn free_bytes(file: impl AsFd, bytes: Bytes) {
    // It cannot fail for an open descriptor, and nothing depends on it: the gate only wakes.
    let _outcome = set_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, bytes);
}

/// Waits until bytes of an open file are ours; `false` if there are no such locks here.
pub(crate) fn wait_bytes(file: impl AsFd, bytes: Bytes) -> bool {
    loop {
        match set_lock(file.as_fd(), libc::F_OFD_SETLKW, libc::F_WRLCK, bytes) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Such a lock belongs to the open file, so that another descriptor of this process meets it too.
fn set_lock(
    file: impl AsFd,
    command: libc::c_int,
    kind: libc::c_int,
    bytes: Bytes,
) -> io::Result<()> {
    let wanted = byte_range(kind, bytes);
    // SAFETY: the descriptor is open and the pointer is to a flock, as these commands want it.
    let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw const wanted) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn byte_range(kind: libc::c_int, bytes: Bytes) -> libc::flock {
    // SAFETY: all zeroes is a valid flock.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = short(kind);
    range.l_whence = short(libc::SEEK_SET);
    range.l_start = bytes.start;
    // Zero is as much as there can be.
    range.l_len = bytes.end.map_or(0, |end| end.saturating_sub(bytes.start));
    range
}

fn short(number: libc::c_int) -> libc::c_short {
    number.try_into().unwrap_or(libc::c_short::MAX)
}

/// Something that one thread rings and another one hears while it waits for other things too.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only when it has been rung too often to count, and then it rings.
        let _written = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    #[cfg(feature = "async")]
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn quiet(&self) {
        // It fails when it does not ring.
        let _read = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

/// Opens a process, to see when it ends. `ESRCH`: it has ended and was reaped.
pub(crate) fn watch(pid: Pid) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.get()).ok_or(Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for a ring, for the end of a process, or until the time is over. Returns whether it ended
/// before that, perhaps for nothing.
pub(crate) fn wait_any(bell: Option<&Bell>, process: Option<&OwnedFd>, time: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let event = |fd| PollFd::new(fd, PollFlags::IN);
    let outcome = match (bell.map(|bell| &bell.0), process) {
        (Some(bell), Some(process)) => poll(&mut [event(bell), event(process)], Some(&timeout)),
        (Some(one), None) | (None, Some(one)) => poll(&mut [event(one)], Some(&timeout)),
        (None, None) => poll(&mut [], Some(&timeout)),
    };
    // A signal ends it early, and whoever waits looks again.
    outcome != Ok(0)
}

/// Tells whether a process has ended. A signal to this thread is no end of that one.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let look = || {
        poll(
            &mut [PollFd::new(process, PollFlags::IN)],
            Some(&Timespec::default()),
        )
    };
    rustix::io::retry_on_intr(look).is_ok_and(|events| events > 0)
}

/// Registers a descriptor with the reactor of the runtime that is entered.
#[cfg(feature = "async")]
pub(crate) fn readable(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: it is one descriptor, open as long as it is borrowed.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(|refused| refused.into_parts().1)
}

/// Returns the number of this process in its own pid namespace.
pub(crate) fn own_pid() -> Option<Pid> {
    Pid::new(rustix::process::getpid().as_raw_nonzero().get().into()).ok()
}

/// Draws eight random bytes.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut bytes, flags)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The number of a descriptor, which may be closed or another file by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(RawFd);

impl Number {
    /// A descriptor that is opened after this one is closed has this number too, most times.
    pub(crate) fn of(file: impl AsFd) -> Self {
        Self(file.as_fd().as_raw_fd())
    }
}

/// The number of a descriptor that SQLite opened. It is looked through and never closed by us.
///
/// Another connection of this process may have opened it: one to the same file by another path, or one that is
/// just being closed. So it may go before ours does, and then ours is found.
#[derive(Debug)]
pub(crate) struct SqliteDescriptor {
    number: Cell<RawFd>,
    file: FileId,
    /// The number of this process, as the kernel gives it to this process.
    owner: libc::pid_t,
}

/// No descriptor has this number.
const NOBODYS: RawFd = -1;

/// Where the descriptors of this process are listed.
pub(crate) const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// Whether `/proc` is not there, or is kept from us.
fn is_hidden(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::ACCESS | Errno::PERM))
}

/// The bytes on which SQLite takes its locks: pending, reserved, and 510 shared ones.
const LOCK_BYTES: Bytes = Bytes {
    start: 0x4000_0000,
    end: Some(0x4000_0200),
};

/// What the kernel says of SQLite's lock bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelLook {
    /// Nobody has any of them.
    Free,
    /// This process has. `None` if that is ourselves, or if its number means nothing in our pid
    /// namespace.
    Held(Option<Pid>),
    /// It cannot be asked.
    Unseen,
}

impl SqliteDescriptor {
    /// Finds the descriptor of a file that SQLite has open in this process.
    ///
    /// Opening the file to look at it would be fatal: closing it again drops every lock of this
    /// process. `None` where `/proc` does not show our descriptors; an error if it would, and cannot
    /// now. Where it is likely to be is looked at first, as a list costs many calls.
    pub(crate) fn find(
        file: FileId,
        owner: Option<Pid>,
        likely: Option<Number>,
    ) -> io::Result<Option<Self>> {
        let owner = owner.map_or_else(|| rustix::process::getpid().as_raw_pid(), Pid::get);
        let at = |number| Self {
            number: Cell::new(number),
            file,
            owner,
        };
        let likely = likely.map(|likely| at(likely.0));
        if let Some(found) = likely.filter(|found| found.borrow().is_some()) {
            return Ok(Some(found));
        }
        let found = at(NOBODYS);
        Ok(found.look_for()?.then_some(found))
    }

    /// Looks through the descriptors of this process; `false` where they are not shown, or it is not there.
    fn look_for(&self) -> io::Result<bool> {
        let numbers = match fs::read_dir(OWN_DESCRIPTORS) {
            Ok(numbers) => numbers,
            Err(error) if is_hidden(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        for entry in numbers {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            self.number.set(number.unwrap_or(NOBODYS));
            if self.borrow().is_some() {
                return Ok(true);
            }
        }
        self.number.set(NOBODYS);
        Ok(false)
    }

    /// Its number.
    pub(crate) const fn number(&self) -> Number {
        Number(self.number.get())
    }

    /// Borrows it if it is still the same file.
    fn borrow(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.borrow_unseen()?;
        let is_same = look_at(fd).is_ok_and(|object| object.id == self.file);
        is_same.then_some(fd)
    }

    fn borrow_unseen(&self) -> Option<BorrowedFd<'_>> {
        let number = self.number.get();
        // SAFETY: the number is not -1. Should SQLite have closed it, a look at it fails or shows another
        // file, and the borrow ends there. The borrow never outlives the call that it is used in.
        (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Looks whether it is still the same file, for whatever is done with it at once.
    pub(crate) fn seen(&self) -> io::Result<Seen<'_>> {
        let fd = match self.borrow() {
            Some(fd) => fd,
            None => {
                self.look_for()?;
                self.borrow().ok_or(io::ErrorKind::NotFound)?
            }
        };
        Ok(Seen { fd, of: self })
    }

    /// The same for what was found this very moment: it is not looked at twice.
    pub(crate) fn just_found(&self) -> io::Result<Seen<'_>> {
        let fd = self.borrow_unseen().ok_or(io::ErrorKind::NotFound)?;
        Ok(Seen { fd, of: self })
    }

    /// Tells whether this process has an exclusive POSIX lock on SQLite's lock bytes.
    ///
    /// A query for open-file-description locks conflicts with every POSIX lock, our own too, so
    /// that it shows whether a stray close has dropped it.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        self.seen()?.is_locked()
    }

    /// Asks the kernel whether anybody has a lock on SQLite's lock bytes.
    ///
    /// An error: the file system has no locks to give. SQLite calls that busy, too.
    pub(crate) fn look(&self) -> io::Result<KernelLook> {
        match self.seen().and_then(|seen| seen.meets(libc::F_WRLCK)) {
            Ok(None) => Ok(KernelLook::Free),
            // Another connection of this process, behind our back.
            Ok(Some(owner)) if owner == self.owner => Ok(KernelLook::Held(None)),
            Ok(Some(owner)) => Ok(KernelLook::Held(Pid::new(owner.into()).ok())),
            Err(error) if error.raw_os_error() == Some(libc::ENOLCK) => Err(error),
            Err(_) => Ok(KernelLook::Unseen),
        }
    }
}

/// A descriptor that SQLite opened and that is still the same file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    fd: BorrowedFd<'a>,
    of: &'a SqliteDescriptor,
}

impl Seen<'_> {
    /// Reads the start of the file.
    pub(crate) fn peek(self, buffer: &mut [u8]) -> io::Result<usize> {
        read_start(self.fd, buffer)
    }

    /// As for the descriptor.
    pub(crate) fn is_locked(self) -> io::Result<bool> {
        // Somebody else may have got it meanwhile.
        let found = self.meets(libc::F_RDLCK)?;
        Ok(found.is_some_and(|owner| owner == self.of.owner))
    }

    /// Returns whose lock on SQLite's lock bytes a lock of this kind would meet.
    fn meets(self, kind: libc::c_int) -> io::Result<Option<libc::pid_t>> {
        let mut query = byte_range(kind, LOCK_BYTES);
        get_lock(self.fd, &mut query)?;
        Ok((query.l_type != short(libc::F_UNLCK)).then_some(query.l_pid))
    }
}

/// Returns a number that changes when a connection's first database was changed by somebody else, as
/// far as a transaction has seen. No system call. `None` if SQLite does not say.
pub(crate) fn data_version(connection: &Connection) -> Option<u32> {
    let mut version = 0;
    let asked = connection.file_control(None::<&CStr>, FileControl::DataVersion(&mut version));
    asked.ok().map(|()| version)
}

/// Returns the last error of the system that SQLite met at the file behind a connection; 0 if none. No
/// system call.
///
/// It tells of an unlock that failed, of which SQLite says nothing else.
pub(crate) fn last_error(connection: &Connection) -> i32 {
    let mut number: libc::c_int = 0;
    // SAFETY: the connection is open for the length of the call, no name is its first database, and this request
    // writes one number, as `sqlite3.h` says.
    unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            std::ptr::null(),
            ffi::SQLITE_FCNTL_LAST_ERRNO,
            (&raw mut number).cast(),
        )
    };
    number
}

/// Returns what SQLite calls the way in which it reaches a database of a connection, from the outermost layer to
/// the innermost. No system call. `None` if it does not say.
pub(crate) fn vfs(connection: &Connection, database: &str) -> Option<String> {
    let database = CString::new(database).ok()?;
    let mut name: *mut libc::c_char = std::ptr::null_mut();
    // SAFETY: the connection is open for the length of the call, and this request writes a pointer to a text, which
    // is ours from then on and is given back here, as `sqlite3.h` says.
    unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            database.as_ptr(),
            ffi::SQLITE_FCNTL_VFSNAME,
            (&raw mut name).cast(),
        );
        let told = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        ffi::sqlite3_free(name.cast());
        told
    }
}

/// A connection that takes and gives back its file's lock by statements that stay prepared: what
/// keeps statements elsewhere allocates each time.
pub(crate) struct Taker {
    connection: Native<Connection>,
    take: *mut ffi::sqlite3_stmt,
    give: *mut ffi::sqlite3_stmt,
}

// SAFETY: SQLite lets any thread use a connection and its statements, one at a time. That is so, as a
// shared reference to this cannot go to another thread.
unsafe impl Send for Taker {}

impl Taker {
    pub(crate) fn new(connection: Connection) -> Result<Self, rusqlite::Error> {
        let mut taker = Self {
            connection: Native::new(connection),
            take: std::ptr::null_mut(),
            give: std::ptr::null_mut(),
        };
        taker.take = taker.prepare(c"BEGIN EXCLUSIVE")?;
        taker.give = taker.prepare(c"COMMIT")?;
        Ok(taker)
    }

    /// `BEGIN EXCLUSIVE`.
    pub(crate) fn take(&self) -> Result<(), rusqlite::Error> {
        self.run(self.take)
    }

    /// `COMMIT`.
    pub(crate) fn give(&self) -> Result<(), rusqlite::Error> {
        self.run(self.give)
    }

    fn prepare(&self, sql: &CStr) -> Result<*mut ffi::sqlite3_stmt, rusqlite::Error> {
        let mut statement = std::ptr::null_mut();
        // SAFETY: the connection is open, the text ends with a zero byte, and the place for the
        // statement is ours.
        let code = unsafe {
            ffi::sqlite3_prepare_v3(
                self.connection.handle(),
                sql.as_ptr(),
                -1,
                ffi::SQLITE_PREPARE_PERSISTENT,
                &raw mut statement,
                std::ptr::null_mut(),
            )
        };
        is_ok(code, ffi::SQLITE_OK).map(|()| statement)
    }

    fn run(&self, statement: *mut ffi::sqlite3_stmt) -> Result<(), rusqlite::Error> {
        // SAFETY: the statement is one of this connection and was not finalized: only `drop` does
        // that, and `check_image` keeps a forked child from coming here.
        let code = unsafe {
            let code = ffi::sqlite3_step(statement);
            // It says what the step said.
            ffi::sqlite3_reset(statement);
            code
        };
        is_ok(code, ffi::SQLITE_DONE)
    }
}

fn is_ok(code: libc::c_int, expected: libc::c_int) -> Result<(), rusqlite::Error> {
    if code == expected {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

impl Deref for Taker {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl std::fmt::Debug for Taker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taker").finish_non_exhaustive()
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if self.connection.image == Image::present() {
            // SAFETY: both are null or statements of this connection, which is closed after this.
            unsafe {
                ffi::sqlite3_finalize(self.take);
                ffi::sqlite3_finalize(self.give);
            }
        }
    }
}

/// Counts forks: a value made under another count belongs to an ancestor.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Which process, among the forks of one program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// Another one in every forked child, also of a bare `clone`; not on every kernel.
    launch: Option<LaunchId>,
    /// Another one after `fork` of the C library.
    forks: u64,
}

impl Image {
    /// Returns the present one. Some loads after the first call.
    pub(crate) fn present() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler touches atomics and closes descriptors, which is sound in a forked
            // child.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        });
        Self {
            launch: LaunchId::current(),
            forks: FORKS.load(Ordering::Relaxed),
        }
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let launches = self.launch.zip(other.launch);
        self.forks == other.forks && launches.is_none_or(|(one, two)| one == two)
    }
}

extern "C" fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let mut block = Some(&FIRST);
    while let Some(places) = block {
        for place in &places.numbers {
            let number = place.swap(FREE, Ordering::Relaxed);
            if number != FREE {
                // SAFETY: the number is that of an `Unshared` of the parent, which nobody in this
                // child uses or closes.
                unsafe { libc::close(number) };
            }
        }
        block = places.next();
    }
}

/// A descriptor whose locks end with this process even if a forked child outlives it: the child
/// closes its copy at once. Only a bare `clone` keeps one.
#[derive(Debug)]
pub(crate) struct Unshared {
    descriptor: Native<OwnedFd>,
    place: &'static AtomicI32,
}

impl Unshared {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        // The handler first: from here on a child closes it.
        let descriptor = Native::new(descriptor);
        let place = FIRST.take(descriptor.as_raw_fd());
        Self { descriptor, place }
    }
}

impl AsFd for Unshared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        if self.descriptor.image == Image::present() {
            // Before it is closed: the number could be another file's when a child looks.
            self.place.store(FREE, Ordering::Relaxed);
        }
    }
}

/// Descriptors that a forked child closes. It grows and never shrinks, and has no lock that another
/// thread could hold at the moment of a fork.
struct Block {
    numbers: [AtomicI32; 32],
    next: AtomicPtr<Self>,
}

const FREE: RawFd = -1;

static FIRST: Block = Block::new();

impl Block {
    const fn new() -> Self {
        Self {
            numbers: [const { AtomicI32::new(FREE) }; 32],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: the pointer is null or that of a block that was leaked in `another`.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a number into a free place.
    fn take(&'static self, number: RawFd) -> &'static AtomicI32 {
        let mut block = self;
        loop {
            let is_taken = |place: &&AtomicI32| {
                let order = Ordering::Relaxed;
                place.compare_exchange(FREE, number, order, order).is_ok()
            };
            if let Some(place) = block.numbers.iter().find(is_taken) {
                return place;
            }
            block = block.next().unwrap_or_else(|| block.another());
        }
    }

    /// Adds a block, unless another thread was faster.
    fn another(&self) -> &'static Self {
        let made: *mut Self = Box::leak(Box::new(Self::new()));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match (self.next).compare_exchange(std::ptr::null_mut(), made, order.0, order.1) {
            // SAFETY: it was leaked just now and lives for ever.
            Ok(_null) => unsafe { &*made },
            Err(theirs) => {
                // SAFETY: `made` was not published; `theirs` was, and lives for ever.
                unsafe {
                    drop(Box::from_raw(made));
                    &*theirs
                }
            }
        }
    }
}

/// What all of a process share, and a forked child has anew: a thread of the parent may have had a lock in it
/// at the moment of the fork, and nobody would ever open that.
#[derive(Debug)]
pub(crate) struct Common<T>(AtomicPtr<Native<T>>);

impl<T: Default + Send + Sync> Common<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns that of this process. What a parent had stays in memory, and is not dropped.
    pub(crate) fn of_this_process(&'static self) -> &'static T {
        let mut present = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or that of a value that was leaked below.
            if let Some(known) = unsafe { present.as_ref() }.filter(|known| known.is_own()) {
                return known;
            }
            let made: *mut Native<T> = Box::leak(Box::new(Native::new(T::default())));
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match (self.0).compare_exchange(present, made, order.0, order.1) {
                // SAFETY: it was leaked just now and lives for ever.
                Ok(_former) => return unsafe { &*made },
                Err(theirs) => {
                    // SAFETY: `made` was not published.
                    drop(unsafe { Box::from_raw(made) });
                    present = theirs;
                }
            }
        }
    }
}

/// A value that is dropped only by the process that made it; a forked child leaves it alone.
#[derive(Debug)]
pub(crate) struct Native<T> {
    value: ManuallyDrop<T>,
    image: Image,
}

impl<T> Native<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ManuallyDrop::new(value),
            image: Image::present(),
        }
    }

    /// Tells whether this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.image == Image::present()
    }
}

impl<T> Deref for Native<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Native<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: it is dropped here and nowhere else, and `self` ends with this call.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Forks a child that ends at once with what `look` gives.
    fn in_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child looks at atomics, may ask for memory, and leaves.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let seen = look();
            // SAFETY: nothing of the parent is dropped or flushed twice.
            unsafe { libc::_exit(i32::from(seen)) };
        }
        let mut status = 0;
        // SAFETY: the child was forked here and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn a_lock_that_a_thread_had_at_the_fork_is_open_in_the_child() {
        static SHARED: Common<Mutex<u32>> = Common::new();
        let number = || {
            let shared = SHARED.of_this_process().try_lock();
            shared.ok().map(|number| *number)
        };
        *SHARED.of_this_process().lock().unwrap() = 7;
        let held = SHARED.of_this_process().lock().unwrap();
        assert_eq!(number(), None, "its owner has it");
        assert!(in_child(|| number() == Some(0)));
        drop(held);
        assert_eq!(number(), Some(7), "and what the parent has is left alone");
    }

    #[test]
    fn threads_that_come_first_together_share_one() {
        static SHARED: Common<Mutex<u32>> = Common::new();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _thread in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    *SHARED.of_this_process().lock().unwrap() += 1;
                });
            }
        });
        assert_eq!(*SHARED.of_this_process().lock().unwrap(), 8);
    }
}
