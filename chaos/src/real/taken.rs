//! A process that has no descriptor to spare.

use std::fs::File;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::problem::{Need, Problem, Tried as _};

/// Above every descriptor that an authority has open.
const FEW: u64 = 64;

/// Descriptors that are taken so that nothing else has them.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    files: Vec<File>,
    /// The limit before.
    before: Option<Rlimit>,
}

impl Taken {
    /// Takes all but so many of this process; `None` gives all back.
    pub(crate) fn leave(&mut self, free: Option<usize>) -> Result<(), Problem> {
        self.files.clear();
        let Some(free) = free else {
            return match self.before.take() {
                Some(before) => set(before),
                None => Ok(()),
            };
        };
        let now = getrlimit(Resource::Nofile);
        let before = *self.before.get_or_insert(now);
        let maximum = before.maximum;
        set(Rlimit {
            current: Some(maximum.map_or(FEW, |most| most.min(FEW))),
            maximum,
        })?;
        self.take_all()?;
        let left = self.files.len().checked_sub(free);
        let few = || Problem::missing(Need::Descriptors, "there are too few to leave some");
        let left = left.ok_or_else(few)?;
        self.files.truncate(left);
        Ok(())
    }

    fn take_all(&mut self) -> Result<(), Problem> {
        loop {
            match File::open("/dev/null") {
                Ok(file) => self.files.push(file),
                Err(error) if is_full(&error) => return Ok(()),
                Err(error) => return Err(Problem::broken(format_args!("/dev/null: {error}"))),
            }
        }
    }
}

/// Whether there was no descriptor left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}

fn set(limit: Rlimit) -> Result<(), Problem> {
    setrlimit(Resource::Nofile, limit).tried("setting the limit of descriptors")
}
