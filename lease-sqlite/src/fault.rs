//! Faults on purpose, armed for one lock by a test.

use std::io;

/// Where a fault can be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(feature = "test-util"),
    expect(unreachable_pub, reason = "public with the feature")
)]
#[non_exhaustive]
pub enum FaultPoint {
    /// `BEGIN EXCLUSIVE`; the number is an extended result code of SQLite.
    Begin,
    /// The look at the mutex under the kernel lock.
    Moved,
    /// The look at the record under the kernel lock.
    Fence,
    /// Making the record at the path our own.
    Adopt,
    /// Opening the record for the first time.
    Open,
    /// The gate has let somebody through, who has not tried yet.
    Passed,
    /// Reading a record that is not our own.
    Read,
    /// The second look of a sweep.
    Look,
    /// Removing a record in a sweep.
    Remove,
    /// Writing the record.
    Write,
    /// Writing the record, of which only half arrives.
    ShortWrite,
    /// `COMMIT`, which is not run.
    Commit,
    /// `ROLLBACK` after a failed `COMMIT`, which is not run.
    Rollback,
}

/// What happens at a point, once.
#[cfg(feature = "test-util")]
type Event = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The faults of one path, each once.
#[derive(Default)]
pub(crate) struct Faults {
    #[cfg(feature = "test-util")]
    armed: std::collections::BTreeMap<FaultPoint, Event>,
    #[cfg(feature = "test-util")]
    passes: std::collections::BTreeMap<FaultPoint, u64>,
}

impl Faults {
    #[cfg(feature = "test-util")]
    pub(crate) fn arm(&mut self, point: FaultPoint, event: Event) {
        self.armed.insert(point, event);
    }

    /// Returns how often a point was passed.
    #[cfg(feature = "test-util")]
    pub(crate) fn passes(&self, point: FaultPoint) -> u64 {
        self.passes.get(&point).copied().unwrap_or(0)
    }

    /// Lets happen what is armed here, and disarms it.
    #[cfg(feature = "test-util")]
    pub(crate) fn hit(&mut self, point: FaultPoint) -> io::Result<()> {
        let passes = self.passes.entry(point).or_default();
        *passes = passes.saturating_add(1);
        self.armed.remove(&point).map_or(Ok(()), |event| event())
    }

    /// Nothing is ever armed.
    #[cfg(not(feature = "test-util"))]
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the shape of the other one"
    )]
    pub(crate) const fn hit(&mut self, _point: FaultPoint) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}
