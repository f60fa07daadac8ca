//! A place, a child in it, and strace on that child.
#![expect(clippy::disallowed_methods, reason = "tests meet the machine here")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::not_run::not_run;
pub(crate) use crate::place::Place;
pub(crate) use crate::told::answer;
use crate::told::{BOUND, Told, stands_for, this_program};

const CHILD: &str = "LEASE_SQLITE_TEST_INJECT";

impl Place {
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "log").collect();
        names.sort();
        names
    }
}

/// The process in which calls fail.
pub(crate) struct Victim(Told);

impl Victim {
    pub(crate) fn start() -> Self {
        Self(Told::start(this_program().env(CHILD, "1")))
    }

    pub(crate) fn opens(&mut self, place: &Place) {
        let order = format!("open {}", place.database().display());
        assert_eq!(self.does(&order), "open");
    }

    /// Tells whether the kernel says that the child keeps others out.
    pub(crate) fn has_lock(&self, mutex: &Path) -> bool {
        // Who reads the kernel's list while others take and give back may miss a line.
        (0..20).any(|_| self.locks(mutex).iter().any(|kind| kind == "WRITE"))
    }

    /// Returns the kinds of locks that the kernel says the child has on the mutex.
    pub(crate) fn locks(&self, mutex: &Path) -> Vec<String> {
        let Ok(found) = fs::metadata(mutex) else {
            return Vec::new();
        };
        let (pid, inode) = (self.pid().to_string(), found.ino().to_string());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let kind = |line: &str| {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            let [_, "POSIX", _, kind, owner, file, ..] = words[..] else {
                return None;
            };
            let is_ours = owner == pid && file.rsplit(':').next() == Some(&*inode);
            is_ours.then(|| kind.to_owned())
        };
        locks.lines().filter_map(kind).collect()
    }

    /// Tells whether a tracer keeps one of the child's threads from going on, and not only for a moment.
    pub(crate) fn is_kept(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('t'))
        };
        (0..50).all(|_look| {
            std::thread::sleep(Duration::from_millis(1));
            let mut tasks = fs::read_dir(&tasks).unwrap().map_while(Result::ok);
            tasks.any(is_stopped)
        })
    }

    /// Begins to let the `number`th of these calls fail.
    pub(crate) fn with(&self, place: &Place, call: &str, how: &str, number: u32) -> Tracer {
        let log = place.directory.join("log");
        let pid = self.pid().to_string();
        let mut tracer = Command::new("strace")
            .args(["-f", "-p", &pid, "-o"])
            .arg(&log)
            .args(["-e", &format!("trace={call}")])
            .args(["-e", &format!("inject={call}:{how}:when={number}")])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = lines(tracer.stderr.take().unwrap());
        let tracer = Tracer { tracer, log };
        // It says so once it has stopped every thread. The kernel names it as the tracer before that, and
        // a call that is made in between is not counted.
        let end = Instant::now() + BOUND;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left);
            let line =
                line.unwrap_or_else(|error| panic!("strace does not come to {call}: {error}"));
            if line.contains(&format!("Process {pid} attached")) {
                return tracer;
            }
        }
    }
}

/// Listens to the end, so that whoever speaks is never held up.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, said) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _unheard = sender.send(line);
        }
    });
    said
}

stands_for!(Victim);

/// A strace that is on a child.
pub(crate) struct Tracer {
    tracer: Child,
    log: PathBuf,
}

impl Tracer {
    /// Leaves the child alone again, and tells which call failed, if one did.
    pub(crate) fn end(mut self) -> Option<String> {
        let pid = self.tracer.id().to_string();
        // Asked to end, it lets go of the child first.
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(asked.unwrap().success());
        self.tracer.wait().unwrap();
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let _removed = fs::remove_file(&self.log);
        let line = log.lines().find(|line| line.contains("(INJECTED)"))?;
        Some(line.to_owned())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _killed = self.tracer.kill();
        let _reaped = self.tracer.wait();
    }
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns whether calls of another process can be made to fail, and says so if not.
pub(crate) fn has_strace(test: &str) -> bool {
    let mut strace = Command::new("strace");
    let strace = strace.args(["-o", "/dev/null", "-e", "inject=getuid:error=EIO", "true"]);
    if strace.output().is_ok_and(|run| run.status.success()) {
        return true;
    }
    not_run(test, "strace", "strace is not there or may not trace");
    false
}
