//! The refusal: who is in the way, and how sure that is.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lease_core::{Attribution, BusyReason, Evidence, Locality, Verdict};
use lease_procfs::{DescribeError, Pid, ProcLiveness, ProcessIdentity, Proof};

use crate::own;
use crate::record::LastWriter;

/// Somebody else has the lock, or a claim to it. It says who that is as far as can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The record's path, which is the lock's name.
    pub lock_path: PathBuf,
    /// Whom the record named when it was refused; with an unconfirmed attribution perhaps the one
    /// before.
    pub holder: Option<LastWriter>,
    /// What is in the way.
    pub reason: BusyReason,
    /// The size of what lies at the record's path, where that is in the way.
    pub size: Option<u64>,
    /// The process that has the kernel lock, by the kernel's own word. `None` if that is ourselves,
    /// or a process whose number means nothing here.
    pub locked_by: Option<Pid>,
    /// How long was waited.
    pub waited: Duration,
}

impl Busy {
    /// Returns how sure it is that the holder is the one that has the lock.
    #[must_use]
    pub const fn attribution(&self) -> Attribution {
        match self.reason {
            BusyReason::Kernel(attribution) => attribution,
            _ if self.holder.is_some() => Attribution::Unconfirmed,
            _ => Attribution::None,
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write lock {:?} is busy", self.lock_path)?;
        match self.reason {
            BusyReason::Kernel(_) => {}
            BusyReason::LegacyAlive => f.write_str(": claimed by protocol 1")?,
            BusyReason::LegacyOwnPid => f.write_str(": claimed by protocol 1 with our own pid")?,
            BusyReason::Directory => f.write_str(": a directory is at its record")?,
            BusyReason::NotARegularFile => f.write_str(": no regular file is at its record")?,
            BusyReason::Unreadable => f.write_str(": its record cannot be read")?,
            BusyReason::Unrecognised => f.write_str(": its record is not recognised")?,
            BusyReason::MutexMoved => f.write_str(": its mutex is being replaced")?,
            BusyReason::LostRace => f.write_str(": its record is being replaced")?,
        }
        self.fmt_holder(f)?;
        if self.waited.is_zero() {
            return Ok(());
        }
        write!(f, "; waited {:.1} s", self.waited.as_secs_f32())
    }
}

impl Busy {
    /// Says who it is, and how sure that is.
    fn fmt_holder(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_kernel = matches!(self.reason, BusyReason::Kernel(_));
        match (&self.holder, self.locked_by) {
            (Some(holder), _) if !is_kernel => write!(f, ", last written by {holder}"),
            (Some(holder), Some(pid)) if holder.pid != pid => {
                write!(f, ", held by process {pid}; its record names {holder}")
            }
            (Some(holder), None) if self.attribution() != Attribution::Confirmed => {
                write!(f, ", perhaps held by {holder}")
            }
            (Some(holder), _) => write!(f, ", held by {holder}"),
            (None, Some(pid)) => write!(f, ", held by process {pid}"),
            (None, None) => Ok(()),
        }
    }
}

/// A record was made our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// Why.
    pub cause: AdoptionCause,
    /// The inode that was ours, if there was one.
    pub old: Option<u64>,
    /// The inode that is ours.
    pub new: Option<u64>,
}

/// Why a record was made our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdoptionCause {
    /// There was none.
    Missing,
    /// Another record lay there.
    Replaced,
    /// A dead claim was removed.
    Reaped,
}

/// Looks at a busy lock, remembered per path across calls: one look may see the signature of a
/// predecessor, because a holder signs after it has the lock.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    first: Option<(Signed, Duration)>,
}

/// What two looks have to have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    Token(String),
    Stamp(Pid, Option<i64>),
}

impl Signed {
    pub(crate) fn of(holder: &LastWriter) -> Self {
        holder.token.as_ref().map_or_else(
            || Self::Stamp(holder.pid, holder.acquired_at_ms),
            |token| Self::Token(token.clone()),
        )
    }
}

impl Looks {
    /// Remembers a look, and tells whether one at least `poll` ago saw the same.
    pub(crate) fn look(
        &mut self,
        holder: Option<&LastWriter>,
        now: Duration,
        poll: Duration,
    ) -> bool {
        let Some(signed) = holder.map(Signed::of) else {
            self.first = None;
            return false;
        };
        match &self.first {
            Some((first, at)) if *first == signed => now.saturating_sub(*at) >= poll,
            _ => {
                self.first = Some((signed, now));
                false
            }
        }
    }

