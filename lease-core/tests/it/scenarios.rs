//! The incident and its relatives, as whole histories.

use lease_core::Code;

use crate::rig::{Answered as _, Rig, T0, VIEWPORT, inp, mcp, op};
use lease_core::{Disposition, Provenance};

// S1
#[test]
fn idle_expiry_frees_a_persistent_writer() {
    let mut rig = Rig::sessions();
    let grant = rig.granted(VIEWPORT, &mcp());
    rig.begin(VIEWPORT, grant.at, op(1), Provenance::Created)
        .change();
    rig.at(T0 + 500)
        .end(VIEWPORT, grant.at, op(1), Err(Disposition::Unknown))
        .change();
    assert_eq!(
        rig.at(1_000_600).refused(VIEWPORT, &inp()).code(),
        Code::WriteConflict
    );
    assert_eq!(
        rig.at(1_030_500).refused(VIEWPORT, &inp()).code(),
        Code::WriteConflict
    );
    assert_eq!(
        rig.at(1_030_501).granted(VIEWPORT, &inp()).provenance,
        Provenance::Created
    );
    println!("{}", rig.transcript);
}
