//! The authority is killed and another one takes its place.

use lease_core::{AuthorityId, Code};

use super::authority::Terms;
use super::problem::{Problem, Tried as _, made};
use super::story::{Count, Rule};
use super::wire::{Answer, Command};
use super::world::{Authority, Process, World};

/// `real-authority-restart`: a new authority knows nothing of the old one's leases, and the gate
/// refuses its tokens until the owner of the resource says so; the old ones from then on for ever.
pub(crate) fn authority_restart(world: &mut World) -> Result<(), Problem> {
    let mut old_authority = world.authority(Terms::Process)?;
    let mut first = world.holder("first")?;
    let old = world.acquires(&mut first)?;
    world.writes(&mut first, "first")?;
    old_authority.news()?;
    old_authority.keep(&mut world.story);
    let old_id = old_authority.id;
    old_authority.process.kill()?;
    world.story.count(Count::Kills, 1);
    drop(old_authority);
    let alone = matches!(first.obey(&Command::Check)?, Answer::Failed { .. });
    world.story.effect(alone, "the authority is gone");

    world.remove_socket()?;
    let authority = world.authority(Terms::Process)?;
    let another = authority.id != old_id;
    world.story.check(Rule::OldAuthorityIsRefused, another, || {
        "the new authority has the old one's id".to_owned()
    });
    first.connect()?;
    for order in [
        Command::Check,
        Command::Touch,
        Command::Begin,
        Command::Release,
    ] {
        world.is_told_stale(&mut first, &order)?;
    }

    // It starts empty, so it grants; at the gate its token is a stranger's.
    let mut second = world.holder("second")?;
    let new = world.acquires(&mut second)?;
    world.story.check(
        Rule::GrantIsCreated,
        new.code == Code::LeaseAcquired,
        || format!("the first grant of the new authority is {}", new.code),
    );
    // Both tokens have the first generation.
    let same = new.token.generation == old.token.generation;
    world.story.effect(same, "the generation was given again");
    world.is_told_stale(&mut first, &Command::Release)?;
    world.does(&mut second, &Command::Check)?;
    world.is_fenced(&mut second, Rule::OldAuthorityIsRefused, "too early")?;
    // A larger generation of a stranger is no newer one.
    world.releases(&mut second)?;
    let new = world.acquires(&mut second)?;
    let larger = new.token.generation > old.token.generation;
    world.story.effect(larger, "a larger generation was given");
    world.is_fenced(&mut second, Rule::OldAuthorityIsRefused, "still too early")?;
    world.writes(&mut first, "first until it is succeeded")?;

    succeed(world, old_id, &authority, &mut first, &mut second)?;
    let lines = [
        "first",
        "first until it is succeeded",
        "second",
        "second again",
        "first again",
    ];
    world.check_lines(Rule::OldAuthorityIsRefused, &lines)?;
    authority.close(&mut world.story)
}

/// The owner of the resource puts the new authority in the old one's place.
fn succeed(
    world: &mut World,
    old_id: AuthorityId,
    authority: &Authority,
    first: &mut Process,
    second: &mut Process,
) -> Result<(), Problem> {
    let guarded = world.guarded();
    made(guarded.succeed(authority.id), "succeeding")?.tried("succeeding")?;
    world.writes(second, "second")?;
    world.is_fenced(first, Rule::OldAuthorityIsRefused, "late")?;
    let back = made(guarded.succeed(old_id), "succeeding")?;
    world
        .story
        .check(Rule::OldAuthorityIsRefused, back.is_err(), || {
            "an authority that was succeeded came back".to_owned()
        });
    world.is_fenced(first, Rule::OldAuthorityIsRefused, "later")?;
    world.writes(second, "second again")?;

    // With a grant of the new authority the old holder is as good as any.
    world.releases(second)?;
    world.acquires(first)?;
    world.writes(first, "first again")?;
    world.is_fenced(second, Rule::LateWriteLeavesNoByte, "late")?;
    Ok(())
}
