//! Keys, names, identifiers, counters, moments and codes: what is accepted, and as what.

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::BTreeSet;

use lease_core::{
    At, AuthorityId, Code, Evidence, FencingToken, Generation, KeyError, LeaseId, Moment,
    NameError, OpId, ResourceKey, Seq, SessionHolder, Slot, Verdict, limits,
};
use proptest::prelude::*;

use crate::rig::{generation, key, ms, who};

#[track_caller]
fn refuses(text: &str, error: KeyError) {
    assert_eq!(ResourceKey::new(text), Err(error), "{text:?}");
    assert_eq!(text.parse::<ResourceKey>(), Err(error), "{text:?}");
}

#[test]
fn a_key_is_kept_as_it_was_given() {
    for text in [
        "a",
        "app/viewport",
        "C:\\data\\x.db",
        " a / b ",
        "...",
        "a/..b/c..",
        "~",
        "Straße/日本語/🦀",
        "e\u{301}/\u{200b}",
        "a%2Fb",
    ] {
        let key = ResourceKey::new(text).unwrap();
        assert_eq!((key.as_str(), key.to_string()), (text, text.to_owned()));
        assert_eq!(key.depth(), text.split('/').count());
    }
}

#[test]
fn one_leading_slash_is_ignored() {
    assert_eq!(key("/app/view"), key("app/view"));
    assert_eq!(key("/app/view").as_str(), "app/view");
    refuses("//app", KeyError::EmptySegment { at: 1 });
}

#[test]
fn a_key_that_names_nothing_is_refused() {
    refuses("", KeyError::Empty);
    refuses("/", KeyError::Empty);
    for (text, at) in [("a//b", 2), ("/a//b", 3), ("a/", 2), ("/a/", 3), ("//", 1)] {
        refuses(text, KeyError::EmptySegment { at });
    }
}

#[test]
fn a_key_that_climbs_is_refused() {
    for (text, at) in [
        (".", 0),
        ("..", 0),
        ("/..", 1),
        ("../a", 0),
        ("a/../b", 2),
        ("a/./b", 2),
        ("/a/b/..", 5),
    ] {
        refuses(text, KeyError::DotSegment { at });
    }
}

#[test]
fn a_key_with_a_control_character_is_refused() {
    for (text, at) in [
        ("\0", 0),
        ("a\0b", 1),
        ("/a\n", 2),
        ("é\t", 2),
        ("a\u{7f}", 1),
        ("a\u{85}", 1),
        ("a\u{9b}31m", 1),
    ] {
        refuses(text, KeyError::Control { at });
    }
}

#[test]
fn a_key_has_at_most_512_bytes() {
    let longest = "x".repeat(limits::KEY_BYTES);
    assert_eq!(key(&longest).as_str(), longest);
    // The ignored slash does not count.
    assert_eq!(key(&format!("/{longest}")).as_str(), longest);
    refuses(&"x".repeat(513), KeyError::TooLong { bytes: 513 });
    let wide = "é".repeat(256);
    assert_eq!(key(&wide).as_str(), wide);
    refuses(&"é".repeat(257), KeyError::TooLong { bytes: 514 });
}

#[test]
fn a_key_has_at_most_32_segments() {
    let deepest = vec!["a"; limits::KEY_SEGMENTS].join("/");
    assert_eq!(key(&deepest).depth(), 32);
    assert_eq!(key(&format!("/{deepest}")).depth(), 32);
    refuses(&vec!["a"; 33].join("/"), KeyError::TooDeep);
}

