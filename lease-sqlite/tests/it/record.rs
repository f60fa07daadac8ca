//! The record: how it is written, kept, and read.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use lease_sqlite::LockOptions;

use crate::rig::{Place, Writer, now};

fn bytes(place: &Place) -> Vec<u8> {
    fs::read(place.record()).unwrap()
}

// C12, C18, C19
#[test]
fn a_record_has_its_size_its_mode_and_one_inode_through_a_hundred_holds() {
    let place = Place::new();
    let lock = place.lock();
    let mut inodes = Vec::new();
    for _hold in 0..100 {
        let hold = now(&lock).unwrap();
        let held = fs::metadata(place.record()).unwrap();
        let written = bytes(&place);
        assert_eq!(written.len(), 1_024);
        let end = written.iter().rposition(|byte| *byte == b'}').unwrap();
        assert!(written[end + 1..].iter().all(|byte| *byte == b' '));
        hold.release().unwrap();
        let free = fs::metadata(place.record()).unwrap();
        assert_eq!(bytes(&place), written, "a release writes nothing");
        let stamp = (free.mtime(), free.mtime_nsec());
        assert_eq!(stamp, (held.mtime(), held.mtime_nsec()));
        inodes.push(free.ino());
    }
    inodes.dedup();
    assert_eq!(inodes.len(), 1);
    let mode = fs::metadata(place.record()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn no_source_of_this_crate_opens_a_file_for_appending() {
    let sources = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut seen = 0;
    for source in sources {
        let text = fs::read_to_string(source.unwrap().path()).unwrap();
        assert!(!text.contains("APPEND") && !text.contains(".append("));
        seen += 1;
    }
    assert!(seen > 10);
}

// C23
#[test]
fn each_hold_has_a_token_of_its_own_and_an_entry_into_it_has_the_same() {
    let place = Place::new();
    let lock = place.lock();
    let mut launches = Vec::new();
    for number in 1..=3 {
        let hold = now(&lock).unwrap();
        let entry = now(&lock).unwrap();
        assert_eq!(entry.granted().token, hold.granted().token);
        let token = lock.last_writer().unwrap().token.unwrap();
        assert_eq!(*token, *hold.granted().token);
        let (launch, end) = token.rsplit_once(':').unwrap();
        assert_eq!(end, number.to_string());
        launches.push(launch.to_owned());
    }
    launches.dedup();
    assert_eq!(Writer::start(&place).does("acquire 0"), "granted depth=1");
    let token = lock.last_writer().unwrap().token.unwrap();
    let random = |token: &str| token.split(':').nth(2).map(str::to_owned);
    assert_ne!(random(&token), random(&launches[0]));
    assert_eq!(launches.len(), 1);
    let parts: Vec<&str> = launches[0].split(':').collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[2].len(), 16);
    assert!(parts[2].bytes().all(|byte| byte.is_ascii_hexdigit()));
}

// C24
#[test]
fn what_is_not_said_has_a_default_and_a_purpose_is_short() {
    let place = Place::new();
    let said = |options: LockOptions| {
        let lock = options.open(place.database()).unwrap();
        now(&lock).unwrap().release().unwrap();
        let last = lock.last_writer().unwrap();
        [last.role, last.argv0, last.purpose, last.label].map(Option::unwrap)
    };
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    assert_eq!(said(LockOptions::new()), ["unknown", program, "", ""]);
    let named = LockOptions::new().label("sync");
    assert_eq!(said(named), ["unknown", program, "sync", "sync"]);
    let long = LockOptions::new()
        .purpose("ä".repeat(200))
        .role("r")
        .argv0("a");
    assert_eq!(said(long), ["r", "a", &"ä".repeat(80), ""]);
}

#[test]
fn what_cannot_be_read_names_nobody_and_is_no_error() {
    let half = format!("{{\"protocol\":2,\"pid\":{}", " ".repeat(100));
    let table = [
        ("empty", String::new()),
        ("half", half),
        ("blanks", " ".repeat(1_024)),
        ("a number", "7".to_owned()),
        ("no pid", "{\"protocol\":2}".to_owned()),
    ];
    for (name, text) in table {
        let place = Place::new();
        fs::write(place.record(), text).unwrap();
        assert_eq!(place.lock().last_writer(), None, "{name}");
    }
    let place = Place::new();
    assert_eq!(place.lock().last_writer(), None, "missing");
    fs::create_dir(place.record()).unwrap();
    assert_eq!(place.lock().last_writer(), None, "a directory");
    fs::remove_dir(place.record()).unwrap();
    std::os::unix::fs::symlink("nothing", place.record()).unwrap();
    assert_eq!(place.lock().last_writer(), None, "a link");
}

#[cfg(feature = "test-util")]
mod parser {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use lease_procfs::Pid;
    use lease_sqlite::testing::{class_of, named, rendered};
    use proptest::prelude::*;

    use crate::rig::{Place, now};

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    // C21
    #[test]
    fn the_record_is_the_one_of_the_protocol() {
        let record = rendered(
            pid(700),
            "700:1:00000000000000ff:1",
            1_700_000_000_000,
            ["sync", "walle", "worker", "nightly \"sync\""],
            None,
        );
        let text = String::from_utf8(record).unwrap();
        let expected = concat!(
            r#"{"protocol":2,"pid":700,"thread_id":1,"token":"700:1:00000000000000ff:1","created_at_ms":1700000000000,"acquiredAt":1700000000000,"#,
            r#""role":"worker","argv0":"walle","purpose":"nightly \"sync\"","label":"sync","check":"5449972f7f6dda9f"}"#,
        );
        assert_eq!(text.trim_end(), expected);
        let last = named(text.as_bytes()).unwrap();
        assert_eq!((last.pid, last.thread), (pid(700), Some(1)));
        assert_eq!(last.acquired_at_ms, Some(1_700_000_000_000));
        assert_eq!(last.purpose.as_deref(), Some("nightly \"sync\""));
        let more = text.replace("{\"protocol\":2", "{\"later\":[{\"a\":1}],\"protocol\":2.0");
        assert_eq!(
            class_of(more.as_bytes(), 1_024),
            "current, names nobody",
            "the sum is off"
        );
        let foreign = r#"{"later":[{"a":1}],"protocol":2.0,"pid":700}"#;
        assert_eq!(class_of(foreign.as_bytes(), 40), "current");
    }

    // C38
    #[test]
    fn every_content_has_its_class() {
        let good =
            String::from_utf8(rendered(pid(7), "7:1:0:1", 1, ["", "", "", ""], None)).unwrap();
        let wide = |text: &str| format!("{text:<1024}");
        let deep = format!("{}{}", "[".repeat(4_000), "]".repeat(4_000));
        let table: [(&str, &str); 31] = [
            ("", "current, names nobody"),
            (&wide("{\"protocol\":2,\"pid\":"), "current, names nobody"),
            (&wide(""), "current, names nobody"),
            (&good, "current"),
            (
                &good.replace("\"pid\":7", "\"pid\":8"),
                "current, names nobody",
            ),
            ("{\"protocol\":2,\"pid\":", "unrecognised"),
            (&format!("{good}{good}"), "unrecognised"),
            ("null", "unrecognised"),
            ("7", "unrecognised"),
            ("[]", "unrecognised"),
            ("{}", "unrecognised"),
            (r#"{"pid":0}"#, "unrecognised"),
            (r#"{"pid":-7}"#, "unrecognised"),
            (r#"{"pid":7.5}"#, "unrecognised"),
            (r#"{"pid":"700"}"#, "unrecognised"),
            (r#"{"pid":700}"#, "legacy"),
            (r#"{"pid":700.0}"#, "legacy"),
            (r#"{"protocol":1,"pid":700}"#, "legacy"),
            (r#"{"protocol":"2","pid":700}"#, "unrecognised"),
            (r#"{"protocol":99,"pid":700}"#, "unrecognised"),
            (r#"{"protocol":2,"pid":700,"pid":701}"#, "unrecognised"),
            (r#"{"protocol":2,"pid":700,"p\u0069d":701}"#, "unrecognised"),
            (
                &wide(r#"{"protocol":2,"pid":7,"later":{"a":1,"a":2}}"#),
                "unrecognised",
            ),
            (&deep, "unrecognised"),
            // Half a character, as languages leave it that cut texts of 16 bits.
            (r#"{"protocol":2,"pid":7,"label":"\ud83d"}"#, "current"),
            (
                &wide(r#"{"protocol":2,"pid":7,"label":"\uDE00\ud83d\ude00\\ud83d"}"#),
                "current",
            ),
            (r#"{"pid":700,"label":"\ud83d"}"#, "legacy"),
            (&wide(r#"{"pid":700,"label":"\ud83d"}"#), "legacy"),
            (
                &wide(r#"{"protocol":99,"pid":700,"label":"\ud83d"}"#),
                "unrecognised",
            ),
            (
                &wide(r#"{"protocol":2,"pid":7,"label":"\ud83"}"#),
                "current, names nobody",
            ),
            (&wide(r#"{"pid":700,"x":1e999}"#), "unrecognised"),
        ];
        for (text, expected) in table {
            let size = u64::try_from(text.len()).unwrap();
            let shown = text.get(..60).unwrap_or(text);
            assert_eq!(class_of(text.as_bytes(), size), expected, "{shown}");
        }
        let long = " ".repeat(1_048_576);
        assert_eq!(
            class_of(&long.as_bytes()[..65_536], 1_048_576),
            "unrecognised"
        );
        assert_eq!(class_of(&[0xff; 1_024], 1_024), "current, names nobody");
    }

    // C25
    #[test]
    fn a_record_fits_whatever_its_texts_are() {
        let place = Place::new();
        let long = "\u{1}😀ä\"x".repeat(1_250);
        let lock = lease_sqlite::LockOptions::new()
            .label(long.clone())
            .role(long.clone())
            .purpose(long.clone())
            .argv0(long)
            .open(place.database())
            .unwrap();
        let mut inode = None;
        for number in 1..=100 {
            let hold = now(&lock).unwrap();
            let record = fs::read(place.record()).unwrap();
            assert_eq!(record.len(), 1_024);
            assert_eq!(class_of(&record, 1_024), "current");
            let last = named(&record).unwrap();
            assert_eq!(last.token.as_deref(), Some(&*hold.granted().token));
            assert!(hold.granted().token.ends_with(&format!(":{number}")));
            let found = fs::metadata(place.record()).unwrap();
            assert_eq!(*inode.get_or_insert_with(|| found.ino()), found.ino());
            hold.release().unwrap();
            let after = fs::metadata(place.record()).unwrap();
            assert_eq!(
                (after.mtime(), after.mtime_nsec()),
                (found.mtime(), found.mtime_nsec())
            );
        }
    }

    proptest! {
        #[test]
        fn any_texts_give_a_record_that_reads_back(
            label in ".{0,300}", argv0 in ".{0,300}", role in any::<String>(), purpose in ".{0,300}",
            number in 1_i64..=4_000_000, stamp in any::<i64>(),
        ) {
            let record = rendered(pid(number), "1:1:0:1", stamp, [&label, &argv0, &role, &purpose], None);
            prop_assert_eq!(record.len(), 1_024);
            prop_assert_eq!(class_of(&record, 1_024), "current");
            let last = named(&record).unwrap();
            prop_assert_eq!(last.pid, pid(number));
            prop_assert_eq!(last.acquired_at_ms, Some(stamp));
            prop_assert_eq!(last.token.as_deref(), Some("1:1:0:1"));
            prop_assert!(label.starts_with(&last.label.unwrap()));
            prop_assert!(argv0.starts_with(&last.argv0.unwrap()));
            prop_assert!(role.starts_with(&last.role.unwrap()));
            prop_assert!(purpose.starts_with(&last.purpose.unwrap()));
        }

        #[test]
        fn any_bytes_have_a_class(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let size = u64::try_from(bytes.len()).unwrap();
            let class = class_of(&bytes, size);
            // Bytes that are no record of anybody never pass for a dead claim.
            prop_assert_ne!(class, "legacy");
            let _named = named(&bytes);
        }

        #[test]
        fn a_record_that_is_cut_or_mixed_names_nobody_or_the_one_who_wrote_it(
            cut in 0_usize..1_024, first in 1_i64..1_000, second in 1_i64..1_000,
            old_texts in prop::array::uniform4("[a-z]{0,150}"), new_texts in prop::array::uniform4("[a-z]{0,150}"),
        ) {
            let write = |number, texts: &[String; 4]| {
                rendered(pid(number), "t", number, texts.each_ref().map(|text| &**text), None)
            };
            let (old, new) = (write(first, &old_texts), write(second, &new_texts));
            let mut mixed = new[..cut].to_vec();
            mixed.extend_from_slice(&old[cut..]);
            // Nobody has to look at it: the next holder writes it anew.
            prop_assert!(class_of(&mixed, 1_024).starts_with("current"), "{}", String::from_utf8_lossy(&mixed));
            let found = named(&mixed).map(|last| last.pid);
            prop_assert!(found.is_none() || found == Some(pid(first)) || found == Some(pid(second)));
            if let Some(last) = named(&mixed) {
                prop_assert_eq!(last.acquired_at_ms, Some(last.pid.get().into()));
            }
        }
    }
}
