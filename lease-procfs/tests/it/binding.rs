//! Runtime bindings: what is one, what is malformed, and whose it is.

use std::fmt::Write as _;

use lease_core::{Code, LeaseId};
use lease_procfs::binding::{
    BindingError, BindingKind, BindingListError, BindingReason, PREFIX, RuntimeBinding, foreign,
    is_own,
};
use lease_procfs::limits::BINDING_BYTES;
use lease_procfs::{BootIdError, LabelError, ProcessHolder};

const BOOT: &str = "11111111-1111-4111-8111-111111111111";
const L1: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const L2: &str = "aaaaaaaa-0000-4000-8000-000000000002";

/// The parts of a binding as JSON values, in canonical order.
pub(crate) const HOLDER: [(&str, &str); 6] = [
    ("pid", "4300"),
    ("boot_id", "\"11111111-1111-4111-8111-111111111111\""),
    ("start_ticks", "987700"),
    ("client_id", "\"cli-a\""),
    ("session_id", "\"sess-1\""),
    ("run_id", "\"run-1\""),
];
pub(crate) const TOP: [(&str, &str); 2] = [
    ("lease_id", "\"aaaaaaaa-0000-4000-8000-000000000001\""),
    ("kind", "\"agent\""),
];

fn object(parts: &[(&str, &str)]) -> String {
    let parts: Vec<_> = parts.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
    format!("{{{}}}", parts.join(","))
}

pub(crate) fn text_of(holder: &[(&str, &str)], top: &[(&str, &str)]) -> String {
    let holder = object(holder);
    let mut parts = vec![("holder", holder.as_str())];
    parts.extend(top);
    format!("{PREFIX}{}", object(&parts))
}

pub(crate) fn valid() -> String {
    text_of(&HOLDER, &TOP)
}

/// A valid binding but for one value.
fn with(key: &str, value: &str) -> String {
    let change = |parts: &[(&'static str, &'static str)]| {
        let replaced = parts
            .iter()
            .map(|&(k, v)| (k, if k == key { value } else { v }));
        replaced
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect::<Vec<_>>()
    };
    let (holder, top) = (change(&HOLDER), change(&TOP));
    let holder: Vec<_> = holder
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    let top: Vec<_> = top.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    text_of(&holder, &top)
}

#[track_caller]
pub(crate) fn accept<T: AsRef<[u8]> + ?Sized>(text: &T) -> RuntimeBinding {
    let binding = RuntimeBinding::decode(text).unwrap().unwrap();
    assert_eq!(
        RuntimeBinding::decode(&binding.encode()),
        Ok(Some(binding.clone()))
    );
    binding
}

#[track_caller]
pub(crate) fn refuse<T: AsRef<[u8]> + ?Sized>(text: &T) -> BindingError {
    let error = RuntimeBinding::decode(text).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRuntimeBinding);
    assert!(error.at <= text.as_ref().len());
    error
}

/// Refuses a binding for this reason, at the first place where this stands.
#[track_caller]
fn refuse_at(text: &str, place: &str, reason: BindingReason) {
    let at = text.find(place).unwrap();
    let error = refuse(text);
    assert_eq!((error.at, error.reason), (at, reason), "{text}");
}

/// Refuses a binding because of one value, and exactly there.
#[track_caller]
fn refuse_value(key: &str, value: &str, reason: BindingReason) {
    let text = with(key, value);
    let label = format!("\"{key}\":");
    let at = text.find(&label).unwrap() + label.len();
    let error = refuse(&text);
    assert_eq!((error.at, error.reason), (at, reason), "{text}");
}

/// The holder of the lease: the labels of [`valid`] and another process.
fn holder(client: &str, session: Option<&str>, run: Option<&str>) -> ProcessHolder {
    let process = format!("boot={BOOT} trust=yes pid=4242 start=987654");
    let mut holder = ProcessHolder::new(client, process.parse().unwrap()).unwrap();
    if let Some(session) = session {
        holder = holder.with_session(session).unwrap();
    }
    if let Some(run) = run {
        holder = holder.with_run(run).unwrap();
    }
    holder
}

fn h1() -> ProcessHolder {
    holder("cli-a", Some("sess-1"), Some("run-1"))
}

