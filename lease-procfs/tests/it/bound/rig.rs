//! A keeper of leases for tests: a ledger behind a lock, an allocation, and scripted processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lease_core::{
    Answer, AuthorityId, Code, Evidence, HolderLiveness, LeaseId, LeasePolicy, Moment, Question,
    Seen, Turn, Verdict,
};
use lease_procfs::bound::{
    AllocationId, AllocationRecord, AllocationView, Answered, Asked, Checkout, Claim, Confirmed,
    GrantReceipt, LeaseRecord, Ledger, Lifecycle, Marker, OwnerId, Place, Refused, Release,
    ReleaseReceipt, RepositoryId, Request, Role, RoleAnswer, StoreLock, Target, observing,
};
use lease_procfs::{BootId, Pid, ProcessHolder, ProcessIdentity, StartTicks, TargetPath};

/// The start of the wall clock, in milliseconds since the Unix epoch.
pub(crate) const W0: i64 = 1_700_000_000_000;

/// The start of the decision clock, in milliseconds.
const T0: u64 = 1_000_000;

pub(crate) const BOOT1: &str = "11111111-1111-4111-8111-111111111111";

pub(crate) fn process(boot: &str, pid: i64, ticks: u64) -> ProcessIdentity {
    let (boot, pid) = (boot.parse().unwrap(), Pid::new(pid).unwrap());
    ProcessIdentity::from_triple(boot, pid, StartTicks::new(ticks))
}

pub(crate) fn holder(labels: [&str; 3], process: ProcessIdentity) -> ProcessHolder {
    let [client, session, run] = labels;
    let holder = ProcessHolder::new(client, process).unwrap();
    holder.with_session(session).unwrap().with_run(run).unwrap()
}

pub(crate) fn first() -> ProcessHolder {
    holder(["cli-a", "sess-1", "run-1"], process(BOOT1, 4242, 987_654))
}

pub(crate) fn second() -> ProcessHolder {
    holder(["cli-b", "sess-2", "run-2"], process(BOOT1, 5151, 990_000))
}

/// The nth lease id that is drawn.
pub(crate) fn lease_id(number: u64) -> LeaseId {
    format!("aaaaaaaa-0000-4000-8000-{number:012}")
        .parse()
        .unwrap()
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What the scripted processes do, by pid. Who is not named lives.
#[derive(Debug, Default)]
pub(crate) struct Script {
    verdicts: Mutex<BTreeMap<i32, Verdict>>,
    questions: Mutex<Vec<Question<ProcessHolder>>>,
}

impl Script {
    pub(crate) fn says(&self, pid: i32, verdict: Verdict) {
        self.verdicts.lock().unwrap().insert(pid, verdict);
    }

    /// Takes what was asked so far.
    pub(crate) fn take_questions(&self) -> Vec<Question<ProcessHolder>> {
        std::mem::take(&mut *self.questions.lock().unwrap())
    }
}

impl HolderLiveness<ProcessHolder> for Script {
    fn observe(&self, question: &Question<ProcessHolder>) -> Verdict {
        self.questions.lock().unwrap().push(question.clone());
        let pid = question.holder.process().pid.get();
        let verdicts = self.verdicts.lock().unwrap();
        let said = verdicts.get(&pid).cloned();
        said.unwrap_or_else(alive)
    }
}

pub(crate) fn alive() -> Verdict {
    Verdict::Alive(Evidence::new("running"))
}

pub(crate) fn dead() -> Verdict {
    Verdict::Dead(Evidence::new("exited"))
}

pub(crate) fn unknown() -> Verdict {
    Verdict::Unknown(Evidence::new("lookup_denied"))
}

pub(crate) fn occupied(proof: &'static str, by: &str) -> Verdict {
    Verdict::Occupied(Evidence::new(proof).with_occupants([by]))
}

/// An allocation and the place it lies in, as its keeper sees them.
#[derive(Clone, Debug)]
pub(crate) struct Yard {
    pub(crate) target: Target,
    pub(crate) lock: StoreLock,
    pub(crate) marker: Marker,
    pub(crate) repository: Option<RepositoryId>,
    pub(crate) managed: bool,
    pub(crate) record: AllocationRecord,
    pub(crate) checkout: Checkout,
}

impl Yard {
    pub(crate) fn new() -> Self {
        Self {
            target: Target::Ours,
            lock: StoreLock::Sound,
            marker: Marker::Sound,
            repository: Some(RepositoryId::new("repo-1").unwrap()),
            managed: true,
            record: AllocationRecord {
                allocation: AllocationId::new("alloc-7").unwrap(),
                version: 12,
                path: TargetPath::new("/w/alloc-7").unwrap(),
                owner: OwnerId::new("owner-a").unwrap(),
                role: Role::new("feature").unwrap(),
                lifecycle: Lifecycle::new("ACTIVE").unwrap(),
                bindings: Vec::new(),
            },
            checkout: Checkout::default(),
        }
    }

    pub(crate) fn view(&self) -> AllocationView<'_> {
        AllocationView {
            target: self.target,
            lock: self.lock,
            marker: self.marker,
            repository: self.repository.as_ref(),
            record: self.managed.then_some(&self.record),
            checkout: self.checkout,
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place::of(self.repository.as_ref().unwrap(), &self.record)
    }

    pub(crate) fn bind(&mut self, binding: &str) {
        self.record.bindings.push(binding.into());
    }
}

pub(crate) fn roles(role: &Role) -> RoleAnswer {
    match role.as_str() {
        "feature" => RoleAnswer::Required,
        "integrator" => RoleAnswer::NotApplicable,
        _ => RoleAnswer::Invalid,
    }
}

/// A ledger behind its lock, one allocation, and the time that only the test moves.
#[derive(Debug)]
pub(crate) struct Keeper<L = Script> {
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) liveness: L,
    pub(crate) yard: Yard,
    drawn: Mutex<u64>,
    elapsed_ms: u64,
}

