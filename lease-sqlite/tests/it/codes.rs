//! Every code that a write lock gives, provoked once, and what goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_sqlite::{Happening, LockEvent, LockOptions, WaitBudget, WriteLock};

use crate::rig::{Place, manual, now};

/// Every code, and what was told with it at first.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<String, String>>>);

impl Told {
    fn note(&self, code: impl ToString, what: String) {
        let mut told = self.0.lock().unwrap();
        told.entry(code.to_string()).or_insert(what);
    }

    fn lock(&self, place: &Place, options: LockOptions) -> WriteLock {
        let told = self.clone();
        let hears = move |event: &LockEvent| told.note(event.code(), shown(&event.what));
        options.observer(hears).open(place.database()).unwrap()
    }

    fn refused(&self, lock: &WriteLock) {
        let error = lock.acquire(WaitBudget::NOW).unwrap_err();
        let directory = lock.lock_path().parent().unwrap().to_str().unwrap();
        let text = error.to_string().replace(directory, "");
        self.note(error.code().unwrap(), without_numbers(&text));
    }
}

/// Numbers of processes and files are other ones each time.
fn without_numbers(text: &str) -> String {
    let digit = |text: char| text.is_ascii_digit();
    let mut parts = text.split(digit).filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default().to_owned();
    let mut text = parts.fold(first, |text, part| format!("{text}#{part}"));
    if text.ends_with("by ") {
        text.push('#');
    }
    text
}

fn shown(what: &Happening) -> String {
    match what {
        Happening::Acquired(granted) => format!(
            "depth {}, waited {:?}, contended {}",
            granted.depth, granted.waited, granted.contended
        ),
        Happening::RecordAdopted(adopted) => format!(
            "{:?}, from another inode {}",
            adopted.cause,
            adopted.old != adopted.new
        ),
        Happening::LegacyClaimReaped(claim) => format!("token {:?}", claim.token),
        Happening::ForeignHold(incident) => format!(
            "{:?} by {:?}, {} ms of {} ms",
            incident.reason, incident.holder.purpose, incident.age_ms, incident.threshold_ms
        ),
        Happening::Released { held_for, .. } => format!("held for {held_for:?}"),
        Happening::Swept { .. } => "of a process that is gone".to_owned(),
        other => format!("{other:?}"),
    }
}

fn dead_pid() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// What a lock that nobody contends tells.
fn alone(told: &Told) {
    let place = Place::new();
    let (options, timing) = manual();
    let options = options.hold_budget(Duration::from_millis(100));
    let lock = told.lock(&place, options);
    let hold = now(&lock).unwrap();
    now(&lock).unwrap().release().unwrap();
    timing.advance(150);
    drop(lock);
    hold.release().unwrap();
}

/// What a lock tells whose files are another's, or were harmed.
fn repaired(told: &Told) {
    let place = Place::new();
    let claim = |pid| format!("{{\"pid\":{pid},\"token\":\"old\",\"created_at_ms\":5}}");
    fs::write(place.record(), claim(dead_pid())).unwrap();
    let lock = told.lock(&place, LockOptions::new());
    now(&lock).unwrap().release().unwrap();
    fs::remove_file(place.mutex()).unwrap();
    now(&lock).unwrap().release().unwrap();
    lock.run_on_mutex("BEGIN").unwrap();
    told.refused(&lock);
    drop(lock);
    fs::write(place.record(), claim(dead_pid())).unwrap();
    drop(told.lock(&place, LockOptions::new()));
}

/// What a lock tells that somebody else holds for long.
fn contended(told: &Told) {
    let place = Place::new();
    let (options, timing) = manual();
    let lock = told.lock(&place, options);
    now(&lock).unwrap().release().unwrap();
    let record = "{\"protocol\":2,\"pid\":1,\"token\":\"1:0:ab:1\",\"created_at_ms\":0,\"purpose\":\"nightly\"}";
    fs::write(place.record(), format!("{record:<1024}")).unwrap();
    // A reader of the mutex looks like a holder.
    let holder = rusqlite::Connection::open(place.mutex()).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for _look in 0..2 {
        timing.advance(31_000);
        told.refused(&lock);
    }
}

/// The codes that the sources of this crate name.
fn named() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(sources).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let all = texts.collect::<String>();
    let names = all.split("Code::").skip(1);
    let name =
        |rest: &str| -> String { rest.chars().take_while(char::is_ascii_alphabetic).collect() };
    names.map(name).collect()
}

#[test]
fn every_code_is_given_with_what_belongs_to_it() {
    let told = Told::default();
    alone(&told);
    repaired(&told);
    contended(&told);
    let told = told.0.lock().unwrap().clone();
    let codes = lease_core::Code::ALL.iter();
    let given = codes.filter(|code| told.contains_key(code.as_str()));
    let given: BTreeSet<String> = given.map(|code| format!("{code:?}")).collect();
    assert_eq!(
        given,
        named(),
        "a code is named and not given, or the other way round"
    );
    let lines: Vec<String> = told
        .iter()
        .map(|(code, what)| format!("{code}: {what}"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    BOOT_SWEEP: of a process that is gone
    DEPTH_RELEASED: DepthReleased { depth: 1 }
    FOREIGN_HOLD: Kernel(Confirmed) by Some("nightly"), 62000 ms of 30000 ms
    HANDLE_KEPT: HandleKept { depth: 1 }
    HOLD_BUDGET: HoldBudget { budget: 100ms, held_for: 150ms, suspended_for: 0ns }
    LEGACY_CLAIM_REAPED: token Some("old")
    LOCK_ACQUIRED: depth 1, waited 0ns, contended false
    MUTEX_REOPENED: MutexReopened { times: 1 }
    RECORD_ADOPTED: Reaped, from another inode true
    REENTRANT: depth 2, waited 0ns, contended false
    RELEASED: held for 150ms
    SQLITE_WRITE_LOCK_STATE: write lock "/app.db.write-lock" was left in a transaction
    WRITE_LOCK_BUSY: write lock "/app.db.write-lock" is busy, perhaps held by process # (nightly)
    "#);
}
