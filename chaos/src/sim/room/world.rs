//! What happens around the authority: time, processes, connections, machines.

use lease_core::{AuthorityId, FencingToken};

use super::{Room, Seat};
use crate::sim::config::Terms;
use crate::sim::count::Count;
use crate::sim::driver::Driver;
use crate::sim::holder::SimHolder;
use crate::sim::machines::Start;
use crate::sim::step::Step;

impl<D: Driver> Room<D> {
    /// Lets something happen that no authority is asked about.
    pub(super) fn happen(&mut self, step: Step) {
        match step {
            Step::Pass { nanos } => {
                self.time.pass(nanos);
                self.keep_alive();
            }
            // The server's clock runs on while nobody sends a sign of life.
            Step::Suspend { nanos } => self.time.pass(nanos),
            Step::ClockBack { nanos } => self.time.step_back(nanos),
            Step::Arrive {
                seat,
                machine,
                choice,
            } => self.arrive(seat, machine, choice),
            Step::Exit { seat, threads_stay } => self.exit(seat, threads_stay),
            Step::Reap { machine, nth } => self.machines.reap(machine, nth),
            Step::Fork {
                seat,
                hold,
                group,
                uses,
                choice,
            } => {
                self.fork(seat, hold, [group, uses], choice);
            }
            Step::EndChild { nth } => self.end_child(nth),
            Step::Stall { seat } => self.stall(seat, true),
            Step::Wake { seat } => self.stall(seat, false),
            Step::Unplug { seat } => self.unplug(seat),
            Step::Reboot { machine } => self.reboot(machine),
            Step::Blind { yes } => self.machines.blind = yes,
            Step::Restart => {
                self.authority = AuthorityId::from_random(self.ids.bytes());
                self.oracle.restarted();
                self.restart();
            }
            // A copy of long ago is put back: it counts from the beginning, under the same id.
            Step::Restore => {
                self.oracle.restored();
                self.restart();
            }
            Step::RaiseFloor => self.raise_floor(),
            _ => {}
        }
        self.sessions.end_silent(self.time.now);
    }

    /// Every writer that runs shows its server a sign of life, as often as it takes.
    fn keep_alive(&mut self) {
        let now = self.time.now;
        for seat in self.seats.iter().filter(|seat| !seat.stalled) {
            let session = seat.holder.and_then(|holder| holder.session);
            if let Some(heard) = session.and_then(|session| self.sessions.heard.get_mut(&session)) {
                *heard = now;
            }
        }
    }

    fn arrive(&mut self, seat: u8, machine: u8, choice: u8) {
        let Some(at) = usize::from(seat).checked_rem(self.seats.len()) else {
            return;
        };
        if self.seats.get(at).is_none_or(|seat| seat.holder.is_some()) {
            return;
        }
        let now = self.time.now;
        let mut holder = SimHolder {
            agent: seat % 2,
            session: None,
            process: None,
        };
        let mut process = None;
        if self.config.terms.has_processes() {
            // One that came too early to be described arrives the second time.
            let waiting = self.seats.get(at).and_then(|seat| seat.process);
            process = waiting
                .filter(|process| self.machines.runs(*process))
                .or_else(|| {
                    let start = Start {
                        choice,
                        now,
                        ..Start::default()
                    };
                    self.machines.spawn(machine % 2, start)
                });
            holder.process = process.and_then(|process| self.machines.describe(process, now));
        }
        let Some(seat) = self.seats.get_mut(at) else {
            return;
        };
        seat.process = process;
        if self.config.terms.has_processes() && holder.process.is_none() {
            return;
        }
        if self.config.terms.has_sessions() {
            holder.session = Some(self.sessions.mint(now));
        }
        seat.holder = Some(holder);
        seat.stalled = false;
        self.tell(|| format!("    it is {holder:?}"));
    }

    /// Empties a seat and answers who sat there. What it knew of leases is of the past.
    fn vacate(&mut self, at: usize) -> Option<SimHolder> {
        let seat = std::mem::take(self.seats.get_mut(at)?);
        for hold in &seat.holds {
            self.outdate(hold.key, hold.at.token);
        }
        seat.holder
    }

