//! What every error says, and what it points at.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use lease_procfs::{
    BootIdError, DescribeError, IdentityReason, LabelError, LaunchId, Pid, PidError,
    ProcessIdentity, ScanError, StartTicks, StatError, TargetPathError, WatchError,
};

fn io_error() -> io::Error {
    io::Error::from(io::ErrorKind::PermissionDenied)
}

/// Every variant of every error of this crate about one process or label.
fn all() -> Vec<Box<dyn Error>> {
    let pid = Pid::new(4_242).unwrap();
    let part = "client";
    let launch = "x".parse::<LaunchId>().unwrap_err();
    let ticks = "x".parse::<StartTicks>().unwrap_err();
    vec![
        Box::new(BootIdError::Empty),
        Box::new(BootIdError::NotCanonical),
        Box::new(BootIdError::Sentinel),
        Box::new(DescribeError::BootId {
            source: BootIdError::Empty,
        }),
        Box::new(DescribeError::BootIdUnreadable { source: io_error() }),
        Box::new(DescribeError::Hidden { pid }),
        Box::new(DescribeError::NotRunning { pid }),
        Box::new(DescribeError::ProcMissing),
        Box::new(DescribeError::ProcNotOurs),
        Box::new(DescribeError::StartsAhead { pid }),
        Box::new(DescribeError::Stat {
            pid,
            source: StatError::NoName,
        }),
        Box::new(DescribeError::Thread { pid }),
        Box::new(DescribeError::Unreadable {
            pid,
            source: io_error(),
        }),
        Box::new(DescribeError::Unsupported),
        Box::new("boot=x".parse::<ProcessIdentity>().unwrap_err()),
        Box::new(IdentityReason::BootId(BootIdError::Sentinel)),
        Box::new(IdentityReason::Launch(launch)),
        Box::new(IdentityReason::Missing { key: "pid" }),
        Box::new(IdentityReason::Namespace),
        Box::new(IdentityReason::Pid(PidError::NotANumber)),
        Box::new(IdentityReason::PidfdInode),
        Box::new(IdentityReason::StartTicks(ticks)),
        Box::new(IdentityReason::Trust),
        Box::new(IdentityReason::Unexpected),
        Box::new(LabelError::Character { part, at: 3 }),
        Box::new(LabelError::Empty { part }),
        Box::new(LabelError::TooLong {
            part,
            bytes: 129,
            most: 128,
        }),
        Box::new(launch),
        Box::new(PidError::NotANumber),
        Box::new(PidError::NotPositive),
        Box::new(PidError::TooLarge),
        Box::new(ticks),
        Box::new(StatError::NoName),
        Box::new(StatError::NotANumber { field: 22 }),
        Box::new(StatError::NotAState),
        Box::new(StatError::OtherProcess),
        Box::new(StatError::TooFewFields { found: 4 }),
    ]
}

/// Every variant of the errors of what looks at more than one process.
fn of_work_and_watches() -> Vec<Box<dyn Error>> {
    vec![
        Box::new(ScanError::Exhausted {
            source: Arc::new(io_error()),
        }),
        Box::new(ScanError::Unlisted {
            source: Arc::new(io_error()),
        }),
        Box::new(ScanError::Unsupported),
        Box::new(TargetPathError::NotAbsolute),
        Box::new(TargetPathError::NotResolved),
        Box::new(TargetPathError::Nul),
        Box::new(TargetPathError::Unresolvable {
            kind: io::ErrorKind::PermissionDenied,
        }),
        Box::new(WatchError::Exhausted { source: io_error() }),
        Box::new(WatchError::Failed { source: io_error() }),
        Box::new(WatchError::Full { most: 4_096 }),
        Box::new(WatchError::Inherited),
        Box::new(WatchError::Unseen {
            evidence: lease_core::Evidence::new("hidden"),
        }),
        Box::new(WatchError::Unsupported),
    ]
}

#[test]
fn every_error_says_what_is_wrong() {
    let mut text = String::new();
    for error in all().into_iter().chain(of_work_and_watches()) {
        let said = error.to_string();
        assert!(!said.ends_with('.') && !said.contains('\n'), "{said}");
        write!(text, "{said}").unwrap();
        if let Some(source) = error.source() {
            assert!(!said.contains(&source.to_string()), "{said}");
            write!(text, " <- {source}").unwrap();
        }
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}
