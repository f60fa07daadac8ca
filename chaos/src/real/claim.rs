//! A claim of protocol 1 that comes between the look at a dead one and the moment in which that is replaced.
//!
//! The moment is a few instructions long, so the writer is stopped in it: the scenario traces its system calls.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lease_sqlite::WaitBudget;
use serde::{Deserialize, Serialize};

use super::launch::itself;
use super::lines::{Lines, send};
use super::problem::{Need, Problem, Tried as _};
use super::story::{Count, Rule};
use super::sys;
use super::world::{PROMPT, Process, World};
use super::write_lock::{Files, NOBODY, RECORD_NAME, claim_of, in_full};
use crate::clock::Deadline;

/// More system calls than one attempt at the lock makes.
const CALLS: usize = 10_000;

/// What the role `lock-once` was told.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    is_granted: bool,
    /// Why not.
    refusal: String,
}

/// The role `lock-once`: says that it is ready, and takes the lock once it is told to.
pub(crate) fn once(folder: &Path) -> Result<(), Problem> {
    let lock = Files::of(folder).lock("once")?;
    send(&mut io::stdout().lock(), &()).tried("saying that it is ready")?;
    let told: Option<()> = Lines::default().next(io::stdin(), Deadline::within(PROMPT))?;
    told.ok_or_else(|| Problem::broken("nobody says when"))?;
    let acquired = lock.acquire(WaitBudget::NOW);
    let said = Said {
        is_granted: acquired.is_ok(),
        refusal: acquired
            .as_ref()
            .err()
            .map_or_else(String::new, |error| in_full(error)),
    };
    send(&mut io::stdout().lock(), &said).tried("saying what was told")
}

/// `real-claim-in-between`.
pub(crate) fn in_between(world: &mut World) -> Result<(), Problem> {
    let files = Files::of(&world.folder);
    fs::create_dir(&files.directory).tried("making the directory")?;
    let record = files.directory.join(RECORD_NAME);
    fs::write(&record, claim_of(NOBODY)).tried("the dead claim")?;
    let mut writer = Process::start("writer", itself("lock-once", [&world.folder]))?;
    let () = writer.hear(PROMPT)?;
    sys::trace(writer.number).needs(Need::Ptrace, "PTRACE_SEIZE")?;
    writer.send(&())?;
    let stands = comes_to_exchange(writer.number).tried("tracing")?;
    world
        .story
        .effect(stands, "the dead claim is about to be replaced");
    if !stands {
        return Ok(());
    }

    let claim = claims(&record).tried("the claim")?;
    world.story.count(Count::Claims, 1);
    sys::let_go(writer.number).tried("letting the writer go")?;
    let said: Said = writer.hear(PROMPT)?;
    world
        .story
        .check(Rule::ClaimIsHonoured, !said.is_granted, || {
            "a writer was granted beside a claim of somebody who lives".to_owned()
        });
    let busy = said.refusal.contains("busy");
    world
        .story
        .check(Rule::ErrorHasACause, said.is_granted || busy, || {
            said.refusal.clone()
        });
    let found = fs::metadata(&record).map(|found| found.ino());
    let is_there = found.as_ref().is_ok_and(|inode| *inode == claim);
    world.story.check(Rule::ClaimIsHonoured, is_there, || {
        format!("the claim is inode {claim}, in its place is {found:?}")
    });
    writer.reap()?;
    leaves_nothing(world, &files)?;

    // Who claimed gives it up, and the next one gets in at once.
    fs::remove_file(&record).tried("the claim")?;
    let mut next = Process::start("next", itself("lock-once", [&world.folder]))?;
    let () = next.hear(PROMPT)?;
    next.send(&())?;
    let said: Said = next.hear(PROMPT)?;
    world.story.check(Rule::NextIsGranted, said.is_granted, || {
        said.refusal.clone()
    });
    Ok(())
}

/// Lets a traced writer go on until it is about to let two names change places.
fn comes_to_exchange(number: i32) -> io::Result<bool> {
    let wanted = u64::try_from(libc::SYS_renameat2).unwrap_or(u64::MAX);
    for _call in 0..CALLS {
        let Some(call) = sys::next_call(number)? else {
            return Ok(false);
        };
        let [.., flags, _] = call.arguments;
        if call.number == wanted && flags == u64::from(libc::RENAME_EXCHANGE) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the dead claim and makes one for this process, as a program of protocol 1 does. Returns its inode.
fn claims(record: &Path) -> io::Result<u64> {
    fs::remove_file(record)?;
    let mut claim = File::create_new(record)?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    claim.write_all(claim_of(own).as_bytes())?;
    Ok(claim.metadata()?.ino())
}

/// No file lies there that has no meaning.
fn leaves_nothing(world: &mut World, files: &Files) -> Result<(), Problem> {
    let entries = fs::read_dir(&files.directory).tried("the directory")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let known = |name: &String| {
        name == "app.db" || name == RECORD_NAME || name.starts_with("app.db.write-lock.mutex")
    };
    let others: Vec<_> = names.filter(|name| !known(name)).collect();
    world
        .story
        .check(Rule::RefusalHoldsNothing, others.is_empty(), || {
            format!("left behind: {others:?}")
        });
    Ok(())
}
