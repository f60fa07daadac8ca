//! The write lock in a storm: writers are killed and stopped, their numbers given away, the files of
//! the lock damaged, and its directory swapped.
//!
//! The oracle, in `write_log.rs`, knows nothing of the library: a grant counts if `/proc/locks` shows the
//! lock, and a log that everybody appends to shows who was in when.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_sqlite::{AcquireError, Hold, LockOptions, WaitBudget, WriteLock};
use serde::{Deserialize, Serialize};

use super::chance::{Chance, random};
use super::launch::itself;
use super::lines::send;
use super::pause::pause;
use super::problem::{Need, Problem, Tried as _};
use super::story::{Count, Rule, Story};
use super::sys;
use super::world::{PROMPT, Process, World};
use super::write_log::{Killed, judge};
use crate::clock::Deadline;

/// How many writers there are at a time.
const WRITERS: usize = 16;

/// How long the storm blows at least.
const SPAN: Duration = Duration::from_millis(2_500);

/// How long it blows at most, where the machine has other work and what it is for has not been seen.
const MOST: Duration = Duration::from_secs(15);

/// How many records of a holder are looked at where nothing damaged them.
const RECORDS: u64 = 10;

/// How many holds it is for.
const HOLDS: u64 = 100;

/// Whoever waits longer than this starves. A stop, a child that keeps the gate, and fifteen others
/// together take a small part of it.
const STARVED: Duration = Duration::from_secs(5);

/// The number of no process.
pub(crate) const NOBODY: i32 = 4_194_303;

/// Where the record lies in its directory.
pub(crate) const RECORD_NAME: &str = "app.db.write-lock";

/// How long a record of protocol 2 is.
const RECORD: u64 = 1_024;

/// How many times the directory is swapped at most.
const SWAPS: u64 = 5;

/// What a writer says at its end.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    holds: u64,
}

/// Where everything lies.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
    log: PathBuf,
    /// Has a byte for the beginning of each damage to a record, and one for its end.
    damages: PathBuf,
    /// Is there when the storm is over.
    over: PathBuf,
}

impl Files {
    pub(crate) fn of(folder: &Path) -> Self {
        Self {
            directory: folder.join("data"),
            log: folder.join("log"),
            damages: folder.join("damages"),
            over: folder.join("over"),
        }
    }

    pub(crate) fn lock(&self, name: &str) -> Result<WriteLock, Problem> {
        let options = LockOptions::new().role("storm").label(name);
        options
            .open(self.directory.join("app.db"))
            .tried("opening the lock")
    }

    /// Appends a line in one write, which the kernel does not mix with others.
    fn log(&self, line: &str) -> Result<(), Problem> {
        append(&self.log, &format!("{line}\n"))
    }

    /// Says that a record is damaged from now on, or that this is over.
    fn damage(&self) -> Result<(), Problem> {
        append(&self.damages, ".")
    }

    /// Counts beginnings and ends of damages: the number is odd during one.
    fn damages(&self) -> u64 {
        fs::metadata(&self.damages).map_or(0, |found| found.len())
    }

    fn lines(&self) -> Result<Vec<String>, Problem> {
        match fs::read_to_string(&self.log) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Problem::broken(error)),
        }
    }
}

fn append(file: &Path, text: &str) -> Result<(), Problem> {
    let file = OpenOptions::new().append(true).create(true).open(file);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .tried("the log")
}

/// How often the kernel's list is read before a lock that is not in it is none. Who reads while others
/// take and give back may miss a line.
const READINGS: u32 = 20;

/// Returns the inode at the mutex's path, if the kernel says that this process has it locked.
fn outside_view(mutex: &Path) -> Result<Option<u64>, Problem> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    for _reading in 0..READINGS {
        let Ok(found) = fs::metadata(mutex) else {
            return Ok(None);
        };
        let locks = fs::read_to_string("/proc/locks").tried("/proc/locks")?;
        let mut lines = locks.lines();
        if lines.any(|line| locked(line) == Some((own, found.ino()))) {
            return Ok(Some(found.ino()));
        }
    }
    Ok(None)
}

/// Returns who has which inode locked for writing, if that is what the line says.
///
/// `1: POSIX  ADVISORY  WRITE 70 fe:00:4194563 1073741826 1073742335`
fn locked(line: &str) -> Option<(i32, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let is_posix = words.next() == Some("POSIX");
    let is_write = words.nth(1) == Some("WRITE");
    let pid = words.next()?.parse().ok()?;
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    (is_posix && is_write).then_some((pid, inode))
}

