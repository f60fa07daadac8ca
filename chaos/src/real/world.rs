//! The world of one scenario: its folder, its processes, and what the scenario has seen.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lease_core::AuthorityId;
use lease_procfs::Stat;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::authority::Terms;
use super::guarded::Guarded;
use super::launch::{SELF, itself};
use super::lines::{Lines, readable, send};
use super::pause::wait_for;
use super::problem::{Need, Problem, Tried as _, made};
use super::story::{Rule, Story};
use super::wire::{
    Answer, Command as Order, Control, Reply, Report, SOCKET, Started, Starter, Told,
};
use super::work::{Group, Task};
use crate::clock::Deadline;

/// How long anything may take that has nothing to wait for.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// Where the kernel is told which number the next process gets.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// What a scenario lives in. It runs in the first process of the scenario's namespaces.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    pub(crate) story: Story,
}

impl World {
    pub(crate) fn new(folder: &Path, seed: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            seed,
            story: Story::default(),
        }
    }

    pub(crate) fn guarded(&self) -> Guarded {
        Guarded::in_folder(&self.folder)
    }

    /// Starts an authority.
    pub(crate) fn authority(&self, terms: Terms) -> Result<Authority, Problem> {
        Authority::start(itself("authority", self.authority_arguments(terms, true)))
    }

    /// Starts an authority that takes the kernel for one without pidfs.
    pub(crate) fn authority_without_pidfs(&self, terms: Terms) -> Result<Authority, Problem> {
        Authority::start(itself("authority", self.authority_arguments(terms, false)))
    }

    /// What follows the role's name of an authority.
    pub(crate) fn authority_arguments(&self, terms: Terms, pidfs: bool) -> [OsString; 3] {
        let pidfs = if pidfs { "pidfs" } else { "no-pidfs" };
        [
            self.folder.clone().into_os_string(),
            terms.text().into(),
            pidfs.into(),
        ]
    }

    /// Starts a holder that is connected to the authority.
    pub(crate) fn holder(&self, name: &str) -> Result<Process, Problem> {
        let mut holder = Process::start(name, self.holder_command(name))?;
        holder.connect()?;
        Ok(holder)
    }

    /// Starts a holder that has an exact number and is connected to the authority.
    pub(crate) fn holder_numbered(&self, name: &str, number: i32) -> Result<Process, Problem> {
        let mut holder = Process::start_numbered(name, self.holder_command(name), number)?;
        holder.connect()?;
        Ok(holder)
    }

    /// Starts a holder that is in the process group of this number, or leads one where that is 0.
    pub(crate) fn holder_in(&self, name: &str, group: i32) -> Result<Process, Problem> {
        let mut holder = Process::start(name, self.holder_command(name))?;
        holder.enter(group)?;
        holder.connect()?;
        Ok(holder)
    }

    pub(crate) fn holder_command(&self, name: &str) -> Command {
        itself("holder", [self.folder.as_os_str(), OsStr::new(name)])
    }

    /// Removes the socket of an authority that is gone.
    pub(crate) fn remove_socket(&self) -> Result<(), Problem> {
        std::fs::remove_file(self.folder.join(SOCKET)).tried("removing the socket")
    }

    /// Checks that the guarded file holds exactly these lines.
    pub(crate) fn check_lines(&mut self, rule: Rule, lines: &[&str]) -> Result<(), Problem> {
        let found = self.guarded().read().tried("reading the guarded file")?;
        let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let holds = found == expected;
        self.story
            .check(rule, holds, || format!("the guarded file holds {found:?}"));
        Ok(())
    }
}

