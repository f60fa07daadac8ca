//! Where a holder is recorded and where it is looked at: namespaces, threads, clocks.

use std::ffi::OsString;
use std::time::Duration;

use lease_core::Code;

use super::authority::Terms;
use super::kill::{NUMBER, needs_pidfs};
use super::launch::itself;
use super::pause::boottime_seconds;
use super::problem::{Need, Problem};
use super::story::{Count, Rule};
use super::wire::{Answer, Command, Reply, Starter};
use super::world::{Authority, PROMPT, Process, World, is_taken, kill_number, next_number, stat};

/// The number that the far holder has in its own pid namespace.
const FAR_NUMBER: i32 = 4_242;

/// How far the shifted boot clock is ahead, in seconds.
const SHIFT: u64 = 1_000_000;

/// `real-other-pid-namespace`: the holder is recorded in a sibling pid namespace.
pub(crate) fn other_pid_namespace(world: &mut World) -> Result<(), Problem> {
    let (mut authority, space) = nested_authority(world)?;
    let (mut far, far_space) = nested_far_holder(world)?;
    let mut near = inside(space, "near", &holder_role(world, "near"))?;
    near.connect()?;

    // Who has no number here is not recorded at all by its own word.
    let reply = far.ask(&Command::Connect)?;
    let stranger = matches!(
        &reply,
        Reply::Stranger {
            code: Code::InvalidHolder,
            ..
        }
    );
    world.story.check(Rule::IdentityIsTheKernels, stranger, || {
        format!("a holder from elsewhere was answered {reply:?}")
    });

    // A record that was made where it lives is kept, and judged by nobody here.
    let (_, identity) = described(&mut far)?;
    let reply = authority.record("far", &identity)?;
    world.granted(&far, reply)?;
    let unknown = |world: &mut World, near: &mut Process| {
        let refused = world.is_kept_out(
            near,
            Rule::UnknownNeverGrants,
            "unknown: other_pid_namespace",
        )?;
        world.story.check(
            Rule::UnknownNeverGrants,
            refused.code == Code::InvalidHolder,
            || format!("the refusal is {}", refused.code),
        );
        Ok::<(), Problem>(())
    };
    let (_, again) = described(&mut far)?;
    world
        .story
        .effect(again == identity, "the far holder lives");
    unknown(world, &mut near)?;

    // Somebody unrelated has that number here.
    let role = ["numbered", &FAR_NUMBER.to_string(), "idle"].map(OsString::from);
    let mut unrelated = inside(space, "unrelated", &role)?;
    let number = unrelated.started(Starter::Numbered)?;
    let taken = number == FAR_NUMBER && !unrelated.has_exited(Duration::ZERO)?;
    world
        .story
        .effect(taken, "the far holder's number is taken here");
    unknown(world, &mut near)?;

    // The far namespace is gone, and its record says no more than before.
    kill_number(far_space)?;
    world.story.count(Count::Kills, 1);
    let gone = far.has_exited(PROMPT)? && !is_taken(far_space);
    world.story.effect(gone, "the far namespace has ended");
    unknown(world, &mut near)?;
    drop(unrelated);
    unknown(world, &mut near)?;
    authority.close(&mut world.story)
}

/// Starts an authority as the first process of a pid namespace of its own. Returns the number that
/// it has in the scenario's.
fn nested_authority(world: &World) -> Result<(Authority, i32), Problem> {
    let mut role = vec![OsString::from("authority")];
    role.extend(world.authority_arguments(Terms::Process, true));
    let mut process = Process::start("authority", itself("nested", role))?;
    let space = process.started(Starter::Nested)?;
    Ok((Authority::ready(process)?, space))
}

/// Starts a holder with a number of its own in another pid namespace. Returns the number that the
/// first process there has in the scenario's.
fn nested_far_holder(world: &World) -> Result<(Process, i32), Problem> {
    let mut role = ["numbered", &FAR_NUMBER.to_string()]
        .map(OsString::from)
        .to_vec();
    role.extend(holder_role(world, "far"));
    let mut far = Process::start("far", itself("nested", role))?;
    let space = far.started(Starter::Nested)?;
    let number = far.started(Starter::Numbered)?;
    if number != FAR_NUMBER {
        let reason = format_args!("the far holder got the number {number}");
        return Err(Problem::missing(Need::SetTid, reason));
    }
    Ok((far, space))
}

/// Starts a process in the pid namespace of the process with this number.
fn inside(space: i32, name: &str, role: &[OsString]) -> Result<Process, Problem> {
    let mut arguments = vec![OsString::from(space.to_string())];
    arguments.extend_from_slice(role);
    let mut process = Process::start(name, itself("inside", arguments))?;
    process.started(Starter::Inside)?;
    Ok(process)
}

fn holder_role(world: &World, name: &str) -> [OsString; 3] {
    [
        "holder".into(),
        world.folder.clone().into_os_string(),
        name.into(),
    ]
}

/// Asks a holder for its clock and for its own description.
fn described(holder: &mut Process) -> Result<(u64, String), Problem> {
    match holder.obey(&Command::Describe)? {
        Answer::Described {
            boottime_seconds,
            identity,
        } => Ok((boottime_seconds, identity)),
        other => Err(Problem::broken(format_args!("a holder answered {other:?}"))),
    }
}

