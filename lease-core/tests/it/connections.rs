//! A transport that mints sessions, as an adapter would: what a caller sends never names a writer.

use lease_core::SessionHolder;

use crate::rig::who;

/// What a connection says of itself when it logs in.
pub(crate) struct Login<'a> {
    pub(crate) agent: &'a str,
    /// `?id=`, a header, a body field.
    pub(crate) claims: [&'a str; 3],
}

/// Accepts connections.
pub(crate) struct Transport {
    minted: u32,
}

impl Transport {
    pub(crate) const fn new(first: u32) -> Self {
        Self { minted: first }
    }

    /// Makes the writer of a new connection. The claims are read, logged perhaps, and not used.
    pub(crate) fn accept(&mut self, login: &Login<'_>) -> SessionHolder {
        assert!(login.claims.iter().all(|claim| claim.len() < 100));
        let session = format!("s-{}", self.minted);
        self.minted += 100;
        who(login.agent, &session)
    }
}

/// A login that claims nothing.
pub(crate) const fn login(agent: &str) -> Login<'_> {
    Login {
        agent,
        claims: [""; 3],
    }
}
