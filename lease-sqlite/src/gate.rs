//! The gate: who waits is woken by the one who lets go, in the order in which they came, and nothing
//! more.
//!
//! Bytes far behind the end of the record are locked, and never written: a *middle*, and to both
//! sides of it *slots*, numbered away from it. Whoever waits has a slot, the next one outwards, and
//! waits for the middle and every slot on the way to it. So they are let in in their order, whomever
//! the kernel wakes first.
//!
//! A holder that did not wait has the middle and one whole side, by one call. So those who wait take
//! slots on the other side, and whoever has just held, and comes again by that side, finds them there
//! and takes a slot too, instead of being faster than the one that is being woken.
//!
//! How many bytes somebody locks in the middle, or in a slot, is the number of the process: so who
//! stands behind a lock can ask whether whoever has it will ever move.
//!
//! Such a lock belongs to an open file, so that a bare `clone` that outlives a holder keeps the gate
//! shut. So it is no proof of anything: whatever the gate says, the kernel lock decides.

use std::io;
use std::path::Path;
use std::sync::Arc;

use lease_procfs::Pid;

use crate::files::{self, FileId, Kind};
use crate::limits::{HOPS, SLOT_TRIES};
use crate::outlook::Outlook;
use crate::own;
use crate::post::Spot;
use crate::sys::{self, Bytes, Offset, Unshared};

/// The byte that everybody locks who has the middle.
const CENTER: Offset = Offset::MAX / 2;

/// More than the number of any process.
const WIDTH: Offset = 1 << 23;

/// In the place of a number: nobody waits here.
const VACANT: Offset = WIDTH - 1;

/// A side of the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Left,
    Right,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// The middle and every slot of this side, for a process.
    const fn whole(self, pid: Offset) -> Bytes {
        match self {
            Self::Left => bytes(0, CENTER + 1 + pid),
            Self::Right => Bytes {
                start: CENTER - pid,
                end: None,
            },
        }
    }

    /// Every slot from this one on, outwards.
    const fn outwards(self, slot: Offset) -> Bytes {
        match self {
            Self::Left => bytes(0, self.edge(slot)),
            Self::Right => Bytes {
                start: self.edge(slot),
                end: None,
            },
        }
    }

    /// Where a slot begins, seen from the middle.
    const fn edge(self, slot: Offset) -> Offset {
        let distance = WIDTH.saturating_mul(slot.saturating_add(1));
        match self {
            Self::Left => CENTER.saturating_sub(distance),
            Self::Right => CENTER.saturating_add(distance),
        }
    }

    /// The next slot outwards of a lock on this side; `None` if it is that of a holder, who has all.
    const fn after(self, lock: Bytes) -> Option<Offset> {
        let outermost = match (self, lock.end) {
            (Self::Left, _) if lock.start > 0 => CENTER - lock.start,
            (Self::Right, Some(end)) => end - CENTER,
            (Self::Left, _) | (Self::Right, None) => return None,
        };
        // The first slot begins one width away.
        Some(outermost / WIDTH)
    }
}

const fn bytes(start: Offset, end: Offset) -> Bytes {
    Bytes {
        start,
        end: Some(end),
    }
}

/// What is to be expected of whoever has a lock.
fn outlook(lock: Bytes) -> Outlook {
    match number(lock) {
        Some(VACANT) => Outlook::Gone,
        Some(pid) => Pid::new(pid).map_or(Outlook::Doubtful, Outlook::of),
        None => Outlook::Doubtful,
    }
}

/// Whose lock it is, by its length. `None` if nobody of ours locks such bytes.
fn number(lock: Bytes) -> Option<Offset> {
    let end = lock.end.unwrap_or(Offset::MAX);
    let has_center = (lock.start..end).contains(&CENTER);
    let pid = match (has_center, CENTER.saturating_sub(lock.start)) {
        (true, before) if before < VACANT => before,
        (true, _) => end.saturating_sub(CENTER + 1),
        (false, _) => end.saturating_sub(lock.start),
    };
    (pid > 0 && pid < WIDTH).then_some(pid)
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    side: Side,
    /// Counted from the middle.
    number: Offset,
}

impl Slot {
    fn own(self, pid: Offset) -> Bytes {
        let edge = self.side.edge(self.number);
        match self.side {
            Side::Left => bytes(edge.saturating_sub(pid), edge),
            Side::Right => bytes(edge, edge.saturating_add(pid)),
        }
    }