/// `real-thread-id`: the dead holder's number is a thread of somebody else; and a thread asks.
pub(crate) fn thread_id(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority(Terms::Process)?;
    let mut busy = world.holder("busy")?;
    let mut successor = world.holder("successor")?;
    let mut first = world.holder_numbered("first", NUMBER)?;
    let old = world.acquires(&mut first)?;
    let ticks = first.start_ticks()?;
    first.kill_and_reap()?;
    world.story.count(Count::Kills, 1);

    next_number(NUMBER)?;
    let thread = started_thread(&mut busy)?;
    if thread != NUMBER {
        let reason = format_args!("the thread got the number {thread}");
        return Err(Problem::missing(Need::SetTid, reason));
    }
    // Signal 0 and `/proc` find it; it is no process.
    let found = stat(thread)?;
    let passes = signal_zero(thread) && !is_taken(thread);
    world
        .story
        .effect(passes, "the dead holder's number is a thread");
    let equal = found.start_ticks.get() == ticks;
    world.story.count(Count::EqualTicks, u64::from(equal));
    world.takes_over(&mut authority, &mut successor, old, "pid_recycled")?;
    world.releases(&mut successor)?;

    // Named as a holder, the thread is refused, also with a process behind it.
    let reply = authority.number("thread", thread)?;
    let refused = matches!(
        &reply,
        Reply::Stranger {
            code: Code::InvalidHolder,
            ..
        }
    );
    world.story.check(Rule::IdentityIsTheKernels, refused, || {
        format!("a thread that was named as a holder was answered {reply:?}")
    });

    // Its process is recorded as itself, and lives on after the thread.
    let reply = authority.number("process", busy.number)?;
    let old = world.granted(&busy, reply)?;
    if !matches!(busy.obey(&Command::EndThread)?, Answer::Ended) {
        return Err(Problem::broken("the thread does not end"));
    }
    world
        .story
        .effect(!signal_zero(thread), "the thread has ended");
    world.finds_it_alive(&mut successor)?;
    busy.kill()?;
    world.takes_over(&mut authority, &mut successor, old, "exited")?;
    authority.close(&mut world.story)
}

fn started_thread(holder: &mut Process) -> Result<i32, Problem> {
    match holder.obey(&Command::StartThread)? {
        Answer::Thread { tid } => Ok(tid),
        other => Err(Problem::broken(format_args!("a holder answered {other:?}"))),
    }
}

fn signal_zero(number: i32) -> bool {
    rustix::process::Pid::from_raw(number)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// `real-clock-offset`: holder, record and authority on a boot clock that is far ahead.
pub(crate) fn clock_offset(world: &mut World) -> Result<(), Problem> {
    needs_pidfs()?;
    let mut authority = world.authority(Terms::Process)?;
    let mut second = world.holder("second")?;

    // The holder's clock is ahead, and it is recorded by the authority.
    let mut shifted = shifted_holder(world)?;
    shifted.connect()?;
    let old = world.acquires(&mut shifted)?;
    world.finds_it_alive(&mut second)?;
    world.writes(&mut shifted, "shifted")?;
    shifted.kill()?;
    world.takes_over(&mut authority, &mut second, old, "exited")?;
    world.releases(&mut second)?;
    drop(shifted);

    // The record was made by a reader whose clock is ahead: its start ticks are others.
    let mut shifted = shifted_holder(world)?;
    let (_, identity) = described(&mut shifted)?;
    let reply = authority.record("shifted", &identity)?;
    let old = world.granted(&shifted, reply)?;
    world.finds_it_alive(&mut second)?;
    shifted.kill()?;
    world.takes_over(&mut authority, &mut second, old, "exited")?;
    drop((shifted, second));
    authority.close(&mut world.story)?;

    // Without inodes such ticks cannot be compared, which is doubt and never death.
    world.remove_socket()?;
    let mut authority = world.authority_without_pidfs(Terms::Process)?;
    let mut second = world.holder("second")?;
    let mut shifted = shifted_holder(world)?;
    let (_, identity) = described(&mut shifted)?;
    let reply = authority.record("shifted", &identity)?;
    world.granted(&shifted, reply)?;
    world.is_kept_out(
        &mut second,
        Rule::UnknownNeverGrants,
        "unknown: other_time_namespace",
    )?;
    drop((shifted, second));
    authority.close(&mut world.story)?;

    authority_ahead(world)
}

/// The authority's own clock is ahead of its holders'.
fn authority_ahead(world: &mut World) -> Result<(), Problem> {
    world.remove_socket()?;
    let mut role = vec![
        OsString::from(SHIFT.to_string()),
        OsString::from("authority"),
    ];
    role.extend(world.authority_arguments(Terms::Process, true));
    let mut authority = Authority::start(itself("shifted", role))?;
    check_ahead(world, authority.boottime_seconds)?;
    let (mut first, mut second) = (world.holder("first")?, world.holder("second")?);
    let old = world.acquires(&mut first)?;
    world.finds_it_alive(&mut second)?;
    first.kill()?;
    world.takes_over(&mut authority, &mut second, old, "exited")?;
    authority.close(&mut world.story)
}

/// Starts a holder whose boot clock is far ahead, and makes sure that it is.
fn shifted_holder(world: &mut World) -> Result<Process, Problem> {
    let mut role = vec![OsString::from(SHIFT.to_string())];
    role.extend(holder_role(world, "shifted"));
    let mut holder = Process::start("shifted", itself("shifted", role))?;
    let (theirs, _) = described(&mut holder)?;
    check_ahead(world, theirs)?;
    Ok(holder)
}

/// Makes sure that a clock is as far ahead of ours as it was shifted.
fn check_ahead(world: &mut World, theirs: u64) -> Result<(), Problem> {
    let ours = boottime_seconds();
    // Theirs was read a moment ago.
    if theirs.saturating_add(PROMPT.as_secs()) < ours.saturating_add(SHIFT) {
        let reason = format_args!("the shifted boot clock is at {theirs} s, ours at {ours} s");
        return Err(Problem::missing(Need::TimeNamespaces, reason));
    }
    world.story.effect(true, "the boot clock is ahead");
    Ok(())
}
