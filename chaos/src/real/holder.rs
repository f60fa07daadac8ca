//! A holder: does what the scenario says, one command at a time.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lease_core::{FencingToken, OpId};
use lease_procfs::{ProcFs, ProcessIdentity};
use rustix::process::{Pid, setpgid};

use super::chance::random;
use super::guarded::Guarded;
use super::lines::{Lines, send};
use super::pause::boottime_seconds;
use super::problem::{Problem, Tried as _};
use super::sys;
use super::wire::{Answer, Command, RESOURCE, Reply, Request, SOCKET};
use super::work;
use crate::clock::Deadline;

/// How long the authority may take to answer, beyond what a request may wait.
const ANSWER: Duration = Duration::from_secs(10);

/// How long one request of the storm waits.
const STORM_WAIT_MS: u64 = 200;

/// Obeys until its standard input ends.
pub(crate) fn run(folder: &Path, name: &str) -> Result<(), Problem> {
    let holder = Holder {
        folder: folder.to_owned(),
        name: name.to_owned(),
        orders: Lines::default(),
        connection: None,
        lease: None,
        op: None,
        thread: None,
    };
    holder.obey_all()
}

struct Holder {
    folder: PathBuf,
    name: String,
    orders: Lines,
    connection: Option<(UnixStream, Lines)>,
    lease: Option<Lease>,
    op: Option<OpId>,
    thread: Option<Waiting>,
}

/// What the last grant gave. It is kept when the lease is lost: that is what the scenarios are about.
#[derive(Clone, Copy)]
struct Lease {
    token: FencingToken,
    created: bool,
}