/// A child of the scenario that takes one message at a time and answers it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    /// Its number in the scenario's pid namespace.
    pub(crate) number: i32,
    /// The inode of its pidfd.
    pub(crate) inode: u64,
    /// The identity that the authority saw, once it is connected.
    pub(crate) identity: String,
    pidfd: OwnedFd,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    lines: Lines,
    /// Messages that were heard before it was their turn.
    early: VecDeque<Value>,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self, Problem> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = made(command.spawn(), format_args!("starting {name}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Problem::broken("a child without pipes"));
        };
        let number = i32::try_from(child.id()).tried("reading a number")?;
        let pidfd = open_pidfd(number)?;
        Ok(Self {
            name: name.to_owned(),
            number,
            inode: inode(&pidfd)?,
            identity: String::new(),
            pidfd,
            child,
            stdin,
            stdout,
            lines: Lines::default(),
            early: VecDeque::new(),
        })
    }

    /// Starts a process with an exact number, which must be free.
    pub(crate) fn start_numbered(
        name: &str,
        command: Command,
        number: i32,
    ) -> Result<Self, Problem> {
        next_number(number)?;
        let process = Self::start(name, command)?;
        if process.number == number {
            return Ok(process);
        }
        let got = process.number;
        let reason = format_args!("{name} got the number {got}, not {number}");
        Err(Problem::missing(Need::SetTid, reason))
    }

    /// Waits for the number of the process that a role started for us. What others say before is
    /// heard later.
    pub(crate) fn started(&mut self, by: Starter) -> Result<i32, Problem> {
        let mut early = std::mem::take(&mut self.early);
        let deadline = Deadline::within(PROMPT);
        loop {
            let place = early.iter().position(|value| starts(value, by).is_some());
            if let Some(value) = place.and_then(|place| early.remove(place)) {
                self.early = early;
                return starts(&value, by).ok_or_else(|| Problem::broken("no number"));
            }
            early.push_back(self.hear(deadline.remaining())?);
        }
    }

    /// Tells it something. Of one that is gone already, it says why that one is gone.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), Problem> {
        let sent = send(&mut self.stdin, message);
        if matches!(&sent, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
            // Its last word may be what the machine lacks. After it comes the end of the stream,
            // which is a problem, too.
            loop {
                let _said_before: Value = self.hear(PROMPT)?;
            }
        }
        sent.tried(format_args!("telling {}", self.name))
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, Problem> {
        if let Some(value) = self.early.pop_front() {
            return serde_json::from_value(value).tried(&self.name);
        }
        let heard = self.lines.next(&self.stdout, Deadline::within(within));
        match heard {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Problem::broken(format_args!("{} is gone", self.name))),
            Err(Problem::Broken(what)) => Err(Problem::Broken(format!("{}: {what}", self.name))),
            Err(problem) => Err(problem),
        }
    }

    /// Gives a holder an order and waits for the answer.
    pub(crate) fn obey(&mut self, order: &Order) -> Result<Answer, Problem> {
        self.send(order)?;
        self.hear(PROMPT)
    }

    /// Gives a holder an order that the authority answers.
    pub(crate) fn ask(&mut self, order: &Order) -> Result<Reply, Problem> {
        match self.obey(order)? {
            Answer::Reply(reply) => Ok(reply),
            other => Err(Problem::broken(format_args!(
                "{} answered {other:?}",
                self.name
            ))),
        }
    }

    pub(crate) fn connect(&mut self) -> Result<(), Problem> {
        match self.ask(&Order::Connect)? {
            Reply::Welcome { identity, .. } => {
                self.identity = identity;
                Ok(())
            }
            other => Err(Problem::broken(format_args!(
                "{} is not welcome: {other:?}",
                self.name
            ))),
        }
    }

    /// Lets a holder enter a process group, or make one where the number is 0.
    pub(crate) fn enter(&mut self, group: i32) -> Result<(), Problem> {
        match self.obey(&Order::Enter { group })? {
            Answer::Entered => Ok(()),
            other => Err(Problem::broken(format_args!(
                "{} answered {other:?}",
                self.name
            ))),
        }
    }

    /// Lets a holder start a worker, which is ours to reap when the holder is gone.
    pub(crate) fn employs(&mut self, task: Task, group: Group) -> Result<Worker, Problem> {
        match self.obey(&Order::Employ { task, group })? {
            Answer::Employed { number } => Worker::of(number),
            other => Err(Problem::broken(format_args!(
                "{} answered {other:?}",
                self.name
            ))),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Problem> {
        pidfd_send_signal(&self.pidfd, signal)
            .tried(format_args!("sending {signal:?} to {}", self.name))
    }

    /// Kills it, waits until it has exited, and leaves it unreaped.
    pub(crate) fn kill(&self) -> Result<(), Problem> {
        self.signal(Signal::KILL)?;
        if self.has_exited(PROMPT)? {
            Ok(())
        } else {
            Err(Problem::broken(format_args!("{} does not die", self.name)))
        }
    }

    /// Says whether all its threads have exited, after at most this long.
    pub(crate) fn has_exited(&self, within: Duration) -> Result<bool, Problem> {
        readable(&self.pidfd, Deadline::within(within)).tried("polling a pidfd")
    }

    /// Stops it and waits until it stands still.
    pub(crate) fn stop(&self) -> Result<(), Problem> {
        self.signal(Signal::STOP)?;
        wait_for("the stop", Deadline::within(PROMPT), || {
            Ok(self.state()? == b'T')
        })
    }

    pub(crate) fn resume(&self) -> Result<(), Problem> {
        self.signal(Signal::CONT)
    }

    /// Returns the state of its leader thread, as `/proc` shows it.
    pub(crate) fn state(&self) -> Result<u8, Problem> {
        Ok(stat(self.number)?.state)
    }

    /// Returns its start time as `/proc` shows it here.
    pub(crate) fn start_ticks(&self) -> Result<u64, Problem> {
        Ok(stat(self.number)?.start_ticks.get())
    }

    /// Reaps it; it has exited, so this does not wait.
    pub(crate) fn reap(mut self) -> Result<Lines, Problem> {
        self.child.wait().tried("reaping")?;
        // What it said to its end.
        while readable(&self.stdout, Deadline::within(PROMPT)).tried("waiting for the end")?
            && self.lines.fill(&self.stdout).tried("reading to the end")?
        {}
        Ok(std::mem::take(&mut self.lines))
    }

    pub(crate) fn kill_and_reap(self) -> Result<Lines, Problem> {
        self.kill()?;
        self.reap()
    }
}

/// The number of the process that `by` started, if that is what the message says.
fn starts(message: &Value, by: Starter) -> Option<i32> {
    let started = Started::deserialize(message).ok()?;
    (started.by == by).then_some(started.child)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Our own unreaped child still has its number, so nobody else is hit; one that was reaped is
        // left alone. Nothing more can be done about an error, and the namespace ends everything.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A process that a holder started and that outlives it.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its number in the scenario's pid namespace.
    pub(crate) number: i32,
    pidfd: OwnedFd,
}

impl Worker {
    fn of(number: i32) -> Result<Self, Problem> {
        let pidfd = open_pidfd(number)?;
        Ok(Self { number, pidfd })
    }

    /// Kills it, waits until it has exited, and leaves it unreaped.
    pub(crate) fn kill(&self) -> Result<(), Problem> {
        pidfd_send_signal(&self.pidfd, Signal::KILL).tried("killing a worker")?;
        match readable(&self.pidfd, Deadline::within(PROMPT)).tried("polling a pidfd")? {
            true => Ok(()),
            false => Err(Problem::broken("a worker does not die")),
        }
    }

    /// Kills and reaps it. Whoever started it is gone, so the first process of the namespace inherited it.
    pub(crate) fn end(self) -> Result<(), Problem> {
        self.kill()?;
        let ended = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        ended.map(drop).tried("reaping a worker")
    }
}

/// An authority in a process of its own.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) process: Process,
    pub(crate) id: AuthorityId,
    /// What its decision clock said when it began.
    pub(crate) boottime_seconds: u64,
    told: Vec<Told>,
}

