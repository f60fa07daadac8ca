//! What this program does when a scenario starts it again.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;

use super::authority::{self, Terms};
use super::holder;
use super::launch::{self, ROLE, Rights};
use super::lines::send;
use super::problem::Problem;
use super::story::Story;
use super::tales;
use super::work::{self, Group, Task};
use super::world::World;

/// Runs the role that the arguments name; the problem, if there is one, is its last message.
pub(super) fn role(arguments: &[OsString]) -> Option<ExitCode> {
    let (word, role) = arguments.split_first()?;
    if word != ROLE {
        return None;
    }
    let Err(problem) = launch::die_with_parent().and_then(|()| take(role)) else {
        return Some(ExitCode::SUCCESS);
    };
    let told: Result<Story, Problem> = Err(problem);
    // Whoever would hear that it cannot be told is gone.
    let _told = send(&mut io::stdout().lock(), &told);
    Some(ExitCode::FAILURE)
}

fn take(role: &[OsString]) -> Result<(), Problem> {
    let Some((name, rest)) = role.split_first() else {
        return Err(malformed(role));
    };
    let words: Vec<&str> = rest.iter().filter_map(|word| word.to_str()).collect();
    match (name.to_str(), words.as_slice()) {
        (Some("launch"), [rights, ..]) => {
            let rights = Rights::parse(rights).ok_or_else(|| malformed(role))?;
            launch::launch(rights, after(rest))
        }
        (Some("mounted"), [_, ..]) => launch::mounted(rest),
        (Some("init"), [name, seed, folder]) => {
            let seed = seed.parse().map_err(|_not_a_number| malformed(role))?;
            init(name, seed, Path::new(folder))
        }
        (Some("authority"), [folder, terms, pidfs]) => {
            let terms = Terms::parse(terms).ok_or_else(|| malformed(role))?;
            authority::run(Path::new(folder), terms, *pidfs == "pidfs")
        }
        (Some("holder"), [folder, name]) => holder::run(Path::new(folder), name),
        #[cfg(feature = "sqlite")]
        (Some("lock-writer"), [folder, name, ms]) => {
            super::write_lock::writer(Path::new(folder), name, parse(ms, role)?)
        }
        #[cfg(feature = "sqlite")]
        (Some("lock-once"), [folder]) => super::claim::once(Path::new(folder)),
        (Some("idle"), []) => idle(),
        (Some("worker"), [folder, task, group]) => {
            let (task, group) = Task::parse(task)
                .zip(Group::parse(group))
                .ok_or_else(|| malformed(role))?;
            work::worker(Path::new(folder), task, group)
        }
        (Some("nested"), [_, ..]) => launch::nested(rest),
        (Some("numbered"), [number, _, ..]) => launch::numbered(parse(number, role)?, after(rest)),
        (Some("inside"), [pid, _, ..]) => launch::inside(parse(pid, role)?, after(rest)),
        (Some("shifted"), [seconds, _, ..]) => launch::shifted(parse(seconds, role)?, after(rest)),
        _ => Err(malformed(role)),
    }
}

fn after(words: &[OsString]) -> &[OsString] {
    words.split_first().map_or(&[], |(_, rest)| rest)
}

fn parse<T: std::str::FromStr>(word: &str, role: &[OsString]) -> Result<T, Problem> {
    word.parse().map_err(|_not_a_number| malformed(role))
}

fn malformed(role: &[OsString]) -> Problem {
    Problem::broken(format_args!("there is no role {role:?}"))
}

/// The role `init`: tells the scenario in the first process of its namespaces.
fn init(name: &str, seed: u64, folder: &Path) -> Result<(), Problem> {
    let tell = tales::story(name)
        .ok_or_else(|| Problem::broken(format_args!("there is no scenario {name}")))?;
    let mut world = World::new(folder, seed);
    if let Err(problem) = tell(&mut world) {
        world.story.stop(problem);
    }
    let told: Result<Story, Problem> = Ok(world.story);
    send(&mut io::stdout().lock(), &told).map_err(Problem::broken)
}

/// The role `idle`: is there until its standard input ends.
fn idle() -> Result<(), Problem> {
    io::stdin()
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(Problem::broken)
}
