//! A holder is gone, and somebody is at its work: members of its process group, users of its tree.
//!
//! Who is at work is read by the scenario itself, see `shown`; the authority must say the same.

use std::fs;

use lease_core::Locality::ThisMachine;
use rustix::mount::mount_bind;

use super::authority::Terms;
use super::kill::{NUMBER, needs_pidfs, wait_for_tick};
use super::launch::itself;
use super::problem::{Need, Problem, Tried as _};
use super::shown::{is_group, members, users};
use super::story::Count;
use super::work::{Group, Task, other_name, tree};
use super::world::{Authority, Process, World, is_taken, next_number};

/// How often the number of a group is taken again.
const ROUNDS: usize = 3;

/// How somebody uses the tree, one after the other.
const USES: [Task; 8] = [
    Task::Directory,
    Task::OtherName,
    Task::OtherNamespace,
    Task::RemovedDirectory,
    Task::File,
    Task::RemovedFile,
    Task::Mapping,
    Task::RemovedMapping,
];

impl World {
    /// Starts an authority whose leases end when nobody is at their work any more.
    pub(crate) fn authority_of_work(&self) -> Result<Authority, Problem> {
        fs::create_dir_all(tree(&self.folder)).tried("making the tree")?;
        self.authority(Terms::Work(ThisMachine))
    }

    /// Makes sure that these are all members of a group, by what the kernel shows.
    pub(crate) fn sees_in_group(&mut self, group: i32, expected: &[i32]) -> Result<(), Problem> {
        let found = members(group)?;
        let seen = found == expected && is_group(group) != expected.is_empty();
        let what = format!("{expected:?} in process group {group}, there are {found:?}");
        self.story.effect(seen, &what);
        Ok(())
    }

    /// Makes sure that these are all who use the tree, by what the kernel shows.
    pub(crate) fn sees_in_tree(&mut self, expected: &[i32]) -> Result<(), Problem> {
        let found = users(&tree(&self.folder))?;
        let what = format!("{expected:?} in the tree, there are {found:?}");
        self.story.effect(found == expected, &what);
        Ok(())
    }

    /// The contender must be refused, because this member of the dead holder's group is left.
    fn group_is_awaited(
        &mut self,
        contender: &mut Process,
        member: i32,
        state: &str,
    ) -> Result<(), Problem> {
        let named = [format!("{member} (group{state})")];
        self.work_is_awaited(contender, "occupied: group_alive", &named)
    }
}

/// `real-group-outlives-leader`: the members of a killed leader's group are awaited, one after the other.
pub(crate) fn group_outlives_leader(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority_of_work()?;
    let mut next = world.holder("next")?;
    let mut leader = world.holder_in("leader", 0)?;
    let group = leader.number;
    let old = world.acquires(&mut leader)?;
    let stays = leader.employs(Task::Nothing, Group::Same)?;
    let moved = leader.employs(Task::Nothing, Group::Own)?;
    world.finds_it_alive(&mut next)?;

    leader.kill()?;
    world.story.count(Count::Kills, 1);
    world.sees_in_group(group, &sorted([group, stays.number]))?;
    world.group_is_awaited(&mut next, stays.number, "")?;
    leader.reap()?;
    world.sees_in_group(group, &[stays.number])?;
    world.group_is_awaited(&mut next, stays.number, "")?;
    // Who exited and was not reaped keeps the group's number.
    stays.kill()?;
    world.sees_in_group(group, &[stays.number])?;
    world.group_is_awaited(&mut next, stays.number, ", exited")?;
    stays.end()?;
    // Who has moved away and uses nothing is nobody's.
    world.sees_in_group(group, &[])?;
    world.sees_in_group(moved.number, &[moved.number])?;
    world.takes_over(&mut authority, &mut next, old, "no_such_process")?;
    moved.end()?;
    world.releases(&mut next)?;
    group_of_an_elder(world, &mut authority, &mut next)?;
    authority.close(&mut world.story)
}

