//! Where descriptors are handed to a reactor.
#![expect(
    unsafe_code,
    reason = "a reactor has to trust who says which descriptor it is"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the reactor of the runtime that is entered.
pub(crate) fn readable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: it is one descriptor, open as long as the reactor keeps its share.
    let registered = unsafe { AsyncFd::register(fd) };
    registered.map_err(|refused| refused.into_parts().1)
}

/// Registers a watch of processes with the reactor of the runtime that is entered.
#[cfg(feature = "procfs")]
pub(crate) fn deaths(
    watch: Arc<lease_procfs::DeathWatch>,
) -> io::Result<AsyncFd<Arc<lease_procfs::DeathWatch>>> {
    // SAFETY: a watch owns its one descriptor, and is there as long as the reactor keeps its share.
    let registered = unsafe { AsyncFd::register(watch) };
    registered.map_err(|refused| refused.into_parts().1)
}