fn lease(text: &str) -> LeaseId {
    text.parse().unwrap()
}

// B43
#[test]
fn only_the_exact_prefix_makes_a_runtime_binding() {
    let others = [
        "",
        "ticket:42",
        "Runtime:process-v1:{}",
        "runtime:process-v1",
        "runtime:process-v2:{}",
    ];
    for text in others
        .map(str::to_owned)
        .into_iter()
        .chain([format!(" {}", valid())])
    {
        assert_eq!(RuntimeBinding::decode(&text), Ok(None), "{text}");
    }
    assert_eq!(RuntimeBinding::decode(b"\xffruntime:process-v1:"), Ok(None));
    let binding = accept(&valid());
    assert_eq!(binding.encode(), valid());
    assert_eq!(
        (binding.pid(), binding.start_ticks().get()),
        (4_300, 987_700)
    );
    assert_eq!(
        (binding.boot_id().to_string().as_str(), binding.lease()),
        (BOOT, Some(lease(L1)))
    );
    assert_eq!(
        (binding.client(), binding.session(), binding.run()),
        ("cli-a", Some("sess-1"), Some("run-1"))
    );
    assert_eq!(refuse(PREFIX).at, PREFIX.len());
}

// B44
#[test]
fn each_key_stands_there_exactly_once_and_no_other_does() {
    for missing in 0..6 {
        let mut parts = HOLDER.to_vec();
        let (key, _) = parts.remove(missing);
        refuse_at(
            &text_of(&parts, &TOP),
            "},",
            BindingReason::MissingKey { key },
        );
    }
    for missing in 0..2 {
        let mut parts = TOP.to_vec();
        let (key, _) = parts.remove(missing);
        let text = text_of(&HOLDER, &parts);
        let error = refuse(&text);
        assert_eq!(
            (error.at, error.reason),
            (text.len() - 1, BindingReason::MissingKey { key })
        );
    }
    let no_holder = format!("{PREFIX}{}", object(&TOP));
    let reason = BindingReason::MissingKey { key: "holder" };
    assert_eq!(refuse(&no_holder).reason, reason);
    assert_eq!(refuse(&format!("{PREFIX}{{}}")).reason, reason);

    let unknown = BindingReason::UnknownKey;
    let top = [TOP.as_slice(), &[("note", "1")]].concat();
    refuse_at(&text_of(&HOLDER, &top), "\"note\"", unknown);
    let inside = [HOLDER.as_slice(), &[("Pid", "1")]].concat();
    refuse_at(&text_of(&inside, &TOP), "\"Pid\"", unknown);
    for text in ["[]", "null", "\"x\"", "7", "[{}]"] {
        let reason = BindingReason::Expected { what: "an object" };
        assert_eq!(refuse(&format!("{PREFIX}{text}")).reason, reason);
        assert_eq!(
            refuse(&format!("{PREFIX}{{\"holder\":{text}")).reason,
            reason
        );
    }
}

#[test]
fn keys_come_in_any_order_with_blanks_and_escapes() {
    let mut parts = HOLDER;
    parts.reverse();
    let holder = object(&parts).replace(':', " :\t").replace(',', "\r\n,");
    let text = format!(
        "{PREFIX} \n{{ \"k\\u0069nd\" : \"ag\\u0065nt\", \"lease_id\":\"{L1}\" ,\"holder\":{holder}}}\n "
    );
    assert_eq!(accept(&text), accept(&valid()));
    assert_eq!(accept(&text).encode(), valid());
}

