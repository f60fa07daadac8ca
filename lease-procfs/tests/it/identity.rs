//! Identities as text, as values and against each other.

use insta::assert_snapshot;
use lease_procfs::{
    BootId, BootIdError, LaunchId, Matching, Namespace, NamespaceInode, Part, Pid, PidError,
    ProcessIdentity, StartTicks,
};
use proptest::prelude::*;

const BOOT: &str = "251d7b06-ce56-4437-8f88-900d8f613d51";
const OTHER_BOOT: &str = "351d7b06-ce56-4437-8f88-900d8f613d51";
const LAUNCH: &str = "dc0895b6-afec-d185-0651-8e3ddb668a2c";
const OTHER_LAUNCH: &str = "ec0895b6-afec-d185-0651-8e3ddb668a2c";

/// Every part known.
pub(crate) fn whole() -> ProcessIdentity {
    format!(
        "boot={BOOT} trust=yes pid=4242 start=987654 pidfd=71933 pidns=id.4098 timens=id.2 \
         launch={LAUNCH}"
    )
    .parse()
    .unwrap()
}

/// What `/proc` alone tells: no inode, no launch.
fn by_ticks() -> ProcessIdentity {
    let mut identity = whole();
    identity.pidfd_inode = None;
    identity.launch = None;
    identity
}

fn described() -> ProcessIdentity {
    let mut identity = whole();
    identity.launch = None;
    identity
}

fn inode(inode: u64, ticks: Option<u64>) -> Option<Namespace> {
    Some(Namespace::Inode(NamespaceInode {
        inode,
        init_start: ticks.map(StartTicks::new),
    }))
}

fn ticks(ticks: u64) -> StartTicks {
    StartTicks::new(ticks)
}

// B2
#[test]
fn a_pid_alone_never_identifies() {
    let boot: BootId = BOOT.parse().unwrap();
    let other: BootId = OTHER_BOOT.parse().unwrap();
    let pid = Pid::new(4242).unwrap();
    let first = ProcessIdentity::from_triple(boot, pid, ticks(987_654));
    assert_eq!(
        first,
        ProcessIdentity::from_triple(boot, pid, ticks(987_654))
    );
    assert_ne!(
        first,
        ProcessIdentity::from_triple(boot, pid, ticks(987_655))
    );
    assert_ne!(
        first,
        ProcessIdentity::from_triple(other, pid, ticks(987_654))
    );
}

#[test]
fn text_has_one_order_and_leaves_out_what_is_not_known() {
    assert_snapshot!(whole(), @"boot=251d7b06-ce56-4437-8f88-900d8f613d51 trust=yes pid=4242 start=987654 pidfd=71933 pidns=id.4098 timens=id.2 launch=dc0895b6-afec-d185-0651-8e3ddb668a2c");
    let triple = ProcessIdentity::from_triple(whole().boot_id, whole().pid, whole().start_ticks);
    assert_snapshot!(triple, @"boot=251d7b06-ce56-4437-8f88-900d8f613d51 trust=no pid=4242 start=987654");
    let mut old = by_ticks();
    old.pid_namespace = inode(4_026_531_836, Some(25));
    old.time_namespace = inode(4_026_531_834, None);
    assert_snapshot!(old, @"boot=251d7b06-ce56-4437-8f88-900d8f613d51 trust=yes pid=4242 start=987654 pidns=inode.4026531836.25 timens=inode.4026531834");
}

#[track_caller]
fn refuse(text: &str, at: usize, reason: &str) {
    let error = text.parse::<ProcessIdentity>().unwrap_err();
    assert_eq!(
        (error.at, error.reason.to_string()),
        (at, reason.to_owned()),
        "{text:?}"
    );
}

