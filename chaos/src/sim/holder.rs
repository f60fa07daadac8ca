//! Who holds a lease in the machine room.

use std::fmt;

use lease_core::{Holder, ResourceKey};

/// A session, a process, or a session within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[expect(
    clippy::exhaustive_structs,
    reason = "an identity is exactly its parts"
)]
pub struct SimHolder {
    /// The agent, which may have several sessions.
    pub agent: u8,
    /// The session, minted by the room and never given twice.
    pub session: Option<u32>,
    /// The process, as it was described.
    pub process: Option<Description>,
}

/// What is known of a process by looking at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[expect(
    clippy::exhaustive_structs,
    reason = "an identity is exactly its parts"
)]
pub struct Description {
    /// On which machine.
    pub machine: u8,
    /// In which boot of it.
    pub boot: u32,
    /// Its number, given again and again.
    pub pid: u16,
    /// When it started, in ticks of 10 ms.
    pub ticks: u64,
    /// The number of its pidfd, where the machine has those: never given again in a boot.
    pub inode: Option<u64>,
}

impl Holder for SimHolder {
    type Target = ResourceKey;
    const KIND: &'static str = "simulated";
}

impl fmt::Debug for SimHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ag-{}", self.agent)?;
        if let Some(session) = self.session {
            write!(f, "/s-{session}")?;
        }
        match &self.process {
            Some(process) => write!(f, "@{process:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            boot,
            pid,
            ticks,
            inode,
        } = self;
        write!(f, "m{machine}.{boot}:{pid}+{ticks}")?;
        match inode {
            Some(inode) => write!(f, "#{inode}"),
            None => Ok(()),
        }
    }
}
