//! What a process without rights sees and does. Each check runs in a forked child of another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lease_core::BusyReason;
use lease_sqlite::{AcquireError, LockOptions, Step, Swept};

use crate::rig::{Place, not_run, now};
use crate::sys::{in_child_as_nobody, is_root};

/// Whether a check can be run as nobody; else this says that it is not run.
fn can_be_nobody(test: &str) -> bool {
    if !is_root() {
        not_run(test, "root", "only root can become somebody else");
    }
    is_root()
}

/// Runs a check as nobody, or says that it was not run.
#[track_caller]
fn as_nobody(test: &str, body: impl FnOnce()) {
    if can_be_nobody(test) {
        assert!(!in_child_as_nobody(body), "it panicked as nobody");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A place with a mutex and a record of this process, which anybody may use.
fn shared_place() -> Place {
    let place = Place::new();
    let lock = place.lock();
    now(&lock).unwrap().release().unwrap();
    set_mode(&place.directory, 0o777);
    set_mode(&place.mutex(), 0o666);
    place
}

// C28
#[test]
fn a_record_that_may_not_be_read_names_nobody() {
    let test = "nobody::a_record_that_may_not_be_read_names_nobody";
    if !can_be_nobody(test) {
        return;
    }
    let place = shared_place();
    set_mode(&place.record(), 0o000);
    assert!(
        place.lock().last_writer().is_some(),
        "root reads everything"
    );
    as_nobody(test, || {
        let lock = place.lock();
        assert_eq!(lock.last_writer(), None);
        assert_eq!(lock.sweep(), Swept::KeptUnattributable);
        let Err(AcquireError::Busy(busy)) = now(&lock) else {
            panic!("not busy");
        };
        assert_eq!(busy.reason, BusyReason::Unreadable);
    });
    now(&place.lock()).unwrap().release().unwrap();
}

// C20
#[test]
fn a_directory_that_may_not_be_written_is_an_error_of_the_system() {
    let place = shared_place();
    fs::remove_file(place.record()).unwrap();
    set_mode(&place.directory, 0o555);
    as_nobody(
        "nobody::a_directory_that_may_not_be_written_is_an_error_of_the_system",
        || {
            let error = now(&place.lock()).unwrap_err();
            let AcquireError::Io { path, step, source } = error else {
                panic!("{error}");
            };
            assert_eq!((path, step), (place.record(), Step::Open));
            assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
        },
    );
    set_mode(&place.directory, 0o755);
    // A record of somebody else is no error when it is opened; the fence adopts it.
    let lock = place.lock();
    fs::write(place.record(), "").unwrap();
    assert!(now(&lock).unwrap().granted().adopted.is_some());
}

#[test]
fn a_record_that_may_be_read_and_not_written_is_an_error_and_not_busy() {
    let test = "nobody::a_record_that_may_be_read_and_not_written_is_an_error_and_not_busy";
    if !can_be_nobody(test) {
        return;
    }
    let place = shared_place();
    set_mode(&place.record(), 0o444);
    as_nobody(test, || {
        let error = now(&place.lock()).unwrap_err();
        assert!(
            matches!(
                error,
                AcquireError::Io {
                    step: Step::Adopt,
                    ..
                }
            ),
            "{error}"
        );
    });
    now(&place.lock()).unwrap().release().unwrap();
}

#[test]
fn a_mutex_that_may_only_be_read_is_an_error_and_not_busy() {
    let place = shared_place();
    set_mode(&place.mutex(), 0o444);
    as_nobody(
        "nobody::a_mutex_that_may_only_be_read_is_an_error_and_not_busy",
        || {
            let error = now(&place.lock()).unwrap_err();
            assert!(
                matches!(error, AcquireError::NotAMutex { why, .. }
            if why == lease_sqlite::NotAMutex::ReadOnly),
                "{error}"
            );
        },
    );
}

// C86
#[test]
fn a_sweep_keeps_what_it_may_not_judge_and_the_record_of_another_users_process() {
    let place = shared_place();
    set_mode(&place.record(), 0o644);
    let unswept = || {
        LockOptions::new()
            .no_boot_sweep()
            .open(place.database())
            .unwrap()
    };
    let own = unswept().last_writer().unwrap().pid;
    let test =
        "nobody::a_sweep_keeps_what_it_may_not_judge_and_the_record_of_another_users_process";
    as_nobody(test, || {
        // The process lives and belongs to root: a signal would not be permitted.
        assert_eq!(unswept().sweep(), Swept::KeptAlive(own));
    });
    assert!(place.record().exists());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let dead = child.id();
    fs::write(place.record(), format!("{{\"protocol\":2,\"pid\":{dead}}}")).unwrap();
    assert!(
        matches!(unswept().sweep(), Swept::Removed(pid) if u32::try_from(pid.get()) == Ok(dead))
    );
}
