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
    /// The look at the mutex under the kernel lock.
    Moved,
    /// The look at the record under the kernel lock.
    Fence,
    /// Making the record at the path our own.
    Adopt,
    /// Opening the record for the first time.
    Open,
    /// Reading a record that is not our own.
    Read,
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

/// The faults of one path, each once.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "test-util")]
    armed: std::collections::BTreeMap<FaultPoint, i32>,
}

impl Faults {
    #[cfg(feature = "test-util")]
    pub(crate) fn arm(&mut self, point: FaultPoint, error_number: i32) {
        self.armed.insert(point, error_number);
    }

    /// Fails if a fault is armed here, and disarms it.
    #[cfg(feature = "test-util")]
    pub(crate) fn hit(&mut self, point: FaultPoint) -> io::Result<()> {
        self.armed
            .remove(&point)
            .map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
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
