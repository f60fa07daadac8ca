//! Several writers, and somebody who kills and stops them for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::Code;

use super::authority::Terms;
use super::chance::Chance;
use super::pause::pause;
use super::problem::{Problem, Tried as _};
use super::story::{Count, Rule};
use super::wire::{Answer, Command};
use super::world::{Authority, PROMPT, Process, World};
use crate::clock::Deadline;

/// How many writers there are at a time.
const WRITERS: u64 = 4;

/// How long each storm blows.
const SPAN: Duration = Duration::from_millis(1_800);

/// The term of the second storm; its stops are longer.
const TERM: Duration = Duration::from_millis(30);

/// `real-kill-storm`: first with holders that nothing but their death ends, then with a short term.
pub(crate) fn kill_storm(world: &mut World) -> Result<(), Problem> {
    let mut chance = Chance::new(world.seed);

    let mut authority = world.authority(Terms::Process)?;
    let mut storm = Storm::start(world, true)?;
    storm.blow(world, &mut chance, 40)?;
    let killed = storm.calm(world)?;
    let told = authority.news()?;
    let takeovers = count(&told, Code::TakenOver);
    world.story.count(Count::Takeovers, takeovers);
    for receipt in &told {
        let dead = |name: &String| killed.contains_key(name);
        let proven = receipt.code != Code::TakenOver || receipt.previous.as_ref().is_some_and(dead);
        world.story.check(Rule::LiveHolderIsKept, proven, || {
            format!("a live holder: {receipt}")
        });
    }
    world
        .story
        .effect(takeovers > 0, "a killed holder was succeeded on proof");
    check_log(world, Some(&killed))?;
    finish(world, authority)?;

    let mut authority = world.authority(Terms::Session(TERM))?;
    let mut storm = Storm::start(world, false)?;
    storm.blow(world, &mut chance, 15)?;
    storm.calm(world)?;
    let told = authority.news()?;
    let reclaimed = count(&told, Code::Reclaimed);
    world
        .story
        .effect(reclaimed > 0, "a stopped holder's term ended its lease");
    check_log(world, None)?;
    finish(world, authority)
}

fn count(told: &[super::wire::Told], code: Code) -> u64 {
    let found = told.iter().filter(|receipt| receipt.code == code).count();
    u64::try_from(found).unwrap_or(u64::MAX)
}

/// Ends the authority and removes what it guarded: the next one begins anew.
fn finish(world: &mut World, authority: Authority) -> Result<(), Problem> {
    authority.close(&mut world.story)?;
    for file in ["data", "gate"] {
        std::fs::remove_file(world.folder.join(file)).tried(file)?;
    }
    world.remove_socket()
}

/// Which writers were killed, and how many lines there were just before.
type Killed = BTreeMap<String, usize>;

struct Storm {
    writers: Vec<Process>,
    started: u64,
    killed: Killed,
    shielded: bool,
    end: Deadline,
}

impl Storm {
    fn start(world: &World, shielded: bool) -> Result<Self, Problem> {
        let mut storm = Self {
            writers: Vec::new(),
            started: 0,
            killed: Killed::new(),
            shielded,
            end: Deadline::within(SPAN),
        };
        for _writer in 0..WRITERS {
            storm.add(world)?;
        }
        Ok(storm)
    }

    fn add(&mut self, world: &World) -> Result<(), Problem> {
        self.started = self.started.saturating_add(1);
        let mut writer = world.holder(&format!("writer-{}", self.started))?;
        let ms = u64::try_from(self.end.remaining().as_millis()).unwrap_or(0);
        writer.send(&Command::Storm {
            ms,
            shielded: self.shielded,
        })?;
        self.writers.push(writer);
        Ok(())
    }

    /// Kills one writer in so many of a hundred blows, and stops one for a moment in the others.
    fn blow(&mut self, world: &mut World, chance: &mut Chance, kills: u64) -> Result<(), Problem> {
        while !self.end.has_passed() {
            pause(Duration::from_millis(chance.below(20)));
            let victim = self.choose(world, chance)?;
            if chance.below(100) < kills {
                let lines = lines(world)?.len();
                let writer = self.writers.swap_remove(victim);
                self.killed.insert(writer.name.clone(), lines);
                writer.kill()?;
                world.story.count(Count::Kills, 1);
                hear_out(world, writer, self.shielded)?;
                self.add(world)?;
            } else if let Some(writer) = self.writers.get(victim) {
                writer.stop()?;
                pause(Duration::from_millis(chance.below(100)));
                writer.resume()?;
                world.story.count(Count::Stops, 1);
            }
        }
        Ok(())
    }