#[test]
fn keys_overlap_by_whole_segments() {
    let overlapping = [
        ("/app/view", "app/view"),
        ("app", "app/view"),
        ("app", "app/view/grid"),
        ("app/view", "app/view/grid"),
    ];
    for (a, b) in overlapping {
        assert!(
            key(a).overlaps(&key(b)) && key(b).overlaps(&key(a)),
            "{a} {b}"
        );
    }
    let apart = [
        ("/app/view", "/app/viewport"),
        ("app/view", "app/dialog"),
        ("app", "apps"),
        ("app", "App"),
        ("a/b", "b"),
        ("é", "e\u{301}"),
        ("a ", "a"),
    ];
    for (a, b) in apart {
        assert!(
            !key(a).overlaps(&key(b)) && !key(b).overlaps(&key(a)),
            "{a} {b}"
        );
    }
    assert!(key("app").is_ancestor_of(&key("app/view")));
    assert!(!key("app/view").is_ancestor_of(&key("app")));
    assert!(!key("app").is_ancestor_of(&key("app")));
}

#[test]
fn ancestors_come_from_the_outermost_on() {
    let of = |text: &str| key(text).ancestors().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(of("a"), [""; 0]);
    assert_eq!(of("/a/b/c"), ["a", "a/b"]);
    let inner = key("a/b/c").ancestors().next_back().map(str::to_owned);
    assert_eq!(inner.as_deref(), Some("a/b"));
}

/// Keys over few letters, so that they often overlap, with those around `/` in byte order.
fn keys() -> impl Strategy<Value = ResourceKey> {
    proptest::collection::vec("[ab.0!é-]{1,3}", 1..5)
        .prop_map(|segments| segments.join("/"))
        .prop_filter_map("no key", |text| ResourceKey::new(&text).ok())
}

#[test]
fn the_range_of_descendants_holds_exactly_the_descendants() {
    proptest!(|(a in keys(), tail in "[/0ab.!é-]{1,4}")| {
        let Ok(b) = ResourceKey::new(&format!("{a}{tail}")) else { return Ok(()) };
        let (from, to) = a.descendants();
        let within = (from.as_str()..to.as_str()).contains(&b.as_str());
        prop_assert_eq!(within, a.is_ancestor_of(&b));
        let listed = b.ancestors().any(|text| text == a.as_str());
        prop_assert_eq!(listed, a.is_ancestor_of(&b));
        let by_segments = {
            let (a, b): (Vec<_>, Vec<_>) = (a.as_str().split('/').collect(), b.as_str().split('/').collect());
            a.len() < b.len() && b.starts_with(&a)
        };
        prop_assert_eq!(by_segments, a.is_ancestor_of(&b));
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert_eq!(a.overlaps(&b), a == b || a.is_ancestor_of(&b) || b.is_ancestor_of(&a));
    });
}

#[test]
fn the_range_of_descendants_is_named_by_its_ends() {
    let (from, to) = key("app/view").descendants();
    assert_eq!((from.as_str(), to.as_str()), ("app/view/", "app/view0"));
    assert_eq!(format!("{:?}", key("app/view")), "ResourceKey(app/view)");
}

