//! Settings as text, from wherever a program keeps them. Pure; no environment is read here.

use std::time::Duration;

use crate::limits::{POLL, POLL_FLOOR};
use crate::wait::WaitBudget;

/// Reads a wait in milliseconds: below zero is zero, fractions are cut.
///
/// Anything else, `inf` too, is zero: waiting for ever is said by [`WaitBudget::Forever`] alone.
#[must_use]
pub fn wait_budget(text: &str) -> WaitBudget {
    WaitBudget::Within(milliseconds(text).unwrap_or(Duration::ZERO))
}

/// Reads a poll interval in milliseconds: at least 1, fractions are cut; 25 if it is no number.
#[must_use]
pub fn poll(text: &str) -> Duration {
    milliseconds(text).unwrap_or(POLL).max(POLL_FLOOR)
}

/// Reads whether to sweep at open: yes, unless it is set to exactly `0`.
#[must_use]
pub fn boot_sweep(text: Option<&str>) -> bool {
    text != Some("0")
}

fn milliseconds(text: &str) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    if !number.is_finite() {
        return None;
    }
    // Through text, because no cast from a real number is exact.
    let whole = format!("{:.0}", number.max(0.0).trunc());
    Some(Duration::from_millis(whole.parse().unwrap_or(u64::MAX)))
}
