//! The oracle can fail: for each of its rules, a history in which only that rule is broken.

use std::time::Duration;

use chaos::oracle::{
    Breach, Deed, Due, GaveBack, Life, Listed, Observed, Oracle, ResourceLog, Rule, Said,
};
use lease_core::{
    Action, Answer, At, AuthorityId, By, Call, Code, Detail, Disposition, Evidence, FencingToken,
    Generation, LeaseId, LeasePolicy, Moment, OpId, Outcome, Provenance, Receipt, Registry,
    ResourceKey, Seen, SessionHolder, Step, Turn, Verdict, Wait, WaiterId,
};

const AUTHORITY: AuthorityId = AuthorityId::from_bytes([0xA1; 16]);

fn key(text: &str) -> ResourceKey {
    ResourceKey::new(text).unwrap()
}

fn who(session: &str) -> SessionHolder {
    SessionHolder::new("ag-1", session).unwrap()
}

fn token(generation: u64, lease: u8) -> FencingToken {
    FencingToken {
        authority: AUTHORITY,
        generation: Generation::new(generation).unwrap(),
        lease: LeaseId::from_bytes([lease; 16]),
    }
}

/// What was done, owned, so that a test can tamper with it.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a test makes one at a time")]
enum Did {
    Called(Call<SessionHolder>, Said),
    Advanced,
    GaveBack(GaveBack),
}

/// Everything that was seen of one call, owned.
#[derive(Clone)]
struct Seeing {
    read: Moment,
    did: Did,
    answers: Vec<Answer>,
    receipts: Vec<Receipt<SessionHolder>>,
    settled: Vec<(WaiterId, Option<FencingToken>)>,
    listed: Vec<Listed<SessionHolder>>,
    due: Due,
    footprint: Option<(usize, usize)>,
    life: Life,
}

/// A registry and an oracle that watches it.
#[derive(Clone)]
struct Rig {
    registry: Registry<SessionHolder>,
    oracle: Oracle<SessionHolder>,
    now: Moment,
    answers: Vec<Answer>,
    random: u8,
}

impl Rig {
    fn new(policy: LeasePolicy) -> Self {
        Self {
            registry: Registry::new(AUTHORITY, policy.clone()).with_receipts(1 << 10),
            oracle: Oracle::new(policy),
            now: Moment::from_millis(1_000_000),
            answers: Vec::new(),
            random: 0,
        }
    }

    fn sessions() -> Self {
        Self::new(LeasePolicy::session_ttl(Duration::from_secs(30)).unwrap())
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
    }

    /// Does something to the registry, and shows what could be seen of it.
    fn see<T>(
        &mut self,
        work: impl FnOnce(&mut Registry<SessionHolder>, &mut Turn<'_>) -> T,
        did: impl FnOnce(T) -> Did,
    ) -> Seeing {
        let random = &mut self.random;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_bytes([*random; 16])
        };
        let seen = Seen {
            now: self.now,
            wall_ms: None,
            answers: &self.answers,
        };
        let done = work(&mut self.registry, &mut Turn::new(seen, &mut lease_id));
        let mut settled = Vec::new();
        while let Some(answered) = self.registry.take_settled() {
            let granted = answered.outcome.ok().map(|(grant, _)| grant.at.token);
            settled.push((answered.waiter, granted));
        }
        Seeing {
            read: self.now,
            did: did(done),
            answers: self.answers.clone(),
            receipts: self.registry.take_receipts().receipts,
            settled,
            listed: self
                .registry
                .peek(self.now)
                .iter()
                .map(Listed::from)
                .collect(),
            due: self.registry.next_deadline().into(),
            footprint: Some(self.registry.footprint()),
            life: Life::Gone,
        }
    }

    fn call(
        &mut self,
        resource: Option<&str>,
        action: Action<SessionHolder>,
        wait: Wait,
    ) -> Seeing {
        let call = Call {
            resource: resource.map(key),
            action,
            wait,
        };
        let told = call.clone();
        self.see(
            move |registry, turn| registry.call(&call, turn),
            |step| Did::Called(told, said(step)),
        )
    }

    fn ask(&mut self, resource: &str, session: &str, wait: Wait) -> Seeing {
        let action = Action::Acquire {
            holder: who(session),
            ttl: None,
        };
        self.call(Some(resource), action, wait)
    }

