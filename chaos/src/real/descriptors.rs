//! An authority that has few descriptors to look with, or none.
//!
//! What cannot be opened is doubt: it is no death, and a tree that cannot be looked at is not empty.

use lease_procfs::Kernel;

use super::problem::Problem;
use super::steps::{AT_ONCE, alive};
use super::story::{Count, Rule};
use super::wire::Reply;
use super::work::{Group, Task};
use super::world::{Authority, Process, World};

/// As many as any look has open at a time, and some more.
const FEW: usize = 8;

/// `real-descriptors-exhausted`: every number of descriptors from none on, in each state of the holder.
pub(crate) fn exhausted(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority_of_work()?;
    let mut next = world.holder("next")?;
    let mut first = world.holder_in("first", 0)?;
    let group = first.number;
    let old = world.acquires(&mut first)?;
    let member = first.employs(Task::Nothing, Group::Same)?;
    // What takes the most descriptors to see.
    let user = first.employs(Task::OtherNamespace, Group::Own)?;

    let blind = "unknown: lookup_exhausted";
    let seen = [blind, alive(Kernel::detect())];
    is_kept(world, &mut authority, &mut next, seen)?;
    first.kill()?;
    world.story.count(Count::Kills, 1);
    // The dead holder's connection has ended, and is closed before the answer to this: it would come free
    // later, and be one descriptor too many.
    authority.news()?;
    let seen = [blind, "occupied: group_alive"];
    is_kept(world, &mut authority, &mut next, seen)?;
    first.reap()?;
    world.sees_in_group(group, &[member.number])?;
    let blind = "unknown: occupancy_failed";
    let seen = [blind, "occupied: group_alive"];
    is_kept(world, &mut authority, &mut next, seen)?;
    member.end()?;
    world.sees_in_group(group, &[])?;
    world.sees_in_tree(&[user.number])?;
    let seen = [blind, "occupied: path_in_use"];
    is_kept(world, &mut authority, &mut next, seen)?;
    user.end()?;

    // Nobody is left, and who cannot see that grants nothing.
    world.sees_in_tree(&[])?;
    authority.leave_descriptors(Some(0))?;
    world.is_kept_out(&mut next, Rule::UnknownNeverGrants, blind)?;
    authority.leave_descriptors(None)?;
    world.takes_over(&mut authority, &mut next, old, "no_such_process")?;
    authority.close(&mut world.story)
}

/// The contender is refused whatever number of descriptors is left; without any and with all the verdict
/// is this one.
fn is_kept(
    world: &mut World,
    authority: &mut Authority,
    contender: &mut Process,
    [without, with]: [&str; 2],
) -> Result<(), Problem> {
    authority.leave_descriptors(Some(0))?;
    world.is_kept_out(contender, Rule::UnknownNeverGrants, without)?;
    for free in 1..=FEW {
        authority.leave_descriptors(Some(free))?;
        let reply = contender.ask(&AT_ONCE)?;
        let Reply::Refused(refused) = reply else {
            let what = format!("with {free} descriptors to look with: {reply:?}");
            return Err(Problem::violated(Rule::UnknownNeverGrants, what));
        };
        world.story.count(Count::Descriptors, 1);
        let seen = refused.verdict.as_deref().unwrap_or("");
        let fits = seen == with || seen.starts_with("unknown: ");
        world.story.check(Rule::UnknownNeverGrants, fits, || {
            format!("with {free} descriptors to look with the verdict was {seen}")
        });
    }
    authority.leave_descriptors(None)?;
    world.is_kept_out(contender, Rule::WorkIsAwaited, with)?;
    Ok(())
}