/// The role `lock-writer`: takes the lock over and over, and gives it back.
pub(crate) fn writer(folder: &Path, name: &str, ms: u64) -> Result<(), Problem> {
    let files = Files::of(folder);
    let lock = files.lock(name)?;
    let [seed, ..] = random();
    let mut chance = Chance::new(u64::from(seed));
    let end = Deadline::within(Duration::from_millis(ms));
    let mut said = Said { holds: 0 };
    loop {
        let damages = files.damages();
        let budget = if ms == 0 {
            WaitBudget::NOW
        } else {
            WaitBudget::Within(STARVED)
        };
        match lock.acquire(budget) {
            Ok(hold) => {
                look_at_record(&files, name, &lock, damages)?;
                said.holds = said.holds.saturating_add(u64::from(inside(
                    &files,
                    name,
                    &lock,
                    hold,
                    &mut chance,
                )?));
            }
            Err(refusal) => refused(&files, name, &lock, &refusal)?,
        }
        if end.has_passed() || files.over.exists() {
            return send(&mut io::stdout().lock(), &said).map_err(Problem::broken);
        }
        pause(Duration::from_micros(chance.below(2_000)));
    }
}

/// Says whether the record names this process and this writer, which has the lock. `damages` were counted
/// before it was taken; nothing is said of a record that was damaged since.
fn look_at_record(
    files: &Files,
    name: &str,
    lock: &WriteLock,
    damages: u64,
) -> Result<(), Problem> {
    let before = outside_view(lock.mutex_path())?;
    let record = fs::read(files.directory.join(RECORD_NAME)).unwrap_or_default();
    let is_whole = damages.is_multiple_of(2) && damages == files.damages();
    // The same mutex after as before: it is the record of the same directory.
    if !is_whole || before.is_none() || before != outside_view(lock.mutex_path())? {
        return Ok(());
    }
    let word = if names(&record, name) {
        "signed"
    } else {
        "unsigned"
    };
    files.log(&format!("{word} {name} 0"))
}

/// Whether a record is one of this process for this writer, which may have the number of one before it.
fn names(record: &[u8], name: &str) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let record: serde_json::Value = serde_json::from_slice(record).unwrap_or_default();
    record.get("pid") == Some(&own.into()) && record.get("label") == Some(&name.into())
}

/// Says that it is in, writes, and says that it leaves. Returns whether the lock lasted.
fn inside(
    files: &Files,
    name: &str,
    lock: &WriteLock,
    hold: Hold,
    chance: &mut Chance,
) -> Result<bool, Problem> {
    let Some(inode) = outside_view(lock.mutex_path())? else {
        let word = if hold.check().is_ok() {
            "unseen"
        } else {
            "lost"
        };
        files.log(&format!("{word} {name} 0"))?;
        return Ok(false);
    };
    files.log(&format!("enter {name} {inode}"))?;
    match chance.below(16) {
        0 => sys::fork_sleeper().tried("forking")?,
        // It keeps the gate shut when we are killed.
        1 => sys::clone_sleeper().tried("cloning")?,
        _ => {}
    }
    // Now and then many, so that who does not look is seen to write on after its mutex has gone.
    let writes = if chance.below(4) == 0 { 8 } else { 2 };
    for _write in 0..writes {
        if hold.check().is_err() {
            files.log(&format!("lost {name} {inode}"))?;
            return Ok(false);
        }
        files.log(&format!("write {name} {inode}"))?;
        pause(Duration::from_micros(chance.below(1_500)));
    }
    files.log(&format!("leave {name} {inode}"))?;
    let released = hold.release();
    if let Err(error) = released {
        files.log(&format!("unreleased {name} 0 {}", in_full(&error)))?;
    }
    Ok(true)
}

/// A refusal leaves nothing behind, and nobody waits for ever.
fn refused(
    files: &Files,
    name: &str,
    lock: &WriteLock,
    refusal: &AcquireError,
) -> Result<(), Problem> {
    if outside_view(lock.mutex_path())?.is_some() {
        files.log(&format!("kept {name} 0 {refusal:?}"))?;
    }
    match refusal {
        AcquireError::Busy(busy) => files.log(&format!("starved {name} 0 {busy:?}")),
        error => files.log(&format!("error {name} 0 {}", in_full(error))),
    }
}

/// An error with its causes, in one line.
pub(crate) fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

struct Storm {
    files: Files,
    folder: PathBuf,
    writers: Vec<Process>,
    killed: Killed,
    started: u64,
    swaps: u64,
    most: Deadline,
}

