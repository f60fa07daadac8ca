//! Turns: who waits is let in in the order of coming, whoever else is in a hurry.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

use lease_sqlite::{Lane, LockOptions};

#[cfg(feature = "test-util")]
use crate::rig::sleeps;
use crate::rig::{BOUND, Place, Writer, descriptors, now, said, until, within};

/// How many processes wait at the gate of the record.
pub(crate) fn waiting_at_gate(place: &Place) -> usize {
    let inode = fs::metadata(place.record()).unwrap().ino();
    let file = format!(":{inode} ");
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let is_waiting =
        |line: &&str| line.contains("->") && line.contains("OFDLCK") && line.contains(&file);
    // The list is read in parts, and changes in between: a line may come twice. No two wait for the same.
    let waiting = locks.lines().filter(is_waiting);
    let bytes = waiting.filter_map(|line| Some(line.split_once(&file)?.1));
    bytes.collect::<BTreeSet<_>>().len()
}

/// Whether anybody has the gate of the record that lies there now.
pub(crate) fn is_gate_shut(place: &Place) -> bool {
    let file = format!(":{} ", fs::metadata(place.record()).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let is_lock =
        |line: &str| !line.contains("->") && line.contains("OFDLCK") && line.contains(&file);
    locks.lines().any(is_lock)
}

/// Orders each of so many to do something as soon as it waits behind the one before.
fn line_up(place: &Place, waiting: usize, order: impl Fn(usize) -> String) -> Vec<Writer> {
    let mut others: Vec<Writer> = (0..waiting).map(|_| Writer::start(place)).collect();
    for (number, other) in others.iter_mut().enumerate() {
        other.order(&order(number));
        until("it waits", || waiting_at_gate(place) > number);
    }
    others
}

#[test]
fn sixteen_who_wait_are_let_in_in_the_order_of_coming() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let mut others = line_up(&place, 16, |_| format!("acquire {}", BOUND.as_millis()));
    hold.release().unwrap();
    // Each is granted only after the one before has let go.
    for other in &mut others {
        assert_eq!(other.answer(), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
}

#[test]
fn thirty_two_who_wait_take_their_turns_in_the_order_of_coming() {
    const WAITING: usize = 32;
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    let others = line_up(&place, WAITING, |number| format!("turn {number}"));
    hold.release().unwrap();
    for other in &others {
        assert_eq!(other.answer(), "had its turn");
    }
    let log = fs::read_to_string(place.directory.join("app.db.log")).unwrap();
    let expected: Vec<String> = (0..WAITING).map(|number| number.to_string()).collect();
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
}

#[cfg(feature = "test-util")]
#[test]
fn who_is_slow_at_its_turn_is_not_overtaken() {
    use lease_sqlite::FaultPoint;

    /// Many beats of those behind.
    const SLOW: Duration = Duration::from_millis(1_500);
    let place = Place::new();
    let lock = place.lock();
    let mut holder = Writer::start(&place);
    assert_eq!(holder.does("acquire 0"), "granted depth=1");
    let (waits, is_waiting) = std::sync::mpsc::channel();
    let options = LockOptions::new().when_in_line(move || waits.send(()).unwrap());
    let own = options.open(place.database()).unwrap();
    own.meanwhile(FaultPoint::Passed, || sleeps(SLOW));
    scope(|scope| {
        let waiter = scope.spawn(|| own.acquire(within(BOUND)).unwrap());
        is_waiting.recv().unwrap();
        until("it waits", || waiting_at_gate(&place) > 0);
        let mut others = [Writer::start(&place), Writer::start(&place)];
        for (number, other) in others.iter_mut().enumerate() {
            other.order(&format!("acquire {}", BOUND.as_millis()));
            until("it waits", || waiting_at_gate(&place) > number + 1);
        }
        assert_eq!(holder.does("release"), "Some(Ok(Lock))");
        let hold = waiter.join().unwrap();
        assert!(hold.granted().waited >= SLOW);
        assert_eq!(others[0].heard(), None, "it was overtaken");
        hold.release().unwrap();
        for other in &mut others {
            assert_eq!(other.answer(), "granted depth=1");
            assert_eq!(other.does("release"), "Some(Ok(Lock))");
        }
    });
    drop(lock);
}

#[test]
fn who_is_stopped_at_its_turn_is_passed_by_and_has_its_turn_later() {
    let place = Place::new();
    let lock = place.lock();
    let hold = now(&lock).unwrap();
    // No deadline lets anybody in within the bound.
    let mut others = line_up(&place, 3, |_| {
        format!("acquire {}", 100 * BOUND.as_millis())
    });
    others[0].signal("STOP");
    until("it is stopped", || others[0].is_stopped());
    hold.release().unwrap();
    for other in &mut others[1..] {
        assert_eq!(other.answer(), "granted depth=1");
        assert_eq!(other.does("release"), "Some(Ok(Lock))");
    }
    assert_eq!(others[0].heard(), None);
    others[0].signal("CONT");
    assert_eq!(others[0].answer(), "granted depth=1");
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
    let lock = place.deaf();
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

/// How many turns there have been.
fn turns(log: &Path) -> u64 {
    fs::metadata(log).unwrap().len() / 2
}

/// Lets threads take turns; each has a letter of its own. Returns the longest wait in microseconds, and in
/// turns from the moment in which a waiter has its place in the line.
pub(crate) fn storm(database: &Path, letters: &str) -> String {
    thread_local! {
        static SINCE: Cell<Option<u64>> = const { Cell::new(None) };
    }
    let options = LockOptions::new();
    let log = database.with_extension("db.log");
    #[cfg(feature = "test-util")]
    let options = {
        let log = log.clone();
        options.when_in_line(move || SINCE.set(Some(turns(&log))))
    };
    let lock = options.open(database).unwrap();
    let longest = [AtomicU64::new(0), AtomicU64::new(0)];
    scope(|scope| {
        for letter in letters.chars() {
            let (log, longest, lock) = (&log, &longest, &lock);
            scope.spawn(move || {
                let lane = Lane::new();
                for _round in 0..ROUNDS {
                    SINCE.set(None);
                    let hold = lock.acquire_on(&lane, within(BOUND)).unwrap();
                    let waited = hold.granted().waited.as_micros().try_into().unwrap();
                    let others = SINCE.get().map_or(0, |since| turns(log) - since);
                    longest[0].fetch_max(waited, Ordering::Relaxed);
                    longest[1].fetch_max(others, Ordering::Relaxed);
                    inside(log, letter);
                    hold.release().unwrap();
                }
            });
        }
    });
    let [time, turns] = longest.map(AtomicU64::into_inner);
    format!("{time} us, {turns} turns")
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
    let mut told = vec![storm(&place.database(), LETTERS[0])];
    told.extend(others.iter().map(|other| other.answer()));
    let log = fs::read_to_string(&log).unwrap();
    let pairs: Vec<char> = log.chars().collect();
    assert_eq!(pairs.len(), 2 * 32 * ROUNDS);
    for pair in pairs.chunks(2) {
        assert!(
            pair[0] != '.' && pair[1..] == ['.'],
            "two are inside at once"
        );
    }
    said(&format!(
        "{} turns; longest waits {told:?}",
        pairs.len() / 2
    ));
    for told in told {
        let turns = told.split(' ').nth(2).unwrap();
        // 31 others, and whoever of the three other processes comes newly while the gate is open. A thread that
        // the system lets stand before it is in the line sees more of them go by, but not round after round.
        let turns: u64 = turns.parse().unwrap();
        assert!(turns <= 5 * 31, "somebody waited for {turns} turns");
    }
    until("no thread and no descriptor is left", || {
        (descriptors(), threads()) == with_others
    });
    assert!(now(&place.lock()).is_ok());
}