    fn touch(&mut self, resource: &str, token: FencingToken) -> Seeing {
        self.call(Some(resource), Action::Touch(At::from(token)), Wait::No)
    }

    fn advance(&mut self) -> Seeing {
        self.see(|registry, turn| registry.advance(turn), |_| Did::Advanced)
    }

    /// Time passes, and the registry does not notice.
    fn nothing(&self) -> Seeing {
        Seeing {
            read: self.now,
            did: Did::Advanced,
            answers: self.answers.clone(),
            receipts: Vec::new(),
            settled: Vec::new(),
            listed: self
                .registry
                .peek(self.now)
                .iter()
                .map(Listed::from)
                .collect(),
            due: Due::Unnamed,
            footprint: None,
            life: Life::Gone,
        }
    }

    fn judge(&mut self, seeing: &Seeing) -> Result<(), Breach> {
        let observed = Observed {
            read: seeing.read,
            deed: match &seeing.did {
                Did::Called(call, said) => Deed::Called(call, said.clone()),
                Did::Advanced => Deed::Advanced,
                Did::GaveBack(what) => Deed::GaveBack(*what),
            },
            answers: &seeing.answers,
            receipts: &seeing.receipts,
            settled: &seeing.settled,
            listed: &seeing.listed,
            due: seeing.due,
            footprint: seeing.footprint,
        };
        self.oracle.judge(&observed, &|_, _| seeing.life)
    }

    /// What was seen breaks no rule.
    #[track_caller]
    fn right(&mut self, seeing: Seeing) -> Seeing {
        assert_eq!(self.judge(&seeing), Ok(()));
        seeing
    }

    /// Asks, without breaking a rule, and answers the token.
    #[track_caller]
    fn held(&mut self, resource: &str, session: &str) -> FencingToken {
        let seeing = self.ask(resource, session, Wait::No);
        let seeing = self.right(seeing);
        seeing.receipts.last().unwrap().change.token.unwrap()
    }

    #[track_caller]
    fn queued(&mut self, resource: &str, session: &str, wait: Wait) {
        let seeing = self.ask(resource, session, wait);
        let seeing = self.right(seeing);
        assert!(matches!(seeing.did, Did::Called(_, Said::Queued(_))));
    }

    /// The same registry without those who wait in it.
    fn without_waiters(&self) -> Self {
        let mut other = self.clone();
        for waiter in 0..8 {
            drop(other.see(
                |registry, turn| registry.cancel(WaiterId::from_order(waiter), turn),
                |_| Did::Advanced,
            ));
        }
        other
    }
}

fn said(step: Step<SessionHolder>) -> Said {
    match step {
        Step::Done(Outcome::Granted(grant, _)) => Said::Granted(grant.at.token, grant.provenance),
        Step::Done(Outcome::Done(change)) => Said::Done(change),
        Step::Done(Outcome::Many(changes)) => Said::Many(changes),
        Step::Done(Outcome::Refused(refusal)) => Said::Refused(refusal.code()),
        Step::Ask(_) => Said::Asked,
        Step::Queued(waiter) => Said::Queued(waiter),
    }
}

type Judged = Result<(), Breach>;

// At the guarded resource.

fn a_hold_within_a_hold() -> Judged {
    let mut log = ResourceLog::new();
    let (one, other) = (token(1, 1), token(1, 2));
    log.accepted(&one)?;
    log.accepted(&other)?;
    log.accepted(&one)
}

fn an_older_token() -> Judged {
    let mut log = ResourceLog::new();
    log.accepted(&token(2, 2))?;
    log.accepted(&token(1, 1))
}

fn an_older_authority() -> Judged {
    let mut log = ResourceLog::new();
    let next = AuthorityId::from_bytes([0xA2; 16]);
    log.succeeded(AUTHORITY);
    log.succeeded(next);
    log.accepted(&FencingToken {
        authority: next,
        ..token(1, 2)
    })?;
    log.accepted(&token(9, 1))
}

// At the authority.

/// A grant to a second writer, made up from the first one's receipt.
fn second(rig: &mut Rig, forge: impl Fn(&mut Receipt<SessionHolder>)) -> Judged {
    let mut seeing = rig.ask("a", "s-1", Wait::No);
    rig.right(seeing.clone());
    for receipt in &mut seeing.receipts {
        receipt.change.seq.major += 1;
        receipt.holder = Some(who("s-2"));
        forge(receipt);
    }
    rig.judge(&seeing)
}

