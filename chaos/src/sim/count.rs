//! What happened in histories, counted.

/// Makes the enum and the names from one table.
macro_rules! counts {
    ($($name:ident = $text:literal,)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count { $($name,)* }

        impl Count {
            pub(crate) const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text),)*];
        }
    };
}

counts! {
    Histories = "histories",
    Steps = "steps",
    Calls = "calls",
    Granted = "leases granted",
    Reentered = "re-entries",
    Refused = "refusals",
    Asked = "questions about holders",
    Queued = "requests queued",
    HandedOver = "leases handed to waiters",
    TimedOut = "waits timed out",
    Abandoned = "grants given back unused",
    Reclaimed = "leases ended by term",
    TakenOver = "leases ended by proof",
    Disconnected = "leases ended by disconnect",
    Revoked = "leases revoked",
    Adopted = "leases adopted",
    FailedWhole = "operations failed, lease released",
    FailedPart = "operations failed, lease kept",
    Stale = "stale tokens refused",
    StaleEvidence = "answers older than a hand-over",
    Unknown = "verdicts unknown",
    Recycled = "pids recycled",
    SteppedBack = "clock steps back noticed",
    Restarts = "authority restarts",
    Written = "writes let in",
    Fenced = "late writes fenced",
}

/// The sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([u64; Count::ALL.len()]);

impl Counts {
    pub(crate) fn add(&mut self, count: Count, more: u64) {
        if let Some(sum) = self.place(count).and_then(|at| self.0.get_mut(at)) {
            *sum = sum.saturating_add(more);
        }
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        self.place(count)
            .and_then(|at| self.0.get(at))
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Every sum that is not zero, with its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Count::ALL.iter().zip(self.0);
        all.map(|((_, name), sum)| (*name, sum))
            .filter(|(_, sum)| *sum > 0)
    }

    fn place(&self, count: Count) -> Option<usize> {
        Count::ALL.iter().position(|(known, _)| *known == count)
    }
}
