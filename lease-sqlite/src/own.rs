//! What this process knows of itself and of how to look at others, asked of the system once.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lease_procfs::{Pid, ProcLiveness, ProcessIdentity};

use crate::sys::{self, Common};

/// What was asked.
#[derive(Debug)]
struct Known {
    pid: Option<Pid>,
    identity: Option<ProcessIdentity>,
    /// The same in words.
    text: Option<Arc<str>>,
    random: Option<u64>,
    liveness: ProcLiveness,
}

static KNOWN: Common<OnceLock<Known>> = Common::new();

/// Returns the identity of this process; `None` where the system does not tell.
pub(crate) fn identity() -> Option<ProcessIdentity> {
    known().identity
}

/// Returns the same in words.
pub(crate) fn identity_text() -> Option<Arc<str>> {
    known().text.clone()
}

/// Returns a number that this process has not had before, and that no other one has most likely.
pub(crate) fn random() -> io::Result<u64> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let random = known().random.map_or_else(sys::random, Ok);
    random.map(|random| random.wrapping_add(count))
}

/// Returns the number of this process in its own pid namespace.
pub(crate) fn pid() -> Option<Pid> {
    known().pid
}

/// Tells whether a description is one of this very program run.
pub(crate) fn is_own(identity: &ProcessIdentity) -> bool {
    let own = self::identity().filter(|own| own.pid == identity.pid);
    own.and_then(|own| own.launch)
        .is_some_and(|launch| identity.launch == Some(launch))
}

/// Returns the means to judge others.
pub(crate) fn liveness() -> ProcLiveness {
    known().liveness.clone()
}

fn known() -> &'static Known {
    KNOWN.of_this_process().get_or_init(ask)
}

fn ask() -> Known {
    let liveness = ProcLiveness::system();
    let identity = ProcessIdentity::own(liveness.proc()).ok();
    Known {
        pid: sys::own_pid(),
        identity,
        text: identity.map(|identity| Arc::from(identity.to_string())),
        random: sys::random().ok(),
        liveness,
    }
}