    fn exit(&mut self, seat: u8, threads_stay: bool) {
        let Some(at) = usize::from(seat).checked_rem(self.seats.len()) else {
            return;
        };
        let Some(process) = self.seats.get(at).and_then(|seat| seat.process) else {
            return;
        };
        self.machines.exit(process, threads_stay);
        if self.machines.runs(process) {
            return;
        }
        if let Some(holder) = self.vacate(at).filter(|holder| holder.session.is_some()) {
            self.lost.push(holder);
        }
    }

    fn fork(&mut self, seat: u8, hold: u8, [group, uses]: [bool; 2], choice: u8) {
        let Some((at, _)) = self.awake(seat) else {
            return;
        };
        let used = self
            .hold(seat, hold)
            .map(|(_, hold)| hold.key)
            .filter(|_| uses);
        let path = used.and_then(|key| self.key(key));
        let process = self.seats.get(at).and_then(|seat| seat.process);
        let start = Start {
            choice,
            now: self.time.now,
            group: None,
            uses: path.into_iter().collect(),
        };
        let child = process.and_then(|process| self.machines.fork(process, group, start));
        self.children.extend(child);
    }

    fn end_child(&mut self, nth: u8) {
        if let Some(at) = usize::from(nth).checked_rem(self.children.len()) {
            let child = self.children.swap_remove(at);
            self.machines.exit(child, false);
        }
    }

    fn stall(&mut self, seat: u8, stalled: bool) {
        if let Some(at) = usize::from(seat).checked_rem(self.seats.len())
            && let Some(seat) = self.seats.get_mut(at).filter(|seat| seat.holder.is_some())
        {
            seat.stalled = stalled;
        }
    }

    /// A connection is lost. The process goes on, and may write late.
    fn unplug(&mut self, seat: u8) {
        if !self.config.terms.has_sessions() {
            return;
        }
        let Some(at) = usize::from(seat).checked_rem(self.seats.len()) else {
            return;
        };
        self.children
            .extend(self.seats.get(at).and_then(|seat| seat.process));
        let holder = self.vacate(at);
        self.lost.extend(holder);
    }

    /// Everything on a machine ends. The first machine is the authority's own.
    fn reboot(&mut self, machine: u8) {
        let machine = machine % 2;
        self.machines.reboot(machine);
        for at in 0..self.seats.len() {
            let gone = |seat: &Seat| {
                seat.process
                    .is_some_and(|process| !self.machines.runs(process))
            };
            if self.seats.get(at).is_some_and(gone)
                && let Some(holder) = self.vacate(at).filter(|holder| holder.session.is_some())
            {
                self.lost.push(holder);
            }
        }
        if machine == 0 {
            self.time.reboot();
            self.authority = AuthorityId::from_random(self.ids.bytes());
            self.oracle.restarted();
            self.restart();
        }
    }

    /// The remedy after a copy of long ago was put back.
    fn raise_floor(&mut self) {
        let ours = |token: &FencingToken| token.authority == self.authority;
        let newest = self.places.iter().filter_map(|place| place.log.newest());
        if let Some(floor) = newest.filter(ours).map(|token| token.generation).max() {
            self.driver.raise_floor(floor);
        }
    }

    /// The authority loses its memory. Whoever is still there connects again.
    fn restart(&mut self) {
        self.counts.add(Count::Restarts, 1);
        self.driver = D::start(self.authority, self.policy.clone());
        self.mail.clear();
        self.lost.clear();
        self.open.clear();
        self.evidence.clear();
        self.tickets.clear();
        for place in &mut self.places {
            place.log.succeeded(self.authority);
        }
        for seat in &mut self.seats {
            seat.waits.clear();
            for hold in &mut seat.holds {
                hold.ops.clear();
            }
            if self.config.terms != Terms::Processes
                && let Some(holder) = &mut seat.holder
            {
                holder.session = Some(self.sessions.mint(self.time.now));
            }
        }
    }
}
