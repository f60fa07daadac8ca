//! Forked children.
#![expect(
    unsafe_code,
    reason = "fork; the children touch only what fork leaves sound; SQLite behind its wrapper"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Adds a function that writes when it is read.
pub(crate) fn add_sneak(connection: &Connection) {
    let flags = FunctionFlags::SQLITE_UTF8;
    let added = connection.create_scalar_function("sneak", 0, flags, |context| {
        // SAFETY: the connection is used within this call only, and not closed.
        let connection = unsafe { context.get_connection()? };
        connection.execute("INSERT INTO t VALUES (1)", [])?;
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
