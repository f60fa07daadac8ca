//! Labels of a holder, and when two holders are one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use lease_core::{Code, Holder as _};
use lease_procfs::{LabelError, Pid, ProcessGroup, ProcessHolder, TargetPath, TargetPathError};

use crate::identity::whole;

fn holder() -> ProcessHolder {
    ProcessHolder::new("codex", whole()).unwrap()
}

fn full() -> ProcessHolder {
    holder()
        .with_session("s-1")
        .unwrap()
        .with_run("r-1")
        .unwrap()
}

// B14
#[test]
fn client_has_a_form() {
    let long = "x".repeat(128);
    for right in ["a", "7", "A1:b.c_d-e", &long] {
        assert_eq!(ProcessHolder::new(right, whole()).unwrap().client(), right);
    }
    let part = "client";
    let character = |at| LabelError::Character { part, at };
    let too_long = LabelError::TooLong {
        part,
        bytes: 129,
        most: 128,
    };
    let wrong = [
        ("", LabelError::Empty { part }),
        ("-a", character(0)),
        (".a", character(0)),
        ("a b", character(1)),
        ("a\n", character(1)),
        ("a\0", character(1)),
        ("é", character(0)),
        ("aé", character(1)),
        (&"x".repeat(129), too_long),
    ];
    for (client, expected) in wrong {
        let refused = ProcessHolder::new(client, whole()).unwrap_err();
        assert_eq!(
            (refused, refused.code()),
            (expected, Code::InvalidHolder),
            "{client:?}"
        );
    }
}

// B17
#[test]
fn session_and_run_are_left_out_or_not_empty() {
    assert_eq!((holder().session(), holder().run()), (None, None));
    assert_eq!((full().session(), full().run()), (Some("s-1"), Some("r-1")));
    for (label, at) in [("\0", 0), ("a\0b", 1)] {
        let session = holder().with_session(label).unwrap_err();
        assert_eq!(
            session,
            LabelError::Character {
                part: "session",
                at
            }
        );
        let run = holder().with_run(label).unwrap_err();
        assert_eq!(run, LabelError::Character { part: "run", at });
    }
    let session = holder().with_session("").unwrap_err();
    assert_eq!(session, LabelError::Empty { part: "session" });
    assert_eq!(session.code(), Code::InvalidHolder);
    assert_eq!(
        holder().with_run("").unwrap_err(),
        LabelError::Empty { part: "run" }
    );
    assert!(holder().with_run(&"x".repeat(256)).is_ok());
    let long = holder().with_run(&"x".repeat(257)).unwrap_err();
    assert_eq!(
        long,
        LabelError::TooLong {
            part: "run",
            bytes: 257,
            most: 256
        }
    );
}

// B18
#[test]
fn one_changed_part_makes_another_holder() {
    assert_eq!(full(), full());
    let mut other_pid = whole();
    other_pid.pid = Pid::INIT;
    let mut other_boot = whole();
    other_boot.boot_id = "351d7b06-ce56-4437-8f88-900d8f613d51".parse().unwrap();
    let mut other_ticks = whole();
    other_ticks.start_ticks = "987655".parse().unwrap();
    let with = |client, process| {
        let holder = ProcessHolder::new(client, process).unwrap();
        holder.with_session("s-1").unwrap().with_run("r-1").unwrap()
    };
    let others = [
        with("other", whole()),
        full().with_session("s-2").unwrap(),
        full().with_run("r-2").unwrap(),
        with("codex", other_pid),
        with("codex", other_boot),
        with("codex", other_ticks),
        holder().with_run("r-1").unwrap(),
        holder().with_session("s-1").unwrap(),
    ];
    for (at, other) in others.iter().enumerate() {
        assert_ne!(&full(), other, "copy {at}");
        for (place, third) in others.iter().enumerate() {
            assert_eq!(other == third, at == place, "{at} and {place}");
        }
    }
}

#[test]
fn target_is_an_absolute_path_of_any_bytes() {
    assert_eq!(TargetPath::new("a/b"), Err(TargetPathError::NotAbsolute));
    assert_eq!(TargetPath::new(""), Err(TargetPathError::NotAbsolute));
    assert_eq!(TargetPath::new("/a\0b"), Err(TargetPathError::Nul));
    assert_eq!(
        TargetPath::new("/a/../b"),
        Err(TargetPathError::NotResolved)
    );
    let path = TargetPath::new("/a b/\n").unwrap();
    assert_eq!(path.as_path().to_str(), Some("/a b/\n"));
}

