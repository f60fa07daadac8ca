//! What this process knows of itself and of how to look at others, asked of the system once.

use std::sync::Mutex;

use lease_procfs::{Pid, ProcLiveness, ProcessIdentity};

use crate::sys::{self, Image};

/// What was asked, and by which process among the forks of one program.
#[derive(Debug)]
struct Known {
    image: Image,
    pid: Option<Pid>,
    identity: Option<ProcessIdentity>,
    liveness: ProcLiveness,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Returns the identity of this process; `None` where the system does not tell.
pub(crate) fn identity() -> Option<ProcessIdentity> {
    with(|known| known.identity)
}

/// Returns the number of this process in its own pid namespace.
pub(crate) fn pid() -> Option<Pid> {
    with(|known| known.pid)
}

/// Tells whether a description is one of this very program run.
pub(crate) fn is_own(identity: &ProcessIdentity) -> bool {
    let own = self::identity().filter(|own| own.pid == identity.pid);
    own.and_then(|own| own.launch)
        .is_some_and(|launch| identity.launch == Some(launch))
}

/// Returns the means to judge others.
pub(crate) fn liveness() -> ProcLiveness {
    with(|known| known.liveness.clone())
}

fn with<T>(part: impl FnOnce(&Known) -> T) -> T {
    let image = Image::present();
    // A forked child may find it locked for ever, so nobody waits.
    let Ok(mut known) = KNOWN.try_lock() else {
        return part(&ask(image));
    };
    match &mut *known {
        Some(known) if known.image == image => part(known),
        slot => part(slot.insert(ask(image))),
    }
}

fn ask(image: Image) -> Known {
    let liveness = ProcLiveness::system();
    Known {
        image,
        pid: sys::own_pid(),
        identity: ProcessIdentity::own(liveness.proc()).ok(),
        liveness,
    }
}