    /// The middle, and every slot on the way to it.
    ///
    /// It does not touch the own slot. The kernel makes one lock of two that touch, and then wakes
    /// whoever waits for one of them.
    const fn way(self, pid: Offset) -> Bytes {
        let edge = self.side.edge(self.number);
        match self.side {
            Side::Left => bytes(edge + 1, CENTER + 1 + pid),
            Side::Right => bytes(CENTER - pid, edge - 1),
        }
    }
}

/// The end of the line on one side.
struct End {
    slot: Slot,
    is_waited_at: bool,
}

/// What there is on one side.
enum Found {
    End(End),
    /// A holder has all of it.
    Taken,
}

/// An open file on a record, which is at one place of the line at a time.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    file: FileId,
    descriptor: Arc<Unshared>,
    /// The number of this process.
    pid: Offset,
}

impl Gate {
    /// Opens the gate at a record's path; `None` if no record is there.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let pid = Offset::from(own::pid()?.get());
        let descriptor = files::open_to_write(path).ok()?;
        let found = files::look_at(&descriptor).ok()?;
        (found.kind == Kind::Regular && pid < VACANT).then(|| Self {
            file: found.id,
            descriptor: Arc::new(Unshared::new(descriptor)),
            pid,
        })
    }

    /// The open file, to read and write by: one that serves for both needs not be opened twice.
    pub(crate) const fn descriptor(&self) -> &Arc<Unshared> {
        &self.descriptor
    }

    pub(crate) const fn file(&self) -> FileId {
        self.file
    }

    pub(crate) fn is_on(&self, file: FileId) -> bool {
        self.file == file
    }

    /// Closes it behind us, if nobody has it and nobody waits on this side. `None` if there are no
    /// such locks here.
    pub(crate) fn try_close(&self, side: Side) -> Option<bool> {
        sys::try_bytes(&*self.descriptor, side.whole(self.pid))
    }

    /// Opens it, which lets the next one through.
    pub(crate) fn open(&self) {
        let all = Bytes {
            start: 0,
            end: None,
        };
        sys::free_bytes(&*self.descriptor, all);
    }

    /// Takes the next slot, behind everybody who waits; `None` if there is none.
    pub(crate) fn line_up(self) -> Option<Stand> {
        for _again in 0..SLOT_TRIES {
            let Some(slot) = self.end_of_line().ok()? else {
                continue;
            };
            match sys::try_bytes(&*self.descriptor, slot.own(self.pid)) {
                Some(true) if !self.is_waited_at(slot.side.other()).ok()? => {
                    return Some(Stand { gate: self, slot });
                }
                // Two who came at once went to different sides, where neither is behind the other.
                Some(true) => sys::free_bytes(&*self.descriptor, slot.own(self.pid)),
                // Somebody was faster.
                Some(false) => {}
                None => return None,
            }
        }
        None
    }

    /// Finds the slot behind everybody who waits. Where nobody does, it is on the side that the
    /// holder does not have. `None` if a holder came and another went between two looks.
    fn end_of_line(&self) -> io::Result<Option<Slot>> {
        let right = self.end_of(Side::Right)?;
        if let Found::End(End { slot, is_waited_at }) = right
            && is_waited_at
        {
            return Ok(Some(slot));
        }
        let left = self.end_of(Side::Left)?;
        Ok(match (left, right) {
            (Found::End(left), _) if left.is_waited_at => Some(left.slot),
            (_, Found::End(right)) => Some(right.slot),
            (Found::End(left), Found::Taken) => Some(left.slot),
            (Found::Taken, Found::Taken) => None,
        })
    }

    fn is_waited_at(&self, side: Side) -> io::Result<bool> {
        let found = self.end_of(side)?;
        Ok(matches!(found, Found::End(end) if end.is_waited_at))
    }

    /// Finds the end of the line on one side, by looks that reach further and further.
    fn end_of(&self, side: Side) -> io::Result<Found> {
        let (mut number, mut reach, mut is_waited_at) = (0, 0, false);
        loop {
            let from = side.outwards(Offset::saturating_add(number, reach));
            let found = sys::find_lock(&*self.descriptor, from)?;
            match found {
                Some(lock) => {
                    let Some(after) = side.after(lock) else {
                        return Ok(Found::Taken);
                    };
                    number = after.max(number);
                    is_waited_at = true;
                    reach = reach.saturating_mul(2).saturating_add(1);
                }
                None if reach > 0 => reach /= 2,
                None => {
                    let slot = Slot { side, number };
                    return Ok(Found::End(End { slot, is_waited_at }));
                }
            }
        }
    }
}

