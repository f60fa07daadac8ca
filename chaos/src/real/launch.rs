//! The namespaces of a scenario, and the roles that make them.
//!
//! The program starts itself again: `launch` moves its children into new namespaces, `mounted` is the
//! first process in them and mounts their own `/proc`, and becomes `init`, which tells the scenario.
//! When `init` ends, the kernel ends everything in its pid namespace.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getegid, geteuid, getpid, getrlimit, pidfd_open,
};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use super::chance::random;
use super::lines::{readable, send};
use super::problem::{Need, Problem, Tried as _, made};
use super::story::Story;
use super::sys;
use super::wire::{SOCKET, Started, Starter};
use super::world::next_number;
use crate::clock::Deadline;

/// The word that the arguments of a role begin with.
pub(crate) const ROLE: &str = "__role";

/// This program, from whichever process.
pub(crate) const SELF: &str = "/proc/self/exe";

/// How long a killed scenario may take to be gone.
const GONE: Duration = Duration::from_secs(5);

/// The most that is kept of what a scenario says on its standard error.
const WORDS: usize = 2_000;

/// Whether the namespaces are made without privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// In a user namespace, which anybody may make where the machine allows it.
    User,
    /// As root.
    Root,
}

impl Rights {
    const fn text(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Root => "root",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::User, Self::Root]
            .into_iter()
            .find(|rights| rights.text() == text)
    }
}

/// Runs a scenario in namespaces of its own and returns what it tells.
///
/// Nothing is left behind: neither a process nor the scenario's folder.
pub(crate) fn tell(program: &Path, name: &str, seed: u64, deadline: Deadline) -> Story {
    let told = match attempt(program, name, seed, deadline, Rights::User) {
        Err(first @ Problem::Missing { .. }) if geteuid().is_root() => {
            match attempt(program, name, seed, deadline, Rights::Root) {
                Err(Problem::Missing { .. }) => Err(first),
                told => told,
            }
        }
        told => told,
    };
    told.unwrap_or_else(Story::stopped)
}

fn attempt(
    program: &Path,
    name: &str,
    seed: u64,
    deadline: Deadline,
    rights: Rights,
) -> Result<Story, Problem> {
    // Every role is started through it.
    std::fs::read_link(SELF).needs(Need::ProcMount, SELF)?;
    has_descriptors()?;
    let folder = Folder::make()?;
    let mut command = Command::new(program);
    command
        .args([ROLE, "launch", rights.text(), name, &seed.to_string()])
        .arg(&folder.path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut launcher = made(command.spawn(), "starting the scenario")?;
    let words = listen(launcher.stderr.take(), deadline);
    let told = match &words {
        Ok(_) => hear(&mut launcher, deadline),
        Err(problem) => Err(problem.clone()),
    };
    end(&mut launcher)?;
    let words = words.ok().and_then(|thread| thread?.join().ok());
    let words = words.unwrap_or_default();
    let told = told?;
    if told.is_empty() {
        return Err(Problem::broken(format_args!(
            "the scenario told nothing: {words}"
        )));
    }
    let told: Result<Story, Problem> =
        serde_json::from_slice(&told).tried(format_args!("what the scenario told: {words}"))?;
    let mut story = told?.or_missing()?;
    if !words.is_empty() {
        story.note(words);
    }
    Ok(story)
}

/// A scenario that runs short of descriptors in the middle would look like one in which a holder was not seen.
fn has_descriptors() -> Result<(), Problem> {
    let most = getrlimit(Resource::Nofile).current;
    match most.filter(|most| *most < DESCRIPTORS) {
        None => Ok(()),
        Some(most) => {
            let reason =
                format_args!("{most} files may be open at a time; {DESCRIPTORS} are needed");
            Err(Problem::missing(Need::Descriptors, reason))
        }
    }
}

/// Reads everything that the scenario's processes say on their standard error, until the last one of
/// them is gone, and keeps the first of it.
fn listen(
    from: Option<ChildStderr>,
    deadline: Deadline,
) -> Result<Option<thread::JoinHandle<String>>, Problem> {
    let Some(mut from) = from else {
        return Ok(None);
    };
    let gone = Deadline::within(deadline.remaining().saturating_add(GONE));
    let reader = thread::Builder::new().spawn(move || {
        let mut words = Vec::new();
        let mut chunk = [0; 1 << 10];
        // What cannot be read is not told; it is for people only.
        while let Ok(true) = readable(&from, gone) {
            match from.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(count) => words.extend(chunk.iter().take(count)),
            }
        }
        words.truncate(WORDS);
        String::from_utf8_lossy(&words).trim().to_owned()
    });
    made(reader, "starting a thread").map(Some)
}

