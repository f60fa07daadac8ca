//! The tree that a holder works in, and the processes that it starts there and that outlive it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::mount::mount_bind;
use rustix::process::{Pid, set_parent_process_death_signal, setpgid};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::launch::itself;
use super::lines::{Lines, send};
use super::pause::pause;
use super::problem::{Problem, Tried as _, made};
use super::sys;
use super::world::PROMPT;
use crate::clock::Deadline;

/// The tree that is worked in.
pub(crate) fn tree(folder: &Path) -> PathBuf {
    folder.join("tree")
}

/// The same tree, mounted once more.
pub(crate) fn other_name(folder: &Path) -> PathBuf {
    folder.join("mounted")
}

/// Makes enums whose words are arguments of a role.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            pub(crate) fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == text)
            }
        }
    };
}

words! {
    /// How a worker uses the tree.
    Task {
        /// Not at all.
        Nothing = "nothing",
        /// It uses what lies beside the tree and begins with the same letters.
        Neighbour = "neighbour",
        /// It works in a directory of it.
        Directory = "directory",
        /// It works in a directory of it that was removed.
        RemovedDirectory = "removed-directory",
        /// It works in a directory of it by another name.
        OtherName = "other-name",
        /// The same in a mount namespace of its own, as a container does.
        OtherNamespace = "other-namespace",
        /// It has a file of it open.
        File = "file",
        /// It has a file of it open that was removed.
        RemovedFile = "removed-file",
        /// It has a file of it mapped and not open.
        Mapping = "mapping",
        /// It has a file of it mapped that was removed.
        RemovedMapping = "removed-mapping",
    }
}

words! {
    /// In which process group a worker is.
    Group {
        /// In the one of who started it.
        Same = "same",
        /// It has moved away, into one of its own.
        Own = "own",
    }
}

impl Task {
    /// How `lease-procfs` calls the use; the worker's own directory is told first.
    pub(crate) const fn by(self) -> &'static str {
        match self {
            Self::Nothing | Self::Neighbour => "",
            Self::Directory | Self::RemovedDirectory | Self::OtherName | Self::OtherNamespace => {
                "cwd"
            }
            Self::File | Self::RemovedFile => "fd",
            Self::Mapping | Self::RemovedMapping => "map",
        }
    }
}

/// Starts a worker, and returns its number once it is at its task.
pub(crate) fn employ(folder: &Path, task: Task, group: Group) -> Result<i32, Problem> {
    let words = [
        folder.as_os_str().to_owned(),
        task.name().into(),
        group.name().into(),
    ];
    let mut command = itself("worker", words.map(OsString::from));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut worker = made(command.spawn(), "starting a worker")?;
    let stdout = worker.stdout.take();
    let stdout = stdout.ok_or_else(|| Problem::broken("a worker without a pipe"))?;
    let ready: Option<()> = Lines::default().next(stdout, Deadline::within(PROMPT))?;
    ready.ok_or_else(|| Problem::broken("a worker is gone"))?;
    i32::try_from(worker.id()).tried("reading a number")
}

/// The role `worker`: is at its task until it is killed, also after whoever started it is gone.
pub(crate) fn worker(folder: &Path, task: Task, group: Group) -> Result<(), Problem> {
    set_parent_process_death_signal(None).tried("outliving the parent")?;
    if group == Group::Own {
        setpgid(None, None::<Pid>).tried("leaving the process group")?;
    }
    let _kept = begin(folder, task).tried(task.name())?;
    send(&mut io::stdout().lock(), &()).tried("saying that it is at work")?;
    loop {
        pause(Duration::from_secs(3_600));
    }
}

/// Uses the tree, by what is returned where it must be kept.
fn begin(folder: &Path, task: Task) -> io::Result<Option<File>> {
    let tree = tree(folder);
    let own = rustix::process::getpid().as_raw_nonzero();
    let name = format!("{}-{own}", task.name());
    let work_in = |place: PathBuf| {
        fs::create_dir_all(&place)?;
        std::env::set_current_dir(place)
    };
    match task {
        Task::Nothing => {}
        Task::Neighbour => work_in(folder.join("tree-2"))?,
        Task::Directory => work_in(tree.join(name))?,
        Task::OtherName => work_in(other_name(folder).join(name))?,
        Task::OtherNamespace => {
            let inside = folder.join("inside");
            fs::create_dir_all(&inside)?;
            sys::unshare(UnshareFlags::NEWNS)?;
            mount_bind(&tree, &inside)?;
            work_in(inside.join(name))?;
        }
        Task::RemovedDirectory => {
            work_in(tree.join(&name))?;
            fs::remove_dir(tree.join(name))?;
        }
        Task::File => return open(&tree.join(name)).map(Some),
        Task::RemovedFile => {
            let file = open(&tree.join(&name))?;
            fs::remove_file(tree.join(name))?;
            return Ok(Some(file));
        }
        Task::Mapping => sys::map(&open(&tree.join(name))?)?,
        Task::RemovedMapping => {
            sys::map(&open(&tree.join(&name))?)?;
            fs::remove_file(tree.join(name))?;
        }
    }
    Ok(None)
}

/// Makes a file of one byte.
fn open(path: &Path) -> io::Result<File> {
    fs::write(path, "x")?;
    File::options().read(true).write(true).open(path)
}