pub(crate) fn keeper() -> Keeper {
    Keeper::with(Script::default())
}

impl<L: HolderLiveness<ProcessHolder>> Keeper<L> {
    pub(crate) fn with(liveness: L) -> Self {
        Self::in_boot(BOOT1.parse().unwrap(), liveness)
    }

    pub(crate) fn in_boot(boot: BootId, liveness: L) -> Self {
        let authority = AuthorityId::from_bytes([1; 16]);
        let ledger = Ledger::new(authority, LeasePolicy::process_bound(), boot);
        Self {
            ledger: Mutex::new(ledger.with_receipts(1_024)),
            liveness,
            yard: Yard::new(),
            drawn: Mutex::new(0),
            elapsed_ms: 0,
        }
    }

    /// Sets the time, in milliseconds after the start.
    pub(crate) const fn at(&mut self, elapsed_ms: u64) -> &mut Self {
        self.elapsed_ms = elapsed_ms;
        self
    }

    pub(crate) fn seen<'a>(&self, answers: &'a [Answer]) -> Seen<'a> {
        let mut seen = Seen::at(Moment::from_millis(T0 + self.elapsed_ms));
        seen.wall_ms = Some(W0 + i64::try_from(self.elapsed_ms).unwrap());
        seen.answers = answers;
        seen
    }

    /// Makes one call under the lock, and observes whom it asks about outside of it.
    pub(crate) fn call<T>(
        &self,
        mut call: impl FnMut(&mut Ledger, &mut Turn<'_>) -> Result<Asked<T>, Refused>,
    ) -> Result<T, Refused> {
        let asked = observing(&self.liveness, |answers| {
            let mut draw = || {
                let mut drawn = self.drawn.lock().unwrap();
                *drawn += 1;
                lease_id(*drawn)
            };
            let mut turn = Turn::new(self.seen(answers), &mut draw);
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            call(&mut ledger, &mut turn)
        });
        match asked? {
            Asked::Done(answer) => Ok(answer),
            Asked::Ask(questions) => panic!("asks for ever: {questions:?}"),
        }
    }

    pub(crate) fn request(&self, request: &Request<'_>) -> Result<Answered, Refused> {
        let view = self.yard.view();
        self.call(|ledger, turn| ledger.acquire(request, &view, &roles, turn))
    }

    /// Acquires without a term.
    pub(crate) fn acquire(&self, holder: &ProcessHolder) -> Result<GrantReceipt, Refused> {
        self.request(&Request::new(holder)).map(receipt)
    }

    pub(crate) fn acquire_for(
        &self,
        holder: &ProcessHolder,
        ttl: Duration,
    ) -> Result<GrantReceipt, Refused> {
        let request = Request::new(holder).with_ttl(ttl);
        self.request(&request).map(receipt)
    }

    pub(crate) fn claim(&self, claim: &Claim<'_>) -> Result<Confirmed, Refused> {
        self.call(|ledger, turn| ledger.entitled(claim, turn.seen))
    }

    pub(crate) fn check(&self, holder: &ProcessHolder) -> Result<Confirmed, Refused> {
        self.claim(&Claim {
            holder: Some(holder),
            place: &self.yard.place(),
            bindings: &self.yard.record.bindings,
        })
    }

    pub(crate) fn release(&self, release: &Release) -> Result<ReleaseReceipt, Refused> {
        let allocation = &self.yard.record.allocation;
        self.call(|ledger, turn| ledger.release(allocation, release, turn))
    }

    pub(crate) fn record(&self) -> Option<LeaseRecord> {
        let ledger = self.ledger.lock().unwrap();
        ledger.record(&self.yard.record.allocation)
    }
}

#[track_caller]
pub(crate) fn receipt(answered: Answered) -> GrantReceipt {
    match answered {
        Answered::Granted { receipt, .. } => *receipt,
        Answered::NotApplicable(answer) => panic!("not granted: {answer}"),
    }
}

/// What a refusal tells: its code and its sub-reason.
#[track_caller]
pub(crate) fn told<T: std::fmt::Debug>(answer: Result<T, Refused>) -> (Code, Option<&'static str>) {
    let refused = answer.unwrap_err();
    (refused.code(), refused.reason())
}
