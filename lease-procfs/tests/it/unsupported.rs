//! Systems other than Linux: nothing is described, nothing is known.

use lease_core::Locality;
use lease_procfs::{ProcFs, ProcLiveness, ProcessIdentity};

use crate::identity::whole;
use crate::rig::shown;

#[test]
fn nothing_is_described_and_nothing_is_known() {
    assert!(ProcessIdentity::own(&ProcFs::system()).is_err());
    let verdict = ProcLiveness::system().judge(&whole(), Locality::ThisMachine);
    assert_eq!(shown(&verdict), "unknown: unsupported");
}
