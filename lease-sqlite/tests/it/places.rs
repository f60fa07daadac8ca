//! Places without room, rights or descriptors: an error with path and step at once, and nothing held.

use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lease_sqlite::rusqlite::{Connection, ffi};
use lease_sqlite::{AcquireError, GuardError, LockOptions, OpenError, WaitBudget, WriteLock};

use crate::guarded::code;
use crate::rig::{Place, not_run, now};
use crate::sys::{
    bind, enter_own_mounts, in_child, in_child_as_nobody, is_root, limit_descriptors, mount_tmpfs,
    unmount,
};

const PAGE: usize = 4_096;

/// Runs a check in a process with mounts of its own, or says that it was not run.
#[track_caller]
fn in_own_mounts(test: &str, body: impl FnOnce()) {
    if !is_root() {
        not_run(test, "root", "only root mounts outside a user namespace");
        return;
    }
    if in_child(|| enter_own_mounts().unwrap()) {
        not_run(test, "mount-namespaces", "no mounts of one's own");
        return;
    }
    let panicked = in_child(|| {
        enter_own_mounts().unwrap();
        body();
    });
    assert!(!panicked, "it panicked in its own mounts");
}

/// A place with a file system of its own, gone with it.
#[derive(Debug)]
struct Mounted(Place);

impl Mounted {
    fn new(options: &CStr) -> Self {
        let place = Place::new();
        mount_tmpfs(&place.directory, options, 0).unwrap();
        Self(place)
    }
}

impl Deref for Mounted {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0.directory);
    }
}

fn open(directory: &Path) -> WriteLock {
    LockOptions::new().open(directory.join("app.db")).unwrap()
}

/// With all the time there is, so that only a refusal to wait returns at all.
#[track_caller]
fn refused(lock: &WriteLock) -> AcquireError {
    let error = lock.acquire(WaitBudget::Forever).unwrap_err();
    let (AcquireError::Io { path, .. }
    | AcquireError::Sqlite { path, .. }
    | AcquireError::NotAMutex { path, .. }) = &error
    else {
        panic!("{error:?}");
    };
    let ours = lock.lock_path().to_str().unwrap();
    assert!(path.to_str().unwrap().starts_with(ours), "{path:?}");
    error
}

/// Takes what is left of a full file system, but for so many pages.
fn fill(directory: &Path, left: usize) {
    let filler = directory.join("filler");
    let mut bytes = 0;
    while fs::write(&filler, vec![7; bytes + PAGE]).is_ok() {
        bytes += PAGE;
    }
    fs::write(&filler, vec![7; bytes - left * PAGE]).unwrap();
}

// fault B52
#[test]
fn a_full_disk_is_an_error_at_whatever_step_and_nothing_is_held_or_lost() {
    let test = "places::a_full_disk_is_an_error_at_whatever_step_and_nothing_is_held_or_lost";
    in_own_mounts(test, || {
        let mut refusals = Vec::new();
        let mut grants = 0;
        for (has_mutex, has_record) in [(false, false), (true, false), (true, true)] {
            for left in 0..6 {
                let place = Mounted::new(c"size=64k");
                let directory = &place.directory;
                fs::write(place.database(), "of the user").unwrap();
                if has_mutex {
                    now(&open(directory)).unwrap().release().unwrap();
                }
                if has_mutex && !has_record {
                    fs::remove_file(place.record()).unwrap();
                }
                fill(directory, left);
                let lock = open(directory);
                match now(&lock) {
                    Ok(hold) => {
                        hold.check().unwrap();
                        hold.release().unwrap();
                        grants += 1;
                    }
                    Err(_) => refusals.push(refused(&lock).to_string()),
                }
                assert_eq!(fs::read_to_string(place.database()).unwrap(), "of the user");
                let unfinished = place.names().iter().any(|name| name.contains(".new-"));
                assert!(!unfinished, "{:?}", place.names());
                // The same lock works as soon as there is room.
                fs::remove_file(directory.join("filler")).unwrap();
                let hold = now(&lock).unwrap();
                hold.check().unwrap();
                hold.release().unwrap();
                let record = fs::metadata(place.record()).unwrap();
                assert_eq!(record.len(), 1_024);
            }
        }
        refusals.sort();
        refusals.dedup_by_key(|text| text.split_whitespace().nth(2).map(str::to_owned));
        // Both a mutex and a record were without room.
        assert!(refusals.len() >= 2 && grants > 6, "{grants} {refusals:?}");
    });
}