/// `real-write-lock-storm`.
pub(crate) fn storm(world: &mut World) -> Result<(), Problem> {
    let files = Files::of(&world.folder);
    fs::create_dir(&files.directory).tried("making the directory")?;
    let mut storm = Storm {
        files,
        folder: world.folder.clone(),
        writers: Vec::new(),
        killed: Killed::new(),
        started: 0,
        swaps: 0,
        most: Deadline::within(MOST),
    };
    let least = Deadline::within(SPAN);
    for _writer in 0..WRITERS {
        let writer = storm.start(None)?;
        storm.writers.push(writer);
    }
    let mut chance = Chance::new(world.seed);
    while !least.has_passed() || !(storm.most.has_passed() || storm.has_seen_enough()?) {
        pause(Duration::from_millis(chance.below(12)));
        storm.blow(world, &mut chance)?;
    }
    storm.calm(world)
}

impl Storm {
    fn command(&self, name: &str, ms: u64) -> std::process::Command {
        let ms = ms.to_string();
        let words = [self.folder.as_os_str(), OsStr::new(name), OsStr::new(&ms)];
        itself("lock-writer", words)
    }

    /// Starts a writer, under a given number where the machine allows it.
    fn start(&mut self, number: Option<i32>) -> Result<Process, Problem> {
        self.started = self.started.saturating_add(1);
        let name = format!("writer-{}", self.started);
        let ms = u64::try_from(self.most.remaining().as_millis()).unwrap_or(0);
        let command = self.command(&name, ms.max(1));
        let Some(number) = number else {
            return Process::start(&name, command);
        };
        match Process::start_numbered(&name, command, number) {
            Err(Problem::Missing {
                need: Need::SetTid, ..
            }) => self.start(None),
            started => started,
        }
    }

    /// Whether there is nothing left to wait for.
    fn has_seen_enough(&self) -> Result<bool, Problem> {
        let lines = self.files.lines()?;
        let seen = judge(&mut Story::default(), &lines, &self.killed);
        Ok(seen.entered > HOLDS && seen.killed_inside > 0 && seen.records > RECORDS)
    }

    fn blow(&mut self, world: &mut World, chance: &mut Chance) -> Result<(), Problem> {
        match chance.below(100) {
            0..30 => self.kill(world, chance),
            30..60 => self.stop(world, chance),
            60..95 => {
                self.files.damage()?;
                let done = if chance.below(7) < 5 {
                    self.damage(world, chance)
                } else {
                    self.claim(world, chance)
                };
                done.and_then(|()| self.files.damage())
            }
            _ => self.swap(world),
        }
    }

    /// Chooses the one that is inside in half of all cases.
    fn victim(&self, chance: &mut Chance) -> Result<usize, Problem> {
        let any = usize::try_from(chance.below(16)).unwrap_or(0);
        let lines = self.files.lines()?;
        let last = lines.last().and_then(|line| line.split(' ').nth(1));
        let inside = self
            .writers
            .iter()
            .position(|writer| Some(writer.name.as_str()) == last);
        Ok(inside.filter(|_| chance.below(2) == 0).unwrap_or(any))
    }

    /// Kills one, and gives its number to another one at once.
    fn kill(&mut self, world: &mut World, chance: &mut Chance) -> Result<(), Problem> {
        let at = self.victim(chance)?;
        let lines = self.files.lines()?.len();
        let writer = self.writers.swap_remove(at);
        let number = writer.number;
        self.killed.insert(writer.name.clone(), lines);
        writer.kill_and_reap()?;
        world.story.count(Count::Kills, 1);
        let next = self.start(Some(number))?;
        let is_recycled = u64::from(next.number == number);
        world.story.count(Count::PidsRecycled, is_recycled);
        self.writers.push(next);
        Ok(())
    }

    fn stop(&self, world: &mut World, chance: &mut Chance) -> Result<(), Problem> {
        let at = self.victim(chance)?;
        let Some(writer) = self.writers.get(at) else {
            return Ok(());
        };
        if writer.has_exited(Duration::ZERO)? {
            return Ok(());
        }
        writer.stop()?;
        pause(Duration::from_millis(chance.below(60)));
        writer.resume()?;
        world.story.count(Count::Stops, 1);
        Ok(())
    }

    /// Removes, tears or replaces the record. Who holds is written there; who may hold is not.
    fn damage(&self, world: &mut World, chance: &mut Chance) -> Result<(), Problem> {
        let record = self.files.directory.join(RECORD_NAME);
        let done = match chance.below(3) {
            0 => fs::remove_file(&record),
            1 => tear(&record),
            _ => self.replace(&record),
        };
        match done {
            Ok(()) => world.story.count(Count::Damages, 1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Problem::broken(error)),
        }
        Ok(())
    }

    fn replace(&self, record: &Path) -> io::Result<()> {
        self.put(record, &[b' '; 1_024])
    }

    /// Puts something complete in the record's place.
    fn put(&self, record: &Path, bytes: &[u8]) -> io::Result<()> {
        let other = self.folder.join("other");
        fs::write(&other, bytes)?;
        fs::rename(other, record)
    }

