//! A holder stands still: SIGSTOP, and a leader thread that has gone.

use std::time::Duration;

use lease_core::Code;

use super::authority::Terms;
use super::pause::{boottime, wait_for};
use super::problem::Problem;
use super::story::{Count, Rule};
use super::wire::{Answer, Command, Reply};
use super::world::{PROMPT, Process, World};
use crate::clock::Deadline;

/// The term of the sessions here: longer than two steps take on a busy machine.
const TERM: Duration = Duration::from_millis(500);

/// `real-stop-past-term`: stopped past its term, and a successor writes before it wakes up.
pub(crate) fn past_term(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority(Terms::Session(TERM))?;
    let mut first = world.holder("first")?;
    let mut second = world.holder("second")?;
    let old = world.acquires(&mut first)?;
    world.writes(&mut first, "first")?;

    stop_past_term(world, &first)?;
    let new = world.acquires(&mut second)?;
    world.story.check(
        Rule::TokensRise,
        new.token.generation > old.token.generation,
        || format!("{:?} was granted after {:?}", new.token, old.token),
    );
    world.writes(&mut second, "second")?;

    // The order to write lies there when it wakes up: it asks nobody but the gate.
    first.send(&Command::Write {
        text: "late".to_owned(),
    })?;
    let asleep = first.state()? == b'T';
    world
        .story
        .effect(asleep, "the holder slept until its successor had written");
    first.resume()?;
    let answer: Answer = first.hear(PROMPT)?;
    world.turned_away(&first, Rule::LateWriteLeavesNoByte, &answer)?;
    world.check_lines(Rule::LateWriteLeavesNoByte, &["first", "second"])?;
    for order in [
        Command::Check,
        Command::Touch,
        Command::Begin,
        Command::Release,
    ] {
        world.is_told_stale(&mut first, &order)?;
    }
    world.writes(&mut second, "second again")?;
    world.check_lines(
        Rule::LateWriteLeavesNoByte,
        &["first", "second", "second again"],
    )?;

    let told = authority.news()?;
    let ended: Vec<_> = told.iter().map(|receipt| receipt.code).collect();
    let reclaimed = ended.contains(&Code::Reclaimed) && !ended.contains(&Code::TakenOver);
    world.story.check(Rule::ProofIsNamed, reclaimed, || {
        format!("the receipts are {ended:?}")
    });
    authority.close(&mut world.story)
}

/// `real-stop-in-flight`: stopped with an operation in flight. Nobody is granted.
pub(crate) fn in_flight(world: &mut World) -> Result<(), Problem> {
    let authority = world.authority(Terms::Session(TERM))?;
    let mut first = world.holder("first")?;
    let mut second = world.holder("second")?;
    world.acquires(&mut first)?;
    world.does(&mut first, &Command::Begin)?;
    world.writes(&mut first, "first")?;

    stop_past_term(world, &first)?;
    let refused = world.finds_it_alive(&mut second)?;
    world
        .story
        .effect(refused.expired, "the term of the stopped holder is over");
    world
        .story
        .check(Rule::LiveHolderIsKept, refused.in_flight == 1, || {
            format!("{} operations are in flight", refused.in_flight)
        });
    let waited = second.ask(&Command::Acquire { wait_ms: 300 })?;
    let timed_out =
        matches!(&waited, Reply::Refused(refused) if refused.code == Code::WaitTimedOut);
    world.story.check(Rule::LiveHolderIsKept, timed_out, || {
        format!("who waited was answered {waited:?}")
    });

    first.resume()?;
    world.writes(&mut first, "first goes on")?;
    world.does(&mut first, &Command::End)?;
    world.releases(&mut first)?;
    world.acquires(&mut second)?;
    world.writes(&mut second, "second")?;
    world.check_lines(
        Rule::LiveHolderIsKept,
        &["first", "first goes on", "second"],
    )?;
    authority.close(&mut world.story)
}

/// Stops a holder and lets its term pass.
fn stop_past_term(world: &mut World, holder: &Process) -> Result<(), Problem> {
    holder.stop()?;
    world.story.count(Count::Stops, 1);
    let end = boottime().after(TERM.saturating_mul(2));
    let deadline = Deadline::within(PROMPT);
    wait_for("the end of the term", deadline, || Ok(boottime() > end))?;
    let stopped = holder.state()? == b'T';
    world
        .story
        .effect(stopped, "the holder is stopped past its term");
    Ok(())
}

/// `real-zombie-leader`: the leader thread has exited, and another one writes on.
pub(crate) fn zombie_leader(world: &mut World) -> Result<(), Problem> {
    let mut authority = world.authority(Terms::Process)?;
    let mut first = world.holder("first")?;
    let mut second = world.holder("second")?;
    let old = world.acquires(&mut first)?;
    world.writes(&mut first, "first")?;

    first.send(&Command::LeaveLeader)?;
    let answer: Answer = first.hear(PROMPT)?;
    if !matches!(answer, Answer::Left) {
        return Err(Problem::broken(format_args!(
            "the holder answered {answer:?}"
        )));
    }
    wait_for("the end of the leader", Deadline::within(PROMPT), || {
        Ok(first.state()? == b'Z')
    })?;
    let runs = !first.has_exited(Duration::ZERO)?;
    world
        .story
        .effect(runs, "the leader is a zombie and the process runs");
    world.finds_it_alive(&mut second)?;
    world.writes(&mut first, "first without leader")?;
    world.does(&mut first, &Command::Check)?;
    world.finds_it_alive(&mut second)?;

    first.kill()?;
    world.story.count(Count::Kills, 1);
    world.takes_over(&mut authority, &mut second, old, "exited")?;
    world.writes(&mut second, "second")?;
    let lines = ["first", "first without leader", "second"];
    world.check_lines(Rule::LiveHolderIsKept, &lines)?;
    authority.close(&mut world.story)
}
