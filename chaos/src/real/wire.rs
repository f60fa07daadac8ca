//! What the processes of a scenario say to each other.

use lease_core::{AuthorityId, Code, FencingToken, Generation, OpId};
use serde::{Deserialize, Serialize};

use super::work::{Group, Task};

/// The one resource of the scenarios.
pub(crate) const RESOURCE: &str = "guarded/file";

/// The name of the authority's socket in the scenario's folder.
pub(crate) const SOCKET: &str = "authority.sock";

/// What a holder asks of the authority. It never says who it is: that is seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens the conversation; the name is a label only.
    Hello { client: String },
    Acquire {
        resource: String,
        /// How long it may wait; 0 is not at all.
        wait_ms: u64,
    },
    Begin {
        resource: String,
        token: FencingToken,
        op: OpId,
        created: bool,
    },
    End {
        resource: String,
        token: FencingToken,
        op: OpId,
    },
    Touch {
        resource: String,
        token: FencingToken,
    },
    Check {
        resource: String,
        token: FencingToken,
    },
    Release {
        resource: String,
        token: FencingToken,
    },
}

/// What the authority answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The identity is the one that the authority saw, in its text form.
    Welcome {
        authority: AuthorityId,
        identity: String,
    },
    /// It cannot tell who asks, so it grants nothing.
    Stranger {
        code: Code,
        reason: String,
    },
    Granted {
        token: FencingToken,
        code: Code,
        created: bool,
        previous: Option<Generation>,
    },
    Done {
        code: Code,
    },
    Refused(Refused),
    Malformed {
        reason: String,
    },
}

/// A refusal of the core.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    /// What was seen of the holder in the way, as `alive: running`.
    pub(crate) verdict: Option<String>,
    /// Who was seen at the holder's work, as `12 (group)`.
    pub(crate) occupants: Vec<String>,
    /// The label of the holder in the way.
    pub(crate) by: Option<String>,
    /// How many of its operations are in flight.
    pub(crate) in_flight: u32,
    /// Its term is over.
    pub(crate) expired: bool,
    pub(crate) text: String,
}

/// What the scenario asks of the authority, beside its socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Control {
    /// Acquires for a recorded identity, as a store would bring it back.
    Record { client: String, identity: String },
    /// Acquires for the process that has this number, as a caller may name it.
    Number { client: String, pid: i32 },
    /// Keeps so many descriptors free and takes all the others; `None` gives them back.
    Descriptors { free: Option<usize> },
    /// Lists the receipts after the first so many.
    Receipts { after: usize },
}

/// What the authority answers to the scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Ready {
        authority: AuthorityId,
        /// What its decision clock says.
        boottime_seconds: u64,
    },
    Reply(Reply),
    Receipts(Vec<Told>),
    Descriptors,
}

/// A receipt, with labels in place of numbers and random ids.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) code: Code,
    pub(crate) generation: Option<u64>,
    pub(crate) client: Option<String>,
    pub(crate) previous: Option<String>,
    pub(crate) previous_generation: Option<u64>,
    pub(crate) proof: Option<String>,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(generation) = self.generation {
            write!(f, " generation {generation}")?;
        }
        if let Some(client) = &self.client {
            write!(f, " {client}")?;
        }
        if let Some(previous) = &self.previous {
            write!(f, " from {previous}")?;
        }
        if let Some(generation) = self.previous_generation {
            write!(f, " generation {generation}")?;
        }
        match &self.proof {
            Some(proof) => write!(f, ", proof {proof}"),
            None => Ok(()),
        }
    }
}

/// What the scenario tells a holder to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Connects and says hello.
    Connect,
    Acquire {
        wait_ms: u64,
    },
    Begin,
    End,
    Touch,
    Check,
    Release,
    /// Writes a line at the guarded file with the token it has.
    Write {
        text: String,
    },
    /// Starts a thread that waits.
    StartThread,
    /// Ends that thread.
    EndThread,
    /// Ends the leader thread; another goes on in its place.
    LeaveLeader,
    /// Reads its own clock and describes itself.
    Describe,
    /// Enters the process group of this number; 0 makes one of its own.
    Enter {
        group: i32,
    },
    /// Starts a process that outlives it, and waits until that one is at its task.
    Employ {
        task: Task,
        group: Group,
    },
    /// Acquires, writes and releases over and over.
    Storm {
        ms: u64,
        shielded: bool,
    },
}

/// What a holder answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Reply(Reply),
    Written,
    /// The gate turned the write away.
    Fenced {
        why: String,
    },
    Thread {
        tid: i32,
    },
    Ended,
    Entered,
    /// The worker has this number.
    Employed {
        number: i32,
    },
    Left,
    Described {
        boottime_seconds: u64,
        identity: String,
    },
    Stormed {
        grants: u64,
        fenced: u64,
        refused: u64,
    },
    Failed {
        what: String,
    },
}

/// What a process says that has started another one.
///
/// The other one may have said something before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    /// Which role started it.
    pub(crate) by: Starter,
    /// The number of the new process where its starter looks.
    pub(crate) child: i32,
}

/// A role that starts a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Starter {
    Inside,
    Nested,
    Numbered,
}