#[test]
fn writers_are_ordered_by_agent_and_then_by_session() {
    let ordered = [who("a", "x"), who("a", "y"), who("ab", "a"), who("b", "a")];
    assert!(ordered.is_sorted());
    assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn no_text_makes_the_reader_of_keys_panic() {
    proptest!(|(text in "\\PC{0,40}|[/.a\0]{0,40}|.{0,600}")| {
        if let Ok(key) = ResourceKey::new(&text) {
            prop_assert_eq!(text.strip_prefix('/').unwrap_or(&text), key.as_str());
            prop_assert_eq!(ResourceKey::new(key.as_str()), Ok(key.clone()));
            prop_assert!(key.as_str().len() <= limits::KEY_BYTES);
            prop_assert!(key.depth() <= limits::KEY_SEGMENTS);
            prop_assert!(!key.as_str().contains(char::is_control));
        }
    });
}

#[test]
fn keys_and_writers_are_hashed_by_what_they_are_compared_by() {
    fn hash(of: &impl core::hash::Hash) -> u64 {
        use core::hash::BuildHasher as _;

        core::hash::BuildHasherDefault::<std::hash::DefaultHasher>::new().hash_one(of)
    }
    assert_eq!(hash(&key("a/b")), hash(&key("/a/b")));
    assert_ne!(hash(&key("a/b")), hash(&key("a/c")));
    assert_eq!(hash(&who("ag-1", "s-1")), hash(&who("ag-1", "s-1")));
    assert_ne!(hash(&who("ag-1", "s-1")), hash(&who("ag-1", "s-2")));
    assert_ne!(hash(&who("ag-1", "s-1")), hash(&who("ag-", "1s-1")));
}

#[test]
fn a_writer_is_named_by_two_bounded_names() {
    let longest = "x".repeat(limits::NAME_BYTES);
    let holder = who(&longest, "s");
    assert_eq!((holder.agent(), holder.session()), (longest.as_str(), "s"));
    let long = format!("{longest}y");
    for (part, given) in [("agent", true), ("session", false)] {
        let name = |text: &str| {
            if given {
                SessionHolder::new(text, "s-1").unwrap_err()
            } else {
                SessionHolder::new("ag-1", text).unwrap_err()
            }
        };
        assert_eq!(name(""), NameError::Empty { part });
        assert_eq!(name(&long), NameError::TooLong { part, bytes: 257 });
        assert_eq!(name("a\0"), NameError::Control { part, at: 1 });
        assert_eq!(name("é\u{85}"), NameError::Control { part, at: 2 });
    }
}

#[test]
fn writers_are_equal_byte_for_byte_in_both_names() {
    assert_eq!(who("ag-1", "s-1"), who("ag-1", "s-1"));
    let others = [
        who("ag-1", "s-2"),
        who("ag-2", "s-1"),
        who("ag-1 ", "s-1"),
        who("Ag-1", "s-1"),
        who("ag-1", "s-1 "),
        who("s-1", "ag-1"),
        who("é", "s-1"),
        who("e\u{301}", "s-1"),
    ];
    let all: BTreeSet<_> = others.iter().cloned().chain([who("ag-1", "s-1")]).collect();
    assert_eq!(all.len(), others.len() + 1);
    assert_eq!(format!("{:?}", who("ag-1", "s-1")), "ag-1/s-1");
}

#[test]
fn an_id_has_one_text_form() {
    let text = "0a1b2c3d-4e5f-4607-8899-aabbccddeeff";
    let id: LeaseId = text.parse().unwrap();
    assert_eq!(id.to_string(), text);
    assert_eq!(format!("{id:?}"), format!("LeaseId({text})"));
    let others = [
        "",
        "0A1B2C3D-4E5F-4607-8899-AABBCCDDEEFF",
        "0a1b2c3d4e5f46078899aabbccddeeff",
        "{0a1b2c3d-4e5f-4607-8899-aabbccddeeff}",
        "urn:uuid:0a1b2c3d-4e5f-4607-8899-aabbccddeeff",
        " 0a1b2c3d-4e5f-4607-8899-aabbccddeeff",
        "0a1b2c3d-4e5f-4607-8899-aabbccddeeff\0",
        "0a1b2c3d-4e5f-4607-8899-aabbccddeef",
        "0a1b2c3d-4e5f-4607-8899-aabbccddeefg",
    ];
    for other in others {
        assert!(other.parse::<LeaseId>().is_err(), "{other:?}");
        assert!(other.parse::<AuthorityId>().is_err(), "{other:?}");
        assert!(other.parse::<OpId>().is_err(), "{other:?}");
    }
    let error = "".parse::<LeaseId>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "not a UUID in its canonical form of 36 lower-case characters"
    );
    let nil = "00000000-0000-0000-0000-000000000000";
    assert_eq!(nil.parse(), Ok(LeaseId::NIL));
    assert_eq!(nil.parse(), Ok(OpId::ACQUISITION));
}

#[test]
fn a_random_id_is_a_uuid_of_version_4_and_never_reserved() {
    for bytes in [[0; 16], [0xFF; 16], [7; 16]] {
        let text = LeaseId::from_random(bytes).to_string();
        assert_eq!(&text[14..15], "4", "{text}");
        assert!(["8", "9", "a", "b"].contains(&&text[19..20]), "{text}");
        assert_ne!(LeaseId::from_random(bytes), LeaseId::NIL);
        assert_ne!(OpId::from_random(bytes), OpId::ACQUISITION);
    }
}

