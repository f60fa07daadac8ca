//! A registry, a clock that only the test moves, and named writers.

use core::fmt::Write as _;
use core::time::Duration;

use lease_core::{
    Action, AdoptProof, Answer, At, AuthorityId, By, Call, Change, Code, Disposition, Evidence,
    FencingToken, Generation, Grant, Holder, LeaseId, LeasePolicy, LeaseView, Moment, Note, OpId,
    Outcome, ProcessProof, Provenance, Question, Receipt, Refusal, Registry, ResourceKey, Seen,
    SessionHolder, Settled, Step, Turn, Verdict, Wait, WaiterId,
};

/// The start of most histories, in milliseconds.
pub(crate) const T0: u64 = 1_000_000;

/// The term of most histories, in milliseconds.
pub(crate) const TTL_MS: u64 = 30_000;

pub(crate) const VIEWPORT: &str = "/app/viewport";

/// The writer of the incident: a persistent tool connection.
pub(crate) fn mcp() -> SessionHolder {
    who("ag-1", "s-100")
}

/// The same agent through another connection: another writer.
pub(crate) fn inp() -> SessionHolder {
    who("ag-1", "s-200")
}

/// Another agent.
pub(crate) fn oth() -> SessionHolder {
    who("ag-2", "s-300")
}

pub(crate) fn who(agent: &str, session: &str) -> SessionHolder {
    SessionHolder::new(agent, session).unwrap()
}

pub(crate) fn key(text: &str) -> ResourceKey {
    ResourceKey::new(text).unwrap()
}

