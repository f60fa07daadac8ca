//! The promises of an authority, one function each, the same for every backend.
//!
//! A promise sees an authority only through [`Subject`]. It answers [`Kept`]: whether it was kept, or
//! was not asked for because the authority does not claim what it is about.
//!
//! [`conformance!`](crate::conformance!) makes one test of each.
//!
//! An authority of your own needs this crate among its dev-dependencies, by its path, a [`Subject`] for it, and one
//! line in a test: `chaos::conformance!(Yours::new())`. Imitate [`Memory`], and for one of `lease-async` `TokioMemory`
//! (feature `async`). An authority that answers by another task is given time for that before a call counts as
//! [`Heard::Waiting`], and so is whatever a clock that was moved has set off.

mod ends;
mod leases;
mod memory;
mod operations;
mod passing;
mod terms;
#[cfg(feature = "async")]
mod tokio;
mod waiting;

use std::io::{self, Write as _};
use std::time::Duration;

use lease_core::{
    Action, At, By, Call, Capabilities, Change, Disposition, FencingToken, Grant, LeasePolicy,
    Moment, OpId, PolicyError, Provenance, Receipt, Refusal, ResourceKey, SessionHolder, Verdict,
    Wait, WaiterId,
};

use crate::oracle::Listed;

pub use self::ends::*;
pub use self::leases::*;
pub use self::memory::Memory;
pub use self::operations::*;
pub use self::passing::*;
pub use self::terms::*;
#[cfg(feature = "async")]
pub use self::tokio::TokioMemory;
pub use self::waiting::*;

/// An authority, seen from outside.
pub trait Subject {
    /// Starts an empty authority that grants under `policy`.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if it cannot keep what the policy needs.
    fn start(&mut self, policy: LeasePolicy) -> Result<(), PolicyError>;

    /// Returns what it claims to do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the present moment of its decision clock.
    fn now(&self) -> Moment;

    /// Lets time pass, and lets it do what is due.
    fn pass(&mut self, span: Duration);

