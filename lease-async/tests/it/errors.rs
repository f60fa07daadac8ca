//! An error says what was not done, and its sources why, each in its own words.

use core::error::Error;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::sync::Arc;

use lease_async::{Authority, AuthorityError, Leases, Memory, Reply, RunError, SessionHolder};
use lease_core::Call;

use crate::passing_on::passes_on_unanswered;
use crate::rig::KEY;

/// An authority whose line can be cut.
struct Far {
    memory: Memory,
    cut: Arc<AtomicBool>,
}

impl Authority for Far {
    type Holder = SessionHolder;

    passes_on_unanswered!(self => self.memory);

    fn call(&self, call: Call<SessionHolder>) -> Reply<SessionHolder> {
        if self.cut.load(Ordering::SeqCst) {
            let cause = io::Error::other("the line is cut");
            return Reply::Ready(Err(AuthorityError::Unreachable(cause.into())));
        }
        self.memory.call(call)
    }
}

fn far() -> (Leases, Arc<AtomicBool>) {
    let cut = Arc::new(AtomicBool::new(false));
    let far = Far {
        memory: Memory::new().unwrap(),
        cut: Arc::clone(&cut),
    };
    (Leases::new(far).unwrap(), cut)
}

/// The error and its sources, as who prints them all sees them.
fn told(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut told = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        told.push(error.to_string());
        cause = error.source();
    }
    told
}

#[tokio::test]
async fn an_end_that_was_not_accepted_says_why_down_to_the_cause() {
    let (leases, cut) = far();
    let session = leases.connect("a").unwrap();
    let guard = session.acquire(KEY).await.unwrap();
    let operation = guard.begin().await.unwrap();
    let work = async {
        cut.store(true, Ordering::SeqCst);
        Ok::<_, io::Error>(7)
    };
    let error = operation.run(work).await.unwrap_err();
    assert!(
        matches!(error, RunError::NotEnded { result: Ok(7), .. }),
        "{error:?}"
    );
    assert_eq!(
        told(&error),
        [
            "the operation was not ended",
            "the authority cannot be reached",
            "the line is cut"
        ]
    );
    cut.store(false, Ordering::SeqCst);
}

#[tokio::test]
async fn a_release_that_failed_says_why_down_to_the_cause() {
    let (leases, cut) = far();
    let session = leases.connect("a").unwrap();
    let guard = session.acquire(KEY).await.unwrap();
    cut.store(true, Ordering::SeqCst);
    let error = guard.release().await.unwrap_err();
    assert_eq!(
        told(&error),
        [
            "not released",
            "the authority cannot be reached",
            "the line is cut"
        ]
    );
    cut.store(false, Ordering::SeqCst);
}
