//! A death watch in the process that is the parent of some of those who are watched.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use lease_core::Locality::ThisMachine;
use lease_procfs::{Death, DeathWatch, Found, Pid, ProcFs, ProcessIdentity, WatchId};
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::chance::Chance;
use super::kill::{NUMBER, needs_pidfs};
use super::launch::itself;
use super::problem::{Problem, Tried as _};
use super::story::{Count, Rule};
use super::work::{Group, Task};
use super::world::{PROMPT, Process, World};

/// How the children end: by nothing that a shell lets its programs ignore.
const ENDS: [Signal; 4] = [Signal::KILL, Signal::TERM, Signal::ALARM, Signal::USR1];

/// `real-death-watch`: children, somebody else's child, and a number that comes back.
pub(crate) fn watch(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let watch = DeathWatch::new(&ProcFs::system()).tried("making a watch")?;
    std::fs::create_dir(super::work::tree(&world.folder)).tried("making the tree")?;
    let mut launcher = Process::start("launcher", world.holder_command("launcher"))?;
    let stranger = launcher.employs(Task::Nothing, Group::Same)?;
    let strangers_watch = watches(&watch, stranger.number)?;
    let mut children = Vec::new();
    for signal in ENDS {
        let child = Process::start("child", itself("idle", [""; 0]))?;
        children.push((watches(&watch, child.number)?, child, signal));
    }

    // In an order that a seed repeats.
    let mut chance = Chance::new(world.seed);
    while !children.is_empty() {
        let bound = u64::try_from(children.len()).unwrap_or(1);
        let at = usize::try_from(chance.below(bound)).unwrap_or(0);
        let (watched, child, signal) = children.swap_remove(at);
        child.signal(signal)?;
        let ending = is_told(world, &watch, watched)?.and_then(|ending| ending.signal());
        let is_so = ending == Some(signal.as_raw());
        world.story.check(Rule::EndingIsTheKernels, is_so, || {
            format!("a child was ended by {signal:?}, told was {ending:?}")
        });
        is_left_to_its_parent(world, &child, signal)?;
        child.reap()?;
    }
    stranger.kill()?;
    is_told(world, &watch, strangers_watch)?;
    launcher.kill_and_reap()?;
    comes_back(world, &watch)?;
    let watched = watch.watched();
    world.story.check(Rule::DeathIsToldOnce, watched == 0, || {
        format!("{watched} are watched still")
    });
    Ok(())
}

/// The number of somebody who was watched goes to somebody else, of whose death nothing is told.
fn comes_back(world: &mut World, watch: &DeathWatch) -> Result<(), Problem> {
    let idle = || itself("idle", [""; 0]);
    let first = Process::start_numbered("first", idle(), NUMBER)?;
    let identity = described(NUMBER)?;
    let watched = watches(watch, NUMBER)?;
    first.kill_and_reap()?;
    let second = Process::start_numbered("second", idle(), NUMBER)?;
    world.story.count(Count::PidsRecycled, 1);
    is_told(world, watch, watched)?;
    let found = watch.watch(&identity, ThisMachine).tried("watching")?;
    let is_gone = matches!(&found, Found::Gone(evidence) if evidence.proof == "pid_recycled");
    world.story.check(Rule::DeathIsToldOnce, is_gone, || {
        format!("the number's next owner was taken for the first: {found:?}")
    });
    let runs = !second.has_exited(Duration::ZERO)?;
    world.story.effect(runs, "the number's new owner runs");
    second.kill_and_reap()?;
    nobody_is_told(world, watch)
}

fn described(number: i32) -> Result<ProcessIdentity, Problem> {
    let pid = Pid::new(number.into()).tried("naming a process")?;
    ProcessIdentity::of(&ProcFs::system(), pid).tried("describing a process")
}

fn watches(watch: &DeathWatch, number: i32) -> Result<WatchId, Problem> {
    let found = watch.watch(&described(number)?, ThisMachine);
    match found.tried("watching")? {
        Found::Running(id) => Ok(id),
        Found::Gone(evidence) => Err(Problem::violated(
            Rule::LiveHolderIsKept,
            format_args!("a process that runs is gone: {}", evidence.proof),
        )),
    }
}

/// This death, and no other one, is told. Returns how it ended, which is asked for at once.
fn is_told(
    world: &mut World,
    watch: &DeathWatch,
    watched: WatchId,
) -> Result<Option<ExitStatus>, Problem> {
    let deaths = watch.wait(Some(PROMPT)).tried("waiting for a death")?;
    let told: Vec<_> = deaths.iter().map(Death::id).collect();
    let ending = deaths.iter().find_map(Death::ending);
    world.story.count(Count::Deaths, 1);
    world
        .story
        .check(Rule::DeathIsToldOnce, told == [watched], || {
            format!("{watched:?} has died, told was {told:?}")
        });
    nobody_is_told(world, watch)?;
    Ok(ending)
}

fn nobody_is_told(world: &mut World, watch: &DeathWatch) -> Result<(), Problem> {
    let deaths = watch
        .wait(Some(Duration::ZERO))
        .tried("waiting for nobody")?;
    world
        .story
        .check(Rule::DeathIsToldOnce, deaths.is_empty(), || {
            format!("told once more: {deaths:?}")
        });
    Ok(())
}

/// The kernel still has for the parent how its child ended.
fn is_left_to_its_parent(world: &mut World, child: &Process, by: Signal) -> Result<(), Problem> {
    let number = rustix::process::Pid::from_raw(child.number);
    let number = number.ok_or_else(|| Problem::broken("0 is no process"))?;
    let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ending = waitid(WaitId::Pid(number), looks);
    let signal = ending
        .as_ref()
        .ok()
        .and_then(|ending| ending.as_ref()?.terminating_signal());
    let is_there = signal == Some(by.as_raw());
    world
        .story
        .effect(child.has_exited(Duration::ZERO)?, "the child has died");
    if is_there {
        return Ok(());
    }
    let what = format!("a child was ended by {by:?}, its parent is told {ending:?}");
    Err(Problem::violated(Rule::WatchReapsNobody, what))
}
