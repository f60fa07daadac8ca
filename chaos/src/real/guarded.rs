//! The resource: a file of lines, with a fence gate beside it.
//!
//! `data` holds the lines, `gate` the state of the [`FenceGate`], and an exclusive `flock` on `gate`
//! is the critical section in which the token is checked and the line is written. The kernel frees
//! the lock of a killed writer. The gate's state is one write of fixed size within one page, so no
//! kill leaves half of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_core::{AuthorityId, FenceGate, Fenced, FencingToken};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::pause::pause;
use crate::clock::Deadline;

/// The size of the stored gate.
const GATE_BYTES: usize = 2_048;

/// How long somebody may be in the critical section; a stopped writer is let go on before that.
const LONGEST: Duration = Duration::from_secs(5);

/// The guarded file of one folder.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    folder: PathBuf,
}

impl Guarded {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Writes one line if the gate lets `token` in.
    pub(crate) fn write(&self, token: &FencingToken, line: &str) -> io::Result<Result<(), Fenced>> {
        self.change(|gate| {
            if let Err(fenced) = gate.enter(token) {
                return Ok(Err(fenced));
            }
            Ok(Ok(format!("{line}\n")))
        })
    }

    /// Puts a new authority in place of the old one.
    pub(crate) fn succeed(&self, next: AuthorityId) -> io::Result<Result<(), Fenced>> {
        self.change(|gate| Ok(gate.succeed(next).map(|()| String::new())))
    }

    /// Reads all lines.
    pub(crate) fn read(&self) -> io::Result<String> {
        match std::fs::read_to_string(self.folder.join("data")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }

    /// Changes gate and data in one critical section: the gate first, so that what is written later
    /// was let in for good.
    fn change(
        &self,
        decide: impl FnOnce(&mut FenceGate) -> io::Result<Result<String, Fenced>>,
    ) -> io::Result<Result<(), Fenced>> {
        let gate_file = open(&self.folder.join("gate"))?;
        lock(&gate_file)?;
        let mut gate = load(&gate_file)?;
        let line = match decide(&mut gate)? {
            Err(fenced) => return Ok(Err(fenced)),
            Ok(line) => line,
        };
        store(&gate_file, &gate)?;
        let mut options = OpenOptions::new();
        let mut data = options
            .create(true)
            .append(true)
            .open(self.folder.join("data"))?;
        data.write_all(line.as_bytes())?;
        // Closing the only description frees the lock.
        drop(gate_file);
        Ok(Ok(()))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

fn lock(file: &File) -> io::Result<()> {
    let deadline = Deadline::within(LONGEST);
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) if !deadline.has_passed() => {
                pause(Duration::from_micros(200));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn load(file: &File) -> io::Result<FenceGate> {
    let mut bytes = vec![0; GATE_BYTES];
    if file.read_at(&mut bytes, 0)? == 0 {
        return Ok(FenceGate::new());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

fn store(file: &File, gate: &FenceGate) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(gate)?;
    if bytes.len() > GATE_BYTES {
        return Err(io::Error::other(
            "the gate has too many retired authorities",
        ));
    }
    // JSON ends where it ends; blanks fill the page.
    bytes.resize(GATE_BYTES, b' ');
    file.write_all_at(&bytes, 0)
}

#[cfg(test)]
mod tests {
    use lease_core::{Generation, LeaseId};

    use super::super::chance::random;
    use super::*;

    fn token(authority: u8, generation: u64) -> FencingToken {
        FencingToken {
            authority: AuthorityId::from_bytes([authority; 16]),
            generation: Generation::new(generation).unwrap(),
            lease: LeaseId::from_bytes([7; 16]),
        }
    }

    #[test]
    fn refused_write_leaves_no_byte_and_the_gate_outlives_who_opened_it() {
        let name = format!("lease-chaos-guarded-{:032x}", u128::from_ne_bytes(random()));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let write = |token: FencingToken, line: &str| {
            Guarded::in_folder(&folder).write(&token, line).unwrap()
        };
        write(token(1, 2), "new").unwrap();
        let late = write(token(1, 1), "late");
        let foreign = write(token(2, 9), "foreign");
        let next = AuthorityId::from_bytes([2; 16]);
        Guarded::in_folder(&folder).succeed(next).unwrap().unwrap();
        write(token(2, 1), "next").unwrap();
        let old = write(token(1, 3), "old");
        let data = Guarded::in_folder(&folder).read().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(late, Err(Fenced::Older { .. })), "{late:?}");
        assert!(
            matches!(foreign, Err(Fenced::OtherAuthority { .. })),
            "{foreign:?}"
        );
        assert!(matches!(old, Err(Fenced::OtherAuthority { .. })), "{old:?}");
        assert_eq!(data, "new\nnext\n");
    }
}