/// A place in the line at a gate.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    gate: Gate,
    slot: Slot,
}

impl Stand {
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// By which side of the middle it is let in.
    pub(crate) const fn side(&self) -> Side {
        self.slot.side
    }

    /// Waits until it is open and our turn, and closes it behind us; `false` if there are no such
    /// locks here.
    ///
    /// Each waits for the slot of the one before, who keeps it to the end of its hold, and only then
    /// for the rest of the way, which is free by then. So a release wakes the next one and nobody else:
    /// of many who wait for one lock the kernel wakes all, if they do not come in their order. If the one
    /// before has been let in already, nobody else waits for the way, and one wait is enough.
    pub(crate) fn pass(&self) -> bool {
        let Gate {
            descriptor, pid, ..
        } = &self.gate;
        let descriptor = &**descriptor;
        let way = self.slot.way(*pid);
        let mut before = self
            .slot
            .number
            .checked_sub(1)
            .filter(|number| *number >= 0);
        for _again in 0..HOPS {
            let Some(number) = before else {
                break;
            };
            let side = self.slot.side;
            let before_us = Slot { side, number };
            if self.is_let_in(before_us) {
                break;
            }
            let theirs = before_us.own(*pid);
            if !sys::wait_bytes(descriptor, theirs) {
                return false;
            }
            match sys::try_bytes(descriptor, way) {
                Some(true) => return true,
                // Whoever was before gave up, or died, and others are before that.
                Some(false) => sys::free_bytes(descriptor, theirs),
                None => return false,
            }
            before = self.before();
        }
        sys::wait_bytes(descriptor, way)
    }

    /// Whether whoever has the middle has come to it from this slot.
    fn is_let_in(&self, from: Slot) -> bool {
        let middle = bytes(CENTER, CENTER + 1);
        let Ok(Some(lock)) = sys::find_lock(&*self.gate.descriptor, middle) else {
            return false;
        };
        number(lock).is_some_and(|pid| lock == from.way(pid))
    }

    /// Finds the outermost slot ahead that somebody has.
    fn before(&self) -> Option<Offset> {
        let Slot { side, number } = self.slot;
        let (mut from, mut found) = (0, None);
        while from < number {
            let ahead = match side {
                Side::Left => bytes(side.edge(number), side.edge(from)),
                Side::Right => bytes(side.edge(from), side.edge(number)),
            };
            let Ok(Some(lock)) = sys::find_lock(&*self.gate.descriptor, ahead) else {
                break;
            };
            let next = side
                .after(lock)
                .unwrap_or(number)
                .clamp(from.saturating_add(1), number);
            found = Some(next.saturating_sub(1));
            from = next;
        }
        found
    }

    /// Says that nobody waits here any more, although somebody stands here who cannot be called back.
    pub(crate) fn vacate(&self) {
        // Whoever stands behind it sees that it is nobody's; nobody else is kept out.
        let _marked = sys::try_bytes(&*self.gate.descriptor, self.slot.own(VACANT));
    }

    /// Says that somebody waits here again.
    pub(crate) fn occupy(&self) {
        let (all, own) = (self.slot.own(VACANT), self.slot.own(self.gate.pid));
        for rest in split(all, own) {
            sys::free_bytes(&*self.gate.descriptor, rest);
        }
    }

    pub(crate) fn into_gate(self) -> Gate {
        self.gate
    }

    /// Returns what is to be expected of those who are ahead, the most hopeful of them; `None` if
    /// nobody is.
    pub(crate) fn outlook(&self) -> Option<Outlook> {
        let mut ways = vec![self.slot.way(self.gate.pid)];
        let mut best = None;
        for _again in 0..SLOT_TRIES {
            let Some(way) = ways.pop() else {
                break;
            };
            let Ok(Some(lock)) = sys::find_lock(&*self.gate.descriptor, way) else {
                continue;
            };
            best = best.max(Some(outlook(lock)));
            ways.extend(split(way, lock));
        }
        best
    }
}