    /// Claims as protocol 1 does: for a process that is gone, or for this one, which gives it up again.
    fn claim(&self, world: &mut World, chance: &mut Chance) -> Result<(), Problem> {
        let record = self.files.directory.join(RECORD_NAME);
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let is_alive = chance.below(2) == 0;
        let pid = if is_alive { own } else { NOBODY };
        let claim = claim_of(pid);
        match self.put(&record, claim.as_bytes()) {
            Ok(()) => world.story.count(Count::Claims, 1),
            // Between the two directories there is none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Problem::broken(error)),
        }
        if is_alive {
            self.files.log("claim story 0")?;
            pause(Duration::from_millis(chance.below(40)));
            self.files.log("unclaim story 0")?;
            // Nobody puts anything in the place of a claim of somebody who lives.
            let found = fs::read(&record).tried("the claim")?;
            let is_there = found == claim.as_bytes();
            world.story.check(Rule::ClaimIsHonoured, is_there, || {
                "something else lies in the place of a living claim".to_owned()
            });
            fs::remove_file(&record).tried("the claim")?;
        }
        Ok(())
    }

    /// Puts an empty directory in the place of the lock's.
    fn swap(&mut self, world: &mut World) -> Result<(), Problem> {
        if self.swaps == SWAPS {
            return Ok(());
        }
        self.swaps = self.swaps.saturating_add(1);
        let mutex = self.files.directory.join("app.db.write-lock.mutex");
        let inode = fs::metadata(mutex).map_or(0, |found| found.ino());
        self.files.log("swap story 0")?;
        let old = self.folder.join(format!("data-{}", self.swaps));
        fs::rename(&self.files.directory, old).tried("swapping")?;
        self.files.log(&format!("swapped story {inode}"))?;
        // A writer may have made it again already.
        fs::create_dir_all(&self.files.directory).tried("swapping")?;
        world.story.count(Count::Swaps, 1);
        Ok(())
    }

    /// Hears the survivors, judges the log, and sees that the next one gets in at once.
    fn calm(mut self, world: &mut World) -> Result<(), Problem> {
        File::create(&self.files.over).tried("ending the storm")?;
        for mut writer in std::mem::take(&mut self.writers) {
            let said: Said = writer.hear(PROMPT)?;
            world.story.count(Count::Grants, said.holds);
        }
        let lines = self.files.lines()?;
        let seen = judge(&mut world.story, &lines, &self.killed);
        let holds = format!("more than {HOLDS} holds, there were {}", seen.entered);
        world.story.effect(seen.entered > HOLDS, &holds);
        let records = format!(
            "more than {RECORDS} records of a holder, there were {}",
            seen.records
        );
        world.story.effect(seen.records > RECORDS, &records);
        world.story.count(Count::Records, seen.records);
        let inside = seen.killed_inside > 0;
        world.story.effect(inside, "a holder was killed inside");
        let mut last = Process::start("last", self.command("last", 0))?;
        let said: Said = last.hear(PROMPT)?;
        world.story.check(Rule::NextIsGranted, said.holds == 1, || {
            "nobody holds, and the next one is not granted at once".to_owned()
        });
        Ok(())
    }
}

/// A claim of protocol 1.
pub(crate) fn claim_of(pid: i32) -> String {
    format!("{{\"pid\":{pid},\"token\":\"old\",\"created_at_ms\":5}}")
}

/// Writes over the start of the record, as a holder does that is killed in the middle of it. Nobody
/// writes into a claim of protocol 1, which is shorter.
fn tear(record: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(record)?;
    if file.metadata()?.len() < RECORD {
        return Err(io::ErrorKind::NotFound.into());
    }
    file.write_all_at(b"{\"protocol\":2,\"pid\":7", 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_names_process_and_inode() {
        let line = "1: POSIX  ADVISORY  WRITE 70 fe:00:4194563 1073741826 1073742335";
        assert_eq!(locked(line), Some((70, 4_194_563)));
        assert_eq!(locked(&line.replace("WRITE", "READ")), None);
        assert_eq!(locked(&line.replace("POSIX ", "FLOCK ")), None);
        assert_eq!(locked("1: -> POSIX  ADVISORY  WRITE 70 fe:00:4 0 1"), None);
    }

    #[test]
    fn a_record_is_torn_and_a_claim_is_not() {
        let folder = std::env::temp_dir().join(format!("lease-tear-{:?}", random()));
        fs::create_dir(&folder).unwrap();
        let file = folder.join("record");
        for (bytes, is_torn) in [(1_024, true), (47, false)] {
            fs::write(&file, vec![b' '; bytes]).unwrap();
            assert_eq!(tear(&file).is_ok(), is_torn, "{bytes} bytes");
            assert_eq!(fs::read(&file).unwrap().starts_with(b"{"), is_torn);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