#[test]
fn malformed_text_is_refused_with_place_and_reason() {
    refuse("", 0, "boot= is missing");
    refuse(" boot=x", 0, "boot= is missing");
    refuse("boot=", 5, "boot id is empty");
    refuse(
        "boot=unknown-boot trust=yes",
        5,
        "boot id stands for an unknown boot",
    );
    let start = format!("boot={BOOT}");
    refuse(&start, 41, "trust= is missing");
    refuse(&format!("{start}  trust=yes"), 41, "trust= is missing");
    refuse(
        &format!("{start} trust=maybe"),
        48,
        "trust is neither yes nor no",
    );
    refuse(
        &format!("{start} trust=yes start=5 pid=1"),
        51,
        "pid= is missing",
    );
    let start = format!("{start} trust=yes pid=4242 start=987654");
    refuse(&format!("{start} "), 73, "nothing more should stand here");
    refuse(
        &format!("{start} color=red"),
        73,
        "nothing more should stand here",
    );
    refuse(
        &format!("{start}\n"),
        67,
        "start ticks are not a plain decimal number of 64 bits",
    );
    let inode = "pidfd inode is not a plain decimal number of 64 bits";
    refuse(&format!("{start} pidfd=0x10"), 80, inode);
    refuse(
        &format!("{start} pidfd=1 pidfd=2"),
        81,
        "nothing more should stand here",
    );
    let namespace = "namespace is neither id.N nor inode.N nor inode.N.TICKS";
    for wrong in [
        "",
        "4098",
        "id.",
        "id.-1",
        "inode.",
        "inode.1.",
        "inode.1.2.3",
        "ID.1",
    ] {
        refuse(&format!("{start} pidns={wrong}"), 80, namespace);
        refuse(&format!("{start} timens={wrong}"), 81, namespace);
    }
    let launch = "launch id is not a UUID in its canonical form";
    refuse(
        &format!("{start} launch={}", LAUNCH.to_uppercase()),
        81,
        launch,
    );
    refuse(
        &format!("{start} launch=00000000-0000-0000-0000-000000000000"),
        81,
        launch,
    );
}

// B15
// fault B38
#[test]
fn a_number_that_no_kernel_gives_is_no_pid() {
    let wrong = [
        ("0", "pid is not positive"),
        ("-1", "pid is not positive"),
        ("-2", "pid is not positive"),
        ("4194304", "pid is above 4194303"),
        ("2147483647", "pid is above 4194303"),
        ("2147483648", "pid is above 4194303"),
        ("4294967295", "pid is above 4194303"),
        ("99999999999999999999999", "pid is above 4194303"),
        ("1e99", "pid is not a plain decimal number"),
        ("0x10", "pid is not a plain decimal number"),
        ("007", "pid is not a plain decimal number"),
        ("+7", "pid is not a plain decimal number"),
        ("", "pid is not a plain decimal number"),
        ("null", "pid is not a plain decimal number"),
    ];
    for (pid, reason) in wrong {
        refuse(
            &format!("boot={BOOT} trust=yes pid={pid} start=1"),
            56,
            reason,
        );
    }
    refuse(
        &format!("boot={BOOT} trust=yes pid=12  start=1"),
        58,
        "start= is missing",
    );
    for pid in [1, 4_194_303] {
        assert_eq!(Pid::new(pid).unwrap().to_string().parse(), Pid::new(pid));
    }
    assert_eq!(Pid::new(0), Err(PidError::NotPositive));
    assert_eq!(Pid::new(-1), Err(PidError::NotPositive));
    assert_eq!(Pid::new(i64::MIN), Err(PidError::NotPositive));
    assert_eq!(Pid::new(4_194_304), Err(PidError::TooLarge));
    assert_eq!(Pid::new(i64::MAX), Err(PidError::TooLarge));
}

// fault B38
#[test]
fn ticks_just_fit_or_are_refused() {
    let reason = "start ticks are not a plain decimal number of 64 bits";
    for wrong in ["-1", "18446744073709551616", "1e9", "00", "", "+1", "1.5"] {
        refuse(
            &format!("boot={BOOT} trust=yes pid=1 start={wrong}"),
            64,
            reason,
        );
    }
    for right in ["0", "18446744073709551615"] {
        let text = format!("boot={BOOT} trust=yes pid=1 start={right}");
        assert_eq!(text.parse::<ProcessIdentity>().unwrap().to_string(), text);
    }
}