// fault B52
#[test]
fn a_disk_without_room_for_names_is_an_error_and_leaves_no_name_of_ours_half_made() {
    let test =
        "places::a_disk_without_room_for_names_is_an_error_and_leaves_no_name_of_ours_half_made";
    in_own_mounts(test, || {
        let mut refusals = 0;
        for left in 0..4 {
            let place = Mounted::new(c"nr_inodes=12");
            let filler = |number: usize| place.directory.join(format!("filler-{number}"));
            let mut made = 0;
            while fs::write(filler(made), "").is_ok() {
                made += 1;
            }
            for number in 0..left {
                fs::remove_file(filler(number)).unwrap();
            }
            let lock = open(&place.directory);
            if now(&lock).is_err() {
                refused(&lock);
                refusals += 1;
            }
            let unfinished = place.names().iter().any(|name| name.contains(".new-"));
            assert!(!unfinished, "{:?}", place.names());
            for number in left..made {
                fs::remove_file(filler(number)).unwrap();
            }
            now(&lock).unwrap().check().unwrap();
        }
        assert!((1..4).contains(&refusals), "{refusals}");
    });
}

#[test]
fn a_database_that_is_mounted_by_itself_is_refused_and_one_in_a_mounted_directory_is_the_same() {
    let test = "places::a_database_that_is_mounted_by_itself_is_refused_and_one_in_a_mounted_directory_is_the_same";
    in_own_mounts(test, || {
        let place = Place::new();
        fs::write(place.database(), "").unwrap();
        let file = place.directory.join("data.db");
        fs::write(&file, "").unwrap();
        bind(&place.database(), &file);
        let error = LockOptions::new().open(&file).unwrap_err();
        assert!(
            matches!(&error, OpenError::Mounted { path } if *path == file),
            "{error}"
        );
        // Who says where its lock is has one with the others.
        let hold = now(&open(&place.directory)).unwrap();
        let elsewhere = LockOptions::new().lock_path(place.record());
        let elsewhere = elsewhere.open(&file).unwrap();
        assert_eq!(now(&elsewhere).unwrap().granted().depth, 2);
        unmount(&file);
        let directory = Place::new();
        bind(&place.directory, &directory.directory);
        let refused = std::thread::scope(|scope| {
            let other = scope.spawn(|| now(&open(&directory.directory)).unwrap_err());
            other.join().unwrap()
        });
        assert!(matches!(refused, AcquireError::Busy(_)), "{refused}");
        hold.release().unwrap();
        let hold = now(&open(&directory.directory)).unwrap();
        hold.check().unwrap();
        drop(hold);
        unmount(&directory.directory);
    });
}

// fault B52
#[test]
fn a_read_only_place_is_an_error_whatever_lies_there() {
    let test = "places::a_read_only_place_is_an_error_whatever_lies_there";
    in_own_mounts(test, || {
        for has_files in [false, true] {
            let place = Mounted::new(c"");
            if has_files {
                now(&open(&place.directory)).unwrap().release().unwrap();
            }
            let names = place.names();
            let remount = libc::MS_REMOUNT | libc::MS_RDONLY;
            mount_tmpfs(&place.directory, c"", remount).unwrap();
            let lock = open(&place.directory);
            refused(&lock);
            assert_eq!(place.names(), names);
            assert_eq!(lock.last_writer().is_some(), has_files, "it is still read");
            mount_tmpfs(&place.directory, c"", libc::MS_REMOUNT).unwrap();
            now(&lock).unwrap().check().unwrap();
        }
    });
}

