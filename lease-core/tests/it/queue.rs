//! Who waits, who goes next, and that nobody is forgotten.

use lease_core::{Code, Wait};

use crate::rig::{Answered as _, Rig, T0, TTL_MS, inp, mcp, who};

/// Grants as many other leases, of one writer, as one call sweeps.
fn fill_one_sweep(rig: &mut Rig) {
    for n in 0..64 {
        assert!(
            rig.granted(&format!("other/{n}"), &who("many", "s-9"))
                .at
                .slot
                .get()
                .is_some()
        );
    }
}

// fault B56
#[test]
fn handing_a_lease_to_and_fro_leaves_no_timers_behind() {
    let mut rig = Rig::sessions();
    let mut at = rig.granted("a", &mcp()).at;
    let (mut from, mut to) = (mcp(), inp());
    for _ in 0..1_000 {
        at = rig.adopt("a", at, &from, &to).grant().at;
        (from, to) = (to, from);
    }
    assert_eq!(rig.registry.footprint(), (1, 1));
    rig.release("a", at).change();
    assert_eq!(rig.registry.footprint(), (0, 1));
}

#[test]
fn a_lease_that_is_over_and_not_swept_yet_lets_its_writer_pass_nobody() {
    let mut rig = Rig::sessions();
    fill_one_sweep(&mut rig);
    assert_eq!(rig.granted("k", &mcp()).at.token.generation.get(), 65);
    let first = rig.queue("k", &inp(), Wait::Forever);
    let late = rig.at(T0 + TTL_MS + 1).refused("k", &mcp());
    assert_eq!(late.code(), Code::WriteConflict);
    assert_eq!(late.by(), Some(&inp()));
    rig.advance();
    let settled = rig.settled().unwrap();
    assert_eq!(settled.waiter, first);
    assert!(settled.outcome.is_ok());
}
