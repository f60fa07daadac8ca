//! Settings as text.

use std::fs;
use std::time::Duration;

use lease_sqlite::{LockOptions, WaitBudget, config};

use crate::rig::{Place, now};

const fn milliseconds(time: u64) -> Duration {
    Duration::from_millis(time)
}

// C66, C76
#[test]
fn waits_and_polls_have_floors_and_defaults_and_nothing_is_endless_by_accident() {
    let waits = [
        ("-5", 0),
        ("12.9", 12),
        ("abc", 0),
        ("", 0),
        ("60", 60),
        ("inf", 0),
        ("NaN", 0),
        ("-inf", 0),
        ("1e300", u64::MAX),
    ];
    for (text, expected) in waits {
        let expected = WaitBudget::Within(milliseconds(expected));
        assert_eq!(config::wait_budget(text), expected, "{text}");
    }
    let polls = [
        ("0", 1),
        ("-5", 1),
        ("0.5", 1),
        ("12.9", 12),
        ("abc", 25),
        ("inf", 25),
    ];
    for (text, expected) in polls {
        assert_eq!(config::poll(text), milliseconds(expected), "{text}");
    }
    assert_eq!(WaitBudget::NOW, WaitBudget::Within(Duration::ZERO));
}

// S50, C93
#[test]
fn the_sweep_is_off_only_for_exactly_0_and_cannot_fail_an_open() {
    for (text, expected) in [
        (Some("0"), false),
        (Some("1"), true),
        (Some("false"), true),
        (Some(""), true),
        (None, true),
    ] {
        assert_eq!(config::boot_sweep(text), expected, "{text:?}");
        let place = Place::new();
        now(&place.lock()).unwrap().release().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let record = format!("{{\"protocol\":2,\"pid\":{}}}", child.id());
        fs::write(place.record(), record).unwrap();
        let mut options = LockOptions::new();
        if !config::boot_sweep(text) {
            options = options.no_boot_sweep();
        }
        options.open(place.database()).unwrap();
        assert_eq!(place.record().exists(), !expected, "{text:?}");
    }
    let place = Place::new();
    fs::create_dir(place.record()).unwrap();
    fs::create_dir(place.mutex()).unwrap();
    drop(place.lock());
}
