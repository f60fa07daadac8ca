//! A stray close, a mutex that was replaced, a label that is too long, a record that is appended to.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use lease_sqlite::limits::RECORD_BYTES;
use lease_sqlite::{Lost, WaitBudget};

use crate::rig::{Place, own_pid};

// S39, fault B05
#[test]
fn a_stray_close_of_the_mutex_lets_another_one_in_and_only_a_look_tells() {
    let place = Place::new();
    drop(place.lock("").acquire(WaitBudget::NOW).unwrap());
    let naive = place.naive();
    naive.execute_batch("BEGIN EXCLUSIVE").unwrap();
    fs::metadata(place.mutex()).unwrap();
    assert!(!place.lets_another_in());
    drop(fs::File::open(place.mutex()).unwrap());
    // The damage: two are in, and the end of the first hold says nothing of it.
    assert!(place.lets_another_in());
    naive.execute_batch("COMMIT").unwrap();
    drop(naive);

    let lock = place.lock("");
    let hold = lock.acquire(WaitBudget::NOW).unwrap();
    fs::metadata(place.mutex()).unwrap();
    hold.check().unwrap();
    assert!(!place.lets_another_in());
    drop(fs::File::open(place.mutex()).unwrap());
    // Ours cannot prevent it, and says so before the next write.
    assert!(matches!(hold.check(), Err(Lost::Unlocked)));
    assert!(place.lets_another_in());
    hold.release().unwrap();
    assert!(place.lets_another_in());
}

// S40, fault B07
#[test]
fn a_lock_on_a_mutex_that_was_replaced_excludes_nobody_unless_it_looks() {
    let place = Place::new();
    drop(place.lock("").acquire(WaitBudget::NOW).unwrap());
    let naive = place.naive();
    naive.execute_batch("BEGIN EXCLUSIVE; COMMIT").unwrap();
    place.remake();
    naive.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // The damage: each of two has a mutex of its own.
    assert!(place.lets_another_in());
    drop(naive);

    let lock = place.lock("");
    lock.acquire(WaitBudget::NOW).unwrap().release().unwrap();
    place.remake();
    let hold = lock.acquire(WaitBudget::NOW).unwrap();
    assert_eq!(hold.granted().reopened, 1);
    assert!(!place.lets_another_in());
    hold.check().unwrap();
    // Replaced during the hold: nobody can prevent it, the next look tells, and the next hold is one.
    place.remake();
    assert!(matches!(hold.check(), Err(Lost::Moved)));
    assert!(place.lets_another_in());
    let _outcome = hold.release();
    let hold = lock.acquire(WaitBudget::NOW).unwrap();
    assert!(!place.lets_another_in());
    hold.release().unwrap();
}

// C57, C59
#[cfg(feature = "test-util")]
#[test]
fn a_handle_that_opened_only_its_mutex_before_the_directory_went_heals() {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    let place = Place::new();
    let lock = place.lock("");
    lock.inject(lease_sqlite::FaultPoint::Open, TOO_MANY_OPEN_FILES);
    lock.acquire(WaitBudget::NOW).unwrap_err();
    fs::remove_dir_all(&place.directory).unwrap();
    let hold = lock.acquire(WaitBudget::NOW).unwrap();
    hold.check().unwrap();
    assert!(!place.lets_another_in());
    hold.release().unwrap();
}

/// Letters, emoji, and characters that need six bytes each.
fn labels() -> [String; 3] {
    ["label", "\u{1f980}", "\u{1}\u{1f}"].map(|part| part.chars().cycle().take(5_000).collect())
}

// S48
#[test]
fn a_label_that_is_too_long_makes_a_holder_anonymous_unless_it_is_shortened() {
    for label in labels() {
        let place = Place::new();
        let lock = place.lock(&label);
        let text = serde_json::json!({
            "protocol": 2, "pid": own_pid(), "token": "t", "label": label,
        });
        let mut naive = text.to_string().into_bytes();
        naive.resize(RECORD_BYTES, b' ');
        fs::write(place.record(), &naive).unwrap();
        // The damage: cut in the middle of the text, the record names nobody.
        assert!(lock.last_writer().is_none());

        let inode = fs::metadata(place.record()).unwrap().ino();
        for number in 1..=100 {
            let hold = lock.acquire(WaitBudget::NOW).unwrap();
            let held = fs::metadata(place.record()).unwrap();
            let writer = lock.last_writer().unwrap();
            assert_eq!(i64::from(writer.pid.get()), own_pid());
            let token = writer.token.unwrap();
            assert!(token.ends_with(&format!(":{number}")), "{token}");
            assert_eq!(*token, *hold.granted().token);
            hold.release().unwrap();
            let left = fs::metadata(place.record()).unwrap();
            assert_eq!((left.len(), left.ino()), (1_024, inode));
            assert_eq!(
                (left.mtime(), left.mtime_nsec()),
                (held.mtime(), held.mtime_nsec())
            );
            let bytes = fs::read(place.record()).unwrap();
            let parsed: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(parsed["protocol"], 2);
        }
    }
}

// S48
#[test]
fn a_record_that_is_appended_to_grows_with_every_hold() {
    let place = Place::new();
    let mut options = fs::OpenOptions::new();
    let path = place.directory.join("naive");
    let mut naive = options.append(true).create(true).open(&path).unwrap();
    let lock = place.lock("");
    for _hold in 0..100 {
        lock.acquire(WaitBudget::NOW).unwrap().release().unwrap();
        naive.write_all(&fs::read(place.record()).unwrap()).unwrap();
    }
    // The damage: every reader sees the first holder, or two texts that are none.
    assert_eq!(fs::metadata(&path).unwrap().len(), 102_400);
    assert_eq!(fs::metadata(place.record()).unwrap().len(), 1_024);
}
