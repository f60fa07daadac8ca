//! One `stat` line after another, as the kernel prints them and as it never does.

use lease_procfs::{Pid, Stat, StatError};
use proptest::prelude::*;

/// What follows the name in every line here, with `987654` as field 22.
const AFTER: &[u8] = b" S 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0\n";

fn line(name: &[u8]) -> Vec<u8> {
    [b"4242 (", name, b")", AFTER].concat()
}

#[track_caller]
fn check(name: &[u8]) {
    let stat = Stat::parse(&line(name)).unwrap();
    assert_eq!(
        (stat.start_ticks.get(), stat.state),
        (987_654, b'S'),
        "{name:?}"
    );
    assert_eq!(
        (stat.pid, stat.parent, stat.group),
        (Pid::new(4_242).ok(), Some(Pid::INIT), Pid::new(4_242).ok()),
        "{name:?}"
    );
    assert!(!stat.leader_exited());
}

#[track_caller]
fn refuse(line: &[u8], expected: StatError) {
    assert_eq!(Stat::parse(line), Err(expected), "{line:?}");
}

// B5
#[test]
fn start_ticks_are_counted_after_the_last_parenthesis() {
    let line = b"4242 (a) (b) S 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0";
    assert_eq!(Stat::parse(line).unwrap().start_ticks.get(), 987_654);
}

// B6
// fault B37
#[test]
fn a_name_of_any_bytes_shifts_nothing() {
    let names: &[&[u8]] = &[
        b"codex",
        b"",
        b" ",
        b"               ",
        b"a b",
        b"(x)",
        b")",
        b"((((",
        b") (\xff\n",
        b") S 1 2 3 (",
        b") Z 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 1 (",
        b"\n\n",
        b"\xff\xfe\x00",
        "naïve ☃".as_bytes(),
    ];
    for name in names {
        check(name);
    }
}

// B8
#[test]
fn a_malformed_line_is_an_error_with_its_own_reason() {
    refuse(b"", StatError::NoName);
    refuse(b"4242 codex S 1", StatError::NoName);
    refuse(b"4242 (x) S 1 2 3", StatError::TooFewFields { found: 4 });
    refuse(b"4242 (x)", StatError::TooFewFields { found: 0 });
    let nineteen = b"4242 (x) S 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0";
    refuse(nineteen, StatError::TooFewFields { found: 19 });
    for ticks in [
        "98x654",
        "+5",
        "-1",
        "0x10",
        "1e9",
        "18446744073709551616",
        "9\u{661}",
    ] {
        let line = format!("4242 (x) S 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0");
        refuse(line.as_bytes(), StatError::NotANumber { field: 22 });
    }
    let no_state = b"4242 (x) 7 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0";
    refuse(no_state, StatError::NotAState);
}

#[test]
fn the_largest_ticks_are_read_exactly() {
    let line = b"1 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 18446744073709551615";
    assert_eq!(Stat::parse(line).unwrap().start_ticks.get(), u64::MAX);
}

#[test]
fn only_an_exited_leader_counts_as_exited() {
    for (state, exited) in [("R", false), ("T", false), ("Z", true), ("X", true)] {
        let line = format!("1 (x) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7");
        assert_eq!(
            Stat::parse(line.as_bytes()).unwrap().leader_exited(),
            exited,
            "{state}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_name_gives_the_same_ticks(name in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(Stat::parse(&line(&name)).unwrap().start_ticks.get(), 987_654);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _outcome = Stat::parse(&bytes);
    }

    #[test]
    fn a_cut_line_never_gives_other_ticks(cut in 0_usize..70) {
        let whole = line(b"x");
        let part = &whole[..cut.min(whole.len())];
        if let Ok(stat) = Stat::parse(part) {
            prop_assert!("987654".starts_with(&stat.start_ticks.to_string()));
        }
    }
}
