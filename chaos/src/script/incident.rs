//! The incident that this project began with, and what may never follow from it.
//!
//! A persistent tool connection made a call that failed. Its lock stayed, and a second writer of the
//! same seat was kept out until the whole worker was reloaded: there was no term, no way to tell a new
//! lock from an old one, and no token that a sweep could have fenced.

use std::time::Duration;

use lease_core::{
    Action, At, By, Disposition, Grant, LeasePolicy, OpId, OperationKind, Provenance, SessionHolder,
};

use super::Told;
use super::stage::{Answered, Stage};
use crate::oracle::Rule;

const VIEWPORT: &str = "app/viewport";
const TERM: Duration = Duration::from_secs(30);

/// The persistent connection.
fn mcp() -> Option<SessionHolder> {
    SessionHolder::new("ag-1", "s-100").ok()
}

/// Another connection of the same agent: another writer.
fn inp() -> Option<SessionHolder> {
    SessionHolder::new("ag-1", "s-200").ok()
}

/// Both writers on a stage of their own. `None` only if a name were malformed.
pub(super) fn stage() -> Option<(Stage<SessionHolder>, SessionHolder, SessionHolder)> {
    let policy = LeasePolicy::session_ttl(TERM).ok()?;
    Some((Stage::new(policy, 1_000_000), mcp()?, inp()?))
}

/// A story that could not even begin.
pub(super) fn unbegun() -> Told {
    let mut told = Told::default();
    let breach = crate::oracle::Breach::new(Rule::EffectsAreSeen, "the story could not begin");
    told.breaches.push(breach);
    told
}

/// The call that fails, half a second after it began. Nobody knows what it changed.
fn failing_call(stage: &mut Stage<SessionHolder>, mcp: &SessionHolder) {
    let Some(grant) = stage.at(1_000_000).ask(VIEWPORT, mcp) else {
        return stage.demand(
            false,
            Rule::EffectsAreSeen,
            "a free resource was not granted",
        );
    };
    let op = OpId::from_bytes([1; 16]);
    let begun = stage.begin(VIEWPORT, grant.at, op, grant.provenance);
    stage.demand(
        matches!(begun, Answered::Done(_)),
        Rule::EffectsAreSeen,
        "no operation began",
    );
    stage
        .at(1_000_500)
        .note(OperationKind::CallMethod.name(), "the method raised");
    let claim = OperationKind::CallMethod.claim(None);
    let ended = stage.end(VIEWPORT, grant.at, op, Err(claim.disposition));
    stage.demand(
        matches!(ended, Answered::Done(_)),
        Rule::EffectsAreSeen,
        "no operation ended",
    );
}

/// The next writer has a lease of its own.
fn gets_in(stage: &mut Stage<SessionHolder>, grant: Option<&Grant>) {
    let created = grant.is_some_and(|grant| {
        grant.provenance == Provenance::Created && grant.at.token.generation.get() == 2
    });
    stage.demand(
        created,
        Rule::EffectsAreSeen,
        "the next writer did not get in",
    );
}

/// The connection stays open and silent. The term lets the next writer in.
pub(super) fn expiry() -> Told {
    let Some((mut stage, mcp, inp)) = stage() else {
        return unbegun();
    };
    failing_call(&mut stage, &mcp);
    for ms in [1_000_600, 1_030_500] {
        let early = stage.at(ms).ask(VIEWPORT, &inp);
        stage.demand(
            early.is_none(),
            Rule::NoEarlyExpiry,
            format!("granted at {ms} ms"),
        );
    }
    let grant = stage.at(1_030_501).ask(VIEWPORT, &inp);
    gets_in(&mut stage, grant.as_ref());
    stage.told()
}

/// The connection is lost. The next writer gets in at once.
pub(super) fn disconnect() -> Told {
    let Some((mut stage, mcp, inp)) = stage() else {
        return unbegun();
    };
    failing_call(&mut stage, &mcp);
    stage.at(1_005_000).disconnect(&mcp);
    let grant = stage.ask(VIEWPORT, &inp);
    gets_in(&mut stage, grant.as_ref());
    stage.told()
}

/// A writer whose lease was reclaimed tries everything with its old token, and writes late.
pub(super) fn stale_holder() -> Told {
    let Some((mut stage, mcp, inp)) = stage() else {
        return unbegun();
    };
    let (Some(old), Some(new)) = (
        stage.at(1_000_000).ask(VIEWPORT, &mcp),
        stage.at(1_030_001).ask(VIEWPORT, &inp),
    ) else {
        stage.demand(
            false,
            Rule::EffectsAreSeen,
            "two leases, one after the other",
        );
        return stage.told();
    };
    let op = OpId::from_bytes([2; 16]);
    let begun = stage.begin(VIEWPORT, new.at, op, new.provenance);
    stage.demand(
        matches!(begun, Answered::Done(_)),
        Rule::EffectsAreSeen,
        "no operation began",
    );
    stage.write(&new.at.token, "of the successor");
    let before = stage.listed();
    for (ms, action) in [
        (1_030_002, Action::Touch(old.at)),
        (1_030_003, begin(old.at)),
        (1_030_004, end(old.at)),
        (1_030_005, Action::Release(By::Token(old.at))),
    ] {
        let stale = stage.at(ms).call(Some(VIEWPORT), action);
        let refused = stale == Answered::Refused(lease_core::Code::StaleToken);
        stage.demand(
            refused,
            Rule::PastCannotAct,
            format!("{stale:?} at {ms} ms"),
        );
    }
    stage.write(&old.at.token, "of the past");
    let same = before == stage.listed();
    stage.demand(
        same,
        Rule::PastCannotAct,
        "the successor's lease is not as it was",
    );
    let untouched = stage.written() == ["of the successor"];
    stage.demand(
        untouched,
        Rule::NoOlderAfterNewer,
        "a late write reached the resource",
    );
    stage.told()
}

const fn begin(at: At) -> Action<SessionHolder> {
    Action::Begin {
        at,
        op: OpId::from_bytes([3; 16]),
        from: Provenance::Created,
    }
}

const fn end(at: At) -> Action<SessionHolder> {
    let result = Err(Disposition::PreMutation);
    Action::End {
        at,
        op: OpId::from_bytes([3; 16]),
        result,
    }
}
