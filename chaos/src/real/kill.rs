//! A holder is killed: SIGKILL, unreaped and reaped, and its number goes to somebody else.

use std::time::Duration;

use super::authority::Terms;
use super::launch::itself;
use super::pause::{boottime, pause};
use super::problem::{Need, Problem};
use super::steps::Granted;
use super::story::{Count, Rule};
use super::world::{Authority, Process, World, is_taken};
use crate::clock::Stopwatch;

/// A number that is free in a young pid namespace.
pub(crate) const NUMBER: i32 = 400;

/// The length of a clock tick of the kernel's statistics, which is the same on every machine.
const TICK: Duration = Duration::from_millis(10);

/// How many rounds `real-pid-recycled` and `real-own-pid-again` take.
const FEW: u64 = 10;

/// How many rounds `real-pid-recycled-many` takes.
const MANY: u64 = 200;

/// How many of its rounds an authority without pidfs takes. Each waits out a tick.
const MANY_BY_TICKS: u64 = 30;

/// `real-kill-exited`: killed and not reaped.
pub(crate) fn exited(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority(Terms::Process)?;
    let mut first = world.holder("first")?;
    let mut second = world.holder("second")?;
    let old = world.acquires(&mut first)?;
    world.writes(&mut first, "first")?;
    world.finds_it_alive(&mut second)?;

    first.kill()?;
    world.story.count(Count::Kills, 1);
    let zombie = first.state()? == b'Z' && first.has_exited(Duration::ZERO)?;
    world.story.effect(zombie, "the killed holder is a zombie");
    world.takes_over(&mut authority, &mut second, old, "exited")?;
    world.writes(&mut second, "second")?;

    // Reaping it afterwards changes nothing for the successor or for others.
    first.reap()?;
    let mut third = world.holder("third")?;
    world.finds_it_alive(&mut third)?;
    world.releases(&mut second)?;
    world.acquires(&mut third)?;
    world.writes(&mut third, "third")?;
    world.check_lines(Rule::WriteIsLetIn, &["first", "second", "third"])?;
    authority.close(&mut world.story)
}

/// `real-kill-reaped`: killed and reaped, and nobody has its number.
pub(crate) fn reaped(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority(Terms::Process)?;
    let mut first = world.holder("first")?;
    let mut second = world.holder("second")?;
    let old = world.acquires(&mut first)?;
    world.writes(&mut first, "first")?;
    world.finds_it_alive(&mut second)?;

    let number = first.number;
    first.kill_and_reap()?;
    world.story.count(Count::Kills, 1);
    world
        .story
        .effect(!is_taken(number), "the number names nothing");
    world.takes_over(&mut authority, &mut second, old, "no_such_process")?;
    world.writes(&mut second, "second")?;
    world.check_lines(Rule::WriteIsLetIn, &["first", "second"])?;
    authority.close(&mut world.story)
}

/// `real-pid-recycled`: the number goes to another process at once.
pub(crate) fn recycled(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority(Terms::Process)?;
    let mut successor = world.holder("successor")?;
    let mut lines = Vec::new();
    for _round in 0..FEW {
        wait_for_tick();
        let mut first = world.holder_numbered("first", NUMBER)?;
        let old = world.acquires(&mut first)?;
        world.writes(&mut first, "first")?;
        let impostor = recycle(world, first, || {
            Process::start_numbered("impostor", itself("idle", [""; 0]), NUMBER)
        })?;
        world.takes_over(&mut authority, &mut successor, old, "pid_recycled")?;
        world.writes(&mut successor, "successor")?;
        lines.extend(["first", "successor"]);
        check_runs(world, &impostor)?;
        world.releases(&mut successor)?;
        impostor.kill_and_reap()?;
    }
    world.check_lines(Rule::WriteIsLetIn, &lines)?;
    authority.close(&mut world.story)
}

/// `real-pid-recycled-many`: over and over, with and without pidfs.
pub(crate) fn recycled_many(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority(Terms::Process)?;
    let mut successor = world.holder("successor")?;
    for _round in 0..MANY {
        recycled_round(world, &mut authority, &mut successor)?;
    }
    drop(successor);
    authority.close(&mut world.story)?;

    // Without pidfs no process is described in the tick in which it started, so ticks suffice.
    world.remove_socket()?;
    let mut authority = world.authority_without_pidfs(Terms::Process)?;
    let mut successor = world.holder("successor")?;
    for _round in 0..MANY_BY_TICKS {
        let equal = recycled_round(world, &mut authority, &mut successor)?;
        world.story.count(Count::TicksOnlyRounds, 1);
        world.story.count(Count::TicksOnlyEqual, u64::from(equal));
        world.story.check(Rule::IdentityIsTheKernels, !equal, || {
            "a holder was described in the tick in which it started".to_owned()
        });
    }
    Ok(())
}