// B4
#[test]
fn an_unknown_boot_is_no_boot() {
    for sentinel in ["unknown-boot", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(
            sentinel.parse::<BootId>(),
            Err(BootIdError::Sentinel),
            "{sentinel}"
        );
        assert_eq!(
            BootId::from_file(sentinel.as_bytes()),
            Err(BootIdError::Sentinel)
        );
    }
    for empty in ["", " ", "\n"] {
        assert_eq!(empty.parse::<BootId>(), Err(BootIdError::Empty));
        assert_eq!(BootId::from_file(empty.as_bytes()), Err(BootIdError::Empty));
    }
    for other in [
        &BOOT.to_uppercase(),
        &BOOT.replace('-', ""),
        "BOOT1",
        &format!(" {BOOT}"),
    ] {
        assert_eq!(
            other.parse::<BootId>(),
            Err(BootIdError::NotCanonical),
            "{other}"
        );
    }
    let padded = format!(" {BOOT}\n");
    assert_eq!(
        BootId::from_file(padded.as_bytes()).unwrap().to_string(),
        BOOT
    );
    assert_eq!(BootId::from_file(b"\xff"), Err(BootIdError::NotCanonical));
}

#[test]
fn equality_compares_every_part() {
    type Change = fn(&mut ProcessIdentity);
    let changes: [Change; 8] = [
        |i| i.boot_id = OTHER_BOOT.parse().unwrap(),
        |i| i.boot_trusted = false,
        |i| i.pid = Pid::INIT,
        |i| i.start_ticks = ticks(987_655),
        |i| i.pidfd_inode = None,
        |i| i.pid_namespace = None,
        |i| i.time_namespace = None,
        |i| i.launch = None,
    ];
    for (part, change) in changes.iter().enumerate() {
        let mut other = whole();
        change(&mut other);
        assert_ne!(whole(), other, "part {part}");
    }
}

#[track_caller]
fn check(ours: ProcessIdentity, expected: Matching, change: impl FnOnce(&mut ProcessIdentity)) {
    let mut theirs = ours;
    change(&mut theirs);
    assert_eq!(ours.matches(&theirs), expected);
    assert_eq!(theirs.matches(&ours), expected, "both ways round");
}

#[test]
fn a_launch_on_both_sides_decides() {
    check(whole(), Matching::Same, |i| i.boot_trusted = false);
    check(whole(), Matching::Different(Part::Launch), |i| {
        i.launch = Some(OTHER_LAUNCH.parse::<LaunchId>().unwrap());
    });
    check(whole(), Matching::Different(Part::PidfdInode), |i| {
        i.launch = Some(OTHER_LAUNCH.parse::<LaunchId>().unwrap());
        i.pidfd_inode = Some(7);
    });
    // Described by another: the rest decides.
    check(whole(), Matching::Same, |i| i.launch = None);
}

#[test]
fn an_inode_on_both_sides_decides_across_namespaces() {
    check(described(), Matching::Different(Part::PidfdInode), |i| {
        i.pidfd_inode = Some(71_934);
    });
    check(described(), Matching::Same, |i| {
        i.pid = Pid::INIT;
        i.pid_namespace = Some(Namespace::Id(5_000));
        i.time_namespace = Some(Namespace::Id(3));
        i.start_ticks = ticks(1);
    });
    check(described(), Matching::Different(Part::Pid), |i| {
        i.pid = Pid::INIT;
    });
}

