//! The loop around a decision that needs evidence.

use lease_core::{Answer, HolderLiveness};

use super::ledger::Asked;
use super::refused::Refused;
use crate::holder::ProcessHolder;
use crate::limits::ROUNDS;

/// Makes a call, observes whom it asks about, and makes it again with the answers.
///
/// `call` takes the lock of the leases for itself and gives it back before it returns, so nothing is
/// locked while somebody is observed. Each holder is observed once; what was seen stays among the
/// answers, and the core knows by itself which of them still count.
///
/// After [`ROUNDS`] rounds in which the lease in the way became another one each time, the last
/// question is the answer.
///
/// # Errors
///
/// What `call` refuses.
pub fn observing<T>(
    liveness: &impl HolderLiveness<ProcessHolder>,
    mut call: impl FnMut(&[Answer]) -> Result<Asked<T>, Refused>,
) -> Result<Asked<T>, Refused> {
    let mut answers = Vec::new();
    for _ in 1..ROUNDS {
        let questions = match call(&answers)? {
            Asked::Ask(questions) => questions,
            done @ Asked::Done(_) => return Ok(done),
        };
        let observed = questions
            .iter()
            .map(|question| question.answer(liveness.observe(question)));
        answers.extend(observed);
    }
    call(&answers)
}
