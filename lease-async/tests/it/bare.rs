//! A process that can have no further thread.

use std::fs;
use std::process::Command;

use lease_async::{AcquireError, AuthorityError, Leases, Memory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::rig::{KEY, SOON, ask, ordered, poll};

const ALONE: &str = "LEASE_NO_THREADS";
const TEST: &str = "bare::a_request_that_waits_where_no_thread_can_be_had_says_so_inside_a_runtime";

/// Room for the small things a thread is made with, and not for its stack.
const ROOM: u64 = 1 << 20;

/// Lets this process have next to no more memory. Answers what it could have before.
fn no_more_threads() -> Rlimit {
    let before = getrlimit(Resource::As);
    let sizes = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
    let page = u64::try_from(rustix::param::page_size()).unwrap();
    let current = Some(pages * page + ROOM);
    let narrow = Rlimit {
        current,
        maximum: before.maximum,
    };
    setrlimit(Resource::As, narrow).unwrap();
    before
}

#[tokio::test]
async fn a_request_that_waits_where_no_thread_can_be_had_says_so_inside_a_runtime() {
    if ordered(ALONE).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(ALONE, "1");
        let child = child.output().unwrap();
        let out = String::from_utf8_lossy(&child.stdout);
        let problems = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{out}{problems}");
        assert!(out.contains("1 passed"), "{out}");
        // The runtime that could not be started went without blocking this one.
        assert!(!problems.contains("panicked"), "{problems}");
        return;
    }
    let leases = Leases::new(Memory::new().unwrap()).unwrap();
    let (session, other) = (leases.connect("a").unwrap(), leases.connect("b").unwrap());
    let guard = ask(&session).await.unwrap();
    let before = no_more_threads();
    // Nobody could ring for it.
    let mut request = Box::pin(other.acquire(KEY).within(SOON).into_future());
    let answer = poll(request.as_mut());
    setrlimit(Resource::As, before).unwrap();
    let core::task::Poll::Ready(Err(AcquireError::Authority(error))) = answer else {
        panic!("{answer:?}");
    };
    assert!(matches!(error, AuthorityError::Unreachable(_)), "{error:?}");
    // As soon as there is a thread to be had, it waits.
    let mut request = Box::pin(other.acquire(KEY).within(SOON).into_future());
    assert!(poll(request.as_mut()).is_pending());
    drop(guard);
    drop(request.await.unwrap());
}
