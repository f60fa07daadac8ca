//! Waiting: one deadline, whatever is in the way, and a last attempt at it.

use std::sync::Arc;
use std::time::Duration;

use crate::busy::Busy;
use crate::error::AcquireError;
use crate::hold::{Hold, Lane};
use crate::lock::Shared;
use crate::options::Settings;
use crate::state::{Attempt, InTheWay, Request};

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a wait has an end or it has not")]
pub enum WaitBudget {
    /// At most this long; zero means one attempt and no sleep.
    Within(Duration),
    /// Until it is granted.
    Forever,
}

impl WaitBudget {
    /// One attempt.
    pub const NOW: Self = Self::Within(Duration::ZERO);

    /// Returns what is left, or `None` for ever.
    const fn left(self, waited: Duration) -> Option<Duration> {
        match self {
            Self::Within(time) => Some(time.saturating_sub(waited)),
            Self::Forever => None,
        }
    }
}

/// Takes the lock, waiting within the budget.
pub(crate) fn acquire(
    shared: &Arc<Shared>,
    settings: &Settings,
    lane: &Lane,
    budget: WaitBudget,
) -> Result<Hold, AcquireError> {
    shared.check_image()?;
    let request = Request {
        paths: &shared.paths,
        settings,
        lane: lane.number(),
    };
    let started = settings.timing.now();
    let mut contended = false;
    loop {
        let in_the_way = match shared.state().attempt(request)? {
            Attempt::Granted(number, mut granted) => {
                granted.contended = contended;
                if contended {
                    granted.waited = settings.timing.now().saturating_sub(started);
                }
                return Ok(Hold::new(Arc::clone(shared), number, granted));
            }
            Attempt::Busy(in_the_way) => in_the_way,
        };
        let waited = settings.timing.now().saturating_sub(started);
        let left = budget.left(waited);
        if left.is_some_and(|left| left.is_zero()) {
            return Err(refused(shared, *in_the_way, waited));
        }
        contended = true;
        let time = left.map_or(settings.poll, |left| left.min(settings.poll));
        if settings.is_timing_given {
            settings.timing.sleep(time);
        } else {
            shared.rest(time, &*settings.timing);
        }
    }
}

fn refused(shared: &Shared, in_the_way: InTheWay, waited: Duration) -> AcquireError {
    AcquireError::Busy(Box::new(Busy {
        lock_path: shared.paths.record.clone(),
        holder: in_the_way.holder,
        reason: in_the_way.reason,
        size: in_the_way.size,
        locked_by: in_the_way.locked_by,
        waited,
    }))
}
