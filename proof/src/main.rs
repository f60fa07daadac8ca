//! Grants, refuses, reclaims and fences without std.
#![no_std]
#![no_main]

extern crate alloc;

mod sys;

use alloc::format;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use lease_core::{
    Action, AuthorityId, Call, FenceGate, Grant, LeaseId, LeasePolicy, Moment, Outcome, Registry,
    ResourceKey, Seen, SessionHolder, Step, Turn, Wait,
};

/// Runs a short history and says what came of it.
fn prove() -> Result<String, String> {
    let policy = LeasePolicy::session_ttl(Duration::from_secs(30)).map_err(text)?;
    let authority = AuthorityId::from_random([7; 16]);
    let mut registry = Registry::<SessionHolder>::new(authority, policy).with_receipts(16);
    let old = granted(&mut registry, "ag-1", 0)?;
    if granted(&mut registry, "ag-2", 30).is_ok() {
        return Err("two holders at once\n".to_string());
    }
    let new = granted(&mut registry, "ag-2", 31)?;
    let mut gate = FenceGate::new();
    gate.enter(&new.at.token).map_err(text)?;
    let fenced = gate
        .enter(&old.at.token)
        .err()
        .ok_or("an older token was let in\n")?;
    let receipts = registry.take_receipts().receipts;
    let lines: String = receipts
        .iter()
        .map(|receipt| format!("{receipt}\n"))
        .collect();
    Ok(format!("{lines}without std: {fenced}\n"))
}

fn granted(
    registry: &mut Registry<SessionHolder>,
    agent: &str,
    seconds: u64,
) -> Result<Grant, String> {
    let holder = SessionHolder::new(agent, "s-1").map_err(text)?;
    let call = Call {
        resource: Some(ResourceKey::new("app/viewport").map_err(text)?),
        action: Action::Acquire { holder, ttl: None },
        wait: Wait::No,
    };
    let mut lease_id = || LeaseId::from_random([seconds.to_le_bytes()[0]; 16]);
    let seen = Seen::at(Moment::from_millis(seconds * 1_000));
    match registry.call(&call, &mut Turn::new(seen, &mut lease_id)) {
        Step::Done(Outcome::Granted(grant, _)) => Ok(grant),
        step => Err(format!("{step:?}\n")),
    }
}

fn text(problem: impl core::fmt::Display) -> String {
    format!("{problem}\n")
}