// B45
#[test]
fn a_repeated_key_is_malformed_at_any_depth_and_in_any_spelling() {
    for (at, &(key, value)) in HOLDER.iter().enumerate() {
        let mut parts = HOLDER.to_vec();
        parts.insert(at, (key, value));
        let text = text_of(&parts, &TOP);
        let error = refuse(&text);
        assert_eq!(error.reason, BindingReason::RepeatedKey { key });
        assert_eq!(
            error.at,
            text.match_indices(&format!("\"{key}\"")).nth(1).unwrap().0
        );
    }
    for repeated in TOP {
        let parts = [TOP.as_slice(), &[repeated]].concat();
        let reason = BindingReason::RepeatedKey { key: repeated.0 };
        assert_eq!(refuse(&text_of(&HOLDER, &parts)).reason, reason);
    }
    let holder = object(&HOLDER);
    let twice = [TOP.as_slice(), &[("holder", holder.as_str())]].concat();
    assert_eq!(
        refuse(&text_of(&HOLDER, &twice)).reason,
        BindingReason::RepeatedKey { key: "holder" }
    );
    let escaped = [HOLDER.as_slice(), &[("p\\u0069d", "1")]].concat();
    refuse_at(
        &text_of(&escaped, &TOP),
        "\"p\\u0069d\"",
        BindingReason::RepeatedKey { key: "pid" },
    );
}

// B46
// fault B38
#[test]
fn numbers_are_integers_from_one_to_the_most_of_their_type() {
    let integer = BindingReason::Expected { what: "an integer" };
    for key in ["pid", "start_ticks"] {
        let range = BindingReason::OutOfRange { key };
        for (value, reason) in [
            ("0", range),
            ("-1", integer),
            ("-0", integer),
            ("+1", integer),
            ("007", integer),
            ("0x10", range),
            ("true", integer),
            ("null", integer),
            ("[]", integer),
            ("4242.0", integer),
            ("1.0", integer),
            ("\"4242\"", integer),
            ("1e3", integer),
            ("1E3", integer),
            ("18446744073709551616", range),
            ("99999999999999999999999999999999", range),
        ] {
            refuse_value(key, value, reason);
        }
        accept(&with(key, "1"));
    }
    assert_eq!(accept(&with("pid", "2147483647")).pid(), i32::MAX);
    for pid in ["2147483648", "4294967295", "4294967297"] {
        refuse_value("pid", pid, BindingReason::OutOfRange { key: "pid" });
    }
    let most = accept(&with("start_ticks", "18446744073709551615"));
    assert_eq!(most.start_ticks().get(), u64::MAX);
}

// B47
#[test]
fn the_client_of_a_binding_has_the_form_of_a_client() {
    for client in ["a", "A1:b.c_d-e", &"x".repeat(128)] {
        assert_eq!(
            accept(&with("client_id", &format!("\"{client}\""))).client(),
            client
        );
    }
    let part = "client";
    for (client, error) in [
        ("", LabelError::Empty { part }),
        ("a b", LabelError::Character { part, at: 1 }),
        ("-a", LabelError::Character { part, at: 0 }),
        ("a\\n", LabelError::Character { part, at: 1 }),
        ("é", LabelError::Character { part, at: 0 }),
        (
            &"x".repeat(129),
            LabelError::TooLong {
                part,
                bytes: 129,
                most: 128,
            },
        ),
    ] {
        let text = with("client_id", &format!("\"{client}\""));
        assert_eq!(refuse(&text).reason, BindingReason::Label(error));
    }
    for value in ["null", "5", "true"] {
        let reason = BindingReason::Expected { what: "a text" };
        assert_eq!(refuse(&with("client_id", value)).reason, reason);
    }
}

// B48
#[test]
fn session_and_run_are_null_or_text_without_nul() {
    for (key, part) in [("session_id", "session"), ("run_id", "run")] {
        for value in ["null", "\"s\"", "\" \"", "\"\\n\"", "\"☃\""] {
            accept(&with(key, value));
        }
        for (value, error) in [
            ("\"\"", LabelError::Empty { part }),
            ("\"a\\u0000b\"", LabelError::Character { part, at: 1 }),
        ] {
            refuse_value(key, value, BindingReason::Label(error));
        }
        for value in ["5", "false", "[]", "nul", "NULL", "{}"] {
            let reason = BindingReason::Expected {
                what: "a text or null",
            };
            refuse_value(key, value, reason);
        }
        let raw = with(key, "\"a\0b\"");
        assert_eq!(refuse(&raw).reason, BindingReason::ControlCharacter);
        let comma = BindingReason::Expected {
            what: "a comma or the end of the object",
        };
        assert_eq!(refuse(&with(key, "nullx")).reason, comma);
    }
    assert_eq!(accept(&with("session_id", "null")).session(), None);
    assert_eq!(accept(&with("run_id", "null")).run(), None);
}

