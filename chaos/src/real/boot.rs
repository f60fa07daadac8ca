//! A record of another boot: of an earlier one of this machine, or of another machine.

use lease_core::Locality::{ManyMachines, ThisMachine};
use lease_procfs::ProcessIdentity;

use super::authority::Terms;
use super::problem::{Problem, Tried as _};
use super::steps::Granted;
use super::story::{Count, Rule};
use super::wire::{Answer, Command};
use super::work::{Group, Task};
use super::world::{Authority, Process, World};

/// The boot id of some other machine, or of another day.
const OTHER_BOOT: &str = "351d7b06-ce56-4437-8f88-900d8f613d51";

/// `real-other-boot`: where other machines write records, their boots prove nothing here.
pub(crate) fn other_boot(world: &mut World) -> Result<(), Problem> {
    std::fs::create_dir(super::work::tree(&world.folder)).tried("making the tree")?;
    let mut authority = world.authority(Terms::Work(ManyMachines))?;
    let mut next = world.holder("next")?;
    let mut far = Process::start("far", world.holder_command("far"))?;
    recorded_elsewhere(world, &mut authority, &mut far)?;
    let another = "unknown: another_machine";
    world.is_kept_out(&mut next, Rule::UnknownNeverGrants, another)?;
    // That nobody has its number here says nothing of the other machine.
    far.kill_and_reap()?;
    world.story.count(Count::Kills, 1);
    world.is_kept_out(&mut next, Rule::UnknownNeverGrants, another)?;
    drop(next);
    authority.close(&mut world.story)?;

    world.remove_socket()?;
    earlier_boot(world)
}

/// Where this machine alone writes records, another boot is an earlier one, whoever has the number now. Its
/// group is nobody's, and who uses the tree counts all the same.
fn earlier_boot(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority(Terms::Work(ThisMachine))?;
    let mut next = world.holder("next")?;
    let mut namesake = world.holder_in("namesake", 0)?;
    let _member = namesake.employs(Task::Nothing, Group::Same)?;
    let mut other = world.holder_in("other", 0)?;
    let user = other.employs(Task::Directory, Group::Own)?;
    let old = recorded_elsewhere(world, &mut authority, &mut namesake)?;
    world.sees_in_tree(&[user.number])?;
    let named = [format!("{} (cwd)", user.number)];
    world.work_is_awaited(&mut next, "occupied: path_in_use", &named)?;
    other.kill_and_reap()?;
    user.end()?;
    world.sees_in_tree(&[])?;
    world.takes_over(&mut authority, &mut next, old, "other_boot")?;
    let runs = !namesake.has_exited(std::time::Duration::ZERO)?;
    world
        .story
        .effect(runs, "the number's owner of this boot runs");
    authority.close(&mut world.story)
}

/// Records a process as one of another boot.
fn recorded_elsewhere(
    world: &mut World,
    authority: &mut Authority,
    process: &mut Process,
) -> Result<Granted, Problem> {
    let Answer::Described { identity, .. } = process.obey(&Command::Describe)? else {
        return Err(Problem::broken("a holder does not describe itself"));
    };
    let mut identity: ProcessIdentity = identity.parse().tried("reading a record")?;
    let other = OTHER_BOOT.parse().tried("reading a boot id")?;
    world
        .story
        .effect(identity.boot_id != other, "the boot is another one");
    identity.boot_id = other;
    let reply = authority.record(&process.name, &identity.to_string())?;
    world.granted(process, reply)
}
