//! Two machines: boots, pid tables that give numbers again at once, zombies, groups, and a prober.
//!
//! The prober runs on the first machine. It knows only what can be looked at from there; the truth is
//! kept beside it, by a number that no process has twice.

use std::collections::BTreeMap;

use lease_core::{Evidence, Question, ResourceKey, Verdict};

use super::holder::{Description, SimHolder};
use crate::oracle::Life;

/// The length of a start tick.
const TICK_NANOS: u64 = 10_000_000;

/// How many numbers a machine has for processes: few, so that they come back soon.
const PIDS: u16 = 5;

/// Names one process for ever. Nobody in the room can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation(u64);

/// All machines.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    machines: [Machine; 2],
    /// Whether processes have inodes.
    pidfs: bool,
    /// The prober sees nothing: no permission, no descriptors left, no `/proc`.
    pub(crate) blind: bool,
    next: u64,
    /// Who was ever described how. Two processes under one description is what the guard prevents.
    described: BTreeMap<Description, Vec<Incarnation>>,
}

#[derive(Clone, Debug, Default)]
struct Machine {
    boot: u32,
    table: BTreeMap<u16, Process>,
    /// The number that became free last.
    freed: Option<u16>,
}

/// How a process starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// Which of the free numbers it gets; 0 is the one that became free last.
    pub(crate) choice: u8,
    /// True nanoseconds.
    pub(crate) now: u64,
    /// The group it joins; without one it leads its own.
    pub(crate) group: Option<u64>,
    /// The resources whose paths it uses.
    pub(crate) uses: Vec<ResourceKey>,
}

#[derive(Clone, Debug)]
struct Process {
    incarnation: Incarnation,
    started: u64,
    state: State,
    group: u64,
    /// The resources whose paths it uses.
    uses: Vec<ResourceKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Its first thread is gone and others run on.
    LeaderGone,
    /// It has exited, and nobody has asked for its status.
    Zombie,
}

impl Machine {
    fn zombies(&self) -> impl Iterator<Item = u16> {
        let zombie = |process: &Process| process.state == State::Zombie;
        let table = self.table.iter();
        table
            .filter(move |(_, process)| zombie(process))
            .map(|(pid, _)| *pid)
    }
}

impl Process {
    const fn runs(&self) -> bool {
        matches!(self.state, State::Running | State::LeaderGone)
    }
}

impl Machines {
    pub(crate) fn new(pidfs: bool) -> Self {
        Self {
            machines: [Machine::default(), Machine::default()],
            pidfs,
            blind: false,
            next: 1,
            described: BTreeMap::new(),
        }
    }

    fn machine(&self, machine: u8) -> &Machine {
        let [first, second] = &self.machines;
        if machine == 0 { first } else { second }
    }

    fn machine_mut(&mut self, machine: u8) -> &mut Machine {
        let [first, second] = &mut self.machines;
        if machine == 0 { first } else { second }
    }

    /// Starts a process in a free place of a machine, or not at all.
    pub(crate) fn spawn(&mut self, machine: u8, start: Start) -> Option<Incarnation> {
        let table = &self.machine(machine).table;
        let free: Vec<u16> = (2..2 + PIDS)
            .filter(|pid| !table.contains_key(pid))
            .collect();
        let freed = self.machine(machine).freed;
        let again = freed.filter(|freed| start.choice == 0 && free.contains(freed));
        let at = usize::from(start.choice).checked_rem(free.len())?;
        let pid = again.or_else(|| free.get(at).copied())?;
        let incarnation = Incarnation(self.next);
        self.next = self.next.saturating_add(1);
        let process = Process {
            incarnation,
            started: start.now,
            state: State::Running,
            group: start.group.unwrap_or(incarnation.0),
            uses: start.uses,
        };
        self.machine_mut(machine).table.insert(pid, process);
        Some(incarnation)
    }

    /// Starts a child of a process: on its machine, and perhaps in its group.
    pub(crate) fn fork(
        &mut self,
        parent: Incarnation,
        same_group: bool,
        start: Start,
    ) -> Option<Incarnation> {
        let (machine, _) = self.place(parent)?;
        let group = self.process(parent)?.group;
        let group = same_group.then_some(group);
        self.spawn(machine, Start { group, ..start })
    }

    fn place(&self, incarnation: Incarnation) -> Option<(u8, u16)> {
        [0, 1].into_iter().find_map(|machine| {
            let table = &self.machine(machine).table;
            let (pid, _) = table
                .iter()
                .find(|(_, process)| process.incarnation == incarnation)?;
            Some((machine, *pid))
        })
    }

    fn process(&self, incarnation: Incarnation) -> Option<&Process> {
        let (machine, pid) = self.place(incarnation)?;
        self.machine(machine).table.get(&pid)
    }