#[test]
fn escapes_stand_for_the_characters_json_says() {
    for (written, read) in [
        (r#"\"\\\/"#, "\"\\/"),
        (r"\b\f\n\r\t", "\u{8}\u{c}\n\r\t"),
        (r"\u0041\u00e9\u2603\uFFFF", "Aé☃\u{ffff}"),
        (r"\ud83d\ude00", "😀"),
        (r"x\uD83D\uDE00y", "x😀y"),
    ] {
        let binding = accept(&with("session_id", &format!("\"{written}\"")));
        assert_eq!(binding.session(), Some(read));
    }
    for half in [
        r"\ud83d",
        r"\ude00",
        r"\ud83dx",
        r"\ud83d\n",
        r"\ud83d\u0041",
        r"\ud83d\ud83d",
        r"\ude00\ud83d",
        r"\u+041",
        r"\u12",
        r"\u00g0",
        r"\x41",
        r"\'",
        r"\N",
        r"\",
    ] {
        let error = refuse(&with("session_id", &format!("\"{half}\"")));
        let is_end = half == r"\";
        assert!(error.reason == BindingReason::Escape || is_end, "{half}");
    }
    for cut in [r"\", r"\u", r"\ud83d", r"\ud83d\u"] {
        let text = with("session_id", &format!("\"{cut}"));
        let text = text.split_once(cut).unwrap().0.to_owned() + cut;
        assert_eq!(refuse(&text).reason, BindingReason::Escape, "{cut}");
    }
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_where_it_is_not() {
    let text = with("session_id", "\"abcdefg\"");
    let at = text.find("efg").unwrap();
    for wrong in [b"\xff".as_slice(), b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"] {
        let (before, after) = text.as_bytes().split_at(at);
        let error = refuse(&[before, wrong, after].concat());
        assert_eq!((error.at, error.reason), (at, BindingReason::NotUtf8));
    }
}

// B49
#[test]
fn ids_are_uuids_in_their_one_spelling() {
    let upper = L1.to_uppercase();
    let plain = L1.replace('-', "");
    let spellings = [
        upper,
        format!("{{{L1}}}"),
        plain,
        format!("urn:uuid:{L1}"),
        format!("{L1} "),
        String::new(),
    ];
    for spelling in spellings {
        let value = format!("\"{spelling}\"");
        assert_eq!(
            refuse(&with("lease_id", &value)).reason,
            BindingReason::LeaseId,
            "{value}"
        );
        let reason = refuse(&with("boot_id", &value)).reason;
        assert!(matches!(reason, BindingReason::BootId(_)), "{reason}");
    }
    assert_eq!(
        refuse(&with("lease_id", "5")).reason,
        BindingReason::Expected {
            what: "a text or null"
        }
    );
    for value in ["5", "null"] {
        assert_eq!(
            refuse(&with("boot_id", value)).reason,
            BindingReason::Expected { what: "a text" }
        );
    }
    let unknown = refuse(&with("boot_id", "\"unknown-boot\"")).reason;
    assert_eq!(unknown, BindingReason::BootId(BootIdError::Sentinel));
    assert_eq!(accept(&with("lease_id", "null")).lease(), None);
    assert_eq!(
        accept(&with("lease_id", &format!("\"{L2}\""))).lease(),
        Some(lease(L2))
    );
}

// B51
#[test]
fn there_are_exactly_five_kinds() {
    let names: Vec<_> = BindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names, ["agent", "background", "command", "preview", "test"]);
    for kind in BindingKind::ALL {
        assert_eq!(
            accept(&with("kind", &format!("\"{}\"", kind.as_str()))).kind(),
            *kind
        );
    }
    for kind in ["\"Agent\"", "\"shell\"", "\"\"", "\"agent \""] {
        assert_eq!(refuse(&with("kind", kind)).reason, BindingReason::Kind);
    }
    for kind in ["[]", "null", "1"] {
        assert_eq!(
            refuse(&with("kind", kind)).reason,
            BindingReason::Expected { what: "a text" }
        );
    }
}

// B52
#[test]
fn length_and_depth_are_bounded() {
    let pad = " ".repeat(BINDING_BYTES - valid().len());
    accept(&format!("{}{pad}", valid()));
    let error = refuse(&format!("{}{pad} ", valid()));
    assert_eq!(
        error.reason,
        BindingReason::TooLong {
            bytes: BINDING_BYTES + 1
        }
    );
    for open in ["[", "{", "{\"holder\":"] {
        let text = format!("{PREFIX}{}", open.repeat(10_000));
        assert_eq!(
            refuse(&text).reason,
            BindingReason::TooLong { bytes: text.len() }
        );
        refuse(&format!("{PREFIX}{}", open.repeat(200)));
    }
    for deep in ["[[[[[]]]]]", "{\"a\":{\"a\":{\"a\":{}}}}"] {
        for key in ["pid", "boot_id", "session_id", "lease_id", "kind"] {
            refuse(&with(key, deep));
        }
    }
}

#[test]
fn the_largest_binding_fits() {
    let widest = "\u{1}".repeat(256);
    let holder = holder(&"x".repeat(128), Some(&widest), Some(&widest));
    let binding = RuntimeBinding::new(BindingKind::Background, Some(lease(L1)), &holder).unwrap();
    let text = binding.encode();
    assert!(text.len() + 32 < BINDING_BYTES, "{}", text.len());
    assert_eq!(accept(&text), binding);
}

#[test]
fn a_holder_is_bound_by_what_a_binding_can_say() {
    let binding = RuntimeBinding::new(BindingKind::Agent, Some(lease(L1)), &h1()).unwrap();
    assert_eq!(
        binding.encode(),
        with("pid", "4242").replace("987700", "987654")
    );
    assert!(is_own(&binding, Some(lease(L1)), &h1()));
    let bare = RuntimeBinding::new(BindingKind::Test, None, &holder("cli-a", None, None)).unwrap();
    insta::assert_snapshot!(bare.encode(), @r#"runtime:process-v1:{"holder":{"pid":4242,"boot_id":"11111111-1111-4111-8111-111111111111","start_ticks":987654,"client_id":"cli-a","session_id":null,"run_id":null},"lease_id":null,"kind":"test"}"#);
    let first: lease_procfs::ProcessIdentity = format!("boot={BOOT} trust=yes pid=1 start=0")
        .parse()
        .unwrap();
    let holder = ProcessHolder::new("init", first).unwrap();
    assert_eq!(RuntimeBinding::new(BindingKind::Agent, None, &holder), None);
}

// B53
#[test]
fn a_binding_is_own_by_lease_and_labels_whatever_its_process() {
    let own = accept(&valid());
    assert_eq!(own.pid(), 4_300, "another process than the holder's");
    assert!(is_own(&own, Some(lease(L1)), &h1()));
    let other_boot = accept(&with("boot_id", &format!("\"{L2}\"")));
    assert!(is_own(&other_boot, Some(lease(L1)), &h1()));
    for (key, value) in [
        ("lease_id", format!("\"{L2}\"")),
        ("lease_id", "null".to_owned()),
        ("session_id", "null".to_owned()),
        ("session_id", "\"sess-2\"".to_owned()),
        ("run_id", "null".to_owned()),
        ("run_id", "\"run-2\"".to_owned()),
        ("client_id", "\"cli-b\"".to_owned()),
    ] {
        assert!(
            !is_own(&accept(&with(key, &value)), Some(lease(L1)), &h1()),
            "{key}"
        );
    }
    assert!(!is_own(
        &own,
        Some(lease(L1)),
        &holder("cli-a", None, Some("run-1"))
    ));
    assert!(!is_own(
        &own,
        Some(lease(L1)),
        &holder("cli-a", Some("sess-1"), None)
    ));
}

// B54
#[test]
fn without_a_lease_a_binding_without_lease_id_is_own() {
    let unbound = accept(&with("lease_id", "null"));
    assert!(is_own(&unbound, None, &h1()));
    assert!(!is_own(&accept(&valid()), None, &h1()));
    assert!(!is_own(&unbound, Some(lease(L1)), &h1()));
}

// B55
#[test]
fn any_other_binding_is_foreign() {
    let list = [
        "ticket:42".to_owned(),
        valid(),
        String::new(),
        with("client_id", "\"cli-b\""),
    ];
    assert_eq!(foreign(&list, Some(lease(L1)), &h1()), Ok(vec![0, 2, 3]));
    assert_eq!(foreign(&list[1..2], Some(lease(L1)), &h1()), Ok(vec![]));
    assert_eq!(foreign(Vec::<String>::new(), None, &h1()), Ok(vec![]));
}

#[track_caller]
fn refuse_list(list: &[String]) -> BindingListError {
    let error = foreign(list, Some(lease(L1)), &h1()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRuntimeBinding);
    error
}

// B56
#[test]
fn one_malformed_binding_fails_the_whole_list() {
    let malformed = with("pid", "0");
    let error = refuse(&malformed);
    for before in [valid(), "ticket:42".to_owned(), with("lease_id", "null")] {
        let found = refuse_list(&[before.clone(), malformed.clone()]);
        assert_eq!((found.index, found.error), (1, error));
        let found = refuse_list(&[malformed.clone(), before]);
        assert_eq!((found.index, found.error), (0, error));
    }
}

// B57
#[test]
fn bindings_of_the_earlier_lease_are_foreign_to_the_next_one() {
    let left = [valid()];
    let process = format!("boot={BOOT} trust=yes pid=4400 start=995000");
    let next = ProcessHolder::new("cli-a", process.parse().unwrap()).unwrap();
    let next = next
        .with_session("sess-1")
        .unwrap()
        .with_run("run-1")
        .unwrap();
    assert_eq!(
        foreign(&left, Some(lease(L1)), &next),
        Ok(vec![]),
        "at the takeover"
    );
    assert_eq!(
        foreign(&left, Some(lease(L2)), &next),
        Ok(vec![0]),
        "under the new lease"
    );
}

// S27
#[test]
fn repeated_keys_and_wrong_numbers_are_malformed_alone_and_beside_a_valid_one() {
    let kind_twice = [TOP.as_slice(), &[TOP[1]]].concat();
    let lease_twice = [TOP.as_slice(), &[TOP[0]]].concat();
    let pid_twice = [HOLDER.as_slice(), &[HOLDER[0]]].concat();
    let extra = [TOP.as_slice(), &[("note", "\"secret\"")]].concat();
    for malformed in [
        text_of(&HOLDER, &kind_twice),
        text_of(&HOLDER, &lease_twice),
        text_of(&pid_twice, &TOP),
        text_of(&HOLDER, &extra),
        with("pid", "true"),
        with("start_ticks", "1.0"),
    ] {
        let error = refuse(&malformed);
        let found = refuse_list(&[valid(), malformed]);
        assert_eq!((found.index, found.error), (1, error));
    }
}

#[test]
fn errors_say_what_is_wrong_and_repeat_nothing() {
    let mut said = String::new();
    let secret = "s3cret";
    for text in [
        with("boot_id", "\"s3cret\""),
        with("session_id", "\"s3cret\0\""),
        with("session_id", "\"s3cret\\ud800\""),
        with("session_id", "s3cret"),
        with("kind", "\"s3cret\""),
        with("client_id", "\"s3cret!\""),
        with("lease_id", "\"s3cret\""),
        text_of(&HOLDER[..5], &TOP),
        with("pid", "99999999999"),
        text_of(&HOLDER, &[TOP[0], TOP[0]]),
        format!("{PREFIX}{}", "s3cret".repeat(1_000)),
        format!("{}s3cret", valid()),
        text_of(&HOLDER, &[("s3cret", "1")]),
    ] {
        let error = refuse(&text);
        assert!(!error.to_string().contains(secret));
        writeln!(said, "{error}").unwrap();
    }
    let not_utf8 = valid().replace("sess", "\u{1}\u{1}\u{1}\u{1}").into_bytes();
    let not_utf8: Vec<u8> = not_utf8
        .into_iter()
        .map(|byte| if byte == 1 { 0xff } else { byte })
        .collect();
    writeln!(said, "{}", refuse(&not_utf8)).unwrap();
    said.push_str(&refuse_list(&[valid(), with("pid", "0")]).to_string());
    insta::assert_snapshot!(said);
}
