//! The authority: a registry behind a socket, in a process of its own.
//!
//! One thread polls. A holder is whoever the kernel says connected the socket; evidence about a
//! holder is gathered between two calls of the registry, never inside one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use lease_core::{
    Action, Answer, AuthorityId, By, Call, Change, Code, Detail, Grant, HolderLiveness as _,
    LeaseId, LeasePolicy, Locality, OnExpiry, Outcome, PolicyBuilder, ProcessProof, Proofs,
    Provenance, Question, Receipt, Refusal, Registry, ResourceKey, Seen, Step, Term, Turn, Verdict,
    Wait, WaiterId,
};
use lease_procfs::{Kernel, Pid, ProcFs, ProcLiveness, ProcessHolder, ProcessIdentity, TargetPath};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::chance::random;
use super::lines::{Lines, send};
use super::pause::{boottime, boottime_seconds};
use super::problem::{Problem, Tried as _};
use super::sys;
use super::taken::Taken;
use super::wire::{Control, RESOURCE, Refused, Reply, Report, Request, SOCKET, Told};
use super::work::tree;

/// How often the holders in front of a waiting request are looked at.
const BEAT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// How often an idle authority looks around for nothing.
const IDLE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// The most receipts that are kept for the scenario.
const RECEIPTS: usize = 20_000;

/// How often one call may ask before it is given up; each answer leads to a decision or to one more
/// holder.
const ASKS: usize = 8;

/// Under which terms the authority grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Ends on proof that the process is gone, and on nothing else.
    Process,
    /// Ends on disconnect, on proof about the host process, and once idle longer than this.
    Session(Duration),
    /// Ends on proof that the process, its group and every user of the tree are gone. The records are
    /// written by this machine alone, or by others as well.
    Work(Locality),
}

/// What the terms are called whose records this machine alone writes.
const WORK: &str = "work";

/// What the terms are called whose records other machines write as well.
const SHARED_WORK: &str = "shared-work";

impl Terms {
    /// Reads `process`, `work`, `shared-work` or `session:150`, in milliseconds.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "process" => Some(Self::Process),
            None if text == WORK => Some(Self::Work(Locality::ThisMachine)),
            None if text == SHARED_WORK => Some(Self::Work(Locality::ManyMachines)),
            Some(("session", ms)) => Some(Self::Session(Duration::from_millis(ms.parse().ok()?))),
            Some(_) | None => None,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Process => "process".to_owned(),
            Self::Session(ttl) => format!("session:{}", ttl.as_millis()),
            Self::Work(Locality::ThisMachine) => WORK.to_owned(),
            Self::Work(Locality::ManyMachines) => SHARED_WORK.to_owned(),
        }
    }

    fn policy(self) -> Result<LeasePolicy, lease_core::PolicyError> {
        match self {
            // As `process_bound`, whose group and paths are other scenarios' business.
            Self::Process => PolicyBuilder::new()
                .term(Term::PerGrant { max: None })
                .on_expiry(OnExpiry::SuspendHolder)
                .ends_on(Proofs {
                    process: Some(ProcessProof::default()),
                    ..Proofs::default()
                })
                .again(lease_core::Again::Renew)
                .build(),
            Self::Session(ttl) => LeasePolicy::hosted_session(ttl),
            Self::Work(_) => Ok(LeasePolicy::process_bound()),
        }
    }
}

/// Runs the authority until its standard input ends.
pub(crate) fn run(folder: &Path, terms: Terms, pidfs: bool) -> Result<(), Problem> {
    let listener = UnixListener::bind(folder.join(SOCKET)).tried("binding the socket")?;
    listener.set_nonblocking(true).tried("binding the socket")?;
    let kernel = if pidfs {
        Kernel::detect()
    } else {
        Kernel::detect().without_pidfs()
    };
    let id = AuthorityId::from_random(random());
    let policy = terms.policy().tried("building the policy")?;
    let mut authority = Authority {
        registry: Registry::new(id, policy).with_receipts(RECEIPTS),
        liveness: ProcLiveness::new(ProcFs::at("/proc", kernel)),
        terms,
        tree: TargetPath::resolve(tree(folder)).tried("naming the tree")?,
        taken: Taken::default(),
        told: Vec::new(),
        connections: BTreeMap::new(),
        next_connection: 0,
        waiting: BTreeMap::new(),
    };
    authority.tell(&Report::Ready {
        authority: id,
        boottime_seconds: boottime_seconds(),
    })?;
    authority.serve(&listener)
}