impl Authority {
    pub(crate) fn start(command: Command) -> Result<Self, Problem> {
        let process = Process::start("authority", command)?;
        Self::ready(process)
    }

    /// Waits until the process listens.
    pub(crate) fn ready(mut process: Process) -> Result<Self, Problem> {
        match process.hear(PROMPT)? {
            Report::Ready {
                authority,
                boottime_seconds,
            } => Ok(Self {
                process,
                id: authority,
                boottime_seconds,
                told: Vec::new(),
            }),
            other => Err(Problem::broken(format_args!(
                "the authority said {other:?}"
            ))),
        }
    }

    /// Acquires for a recorded identity.
    pub(crate) fn record(&mut self, client: &str, identity: &str) -> Result<Reply, Problem> {
        self.order(&Control::Record {
            client: client.to_owned(),
            identity: identity.to_owned(),
        })
    }

    /// Acquires for the process with this number.
    pub(crate) fn number(&mut self, client: &str, pid: i32) -> Result<Reply, Problem> {
        self.order(&Control::Number {
            client: client.to_owned(),
            pid,
        })
    }

    /// Leaves it so many descriptors; `None` is as many as before.
    pub(crate) fn leave_descriptors(&mut self, free: Option<usize>) -> Result<(), Problem> {
        self.process.send(&Control::Descriptors { free })?;
        match self.process.hear(PROMPT)? {
            Report::Descriptors => Ok(()),
            other => Err(Problem::broken(format_args!(
                "the authority said {other:?}"
            ))),
        }
    }

    fn order(&mut self, order: &Control) -> Result<Reply, Problem> {
        self.process.send(order)?;
        match self.process.hear(PROMPT)? {
            Report::Reply(reply) => Ok(reply),
            other => Err(Problem::broken(format_args!(
                "the authority said {other:?}"
            ))),
        }
    }

