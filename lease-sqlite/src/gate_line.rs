//! The line at a gate, with the kernel's locks on a real file. Each open file is one of those who come.

use std::path::PathBuf;

use super::*;

/// A record, which is gone afterwards.
struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Self {
        let name = format!("lease-sqlite-gate-{}-{name}", own::pid().unwrap());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, []).unwrap();
        Self(path)
    }

    fn gate(&self) -> Gate {
        Gate::at(&self.0).unwrap()
    }

    fn stand(&self) -> Stand {
        self.gate().line_up().unwrap()
    }

    /// Somebody in a slot, however it was come by.
    fn at(&self, side: Side, number: Offset) -> Gate {
        let gate = self.gate();
        let own = Slot { side, number }.own(gate.pid);
        assert_eq!(sys::try_bytes(&*gate.descriptor, own), Some(true));
        gate
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn place(stand: &Stand) -> (Side, Offset) {
    (stand.slot.side, stand.slot.number)
}

#[test]
fn who_comes_stands_behind_who_waits_on_whichever_side_that_is() {
    for (number, (held, free)) in [(Side::Left, Side::Right), (Side::Right, Side::Left)]
        .into_iter()
        .enumerate()
    {
        let ground = Ground::new(&format!("behind-{number}"));
        let holder = ground.gate();
        assert_eq!(holder.try_close(held), Some(true));
        let [first, second] = [ground.stand(), ground.stand()];
        assert_eq!([&first, &second].map(place), [(free, 0), (free, 1)]);
        holder.open();
        // Whoever is let in leaves both sides open, and has its own slot still.
        assert!(first.pass());
        let third = ground.stand();
        assert_eq!(place(&third), (free, 2));
        assert!(second.is_let_in(first.slot), "{held:?}");
        assert!(!third.is_let_in(second.slot), "{held:?}");
        first.into_gate().open();
        assert!(second.pass());
        assert_eq!(place(&ground.stand()), (free, 3));
    }
}

#[test]
fn who_was_let_in_is_known_although_others_have_locks_further_on() {
    for (side, other) in [(Side::Left, Side::Right), (Side::Right, Side::Left)] {
        let ground = Ground::new(&format!("known-{side:?}"));
        // Before anybody else, so that it is the first that the kernel finds.
        let _far = ground.at(other, 5);
        let first = Stand {
            gate: ground.at(side, 0),
            slot: Slot { side, number: 0 },
        };
        assert!(first.pass());
        let next = Stand {
            gate: ground.at(side, 1),
            slot: Slot { side, number: 1 },
        };
        assert!(next.is_let_in(first.slot), "{side:?}");
    }
}

#[test]
fn nobody_stands_on_one_side_while_others_wait_on_the_other() {
    let ground = Ground::new("both");
    let _right = ground.at(Side::Right, 0);
    let left = ground.at(Side::Left, 0);
    assert!(ground.gate().line_up().is_none());
    left.open();
    assert_eq!(place(&ground.stand()), (Side::Right, 1));
}

#[test]
fn the_outermost_of_those_ahead_is_found_whoever_has_gone() {
    for side in [Side::Left, Side::Right] {
        let ground = Ground::new(&format!("ahead-{side:?}"));
        let ahead = [0, 1, 2, 3].map(|number| ground.at(side, number));
        let last = Stand {
            gate: ground.at(side, 4),
            slot: Slot { side, number: 4 },
        };
        let mut seen = vec![last.before()];
        for gone in [2, 3, 0, 1] {
            ahead[gone].open();
            seen.push(last.before());
        }
        let expected = [Some(3), Some(3), Some(1), Some(1), None];
        assert_eq!(seen, expected, "{side:?}");
    }
}

#[test]
fn a_place_where_nobody_waits_any_more_is_told_from_one_where_somebody_does() {
    let ground = Ground::new("vacant");
    let [first, second] = [ground.stand(), ground.stand()];
    assert_eq!(second.outlook(), Some(Outlook::Good));
    first.vacate();
    assert_eq!(second.outlook(), Some(Outlook::Gone));
    assert_eq!(
        place(&ground.stand()),
        (first.side(), 2),
        "it is kept all the same"
    );
    first.occupy();
    assert_eq!(second.outlook(), Some(Outlook::Good));
    first.into_gate().open();
    assert_eq!(second.outlook(), None);
}

#[test]
fn a_spot_is_one_slot_of_one_open_file() {
    let ground = Ground::new("spot");
    let stand = ground.stand();
    let elsewhere = |side, number| Stand {
        gate: stand.gate.clone(),
        slot: Slot { side, number },
    };
    assert!(stand.is(&stand.clone()));
    assert!(!stand.is(&elsewhere(Side::Right, 1)) && !stand.is(&elsewhere(Side::Left, 0)));
    let another = Stand {
        gate: ground.gate(),
        slot: stand.slot,
    };
    assert!(!stand.is(&another));
}
