//! Ways to keep other processes out: ours, floors, and peers. Each takes, does something, and gives back.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lease_sqlite::{LockOptions, WaitBudget, WriteLock};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};

/// Something that one process at a time is in.
pub(crate) trait Way: Send {
    /// Waits until nobody else is in, does `inside`, and leaves.
    fn through(&mut self, inside: &mut dyn FnMut());
}

/// A way and how it is opened in a folder.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) open: fn(&Path) -> Box<dyn Way>,
}

/// Ours first, then the floors, then the peers.
pub(crate) const WAYS: [Named; 7] = [
    Named {
        name: "ours",
        about: "lease-sqlite",
        open: |folder| Box::new(Ours::open(folder)),
    },
    Named {
        name: "sqlite",
        about: "rusqlite, 2 statx, pwrite, flock pair",
        open: |folder| Box::new(Sqlite::open(folder)),
    },
    Named {
        name: "fcntl",
        about: "F_SETLKW: no fence, no record",
        open: |folder| Box::new(Fcntl(file(folder))),
    },
    Named {
        name: "fs4",
        about: "fs4 crate (flock): no fence, no record",
        open: |folder| Box::new(Fs4(file(folder))),
    },
    Named {
        name: "fd-lock",
        about: "fd-lock crate (flock): no fence, no record",
        open: |folder| Box::new(FdLock(fd_lock::RwLock::new(file(folder)))),
    },
    Named {
        name: "named-lock",
        about: "named-lock crate (flock): no fence, no record",
        open: |folder| {
            let lock = named_lock::NamedLock::with_path(folder.join("lock"));
            Box::new(NamedLock(lock.expect("a lock file")))
        },
    },
    Named {
        name: "pidlock",
        about: "pidlock crate (pid file): never waits",
        open: |folder| Box::new(PidFile(folder.join("lock.pid"))),
    },
];

/// Finds a way by its name.
pub(crate) fn way(name: &str) -> Option<&'static Named> {
    WAYS.iter().find(|way| way.name == name)
}

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lease-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder of our own");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

fn file(folder: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(folder.join("lock")).expect("a lock file")
}

pub(crate) struct Ours(pub(crate) WriteLock);

impl Ours {
    pub(crate) fn open(folder: &Path) -> Self {
        let lock = LockOptions::new().role("bench").open(folder.join("app.db"));
        Self(lock.expect("a lock"))
    }
}

impl Way for Ours {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        let hold = self.0.acquire(WaitBudget::Forever).expect("a hold");
        inside();
        hold.release().expect("it is free");
    }
}

/// The floor: what must be done to the two files, and nothing else. It tries once.
struct Sqlite {
    connection: Connection,
    mutex: PathBuf,
    record: PathBuf,
    descriptor: OwnedFd,
    gate: OwnedFd,
    bytes: Vec<u8>,
}

impl Sqlite {
    fn open(folder: &Path) -> Self {
        let (mutex, record) = (folder.join("floor.mutex"), folder.join("floor"));
        let connection = connect(&mutex);
        // The one page, so that no pair writes it.
        connection
            .execute_batch("BEGIN EXCLUSIVE; COMMIT")
            .expect("a mutex");
        let open = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::open(&record, flags, Mode::RUSR | Mode::WUSR).expect("a record")
        };
        Self {
            connection,
            descriptor: open(),
            gate: open(),
            mutex,
            bytes: vec![b' '; 1_024],
            record,
        }
    }

    fn run(&self, statement: &str) {
        let prepared = self.connection.prepare_cached(statement);
        prepared.and_then(|mut it| it.execute([])).expect(statement);
    }
}

pub(crate) fn connect(mutex: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(mutex, flags).expect("a connection")
}

fn inode(path: &Path) -> u64 {
    let mask = StatxFlags::INO;
    let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, mask);
    found.expect("it is there").stx_ino
}

impl Way for Sqlite {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        self.run("BEGIN EXCLUSIVE");
        std::hint::black_box((inode(&self.mutex), inode(&self.record)));
        let written = rustix::io::pwrite(&self.descriptor, &self.bytes, 0);
        assert_eq!(written, Ok(self.bytes.len()));
        rustix::fs::flock(&self.gate, FlockOperation::NonBlockingLockExclusive).expect("a gate");
        inside();
        self.run("COMMIT");
        rustix::fs::flock(&self.gate, FlockOperation::Unlock).expect("a gate");
    }
}

struct Fcntl(File);

impl Way for Fcntl {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        rustix::fs::fcntl_lock(&self.0, FlockOperation::LockExclusive).expect("a lock");
        inside();
        rustix::fs::fcntl_lock(&self.0, FlockOperation::Unlock).expect("a lock");
    }
}

struct Fs4(File);

impl Way for Fs4 {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        fs4::FileExt::lock(&self.0).expect("a lock");
        inside();
        fs4::FileExt::unlock(&self.0).expect("a lock");
    }
}

struct FdLock(fd_lock::RwLock<File>);

impl Way for FdLock {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        let held = self.0.write().expect("a lock");
        inside();
        drop(held);
    }
}

struct NamedLock(named_lock::NamedLock);

impl Way for NamedLock {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        let held = self.0.lock().expect("a lock");
        inside();
        drop(held);
    }
}

struct PidFile(PathBuf);

impl Way for PidFile {
    fn through(&mut self, inside: &mut dyn FnMut()) {
        let mut lock = pidlock::Pidlock::new_validated(&self.0).expect("a path");
        lock.acquire().expect("a lock");
        inside();
        lock.release().expect("a lock");
    }
}