struct Authority {
    registry: Registry<ProcessHolder>,
    liveness: ProcLiveness,
    terms: Terms,
    /// Whose users count where the terms say so.
    tree: TargetPath,
    taken: Taken,
    told: Vec<Told>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    /// Which connection a waiting request came by.
    waiting: BTreeMap<WaiterId, u64>,
}

struct Connection {
    stream: UnixStream,
    lines: Lines,
    holder: Option<ProcessHolder>,
}

/// What became readable.
#[derive(Clone, Copy)]
enum Ready {
    Control,
    Listener,
    Connection(u64),
}

impl Authority {
    fn serve(&mut self, listener: &UnixListener) -> Result<(), Problem> {
        let control = io::stdin();
        let mut orders = Lines::default();
        loop {
            for ready in self.wait(listener, control.as_fd())? {
                match ready {
                    Ready::Listener => self.accept(listener),
                    Ready::Connection(number) => self.read(number),
                    Ready::Control => {
                        if !orders.fill(&control).tried("reading orders")? {
                            return Ok(());
                        }
                        while let Some(line) = orders.pop() {
                            let order = serde_json::from_slice(&line).tried("reading an order")?;
                            self.obey(order)?;
                        }
                    }
                }
            }
            self.advance();
            self.deliver();
            self.take_receipts();
        }
    }

    fn wait(
        &self,
        listener: &UnixListener,
        control: BorrowedFd<'_>,
    ) -> Result<Vec<Ready>, Problem> {
        let mut names = vec![Ready::Control, Ready::Listener];
        let mut fds = vec![
            PollFd::from_borrowed_fd(control, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        for (number, connection) in &self.connections {
            names.push(Ready::Connection(*number));
            fds.push(PollFd::new(&connection.stream, PollFlags::IN));
        }
        let beat = if self.registry.waiting() == 0 {
            IDLE
        } else {
            BEAT
        };
        match poll(&mut fds, Some(&beat)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Problem::broken(format_args!("poll: {errno}"))),
        }
        let ready = names.into_iter().zip(&fds);
        Ok(ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(name, _)| name)
            .collect())
    }

    fn accept(&mut self, listener: &UnixListener) {
        // A peer that is gone again already, or no descriptor left: nobody is served, nothing is lost.
        let Ok((stream, _)) = listener.accept() else {
            return;
        };
        if stream.set_nonblocking(true).is_ok() {
            let connection = Connection {
                stream,
                lines: Lines::default(),
                holder: None,
            };
            self.connections.insert(self.next_connection, connection);
            self.next_connection = self.next_connection.saturating_add(1);
        }
    }

    fn read(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let open = connection.lines.fill(&connection.stream).unwrap_or(false);
        let mut requests = Vec::new();
        while let Some(line) = connection.lines.pop() {
            requests.push(line);
        }
        for line in requests {
            let reply = match serde_json::from_slice(&line) {
                Ok(request) => self.answer(number, request),
                Err(error) => Some(Reply::Malformed {
                    reason: error.to_string(),
                }),
            };
            if let Some(reply) = reply {
                self.reply(number, &reply);
            }
        }
        if !open {
            self.hang_up(number);
        }
    }

    /// Answers over the socket; a peer that does not read is as good as gone.
    fn reply(&mut self, number: u64, reply: &Reply) -> bool {
        self.connections
            .get_mut(&number)
            .is_some_and(|connection| send(&mut connection.stream, reply).is_ok())
    }