/// What is left of a way on both sides of a lock.
fn split(way: Bytes, lock: Bytes) -> impl Iterator<Item = Bytes> {
    let end = way.end.unwrap_or(Offset::MAX);
    let before = bytes(way.start, lock.start.min(end));
    let after = bytes(lock.end.unwrap_or(end).max(way.start), end);
    [before, after]
        .into_iter()
        .filter(|part| part.end.is_some_and(|end| part.start < end))
}

impl Spot for Stand {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.gate.descriptor, &other.gate.descriptor) && self.slot == other.slot
    }
}

#[cfg(test)]
#[path = "gate_line.rs"]
mod line;

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(one: Bytes, other: Bytes) -> bool {
        let end = |bytes: Bytes| bytes.end.unwrap_or(Offset::MAX);
        one.start < end(other) && other.start < end(one)
    }

    fn slot(side: Side, number: Offset) -> Slot {
        Slot { side, number }
    }

    /// Whether the kernel makes one lock of two of one owner.
    fn touch(one: Bytes, other: Bytes) -> bool {
        let end = |bytes: Bytes| bytes.end.unwrap_or(Offset::MAX);
        one.start <= end(other) && other.start <= end(one)
    }

    const PIDS: [Offset; 3] = [1, 70_000, 4_194_304];
    const SIDES: [Side; 2] = [Side::Left, Side::Right];

    #[test]
    fn every_lock_tells_whose_it_is() {
        for (pid, side) in PIDS
            .into_iter()
            .flat_map(|pid| SIDES.map(|side| (pid, side)))
        {
            assert_eq!(number(side.whole(pid)), Some(pid));
            for slot in [slot(side, 0), slot(side, 1), slot(side, 1_000_000)] {
                let (own, way) = (slot.own(pid), slot.way(pid));
                assert_eq!(number(own), Some(pid));
                assert_eq!(number(way), Some(pid), "{side:?} {pid}");
                assert!(!touch(own, way) && !touch(slot.own(VACANT), way));
                for own in [own, slot.own(VACANT)] {
                    assert_eq!(slot.side.after(own), Some(slot.number + 1));
                }
                // A holder's own slot is behind it.
                assert_eq!(slot.side.after(way), Some(slot.number));
            }
            assert_eq!(side.after(side.whole(pid)), None);
            assert_eq!(number(slot(side, 7).own(VACANT)), Some(VACANT));
        }
        let all = Bytes {
            start: 0,
            end: None,
        };
        assert_eq!(number(all), None);
        assert_eq!(number(bytes(CENTER, CENTER + 1)), None);
        assert_eq!(number(bytes(10, 10 + WIDTH)), None);
    }

    #[test]
    fn the_middle_excludes_and_a_slot_keeps_out_only_those_behind_it_and_newcomers_of_its_side() {
        for (one, other) in PIDS
            .into_iter()
            .flat_map(|one| PIDS.map(|other| (one, other)))
        {
            for (side, theirs) in SIDES
                .into_iter()
                .flat_map(|one| SIDES.map(|other| (one, other)))
            {
                assert!(overlap(side.whole(one), theirs.whole(other)));
                for number in [0, 1, 7] {
                    let place = slot(side, number);
                    assert!(overlap(place.way(one), theirs.whole(other)));
                    assert!(overlap(place.way(one), slot(theirs, 3).way(other)));
                    let is_same = side == theirs;
                    assert_eq!(overlap(place.own(one), theirs.whole(other)), is_same);
                    for next in [0, 1, 7, 8] {
                        let behind = slot(theirs, next).way(other);
                        let is_behind = is_same && next > number;
                        assert_eq!(overlap(place.own(one), behind), is_behind);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_left_of_a_way_is_looked_at_too() {
        let parts = |lock| split(bytes(10, 20), lock).collect::<Vec<_>>();
        assert_eq!(parts(bytes(12, 15)), [bytes(10, 12), bytes(15, 20)]);
        assert_eq!(parts(bytes(0, 15)), [bytes(15, 20)]);
        assert_eq!(parts(bytes(12, 99)), [bytes(10, 12)]);
        let on = |start| Bytes { start, end: None };
        assert_eq!(parts(on(12)), [bytes(10, 12)]);
        assert_eq!(parts(on(0)), []);
    }
}
