//! Every interleaving of those who wait in one process, their thread at the gate, and two strangers.
//!
//! The kernel's part is as small as it can be: who has the middle, and who has which slot. Each step is
//! what happens under one lock, or in one system call. Nobody looks at a beat and nobody has a
//! deadline, but for those who may give up at any moment: so whoever is not woken stays where it is,
//! and is found.

use std::collections::BTreeSet;

use super::{Back, Left, Post, Spot};

/// A slot of a side, and who has it: an open file of ours, or a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    owner: u8,
    is_right: bool,
    number: u8,
}

impl Spot for Place {
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thread {
    Idle,
    At(Place),
    Back(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    Away,
    InLine,
    /// It has sent the thread, and listens.
    Sent,
    /// It has found nothing.
    Saw,
    /// It has quieted the bell, and looks once more.
    Quieted,
    Passed(Place),
    /// It has sent the thread for the next one of its process.
    Sure(Place),
    Holds(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stranger {
    Away,
    Waits(Place),
    Holds,
}

/// What is done wrong, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// The bell is quieted, and nobody looks once more.
    QuietLate,
    /// It rings before anybody can see what was passed.
    RingEarly,
    /// The place is given up by the last who leaves, although the thread waits for all before it.
    FreePlace,
    /// What was passed stays closed when the last one leaves.
    KeepClosed,
}

const STRANGERS: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    post: Post<Place>,
    thread: Thread,
    bell: bool,
    line: Vec<usize>,
    waiters: Vec<Waiter>,
    rounds: Vec<u8>,
    strangers: [Stranger; STRANGERS],
    visits: [u8; STRANGERS],
    /// Who has the middle.
    middle: Option<u8>,
    slots: BTreeSet<Place>,
}

/// Numbers of strangers begin here.
const STRANGE: u8 = 100;

impl World {
    fn new(rounds: &[u8], visits: u8) -> Self {
        Self {
            post: Post::default(),
            thread: Thread::Idle,
            bell: false,
            line: Vec::new(),
            waiters: vec![Waiter::Away; rounds.len()],
            rounds: rounds.to_vec(),
            strangers: [Stranger::Holds, Stranger::Away],
            visits: [visits; STRANGERS],
            middle: Some(STRANGE),
            slots: BTreeSet::new(),
        }
    }

    fn free(&mut self, owner: u8) {
        self.slots.retain(|place| place.owner != owner);
        if self.middle == Some(owner) {
            self.middle = None;
        }
    }

    /// Whether nobody else has anything on the way to a place.
    fn is_turn(&self, at: Place) -> bool {
        let is_ahead = |place: &Place| {
            place.owner != at.owner && place.is_right == at.is_right && place.number < at.number
        };
        self.middle.is_none_or(|owner| owner == at.owner) && !self.slots.iter().any(is_ahead)
    }

    /// The places that somebody may take: of the side on which others wait, or of either.
    fn ends(&self, owner: u8) -> Vec<Place> {
        let others = || self.slots.iter().filter(|place| place.owner != owner);
        let sides: Vec<bool> = match others().next() {
            Some(place) => vec![place.is_right],
            None => vec![false, true],
        };
        let end = |is_right| {
            let taken = others().filter(|place| place.is_right == is_right);
            let number = taken.map(|place| place.number + 1).max().unwrap_or(0);
            Place {
                owner,
                is_right,
                number,
            }
        };
        sides.into_iter().map(end).collect()
    }

    /// An open file that nobody uses.
    fn another(&self) -> u8 {
        let of_waiters = self.waiters.iter().filter_map(|waiter| match waiter {
            Waiter::Passed(place) | Waiter::Sure(place) | Waiter::Holds(place) => Some(place.owner),
            _ => None,
        });
        let of_thread = match self.thread {
            Thread::At(place) | Thread::Back(place) => Some(place.owner),
            Thread::Idle => None,
        };
        let used: Vec<u8> = of_waiters.chain(of_thread).collect();
        (0..STRANGE).find(|owner| !used.contains(owner)).unwrap()
    }

    /// Somebody sends the thread.
    fn sent(&self, wrong: Wrong) -> Vec<Self> {
        if self.post.is_served() {
            return vec![self.clone()];
        }
        let at = self.post.at().copied();
        let owner = at.map_or_else(|| self.another(), |at| at.owner);
        let goes = |place| {
            let mut next = self.clone();
            next.slots.insert(place);
            next.bell = false;
            next.post.want(place);
            next
        };
        match at {
            Some(at) if wrong != Wrong::FreePlace => vec![goes(at)],
            _ => self.ends(owner).into_iter().map(goes).collect(),
        }
    }

    /// One of ours leaves the line.
    fn leave(&mut self, who: usize, wrong: Wrong) {
        self.line.retain(|one| *one != who);
        if !self.line.is_empty() {
            return;
        }
        match self.post.leave() {
            Left::Vacant(place) if wrong == Wrong::FreePlace => {
                self.slots.remove(&place);
            }
            Left::Gate(_) if wrong == Wrong::KeepClosed => {}
            Left::Gate(place) => self.free(place.owner),
            Left::Vacant(_) | Left::Nothing => {}
        }
    }

    fn thread_steps(&self, wrong: Wrong) -> Option<Self> {
        let mut next = self.clone();
        match self.thread {
            Thread::Idle => next.thread = Thread::At(next.post.set_off()?),
            Thread::At(place) => {
                if !self.is_turn(place) {
                    return None;
                }
                next.middle = Some(place.owner);
                next.thread = Thread::Back(place);
                next.bell |= wrong == Wrong::RingEarly;
            }
            Thread::Back(place) => {
                next.thread = Thread::Idle;
                match next.post.come_back(&place, true) {
                    Back::Passed => next.bell |= wrong != Wrong::RingEarly,
                    Back::Unwanted | Back::Refused => next.free(place.owner),
                }
            }
        }
        Some(next)
    }

    /// The steps of one of ours; the second part does not help those who wait.
    fn waiter_steps(&self, who: usize, wrong: Wrong) -> (Vec<Self>, Vec<Self>) {
        let mut next = self.clone();
        let is_first = self.line.first() == Some(&who);
        let set = |mut next: Self, waiter| {
            next.waiters[who] = waiter;
            next
        };
        let steps = match self.waiters[who] {
            Waiter::Away if self.rounds[who] == 0 => Vec::new(),
            Waiter::Away => {
                next.line.push(who);
                vec![set(next, Waiter::InLine)]
            }
            Waiter::InLine if is_first => {
                let sent = self.sent(wrong).into_iter();
                sent.map(|next| set(next, Waiter::Sent)).collect()
            }
            Waiter::Sent if self.bell => vec![self.looks(who)],
            Waiter::Saw => {
                next.bell = false;
                let then = match wrong {
                    Wrong::QuietLate => Waiter::InLine,
                    _ => Waiter::Quieted,
                };
                vec![set(next, then)]
            }
            Waiter::Quieted => {
                let taken = next.post.take_passed();
                vec![set(next, taken.map_or(Waiter::InLine, Waiter::Passed))]
            }
            Waiter::Passed(place) if self.line.len() > 1 => {
                let sent = self.sent(wrong).into_iter();
                sent.map(|next| set(next, Waiter::Sure(place))).collect()
            }
            Waiter::Passed(place) => vec![set(next, Waiter::Sure(place))],
            Waiter::Sure(place) => {
                next.leave(who, wrong);
                vec![set(next, Waiter::Holds(place))]
            }
            Waiter::Holds(place) => {
                next.free(place.owner);
                next.rounds[who] -= 1;
                vec![set(next, Waiter::Away)]
            }
            Waiter::InLine | Waiter::Sent => Vec::new(),
        };
        let mut idle = self.gives_up(who, wrong);
        if self.waiters[who] == Waiter::Sent {
            // Something else woke it, such as the end of a holder.
            idle.push(self.looks(who));
        }
        (steps, idle)
    }

    /// Sees what was passed; if nothing was, it quiets the bell and looks once more, in this order.
    fn looks(&self, who: usize) -> Self {
        let mut next = self.clone();
        let taken = next.post.take_passed();
        next.waiters[who] = taken.map_or(Waiter::Saw, Waiter::Passed);
        next
    }

    /// The last one of ours has all the time in the world.
    fn gives_up(&self, who: usize, wrong: Wrong) -> Vec<Self> {
        let is_patient = who + 1 == self.waiters.len();
        let mut next = self.clone();
        match self.waiters[who] {
            _ if is_patient => return Vec::new(),
            Waiter::InLine | Waiter::Sent => {}
            // It sees that its time is over before it tries.
            Waiter::Passed(place) => next.free(place.owner),
            _ => return Vec::new(),
        }
        next.leave(who, wrong);
        next.waiters[who] = Waiter::Away;
        next.rounds[who] -= 1;
        vec![next]
    }

    fn stranger_steps(&self, who: usize) -> Vec<Self> {
        let owner = STRANGE + u8::try_from(who).unwrap();
        let mut next = self.clone();
        match self.strangers[who] {
            Stranger::Away if self.visits[who] == 0 => Vec::new(),
            Stranger::Away if self.middle.is_none() && self.slots.is_empty() => {
                next.middle = Some(owner);
                next.strangers[who] = Stranger::Holds;
                vec![next]
            }
            Stranger::Away => {
                let waits = |place| {
                    let mut next = self.clone();
                    next.slots.insert(place);
                    next.strangers[who] = Stranger::Waits(place);
                    next
                };
                self.ends(owner).into_iter().map(waits).collect()
            }
            Stranger::Waits(place) if self.is_turn(place) => {
                next.middle = Some(owner);
                next.strangers[who] = Stranger::Holds;
                vec![next]
            }
            Stranger::Waits(_) => Vec::new(),
            Stranger::Holds => {
                next.free(owner);
                next.strangers[who] = Stranger::Away;
                next.visits[who] = next.visits[who].saturating_sub(1);
                vec![next]
            }
        }
    }

    /// Everything that can come next, and what may come and helps nobody.
    fn steps(&self, wrong: Wrong) -> (Vec<Self>, Vec<Self>) {
        let mut steps: Vec<Self> = self.thread_steps(wrong).into_iter().collect();
        let mut idle = Vec::new();
        for who in 0..self.waiters.len() {
            let (more, others) = self.waiter_steps(who, wrong);
            steps.extend(more);
            idle.extend(others);
        }
        steps.extend((0..STRANGERS).flat_map(|who| self.stranger_steps(who)));
        (steps, idle)
    }

    /// Whoever holds has the middle.
    fn is_sound(&self) -> bool {
        let mut waiters = self.waiters.iter();
        waiters.all(|waiter| match waiter {
            Waiter::Holds(place) => self.middle == Some(place.owner),
            _ => true,
        })
    }

    /// Nobody waits, nobody holds, and nothing is left.
    fn is_at_rest(&self) -> bool {
        self.rounds
            .iter()
            .chain(&self.visits)
            .all(|left| *left == 0)
            && self.slots.is_empty()
            && self.middle.is_none()
            && self.thread == Thread::Idle
            && !self.post.is_served()
    }
}

/// Goes everywhere. Returns how many states there are, or one in which somebody is stuck,
/// or holds what is another's.
fn explore(start: World, wrong: Wrong) -> Result<usize, Box<World>> {
    let mut seen = BTreeSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        let (steps, idle) = world.steps(wrong);
        if !world.is_sound() || (steps.is_empty() && !world.is_at_rest()) {
            return Err(Box::new(world));
        }
        for next in steps.into_iter().chain(idle) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn nobody_who_waits_is_forgotten_and_nothing_is_left() {
    for (rounds, visits) in [(&[1, 1][..], 2), (&[2, 2], 1), (&[1, 1, 1], 1)] {
        let states = explore(World::new(rounds, visits), Wrong::Nothing);
        let states = states.unwrap_or_else(|world| panic!("stuck: {world:#?}"));
        assert!(states > 1_000, "{states} states");
    }
}

#[test]
fn what_is_done_wrong_is_found() {
    for wrong in [
        Wrong::QuietLate,
        Wrong::RingEarly,
        Wrong::FreePlace,
        Wrong::KeepClosed,
    ] {
        let explored = explore(World::new(&[2, 2], 1), wrong);
        assert!(explored.is_err(), "{wrong:?}: {explored:?}");
    }
}