fn two_holders() -> Judged {
    second(&mut Rig::sessions(), |receipt| {
        receipt.resource = Some(key("a/b"));
        receipt.change.token = Some(token(2, 2));
    })
}

fn a_generation_twice() -> Judged {
    second(&mut Rig::sessions(), |receipt| {
        receipt.resource = Some(key("b"));
        receipt.change.token = Some(token(1, 2));
    })
}

fn a_lease_id_twice() -> Judged {
    second(&mut Rig::sessions(), |receipt| {
        receipt.resource = Some(key("b"));
        receipt.change.token = Some(token(2, 1));
    })
}

fn a_smaller_generation() -> Judged {
    let mut rig = Rig::sessions();
    rig.registry.raise_floor(Generation::new(5).unwrap());
    second(&mut rig, |receipt| {
        receipt.resource = Some(key("b"));
        receipt.change.token = Some(token(4, 2));
    })
}

fn an_authority_that_comes_back() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    rig.oracle.restarted();
    let mut again = Rig::sessions();
    again.random = 7;
    let seeing = again.ask("a", "s-1", Wait::No);
    rig.judge(&seeing)
}

/// A takeover on this verdict, while the holder is there or not.
fn takeover(verdict: Verdict, life: Life) -> Judged {
    let mut rig = Rig::new(LeasePolicy::hosted_session(Duration::from_secs(30)).unwrap());
    let old = rig.held("a", "s-1");
    let asked = rig.ask("a", "s-2", Wait::No);
    rig.right(asked);
    let lease = rig.registry.lease(&key("a")).unwrap().clone();
    let question =
        lease_core::Question::new(lease.holder, old, 0, lease_core::ProcessProof::default());
    rig.answers = vec![question.answer(Verdict::Dead(Evidence::new("exited")))];
    let mut seeing = rig.ask("a", "s-2", Wait::No);
    assert_eq!(seeing.receipts.last().unwrap().change.code, Code::TakenOver);
    seeing.answers = vec![question.answer(verdict)];
    seeing.life = life;
    rig.judge(&seeing)
}

fn proof_about_the_living() -> Judged {
    takeover(Verdict::Dead(Evidence::new("exited")), Life::Living)
}

fn a_takeover_on_doubt() -> Judged {
    takeover(Verdict::Unknown(Evidence::new("cannot_look")), Life::Gone)
}

/// The receipt of a reclaimed lease, made to be about the lease `token` at "a".
fn reclaimed(rig: &Rig, token: FencingToken) -> Seeing {
    let mut other = Rig::sessions();
    other.held("a", "s-1");
    other.pass(30_001);
    let mut seeing = other.advance();
    for receipt in &mut seeing.receipts {
        receipt.change.token = Some(token);
        receipt.change.seq.major += 10;
        receipt.change.at = rig.now;
    }
    seeing.read = rig.now;
    seeing
}

fn an_end_by_term_in_flight() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let begin = Action::Begin {
        at: At::from(token),
        op: OpId::from_bytes([1; 16]),
        from: Provenance::Created,
    };
    let begun = rig.call(Some("a"), begin, Wait::No);
    rig.right(begun);
    rig.pass(30_001);
    rig.judge(&reclaimed(&rig.clone(), token))
}

fn an_end_by_term_at_its_last_moment() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    rig.pass(30_000);
    rig.judge(&reclaimed(&rig.clone(), token))
}

fn an_expired_lease_that_is_left() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    rig.pass(30_001);
    let seeing = rig.nothing();
    rig.judge(&seeing)
}

fn an_end_that_nobody_asked_for() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let mut seeing = rig.call(None, Action::Disconnect(who("s-1")), Wait::No);
    seeing.did = Did::Advanced;
    rig.judge(&seeing)
}

fn a_disconnect_of_somebody_else() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let mut seeing = rig.call(None, Action::Disconnect(who("s-1")), Wait::No);
    if let Did::Called(call, _) = &mut seeing.did {
        call.action = Action::Disconnect(who("s-2"));
    }
    rig.judge(&seeing)
}

