//! What happens to the record while one side holds, and what the other side makes of it.

use std::fs;
use std::path::Path;

use crate::rig::{Language, Place, Side, Writer};

/// Something that happens to a record, and whom it names afterwards.
type Harm = (&'static str, fn(&Path), &'static str);

const HARMS: [Harm; 7] = [
    (
        "deleted",
        |path| fs::remove_file(path).unwrap(),
        "None None",
    ),
    (
        "torn",
        |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[20..].fill(b' ');
            fs::write(path, bytes).unwrap();
        },
        "None None",
    ),
    ("emptied", |path| fs::write(path, "").unwrap(), "None None"),
    (
        "replaced by a peer's",
        |path| {
            put(
                path,
                r#"{"protocol":2,"pid":1,"token":"1:0:ab:1","created_at_ms":5,"purpose":"other"}"#,
            );
        },
        "1 other",
    ),
    (
        "replaced by a number as JavaScript writes it",
        |path| {
            put(
                path,
                r#"{"protocol":2.0,"pid":1.0,"token":"1:0:ab:1","purpose":"real"}"#,
            );
        },
        "1 real",
    ),
    (
        "replaced by one whose label was cut in the middle of a character",
        |path| {
            put(
                path,
                r#"{"protocol":2,"pid":1,"token":"1:0:ab:1","purpose":"half","label":"\ud83d"}"#,
            );
        },
        "1 half",
    ),
    (
        "replaced by a torn one",
        |path| put(path, r#"{"protocol":2,"pid":1,"tok"#),
        "None None",
    ),
];

/// Puts another file of a record's size at the path.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, format!("{text:<1024}")).unwrap();
    fs::rename(new, path).unwrap();
}

/// Whatever happens to the record of a holder: the other side is kept out, nothing that lies there
/// is taken for a hold, and every next one of either side signs what lies at the path.
pub(crate) fn harmed_while_held(language: Language) {
    let peer = Side::Peer(language);
    for (holds, waits) in [(Side::Ours, peer), (peer, Side::Ours)] {
        let place = Place::new();
        let mut holder = Writer::start(holds, &place);
        let mut other = Writer::start(waits, &place);
        // Both have the record open.
        for writer in [&mut other, &mut holder] {
            writer.acquires();
            writer.releases();
        }
        for (what, harm, named) in HARMS {
            holder.acquires();
            harm(&place.record());
            let answer = other.does("acquire 60");
            let expected = format!("busy {named}");
            assert!(
                answer.starts_with(&expected),
                "{what}: {holds:?} holds: {answer}"
            );
            if holds == Side::Ours {
                assert_eq!(holder.does("check"), "Some(Ok(()))", "{what}");
            }
            holder.releases();
            for _round in 0..2 {
                for writer in [&mut other, &mut holder] {
                    writer.acquires();
                    signed(&place, writer.pid(), what);
                    writer.releases();
                }
            }
        }
    }
}

/// The record at the path is whole and names this process.
#[track_caller]
fn signed(place: &Place, pid: u32, what: &str) {
    let text = fs::read_to_string(place.record()).unwrap();
    assert_eq!(text.len(), 1_024, "{what}");
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object["protocol"], 2, "{what}");
    assert_eq!(object["pid"], pid, "{what}");
}

/// What neither side knows keeps both out, and stays.
pub(crate) fn not_recognised(language: Language) {
    for text in [
        r#"{"protocol":2,"pid":1,"pid":2}"#,
        r#"{"protocol":3,"pid":1}"#,
        r#"{"protocol":"2","pid":1}"#,
        r#"{"protocol":true,"pid":1}"#,
        r#"{"pid":"1"}"#,
        "null",
    ] {
        let place = Place::new();
        put(&place.record(), text);
        let before = fs::read(place.record()).unwrap();
        let mut sides = [Side::Ours, Side::Peer(language)].map(|side| Writer::start(side, &place));
        for writer in &mut sides {
            let answer = writer.does("acquire 60");
            assert!(answer.starts_with("busy"), "{text}: {writer:?}: {answer}");
            assert!(
                before == fs::read(place.record()).unwrap(),
                "{text}: {writer:?}"
            );
        }
        // Nobody waits with the kernel lock in hand, so both work as soon as it is gone.
        fs::remove_file(place.record()).unwrap();
        for writer in &mut sides {
            writer.acquires();
            writer.releases();
        }
    }
}
