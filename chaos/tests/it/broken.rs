//! Authorities that are broken on purpose: each is found, made short, and found again.

use std::marker::PhantomData;

use chaos::clock::Deadline;
use chaos::oracle::{Due, Listed, Rule};
use chaos::scenario::{Context, Judgement, Silent, Violation};
use chaos::sim::{Answered, Driver, Play, Shipped, SimHolder, play};
use lease_core::{
    Action, Answer, AuthorityId, Call, Change, Evidence, FenceGate, Fenced, FencingToken,
    Generation, Grant, LeasePolicy, Moment, Outcome, Question, Receipt, Refusal, ResourceKey, Seen,
    Step, Turn, Verdict, WaiterId,
};

/// What is broken. Everything else is the shipped registry.
trait Fault {
    fn authority(given: AuthorityId) -> AuthorityId {
        given
    }

    fn call(inner: &mut Shipped, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        Driver::call(inner, call, turn)
    }

    fn receipts(receipts: Vec<Receipt<SimHolder>>) -> Vec<Receipt<SimHolder>> {
        receipts
    }

    fn settled(inner: &mut Shipped) -> Option<Answered> {
        Driver::take_settled(inner)
    }

    fn enter(gate: &mut FenceGate, token: &FencingToken) -> Result<(), Fenced> {
        gate.enter(token)
    }
}

struct Broken<F>(Shipped, PhantomData<F>);

impl<F: Fault> Driver for Broken<F> {
    fn start(authority: AuthorityId, policy: LeasePolicy) -> Self {
        Self(Shipped::start(F::authority(authority), policy), PhantomData)
    }

    fn call(&mut self, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        F::call(&mut self.0, call, turn)
    }

    fn advance(&mut self, turn: &mut Turn<'_>) -> Vec<Change> {
        Driver::advance(&mut self.0, turn)
    }

    fn cancel(&mut self, waiter: WaiterId, turn: &mut Turn<'_>) -> bool {
        Driver::cancel(&mut self.0, waiter, turn)
    }

    fn abandon(&mut self, resource: &ResourceKey, grant: Grant, turn: &mut Turn<'_>) {
        Driver::abandon(&mut self.0, resource, grant, turn);
    }

    fn take_settled(&mut self) -> Option<Answered> {
        F::settled(&mut self.0)
    }

    fn take_receipts(&mut self) -> Vec<Receipt<SimHolder>> {
        F::receipts(Driver::take_receipts(&mut self.0))
    }

    fn listed(&self, now: Moment) -> Vec<Listed<SimHolder>> {
        self.0.listed(now)
    }

    fn raise_floor(&mut self, floor: Generation) {
        Driver::raise_floor(&mut self.0, floor);
    }

    fn questions(&self) -> Vec<Question<SimHolder>> {
        Driver::questions(&self.0)
    }

    fn due(&self) -> Due {
        self.0.due()
    }

    fn footprint(&self) -> Option<(usize, usize)> {
        Driver::footprint(&self.0)
    }

    fn enter(&self, gate: &mut FenceGate, token: &FencingToken) -> Result<(), Fenced> {
        F::enter(gate, token)
    }
}

/// Takes doubt for proof.
struct GrantsOnDoubt;

impl Fault for GrantsOnDoubt {
    fn call(inner: &mut Shipped, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        let believe = |answer: &Answer| {
            let mut answer = answer.clone();
            if let Verdict::Unknown(_) = answer.verdict {
                answer.verdict = Verdict::Dead(Evidence::new("nobody_answered"));
            }
            answer
        };
        let answers: Vec<Answer> = turn.seen.answers.iter().map(believe).collect();
        let seen = Seen {
            answers: &answers,
            ..turn.seen
        };
        Driver::call(inner, call, &mut Turn::new(seen, turn.lease_id))
    }
}

/// Lets everybody in.
struct DropsTheFence;

impl Fault for DropsTheFence {
    fn enter(_: &mut FenceGate, _: &FencingToken) -> Result<(), Fenced> {
        Ok(())
    }
}

/// Turns everybody away.
struct ClosesTheFence;

impl Fault for ClosesTheFence {
    fn enter(_: &mut FenceGate, token: &FencingToken) -> Result<(), Fenced> {
        Err(Fenced::Older { current: *token })
    }
}

/// Comes back after a restart as if nothing had happened, and counts from one.
struct ForgetsThatItForgot;

impl Fault for ForgetsThatItForgot {
    fn authority(_: AuthorityId) -> AuthorityId {
        AuthorityId::from_bytes([7; 16])
    }
}

/// Loses the answers to those who waited.
struct LosesAnswers;

impl Fault for LosesAnswers {
    fn settled(inner: &mut Shipped) -> Option<Answered> {
        while Driver::take_settled(inner).is_some() {}
        None
    }
}