    /// Chooses the writer that wrote last in half of all blows, and any in the others.
    fn choose(&self, world: &World, chance: &mut Chance) -> Result<usize, Problem> {
        let any = usize::try_from(chance.below(WRITERS)).unwrap_or(0);
        if chance.below(2) == 0 {
            return Ok(any);
        }
        let lines = lines(world)?;
        let last = lines.last().and_then(|line| line.split(' ').nth(1));
        let place = self
            .writers
            .iter()
            .position(|writer| Some(writer.name.as_str()) == last);
        Ok(place.unwrap_or(any))
    }

    /// Hears what the survivors counted.
    fn calm(self, world: &mut World) -> Result<Killed, Problem> {
        for mut writer in self.writers {
            let answer = writer.hear(PROMPT)?;
            judge(world, &writer.name, &answer, self.shielded)?;
        }
        Ok(self.killed)
    }
}

/// A killed writer may have ended its storm before.
fn hear_out(world: &mut World, writer: Process, shielded: bool) -> Result<(), Problem> {
    let name = writer.name.clone();
    let mut heard = writer.reap()?;
    while let Some(line) = heard.pop() {
        let answer = serde_json::from_slice(&line).tried(&name)?;
        judge(world, &name, &answer, shielded)?;
    }
    Ok(())
}

/// What a writer counted: one whose lease nothing but its death ends is never fenced.
fn judge(world: &mut World, name: &str, answer: &Answer, shielded: bool) -> Result<(), Problem> {
    let Answer::Stormed { fenced, .. } = answer else {
        return Err(Problem::broken(format_args!("{name} answered {answer:?}")));
    };
    world.story.count(Count::FencedWrites, *fenced);
    world
        .story
        .check(Rule::LiveHolderIsKept, *fenced == 0 || !shielded, || {
            format!("{name} lived, held, and was fenced")
        });
    Ok(())
}

fn lines(world: &World) -> Result<Vec<String>, Problem> {
    let text = world.guarded().read().tried("reading the guarded file")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The oracle over the guarded file: generations rise, and no two holds overlap.
///
/// A hold ends where its writer left. With `killed`, nothing else ends it but that its writer was
/// killed before the next one entered; without, a term may have ended it, and then the gate lets in
/// no further line of it.
fn check_log(world: &mut World, killed: Option<&Killed>) -> Result<(), Problem> {
    let lines = lines(world)?;
    let mut open: Option<(String, u64)> = None;
    let mut newest = 0;
    for (at, line) in lines.iter().enumerate() {
        let mut words = line.split(' ');
        let (Some(verb), Some(name), Some(Ok(generation))) = (
            words.next(),
            words.next(),
            words.next().map(str::parse::<u64>),
        ) else {
            return Err(Problem::broken(format_args!("line {at} is {line:?}")));
        };
        if verb == "enter" {
            world.story.count(Count::Grants, 1);
            world
                .story
                .check(Rule::TokensRise, generation > newest, || {
                    format!("line {at}: {line} after generation {newest}")
                });
            if let (Some((before, _)), Some(killed)) = (&open, killed) {
                let dead = killed.get(before).is_some_and(|lines| *lines <= at);
                world.story.check(Rule::HoldsDoNotOverlap, dead, || {
                    format!("line {at}: {line} while {before} held")
                });
            }
            newest = generation;
            open = Some((name.to_owned(), generation));
        } else {
            let inside = open
                .as_ref()
                .is_some_and(|(by, of)| by == name && *of == generation);
            world.story.check(Rule::HoldsDoNotOverlap, inside, || {
                format!("line {at}: {line} outside of its hold")
            });
            if verb == "leave" {
                open = None;
            }
        }
        world.story.count(Count::Writes, 1);
    }
    Ok(())
}
