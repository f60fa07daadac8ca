//! Any text behind the prefix is a binding or malformed, and a general reader agrees.

use std::fmt::Write as _;

use lease_procfs::binding::{PREFIX, RuntimeBinding};
use proptest::prelude::*;

use crate::binding::{HOLDER, TOP, accept, refuse, text_of, valid};

/// What a general reader of JSON makes of an accepted text.
#[track_caller]
fn agrees_with_a_general_reader(bytes: &[u8], binding: &RuntimeBinding) {
    let json: serde_json::Value = serde_json::from_slice(&bytes[PREFIX.len()..]).unwrap();
    let holder = &json["holder"];
    assert_eq!(holder["pid"].as_i64(), Some(binding.pid().into()));
    assert_eq!(
        holder["start_ticks"].as_u64(),
        Some(binding.start_ticks().get())
    );
    assert_eq!(holder["client_id"].as_str(), Some(binding.client()));
    assert_eq!(holder["session_id"].as_str(), binding.session());
    assert_eq!(holder["run_id"].as_str(), binding.run());
    assert_eq!(
        holder["boot_id"].as_str(),
        Some(binding.boot_id().to_string().as_str())
    );
    assert_eq!(
        json["lease_id"].as_str(),
        binding.lease().map(|id| id.to_string()).as_deref()
    );
    assert_eq!(json["kind"].as_str(), Some(binding.kind().as_str()));
    assert_eq!(
        (
            json.as_object().unwrap().len(),
            holder.as_object().unwrap().len()
        ),
        (3, 6)
    );
}

#[track_caller]
fn decides(bytes: &[u8]) -> bool {
    match RuntimeBinding::decode(bytes) {
        Ok(Some(binding)) => {
            agrees_with_a_general_reader(bytes, &binding);
            accept(&binding.encode()) == binding
        }
        Ok(None) => !bytes.starts_with(PREFIX.as_bytes()),
        Err(_) => refuse(bytes).at <= bytes.len(),
    }
}

/// Parts that random texts are made of, so that some come far.
const PARTS: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"holder\"",
    b"\"kind\"",
    b"\"lease_id\"",
    b"\"pid\"",
    b"\"agent\"",
    b"null",
    b"true",
    b"1",
    b"-1",
    b"1e3",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b" ",
    b"\n",
    b"\"boot_id\"",
    b"\"11111111-1111-4111-8111-111111111111\"",
];

fn quoted(text: &str, escaped: u64) -> String {
    let mut json = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        let must = character < ' ' || matches!(character, '"' | '\\');
        if must || escaped >> (at % 64) & 1 == 1 {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(json, "\\u{unit:04X}").unwrap();
            }
        } else {
            json.push(character);
        }
    }
    json + "\""
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 10_000, ..ProptestConfig::default() })]

    // B50
    #[test]
    fn any_bytes_behind_the_prefix_are_a_binding_or_malformed(
        bytes in prop::collection::vec(any::<u8>(), 0..128),
    ) {
        prop_assert!(decides(&[PREFIX.as_bytes(), &bytes].concat()));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_parts_of_a_binding_are_a_binding_or_malformed(
        parts in prop::collection::vec(prop::sample::select(PARTS.as_slice()), 0..40),
    ) {
        prop_assert!(decides(&[PREFIX.as_bytes(), &parts.concat()].concat()));
    }

    #[test]
    fn a_changed_binding_is_a_binding_or_malformed(
        at in any::<prop::sample::Index>(),
        cut in 0_usize..4,
        put in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = valid().into_bytes();
        let at = at.index(bytes.len());
        let end = bytes.len().min(at + cut);
        bytes.splice(at..end, put);
        prop_assert!(decides(&bytes));
    }

    #[test]
    fn a_cut_binding_is_malformed(at in any::<prop::sample::Index>()) {
        let text = valid();
        let at = PREFIX.len() + at.index(text.len() - PREFIX.len());
        refuse(&text[..at]);
    }

    #[test]
    fn any_spelling_of_a_binding_is_read_and_written_in_one(
        session in "[^\0]{1,40}", pid in 1..=i32::MAX, ticks in 1..=u64::MAX, escaped in any::<u64>(),
        order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let (pid, ticks, label) = (pid.to_string(), ticks.to_string(), quoted(&session, escaped));
        let mut parts = HOLDER;
        parts[0].1 = &pid;
        parts[2].1 = &ticks;
        parts[4].1 = &label;
        let parts: Vec<_> = order.iter().map(|&at| parts[at]).collect();
        let text = text_of(&parts, &TOP);
        prop_assert!(decides(text.as_bytes()));
        let binding = accept(&text);
        prop_assert_eq!(binding.session(), Some(session.as_str()));
        prop_assert_eq!((binding.pid().to_string(), binding.start_ticks().to_string()), (pid, ticks));
    }
}