    /// A connection ended: its requests are withdrawn, and the core is told. What that ends is a
    /// matter of the terms.
    fn hang_up(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let Some(holder) = connection.holder else {
            return;
        };
        self.waiting.retain(|_, by| *by != number);
        let call = Call {
            resource: None,
            action: Action::Disconnect(holder),
            wait: Wait::No,
        };
        drop(self.call(&call));
    }

    fn answer(&mut self, number: u64, request: Request) -> Option<Reply> {
        let token_call = |resource: String, action| (resource, action, 0);
        let (resource, action, wait_ms) = match request {
            Request::Hello { client } => return Some(self.welcome(number, &client)),
            Request::Acquire { resource, wait_ms } => {
                let known = self.connections.get(&number);
                let Some(holder) = known.and_then(|connection| connection.holder.clone()) else {
                    let reason = "hello comes first".to_owned();
                    return Some(Reply::Malformed { reason });
                };
                (resource, Action::Acquire { holder, ttl: None }, wait_ms)
            }
            Request::Begin {
                resource,
                token,
                op,
                created,
            } => {
                let from = if created {
                    Provenance::Created
                } else {
                    Provenance::Reentrant
                };
                let at = token.into();
                token_call(resource, Action::Begin { at, op, from })
            }
            Request::End {
                resource,
                token,
                op,
            } => {
                let (at, result) = (token.into(), Ok(()));
                token_call(resource, Action::End { at, op, result })
            }
            Request::Touch { resource, token } => token_call(resource, Action::Touch(token.into())),
            Request::Check { resource, token } => {
                token_call(resource, Action::Check(By::Token(token.into())))
            }
            Request::Release { resource, token } => {
                token_call(resource, Action::Release(By::Token(token.into())))
            }
        };
        let resource = match ResourceKey::new(&resource) {
            Ok(resource) => resource,
            Err(error) => {
                let reason = error.to_string();
                return Some(Reply::Malformed { reason });
            }
        };
        self.decide(Some(number), resource, action, wait_ms)
    }

    /// Decides, and answers unless the request waits.
    fn decide(
        &mut self,
        number: Option<u64>,
        resource: ResourceKey,
        action: Action<ProcessHolder>,
        wait_ms: u64,
    ) -> Option<Reply> {
        let wait = match wait_ms {
            0 => Wait::No,
            ms => Wait::Until(boottime().after(Duration::from_millis(ms))),
        };
        let call = Call {
            resource: Some(resource),
            action,
            wait,
        };
        let reply = match (self.call(&call), number) {
            (Step::Done(outcome), _) => Some(told_outcome(&outcome)),
            (Step::Queued(waiter), Some(number)) => {
                self.waiting.insert(waiter, number);
                None
            }
            (Step::Queued(_), None) | (Step::Ask(_), _) => Some(Reply::Malformed {
                reason: "this cannot be answered".to_owned(),
            }),
        };
        self.take_receipts();
        reply
    }

    /// Calls the registry, and gathers evidence between the calls when it asks for some.
    fn call(&mut self, call: &Call<ProcessHolder>) -> Step<ProcessHolder> {
        let mut answers: Vec<Answer> = Vec::new();
        for _ask in 0..ASKS {
            let step = self.turn(&answers, |registry, turn| registry.call(call, turn));
            let Step::Ask(questions) = step else {
                return step;
            };
            answers.extend(self.observe(&questions));
        }
        Step::Ask(Vec::new())
    }