    /// Forgets: whoever held has let go.
    pub(crate) fn forget(&mut self) {
        self.first = None;
    }
}

/// Judges whether the process that a record names lives.
pub(crate) fn judge(liveness: &ProcLiveness, holder: &LastWriter) -> Verdict {
    if let Some(identity) = &holder.identity {
        if own::is_own(identity) {
            // Nobody has to be asked.
            return Verdict::Alive(Evidence::new(Proof::Running.as_str()));
        }
        return liveness.judge(identity, Locality::ThisMachine);
    }
    // A number alone proves that nobody is there, and at most hints that somebody is.
    match ProcessIdentity::of(liveness.proc(), holder.pid) {
        Ok(_) => Verdict::Alive(Evidence::new(Proof::Running.as_str())),
        Err(DescribeError::NotRunning { .. }) => {
            Verdict::Dead(Evidence::new(Proof::NoSuchProcess.as_str()))
        }
        Err(_) => Verdict::Unknown(Evidence::new(Proof::NotObserved.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    fn busy(record: &str, reason: BusyReason) -> Busy {
        Busy {
            lock_path: PathBuf::from("/app.db.write-lock"),
            holder: record::named(record.as_bytes()),
            reason,
            size: None,
            locked_by: None,
            waited: Duration::ZERO,
        }
    }

    fn told(record: &str, reason: BusyReason, locked_by: Option<i64>, ms: u64) -> String {
        Busy {
            locked_by: locked_by.map(|pid| Pid::new(pid).unwrap()),
            waited: Duration::from_millis(ms),
            ..busy(record, reason)
        }
        .to_string()
    }

    #[test]
    fn who_has_the_lock_is_sure_only_by_the_kernel_and_nobody_is_named_by_nothing() {
        let attribution = |record, reason| busy(record, reason).attribution();
        let (named, nothing) = (r#"{"protocol":2,"pid":4711}"#, "");
        let by = BusyReason::Kernel;
        let sure = attribution(named, by(Attribution::Confirmed));
        assert_eq!(sure, Attribution::Confirmed);
        let claimed = attribution(named, BusyReason::LegacyAlive);
        assert_eq!(claimed, Attribution::Unconfirmed);
        let by_nobody = attribution(nothing, BusyReason::Directory);
        assert_eq!(by_nobody, Attribution::None);
    }

    #[test]
    fn a_refusal_says_who_it_is_what_that_one_does_and_how_sure_it_is() {
        const INDEXER: &str = r#"{"protocol":2,"pid":4711,"argv0":"app","role":"indexer","purpose":"imports\nnotes"}"#;
        const PROGRAM: &str =
            r#"{"protocol":2,"pid":4711,"argv0":"app","role":"unknown","purpose":""}"#;
        const NUMBER: &str = r#"{"protocol":2,"pid":4711}"#;
        let by = BusyReason::Kernel;
        let told = [
            told(INDEXER, by(Attribution::Confirmed), None, 5_049),
            told(INDEXER, by(Attribution::Unconfirmed), Some(4711), 0),
            told(PROGRAM, by(Attribution::Unconfirmed), Some(77), 0),
            told(NUMBER, by(Attribution::Unconfirmed), None, 0),
            told("", by(Attribution::None), Some(77), 0),
            told("", by(Attribution::None), None, 90),
            told(NUMBER, BusyReason::LegacyAlive, None, 0),
            told("", BusyReason::Directory, None, 0),
        ];
        insta::assert_snapshot!(told.join("\n"), @r#"
        write lock "/app.db.write-lock" is busy, held by process 4711 (indexer: imports\nnotes); waited 5.0 s
        write lock "/app.db.write-lock" is busy, held by process 4711 (indexer: imports\nnotes)
        write lock "/app.db.write-lock" is busy, held by process 77; its record names process 4711 (app)
        write lock "/app.db.write-lock" is busy, perhaps held by process 4711
        write lock "/app.db.write-lock" is busy, held by process 77
        write lock "/app.db.write-lock" is busy; waited 0.1 s
        write lock "/app.db.write-lock" is busy: claimed by protocol 1, last written by process 4711
        write lock "/app.db.write-lock" is busy: a directory is at its record
        "#);
    }
}