pub(crate) fn ms(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

pub(crate) fn op(number: u8) -> OpId {
    OpId::from_bytes([number; 16])
}

pub(crate) fn session_ttl() -> LeasePolicy {
    LeasePolicy::session_ttl(Duration::from_millis(TTL_MS)).unwrap()
}

/// One registry under test.
#[derive(Clone)]
pub(crate) struct Rig<H: Holder = SessionHolder> {
    pub(crate) registry: Registry<H>,
    pub(crate) now: Moment,
    /// Handed to every call.
    pub(crate) answers: Vec<Answer>,
    /// Handed to the next call.
    pub(crate) note: Option<Note>,
    random: u64,
    /// Every receipt so far, and what `note` added, one line each.
    pub(crate) transcript: String,
    /// Every receipt so far.
    pub(crate) receipts: Vec<Receipt<H>>,
}

impl Rig {
    /// The in-process guard: sessions that end on disconnect or idle expiry.
    pub(crate) fn sessions() -> Self {
        Self::new(session_ttl())
    }
}

impl<H: Holder> Rig<H> {
    pub(crate) fn new(policy: LeasePolicy) -> Self {
        Self::of(AuthorityId::from_bytes([0xA1; 16]), policy)
    }

    pub(crate) fn of(authority: AuthorityId, policy: LeasePolicy) -> Self {
        Self {
            registry: Registry::new(authority, policy).with_receipts(1 << 20),
            now: ms(T0),
            answers: Vec::new(),
            note: None,
            random: 0,
            transcript: String::new(),
            receipts: Vec::new(),
        }
    }

    /// Moves the clock to `ms`; backwards too.
    pub(crate) fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Moment::from_millis(ms);
        self
    }

    /// Runs `work` with what a call brings along, and takes the receipts afterwards.
    pub(crate) fn turn<T>(&mut self, work: impl FnOnce(&mut Registry<H>, &mut Turn<'_>) -> T) -> T {
        let random = &mut self.random;
        let mut lease_id = || {
            *random += 1;
            LeaseId::from_random((u128::from(*random) * 0x9E37_79B9_7F4A_7C15).to_be_bytes())
        };
        let seen = Seen {
            now: self.now,
            wall_ms: None,
            answers: &self.answers,
        };
        let mut turn = Turn::new(seen, &mut lease_id);
        turn.note = self.note.take();
        let done = work(&mut self.registry, &mut turn);
        let taken = self.registry.take_receipts();
        assert_eq!(taken.missed, 0);
        for receipt in &taken.receipts {
            writeln!(self.transcript, "{receipt}").unwrap();
        }
        self.receipts.extend(taken.receipts);
        done
    }

    pub(crate) fn step(
        &mut self,
        resource: Option<&str>,
        action: Action<H>,
        wait: Wait,
    ) -> Step<H> {
        let call = Call {
            resource: resource.map(key),
            action,
            wait,
        };
        let step = self.turn(|registry, turn| registry.call(&call, turn));
        if let Step::Done(Outcome::Refused(refusal)) = &step {
            writeln!(self.transcript, "refused {}: {refusal}", refusal.code()).unwrap();
        }
        step
    }

    #[track_caller]
    pub(crate) fn call(&mut self, resource: &str, action: Action<H>) -> Outcome<H> {
        match self.step(Some(resource), action, Wait::No) {
            Step::Done(outcome) => outcome,
            step => panic!("not answered: {step:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn acquire(&mut self, resource: &str, holder: &H) -> Outcome<H> {
        self.acquire_for(resource, holder, None)
    }

    #[track_caller]
    pub(crate) fn acquire_for(
        &mut self,
        resource: &str,
        holder: &H,
        ttl: Option<Duration>,
    ) -> Outcome<H> {
        self.call(
            resource,
            Action::Acquire {
                holder: holder.clone(),
                ttl,
            },
        )
    }

    /// Acquires and says how.
    #[track_caller]
    pub(crate) fn granted(&mut self, resource: &str, holder: &H) -> Grant {
        self.acquire(resource, holder).grant()
    }

    /// Acquires and keeps no grant: what matters is that it is held.
    #[track_caller]
    pub(crate) fn holds(&mut self, resource: &str, holder: &H) -> &mut Self {
        drop(self.granted(resource, holder));
        self
    }

    /// Is refused and says why.
    #[track_caller]
    pub(crate) fn refused(&mut self, resource: &str, holder: &H) -> Refusal<H> {
        self.acquire(resource, holder).refusal()
    }

    /// Asks for a lease and waits.
    #[track_caller]
    pub(crate) fn queue(&mut self, resource: &str, holder: &H, wait: Wait) -> WaiterId {
        let action = Action::Acquire {
            holder: holder.clone(),
            ttl: None,
        };
        match self.step(Some(resource), action, wait) {
            Step::Queued(waiter) => waiter,
            step => panic!("does not wait: {step:?}"),
        }
    }

    pub(crate) fn touch(&mut self, resource: &str, at: At) -> Outcome<H> {
        self.call(resource, Action::Touch(at))
    }

    pub(crate) fn begin(
        &mut self,
        resource: &str,
        at: At,
        op: OpId,
        from: Provenance,
    ) -> Outcome<H> {
        self.call(resource, Action::Begin { at, op, from })
    }

    pub(crate) fn end(
        &mut self,
        resource: &str,
        at: At,
        op: OpId,
        result: Result<(), Disposition>,
    ) -> Outcome<H> {
        self.call(resource, Action::End { at, op, result })
    }

    pub(crate) fn release(&mut self, resource: &str, at: At) -> Outcome<H> {
        self.call(resource, Action::Release(By::Token(at)))
    }

    pub(crate) fn adopt(&mut self, resource: &str, at: At, from: &H, to: &H) -> Outcome<H> {
        let proof = AdoptProof::Present(from.clone());
        self.call(
            resource,
            Action::Adopt {
                token: at.token,
                proof,
                to: to.clone(),
            },
        )
    }

    /// Disconnects and returns the changes.
    #[track_caller]
    pub(crate) fn disconnect(&mut self, holder: &H) -> Vec<Change> {
        match self.step(None, Action::Disconnect(holder.clone()), Wait::No) {
            Step::Done(Outcome::Many(changes)) => changes,
            step => panic!("disconnect answered {step:?}"),
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self) -> Vec<Change> {
        self.turn(|registry, turn| registry.advance(turn))
    }

    pub(crate) fn list(&mut self) -> Vec<LeaseView<H>> {
        self.turn(|registry, turn| registry.list(turn))
    }

    pub(crate) fn cancel(&mut self, waiter: WaiterId) -> bool {
        self.turn(|registry, turn| registry.cancel(waiter, turn))
    }

    pub(crate) fn settled(&mut self) -> Option<Settled<H>> {
        self.registry.take_settled()
    }

    /// What was in the way at the end of a wait that was in vain, and is told now.
    #[track_caller]
    pub(crate) fn last_refusal(&mut self) -> Option<Refusal<H>> {
        match self.settled().unwrap().outcome {
            Err(Refusal::TimedOut { last, .. }) => last.map(|last| *last),
            outcome => panic!("{outcome:?}"),
        }
    }

    /// The codes of all receipts so far.
    pub(crate) fn codes(&self) -> Vec<Code> {
        self.receipts
            .iter()
            .map(|receipt| receipt.change.code)
            .collect()
    }

    /// The receipts with `code`.
    pub(crate) fn with_code(&self, code: Code) -> Vec<&Receipt<H>> {
        self.receipts
            .iter()
            .filter(|receipt| receipt.change.code == code)
            .collect()
    }

    /// The one lease of `resource`, as it is stored.
    #[track_caller]
    pub(crate) fn view(&self, resource: &str) -> LeaseView<H> {
        let key = key(resource);
        let views = self.registry.peek(self.now);
        views.into_iter().find(|view| view.resource == key).unwrap()
    }
}

/// Reads an answer as the kind a test expects.
pub(crate) trait Answered<H> {
    fn grant(self) -> Grant;
    fn change(self) -> Change;
    fn refusal(self) -> Refusal<H>;
}

impl<H: Holder> Answered<H> for Outcome<H> {
    #[track_caller]
    fn grant(self) -> Grant {
        match self {
            Self::Granted(grant, _) => grant,
            outcome => panic!("not granted: {outcome:?}"),
        }
    }

    #[track_caller]
    fn change(self) -> Change {
        match self {
            Self::Granted(_, change) | Self::Done(change) => change,
            outcome => panic!("nothing done: {outcome:?}"),
        }
    }

    #[track_caller]
    fn refusal(self) -> Refusal<H> {
        match self {
            Self::Refused(refusal) => refusal,
            outcome => panic!("not refused: {outcome:?}"),
        }
    }
}

pub(crate) fn generation(number: u64) -> Generation {
    Generation::new(number).unwrap()
}

/// A holder with the parts of a process identity. The core compares all of them and reads none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) boot: &'static str,
    pub(crate) pid: i32,
    pub(crate) ticks: u64,
    pub(crate) client: &'static str,
    pub(crate) session: Option<&'static str>,
    pub(crate) run: Option<&'static str>,
}

impl Holder for Process {
    type Target = String;
    const KIND: &'static str = "process";
}

/// The process that holds first in most histories.
pub(crate) const fn first_process() -> Process {
    Process {
        boot: "4f0c7e6e-5a0e-4b7e-9d4e-0a0b0c0d0e0f",
        pid: 4242,
        ticks: 987_654,
        client: "codex",
        session: Some("sess-1"),
        run: Some("run-1"),
    }
}

/// The process that wants the lease too.
pub(crate) const fn second_process() -> Process {
    Process {
        pid: 5151,
        ticks: 990_001,
        session: Some("sess-2"),
        run: Some("run-2"),
        ..first_process()
    }
}

pub(crate) fn alive() -> Verdict {
    Verdict::Alive(Evidence::new("same_start_ticks"))
}

pub(crate) fn dead() -> Verdict {
    Verdict::Dead(Evidence::new("pid_recycled").with_detail("ticks 987700"))
}

pub(crate) fn occupied() -> Verdict {
    Verdict::Occupied(Evidence::new("group_member").with_occupants(["4250 cargo"]))
}

pub(crate) fn unknown() -> Verdict {
    Verdict::Unknown(Evidence::new("stat_unreadable").with_detail("EACCES"))
}

/// What was seen of the first holder of the lease `token`.
pub(crate) fn observed(token: FencingToken, verdict: Verdict) -> Answer {
    Question::new(first_process(), token, 0, ProcessProof::default()).answer(verdict)
}