// fault B52
#[test]
fn a_full_disk_under_a_guarded_connection_is_the_databases_error_and_frees_the_lock() {
    let test =
        "places::a_full_disk_under_a_guarded_connection_is_the_databases_error_and_frees_the_lock";
    in_own_mounts(test, || {
        let place = Mounted::new(c"size=256k");
        let connection = Connection::open(place.database()).unwrap();
        let mut guarded = LockOptions::new().guard(connection).unwrap();
        guarded
            .batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
            .unwrap();
        fill(&place.directory, 0);
        let write = "INSERT INTO t VALUES (zeroblob(100000))";
        let error = guarded.execute(write, []).unwrap_err();
        let GuardError::Database { path, source } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((path, source.code), (&place.database(), ffi::SQLITE_FULL));
        assert_eq!(guarded.lock().health().depth, 0);
        let transaction = guarded.transaction().unwrap();
        assert!(transaction.execute(write, []).is_err());
        drop(transaction);
        assert_eq!(guarded.lock().health().depth, 0);
        let filler = place.directory.join("filler");
        fs::remove_file(&filler).unwrap();
        // Small enough to be kept in memory, so that only the commit fails.
        guarded
            .batch("SAVEPOINT whole; INSERT INTO t VALUES (zeroblob(10000))")
            .unwrap();
        fill(&place.directory, 0);
        let error = guarded.batch("RELEASE whole").unwrap_err();
        assert_eq!(code(&error), ffi::SQLITE_FULL);
        assert_eq!(guarded.lock().health().depth, 0);
        fs::remove_file(&filler).unwrap();
        let error = guarded.batch("RELEASE whole").unwrap_err();
        assert_eq!(code(&error), ffi::SQLITE_ERROR, "nothing is left of it");
        guarded.execute("INSERT INTO t VALUES (2)", []).unwrap();
        let rows = guarded.query("SELECT x FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!(rows.unwrap(), [1, 2]);
    });
}

// fault B52
#[test]
fn too_few_descriptors_are_an_error_at_whatever_step_and_no_more() {
    let panicked = in_child(|| {
        // Every number below is in use, so that the limit counts what is opened from here on.
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let numbers =
            open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let highest = numbers.max().unwrap();
        let mut kept: Vec<File> = Vec::new();
        while kept.last().is_none_or(|last| last.as_raw_fd() < highest) {
            kept.push(File::open("/proc/self/stat").unwrap());
        }
        let next = u64::try_from(kept.last().unwrap().as_raw_fd()).unwrap() + 1;
        let mut refusals = 0;
        for more in 0..12 {
            let place = Place::new();
            let lock = place.lock();
            let before = limit_descriptors(next + more);
            if now(&lock).is_err() {
                refused(&lock);
                refusals += 1;
            }
            limit_descriptors(before);
            let unfinished = place.names().iter().any(|name| name.contains(".new-"));
            assert!(!unfinished, "{:?}", place.names());
            let hold = now(&lock).unwrap();
            hold.check().unwrap();
            hold.release().unwrap();
        }
        assert!((2..12).contains(&refusals), "{refusals}");
        drop(kept);
    });
    assert!(!panicked);
}

// fault B52
#[test]
fn a_place_without_rights_is_an_error_and_not_busy() {
    let test = "places::a_place_without_rights_is_an_error_and_not_busy";
    if !is_root() {
        not_run(test, "root", "only root can become somebody else");
        return;
    }
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    for (directory_mode, file_mode, has_files) in [
        (0o555, 0o600, false),
        (0o755, 0o600, false),
        // The second user of a place whose first one kept everything to itself.
        (0o777, 0o600, true),
        (0o1777, 0o600, true),
        (0o1777, 0o644, true),
    ] {
        let place = Place::new();
        if has_files {
            now(&place.lock()).unwrap().release().unwrap();
            set_mode(&place.mutex(), file_mode);
        }
        set_mode(&place.directory, directory_mode);
        let names = place.names();
        let panicked = in_child_as_nobody(|| {
            refused(&open(&place.directory));
        });
        assert!(!panicked, "{directory_mode:o}");
        assert_eq!(place.names(), names, "{directory_mode:o}");
        set_mode(&place.directory, 0o755);
        now(&place.lock()).unwrap().check().unwrap();
    }
    // What cannot even be looked into is told when it is opened.
    let place = Place::new();
    set_mode(&place.directory, 0o700);
    let panicked = in_child_as_nobody(|| {
        let error = LockOptions::new().open(place.database()).unwrap_err();
        assert!(matches!(error, OpenError::Path { .. }), "{error:?}");
    });
    assert!(!panicked);
}

// fault B52
#[test]
fn a_file_in_place_of_a_directory_is_an_error() {
    let place = Place::new();
    fs::write(place.database(), "").unwrap();
    let error = LockOptions::new()
        .open(place.database().join("app.db"))
        .unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error:?}");
    // Or it becomes one afterwards.
    let directory = place.directory.join("data");
    fs::create_dir(&directory).unwrap();
    let lock = open(&directory);
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, "of the user").unwrap();
    refused(&lock);
    assert_eq!(fs::read_to_string(&directory).unwrap(), "of the user");
}