    /// The shortest time that its clock tells apart.
    fn tick(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Decides what an observation of this holder will say from now on.
    fn observe(&mut self, holder: &SessionHolder, verdict: Verdict);

    /// Makes one call. Questions about holders are answered by what [`observe`](Self::observe) said,
    /// and by "alive" about everybody else.
    fn call(&mut self, call: &Call<SessionHolder>) -> Heard;

    /// Takes the answers to requests that waited. One that is on its way may be waited for.
    fn settled(&mut self) -> Vec<(WaiterId, Result<Grant, Refusal<SessionHolder>>)>;

    /// Takes a waiting request back.
    fn cancel(&mut self, waiter: WaiterId);

    /// Gives back a grant that nobody received.
    fn abandon(&mut self, resource: &ResourceKey, grant: Grant);

    /// Lists what is held, in order of resources, as whoever looks sees it.
    fn listed(&mut self) -> Vec<Listed<SessionHolder>>;

    /// Takes the receipts since the last take, in order.
    fn receipts(&mut self) -> Vec<Receipt<SessionHolder>>;

    /// Ends it and starts it again on what it left behind.
    fn restart(&mut self);
}

/// What was heard in answer to a call.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a grant that nobody takes must be abandoned"]
#[expect(clippy::exhaustive_enums, reason = "a promise looks at every answer")]
pub enum Heard {
    /// A grant.
    Granted(Grant),
    /// Done.
    Done(Change),
    /// These leases ended.
    Many(Vec<Change>),
    /// No.
    Refused(Refusal<SessionHolder>),
    /// It waits.
    Waiting(WaiterId),
    /// The authority gave no answer, for this reason. No promise expects that.
    Silent(String),
}

/// Whether a promise was kept.
pub type Kept = Result<Asked, String>;

/// Whether a promise was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it was asked for or it was not")]
pub enum Asked {
    /// It was, and kept.
    Yes,
    /// The authority does not claim what it is about.
    No(String),
}

/// Says how a promise ended; for the tests that [`conformance!`](crate::conformance!) makes.
///
/// # Panics
///
/// If it was broken.
pub fn conclude(promise: &str, kept: &Kept) {
    if let Ok(Asked::No(why)) = kept {
        // A stream that is closed hides a remark, not a failure.
        let _unseen = writeln!(io::stdout(), "not promised: {promise}: {why}");
    }
    assert!(kept.is_ok(), "{promise}: {kept:?}");
}

/// Mounts every promise for one authority.
///
/// The argument makes a fresh subject for each test.
#[macro_export]
macro_rules! conformance {
    ($subject:expr) => {
        $crate::conformance! { @each $subject;
            // Leases.
            a_grant_is_created_once_and_re_entrant_after,
            re_entry_keeps_the_token,
            another_session_of_the_same_agent_is_another_writer,
            overlapping_keys_are_one_resource,
            a_writer_never_conflicts_with_itself,
            a_refusal_says_who_is_in_the_way,
            a_refusal_changes_nothing,
            generations_grow,
            a_listing_is_a_copy,
            looking_changes_nothing,
            receipts_have_growing_numbers,
            // Terms.
            expiry_is_strict,
            re_entry_starts_the_term_anew,
            an_end_by_term_has_its_own_receipt,
            an_own_expired_lease_is_not_revived,
            a_look_reclaims_every_resource,
            a_term_that_is_not_granted_is_refused,
            a_term_that_suspends_gives_nobody_anything,
            // Operations.
            a_lease_stays_after_a_success,
            in_flight_shields_from_expiry,
            the_end_of_an_operation_starts_the_term_anew,
            begin_needs_a_living_lease,
            an_unknown_operation_ends_nothing,
            an_operation_id_is_good_for_one_operation,
            release_waits_for_operations,
            a_failure_before_any_change_releases_what_it_made,
            a_failure_of_unknown_effect_keeps_the_lease,
            a_failed_re_entry_keeps_the_lease,
            a_failure_does_not_end_a_lease_that_others_use,
            // Ends.
            release_frees_at_once,
            an_older_token_changes_nothing,
            disconnect_is_exact,
            disconnect_ends_what_is_in_flight,
            disconnect_can_be_repeated,
            revoke_names_the_generation,
            a_restart_leaves_no_token_that_means_something_else,
            // Waiting.
            a_waiter_is_served_in_the_same_call,
            waiters_are_served_in_order,
            a_waiter_behind_its_own_lease_does_not_block,
            a_wait_ends_at_its_deadline,
            a_request_taken_back_gets_nothing,
            a_disconnect_takes_requests_back,
            // Passing on.
            an_adopted_lease_keeps_its_token,
            a_ticket_is_good_once,
            a_hand_over_never_makes_two_holders_overlap,
            a_grant_that_nobody_received_is_passed_on,
            a_grant_that_is_in_use_is_not_taken_back,
            proof_of_death_passes_a_lease_on,
            doubt_never_grants,
        }
    };
    (@each $subject:expr; $($promise:ident,)*) => {
        $(
            #[test]
            fn $promise() {
                let kept = $crate::conformance::$promise(&mut $subject);
                $crate::conformance::conclude(stringify!($promise), &kept);
            }
        )*
    };
}

/// The term of the promises.
const TERM: Duration = Duration::from_secs(30);

const VIEWPORT: &str = "app/viewport";

/// Answers early that a promise is not asked for.
macro_rules! asked {
    ($claims:expr, $why:expr) => {
        if !$claims {
            return Ok($crate::conformance::Asked::No($why.to_owned()));
        }
    };
}

/// Starts a subject under a policy, or answers early that it cannot keep that one.
macro_rules! started {
    ($subject:expr, $policy:expr) => {
        let policy = $policy.map_err(|error| error.to_string())?;
        if let Err(error) = $subject.start(policy) {
            return Ok($crate::conformance::Asked::No(error.to_string()));
        }
    };
}

use {asked, started};

/// Says what was promised, unless it is so.
fn demand(is_so: bool, what: impl Into<String>) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.into()) }
}

fn same<T: PartialEq + std::fmt::Debug>(left: &T, right: &T, what: &str) -> Result<(), String> {
    demand(left == right, format!("{what}: {left:?} is not {right:?}"))
}

fn kept() -> Kept {
    Ok(Asked::Yes)
}

fn sessions() -> Result<LeasePolicy, PolicyError> {
    LeasePolicy::session_ttl(TERM)
}

fn writer(agent: &str, session: &str) -> Result<SessionHolder, String> {
    SessionHolder::new(agent, session).map_err(|error| error.to_string())
}

/// The three writers of the promises: two sessions of one agent, and another agent.
fn writers() -> Result<[SessionHolder; 3], String> {
    Ok([
        writer("ag-1", "s-100")?,
        writer("ag-1", "s-200")?,
        writer("ag-2", "s-300")?,
    ])
}