    /// Uses the registry once, at this moment.
    fn turn<T>(
        &mut self,
        answers: &[Answer],
        with: impl FnOnce(&mut Registry<ProcessHolder>, &mut Turn<'_>) -> T,
    ) -> T {
        let mut lease_id = || LeaseId::from_random(random());
        let seen = Seen {
            now: boottime(),
            wall_ms: None,
            answers,
        };
        with(&mut self.registry, &mut Turn::new(seen, &mut lease_id))
    }

    fn observe(&self, questions: &[Question<ProcessHolder>]) -> Vec<Answer> {
        questions
            .iter()
            .map(|question| question.answer(self.liveness.observe(&self.placed(question))))
            .collect()
    }

    /// The question with what the core does not know: whose records these are, and where the work is.
    fn placed(&self, question: &Question<ProcessHolder>) -> Question<ProcessHolder> {
        let mut question = question.clone();
        if let Terms::Work(locality) = self.terms {
            question.locality = locality;
            question.target = Some(self.tree.clone());
        }
        question
    }

    /// Looks at the holders that somebody waits for, and lets time pass.
    fn advance(&mut self) {
        if self.registry.waiting() == 0 {
            return;
        }
        let answers = self.observe(&self.registry.questions());
        self.turn(&answers, |registry, turn| drop(registry.advance(turn)));
    }

    /// Answers the requests that waited. A grant that cannot be delivered is given back.
    fn deliver(&mut self) {
        while let Some(settled) = self.registry.take_settled() {
            let number = self.waiting.remove(&settled.waiter);
            let reply = match &settled.outcome {
                Ok((grant, change)) => granted(grant, change),
                Err(refusal) => refused(refusal),
            };
            let delivered = number.is_some_and(|number| self.reply(number, &reply));
            if let (false, Ok((grant, _))) = (delivered, settled.outcome) {
                let resource = settled.resource;
                self.turn(&[], |registry, turn| {
                    registry.abandon(&resource, grant, turn);
                });
            }
        }
    }

    fn take_receipts(&mut self) {
        for receipt in self.registry.take_receipts().receipts {
            if self.told.len() < RECEIPTS {
                self.told.push(told_receipt(&receipt));
            }
        }
    }

    /// Says who connected, as the kernel sees it.
    fn welcome(&mut self, number: u64, client: &str) -> Reply {
        let Some(connection) = self.connections.get(&number) else {
            return stranger(Code::InvalidHolder, &"the connection is gone");
        };
        let identity = match self.identify(&connection.stream) {
            Ok(identity) => identity,
            Err(reply) => return reply,
        };
        let mut holder = ProcessHolder::new(client, identity);
        if let Terms::Session(_) = self.terms {
            holder = holder.and_then(|holder| holder.with_session(&format!("s-{number}")));
        }
        let holder = match holder {
            Ok(holder) => self.with_group(holder),
            Err(error) => Err(stranger(error.code(), &error)),
        };
        match holder {
            Err(reply) => reply,
            Ok(holder) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.holder = Some(holder);
                }
                Reply::Welcome {
                    authority: self.registry.authority(),
                    identity: identity.to_string(),
                }
            }
        }
    }

    /// Adds the process group that it is in, where that matters.
    fn with_group(&self, holder: ProcessHolder) -> Result<ProcessHolder, Reply> {
        if !matches!(self.terms, Terms::Work(_)) {
            return Ok(holder);
        }
        let grouped = holder.with_present_group(self.liveness.proc());
        grouped.map_err(|error| stranger(error.code(), &error))
    }

    /// Describes the peer of a socket, and makes sure that the number still meant that very process.
    fn identify(&self, stream: &UnixStream) -> Result<ProcessIdentity, Reply> {
        let code = Code::InvalidHolder;
        let peer = sys::peer(stream).map_err(|error| stranger(code, &error))?;
        if peer.pid == 0 {
            return Err(stranger(
                code,
                &"the peer has no number in this pid namespace",
            ));
        }
        let identity = self.describe(peer.pid)?;
        if let (Some(pidfd), Some(inode)) = (&peer.pidfd, identity.pidfd_inode) {
            let connected = rustix::fs::fstat(pidfd).map_err(|error| stranger(code, &error))?;
            if connected.st_ino != inode {
                return Err(stranger(
                    code,
                    &"the peer's number names another process now",
                ));
            }
        }
        Ok(identity)
    }

    fn describe(&self, pid: i32) -> Result<ProcessIdentity, Reply> {
        let pid = Pid::new(pid.into()).map_err(|error| stranger(Code::InvalidHolder, &error))?;
        ProcessIdentity::of(self.liveness.proc(), pid)
            .map_err(|error| stranger(error.code(), &error))
    }

    fn obey(&mut self, order: Control) -> Result<(), Problem> {
        let report = match order {
            Control::Receipts { after } => {
                self.take_receipts();
                Report::Receipts(self.told.iter().skip(after).cloned().collect())
            }
            Control::Record { client, identity } => {
                let identity: ProcessIdentity = identity.parse().tried("reading a record")?;
                Report::Reply(self.acquire_for(&client, identity)?)
            }
            Control::Descriptors { free } => {
                self.taken.leave(free)?;
                Report::Descriptors
            }
            Control::Number { client, pid } => match self.describe(pid) {
                Err(reply) => Report::Reply(reply),
                Ok(identity) => Report::Reply(self.acquire_for(&client, identity)?),
            },
        };
        self.tell(&report)
    }

    fn acquire_for(&mut self, client: &str, identity: ProcessIdentity) -> Result<Reply, Problem> {
        let holder = ProcessHolder::new(client, identity).tried("naming a holder")?;
        let resource = ResourceKey::new(RESOURCE).tried("naming the resource")?;
        let action = Action::Acquire { holder, ttl: None };
        let reply = self.decide(None, resource, action, 0);
        reply.ok_or_else(|| Problem::broken("a request that may not wait waits"))
    }

    fn tell(&self, report: &Report) -> Result<(), Problem> {
        send(&mut io::stdout().lock(), report).tried("reporting")
    }
}

