//! What this process knows of itself and of how to look at others, asked of the system once.

use std::sync::Mutex;

use lease_procfs::{ProcFs, ProcLiveness, ProcessIdentity};

use crate::sys::Image;

/// What was asked, and by which process among the forks of one program.
#[derive(Debug)]
struct Known {
    image: Image,
    identity: Option<ProcessIdentity>,
    liveness: ProcLiveness,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Returns the identity of this process; `None` where the system does not tell.
pub(crate) fn identity() -> Option<ProcessIdentity> {
    with(|known| known.identity)
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
    Known {
        image,
        identity: ProcessIdentity::own(&ProcFs::system()).ok(),
        liveness: ProcLiveness::system(),
    }
}