/// Returns whether the start ticks of both were equal.
fn recycled_round(
    world: &mut World,
    authority: &mut Authority,
    successor: &mut Process,
) -> Result<bool, Problem> {
    wait_for_tick();
    let mut first = world.holder_numbered("first", NUMBER)?;
    let old = world.acquires(&mut first)?;
    let ticks = first.start_ticks()?;
    let impostor = recycle(world, first, || {
        Process::start_numbered("impostor", itself("idle", [""; 0]), NUMBER)
    })?;
    let equal = impostor.start_ticks()? == ticks;
    world.takes_over(authority, successor, old, "pid_recycled")?;
    check_runs(world, &impostor)?;
    world.releases(successor)?;
    impostor.kill_and_reap()?;
    Ok(equal)
}

/// `real-own-pid-again`: the process that asks has the dead holder's own number and name.
pub(crate) fn own_pid_again(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority(Terms::Process)?;
    for _round in 0..FEW {
        wait_for_tick();
        let mut first = world.holder_numbered("writer", NUMBER)?;
        let old = world.acquires(&mut first)?;
        let command = world.holder_command("writer");
        let mut again = recycle(world, first, || {
            Process::start_numbered("writer", command, NUMBER)
        })?;
        again.connect()?;
        let new = world.takes_over(&mut authority, &mut again, old, "pid_recycled")?;
        is_another_lease(world, old, new);
        world.writes(&mut again, "again")?;
        world.releases(&mut again)?;
        again.kill_and_reap()?;
    }

    // An unrelated process has the number, and the one that asks has another.
    let mut first = world.holder_numbered("writer", NUMBER)?;
    let old = world.acquires(&mut first)?;
    let unrelated = recycle(world, first, || {
        Process::start_numbered("unrelated", itself("idle", [""; 0]), NUMBER)
    })?;
    let mut again = world.holder("writer")?;
    let new = world.takes_over(&mut authority, &mut again, old, "pid_recycled")?;
    is_another_lease(world, old, new);
    check_runs(world, &unrelated)?;
    authority.close(&mut world.story)
}

fn is_another_lease(world: &mut World, old: Granted, new: Granted) {
    let another = new.created && new.token.lease != old.token.lease;
    world.story.check(Rule::GrantIsCreated, another, || {
        format!("{:?} was granted after {:?}", new.token, old.token)
    });
}

/// Kills and reaps the holder, gives its number to somebody else at once, and makes sure that the
/// number names another process now.
fn recycle(
    world: &mut World,
    holder: Process,
    start: impl FnOnce() -> Result<Process, Problem>,
) -> Result<Process, Problem> {
    let (number, inode, ticks) = (holder.number, holder.inode, holder.start_ticks()?);
    let watch = Stopwatch::start();
    holder.kill_and_reap()?;
    let next = start()?;
    let micros = u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX);
    world.story.most(Count::ReuseMicros, micros);
    world.story.count(Count::Rounds, 1);
    world.story.count(Count::Kills, 1);
    let another = next.number == number && next.inode != inode;
    world
        .story
        .effect(another, "the number names another process");
    world.story.count(Count::PidsRecycled, u64::from(another));
    let equal = next.start_ticks()? == ticks;
    world.story.count(Count::EqualTicks, u64::from(equal));
    Ok(next)
}

/// The impostor was there all the time.
fn check_runs(world: &mut World, impostor: &Process) -> Result<(), Problem> {
    let runs = !impostor.has_exited(Duration::ZERO)?;
    world.story.effect(runs, "the number's new owner runs");
    Ok(())
}

/// Waits for the begin of a tick, so that a holder and the next owner of its number fit into it.
pub(crate) fn wait_for_tick() {
    let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
    let into = boottime().as_nanos().checked_rem(tick).unwrap_or(0);
    pause(Duration::from_nanos(tick.saturating_sub(into)));
}

/// Makes sure that an inode tells one process from the next here.
pub(crate) fn needs_pidfs() -> Result<(), Problem> {
    if lease_procfs::Kernel::detect().pidfs {
        return Ok(());
    }
    let reason = "the kernel gives pidfds no inode of their own";
    Err(Problem::missing(Need::Pidfs, reason))
}