fn stranger(code: Code, reason: &dyn std::fmt::Display) -> Reply {
    Reply::Stranger {
        code,
        reason: reason.to_string(),
    }
}

fn told_outcome(outcome: &Outcome<ProcessHolder>) -> Reply {
    match outcome {
        Outcome::Granted(grant, change) => granted(grant, change),
        Outcome::Done(change) => Reply::Done { code: change.code },
        Outcome::Refused(refusal) => refused(refusal),
        Outcome::Many(_) => Reply::Malformed {
            reason: "many leases ended".to_owned(),
        },
    }
}

fn granted(grant: &Grant, change: &Change) -> Reply {
    let previous = match change.detail {
        Detail::Granted { previous, .. } => previous.map(|token| token.generation),
        _ => None,
    };
    Reply::Granted {
        token: grant.at.token,
        code: change.code,
        created: grant.provenance == Provenance::Created,
        previous,
    }
}

fn refused(refusal: &Refusal<ProcessHolder>) -> Reply {
    let held = match refusal {
        Refusal::Held(held) | Refusal::Uninspectable(held) => Some(held),
        _ => None,
    };
    let verdict = held.and_then(|held| held.verdict.as_ref());
    Reply::Refused(Refused {
        code: refusal.code(),
        verdict: verdict.map(|verdict| format!("{}: {}", verdict.name(), verdict.evidence().proof)),
        by: refusal.by().map(|holder| holder.client().to_owned()),
        occupants: verdict.map_or_else(Vec::new, occupants),
        in_flight: held.map_or(0, |held| held.in_flight),
        expired: held.is_some_and(|held| held.expired),
        text: refusal.to_string(),
    })
}

/// Returns who was seen at the holder's work.
fn occupants(verdict: &Verdict) -> Vec<String> {
    let each = verdict.evidence().occupants.iter();
    each.map(ToString::to_string).collect()
}

fn told_receipt(receipt: &Receipt<ProcessHolder>) -> Told {
    let client = |holder: &ProcessHolder| holder.client().to_owned();
    let previous_generation = match receipt.change.detail {
        Detail::Granted { previous, .. } => previous.map(|token| token.generation.get()),
        _ => None,
    };
    Told {
        code: receipt.change.code,
        generation: receipt.change.token.map(|token| token.generation.get()),
        client: receipt.holder.as_ref().map(client),
        previous: receipt.previous.as_ref().map(client),
        previous_generation,
        proof: receipt
            .evidence
            .as_ref()
            .map(|evidence| evidence.proof.clone().into_owned()),
    }
}