/// Takes equal agents for one writer when a connection is lost.
struct DisconnectsTheAgent;

impl Fault for DisconnectsTheAgent {
    fn call(inner: &mut Shipped, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        if let Action::Disconnect(holder) = &call.action {
            for other in inner.listed(turn.seen.now) {
                if other.holder.agent == holder.agent {
                    let action = Action::Disconnect(other.holder);
                    drop(Driver::call(
                        inner,
                        &Call {
                            action,
                            ..call.clone()
                        },
                        turn,
                    ));
                }
            }
        }
        Driver::call(inner, call, turn)
    }
}

/// Keeps no receipt of operations that fail.
struct HidesFailures;

impl Fault for HidesFailures {
    fn receipts(mut receipts: Vec<Receipt<SimHolder>>) -> Vec<Receipt<SimHolder>> {
        receipts.retain(|receipt| receipt.change.code != lease_core::Code::RetainedAfterFailure);
        receipts
    }
}

/// Panics when an operator wants something.
struct Panics;

impl Fault for Panics {
    fn call(inner: &mut Shipped, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        if let Action::Revoke { .. } = call.action {
            panic!("not written yet");
        }
        Driver::call(inner, call, turn)
    }
}

/// Never grants anything, which breaks no other rule.
struct RefusesAll;

impl Fault for RefusesAll {
    fn call(inner: &mut Shipped, call: &Call<SimHolder>, turn: &mut Turn<'_>) -> Step<SimHolder> {
        if let Action::Acquire { .. } = call.action {
            Driver::advance(inner, turn);
            return Step::Done(Outcome::Refused(Refusal::Required));
        }
        Driver::call(inner, call, turn)
    }
}

/// Plays histories until a rule is broken.
fn find<F: Fault>(terms: Play, seed: u64, seeds: u64) -> Option<Violation> {
    let deadline = Deadline::within(std::time::Duration::from_secs(60));
    let context = Context::new(seed, Some(seeds), deadline, &Silent);
    match play::<Broken<F>>("sim-broken", terms, &context).result {
        Judgement::Failed { violations } => violations.first().cloned(),
        _ => None,
    }
}

/// The breakage is found as `rule`, in at most `most` steps, and again by its seed alone.
#[track_caller]
fn check<F: Fault>(terms: Play, rule: Rule, most: usize) {
    let found = find::<F>(terms, 1, 2_000).unwrap();
    assert_eq!(found.rule, rule.name(), "{found:#?}");
    let (left, of) = found.steps;
    assert!(left <= most && left <= of, "{left} steps: {found:#?}");
    let seed = found
        .repeat
        .split(' ')
        .skip_while(|word| *word != "--seed")
        .nth(1);
    let seed = seed.unwrap().parse().unwrap();
    assert_eq!(
        found.repeat,
        format!("--scenario sim-broken --seed {seed} --seeds 1")
    );
    assert_eq!(find::<F>(terms, seed, 1), Some(found));
}

#[test]
fn a_grant_on_doubt_is_found() {
    check::<GrantsOnDoubt>(Play::Processes, Rule::DoubtNeverGrants, 8);
    check::<GrantsOnDoubt>(Play::HostedSessions, Rule::DoubtNeverGrants, 8);
}

#[test]
fn a_missing_fence_is_found() {
    check::<DropsTheFence>(Play::Sessions, Rule::NoOlderAfterNewer, 10);
}

#[test]
fn a_closed_fence_is_found() {
    check::<ClosesTheFence>(Play::Sessions, Rule::HolderGetsIn, 4);
}

#[test]
fn an_authority_that_comes_back_under_its_old_name_is_found() {
    check::<ForgetsThatItForgot>(Play::Processes, Rule::AuthorityIsNew, 8);
}

#[test]
fn a_lost_answer_is_found() {
    check::<LosesAnswers>(Play::Sessions, Rule::NoLostHandOver, 8);
}

#[test]
fn a_disconnect_of_others_is_found() {
    check::<DisconnectsTheAgent>(Play::Sessions, Rule::EndsHaveCauses, 8);
}

#[test]
fn a_missing_receipt_is_found() {
    check::<HidesFailures>(Play::Sessions, Rule::ReceiptsReplay, 6);
}

#[test]
fn a_panic_is_found() {
    check::<Panics>(Play::Sessions, Rule::NothingPanics, 4);
}

#[test]
fn an_authority_that_does_nothing_has_not_passed() {
    let found = find::<RefusesAll>(Play::Sessions, 1, 10_000).unwrap();
    assert_eq!(found.rule, Rule::EffectsAreSeen.name());
    // A few histories may miss an effect.
    assert_eq!(find::<RefusesAll>(Play::Sessions, 1, 200), None);
}