fn key(text: &str) -> Result<ResourceKey, String> {
    ResourceKey::new(text).map_err(|error| error.to_string())
}

const fn op(number: u8) -> OpId {
    OpId::from_bytes([number; 16])
}

/// Calls that a promise makes, with the answer it expects.
trait Asks: Subject {
    fn ask(&mut self, resource: &str, action: Action<SessionHolder>) -> Result<Heard, String> {
        let resource = Some(key(resource)?);
        Ok(self.call(&Call {
            resource,
            action,
            wait: Wait::No,
        }))
    }

    fn acquire(&mut self, resource: &str, holder: &SessionHolder) -> Result<Heard, String> {
        self.ask(
            resource,
            Action::Acquire {
                holder: holder.clone(),
                ttl: None,
            },
        )
    }

    fn granted(&mut self, resource: &str, holder: &SessionHolder) -> Result<Grant, String> {
        match self.acquire(resource, holder)? {
            Heard::Granted(grant) => Ok(grant),
            heard => Err(format!("{holder:?} was not granted {resource}: {heard:?}")),
        }
    }

    fn refused(
        &mut self,
        resource: &str,
        holder: &SessionHolder,
    ) -> Result<Refusal<SessionHolder>, String> {
        match self.acquire(resource, holder)? {
            Heard::Refused(refusal) => Ok(refusal),
            heard => Err(format!("{holder:?} was not refused {resource}: {heard:?}")),
        }
    }

    fn queued(
        &mut self,
        resource: &str,
        holder: &SessionHolder,
        wait: Wait,
    ) -> Result<WaiterId, String> {
        let action = Action::Acquire {
            holder: holder.clone(),
            ttl: None,
        };
        let resource = Some(key(resource)?);
        match self.call(&Call {
            resource,
            action,
            wait,
        }) {
            Heard::Waiting(waiter) => Ok(waiter),
            heard => Err(format!("{holder:?} does not wait: {heard:?}")),
        }
    }

    fn done(&mut self, resource: &str, action: Action<SessionHolder>) -> Result<Change, String> {
        match self.ask(resource, action)? {
            Heard::Done(change) => Ok(change),
            heard => Err(format!("not done: {heard:?}")),
        }
    }

    fn begin(&mut self, at: At, op: OpId, from: Provenance) -> Result<Change, String> {
        self.done(VIEWPORT, Action::Begin { at, op, from })
    }

    fn end(&mut self, at: At, op: OpId, result: Result<(), Disposition>) -> Result<Change, String> {
        self.done(VIEWPORT, Action::End { at, op, result })
    }

    fn release(&mut self, at: At) -> Result<Change, String> {
        self.done(VIEWPORT, Action::Release(By::Token(at)))
    }

    /// The action is refused because its token is of the past.
    fn stale(&mut self, action: Action<SessionHolder>) -> Result<(), String> {
        match self.ask(VIEWPORT, action.clone())? {
            Heard::Refused(Refusal::StaleToken { .. }) => Ok(()),
            heard => Err(format!("{action:?} is not stale: {heard:?}")),
        }
    }

    fn disconnect(&mut self, holder: &SessionHolder) -> Result<Vec<Change>, String> {
        let action = Action::Disconnect(holder.clone());
        match self.call(&Call {
            resource: None,
            action,
            wait: Wait::No,
        }) {
            Heard::Many(changes) => Ok(changes),
            heard => Err(format!("disconnect was answered with {heard:?}")),
        }
    }

    /// The token of the lease of a resource, if it is held.
    fn token_of(&mut self, resource: &str) -> Result<Option<FencingToken>, String> {
        let resource = key(resource)?;
        let listed = self.listed();
        let found = listed.iter().find(|listed| listed.resource == resource);
        Ok(found.map(|listed| listed.token))
    }

    /// The resource of most promises is held under exactly this token.
    fn is_held_under(&mut self, token: FencingToken) -> Result<(), String> {
        same(&self.token_of(VIEWPORT)?, &Some(token), "the token")
    }

    /// The only request that was settled, with its grant.
    fn one_settled(&mut self, waiter: WaiterId) -> Result<Grant, String> {
        let mut settled = self.settled();
        match (settled.pop(), settled.is_empty()) {
            (Some((settled, Ok(grant))), true) if settled == waiter => Ok(grant),
            (last, _) => Err(format!(
                "{waiter} is not the one that was granted: {last:?}"
            )),
        }
    }
}

impl<S: Subject + ?Sized> Asks for S {}