#[test]
fn ids_go_through_text_and_bytes() {
    proptest!(|(bytes: [u8; 16])| {
        let id = AuthorityId::from_bytes(bytes);
        prop_assert_eq!(id.to_bytes(), bytes);
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        let random = AuthorityId::from_random(bytes);
        prop_assert_eq!(random.to_string().parse(), Ok(random));
    });
}

#[test]
fn generations_go_from_1_to_2_to_the_53_less_1_and_never_wrap() {
    let most = (1_u64 << 53) - 1;
    assert_eq!(limits::GENERATION_MAX, most);
    for (number, fits) in [
        (0, false),
        (1, true),
        (most, true),
        (most + 1, false),
        (u64::MAX, false),
    ] {
        assert_eq!(Generation::new(number).map(Generation::get).is_some(), fits);
    }
    assert_eq!(Generation::FIRST.get(), 1);
    assert_eq!(Generation::FIRST.next(), Generation::new(2));
    assert_eq!(generation(most - 1).next(), Some(generation(most)));
    assert_eq!(generation(most).next(), None);
    assert_eq!(generation(most).to_string(), "9007199254740991");
    assert!(generation(2) < generation(10));
}

#[test]
fn a_token_is_shown_in_one_word_with_all_its_parts() {
    let token = FencingToken {
        authority: AuthorityId::from_bytes([0xA1; 16]),
        generation: generation(3),
        lease: LeaseId::from_random([0x2B; 16]),
    };
    let parts = [
        token.authority.to_string(),
        "3".to_owned(),
        token.lease.to_string(),
    ];
    assert_eq!(token.to_string(), parts.join("/"));
    assert!(!token.to_string().contains(char::is_whitespace));
}

#[test]
fn moments_saturate_instead_of_wrapping() {
    let tick = Duration::from_nanos(1);
    assert_eq!(Moment::MAX.after(tick), Moment::MAX);
    assert_eq!(Moment::ZERO.after(Duration::MAX), Moment::MAX);
    assert_eq!(ms(5).after(Duration::ZERO), ms(5));
    assert_eq!(ms(5).since(ms(3)), Duration::from_millis(2));
    // A negative age is none.
    assert_eq!(ms(3).since(ms(5)), Duration::ZERO);
    assert_eq!(Moment::ZERO.since(Moment::MAX), Duration::ZERO);
    assert_eq!(Moment::from_millis(u64::MAX), Moment::MAX);
    assert_eq!(Moment::from_millis(1).as_nanos(), 1_000_000);
    assert_eq!(Moment::from_nanos(1_000_000_001).to_string(), "1.000000001");
    assert_eq!(Moment::MAX.to_string(), "18446744073.709551615");
}

#[test]
fn sequence_numbers_run_on_into_the_next_commit() {
    let seq = |major, minor| Seq { major, minor };
    assert_eq!(seq(4, 0).following(), seq(4, 1));
    assert_eq!(seq(4, u16::MAX).following(), seq(5, 0));
    assert!(seq(4, u16::MAX) < seq(5, 0));
    assert_eq!(seq(4, 2).to_string(), "4.2");
    let mut last = seq(1, 65_000);
    for _ in 0..2_000 {
        let next = last.following();
        assert!(next > last);
        last = next;
    }
    assert_eq!(last, seq(2, 1_464));
}

#[test]
fn a_slot_is_a_hint_or_none() {
    assert_eq!(Slot::NONE.get(), None);
    assert_eq!(Slot::new(0).get(), Some(0));
    assert_eq!(Slot::new(u32::MAX), Slot::NONE);
    let token = FencingToken {
        authority: AuthorityId::from_bytes([1; 16]),
        generation: generation(1),
        lease: LeaseId::from_bytes([1; 16]),
    };
    assert_eq!(At::from(token).slot, Slot::NONE);
}

