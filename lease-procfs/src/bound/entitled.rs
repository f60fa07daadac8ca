//! Whether a holder may write now.

use std::sync::Arc;

use lease_core::{
    Action, By, Code, Decision, Evidence, FencingToken, Moment, Question, Refusal, Seen, Verdict,
};

use super::admit::{at_place, cell_of, check_bindings};
use super::allocation::Place;
use super::record::Present;
use super::refused::{Refused, Verb};
use super::wall::WallStamp;
use crate::holder::ProcessHolder;

/// Who says that it may write where.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a caller gives every part")]
pub struct Claim<'a> {
    /// Who wants to write.
    pub holder: Option<&'a ProcessHolder>,
    /// Where, as recorded now.
    pub place: &'a Place,
    /// What is noted on the allocation now.
    pub bindings: &'a [Arc<str>],
}

/// The answer to a claim that nothing refuses.
#[derive(Clone, Debug)]
#[must_use = "only a confirmed entitlement lets anybody write"]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every answer")]
pub enum Entitlement {
    /// The holder may write now.
    Confirmed(Confirmed),
    /// It must be known first whether the holder lives; observe, and ask again.
    Ask(Vec<Question<ProcessHolder>>),
}

/// The receipt of an entitlement. It is true for the snapshot that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Confirmed {
    /// What was decided: [`Code::Entitled`].
    pub code: Code,
    /// Which lease.
    pub token: FencingToken,
    /// The last moment of its term.
    pub expires: Option<Moment>,
    /// The same as wall time, for people.
    pub expires_at: Option<WallStamp>,
    /// By what the holder is known to live.
    pub evidence: Option<Evidence>,
}

/// Judges a claim against one snapshot of the allocation and its lease.
///
/// Pure: it reads no store, so it sees exactly what the write authority saw. In order: a lease and a
/// holder, bindings, repository, allocation, path, owner; then the core judges holder, term and life.
///
/// # Errors
///
/// [`Refused`], with the stable code and sub-reason of the first failure.
pub fn entitled(
    present: Option<Present<'_>>,
    claim: &Claim<'_>,
    seen: &Seen<'_>,
) -> Result<Entitlement, Refused> {
    let present = present.ok_or(Refused::Core(Refusal::Required))?;
    let holder = claim
        .holder
        .ok_or(Refused::HolderMissing { verb: Verb::Check })?;
    let token = present.lease.token;
    check_bindings(claim.bindings, Some(token.lease), holder)?;
    if let Some(part) = present.filing.place.difference(claim.place) {
        return Err(Refused::Place(part));
    }
    let action = Action::Check(By::Holder {
        holder: holder.clone(),
        lease: None,
        exited: false,
    });
    let cell = cell_of(present, seen)?;
    match at_place(&present.lease.terms, claim.place, &cell, &action, seen) {
        Decision::Change(_) => Ok(Entitlement::Confirmed(Confirmed {
            code: Code::Entitled,
            token,
            expires: present.lease.expires,
            expires_at: present
                .lease
                .expires
                .and_then(|expires| present.filing.wall_of(expires)),
            evidence: present
                .verdict(seen.answers)
                .map(Verdict::evidence)
                .cloned(),
        })),
        Decision::Ask(mut questions) => {
            present.aim(&mut questions);
            Ok(Entitlement::Ask(questions))
        }
        Decision::Refuse(refusal) => Err(Refused::Core(refusal)),
    }
}
