//! Turns: who waits is let in in the order of coming, whoever else is in a hurry.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

#[cfg(feature = "test-util")]
use lease_sqlite::LockOptions;
use lease_sqlite::{Lane, WriteLock};

use crate::rig::{BOUND, Place, Writer, descriptors, now, said, until, within};

/// Nothing but a sign wakes it within the bound.
#[cfg(feature = "test-util")]
fn deaf(place: &Place) -> WriteLock {
    let never = BOUND.saturating_mul(100);
    let options = LockOptions::new().poll(never).beat(never);
    options.open(place.database()).unwrap()
}

/// How many processes wait at the gate of the record.
pub(crate) fn waiting_at_gate(place: &Place) -> usize {
    let inode = fs::metadata(place.record()).unwrap().ino();
    let file = format!(":{inode} ");
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let is_waiting =
        |line: &&str| line.contains("->") && line.contains("OFDLCK") && line.contains(&file);
    locks.lines().filter(is_waiting).count()
}

#[test]
fn sixteen_who_wait_are_all_let_in_as_each_lets_go() {
    const WAITING: usize = 16;
    let place = Place::new();
    let lock = place.lock();
    let mut others: Vec<Writer> = (0..WAITING).map(|_| Writer::start(&place)).collect();
    let hold = now(&lock).unwrap();
    for (number, other) in others.iter_mut().enumerate() {
        other.order(&format!("acquire {}", BOUND.as_millis()));
        until("it waits", || waiting_at_gate(&place) > number);
    }
    hold.release().unwrap();
    let granted = std::sync::Mutex::new(Vec::new());
    scope(|scope| {
        for (number, other) in others.iter_mut().enumerate() {
            let granted = &granted;
            scope.spawn(move || {
                assert_eq!(other.answer(), "granted depth=1");
                granted.lock().unwrap().push(number);
                assert_eq!(other.does("release"), "Some(Ok(Lock))");
            });
        }
    });
    // The order of coming is meant and mostly kept, and not promised: see 0002.
    said(&format!("let in: {:?}", granted.into_inner().unwrap()));
}

/// How often each thread takes its turn in a storm.
const ROUNDS: usize = 100;

/// The number of threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(feature = "test-util")]
#[test]
fn somebody_who_takes_again_at_once_does_not_overtake_who_waits() {
    let place = Place::new();
    let lock = deaf(&place);
    let mut other = Writer::start(&place);
    for _round in 0..10 {
        assert_eq!(other.does("acquire 0"), "granted depth=1");
        scope(|scope| {
            let waiter = scope.spawn(|| {
                let hold = lock.acquire(within(BOUND)).unwrap();
                fs::write(lock.lock_path().with_extension("waited"), "").unwrap();
                hold.release().unwrap();
            });
            until("somebody stands first in line", || {
                waiting_at_gate(&place) > 0
            });
            // Without a pause, and still not before the one who waits.
            assert_eq!(other.does("again"), "again, after who waited: true");
            waiter.join().unwrap();
        });
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
}

#[test]
fn nobody_starves_beside_somebody_in_a_tight_loop() {
    let place = Place::new();
    let lock = place.lock();
    let mut greedy = Writer::start(&place);
    greedy.order("loop");
    assert_eq!(greedy.answer(), "looping");
    let mut longest = Duration::ZERO;
    for _round in 0..50 {
        let hold = lock.acquire(within(BOUND)).unwrap();
        longest = longest.max(hold.granted().waited);
        hold.release().unwrap();
    }
    said(&format!("longest wait beside a tight loop: {longest:?}"));
    greedy.order("stop");
    let told = greedy.answer();
    assert!(told.starts_with("looped "), "{told}");
}

/// Who was inside, in order: a letter in, a dot out.
fn inside(log: &Path, name: char) {
    let mut file = OpenOptions::new().append(true).open(log).unwrap();
    write!(file, "{name}").unwrap();
    std::thread::yield_now();
    write!(file, ".").unwrap();
}

/// Lets threads take turns; each has a letter of its own. Returns the longest wait in microseconds.
pub(crate) fn storm(lock: &WriteLock, letters: &str) -> String {
    let log = lock.lock_path().with_extension("log");
    let longest = AtomicU64::new(0);
    scope(|scope| {
        for letter in letters.chars() {
            let (log, longest) = (&log, &longest);
            scope.spawn(move || {
                let lane = Lane::new();
                for _round in 0..ROUNDS {
                    let hold = lock.acquire_on(&lane, within(BOUND)).unwrap();
                    let waited = hold.granted().waited.as_micros().try_into().unwrap();
                    longest.fetch_max(waited, Ordering::Relaxed);
                    inside(log, letter);
                    hold.release().unwrap();
                }
            });
        }
    });
    longest.into_inner().to_string()
}

/// The longest time, in turns of others, that anybody stayed away between two turns.
fn longest_run_of_others(log: &str, letters: &str) -> usize {
    let turns: Vec<char> = log.chars().step_by(2).collect();
    let away = |letter: char| {
        let parts: Vec<_> = turns.split(|turn| *turn == letter).collect();
        // Not before the first and not after the last one: they neither begin nor end together.
        let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
        inner.iter().map(|part| part.len()).max().unwrap_or(0)
    };
    letters.chars().map(away).max().unwrap()
}

#[test]
fn eight_threads_of_each_of_four_processes_take_turns_and_leave_nothing_behind() {
    const LETTERS: [&str; 4] = ["ABCDEFGH", "IJKLMNOP", "QRSTUVWX", "YZ012345"];
    let place = Place::new();
    let log = place.directory.join("app.db.log");
    fs::write(&log, "").unwrap();
    let mut others: Vec<Writer> = (1..4).map(|_| Writer::start(&place)).collect();
    let with_others = (descriptors(), threads());
    for (other, letters) in others.iter_mut().zip(&LETTERS[1..]) {
        other.order(&format!("storm {letters}"));
    }
    let lock = place.lock();
    let mut told = vec![storm(&lock, LETTERS[0])];
    told.extend(others.iter().map(Writer::answer));
    let log = fs::read_to_string(&log).unwrap();
    let pairs: Vec<char> = log.chars().collect();
    assert_eq!(pairs.len(), 2 * 32 * ROUNDS);
    for pair in pairs.chunks(2) {
        assert!(
            pair[0] != '.' && pair[1..] == ['.'],
            "two are inside at once"
        );
    }
    let run = longest_run_of_others(&log, &LETTERS.concat());
    said(&format!(
        "{} turns; longest waits in microseconds {told:?}; longest run of others {run}",
        pairs.len() / 2
    ));
    // How long is not promised: a process has one place in the line, however many of its threads wait, and
    // a busy machine wakes some of them late. That each thread had all its turns was counted above.
    drop(lock);
    until("no thread and no descriptor is left", || {
        (descriptors(), threads()) == with_others
    });
    assert!(now(&place.lock()).is_ok());
}