#[test]
fn every_code_has_a_text_of_its_own() {
    let texts: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(texts.len(), Code::ALL.len());
    for &code in Code::ALL {
        let text = code.to_string();
        assert_eq!((text.as_str(), text.parse()), (code.as_str(), Ok(code)));
        let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        assert!(text.chars().all(allowed), "{text}");
    }
    for text in ["", "created", "CREATED ", "NO_SUCH_CODE"] {
        assert!(text.parse::<Code>().is_err(), "{text:?}");
    }
    let catalogue: Vec<_> = Code::ALL
        .iter()
        .map(|code| format!("{code:?} = {code}"))
        .collect();
    insta::assert_snapshot!(catalogue.join("\n"));
}

#[test]
fn evidence_of_a_verdict_is_bounded_and_printable() {
    let long = "x".repeat(1_000);
    let many: Vec<_> = (0..40).map(|pid| format!("{pid} sh")).collect();
    let evidence = Evidence::new("path_in_use")
        .with_detail(&format!("a\nb\0{long}"))
        .with_occupants(many.iter().map(String::as_str))
        .with_unreadable(3);
    let detail = evidence.detail.clone().unwrap();
    assert!(detail.starts_with("a\\nb\\u{0}x"), "{detail}");
    assert_eq!(detail.len(), limits::TEXT_BYTES);
    assert_eq!(evidence.occupants.len(), limits::OCCUPANTS);
    assert_eq!(evidence.unreadable, 3);
    // A character that does not fit is left out as a whole.
    let wide = Evidence::new("x").with_detail(&"é".repeat(200));
    assert_eq!(wide.detail.unwrap().len(), 256);
    let odd = Evidence::new("x").with_detail(&format!("a{}", "é".repeat(200)));
    assert_eq!(odd.detail.unwrap().len(), 255);
    assert_eq!(Verdict::Dead(evidence.clone()).evidence(), &evidence);
}

/// What a key is, said as plainly as can be.
fn is_sound(text: &str) -> bool {
    let name = text.strip_prefix('/').unwrap_or(text);
    let sound = |segment: &str| !matches!(segment, "" | "." | "..");
    name.len() <= 512
        && name.split('/').count() <= 32
        && name.split('/').all(sound)
        && !name.chars().any(char::is_control)
}

#[test]
fn each_character_at_each_place_of_a_key_is_judged_alike() {
    // Names are read eight bytes at a time, so every length up to three words counts.
    for length in 1..=24_usize {
        for place in 0..length {
            for character in (0..=255_u8).map(char::from).chain(['\u{7FFF}', '\u{FFFD}']) {
                let mut name = vec!['a'; length];
                name[place] = character;
                let name: String = name.into_iter().collect();
                assert_eq!(ResourceKey::new(&name).is_ok(), is_sound(&name), "{name:?}");
            }
        }
    }
}

#[test]
fn a_key_of_any_length_is_kept_as_it_was_given_and_told_from_all_others() {
    // A short name lies in the key itself, a long one elsewhere.
    let letters = "abcdefghijklmnopqrstuvwxyz";
    for length in 1..=letters.len() {
        let name = &letters[..length];
        let key = key(name);
        assert_eq!((key.as_str(), &key), (name, &key.clone()));
        assert_eq!(ResourceKey::new(name), Ok(key.clone()));
        for other in 1..=letters.len() {
            let other = ResourceKey::new(&letters[..other]).unwrap();
            assert_eq!(key.cmp(&other), key.as_str().cmp(other.as_str()));
            assert_eq!(key == other, key.as_str() == other.as_str());
        }
        for place in 0..length {
            let mut other = name.to_owned();
            other.replace_range(place..=place, "-");
            let other = ResourceKey::new(&other).unwrap();
            assert_ne!(key, other);
            assert!(other < key);
            assert_eq!(key.partial_cmp(&other), Some(Ordering::Greater));
        }
    }
}

proptest! {
    #[test]
    fn a_key_is_judged_as_its_segments_say(text in "[a-z./ ~!\u{7f}\u{1}é]{0,40}") {
        prop_assert_eq!(ResourceKey::new(&text).is_ok(), is_sound(&text));
    }
}
