//! What this process knows of itself and of how to look at others, asked of the system once.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lease_procfs::{Pid, ProcLiveness, ProcessIdentity};

use crate::sys::{self, Image};

/// What was asked, and by which process among the forks of one program.
#[derive(Debug)]
struct Known {
    image: Image,
    pid: Option<Pid>,
    identity: Option<ProcessIdentity>,
    /// The same in words.
    text: Option<Arc<str>>,
    random: Option<u64>,
    liveness: ProcLiveness,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Returns the identity of this process; `None` where the system does not tell.
pub(crate) fn identity() -> Option<ProcessIdentity> {
    with(|known| known.identity)
}

/// Returns the same in words.
pub(crate) fn identity_text() -> Option<Arc<str>> {
    with(|known| known.text.clone())
}

/// Returns a number that this process has not had before, and that no other one has most likely.
pub(crate) fn random() -> io::Result<u64> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let random = with(|known| known.random).map_or_else(sys::random, Ok);
    random.map(|random| random.wrapping_add(count))
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
    let identity = ProcessIdentity::own(liveness.proc()).ok();
    Known {
        image,
        pid: sys::own_pid(),
        identity,
        text: identity.map(|identity| Arc::from(identity.to_string())),
        random: sys::random().ok(),
        liveness,
    }
}
