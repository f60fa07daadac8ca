//! Forked children.
#![expect(
    unsafe_code,
    reason = "fork; the children touch only what fork leaves sound; SQLite behind its wrapper"
)]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use lease_sqlite::rusqlite::functions::FunctionFlags;
use lease_sqlite::rusqlite::{Connection, ffi};

use crate::rig::BOUND;

/// Forks a child that sleeps until it is killed, or for a bound.
pub(crate) fn fork_sleeper() -> i32 {
    fork(|| {
        let seconds = u32::try_from(BOUND.as_secs()).unwrap();
        // SAFETY: an alarm without a handler ends the process.
        unsafe { libc::alarm(seconds * 2) };
        loop {
            // SAFETY: it waits for a signal and does nothing else.
            unsafe { libc::pause() };
        }
    })
}

/// As `fork_sleeper`, behind the back of the C library, so that no handler runs.
pub(crate) fn clone_sleeper() -> i32 {
    // SAFETY: without flags it is a plain fork; the child waits for a signal and does nothing else.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: as above, and an alarm without a handler ends the process.
        unsafe {
            libc::alarm(20);
            loop {
                libc::pause();
            }
        }
    }
    pid.try_into().unwrap()
}

/// As `in_child`, behind the back of the C library.
pub(crate) fn in_cloned_child(body: impl FnOnce()) -> bool {
    // SAFETY: without flags it is a plain fork; the child leaves by `_exit`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(pid >= 0);
    if pid == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: nothing of the parent is dropped or flushed twice.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child was made here and nobody else waits for it.
    let waited = unsafe { libc::waitpid(pid.try_into().unwrap(), &raw mut status, 0) };
    assert_eq!(i64::from(waited), pid);
    status != 0
}

/// Forks a child, runs `body` there, and returns whether it panicked.
pub(crate) fn in_child(body: impl FnOnce()) -> bool {
    let pid = fork(body);
    let mut status = 0;
    // SAFETY: the child was forked here and nobody else waits for it.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status != 0
}

/// As `in_child`, with the rights of nobody.
pub(crate) fn in_child_as_nobody(body: impl FnOnce()) -> bool {
    in_child(|| {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: they change the rights of this process, which has one thread and ends soon.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
        }
        body();
    })
}

pub(crate) fn is_root() -> bool {
    // SAFETY: it reads a number.
    unsafe { libc::geteuid() == 0 }
}

/// Kills a process that was started by this test.
pub(crate) fn kill(pid: i32) {
    // SAFETY: it sends a signal and does nothing else.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

pub(crate) fn is_running(pid: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// Tells whether a thread of this process waits for several things at once.
#[cfg(feature = "test-util")]
pub(crate) fn is_polling() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let call = |path: std::path::PathBuf| std::fs::read_to_string(path.join("syscall")).ok();
    let mut calls = tasks.filter_map(|task| call(task.ok()?.path()));
    let poll = format!("{} ", libc::SYS_ppoll);
    calls.any(|call| call.starts_with(&poll))
}

/// Takes this process into mounts of its own, which end with it.
pub(crate) fn enter_own_mounts() -> std::io::Result<()> {
    let (nothing, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: this process has one thread and ends soon; the texts end with a zero byte.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, flags, nothing.cast()) == 0
    };
    if done {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Mounts a file system in memory, or changes how it is mounted.
pub(crate) fn mount_tmpfs(
    path: &Path,
    options: &CStr,
    flags: libc::c_ulong,
) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = c"tmpfs".as_ptr();
    // SAFETY: every text ends with a zero byte and lives through the call.
    let code = unsafe { libc::mount(name, path.as_ptr(), name, flags, options.as_ptr().cast()) };
    if code == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Mounts what lies at one path at another one, too.
pub(crate) fn bind(from: &Path, to: &Path) {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let nothing = std::ptr::null();
    let flags = libc::MS_BIND;
    // SAFETY: both texts end with a zero byte and live through the call.
    let code = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), nothing, flags, nothing.cast()) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

/// Takes a mount away.
pub(crate) fn unmount(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the text ends with a zero byte and lives through the call.
    let code = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

/// Sets how many descriptors this process may have, and returns how many it might before.
pub(crate) fn limit_descriptors(most: u64) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointers are to a limit that lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, most);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

/// Leaves a statement on a connection that nobody ends, so that it cannot be closed.
pub(crate) fn unfinished_statement(connection: &Connection) {
    let mut statement = std::ptr::null_mut();
    // SAFETY: the handle is open, the text ends with a zero byte, and the statement is never used.
    let code = unsafe {
        let sql = c"SELECT 1".as_ptr();
        let tail = std::ptr::null_mut();
        ffi::sqlite3_prepare_v2(connection.handle(), sql, -1, &raw mut statement, tail)
    };
    assert_eq!(code, ffi::SQLITE_OK);
}

/// Lets the connections of this process that are opened from now on share what they read of one file.
pub(crate) fn share_caches() {
    // SAFETY: it sets a number.
    assert_eq!(
        unsafe { ffi::sqlite3_enable_shared_cache(1) },
        ffi::SQLITE_OK
    );
}

/// Lets SQLite tell every connection of this process that is opened from now on to keep its locks.
pub(crate) fn keep_every_lock() {
    // SAFETY: the connection is open, and the text ends with a zero byte.
    unsafe extern "C" fn keep(
        connection: *mut ffi::sqlite3,
        _: *mut *mut libc::c_char,
        _: *const ffi::sqlite3_api_routines,
    ) -> libc::c_int {
        let (sql, none) = (c"PRAGMA locking_mode = EXCLUSIVE", std::ptr::null_mut());
        unsafe { ffi::sqlite3_exec(connection, sql.as_ptr(), None, none, none.cast()) }
    }
    // SAFETY: the function is there as long as the program.
    assert_eq!(
        unsafe { ffi::sqlite3_auto_extension(Some(keep)) },
        ffi::SQLITE_OK
    );
}

/// Lets the connections of this process that are opened from now on, and say nothing of it, reach the system in
/// this way.
pub(crate) fn reach_files_by(way: &CStr) {
    // SAFETY: the text ends with a zero byte, and what is found by it is SQLite's own and stays.
    let code = unsafe { ffi::sqlite3_vfs_register(ffi::sqlite3_vfs_find(way.as_ptr()), 1) };
    assert_eq!(code, ffi::SQLITE_OK);
}

/// Adds a function that writes when it is read, and one that runs the statements that it is given.
pub(crate) fn add_sneak(connection: &Connection) {
    let flags = FunctionFlags::SQLITE_UTF8;
    let added = connection.create_scalar_function("sneak", 0, flags, |context| {
        // SAFETY: the connection is used within this call only, and not closed.
        let connection = unsafe { context.get_connection()? };
        connection.execute("INSERT INTO t VALUES (1)", [])?;
        Ok(true)
    });
    added.unwrap();
    let added = connection.create_scalar_function("sneak", 1, flags, |context| {
        let statements = context.get::<String>(0)?;
        // SAFETY: as above.
        let connection = unsafe { context.get_connection()? };
        connection.execute_batch(&statements)?;
        Ok(true)
    });
    added.unwrap();
}

fn fork(body: impl FnOnce()) -> i32 {
    // SAFETY: the C library makes its heap sound in the child, and the child leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: nothing of the parent is dropped or flushed twice.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    pid
}