    /// Whether the process runs.
    pub(crate) fn runs(&self, incarnation: Incarnation) -> bool {
        self.process(incarnation).is_some_and(Process::runs)
    }

    /// Ends a process: it stays as a zombie, or only its first thread goes.
    pub(crate) fn exit(&mut self, incarnation: Incarnation, threads_stay: bool) {
        let Some((machine, pid)) = self.place(incarnation) else {
            return;
        };
        if let Some(process) = self.machine_mut(machine).table.get_mut(&pid) {
            process.state = match threads_stay {
                true if process.state == State::Running => State::LeaderGone,
                _ => State::Zombie,
            };
        }
    }

    /// Asks for the status of a zombie, whose number is free from then on.
    pub(crate) fn reap(&mut self, machine: u8, nth: u8) {
        let machine = self.machine_mut(machine);
        let zombies: Vec<u16> = machine.zombies().collect();
        let at = usize::from(nth).checked_rem(zombies.len());
        if let Some(pid) = at.and_then(|at| zombies.get(at)) {
            machine.table.remove(pid);
            machine.freed = Some(*pid);
        }
    }

    /// Returns whether a machine has zombies.
    pub(crate) fn has_zombies(&self, machine: u8) -> bool {
        self.machine(machine).zombies().next().is_some()
    }

    /// Ends everything on a machine and starts it again.
    pub(crate) fn reboot(&mut self, machine: u8) {
        let machine = self.machine_mut(machine);
        machine.boot = machine.boot.saturating_add(1);
        machine.table.clear();
        machine.freed = None;
    }

    /// Describes a process as it would describe itself.
    ///
    /// Without inodes only once the clock is past its start tick: until then its number could be given
    /// again within the tick, and the two would look the same.
    pub(crate) fn describe(&mut self, incarnation: Incarnation, now: u64) -> Option<Description> {
        let (machine, pid) = self.place(incarnation)?;
        let process = self.process(incarnation)?;
        let ticks = process.started / TICK_NANOS;
        if !self.pidfs && now / TICK_NANOS <= ticks {
            return None;
        }
        let description = Description {
            machine,
            boot: self.machine(machine).boot,
            pid,
            ticks,
            inode: self.pidfs.then_some(incarnation.0),
        };
        let known = self.described.entry(description).or_default();
        if !known.contains(&incarnation) {
            known.push(incarnation);
        }
        Some(description)
    }

    /// The truth about a described process and, where it counts, its group.
    pub(crate) fn life(&self, description: &Description, group: bool) -> Life {
        let known = self
            .described
            .get(description)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut everything = self
            .machines
            .iter()
            .flat_map(|machine| machine.table.values());
        let counts = |process: &Process| {
            let member = group && known.iter().any(|leader| leader.0 == process.group);
            process.runs() && (known.contains(&process.incarnation) || member)
        };
        if everything.any(counts) {
            Life::Living
        } else {
            Life::Gone
        }
    }

    /// What the prober says, looking now.
    pub(crate) fn observe(
        &self,
        description: &Description,
        question: &Question<SimHolder>,
    ) -> Verdict {
        if description.machine != 0 {
            return Verdict::Unknown(Evidence::new("another_machine"));
        }
        if self.blind {
            return Verdict::Unknown(Evidence::new("cannot_look"));
        }
        let here = self.machine(0);
        if description.boot != here.boot {
            return Verdict::Dead(Evidence::new("other_boot"));
        }
        let proof = match here.table.get(&description.pid) {
            None => "no_such_process",
            Some(process) if !Self::same(process, description) => "pid_recycled",
            Some(process) if process.runs() => return Verdict::Alive(Evidence::new("running")),
            Some(_) => "exited",
        };
        match self.occupant(description, question) {
            None => Verdict::Dead(Evidence::new(proof)),
            Some(who) => {
                let who = who.to_string();
                Verdict::Occupied(Evidence::new(proof).with_occupants([who.as_str()]))
            }
        }
    }

    /// Whether a process is the one that was described, by inode where both have one, else by ticks.
    fn same(process: &Process, description: &Description) -> bool {
        match description.inode {
            Some(inode) => inode == process.incarnation.0,
            None => process.started / TICK_NANOS == description.ticks,
        }
    }

    /// Who else still works, where the terms ask for it.
    fn occupant(&self, description: &Description, question: &Question<SimHolder>) -> Option<u16> {
        let leaders = self
            .described
            .get(description)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let works = |process: &Process| {
            let member =
                question.occupancy.group && leaders.iter().any(|leader| leader.0 == process.group);
            let user = question.occupancy.paths
                && question
                    .target
                    .as_ref()
                    .is_some_and(|target| process.uses.contains(target));
            process.runs() && (member || user)
        };
        let table = &self.machine(0).table;
        table
            .iter()
            .find(|(_, process)| works(process))
            .map(|(pid, _)| *pid)
    }
}