fn a_disconnect_that_leaves_a_lease() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let mut seeing = rig.nothing();
    let call = Call {
        resource: None,
        action: Action::Disconnect(who("s-1")),
        wait: Wait::No,
    };
    seeing.did = Did::Called(call, Said::Many(Vec::new()));
    rig.judge(&seeing)
}

fn a_lease_that_is_gone_without_a_word() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let mut seeing = rig.nothing();
    seeing.listed.clear();
    rig.judge(&seeing)
}

fn a_grant_without_a_lease() -> Judged {
    let mut rig = Rig::sessions();
    let mut seeing = rig.ask("a", "s-1", Wait::No);
    if let Did::Called(_, said) = &mut seeing.did {
        *said = Said::Granted(token(7, 7), Provenance::Created);
    }
    rig.judge(&seeing)
}

fn a_touch_with_an_old_token() -> Judged {
    let mut rig = Rig::sessions();
    let token_held = rig.held("a", "s-1");
    let mut seeing = rig.touch("a", token_held);
    for receipt in &mut seeing.receipts {
        receipt.change.token = Some(token(1, 9));
    }
    rig.judge(&seeing)
}

fn a_refusal_that_touched() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let mut seeing = rig.touch("a", token);
    if let Did::Called(_, said) = &mut seeing.did {
        *said = Said::Refused(Code::StaleToken);
    }
    rig.judge(&seeing)
}

fn a_stamp_that_no_receipt_tells_of() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let mut seeing = rig.nothing();
    seeing.listed[0].touched = Moment::from_millis(1_000_001);
    rig.judge(&seeing)
}

fn an_answer_without_a_receipt() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let mut seeing = rig.touch("a", token);
    seeing.receipts.clear();
    rig.judge(&seeing)
}

fn a_number_twice() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let mut seeing = rig.touch("a", token);
    for receipt in &mut seeing.receipts {
        receipt.change.seq.major = 1;
    }
    rig.judge(&seeing)
}

fn a_change_in_the_past() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let mut seeing = rig.touch("a", token);
    seeing.read = rig.now.after(Duration::from_millis(1));
    rig.judge(&seeing)
}

fn a_free_resource_that_somebody_waits_for() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    rig.queued("a", "s-2", Wait::Forever);
    let mut other = rig.without_waiters();
    let by = By::Token(At::from(token));
    let seeing = other.call(Some("a"), Action::Release(by), Wait::No);
    rig.judge(&seeing)
}

fn a_grant_past_a_waiter() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a/b", "s-1");
    rig.queued("a", "s-2", Wait::Forever);
    let seeing = rig.without_waiters().ask("a/c", "s-3", Wait::No);
    rig.judge(&seeing)
}

fn a_wait_past_its_deadline() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let deadline = rig.now.after(Duration::from_millis(10));
    rig.queued("a", "s-2", Wait::Until(deadline));
    rig.pass(10);
    let seeing = rig.nothing();
    rig.judge(&seeing)
}

fn places_for_what_is_over() -> Judged {
    let mut rig = Rig::sessions();
    let mut seeing = rig.ask("a/b", "s-1", Wait::No);
    seeing.footprint = Some((3, 1));
    rig.judge(&seeing)
}

fn timers_for_what_is_over() -> Judged {
    let mut rig = Rig::sessions();
    let mut seeing = rig.ask("a/b", "s-1", Wait::No);
    seeing.footprint = Some((2, 69));
    rig.judge(&seeing)
}

/// What was seen of an honest deed, with the receipts of an end with `code` in place of its own.
fn ended_by(rig: &mut Rig, action: Action<SessionHolder>, code: Code, detail: Detail) -> Judged {
    let mut seeing = rig.call(Some("a"), action, Wait::No);
    for receipt in &mut seeing.receipts {
        receipt.change.code = code;
        receipt.change.detail = detail;
    }
    rig.judge(&seeing)
}

fn begin(token: FencingToken, number: u8, from: Provenance) -> Action<SessionHolder> {
    Action::Begin {
        at: At::from(token),
        op: OpId::from_bytes([number; 16]),
        from,
    }
}

