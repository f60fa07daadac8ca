//! A process dies, and its number is another's before anybody looks.

use lease_core::LeasePolicy;

use super::Told;
use super::incident::unbegun;
use super::stage::Stage;
use crate::oracle::Rule;
use crate::sim::{Incarnation, Machines, SimHolder, Start};

const WORKTREE: &str = "repo/alloc-7";

/// Asks for the worktree, has the prober look at whoever is in the way, and asks again.
fn ask_and_look(stage: &mut Stage<SimHolder>, machines: &Machines, holder: &SimHolder) -> bool {
    if stage.ask(WORKTREE, holder).is_some() {
        return true;
    }
    let Some(question) = stage.question() else {
        return false;
    };
    let Some(process) = question.holder.process else {
        return false;
    };
    stage.know(question.answer(machines.observe(&process, &question)));
    let granted = stage.ask(WORKTREE, holder).is_some();
    stage.forget();
    granted
}

/// Starts a writer's process with the lowest number that is free.
fn start(machines: &mut Machines, agent: u8) -> Option<(Incarnation, SimHolder)> {
    let process = machines.spawn(0, Start::default())?;
    let holder = SimHolder {
        agent,
        session: None,
        process: machines.describe(process, 0),
    };
    Some((process, holder))
}

/// Alive, unseen and recycled: only the last one passes the lease on.
pub(super) fn pid_recycled() -> Told {
    let mut machines = Machines::new(true);
    let (Some((dying, first)), Some((_, second))) =
        (start(&mut machines, 1), start(&mut machines, 2))
    else {
        return unbegun();
    };
    let mut stage = Stage::new(LeasePolicy::process_bound(), 1_000_000);
    let Some(old) = stage.ask(WORKTREE, &first) else {
        return unbegun();
    };
    stage.write(&old.at.token, "of the first");

    stage.at(1_000_100).tell("the first writer runs");
    let passed = ask_and_look(&mut stage, &machines, &second);
    stage.demand(
        !passed,
        Rule::LivingAreNotEnded,
        "a live holder lost its lease",
    );

    stage.at(1_000_200);
    stage.tell("the first writer dies, its number goes to another process, and nobody can look");
    machines.exit(dying, false);
    machines.reap(0, 0);
    let other = start(&mut machines, 3).and_then(|(_, other)| other.process);
    let same = other.map(|process| process.pid) == first.process.map(|process| process.pid);
    stage.demand(same, Rule::EffectsAreSeen, "the number did not come back");
    machines.blind = true;
    let passed = ask_and_look(&mut stage, &machines, &second);
    stage.demand(!passed, Rule::DoubtNeverGrants, "doubt passed a lease on");

    stage.at(1_000_300).tell("the prober sees again");
    machines.blind = false;
    let passed = ask_and_look(&mut stage, &machines, &second);
    stage.demand(
        passed,
        Rule::EffectsAreSeen,
        "proof did not pass the lease on",
    );
    if let Some(new) = stage.listed().first().map(|listed| listed.token) {
        stage.write(&new, "of the second");
    }
    stage.write(&old.at.token, "of the past");
    let kept = stage.written() == ["of the first", "of the second"];
    stage.demand(
        kept,
        Rule::NoOlderAfterNewer,
        "a late write reached the resource",
    );
    stage.told()
}