/// Reads what the scenario tells, to its end or to the deadline.
fn hear(launcher: &mut Child, deadline: Deadline) -> Result<Vec<u8>, Problem> {
    let Some(mut stdout) = launcher.stdout.take() else {
        return Err(Problem::broken("the scenario has no standard output"));
    };
    let mut told = Vec::new();
    let mut chunk = [0; 16 << 10];
    while readable(&stdout, deadline).tried("waiting for the scenario")? {
        match stdout.read(&mut chunk).tried("reading the scenario")? {
            0 => return Ok(told),
            count => told.extend(chunk.iter().take(count)),
        }
    }
    Err(Problem::broken(
        "the scenario did not end in time and was ended",
    ))
}

/// Ends the launcher, if it has not ended, and waits until its namespaces have gone with it.
fn end(launcher: &mut Child) -> Result<(), Problem> {
    // The first process of the namespaces dies with it, and everything in them with that one.
    launcher.kill().tried("ending the scenario")?;
    launcher.wait().tried("waiting for the scenario")?;
    Ok(())
}

/// The files that a process of a scenario has open at a time, several times over.
const DESCRIPTORS: u64 = 128;

/// The longest path of a socket, with which the kernel wants a zero.
const SOCKET_PATH: usize = 107;

/// The room for a scenario, several times what it writes.
const ROOM: u64 = 8 << 20;

/// Its files, several times as many as it makes.
const FILES: u64 = 200;

/// A folder that is removed with all that is in it.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> Result<Self, Problem> {
        use std::os::unix::fs::DirBuilderExt as _;

        let name = format!("lease-chaos-{:032x}", u128::from_ne_bytes(random()));
        let mut path = std::env::temp_dir().join(&name);
        // The path goes into messages, which are text.
        let is_text = path.to_str().is_some();
        if path.join(SOCKET).as_os_str().len() > SOCKET_PATH || !is_text {
            path = Path::new("/tmp").join(name);
        }
        let mut builder = std::fs::DirBuilder::new();
        builder
            .mode(0o700)
            .create(&path)
            .needs(Need::ScratchFolder, path.display())?;
        let folder = Self { path };
        folder.has_room()?;
        Ok(folder)
    }

    /// A full disk is found before the scenario, in which it would look like a write that was not let in.
    fn has_room(&self) -> Result<(), Problem> {
        let path = self.path.display();
        let disk = statvfs(&self.path).needs(Need::ScratchFolder, &path)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // A file system without a bound says that it has nothing at all.
        let is_full = disk.f_blocks > 0 && free < ROOM;
        if is_full || (disk.f_files > 0 && disk.f_favail < FILES) {
            let reason = format_args!(
                "{path}: {free} bytes and {} files are free; {ROOM} and {FILES} are needed",
                disk.f_favail
            );
            return Err(Problem::missing(Need::ScratchFolder, reason));
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process that is being ended may still make a file while the folder is emptied.
        let deadline = Deadline::within(GONE);
        while std::fs::remove_dir_all(&self.path).is_err()
            && self.path.exists()
            && !deadline.has_passed()
        {
            super::pause::pause(Duration::from_millis(1));
        }
    }
}

/// The role `launch`: makes the namespaces and waits for their first process.
pub(crate) fn launch(rights: Rights, scenario: &[OsString]) -> Result<(), Problem> {
    isolate(rights)?;
    // Changed rights undo it.
    die_with_parent()?;
    let mut init = itself("mounted", [OsStr::new("init")])
        .args(scenario)
        .spawn()
        .needs(Need::PidNamespaces, "starting a process in them")?;
    init.wait().tried("waiting for the scenario")?;
    Ok(())
}