fn a_release_under_an_operation() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let begun = rig.call(Some("a"), begin(token, 1, Provenance::Created), Wait::No);
    rig.right(begun);
    let mut seeing = rig.touch("a", token);
    if let Did::Called(call, _) = &mut seeing.did {
        call.action = Action::Release(By::Token(At::from(token)));
    }
    for receipt in &mut seeing.receipts {
        receipt.change.code = Code::Released;
        receipt.change.detail = Detail::Released {
            held: Duration::ZERO,
            exited: false,
        };
    }
    rig.judge(&seeing)
}

/// The maker of a lease fails like this, and the lease is said to have gone with it.
fn gone_with_its_maker(disposition: Disposition, joined: bool) -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let begun = rig.call(Some("a"), begin(token, 1, Provenance::Created), Wait::No);
    rig.right(begun);
    if joined {
        rig.held("a", "s-1");
    }
    let op = OpId::from_bytes([1; 16]);
    let end = Action::End {
        at: At::from(token),
        op,
        result: Err(disposition),
    };
    ended_by(
        &mut rig,
        end,
        Code::ReleasedAfterFailure,
        Detail::Failed { op, disposition },
    )
}

fn a_lease_that_goes_with_an_unknown_effect() -> Judged {
    gone_with_its_maker(Disposition::Unknown, false)
}

fn a_lease_that_goes_under_a_colleague() -> Judged {
    gone_with_its_maker(Disposition::PreMutation, true)
}

fn a_grant_taken_back_while_in_use() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    rig.held("a", "s-1");
    let end = Action::End {
        at: At::from(token),
        op: OpId::ACQUISITION,
        result: Err(Disposition::PreMutation),
    };
    let detail = Detail::Released {
        held: Duration::ZERO,
        exited: false,
    };
    ended_by(&mut rig, end, Code::Abandoned, detail)
}

fn a_revocation_without_a_word_about_life() -> Judged {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    let revoke = |even_if_alive| Action::Revoke {
        expected: token.generation,
        by: "operator".into(),
        reason: "a drill".into(),
        even_if_alive,
    };
    let mut seeing = rig.call(Some("a"), revoke(true), Wait::No);
    if let Did::Called(call, _) = &mut seeing.did {
        call.action = revoke(false);
    }
    rig.judge(&seeing)
}

/// A process whose term is over is said to have got `code` in answer to a check.
fn a_suspended_holder_that_goes_on() -> Judged {
    let mut rig = Rig::new(LeasePolicy::process_bound());
    let ttl = Some(Duration::from_secs(1));
    let action = Action::Acquire {
        holder: who("s-1"),
        ttl,
    };
    let held = rig.call(Some("a"), action, Wait::No);
    let held = rig.right(held);
    let token = held.receipts[0].change.token.unwrap();
    let check = Action::Check(By::Token(At::from(token)));
    let mut seeing = rig.call(Some("a"), check, Wait::No);
    rig.pass(1_001);
    seeing.read = rig.now;
    for receipt in &mut seeing.receipts {
        receipt.change.at = rig.now;
    }
    rig.judge(&seeing)
}

fn somebody_else_who_is_entitled() -> Judged {
    let mut rig = Rig::sessions();
    rig.held("a", "s-1");
    let check = |session| {
        Action::Check(By::Holder {
            holder: who(session),
            lease: None,
            exited: false,
        })
    };
    let mut seeing = rig.call(Some("a"), check("s-1"), Wait::No);
    if let Did::Called(call, _) = &mut seeing.did {
        call.action = check("s-2");
    }
    rig.judge(&seeing)
}

fn a_deadline_that_is_named_too_late() -> Judged {
    let mut rig = Rig::sessions();
    let mut seeing = rig.ask("a", "s-1", Wait::No);
    let due = rig.now.after(Duration::from_secs(30));
    seeing.due = Due::At(due.after(Duration::from_nanos(2)));
    rig.judge(&seeing)
}

fn a_deadline_that_is_not_named() -> Judged {
    let mut rig = Rig::sessions();
    let mut seeing = rig.ask("a", "s-1", Wait::No);
    seeing.due = Due::Never;
    rig.judge(&seeing)
}