// B42
#[test]
fn equal_targets_are_written_in_one_way() {
    for text in ["/a/b", "/a//b", "//a/./b", "/a/b/", "/a/b/.", "/a/b//"] {
        let path = TargetPath::new(text).unwrap();
        assert_eq!(path.as_path().to_str(), Some("/a/b"), "{text}");
    }
    for text in ["/", "//", "/."] {
        assert_eq!(TargetPath::new(text).unwrap().as_path().to_str(), Some("/"));
    }
}

#[test]
fn holder_is_a_process_that_shows_its_labels() {
    assert_eq!(ProcessHolder::KIND, "process");
    insta::assert_snapshot!(format!("{:?}", full()), @r#"codex/"s-1"/"r-1" [boot=251d7b06-ce56-4437-8f88-900d8f613d51 trust=yes pid=4242 start=987654 pidfd=71933 pidns=id.4098 timens=id.2 launch=dc0895b6-afec-d185-0651-8e3ddb668a2c]"#);
}

#[cfg(feature = "serde")]
#[test]
fn json_brings_a_holder_back_and_checks_it() {
    for holder in [holder(), full()] {
        let text = serde_json::to_string(&holder).unwrap();
        assert_eq!(
            serde_json::from_str::<ProcessHolder>(&text).unwrap(),
            holder
        );
        for (old, new) in [("codex", "-a"), ("client", "klient")] {
            let changed = text.replacen(old, new, 1);
            assert!(
                serde_json::from_str::<ProcessHolder>(&changed).is_err(),
                "{changed}"
            );
        }
    }
    let text = serde_json::to_string(&full()).unwrap().replace("s-1", "");
    assert!(serde_json::from_str::<ProcessHolder>(&text).is_err());
}

#[test]
fn a_recorded_group_is_evidence_and_no_part_of_who_a_holder_is() {
    let hash = |holder: &ProcessHolder| {
        let mut hasher = DefaultHasher::new();
        holder.hash(&mut hasher);
        hasher.finish()
    };
    let group = |number| ProcessGroup::new(Pid::new(number).unwrap());
    let recorded = full().with_group(group(4_200));
    assert_eq!(recorded.group(), Some(group(4_200)));
    for other in [full(), full().with_group(group(4_300))] {
        assert_eq!(recorded, other);
        assert_eq!(hash(&recorded), hash(&other));
    }
    assert!(format!("{recorded:?}").ends_with(" group=4200"));
    assert_eq!("4200".parse(), Ok(group(4_200)));
    assert!("-4200".parse::<ProcessGroup>().is_err());
}

#[cfg(feature = "serde")]
#[test]
fn json_keeps_a_recorded_group_and_reads_records_without_one() {
    let recorded = full().with_group(ProcessGroup::new(Pid::new(4_200).unwrap()));
    let text = serde_json::to_string(&recorded).unwrap();
    assert!(text.contains(r#""group":4200"#), "{text}");
    let back: ProcessHolder = serde_json::from_str(&text).unwrap();
    assert_eq!((back.group(), &back), (recorded.group(), &recorded));
    let old = text.replace(r#","group":4200"#, "");
    let back: ProcessHolder = serde_json::from_str(&old).unwrap();
    assert_eq!((back.group(), &back), (None, &recorded));
    for wrong in ["0", "-4200", "4194304", "\"4200\""] {
        let changed = text.replace("4200}", &format!("{wrong}}}"));
        assert_ne!(changed, text);
        assert!(
            serde_json::from_str::<ProcessHolder>(&changed).is_err(),
            "{changed}"
        );
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_name_that_is_no_parts_is_shown_as_text_that_cannot_hurt() {
    let holder = serde_json::to_value(full()).unwrap();
    let process = holder["process"].clone();
    let inode = serde_json::json!({ "inode": 7 });
    let long = format!("\u{1b}[2J\u{9b}\n{}", "x".repeat(9_000));
    let with = |mut value: serde_json::Value| {
        value[&long] = serde_json::json!(1);
        value
    };
    let mut inside = holder.clone();
    inside["process"] = with(process.clone());
    let said = [
        serde_json::from_value::<ProcessHolder>(with(holder)).unwrap_err(),
        serde_json::from_value::<ProcessHolder>(inside).unwrap_err(),
        serde_json::from_value::<lease_procfs::ProcessIdentity>(with(process)).unwrap_err(),
        serde_json::from_value::<lease_procfs::NamespaceInode>(with(inode)).unwrap_err(),
    ];
    for error in said {
        let text = error.to_string();
        assert!(
            text.starts_with("unknown field `\\u{1b}[2J\\u{9b}\\nxxx"),
            "{text}"
        );
        assert!(
            text.len() < 400 && !text.chars().any(char::is_control),
            "{text}"
        );
    }
}