fn isolate(rights: Rights) -> Result<(), Problem> {
    if rights == Rights::User {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        sys::unshare(UnshareFlags::NEWUSER).needs(Need::UserNamespaces, "unshare")?;
        let write = |file: &str, text: String| {
            std::fs::write(format!("/proc/self/{file}"), text).needs(Need::UserNamespaces, file)
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("0 {uid} 1"))?;
        write("gid_map", format!("0 {gid} 1"))?;
    }
    sys::unshare(UnshareFlags::NEWNS).needs(Need::MountNamespaces, "unshare")?;
    sys::unshare(UnshareFlags::NEWPID).needs(Need::PidNamespaces, "unshare")
}

/// The role `mounted`: gives the new namespaces their own `/proc`, and becomes another role.
pub(crate) fn mounted(role: &[OsString]) -> Result<(), Problem> {
    if getpid() != Pid::INIT {
        return Err(Problem::broken(
            "only the first process of a namespace mounts",
        ));
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).needs(Need::MountNamespaces, "making / private")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).needs(Need::ProcMount, "mount")?;
    become_role(role)
}

/// The role `nested`: another pid namespace inside, whose first process takes the role given.
pub(crate) fn nested(role: &[OsString]) -> Result<(), Problem> {
    sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWPID)
        .needs(Need::PidNamespaces, "unshare")?;
    start(Starter::Nested, itself("mounted", role))
}

/// The role `numbered`: another process of this pid namespace gets an exact number and takes the role
/// given.
pub(crate) fn numbered(number: i32, role: &[OsString]) -> Result<(), Problem> {
    next_number(number)?;
    start(Starter::Numbered, itself_plain(role))
}

/// The role `inside`: a process in the pid namespace of another one takes the role given.
pub(crate) fn inside(pid: i32, role: &[OsString]) -> Result<(), Problem> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Problem::broken("no such namespace"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).tried("opening the namespace's process")?;
    let spaces = ThreadNameSpaceType::PROCESS_ID | ThreadNameSpaceType::MOUNT;
    move_into_thread_name_spaces(std::os::fd::AsFd::as_fd(&pidfd), spaces)
        .needs(Need::PidNamespaces, "setns")?;
    start(Starter::Inside, itself_plain(role))
}

/// The role `shifted`: a time namespace with another boot time, in which this process takes the role
/// given.
pub(crate) fn shifted(seconds: u32, role: &[OsString]) -> Result<(), Problem> {
    sys::unshare(UnshareFlags::NEWTIME).needs(Need::TimeNamespaces, "unshare")?;
    std::fs::write("/proc/self/timens_offsets", format!("boottime {seconds} 0"))
        .needs(Need::TimeNamespaces, "timens_offsets")?;
    become_role(role)
}

/// Starts a process, says which number it has here, and waits for it.
fn start(by: Starter, mut command: Command) -> Result<(), Problem> {
    let mut child = made(command.spawn(), "starting a process")?;
    let number = i32::try_from(child.id()).tried("reading a number")?;
    let started = Started { by, child: number };
    send(&mut io::stdout().lock(), &started).tried("reporting")?;
    child.wait().tried("waiting for a process")?;
    Ok(())
}

/// Goes on as another role in this very process.
fn become_role(role: &[OsString]) -> Result<(), Problem> {
    let error = itself_plain(role).exec();
    Err(Problem::broken(format_args!("exec: {error}")))
}

/// This program in a role.
pub(crate) fn itself(
    role: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new(SELF);
    command.args([ROLE, role]).args(arguments);
    command
}

fn itself_plain(role: &[OsString]) -> Command {
    let mut command = Command::new(SELF);
    command.arg(ROLE).args(role);
    command
}

/// Nobody outlives the process that started it, however that one ends.
pub(crate) fn die_with_parent() -> Result<(), Problem> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .tried("binding to the parent's life")
}