/// A thread that waits until it is told to end.
struct Waiting {
    end: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Holder {
    fn obey_all(mut self) -> Result<(), Problem> {
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        loop {
            // Nobody waits for this wait: the namespace ends with the scenario.
            let Some(command) = self.orders.next(io::stdin(), Deadline::within(year))? else {
                return Ok(());
            };
            if let Command::LeaveLeader = command {
                return self.leave_leader();
            }
            let answer = self.obey(command).unwrap_or_else(|problem| Answer::Failed {
                what: problem.to_string(),
            });
            tell(&answer)?;
        }
    }

    fn obey(&mut self, command: Command) -> Result<Answer, Problem> {
        match command {
            Command::Connect => self.connect(),
            Command::Acquire { wait_ms } => Ok(Answer::Reply(self.acquire(wait_ms)?)),
            Command::Begin => self.begin().map(Answer::Reply),
            Command::End => self.end().map(Answer::Reply),
            Command::Touch => {
                self.ask_with_token(|resource, token| Request::Touch { resource, token })
            }
            Command::Check => {
                self.ask_with_token(|resource, token| Request::Check { resource, token })
            }
            Command::Release => {
                self.ask_with_token(|resource, token| Request::Release { resource, token })
            }
            Command::Write { text } => self.write(&text),
            Command::StartThread => self.start_thread(),
            Command::EndThread => self.end_thread(),
            Command::LeaveLeader => Err(Problem::broken("the leader has left already")),
            Command::Describe => self.describe(),
            Command::Enter { group } => enter(group),
            Command::Employ { task, group } => {
                let number = work::employ(&self.folder, task, group)?;
                Ok(Answer::Employed { number })
            }
            Command::Storm { ms, shielded } => self.storm(Duration::from_millis(ms), shielded),
        }
    }

    fn connect(&mut self) -> Result<Answer, Problem> {
        let stream = UnixStream::connect(self.folder.join(SOCKET)).tried("connecting")?;
        self.connection = Some((stream, Lines::default()));
        let client = self.name.clone();
        self.ask(&Request::Hello { client }, Duration::ZERO)
            .map(Answer::Reply)
    }

    fn ask(&mut self, request: &Request, wait: Duration) -> Result<Reply, Problem> {
        let Some((stream, lines)) = &mut self.connection else {
            return Err(Problem::broken("there is no connection"));
        };
        send(stream, request).tried("asking the authority")?;
        let deadline = Deadline::within(wait.saturating_add(ANSWER));
        let reply = lines.next(&*stream, deadline)?;
        reply.ok_or_else(|| Problem::broken("the authority is gone"))
    }

    fn acquire(&mut self, wait_ms: u64) -> Result<Reply, Problem> {
        let resource = RESOURCE.to_owned();
        let wait = Duration::from_millis(wait_ms);
        let reply = self.ask(&Request::Acquire { resource, wait_ms }, wait)?;
        if let Reply::Granted { token, created, .. } = reply {
            self.lease = Some(Lease { token, created });
        }
        Ok(reply)
    }

    fn begin(&mut self) -> Result<Reply, Problem> {
        let lease = self.lease()?;
        let op = OpId::from_random(random());
        self.op = Some(op);
        let request = Request::Begin {
            resource: RESOURCE.to_owned(),
            token: lease.token,
            op,
            created: lease.created,
        };
        self.ask(&request, Duration::ZERO)
    }

    fn end(&mut self) -> Result<Reply, Problem> {
        let lease = self.lease()?;
        let op = self.op.take();
        let request = Request::End {
            resource: RESOURCE.to_owned(),
            token: lease.token,
            op: op.ok_or_else(|| Problem::broken("nothing is in flight"))?,
        };
        self.ask(&request, Duration::ZERO)
    }

    fn ask_with_token(
        &mut self,
        request: fn(String, FencingToken) -> Request,
    ) -> Result<Answer, Problem> {
        let request = request(RESOURCE.to_owned(), self.lease()?.token);
        self.ask(&request, Duration::ZERO).map(Answer::Reply)
    }

    fn lease(&self) -> Result<Lease, Problem> {
        self.lease
            .ok_or_else(|| Problem::broken("nothing was ever granted"))
    }

    /// Writes with the token of the last grant, and asks nobody but the gate.
    fn write(&self, text: &str) -> Result<Answer, Problem> {
        let guarded = Guarded::in_folder(&self.folder);
        let written = guarded.write(&self.lease()?.token, text);
        match written.tried("writing at the guarded file")? {
            Ok(()) => Ok(Answer::Written),
            Err(fenced) => Ok(Answer::Fenced {
                why: fenced.to_string(),
            }),
        }
    }

    fn start_thread(&mut self) -> Result<Answer, Problem> {
        let (end, ended) = mpsc::channel::<()>();
        let (started, starts) = mpsc::channel();
        let thread = thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            if started.send(tid).is_ok() {
                // An error is the end, too: the holder is gone.
                let _told = ended.recv();
            }
        });
        self.thread = Some(Waiting { end, thread });
        let tid = starts.recv_timeout(ANSWER).tried("starting a thread")?;
        Ok(Answer::Thread { tid })
    }

    fn end_thread(&mut self) -> Result<Answer, Problem> {
        let Some(Waiting { end, thread }) = self.thread.take() else {
            return Err(Problem::broken("there is no thread"));
        };
        drop(end);
        match thread.join() {
            Ok(()) => Ok(Answer::Ended),
            Err(_panic) => Err(Problem::broken("the thread panicked")),
        }
    }

    /// Goes on in another thread, and ends the leader.
    fn leave_leader(self) -> Result<(), Problem> {
        thread::spawn(move || {
            let told = tell(&Answer::Left);
            if told.is_ok() {
                // Nobody is left to report to; the process ends with this thread.
                let _obeyed = self.obey_all();
            }
        });
        sys::leave_thread()
    }

    fn describe(&self) -> Result<Answer, Problem> {
        let identity = ProcessIdentity::own(&ProcFs::system()).tried("describing itself")?;
        Ok(Answer::Described {
            boottime_seconds: boottime_seconds(),
            identity: identity.to_string(),
        })
    }

    /// Acquires, enters, leaves and releases until the time is up. What it writes is for the oracle.
    ///
    /// Shielded, an operation is in flight while it writes, so that no term ends the lease.
    fn storm(&mut self, span: Duration, shielded: bool) -> Result<Answer, Problem> {
        let end = Deadline::within(span);
        let (mut grants, mut fenced, mut refused) = (0_u64, 0_u64, 0_u64);
        while !end.has_passed() {
            let Reply::Granted { token, .. } = self.acquire(STORM_WAIT_MS)? else {
                refused = refused.saturating_add(1);
                continue;
            };
            grants = grants.saturating_add(1);
            if shielded {
                drop(self.begin()?);
            }
            let generation = token.generation;
            for verb in ["enter", "work", "leave"] {
                let text = format!("{verb} {} {generation}", self.name);
                if let Answer::Fenced { .. } = self.write(&text)? {
                    fenced = fenced.saturating_add(1);
                    break;
                }
            }
            if shielded {
                drop(self.end()?);
            }
            drop(self.ask_with_token(|resource, token| Request::Release { resource, token })?);
        }
        Ok(Answer::Stormed {
            grants,
            fenced,
            refused,
        })
    }
}

/// Enters a process group, or makes one.
fn enter(group: i32) -> Result<Answer, Problem> {
    setpgid(None, Pid::from_raw(group)).tried("entering a process group")?;
    Ok(Answer::Entered)
}

fn tell(answer: &Answer) -> Result<(), Problem> {
    send(&mut io::stdout().lock(), answer).tried("answering")
}