#[test]
fn without_an_inode_the_ticks_decide_within_one_namespace() {
    let undecided = Matching::Undecided;
    check(by_ticks(), Matching::Same, |_| {});
    check(by_ticks(), Matching::Same, |i| i.pidfd_inode = Some(71_933));
    check(by_ticks(), Matching::Different(Part::Pid), |i| {
        i.pid = Pid::INIT;
    });
    check(by_ticks(), Matching::Different(Part::StartTicks), |i| {
        i.start_ticks = ticks(1);
    });
    check(by_ticks(), undecided(Part::PidNamespace), |i| {
        i.pid_namespace = Some(Namespace::Id(5_000));
    });
    check(by_ticks(), undecided(Part::PidNamespace), |i| {
        i.pid_namespace = None;
    });
    check(by_ticks(), undecided(Part::TimeNamespace), |i| {
        i.time_namespace = Some(Namespace::Id(3));
    });
    check(by_ticks(), undecided(Part::TimeNamespace), |i| {
        i.time_namespace = None;
    });
}

#[test]
fn boots_decide_only_where_both_are_trusted() {
    let other = |i: &mut ProcessIdentity| i.boot_id = OTHER_BOOT.parse().unwrap();
    check(described(), Matching::Different(Part::BootId), other);
    check(described(), Matching::Undecided(Part::BootId), |i| {
        other(i);
        i.boot_trusted = false;
    });
    check(described(), Matching::Undecided(Part::BootId), |i| {
        i.boot_trusted = false;
    });
}

#[test]
fn a_namespace_inode_proves_sameness_only_with_the_start_of_its_first_process() {
    let named = |namespace: Option<Namespace>| {
        let mut identity = by_ticks();
        identity.pid_namespace = namespace;
        identity
    };
    let against = |ours, theirs| named(ours).matches(&named(theirs));
    let undecided = Matching::Undecided(Part::PidNamespace);
    assert_eq!(
        against(inode(1, Some(5)), inode(1, Some(5))),
        Matching::Same
    );
    assert_eq!(against(inode(1, Some(5)), inode(1, Some(6))), undecided);
    assert_eq!(against(inode(1, None), inode(1, None)), undecided);
    assert_eq!(against(inode(1, Some(5)), inode(1, None)), undecided);
    assert_eq!(
        against(inode(1, Some(5)), Some(Namespace::Id(1))),
        undecided
    );
}

prop_compose! {
    fn any_namespace()(
        number in any::<u64>(),
        start in any::<Option<u64>>(),
        by_inode in any::<bool>(),
    ) -> Namespace {
        if by_inode { inode(number, start).unwrap() } else { Namespace::Id(number) }
    }
}

prop_compose! {
    fn any_identity()(
        pid in 1_i64..=4_194_303,
        start in any::<u64>(),
        boot_trusted in any::<bool>(),
        pidfd_inode in any::<Option<u64>>(),
        pid_namespace in prop::option::of(any_namespace()),
        time_namespace in prop::option::of(any_namespace()),
        has_launch in any::<bool>(),
    ) -> ProcessIdentity {
        let boot = BOOT.parse().unwrap();
        let pid = Pid::new(pid).unwrap();
        let mut identity = ProcessIdentity::from_triple(boot, pid, ticks(start));
        identity.boot_trusted = boot_trusted;
        identity.pidfd_inode = pidfd_inode;
        identity.pid_namespace = pid_namespace;
        identity.time_namespace = time_namespace;
        identity.launch = has_launch.then(|| LAUNCH.parse().unwrap());
        identity
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_brings_every_identity_back(identity in any_identity()) {
        prop_assert_eq!(identity.to_string().parse(), Ok(identity));
    }

    #[test]
    fn changed_text_is_refused_or_another_identity(
        identity in any_identity(),
        at in any::<prop::sample::Index>(),
        byte in 0_u8..128,
    ) {
        let text = identity.to_string();
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let changed = String::from_utf8(bytes).unwrap();
        if let Ok(other) = changed.parse::<ProcessIdentity>() {
            prop_assert_eq!(other.to_string(), changed);
        }
    }

    #[test]
    fn any_text_is_refused_at_a_place_in_it_and_is_not_repeated(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "boot=", BOOT, "trust=", "yes", "no", "pid=", "4242", "start=", "987654", "pidfd=",
                "pidns=id.", "timens=inode.", ".", "launch=", LAUNCH, " ", "=", "\n", "\0", "é",
                "SECRET",
            ]),
            0..24,
        ),
    ) {
        let text = parts.concat();
        match text.parse::<ProcessIdentity>() {
            Ok(identity) => prop_assert_eq!(identity.to_string(), text),
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.at), "{}", error);
                let said = format!("{error} {error:?}");
                prop_assert!(!said.contains("SECRET") && !said.contains("4242"), "{}", said);
            }
        }
    }

    #[test]
    fn matching_is_the_same_both_ways_round(ours in any_identity(), theirs in any_identity()) {
        prop_assert_eq!(ours.matches(&theirs), theirs.matches(&ours));
    }
}