    /// Returns the receipts since the last look.
    pub(crate) fn news(&mut self) -> Result<Vec<Told>, Problem> {
        let after = self.told.len();
        self.process.send(&Control::Receipts { after })?;
        match self.process.hear(PROMPT)? {
            Report::Receipts(told) => {
                self.told.extend(told.iter().cloned());
                Ok(told)
            }
            other => Err(Problem::broken(format_args!(
                "the authority said {other:?}"
            ))),
        }
    }

    /// Takes the receipts that were seen into the story.
    pub(crate) fn keep(&self, story: &mut Story) {
        story.keep(&self.told);
    }

    /// Takes all receipts into the story and ends the authority.
    pub(crate) fn close(mut self, story: &mut Story) -> Result<(), Problem> {
        self.news()?;
        self.keep(story);
        Ok(())
    }
}

/// Makes a number the next one that this pid namespace gives.
pub(crate) fn next_number(number: i32) -> Result<(), Problem> {
    if !is_our_namespace().tried("looking at the first process")? {
        return Err(Problem::broken("this is no pid namespace of a scenario"));
    }
    let last = number.saturating_sub(1).to_string();
    let mut options = File::options();
    let file = options
        .write(true)
        .open(LAST_PID)
        .needs(Need::SetTid, LAST_PID)?;
    file.write_all_at(last.as_bytes(), 0)
        .needs(Need::SetTid, LAST_PID)
}

/// Returns whether the first process of this pid namespace runs this program, as in every namespace
/// that a scenario made.
fn is_our_namespace() -> std::io::Result<bool> {
    let first = std::fs::metadata("/proc/1/exe")?;
    let own = std::fs::metadata(SELF)?;
    Ok((first.dev(), first.ino()) == (own.dev(), own.ino()))
}

/// Opens a pidfd for a number of the scenario's pid namespace.
pub(crate) fn open_pidfd(number: i32) -> Result<OwnedFd, Problem> {
    let pid = Pid::from_raw(number).ok_or_else(|| Problem::broken("0 is no process"))?;
    let told = format_args!("opening process {number}");
    match pidfd_open(pid, PidfdFlags::empty()) {
        // A kernel before Linux 5.3, and a sandbox that forbids the call: the kernel itself allows it to all.
        refused @ Err(Errno::NOSYS | Errno::PERM) => refused.needs(Need::Pidfd, told),
        pidfd => made(pidfd, told),
    }
}

/// Kills a process of the scenario that one of its children started, and waits for its end.
pub(crate) fn kill_number(number: i32) -> Result<(), Problem> {
    let pidfd = open_pidfd(number)?;
    pidfd_send_signal(&pidfd, Signal::KILL).tried("killing a namespace")?;
    match readable(&pidfd, Deadline::within(PROMPT)).tried("polling a pidfd")? {
        true => Ok(()),
        false => Err(Problem::broken(format_args!(
            "process {number} does not die"
        ))),
    }
}

/// Returns whether a number names a process that can be opened.
pub(crate) fn is_taken(number: i32) -> bool {
    open_pidfd(number).is_ok()
}

fn inode(pidfd: &OwnedFd) -> Result<u64, Problem> {
    Ok(rustix::fs::fstat(pidfd.as_fd()).tried("fstat")?.st_ino)
}

/// Reads `/proc/<number>/stat`.
pub(crate) fn stat(number: i32) -> Result<Stat, Problem> {
    let path = format!("/proc/{number}/stat");
    let line = std::fs::read(&path).tried(&path)?;
    Stat::parse(&line).tried(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_lacked_is_heard_although_it_can_no_longer_be_told_anything() {
        let lacks = r#"{"Err":{"Missing":{"need":"set-tid","reason":"read-only"}}}"#;
        let mut command = Command::new("echo");
        command.arg(lacks);
        let mut process = Process::start("child", command).unwrap();
        assert!(process.has_exited(PROMPT).unwrap());
        let problem = process.send(&()).unwrap_err();
        assert_eq!(problem.to_string(), "set-tid: read-only");
    }

    #[test]
    fn child_that_is_gone_without_a_word_is_named() {
        let mut process = Process::start("child", Command::new("true")).unwrap();
        assert!(process.has_exited(PROMPT).unwrap());
        let problem = process.send(&()).unwrap_err();
        assert!(matches!(problem, Problem::Broken(_)), "{problem:?}");
        assert!(problem.to_string().contains("child"), "{problem}");
    }
}