/// The holder led no group: of the one that it was in, only who is no older counts.
fn group_of_an_elder(
    world: &mut World,
    authority: &mut Authority,
    next: &mut Process,
) -> Result<(), Problem> {
    let elder = world.holder_in("elder", 0)?;
    wait_for_tick();
    let mut member = world.holder_in("member", elder.number)?;
    let old = world.acquires(&mut member)?;
    let stays = member.employs(Task::Nothing, Group::Same)?;
    let older = elder.start_ticks()? < member.start_ticks()?;
    world.story.effect(older, "the elder is older");
    member.kill_and_reap()?;
    world.story.count(Count::Kills, 1);
    world.sees_in_group(elder.number, &sorted([elder.number, stays.number]))?;
    world.group_is_awaited(next, stays.number, "")?;
    stays.end()?;
    world.sees_in_group(elder.number, &[elder.number])?;
    world.takes_over(authority, next, old, "no_such_process")?;
    Ok(())
}

/// `real-group-number-again`: the group is empty, and its number is the one of another group.
pub(crate) fn group_number_again(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority_of_work()?;
    let mut next = world.holder("next")?;
    for _round in 0..ROUNDS {
        let mut leader = Process::start_numbered("leader", world.holder_command("leader"), NUMBER)?;
        leader.enter(0)?;
        leader.connect()?;
        let old = world.acquires(&mut leader)?;
        let stays = leader.employs(Task::Nothing, Group::Same)?;
        leader.kill_and_reap()?;
        world.story.count(Count::Kills, 1);
        number_is_kept(world)?;
        world.sees_in_group(NUMBER, &[stays.number])?;
        world.group_is_awaited(&mut next, stays.number, "")?;
        stays.end()?;

        let (stranger, fellow) = strangers(world)?;
        world.sees_in_group(NUMBER, &sorted([NUMBER, fellow.number]))?;
        world.story.count(Count::PidsRecycled, 1);
        world.takes_over(&mut authority, &mut next, old, "pid_recycled")?;
        world.releases(&mut next)?;
        stranger.kill_and_reap()?;
        fellow.kill_and_reap()?;
    }
    authority.close(&mut world.story)
}

/// The kernel gives nobody the number of a group that has a member.
fn number_is_kept(world: &mut World) -> Result<(), Problem> {
    next_number(NUMBER)?;
    let other = Process::start("other", itself("idle", [""; 0]))?;
    let kept = other.number != NUMBER && !is_taken(NUMBER);
    world.story.effect(kept, "the group keeps its number");
    other.kill_and_reap()?;
    Ok(())
}

/// Starts somebody who leads a group of the number that has come free, and a member of it.
fn strangers(world: &World) -> Result<(Process, Process), Problem> {
    let command = |name: &str| world.holder_command(name);
    let mut stranger = Process::start_numbered("stranger", command("stranger"), NUMBER)?;
    stranger.enter(0)?;
    let mut fellow = Process::start("fellow", command("fellow"))?;
    fellow.enter(NUMBER)?;
    Ok((stranger, fellow))
}

/// `real-path-in-use`: a process in another group uses the tree, in each way there is.
pub(crate) fn path_in_use(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority_of_work()?;
    let other = other_name(&world.folder);
    fs::create_dir(&other).tried("making a directory")?;
    mount_bind(tree(&world.folder), &other).needs(Need::MountNamespaces, "mount --bind")?;
    let mut next = world.holder("next")?;
    for task in USES {
        let mut first = world.holder_in("first", 0)?;
        let old = world.acquires(&mut first)?;
        let user = first.employs(task, Group::Own)?;
        let neighbour = first.employs(Task::Neighbour, Group::Own)?;
        let group = first.number;
        first.kill_and_reap()?;
        world.story.count(Count::Kills, 1);
        world.sees_in_group(group, &[])?;
        world.sees_in_tree(&[user.number])?;
        let named = [format!("{} ({})", user.number, task.by())];
        world.work_is_awaited(&mut next, "occupied: path_in_use", &named)?;
        user.end()?;
        world.sees_in_tree(&[])?;
        world.takes_over(&mut authority, &mut next, old, "no_such_process")?;
        world.releases(&mut next)?;
        neighbour.end()?;
    }
    authority.close(&mut world.story)
}

fn sorted<const N: usize>(mut numbers: [i32; N]) -> [i32; N] {
    numbers.sort_unstable();
    numbers
}