#[cfg(feature = "serde")]
mod wire {
    use super::{ProcessIdentity, any_identity, ticks, whole};
    use proptest::prelude::*;

    fn json(identity: &ProcessIdentity) -> String {
        serde_json::to_string(identity).unwrap()
    }

    #[test]
    fn json_has_plain_numbers_up_to_2_to_the_53_and_text_above() {
        let mut identity = whole();
        identity.start_ticks = ticks(1 << 53);
        identity.pidfd_inode = Some((1 << 53) + 1);
        insta::assert_snapshot!(json(&identity), @r#"{"boot_id":"251d7b06-ce56-4437-8f88-900d8f613d51","boot_trusted":true,"pid":4242,"start_ticks":9007199254740992,"pidfd_inode":"9007199254740993","pid_namespace":{"id":4098},"time_namespace":{"id":2},"launch":"dc0895b6-afec-d185-0651-8e3ddb668a2c"}"#);
    }

    // fault B38
    #[test]
    fn json_with_a_wrong_part_is_refused() {
        let text = json(&whole());
        let wrong = [
            ("4242", "0"),
            ("4242", "-1"),
            ("4242", "4194304"),
            ("4242", "4294967295"),
            ("4242", "1e99"),
            ("4242", "\"4242\""),
            ("4242", "null"),
            ("987654", "-1"),
            ("987654", "18446744073709551616"),
            ("987654", "\"18446744073709551616\""),
            ("987654", "\"007\""),
            ("251d7b06", "251D7B06"),
            ("\"id\"", "\"number\""),
            ("{\"boot_id\"", "{\"color\":1,\"boot_id\""),
        ];
        for (old, new) in wrong {
            let changed = text.replacen(old, new, 1);
            assert_ne!(changed, text);
            assert!(
                serde_json::from_str::<ProcessIdentity>(&changed).is_err(),
                "{changed}"
            );
        }
    }

    #[test]
    fn json_with_a_value_of_another_kind_is_refused_at_its_place_and_not_repeated() {
        let whole = serde_json::to_value(whole()).unwrap();
        let wrong = [
            serde_json::json!("SECRET"),
            serde_json::json!(["SECRET"]),
            serde_json::json!({ "SECRET": "SECRET" }),
            serde_json::json!(1.25),
            serde_json::json!(-77),
        ];
        for field in whole.as_object().unwrap().keys() {
            for value in &wrong {
                let mut changed = whole.clone();
                changed[field] = value.clone();
                let text = changed.to_string();
                let error = serde_json::from_str::<ProcessIdentity>(&text).unwrap_err();
                let said = error.to_string();
                assert!(error.line() == 1 && error.column() > 0, "{field}: {said}");
                for raw in ["SECRET", "1.25", "77"] {
                    assert!(!said.contains(raw), "{field}: {said}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn json_brings_every_identity_back(identity in any_identity()) {
            let back: ProcessIdentity = serde_json::from_str(&json(&identity)).unwrap();
            prop_assert_eq!(back, identity);
        }
    }
}