const PLANTED: [(Rule, fn() -> Judged); 38] = [
    (Rule::HoldsDoNotOverlap, a_hold_within_a_hold),
    (Rule::NoOlderAfterNewer, an_older_token),
    (Rule::NoOlderAfterNewer, an_older_authority),
    (Rule::OneHolder, two_holders),
    (Rule::NoTokenTwice, a_generation_twice),
    (Rule::NoTokenTwice, a_lease_id_twice),
    (Rule::GenerationsGrow, a_smaller_generation),
    (Rule::AuthorityIsNew, an_authority_that_comes_back),
    (Rule::LivingAreNotEnded, proof_about_the_living),
    (Rule::DoubtNeverGrants, a_takeover_on_doubt),
    (Rule::InFlightShields, an_end_by_term_in_flight),
    (Rule::NoEarlyExpiry, an_end_by_term_at_its_last_moment),
    (Rule::DueAreReclaimed, an_expired_lease_that_is_left),
    (Rule::EndsHaveCauses, an_end_that_nobody_asked_for),
    (Rule::EndsHaveCauses, a_disconnect_of_somebody_else),
    (Rule::EndsHaveCauses, a_revocation_without_a_word_about_life),
    (Rule::ReleaseWaits, a_release_under_an_operation),
    (
        Rule::FailureNeedsProofs,
        a_lease_that_goes_with_an_unknown_effect,
    ),
    (
        Rule::FailureNeedsProofs,
        a_lease_that_goes_under_a_colleague,
    ),
    (Rule::FailureNeedsProofs, a_grant_taken_back_while_in_use),
    (Rule::SuspendedDoesNotWrite, a_suspended_holder_that_goes_on),
    (Rule::OnlyTheHolderIsEntitled, somebody_else_who_is_entitled),
    (Rule::NoLateDeadline, a_deadline_that_is_named_too_late),
    (Rule::NoLateDeadline, a_deadline_that_is_not_named),
    (Rule::DisconnectIsComplete, a_disconnect_that_leaves_a_lease),
    (
        Rule::GrantsEndOrAreListed,
        a_lease_that_is_gone_without_a_word,
    ),
    (Rule::GrantsEndOrAreListed, a_grant_without_a_lease),
    (Rule::PastCannotAct, a_touch_with_an_old_token),
    (Rule::RefusalsChangeNothing, a_refusal_that_touched),
    (Rule::ReceiptsReplay, a_stamp_that_no_receipt_tells_of),
    (Rule::ReceiptsReplay, an_answer_without_a_receipt),
    (Rule::ReceiptsInOrder, a_number_twice),
    (Rule::TimeNeverRunsBack, a_change_in_the_past),
    (
        Rule::NoLostHandOver,
        a_free_resource_that_somebody_waits_for,
    ),
    (Rule::NoOvertaking, a_grant_past_a_waiter),
    (Rule::WaitsEnd, a_wait_past_its_deadline),
    (Rule::BoundedMemory, places_for_what_is_over),
    (Rule::BoundedMemory, timers_for_what_is_over),
];

/// Rules of the run itself, which the broken authorities and the stories break.
const OF_THE_RUN: [Rule; 4] = [
    Rule::HolderGetsIn,
    Rule::NothingPanics,
    Rule::EffectsAreSeen,
    Rule::TextIsAsAccepted,
];

#[test]
fn each_planted_violation_is_found_under_its_name() {
    for (rule, plant) in PLANTED {
        let found = plant().expect_err(rule.name());
        assert_eq!(found.rule, rule, "{found}");
    }
}

#[test]
fn no_rule_is_without_a_planted_violation() {
    for rule in Rule::ALL {
        let planted = PLANTED.iter().any(|(planted, _)| planted == rule);
        assert_ne!(
            planted,
            OF_THE_RUN.contains(rule),
            "{rule}: {}",
            rule.about()
        );
    }
}

#[test]
fn what_the_registry_does_by_itself_breaks_no_rule() {
    let mut rig = Rig::sessions();
    let token = rig.held("a", "s-1");
    rig.queued("a/b", "s-2", Wait::Forever);
    let touched = rig.touch("a", token);
    rig.right(touched);
    rig.pass(30_001);
    let over = rig.advance();
    let over = rig.right(over);
    assert_eq!(over.settled.len(), 1);
    let given = rig.see(
        |registry, turn| registry.cancel(WaiterId::from_order(0), turn),
        |_| Did::GaveBack(GaveBack::Request(WaiterId::from_order(0))),
    );
    rig.right(given);
}
