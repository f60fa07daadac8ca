//! The fence: what may lie at the record's path, and what an acquire makes of it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use lease_core::BusyReason;
use lease_sqlite::{AcquireError, AdoptionCause, Hold, WriteLock};

use crate::rig::{Place, Writer, now};

/// Puts something at a path.
type Plant = fn(&Path);

/// A record as a peer writes it.
fn peer(pid: i64) -> String {
    let object =
        format!("{{\"protocol\":2,\"pid\":{pid},\"token\":\"{pid}:0:ab:1\",\"created_at_ms\":5}}");
    format!("{object:<1024}")
}

fn cause(hold: &Hold) -> Option<AdoptionCause> {
    hold.granted().adopted.map(|adopted| adopted.cause)
}

#[track_caller]
fn refused(lock: &WriteLock) -> (BusyReason, Option<u64>) {
    match now(lock) {
        Err(AcquireError::Busy(busy)) => (busy.reason, busy.size),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_that_is_gone_is_made_again() {
    let place = Place::new();
    let lock = place.lock();
    assert_eq!(
        cause(&now(&lock).unwrap()),
        None,
        "the first one is nobody's"
    );
    fs::remove_file(place.record()).unwrap();
    let hold = now(&lock).unwrap();
    assert_eq!(cause(&hold), Some(AdoptionCause::Missing));
    assert_eq!(
        lock.last_writer().unwrap().token.as_deref(),
        Some(&*hold.granted().token)
    );
}

// C35, C45
#[test]
fn a_record_of_somebody_else_is_adopted_in_place_and_trimmed() {
    for (name, text) in [
        ("a peer's", peer(1)),
        ("a dead peer's", peer(4_194_303)),
        ("empty", String::new()),
        ("torn", format!("{:<1024}", "{\"protocol\":2,\"pi")),
        ("blanks", " ".repeat(1_024)),
        ("with more blanks", format!("{:<1500}", peer(1))),
    ] {
        let place = Place::new();
        fs::write(place.record(), text).unwrap();
        let inode = fs::metadata(place.record()).unwrap().ino();
        let lock = place.lock();
        let hold = now(&lock).unwrap();
        assert_eq!(cause(&hold), Some(AdoptionCause::Replaced), "{name}");
        let found = fs::metadata(place.record()).unwrap();
        assert_eq!((found.ino(), found.len()), (inode, 1_024), "{name}");
        assert_eq!(
            lock.last_writer().unwrap().token.as_deref(),
            Some(&*hold.granted().token)
        );
        hold.release().unwrap();
        assert_eq!(cause(&now(&lock).unwrap()), None, "{name}: once");
    }
}

// S43
#[test]
fn a_record_replaced_under_a_hold_is_left_alone_until_the_next_one() {
    let place = Place::new();
    let lock = place.lock();
    let mut other = Writer::start(&place);
    let hold = now(&lock).unwrap();
    fs::remove_file(place.record()).unwrap();
    fs::write(place.record(), peer(1)).unwrap();
    assert!(other.does("acquire 0").starts_with("busy"));
    hold.release().unwrap();
    assert_eq!(fs::read_to_string(place.record()).unwrap(), peer(1));
    let inode = fs::metadata(place.record()).unwrap().ino();
    let hold = now(&lock).unwrap();
    assert_eq!(cause(&hold), Some(AdoptionCause::Replaced));
    assert_eq!(fs::metadata(place.record()).unwrap().ino(), inode);
    hold.release().unwrap();
    assert_eq!(other.does("acquire 0"), "granted depth=1");
}

// C34
#[test]
fn what_is_no_regular_file_is_busy_and_is_neither_opened_nor_removed() {
    let table: [(&str, Plant, BusyReason); 4] = [
        (
            "directory",
            |path| fs::create_dir(path).unwrap(),
            BusyReason::Directory,
        ),
        (
            "link to nothing",
            |path| symlink("nothing", path).unwrap(),
            BusyReason::NotARegularFile,
        ),
        (
            "link to a record",
            |path| {
                fs::write(path.with_extension("victim"), peer(1)).unwrap();
                symlink(path.with_extension("victim"), path).unwrap();
            },
            BusyReason::NotARegularFile,
        ),
        (
            "pipe without a writer",
            |path| {
                let made = std::process::Command::new("mkfifo").arg(path).status();
                assert!(made.unwrap().success());
            },
            BusyReason::NotARegularFile,
        ),
    ];
    for (name, plant, reason) in table {
        let place = Place::new();
        plant(&place.record());
        let inode = fs::symlink_metadata(place.record()).unwrap().ino();
        let lock = place.lock();
        assert_eq!(refused(&lock), (reason, None), "{name}");
        assert_eq!(
            fs::symlink_metadata(place.record()).unwrap().ino(),
            inode,
            "{name}"
        );
        let victim = place.record().with_extension("victim");
        if victim.exists() {
            assert_eq!(fs::read_to_string(victim).unwrap(), peer(1), "{name}");
        }
        assert!(!place.directory.join("nothing").exists());
        // The kernel lock was given back.
        fs::rename(place.record(), place.directory.join("away")).unwrap();
        assert_eq!(
            Writer::start(&place).does("acquire 0"),
            "granted depth=1",
            "{name}"
        );
    }
}

// C40, C44
#[test]
fn what_is_not_recognised_is_busy_with_its_size_and_stays_as_it_is() {
    let two = format!("{}{}", peer(1), peer(2));
    let half = format!("{:<300}", "{\"protocol\":2,\"pi");
    for text in [
        &two,
        &half,
        "null",
        "7",
        "{}",
        "{\"pid\":0}",
        "{\"pid\":\"700\"}",
    ] {
        let place = Place::new();
        fs::write(place.record(), text).unwrap();
        let lock = place.lock();
        let size = u64::try_from(text.len()).unwrap();
        assert_eq!(refused(&lock), (BusyReason::Unrecognised, Some(size)));
        assert_eq!(fs::read_to_string(place.record()).unwrap(), text);
    }
}

/// A claim of protocol 1.
fn claim(pid: i64, created_at_ms: i64) -> String {
    format!("{{\"pid\":{pid},\"token\":\"old\",\"created_at_ms\":{created_at_ms}}}")
}

// C97, S46
#[cfg(not(feature = "legacy-v1"))]
#[test]
fn a_claim_of_protocol_1_is_not_recognised_without_the_feature() {
    for pid in [1, 4_194_303] {
        let place = Place::new();
        fs::write(place.record(), claim(pid, 5)).unwrap();
        assert_eq!(refused(&place.lock()).0, BusyReason::Unrecognised);
        assert_eq!(fs::read_to_string(place.record()).unwrap(), claim(pid, 5));
    }
}

#[cfg(feature = "legacy-v1")]
mod legacy {
    use std::time::Duration;

    use lease_sqlite::{LockOptions, Swept};

    use super::*;
    use crate::rig::{BOUND, until, within};

    fn dead_pid() -> i64 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id().into()
    }

    // C37, C75
    #[test]
    fn a_claim_of_a_running_process_is_honoured_without_keeping_the_kernel_lock() {
        let place = Place::new();
        let lock = place.lock();
        fs::write(place.record(), claim(1, 5)).unwrap();
        let before = fs::metadata(place.record()).unwrap().ino();
        for waits in [Duration::ZERO, Duration::from_millis(50)] {
            let Err(AcquireError::Busy(busy)) = lock.acquire(within(waits)) else {
                panic!("not busy");
            };
            assert_eq!(busy.reason, BusyReason::LegacyAlive);
            assert_eq!(busy.holder.unwrap().pid.get(), 1);
        }
        let mut other = Writer::start(&place);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire(within(BOUND)).map(drop));
            // Between two attempts of the waiter the kernel lets another one in, and the claim does
            // not.
            until("the kernel lock is free", || {
                let told = other.does("acquire 0");
                told.starts_with("busy LegacyAlive holder=Some(1)")
            });
            assert!(!waiter.is_finished());
            assert_eq!(fs::read_to_string(place.record()).unwrap(), claim(1, 5));
            assert_eq!(fs::metadata(place.record()).unwrap().ino(), before);
            fs::remove_file(place.record()).unwrap();
            waiter.join().unwrap().unwrap();
        });
    }

    // S42
    #[cfg(feature = "test-util")]
    #[test]
    fn every_damaged_record_is_adopted_or_keeps_everybody_out() {
        use lease_sqlite::FaultPoint;

        let wide = |text: &str| format!("{text:<1024}");
        let half = "{\"protocol\":2,\"pi";
        let unreadable = wide(" ");
        let adopted = Ok(Some(AdoptionCause::Replaced));
        let table = [
            (None, Ok(None)),
            (Some(String::new()), adopted),
            (Some(wide(half)), adopted),
            (Some(wide("")), adopted),
            (Some(peer(1)), adopted),
            (Some(peer(dead_pid())), adopted),
            (Some(format!("{half:<300}")), Err(BusyReason::Unrecognised)),
            (
                Some(format!("{}{}", peer(1), peer(2))),
                Err(BusyReason::Unrecognised),
            ),
            (Some("null".to_owned()), Err(BusyReason::Unrecognised)),
            (Some("{}".to_owned()), Err(BusyReason::Unrecognised)),
            (Some(claim(1, 5)), Err(BusyReason::LegacyAlive)),
            (Some(claim(dead_pid(), 5)), Ok(Some(AdoptionCause::Reaped))),
            (Some(unreadable), Err(BusyReason::Unreadable)),
        ];
        let last = table.len() - 1;
        for (row, (text, expected)) in table.into_iter().enumerate() {
            let place = Place::new();
            if let Some(text) = &text {
                fs::write(place.record(), text).unwrap();
            }
            let lock = place.lock();
            if row == last {
                lock.inject(FaultPoint::Read, 5);
            }
            match expected {
                Ok(expected) => {
                    let hold = now(&lock).unwrap();
                    assert_eq!(cause(&hold), expected, "row {row}");
                    let reaped = hold.granted().reaped.is_some();
                    assert_eq!(reaped, expected == Some(AdoptionCause::Reaped), "row {row}");
                    let record = fs::read(place.record()).unwrap();
                    assert_eq!(record.len(), 1_024, "row {row}");
                    let token = lock.last_writer().unwrap().token;
                    assert_eq!(token.as_deref(), Some(&*hold.granted().token), "row {row}");
                }
                Err(reason) => {
                    assert_eq!(refused(&lock).0, reason, "row {row}");
                    assert_eq!(fs::read_to_string(place.record()).unwrap(), text.unwrap());
                }
            }
        }
    }

    // C36
    #[test]
    fn a_dead_claim_is_removed_once() {
        let place = Place::new();
        let pid = dead_pid();
        fs::write(place.record(), claim(pid, 5)).unwrap();
        let lock = place.lock();
        let mut other = Writer::start(&place);
        let hold = now(&lock).unwrap();
        assert_eq!(
            i64::from(hold.granted().reaped.as_ref().unwrap().pid.get()),
            pid
        );
        let adopted = hold.granted().adopted.unwrap();
        assert_eq!(adopted.cause, AdoptionCause::Reaped);
        assert_eq!(
            adopted.new,
            fs::metadata(place.record()).map(|it| it.ino()).ok()
        );
        other.order(&format!("acquire {}", BOUND.as_millis()));
        hold.release().unwrap();
        assert_eq!(other.answer(), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
        let hold = now(&lock).unwrap();
        assert_eq!(cause(&hold), None, "it is ours already");
        assert!(hold.granted().reaped.is_none());
        assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
    }

    // S46
    #[test]
    fn two_who_find_a_dead_claim_at_once_are_granted_one_after_the_other() {
        let place = Place::new();
        fs::write(place.record(), claim(dead_pid(), 5)).unwrap();
        let mut writers = [Writer::start(&place), Writer::start(&place)];
        let told: Vec<String> = std::thread::scope(|scope| {
            let both = writers.each_mut().map(|writer| {
                scope.spawn(|| {
                    let told = writer.does(&format!("acquire {}", BOUND.as_millis()));
                    assert_eq!(writer.does("check"), "Some(Ok(()))");
                    assert_eq!(writer.does("release"), "Some(Ok(Lock))");
                    told
                })
            });
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(
            told.iter().all(|told| told.starts_with("granted")),
            "{told:?}"
        );
        let reaped = told.iter().filter(|told| told.contains("reaped")).count();
        assert_eq!(reaped, 1, "{told:?}");
        assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
    }

    // S46
    #[cfg(feature = "test-util")]
    #[test]
    fn who_comes_while_a_dead_claim_is_removed_makes_no_record_in_between() {
        use lease_sqlite::FaultPoint;

        let place = Place::new();
        let pid = dead_pid();
        fs::write(place.record(), claim(pid, 5)).unwrap();
        let lock = place.lock();
        let path = place.record();
        let mut other = Writer::start(&place);
        lock.meanwhile(FaultPoint::Adopt, move || {
            // As whoever is faster than both finds it.
            fs::remove_file(&path).unwrap();
            assert!(other.does("acquire 0").starts_with("busy Kernel"));
            assert!(!path.exists());
        });
        // The claim went by itself, so that nobody is said to have removed it.
        assert_eq!(refused(&lock).0, BusyReason::LostRace);
        let hold = now(&lock).unwrap();
        assert_eq!(cause(&hold), None);
        assert!(hold.granted().reaped.is_none());
        assert_eq!(place.names().len(), 2);
    }

    // S46
    #[cfg(feature = "test-util")]
    #[test]
    fn a_claim_that_comes_in_the_place_of_a_dead_one_is_not_removed() {
        use lease_sqlite::FaultPoint;

        let place = Place::new();
        fs::write(place.record(), claim(dead_pid(), 5)).unwrap();
        let lock = place.lock();
        let path = place.record();
        // As protocol 1 does it: complete under another name, and then in place.
        lock.meanwhile(FaultPoint::Adopt, move || {
            let own = path.with_extension("claim");
            fs::write(&own, claim(1, 6)).unwrap();
            fs::rename(own, path).unwrap();
        });
        assert_eq!(refused(&lock).0, BusyReason::LostRace);
        assert_eq!(refused(&lock).0, BusyReason::LegacyAlive);
        assert_eq!(fs::read_to_string(place.record()).unwrap(), claim(1, 6));
        assert_eq!(place.names().len(), 2, "{:?}", place.names());
        // A removal is told of by the next grant, also if the one that removed was not granted.
        fs::write(place.record(), claim(dead_pid(), 5)).unwrap();
        lock.inject(FaultPoint::Write, 5);
        now(&lock).unwrap_err();
        assert!(now(&lock).unwrap().granted().reaped.is_some());
    }

    // C41, S47
    #[test]
    fn a_claim_with_our_own_pid_is_named_and_removed_only_on_request_and_with_an_earlier_stamp() {
        let place = Place::new();
        let own = {
            let lock = place.lock();
            now(&lock).unwrap().release().unwrap();
            lock.last_writer().unwrap().pid.get().into()
        };
        let later = i64::MAX / 2;
        let table = [
            (false, 5, Err(BusyReason::LegacyOwnPid)),
            (true, later, Err(BusyReason::LegacyOwnPid)),
            (true, 5, Ok(())),
        ];
        for (reaps, stamp, expected) in table {
            let place = Place::new();
            fs::write(place.record(), claim(own, stamp)).unwrap();
            let mut options = LockOptions::new();
            if reaps {
                options = options.reap_own_pid();
            }
            let lock = options.open(place.database()).unwrap();
            // Its pid lives: it is ours. Without a mutex it would be kept in any case.
            fs::write(place.mutex(), "").unwrap();
            assert!(matches!(lock.sweep(), Swept::KeptAlive(pid) if i64::from(pid.get()) == own));
            match expected {
                Err(reason) => {
                    assert_eq!(refused(&lock).0, reason);
                    assert_eq!(
                        fs::read_to_string(place.record()).unwrap(),
                        claim(own, stamp)
                    );
                }
                Ok(()) => {
                    let hold = now(&lock).unwrap();
                    assert_eq!(
                        i64::from(hold.granted().reaped.as_ref().unwrap().pid.get()),
                        own
                    );
                }
            }
        }
    }
}
